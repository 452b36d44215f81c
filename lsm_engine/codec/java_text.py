"""Values as Java prints them: partition directories are named by these texts."""

import decimal
from typing import Any

import numpy as np

_SECONDS_PER_DAY = 86_400


def date_text(days: int) -> str:
    """Return days since 1970 as an ISO date; years beyond 9999 carry a sign, as in Java."""
    year, month, day = _civil(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def time_text(millis: int, precision: int) -> str:
    """Return milliseconds of a day as hh:mm:ss, with decimals to the last that is not zero, at most
    `precision` and at least one; none for precision 0.
    """
    seconds, remainder = divmod(millis, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    decimals = f"{remainder:03d}".rstrip("0") or "0"
    return f"{text}.{decimals[:precision]}" if precision else text


def timestamp_text(seconds: int, nanos: int, precision: int | None) -> str:
    """Return a timestamp; `precision` None: as LocalDateTime prints itself, T in the middle.

    Otherwise as a cast to text: a space, and at least `precision` decimals.
    """
    days, of_day = divmod(seconds, _SECONDS_PER_DAY)
    clock = f"{of_day // 3600:02d}:{of_day // 60 % 60:02d}"
    second = of_day % 60
    if precision is None:
        if not second and not nanos:
            return f"{date_text(days)}T{clock}"
        return f"{date_text(days)}T{clock}:{second:02d}{_grouped_fraction(nanos)}"
    fraction = f"{nanos:09d}"
    while len(fraction) > precision and fraction.endswith("0"):
        fraction = fraction[:-1]
    return f"{date_text(days)} {clock}:{second:02d}" + (f".{fraction}" if fraction else "")


def _grouped_fraction(nanos: int) -> str:
    """Three, six or nine decimals, whichever is exact; none for zero."""
    if nanos == 0:
        return ""
    if nanos % 1_000_000 == 0:
        return f".{nanos // 1_000_000:03d}"
    return f".{nanos // 1000:06d}" if nanos % 1000 == 0 else f".{nanos:09d}"


def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of the proleptic Gregorian calendar, whatever the year."""
    # Years that begin in March put the leap day last; 400 of them have always 146097 days.
    shifted = days + 719_468
    era, of_era = divmod(shifted, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def decimal_text(value: Any) -> str:
    """Return a decimal without an exponent, all digits of its scale shown."""
    assert isinstance(value, decimal.Decimal), value
    return format(value, "f")


def floating_text(value: float, *, single: bool) -> str:
    """Return the shortest digits that read back as the value, in Java's notation.

    Two digits at least: the smallest values are 4.9E-324 and 1.4E-45.
    """
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    number = np.float32(value) if single else np.float64(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(np.format_float_positional(number, unique=True, trim="0"))
    text = np.format_float_scientific(number, unique=True, trim="0", exp_digits=1)
    mantissa, _, exponent = text.partition("e")
    nearest, _, its_exponent = f"{float(number):.1e}".partition("e")
    if mantissa.endswith(".0") and int(its_exponent) == int(exponent):
        mantissa = nearest
    return f"{mantissa}E{int(exponent)}"

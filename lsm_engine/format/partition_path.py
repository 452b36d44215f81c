"""The directory of a partition: `a=1/b=x`, escaped (format section 9).

A partition gives a path, and a path gives no partition: several partitions may share a directory, so only the
stored row identifies the partition."""

import decimal
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.format.binary_row import decode_columns, scalar
from lsm_engine.types.types import BINARY, TEXT, TIMESTAMPS, DataField, Root, ScalarType

# -- Values as Java prints them: partition directories are named by these texts --------------------

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


# -- The directory of a partition: `a=1/b=x`, escaped (format section 9) ---------------------------

_UNSAFE = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^]")
_TICKS_PER_SECOND = {"ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def partition_paths(
    columns: Sequence[pa.Array],
    fields: Sequence[DataField],
    *,
    default_name: str = "__DEFAULT_PARTITION__",
    legacy_name: bool = True,
) -> list[str]:
    """Return partitions' directories below their table, without a slash at either end.

    `columns` are the values of the partition columns `fields`, in order; without any it is the one of the
    table, "". NULL, empty and blank text become `default_name`. `legacy_name`: values as Java prints its
    internal values (a date is its number of days); otherwise as a cast to text gives them.
    """
    paths = [""] * (len(columns[0]) if columns else 1)
    for field, column in zip(fields, columns, strict=True):
        texts = _texts(column, scalar(field.type), legacy=legacy_name)
        name = escape(field.name)
        parts = (f"{name}={escape(text or default_name)}" for text in texts)
        paths = [
            f"{path}/{part}" if path else part for path, part in zip(paths, parts, strict=True)
        ]
    return paths


def partition_path(
    stored: bytes,
    fields: Sequence[DataField],
    *,
    default_name: str = "__DEFAULT_PARTITION__",
    legacy_name: bool = True,
) -> str:
    """Return the directory of one stored partition, as `partition_paths` does."""
    row = decode_columns(pa.array([stored], pa.binary()), [field.type for field in fields])
    return partition_paths(row, fields, default_name=default_name, legacy_name=legacy_name)[0]


def escape(text: str) -> str:
    """Return text with the characters that a directory name must not have as %XX."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _texts(column: pa.Array, kind: ScalarType, *, legacy: bool) -> list[str | None]:
    """Return the values' names; None where the default name stands for one."""
    spell: Callable[..., str | None]
    if kind.root in TIMESTAMPS:
        spell = partial(_timestamp_text, kind, column.type.unit, legacy=legacy)
        column = column.cast(pa.int64())
    elif kind.root is Root.DATE:
        spell, column = str if legacy else date_text, column.cast(pa.int32())
    elif kind.root is Root.TIME:
        spell = str if legacy else partial(time_text, precision=kind.precision or 0)
        column = column.cast(pa.int32())
    elif kind.root in (Root.FLOAT, Root.DOUBLE):
        spell = partial(floating_text, single=kind.root is Root.FLOAT)
    else:
        spell = partial(_plain_text, kind=kind, legacy=legacy)
    return [None if value is None else spell(value) for value in column.to_pylist()]


def _timestamp_text(kind: ScalarType, unit: str, ticks: int, *, legacy: bool) -> str:
    per_second = _TICKS_PER_SECOND[unit]
    nanos = ticks % per_second * (1_000_000_000 // per_second)
    return timestamp_text(ticks // per_second, nanos, None if legacy else kind.precision or 0)


def _plain_text(value: object, kind: ScalarType, *, legacy: bool) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes() if kind.root in BINARY:
            return _binary_text(value, legacy=legacy)
        case str() if kind.root in TEXT:
            return value if value.strip(_BLANKS) else None
        case _ if kind.root is Root.DECIMAL:
            return decimal_text(value)
        case _:
            return str(value)


_BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a"
    "\u2028\u2029\u205f\u3000"
)
"""White space as Java counts it: without no-break spaces."""


def _binary_text(value: bytes, *, legacy: bool) -> str | None:
    if legacy:
        raise UnsupportedError(
            "a binary partition column has no legacy directory name; set partition.legacy-name=false",
            kind=ErrorKind.UNSUPPORTED_TYPE,
        )
    try:
        text = value.decode()
    except UnicodeDecodeError as cause:
        raise UnsupportedError(
            "a partition's directory is named by its values, and this binary one is no UTF-8 text; "
            "partition by a text column, such as its hexadecimal form",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            value=value.hex(),
        ) from cause
    return text if text.strip(_BLANKS) else None

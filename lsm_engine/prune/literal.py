"""A value against a column's type: where it stands among the values that the column can hold.

Nothing is rounded. A value that the column cannot hold lies between two that it can, or beyond all
of them, so that a comparison with it becomes one that the column can answer.
"""

import datetime as dt
import re
from decimal import Decimal
from fractions import Fraction
from math import isinf, isnan
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.prune.where import TypedText

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  wall clock or UTC, as the column has it
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DAY = 86_400 * _NANOS["s"]
_ZONED = re.compile(r"(Z|\d:\d{2}.*[+-]\d{2}(:?\d{2})?)$")
_FAR = 10**500
"""Beyond every number that a column can hold."""


@record
class Place:
    """A value among a column's, counted in the column's unit: at `at`, or else right above it."""

    at: int
    is_exact: bool


def is_counted(kind: pa.DataType) -> bool:
    """Whether the values of a type are whole multiples of a unit: numbers but floats, and times."""
    of = pa.types
    return bool(of.is_integer(kind) or of.is_decimal(kind) or of.is_temporal(kind))


def place_of(value: object, column: str, kind: pa.DataType) -> Place:
    """Return where a value lies among those of a counted type.

    Raises InvalidInputError, naming the column, for a value of another family.
    """
    try:
        found = _place(plain(value), kind)
    except (pa.ArrowException, ValueError, ArithmeticError, OverflowError, TypeError) as cause:
        raise unfit(value, column, kind) from cause
    if found is None:
        raise unfit(value, column, kind)
    return found


def limits(kind: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest value of a counted type, in its unit."""
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return -most, most
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def counted(at: int, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a counted type that is so many of its units."""
    if not pa.types.is_decimal(kind):
        return pa.scalar(at, kind)
    digits = tuple(int(digit) for digit in str(abs(at)))
    return pa.scalar(Decimal((int(at < 0), digits, -kind.scale)), kind)


def double_of(value: object, column: str, kind: pa.DataType) -> tuple[float, int]:
    """Return the double nearest to a number, and whether the number is less (-1), equal or greater.

    Fractions count as the double that is written so; whole numbers of any size are compared exactly.
    """
    number = plain(value)
    if isinstance(number, float):
        return number, 0
    if isinstance(number, Decimal):
        return float(number), 0
    if not isinstance(number, int) or isinstance(number, bool):
        raise unfit(value, column, kind)
    try:
        near = float(number)
    except OverflowError:
        return (float("inf"), -1) if number > 0 else (float("-inf"), 1)
    return near, (number > int(near)) - (number < int(near))


def same_kind(value: object, column: str, kind: pa.DataType) -> pa.Scalar:
    """Return a value of text, bytes or truth; raises InvalidInputError for another family."""
    found, of = plain(value), pa.types
    if of.is_string(kind) and isinstance(found, str):
        try:
            return pa.scalar(found, kind)
        except UnicodeEncodeError as cause:
            raise unfit(value, column, kind) from cause
    if of.is_boolean(kind) and isinstance(found, bool):
        return pa.scalar(found, kind)
    if _is_bytes(kind) and isinstance(found, bytes | bytearray | memoryview):
        return pa.scalar(bytes(found), kind)
    raise unfit(value, column, kind)


def plain(value: object) -> Any:
    """Return a value of NumPy or Arrow as Python's; times of Arrow stay, as Python's are coarser."""
    if isinstance(value, np.datetime64):
        known = np.datetime_data(value.dtype)[0] in _NANOS
        return pa.scalar(value if known else value.astype("datetime64[s]"))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, pa.Scalar) and not pa.types.is_temporal(value.type):
        return value.as_py()
    return value


def unfit(value: object, column: str, kind: pa.DataType) -> InvalidInputError:
    """Return the error of a value that a column is not compared with; its text has what to write."""
    shown = f"{value.kind.upper()} {value.text!r}" if isinstance(value, TypedText) else repr(value)
    of, hint = pa.types, ""
    if of.is_nested(kind):
        hint = "; only whether it is null can be asked"
    elif isinstance(value, str) and (of.is_integer(kind) or of.is_floating(kind)):
        hint = "; write numbers without quotes"
    elif isinstance(value, str) and _is_bytes(kind):
        hint = "; write bytes as X'00ff' in SQL, b'...' in Python"
    elif isinstance(value, str) and of.is_temporal(kind):
        hint = f"; write {_EXAMPLES[_family(kind)]}"
    elif isinstance(value, dt.datetime | np.datetime64) and of.is_timestamp(kind):
        without = getattr(value, "tzinfo", None) is None
        hint = "; give it a time zone" if without else "; the column has no time zone: leave it out"
    elif of.is_string(kind):
        hint = "; write text in single quotes"
    return InvalidInputError(
        f"column {column!r} is {kind} and cannot be compared with {shown}{hint}",
        kind=ErrorKind.INVALID_FILTER,
        column=column,
    )


_EXAMPLES = {
    "date": "'2024-05-01'",
    "timestamp": "'2024-05-01 08:00:00', with an offset only where the column is an instant",
    "time": "'08:00:00'",
}


def _family(kind: pa.DataType) -> str:
    of = pa.types
    return "date" if of.is_date(kind) else "timestamp" if of.is_timestamp(kind) else "time"


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _place(value: Any, kind: pa.DataType) -> Place | None:
    if not pa.types.is_temporal(kind):
        return _number(value, kind)
    if pa.types.is_time(kind):
        nanos, unit = _clock_nanos(value), _NANOS[kind.unit]
    else:
        nanos = _moment_nanos(value, None if pa.types.is_date(kind) else kind.tz)
        unit = _DAY if pa.types.is_date32(kind) else _NANOS[getattr(kind, "unit", "ms")]
    return None if nanos is None else Place(at=nanos // unit, is_exact=nanos % unit == 0)


def _number(value: Any, kind: pa.DataType) -> Place | None:
    """A number in units of the type. Of a decimal column, a float is the decimal it is written as."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    written = pa.types.is_decimal(kind)
    scale = kind.scale if written else 0
    if isinstance(value, int):
        return Place(at=value * 10**scale, is_exact=True)
    if isnan(value):
        return None
    if isinf(value):
        return Place(at=_FAR if value > 0 else -_FAR, is_exact=False)
    number = Decimal(repr(value) if written and isinstance(value, float) else value)
    if number and not -400 < number.adjusted() < 400:  # 1e999999 would be a million digits
        large = number.adjusted() > 0
        return Place(
            at=(_FAR if large else 0) * (1 if number > 0 else -1) - (number < 0), is_exact=False
        )
    units = Fraction(number) * 10**scale
    return Place(at=units.__floor__(), is_exact=units.denominator == 1)


def _moment_nanos(value: Any, zone: str | None) -> int | None:
    """A date or time since 1970, by the wall clock or, for a column with a zone, in UTC."""
    if isinstance(value, TypedText):
        value = value.text if value.kind in ("date", "timestamp") else None
    if isinstance(value, str):
        return _text_nanos(value, zone)
    if isinstance(value, pa.Scalar):
        if pa.types.is_date32(value.type):
            return int(value.value) * _DAY
        zoned = pa.types.is_timestamp(value.type) and value.type.tz is not None
        fits = pa.types.is_timestamp(value.type) and zoned == (zone is not None)
        return int(value.value) * _NANOS[value.type.unit] if fits else None
    if isinstance(value, dt.datetime):
        if (value.tzinfo is None) != (zone is None):
            return None
        moment = value if zone is None else value.astimezone(dt.UTC)
        whole = (moment.replace(tzinfo=None) - _EPOCH) // dt.timedelta(microseconds=1)
        return whole * 1_000 + int(getattr(value, "nanosecond", 0))  # pandas' are finer
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days * _DAY
    return None


def _text_nanos(text: str, zone: str | None) -> int:
    if zone is not None and not _ZONED.search(text):
        text += "Z" if ":" in text else " 00:00:00Z"
    written = pa.scalar(text)
    try:
        return int(written.cast(pa.timestamp("ns", zone)).value)
    except pa.ArrowInvalid:  # of the year 1600, or no time at all
        return int(written.cast(pa.timestamp("us", zone)).value) * 1_000


def _clock_nanos(value: Any) -> int | None:
    if isinstance(value, TypedText):
        value = value.text if value.kind == "time" else None
    if isinstance(value, str):
        return _text_nanos(f"1970-01-01 {value}", None)
    if isinstance(value, pa.Scalar):
        return int(value.value) * _NANOS[value.type.unit] if pa.types.is_time(value.type) else None
    if isinstance(value, dt.time) and value.tzinfo is None:
        return _moment_nanos(dt.datetime.combine(_EPOCH.date(), value), None)
    return None

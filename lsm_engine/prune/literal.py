"""Literals of filters, coerced to the type of a column without rounding.

A literal that the type cannot hold lies between two values that it can, or beyond all of them. A
comparison with the literal becomes a comparison with one of these values.
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
_BEYOND = 10**500
"""Beyond every number that a column can hold."""


@record
class Place:
    """The position of a value among those of a column.

    The value is `units` times the column's unit if `is_exact`, else it is between that and the next one.
    """

    units: int
    is_exact: bool


def is_counted(kind: pa.DataType) -> bool:
    """Whether the values of a type are whole multiples of a unit: numbers but floats, and times."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_decimal(kind) or types.is_temporal(kind))


def place_of(value: object, column: str, kind: pa.DataType) -> Place:
    """Return where a value lies among those of a counted type.

    Raises InvalidInputError, naming the column, for a value of another family.
    """
    try:
        place = _place(python_value(value), kind)
    except (pa.ArrowException, ValueError, ArithmeticError, OverflowError, TypeError) as cause:
        raise unfit(value, column, kind) from cause
    if place is None:
        raise unfit(value, column, kind)
    return place


def limits(kind: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest value of a counted type, in its unit."""
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return -most, most
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def counted(units: int, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a counted type that is `units` times its unit."""
    if not pa.types.is_decimal(kind):
        return pa.scalar(units, kind)
    digits = tuple(int(digit) for digit in str(abs(units)))
    return pa.scalar(Decimal((int(units < 0), digits, -kind.scale)), kind)


def double_of(value: object, column: str, kind: pa.DataType) -> tuple[float, int]:
    """Return the double nearest to a number, and whether the number is less (-1), equal or greater.

    Fractions count as the double that is written so; whole numbers of any size are compared exactly.
    """
    number = python_value(value)
    if isinstance(number, float):
        return number, 0
    if isinstance(number, Decimal):
        return float(number), 0
    if not isinstance(number, int) or isinstance(number, bool):
        raise unfit(value, column, kind)
    try:
        double = float(number)
    except OverflowError:  # larger than every double: it compares as an infinity does
        return (float("inf"), -1) if number > 0 else (float("-inf"), 1)
    return double, (number > int(double)) - (number < int(double))


def same_kind(value: object, column: str, kind: pa.DataType) -> pa.Scalar:
    """Return a value of text, bytes or truth; raises InvalidInputError for another family."""
    native, types = python_value(value), pa.types
    if types.is_string(kind) and isinstance(native, str):
        try:
            return pa.scalar(native, kind)
        except UnicodeEncodeError as cause:
            raise unfit(value, column, kind) from cause
    if types.is_boolean(kind) and isinstance(native, bool):
        return pa.scalar(native, kind)
    if _is_bytes(kind) and isinstance(native, bytes | bytearray | memoryview):
        return pa.scalar(bytes(native), kind)
    raise unfit(value, column, kind)


def python_value(value: object) -> Any:
    """Return a NumPy or Arrow value as a Python value. Arrow times are kept: Python's are coarser."""
    if isinstance(value, np.datetime64):
        has_column_unit = np.datetime_data(value.dtype)[0] in _NANOS
        return pa.scalar(value if has_column_unit else value.astype("datetime64[s]"))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, pa.Scalar) and not pa.types.is_temporal(value.type):
        return value.as_py()
    return value


def unfit(value: object, column: str, kind: pa.DataType) -> InvalidInputError:
    """Return the error of a literal that a column is not compared with. It says how to write one."""
    shown = f"{value.kind.upper()} {value.text!r}" if isinstance(value, TypedText) else repr(value)
    types, hint = pa.types, ""
    if types.is_nested(kind):
        hint = "; only whether it is null can be asked"
    elif isinstance(value, str) and (types.is_integer(kind) or types.is_floating(kind)):
        hint = "; write numbers without quotes"
    elif isinstance(value, str) and _is_bytes(kind):
        hint = "; write bytes as X'00ff' in SQL, b'...' in Python"
    elif isinstance(value, str) and types.is_temporal(kind):
        hint = f"; write {_EXAMPLES[_family(kind)]}"
    elif isinstance(value, dt.datetime | np.datetime64) and types.is_timestamp(kind):
        without = getattr(value, "tzinfo", None) is None
        hint = "; give it a time zone" if without else "; the column has no time zone: leave it out"
    elif types.is_string(kind):
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
    types = pa.types
    return "date" if types.is_date(kind) else "timestamp" if types.is_timestamp(kind) else "time"


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
    return None if nanos is None else Place(units=nanos // unit, is_exact=nanos % unit == 0)


def _number(value: Any, kind: pa.DataType) -> Place | None:
    """Return a number in units of the type. A float counts as its decimal text for a decimal column."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    written = pa.types.is_decimal(kind)
    scale = kind.scale if written else 0
    if isinstance(value, int):
        return Place(units=value * 10**scale, is_exact=True)
    if isnan(value):
        return None
    if isinf(value):
        return Place(units=_BEYOND if value > 0 else -_BEYOND, is_exact=False)
    number = Decimal(repr(value) if written and isinstance(value, float) else value)
    if number and not -400 < number.adjusted() < 400:  # 1e999999 would be a million digits
        large = number.adjusted() > 0
        return Place(
            units=(_BEYOND if large else 0) * (1 if number > 0 else -1) - (number < 0),
            is_exact=False,
        )
    scaled = Fraction(number) * 10**scale
    return Place(units=scaled.__floor__(), is_exact=scaled.denominator == 1)


def _moment_nanos(value: Any, zone: str | None) -> int | None:
    """Return the nanoseconds since 1970, by the wall clock or, for a column with a zone, in UTC."""
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
        micros = (moment.replace(tzinfo=None) - _EPOCH) // dt.timedelta(microseconds=1)
        return micros * 1_000 + int(getattr(value, "nanosecond", 0))  # pandas' are finer
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days * _DAY
    return None


def _text_nanos(text: str, zone: str | None) -> int:
    if zone is not None and not _ZONED.search(text):
        text += "Z" if ":" in text else " 00:00:00Z"
    written = pa.scalar(text)
    try:
        return int(written.cast(pa.timestamp("ns", zone)).value)
    except pa.ArrowInvalid:  # nanoseconds reach from 1677 to 2262, microseconds all years
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

"""Binding of predicates to the columns of a schema.

A negation moves down to the comparisons, because null has a known result only in them. Rows for which the
tree is null do not match. Literals take the column's type without rounding (`filter/binding.py`)."""

import datetime as dt
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from math import isinf, isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.names import did_you_mean
from lsm_engine.base.record import record
from lsm_engine.filter import predicate as predicate_filter
from lsm_engine.filter import where
from lsm_engine.filter.predicate import Comparison
from lsm_engine.filter.where import TypedText
from lsm_engine.types.arrow_types import char_length

# -- Literals of filters, coerced to the type of a column without rounding -------------------------
#
# A literal that the type cannot hold lies between two values that it can, or beyond all of
# them. A comparison with the literal becomes a comparison with one of these values.

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
        # Arrow and Python raise many types here, and all mean that the value does not fit.
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
        # A scalar of a decimal needs exact digits, which a float would lose.
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
    # A whole number of any size is compared with the double on both sides of it.
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
    # Another family never equals the column, so the filter is a mistake.
    raise unfit(value, column, kind)


def python_value(value: object) -> Any:
    """Return a NumPy or Arrow value as a Python value. Arrow times stay, because Python's are coarser."""
    if isinstance(value, np.datetime64):
        has_column_unit = np.datetime_data(value.dtype)[0] in _NANOS
        # Arrow has no dates in hours or weeks, but it has seconds.
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
    # Python counts booleans among the integers.
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    written = pa.types.is_decimal(kind)
    scale = kind.scale if written else 0
    if isinstance(value, int):
        return Place(units=value * 10**scale, is_exact=True)
    if isnan(value):  # NaN has no place among the values
        return None
    # An infinity is beyond every value, however wide the column is.
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
        if (value.tzinfo is None) != (zone is None):  # a wall clock is no instant, nor the reverse
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


# -- Binding of predicates to the columns of a schema ----------------------------------------------

_FALSE = predicate_filter.Constant(value=False)
_BELOW = (Comparison.LESS, Comparison.LESS_EQUAL)
_WILDCARDS = frozenset("%_\\")


def bind(
    predicate: where.Predicate, schema: pa.Schema, *, negated: bool = False
) -> predicate_filter.Predicate:
    """Return the tree of a predicate, or of its negation, over the columns of `schema`.

    Raises InvalidInputError that names the column, for a column that `schema` lacks and for a literal of
    a type that the column is not compared with.
    """
    match predicate:
        case where.AllOf() | where.AnyOf():
            join = (
                any_of if isinstance(predicate, where.AnyOf) != negated else predicate_filter.all_of
            )
            return join([bind(part, schema, negated=negated) for part in predicate.parts])
        case where.Negated():
            return bind(predicate.part, schema, negated=not negated)
        case where.Unknown():  # it excludes nothing, negated or not: Arrow decides about the rows
            return predicate_filter.TRUE
        case where.Computed():
            return _computed(predicate, negated=negated)
        case where.Fixed():
            return predicate_filter.Constant(
                value=predicate.value != negated if predicate.value is not None else None
            )
        case where.NullTest():
            column = _field(predicate.column, schema).name
            return (predicate_filter.IsNull, predicate_filter.IsValid)[negated](column=column)
        case where.Among():
            return _among(predicate, _field(predicate.column, schema), negated=negated)
        case where.ColumnTest():
            return _columns(predicate, schema, negated=negated)
        case where.Test():
            field = _field(predicate.column, schema)
            return compared(field, predicate.comparison, predicate.value, negated=negated)
        case where.Column():
            return _truth(_field(predicate.name, schema), negated=negated)
        case where.Prefix() | where.LikePattern():
            return _text(predicate, _field(predicate.column, schema), negated=negated)
        case _:
            raise AssertionError(predicate)


def _truth(field: pa.Field, *, negated: bool) -> predicate_filter.Predicate:
    """Return the test of a boolean column by itself."""
    if not pa.types.is_boolean(field.type):
        raise InvalidInputError(
            f"column {field.name!r} is {field.type}: write a test of it, such as = or IS NULL; "
            "columns to read are columns=[...]",
            kind=ErrorKind.INVALID_FILTER,
            column=field.name,
        )
    return compared(field, Comparison.EQUAL, True, negated=negated)  # noqa: FBT003


def _computed(predicate: where.Computed, *, negated: bool) -> predicate_filter.Predicate:
    computed = predicate_filter.Computed(columns=predicate.columns, expression=predicate.expression)
    return predicate_filter.Not(part=computed) if negated else computed


def any_of(parts: Iterable[predicate_filter.Predicate]) -> predicate_filter.Predicate:
    """Return the disjunction of `parts`; without parts it is false."""
    # A false part adds nothing to a disjunction.
    disjuncts = tuple(part for part in parts if part != _FALSE)
    if predicate_filter.TRUE in disjuncts:
        return predicate_filter.TRUE
    return (
        disjuncts[0]
        if len(disjuncts) == 1
        else predicate_filter.Or(parts=disjuncts)
        if disjuncts
        else _FALSE
    )


def compared(
    field: pa.Field, comparison: Comparison, value: object, *, negated: bool = False
) -> predicate_filter.Predicate:
    """Return the comparison of a column with a value that is not null."""
    kind = field.type
    # NaN follows rules of its own, so floats have their own path.
    if pa.types.is_floating(kind):
        return _compared_float(field, comparison, value, negated=negated)
    operator = comparison.inverse if negated else comparison
    length = char_length(field)
    # Blanks at the end of CHAR(n) do not count in a comparison.
    if length is not None:
        text: str = same_kind(value, field.name, kind).as_py()
        return _compared_char(field.name, operator, text, length)
    if not is_counted(kind):
        scalar = same_kind(value, field.name, kind)
        return predicate_filter.Compare(column=field.name, comparison=operator, value=scalar)
    place = place_of(value, field.name, kind)
    low, high = limits(kind)
    if operator in (Comparison.EQUAL, Comparison.NOT_EQUAL):
        # No value of the column can equal the literal.
        if not place.is_exact or not low <= place.units <= high:
            return (
                _FALSE
                if operator is Comparison.EQUAL
                else predicate_filter.IsValid(column=field.name)
            )
    elif not low <= place.units <= high:
        # The literal is beyond the type, so all valid rows match or none does.
        holds = (place.units > high) == (operator in _BELOW)
        return predicate_filter.IsValid(column=field.name) if holds else _FALSE
    elif not place.is_exact:
        # The place is rounded down, which moves the border for a literal between two values.
        operator = Comparison.LESS_EQUAL if operator in _BELOW else Comparison.GREATER
    return predicate_filter.Compare(
        column=field.name, comparison=operator, value=counted(place.units, kind)
    )


def _compared_char(
    column: str, operator: Comparison, text: str, length: int
) -> predicate_filter.Predicate:
    """Blanks at the end of CHAR(n) and of the literal do not count: the shorter one has as many as it lacks."""
    stored, suffix = text[:length].ljust(length), text[length:]
    blanks = " " * len(suffix)
    if suffix != blanks:  # the literal lies between two that the column can hold
        if operator in (Comparison.EQUAL, Comparison.NOT_EQUAL):
            return (
                _FALSE if operator is Comparison.EQUAL else predicate_filter.IsValid(column=column)
            )
        reaches = (blanks < suffix) == (operator in _BELOW)
        pair = (Comparison.LESS, Comparison.LESS_EQUAL) if operator in _BELOW else (Comparison.GREATER, Comparison.GREATER_EQUAL)  # fmt: skip
        operator = pair[reaches]
    return predicate_filter.Compare(column=column, comparison=operator, value=pa.scalar(stored))


def _compared_float(
    field: pa.Field, comparison: Comparison, value: object, *, negated: bool
) -> predicate_filter.Predicate:
    """Return the comparison of a floating-point column, as doubles.

    The negation stays a Not: NaN makes both a comparison and its inverse false.
    """
    double, side = double_of(value, field.name, field.type)
    operator = comparison
    # No double equals the number, so only its inequality can hold.
    if side and comparison in (Comparison.EQUAL, Comparison.NOT_EQUAL):
        holds = (comparison is Comparison.NOT_EQUAL) != negated
        return predicate_filter.IsValid(column=field.name) if holds else _FALSE
    if side:
        reaches = (side > 0) == (comparison in _BELOW)
        pair = (Comparison.LESS, Comparison.LESS_EQUAL) if comparison in _BELOW else (Comparison.GREATER, Comparison.GREATER_EQUAL)  # fmt: skip
        operator = pair[reaches]
    test = predicate_filter.Compare(
        column=field.name, comparison=operator, value=pa.scalar(double, pa.float64())
    )
    return predicate_filter.Not(part=test) if negated else test


def _among(test: where.Among, field: pa.Field, *, negated: bool) -> predicate_filter.Predicate:
    is_sql = test.null_is is None
    values = _values(test.values, field)
    if not is_sql and pa.types.is_floating(field.type) and _has_nan(test.values):
        # Arrow finds NaN in a set; SQL, where it equals nothing, does not.
        values = pa.concat_arrays([values, pa.array([float("nan")], values.type)])
    predicate: predicate_filter.Predicate = predicate_filter.IsIn(
        column=field.name, values=values, null_matches=test.null_is is True
    )
    if not negated:
        return predicate
    # In SQL a null neither matches nor fails a negated set.
    predicate = predicate_filter.Not(part=predicate)
    valid = predicate_filter.IsValid(column=field.name)
    return predicate_filter.all_of([valid, predicate]) if is_sql else predicate


def _values(literals: object, field: pa.Field) -> pa.Array:
    """Return the values of a set that the column can hold. No row equals the other ones."""
    kind = field.type
    values: pa.Array | None = literals if isinstance(literals, pa.Array) else _array(literals)
    if (
        # Arrow casts a whole set faster than Python coerces each value.
        values is not None
        and char_length(field) is None
        and (values.type == kind or _widens(values.type, kind))
    ):
        cast_values = values.cast(kind)
        return (
            cast_values.filter(pc.equal(cast_values, cast_values))
            if pa.types.is_floating(kind)
            else cast_values
        )
    # Python's times are coarser than Arrow's, so Arrow scalars are kept.
    python_values = literals.to_pylist() if isinstance(literals, pa.Array) and not pa.types.is_temporal(literals.type) else literals  # fmt: skip
    assert isinstance(python_values, Iterable)
    scalars: list[pa.Scalar] = []
    for value in python_values:
        if pa.types.is_floating(kind):
            double, side = double_of(value, field.name, kind)
            scalar = pa.scalar(double, kind)
            if not side and scalar.as_py() == double:
                scalars.append(scalar)
        else:
            test = compared(field, Comparison.EQUAL, value)
            if isinstance(test, predicate_filter.Compare):
                scalars.append(test.value)
    return pa.array(scalars, kind)


def _has_nan(literals: object) -> bool:
    values = literals if isinstance(literals, pa.Array) else _array(literals)
    assert values is not None, "numbers of one type"
    return bool(pc.any(pc.is_nan(values)).as_py())


def _array(literals: object) -> pa.Array | None:
    try:
        return pa.array(literals)
    except (pa.ArrowException, OverflowError):  # of several types: each value is coerced by itself
        return None


def _widens(source: pa.DataType, kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(source) and types.is_integer(kind):
        low, high = limits(source)
        least, most = limits(kind)
        return bool(least <= low and high <= most)
    return bool(types.is_large_string(source) and types.is_string(kind))


def _text(
    test: where.Prefix | where.LikePattern, field: pa.Field, *, negated: bool
) -> predicate_filter.Predicate:
    if not pa.types.is_string(field.type):
        raise InvalidInputError(
            f"column {field.name!r} is {field.type}; LIKE compares a text column with 'text'",
            kind=ErrorKind.INVALID_FILTER,
            column=field.name,
        )
    predicate: predicate_filter.Predicate
    if isinstance(test, where.Prefix):
        predicate = predicate_filter.StartsWith(column=field.name, prefix=test.text)
    elif not _WILDCARDS & set(test.pattern):
        unpadded = field.remove_metadata()  # of a pattern every blank counts
        return compared(unpadded, Comparison.EQUAL, test.pattern, negated=negated)
    elif test.pattern.endswith("%") and not _WILDCARDS & set(test.pattern[:-1]):
        predicate = predicate_filter.StartsWith(column=field.name, prefix=test.pattern[:-1])
    else:
        like = pc.match_like(pc.field(field.name), test.pattern)
        predicate = predicate_filter.Opaque(columns=(field.name,), expression=like)
    return predicate_filter.Not(part=predicate) if negated else predicate


def _columns(
    test: where.ColumnTest, schema: pa.Schema, *, negated: bool
) -> predicate_filter.Predicate:
    left_field, right_field = _field(test.column, schema), _field(test.other_column, schema)
    build = COMPUTE[test.comparison]
    try:
        # A trial on empty arrays shows whether Arrow can compare the two types.
        build(pa.array([], left_field.type), pa.array([], right_field.type))
    except pa.ArrowException as cause:
        raise unfit(where.col(right_field.name), left_field.name, left_field.type) from cause
    lengths = char_length(left_field), char_length(right_field)
    left_operand, right_operand = (
        _as_long(pc.field(field.name), lengths) for field in (left_field, right_field)
    )
    predicate: predicate_filter.Predicate = predicate_filter.Opaque(
        columns=(left_field.name, right_field.name), expression=build(left_operand, right_operand)
    )
    return predicate_filter.Not(part=predicate) if negated else predicate


def _as_long(column: pc.Expression, lengths: tuple[int | None, int | None]) -> pc.Expression:
    """Return one of two columns of CHAR with as many blanks as the longer one; other columns as they are."""
    # Only two columns of CHAR with different lengths need padding.
    if None in lengths or lengths[0] == lengths[1]:
        return column
    return pc.utf8_rpad(column, max(length or 0 for length in lengths), " ")


COMPUTE: dict[Comparison, Callable[..., pc.Expression]] = {
    Comparison.EQUAL: pc.equal,
    Comparison.NOT_EQUAL: pc.not_equal,
    Comparison.LESS: pc.less,
    Comparison.LESS_EQUAL: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.GREATER_EQUAL: pc.greater_equal,
}


def _field(name: str, schema: pa.Schema) -> pa.Field:
    if name in schema.names:
        return schema.field(name)
    # A name close to the given one is the likely typing error.
    hint = did_you_mean(name, schema.names, "; text is written in single quotes")
    column, *fields = name.split(".")
    if fields and column in schema.names:
        parts = ", ".join(map(repr, (column, *fields)))
        hint = f"; of a nested field make pc.field({parts}) == value"
    raise InvalidInputError(
        f"the filter names column {name!r}; there are {', '.join(schema.names)}{hint}",
        kind=ErrorKind.NO_SUCH_COLUMN,
        column=name,
    )

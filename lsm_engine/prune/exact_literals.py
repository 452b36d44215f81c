"""A comparison with a literal of another type → the same comparison within the column's own type.

A literal may be finer than the column (a TIMESTAMP(3) with microseconds, an INT with 1.5) or beyond what
it can hold. Cutting it to the column's type would move it past rows; comparing in a common type raises
for some values. Exact is: the greatest value of the column's type that is not above the literal, and
whether it is the literal.
"""

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from lsm_engine.prune.predicate import And, Compare, Comparison, Or, Predicate

_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_NANOS = 86_400 * 10**9
_ABOVE = (Comparison.GREATER, Comparison.GREATER_EQUAL, Comparison.NOT_EQUAL)
"""Comparisons that hold for every value above a literal."""
_BELOW = (Comparison.LESS, Comparison.LESS_EQUAL, Comparison.NOT_EQUAL)


def exact_compare(
    column: str, kind: pa.DataType, comparison: Comparison, value: pa.Scalar
) -> Predicate:
    """Return a comparison whose literal is of the column's type, true and null for the same rows.

    Pairs of types that Arrow compares without loss, or that only a common type can compare (a
    DECIMAL with a floating number), stay as they are.
    """
    number = _number(value, kind)
    if number is None:
        return Compare(column=column, comparison=comparison, value=value)
    if number < _lowest(kind):
        return _same_for_all(column, kind, holds=comparison in _ABOVE)
    if number > _highest(kind):
        return _same_for_all(column, kind, holds=comparison in _BELOW)
    floor = math.floor(number)
    if floor == number:
        literal = value if _are_whole(value.type, kind) else _scalar(kind, floor)
        return Compare(column=column, comparison=comparison, value=literal)
    match comparison:
        case Comparison.LESS | Comparison.LESS_EQUAL:
            within = Comparison.LESS_EQUAL
        case Comparison.GREATER | Comparison.GREATER_EQUAL:
            within = Comparison.GREATER
        case Comparison.EQUAL | Comparison.NOT_EQUAL:
            return _same_for_all(column, kind, holds=comparison in _ABOVE)
    return Compare(column=column, comparison=within, value=_scalar(kind, floor))


def exact_values(kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Return those of some literals that a column of `kind` can equal, as its type.

    Types that only a common type can compare stay as they are.
    """
    if values.type == kind or not len(values) or _are_whole(values.type, kind):
        return values
    if pa.types.is_floating(values.type) and pa.types.is_floating(kind):
        doubles, narrow = values.cast(pa.float64()), values.cast(kind, safe=False)
        there, back = doubles.to_numpy(), narrow.cast(pa.float64()).to_numpy()
        return narrow.filter(pa.array((there == back) | np.isnan(there)))
    kept = []
    for value in values:
        number = _number(value, kind)
        if number is None:
            return values
        if _lowest(kind) <= number <= _highest(kind) and number == math.floor(number):
            kept.append(_scalar(kind, math.floor(number)))
    return pa.concat_arrays([pa.array([], kind), *(pa.repeat(one, 1) for one in kept)])


def _same_for_all(column: str, kind: pa.DataType, *, holds: bool) -> Predicate:
    """Return what is true, or false, for every value of a column, and null for null."""
    zero, one = _scalar(kind, 0), _scalar(kind, 1)
    if holds:
        below = Compare(column=column, comparison=Comparison.LESS_EQUAL, value=zero)
        above = Compare(column=column, comparison=Comparison.GREATER, value=zero)
        return Or(parts=(below, above))
    return And(
        parts=tuple(
            Compare(column=column, comparison=Comparison.EQUAL, value=each) for each in (zero, one)
        )
    )


# --- literal → number of the column's units ------------------------------------------------------


def _number(value: pa.Scalar, kind: pa.DataType) -> Fraction | float | None:
    """Return a literal as a number of units of the column's type; None: compare it as Arrow does."""
    given = value.type
    if given == kind or not value.is_valid:
        return None
    if _is_time_of_some_kind(kind):
        factor = _factor(given, kind)
        return None if factor is None else int(value.value) * factor
    if pa.types.is_integer(given) or pa.types.is_decimal(given):
        exact = Fraction(value.as_py())
    elif pa.types.is_floating(given) and pa.types.is_integer(kind):
        number = float(value.as_py())
        if math.isnan(number):
            return None
        if math.isinf(number):
            return number
        exact = Fraction(number)
    else:
        return None
    if pa.types.is_decimal(kind):
        return exact * Fraction(10) ** int(kind.scale)
    return exact if pa.types.is_integer(kind) else None


def _are_whole(given: pa.DataType, kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(given) and pa.types.is_integer(kind))


def _is_time_of_some_kind(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) or pa.types.is_time(kind))


def _factor(given: pa.DataType, kind: pa.DataType) -> Fraction | None:
    """Return how many units of `kind` one unit of `given` is; None if they do not compare."""
    times = pa.types.is_time(given), pa.types.is_time(kind)
    if times[0] != times[1] or getattr(given, "tz", None) != getattr(kind, "tz", None):
        return None
    sizes = [_DAY_NANOS if pa.types.is_date32(one) else _NANOS.get(getattr(one, "unit", ""))
             for one in (given, kind)]  # fmt: skip
    if sizes[0] is None or sizes[1] is None or pa.types.is_duration(given):
        return None
    return Fraction(sizes[0], sizes[1])


# --- values of a type --------------------------------------------------------------------------------


def _lowest(kind: pa.DataType) -> int:
    if pa.types.is_unsigned_integer(kind):
        return 0
    return -_highest(kind) - (0 if pa.types.is_decimal(kind) else 1)


def _highest(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind):
        return int(10**kind.precision) - 1
    bits = int(kind.bit_width) - (0 if pa.types.is_unsigned_integer(kind) else 1)
    return (1 << bits) - 1


def _scalar(kind: pa.DataType, count: int) -> pa.Scalar:
    """Return the value that is so many units of a type."""
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(count).scaleb(-kind.scale, Context(prec=80)), kind)
    if pa.types.is_integer(kind):
        return pa.scalar(count, kind)
    return pa.scalar(count, pa.int64() if kind.bit_width == 64 else pa.int32()).cast(kind)

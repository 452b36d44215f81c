"""A literal finer or larger than its column's type is compared exactly, on rows and on statistics."""

import datetime as dt
import operator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.filter.expression import matches, tree_of
from lsm_engine.filter.stats import ColumnBounds, may_match
from lsm_engine.filter.where import col

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
UNITS = list(NANOS)


def whole(kind: pa.DataType) -> list[int]:
    bits = kind.bit_width - 1
    return [-(2**bits), -2, -1, 0, 1, 2, 3, 2**bits - 1]


def moments(unit: str) -> list[int]:
    return [-(10**9), -1001, -1, 0, 1, 2, 999, 1000, 1001, 10**9]


COLUMNS: list[tuple[pa.Array, Fraction]] = [
    *((pa.array(whole(kind), kind), Fraction(1)) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    (pa.array([2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1], pa.int64()), Fraction(1)),
    (pa.array([Decimal("-99.99"), Decimal("-1.10"), Decimal("0.00"), Decimal("1.10"), Decimal("99.99")], pa.decimal128(4, 2)), Fraction(1)),
    (pa.array([Decimal("1" * 38), Decimal(-1), Decimal(2)], pa.decimal128(38, 0)), Fraction(1)),
    *((pa.array(moments(unit), pa.timestamp(unit, tz)), Fraction(NANOS[unit])) for unit in UNITS for tz in (None, "UTC")),
    (pa.array([-1, 0, 1, 2], pa.date32()), Fraction(86_400 * 10**9)),
    (pa.array([0, 1, 2, 1000], pa.time32("ms")), Fraction(10**6)),
]  # fmt: skip
NUMBERS: list[pa.Scalar] = [
    *(pa.scalar(n, pa.int64()) for n in (-129, -1, 0, 1, 2, 127, 128, 2**31, 2**53 + 1, -(2**63))),
    *(pa.scalar(Decimal(t)) for t in ("1.5", "-0.001", "1.10", "1.105", "99.995", "100", "0E-30", "1E37")),
]  # fmt: skip
FLOATS = [pa.scalar(f) for f in (1.5, -0.0, 2.0**53, 1e300, -1e300, float("inf"), float("-inf"))]


def literals(kind: pa.DataType) -> list[pa.Scalar]:
    if pa.types.is_integer(kind):
        return NUMBERS + FLOATS
    if pa.types.is_decimal(kind):
        return NUMBERS
    if pa.types.is_time(kind):
        return [pa.scalar(n, pa.int64()).cast(pa.time64("us")) for n in (0, 500, 1000, 1500)]
    tz = getattr(kind, "tz", None)
    return [
        pa.scalar(n, pa.int64()).cast(pa.timestamp(unit, tz))
        for unit in UNITS for n in (-1, 0, 1, 999, 1000, 1500, 10**9 + 1)
    ]  # fmt: skip


def number(value: pa.Scalar, unit: Fraction) -> Fraction | float:
    kind = value.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return Fraction(value.value) * NANOS[kind.unit]
    if pa.types.is_date(kind):
        return Fraction(value.value) * unit
    plain = value.as_py()
    return plain if isinstance(plain, float) and abs(plain) == float("inf") else Fraction(plain)


@pytest.mark.parametrize("at", range(len(COLUMNS)), ids=lambda at: f"{at}-{COLUMNS[at][0].type}")
def test_comparisons_are_those_of_the_numbers(at: int) -> None:
    column, unit = COLUMNS[at]
    column = pa.concat_arrays([column, pa.nulls(1, column.type)])
    rows = pa.table({"x": column})
    numbers = [number(each, unit) if each.is_valid else None for each in column]
    bounds = ColumnBounds(mins=column, maxs=column, null_counts=column.is_null().cast(pa.int64()))
    ones = pa.array([1] * len(column))
    for literal in literals(column.type):
        wanted = number(literal, unit)
        for name, form in product(COMPARISONS, (col, pc.field)):
            where = getattr(operator, name)(form("x"), literal)
            for negated in (False, True):
                try:
                    tree = tree_of(~where if negated else where, rows.schema)
                except InvalidInputError:
                    assert form is pc.field, "Arrow has no type for both, our predicates need none"
                    continue
                expected = [
                    each is not None and getattr(operator, name)(each, wanted) is not negated
                    for each in numbers
                ]
                assert matches(tree, rows).tolist() == expected, (name, literal, negated)
                kept = may_match(tree, {"x": bounds}, ones).tolist()
                assert all(one or not needed for one, needed in zip(kept, expected, strict=True))
        among = pa.repeat(literal, 1)
        if pa.types.is_floating(among.type) and not np.isfinite(literal.as_py()):
            continue
        tree = tree_of(col("x").is_in([literal]), rows.schema)
        assert matches(tree, rows).tolist() == [each == wanted for each in numbers], literal
        with suppress(InvalidInputError):  # Arrow would round the set
            tree = tree_of(pc.field("x").isin(among), rows.schema)
            assert matches(tree, rows).tolist() == [each == wanted for each in numbers], literal


def test_sets_keep_what_a_column_can_equal() -> None:
    day, noon = dt.datetime(1970, 1, 2), dt.datetime(1970, 1, 2, 12)  # noqa: DTZ001
    for column, values, expected in (
        (pa.array([0, 1], pa.date32()), pa.array([noon]), []),
        (pa.array([0, 1], pa.date32()), pa.array([day]), [day.date()]),
        (pa.array([0.1, 0.5], pa.float32()), pa.array([0.1, 0.5]), [0.5]),
        (pa.array([1, 2]), pa.array([1.5, 2.0]), [2]),
    ):
        rows = pa.table({"x": column})
        tree = tree_of(col("x").is_in(values.to_pylist()), rows.schema)
        found: Any = rows.filter(matches(tree, rows))
        assert found["x"].to_pylist() == expected

"""Arrow expressions become trees by way of Substrait, and trees become expressions again."""

import datetime as dt
import pickle
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.filter.expression import from_expression, matches, to_expression, tree_of
from lsm_engine.filter.predicate import (
    TRUE,
    And,
    Compare,
    Comparison,
    Constant,
    IsIn,
    IsNull,
    IsValid,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    all_of,
    columns_of,
    conjuncts_of,
    implied_on,
    split_conjuncts,
)
from tests.unit.filter.rows import SCHEMA, filters, rows

NUM, S, B, F, T = (pc.field(name) for name in "isbft")
NOTHING = pa.scalar(None, pa.int32())


def compare(column: str, symbol: str, value: object) -> Compare:
    kind = SCHEMA.field(column).type
    return Compare(column=column, comparison=Comparison(symbol), value=pa.scalar(value, kind))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (NUM == 1, compare("i", "equal", 1)),
        (NUM != 1, compare("i", "not_equal", 1)),
        (pc.scalar(1) < NUM, compare("i", "greater", 1)),
        (pc.scalar(1) >= NUM, compare("i", "less_equal", 1)),
        ((NUM > 1) & (S <= "x"), And(parts=(compare("i", "greater", 1), compare("s", "less_equal", "x")))),
        ((NUM > 1) | (S <= "x"), Or(parts=(compare("i", "greater", 1), compare("s", "less_equal", "x")))),
        (~(NUM < 1), compare("i", "greater_equal", 1)),
        (~(F < 1), Not(part=compare("f", "less", 1))),
        (~((NUM < 1) & (S <= "x")), Or(parts=(compare("i", "greater_equal", 1), compare("s", "greater", "x")))),
        (NUM > 1.5, compare("i", "greater", 1)),
        (NUM < 2**40, IsValid(column="i")),
        (dt.datetime(2024, 1, 1, microsecond=500) < T, compare("t", "greater", dt.datetime(2024, 1, 1))),  # noqa: DTZ001
        (NUM.isin([1, 2]), IsIn(column="i", values=pa.array([1, 2], pa.int32()))),
        (~NUM.isin([1]), Not(part=IsIn(column="i", values=pa.array([1], pa.int32())))),
        (NUM.is_null(), IsNull(column="i")),
        (NUM.is_valid(), IsValid(column="i")),
        (pc.starts_with(S, "ab"), StartsWith(column="s", prefix="ab")),
        (B, compare("b", "equal", True)),
        (pc.scalar(True), TRUE),
        (NUM == NOTHING, Constant(value=None)),
    ],
)  # fmt: skip
def test_trees(expression: pc.Expression, expected: Predicate) -> None:
    assert from_expression(expression, SCHEMA) == expected


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        (F.is_nan(), {"f"}),
        (F.is_null(nan_is_null=True), {"f"}),
        (NUM.is_null(nan_is_null=True), {"i"}),
        (NUM + 1 > 3, {"i"}),
        (NUM == NUM, {"i"}),
        (NUM.cast(pa.int64()) == 3, {"i"}),
        (pc.starts_with(S, "ab", ignore_case=True), {"s"}),
        (pc.match_like(S, "ab%"), {"s"}),
        (NUM.isin([1, None]), {"i"}),
        (pc.is_in(NUM, pa.array([1, None]), skip_nulls=True), {"i"}),
        (pc.scalar(1.5) < NUM.cast(pa.float64()), {"i"}),
        (pc.xor(B, NUM > 1), {"b", "i"}),
    ],
)
def test_what_is_not_understood_stays_arrows(expression: pc.Expression, columns: set[str]) -> None:
    found = from_expression(expression, SCHEMA)
    assert isinstance(found, Opaque)
    assert set(found.columns) == columns
    assert to_expression(found).equals(expression)


def test_nested_fields_stay_arrows() -> None:
    schema = pa.schema({"s": pa.struct({"x": pa.int32()}), "k": pa.int32()})
    found = from_expression((pc.field("s", "x") == 1) & (pc.field("k") == 2), schema)
    assert isinstance(found, And)
    assert found.parts[0] == Compare(
        column="k", comparison=Comparison.EQUAL, value=pa.scalar(2, pa.int32())
    )
    assert isinstance(found.parts[1], Opaque)
    assert columns_of(found) == {"s", "k"}
    made = pa.Table.from_pylist([{"s": {"x": 1}, "k": 2}, {"s": {"x": 2}, "k": 2}], schema=schema)
    assert matches(found, made).tolist() == [True, False]


def test_a_column_that_only_arrow_reads_is_read_beside_those_that_choose_files() -> None:
    found = from_expression((S == "x") & (NUM + 1 > 3) & (F.cast(pa.int64()) == 1), SCHEMA)
    assert columns_of(found) == {"s", "i", "f"}
    assert implied_on(found, ("s",)) == TRUE  # a cast: the whole is left to Arrow
    found = from_expression((S == "x") & (NUM + 1 > 3) & (F > 0), SCHEMA)
    assert implied_on(found, ("s",)) == compare("s", "equal", "x")


def test_an_expression_nested_deeply_is_left_to_arrow_at_once() -> None:
    wide = (S == "x") & reduce(or_, (pc.equal(NUM, number) for number in range(300)))
    assert from_expression(wide, SCHEMA) == Opaque(columns=("i", "s"), expression=wide)


@given(filters(), rows())
def test_a_tree_says_what_its_expression_says(expression: pc.Expression, made: pa.Table) -> None:
    numbered = made.append_column("n", pa.array(range(made.num_rows), pa.int64()))
    kept = set(numbered.filter(expression)["n"].to_pylist())
    tree = from_expression(expression, SCHEMA)
    assert set(np.flatnonzero(matches(tree, made)).tolist()) == kept
    travelled = pickle.loads(pickle.dumps(tree))
    assert (matches(travelled, made) == matches(tree, made)).all()


@given(filters(), rows())
def test_conjuncts_say_what_the_whole_says(expression: pc.Expression, made: pa.Table) -> None:
    tree = from_expression(expression, SCHEMA)
    whole = matches(tree, made)
    assert (matches(all_of(conjuncts_of(tree)), made) == whole).all()
    pushed, residual = split_conjuncts(tree, ("i", "s"))
    both = [part for part in (pushed, residual) if part is not None]
    assert (matches(all_of(both), made) == whole).all()
    assert pushed is None or columns_of(pushed) <= {"i", "s"}


@given(filters(), rows())
def test_what_is_implied_is_never_less(expression: pc.Expression, made: pa.Table) -> None:
    tree = from_expression(expression, SCHEMA)
    implied = implied_on(tree, ("i", "s"))
    assert columns_of(implied) <= {"i", "s"}
    assert not (matches(tree, made) & ~matches(implied, made)).any()


def test_implied_keeps_the_part_it_can() -> None:
    tree = from_expression(((NUM == 1) | (NUM == 2)) & (F > 1) | ((NUM == 3) & B), SCHEMA)
    made = pa.Table.from_pylist([{"i": n} for n in range(5)], schema=SCHEMA)
    assert np.flatnonzero(matches(implied_on(tree, ("i",)), made)).tolist() == [1, 2, 3]
    assert implied_on(tree, ("d",)) == TRUE


@pytest.mark.parametrize(
    ("expression", "kind", "message"),
    [
        (pc.field("nope") == 1, ErrorKind.NO_SUCH_COLUMN, r"'nope'; there are i, f, s"),
        ((NUM == 1) & (pc.field("a", "b") == 1), ErrorKind.NO_SUCH_COLUMN, r"'a'"),
        (NUM == "x", ErrorKind.INVALID_FILTER, r"Arrow cannot evaluate.*int32, string.*i == .x"),
        ((F > 1) & ~(S < 3), ErrorKind.INVALID_FILTER, r"Arrow cannot evaluate.*string.*s < 3"),
        (pc.field(0) == 1, ErrorKind.INVALID_FILTER, r"name the columns"),
        (S.isin([1]), ErrorKind.INVALID_FILTER, r"cannot evaluate.*is_in\(s"),
        (NUM + 1, ErrorKind.INVALID_FILTER, r"cannot evaluate"),
        (pc.scalar(1), ErrorKind.INVALID_FILTER, r"cannot evaluate"),
        (
            5,
            ErrorKind.INVALID_FILTER,
            r"lsm.col\('k'\) > 3, SQL text such as 'k > 3', or a pyarrow",
        ),
        (None, ErrorKind.INVALID_FILTER, r"NoneType"),
    ],
)
def test_refusals(expression: pc.Expression, kind: ErrorKind, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as refused:
        tree_of(expression, SCHEMA)
    assert refused.value.kind is kind


def test_a_comparison_that_only_rows_show_to_be_none_is_refused() -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))])
    zoned = pa.scalar(0, pa.timestamp("us", "UTC"))
    either = pc.field("k").is_null(nan_is_null=True) | (pc.field("at") == zoned)
    with pytest.raises(InvalidInputError, match="Cannot compare timestamp with timezone"):
        tree_of(either, schema)

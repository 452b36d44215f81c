"""Arrow expressions become trees, and trees become expressions again."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.prune.expression import from_expression, matches, to_expression
from lsm_engine.prune.predicate import (
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
from tests.unit.prune.rows import SCHEMA, filters, rows

NUM, S, B, F = (pc.field(name) for name in "isbf")
NOTHING = pa.scalar(None, pa.int32())


def compare(column: str, symbol: str, value: object) -> Compare:
    return Compare(column=column, comparison=Comparison(symbol), value=pa.scalar(value))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (NUM == 1, compare("i", "equal", 1)),
        (NUM != 1, compare("i", "not_equal", 1)),
        (pc.scalar(1) < NUM, compare("i", "greater", 1)),
        (pc.scalar(1) >= NUM, compare("i", "less_equal", 1)),
        ((NUM > 1) & (S <= "x"), And(parts=(compare("i", "greater", 1), compare("s", "less_equal", "x")))),
        ((NUM > 1) | (S <= "x"), Or(parts=(compare("i", "greater", 1), compare("s", "less_equal", "x")))),
        (~(NUM < 1), Not(part=compare("i", "less", 1))),
        (NUM.isin([1, 2]), IsIn(column="i", values=pa.array([1, 2]))),
        (NUM.isin([1, None]), IsIn(column="i", values=pa.array([1]), null_matches=True)),
        (pc.is_in(NUM, pa.array([1, None]), skip_nulls=True), IsIn(column="i", values=pa.array([1]))),
        (NUM.is_null(), IsNull(column="i")),
        (NUM.is_null(nan_is_null=True), IsNull(column="i")),
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
        (NUM + 1 > 3, {"i"}),
        (NUM == NUM, {"i"}),
        (NUM.cast(pa.int64()) == 3, {"i"}),
        (pc.starts_with(S, "ab", ignore_case=True), {"s"}),
        (pc.match_like(S, "ab%"), {"s"}),
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
    assert isinstance(found.parts[0], Opaque)
    assert columns_of(found) == {"s", "k"}
    made = pa.Table.from_pylist([{"s": {"x": 1}, "k": 2}, {"s": {"x": 2}, "k": 2}], schema=schema)
    assert matches(found, made).tolist() == [True, False]


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
        (NUM == "x", ErrorKind.INVALID_FILTER, r"'i' is int32 and cannot be compared with 'x'"),
        ((F > 1) & ~(S < 3), ErrorKind.INVALID_FILTER, r"'s' is string"),
        (pc.field(0) == 1, ErrorKind.INVALID_FILTER, r"name columns instead of numbering"),
        (S.isin([1]), ErrorKind.INVALID_FILTER, r"cannot evaluate.*'s': 'string'"),
        (NUM + 1, ErrorKind.INVALID_FILTER, r"cannot evaluate"),
        (pc.scalar(1), ErrorKind.INVALID_FILTER, r"cannot evaluate"),
        ("i = 1", ErrorKind.INVALID_FILTER, r"pyarrow.compute.Expression"),
        (None, ErrorKind.INVALID_FILTER, r"NoneType"),
    ],
)
def test_refusals(expression: pc.Expression, kind: ErrorKind, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as refused:
        from_expression(expression, SCHEMA)
    assert refused.value.kind is kind

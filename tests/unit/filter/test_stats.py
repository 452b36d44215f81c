"""Which files may hold a match: never too few."""

import math

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.filter.expression import from_expression, matches
from lsm_engine.filter.predicate import (
    TRUE,
    And,
    Compare,
    Comparison,
    Constant,
    IsIn,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    all_of,
    split_conjuncts,
)
from lsm_engine.filter.stats import ColumnBounds, after_prefix, may_match
from tests.unit.filter.rows import SCHEMA, filters, rows


def bounds(kind: pa.DataType, *files: tuple[object, object, int | None]) -> ColumnBounds:
    lows, highs, nulls = zip(*files, strict=True)
    return ColumnBounds(
        mins=pa.array(lows, kind),
        maxs=pa.array(highs, kind),
        null_counts=pa.array(nulls, pa.int64()),
    )


NUM, F, S, B = pc.field("i"), pc.field("f"), pc.field("s"), pc.field("b")
NAN = float("nan")
NOTHING = pa.scalar(None, pa.int32())
FILES = {
    #                            0           1               2: all null     3: unknown          4: one value
    "i": bounds(pa.int32(), (1, 5, 0), (6, 9, 2), (None, None, 10), (None, None, None), (7, 7, 0)),
    "f": bounds(pa.float64(), (1, 5, 0), (NAN, NAN, 0), (None, None, 10), (1, NAN, None), (7, 7, 0)),
    "s": bounds(pa.string(), ("a", "b", 0), ("bb", "c", 2), (None, None, 10), (None, None, None), ("ab", "ab", 0)),
    "b": bounds(pa.bool_(), (False, True, 0), (True, True, 1), (None, None, 10), (None, None, None), (False, False, 0)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (NUM == 3, "0 3"),
        (NUM == 7, "1 3 4"),
        (NUM != 7, "0 1 3"),
        (NUM < 6, "0 3"),
        (NUM <= 6, "0 1 3"),
        (NUM > 7, "1 3"),
        (NUM >= 7, "1 3 4"),
        (NUM > 6.5, "1 3 4"),
        (~(NUM > 6), "0 1 3"),
        (~(NUM == 7), "0 1 3"),
        (NUM > NAN, "0 1 2 3 4"),  # left to Arrow
        (NUM.is_null(), "1 2 3"),
        (NUM.is_valid(), "0 1 3 4"),
        (~NUM.is_null(), "0 1 3 4"),
        (~NUM.is_valid(), "1 2 3"),
        (NUM.isin([2, 9]), "0 1 3"),
        (NUM.isin([2]) | NUM.is_null(), "0 1 2 3"),
        (~NUM.isin([7, 1]), "0 1 2 3"),
        (~NUM.isin([7]) & NUM.is_valid(), "0 1 3"),
        (NUM.isin([]), ""),
        (NUM.isin(list(range(10, 1000))), "3"),
        (NUM.isin(list(range(9, 1000))), "1 3"),
        ((NUM > 5) & (S < "b"), "3 4"),
        ((NUM == 3) | (S == "c"), "0 1 3"),
        (~((NUM > 5) & (S < "b")), "0 1 3"),
        (F > 6, "1 3 4"),
        (~(F > 6), "0 1 3 4"),
        (F != 7, "0 1 3 4"),
        (F < 1, "1"),
        (F.isin([7.0]), "1 3 4"),
        (F.isin([NAN]), "0 1 3 4"),
        (~F.isin([7.0]), "0 1 2 3 4"),
        (pc.starts_with(S, "ab"), "0 3 4"),
        (pc.starts_with(S, "c"), "1 3"),
        (pc.starts_with(S, ""), "0 1 3 4"),
        (~pc.starts_with(S, "ab"), "0 1 3"),
        (B, "0 1 3"),
        (~B, "0 3 4"),
        (pc.scalar(True), "0 1 2 3 4"),
        (pc.scalar(False), ""),
        (NUM + 1 > 100, "0 1 2 3 4"),
        (pc.field("d").is_null(), "0 1 2 3 4"),
        (NUM == NOTHING, ""),
        (~(NUM == NOTHING), ""),
    ],
)  # fmt: skip
def test_may_match(expression: pc.Expression, expected: str) -> None:
    mask = may_match(from_expression(expression, SCHEMA), FILES, pa.array([10] * 5, pa.int64()))
    assert " ".join(str(n) for n, may in enumerate(mask) if may) == expected


def true_bounds(files: list[pa.Table], name: str, how: str) -> ColumnBounds:
    """Bounds as writers store them: exact, rounded outwards, without counts, or not at all."""
    lows, highs, nulls = [], [], []
    for file in files:
        values = [value for value in file[name].to_pylist() if value is not None]
        plain = [v for v in values if not (isinstance(v, float) and math.isnan(v))]
        low, high = (min(plain), max(plain)) if plain else (None, None)
        if how == "nan" and len(plain) < len(values):
            high = NAN
        if how == "wide" and plain and name == "s":
            low, high = low[:1], after_prefix(high[:1])
        known = how != "none" and not (name == "s" and high is None)
        lows.append(low if known else None)
        highs.append(high if known else None)
        nulls.append(None if how in ("none", "uncounted") else file[name].null_count)
    kind = SCHEMA.field(name).type
    return ColumnBounds(
        mins=pa.array(lows, kind),
        maxs=pa.array(highs, kind),
        null_counts=pa.array(nulls, pa.int64()),
    )


@given(
    filters(),
    st.lists(rows(max_size=4), min_size=1, max_size=4),
    st.lists(st.sampled_from(["exact", "wide", "nan", "uncounted", "none", "absent"]), min_size=8, max_size=8),
)  # fmt: skip
def test_no_match_is_ever_pruned(
    expression: pc.Expression, files: list[pa.Table], how: list[str]
) -> None:
    tree = from_expression(expression, SCHEMA)
    known = {
        name: true_bounds(files, name, kind)
        for name, kind in zip(SCHEMA.names, how, strict=True)
        if kind != "absent"
    }
    mask = may_match(tree, known, pa.array([file.num_rows for file in files], pa.int64()))
    for file, may in zip(files, mask, strict=True):
        assert may or not matches(tree, file).any()


@given(st.text("aäb\ud7ff\ue000\U0010ffff", max_size=3), st.text("aäb\U0010ffff", max_size=3))
def test_after_prefix_bounds_all_that_starts_so(prefix: str, rest: str) -> None:
    beyond = after_prefix(prefix)
    assert beyond is None or prefix + rest < beyond
    assert beyond is not None or set(prefix) <= {"\U0010ffff"}


def test_the_text_after_a_prefix_is_text() -> None:
    assert after_prefix("a") == "b"
    assert after_prefix("ab\U0010ffff") == "ac"
    assert after_prefix("\U0010fffe") == "\U0010ffff"
    assert after_prefix("\U0010ffff") is None
    assert after_prefix("\ud7fe") == "\ud7ff"
    assert after_prefix("\ud7ff") == "\ue000"  # surrogates are no text
    assert after_prefix("\ue000") == "\ue001"


def test_conjuncts_on_keys_go_below_the_merge_and_the_rest_above() -> None:
    key, value = IsNull(column="k"), IsNull(column="v")
    other = IsNull(column="l")
    assert split_conjuncts(And(parts=(key, value)), ["k"]) == (key, value)
    assert split_conjuncts(And(parts=(key, other)), ["k", "l"]) == (And(parts=(key, other)), None)
    assert split_conjuncts(value, ["k"]) == (None, value)
    both = Or(parts=(key, value))
    assert split_conjuncts(And(parts=(both, key)), ["k"]) == (key, both)
    assert split_conjuncts(key, ["k", "l"]) == (key, None)


SEVEN = pa.scalar(7, pa.int32())


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Constant(value=True), "0 1 2 3 4"),
        (Constant(value=False), ""),
        (Constant(value=None), ""),
        (Not(part=Constant(value=True)), ""),
        (Not(part=Constant(value=False)), "0 1 2 3 4"),
        (Not(part=Constant(value=None)), ""),
        (IsIn(column="i", values=pa.array([7], pa.int32()), null_matches=False), "1 3 4"),
        (IsIn(column="i", values=pa.array([7], pa.int32()), null_matches=True), "1 2 3 4"),
        (Not(part=IsIn(column="i", values=pa.array([7], pa.int32()), null_matches=True)), "0 1 3"),
        (Not(part=IsIn(column="i", values=pa.array([7], pa.int32()), null_matches=False)), "0 1 2 3"),
        (StartsWith(column="s", prefix="a"), "0 3 4"),
        (StartsWith(column="s", prefix="\U0010ffff"), "3"),
        (Not(part=StartsWith(column="s", prefix="a")), "0 1 3"),
        (Not(part=StartsWith(column="s", prefix="\U0010ffff")), "0 1 3 4"),
        (Not(part=StartsWith(column="unknown", prefix="\U0010ffff")), "0 1 2 3 4"),
        (Not(part=Compare(column="i", comparison=Comparison.EQUAL, value=SEVEN)), "0 1 3"),
        (Not(part=Compare(column="i", comparison=Comparison.GREATER, value=SEVEN)), "0 1 3 4"),
        (Not(part=Compare(column="i", comparison=Comparison.GREATER_EQUAL, value=SEVEN)), "0 1 3"),
        (Not(part=Compare(column="i", comparison=Comparison.GREATER_EQUAL, value=pa.scalar(NAN))), "0 1 3 4"),
        (Not(part=Compare(column="unknown", comparison=Comparison.EQUAL, value=SEVEN)), "0 1 2 3 4"),
    ],
)  # fmt: skip
def test_predicates_as_values(predicate: Predicate, expected: str) -> None:
    found = may_match(predicate, FILES, pa.array([10] * 5, pa.int64()))
    assert " ".join(str(n) for n, may in enumerate(found) if may) == expected


def test_predicates_compare_by_what_they_ask() -> None:
    one = Opaque(columns=("i",), expression=NUM > 3)
    assert one == Opaque(columns=("i",), expression=NUM > 3)
    assert one != Opaque(columns=("i",), expression=NUM > 4)
    assert one != IsNull(column="i")


def test_a_conjunction_is_flat() -> None:
    first, second = IsNull(column="i"), IsNull(column="s")
    assert all_of([]) == TRUE
    assert all_of([TRUE, first]) == first
    assert all_of([And(parts=(first, second)), TRUE, first]) == And(parts=(first, second, first))

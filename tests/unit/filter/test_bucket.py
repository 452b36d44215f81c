"""Only equality on every bucket key names buckets."""

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.filter.expression import from_expression, matches
from lsm_engine.filter.partition import candidate_buckets
from lsm_engine.filter.predicate import Compare, Comparison, IsIn
from lsm_engine.types.arrow_types import arrow_schema
from lsm_engine.types.types import DataField, parse_type
from tests.unit.filter.rows import SCHEMA as ROWS
from tests.unit.filter.rows import filters, rows


def field(name: str, text: str) -> DataField:
    return DataField(id=0, name=name, type=parse_type(text))


K, L, F, T = (
    field("k", "INT"),
    field("l", "STRING"),
    field("f", "DOUBLE"),
    field("t", "TIMESTAMP(3)"),
)
SCHEMA = arrow_schema((K, L, F, T, field("v", "INT")))
KEY, TEXT, REAL, TIME, VALUE = (pc.field(name) for name in "klftv")
NOON = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001


def buckets(columns: list[pa.Array]):
    """A stand-in for the hash: every key its own bucket, by the text of its bytes."""
    table = pa.table(dict(zip("abcd", columns, strict=False)))
    return [SEEN.setdefault(str(row), len(SEEN)) for row in table.to_pylist()]


SEEN: dict[str, int] = {}


@pytest.mark.parametrize(
    ("keys", "expression", "expected"),
    [
        ([K], KEY == 3, 1),
        ([K], (KEY == 3) & (VALUE > 1), 1),
        ([K], KEY.isin([3, 4, 4]), 2),
        ([K], (KEY == 3) | (KEY == 4), 2),
        ([K], (KEY == 3) | (VALUE == 4), None),
        ([K], ((KEY == 3) & (VALUE == 1)) | (KEY.isin([4, 5]) & (VALUE == 2)), 3),
        ([K], KEY.isin([1, 2, 3]) & (KEY == 3), 1),
        ([K], KEY.isin([]), 0),
        ([K], KEY.isin([3, None]), None),
        ([K], KEY > 3, None),
        ([K], ~(KEY == 3), None),
        ([K], VALUE == 3, None),
        ([K], KEY == 3.0, 1),
        ([K], KEY == 2**40, None),
        ([K, L], KEY == 3, None),
        ([K, L], (KEY == 3) & (TEXT == "a"), 1),
        ([K, L], KEY.isin([1, 2]) & TEXT.isin(["a", "b", "c"]), 6),
        ([K, L], KEY.isin(list(range(100))) & TEXT.isin([str(n) for n in range(100)]), None),
        ([F], REAL == 1.5, 1),
        ([F], REAL == 0.0, 2),
        ([F], REAL.isin([float("nan"), 1.0]), None),
        ([T], TIME == NOON, 1),
        ([T], NOON + dt.timedelta(microseconds=1) == TIME, None),
        ([], KEY == 3, None),
    ],
)  # fmt: skip
def test_candidates(keys: list[DataField], expression: pc.Expression, expected: int | None) -> None:
    found = candidate_buckets(from_expression(expression, SCHEMA), keys, buckets)
    assert (found if found is None else len(found)) == expected


@pytest.mark.parametrize(
    ("given", "value", "kind", "expected"),
    [
        (pa.int64(), 3, "INT", 1),
        (pa.int8(), 3, "DECIMAL(10, 2)", 1),
        (pa.int64(), 3, "DECIMAL(10, 2)", None),  # Arrow refuses, as some number would be too long
        (pa.int64(), 3, "STRING", None),
        (pa.float64(), 3.0, "INT", None),
        (pa.bool_(), True, "INT", None),
        (pa.decimal128(5, 1), 3, "DECIMAL(10, 2)", 1),
        (pa.decimal128(5, 1), 3, "INT", None),
        (pa.large_string(), "a", "STRING", 1),
        (pa.string(), "a", "VARBINARY(9)", None),
        (pa.large_binary(), b"a", "BYTES", 1),
        (pa.binary(1), b"a", "BYTES", 1),
        (pa.binary(), b"a", "STRING", None),
        (pa.timestamp("us"), NOON, "TIMESTAMP(3)", 1),
        (pa.timestamp("us", "UTC"), NOON, "TIMESTAMP(3)", None),
        (pa.timestamp("us"), NOON, "BIGINT", None),
        (pa.int64(), 3, "TIMESTAMP(3)", None),
        (pa.time64("us"), dt.time(12), "TIME(3)", 1),
        (pa.time32("s"), dt.time(12), "TIME(3)", 1),
        (pa.time32("ms"), dt.time(12), "INT", None),
        (pa.int64(), 2**40, "INT", None),
    ],
)  # fmt: skip
def test_values_of_other_types_count_where_they_equal_the_same(
    given: pa.DataType, value: object, kind: str, expected: int | None
) -> None:
    equal = Compare(
        column="k", comparison=Comparison.EQUAL, value=pa.scalar(value, given)
    )  # a filter has cast its literals to the column: values come so from other callers
    found = candidate_buckets(equal, [field("k", kind)], buckets)
    assert (found if found is None else len(found)) == expected


def test_no_value_of_no_type_is_in_no_bucket() -> None:
    nothing = IsIn(column="k", values=pa.nulls(0), null_matches=False)
    assert candidate_buckets(nothing, [K], buckets) == frozenset()


def test_no_more_than_4096_keys_are_tried() -> None:
    def found(one: int, other: int) -> frozenset[int] | None:
        numbers = KEY.isin(list(range(one))) & TEXT.isin([str(n) for n in range(other)])
        return candidate_buckets(from_expression(numbers, SCHEMA), [K, L], buckets)

    assert len(found(64, 64) or ()) == 4096
    assert found(17, 241) is None, "4,097"


TYPES = {"i": "INT", "s": "STRING", "f": "DOUBLE", "m": "DECIMAL(10, 2)", "b": "BOOLEAN"}


@given(
    filters(tuple(TYPES)),
    rows(),
    st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=2, unique=True),
)
def test_no_match_lies_in_another_bucket(expression, made: pa.Table, names: list[str]) -> None:
    keys = [field(name, TYPES[name]) for name in names]
    predicate = from_expression(expression, ROWS)
    found = candidate_buckets(predicate, keys, buckets)
    if found is None or not made.num_rows:
        return
    placed = buckets([made[name].combine_chunks() for name in names])
    for bucket, hit in zip(placed, matches(predicate, made), strict=True):
        assert bucket in found or not hit

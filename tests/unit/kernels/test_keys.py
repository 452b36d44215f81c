"""Keys compare as the values they stand for, as words and as bytes, for every type."""

from functools import cmp_to_key

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.kernels.keys import (
    ONE_WORD,
    TWO_WORDS,
    WORDS_AND_BYTES,
    SortKeys,
    key_bytes,
    lower_bound,
    sort_keys,
    upper_bound,
)
from lsm_engine.kernels.merge_runs import KeyTable, compare_tied
from tests.unit.kernels.columns import ORDERED, TYPES, array_of, rank


@st.composite
def keyed_rows(draw, *, nullable=False, most_columns=3):
    kinds = draw(st.lists(ORDERED, min_size=1, max_size=most_columns))
    values = [TYPES[kind] | st.none() if nullable else TYPES[kind] for kind in kinds]
    rows = draw(st.lists(st.tuples(*values), min_size=1, max_size=12))
    rows += draw(st.lists(st.sampled_from(rows), max_size=4))
    padding = draw(st.integers(0, 2))
    columns = [array_of([row[at] for row in rows], kind, padding) for at, kind in enumerate(kinds)]
    ranks = [tuple(rank(v, kind) for v, kind in zip(row, kinds, strict=True)) for row in rows]
    return columns, ranks


def compare(keys: SortKeys, i: int, j: int) -> int:
    if keys.prefix[i] != keys.prefix[j]:
        return -1 if keys.prefix[i] < keys.prefix[j] else 1
    table = KeyTable.from_keys([keys], in_order=False)
    return compare_tied(table.parts, 0, i, 0, j)


def sign(value: int) -> int:
    return (value > 0) - (value < 0)


def order_of(one: object, other: object) -> int:
    return (one > other) - (one < other)  # type: ignore[operator]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_one_column_of_each_type(kind):
    @given(st.lists(TYPES[kind], min_size=1, max_size=20))
    def check(values):
        array = array_of(values, kind)
        ranks = [rank(value, kind) for value in values]
        check_order([array], ranks, nullable=False, descending=False)

    check()


def check_order(columns, ranks, *, nullable, descending):
    """`ranks`: a tuple that orders ascending; descending keeps nulls first."""
    keys = sort_keys(columns, nullable=nullable, descending=descending)
    stored = key_bytes(columns, nullable=nullable, descending=descending).to_pylist()
    table = KeyTable.from_keys([keys], in_order=False)
    for i in range(len(keys)):
        for j in range(len(keys)):
            expected = order_of(ranks[i], ranks[j])
            words = sign(
                int(table.first[0][i] > table.first[0][j])
                - int(table.first[0][i] < table.first[0][j])
            )
            got = words or sign(compare_tied(table.parts, 0, i, 0, j))
            assert got == expected, (i, j)
            assert order_of(stored[i], stored[j]) == expected, (i, j)
    for row, one in enumerate(stored):
        assert int(keys.prefix[row]) == int.from_bytes(one[:8].ljust(8, b"\0"), "big")
        assert keys.bytes_of(row) == one
        if keys.form != ONE_WORD:
            assert int(keys.second[row]) == int.from_bytes(one[8:16].ljust(8, b"\0"), "big")


@given(keyed_rows())
def test_composite_keys_order_as_their_values(rows):
    columns, ranks = rows
    check_order(columns, ranks, nullable=False, descending=False)


@given(keyed_rows(nullable=True))
def test_nulls_sort_first(rows):
    columns, ranks = rows
    check_order(columns, ranks, nullable=True, descending=False)


class Reversed:
    """A rank turned round, nulls still first."""

    def __init__(self, part):
        self.part = part

    def __lt__(self, other):
        if len(self.part) == 1 or len(other.part) == 1:
            return len(self.part) < len(other.part)
        return other.part < self.part

    def __gt__(self, other):
        return other < self

    def __eq__(self, other):
        return self.part == other.part


@given(keyed_rows(nullable=True))
def test_descending_keeps_nulls_first(rows):
    columns, ranks = rows
    turned = [tuple(Reversed(part) for part in row) for row in ranks]
    check_order(columns, turned, nullable=True, descending=True)


@given(keyed_rows(), st.data())
def test_bounds(rows, data):
    columns, ranks = rows
    order = sorted(range(len(ranks)), key=cmp_to_key(lambda i, j: order_of(ranks[i], ranks[j])))
    split = data.draw(st.integers(0, len(order)))
    probe = data.draw(st.integers(0, len(order) - 1))
    positions = pa.array(sorted(order[:split], key=order.index), pa.int64())
    keys = sort_keys([column.take(positions) for column in columns])
    bound = key_bytes(columns)[probe].as_py()
    ranked = [ranks[at] for at in positions.to_pylist()]
    below = sum(order_of(one, ranks[probe]) < 0 for one in ranked)
    up_to = sum(order_of(one, ranks[probe]) <= 0 for one in ranked)
    assert lower_bound(keys, bound) == below
    assert upper_bound(keys, bound) == up_to


def test_forms():
    longs, ints = pa.array([1, 2]), pa.array([1, 2], pa.int32())
    assert sort_keys([longs]).form == ONE_WORD
    assert sort_keys([ints, ints]).form == ONE_WORD
    assert sort_keys([longs, ints]).form == TWO_WORDS
    assert sort_keys([longs, longs]).form == TWO_WORDS
    assert sort_keys([longs], nullable=True).form == TWO_WORDS
    assert sort_keys([longs, longs, ints]).form == WORDS_AND_BYTES
    assert sort_keys([pa.array(["a", "b"])]).form == WORDS_AND_BYTES


def test_a_single_text_column_is_not_copied():
    column = pa.array(["b", "a", "c"], pa.large_string())
    keys = sort_keys([column])
    assert keys.data.__array_interface__["data"][0] == column.buffers()[2].address


def test_chunked_and_dictionary_columns():
    plain = pa.array(["b", "a", "b"])
    expected = key_bytes([plain])
    assert key_bytes([pa.chunked_array([plain[:1], plain[1:]])]).equals(expected)
    assert key_bytes([plain.dictionary_encode()]).equals(expected)
    assert key_bytes([plain.cast(pa.string_view())]).equals(expected)


def test_slices_share_the_bytes():
    keys = sort_keys([pa.array(["a", "bb", "ccc", "d" * 20])])
    part = keys.slice(1, 4)
    assert [part.bytes_of(row) for row in range(3)] == [b"bb", b"ccc", b"d" * 20]
    assert part.data is keys.data


def test_empty_columns():
    for kind in TYPES:
        keys = sort_keys([pa.array([], kind), pa.array([], pa.string())])
        assert len(keys) == 0
        assert lower_bound(keys, b"x") == upper_bound(keys, b"x") == 0
        assert len(key_bytes([pa.array([], kind)])) == 0


def test_nested_types_have_no_order():
    with pytest.raises(UnsupportedError, match="list"):
        sort_keys([pa.array([[1]])])


def test_every_nan_and_zero_is_one_value():
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64)
    nans = sort_keys([pa.array(bits.view(np.float64))])
    assert len(set(nans.prefix.tolist())) == 1
    zeros = sort_keys([pa.array([0.0, -0.0])])
    assert zeros.prefix[0] == zeros.prefix[1]

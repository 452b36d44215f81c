"""Merging and sorting rows against a slow reference: a Python sort by (key, rank, sequence, input)."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.kernels.keys import sort_keys
from lsm_engine.kernels.merge_runs import (
    MergeOrder,
    RowRanks,
    is_sorted,
    merge_order,
    sort_order,
    sort_orders,
)

KEYS = {
    "one word": ([pa.int64()], st.tuples(st.integers(-3, 12))),
    "two words": ([pa.int64(), pa.int32()], st.tuples(st.integers(0, 2), st.integers(-2, 2))),
    "text": ([pa.string()], st.tuples(st.text("ab\0", max_size=3))),
    "long text": (
        [pa.string()],
        st.tuples(
            st.text("ab", max_size=2).map(lambda end: "a prefix longer than two words " + end)
        ),
    ),
    "text and number": (
        [pa.string(), pa.int32()],
        st.tuples(st.text("ab\0", max_size=2), st.integers(-2, 2)),
    ),
    "bytes beyond the words": (
        [pa.binary()],
        st.tuples(st.binary(max_size=2).map(lambda end: b"0123456789abcdef" + end)),
    ),
}
RANKS = st.none() | st.integers(0, 2)


@st.composite
def versions(draw, *, in_order):
    """Draw inputs of (key, rank, sequence) rows; `in_order`: each sorted by key."""
    kinds, keys = draw(st.sampled_from(list(KEYS.values())))
    ranked = draw(st.booleans())
    ranks = RANKS if ranked else st.none()
    rows = st.tuples(keys, ranks, st.integers(0, 5))
    inputs = draw(st.lists(st.lists(rows, max_size=20), max_size=6))
    if in_order:
        inputs = [sorted(one, key=lambda row: encoded(row[0])) for one in inputs]
    return kinds, ranked, inputs


def encoded(key):
    return tuple(part.encode() if isinstance(part, str) else part for part in key)


def prepared(kinds, ranked, rows):
    columns = [pa.array([row[0][at] for row in rows], kind) for at, kind in enumerate(kinds)]
    newest = None
    if ranked:
        newest = sort_keys([pa.array([row[1] for row in rows], pa.int64())], nullable=True)
    sequence = np.array([row[2] for row in rows], np.int64)
    return sort_keys(columns), RowRanks(sequence=sequence, newest=newest)


def expected(inputs):
    rows = [
        (encoded(key), (rank is not None, rank or 0), sequence, run, row)
        for run, one in enumerate(inputs)
        for row, (key, rank, sequence) in enumerate(one)
    ]
    rows.sort()
    starts = [at for at in range(len(rows)) if at == 0 or rows[at][0] != rows[at - 1][0]]
    return [(row[3], row[4]) for row in rows], starts


def check(order: MergeOrder, inputs):
    places, starts = expected(inputs)
    assert list(zip(order.run.tolist(), order.row.tolist(), strict=True)) == places
    assert order.starts.tolist() == starts


@given(versions(in_order=True))
def test_merge_order(drawn):
    kinds, ranked, inputs = drawn
    parts = [prepared(kinds, ranked, one) for one in inputs]
    check(merge_order([part[0] for part in parts], [part[1] for part in parts]), inputs)


@given(versions(in_order=False))
def test_sort_orders(drawn):
    kinds, ranked, inputs = drawn
    parts = [prepared(kinds, ranked, one) for one in inputs]
    check(sort_orders([part[0] for part in parts], [part[1] for part in parts]), inputs)


@given(versions(in_order=False))
def test_sort_order_of_one_input(drawn):
    kinds, ranked, inputs = drawn
    rows = [row for one in inputs for row in one]
    check(sort_order(*prepared(kinds, ranked, rows)), [rows])


@given(versions(in_order=False))
def test_is_sorted(drawn):
    kinds, ranked, inputs = drawn
    for rows in inputs:
        keys = [encoded(row[0]) for row in rows]
        assert is_sorted(prepared(kinds, ranked, rows)[0]) == (keys == sorted(keys))


@pytest.mark.parametrize("disjoint", [True, False])
@pytest.mark.parametrize("run_count", [1, 2, 3, 100])
def test_long_runs(run_count, disjoint):
    rng = np.random.default_rng(run_count)
    shift = 10_000 if disjoint else 0
    runs = [np.unique(rng.integers(0, 5_000, 1_000)) + at * shift for at in range(run_count)]
    ranks = [RowRanks(sequence=np.full(len(run), at)) for at, run in enumerate(runs)]
    order = merge_order([sort_keys([pa.array(run)]) for run in runs], ranks)
    begins = np.cumsum([0, *map(len, runs)])
    merged = np.concatenate(runs)[begins[order.run] + order.row]
    together = np.lexsort(
        (np.concatenate([np.full(len(r), at) for at, r in enumerate(runs)]), np.concatenate(runs))
    )
    assert np.array_equal(begins[order.run] + order.row, together)
    assert np.array_equal(merged[order.starts], np.unique(np.concatenate(runs)))


@pytest.mark.parametrize("ascending", [True, False])
def test_one_key_with_many_versions(ascending):
    # Neither time nor memory may grow with the square of the versions.
    count = 50_000
    keys = sort_keys([pa.array(np.zeros(count, np.int64))])
    sequences = np.arange(2 * count).reshape(2, count)
    inputs = sequences if ascending else sequences[::-1]
    order = merge_order([keys, keys], [RowRanks(sequence=one) for one in inputs])
    assert order.starts.tolist() == [0]
    ordered = np.concatenate(inputs)[order.run.astype(np.int64) * count + order.row]
    assert np.array_equal(ordered, np.arange(2 * count))


def test_reversed_input_is_sorted():
    values = np.arange(100_000)[::-1] * 7919 - 5
    order = sort_order(sort_keys([pa.array(values)]), RowRanks(sequence=np.arange(len(values))))
    assert np.array_equal(order.row, np.arange(len(values))[::-1])


def test_nothing_to_merge():
    order = merge_order([], [])
    assert len(order) == len(order.starts) == 0
    empty = sort_keys([pa.array([], pa.string())])
    none = RowRanks(sequence=np.zeros(0, np.int64))
    assert len(merge_order([empty, empty], [none, none])) == 0
    assert len(sort_order(empty, none)) == 0


def test_sliced_keys_merge():
    keys = sort_keys([pa.array(["a", "b", "c", "d", "e"])])
    ranks = RowRanks(sequence=np.arange(5))
    part = RowRanks(sequence=ranks.sequence[1:4])
    order = merge_order([keys.slice(1, 4), keys.slice(0, 5)], [part, ranks])
    assert order.run.tolist() == [1, 0, 1, 0, 1, 0, 1, 1]
    assert order.row.tolist() == [0, 0, 1, 1, 2, 2, 3, 4]


def test_take_keeps_one_row_of_each_key():
    keys = sort_keys([pa.array([1, 1, 2])])
    order = merge_order([keys], [RowRanks(sequence=np.array([5, 4, 3]))])
    assert order.row.tolist() == [1, 0, 2]
    chosen = order.take(np.array([1, 2]))
    assert chosen.row.tolist() == [0, 2]
    assert chosen.starts.tolist() == [0, 1]

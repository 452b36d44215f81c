"""Groups, hashes, routes and selections against slow references."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_engine.kernels.buckets import bucket_of, group_rows, murmur32
from lsm_engine.kernels.groups import (
    counts_of_each,
    first_of_each,
    group_of_each,
    last_of_each,
    last_valid_of_each,
)
from lsm_engine.kernels.selection import RowsLeft, keep, take
from tests.unit.kernels.columns import ORDERED, TYPES, array_of

GROUPS = st.lists(st.lists(st.booleans(), min_size=1, max_size=5), max_size=8)


@given(GROUPS)
def test_groups(groups):
    flags = np.array([flag for group in groups for flag in group], np.bool_)
    starts = np.cumsum([0, *map(len, groups)])[:-1].astype(np.int64)
    rows = [
        list(range(start, start + len(group)))
        for start, group in zip(starts.tolist(), groups, strict=True)
    ]
    assert first_of_each(starts).tolist() == [group[0] for group in rows]
    assert last_of_each(starts, len(flags)).tolist() == [group[-1] for group in rows]
    assert counts_of_each(starts, len(flags)).tolist() == list(map(len, rows))
    assert group_of_each(starts, len(flags)).tolist() == [
        number for number, group in enumerate(rows) for _ in group
    ]
    valid = [[row for row in group if flags[row]] for group in rows]
    assert last_valid_of_each(flags, starts).tolist() == [v[-1] if v else -1 for v in valid]


def murmur_of(row: bytes, seed: int) -> int:
    """murmur3 of whole words, by the book."""
    mask = 0xFFFFFFFF
    mixed = seed
    for at in range(0, len(row), 4):
        word = int.from_bytes(row[at : at + 4], "little") * 0xCC9E2D51 & mask
        word = (word << 15 | word >> 17) & mask
        mixed ^= word * 0x1B873593 & mask
        mixed = (mixed << 13 | mixed >> 19) & mask
        mixed = (mixed * 5 + 0xE6546B64) & mask
    mixed ^= len(row)
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & mask
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & mask
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


@given(
    st.lists(st.binary(max_size=40).map(lambda row: row + b"\0" * (-len(row) % 8))),
    st.sampled_from([42, 0]),
)
def test_murmur(rows, seed):
    data = np.frombuffer(b"".join(rows), np.uint8)
    offsets = np.cumsum([0, *map(len, rows)])
    assert murmur32(data, offsets, seed).tolist() == [murmur_of(row, seed) for row in rows]


def test_murmur_of_known_rows():
    # One INT and one BIGINT key as every client hashes them: 8 bytes of header, 8 of value.
    row = np.frombuffer(bytes(8) + (1).to_bytes(8, "little"), np.uint8)
    assert murmur32(row, np.array([0, 16])).tolist() == [murmur_of(row.tobytes(), 42)]
    assert murmur32(np.zeros(0, np.uint8), np.array([0])).tolist() == []


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), st.integers(1, 1000))
def test_bucket_is_the_remainder_towards_zero(hashes, count):
    got = bucket_of(np.array(hashes, np.int32), count)
    assert got.dtype == np.int32
    assert got.tolist() == [abs(one) % count for one in hashes]


@given(st.lists(st.integers(0, 9)), st.sampled_from([10, 100_000]))
def test_routing_is_a_stable_grouping(ids, group_count):
    groups = group_rows(np.array(ids, np.int64), group_count)
    got = {number: groups.order[start:stop].tolist() for number, start, stop in groups.stretches()}
    want = {
        number: [row for row, one in enumerate(ids) if one == number] for number in sorted(set(ids))
    }
    assert got == want
    assert list(got) == list(want)
    assert groups.starts.tolist()[-1] == len(ids)


@given(st.lists(st.booleans()))
def test_keep(kept):
    table = pa.table({"a": list(range(len(kept)))}, schema=pa.schema([("a", pa.int64())]))
    got = keep(table, np.array(kept, np.bool_))
    assert got["a"].to_pylist() == [at for at, flag in enumerate(kept) if flag]


def test_neighbours_are_not_copied():
    batch = pa.record_batch({"a": pa.array(range(100))})
    address = batch.column(0).buffers()[1].address
    for rows in (take(batch, np.arange(10, 20)), keep(batch, np.arange(100) < 50)):
        assert rows.column(0).buffers()[1].address == address
    assert take(batch, np.array([3, 1])).column(0).to_pylist() == [3, 1]
    assert take(batch, np.zeros(0, np.int64)).num_rows == 0


@settings(deadline=None)  # the first example of a type may wait for the machine
@given(
    kind=ORDERED, count=st.sampled_from([40, 20 * 1024]), begin=st.integers(0, 9), data=st.data()
)
def test_rows_left_of_a_column(kind, count, begin, data):
    drawn = data.draw(st.lists(TYPES[kind] | st.none(), min_size=1, max_size=20))
    some = [None if value != value else value for value in drawn]  # NaN is equal to nothing
    values = array_of((some * (count + begin))[: count + begin], kind)[begin:]
    dropped = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1)))), np.int64)
    kept = np.delete(np.arange(count), dropped)
    left = RowsLeft(count, dropped)
    got = left.filter_column(pa.chunked_array([values]))
    got.validate(full=True)
    assert len(left) == len(got) == len(kept)
    assert got.type == kind
    assert got.combine_chunks().equals(values.take(pa.array(kept)))
    many = left.filter_column(pa.chunked_array([values[:7], values[7:]]))
    assert many.combine_chunks().equals(got.combine_chunks())


def test_few_rows_less_cost_no_copy():
    column = pa.chunked_array([pa.array(range(100_000))])
    begin = column.chunk(0).buffers()[1].address
    got = RowsLeft(100_000, np.array([7, 99_999])).filter_column(column)
    assert [len(chunk) for chunk in got.chunks] == [7, 99_991]
    assert {chunk.buffers()[1].address for chunk in got.chunks} == {begin}

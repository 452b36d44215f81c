"""File indexes: every answer beside the values themselves, and roaring bitmaps beside CRoaring's."""

import math
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.format import column_index
from lsm_engine.format.column_index import (
    ColumnIndex,
    IndexBuilder,
    indexed_type,
    roaring_bytes,
)
from lsm_engine.format.file_index import FileIndexes, ReadBytes, encode_indexes
from lsm_engine.options.modes import FileIndexType
from lsm_engine.options.table_options import IndexedColumn
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.types import parse_type

EXACT = [FileIndexType.BITMAP, FileIndexType.BSI, FileIndexType.RANGE_BITMAP]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "TINYINT": st.integers(-128, 127),
    "INT": st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-9, 9) | st.integers(-(2**63) + 1, 2**63 - 1),
    "DOUBLE": st.sampled_from([-1.5, -0.0, 0.0, 2.25, math.inf, -math.inf, 1e-300]),
    "STRING": st.text(max_size=3) | st.sampled_from(["a", "b", "ab", "\N{GRINNING FACE}"]),
    "BOOLEAN": st.booleans(),
    "DECIMAL(9, 2)": st.decimals(-99, 99, places=2),
    "DATE": st.dates(),
    "TIMESTAMP(3)": st.datetimes().map(lambda time: time.replace(microsecond=0)),
}


def part_of(data: bytes) -> ReadBytes:
    """Reads parts of bytes."""
    return lambda offset, size: data[offset : offset + size]


def index_of(
    name: str, kind: FileIndexType, values: list[Any], column: IndexedColumn | None = None
) -> ColumnIndex | None:
    """The index of one column, written in two row groups and read back; None: of no such type."""
    declared = parse_type(name)
    stored = indexed_type(declared, kind)
    if stored is None:
        return None
    builder = IndexBuilder(column or IndexedColumn(name="c", type=kind), stored)
    half = len(values) // 2
    pieces = [
        builder.piece(pa.array(part, arrow_type(declared)))
        for part in (values[:half], values[half:])
    ]
    written = builder.built(pieces)
    assert written is not None
    file = encode_indexes({"c": {kind: written}})
    (index,) = FileIndexes(part_of(file), row_count=len(values), file_name="f").of_column(
        "c", declared
    )
    return index


def keys_of(name: str, kind: FileIndexType, values: list[Any]) -> list[Any]:
    declared = parse_type(name)
    stored = indexed_type(declared, kind)
    assert stored is not None
    keys: list[Any] = stored.keys(pa.array(values, arrow_type(declared))).to_pylist()
    return keys


@pytest.mark.parametrize("kind", EXACT)
@given(data=st.data())
def test_an_exact_index_finds_the_rows_of_every_question(
    data: st.DataObject, kind: FileIndexType
) -> None:
    name = data.draw(st.sampled_from(list(VALUES)))
    values = data.draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=30))
    sizes = {FileIndexType.BITMAP: 40, FileIndexType.RANGE_BITMAP: 9}
    column = IndexedColumn(
        name="c", type=kind, block_bytes=data.draw(st.sampled_from([None, sizes.get(kind)])),
        version=data.draw(st.sampled_from([1, 2])),
    )  # fmt: skip
    index = index_of(name, kind, values, column)
    if index is None:
        return
    stored = keys_of(name, kind, values)
    asked = keys_of(name, kind, data.draw(st.lists(VALUES[name], min_size=2, max_size=2)))
    asked += [key for key in stored if key is not None][:1]

    def rows(test: Callable[[Any], bool]) -> list[int]:
        return [row for row, key in enumerate(stored) if key is not None and test(key)]

    assert list(index.equal(asked) or ()) == rows(lambda key: key in asked)
    assert list(index.valid() or ()) == rows(lambda key: True)
    assert list(index.null() or ()) == [row for row, key in enumerate(stored) if key is None]
    low, high = sorted(asked[:2])
    left_open = index.between(low, high, closed=(False, True))
    right_open = index.between(low, high, closed=(True, False))
    if left_open is not None:
        assert list(left_open) == rows(lambda key: low < key <= high)
        assert list(right_open or ()) == rows(lambda key: low <= key < high)
    assert (left_open is None) == (kind is FileIndexType.BITMAP)
    up = index.between(low, None, closed=(True, True))
    assert up is None or list(up) == rows(lambda key: key >= low)


@pytest.mark.parametrize(
    "name", ["INT", "DOUBLE", "STRING", "TIMESTAMP(3)", "TIMESTAMP(9)", "BYTES"]
)
def test_a_bloom_filter_lets_every_value_through_and_few_others(name: str) -> None:
    makers: dict[str, Callable[[int], Any]] = {
        "DOUBLE": float, "STRING": str, "BYTES": lambda number: b"%d" % number,
    }  # fmt: skip
    make = makers.get(name, int)
    values = [make(number) for number in range(0, 4000, 2)]
    index = index_of(name, FileIndexType.BLOOM_FILTER, values)
    assert index is not None
    kind = FileIndexType.BLOOM_FILTER
    assert all(index.equal([key]) is None for key in keys_of(name, kind, values))
    others = keys_of(name, kind, [make(number) for number in range(1, 4000, 2)])
    if name == "TIMESTAMP(9)":  # digits below a microsecond are not in it
        others = list(range(100_000, 102_000))
    assert sum(index.equal([key]) is None for key in others) < 0.15 * len(others)


def test_hashes_of_bytes_are_xxhash() -> None:
    stored = indexed_type(parse_type("STRING"), FileIndexType.BLOOM_FILTER)
    assert stored is not None
    texts = [b"", b"a", b"abc", b"Nobody inspects the spammish repetition"]
    expected = [0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B, 0x44BC2CF5AD770999, 0xFBCEA83C8A378BF1]
    hashes = stored.hashes(pa.array(texts, pa.large_binary()))
    assert hashes.astype(np.uint64).tolist() == expected


def test_roaring_bitmaps_are_those_of_croaring_byte_for_byte() -> None:
    draw = random.Random(5)
    bitmaps = [
        sorted(draw.sample(range(limit), min(limit, draw.choice([0, 1, 7, 5000, 60_000]))))
        for limit in (1, 70_000, 70_000, 1 << 20, 1 << 20, 6000)
    ]
    bitmaps += [list(range(10)), list(range(65_530, 65_600)), list(range(300_000))]
    bitmaps += [[row for row in range(400_000) if row % 7], list(range(0, 20_000, 2))]
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in bitmaps])]).astype(np.int64)
    positions = np.array([row for rows in bitmaps for row in rows], np.int64)
    data, ends = roaring_bytes(positions, offsets)
    starts = [0, *ends[:-1].tolist()]
    for rows, start, end in zip(bitmaps, starts, ends.tolist(), strict=True):
        expected = BitMap(rows)
        expected.run_optimize()
        assert data[start:end].tobytes() == expected.serialize()


def test_bit_slices_of_many_rows_are_roaring_bitmaps_of_each_bit() -> None:
    """More than 4,096 rows of a container come as plain bits, fewer as positions."""
    draw = np.random.default_rng(3)
    values: list[Any] = draw.integers(-(2**20), 2**20, 70_000).tolist()
    for count in (5_000, 20_000, 70_000):
        index = index_of("BIGINT", FileIndexType.BSI, values[:count])
        assert index is not None
        for key in values[:3]:
            rows = [row for row, value in enumerate(values[:count]) if value == key]
            assert list(index.equal([key]) or ()) == rows
        below = sum(value < values[0] for value in values[:count])
        rows_below = index.between(None, values[0], closed=(True, False))
        assert rows_below is not None
        assert len(rows_below) == below


def test_bit_slices_have_the_form_of_croaring_container_by_container() -> None:
    """Bits, positions and runs, beside each other too, and with rows in between that have no number."""
    draw = np.random.default_rng(4)
    random_bits = draw.integers(0, 1 << 12, 140_000)
    half_runs = np.where(np.arange(140_000) < 65_536, 0xFF, random_bits)
    for numbers in (
        random_bits,
        half_runs,
        np.arange(140_000),
        random_bits[:5000],
        random_bits[:9],
    ):
        for rows in (np.arange(len(numbers)), np.flatnonzero(draw.random(len(numbers)) < 0.9)):
            slices = column_index._slices(numbers[rows].astype(np.int64), rows, 12)
            for bit, stored in enumerate(map(b"".join, slices)):
                expected = BitMap(rows[(numbers[rows] >> bit) & 1 == 1])
                expected.run_optimize()
                assert stored == expected.serialize()


def test_a_column_of_nulls_is_answered_without_an_index() -> None:
    file = encode_indexes({"c": {FileIndexType.BITMAP: [b""]}})
    place = file.index(b"bitmap") + len(b"bitmap")
    head = file[:12] + struct.pack(">i", len(file) - 8) + file[16:place]
    marked = head + struct.pack(">iii", -1, 0, 0)
    (index,) = FileIndexes(part_of(marked), row_count=3, file_name="f").of_column(
        "c", parse_type("INT")
    )
    assert index.equal([1]) == BitMap()
    assert index.null() is None


def test_a_column_name_beyond_the_basic_plane_is_read_back() -> None:
    names = ["naïve", "\N{GRINNING FACE}", "nul\0"]
    file = encode_indexes({name: {FileIndexType.BITMAP: [b""]} for name in names})
    assert list(FileIndexes(part_of(file), row_count=0, file_name="f").places) == names
    assert b"\xed\xa0\xbd\xed\xb8\x80" in file


@pytest.mark.parametrize("kind", list(FileIndexType))
def test_every_flipped_byte_of_an_index_is_noticed(kind: FileIndexType) -> None:
    stored = indexed_type(parse_type("INT"), kind)
    assert stored is not None
    builder = IndexBuilder(IndexedColumn(name="c", type=kind), stored)
    built = builder.built([builder.piece(pa.array([3, 1, None, 3, -7], pa.int32()))])
    assert built is not None
    file = encode_indexes({"c": {kind: built}})
    for place in range(len(file)):
        damaged = bytearray(file)
        damaged[place] ^= 0x10
        with pytest.raises(CorruptFileError, match="index"):
            FileIndexes(part_of(bytes(damaged)), row_count=5, file_name="f").of_column(
                "c", parse_type("INT")
            )


def test_the_least_bigint_has_no_bit_slices() -> None:
    stored = indexed_type(parse_type("BIGINT"), FileIndexType.BSI)
    assert stored is not None
    builder = IndexBuilder(IndexedColumn(name="c", type=FileIndexType.BSI), stored)
    assert builder.built([builder.piece(pa.array([-(2**63), 1], pa.int64()))]) is None

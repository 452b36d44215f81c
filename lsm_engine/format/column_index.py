"""The indexes that a file index holds of a column: bloom filter, bitmap, bit slices and range bitmap.

bloom-filter    int32 bits that each value sets, then the bits, bit i is bit i % 8 of byte i / 8 (format/bloom)
bitmap          per value a roaring bitmap of its rows; a single row stands in place of its bitmap's offset
bsi             per bit of the absolute value a roaring bitmap, of positive numbers and of negative ones
range-bitmap    the values in order, in chunks, and per bit of a value's place in that order a roaring bitmap

Numbers are big-endian, and roaring bitmaps in their portable format. docs/formats.md lists the bytes.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lsm_engine.base.record import record
from lsm_engine.format.arrow_buffers import read_only
from lsm_engine.format.bloom import (
    build_value_bloom,
    hashed_bytes,
    may_hold_value,
    mixed_numbers,
)
from lsm_engine.kernels.arrow_views import (
    Bytes,
    Longs,
    Words,
    binary_values,
    fixed_values,
    one_array,
)
from lsm_engine.kernels.compiled import compiled
from lsm_engine.kernels.merge_runs import radix_sorted
from lsm_engine.options.modes import FileIndexType
from lsm_engine.options.table_options import IndexedColumn
from lsm_engine.types.types import BINARY, TEXT, TIMESTAMPS, DataType, Root, ScalarType

Key: TypeAlias = int | bytes
"""A value as an index holds it: numbers, dates and times as whole numbers, text as its bytes."""

# -- Values as indexes hold them -------------------------------------------------------------------

_WIDTHS = {
    Root.BOOLEAN: 1, Root.TINYINT: 1, Root.SMALLINT: 2, Root.INT: 4, Root.BIGINT: 8, Root.FLOAT: 4,
    Root.DOUBLE: 8, Root.DECIMAL: 8, Root.DATE: 4, Root.TIME: 4, Root.TIMESTAMP: 8,
    Root.TIMESTAMP_LTZ: 8,
}  # fmt: skip
_FLOATS = frozenset({Root.FLOAT, Root.DOUBLE})
_WHOLE = frozenset({Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.DATE, Root.TIME})
_TAKEN = {
    FileIndexType.BLOOM_FILTER: _WHOLE | _FLOATS | TEXT | BINARY | TIMESTAMPS,
    FileIndexType.BITMAP: _WHOLE | _FLOATS | TEXT | TIMESTAMPS | {Root.BOOLEAN},
    FileIndexType.BSI: _WHOLE | TIMESTAMPS | {Root.DECIMAL},
    FileIndexType.RANGE_BITMAP: _WHOLE | _FLOATS | TEXT | TIMESTAMPS | {Root.BOOLEAN, Root.DECIMAL},
}
_DECIMAL_DIGITS_MAX = 18
_MICROS = 6
"""Digits of a second that an index holds; a bloom filter leaves out those beyond."""


@record
class IndexedType:
    """How an index holds the values of a column. `width`: bytes of a number; None: text or bytes of any length."""

    root: Root
    width: int | None

    @staticmethod
    def of_root(root: Root) -> "IndexedType":
        """Return how every index holds values of a type."""
        return IndexedType(root=root, width=_WIDTHS.get(root))

    @property
    def is_floating(self) -> bool:
        """Whether values are ordered with -0.0 below 0.0 and NaN above all."""
        return self.root in _FLOATS

    def keys(self, column: pa.Array) -> pa.Array:
        """Return the values of a column as whole numbers (int64) in their order, or as bytes (large_binary)."""
        if self.width is None:
            return column.cast(pa.large_binary())
        kind = column.type
        if pa.types.is_floating(kind):
            return _masked(_ordered(_bits(column, self.width), self.width), column)
        if pa.types.is_decimal(kind):
            return _masked(fixed_values(column, np.int64, per_row=2)[::2], column)
        if pa.types.is_boolean(kind):
            return column.cast(pa.int8()).cast(pa.int64())
        if pa.types.is_date32(kind) or pa.types.is_time32(kind):
            column = column.cast(pa.int32())
        numbers = column.cast(pa.int64())
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            return _masked(fixed_values(numbers, np.int64) // 1000, numbers)
        return numbers

    def hashes(self, keys: pa.Array) -> Longs:
        """Return the 64-bit hash of each key that is not null."""
        keys = keys.drop_null()
        if self.width is None:
            return hashed_bytes(*binary_values(keys))
        numbers = fixed_values(keys, np.int64)
        return mixed_numbers(_ordered(numbers, self.width) if self.is_floating else numbers)

    def stored(self, keys: pa.Array) -> tuple[Bytes, Longs]:
        """Return keys without nulls as an index stores them: their bytes and n + 1 offsets."""
        if self.width is None:
            data, offsets = binary_values(keys)
            return _with_lengths(data, offsets)
        numbers = fixed_values(keys, np.int64)
        numbers = _ordered(numbers, self.width) if self.is_floating else numbers
        data = numbers.astype(f">i{self.width}").view(np.uint8)
        return data, np.arange(len(numbers) + 1, dtype=np.int64) * self.width

    def read(self, data: memoryview, offset: int) -> tuple[Key, int]:
        """Return a stored key and the offset behind it."""
        if self.width is None:
            (length,) = _INT.unpack_from(data, offset)
            start = offset + _INT.size
            if not 0 <= length <= len(data) - start:
                raise ValueError("a value ends beyond the index")
            return bytes(data[start : start + length]), start + length
        end = offset + self.width
        numbers = self.read_all(data[offset:end], 1, self.width)
        return int(numbers[0]), end

    def read_all(self, data: memoryview, count: int, step: int, lead: int = 0) -> Longs:
        """Return `count` stored numbers, each at the start of `step` bytes, `lead` bytes from there."""
        assert self.width is not None, "text has no width"
        if len(data) < count * step:
            raise ValueError("the values end beyond the index")
        table = np.frombuffer(data, np.uint8, count * step).reshape(count, step)
        column = np.ascontiguousarray(table[:, lead : lead + self.width])
        numbers = column.view(f">i{self.width}")[:, 0].astype(np.int64)
        return _ordered(numbers, self.width) if self.is_floating else numbers


def indexed_type(kind: DataType, index_type: FileIndexType) -> IndexedType | None:
    """Return how an index of a type holds a column's values; None: such a column cannot have one."""
    if not isinstance(kind, ScalarType) or kind.root not in _TAKEN[index_type]:
        return None
    precision = kind.precision or 0
    if kind.root is Root.DECIMAL and precision > _DECIMAL_DIGITS_MAX:
        return None
    is_cut = kind.root in TIMESTAMPS and precision > _MICROS
    # A time that lost digits may be another one: a filter may say that, an exact index may not.
    if is_cut and index_type is not FileIndexType.BLOOM_FILTER:
        return None
    return IndexedType.of_root(kind.root)


def _bits(column: pa.Array, width: int) -> Longs:
    """Return the bits of floating point numbers, those of one NaN for all of them."""
    values = fixed_values(column, f"f{width}")
    values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return values.view(f"i{width}").astype(np.int64)


def _ordered(bits: Longs, width: int) -> Longs:
    """Return bits of floating point numbers as whole numbers in their order, or those as bits again."""
    mask = np.int64((1 << (8 * width - 1)) - 1)
    return np.where(bits < 0, bits ^ mask, bits)


def _masked(values: npt.NDArray[Any], column: pa.Array) -> pa.Array:
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(np.ascontiguousarray(values), pa.int64(), mask=mask)


def _with_lengths(data: Bytes, offsets: Longs) -> tuple[Bytes, Longs]:
    """Return texts with their length in front of each."""
    lengths = np.diff(offsets)
    ends = offsets - offsets[0] + _INT.size * np.arange(len(offsets))
    stored = np.empty(int(ends[-1]), np.uint8)
    is_length = np.zeros(len(stored), np.bool_)
    for octet in range(_INT.size):
        is_length[ends[:-1] + octet] = True
        stored[ends[:-1] + octet] = (lengths >> (24 - 8 * octet)) & 0xFF
    stored[~is_length] = data[offsets[0] : offsets[-1]]
    return stored, ends


# -- Roaring bitmaps, many at a time ---------------------------------------------------------------
#
# The portable format of roaringbitmap.org, with runs where they are smaller, as Java and CRoaring write it.

_NO_RUNS = 12346
_RUNS = 12347
_ARRAY_MAX = 4096
_BITS_BYTES = 8192
_OFFSETS_FROM = 4
"""A bitmap with runs lists the offsets of its containers if it has so many."""


def roaring_bytes(positions: Longs, offsets: Longs, least: int = 0) -> tuple[Bytes, Longs]:
    """Return roaring bitmaps one behind the other, and the end of each.

    `positions`: ascending within each bitmap, and below 2**32; `offsets`: n + 1 of them for n bitmaps;
    `least`: bitmaps of fewer positions are left out, and have no bytes.
    """
    count = len(offsets) - 1
    containers = count * ((int(positions.max(initial=0)) >> 16) + 1)
    # A container takes at most two bytes a position, and twelve in the head.
    most = 2 * len(positions) + 12 * min(containers, len(positions)) + 10 * len(offsets)
    target, ends = np.zeros(most, np.uint8), np.empty(count, np.int64)
    _put_bitmaps(read_only(positions), read_only(offsets), least, target, ends)
    return target[: ends[-1] if count else 0], ends


@compiled
def _store_number(target: Bytes, place: Any, value: Any, size: Any) -> Any:
    for octet in range(size):
        target[place + octet] = np.uint8((value >> (8 * octet)) & 255)
    return place + size


@compiled
def _store_short(target: Bytes, place: Any, value: Any) -> Any:
    target[place] = np.uint8(value & 255)
    target[place + 1] = np.uint8((value >> 8) & 255)
    return place + 2


@compiled
def _container(positions: Longs, first: Any, stop: Any) -> Any:
    """Return where the positions of a container end, and how many runs they are."""
    high = positions[first] >> 16
    runs = np.int64(1)
    row = first + 1
    while row < stop and positions[row] >> 16 == high:
        if positions[row] != positions[row - 1] + 1:
            runs += 1
        row += 1
    return row, runs


@compiled
def _has_runs(count: Any, runs: Any) -> Any:
    size = 2 * count if count <= _ARRAY_MAX else _BITS_BYTES
    return bool(2 + 4 * runs < size)


@compiled
def _put_container(positions: Longs, first: Any, end: Any, target: Bytes, place: Any) -> Any:
    count = end - first
    if count <= _ARRAY_MAX:
        for row in range(first, end):
            place = _store_short(target, place, positions[row] & 0xFFFF)
        return place
    for row in range(first, end):
        low = positions[row] & 0xFFFF
        target[place + (low >> 3)] |= np.uint8(1 << (low & 7))
    return place + _BITS_BYTES


@compiled
def _put_runs(positions: Longs, first: Any, end: Any, runs: Any, target: Bytes, place: Any) -> Any:
    place = _store_short(target, place, runs)
    row = first
    while row < end:
        last = row
        while last + 1 < end and positions[last + 1] == positions[last] + 1:
            last += 1
        place = _store_short(target, place, positions[row] & 0xFFFF)
        place = _store_short(target, place, last - row)
        row = last + 1
    return place


@compiled
def _put_bitmap(positions: Longs, first: Any, stop: Any, target: Bytes, place: Any) -> Any:
    start = place
    count, runs_count = np.int64(0), np.int64(0)
    row = first
    while row < stop:
        end, runs = _container(positions, row, stop)
        runs_count += np.int64(_has_runs(end - row, runs))
        count += 1
        row = end
    if runs_count > 0:
        place = _store_number(target, place, _RUNS | ((count - 1) << 16), 4)
        flags = place
        place += (count + 7) // 8
    else:
        flags = place
        place = _store_number(target, _store_number(target, place, _NO_RUNS, 4), count, 4)
    keys = place
    offsets = keys + 4 * count
    place = offsets
    has_offsets = runs_count == 0 or count >= _OFFSETS_FROM
    if has_offsets:
        place += 4 * count
    row, number = first, np.int64(0)
    while row < stop:
        end, runs = _container(positions, row, stop)
        _store_short(target, keys + 4 * number, positions[row] >> 16)
        _store_short(target, keys + 4 * number + 2, end - row - 1)
        if has_offsets:
            _store_number(target, offsets + 4 * number, place - start, 4)
        if _has_runs(end - row, runs):
            target[flags + (number >> 3)] |= np.uint8(1 << (number & 7))
            place = _put_runs(positions, row, end, runs, target, place)
        else:
            place = _put_container(positions, row, end, target, place)
        row, number = end, number + 1
    return place


@compiled
def _put_bitmaps(positions: Longs, offsets: Longs, least: Any, target: Bytes, ends: Longs) -> None:
    place = np.int64(0)
    for number in range(len(ends)):
        first, stop = offsets[number], offsets[number + 1]
        if stop - first >= least:
            place = _put_bitmap(positions, first, stop, target, place)
        ends[number] = place


def _bitmap_of(rows: Longs | None, count: int) -> bytes:
    """Return the roaring bitmap of ascending rows; None: of the first `count` rows."""
    if rows is None:
        bitmap = BitMap(range(count))
        bitmap.run_optimize()
        return bytes(bitmap.serialize())
    encoded, _ = roaring_bytes(rows, np.array([0, len(rows)], np.int64))
    return encoded.tobytes()


def _bitmap(data: memoryview, offset: int, length: int | None = None) -> BitMap:
    """Return a bitmap at an offset; ValueError for bytes that are none."""
    if offset < 0 or (length is not None and not 0 <= length <= len(data) - offset):
        raise ValueError("a bitmap lies beyond the index")
    return BitMap.deserialize(
        bytes(data[offset:] if length is None else data[offset : offset + length])
    )


def _bitmap_size(data: memoryview, offset: int) -> int:
    """Return the bytes of the bitmap at an offset, which its own head decides."""
    (cookie,) = struct.unpack_from("<I", data, offset)
    has_runs = cookie & 0xFFFF == _RUNS
    count = (cookie >> 16) + 1 if has_runs else struct.unpack_from("<I", data, offset + 4)[0]
    place = offset + 4
    flags = bytes(data[place : place + (count + 7) // 8]) if has_runs else b""
    place += len(flags) if has_runs else 4
    heads = struct.unpack_from(f"<{2 * count}H", data, place)
    place += 4 * count * (2 if not has_runs or count >= _OFFSETS_FROM else 1)
    for number in range(count):
        if has_runs and flags[number >> 3] >> (number & 7) & 1:
            place += 2 + 4 * struct.unpack_from("<H", data, place)[0]
        else:
            values = heads[2 * number + 1] + 1
            place += 2 * values if values <= _ARRAY_MAX else _BITS_BYTES
    return int(place) - offset


# -- Building the index of one column of one file --------------------------------------------------

_BYTE = struct.Struct(">b")
_INT = struct.Struct(">i")
_BSI_VERSION = 1
_LONG_MIN = -(1 << 63)
_NO_ROWS = np.zeros(0, np.int64)
_RADIX_ROWS = 4096
"""Rows from which the compiled radix sort takes less time than NumPy's sort."""

Parts: TypeAlias = list[bytes | Bytes]
"""The bytes of an index, in parts that are joined once: a copy costs as much as the bits themselves."""


class IndexBuilder:
    """Builds one index of a column: a piece of each row group, in any thread, and then the index of the file.

    Pieces take about eight bytes a row in memory, and each value once a row group.
    """

    def __init__(self, column: IndexedColumn, kind: IndexedType) -> None:
        self.column = column
        self._kind = kind

    def piece(self, values: pa.Array | pa.ChunkedArray) -> pa.Array | Longs:
        """Return what the index needs of a row group's column."""
        keys = self._kind.keys(one_array(values))
        match self.column.type:
            case FileIndexType.BLOOM_FILTER:
                return self._kind.hashes(keys)
            case FileIndexType.BSI:
                return keys
            case FileIndexType.BITMAP | FileIndexType.RANGE_BITMAP:
                return pc.dictionary_encode(keys) if self._kind.width is None else keys

    def built(self, pieces: Sequence[Any]) -> Parts | None:
        """Return the index of the rows of all pieces, in order; None if it cannot hold one of the values."""
        if self.column.type is FileIndexType.BLOOM_FILTER:
            hashes = np.concatenate(pieces)
            items = self.column.items or max(1, len(hashes))
            bits, probes = build_value_bloom(hashes, items=items, fpp=self.column.fpp)
            return [_INT.pack(probes), bits]
        if self.column.type is FileIndexType.BSI:
            return _bsi_bytes(pa.concat_arrays(pieces))
        of_pieces = _SortedValues.of_texts if self._kind.width is None else _SortedValues.of_numbers
        values = of_pieces(pieces)
        if self.column.type is FileIndexType.RANGE_BITMAP:
            return _range_bytes(values, self._kind, self.column)
        return _bitmap_bytes(values, self._kind, self.column)


@record
class _SortedValues:
    """The distinct values of a column in order, and the rows of each.

    `rows`: of the nulls and of each value, one behind the other; `offsets`: where each begins, and the end.
    """

    values: pa.Array
    rows: Longs
    offsets: Longs

    @staticmethod
    def of_numbers(pieces: Sequence[pa.Array]) -> "_SortedValues":
        keys = pa.concat_arrays(pieces)
        numbers, rows, nulls = fixed_values(keys, np.int64), np.arange(len(keys)), _NO_ROWS
        if keys.null_count:
            is_null = keys.is_null().to_numpy(zero_copy_only=False)
            nulls, rows = np.flatnonzero(is_null), np.flatnonzero(~is_null)
            numbers = numbers[rows]
        numbers, rows = _by_value(numbers, rows)
        is_first = np.ones(len(numbers), np.bool_)
        np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
        begins = np.flatnonzero(is_first)
        starts = np.concatenate([[0], len(nulls) + begins, [len(keys)]]).astype(np.int64)
        rows = np.concatenate([nulls, rows]) if len(nulls) else rows
        return _SortedValues(values=pa.array(numbers[begins]), rows=rows, offsets=starts)

    @staticmethod
    def of_texts(pieces: Sequence[pa.DictionaryArray]) -> "_SortedValues":
        unified = pa.chunked_array(pieces).unify_dictionaries()
        dictionary = unified.chunk(0).dictionary
        order = pc.sort_indices(dictionary).to_numpy()
        ranks = np.full(len(dictionary) + 1, -1, np.int64)
        ranks[order] = np.arange(len(order))
        indices = [
            pc.fill_null(chunk.indices.cast(pa.int64()), len(dictionary)).to_numpy()
            for chunk in unified.chunks
        ]
        codes = ranks[np.concatenate(indices)]
        counts = np.bincount(codes + 1, minlength=len(dictionary) + 1)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        rows = np.empty(len(codes), np.int64)
        _place_rows(read_only(codes), offsets[:-1].copy(), rows)
        return _SortedValues(values=dictionary.take(order), rows=rows, offsets=offsets)

    def codes(self) -> Longs:
        """Return, for each row, its value's place among the values (-1: null)."""
        codes = np.empty(len(self.rows), np.int64)
        codes[self.rows] = np.repeat(np.arange(-1, len(self.values)), np.diff(self.offsets))
        return codes


def _by_value(numbers: Longs, rows: Longs) -> tuple[Longs, Longs]:
    """Return numbers in order, those that are equal in the order of their rows, and their rows."""
    if len(numbers) < _RADIX_ROWS:
        order = np.argsort(numbers, kind="stable")
        return numbers[order], rows[order]
    # The sort leaves out bytes that no number differs in: those above the lowest number have most of them.
    low = numbers.min()
    words, rows = radix_sorted((numbers - low).view(np.uint64), rows)
    return words.view(np.int64) + low, rows


@compiled
def _place_rows(codes: Longs, places: Longs, rows: Longs) -> None:
    for row in range(len(codes)):
        place = places[codes[row] + 1]
        places[codes[row] + 1] = place + 1
        rows[place] = row


def _bitmap_bytes(values: _SortedValues, kind: IndexedType, column: IndexedColumn) -> Parts:
    rows, offsets = values.rows, values.offsets
    counts = np.diff(offsets)
    # A bitmap is written of values with several rows; a single row stands in place of its offset.
    body, ends = roaring_bytes(rows, offsets, least=2)
    places = np.concatenate([[0], ends[:-1]])
    sizes = ends - places
    is_single = counts == 1
    places[is_single], sizes[is_single] = -1 - rows[offsets[:-1][is_single]], -1
    head = _BYTE.pack(column.version) + _INT.pack(len(rows)) + _INT.pack(len(values.values))
    head += _BYTE.pack(int(counts[0] > 0))
    is_first = column.version == 1
    if counts[0]:
        head += _INT.pack(places[0]) + (b"" if is_first else _INT.pack(max(0, sizes[0])))
    stored, ends_of = kind.stored(values.values)
    if is_first:
        return [head, _table(stored, ends_of, [places[1:]]), body]
    blocks = list(_blocks(np.diff(ends_of) + 2 * _INT.size, column.block_limit))
    head += _INT.pack(len(blocks))
    table = _table(stored, ends_of, [places[1:], sizes[1:]])
    entry_ends = ends_of - ends_of[0] + 2 * _INT.size * np.arange(len(ends_of))
    tables: list[bytes] = []
    size = 0
    for first, stop in blocks:
        head += stored[ends_of[first] : ends_of[first + 1]].tobytes() + _INT.pack(size)
        entries = table[entry_ends[first] : entry_ends[stop]]
        tables.append(_INT.pack(stop - first) + entries.tobytes())
        size += len(tables[-1])
    return [head, _INT.pack(size), *tables, body]


def _blocks(sizes: Longs, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the entries of each block: as many as fit with their number, and at least one."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    first = 0
    while first < len(sizes):
        stop = int(np.searchsorted(ends, ends[first] + limit - _INT.size, "right")) - 1
        yield first, max(stop, first + 1)
        first = max(stop, first + 1)


def _table(stored: Bytes, ends: Longs, numbers: Sequence[Longs]) -> Bytes:
    """Return stored values, each with a 32-bit number of each array behind it."""
    lengths = np.diff(ends)
    width = _INT.size * len(numbers)
    octets = np.stack(numbers, axis=1).astype(">i4").view(np.uint8)
    if len(lengths) and np.all(lengths == lengths[0]):
        values = stored[ends[0] : ends[-1]].reshape(len(lengths), -1)
        return np.concatenate([values, octets], axis=1).ravel()
    starts = ends - ends[0] + width * np.arange(len(ends))
    table = np.empty(int(starts[-1]), np.uint8)
    is_number = np.zeros(len(table), np.bool_)
    behind = starts[:-1] + lengths
    for octet in range(width):
        is_number[behind + octet] = True
        table[behind + octet] = octets[:, octet]
    table[~is_number] = stored[ends[0] : ends[-1]]
    return table


def _slices(numbers: Longs, rows: Longs | None, count: int) -> list[Parts]:
    """Return, for each of `count` bits, the bitmap of the rows whose number has it.

    `rows`: ascending, those of the numbers; None: the first rows.
    """
    spread = numbers
    if rows is not None:
        spread = np.zeros(int(rows[-1]) + 1 if len(rows) else 0, np.int64)
        spread[rows] = numbers
    size = len(spread)
    octets = spread.astype("<i8", copy=False).view(np.uint8).reshape(size, 8)
    packed = np.zeros((count, 8 * (size + 63 >> 6)), np.uint8)
    for first in range(0, count, 8):
        octet = np.ascontiguousarray(octets[:, first >> 3])
        for bit in range(first, min(first + 8, count)):
            flags = np.packbits(octet & np.uint8(1 << (bit - first)), bitorder="little")
            packed[bit, : len(flags)] = flags
    bitmaps: list[Parts] = []
    for bits, dense in zip(packed, _dense_bitmaps(packed, size), strict=True):
        if dense is None:
            flags = np.unpackbits(bits, count=size, bitorder="little")
            members = np.flatnonzero(flags).astype(np.int64)
            encoded, _ = roaring_bytes(members, np.array([0, len(members)], np.int64))
            dense = [encoded]
        bitmaps.append(dense)
    return bitmaps


def _dense_bitmaps(packed: Bytes, size: int) -> Sequence[Parts | None]:
    """Return, for the bits of `size` rows in each array, the roaring bitmap with plain bits in all of its containers.

    None for one of which another form is smaller. Bits of numbers are mostly dense, and packing flags takes a
    tenth of the time of setting each bit.
    """
    count = len(packed)
    if size <= _ARRAY_MAX:
        return [None] * count
    container_count = (size - 1 >> 16) + 1
    counts = np.empty((count, container_count), np.int64)
    runs = np.empty_like(counts)
    _count_bits(packed.view("<u8"), counts, runs)
    is_dense = np.all((counts > _ARRAY_MAX) & (2 + 4 * runs >= _BITS_BYTES), axis=1)
    keys = np.arange(container_count)
    head = np.array([_NO_RUNS, container_count], "<u4").tobytes()
    heads = np.stack([np.broadcast_to(keys, counts.shape), counts - 1], axis=2).astype("<u2")
    places = (8 + 8 * container_count + _BITS_BYTES * keys).astype("<u4").tobytes()
    padding = bytes(_BITS_BYTES * container_count - packed.shape[1])
    return [
        [head, of_bits.tobytes(), places, bits, padding] if dense else None
        for of_bits, bits, dense in zip(heads, packed, is_dense, strict=True)
    ]


@compiled
def _count_bits(words: Words, counts: Any, runs: Any) -> None:
    """Count the bits and the runs of bits in each container of each bitmap."""
    for number in range(words.shape[0]):
        for container in range(counts.shape[1]):
            bit_count, run_count, before = np.uint64(0), np.uint64(0), np.uint64(0)
            first = container * (_BITS_BYTES // 8)
            for place in range(first, min(first + _BITS_BYTES // 8, words.shape[1])):
                word = np.uint64(words[number, place])
                # A run begins at a bit whose lower neighbour is not set.
                begins = word & ~((word << np.uint64(1)) | before)
                before = word >> np.uint64(63)
                bit_count += _popcount(word)
                run_count += _popcount(begins)
            counts[number, container] = np.int64(bit_count)
            runs[number, container] = np.int64(run_count)


@compiled
def _popcount(word: Any) -> Any:
    """Return how many bits of a word are set: counted in pairs, fours and bytes, and summed by a product."""
    pairs = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    fours = (pairs & np.uint64(0x3333333333333333)) + (
        (pairs >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    octets = (fours + (fours >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (octets * np.uint64(0x0101010101010101)) >> np.uint64(56)


def _bsi_bytes(keys: pa.Array) -> Parts | None:
    numbers, rows = fixed_values(keys, np.int64), None
    if keys.null_count:
        rows = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        numbers = numbers[rows]
    lowest = numbers.min(initial=0)
    # The greatest negative number has no absolute value of 64 bits.
    if lowest == _LONG_MIN:
        return None
    head = _BYTE.pack(_BSI_VERSION) + _INT.pack(len(keys))
    if not lowest:
        return [head, *_side(numbers, rows), *_side(_NO_ROWS, None)]
    is_negative = numbers < 0
    rows = np.arange(len(keys)) if rows is None else rows
    positive = _side(numbers[~is_negative], rows[~is_negative])
    return [head, *positive, *_side(-numbers[is_negative], rows[is_negative])]


def _side(numbers: Longs, rows: Longs | None) -> Parts:
    """Return the slices of numbers with one sign; `rows`: None: the first rows."""
    if not len(numbers):
        return [_BYTE.pack(0)]
    greatest = int(numbers.max())
    slices = _slices(numbers, rows, greatest.bit_length())
    head = struct.pack(">bbqq", 1, _BSI_VERSION, 0, greatest)
    present = _bitmap_of(rows, len(numbers))
    return [head, present, _INT.pack(len(slices)), *chain.from_iterable(slices)]


def _range_bytes(values: _SortedValues, kind: IndexedType, column: IndexedColumn) -> Parts:
    stored, ends = kind.stored(values.values)
    count, codes = len(values.values), values.codes()
    head = struct.pack(">bii", 1, len(codes), count)
    if count:
        head += stored[: ends[1]].tobytes() + stored[ends[-2] :].tobytes()
    dictionary = _dictionary_bytes(stored, ends, kind, column.chunk_limit(kind.width))
    head += _INT.pack(len(dictionary))
    row_count, rows = len(codes), None
    if values.offsets[1]:
        rows = np.flatnonzero(codes >= 0)
        codes = codes[rows]
    present = _bitmap_of(rows, row_count)
    slice_count = max(1, (count - 1).bit_length()) if count else 1
    slices = _slices(codes, rows, slice_count)
    sizes = np.array([sum(map(len, parts)) for parts in slices])
    places = np.stack([np.cumsum(sizes) - sizes, sizes], axis=1).astype(">i4").tobytes()
    slice_head = struct.pack(">bbii", 1, slice_count, len(present), len(places)) + places
    lengths = _INT.pack(len(head)), _INT.pack(len(slice_head))
    before = [lengths[0], head, dictionary, lengths[1], slice_head, present]
    return [*before, *chain.from_iterable(slices)]


def _dictionary_bytes(stored: Bytes, ends: Longs, kind: IndexedType, limit: int) -> bytes:
    """Return values in order, in chunks: the first of each apart, and the others of it up to a size."""
    offsets, chunks, keys = [], [], []
    chunk_offset, key_offset, first = 0, 0, 0
    while first < len(ends) - 1:
        last = int(np.searchsorted(ends, ends[first + 1] + limit, "right")) - 1
        if kind.width is None:
            last = min(last, first + 1 + limit // _INT.size)
        last = max(last, first + 1)
        body = stored[ends[first + 1] : ends[last]].tobytes()
        chunk = stored[ends[first] : ends[first + 1]].tobytes()
        chunk = _BYTE.pack(1) + chunk + struct.pack(">iii", first, key_offset, last - first - 1)
        if kind.width is None:
            places = (ends[first + 1 : last] - ends[first + 1]).astype(">i4").tobytes()
            chunk += struct.pack(">ii", len(places), len(body))
            body = places + body
        else:
            chunk += struct.pack(">ii", len(body), kind.width)
        offsets.append(chunk_offset)
        chunks.append(chunk)
        keys.append(body)
        chunk_offset, key_offset, first = chunk_offset + len(chunk), key_offset + len(body), last
    stored_offsets = np.array(offsets, ">i4").tobytes()
    head = struct.pack(">biii", 1, len(chunks), len(stored_offsets), chunk_offset)
    return b"".join((_INT.pack(len(head)), head, stored_offsets, *chunks, *keys))


# -- Indexes as they are asked ---------------------------------------------------------------------


class ColumnIndex:
    """Answers which rows of a file may have a value. Without an answer (None) every row may.

    `is_exact`: other rows than those of an answer have other values, and rows of it no others.
    """

    is_exact = True

    def equal(self, keys: Sequence[Key]) -> BitMap | None:
        """Return the rows with one of some values."""
        raise NotImplementedError

    def between(
        self, low: Key | None, high: Key | None, *, closed: tuple[bool, bool]
    ) -> BitMap | None:
        """Return the rows from one value to another (None: no limit); `closed`: whether the limits are among them."""
        return None

    def valid(self) -> BitMap | None:
        """Return the rows that are not null."""
        return None

    def null(self) -> BitMap | None:
        """Return the rows that are null."""
        return None


class NullColumn(ColumnIndex):
    """A column that is null in every row, which an index file records without an index."""

    def __init__(self, row_count: int) -> None:
        self._row_count = row_count

    def equal(self, keys: Sequence[Key]) -> BitMap | None:
        """Return no row."""
        return BitMap()

    def between(
        self, low: Key | None, high: Key | None, *, closed: tuple[bool, bool]
    ) -> BitMap | None:
        """Return no row."""
        return BitMap()

    def valid(self) -> BitMap | None:
        """Return no row."""
        return BitMap()


class BloomIndex(ColumnIndex):
    """A filter: it knows that a file has none of some values, or nothing."""

    is_exact = False

    def __init__(self, data: memoryview, kind: IndexedType) -> None:
        (self._probes,) = _INT.unpack_from(data)
        self._bits = np.frombuffer(data[_INT.size :], np.uint8)
        if self._probes < 1 or not len(self._bits):
            raise ValueError("a bloom filter without bits")
        self._kind = kind

    def equal(self, keys: Sequence[Key]) -> BitMap | None:
        """Return no row if no value is there."""
        kind = pa.large_binary() if self._kind.width is None else pa.int64()
        hashes = self._kind.hashes(pa.array(keys, kind))
        return None if may_hold_value(self._bits, self._probes, hashes) else BitMap()


class BitmapIndex(ColumnIndex):
    """A bitmap of rows for each value (versions 1 and 2)."""

    def __init__(self, data: memoryview, kind: IndexedType) -> None:
        self._data, self._kind = data, kind
        version, self._row_count, self._count, has_null = struct.unpack_from(">biib", data)
        if version not in (1, 2):
            raise ValueError(f"a bitmap index of version {version}")
        offset = 10
        self._null: tuple[int, int] | None = None
        self._blocks: list[tuple[Key, int]] = []
        if has_null:
            size = -1
            (place,) = _INT.unpack_from(data, offset)
            if version > 1:
                (size,) = _INT.unpack_from(data, offset + _INT.size)
            self._null = place, size
            offset += _INT.size * version
        if version == 1:
            self._entries = self._read_entries(offset, self._count, with_sizes=False)
            return
        (block_count,) = _INT.unpack_from(data, offset)
        offset += _INT.size
        for _ in range(block_count):
            key, offset = kind.read(data, offset)
            self._blocks.append((key, _INT.unpack_from(data, offset)[0]))
            offset += _INT.size
        (size,) = _INT.unpack_from(data, offset)
        self._blocks_start = offset + _INT.size
        self._body = self._blocks_start + size
        self._entries = {}

    def _read_entries(
        self, offset: int, count: int, *, with_sizes: bool
    ) -> dict[Key, tuple[int, int]]:
        entries: dict[Key, tuple[int, int]] = {}
        for _ in range(count):
            key, offset = self._kind.read(self._data, offset)
            (place,) = _INT.unpack_from(self._data, offset)
            offset += _INT.size
            size = -1
            if with_sizes:
                (size,) = _INT.unpack_from(self._data, offset)
                offset += _INT.size
            entries[key] = (place, size)
        if not with_sizes:
            self._body = offset
        return entries

    def _entry(self, key: Key) -> tuple[int, int] | None:
        if self._blocks:
            firsts: list[Any] = [first for first, _ in self._blocks]
            number = bisect_right(firsts, key) - 1
            if number < 0:
                return None
            start = self._blocks_start + self._blocks[number][1]
            (count,) = _INT.unpack_from(self._data, start)
            return self._searched(key, start + _INT.size, count)
        return self._entries.get(key)

    def _searched(self, key: Key, start: int, count: int) -> tuple[int, int] | None:
        """Return the entry of a key in a block, whose entries are in order."""
        width = self._kind.width
        if width is None:
            return self._read_entries(start, count, with_sizes=True).get(key)
        step = width + 2 * _INT.size
        keys = self._kind.read_all(self._data[start:], count, step)
        number = int(np.searchsorted(keys, key))
        if number == count or keys[number] != key:
            return None
        place, size = struct.unpack_from(">ii", self._data, start + number * step + width)
        return place, size

    def _rows(self, entry: tuple[int, int] | None) -> BitMap:
        if entry is None:
            return BitMap()
        place, size = entry
        if place < 0:
            return BitMap([-1 - place])
        start = self._body + place
        return _bitmap(self._data, start, _bitmap_size(self._data, start) if size < 0 else size)

    def equal(self, keys: Sequence[Key]) -> BitMap | None:
        """Return the rows of each value together."""
        return BitMap.union(BitMap(), *(self._rows(self._entry(key)) for key in keys))

    def valid(self) -> BitMap | None:
        """Return all rows but those of the nulls."""
        return BitMap(range(self._row_count)) - self._rows(self._null)

    def null(self) -> BitMap | None:
        """Return the rows of the nulls."""
        return self._rows(self._null)


@record
class _Slices:
    """Numbers of rows, bit by bit. `present`: the rows that have one."""

    present: BitMap
    slices: tuple[BitMap, ...]

    def equal(self, number: int) -> BitMap:
        if number < 0 or number.bit_length() > len(self.slices):
            return BitMap()
        rows = self.present.copy()
        for bit, members in enumerate(self.slices):
            rows = rows & members if number >> bit & 1 else rows - members
        return rows

    def below(self, number: int) -> BitMap:
        """Return the rows whose number is smaller (O'Neil and Quass, 1997)."""
        if number <= 0:
            return BitMap()
        if number.bit_length() > len(self.slices):
            return self.present.copy()
        smaller, tied = BitMap(), self.present.copy()
        for bit in reversed(range(len(self.slices))):
            if number >> bit & 1:
                smaller |= tied - self.slices[bit]
                tied &= self.slices[bit]
            else:
                tied -= self.slices[bit]
        return smaller


class BsiIndex(ColumnIndex):
    """The bits of positive and of negative numbers."""

    def __init__(self, data: memoryview, _: IndexedType) -> None:
        version, self._row_count = struct.unpack_from(">bi", data)
        if version != _BSI_VERSION:
            raise ValueError(f"a bit slice index of version {version}")
        offset = 5
        sides = []
        for _side in ("positive", "negative"):
            (is_there,) = _BYTE.unpack_from(data, offset)
            offset += _BYTE.size
            lowest, side = 0, _Slices(present=BitMap(), slices=())
            if is_there:
                lowest, side, offset = _read_slices(data, offset)
            sides.append((lowest, side))
        (self._low, self._positive), (self._low_negative, self._negative) = sides

    def equal(self, keys: Sequence[Key]) -> BitMap | None:
        """Return the rows with one of some numbers."""
        rows = BitMap()
        for key in keys:
            assert isinstance(key, int)
            rows |= (
                self._negative.equal(-key - self._low_negative)
                if key < 0
                else self._positive.equal(key - self._low)
            )
        return rows

    def between(
        self, low: Key | None, high: Key | None, *, closed: tuple[bool, bool]
    ) -> BitMap | None:
        """Return the rows whose number is in a range."""
        rows = self._present()
        if isinstance(low, int):
            rows -= self._below(low if closed[0] else low + 1)
        if isinstance(high, int):
            rows &= self._below(high + 1 if closed[1] else high)
        return rows

    def _below(self, number: int) -> BitMap:
        if number > 0:
            return self._negative.present | self._positive.below(number - self._low)
        # Of negative numbers those with a greater absolute value are smaller.
        return self._negative.present - self._negative.below(1 - number - self._low_negative)

    def _present(self) -> BitMap:
        return self._positive.present | self._negative.present

    def valid(self) -> BitMap | None:
        """Return the rows that have a number."""
        return self._present()

    def null(self) -> BitMap | None:
        """Return the rows that have none."""
        return BitMap(range(self._row_count)) - self._present()


def _read_slices(data: memoryview, offset: int) -> tuple[int, _Slices, int]:
    """Return the lowest number, which the others are above, the slices, and the offset behind them."""
    version, lowest, _ = struct.unpack_from(">bqq", data, offset)
    if version != _BSI_VERSION:
        raise ValueError(f"bit slices of version {version}")
    offset += 17
    size = _bitmap_size(data, offset)
    present, offset = _bitmap(data, offset, size), offset + size
    (count,) = _INT.unpack_from(data, offset)
    offset += _INT.size
    slices = []
    for _slice in range(count):
        size = _bitmap_size(data, offset)
        slices.append(_bitmap(data, offset, size))
        offset += size
    return lowest, _Slices(present=present, slices=tuple(slices)), offset


class RangeIndex(ColumnIndex):
    """The values in order, and the bits of each row's place among them."""

    def __init__(self, data: memoryview, kind: IndexedType) -> None:
        self._data, self._kind = data, kind
        (head,) = _INT.unpack_from(data)
        version, self._row_count, self._count = struct.unpack_from(">bii", data, _INT.size)
        if version != 1:
            raise ValueError(f"a range bitmap of version {version}")
        offset = 13
        if self._count > 0:
            _, offset = kind.read(data, offset)
            _, offset = kind.read(data, offset)
        (size,) = _INT.unpack_from(data, offset)
        self._dictionary = _INT.size + head
        self._slices_start = self._dictionary + size
        self._slices: _Slices | None = None

    def _place(self, key: Key) -> tuple[int, bool]:
        """Return how many values are smaller, and whether the value itself is there."""
        data, kind = self._data, self._kind
        (head,) = _INT.unpack_from(data, self._dictionary)
        version, count, offsets_size, chunks_size = struct.unpack_from(
            ">biii", data, self._dictionary + _INT.size
        )
        if version != 1:
            raise ValueError(f"a dictionary of version {version}")
        start = self._dictionary + _INT.size + head
        offsets = np.frombuffer(data[start:], ">i4", count)
        chunks, keys = start + offsets_size, start + offsets_size + chunks_size
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            first, _ = kind.read(data, chunks + int(offsets[middle]) + 1)
            low, high = (
                (middle + 1, high) if _is_below(first, key, or_equal=True) else (low, middle)
            )
        if not low:
            return 0, False
        first, offset = kind.read(data, chunks + int(offsets[low - 1]) + 1)
        code, key_offset, size, first_size, _ = struct.unpack_from(">5i", data, offset)
        if first == key:
            return code, True
        rank, is_there = self._ranked(key, keys + key_offset, size, first_size)
        return code + 1 + rank, is_there

    def _ranked(self, key: Key, start: int, size: int, offsets_size: int) -> tuple[int, bool]:
        """Return how many of the keys of a chunk are smaller than a key, and whether it is among them."""
        data, kind = self._data, self._kind
        if kind.width is not None:
            numbers = kind.read_all(data[start:], size, kind.width)
            rank = int(np.searchsorted(numbers, key))
            return rank, rank < size and int(numbers[rank]) == key
        offsets = np.frombuffer(data[start:], ">i4", size)
        low, high = 0, size
        while low < high:
            middle = (low + high) // 2
            value, _ = kind.read(data, start + offsets_size + int(offsets[middle]))
            low, high = (middle + 1, high) if _is_below(value, key) else (low, middle)
        if low == size:
            return low, False
        return low, kind.read(data, start + offsets_size + int(offsets[low]))[0] == key

    def _bits(self) -> _Slices:
        """Return the bits, which few questions can do without."""
        if self._slices is None:
            data, start = self._data, self._slices_start
            (head,) = _INT.unpack_from(data, start)
            version, count, present_size, _ = struct.unpack_from(">bbii", data, start + _INT.size)
            if version != 1:
                raise ValueError(f"bit slices of version {version}")
            places = np.frombuffer(data[start + 14 :], ">i4", 2 * count).reshape(count, 2).tolist()
            body = start + _INT.size + head
            self._slices = _Slices(
                present=_bitmap(data, body, present_size),
                slices=tuple(
                    _bitmap(data, body + present_size + place, size) for place, size in places
                ),
            )
        return self._slices

    def equal(self, keys: Sequence[Key]) -> BitMap | None:
        """Return the rows with one of some values."""
        rows = BitMap()
        for key in keys:
            code, is_there = self._place(key) if self._count > 0 else (0, False)
            if is_there:
                rows |= self._bits().equal(code)
        return rows

    def between(
        self, low: Key | None, high: Key | None, *, closed: tuple[bool, bool]
    ) -> BitMap | None:
        """Return the rows whose value is in a range."""
        if self._count <= 0:
            return BitMap()
        first, last = 0, self._count
        if low is not None:
            code, is_there = self._place(low)
            first = code + int(is_there and not closed[0])
        if high is not None:
            code, is_there = self._place(high)
            last = code + int(is_there and closed[1])
        if first >= last:
            return BitMap()
        bits = self._bits()
        rows = bits.present.copy() if last >= self._count else bits.below(last)
        return rows - bits.below(first) if first else rows

    def valid(self) -> BitMap | None:
        """Return the rows that have a value."""
        return self._bits().present.copy() if self._count > 0 else BitMap()

    def null(self) -> BitMap | None:
        """Return the rows that have none."""
        present = self.valid()
        assert present is not None
        return BitMap(range(self._row_count)) - present


def _is_below(value: Any, key: Any, *, or_equal: bool = False) -> bool:
    return bool(value <= key if or_equal else value < key)


_READERS = {
    FileIndexType.BLOOM_FILTER: BloomIndex,
    FileIndexType.BITMAP: BitmapIndex,
    FileIndexType.BSI: BsiIndex,
    FileIndexType.RANGE_BITMAP: RangeIndex,
}


def read_index(data: memoryview, index_type: FileIndexType, kind: IndexedType) -> ColumnIndex:
    """Return an index of a column; struct.error, ValueError or IndexError for bytes that are none."""
    return _READERS[index_type](data, kind)

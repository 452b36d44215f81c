"""Lookup files (format section 17): compacted rows, hash files and sort files."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.format.arrow_buffers import binary_array, gather_pieces, offsets_of, read_only
from lsm_engine.format.binary_row import (
    big_endian_decimals,
    decimal_column,
    is_in_slot,
    is_pieces,
    is_wide_decimal,
    millis_and_nanos,
    scalar,
    slot_column,
    slot_words,
    stored_column,
    timestamp_column,
)
from lsm_engine.format.bloom import (
    BloomFilter,
    Hashes,
    build_bloom,
    key_hashes,
    stored_bloom,
)
from lsm_engine.format.checksum import checksum_of
from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs, Words, binary_values, valid_rows
from lsm_engine.kernels.compiled import compiled
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.types import DataType, Root, ScalarType

# -- Compacted rows: keys and values of lookup files (format section 17), column by column ---------
#
# header   (arity + 7 + 8) / 8 bytes: the row kind's byte, then a bit per null field from bit 8
# values   in order, nulls left out: fixed widths little-endian; text, binary and decimals beyond 18
#          digits as varint length and bytes; timestamps beyond 3 digits as milliseconds (8 bytes)
#          and a varint of nanoseconds

_WIDTHS = {
    Root.BOOLEAN: 1, Root.TINYINT: 1, Root.SMALLINT: 2, Root.INT: 4, Root.DATE: 4, Root.TIME: 4,
    Root.FLOAT: 4,
}  # fmt: skip
_NANOS_PER_MILLI = 1_000_000


def compacted_header(arity: int) -> int:
    """Return how many bytes the row kind and the null bits take."""
    return (arity + 7 + 8) // 8


def encode_compacted(
    columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType], *, row_count: int
) -> tuple[Bytes, Longs]:
    """Return rows one behind the other and their n + 1 offsets; every row kind is insert.

    Raises UnsupportedError for nested types.
    """
    parts = [
        _Part(stored_column(column, scalar(kind)), scalar(kind))
        for column, kind in zip(columns, types, strict=True)
    ]
    header = compacted_header(len(parts))
    lengths = np.full(row_count, header, np.int64)
    for part in parts:
        part.add_lengths(lengths)
    offsets = offsets_of(lengths)
    data = np.zeros(int(offsets[-1]), np.uint8)
    cursors = offsets[:-1] + header
    for index, part in enumerate(parts):
        part.write_values(data, cursors)
        if part.valid is not None:
            bit = index + 8
            data[offsets[:-1][~part.valid] + bit // 8] |= np.uint8(1 << (bit % 8))
    return data, offsets


def decode_compacted(
    data: Bytes, starts: Longs, ends: Longs, types: Sequence[DataType], *, file_name: str
) -> list[pa.Array]:
    """Return the columns of rows that begin at `starts` and end at `ends` of `data`.

    Raises CorruptFileError, naming the file, for rows that are not of these types.
    """
    header = compacted_header(len(types))
    if len(starts) and (
        int((ends - starts).min()) < header or int(ends.max()) > len(data) or int(starts.min()) < 0
    ):
        raise _corrupt(file_name, "a row is shorter than its header")
    data = read_only(data)
    cursors = starts + header
    columns = []
    for index, kind in enumerate(types):
        bit = index + 8
        valid = (data[starts + bit // 8] >> np.uint8(bit % 8)) & 1 == 0
        columns.append(_fixed_column(data, cursors, ends, scalar(kind), valid, file_name))
    if not np.array_equal(cursors, ends):
        raise _corrupt(file_name, "a row is longer than its values")
    return columns


class _Part:
    """One column, encoded to be written."""

    def __init__(self, array: pa.Array, kind: ScalarType) -> None:
        self.valid = valid_rows(array)
        self.kind = kind
        self.present = np.ones(len(array), np.bool_) if self.valid is None else self.valid
        self.words: Words | None = None
        self.nanos: Longs | None = None
        if is_in_slot(kind):
            self.words = slot_words(array, kind)
            self.width = width_of(kind)
        elif is_pieces(kind):
            self.pieces, begins = binary_values(array)
            self.starts, self.sizes = begins[:-1], np.diff(begins)
        elif is_wide_decimal(kind):
            words, self.sizes = big_endian_decimals(array)
            self.pieces = words.reshape(-1).view(np.uint8)
            self.starts = np.arange(len(array), dtype=np.int64) * 16
        else:
            millis, self.nanos = millis_and_nanos(array)
            self.words, self.width = millis.view(np.uint64), 8

    def add_lengths(self, lengths: Longs) -> None:
        if self.words is None:
            lengths += np.where(self.present, self.sizes + varint_sizes(self.sizes), 0)
            return
        lengths += np.where(self.present, self.width, 0)
        if self.nanos is not None:
            lengths += np.where(self.present, varint_sizes(self.nanos), 0)

    def write_values(self, data: Bytes, cursors: Longs) -> None:
        if self.words is None:
            pieces = read_only(self.pieces)
            _put_pieces(data, cursors, pieces, _unsigned(self.starts), self.sizes, self.present)
            return
        words = np.ascontiguousarray(self.words).copy()
        _put_fixed(data, cursors, words, self.width, self.present)
        if self.nanos is not None:
            put_varints(data, cursors, self.nanos, self.present)


def width_of(kind: ScalarType) -> int:
    """Return the bytes that a value takes whose type always fits a slot."""
    return _WIDTHS.get(kind.root, 8)


def varint_sizes(values: Longs) -> Longs:
    """Return how many bytes the varint of each number, none negative, takes."""
    sizes = np.ones(len(values), np.int64)
    limit = 128
    largest = int(values.max(initial=0))
    while limit <= largest:
        sizes += values >= limit
        limit <<= 7
    return sizes


def _fixed_column(
    data: Bytes, cursors: Longs, ends: Longs, kind: ScalarType, valid: Bools, file_name: str
) -> pa.Array:
    count = len(cursors)
    if is_in_slot(kind):
        words = np.zeros(count, np.uint64)
        fine = take_fixed(data, cursors, ends, width_of(kind), valid, words)
        column = slot_column(words, kind, valid) if fine else None
    elif is_pieces(kind) or is_wide_decimal(kind):
        column = _taken_pieces(data, cursors, ends, kind, valid)
    else:
        words, nanos = np.zeros(count, np.uint64), np.zeros(count, np.int64)
        fine = take_fixed(data, cursors, ends, 8, valid, words) and take_varints(
            data, cursors, ends, valid, nanos
        )
        fine = fine and int(nanos.max(initial=0)) < _NANOS_PER_MILLI
        column = timestamp_column(words.view(np.int64), nanos, kind, valid) if fine else None
    if column is None:
        raise _corrupt(file_name, "a value lies outside its row")
    return column


def _taken_pieces(
    data: Bytes, cursors: Longs, ends: Longs, kind: ScalarType, valid: Bools
) -> pa.Array | None:
    starts, sizes = np.zeros(len(cursors), np.int64), np.zeros(len(cursors), np.int64)
    if not take_pieces(data, cursors, ends, valid, starts, sizes):
        return None
    try:
        if is_pieces(kind):
            pieces, offsets = gather_pieces(data, starts, sizes)
            array = binary_array(pieces, offsets, arrow_type(kind), valid)
            array.validate(full=True)
            return array
        if len(sizes) and (int(sizes.max()) > 16 or bool(np.any(valid & (sizes == 0)))):
            return None
        return decimal_column(data, starts, sizes, arrow_type(kind), valid)
    except pa.ArrowInvalid:  # no valid value of the type; the caller raises with the file's name
        return None


def _unsigned(values: Longs) -> Longs:
    """Return a contiguous array that compiled code may take as its own kind of argument."""
    return np.array(values, np.int64)


def _corrupt(file_name: str, problem: str) -> CorruptFileError:
    return CorruptFileError(f"{problem}; the lookup file is built anew", file=file_name)


# Each loop compiles in a quarter of a second.


@compiled
def _put_fixed(data: Bytes, cursors: Longs, words: Words, width: int, present: Bools) -> None:
    for row in range(len(cursors)):
        if present[row]:
            word, to = words[row], cursors[row]
            for byte in range(width):
                data[to + byte] = np.uint8(word >> np.uint64(8 * byte))
            cursors[row] = to + width


@compiled
def put_varint(data: Bytes, to: Any, value: Any) -> Any:
    """Write a number at a place; return the place behind it."""
    while value >= 128:
        data[to] = np.uint8((value & 127) | 128)
        value >>= 7
        to += 1
    data[to] = np.uint8(value)
    return to + 1


@compiled
def put_varints(data: Bytes, cursors: Longs, values: Longs, present: Bools) -> None:
    """Write a number at the cursor of each row that is present; cursors move."""
    for row in range(len(cursors)):
        if present[row]:
            cursors[row] = put_varint(data, cursors[row], values[row])


@compiled
def _put_pieces(
    data: Bytes, cursors: Longs, source: Bytes, starts: Longs, sizes: Longs, present: Bools
) -> None:
    for row in range(len(cursors)):
        if present[row]:
            to, begin = put_varint(data, cursors[row], sizes[row]), starts[row]
            for byte in range(sizes[row]):
                data[to + byte] = source[begin + byte]
            cursors[row] = to + sizes[row]


@compiled
def varint_at(data: Bytes, offset: Any, end: Any) -> Any:
    """Return a number of at most 63 bits and the place behind it; the place is -1 if it is torn."""
    value, shift = np.int64(0), np.int64(0)
    while offset < end and shift < 63:
        byte = np.int64(data[offset])
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
        shift += 7
    return np.int64(0), np.int64(-1)


@compiled
def take_fixed(
    data: Bytes, cursors: Longs, ends: Longs, width: int, present: Bools, words: Words
) -> bool:
    """Read little-endian values; False if one lies outside its row."""
    for row in range(len(cursors)):
        if present[row]:
            begin = cursors[row]
            if begin + width > ends[row]:
                return False
            word = np.uint64(0)
            for byte in range(width):
                word |= np.uint64(data[begin + byte]) << np.uint64(8 * byte)
            words[row] = word
            cursors[row] = begin + width
    return True


@compiled
def take_varints(data: Bytes, cursors: Longs, ends: Longs, present: Bools, values: Longs) -> bool:
    """Read varints; False if one is torn."""
    for row in range(len(cursors)):
        if present[row]:
            value, behind = varint_at(data, cursors[row], ends[row])
            if behind < 0:
                return False
            values[row] = value
            cursors[row] = behind
    return True


@compiled
def take_pieces(
    data: Bytes, cursors: Longs, ends: Longs, present: Bools, starts: Longs, sizes: Longs
) -> bool:
    """Find pieces that begin with their length; False if one lies outside its row."""
    for row in range(len(cursors)):
        if present[row]:
            size, behind = varint_at(data, cursors[row], ends[row])
            if behind < 0 or size > ends[row] - behind:
                return False
            starts[row], sizes[row] = behind, size
            cursors[row] = behind + size
    return True


# -- Hash lookup files (format section 17) ---------------------------------------------------------
#
# For each key length a table of slots, then the values.
#
# Clients keep the geometry of such a file in memory, so that it cannot be opened by itself.
# Ours ends with it: per key length (length, count, slots, slot bytes, start of the table, start
# of the values), then bloom size and entries, the number of lengths, a CRC-32 of all before it,
# and a magic number.

Rows: TypeAlias = tuple[Bytes, Longs]
_LENGTH = struct.Struct("<6q")
_END = struct.Struct("<qqqII")
_MAGIC = 0x4C534D48


@record
class HashTable:
    """The slots of all keys of one length; `table` and `values` are places in the file."""

    count: int
    slots: int
    slot_bytes: int
    table: int
    values: int


def encode_hash_file(
    keys: Rows, values: Rows, *, load_factor: float, bloom_fpp: float | None
) -> list[bytes]:
    """Return the parts of a file of distinct keys, in order."""
    key_data, key_offsets = keys
    hashes = key_hashes(key_data, key_offsets)
    lengths = np.diff(key_offsets)
    parts: list[bytes] = []
    bloom: BloomFilter | None = None
    if bloom_fpp is not None and len(lengths):
        bloom = build_bloom(hashes, entries=len(lengths), fpp=bloom_fpp)
        parts.append(bloom.bits.tobytes())
    areas: list[bytes] = []
    geometry: list[list[int]] = []
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        area, places = _values_area(values, rows)
        slots = max(1, round(len(rows) / load_factor))
        slot_bytes = length + int(varint_sizes(places).max())
        table = np.zeros(slots * slot_bytes, np.uint8)
        row_keys = _HashedKeys(hashes[rows], read_only(key_data), key_offsets[rows])
        _fill(table, _Slots(slots, slot_bytes, length), row_keys, places)
        geometry.append([length, len(rows), slots, slot_bytes, 0, 0])
        parts.append(table.tobytes())
        areas.append(area)
    position = 0 if bloom is None else len(bloom.bits)
    for index, entry in enumerate(geometry):
        entry[4] = position
        position += len(parts[index + (bloom is not None)])
    for entry, area in zip(geometry, areas, strict=True):
        entry[5] = position
        position += len(area)
    parts += areas
    parts.append(_ending(geometry, bloom, parts))
    return parts


def _values_area(values: Rows, rows: Longs) -> tuple[bytes, Longs]:
    data, offsets = values
    starts, sizes = offsets[rows], offsets[rows + 1] - offsets[rows]
    widths = varint_sizes(sizes) + sizes
    places = np.cumsum(widths) - widths + 1  # 0 means that a slot is empty
    area = np.zeros(1 + int(widths.sum()), np.uint8)
    _put_values(area, places, read_only(data), np.array(starts), sizes)
    return area.tobytes(), places


def _ending(geometry: list[list[int]], bloom: BloomFilter | None, parts: list[bytes]) -> bytes:
    lengths = b"".join(_LENGTH.pack(*entry) for entry in geometry)
    size, entries = (0, 0) if bloom is None else (len(bloom.bits), bloom.entries)
    head = lengths + struct.pack("<qqq", size, entries, len(geometry))
    checksum = 0
    for part in (*parts, head):
        checksum = checksum_of(part, checksum)
    return head + struct.pack("<II", checksum, _MAGIC)


class HashFile:
    """One file, mapped or in memory, whose checksum was right when it was opened."""

    def __init__(self, data: pa.Buffer, file_name: str) -> None:
        self.file_name = file_name
        self.data: Bytes = np.frombuffer(data, np.uint8)
        if len(self.data) < _END.size:
            raise self.corrupt()
        view = memoryview(data)
        size, entries, count, checksum, magic = _END.unpack_from(view, len(view) - _END.size)
        if magic != _MAGIC or checksum_of(view[: len(view) - 8]) != checksum:
            raise self.corrupt()
        self.bloom: BloomFilter | None = None
        if entries:
            bits = bytes(view[:size])
            self.bloom = stored_bloom(bits, entries=entries, file_name=file_name)
        offset = len(view) - _END.size - count * _LENGTH.size
        self.tables = {
            fields[0]: HashTable(
                count=fields[1], slots=fields[2], slot_bytes=fields[3],
                table=fields[4], values=fields[5],
            )
            for fields in (_LENGTH.unpack_from(view, offset + i * _LENGTH.size) for i in range(count))
        }  # fmt: skip

    def corrupt(self) -> CorruptFileError:
        """Return the error that names this file."""
        return CorruptFileError(
            "a hash lookup file does not match its checksum; it is built anew", file=self.file_name
        )

    def find(self, keys: Rows, rows: Longs, hashes: Hashes) -> Longs:
        """Return where the values of keys, by row number, begin in the file; -1 where absent."""
        key_data, key_offsets = keys
        lengths = key_offsets[rows + 1] - key_offsets[rows]
        row_places = np.full(len(rows), -1, np.int64)
        for length in np.unique(lengths).tolist():
            table = self.tables.get(length)
            if table is None:
                continue
            matching = np.flatnonzero(lengths == length)
            places = np.empty(len(matching), np.int64)
            row_keys = _HashedKeys(
                hashes[rows[matching]], read_only(key_data), key_offsets[rows[matching]]
            )
            slots = _Slots(table.slots, table.slot_bytes, length)
            _find(read_only(self.data), table.table, slots, row_keys, places)
            row_places[matching] = np.where(places > 0, places + table.values, -1)
        return row_places

    def values(self, places: Longs) -> tuple[Longs, Longs]:
        """Return the begin and end of values, from the result of `find`."""
        starts, ends = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        if not _values(read_only(self.data), read_only(places), starts, ends):
            raise self.corrupt()
        return starts, ends


# Each loop compiles in about half a second. Sums of hash and probe are 64-bit: they cannot overflow.


@compiled
def _same(data: Bytes, offset: Any, keys: Bytes, start: Any, length: int) -> bool:
    for byte in range(length):  # noqa: SIM110 -- compiled
        if data[offset + byte] != keys[start + byte]:
            return False
    return True


class _Slots(NamedTuple):
    """The slots of a table, the bytes of each, and how many of those are the key's."""

    slot_count: int
    slot_bytes: int
    key_bytes: int


class _HashedKeys(NamedTuple):
    """Keys of one length: their hashes, and where each begins in the bytes."""

    hashes: Hashes
    data: Bytes
    starts: Longs


@compiled
def _fill(table: Bytes, geometry: _Slots, hashed: _HashedKeys, places: Longs) -> None:
    (slots, slot_bytes, length), (hashes, keys, starts) = geometry, hashed
    for row in range(len(starts)):
        first = np.int64(hashes[row]) & 0x7FFFFFFF
        for probe in range(slots):
            slot = ((first + probe) % slots) * slot_bytes
            if table[slot + length] == 0:
                for byte in range(length):
                    table[slot + byte] = keys[starts[row] + byte]
                put_varint(table, slot + length, places[row])
                break


@compiled
def _find(data: Bytes, table: int, geometry: _Slots, hashed: _HashedKeys, places: Longs) -> None:
    (slots, slot_bytes, length), (hashes, keys, starts) = geometry, hashed
    for row in range(len(starts)):
        first = np.int64(hashes[row]) & 0x7FFFFFFF
        places[row] = 0
        for probe in range(slots):
            slot = table + ((first + probe) % slots) * slot_bytes
            if data[slot + length] == 0:
                break
            if _same(data, slot, keys, starts[row], length):
                places[row], _ = varint_at(data, slot + length, slot + slot_bytes)
                break


@compiled
def _put_values(area: Bytes, places: Longs, data: Bytes, starts: Longs, sizes: Longs) -> None:
    for row in range(len(places)):
        to = put_varint(area, places[row], sizes[row])
        for byte in range(sizes[row]):
            area[to + byte] = data[starts[row] + byte]


@compiled
def _values(data: Bytes, places: Longs, starts: Longs, ends: Longs) -> bool:
    for row in range(len(places)):
        size, behind = varint_at(data, places[row], len(data))
        if behind < 0 or size > len(data) - behind:
            return False
        starts[row], ends[row] = behind, behind + size
    return True


# -- Sort lookup files (format section 17) ---------------------------------------------------------
#
# Blocks of entries in key order, bloom filter, index, footer.
#
# Blocks are laid out and taken apart by compiled loops over all their entries; Python sees
# blocks.

MAGIC = 1_481_571_681
TRAILER_BYTES = 5
_FOOTER = struct.Struct("<qiqqii")
_TRAILER = struct.Struct("<BI")
_NONE, _ZSTD, _LZ4 = 0, 1, 2
_ALIGNED, _UNALIGNED = 0, 1
_BLOCK_BYTES_MAX = 1 << 30
_ROOM = 4


@record
class Entries:
    """Keys and values one behind the other, each with n + 1 offsets."""

    keys: Bytes
    key_offsets: Longs
    values: Bytes
    value_offsets: Longs

    def __len__(self) -> int:
        return len(self.key_offsets) - 1


@record
class Handle:
    """The position of the stored bytes of a block, without its trailer."""

    offset: int
    size: int


class SstWriter:
    """Writes one file from entries in key order, in memory of a batch and the index."""

    def __init__(self, write: Callable[[bytes], Any], *, block_size: int, compressed: bool) -> None:
        self._write = write
        self._block_size = block_size
        self._codec = pa.Codec("zstd", compression_level=1) if compressed else None
        self._position = 0
        self._last_keys: list[bytes] = []
        self._handles: list[Handle] = []
        self._waiting: Entries | None = None

    def add(self, entries: Entries) -> None:
        """Append entries; those that do not fill a block wait for the next ones."""
        self._flush(_joined(self._waiting, entries), final=False)

    def finish(self, bloom: BloomFilter | None) -> None:
        """Write the pending block, the bloom filter, the index and the footer."""
        if self._waiting is not None:
            self._flush(self._waiting, final=True)
        bloom_at, bloom_size, bloom_entries = 0, 0, 0
        if bloom is not None:
            bloom_at, bloom_size, bloom_entries = self._position, len(bloom.bits), bloom.entries
            self._append(bloom.bits.tobytes())
        index = self._put_block(self._index())
        footer = (bloom_at, bloom_size, bloom_entries, index.offset, index.size, MAGIC)
        self._append(_FOOTER.pack(*footer))

    def _flush(self, entries: Entries, *, final: bool) -> None:
        bodies, starts, stops = _laid_out(entries, self._block_size)
        done = 0
        for first, last, aligned in zip(*stops, strict=True):
            if (
                last == len(entries)
                and not final
                and not _is_full(starts, first, last, self._block_size, aligned=aligned)
            ):
                break
            self._handles.append(self._put_block(_block(bodies, starts, first, last, aligned)))
            begin, end = entries.key_offsets[last - 1], entries.key_offsets[last]
            self._last_keys.append(entries.keys[begin:end].tobytes())
            done = last
        self._waiting = _tail(entries, done)

    def _index(self) -> bytes:
        values = [_varint(handle.offset) + _varint(handle.size) for handle in self._handles]
        entries = Entries(
            keys=_bytes(self._last_keys),
            key_offsets=_offsets(self._last_keys),
            values=_bytes(values),
            value_offsets=_offsets(values),
        )
        if not len(entries):
            return struct.pack("<iB", 0, _UNALIGNED)
        bodies, starts, _ = _laid_out(entries, 1 << 62)
        sizes = np.diff(starts)
        return _block(bodies, starts, 0, len(entries), bool((sizes == sizes[0]).all()))

    def _put_block(self, body: bytes) -> Handle:
        kind, stored = _NONE, body
        if self._codec is not None:
            packed = _varint(len(body)) + self._codec.compress(body, asbytes=True)
            if len(packed) < len(body) - len(body) // 8:
                kind, stored = _ZSTD, packed
        handle = Handle(offset=self._position, size=len(stored))
        self._append(stored + _TRAILER.pack(kind, _checksum(stored, kind)))
        return handle

    def _append(self, data: bytes) -> None:
        self._write(data)
        self._position += len(data)


class SstFile:
    """One file, mapped or in memory. Every block is checked before anything of it is used."""

    def __init__(self, data: pa.Buffer, file_name: str) -> None:
        self._data = memoryview(data)
        self.file_name = file_name
        size = len(self._data)
        if size < _FOOTER.size:
            raise self.corrupt("the file is shorter than its footer")
        fields = _FOOTER.unpack_from(self._data, size - _FOOTER.size)
        bloom_at, bloom_size, bloom_entries, index_at, index_size, magic = fields
        if magic != MAGIC:
            raise self.corrupt("the file has another magic number")
        self.bloom: BloomFilter | None = None
        if bloom_size or bloom_entries:
            self._check_inside(bloom_at, bloom_size)
            bits = bytes(self._data[bloom_at : bloom_at + bloom_size])
            self.bloom = stored_bloom(bits, entries=bloom_entries, file_name=file_name)
        index = self.block(Handle(offset=index_at, size=index_size))
        self.last_keys = (index.body, index.key_starts, index.key_ends)
        self.handles = list(self._handles(index))

    def block(self, handle: Handle) -> "Block":
        """Return a block's entries; CorruptFileError where checksum or bounds are wrong."""
        self._check_inside(handle.offset, handle.size + TRAILER_BYTES)
        # A copy: what was checked stays as it was, whatever becomes of the file.
        stored = memoryview(bytes(self._data[handle.offset : handle.offset + handle.size]))
        kind, checksum = _TRAILER.unpack_from(self._data, handle.offset + handle.size)
        if _checksum(stored, kind) != checksum:
            raise self.corrupt("a block does not match its checksum", offset=handle.offset)
        return Block.parse(self._unpacked(stored, kind), self)

    def corrupt(self, problem: str, **facts: Any) -> CorruptFileError:
        """Return the error that names this file."""
        return CorruptFileError(f"{problem}; the file is built anew", file=self.file_name, **facts)

    def _handles(self, index: "Block") -> Iterator[Handle]:
        for start, end in zip(index.value_starts.tolist(), index.value_ends.tolist(), strict=True):
            offset, behind = varint_at(index.body, start, end)
            size, behind = varint_at(index.body, max(0, behind), end)
            if behind != end:
                raise self.corrupt("an entry of the index is torn")
            yield Handle(offset=int(offset), size=int(size))

    def _unpacked(self, stored: memoryview, kind: int) -> Bytes:
        if kind == _NONE:
            return np.frombuffer(stored, np.uint8)
        if kind not in (_ZSTD, _LZ4):
            raise UnsupportedError(
                "blocks of this compression are not read by this version",
                kind=ErrorKind.UNSUPPORTED_FORMAT,
                file=self.file_name,
                compression=kind,
            )
        octets = np.frombuffer(stored, np.uint8)
        size, behind = varint_at(octets, 0, len(octets))
        if behind < 0 or size > _BLOCK_BYTES_MAX:
            raise self.corrupt("a block claims an impossible size")
        packed = stored[int(behind) :]
        if kind == _LZ4:
            packed = packed[8:]  # its lengths again
        try:
            codec = pa.Codec("zstd" if kind == _ZSTD else "lz4_raw")
            body = codec.decompress(pa.py_buffer(packed), int(size))
        except (pa.ArrowException, OSError, ValueError) as cause:
            raise self.corrupt("a block cannot be decompressed") from cause
        return np.frombuffer(body, np.uint8)

    def _check_inside(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > len(self._data) - _FOOTER.size:
            raise self.corrupt("a part lies outside the file", offset=offset)


@record
class Block:
    """The entries of one block: where each key and each value lies in `body`."""

    body: Bytes
    key_starts: Longs
    key_ends: Longs
    value_starts: Longs
    value_ends: Longs

    def __len__(self) -> int:
        return len(self.key_starts)

    @staticmethod
    def parse(body: Bytes, file: SstFile) -> "Block":
        """Take a block's body apart."""
        starts, end = _entry_starts(body, file)
        keys, values = (
            _Stretches(np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64))
            for _ in range(2)
        )
        if not _parse(read_only(body), read_only(starts), end, keys, values):
            raise file.corrupt("an entry lies outside its block")
        return Block(
            body=body,
            key_starts=keys.starts,
            key_ends=keys.ends,
            value_starts=values.starts,
            value_ends=values.ends,
        )


def _entry_starts(body: Bytes, file: SstFile) -> tuple[Longs, int]:
    if len(body) < 5:
        raise file.corrupt("a block is shorter than its end")
    kind = int(body[-1])
    number = int.from_bytes(body[-5:-1].tobytes(), "little", signed=True)
    end = len(body) - 5
    if kind == _ALIGNED:
        if number <= 0 or end % number:
            raise file.corrupt("a block is not made of entries of one size")
        return np.arange(end // number, dtype=np.int64) * number, end
    end -= 4 * number
    if kind != _UNALIGNED or number < 0 or end < 0:
        raise file.corrupt("a block claims more entries than it has")
    return body[end : end + 4 * number].view("<i4").astype(np.int64), end


def _laid_out(entries: Entries, block_size: int) -> tuple[Bytes, Longs, tuple[list[int], ...]]:
    """Return all entries' bytes, where each begins, and for each block its entries and alignment."""
    key_sizes, value_sizes = np.diff(entries.key_offsets), np.diff(entries.value_offsets)
    sizes = key_sizes + value_sizes + varint_sizes(key_sizes) + varint_sizes(value_sizes)
    starts = offsets_of(sizes)
    bodies = np.empty(int(starts[-1]), np.uint8)
    _put_entries(
        bodies,
        starts,
        read_only(entries.keys),
        np.array(entries.key_offsets),
        read_only(entries.values),
        np.array(entries.value_offsets),
    )
    first, last, aligned = (np.zeros(len(entries), np.int64) for _ in range(3))
    count = _cut(starts, block_size, first, last, aligned)
    return bodies, starts, tuple(part[:count].tolist() for part in (first, last, aligned))


def _is_full(starts: Longs, first: int, last: int, block_size: int, *, aligned: bool) -> bool:
    size = int(starts[last] - starts[first]) + 5 + (0 if aligned else _ROOM * (last - first))
    return size > block_size


def _block(bodies: Bytes, starts: Longs, first: int, last: int, aligned: object) -> bytes:
    body: bytes = bodies[starts[first] : starts[last]].tobytes()
    if aligned:
        return body + struct.pack("<iB", int(starts[first + 1] - starts[first]), _ALIGNED)
    places: bytes = (starts[first:last] - starts[first]).astype("<i4").tobytes()
    return body + places + struct.pack("<iB", last - first, _UNALIGNED)


def _joined(waiting: Entries | None, entries: Entries) -> Entries:
    if waiting is None or not len(waiting):
        return entries
    key_end, value_end = waiting.key_offsets[-1], waiting.value_offsets[-1]
    keys = entries.keys[entries.key_offsets[0] : entries.key_offsets[-1]]
    values = entries.values[entries.value_offsets[0] : entries.value_offsets[-1]]
    key_offsets = entries.key_offsets[1:] - entries.key_offsets[0] + key_end
    value_offsets = entries.value_offsets[1:] - entries.value_offsets[0] + value_end
    return Entries(
        keys=np.concatenate([waiting.keys[:key_end], keys]),
        key_offsets=np.concatenate([waiting.key_offsets, key_offsets]),
        values=np.concatenate([waiting.values[:value_end], values]),
        value_offsets=np.concatenate([waiting.value_offsets, value_offsets]),
    )


def _tail(entries: Entries, done: int) -> Entries | None:
    if done == len(entries):
        return None
    key_start, value_start = entries.key_offsets[done], entries.value_offsets[done]
    return Entries(
        keys=entries.keys[key_start:].copy(),
        key_offsets=entries.key_offsets[done:] - key_start,
        values=entries.values[value_start:].copy(),
        value_offsets=entries.value_offsets[done:] - value_start,
    )


def _checksum(stored: bytes | memoryview, kind: int) -> int:
    return checksum_of(bytes([kind]), checksum_of(stored))


def _varint(number: int) -> bytes:
    target = np.empty(10, np.uint8)
    return target[: put_varint(target, 0, number)].tobytes()


def _bytes(pieces: list[bytes]) -> Bytes:
    return np.frombuffer(b"".join(pieces), np.uint8)


def _offsets(pieces: list[bytes]) -> Longs:
    return np.cumsum([0, *map(len, pieces)]).astype(np.int64)


# Each loop compiles in well under a second.


@compiled
def _put_entries(
    bodies: Bytes,
    starts: Longs,
    keys: Bytes,
    key_offsets: Longs,
    values: Bytes,
    value_offsets: Longs,
) -> None:
    for row in range(len(starts) - 1):
        begin, end = key_offsets[row], key_offsets[row + 1]
        to = put_varint(bodies, starts[row], end - begin)
        for index in range(begin, end):
            bodies[to] = keys[index]
            to += 1
        begin, end = value_offsets[row], value_offsets[row + 1]
        to = put_varint(bodies, to, end - begin)
        for index in range(begin, end):
            bodies[to] = values[index]
            to += 1


@compiled
def _cut(starts: Longs, block_size: int, first: Longs, last: Longs, aligned: Longs) -> int:
    """Cut entries into blocks: one ends with the entry that takes it beyond the block size."""
    count = 0
    begin = 0
    alike = True
    for row in range(len(starts) - 1):
        if row == begin:
            alike = True
        elif starts[row + 1] - starts[row] != starts[begin + 1] - starts[begin]:
            alike = False
        size = starts[row + 1] - starts[begin] + 5
        if not alike:
            size += 4 * (row + 1 - begin)
        if size > block_size or row == len(starts) - 2:
            first[count], last[count], aligned[count] = begin, row + 1, np.int64(alike)
            count += 1
            begin = row + 1
    return count


class _Stretches(NamedTuple):
    """Where each key, or each value, of a block begins and ends."""

    starts: Longs
    ends: Longs


@compiled
def _parse(body: Bytes, starts: Longs, end: int, keys: _Stretches, values: _Stretches) -> bool:
    (key_starts, key_ends), (value_starts, value_ends) = keys, values
    for row in range(len(starts)):
        if starts[row] < 0 or starts[row] > end:
            return False
        size, offset = varint_at(body, starts[row], end)
        if offset < 0 or size > end - offset:
            return False
        key_starts[row], key_ends[row] = offset, offset + size
        size, offset = varint_at(body, offset + size, end)
        if offset < 0 or size > end - offset:
            return False
        value_starts[row], value_ends[row] = offset, offset + size
    return True

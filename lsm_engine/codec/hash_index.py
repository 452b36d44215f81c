"""Hash lookup files (format section 17): for each key length a table of slots, then the values.

Clients keep the geometry of such a file in memory, so that it cannot be opened by itself. Ours ends
with it: per key length (length, count, slots, slot bytes, start of the table, start of the values),
then bloom size and entries, the number of lengths, a CRC-32 of all before it, and a magic number.
"""

import struct
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.codec.bloom import (
    BloomFilter,
    Hashes,
    build_bloom,
    key_hashes,
    read_only_longs,
    stored_bloom,
)
from lsm_engine.codec.byte_copies import read_only
from lsm_engine.codec.checksum import checksum_of
from lsm_engine.codec.compacted_row import put_varint, varint_at, varint_sizes
from lsm_engine.kernels.arrow_views import Bytes, Longs
from lsm_engine.kernels.compiled import compiled

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
        _fill(table, slots, slot_bytes, length, hashes[rows], read_only(key_data),
              key_offsets[rows], places)  # fmt: skip
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
            _find(
                read_only(self.data), table.table, table.slots, table.slot_bytes, length,
                hashes[rows[matching]], read_only(key_data), key_offsets[rows[matching]], places,
            )  # fmt: skip
            row_places[matching] = np.where(places > 0, places + table.values, -1)
        return row_places

    def values(self, places: Longs) -> tuple[Longs, Longs]:
        """Return where values begin and end, from what `find` gave."""
        starts, ends = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        if not _values(read_only(self.data), read_only_longs(places), starts, ends):
            raise self.corrupt()
        return starts, ends


# Each loop compiles in about half a second. Sums of hash and probe are 64-bit: they cannot overflow.


@compiled
def _same(data: Bytes, offset: Any, keys: Bytes, start: Any, length: int) -> bool:
    for byte in range(length):  # noqa: SIM110 -- compiled
        if data[offset + byte] != keys[start + byte]:
            return False
    return True


@compiled
def _fill(
    table: Bytes,
    slots: int,
    slot_bytes: int,
    length: int,
    hashes: Hashes,
    keys: Bytes,
    starts: Longs,
    places: Longs,
) -> None:
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
def _find(
    data: Bytes,
    table: int,
    slots: int,
    slot_bytes: int,
    length: int,
    hashes: Hashes,
    keys: Bytes,
    starts: Longs,
    places: Longs,
) -> None:
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

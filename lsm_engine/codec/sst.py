"""Sort lookup files (format section 17): blocks of entries in key order, bloom filter, index, footer.

Blocks are laid out and taken apart by compiled loops over all their entries; Python sees blocks.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.codec.bloom import BloomFilter, read_only_longs, stored_bloom
from lsm_engine.codec.byte_copies import read_only
from lsm_engine.codec.checksum import checksum_of
from lsm_engine.codec.compacted_row import put_varint, varint_at, varint_sizes
from lsm_engine.kernels.arrow_views import Bytes, Longs
from lsm_engine.kernels.compiled import compiled

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
    """Where a block's stored bytes lie, the trailer left out."""

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
        """Write what waits, the bloom filter, the index and the footer."""
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
        arrays = [np.zeros(len(starts), np.int64) for _ in range(4)]
        if not _parse(read_only(body), read_only_longs(starts), end, *arrays):
            raise file.corrupt("an entry lies outside its block")
        return Block(
            body=body,
            key_starts=arrays[0],
            key_ends=arrays[1],
            value_starts=arrays[2],
            value_ends=arrays[3],
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
    starts = np.zeros(len(entries) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
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


@compiled
def _parse(
    body: Bytes,
    starts: Longs,
    end: int,
    key_starts: Longs,
    key_ends: Longs,
    value_starts: Longs,
    value_ends: Longs,
) -> bool:
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

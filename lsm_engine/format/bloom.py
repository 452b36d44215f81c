"""Bloom filter bits as lookup files store them (format section 17), built and probed by batches.

bytes    ceil(trunc(-n ln fpp / ln2²) / 8), bit i is bit i % 8 of byte i / 8
hash     murmur3 (seed 42) of the key; bytes behind the last word are sign-extended words
probe i  c = hash + i * (hash >>> 16) in 32 bits, inverted if negative, modulo the number of bits"""

import base64
import binascii
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.format.arrow_buffers import read_only
from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs, address_of
from lsm_engine.kernels.compiled import (
    compiled,
    compiled_with,
    load_i8,
    load_u8,
    load_u32,
    load_u64,
)
from lsm_engine.options.modes import BloomFilterType

Hashes = npt.NDArray[np.int32]
_LN2 = math.log(2)
BLOOM_BYTES_MAX = 1 << 28
"""A filter addresses its bits with 31 bits, so that more bytes are never probed."""


@record
class BloomFilter:
    """Bits and the number of keys that they were sized for. No answer "no" is ever wrong."""

    bits: Bytes
    entries: int

    def __post_init__(self) -> None:
        assert len(self.bits), "a filter without bits"

    @property
    def probes(self) -> int:
        """How many bits each key sets."""
        return max(1, math.floor(8 * len(self.bits) / max(1, self.entries) * _LN2 + 0.5))

    def may_hold(self, hashes: Hashes) -> Bools:
        """Return which keys, by hash, may be among those added."""
        may_hold = np.empty(len(hashes), np.bool_)
        _probe(read_only(self.bits), self.probes, hashes, may_hold)
        return may_hold


def bloom_size(entries: int, fpp: float) -> int:
    """Return the bytes of a filter for so many keys at a false-positive rate."""
    bits = math.trunc(-entries * math.log(fpp) / (_LN2 * _LN2))
    return min(max(1, -(-bits // 8)), BLOOM_BYTES_MAX)


def build_bloom(hashes: Hashes, *, entries: int, fpp: float) -> BloomFilter:
    """Return the filter of keys given by hash, sized for `entries` of them."""
    bloom_filter = BloomFilter(bits=np.zeros(bloom_size(entries, fpp), np.uint8), entries=entries)
    _add(bloom_filter.bits, bloom_filter.probes, hashes)
    return bloom_filter


def stored_bloom(data: bytes, *, entries: int, file_name: str) -> BloomFilter:
    """Return a filter read from a file; CorruptFileError if the two facts cannot be true."""
    if not data or len(data) > BLOOM_BYTES_MAX or entries < 1:
        raise CorruptFileError(
            "a bloom filter of the file is empty, too large or of no keys; the file is built anew",
            file=file_name,
            size=len(data),
            entries=entries,
        )
    return BloomFilter(bits=np.frombuffer(data, np.uint8), entries=entries)


def key_hashes(data: Bytes, offsets: Longs) -> Hashes:
    """Return the hash of each key of any length; n + 1 offsets for n keys."""
    hashes = np.empty(len(offsets) - 1, np.int32)
    _hash(read_only(data), read_only(offsets), hashes)
    return hashes


# Each loop compiles in about 0.3 s.


@compiled
def _mix(mixed: np.uint32, word: np.uint32) -> np.uint32:
    word = np.uint32(word * np.uint32(0xCC9E2D51))
    word = np.uint32((word << np.uint32(15)) | (word >> np.uint32(17)))
    word = np.uint32(word * np.uint32(0x1B873593))
    mixed = np.uint32(mixed ^ word)
    mixed = np.uint32((mixed << np.uint32(13)) | (mixed >> np.uint32(19)))
    return np.uint32(mixed * np.uint32(5) + np.uint32(0xE6546B64))


@compiled
def _hash(data: Bytes, offsets: Longs, hashes: Hashes) -> None:
    for row in range(len(hashes)):
        start, stop = offsets[row], offsets[row + 1]
        aligned_stop = start + ((stop - start) & ~3)
        mixed = np.uint32(42)
        for index in range(start, aligned_stop, 4):
            word = np.uint32(0)
            for byte in range(4):
                word = np.uint32(
                    word | np.uint32(np.uint32(data[index + byte]) << np.uint32(8 * byte))
                )
            mixed = _mix(mixed, word)
        for index in range(aligned_stop, stop):
            mixed = _mix(mixed, np.uint32(np.int32(np.int8(data[index]))))
        mixed = np.uint32(mixed ^ np.uint32(stop - start))
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        hashes[row] = np.int32(mixed ^ (mixed >> np.uint32(16)))


@compiled
def _bit(hashed: np.int32, probe: int, bit_count: int) -> Any:
    step = np.int64(np.uint32(hashed) >> np.uint32(16))
    combined = np.int32(np.uint32(np.int64(hashed) + probe * step))
    if combined < 0:
        combined = ~combined
    return np.int64(combined) % bit_count


@compiled
def _add(bits: Bytes, probes: int, hashes: Hashes) -> None:
    bit_count = 8 * len(bits)
    for row in range(len(hashes)):
        for probe in range(1, probes + 1):
            bit = _bit(hashes[row], probe, bit_count)
            bits[bit >> 3] |= np.uint8(1 << (bit & 7))


@compiled
def _probe(bits: Bytes, probes: int, hashes: Hashes, may_hold: Bools) -> None:
    bit_count = 8 * len(bits)
    for row in range(len(hashes)):
        all_set = True
        for probe in range(1, probes + 1):
            bit = _bit(hashes[row], probe, bit_count)
            if not (bits[bit >> 3] >> np.uint8(bit & 7)) & 1:
                all_set = False
                break
        may_hold[row] = all_set


# -- Record keys asked for in the bits of bloom filters, while these are base64 (format/bloom) -----

Chains = npt.NDArray[np.int32]
Places = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int32]
_FIRST_HASHES = 8
_FIRST_PLACES = 2
"""Bits of each key that lie side by side in the order of the first: few keys are asked for a third."""


@record
class RecordKeyBloom:
    """One or more rows of bits of one size. A key may be there if one row has all its bits.

    A row is the base64 text that its bits are in, from some multiple of four letters on, and how many
    bytes come before them there (0 to 2). Decoding a text takes longer than asking it for 100,000 keys.
    """

    bit_count: int
    hash_count: int
    rows: tuple[tuple[Bytes, int], ...]

    def remaining(self, keys: "RecordKeys", candidates: Longs) -> Longs:
        """Return which of some keys, by ascending numbers, may be there.

        None is left only if none is there by all its bits; else the first eight of each decide.
        """
        asks_most = 4 * len(candidates) > len(keys)
        parts = []
        for text, before in self.rows:
            placed = keys.placed(self.bit_count, before)
            order, firsts = (
                placed.in_order if asks_most else (candidates, placed.firsts_of(candidates))
            )
            hash_count = min(self.hash_count, _FIRST_HASHES)
            hits = np.empty(len(order), np.int32)
            hits = hits[: _probe_record_keys(text, hash_count, placed.places, firsts, order, hits)]
            hits.sort()
            if asks_most and len(candidates) < len(keys):
                places_in_candidates = np.minimum(
                    np.searchsorted(candidates, hits), max(len(candidates) - 1, 0)
                )
                hits = hits[candidates[places_in_candidates] == hits]
            if self.hash_count > _FIRST_HASHES:
                shape = np.array([self.bit_count, self.hash_count, before], np.int64)
                data = address_of(keys.data)
                count = _confirm(text, shape, keys.first, data, keys.offsets, hits)
                hits = hits[:count]
            parts.append(hits)
        return np.unique(np.concatenate(parts)).astype(np.int64)


class RecordKeys:
    """Record keys as filters are asked for them: their bytes, and the first hashes of each.

    Most absent keys are known by their first two or three bits; hashes beyond the eighth are made until
    one key has all its bits. For one thread.
    """

    def __init__(self, data: Bytes, offsets: Longs) -> None:
        self.data = data
        self.offsets = read_only(offsets)
        self.first = hash_chains(data, offsets, _FIRST_HASHES)
        self._bit_count = 0
        self._placed: dict[int, PlacedKeys] = {}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def placed(self, bit_count: int, before: int) -> "PlacedKeys":
        """Return where the first bits of keys are in such a row of a filter."""
        if self._bit_count != bit_count:
            self._bit_count, self._placed = bit_count, {}
        if before not in self._placed:
            places = np.empty(self.first.shape, np.uint32)
            _place_all(self.first, bit_count, before, places)
            self._placed[before] = PlacedKeys(places)
        return self._placed[before]


class PlacedKeys:
    """Where the first bits of keys are in rows of one shape, as `_place` has it: a row per hash."""

    def __init__(self, places: "Places") -> None:
        self.places = places
        self._in_order = np.arange(places.shape[1], dtype=np.int64), places[:_FIRST_PLACES]
        self._asked = 0

    @property
    def in_order(self) -> "tuple[Longs, Places]":
        """All keys, and their first places: ascending from the second time on, as memory is read best."""
        self._asked += 1
        if self._asked == 2:
            order = np.argsort(self.places[0])
            self._in_order = order, self.firsts_of(order)
        return self._in_order

    def firsts_of(self, keys: Longs) -> "Places":
        """Return the first places of some keys."""
        return np.take(self.places[:_FIRST_PLACES], keys, axis=1)


def hash_chains(data: Bytes, offsets: Longs, hash_count: int) -> Chains:
    """Return the hashes of each key: a row of first hashes, one of second ones, and so on."""
    chains = np.empty((hash_count, len(offsets) - 1), np.int32)
    _chain(address_of(data), read_only(offsets), chains)
    return chains


def _six_bits() -> Bytes:
    table = np.full(256, 255, np.uint8)
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    table[np.frombuffer(letters, np.uint8)] = np.arange(64)
    return table


_SIX_BITS = read_only(_six_bits())


# Each loop compiles in about 0.3 s.


@compiled
def _murmur(data: int, start: Any, stop: Any, seed: np.uint32) -> np.uint32:
    mult = np.uint32(0x5BD1E995)
    aligned_stop = start + ((stop - start) & ~3)
    mixed = np.uint32(seed ^ np.uint32(stop - start))
    for index in range(start, aligned_stop, 4):
        word = np.uint32(np.uint32(load_u32(data + index)) * mult)
        word = np.uint32(np.uint32(word ^ (word >> np.uint32(24))) * mult)
        mixed = np.uint32(np.uint32(mixed * mult) ^ word)
    tail_size = stop - aligned_stop
    if tail_size > 0:
        for byte in range(tail_size):
            # The last byte unshifted, those before it further up.
            piece = np.uint32(np.int32(load_i8(data + stop - 1 - byte)))
            mixed = np.uint32(mixed ^ np.uint32(piece << np.uint32(8 * byte)))
        mixed = np.uint32(mixed * mult)
    mixed = np.uint32(np.uint32(mixed ^ (mixed >> np.uint32(13))) * mult)
    return np.uint32(mixed ^ (mixed >> np.uint32(15)))


@compiled
def _chain(data: int, offsets: Longs, chains: Chains) -> None:
    for row in range(chains.shape[1]):
        seed = np.uint32(0)
        for step in range(chains.shape[0]):
            seed = _murmur(data, offsets[row], offsets[row + 1], seed)
            chains[step, row] = np.int32(seed)


@compiled
def _place(hashed: Any, bit_count: int, before: int) -> Any:
    """Return where a hash's bit is in a base64 text: the number of its letter, times 8, and the shift."""
    bit = np.int64(np.uint32(abs(np.int64(hashed)))) % bit_count
    bit_offset = 8 * (before + (bit >> 3)) + 7 - (bit & 7)
    return np.uint32(((bit_offset // 6) << 3) | (5 - bit_offset % 6))


@compiled
def _place_all(chains: Chains, bit_count: int, before: int, places: Places) -> None:
    for step in range(chains.shape[0]):
        for key in range(chains.shape[1]):
            places[step, key] = _place(chains[step, key], bit_count, before)


@compiled
def _hash_bit(text: Bytes, place: Any) -> Any:
    letter = text[place >> np.uint32(3)]
    return np.int64((_SIX_BITS[letter] >> np.uint8(place & np.uint32(7))) & np.uint8(1))


@compiled
def _probe_record_keys(
    text: Bytes,
    hash_count: int,
    places: Places,
    firsts: Places,
    order: Longs,
    survivors: Numbers,
) -> Any:
    # Bit by bit for all keys, without a branch that depends on one: a wrong guess costs more than a bit.
    count = np.int64(0)
    for row in range(len(order)):
        survivors[count] = row
        count += _hash_bit(text, firsts[0, row])
    for step in range(1, hash_count):
        previous_count, count = count, np.int64(0)
        for number in range(previous_count):
            survivors[count] = row = survivors[number]
            place = firsts[step, row] if step < len(firsts) else places[step, order[row]]
            count += _hash_bit(text, place)
    for number in range(count):
        survivors[number] = order[survivors[number]]
    return count


@compiled
def _confirm(
    text: Bytes, shape: Longs, first: Chains, data: int, offsets: Longs, survivors: Numbers
) -> Any:
    bit_count, hash_count, before = shape[0], shape[1], shape[2]
    chain_count = first.shape[0]
    count = np.int64(0)
    for number in range(len(survivors)):
        survivors[count] = key = survivors[number]
        all_set = np.int64(1)
        seed = np.uint32(first[chain_count - 1, key])
        # One key is enough for the file to be read, and reading says it of the others for less.
        for _ in range(chain_count, hash_count if count == 0 else chain_count):
            seed = _murmur(data, offsets[key], offsets[key + 1], seed)
            all_set = _hash_bit(text, _place(np.int32(seed), bit_count, before))
            if not all_set:
                break
        count += all_set
    return count


# -- Bloom filters of record keys in Parquet footers, as Hudi's specification has them -------------
#
# footer keys   org.apache.hudi.bloomfilter (the filter, base64), hoodie_bloom_filter_type_code
#               (SIMPLE or DYNAMIC_V0), hoodie_min_record_key, hoodie_max_record_key  # noqa: ERA001
# SIMPLE        int32 -1, int32 hashes, byte 1 (murmur), int32 bits (all big-endian), then the bits,
#               bit i in byte i / 8 at i % 8
# DYNAMIC_V0    the same head, int32 keys a row, int32 keys in the last row, int32 rows, then each row
#               as a SIMPLE filter; a key is in one of them
# hash j        murmur2 of the key's UTF-8 bytes, seeded with hash j - 1 (0 at first); the bit is its
#               remainder by the number of bits, made positive. Bytes behind the last word are
#               sign-extended

BLOOM_KEY = b"org.apache.hudi.bloomfilter"
OLDER_BLOOM_KEY = b"com.uber.hoodie.bloomfilter"
TYPE_KEY = b"hoodie_bloom_filter_type_code"
MIN_KEY = b"hoodie_min_record_key"
MAX_KEY = b"hoodie_max_record_key"
_TYPES = {"SIMPLE": BloomFilterType.SIMPLE, "DYNAMIC_V0": BloomFilterType.DYNAMIC_V0}
_HEAD = struct.Struct(">iibi")
_ROWS = struct.Struct(">iii")
_VERSION, _MURMUR = -1, 1
_HASHES_MAX = 256
_HASHED_KEYS = 1 << 16


@record
class KeyFooter:
    """The record keys in the footer of a data file; None: the footer has none."""

    lowest: bytes | None
    highest: bytes | None
    bloom: RecordKeyBloom | None


def bit_places(
    chains: Chains, bit_count: int, *, out: npt.NDArray[np.int32] | None = None
) -> npt.NDArray[np.int32]:
    """Return where the bits of keys are in a row of a filter; `out` may be the chains themselves."""
    places: npt.NDArray[np.int32] = np.fmod(chains, np.int32(bit_count), out=out)
    return np.abs(places, out=places)


def filter_shape(entries: int, fpp: float) -> tuple[int, int]:
    """Return the bits and the hashes of a row for so many keys."""
    bits = math.ceil(entries * -math.log(fpp) / (_LN2 * _LN2))
    return bits, math.ceil(_LN2 * bits / entries)


def build_record_key_bloom(
    data: Bytes,
    offsets: Longs,
    kind: BloomFilterType,
    *,
    entries: int,
    fpp: float,
    max_entries: int,
) -> bytes:
    """Return the stored filter of keys. A dynamic one has rows of `entries` keys, up to the maximum."""
    count = len(offsets) - 1
    bits, hashes = filter_shape(entries, fpp)
    if kind is BloomFilterType.SIMPLE:
        rows = _filled(data, offsets, np.zeros(count, np.int64), bits, hashes)
        return _simple(rows[0], bits, hashes)
    row_count = max(1, min(-(-count // entries), -(-max_entries // entries)))
    # Beyond the maximum keys go round the rows that there are.
    row_of = np.minimum(np.arange(count) // entries, row_count - 1)
    over = np.arange(count) >= row_count * entries
    row_of[over] = np.arange(int(over.sum())) % row_count
    last = int((row_of == row_count - 1).sum()) if count else 0
    rows = _filled(data, offsets, row_of, bits, hashes, row_count)
    head = _HEAD.pack(_VERSION, hashes, _MURMUR, bits)
    body = [_simple(row, bits, hashes) for row in rows]
    return head + _ROWS.pack(entries, min(last, entries), row_count) + b"".join(body)


def _filled(
    data: Bytes, offsets: Longs, row_of: Longs, bits: int, hashes: int, row_count: int = 1
) -> Bytes:
    """Return rows of bits with each key in its row; the hashes of some keys at a time are held."""
    rows = np.zeros((row_count, -(-bits // 8)), np.uint8)
    for start in range(0, len(row_of), _HASHED_KEYS):
        stop = min(start + _HASHED_KEYS, len(row_of))
        chains = hash_chains(data, offsets[start : stop + 1], hashes)
        _add_record_key(rows, row_of[start:stop], bit_places(chains, bits, out=chains))
    return rows


def footer_entries(
    stored: bytes, kind: BloomFilterType, lowest: bytes, highest: bytes
) -> dict[bytes, bytes]:
    """Return the footer members that hold a filter and the bounds of the keys."""
    code = next(name for name, value in _TYPES.items() if value is kind)
    return {
        BLOOM_KEY: base64.b64encode(stored),
        TYPE_KEY: code.encode(),
        MIN_KEY: lowest,
        MAX_KEY: highest,
    }


def read_key_footer(members: Mapping[bytes, bytes] | None, *, file_name: str) -> KeyFooter:
    """Return the record keys of a footer. Without them the file is a candidate for every key.

    Raises UnsupportedError for filters of another type, CorruptFileError, naming the file, for
    filters that are torn and for bounds the wrong way round.
    """
    members = members or {}
    lowest, highest = members.get(MIN_KEY), members.get(MAX_KEY)
    if lowest is None or highest is None:
        lowest = highest = None
    elif lowest > highest:
        raise CorruptFileError(
            "the file's footer has a smallest record key above the greatest; restore the file",
            file=file_name,
        )
    stored = members.get(BLOOM_KEY, members.get(OLDER_BLOOM_KEY))
    bloom = None
    if stored is not None:
        code = members.get(TYPE_KEY, b"SIMPLE").decode(errors="replace")
        if code not in _TYPES:
            raise UnsupportedError(
                "the file's bloom filter is of a type that this version does not read; set "
                "'index.type' = 'simple'",
                kind=ErrorKind.UNSUPPORTED_FORMAT,
                file=file_name,
                type_code=code,
            )
        bloom = decode_record_key_bloom(stored, _TYPES[code], file_name=file_name)
    return KeyFooter(lowest=lowest, highest=highest, bloom=bloom)


def decode_record_key_bloom(
    stored: bytes, kind: BloomFilterType, *, file_name: str
) -> RecordKeyBloom:
    """Return a filter from its base64 form; CorruptFileError if it is torn."""
    try:
        size = _decoded_size(stored)
        text = np.frombuffer(stored, np.uint8)
        bits, hashes = _head(stored, 0)
        offset, count = 0, 1
        if kind is BloomFilterType.DYNAMIC_V0:
            _, _, count = _ROWS.unpack(_decoded(stored, _HEAD.size, _ROWS.size))
            offset = _HEAD.size + _ROWS.size
        row_size = _HEAD.size + -(-bits // 8)
        if count < 1 or size != offset + count * row_size:
            raise ValueError("the size is not that of its rows")
        starts = range(offset, size, row_size)
        if any(_head(stored, start) != (bits, hashes) for start in starts):
            raise ValueError("rows of several shapes")
    except (struct.error, ValueError, binascii.Error) as cause:
        raise CorruptFileError(
            f"the file's bloom filter is torn ({cause}); restore the file, or set 'index.type' = "
            "'simple'",
            file=file_name,
        ) from cause
    rows = [divmod(start + _HEAD.size, 3) for start in starts]
    return RecordKeyBloom(
        bit_count=bits,
        hash_count=hashes,
        rows=tuple((text[4 * groups :], before) for groups, before in rows),
    )


def _decoded_size(stored: bytes) -> int:
    """Return how many bytes a base64 text holds; ValueError if it is none. Filters are long."""
    aligned_size = max(0, len(stored) - 4) & ~3
    if not _is_base64(np.frombuffer(stored, np.uint8, aligned_size)):
        raise ValueError("not base64")
    return aligned_size // 4 * 3 + len(base64.b64decode(stored[aligned_size:], validate=True))


def _decoded(stored: bytes, offset: int, count: int) -> bytes:
    """Return some of the bytes that a base64 text holds."""
    groups, before = divmod(offset, 3)
    text = stored[4 * groups : 4 * (groups + -(-(before + count) // 3))]
    return base64.b64decode(text, validate=True)[before : before + count]


def _head(stored: bytes, offset: int) -> tuple[int, int]:
    version, hashes, kind, bits = _HEAD.unpack(_decoded(stored, offset, _HEAD.size))
    if version != _VERSION or kind != _MURMUR or not 0 < hashes <= _HASHES_MAX or bits <= 0:
        raise ValueError("an unknown version or hash")
    return bits, hashes


def _simple(row: Bytes, bits: int, hashes: int) -> bytes:
    return _HEAD.pack(_VERSION, hashes, _MURMUR, bits) + row.tobytes()


# Each loop compiles in about 0.3 s.


@compiled
def _is_base64(text: Bytes) -> bool:
    wrong = np.uint8(0)
    for letter in text:
        alphabetic = np.uint8(np.uint8(letter | np.uint8(32)) - np.uint8(97)) < np.uint8(26)
        numeric = np.uint8(letter - np.uint8(47)) < np.uint8(11)  # "/" comes before "0"
        wrong = np.uint8(wrong | np.uint8(not (alphabetic | numeric | (letter == np.uint8(43)))))
    return not wrong


@compiled
def _add_record_key(rows: Bytes, row_of: Longs, places: npt.NDArray[np.int32]) -> None:
    for step in range(places.shape[0]):
        for key in range(places.shape[1]):
            bit = places[step, key]
            rows[row_of[key], bit >> 3] |= np.uint8(1 << (bit & 7))


# -- Bloom filters of values, in file indexes (format/column_index) --------------------------------
#
# probe i of a hash h is low(h) + i * high(h) in 32 bits, inverted if negative, modulo the number of bits


def mixed_numbers(numbers: Longs) -> Longs:
    """Return the 64-bit hash of each number (Thomas Wang's)."""
    mixed = ~numbers + (numbers << 21)
    mixed = mixed ^ (mixed >> 24)
    mixed = mixed + (mixed << 3) + (mixed << 8)
    mixed = mixed ^ (mixed >> 14)
    mixed = mixed + (mixed << 2) + (mixed << 4)
    mixed = mixed ^ (mixed >> 28)
    hashes: Longs = mixed + (mixed << 31)
    return hashes


def hashed_bytes(data: Bytes, offsets: Longs) -> Longs:
    """Return the 64-bit hash of each row of bytes (xxHash64, seed 0); n + 1 offsets for n rows."""
    hashes = np.empty(len(offsets) - 1, np.int64)
    _hash_bytes(address_of(data), read_only(offsets), hashes)
    return hashes


@compiled
def _rotated(word: np.uint64, count: int) -> np.uint64:
    return np.uint64((word << np.uint64(count)) | (word >> np.uint64(64 - count)))


@compiled
def _round(lane: np.uint64, word: np.uint64) -> np.uint64:
    lane = np.uint64(lane + word * np.uint64(14029467366897019727))
    return np.uint64(_rotated(lane, 31) * np.uint64(11400714785074694791))


@compiled
def _joined(mixed: np.uint64, lane: np.uint64) -> np.uint64:
    mixed = np.uint64(mixed ^ _round(np.uint64(0), lane))
    return np.uint64(mixed * np.uint64(11400714785074694791) + np.uint64(9650029242287828579))


@compiled
def _hash_tail(mixed: np.uint64, place: int, stop: int) -> np.uint64:
    first, second = np.uint64(11400714785074694791), np.uint64(14029467366897019727)
    third = np.uint64(1609587929392839161)
    while place + 8 <= stop:
        mixed = np.uint64(mixed ^ _round(np.uint64(0), np.uint64(load_u64(place))))
        mixed = np.uint64(_rotated(mixed, 27) * first + np.uint64(9650029242287828579))
        place += 8
    if place + 4 <= stop:
        mixed = np.uint64(mixed ^ (np.uint64(load_u32(place)) * first))
        mixed = np.uint64(_rotated(mixed, 23) * second + third)
        place += 4
    while place < stop:
        mixed = np.uint64(mixed ^ (np.uint64(load_u8(place)) * np.uint64(2870177450012600261)))
        mixed = np.uint64(_rotated(mixed, 11) * first)
        place += 1
    mixed = np.uint64((mixed ^ (mixed >> np.uint64(33))) * second)
    mixed = np.uint64((mixed ^ (mixed >> np.uint64(29))) * third)
    return np.uint64(mixed ^ (mixed >> np.uint64(32)))


@compiled_with(work=lambda data, offsets, hashes: len(hashes) + int(offsets[-1] - offsets[0]) // 4)
def _hash_bytes(data: int, offsets: Longs, hashes: Longs) -> None:
    first, second = np.uint64(11400714785074694791), np.uint64(14029467366897019727)
    for row in range(len(hashes)):
        place, stop = data + offsets[row], data + offsets[row + 1]
        size = stop - place
        mixed = np.uint64(2870177450012600261)
        if size >= 32:
            lane_1, lane_2 = np.uint64(first + second), second
            lane_3, lane_4 = np.uint64(0), np.uint64(np.uint64(0) - first)
            while place + 32 <= stop:
                lane_1 = _round(lane_1, np.uint64(load_u64(place)))
                lane_2 = _round(lane_2, np.uint64(load_u64(place + 8)))
                lane_3 = _round(lane_3, np.uint64(load_u64(place + 16)))
                lane_4 = _round(lane_4, np.uint64(load_u64(place + 24)))
                place += 32
            mixed = np.uint64(
                _rotated(lane_1, 1)
                + _rotated(lane_2, 7)
                + _rotated(lane_3, 12)
                + _rotated(lane_4, 18)
            )
            mixed = _joined(_joined(_joined(_joined(mixed, lane_1), lane_2), lane_3), lane_4)
        mixed = np.uint64(mixed + np.uint64(size))
        hashes[row] = np.int64(_hash_tail(mixed, place, stop))


@compiled
def _value_bit(hashed: int, probe: int, bit_count: int) -> Any:
    low = np.int64(np.int32(np.int64(hashed)))
    high = np.int64(np.int32(np.int64(hashed) >> 32))
    combined = np.int32(low + probe * high)
    if combined < 0:
        combined = ~combined
    return np.int64(combined) % bit_count


@compiled
def _add_values(bits: Bytes, probes: int, hashes: Longs) -> None:
    bit_count = 8 * len(bits)
    for row in range(len(hashes)):
        for probe in range(1, probes + 1):
            bit = _value_bit(hashes[row], probe, bit_count)
            bits[bit >> 3] |= np.uint8(1 << (bit & 7))


@compiled
def _probe_values(bits: Bytes, probes: int, hashes: Longs) -> bool:
    bit_count = 8 * len(bits)
    for row in range(len(hashes)):
        is_set = True
        for probe in range(1, probes + 1):
            bit = _value_bit(hashes[row], probe, bit_count)
            if not (bits[bit >> 3] >> np.uint8(bit & 7)) & 1:
                is_set = False
                break
        if is_set:
            return True
    return False


def build_value_bloom(hashes: Longs, *, items: int, fpp: float) -> tuple[Bytes, int]:
    """Return the bits of a filter sized for so many values, and how many of them each value sets."""
    size = int(-items * math.log(fpp) / (_LN2 * _LN2)) // 8 + 1
    probes = max(1, math.floor(8 * size / items * _LN2 + 0.5))
    bits = np.zeros(size, np.uint8)
    _add_values(bits, probes, hashes)
    return bits, probes


def may_hold_value(bits: Bytes, probes: int, hashes: Longs) -> bool:
    """Whether one of some values, by hash, may be among those added."""
    return bool(_probe_values(read_only(bits), probes, hashes))

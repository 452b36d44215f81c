"""Bloom filters of record keys in Parquet footers, as Hudi's specification has them.

footer keys   org.apache.hudi.bloomfilter (the filter, base64), hoodie_bloom_filter_type_code
              (SIMPLE or DYNAMIC_V0), hoodie_min_record_key, hoodie_max_record_key
SIMPLE        int32 -1, int32 hashes, byte 1 (murmur), int32 bits (all big-endian), then the bits,
              bit i in byte i / 8 at i % 8
DYNAMIC_V0    the same head, int32 keys a row, int32 keys in the last row, int32 rows, then each row
              as a SIMPLE filter; a key is in one of them
hash j        murmur2 of the key's UTF-8 bytes, seeded with hash j - 1 (0 at first); the bit is its
              remainder by the number of bits, made positive. Bytes behind the last word are
              sign-extended
"""

import base64
import binascii
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.modes import BloomFilterType
from lsm_engine.base.record import record
from lsm_engine.codec.bloom import read_only_longs
from lsm_engine.codec.byte_copies import read_only
from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs
from lsm_engine.kernels.compiled import compiled

BLOOM_KEY = b"org.apache.hudi.bloomfilter"
OLDER_BLOOM_KEY = b"com.uber.hoodie.bloomfilter"
TYPE_KEY = b"hoodie_bloom_filter_type_code"
MIN_KEY = b"hoodie_min_record_key"
MAX_KEY = b"hoodie_max_record_key"
Chains = npt.NDArray[np.int32]
_TYPES = {"SIMPLE": BloomFilterType.SIMPLE, "DYNAMIC_V0": BloomFilterType.DYNAMIC_V0}
_HEAD = struct.Struct(">iibi")
_ROWS = struct.Struct(">iii")
_VERSION, _MURMUR = -1, 1
_HASHES_MAX = 256
_LN2 = math.log(2)
_FIRST_HASHES = 8
_HASHED_KEYS = 1 << 16


@record
class RecordKeyBloom:
    """One or more rows of bits of one size. A key may be there if one row has all its bits."""

    bit_count: int
    hash_count: int
    rows: tuple[Bytes, ...]

    def may_hold(self, keys: "RecordKeys", asked: Longs | None = None) -> Bools:
        """Return which of the keys that `asked` numbers, or of all, may be there."""
        if asked is None:
            asked = np.arange(len(keys), dtype=np.int64)
        found = np.zeros(len(asked), np.bool_)
        places = keys.places(self.bit_count)
        shape = np.array([self.bit_count, self.hash_count], np.int64)
        for row in self.rows:
            _probe(read_only(row), shape, places, keys.first, keys.data, keys.offsets, asked, found)
        return found


class RecordKeys:
    """Record keys as filters are asked for them: their bytes, and the first hashes of each.

    Most absent keys are known by their first two or three bits; the other hashes are made where it
    comes to that. For one thread.
    """

    def __init__(self, data: Bytes, offsets: Longs) -> None:
        self.data = read_only(data)
        self.offsets = read_only_longs(offsets)
        self.first = hash_chains(data, offsets, _FIRST_HASHES)
        self._places = (0, self.first)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def places(self, bit_count: int) -> npt.NDArray[np.int32]:
        """Return where the first bits of keys are in a row of a filter of so many bits."""
        if self._places[0] != bit_count:
            self._places = bit_count, bit_places(self.first, bit_count)
        return self._places[1]


@record
class KeyFooter:
    """What a data file's footer holds about its record keys; None: nothing."""

    lowest: bytes | None
    highest: bytes | None
    bloom: RecordKeyBloom | None


def hash_chains(data: Bytes, offsets: Longs, hash_count: int) -> Chains:
    """Return the hashes of each key: a row of first hashes, one of second ones, and so on."""
    chains = np.empty((hash_count, len(offsets) - 1), np.int32)
    _chain(read_only(data), read_only_longs(offsets), chains)
    return chains


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
        _add(rows, row_of[start:stop], bit_places(chains, bits, out=chains))
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
    """Return what a footer holds. Without any of it the file is a candidate for every key.

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
        data = _from_base64(stored)
        bits, hashes = _head(data, 0)
        at, count = 0, 1
        if kind is BloomFilterType.DYNAMIC_V0:
            _, _, count = _ROWS.unpack_from(data, _HEAD.size)
            at = _HEAD.size + _ROWS.size
        size = -(-bits // 8)
        if count < 1 or len(data) != at + count * (_HEAD.size + size):
            raise ValueError("the size is not that of its rows")
        rows = []
        for _ in range(count):
            if _head(data, at) != (bits, hashes):
                raise ValueError("rows of several shapes")
            rows.append(np.frombuffer(data, np.uint8, size, at + _HEAD.size))
            at += _HEAD.size + size
    except (struct.error, ValueError, binascii.Error) as cause:
        raise CorruptFileError(
            f"the file's bloom filter is torn ({cause}); restore the file, or set 'index.type' = "
            "'simple'",
            file=file_name,
        ) from cause
    return RecordKeyBloom(bit_count=bits, hash_count=hashes, rows=tuple(rows))


def _from_base64(stored: bytes) -> bytes:
    """Return decoded bytes; ValueError for anything that is no base64. Filters are long."""
    whole = max(0, len(stored) - 4) & ~3
    out = np.empty(whole // 4 * 3, np.uint8)
    if not _decode_base64(np.frombuffer(stored, np.uint8, whole), _SIX_BITS, out):
        raise ValueError("not base64")
    return out.tobytes() + base64.b64decode(stored[whole:], validate=True)


def _six_bits() -> Bytes:
    table = np.full(256, 255, np.uint8)
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    table[np.frombuffer(letters, np.uint8)] = np.arange(64)
    return table


_SIX_BITS = read_only(_six_bits())


def _head(data: bytes, at: int) -> tuple[int, int]:
    version, hashes, kind, bits = _HEAD.unpack_from(data, at)
    if version != _VERSION or kind != _MURMUR or not 0 < hashes <= _HASHES_MAX or bits <= 0:
        raise ValueError("an unknown version or hash")
    return bits, hashes


def _simple(row: Bytes, bits: int, hashes: int) -> bytes:
    return _HEAD.pack(_VERSION, hashes, _MURMUR, bits) + row.tobytes()


# Each loop compiles in about 0.3 s.


@compiled
def _word(data: Bytes, at: Any) -> np.uint32:
    word = np.uint32(0)
    for byte in range(4):
        word = np.uint32(word | np.uint32(np.uint32(data[at + byte]) << np.uint32(8 * byte)))
    return word


@compiled
def _murmur(data: Bytes, start: Any, stop: Any, seed: np.uint32) -> np.uint32:
    mult = np.uint32(0x5BD1E995)
    whole = start + ((stop - start) & ~3)
    mixed = np.uint32(seed ^ np.uint32(stop - start))
    for at in range(start, whole, 4):
        word = np.uint32(_word(data, at) * mult)
        word = np.uint32(np.uint32(word ^ (word >> np.uint32(24))) * mult)
        mixed = np.uint32(np.uint32(mixed * mult) ^ word)
    left = stop - whole
    if left > 0:
        for byte in range(left):
            # The last byte unshifted, those before it further up.
            piece = np.uint32(np.int32(np.int8(data[stop - 1 - byte])))
            mixed = np.uint32(mixed ^ np.uint32(piece << np.uint32(8 * byte)))
        mixed = np.uint32(mixed * mult)
    mixed = np.uint32(np.uint32(mixed ^ (mixed >> np.uint32(13))) * mult)
    return np.uint32(mixed ^ (mixed >> np.uint32(15)))


@compiled
def _chain(data: Bytes, offsets: Longs, chains: Chains) -> None:
    for row in range(chains.shape[1]):
        seed = np.uint32(0)
        for step in range(chains.shape[0]):
            seed = _murmur(data, offsets[row], offsets[row + 1], seed)
            chains[step, row] = np.int32(seed)


@compiled
def _decode_base64(text: Bytes, six_bits: Bytes, out: Bytes) -> bool:
    wrong = np.uint8(0)
    for group in range(len(text) // 4):
        a, b = six_bits[text[4 * group]], six_bits[text[4 * group + 1]]
        c, d = six_bits[text[4 * group + 2]], six_bits[text[4 * group + 3]]
        wrong |= a | b | c | d
        out[3 * group] = np.uint8((a << np.uint8(2)) | (b >> np.uint8(4)))
        out[3 * group + 1] = np.uint8((b << np.uint8(4)) | (c >> np.uint8(2)))
        out[3 * group + 2] = np.uint8((c << np.uint8(6)) | d)
    return int(wrong) < 64


@compiled
def _add(rows: Bytes, row_of: Longs, places: npt.NDArray[np.int32]) -> None:
    for step in range(places.shape[0]):
        for key in range(places.shape[1]):
            at = places[step, key]
            rows[row_of[key], at >> 3] |= np.uint8(1 << (at & 7))


@compiled
def _probe(
    bits: Bytes,
    shape: Longs,
    places: npt.NDArray[np.int32],
    first: Chains,
    data: Bytes,
    offsets: Longs,
    asked: Longs,
    found: Bools,
) -> None:
    bit_count, hash_count = shape[0], shape[1]
    known = min(hash_count, places.shape[0])
    for row in range(len(asked)):
        if found[row]:
            continue
        key = asked[row]
        held = True
        for step in range(known):
            at: Any = places[step, key]
            if not (bits[at >> 3] >> np.uint8(at & 7)) & 1:
                held = False
                break
        if held and hash_count > known:
            seed = np.uint32(first[known - 1, key])
            for _ in range(known, hash_count):
                seed = _murmur(data, offsets[key], offsets[key + 1], seed)
                at = abs(np.int64(np.int32(seed))) % bit_count
                if not (bits[at >> 3] >> np.uint8(at & 7)) & 1:
                    held = False
                    break
        found[row] = held

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

import numpy as np
import numpy.typing as npt

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.modes import BloomFilterType
from lsm_engine.base.record import record
from lsm_engine.codec.record_key_probing import Chains, RecordKeyBloom, hash_chains
from lsm_engine.kernels.arrow_views import Bytes, Longs
from lsm_engine.kernels.compiled import compiled

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
_LN2 = math.log(2)
_HASHED_KEYS = 1 << 16


@record
class KeyFooter:
    """What a data file's footer holds about its record keys; None: nothing."""

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
def _add(rows: Bytes, row_of: Longs, places: npt.NDArray[np.int32]) -> None:
    for step in range(places.shape[0]):
        for key in range(places.shape[1]):
            bit = places[step, key]
            rows[row_of[key], bit >> 3] |= np.uint8(1 << (bit & 7))

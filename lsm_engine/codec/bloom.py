"""Bloom filter bits as lookup files store them (format section 17), built and probed by batches.

bytes    ceil(trunc(-n ln fpp / ln2²) / 8), bit i is bit i % 8 of byte i / 8
hash     murmur3 (seed 42) of the key; bytes behind the last word are sign-extended words
probe i  c = hash + i * (hash >>> 16) in 32 bits, inverted if negative, modulo the number of bits
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.codec.byte_copies import read_only
from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs
from lsm_engine.kernels.compiled import compiled

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
    _hash(read_only(data), read_only_longs(offsets), hashes)
    return hashes


def read_only_longs(values: Longs) -> Longs:
    """Return a view that cannot be written: compiled code is one per (type, writeable) pair."""
    view: Any = values.view()
    view.flags.writeable = False
    words: Longs = view
    return words


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

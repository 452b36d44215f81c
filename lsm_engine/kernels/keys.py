"""Order-preserving keys: any list of columns as unsigned words, with bytes where words tie.

The bytes are the memcomparable form that key_encoding describes; the words are its first sixteen
bytes. One fixed-width column, or several that fit eight bytes together, is a single word.
"""

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bytes, Column, Longs, Words, address_of
from lsm_engine.kernels.compiled import compiled, load_u8, load_u64
from lsm_engine.kernels.key_encoding import FixedPart, joined, parts_of

_NO_WORDS: Words = np.zeros(0, np.uint64)
_NO_BYTES: Bytes = np.zeros(0, np.uint8)
_NO_OFFSETS: Longs = np.zeros(0, np.int64)

ONE_WORD = 1
TWO_WORDS = 2
WORDS_AND_BYTES = 3


@record
class SortKeys:
    """The keys of n rows. Unsigned comparison of the parts that are present, in order, decides.

    `prefix` is bytes 0 to 7 of the memcomparable form, big-endian, zero padded; `second` bytes 8 to
    15, absent (empty) where 8 bytes hold every key; `data` and `offsets` (n + 1) the whole form,
    absent where 16 bytes hold every key. Zero-padded words tie for "a" and "a\\0": the bytes decide.
    """

    prefix: Words
    second: Words = field(default_factory=lambda: _NO_WORDS)
    data: Bytes = field(default_factory=lambda: _NO_BYTES)
    offsets: Longs = field(default_factory=lambda: _NO_OFFSETS)
    width: int = 0  # bytes of every key, where the words hold all of it

    def __len__(self) -> int:
        return len(self.prefix)

    @property
    def form(self) -> int:
        """ONE_WORD, TWO_WORDS or WORDS_AND_BYTES."""
        if len(self.offsets):
            return WORDS_AND_BYTES
        # No key has bytes, so any form will do.
        return TWO_WORDS if len(self.second) else ONE_WORD

    def slice(self, start: int, stop: int) -> "SortKeys":
        """Return rows start to stop, without copying."""
        return SortKeys(
            prefix=self.prefix[start:stop],
            second=self.second[start:stop],
            data=self.data,
            offsets=self.offsets[start : stop + 1],
            width=self.width,
        )

    def bytes_of(self, row: int) -> bytes:
        """Return the memcomparable form of one row."""
        if len(self.offsets):
            return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()
        words = [self.prefix[row], *self.second[row : row + 1]]
        return b"".join(int(word).to_bytes(8, "big") for word in words)[: self.width]


def sort_keys(
    columns: Sequence[Column], *, nullable: bool = False, descending: bool = False
) -> SortKeys:
    """Return the keys of rows, one row per position of the columns.

    Without `nullable` no column may hold a null. With it nulls sort first, also when descending,
    and keys of columns with and without nulls compare with each other.
    Raises UnsupportedError for types that have no order (nested ones).
    """
    parts = parts_of(columns, nullable=nullable, descending=descending)
    widths = [part.width for part in parts if isinstance(part, FixedPart)]
    if len(widths) == len(parts) and sum(widths) <= 16:
        return _packed([part for part in parts if isinstance(part, FixedPart)], sum(widths))
    data, offsets = joined(parts)
    prefix, second = words_from(data, offsets, 0)
    return SortKeys(prefix=prefix, second=second, data=data, offsets=offsets)


def key_bytes(
    columns: Sequence[Column], *, nullable: bool = False, descending: bool = False
) -> pa.Array:
    """Return the memcomparable form of rows as a binary array."""
    data, offsets = joined(parts_of(columns, nullable=nullable, descending=descending))
    encoded = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return encoded.cast(pa.binary()) if len(data) < 2**31 else encoded


def lower_bound(keys: SortKeys, bound: bytes) -> int:
    """Return the first row of sorted keys that is not below `bound` (memcomparable bytes)."""
    return _bound(keys, bound, past_equal=False)


def upper_bound(keys: SortKeys, bound: bytes) -> int:
    """Return the first row of sorted keys that is above `bound` (memcomparable bytes)."""
    return _bound(keys, bound, past_equal=True)


def _bound(keys: SortKeys, bound: bytes, *, past_equal: bool) -> int:
    # Two binary searches over words, then one over the few rows whose words tie.
    low, high = 0, len(keys)
    padded = bound[:16].ljust(16, b"\0")
    for words, offset in ((keys.prefix, 0), (keys.second, 8)):
        if not len(words):
            break
        word = np.uint64(int.from_bytes(padded[offset : offset + 8], "big"))
        tied = words[low:high]
        low, high = (
            low + int(np.searchsorted(tied, word, side="left")),
            low + int(np.searchsorted(tied, word, side="right")),
        )
    if not len(keys.offsets):
        return high if past_equal else low
    while low < high:
        middle = (low + high) // 2
        middle_key = keys.bytes_of(middle)
        if middle_key < bound or (past_equal and middle_key == bound):
            low = middle + 1
        else:
            high = middle
    return low


def _packed(parts: Sequence[FixedPart], width: int) -> SortKeys:
    if width <= 8:
        word = parts[0].values if parts else _NO_WORDS
        for part in parts[1:]:
            word = (word << np.uint64(8 * part.width)) | part.values
        first = word if width == 8 else word << np.uint64(64 - 8 * width)
        return SortKeys(prefix=first, width=width)
    high = np.zeros(len(parts[0].values), np.uint64)
    low = high
    for part in parts:
        high, low = _pushed(high, low, part.values, 8 * part.width)
    if width < 16:
        high, low = _pushed(high, low, np.zeros_like(low), 128 - 8 * width)
    return SortKeys(prefix=high, second=low, width=width)


def _pushed(high: Words, low: Words, values: Words, bits: int) -> tuple[Words, Words]:
    """Shift a 128-bit number left and put `values` of at most 64 bits into the gap."""
    if bits == 64:
        return low, values
    shift, complement = np.uint64(bits), np.uint64(64 - bits)
    return (high << shift) | (low >> complement), (low << shift) | values


def words_from(data: Bytes, offsets: Longs, skipped: int) -> tuple[Words, Words]:
    """Return bytes `skipped` to `skipped` + 15 of each row as two big-endian words."""
    first, second = (np.empty(len(offsets) - 1, np.uint64) for _ in range(2))
    _fill_words(address_of(data), len(data), offsets, skipped, first, second)
    return first, second


@compiled
def _word_at(data: int, size: int, start: int, stop: int) -> np.uint64:
    """Return eight bytes from `start`, big-endian, zeros in place of what lies at or past `stop`."""
    length = stop - start
    if length <= 0:
        return np.uint64(0)
    if start + 8 > size:  # the last few bytes of all: one by one
        word = np.uint64(0)
        for index in range(start, stop):
            word |= np.uint64(load_u8(data + index)) << np.uint64(56 - 8 * (index - start))
        return word
    word = np.uint64(load_u64(data + start))
    byte_mask, pairs = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
    eight, sixteen, half = np.uint64(8), np.uint64(16), np.uint64(32)
    word = ((word >> eight) & byte_mask) | ((word & byte_mask) << eight)
    word = ((word >> sixteen) & pairs) | ((word & pairs) << sixteen)
    word = (word >> half) | (word << half)
    if length < 8:
        unused_bits = np.uint64(8 * (8 - length))
        word = (word >> unused_bits) << unused_bits
    return word


@compiled
def _fill_words(
    data: int, size: int, offsets: Longs, skipped: int, first: Words, second: Words
) -> None:
    for row in range(len(first)):
        start, stop = offsets[row] + skipped, offsets[row + 1]
        first[row] = _word_at(data, size, start, stop)
        second[row] = _word_at(data, size, start + 8, stop)

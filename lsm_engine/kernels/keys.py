"""Order-preserving keys: any list of columns as unsigned words, with bytes where words tie.

The bytes are the memcomparable form that key_encoding describes; the words are its first sixteen
bytes. One fixed-width column, or several that fit eight bytes together, is a single word."""

from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import (
    Bools,
    Bytes,
    Column,
    Longs,
    Words,
    address_of,
    binary_values,
    bool_values,
    fixed_values,
    is_text_or_binary,
    one_array,
    valid_rows,
)
from lsm_engine.kernels.compiled import compiled, compiled_with, copy_bytes, load_u8, load_u64

# -- The memcomparable form of rows ----------------------------------------------------------------
#
# Any list of columns as bytes whose unsigned order is the rows'.
#
# The memcomparable form of a row is the concatenation, column by column, of
#
#     (nullable keys only) 00 for null, 01 otherwise; a null value's own bytes are zero or empty
#     bool                           1 byte, 0 or 1
#     signed integers, date, time,   their width in bytes, big-endian, sign bit flipped
#       timestamps (in their unit)
#     unsigned integers              their width in bytes, big-endian
#     float, double                  IEEE bits, big-endian: negative ones inverted, others with the
#                                    sign bit flipped; -0.0 as 0.0, every NaN as the greatest value
#     decimal                        unscaled value as a signed integer: 8 bytes up to precision 18,
#                                    16 bytes beyond
#     string, binary, last column    the bytes themselves
#     string, binary, elsewhere      00 as 01 01, 01 as 01 02, other bytes themselves; then 00
#                                    (so that a shorter value sorts first and no value is a prefix)
#
# A descending key inverts every byte after the null marker, and then ends its last column like
# the others. format/binary_row.py gives the same bytes for a stored row.

_NO_WORDS: Words = np.zeros(0, np.uint64)
_COMPACT_DECIMAL = 18


@record
class FixedPart:
    """A column of unsigned values of `width` bytes, right-aligned in words."""

    values: Words
    width: int


@record
class TextPart:
    """A column of byte strings; null rows are empty."""

    data: Bytes
    offsets: Longs
    descending: bool


Part: TypeAlias = FixedPart | TextPart


# --- columns → parts -----------------------------------------------------------------------------


def parts_of(columns: Sequence[Column], *, nullable: bool, descending: bool) -> list[Part]:
    """Return the columns of rows as what their memcomparable form is made of, in order."""
    parts: list[Part] = []
    for column in columns:
        array = one_array(column)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        valid = valid_rows(array)
        assert nullable or valid is None, "a key column holds a null"
        if nullable:
            marks = np.ones(len(array), np.uint64) if valid is None else valid.astype(np.uint64)
            parts.append(FixedPart(values=marks, width=1))
        encoded = _encoded(array, descending=descending)
        parts += encoded if valid is None else [_without_nulls(part, valid) for part in encoded]
    return parts


def _without_nulls(part: Part, valid: Bools) -> Part:
    if isinstance(part, FixedPart):
        return FixedPart(values=np.where(valid, part.values, np.uint64(0)), width=part.width)
    return part  # binary columns have had their nulls made empty


def _encoded(array: pa.Array, *, descending: bool) -> list[Part]:
    kind = array.type
    if pa.types.is_boolean(kind):
        return [_fixed(bool_values(array).astype(np.uint64), 1, descending=descending)]
    if pa.types.is_decimal(kind):
        return _decimal(array, descending=descending)
    if pa.types.is_floating(kind):
        return [_floating(array, descending=descending)]
    if pa.types.is_unsigned_integer(kind):
        width = kind.bit_width // 8
        words = fixed_values(array, f"u{width}").astype(np.uint64)
        return [_fixed(words, width, descending=descending)]
    if pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind):
        if not pa.types.is_interval(kind):
            return [_signed(array, kind.bit_width // 8, descending=descending)]
    elif _is_binary(kind):
        # A null row may cover any bytes, so it is made empty.
        if array.null_count:
            array = array.cast(pa.large_binary()).fill_null(b"")
        data, offsets = binary_values(array)
        return [TextPart(data=data, offsets=offsets, descending=descending)]
    raise UnsupportedError(
        f"values of Arrow type {kind} have no order; they cannot be a key or a sequence field",
        kind=ErrorKind.UNSUPPORTED_TYPE,
        type=str(kind),
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        is_text_or_binary(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _fixed(values: Words, width: int, *, descending: bool) -> FixedPart:
    if descending:
        values = values ^ np.uint64((1 << (8 * width)) - 1)
    return FixedPart(values=values, width=width)


def _signed(array: pa.Array, width: int, *, descending: bool) -> FixedPart:
    raw = fixed_values(array, f"u{width}").astype(np.uint64)
    return _fixed(raw ^ np.uint64(1 << (8 * width - 1)), width, descending=descending)


def _floating(array: pa.Array, *, descending: bool) -> FixedPart:
    width = array.type.bit_width // 8
    values = fixed_values(array, f"f{width}")
    # A NaN has many bit patterns and shall have one; adding zero turns -0.0 into 0.0.
    values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values) + 0
    bits = np.ascontiguousarray(values).view(f"u{width}").astype(np.uint64)
    sign = np.uint64(1 << (8 * width - 1))
    mask = np.uint64((1 << (8 * width)) - 1)
    words = np.where(bits & sign, bits ^ mask, bits | sign)
    return _fixed(words, width, descending=descending)


def _decimal(array: pa.Array, *, descending: bool) -> list[Part]:
    if array.type.precision > 38:
        raise UnsupportedError(
            "decimals beyond 38 digits have no table type",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            type=str(array.type),
        )
    if not pa.types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    data = array.buffers()[1]
    count = 2 * (array.offset + len(array))
    raw = np.frombuffer(data, np.uint64, count=count) if data is not None else _NO_WORDS
    pairs = raw[2 * array.offset :].reshape(-1, 2) if len(array) else raw[:0].reshape(-1, 2)
    sign = np.uint64(1 << 63)
    # Numbers of at most 18 digits fit into the low half.
    if array.type.precision <= _COMPACT_DECIMAL:
        return [_fixed(pairs[:, 0] ^ sign, 8, descending=descending)]
    high = _fixed(pairs[:, 1] ^ sign, 8, descending=descending)
    return [high, _fixed(pairs[:, 0].copy(), 8, descending=descending)]


# --- parts → bytes --------------------------------------------------------------------------------


def joined(parts: Sequence[Part]) -> tuple[Bytes, Longs]:
    """Return the concatenated encodings of all rows and n + 1 offsets into them."""
    last = parts[-1]
    # A text that ends the key needs no end mark, so its bytes are the encoding.
    if len(parts) == 1 and isinstance(last, TextPart) and not last.descending:
        return last.data, last.offsets
    fixed = [part for part in parts if isinstance(part, FixedPart)]
    if len(fixed) == len(parts):
        return _joined_fixed(fixed)
    texts = [_ended(part, last) for part in parts if isinstance(part, TextPart)]
    offsets = np.zeros(len(texts[0].offsets), np.int64)
    lengths = offsets[1:]
    lengths += sum(part.width for part in fixed)
    for text in texts:
        lengths += text.lengths()
    np.cumsum(lengths, out=lengths)
    data = np.empty(int(offsets[-1]), np.uint8)
    cursors = offsets[:-1].copy()
    for part in parts:
        if isinstance(part, FixedPart):
            _put_fixed(data, cursors, part.values, part.width)
        else:
            text = texts.pop(0)
            mask = 0xFF if part.descending else 0
            _put_text(data, address_of(data), cursors, text.parts, mask)
    return data, offsets


@record
class _EndedText:
    """How a text column is written: with a terminator or bare, and whether bytes need escapes."""

    data: Bytes
    offsets: Longs
    ended: bool
    escaped: bool

    @property
    def parts(self) -> "_TextParts":
        """The text as compiled loops take it."""
        return _TextParts(self.data, address_of(self.data), self.offsets, self.ended, self.escaped)

    def lengths(self) -> Longs:
        """Return the encoded length of each row."""
        sizes: Longs = np.diff(self.offsets) + int(self.ended)
        if self.escaped:
            _add_escapes(sizes, self.data, self.offsets)
        return sizes


def _ended(part: TextPart, last: Part) -> _EndedText:
    ended = part is not last or part.descending
    # Hardly any text holds the bytes that need an escape, and one look at all of it is cheap.
    used = part.data[part.offsets[0] : part.offsets[-1]]
    escaped = ended and len(used) > 0 and int(used.min()) <= 1
    return _EndedText(data=part.data, offsets=part.offsets, ended=ended, escaped=escaped)


def _joined_fixed(parts: Sequence[FixedPart]) -> tuple[Bytes, Longs]:
    count = len(parts[0].values)
    columns = [
        part.values.astype(">u8").view(np.uint8).reshape(count, 8)[:, 8 - part.width :]
        for part in parts
    ]
    data = np.ascontiguousarray(np.hstack(columns)).reshape(-1)
    width = sum(part.width for part in parts)
    return data, np.arange(count + 1, dtype=np.int64) * width


# The kernels below compile in well under a second each, and only for keys that are or hold text.


@compiled
def _add_escapes(lengths: Longs, data: Bytes, offsets: Longs) -> None:
    for row in range(len(lengths)):
        for index in range(offsets[row], offsets[row + 1]):
            lengths[row] += data[index] <= 1


class _TextParts(NamedTuple):
    """A text column, as `_EndedText` has it, and the address of its bytes."""

    data: Bytes
    address: int
    offsets: Longs
    ended: bool
    escaped: bool


def _text_steps(target: Bytes, to: int, cursors: Longs, text: _TextParts, mask: int) -> int:
    """Return the work of `_put_text`: rows that are copied as they are, or else bytes."""
    return len(target if text.escaped or mask else cursors)


@compiled_with(work=_text_steps)
def _put_text(target: Bytes, to: int, cursors: Longs, text: _TextParts, mask: int) -> None:
    """Write the text of every row at its cursor; `to` is the target's address."""
    data, source, offsets, ended, escaped = text
    is_copied = not escaped and mask == 0
    for row in range(len(cursors)):
        cursor, start, stop = cursors[row], offsets[row], offsets[row + 1]
        if is_copied:
            copy_bytes(to + cursor, source + start, stop - start)
            cursor += stop - start
            start = stop
        for index in range(start, stop):
            byte = data[index]
            if escaped and byte <= 1:
                target[cursor] = 1 ^ mask
                byte += 1
                cursor += 1
            target[cursor] = byte ^ mask
            cursor += 1
        if ended:
            target[cursor] = mask
            cursor += 1
        cursors[row] = cursor


@compiled
def _put_fixed(target: Bytes, cursors: Longs, values: Words, width: int) -> None:
    for row in range(len(cursors)):
        cursor, value = cursors[row], values[row]
        for byte in range(width):
            target[cursor + byte] = np.uint8(value >> np.uint64(8 * (width - 1 - byte)))
        cursors[row] = cursor + width


# -- Order-preserving keys as unsigned words -------------------------------------------------------

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

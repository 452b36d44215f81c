"""Codec of the BinaryRow layout (format section 6): Arrow columns to and from row bytes.

A *stored row* is a 4-byte big-endian arity and the row; a hash is of the row alone. The decoder checks every bound
before it uses a byte."""

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError, ErrorKind, InvalidInputError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.format.arrow_buffers import (
    Pieces,
    binary_array,
    fixed_array,
    gather_pieces,
    offsets_of,
    place_pieces,
    read_only,
    words_at,
)
from lsm_engine.kernels.arrow_views import (
    Bools,
    Bytes,
    Longs,
    Words,
    binary_values,
    fixed_values,
    is_text_or_binary,
    one_array,
    valid_rows,
)
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.types import BINARY, TEXT, TIMESTAMPS, DataType, Root, ScalarType, type_text

# -- Columns ⇄ the 8-byte slots of BinaryRow -------------------------------------------------------
#
# Fixed-width values, wide decimals, wide timestamps.

_UNSIGNED: dict[Root, npt.DTypeLike] = {
    Root.TINYINT: np.uint8, Root.SMALLINT: np.uint16, Root.INT: np.uint32, Root.DATE: np.uint32,
    Root.TIME: np.uint32, Root.FLOAT: np.uint32, Root.BIGINT: np.uint64, Root.DOUBLE: np.uint64,
}  # fmt: skip
NARROW_DECIMAL_DIGITS = 18
_NANOS_PER_MILLI = 1_000_000


def is_pieces(kind: ScalarType) -> bool:
    """Whether values are bytes of any length: strings and binary."""
    return kind.root in TEXT or kind.root in BINARY


def is_wide_decimal(kind: ScalarType) -> bool:
    """Whether a decimal does not fit into a slot."""
    return kind.root is Root.DECIMAL and (kind.precision or 0) > NARROW_DECIMAL_DIGITS


def is_wide_timestamp(kind: ScalarType) -> bool:
    """Whether a timestamp is finer than milliseconds and so does not fit into a slot."""
    return kind.root in TIMESTAMPS and (kind.precision or 0) > 3


def is_in_slot(kind: DataType) -> bool:
    """Whether a value of the type always fits into its 8-byte slot."""
    return isinstance(kind, ScalarType) and not (
        is_pieces(kind) or is_wide_decimal(kind) or is_wide_timestamp(kind)
    )


def scalar(kind: DataType) -> ScalarType:
    """Return a type that has a binary form here; nested ones raise UnsupportedError."""
    if not isinstance(kind, ScalarType):
        raise UnsupportedError(
            f"values of type {type_text(kind)} have no row form in this version",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            type=type_text(kind),
        )
    return kind


def stored_column(column: pa.Array | pa.ChunkedArray, kind: ScalarType) -> pa.Array:
    """Return the column as one array of the type's Arrow type; casts must not lose anything."""
    array = one_array(column)
    target = arrow_type(kind)
    if array.type == target or (is_pieces(kind) and is_text_or_binary(array.type)):
        return array
    try:
        return array.cast(target)
    except pa.ArrowInvalid as cause:
        raise InvalidInputError(
            f"values of Arrow type {array.type} do not fit {type_text(kind)}",
            type=type_text(kind),
        ) from cause


def slot_words(array: pa.Array, kind: ScalarType) -> Words:
    """Return the slot of every row of an in-slot column; unspecified where null."""
    words: Words
    if kind.root is Root.BOOLEAN:
        words = fixed_values(array.cast(pa.uint8()), np.uint8).astype(np.uint64)
    elif kind.root is Root.DECIMAL:
        words = np.ascontiguousarray(fixed_values(array, np.uint64, per_row=2)[::2])
    elif kind.root in TIMESTAMPS:
        words = fixed_values(array, np.uint64)
    else:
        words = fixed_values(array, _UNSIGNED[kind.root]).astype(np.uint64, copy=False)
    return words


def slot_column(words: Words, kind: ScalarType, valid: Bools | None) -> pa.Array:
    """Return the column whose slots are `words`: `slot_words` turned round."""
    target = arrow_type(kind)
    if kind.root is Root.BOOLEAN:
        return fixed_array(words.astype(np.uint8), pa.uint8(), valid).cast(target)
    if kind.root is Root.DECIMAL:
        pairs = np.empty((len(words), 2), np.uint64)
        pairs[:, 0] = words
        pairs[:, 1] = (words.view(np.int64) >> 63).view(np.uint64)
        return fixed_array(pairs.reshape(-1), target, valid)
    if kind.root in TIMESTAMPS:
        return fixed_array(words, target, valid)
    return fixed_array(words.astype(_UNSIGNED[kind.root]), target, valid)


def millis_and_nanos(array: pa.Array) -> tuple[Longs, Longs]:
    """Return epoch milliseconds and the nanoseconds within, from a us or ns timestamp column."""
    ticks: Longs = fixed_values(array, np.int64)
    if array.type.unit == "us":
        millis = ticks // 1000
        return millis, (ticks - millis * 1000) * 1000
    millis = ticks // _NANOS_PER_MILLI
    return millis, ticks - millis * _NANOS_PER_MILLI


def timestamp_column(
    millis: Longs, nanos: Longs, kind: ScalarType, valid: Bools | None
) -> pa.Array:
    """Return a us or ns timestamp column; raises UnsupportedError where Arrow cannot hold a value."""
    target = arrow_type(kind)
    per_milli, nanos_per_tick = (1000, 1000) if target.unit == "us" else (_NANOS_PER_MILLI, 1)
    limit = (2**63 - 1) // per_milli - 1
    valid_millis = millis if valid is None else millis[valid]
    if len(valid_millis) and (int(valid_millis.max()) > limit or int(valid_millis.min()) < -limit):
        raise UnsupportedError(
            f"a stored {type_text(kind)} lies outside what Arrow's {target} holds",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            type=type_text(kind),
        )
    return fixed_array(millis * per_milli + nanos // nanos_per_tick, target, valid)


def big_endian_decimals(array: pa.Array) -> tuple[Words, Longs]:
    """Return decimals as minimal big-endian two's complement bytes, zero filled behind.

    The result has two words (16 bytes) per row, and the byte counts, at least 1 each.
    """
    pairs = fixed_values(array, np.uint64, per_row=2).reshape(-1, 2)
    # High word first, each with its most significant byte first in memory.
    memory = np.ascontiguousarray(pairs[:, ::-1]).byteswap()
    octets = memory.view(np.uint8).reshape(-1, 16)
    sign = np.where(octets[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    differs = octets != sign
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    # The first byte that is kept must show the sign.
    leading = octets[np.arange(len(octets)), first]
    first = np.where((first > 0) & ((leading >= 0x80) != (sign[:, 0] >= 0x80)), first - 1, first)
    columns = np.minimum(first[:, None] + np.arange(16), 16)
    padded = np.concatenate([octets, np.zeros((len(octets), 1), np.uint8)], axis=1)
    shifted = np.ascontiguousarray(np.take_along_axis(padded, columns, axis=1))
    return shifted.view(np.uint64), (16 - first).astype(np.int64)


def decimal_column(
    data: Bytes, starts: Longs, lengths: Longs, kind: pa.DataType, valid: Bools | None
) -> pa.Array:
    """Return decimals from big-endian two's complement pieces of 1 to 16 bytes of `data`.

    The caller has checked bounds. Values of more digits than `kind` has raise pa.ArrowInvalid.
    """
    ends = starts + lengths
    padded = np.concatenate([np.zeros(16, np.uint8), data])  # so that 16 bytes end at any end
    windows = np.lib.stride_tricks.sliding_window_view(padded, 16)
    octets = windows[ends].copy()
    place = np.arange(16)[None, :]
    first = (16 - lengths)[:, None]
    top = octets[np.arange(len(octets)), np.minimum(16 - lengths, 15)]
    fill = np.where((top >= 0x80) & (lengths > 0), np.uint8(0xFF), np.uint8(0))[:, None]
    octets = np.where(place < first, fill, octets)
    little = np.ascontiguousarray(octets[:, ::-1])
    array = fixed_array(little.reshape(-1), kind, valid)
    array.validate(full=True)
    return array


# -- How prepared columns become rows: slots, null bits, variable parts (format section 6) ---------

Column: TypeAlias = pa.Array | pa.ChunkedArray


@record
class EncodedRows:
    """Rows one behind the other: row i is `data[offsets[i]:offsets[i + 1]]`, a multiple of 8 long."""

    data: Bytes
    offsets: Longs

    def row(self, index: int) -> bytes:
        """Return the bytes of one row."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()


def header_bytes(arity: int) -> int:
    """Return how many bytes the row kind and the null bits of a row take."""
    return ((arity + 8 + 63) // 64) * 8


@record
class Part:
    """One encoded column. `size`: variable bytes per row, None when every value is in its slot."""

    kind: ScalarType | None  # None: nested or absent, null in every row
    valid: Bools | None
    size: Longs | None
    words: Words | None = None
    pieces: Bytes | None = None
    offsets: Longs | None = None
    lengths: Longs | None = None
    nanos: Longs | None = None


def part_of(column: Column, kind: DataType, *, reserve_null_wide: bool) -> Part:
    """Return one column, encoded; nested types only if every row is null."""
    if not isinstance(kind, ScalarType) and column.null_count == len(column):
        return Part(kind=None, valid=np.zeros(len(column), np.bool_), size=None)
    kind = scalar(kind)
    array = stored_column(column, kind)
    valid = valid_rows(array)
    if is_in_slot(kind):
        return Part(kind=kind, valid=valid, size=None, words=slot_words(array, kind))
    if is_pieces(kind):
        content, offsets = binary_values(array)
        lengths = np.diff(offsets)
        size = np.where(lengths > 7, (lengths + 7) & ~7, 0)
        if valid is not None:
            size[~valid] = 0
        return Part(kind=kind, valid=valid, size=size, pieces=content, offsets=offsets)
    reserved = 16 if is_wide_decimal(kind) else 8
    size = np.full(len(array), reserved, np.int64)
    if valid is not None and not reserve_null_wide:
        size[~valid] = 0
    if is_wide_decimal(kind):
        octets, lengths = big_endian_decimals(array)
        return Part(kind=kind, valid=valid, size=size, words=octets, lengths=lengths)
    millis, nanos = millis_and_nanos(array)
    return Part(kind=kind, valid=valid, size=size, words=millis.view(np.uint64), nanos=nanos)


def _null_bit(field: int) -> tuple[int, np.uint64]:
    """Return the header word and the bit in it that marks a field as null."""
    return (field + 8) // 64, np.uint64(1 << ((field + 8) % 64))


def even_rows(parts: Sequence[Part], count: int) -> EncodedRows:
    """Rows of one size: a table of words, filled column by column."""
    header = header_bytes(len(parts)) // 8
    width = header + len(parts)
    table = np.zeros((count, width), np.uint64)
    for field, part in enumerate(parts):
        if part.words is not None:
            table[:, header + field] = part.words
        if part.valid is not None:
            word, bit = _null_bit(field)
            table[~part.valid, word] |= bit
            table[~part.valid, header + field] = 0
    offsets = np.arange(count + 1, dtype=np.int64) * (width * 8)
    return EncodedRows(data=table.reshape(-1).view(np.uint8), offsets=offsets)


def ragged_rows(parts: Sequence[Part], count: int) -> EncodedRows:
    """Rows of unequal sizes: every column is scattered to where its rows lie."""
    header = header_bytes(len(parts))
    fixed = header + 8 * len(parts)
    sizes = np.full(count, fixed, np.int64)
    for part in parts:
        if part.size is not None:
            sizes += part.size
    offsets = offsets_of(sizes)
    starts = offsets[:-1]
    words = np.zeros(int(offsets[-1]) // 8, np.uint64)
    cursors = np.full(count, fixed, np.int64)
    for field, part in enumerate(parts):
        if part.valid is not None:
            word, bit = _null_bit(field)
            words[starts[~part.valid] // 8 + word] |= bit
        _place(part, words, starts, header + 8 * field, cursors)
    return EncodedRows(data=words.view(np.uint8), offsets=offsets)


def _place(part: Part, words: Words, starts: Longs, slot: int, cursors: Longs) -> None:
    """Write the slots and variable parts of a column; move the cursors behind them."""
    valid = np.ones(len(starts), np.bool_) if part.valid is None else part.valid
    if part.pieces is not None and part.offsets is not None:
        target = words.view(np.uint8)
        pieces = Pieces(read_only(part.pieces), part.offsets, valid)
        place_pieces(pieces, target, starts, slot, cursors)
        return
    if part.words is None:
        return
    slots = (starts + slot) // 8
    if part.size is None:
        words[slots[valid]] = part.words[valid]
        return
    present = part.size > 0
    low = part.nanos if part.lengths is None else part.lengths
    assert low is not None, "a wide value has nanoseconds or a length"
    shown = (cursors << 32) + np.where(valid, low, 0)
    words[slots[present]] = shown[present].view(np.uint64)
    behind = ((starts + cursors) // 8)[valid]
    if part.lengths is None:
        words[behind] = part.words[valid]
    else:
        pairs = part.words.reshape(-1, 2)[valid]
        words[behind] = pairs[:, 0]
        words[behind + 1] = pairs[:, 1]
    cursors += part.size


# -- The BinaryRow layout (format section 6): Arrow columns ⇄ row bytes, for any number of rows ----

_LOW = np.uint64(0xFFFFFFFF)
_INLINE = np.uint64(0x80)
_NANOSECONDS = (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))


def encode_rows(
    columns: Sequence[Column],
    types: Sequence[DataType],
    *,
    reserve_null_wide: bool = False,
    row_count: int | None = None,
) -> EncodedRows:
    """Return columns as BinaryRows without arity, the form that is hashed.

    `reserve_null_wide`: a null decimal above 18 digits keeps its 16 bytes and a null timestamp
    above 3 digits its 8, as in partition rows and bucket keys (format section 6). `row_count` is
    needed only when there is no column. Raises InvalidInputError for values that do not fit their
    type and UnsupportedError for nested values that are not null.
    """
    assert len(columns) == len(types), (len(columns), len(types))
    assert columns or row_count is not None, "without columns the number of rows must be given"
    count = len(columns[0]) if columns else int(row_count or 0)
    parts = [
        part_of(column, kind, reserve_null_wide=reserve_null_wide)
        for column, kind in zip(columns, types, strict=True)
    ]
    even = all(part.size is None for part in parts)
    return even_rows(parts, count) if even else ragged_rows(parts, count)


def encode_stored(
    columns: Sequence[Column],
    types: Sequence[DataType],
    *,
    reserve_null_wide: bool = False,
    row_count: int | None = None,
) -> list[bytes]:
    """Return columns as stored rows, one bytes object each: for partitions, bounds and statistics."""
    rows = encode_rows(columns, types, reserve_null_wide=reserve_null_wide, row_count=row_count)
    arity = len(types).to_bytes(4, "big")
    all_bytes = rows.data.tobytes()
    ends = rows.offsets.tolist()
    return [arity + all_bytes[begin:end] for begin, end in pairwise(ends)]


def encode_row(values: Sequence[object], types: Sequence[DataType]) -> bytes:
    """Return one stored row of Python values; timestamps of nanoseconds may be given as integers."""
    columns = [
        pa.array([value], arrow_type(kind)) for value, kind in zip(values, types, strict=True)
    ]
    return encode_stored(columns, types, row_count=1)[0]


def decode_columns(
    stored: pa.Array | pa.ChunkedArray,
    types: Sequence[DataType],
    selection: Sequence[int] | None = None,
) -> list[pa.Array]:
    """Return the columns of stored rows: those at positions `wanted`, in that order; None: all.

    A null or empty stored row, which writers store for "nothing known", gives nulls. Raises
    CorruptFileError for rows of another arity, rows that end early, values that lie outside their
    row, text that is no UTF-8 and decimals with too many digits; UnsupportedError for nested values
    that are not null and for timestamps that Arrow cannot hold.
    """
    positions = range(len(types)) if selection is None else selection
    chunks = stored.chunks if isinstance(stored, pa.ChunkedArray) else [stored]
    parts = [_decode(chunk, types, positions) for chunk in chunks]
    if len(parts) == 1:
        return parts[0]
    return [
        pa.concat_arrays([part[i] for part in parts])
        if parts
        else pa.array([], arrow_type(types[position]))
        for i, position in enumerate(positions)
    ]


def decode_row(stored: bytes, types: Sequence[DataType]) -> tuple[object, ...]:
    """Return one stored row as Python values.

    Timestamps above 6 digits come as integer nanoseconds, and dates and times that Python's own
    classes cannot hold as the number they are stored as.
    """
    columns = decode_columns(pa.array([stored], pa.binary()), types)
    return tuple(_python_value(column) for column in columns)


def _python_value(column: pa.Array) -> object:
    if column.type in _NANOSECONDS:
        return column.cast(pa.int64())[0].as_py()
    try:
        return column[0].as_py()
    except (OverflowError, ValueError):
        # A date or time outside of Python's range stays the number that is stored.
        return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())[0].as_py()


@record
class _Rows:
    """Stored rows laid open. `starts`: where each row (behind its arity) begins in `data`."""

    data: Bytes
    starts: Longs
    lengths: Longs  # of the rows without arity
    valid: Bools | None  # None: every row is there
    header: int


def _decode(
    stored: pa.Array, types: Sequence[DataType], positions: Sequence[int]
) -> list[pa.Array]:
    rows = _lay_open(stored, len(types))
    return [_column(rows, position, types[position]) for position in positions]


def _lay_open(stored: pa.Array, arity: int) -> _Rows:
    data, offsets = binary_values(stored)
    begins = offsets[:-1]
    lengths = np.diff(offsets) - 4
    valid = valid_rows(stored)
    if bool((lengths == -4).any()):
        filled = lengths > -4
        valid = filled if valid is None else valid & filled
    header = header_bytes(arity)
    present = slice(None) if valid is None else valid
    short = lengths[present] < header + 8 * arity
    if bool(short.any()):
        raise _corrupt("a stored row is shorter than its fields", np.flatnonzero(short)[0])
    # 8 zero bytes behind the data let every word be read whole, and serve the rows not known.
    size = int(offsets[-1]) if len(offsets) else 0
    data = np.concatenate([data[:size], np.zeros(16 + header + 8 * arity, np.uint8)])
    begins = begins if valid is None else np.where(valid, begins, size)
    lengths = lengths if valid is None else np.where(valid, lengths, header + 8 * arity)
    arities = (words_at(data, begins) & _LOW).astype(np.uint32).byteswap()
    wrong = arities[present] != arity
    if bool(wrong.any()):
        raise _corrupt(
            f"a stored row does not have {arity} fields", np.flatnonzero(wrong)[0],
            arity=int(arities[present][wrong][0]),
        )  # fmt: skip
    return _Rows(data=data, starts=begins + 4, lengths=lengths, valid=valid, header=header)


def _column(rows: _Rows, position: int, kind: DataType) -> pa.Array:
    byte = (position + 8) // 8
    is_null = (rows.data[rows.starts + byte] >> np.uint8(position % 8)) & 1
    is_valid: Bools = is_null == 0
    if rows.valid is not None:
        is_valid = is_valid & rows.valid
    if not is_valid.any():
        return pa.nulls(len(is_valid), arrow_type(kind))
    kind = scalar(kind)
    valid = None if is_valid.all() else is_valid
    slots = words_at(rows.data, rows.starts + rows.header + 8 * position)
    if is_in_slot(kind):
        return _checked(slot_column(slots, kind, valid), kind)
    if is_pieces(kind):
        return _pieces(rows, slots, kind, valid)
    if is_wide_decimal(kind):
        return _wide_decimals(rows, slots, kind, valid)
    offsets = (slots >> np.uint64(32)).astype(np.int64)
    _check_inside(rows, offsets, np.full(len(offsets), 8, np.int64), valid, kind)
    places = rows.starts + (offsets if valid is None else np.where(valid, offsets, 0))
    nanos = (slots & _LOW).astype(np.int64)
    if bool(((nanos > 999_999) if valid is None else (nanos > 999_999) & valid).any()):
        raise _corrupt(f"a stored {type_text(kind)} has more than a millisecond of nanoseconds", 0)
    return timestamp_column(words_at(rows.data, places).view(np.int64), nanos, kind, valid)


def _pieces(rows: _Rows, slots: Words, kind: ScalarType, valid: Bools | None) -> pa.Array:
    marks = slots >> np.uint64(56)
    inline = (marks & _INLINE) != 0
    short = (marks & np.uint64(0x7F)).astype(np.int64)
    lengths = np.where(inline, short, (slots & _LOW).astype(np.int64))
    if valid is not None:
        lengths = np.where(valid, lengths, 0)
        inline = inline | ~valid
    if bool((inline & (lengths > 7)).any()):
        raise _corrupt(f"a stored {type_text(kind)} claims more than 7 bytes in its slot", 0)
    offsets = np.where(inline, 0, (slots >> np.uint64(32)).astype(np.int64))
    _check_inside(rows, offsets, lengths, ~inline, kind)
    # Values in their slots are read from the slots themselves, appended behind the rows.
    source = np.concatenate([rows.data, slots.view(np.uint8)])
    in_slot = len(rows.data) + 8 * np.arange(len(slots), dtype=np.int64)
    content, ends = gather_pieces(source, np.where(inline, in_slot, rows.starts + offsets), lengths)
    array = binary_array(content, ends, arrow_type(kind), valid)
    return _checked(array, kind) if kind.root in TEXT else array


def _wide_decimals(rows: _Rows, slots: Words, kind: ScalarType, valid: Bools | None) -> pa.Array:
    lengths = (slots & _LOW).astype(np.int64)
    offsets = (slots >> np.uint64(32)).astype(np.int64)
    if valid is not None:
        lengths = np.where(valid, lengths, 1)
        offsets = np.where(valid, offsets, 0)
    if bool(((lengths > 16) | (lengths < 1)).any()):
        raise _corrupt(f"a stored {type_text(kind)} has no byte or more than 16", 0)
    _check_inside(rows, offsets, lengths, valid, kind)
    try:
        return decimal_column(rows.data, rows.starts + offsets, lengths, arrow_type(kind), valid)
    except pa.ArrowInvalid as cause:
        raise _corrupt(f"a stored {type_text(kind)} has too many digits", 0) from cause


def _check_inside(
    rows: _Rows, offsets: Longs, lengths: Longs, among: Bools | None, kind: ScalarType
) -> None:
    outside = (offsets + lengths > rows.lengths) | (offsets < rows.header)
    if among is not None:
        outside &= among
    if bool(outside.any()):
        raise _corrupt(
            f"a stored {type_text(kind)} lies outside its row", np.flatnonzero(outside)[0]
        )


def _checked(array: pa.Array, kind: ScalarType) -> pa.Array:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as cause:
        raise _corrupt(f"stored bytes are no {type_text(kind)}", 0) from cause
    return array


def _corrupt(message: str, row: int, **facts: Any) -> CorruptFileError:
    return CorruptFileError(f"{message}; run verify", row=int(row), **facts)


# -- Stored rows as bytes that compare like the keys they hold -------------------------------------
#
# The bytes are those of kernels/keys.py for the same values, so that a file's bounds from a
# manifest and rows in memory can be compared with each other. In order of columns:
#
#     (nullable keys only) 00 for null, 01 otherwise; a null's own bytes are zero, or no text
#     numbers, dates, times     their width in bytes, big-endian, sign bit flipped; BOOLEAN 0 or 1
#     FLOAT, DOUBLE             IEEE bits: negative ones inverted, others with the sign bit flipped;
#                               -0.0 as 0.0, every NaN as the greatest value
#     DECIMAL                   the unscaled value in 8 bytes to 18 digits, in 16 beyond
#     TIMESTAMP                 ticks of the column's Arrow unit in 8 bytes
#     text and binary           last column: the bytes; elsewhere 00 as 01 01, 01 as 01 02, then 00

KeyOrder = Callable[[bytes], bytes]
_Reader = Callable[[bytes, int], bytes]  # (stored row, slot position) -> memcomparable bytes

_WIDTHS = {
    Root.BOOLEAN: 1, Root.TINYINT: 1, Root.SMALLINT: 2, Root.INT: 4, Root.DATE: 4, Root.TIME: 4,
    Root.BIGINT: 8, Root.DECIMAL: 8, Root.TIMESTAMP: 8, Root.TIMESTAMP_LTZ: 8,
}  # fmt: skip


def key_order(types: Sequence[DataType], *, nullable: bool = False) -> KeyOrder:
    """Return the function from a stored row of these types to its memcomparable bytes.

    With `nullable` nulls sort first; without it, as for keys of a table, a null is corrupt. The
    function raises CorruptFileError for rows that are not of these types; nested types raise
    UnsupportedError here and now.
    """
    arity = len(types)
    first_slot = 4 + header_bytes(arity)
    shortest = first_slot + 8 * arity
    expected = arity.to_bytes(4, "big")
    readers = [
        (
            _reader(kind, is_last=index == arity - 1),
            _null_form(kind, is_last=index == arity - 1),
            5 + index // 8,
            1 << (index % 8),
        )
        for index, kind in enumerate(types)
    ]

    def order(stored: bytes) -> bytes:
        if len(stored) < shortest or stored[:4] != expected:
            raise _corrupt_key(f"a stored key does not have {arity} fields", stored)
        parts: list[bytes] = []
        slot = first_slot
        for read, null_form, null_byte, null_bit in readers:
            is_null = stored[null_byte] & null_bit
            if nullable:
                parts.append(b"\x00" if is_null else b"\x01")
            elif is_null:
                raise _corrupt_key("a stored key holds a null", stored)
            parts.append(null_form if is_null else read(stored, slot))
            slot += 8
        return b"".join(parts)

    return order


def _reader(kind: DataType, *, is_last: bool) -> _Reader:
    kind = scalar(kind)
    if is_pieces(kind):
        return _piece if is_last else _terminated_piece
    if is_wide_decimal(kind):
        return _wide_decimal
    if is_wide_timestamp(kind):
        return _wide_timestamp(kind)
    if kind.root is Root.FLOAT:
        return _floating("<f", ">f", 4)
    if kind.root is Root.DOUBLE:
        return _floating("<d", ">d", 8)
    width = _WIDTHS[kind.root]
    return _boolean if kind.root is Root.BOOLEAN else _signed(width)


def _null_form(kind: DataType, *, is_last: bool) -> bytes:
    kind = scalar(kind)
    if is_pieces(kind):
        return b"" if is_last else b"\x00"
    if is_wide_decimal(kind):
        return bytes(16)
    return bytes({Root.FLOAT: 4, Root.DOUBLE: 8}.get(kind.root) or _WIDTHS[kind.root])


def _boolean(stored: bytes, slot: int) -> bytes:
    return b"\x01" if stored[slot] else b"\x00"


def _signed(width: int) -> _Reader:
    sign = 1 << (8 * width - 1)

    def read(stored: bytes, slot: int) -> bytes:
        value = int.from_bytes(stored[slot : slot + width], "little") ^ sign
        return value.to_bytes(width, "big")

    return read


def _floating(little: str, big: str, width: int) -> _Reader:
    sign = 1 << (8 * width - 1)
    mask = (1 << (8 * width)) - 1
    # Java and NumPy agree on this one of the many patterns of NaN; its sign bit is clear.
    nan = int.from_bytes(struct.pack(big, float("nan")), "big") & ~sign

    def read(stored: bytes, slot: int) -> bytes:
        (value,) = struct.unpack_from(little, stored, slot)
        bits = nan if value != value else int.from_bytes(struct.pack(big, value + 0.0), "big")
        return (bits ^ mask if bits & sign else bits | sign).to_bytes(width, "big")

    return read


def _piece(stored: bytes, slot: int) -> bytes:
    mark = stored[slot + 7]
    if mark & 0x80:
        length = mark & 0x7F
        if length > 7:
            raise _corrupt_key("a stored key claims more than 7 bytes in its slot", stored)
        return stored[slot : slot + length]
    return _behind(stored, slot)


def _terminated_piece(stored: bytes, slot: int) -> bytes:
    piece = _piece(stored, slot)
    return piece.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01") + b"\x00"


def _behind(stored: bytes, slot: int) -> bytes:
    length, offset = struct.unpack_from("<II", stored, slot)
    value_bytes = stored[4 + offset : 4 + offset + length]
    if len(value_bytes) != length:
        raise _corrupt_key("a stored key value lies outside its row", stored)
    return value_bytes


def _wide_decimal(stored: bytes, slot: int) -> bytes:
    value_bytes = _behind(stored, slot)
    if not 1 <= len(value_bytes) <= 16:
        raise _corrupt_key("a stored decimal has no byte or more than 16", stored)
    value = int.from_bytes(value_bytes, "big", signed=True)
    return (value + (1 << 127)).to_bytes(16, "big")


def _wide_timestamp(kind: ScalarType) -> _Reader:
    nanos_per_tick = 1000 if (kind.precision or 0) <= 6 else 1
    ticks_per_milli = _NANOS_PER_MILLI // nanos_per_tick
    assert kind.root in TIMESTAMPS, kind

    def read(stored: bytes, slot: int) -> bytes:
        nanos, offset = struct.unpack_from("<II", stored, slot)
        if 4 + offset + 8 > len(stored) or nanos >= _NANOS_PER_MILLI:
            raise _corrupt_key("a stored timestamp lies outside its row", stored)
        (millis,) = struct.unpack_from("<q", stored, 4 + offset)
        ticks = millis * ticks_per_milli + nanos // nanos_per_tick
        if not -(1 << 63) <= ticks < 1 << 63:
            raise UnsupportedError(
                f"a stored {type_text(kind)} key lies outside what Arrow holds",
                kind=ErrorKind.UNSUPPORTED_TYPE,
                type=type_text(kind),
            )
        return int(ticks + (1 << 63)).to_bytes(8, "big")

    return read


def _corrupt_key(message: str, stored: bytes) -> CorruptFileError:
    return CorruptFileError(f"{message}; run verify", stored=stored[:64].hex())

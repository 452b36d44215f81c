"""How prepared columns become rows: slots, null bits, variable parts (format section 6)."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.codec.arrow_buffers import offsets_of
from lsm_engine.codec.byte_copies import place_pieces, read_only
from lsm_engine.codec.row_slots import (
    big_endian_decimals,
    is_in_slot,
    is_pieces,
    is_wide_decimal,
    millis_and_nanos,
    scalar,
    slot_words,
    stored_column,
)
from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs, Words, binary_values, valid_rows
from lsm_engine.schema.types import DataType, ScalarType

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
    """One column made ready. `size`: variable bytes per row, None when every value is in its slot."""

    kind: ScalarType | None  # None: nested or absent, null in every row
    valid: Bools | None
    size: Longs | None
    words: Words | None = None
    pieces: Bytes | None = None
    offsets: Longs | None = None
    lengths: Longs | None = None
    nanos: Longs | None = None


def part_of(column: Column, kind: DataType, *, reserve_null_wide: bool) -> Part:
    """Return one column made ready; nested types only where every row is null."""
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
    """Write one column's slots and variable parts; moves the cursors past what it wrote."""
    valid = np.ones(len(starts), np.bool_) if part.valid is None else part.valid
    if part.pieces is not None and part.offsets is not None:
        target = words.view(np.uint8)
        source = read_only(part.pieces)
        place_pieces(source, part.offsets, valid, target, starts, slot, cursors)
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

"""Compacted rows: keys and values of lookup files (format section 17), column by column.

header   (arity + 7 + 8) / 8 bytes: the row kind's byte, then a bit per null field from bit 8
values   in order, nulls left out: fixed widths little-endian; text, binary and decimals beyond 18
         digits as varint length and bytes; timestamps beyond 3 digits as milliseconds (8 bytes)
         and a varint of nanoseconds
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.codec.arrow_buffers import binary_array, offsets_of
from lsm_engine.codec.byte_copies import gather_pieces, read_only
from lsm_engine.codec.row_slots import (
    big_endian_decimals,
    decimal_column,
    is_in_slot,
    is_pieces,
    is_wide_decimal,
    millis_and_nanos,
    scalar,
    slot_column,
    slot_words,
    stored_column,
    timestamp_column,
)
from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs, Words, binary_values, valid_rows
from lsm_engine.kernels.compiled import compiled
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.types import DataType, Root, ScalarType

_WIDTHS = {
    Root.BOOLEAN: 1, Root.TINYINT: 1, Root.SMALLINT: 2, Root.INT: 4, Root.DATE: 4, Root.TIME: 4,
    Root.FLOAT: 4,
}  # fmt: skip
_NANOS_PER_MILLI = 1_000_000


def compacted_header(arity: int) -> int:
    """Return how many bytes the row kind and the null bits take."""
    return (arity + 7 + 8) // 8


def encode_compacted(
    columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType], *, row_count: int
) -> tuple[Bytes, Longs]:
    """Return rows one behind the other and their n + 1 offsets; every row kind is insert.

    Raises UnsupportedError for nested types.
    """
    parts = [
        _Part(stored_column(column, scalar(kind)), scalar(kind))
        for column, kind in zip(columns, types, strict=True)
    ]
    header = compacted_header(len(parts))
    lengths = np.full(row_count, header, np.int64)
    for part in parts:
        part.add_lengths(lengths)
    offsets = offsets_of(lengths)
    data = np.zeros(int(offsets[-1]), np.uint8)
    cursors = offsets[:-1] + header
    for index, part in enumerate(parts):
        part.write_values(data, cursors)
        if part.valid is not None:
            bit = index + 8
            data[offsets[:-1][~part.valid] + bit // 8] |= np.uint8(1 << (bit % 8))
    return data, offsets


def decode_compacted(
    data: Bytes, starts: Longs, ends: Longs, types: Sequence[DataType], *, file_name: str
) -> list[pa.Array]:
    """Return the columns of rows that begin at `starts` and end at `ends` of `data`.

    Raises CorruptFileError, naming the file, for rows that are not of these types.
    """
    header = compacted_header(len(types))
    if len(starts) and (
        int((ends - starts).min()) < header or int(ends.max()) > len(data) or int(starts.min()) < 0
    ):
        raise _corrupt(file_name, "a row is shorter than its header")
    data = read_only(data)
    cursors = starts + header
    columns = []
    for index, kind in enumerate(types):
        bit = index + 8
        valid = (data[starts + bit // 8] >> np.uint8(bit % 8)) & 1 == 0
        columns.append(_fixed_column(data, cursors, ends, scalar(kind), valid, file_name))
    if not np.array_equal(cursors, ends):
        raise _corrupt(file_name, "a row is longer than its values")
    return columns


class _Part:
    """One column made ready to be written."""

    def __init__(self, array: pa.Array, kind: ScalarType) -> None:
        self.valid = valid_rows(array)
        self.kind = kind
        self.present = np.ones(len(array), np.bool_) if self.valid is None else self.valid
        self.words: Words | None = None
        self.nanos: Longs | None = None
        if is_in_slot(kind):
            self.words = slot_words(array, kind)
            self.width = width_of(kind)
        elif is_pieces(kind):
            self.pieces, begins = binary_values(array)
            self.starts, self.sizes = begins[:-1], np.diff(begins)
        elif is_wide_decimal(kind):
            words, self.sizes = big_endian_decimals(array)
            self.pieces = words.reshape(-1).view(np.uint8)
            self.starts = np.arange(len(array), dtype=np.int64) * 16
        else:
            millis, self.nanos = millis_and_nanos(array)
            self.words, self.width = millis.view(np.uint64), 8

    def add_lengths(self, lengths: Longs) -> None:
        if self.words is None:
            lengths += np.where(self.present, self.sizes + varint_sizes(self.sizes), 0)
            return
        lengths += np.where(self.present, self.width, 0)
        if self.nanos is not None:
            lengths += np.where(self.present, varint_sizes(self.nanos), 0)

    def write_values(self, data: Bytes, cursors: Longs) -> None:
        if self.words is None:
            pieces = read_only(self.pieces)
            _put_pieces(data, cursors, pieces, _unsigned(self.starts), self.sizes, self.present)
            return
        words = np.ascontiguousarray(self.words).copy()
        _put_fixed(data, cursors, words, self.width, self.present)
        if self.nanos is not None:
            put_varints(data, cursors, self.nanos, self.present)


def width_of(kind: ScalarType) -> int:
    """Return the bytes that a value takes whose type always fits a slot."""
    return _WIDTHS.get(kind.root, 8)


def varint_sizes(values: Longs) -> Longs:
    """Return how many bytes the varint of each number, none negative, takes."""
    sizes = np.ones(len(values), np.int64)
    limit = 128
    largest = int(values.max(initial=0))
    while limit <= largest:
        sizes += values >= limit
        limit <<= 7
    return sizes


def _fixed_column(
    data: Bytes, cursors: Longs, ends: Longs, kind: ScalarType, valid: Bools, file_name: str
) -> pa.Array:
    count = len(cursors)
    if is_in_slot(kind):
        words = np.zeros(count, np.uint64)
        fine = take_fixed(data, cursors, ends, width_of(kind), valid, words)
        column = slot_column(words, kind, valid) if fine else None
    elif is_pieces(kind) or is_wide_decimal(kind):
        column = _taken_pieces(data, cursors, ends, kind, valid)
    else:
        words, nanos = np.zeros(count, np.uint64), np.zeros(count, np.int64)
        fine = take_fixed(data, cursors, ends, 8, valid, words) and take_varints(
            data, cursors, ends, valid, nanos
        )
        fine = fine and int(nanos.max(initial=0)) < _NANOS_PER_MILLI
        column = timestamp_column(words.view(np.int64), nanos, kind, valid) if fine else None
    if column is None:
        raise _corrupt(file_name, "a value lies outside its row")
    return column


def _taken_pieces(
    data: Bytes, cursors: Longs, ends: Longs, kind: ScalarType, valid: Bools
) -> pa.Array | None:
    starts, sizes = np.zeros(len(cursors), np.int64), np.zeros(len(cursors), np.int64)
    if not take_pieces(data, cursors, ends, valid, starts, sizes):
        return None
    try:
        if is_pieces(kind):
            pieces, offsets = gather_pieces(data, starts, sizes)
            array = binary_array(pieces, offsets, arrow_type(kind), valid)
            array.validate(full=True)
            return array
        if len(sizes) and (int(sizes.max()) > 16 or bool(np.any(valid & (sizes == 0)))):
            return None
        return decimal_column(data, starts, sizes, arrow_type(kind), valid)
    except pa.ArrowInvalid:
        return None


def _unsigned(values: Longs) -> Longs:
    """Return a contiguous array that compiled code may take as its own kind of argument."""
    return np.array(values, np.int64)


def _corrupt(file_name: str, problem: str) -> CorruptFileError:
    return CorruptFileError(f"{problem}; the lookup file is built anew", file=file_name)


# Each loop compiles in a quarter of a second.


@compiled
def _put_fixed(data: Bytes, cursors: Longs, words: Words, width: int, present: Bools) -> None:
    for row in range(len(cursors)):
        if present[row]:
            word, to = words[row], cursors[row]
            for byte in range(width):
                data[to + byte] = np.uint8(word >> np.uint64(8 * byte))
            cursors[row] = to + width


@compiled
def put_varint(data: Bytes, to: Any, value: Any) -> Any:
    """Write a number at a place; return the place behind it."""
    while value >= 128:
        data[to] = np.uint8((value & 127) | 128)
        value >>= 7
        to += 1
    data[to] = np.uint8(value)
    return to + 1


@compiled
def put_varints(data: Bytes, cursors: Longs, values: Longs, present: Bools) -> None:
    """Write a number at the cursor of each row that is present; cursors move."""
    for row in range(len(cursors)):
        if present[row]:
            cursors[row] = put_varint(data, cursors[row], values[row])


@compiled
def _put_pieces(
    data: Bytes, cursors: Longs, source: Bytes, starts: Longs, sizes: Longs, present: Bools
) -> None:
    for row in range(len(cursors)):
        if present[row]:
            to, begin = put_varint(data, cursors[row], sizes[row]), starts[row]
            for byte in range(sizes[row]):
                data[to + byte] = source[begin + byte]
            cursors[row] = to + sizes[row]


@compiled
def varint_at(data: Bytes, offset: Any, end: Any) -> Any:
    """Return a number of at most 63 bits and the place behind it; the place is -1 if it is torn."""
    value, shift = np.int64(0), np.int64(0)
    while offset < end and shift < 63:
        byte = np.int64(data[offset])
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
        shift += 7
    return np.int64(0), np.int64(-1)


@compiled
def take_fixed(
    data: Bytes, cursors: Longs, ends: Longs, width: int, present: Bools, words: Words
) -> bool:
    """Read little-endian values; False if one lies outside its row."""
    for row in range(len(cursors)):
        if present[row]:
            begin = cursors[row]
            if begin + width > ends[row]:
                return False
            word = np.uint64(0)
            for byte in range(width):
                word |= np.uint64(data[begin + byte]) << np.uint64(8 * byte)
            words[row] = word
            cursors[row] = begin + width
    return True


@compiled
def take_varints(data: Bytes, cursors: Longs, ends: Longs, present: Bools, values: Longs) -> bool:
    """Read varints; False if one is torn."""
    for row in range(len(cursors)):
        if present[row]:
            value, behind = varint_at(data, cursors[row], ends[row])
            if behind < 0:
                return False
            values[row] = value
            cursors[row] = behind
    return True


@compiled
def take_pieces(
    data: Bytes, cursors: Longs, ends: Longs, present: Bools, starts: Longs, sizes: Longs
) -> bool:
    """Find pieces that begin with their length; False if one lies outside its row."""
    for row in range(len(cursors)):
        if present[row]:
            size, behind = varint_at(data, cursors[row], ends[row])
            if behind < 0 or size > ends[row] - behind:
                return False
            starts[row], sizes[row] = behind, size
            cursors[row] = behind + size
    return True

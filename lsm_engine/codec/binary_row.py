"""The BinaryRow layout (format section 6): Arrow columns ⇄ row bytes, for any number of rows.

A *stored row* is a 4-byte big-endian arity and the row; what is hashed is the row alone. Decoding
checks every bound before it believes a byte.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.codec.arrow_buffers import binary_array
from lsm_engine.codec.byte_copies import gather_pieces, words_at
from lsm_engine.codec.row_layout import (
    Column,
    EncodedRows,
    even_rows,
    header_bytes,
    part_of,
    ragged_rows,
)
from lsm_engine.codec.row_slots import (
    decimal_column,
    is_in_slot,
    is_pieces,
    is_wide_decimal,
    scalar,
    slot_column,
    timestamp_column,
)
from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs, Words, binary_values, valid_rows
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.types import TEXT, DataType, ScalarType, type_text

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


def encode_row(
    values: Sequence[object], types: Sequence[DataType], *, reserve_null_wide: bool = False
) -> bytes:
    """Return one stored row of Python values; timestamps of nanoseconds may be given as integers."""
    columns = [
        pa.array([value], arrow_type(kind)) for value, kind in zip(values, types, strict=True)
    ]
    return encode_stored(columns, types, reserve_null_wide=reserve_null_wide, row_count=1)[0]


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
    return _pieces_at(rows, inline, offsets, lengths, slots, kind, valid)


def _pieces_at(
    rows: _Rows,
    inline: Bools,
    offsets: Longs,
    lengths: Longs,
    slots: Words,
    kind: ScalarType,
    valid: Bools | None,
) -> pa.Array:
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

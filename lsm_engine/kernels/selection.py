"""Keep some rows of a table: by mask or by position, as a slice wherever they are neighbours."""

from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs

R = TypeVar("R", pa.Table, pa.RecordBatch)
_ROWS_WORTH_A_SLICE = 16 * 1024


def keep(rows: R, flags: Bools) -> R:
    """Return the rows whose flag is set; without a copy where they are neighbours."""
    positions = np.flatnonzero(flags)
    if len(positions) == len(flags):
        return rows
    return take(rows, positions)


def take(rows: R, positions: Longs) -> R:
    """Return rows by position, in the order asked for; without a copy where they are neighbours."""
    if not len(positions):
        return rows.slice(0, 0)
    steps = np.diff(positions)
    if (steps == 1).all():
        return rows.slice(int(positions[0]), len(positions))
    if isinstance(rows, pa.Table) and (steps > 0).all():
        # Taking joins the chunks of a column to one, of text 2 GB at most; a filter goes chunk by chunk.
        flags: Bools = np.zeros(rows.num_rows, np.bool_)
        flags[positions] = True
        return rows.filter(pa.array(flags))
    return rows.take(pa.array(positions))


class RowsLeft:
    """Columns of `count` rows without those at some positions, which ascend and are distinct.

    Few of them cut a column into slices, without a copy. Of more, values and flags of nulls are
    filtered each by themselves: PyArrow's filter takes five times as long for values that might be
    null, even if none is.
    """

    def __init__(self, count: int, dropped: Longs) -> None:
        self._count = count
        self._dropped = dropped
        self._is_cut = len(dropped) * _ROWS_WORTH_A_SLICE <= count
        if not self._is_cut:
            flags: Bools = np.ones(count, np.bool_)
            flags[dropped] = False
            self._mask = _array(pa.bool_(), count, None, _packed(flags))

    def __len__(self) -> int:
        return self._count - len(self._dropped)

    def filter_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return what is left of a column."""
        assert len(column) == self._count, "a column of other rows"
        if not len(self._dropped):
            return column
        if self._is_cut:
            bounds = [-1, *self._dropped.tolist(), self._count]
            pieces = [column.slice(low + 1, high - low - 1) for low, high in pairwise(bounds)]
            chunks = [chunk for piece in pieces for chunk in piece.chunks if len(chunk)]
            return pa.chunked_array(chunks, type=column.type)
        if column.num_chunks != 1 or not _is_flags_and_values(column.type):
            return column.filter(self._mask)
        values = column.chunk(0)
        values_array = _array(column.type, len(values), None, values.buffers()[1], values.offset)
        selected = values_array.filter(self._mask)
        if values.null_count:
            selected = _array(
                column.type, len(selected), self._flags_of(values), selected.buffers()[1]
            )
        return pa.chunked_array([selected])

    def _flags_of(self, values: pa.Array) -> pa.Buffer:
        """Return which of the rows left are not null; as bytes they take a quarter of the time."""
        stored = np.frombuffer(values.buffers()[0], np.uint8)
        end = values.offset + len(values)
        flags = np.unpackbits(stored, count=end, bitorder="little")[values.offset :]
        return _packed(pa.array(flags).filter(self._mask).to_numpy())


def _is_flags_and_values(kind: pa.DataType) -> bool:
    """Whether arrays of this type are flags of nulls, values of whole bytes and nothing else."""
    if pa.types.is_boolean(kind):
        return False
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _array(
    kind: pa.DataType, count: int, valid: pa.Buffer | None, values: pa.Buffer, offset: int = 0
) -> pa.Array:
    nulls = 0 if valid is None else -1
    return pa.Array.from_buffers(kind, count, [valid, values], null_count=nulls, offset=offset)


def _packed(flags: Bools | Bytes) -> pa.Buffer:
    """Return one bit per flag, as Arrow has them."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))

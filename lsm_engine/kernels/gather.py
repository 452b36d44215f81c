"""Collect rows from several sources into new arrays, reading the sources where they lie.

Concatenating the inputs of a merge first would copy every row once more. Fixed-width, bool, string
and binary columns are gathered by compiled loops over the sources' buffers; stretches of consecutive
rows are copied whole. Other types (nested, dictionaries) are concatenated and taken by Arrow.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bytes, Longs, is_text_or_binary
from lsm_engine.kernels.compiled import (
    compiled,
    compiled_with,
    copy_bytes,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)
from lsm_engine.kernels.interpreted_memory import gather_values

Source: TypeAlias = pa.RecordBatch | pa.Table
Runs: TypeAlias = NDArray[np.uint16]
Rows: TypeAlias = NDArray[np.int32]


class RowPlaces(NamedTuple):
    """Where rows lie: row `row[i]` of source `run[i]`."""

    run: Runs
    row: Rows


# Rows in a stretch, on average, from which copying stretches beats copying values; measured.
_LONG_STRETCH = 12
_MOST_TEXT_BYTES = 2**31 - 1
_SLACK = 16


def gather(sources: Sequence[Source], run: Runs, row: Rows) -> pa.Table:
    """Return one row per position: row `row[i]` of source `run[i]`.

    Sources have one schema; tables may be chunked. A string column beyond 2 GB comes in chunks.
    """
    schema = sources[0].schema
    assert all(source.schema.equals(schema) for source in sources), "sources of several schemas"
    batches, run, row = unchunked(sources, run, row)
    if not batches:
        return schema.empty_table()
    selection = RowSelection.from_runs(run, row)
    columns = [
        _gathered([batch.column(index) for batch in batches], selection)
        for index in range(len(schema))
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def gather_column(sources: Sequence[Source], name: str, run: Runs, row: Rows) -> pa.ChunkedArray:
    """Return one column of the rows that `gather` would return."""
    return gather([source.select([name]) for source in sources], run, row).column(0)


def unchunked(
    sources: Sequence[Source], run: Runs, row: Rows
) -> tuple[list[pa.RecordBatch], Runs, Rows]:
    """Return the sources as batches, and where the wanted rows are in those."""
    per_source = [
        [source] if isinstance(source, pa.RecordBatch) else source.to_batches()
        for source in sources
    ]
    # Sources of one batch each need no translation of rows.
    if all(len(batches) == 1 for batches in per_source):
        return [batches[0] for batches in per_source], run, row
    flat = [batch for batches in per_source for batch in batches]
    assert len(flat) <= np.iinfo(np.uint16).max, "too many chunks"
    first = np.cumsum([0, *(len(batches) for batches in per_source)])
    # Where each batch begins in its source; a sentinel closes the last one.
    begins = [np.cumsum([0, *(b.num_rows for b in batches)])[:-1] for batches in per_source]
    new_run, new_row = np.empty_like(run), np.empty_like(row)
    _locate(first, np.concatenate(begins), run, row, new_run, new_row)
    return flat, new_run, new_row


@record
class RowSelection:
    """Rows to collect, and the first position of each stretch of consecutive rows (closed by n)."""

    run: Runs
    row: Rows
    stretches: Longs

    def __len__(self) -> int:
        return len(self.run)

    @staticmethod
    def from_runs(run: Runs, row: Rows) -> "RowSelection":
        """Find the stretches."""
        run, row = np.ascontiguousarray(run, np.uint16), np.ascontiguousarray(row, np.int32)
        stretches = np.empty(len(run) + 1, np.int64)
        count = _find_stretches(run, row, stretches)
        return RowSelection(run=run, row=row, stretches=stretches[: count + 1])

    @property
    def is_long(self) -> bool:
        """Whether copying stretches is worth it."""
        return len(self) >= _LONG_STRETCH * (len(self.stretches) - 1)

    @property
    def stretched_rows(self) -> "_StretchedRows":
        """The rows as compiled loops take them."""
        return _StretchedRows(self.run, self.row, self.stretches)

    def halves(self) -> Iterator["RowSelection"]:
        """Split the rows in two."""
        middle = len(self) // 2
        yield RowSelection.from_runs(self.run[:middle], self.row[:middle])
        yield RowSelection.from_runs(self.run[middle:], self.row[middle:])


def _gathered(arrays: Sequence[pa.Array], selection: RowSelection) -> pa.Array | pa.ChunkedArray:
    kind = arrays[0].type
    if not pa.types.is_nested(kind) and all(len(array) == array.null_count for array in arrays):
        return pa.nulls(len(selection), kind)  # as of rows to delete, which have keys alone
    if pa.types.is_boolean(kind):
        bits, _ = _gathered_bits(arrays, 1, selection)
        return _array(kind, selection, arrays, [bits])
    if _is_fixed(kind):
        return _array(kind, selection, arrays, [_gathered_fixed(arrays, kind, selection)])
    if is_text_or_binary(kind):
        return _gathered_text(arrays, kind, selection)
    begins = np.cumsum([0, *(len(array) for array in arrays)])[:-1]
    return pa.concat_arrays(arrays).take(pa.array(begins[selection.run] + selection.row))


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal128(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )


def _array(
    kind: pa.DataType, selection: RowSelection, arrays: Sequence[pa.Array], buffers: list[pa.Buffer]
) -> pa.Array:
    valid, nulls = None, 0
    if any(array.null_count for array in arrays):
        valid, nulls = _gathered_bits(arrays, 0, selection)
    return pa.Array.from_buffers(kind, len(selection), [valid, *buffers], null_count=nulls)


def _addresses(arrays: Sequence[pa.Array], buffer: int) -> Longs:
    """Return where a buffer of each array lies, or 0 where there is none."""
    buffers = [array.buffers()[buffer] for array in arrays]
    return np.array(
        [source.address if source is not None else 0 for source in buffers], dtype=np.int64
    )


def _offsets(arrays: Sequence[pa.Array]) -> Longs:
    return np.array([array.offset for array in arrays], dtype=np.int64)


def _gathered_bits(
    arrays: Sequence[pa.Array], buffer: int, selection: RowSelection
) -> tuple[pa.Buffer, int]:
    """Return a bitmap of one bit per wanted row, and how many of them are zero."""
    target = pa.allocate_buffer((len(selection) + 7) // 8)
    view = np.frombuffer(target, np.uint8)
    zeros = _gather_bits(
        _addresses(arrays, buffer), _offsets(arrays), selection.run, selection.row, view
    )
    return target, zeros


def _gathered_fixed(
    arrays: Sequence[pa.Array], kind: pa.DataType, selection: RowSelection
) -> pa.Buffer:
    width = kind.bit_width // 8
    target = pa.allocate_buffer(width * len(selection))
    sources = _addresses(arrays, 1) + width * _offsets(arrays)
    if selection.is_long:
        _copy_stretches(
            sources, width, selection.run, selection.row, selection.stretches, target.address
        )
    else:
        _gather_fixed(sources, width, selection.run, selection.row, target.address)
    return target


def _gathered_text(
    arrays: Sequence[pa.Array], kind: pa.DataType, selection: RowSelection
) -> pa.Array | pa.ChunkedArray:
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    width = 8 if wide else 4
    starts = _addresses(arrays, 1) + width * _offsets(arrays)
    # No buffer of offsets: an empty array made by hand, from which no row can be wanted.
    texts = _TextSources(starts, width, _addresses(arrays, 2), _data_ends(arrays))
    target_offsets = np.empty(len(selection) + 1, np.int64)
    _gather_offsets(texts, selection.stretched_rows, target_offsets)
    total = int(target_offsets[-1])
    # Offsets of 32 bits reach no further, so the column is split in two.
    if total > _MOST_TEXT_BYTES and not wide and len(selection) > 1:
        halves = [_gathered_text(arrays, kind, half) for half in selection.halves()]
        return pa.chunked_array([chunk for half in halves for chunk in _chunks(half)])
    target = pa.allocate_buffer(total + _SLACK)
    _gather_text(texts, selection.stretched_rows, target_offsets, target.address)
    offsets = target_offsets if wide else target_offsets.astype(np.int32)
    return _array(kind, selection, arrays, [pa.py_buffer(offsets), target.slice(0, total)])


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _data_ends(arrays: Sequence[pa.Array]) -> Longs:
    buffers = [array.buffers()[2] for array in arrays]
    ends = [buffer.address + buffer.size if buffer is not None else 0 for buffer in buffers]
    return np.array(ends, dtype=np.int64)


# --- compiled loops: 0.2 to 0.5 s each, one version for all types and any number of sources ------


class _StretchedRows(NamedTuple):
    """Rows to collect, as `RowSelection` has them."""

    run: Runs
    row: Rows
    stretches: Longs


class _TextSources(NamedTuple):
    """Where each source's offsets (`width` bytes each) lie, and where its text begins and ends."""

    starts: Longs
    width: int
    data: Longs
    ends: Longs


@compiled
def _find_stretches(run: Runs, row: Rows, stretches: Longs) -> int:
    """Write the position at which each stretch begins, then the number of rows; return the count."""
    count = 0
    for index in range(len(run)):
        # Written always, kept only if a stretch begins here: no branch to guess.
        stretches[count] = index
        count += index == 0 or run[index] != run[index - 1] or row[index] != row[index - 1] + 1
    stretches[count] = len(run)
    return count


@compiled
def _locate(
    first: Longs, begins: Longs, run: Runs, row: Rows, new_run: Runs, new_row: Rows
) -> None:
    """Turn rows of sources into rows of their chunks; the last chunk found is tried first."""
    chunk = 0
    for index in range(len(run)):
        low, high = first[run[index]], first[run[index] + 1]
        source_row = row[index]
        within = low <= chunk < high and begins[chunk] <= source_row
        if not within or (chunk + 1 < high and begins[chunk + 1] <= source_row):
            chunk = low
            while high - chunk > 1:  # binary search for the last chunk that begins at or before
                middle = (chunk + high) // 2
                if begins[middle] <= source_row:
                    chunk = middle
                else:
                    high = middle
        new_run[index] = chunk
        new_row[index] = source_row - begins[chunk]


@compiled_with(interpreted=gather_values, work=lambda *arguments: len(arguments[2]) >> 3)
def _gather_fixed(sources: Longs, width: int, run: Runs, row: Rows, target: int) -> None:
    if width == 8:
        for index in range(len(run)):
            store_u64(target + 8 * index, load_u64(sources[run[index]] + 8 * np.int64(row[index])))
    elif width == 4:
        for index in range(len(run)):
            store_u32(target + 4 * index, load_u32(sources[run[index]] + 4 * np.int64(row[index])))
    elif width == 2:
        for index in range(len(run)):
            store_u16(target + 2 * index, load_u16(sources[run[index]] + 2 * np.int64(row[index])))
    elif width == 1:
        for index in range(len(run)):
            store_u8(target + index, load_u8(sources[run[index]] + np.int64(row[index])))
    else:
        assert width == 16
        for index in range(len(run)):
            source = sources[run[index]] + 16 * np.int64(row[index])
            store_u64(target + 16 * index, load_u64(source))
            store_u64(target + 16 * index + 8, load_u64(source + 8))


@compiled
def _copy_stretches(
    sources: Longs, width: int, run: Runs, row: Rows, stretches: Longs, target: int
) -> None:
    for stretch in range(len(stretches) - 1):
        position = stretches[stretch]
        source = sources[run[position]] + width * np.int64(row[position])
        copy_bytes(target + width * position, source, width * (stretches[stretch + 1] - position))


@compiled
def _gather_bits(sources: Longs, offsets: Longs, run: Runs, row: Rows, target: Bytes) -> int:
    """Gather bits; a source without a buffer holds ones only. Returns the number of zeros."""
    valid_count = 0
    for byte in range(len(target)):
        bits = 0
        for bit in range(min(8, len(run) - 8 * byte)):
            position = 8 * byte + bit
            source = sources[run[position]]
            value = 1
            if source != 0:
                source_bit = offsets[run[position]] + np.int64(row[position])
                value = (np.int64(load_u8(source + (source_bit >> 3))) >> (source_bit & 7)) & 1
            bits |= value << bit
            valid_count += value
        target[byte] = bits
    return len(run) - valid_count


@compiled
def _offset_at(starts: int, width: int, row: np.int64) -> int:
    if width == 4:
        return load_i32(starts + 4 * row)
    return load_i64(starts + 8 * row)


@compiled
def _gather_offsets(texts: _TextSources, rows: _StretchedRows, offsets: Longs) -> None:
    starts, width = texts.starts, texts.width
    run, row, stretches = rows.run, rows.row, rows.stretches
    total = 0
    offsets[0] = 0
    for stretch in range(len(stretches) - 1):
        position, stop = stretches[stretch], stretches[stretch + 1]
        source, first = starts[run[position]], np.int64(row[position])
        shift = total - _offset_at(source, width, first)
        for step in range(1, stop - position + 1):
            total = shift + _offset_at(source, width, first + step)
            offsets[position + step] = total


@compiled
def _gather_text(texts: _TextSources, rows: _StretchedRows, offsets: Longs, target: int) -> None:
    starts, width, data, ends = texts.starts, texts.width, texts.data, texts.ends
    run, row, stretches = rows.run, rows.row, rows.stretches
    for stretch in range(len(stretches) - 1):
        position, stop = stretches[stretch], stretches[stretch + 1]
        source = data[run[position]] + _offset_at(
            starts[run[position]], width, np.int64(row[position])
        )
        count = offsets[stop] - offsets[position]
        to = target + offsets[position]
        if count <= 16 and source + 16 <= ends[run[position]]:
            # What this writes beyond `count` the next stretch writes over; the last has slack.
            store_u64(to, load_u64(source))
            if count > 8:
                store_u64(to + 8, load_u64(source + 8))
        elif count > 0:
            copy_bytes(to, source, count)

"""Merge sorted runs into one sorted stream of rows, in memory that does not grow with the runs.

The key space is cut at the end of the loaded batch that ends first. All rows up to that key are
loaded, so they can be merged; later rows wait for the next cut. Memory is one batch per run."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lsm_engine.base.record import record
from lsm_engine.data_files.formats import format_of
from lsm_engine.data_files.reader import DataFileReader
from lsm_engine.data_files.writer import ROW_GROUP_ROWS
from lsm_engine.filter.predicate import Predicate, columns_of
from lsm_engine.filter.stats import ColumnBounds, may_match
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.kernels.arrow_views import Longs, fixed_values
from lsm_engine.kernels.changes import adds
from lsm_engine.kernels.keys import SortKeys, upper_bound
from lsm_engine.kernels.merge_runs import MergeOrder, merge_order
from lsm_engine.merge.selection import BeforeMerge
from lsm_engine.merge.sequence import Rows
from lsm_engine.options import core_options
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.scan import Section
from lsm_engine.storage.local_state import SpillArea
from lsm_engine.table.merge_rules import MergeRules
from lsm_engine.types.table_schema import VALUE_KIND

Batches = Iterable[pa.RecordBatch]
# Parquet files grow about fourfold when they are decoded.
DECODED_BYTES_PER_STORED_BYTE = 4
_MERGE_ROWS_MIN = 1024
SPILL_ROWS = 64 * 1024
"""Rows of a spilled batch: what each spilled run holds in memory while it is merged."""


@record
class MergeLimits:
    """Limits of one merge: rows per batch of each run, and runs merged in one pass.

    `spills`: there are more runs than `runs_max`, and their batches do not fit in memory together.
    """

    batch_rows: int
    runs_max: int
    spills: bool

    @staticmethod
    def from_options(options: TableOptions, section: Section) -> "MergeLimits":
        """Return the limits that `sort-spill-buffer-size` and `sort-spill-threshold` set.

        Without an explicit threshold, more runs are still merged in one pass while their open row
        groups fit in a write buffer: a spilled pass costs half as much as the compaction.
        """
        files = [file for run in section for file in run]
        decoded = DECODED_BYTES_PER_STORED_BYTE * sum(file.file_size for file in files)
        row_bytes = max(1, decoded // max(1, sum(file.row_count for file in files)))
        memory = options[core_options.SORT_SPILL_BUFFER_SIZE]
        rows = memory // (row_bytes * len(section))
        loaded_bytes, bytes_max = decoded, memory
        if options[core_options.SORT_SPILL_THRESHOLD] is None:
            open_rows = (max(file.row_count for file in run) for run in section)
            loaded_bytes = row_bytes * sum(min(count, ROW_GROUP_ROWS) for count in open_rows)
            bytes_max = max(memory, options[core_options.WRITE_BUFFER_SIZE])
        return MergeLimits(
            batch_rows=max(_MERGE_ROWS_MIN, rows),
            runs_max=options.spill_threshold,
            spills=len(section) > options.spill_threshold and loaded_bytes > bytes_max,
        )


def merge_runs(
    runs: Sequence[Batches],
    rules: MergeRules,
    *,
    drop_deletes: bool,
    ages: Sequence[int] | None = None,
) -> Iterator[Rows]:
    """Yield the merged rows of runs in key order; on a tie the later run wins.

    Each run is in key order, over all of its batches. With `drop_deletes`, keys whose newest row is
    a -U or -D are dropped; otherwise those rows stay, as an older run elsewhere may hold the key.
    `ages`, one per run: of a key's rows in runs of an age above 0 only the youngest is merged.
    """
    for parts in merge_slices(runs, rules):
        # One run alone needs no comparison of keys.
        if len(parts) == 1:
            yield from _emitted(parts[0].rows, drop_deletes=drop_deletes)
            continue
        order = order_of(parts, rules)
        if ages is not None:
            order = BeforeMerge.from_order(order, [ages[part.run] for part in parts]).order
        rows = [part.rows for part in parts]
        merged = rules.function.merge(order, rows, drop_deletes=drop_deletes)
        # Deletes may remove every row of a slice.
        if merged.num_rows:
            yield merged


@record
class Part:
    """Loaded rows of one run, by its number, with their keys; None if no comparison needed them."""

    run: int
    rows: pa.RecordBatch
    keys: SortKeys | None


def merge_slices(runs: Sequence[Batches], rules: MergeRules) -> Iterator[list[Part]]:
    """Yield slices of the key space in key order: all rows of the runs within each slice."""
    heads = [_Head(number, iter(run), rules) for number, run in enumerate(runs)]
    heads = [head for head in heads if head.load()]
    while len(heads) > 1:
        bound = min(head.last_key for head in heads)
        yield [part for head in heads if (part := head.take_up_to(bound)) is not None]
        heads = [head for head in heads if not head.is_spent or head.load()]
    for head in heads:
        yield [Part(run=head.run, rows=head.remaining(), keys=None)]
        for batch in head.source:
            if batch.num_rows:
                yield [Part(run=head.run, rows=batch, keys=None)]


def order_of(parts: Sequence[Part], rules: MergeRules) -> MergeOrder:
    """Return the rows of some runs in the order of a merge."""
    keys = [rules.keys(part.rows) if part.keys is None else part.keys for part in parts]
    return merge_order(keys, [rules.ranks(part.rows) for part in parts])


def spilled_runs(
    runs: Sequence[Batches], rules: MergeRules, spills: SpillArea, runs_max: int
) -> list[Batches]:
    """Merge adjacent runs to local disk until at most `runs_max` remain, in the same order.

    Deletes are retained: an older run of another group may hold their key.
    """
    remaining = list(runs)
    while len(remaining) > runs_max:
        groups = [
            remaining[start : start + runs_max] for start in range(0, len(remaining), runs_max)
        ]
        remaining = [
            group[0]
            if len(group) == 1
            else spills.spill(batches_of(merge_runs(group, rules, drop_deletes=False)))
            for group in groups
        ]
    return remaining


def batches_of(rows: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
    """Yield sorted rows in batches that a merge loads one at a time."""
    for merged in rows:
        if isinstance(merged, pa.Table):
            yield from merged.to_batches(max_chunksize=SPILL_ROWS)
        else:
            yield from pa.Table.from_batches([merged]).to_batches(max_chunksize=SPILL_ROWS)


class _Head:
    """The loaded batch of a run, and the position of the next row in it."""

    def __init__(self, run: int, source: Iterator[pa.RecordBatch], rules: MergeRules) -> None:
        self.run = run
        self.source = source
        self._rules = rules
        self._at = 0
        self.last_key = b""

    def load(self) -> bool:
        """Load the next batch that has rows; False at the end of the run."""
        # Empty batches would have no last key.
        for batch in self.source:
            if batch.num_rows:
                self._rows = batch
                self._keys = self._rules.keys(batch)
                self.last_key = self._keys.bytes_of(batch.num_rows - 1)
                self._at = 0
                return True
        return False

    @property
    def is_spent(self) -> bool:
        """Whether all loaded rows are used up."""
        return bool(self._at >= self._rows.num_rows)

    def take_up_to(self, bound: bytes) -> Part | None:
        """Return and consume the rows whose key is not above `bound`; None if there are none."""
        end = self._rows.num_rows
        # The whole rest of the batch is taken without a search if its last key allows it.
        if self.last_key > bound:
            end = self._at + upper_bound(self._keys.slice(self._at, end), bound)
        start, self._at = self._at, end
        # The run has no row in this slice.
        if start == end:
            return None
        rows = self._rows.slice(start, end - start)
        return Part(run=self.run, rows=rows, keys=self._keys.slice(start, end))

    def remaining(self) -> pa.RecordBatch:
        """Return the loaded rows that are not used up."""
        return self._rows.slice(self._at)


def _emitted(rows: pa.RecordBatch, *, drop_deletes: bool) -> Iterator[pa.RecordBatch]:
    """Yield rows whose keys no other run holds. Each key occurs once, so no merge is needed."""
    if drop_deletes and rows.num_rows:
        is_add = adds(fixed_values(rows.column(VALUE_KIND), np.int8))
        if not is_add.all():
            rows = rows.filter(pa.array(is_add))
    if rows.num_rows:
        yield rows


# -- Row groups of a file --------------------------------------------------------------------------
#
# Pruning by a filter, and cutting a file into parts that are read separately.

_VALUE_BYTES = 8
"""The approximate bytes of a decoded value."""


class MatchingGroups:
    """The row groups and rows of one file that may match a filter, computed once for all parts of the file.

    Threads may share it: two that begin concurrently both compute it, with the same result.
    """

    def __init__(self, predicate: Predicate | None) -> None:
        self._predicate = predicate
        self._groups: frozenset[int] = frozenset()
        self._rows: Longs | None = None
        self._has_rows = False
        self._firsts: frozenset[int] | None = None

    def among(self, groups: Sequence[int], reader: DataFileReader) -> list[int]:
        """Return which of some row groups to read; a column without statistics may match."""
        # Without a filter each group is read.
        if self._predicate is None:
            return list(groups)
        # The statistics are read once for all parts of a file.
        if self._firsts is None:
            self._groups = frozenset(_matching(reader, self._predicate))
            firsts = tuple(accumulate(reader.row_group_rows, initial=0))
            self._firsts = frozenset(firsts[group] for group in self._groups)
        return [group for group in groups if group in self._groups]

    def rows(self, indexed: Callable[[], BitMap | None]) -> Longs | None:
        """Return the positions that the file index does not rule out; None: every row may match."""
        if not self._has_rows:
            bitmap = indexed()
            if bitmap is not None:
                self._rows = np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64)
            self._has_rows = True
        return self._rows

    def are_none_in(self, part: range) -> bool:
        """Whether no row group that begins in a part of the file matches, as far as computed already."""
        return self._firsts is not None and not any(first in part for first in self._firsts)


def _matching(reader: DataFileReader, predicate: Predicate) -> list[int]:
    bounds = {}
    for name in columns_of(predicate).intersection(reader.schema.names):
        group_bounds = reader.bounds(name)
        if group_bounds is not None:
            bounds[name] = ColumnBounds(
                mins=group_bounds.lower,
                maxs=group_bounds.upper,
                null_counts=pa.array(group_bounds.null_counts, pa.int64()),
            )
    row_counts = pa.array(reader.row_group_rows, pa.int64())
    return [int(group) for group in np.flatnonzero(may_match(predicate, bounds, row_counts))]


def file_parts(file: DataFileMeta, max_bytes: int | None, column_count: int = 0) -> list[range]:
    """Cut the rows of a file into parts of about `max_bytes` decoded bytes, at least a row group each.

    `column_count`: the number of decoded columns; repeated values take almost no space in the file but full size
    in memory. Opening a file again for each part is cheap if its footer lists the row groups.
    """
    all_rows = range(file.row_count)
    # A format that decodes whole files gains nothing from parts.
    if max_bytes is None or format_of(file.file_name).policy.decodes_whole:
        return [all_rows]
    stored = DECODED_BYTES_PER_STORED_BYTE * file.file_size // max(1, len(all_rows))
    row_bytes = max(1, stored, _VALUE_BYTES * column_count)
    step = max(ROW_GROUP_ROWS, max_bytes // row_bytes)
    return [all_rows[first : first + step] for first in all_rows[::step]]

"""The write buffer of one bucket: rows are numbered on arrival, sorted and merged in memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lsm_engine.base.units import checked_sequence
from lsm_engine.kernels.arrow_views import fixed_values, one_array
from lsm_engine.kernels.changes import adds
from lsm_engine.kernels.gather import gather
from lsm_engine.kernels.merge_runs import MergeOrder, RowRanks, sort_orders
from lsm_engine.merge.selection import without_kinds
from lsm_engine.merge.sequence import UserSequence
from lsm_engine.options import core_options
from lsm_engine.options.modes import RETRACTS
from lsm_engine.read.merge import SPILL_ROWS, Batches, merge_runs, merge_slices, order_of
from lsm_engine.storage.local_state import SpillArea, SpilledRows
from lsm_engine.table.bucket_keys import RoutedRows
from lsm_engine.table.merge_rules import MergeRules, merge_rules
from lsm_engine.types.table_schema import VALUE_KIND, TableSchema

# -- The changelog of `changelog-producer` = input: every incoming row, before merging -------------
#
# Rows are in key order, and rows of one key in order of arrival, so that a -U stays right
# before its +U whatever the values of `sequence.field`.


class InputLog:
    """The rows of one bucket on their way to changelog files, in memory until they are spilled."""

    def __init__(self, schema: TableSchema, rules: MergeRules, spills: SpillArea) -> None:
        self._rules = replace(rules, sequence=UserSequence())
        self._spills = spills
        self._by_arrival = not rules.sequence.columns
        ignores = schema.options[core_options.IGNORE_DELETE]
        self._ignored = RETRACTS if ignores else frozenset()
        self._spilled: list[SpilledRows] = []
        self._latest: list[pa.RecordBatch] = []

    def add(self, batches: Sequence[pa.RecordBatch], merged: MergeOrder) -> None:
        """Take numbered rows that are about to be merged in the order `merged`."""
        order = merged
        if not self._by_arrival:
            order = sort_orders(
                [self._rules.keys(batch) for batch in batches],
                [self._rules.ranks(batch) for batch in batches],
            )
        order = without_kinds(order, batches, self._ignored)
        assert not self._latest, "what was added last has to be spilled or read first"
        rows = gather(batches, order.run, order.row)
        self._latest = list(_uncut_batches(rows, order))

    def spill(self) -> None:
        """Move what is in memory to local disk."""
        if self._latest:
            self._spilled.append(self._spills.spill(self._latest))
            self._latest = []

    def rows(self) -> Iterator[pa.RecordBatch | pa.Table]:
        """Yield all rows in order, and clear the log."""
        runs: list[Batches] = [*self._spilled, self._latest]
        self._spilled, self._latest = [], []
        for parts in merge_slices(runs, self._rules):
            if len(parts) == 1:
                yield parts[0].rows
                continue
            order = order_of(parts, self._rules)
            yield gather([part.rows for part in parts], order.run, order.row)


def _uncut_batches(rows: pa.Table, order: MergeOrder) -> Iterator[pa.RecordBatch]:
    """Yield sorted rows in batches that end where a key does: merging spilled runs relies on it."""
    starts = order.starts
    targets = np.arange(SPILL_ROWS, rows.num_rows, SPILL_ROWS)
    key_indexes = np.unique(np.searchsorted(starts, targets))
    cuts = [0, *starts[key_indexes[key_indexes < len(starts)]].tolist(), rows.num_rows]
    for start, end in pairwise(cuts):
        yield from rows.slice(start, end - start).combine_chunks().to_batches()


# -- The write buffer of one bucket: rows are numbered on arrival, sorted and merged in memory -----


class WriteBuffer:
    """Buffered rows of one bucket (SortBufferWriteBuffer); `next_sequence_number`: the next row's.

    `log` receives every row before merging; None without an input changelog.
    """

    def __init__(
        self,
        schema: pa.Schema,
        rules: MergeRules,
        spills: SpillArea,
        next_sequence_number: int,
        log: InputLog | None = None,
    ) -> None:
        self._log = log
        self._schema = schema
        self._rules = rules
        self._spills = spills
        self._rows: list[pa.RecordBatch] = []
        self._kinds: list[pa.Array] = []
        self._spilled: list[SpilledRows] = []
        self._merged: list[pa.Table] = []
        self._retracts = False
        self.next_sequence_number = next_sequence_number
        self.byte_count = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is buffered, in memory or on disk."""
        return not self._rows and not self._spilled and not self._merged

    @property
    def may_be_taken(self) -> bool:
        """Whether all rows are in memory, the merge selects one row of a key, and no log receives them."""
        is_plain = self._rules.function.keeps_rows and self._log is None
        return is_plain and bool(self._rows) and not self._spilled

    def take(self) -> list[pa.RecordBatch]:
        """Return the numbered rows in order of arrival; the caller merges them and calls `put_merged`."""
        batches = [self._numbered(*pair) for pair in zip(self._rows, self._kinds, strict=True)]
        self._rows, self._kinds, self.byte_count = [], [], 0
        return batches

    def put_merged(self, rows: pa.Table) -> None:
        """Take back the rows that were taken, sorted and merged."""
        self._merged = [rows]

    def add(self, rows: pa.RecordBatch, kinds: pa.Array) -> None:
        """Take rows in the order in which they arrived."""
        function = self._rules.function
        if function.may_need_full_history and not self._retracts:
            all_add = adds(fixed_values(kinds, np.int8)).all()
            self._retracts = function.adds_may_remove or not all_add
        self._rows.append(rows)
        self._kinds.append(kinds)
        self.byte_count += rows.nbytes + kinds.nbytes + 8 * rows.num_rows

    def spill(self) -> None:
        """Move what is in memory to local disk, sorted and merged."""
        if self._rows:
            self._spilled += [
                self._spills.spill(layer.to_batches(max_chunksize=SPILL_ROWS))
                for layer in self._drain()
            ]
            if self._log is not None:
                self._log.spill()

    def runs(self) -> Iterator[Iterable[pa.Table | pa.RecordBatch]]:
        """Yield all buffered rows as sorted runs with one row per key, and clear the buffer.

        There is a single run unless a retraction needs older rows (MergeFunction.may_need_full_history): then
        changes that one row cannot express are several runs, oldest first.
        """
        latest = self._drain() if self._rows else self._merged
        self._merged = []
        spilled, self._spilled = self._spilled, []
        retracts, self._retracts = self._retracts, False
        if not spilled and len(latest) <= 1:
            yield from ([layer] for layer in latest)
            return
        runs: list[Batches] = [
            *spilled,
            *(layer.to_batches(max_chunksize=SPILL_ROWS) for layer in latest),
        ]
        if retracts and self._rules.function.may_need_full_history:
            yield from runs
        else:
            yield merge_runs(runs, self._rules, drop_deletes=False)

    def merged(self) -> Iterator[pa.Table | pa.RecordBatch]:
        """Yield all buffered rows run by run; see `runs`."""
        for run in self.runs():
            yield from run

    def _drain(self) -> list[pa.Table]:
        """Sort and merge what is in memory; the buffer is empty afterwards."""
        batches = self.take()
        order = sort_orders(
            [self._rules.keys(batch) for batch in batches],
            [self._rules.ranks(batch) for batch in batches],
        )
        if self._log is not None:
            self._log.add(batches, order)
        return self._rules.function.history_layers(order, batches)

    def _numbered(self, rows: pa.RecordBatch, kinds: pa.Array) -> pa.RecordBatch:
        first = checked_sequence(self.next_sequence_number, rows.num_rows)
        self.next_sequence_number += rows.num_rows
        sequence = np.arange(first, self.next_sequence_number, dtype=np.int64)
        return pa.RecordBatch.from_arrays(
            [*rows.columns, pa.array(sequence), kinds], schema=self._schema
        )


# -- Local merge -----------------------------------------------------------------------------------
#
# Merge rows of one key in the task that reads them, before the shuffle, to shuffle fewer rows.
#
# The result must equal a write without local merges. So no rows are merged if an aggregate function meets a
# `sequence.field` (a merged row takes the position of its newest version, and a row of another task may
# belong before it, decisions/0013), or if keys move between partitions.


class LocalMerge:
    """Merges rows that were routed together (LocalMergeOperator). For one thread."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._rules = merge_rules(schema)
        self._spills = SpillArea()

    @staticmethod
    def for_schema(schema: TableSchema) -> "LocalMerge | None":
        """Return the local merge of a table; None if its rows are shuffled unmerged."""
        if (
            not schema.has_primary_key
            or schema.options[core_options.LOCAL_MERGE_BUFFER_SIZE] is None
        ):
            return None
        if schema.bucket_mode.policy.crosses_partitions:
            return None
        merge = LocalMerge(schema)
        computes = not merge._rules.function.keeps_rows
        return None if computes and schema.sequence_fields else merge

    def merged(self, routed: RoutedRows) -> Iterator[RoutedRows]:
        """Yield the merged rows of one partition and bucket, in the order of their sequence."""
        arrow = self._schema.key_value_arrow
        buffer = WriteBuffer(arrow, self._rules, self._spills, 0)
        buffer.add(routed.rows, routed.kinds)
        for rows in buffer.merged():
            for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
                yield RoutedRows(
                    partition=routed.partition,
                    bucket=routed.bucket,
                    rows=batch.select(list(self._schema.names)),
                    kinds=batch.column(VALUE_KIND),
                )


# -- Sort and merge small buffers of many buckets in one call --------------------------------------
#
# A sort and a merge cost about a millisecond before their first row. If a write has a few rows
# for each of many buckets, that is a third of its time. So one sort takes all rows, with the
# bucket number as the first key column.


def merge_together(buffers: Sequence[WriteBuffer], rules: MergeRules) -> None:
    """Merge the rows of several buffers, with the same result as one merge per buffer.

    The merge function must select rows unchanged, and no buffer may have spilled rows.
    """
    assert rules.function.keeps_rows, "a merged row may be none of its versions"
    buffered = [buffer.take() for buffer in buffers]
    counts = [sum(batch.num_rows for batch in batches) for batches in buffered]
    numbers = pa.array(np.repeat(np.arange(len(buffered), dtype=np.int32), counts))
    rows = pa.Table.from_batches(
        [batch for batches in buffered for batch in batches]
    ).combine_chunks()
    ranks = rules.ranks(rows)
    if ranks.newest is None:  # numbers of several buckets do not compare; rows are in their order
        ranks = RowRanks(sequence=np.arange(len(numbers), dtype=np.int64))
    order = sort_orders([rules.keys(rows, numbers)], [ranks])
    name = "_" * (1 + max(map(len, rows.column_names)))
    merged = rules.function.merge(order, [rows.add_column(0, name, numbers)])
    of_row = fixed_values(one_array(merged.column(name)), np.int32)
    ends = np.searchsorted(of_row, np.arange(1, len(buffered) + 1)).tolist()
    begin = 0
    for buffer, end in zip(buffers, ends, strict=True):
        buffer.put_merged(merged.slice(begin, end - begin).drop_columns(name))
        begin = end

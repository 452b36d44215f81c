"""The write buffer of one bucket: rows are numbered on arrival, sorted and merged in memory."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from lsm_engine.base.ids import checked_sequence
from lsm_engine.io.spill import SpillArea, SpilledRows
from lsm_engine.kernels.arrow_views import fixed_values
from lsm_engine.kernels.order import sort_orders
from lsm_engine.kernels.row_kinds import adds
from lsm_engine.table.ground.merge_rules import MergeRules
from lsm_engine.table.read.merge_stream import SPILL_ROWS, Batches, merge_runs
from lsm_engine.table.stage.input_changelog import InputLog


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

"""The changelog of `changelog-producer` = input: every incoming row, before merging.

Rows are in key order, and rows of one key in order of arrival, so that a -U stays right before its +U
whatever the values of `sequence.field`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.modes import RETRACTS
from lsm_engine.io.spill import SpillArea, SpilledRows
from lsm_engine.kernels.gather import gather
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.kernels.order import sort_orders
from lsm_engine.merge.selection import without_kinds
from lsm_engine.merge.sequence import UserSequence
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.ground.merge_rules import MergeRules
from lsm_engine.table.read.merge_stream import SPILL_ROWS, Batches, merge_slices, order_of


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

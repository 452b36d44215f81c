"""Versions of keys before they are collected, and merge functions that pick one of them whole.

A merge function sees where the versions of each key lie, not the versions. One whose answer is one of
them names it, and rows that lose are never copied; one that computes its answer collects the columns
that it needs from SortedVersions.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lsm_engine.base.modes import RowKind
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import fixed_values
from lsm_engine.kernels.gather import gather, gather_column
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.kernels.row_kinds import Kinds, adds
from lsm_engine.merge.versions import chosen_rows
from lsm_engine.schema.table_schema import VALUE_KIND

Source: TypeAlias = pa.RecordBatch | pa.Table


@record
class SortedVersions:
    """The rows of several sources in key order, oldest to newest inside a key, not yet collected.

    All sources have one schema, with a sequence number and a row kind in their last columns.
    """

    sources: tuple[Source, ...]
    order: MergeOrder

    @staticmethod
    def from_order(order: MergeOrder, sources: Sequence[Source]) -> "SortedVersions":
        """Return the versions that an order of the sources' rows describes."""
        return SortedVersions(sources=tuple(sources), order=order)

    def rows(self) -> pa.Table:
        """Collect every version."""
        return gather(self.sources, self.order.run, self.order.row)

    def column(self, name: str) -> pa.ChunkedArray:
        """Collect one column of every version."""
        return gather_column(self.sources, name, self.order.run, self.order.row)

    def kinds(self) -> Kinds:
        """Collect the row kind of every version."""
        return kinds_of(self.order, self.sources)


class Selection(Protocol):
    """A merge function that picks, for each key, one of its versions whole, or none."""

    def select(self, order: MergeOrder, sources: Sequence[Source]) -> MergeOrder:
        """Return where the chosen versions lie, at most one per key, in key order."""
        ...


@record
class SelectingFunction:
    """A selection as a merge function: rows that lose are never copied, rows of `ignored` kinds lose."""

    selection: Selection
    ignored: frozenset[RowKind] = frozenset()
    keeps_rows: bool = True
    may_need_full_history: bool = False
    adds_may_remove: bool = False

    def needs(self, names: Iterable[str]) -> frozenset[str]:
        """See MergeFunction (function.py)."""
        return frozenset(names)

    def history_layers(self, order: MergeOrder, sources: Sequence[Source]) -> list[pa.Table]:
        """See MergeFunction: one row of each key stands for all."""
        return [self.merge(order, sources)]

    def merge(
        self, order: MergeOrder, sources: Sequence[Source], *, drop_deletes: bool = False
    ) -> pa.Table:
        """Collect the chosen versions; see MergeFunction (function.py)."""
        chosen = self.chosen(order, sources, drop_deletes=drop_deletes)
        if _is_all_of_one(chosen, sources):
            (only,) = sources
            return only if isinstance(only, pa.Table) else pa.Table.from_batches([only])
        return gather(sources, chosen.run, chosen.row)

    def chosen(
        self, order: MergeOrder, sources: Sequence[Source], *, drop_deletes: bool
    ) -> MergeOrder:
        """Return where the surviving rows lie."""
        chosen = self.selection.select(without_kinds(order, sources, self.ignored), sources)
        if drop_deletes:
            is_add = adds(kinds_of(chosen, sources))
            if not is_add.all():
                chosen = chosen.take(np.flatnonzero(is_add))
        return chosen


def _is_all_of_one(order: MergeOrder, sources: Sequence[Source]) -> bool:
    """Whether an order is that of the only source: nothing has to be copied."""
    return (
        len(sources) == 1
        and len(order) == sources[0].num_rows
        and bool(np.array_equal(order.row, np.arange(len(order))))
    )


def kinds_of(order: MergeOrder, sources: Sequence[Source]) -> Kinds:
    """Return the row kind of every row of an order."""
    column = gather_column(sources, VALUE_KIND, order.run, order.row)
    chunks = [fixed_values(chunk, np.int8) for chunk in column.chunks]
    return np.concatenate(chunks) if chunks else np.zeros(0, np.int8)


def without_kinds(
    order: MergeOrder, sources: Sequence[Source], ignored: frozenset[RowKind]
) -> MergeOrder:
    """Return an order without rows of some kinds, and without keys that have no others."""
    if not ignored or not len(order):
        return order
    is_counted = ~np.isin(kinds_of(order, sources), [kind.value for kind in ignored])
    return order if is_counted.all() else chosen_rows(order, is_counted)


def without_deletes(rows: Source) -> Source:
    """Return rows without those that take their key away."""
    kinds = rows.column(VALUE_KIND).to_numpy()
    is_add = adds(kinds)
    return rows if is_add.all() else rows.filter(pa.array(is_add))

"""Versions of keys before they are collected, and merge functions that pick one of them whole.

A merge function sees where the versions of each key lie, not the versions. One whose answer is one of
them names it, and rows that lose are never copied; one that computes its answer collects the columns
that it needs from SortedVersions."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs, fixed_values, one_array
from lsm_engine.kernels.changes import (
    CREATED,
    REMOVED,
    REPLACED,
    UNCHANGED,
    ChangedRows,
    Kinds,
    adds,
    equal_rows,
    find_before,
    lay_out_changes,
    retracts,
)
from lsm_engine.kernels.gather import RowPlaces, gather, gather_column
from lsm_engine.kernels.groups import counts_of_each, first_of_each, last_of_each
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.merge.versions import chosen_rows
from lsm_engine.options import core_options
from lsm_engine.options.modes import RowKind
from lsm_engine.types.table_schema import VALUE_KIND, TableSchema

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


# -- Deduplicate: the newest row of each key wins, whole -------------------------------------------


@record
class Deduplicate:
    """The newest row wins with its kind; a delete is kept, for the caller to drop."""

    def select(self, order: MergeOrder, sources: Sequence[Source]) -> MergeOrder:
        """Return the last version of each key."""
        if len(order.starts) == len(order):
            return order
        return order.take(last_of_each(order.starts, len(order)))


# -- First-row: the oldest row of each key wins, whole ---------------------------------------------

REFUSAL = (
    "a first-row table takes no -U and -D: its first row stays; set 'ignore-delete' = true to drop "
    "such rows"
)


@record
class FirstRow:
    """The oldest row wins; a retract beside it is an InvalidInputError."""

    def select(self, order: MergeOrder, sources: Sequence[Source]) -> MergeOrder:
        """Return the first version of each key."""
        if len(order.starts) == len(order):
            return order
        is_retract = retracts(kinds_of(order, sources))
        if is_retract.any():
            alone = np.repeat(
                counts_of_each(order.starts, len(order)) == 1,
                counts_of_each(order.starts, len(order)),
            )
            if (is_retract & ~alone).any():
                raise InvalidInputError(REFUSAL, kind=ErrorKind.INVALID_ROWS, column=VALUE_KIND)
        return order.take(first_of_each(order.starts))


# -- Changelog rows of a merge ---------------------------------------------------------------------
#
# The row before is the one that readers of the changelog know: of a key's rows that are not new
# the youngest. The row after is what the merge makes of it and the new ones. A key without new
# rows did not change.


@record
class BeforeMerge:
    """Rows to merge, of those that are not new one a key: where it is (-1: none), and what is new."""

    order: MergeOrder
    before: Longs
    is_new: Bools

    @staticmethod
    def from_order(order: MergeOrder, ages: Sequence[int]) -> "BeforeMerge":
        """Leave out rows that a younger one, also not new, stands for. `ages`: one per source."""
        merge, dropped, survives = _find_before(order, ages)
        return _find_before(chosen_rows(order, survives), ages)[0] if dropped else merge

    @property
    def unknown(self) -> Bools:
        """The keys that are new here, and may be further down."""
        return self.is_new & (self.before < 0)


def _find_before(order: MergeOrder, ages: Sequence[int]) -> tuple[BeforeMerge, int, Bools]:
    before, is_new = np.empty(len(order.starts), np.int64), np.empty(len(order.starts), np.bool_)
    survives = np.empty(len(order), np.bool_)
    dropped = find_before(
        order.run, order.starts, np.array(ages, np.int64), before, is_new, survives
    )
    return BeforeMerge(order=order, before=before, is_new=is_new), dropped, survives


def changelog_rows(
    codes: Kinds, order: MergeOrder, before: Longs, sources: Sequence[Source], after: pa.Table
) -> pa.Table | None:
    """Return the rows before and after the change of each key, in key order; None: nothing changed.

    `codes` says what became of each key of the order, `before` which row of the order it had before;
    `after` has one row per key, and rows of deleted keys are not read.
    """
    count = int(np.count_nonzero(codes)) + int(np.count_nonzero(codes == REPLACED))
    if not count:
        return None
    runs, rows = np.empty(count, np.uint16), np.empty(count, np.int32)
    kinds = np.empty(count, np.int8)
    places, target = RowPlaces(order.run, order.row), ChangedRows(runs, rows, kinds)
    lay_out_changes(codes, before, places, len(sources), target)
    changes = gather([*sources, after], runs, rows)
    kind_index = changes.schema.get_field_index(VALUE_KIND)
    return changes.set_column(kind_index, changes.schema.field(kind_index), pa.array(kinds))


@record
class ChangeRules:
    """Which changes a table's changelog emits.

    `inserts_only`: an existing row never changes, it only expires (first-row). `compared`: replacing
    a row by one that is equal in these columns is no change; None: it is.
    """

    inserts_only: bool = False
    compared: tuple[str, ...] | None = None

    @staticmethod
    def from_schema(schema: TableSchema) -> "ChangeRules":
        """Return the rules of a table."""
        options = schema.options
        compared = None
        if options[core_options.CHANGELOG_ROW_DEDUPLICATE]:
            ignored = options[core_options.CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS]
            uncompared = {*schema.primary_keys, *ignored}
            compared = tuple(name for name in schema.names if name not in uncompared)
        return ChangeRules(
            inserts_only=options[core_options.MERGE_ENGINE].policy.keeps_first_row,
            compared=compared,
        )

    def changes(
        self, merge: BeforeMerge, sources: Sequence[Source], after: pa.Table
    ) -> pa.Table | None:
        """Return the changelog rows of a merge, in key order; None: nothing changed.

        `after` has one row per key of the merge, deletes included.
        """
        codes = self._codes(merge, sources, after)
        return changelog_rows(codes, merge.order, merge.before, sources, after)

    def _codes(
        self, merge: BeforeMerge, sources: Sequence[Source], after: pa.Table
    ) -> NDArray[np.int8]:
        was = np.zeros(len(merge.before), np.bool_)
        with_before = np.flatnonzero(merge.before >= 0)
        before_order = merge.order.take(merge.before[with_before])
        was[with_before] = True if self.inserts_only else adds(kinds_of(before_order, sources))
        kinds = fixed_values(one_array(after.column(VALUE_KIND)), np.int8)
        # A first row below the merge is there too: its key is marked as already emitted.
        is_now = ~retracts(kinds) if self.inserts_only else adds(kinds)
        codes = np.full(len(was), UNCHANGED, np.int8)
        codes[~was & is_now & merge.is_new] = CREATED
        codes[was & ~is_now & merge.is_new] = REMOVED
        if self.inserts_only:
            return codes
        replaced = np.flatnonzero(was & is_now & merge.is_new)
        if self.compared is not None and len(replaced):
            replaced = replaced[~self._equal(merge, sources, after, replaced)]
        codes[replaced] = REPLACED
        return codes

    def _equal(
        self, merge: BeforeMerge, sources: Sequence[Source], after: pa.Table, keys: Longs
    ) -> Bools:
        assert self.compared is not None
        names = list(self.compared)
        before_order = merge.order.take(merge.before[keys])
        before = gather(
            [source.select(names) for source in sources], before_order.run, before_order.row
        )
        zeros = np.zeros(len(keys), np.uint16)
        now = gather([after.select(names)], zeros, keys.astype(np.int32))
        return equal_rows(before.columns, now.columns, len(keys))

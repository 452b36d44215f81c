"""Merge functions that compute their answer, column by column.

A key with one version keeps it as it is, kind included. Several versions become one row: an add
(+I) if any of them adds, else a retract that stands for all of them. Rows that lose are not copied,
columns that are picked come straight from the winning rows.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.modes import RETRACTS, RowKind
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs, fixed_values
from lsm_engine.kernels.gather import gather, unchunked
from lsm_engine.kernels.groups import counts_of_each, last_of_each
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.kernels.pick_rows import find_resets
from lsm_engine.kernels.row_kinds import Kinds, adds, retracts
from lsm_engine.merge.assembly import assembled
from lsm_engine.merge.rules import ColumnRule, SequenceGroup
from lsm_engine.merge.selection import (
    Source,
    kinds_of,
    without_deletes,
    without_kinds,
)
from lsm_engine.merge.versions import (
    Folded,
    Versions,
    chosen_groups,
    chosen_rows,
    versions_of,
)
from lsm_engine.schema.table_schema import VALUE_KIND


@record
class Removal:
    """Which -D rows empty their key: all (`on_delete`), or those that a clock lets (`clocks`)."""

    on_delete: bool = False
    clocks: tuple[SequenceGroup, ...] = ()

    @property
    def is_possible(self) -> bool:
        """Whether any row does."""
        return self.on_delete or bool(self.clocks)

    def resets(self, versions: Versions, kinds: Kinds) -> Longs:
        """Return the last version of each key that empties it, or -1."""
        resets = np.full(versions.group_count, -1, np.int64)
        deletes = kinds == RowKind.DELETE
        if not self.is_possible or not deletes.any():
            return resets
        words, valid = np.zeros(0, np.uint64), np.zeros(0, np.bool_)
        if self.clocks:
            clocks = [group.clock(versions) for group in self.clocks]
            words = np.concatenate([clock_words for clock_words, _ in clocks])
            valid = np.concatenate([clock_valid for _, clock_valid in clocks])
        find_resets(words, valid, len(self.clocks), deletes, versions.offsets, resets)
        return resets


@record
class _Several:
    """The keys that several versions are left of: which they are, their versions, their new kinds.

    `was_reset` flags, among all keys, those of which a removal has gone together with what it
    removed.
    """

    flags: Bools
    versions: Versions
    kinds: Kinds
    was_reset: Bools


@record
class Folding:
    """A computed merge; see MergeFunction (function.py).

    `ignored` kinds of rows do nothing. With `refusal` a retract that meets other versions is an
    InvalidInputError of that text.
    """

    key_columns: tuple[str, ...]
    rules: tuple[ColumnRule, ...]
    removal: Removal = Removal()
    ignored: frozenset[RowKind] = frozenset()
    refusal: str | None = None
    keeps_rows: bool = False

    @property
    def may_need_full_history(self) -> bool:
        """See MergeFunction."""
        if self.adds_may_remove:
            return True
        if len(self.ignored) == len(RETRACTS):
            return False
        return self.removal.is_possible or any(rule.may_need_full_history for rule in self.rules)

    @property
    def adds_may_remove(self) -> bool:
        """See MergeFunction."""
        return any(
            function.adds_may_remove for rule in self.rules for _, function in rule.functions
        )

    def needs(self, names: Iterable[str]) -> frozenset[str]:
        """See MergeFunction."""
        columns = frozenset(names)
        rules = (rule for rule in self.rules if not columns.isdisjoint(rule.columns))
        needed = columns.union(*(rule.needs for rule in rules))
        return needed.union(*(clock.sequence for clock in self.removal.clocks))

    def merge(
        self, order: MergeOrder, sources: Sequence[Source], *, drop_deletes: bool = False
    ) -> pa.Table:
        """See MergeFunction. InvalidInputError, naming column and key, where values do not fit."""
        batches, order = self._prepared(order, sources)
        several = self._several(order, batches)
        if several is None or not several.flags.any():
            if len(order.starts) < len(order):
                order = order.take(last_of_each(order.starts, len(order)))
            merged = gather(batches or sources[:1], order.run, order.row)
        else:
            folded = self._folded(several.versions)
            merged = assembled(
                order, batches, several.flags, several.versions, folded, several.kinds
            )
        return without_deletes(merged) if drop_deletes else merged

    def history_layers(self, order: MergeOrder, sources: Sequence[Source]) -> list[pa.Table]:
        """See MergeFunction: where a retract may reach below these versions, they stay apart."""
        if not self.may_need_full_history:
            return [self.merge(order, sources)]
        batches, order = self._prepared(order, sources)
        lost = self._lost(order, batches)
        removing = self._removing(order, batches)
        if removing is not None:
            inside = np.logical_or.reduceat(removing, order.starts)
            lost = inside if lost is None else lost | inside
        if lost is None or not lost.any():
            return [self.merge(order, batches)] if batches else [self.merge(order, sources)]
        kinds = kinds_of(order, batches)
        apart = ~adds(kinds) if removing is None else removing | ~adds(kinds)
        if self.removal.on_delete:
            # Whatever is older, nothing before the last -D counts: two layers are enough.
            versions = versions_of(order, batches, None, self.key_columns)
            resets = self.removal.resets(versions, kinds)
            first = np.maximum(resets, order.starts)
            counted = np.arange(len(order)) >= np.repeat(first, np.diff(versions.offsets))
            order, apart = chosen_rows(order, counted), apart[counted]
        depth = _depths(order, lost, apart)
        return [
            self.merge(chosen_rows(order, depth == level), batches)
            for level in range(int(depth.max()) + 1)
        ]

    def _prepared(
        self, order: MergeOrder, sources: Sequence[Source]
    ) -> tuple[list[pa.RecordBatch], MergeOrder]:
        batches, run, row = unchunked(sources, order.run, order.row)
        order = MergeOrder(run=run, row=row, starts=order.starts)
        return batches, without_kinds(order, batches, self.ignored)

    def _several(self, order: MergeOrder, batches: list[pa.RecordBatch]) -> _Several | None:
        flags = counts_of_each(order.starts, len(order)) > 1
        if not flags.any():
            return None
        if not any(retracts(fixed_values(b.column(VALUE_KIND), np.int8)).any() for b in batches):
            return self._without_retracts(order, batches, flags)
        rows = order if flags.all() else chosen_groups(order, flags)
        kinds = kinds_of(rows, batches)
        is_retract = ~adds(kinds)
        was_reset = np.zeros(len(flags), np.bool_)
        versions = versions_of(rows, batches, is_retract, self.key_columns)
        self._check(versions)
        lasts = kinds[last_of_each(rows.starts, len(rows))]
        versions, was_reset[flags] = self._without_removed(versions, kinds)
        # The only version that is left is kept unchanged, as if nothing had been before it.
        several = np.diff(versions.offsets) > 1
        if not several.all():
            versions, lasts = versions.groups(several), lasts[several]
            flags[flags] = several
        if not flags.any():
            return _Several(flags=flags, versions=versions, kinds=lasts, was_reset=was_reset)
        is_deleted = np.zeros(len(versions), np.bool_)
        if versions.retracts is not None:
            is_deleted = versions.retracts
        # Retracts alone are folded as if they added, and stay one retract.
        only = np.logical_and.reduceat(is_deleted, versions.offsets[:-1])
        mixed = is_deleted & ~np.repeat(only, np.diff(versions.offsets))
        return _Several(
            flags=flags,
            versions=versions.with_retracts(mixed),
            kinds=np.where(only, lasts, np.int8(RowKind.INSERT)),
            was_reset=was_reset,
        )

    def _without_retracts(
        self, order: MergeOrder, batches: list[pa.RecordBatch], flags: Bools
    ) -> _Several:
        """Return the usual case. Where many keys have several versions, the others come along."""
        was_reset = np.zeros(len(flags), np.bool_)
        if np.count_nonzero(flags) < _MANY * len(flags) or not self._single_row_kept:
            rows = order if flags.all() else chosen_groups(order, flags)
            versions = versions_of(rows, batches, None, self.key_columns)
            inserts = np.full(versions.group_count, RowKind.INSERT, np.int8)
            return _Several(flags=flags, versions=versions, kinds=inserts, was_reset=was_reset)
        kinds = kinds_of(order.take(last_of_each(order.starts, len(order))), batches)
        versions = versions_of(order, batches, None, self.key_columns)
        return _Several(
            flags=np.ones(len(flags), np.bool_),
            versions=versions,
            kinds=np.where(flags, np.int8(RowKind.INSERT), kinds),
            was_reset=was_reset,
        )

    @property
    def _single_row_kept(self) -> bool:
        return all(rule.keeps_single_row for rule in self.rules)

    def _without_removed(self, versions: Versions, kinds: Kinds) -> tuple[Versions, Bools]:
        """Leave out what came before a removal, and the removal too unless it is the newest version.

        A removal by a clock is kept as the first version: later rows have to be newer than it was.
        Also returns the keys of which one row cannot stand for the versions: something came after
        the removal, or before one by a clock, which may be behind the clock of versions below.
        """
        resets = self.removal.resets(versions, kinds)
        has_reset = resets >= 0
        if not has_reset.any():
            return versions, has_reset
        first = np.where(has_reset, resets, versions.offsets[:-1])
        is_last = resets == versions.offsets[1:] - 1
        lost = has_reset & ~is_last
        if self.removal.clocks:
            removals = np.zeros(len(versions), np.bool_)
            removals[resets[lost]] = True
            versions = versions.with_removals(removals)
            lost = lost | (resets > versions.offsets[:-1])
        else:
            first = np.where(lost, resets + 1, first)
        flags = np.arange(len(versions)) >= np.repeat(first, np.diff(versions.offsets))
        return versions.filtered(flags), lost

    def _folded(self, versions: Versions) -> dict[str, Folded]:
        columns = frozenset(versions.schema.names)
        folded: dict[str, Folded] = {}
        for rule in self.rules:
            folded.update(rule.fold(versions, columns))
        return folded

    def _lost(self, order: MergeOrder, batches: list[pa.RecordBatch]) -> Bools | None:
        """Return the keys whose versions cannot be one row without loss."""
        several = self._several(order, batches) if batches else None
        if several is None:
            return None
        lost = several.was_reset
        if several.versions.retracts is not None:
            for rule in self.rules:
                for reason in rule.needs_full_history(several.versions):
                    lost[several.flags] |= reason
        return lost

    def _removing(self, order: MergeOrder, batches: list[pa.RecordBatch]) -> Bools | None:
        """Return the versions that add, and remove what may lie below; None: there is no such function."""
        if not self.adds_may_remove or not len(order):
            return None
        versions = versions_of(order, batches, None, self.key_columns)
        functions = (pair for rule in self.rules for pair in rule.functions)
        removals = [
            function.removes(versions, name)
            for name, function in functions
            if function.adds_may_remove
        ]
        removing: Bools = np.logical_or.reduce(removals)
        return removing

    def _check(self, versions: Versions) -> None:
        if self.refusal is None or versions.retracts is None:
            return
        group = int(versions.group_of_each[versions.retracts.argmax()])
        raise InvalidInputError(
            self.refusal, kind=ErrorKind.INVALID_ROWS, column=VALUE_KIND, key=versions.key(group)
        )


_MANY = 0.2
"""Share of the keys from which it is faster to fold all than to choose; measured."""


def _depths(order: MergeOrder, lost: Bools, apart: Bools) -> Longs:
    """Return the layer of each version: keys that lose nothing in one, others cut at each one `apart`.

    All keys end in the last layer: so later layers have later sequence numbers, and take their
    place among the files of level 0.
    """
    after = np.concatenate((np.zeros(1, np.bool_), apart[:-1]))
    cuts = apart | after
    cuts[order.starts] = False
    counts = counts_of_each(order.starts, len(order))
    cuts &= np.repeat(lost, counts)
    depth = np.cumsum(cuts, dtype=np.int64)
    ends = depth[last_of_each(order.starts, len(order))]
    spans = ends - depth[order.starts]
    layers: Longs = depth - np.repeat(ends - spans.max(), counts)
    return layers

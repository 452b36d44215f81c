"""Merge functions that compute their answer, column by column.

A key with one version keeps it as it is, kind included. Several versions become one row: an add
(+I) if any of them adds, else a retract that stands for all of them. Rows that lose are not copied,
columns that are picked come straight from the winning rows."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs, Words, fixed_values
from lsm_engine.kernels.changes import Kinds, adds, retracts
from lsm_engine.kernels.gather import RowPlaces, gather, unchunked
from lsm_engine.kernels.groups import counts_of_each, last_of_each
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.kernels.pick_rows import (
    find_resets,
    order_around_greatest,
    pick_greatest,
    place_picked,
)
from lsm_engine.merge.aggregators.aggregator import Aggregator
from lsm_engine.merge.selection import Source, kinds_of, without_deletes, without_kinds
from lsm_engine.merge.sequence import words_of
from lsm_engine.merge.versions import (
    Computed,
    Folded,
    Picked,
    Versions,
    chosen_groups,
    chosen_rows,
    moved,
    of_adds,
    versions_of,
)
from lsm_engine.options.modes import RETRACTS, RowKind
from lsm_engine.types.mapping import nulls
from lsm_engine.types.table_schema import VALUE_KIND

# -- Plan of a column's fold: by itself, or by its sequence group ----------------------------------


class ColumnRule(Protocol):
    """Folds one or several columns of versions. Pure."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rule decides."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns to read if any of `columns` is wanted."""
        ...

    @property
    def may_need_full_history(self) -> bool:
        """Whether `needs_full_history` can ever hold."""
        ...

    @property
    def keeps_single_row(self) -> bool:
        """Whether folding one version that adds gives its values back."""
        ...

    @property
    def refusing(self) -> tuple[str, ...]:
        """The columns whose function cannot take values back."""
        ...

    def fold(self, versions: Versions, columns: Iterable[str]) -> dict[str, Folded]:
        """Return each key's value in those columns that are wanted."""
        ...

    def needs_full_history(self, versions: Versions) -> list[Bools]:
        """Return, column by column, the keys whose result cannot stand for their versions."""
        ...

    @property
    def functions(self) -> tuple[tuple[str, Aggregator], ...]:
        """The columns that have a function, with it."""
        ...


@record
class OwnColumn:
    """A column by itself. `adds_only`: rows that retract do not touch it."""

    name: str
    aggregator: Aggregator
    adds_only: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """See ColumnRule."""
        return (self.name,)

    @property
    def needs(self) -> tuple[str, ...]:
        """See ColumnRule."""
        return (self.name, *self.aggregator.needs)

    @property
    def may_need_full_history(self) -> bool:
        """See ColumnRule."""
        return self.aggregator.may_need_full_history and not self.adds_only

    @property
    def functions(self) -> tuple[tuple[str, Aggregator], ...]:
        """See ColumnRule."""
        return ((self.name, self.aggregator),)

    @property
    def keeps_single_row(self) -> bool:
        """See ColumnRule."""
        return self.aggregator.keeps_single_row

    @property
    def refusing(self) -> tuple[str, ...]:
        """See ColumnRule."""
        return () if self.adds_only or self.aggregator.takes_retracts else (self.name,)

    def fold(self, versions: Versions, wanted: Iterable[str]) -> dict[str, Folded]:
        """See ColumnRule."""
        if self.name not in wanted:
            return {}
        if not self.adds_only:
            return {self.name: self.aggregator.fold(versions, self.name)}
        return {self.name: of_adds(versions, partial(self.aggregator.fold, name=self.name))}

    def needs_full_history(self, versions: Versions) -> list[Bools]:
        """See ColumnRule."""
        if not self.may_need_full_history:
            return []
        lost = self.aggregator.needs_full_history(versions, self.name)
        return [] if lost is None else [lost]


@record
class SequenceGroup:
    """Columns with a clock of their own, the `sequence` columns compared in order, nulls lowest.

    A version whose clock is null throughout does not count. One that is newer than, or as new as,
    those before it replaces every member, also with null; its retract leaves nulls. Members with a
    function take every version that counts, older ones as if they had come first.
    """

    sequence: tuple[str, ...]
    members: tuple[tuple[str, Aggregator | None], ...]
    keeps_single_row: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """See ColumnRule."""
        return (*self.sequence, *(name for name, _ in self.members))

    @property
    def needs(self) -> tuple[str, ...]:
        """See ColumnRule."""
        return self.sequence

    @property
    def may_need_full_history(self) -> bool:
        """See ColumnRule."""
        return any(function.may_need_full_history for _, function in self.functions)

    @property
    def functions(self) -> tuple[tuple[str, Aggregator], ...]:
        """See ColumnRule."""
        return tuple((name, function) for name, function in self.members if function)

    @property
    def refusing(self) -> tuple[str, ...]:
        """See ColumnRule."""
        return tuple(name for name, function in self.functions if not function.takes_retracts)

    def fold(self, versions: Versions, wanted: Iterable[str]) -> dict[str, Folded]:
        """See ColumnRule."""
        wanted = frozenset(wanted)
        if wanted.isdisjoint(self.columns):
            return {}
        words, valid = self.clock(versions)
        newest = np.empty(versions.group_count, np.int64)
        pick_greatest(words, valid, versions.offsets, False, True, newest)  # noqa: FBT003
        values = newest
        if versions.retracts is not None:
            values = newest.copy()
            has_newest = newest >= 0
            has_newest[has_newest] = versions.retracts[newest[has_newest]]
            values[has_newest] = -1
        folded: dict[str, Folded] = {
            name: Picked(positions=newest) for name in self.sequence if name in wanted
        }
        folded |= {
            name: Picked(positions=values)
            for name, function in self.members
            if function is None and name in wanted
        }
        functions = [(name, aggregator) for name, aggregator in self.functions if name in wanted]
        if functions:
            counted, positions = self._counted(versions, words, valid)
            for name, function in functions:
                folded[name] = moved(function.fold(counted, name), counted, positions)
        return folded

    def needs_full_history(self, versions: Versions) -> list[Bools]:
        """See ColumnRule."""
        if not self.may_need_full_history:
            return []
        counted, _ = self._counted(versions, *self.clock(versions))
        losses = (function.needs_full_history(counted, name) for name, function in self.functions)
        return [lost for lost in losses if lost is not None]

    def clock(self, versions: Versions) -> tuple[Words, Bools]:
        """Return a word per version that orders them by clock, and which have one."""
        return words_of([versions.column(name) for name in self.sequence])

    def _counted(self, versions: Versions, words: Words, valid: Bools) -> tuple[Versions, Longs]:
        """Return the versions with a clock, in the order in which functions take them.

        Functions take neither a removal nor what is older than one, however late it comes.
        """
        if versions.removals is not None:
            first = np.repeat(versions.offsets[:-1], np.diff(versions.offsets))
            behind = valid[first] & (words < words[first])
            valid = valid & ~(versions.removals[first] & (versions.removals | behind))
        positions = np.empty(int(np.count_nonzero(valid)), np.int64)
        offsets = np.empty(len(versions.offsets), np.int64)
        order_around_greatest(words, valid, versions.offsets, positions, offsets)
        return versions.arranged(positions, offsets), positions


# -- Rows assembled from folded columns ------------------------------------------------------------


def assembled(
    order: MergeOrder,
    batches: Sequence[pa.RecordBatch],
    flags: Bools,
    versions: Versions,
    folded: dict[str, Folded],
    kinds: NDArray[np.int8],
) -> pa.Table:
    """Return one row per key of an order.

    `flags` marks the keys of `versions`, `folded` and `kinds`: all that have more than one version. Others, and columns that are not folded, keep their newest version.
    """
    lasts = last_of_each(order.starts, len(order))
    newest = RowPlaces(order.run[lasts], order.row[lasts])
    schema = batches[0].schema
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    as_newest: list[str] = []
    picked: dict[int, tuple[Longs, list[str]]] = {}
    for name in schema.names:
        value = folded.get(name)
        if isinstance(value, Picked):  # columns that are picked alike are gathered together
            picked.setdefault(id(value.positions), (value.positions, []))[1].append(name)
        elif isinstance(value, Computed):
            columns[name] = _computed(batches, name, newest, flags, value)
        else:
            as_newest.append(name)
    for positions, names in picked.values():
        columns |= _picked(batches, names, newest, flags, versions, positions)
    columns |= _gathered(batches, as_newest, newest)
    columns[VALUE_KIND] = _kinds(columns[VALUE_KIND], flags, kinds)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _gathered(
    batches: Sequence[pa.RecordBatch], names: list[str], places: RowPlaces
) -> dict[str, pa.ChunkedArray]:
    gathered = gather([batch.select(names) for batch in batches], *places)
    return dict(zip(names, gathered.columns, strict=True))


def _picked(
    batches: Sequence[pa.RecordBatch],
    names: list[str],
    newest: RowPlaces,
    flags: Bools,
    versions: Versions,
    positions: Longs,
) -> dict[str, pa.ChunkedArray]:
    parts = [batch.select(names) for batch in batches]
    run, row = newest.run.copy(), newest.row.copy()
    null_part = len(parts)
    if place_picked(versions.rows, positions, flags, null_part, RowPlaces(run, row)):
        schema = parts[0].schema
        parts.append(
            pa.RecordBatch.from_arrays([nulls(1, kind) for kind in schema.types], schema=schema)
        )
    return dict(zip(names, gather(parts, run, row).columns, strict=True))


def _computed(
    batches: Sequence[pa.RecordBatch], name: str, newest: RowPlaces, flags: Bools, value: Computed
) -> pa.Array | pa.ChunkedArray:
    if flags.all():
        return value.values
    parts = [batch.select([name]) for batch in batches]
    run, row = newest.run.copy(), newest.row.copy()
    run[flags], row[flags] = len(parts), np.arange(len(value.values), dtype=np.int32)
    parts.append(_one_column(value.values, parts[0].schema))
    return gather(parts, run, row).column(0)


def _kinds(column: pa.ChunkedArray, flags: Bools, kinds: NDArray[np.int8]) -> pa.Array:
    numbers = column.to_numpy().copy()
    numbers[flags] = kinds
    return pa.array(numbers)


def _one_column(values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values], schema=schema)


# -- Merge functions that compute their answer, column by column -----------------------------------


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
        latest = np.empty(len(self.clocks), np.int64)
        find_resets(words, valid, latest, deletes, versions.offsets, resets)
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

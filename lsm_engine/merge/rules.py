"""What becomes of each column of a computed merge: on its own, or by the clock of its group."""

from collections.abc import Iterable
from functools import partial
from typing import Protocol

import numpy as np

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs, Words
from lsm_engine.kernels.pick_rows import order_around_greatest, pick_greatest
from lsm_engine.merge.aggregators.aggregator import Aggregator
from lsm_engine.merge.ranks import words_of
from lsm_engine.merge.versions import Folded, Picked, Versions, moved, of_adds


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

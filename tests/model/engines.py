"""What each merge engine makes of the versions of a key: semantics section 6, row by row.

Written from the specification alone, for `table_model`: no Arrow, no engine code. All of these give
the same row whether a compaction came between or not, so a history is kept as its fold. Where the
specification leaves that open (deletes of an aggregation, late rows of a partial update under a
sequence field), other tests compare: `changelog_histories`, tests/unit/merge, tests/interop.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.model.column_kinds import Plain, rank
from tests.model.table_model import DELETE, INSERT, RETRACTS, History, Row, Version

Group = tuple[tuple[int, ...], tuple[int, ...]]
"""Places of the columns that order a sequence group, and of those that they protect."""


def _folded(versions: History, row: Row) -> History:
    last = max(version.arrival for version in versions)
    return (Version(last, INSERT, row),)


class Folds(ABC):
    """Makes one row of the versions of a key; what has been folded folds on as if it had not been."""

    ignored: Sequence[str]

    @property
    def refused(self) -> Sequence[str]:
        return () if self.ignored else RETRACTS

    @abstractmethod
    def read(self, versions: History) -> Row | None: ...

    def shortened(self, versions: History) -> History:
        row = self.read(versions)
        return () if row is None else _folded(versions, row)

    def compacted(self, versions: History) -> set[History]:
        return {versions}


@dataclass(frozen=True)
class PartialUpdate(Folds):
    """What is not null replaces; `removes`: a delete takes the whole row, and what follows begins anew."""

    removes: bool = False
    ignored: Sequence[str] = ()

    def read(self, versions: History) -> Row | None:
        found: Row | None = None
        for version in versions:
            if version.kind == DELETE:
                found = None
            elif version.kind not in RETRACTS:
                found = _laid_over(found, version.row)
        return found

    def shortened(self, versions: History) -> History:
        row = self.read(versions)
        if row is not None:
            return _folded(versions, row)
        return tuple(version for version in versions if version.kind == DELETE)[-1:]

    def compacted(self, versions: History) -> set[History]:
        return {versions, ()} if self.read(versions) is None else {versions}


def _laid_over(below: Row | None, above: Row) -> Row:
    if below is None:
        return above
    return tuple(old if new is None else new for old, new in zip(below, above, strict=True))


@dataclass(frozen=True)
class SequenceGroups(Folds):
    """A partial update of which some columns are replaced by a row of equal or newer sequence only."""

    groups: tuple[Group, ...]
    sums: tuple[int, ...] = ()
    """Protected columns that are summed, rows of older sequences included."""
    ignored: Sequence[str] = ()

    def read(self, versions: History) -> Row | None:
        if not versions:
            return None
        row: list[Plain] = list(versions[0].row)
        for version in versions[1:]:
            self._lay_over(row, version.row)
        return tuple(row)

    def _lay_over(self, row: list[Plain], above: Row) -> None:
        grouped = {place for group in self.groups for part in group for place in part}
        for place, value in enumerate(above):
            if place not in grouped and value is not None:
                row[place] = value
        for sequence, protected in self.groups:
            if all(above[place] is None for place in sequence):
                continue
            newer = _ranks(above, sequence) >= _ranks(row, sequence)
            for place in protected:
                if place in self.sums:
                    row[place] = _total(row[place], above[place])
                elif newer:
                    row[place] = above[place]
            if newer:
                for place in sequence:
                    row[place] = above[place]


def _ranks(row: Sequence[Plain], places: Sequence[int]) -> list[tuple[object, ...]]:
    return [rank(row[place]) for place in places]


@dataclass(frozen=True)
class Aggregation(Folds):
    """Each column has a function of its own; keys and sequence columns are the last row's."""

    functions: tuple[tuple[int, str], ...]
    ignored: Sequence[str] = ()

    def read(self, versions: History) -> Row | None:
        if not versions:
            return None
        row = versions[0].row
        for version in versions[1:]:
            joined = list(version.row)
            for place, name in self.functions:
                joined[place] = FUNCTIONS[name](row[place], version.row[place])
            row = tuple(joined)
        return row


@dataclass(frozen=True)
class FirstRow(Folds):
    """What came first stands."""

    ignored: Sequence[str] = ()

    def read(self, versions: History) -> Row | None:
        return versions[0].row if versions else None

    def shortened(self, versions: History) -> History:
        return versions[:1]


def _total(old: Plain, new: Plain) -> Plain:
    return old if new is None else new if old is None else old + new


def _listed(old: Plain, new: Plain) -> Plain:
    """Blank texts are no part of a list, and a list without parts is null."""
    return ",".join(str(part) for part in (old, new) if part) or None


def _skipping_nulls(choose: Callable[[Plain, Plain], Plain]) -> Callable[[Plain, Plain], Plain]:
    def chosen(old: Plain, new: Plain) -> Plain:
        if old is None or new is None:
            return new if old is None else old
        return choose(old, new)

    return chosen


FUNCTIONS: dict[str, Callable[[Plain, Plain], Plain]] = {
    "sum": _total,
    "max": _skipping_nulls(lambda old, new: new if rank(new) > rank(old) else old),
    "min": _skipping_nulls(lambda old, new: new if rank(new) < rank(old) else old),
    "last_value": lambda old, new: new,
    "last_non_null_value": lambda old, new: old if new is None else new,
    "first_value": lambda old, new: old,
    "first_non_null_value": lambda old, new: new if old is None else old,
    "bool_and": _skipping_nulls(lambda old, new: old and new),
    "bool_or": _skipping_nulls(lambda old, new: old or new),
    "listagg": _listed,
}
COMMUTATIVE = ("sum", "max", "min", "bool_and", "bool_or")

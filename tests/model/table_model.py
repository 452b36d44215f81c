"""The specification: a table is a dictionary with a history. Written from docs/formats.md and docs/semantics.md alone.

Of each key the model keeps the *histories* that may lie in the files: a tuple of versions per
possibility. There is more than one only where the specification leaves a choice: a compaction may
forget a delete (or keep it), and under `sequence.field` a forgotten delete no longer beats an older
row that arrives later. What a read shows settles which it was (`observe`).

A merge engine says what a history reads as, and what may become of it in a compaction. The other
engines are one class each in `engines`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.model.column_kinds import Kind, Plain, rank

Row = tuple[Plain, ...]
Key = tuple[Plain, ...]

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "+I", "-U", "+U", "-D"
ROW_KINDS = (INSERT, UPDATE_AFTER, DELETE, UPDATE_BEFORE)
RETRACTS = (UPDATE_BEFORE, DELETE)


@dataclass(frozen=True)
class Version:
    """One row that was written for a key; `arrival` counts all rows of the table's life."""

    arrival: int
    kind: str
    row: Row


History = tuple[Version, ...]


class MergeSpec(Protocol):
    """What several versions of one key, oldest first, become."""

    @property
    def refused(self) -> Sequence[str]:
        """Row kinds that a writer may not bring."""
        ...

    @property
    def ignored(self) -> Sequence[str]:
        """Row kinds that are dropped as they come."""
        ...

    def read(self, versions: History) -> Row | None:
        """Return the row that a reader sees, or None."""
        ...

    def shortened(self, versions: History) -> History:
        """Return a history that reads the same now and after anything that may follow."""
        ...

    def compacted(self, versions: History) -> set[History]:
        """Return what may be left after any compaction. `versions` itself always may be."""
        ...


@dataclass(frozen=True)
class Deduplicate:
    """The last version stands; if it is a retract, the key is gone."""

    ignored: Sequence[str] = ()
    refused: Sequence[str] = ()

    def read(self, versions: History) -> Row | None:
        if not versions or versions[-1].kind in RETRACTS:
            return None
        return versions[-1].row

    def shortened(self, versions: History) -> History:
        return versions[-1:]

    def compacted(self, versions: History) -> set[History]:
        forgotten = bool(versions) and versions[-1].kind in RETRACTS
        return {versions, ()} if forgotten else {versions}


@dataclass(frozen=True)
class Shape:
    """What a table is: its columns in order, its keys, what orders the rows of one key, and what
    they merge to. `rises`: rows come in the order of their only sequence column.
    """

    columns: tuple[tuple[str, Kind], ...]
    primary_key: tuple[str, ...]
    partitioned_by: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    sequence_descending: bool = False
    rises: bool = False
    engine: str = "deduplicate"
    merge: MergeSpec = Deduplicate()
    merge_options: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """Sequence groups: the columns that order one, and those that they protect."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def kind(self, name: str) -> Kind:
        return dict(self.columns)[name]

    @property
    def is_plain(self) -> bool:
        """Whether every file format holds these columns as Parquet does."""
        return all(kind.is_everywhere for _, kind in self.columns)

    def places(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.names.index(name) for name in names)

    def part(self, row: Row, names: Sequence[str]) -> tuple[Plain, ...]:
        return tuple(row[place] for place in self.places(names))

    def key_of(self, row: Row) -> Key:
        return self.part(row, self.primary_key)

    @property
    def trimmed_key(self) -> tuple[str, ...]:
        trimmed = tuple(name for name in self.primary_key if name not in self.partitioned_by)
        return trimmed or self.primary_key

    def partition_of_key(self, key: Key) -> tuple[Plain, ...]:
        values = dict(zip(self.primary_key, key, strict=True))
        return tuple(values[name] for name in self.partitioned_by)


@dataclass(frozen=True)
class Moment:
    """One snapshot: when, why, and what a reader of it sees."""

    id: int
    time_millis: int
    kind: str
    rows: Mapping[Key, Row]


@dataclass
class TableModel:
    """A table's specification, and its snapshots and tags."""

    shape: Shape
    state: dict[Key, set[History]] = field(default_factory=dict)
    snapshots: dict[int, Moment] = field(default_factory=dict)
    tags: dict[str, Moment] = field(default_factory=dict)
    arrivals: int = 0

    @property
    def merge(self) -> MergeSpec:
        return self.shape.merge

    # What changes a table.

    def write(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Rows arrive, in order."""
        for kind, row in rows:
            self.arrivals += 1
            if kind in self.merge.ignored:
                continue
            version = Version(self.arrivals, kind, row)
            key = self.shape.key_of(row)
            before = self.state.get(key, {()})
            self.state[key] = {self._joined(history, version) for history in before}

    def overwrite(
        self, rows: Sequence[tuple[str, Row]], replaces: Callable[[tuple[Plain, ...]], bool]
    ) -> None:
        """Partitions that `replaces` says are emptied, then rows arrive."""
        for key in list(self.state):
            if replaces(self.shape.partition_of_key(key)):
                del self.state[key]
        self.write(rows)

    def compact(self) -> None:
        """Any compaction, of any part: nothing that can be read changes."""
        for key, histories in self.state.items():
            self.state[key] = set().union(*(self.merge.compacted(one) for one in histories))

    def compact_as_of(self, base: "TableModel", since: Sequence[tuple[str, Row]]) -> None:
        """A compaction of `base` lands, on top of which the rows `since` have been written.

        What it forgot it forgot before they came: under `sequence.field` a row that was hidden by
        a delete may show itself.
        """
        base.compact()
        base.write(since)
        for key, histories in base.state.items():
            self.state[key] = self.state.get(key, set()) | histories

    def copied(self) -> "TableModel":
        """The same keys, for going another way from here."""
        state = {key: set(histories) for key, histories in self.state.items()}
        return TableModel(self.shape, state, arrivals=self.arrivals)

    def _joined(self, history: History, version: Version) -> History:
        newest_last = sorted((*history, version), key=self._age)
        return self.merge.shortened(tuple(newest_last))

    def _age(self, version: Version) -> tuple[Any, ...]:
        user = self.shape.part(version.row, self.shape.sequence)
        descending = self.shape.sequence_descending
        return (*(rank(value, descending=descending) for value in user), version.arrival)

    # What may be read.

    def answers(self, key: Key) -> set[Row | None]:
        """Every answer that the specification allows for a key."""
        return {self.merge.read(history) for history in self.state.get(key, {()})}

    def check(self, seen: Mapping[Key, Row]) -> None:
        """Assert that a read of the newest snapshot shows what the specification allows."""
        wrong = {
            key: (seen.get(key), self.state.get(key))
            for key in self.state.keys() | seen.keys()
            if seen.get(key) not in self.answers(key)
        }
        assert not wrong, f"key: (read, possible histories) {wrong}"

    def observe(self, seen: Mapping[Key, Row]) -> None:
        """Check a read, and keep only the histories that it leaves possible."""
        self.check(seen)
        for key, histories in self.state.items():
            answer = seen.get(key)
            self.state[key] = {one for one in histories if self.merge.read(one) == answer}

    # Snapshots and tags.

    def record(
        self, snapshot_id: int, time_millis: int, kind: str, rows: Mapping[Key, Row]
    ) -> None:
        """A snapshot was made."""
        self.snapshots[snapshot_id] = Moment(snapshot_id, time_millis, kind, dict(rows))

    @property
    def latest(self) -> Moment | None:
        """The newest snapshot."""
        return self.snapshots[max(self.snapshots)] if self.snapshots else None

    @property
    def rows(self) -> Mapping[Key, Row]:
        """What the newest snapshot reads as."""
        return self.latest.rows if self.latest else {}

    def as_of(self, millis: int) -> Moment | None:
        """The newest snapshot at or before a time (semantics section 7); None: there is none."""
        before = [one for one in self.snapshots.values() if one.time_millis <= millis]
        return max(before, key=lambda one: one.id) if before else None

    def to_expire(
        self, now_millis: int, *, keep_min: int, keep_max: int, keep_millis: int, limit: int
    ) -> set[int]:
        """Which snapshots retention takes (semantics section 4)."""
        if not self.snapshots:
            return set()
        earliest, latest = min(self.snapshots), max(self.snapshots)
        end = min(latest - keep_min + 1, earliest + limit)
        for number in range(max(earliest, latest - keep_max + 1), end):
            if self.snapshots[number + 1].time_millis >= now_millis - keep_millis:
                end = number
                break
        return set(range(earliest, end))

    def expire(self, gone: Iterable[int]) -> None:
        """Snapshots are taken; tags keep what they name."""
        for number in gone:
            del self.snapshots[number]

"""Readers of changes that stop after each micro-batch and go on as somebody else.

Every micro-batch is read by a process of its own, which may die before it has dealt with what it
read, after that and before it could say so, or in time. What they got, one after the other, has to
be what the changelog tells, or where there is none what somebody gets who never stops.
"""

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lsm_engine as lsm
from lsm_engine.api.table import Table
from lsm_engine.changes.follow import Followed
from tests.model.changelog_histories import ENGINES, Engine, History, options_of
from tests.model.changelog_replay import Replay, Values
from tests.model.table_model import Key
from tests.model.world import components, reopen

Change = tuple[str, Values]
COMPARING = ("lookup", "full-compaction")
OUTLIVES = {
    "changelog.num-retained.min": "100",
    "changelog.num-retained.max": "100",
    "changelog.time-retained": "30 d",
}
KEEPING: tuple[dict[str, str], ...] = ({}, OUTLIVES, OUTLIVES | {"consumer.changelog-only": "true"})


class Sink(Replay):
    """Keeps what it is told, by snapshot, and the table that comes of it."""

    def __init__(self, history: History) -> None:
        strict = history.producer in COMPARING
        super().__init__(history.storage, strict=strict)
        self.told: dict[int, list[Change]] = {}

    def take(self, snapshot_id: int, changes: list[Change]) -> None:
        """Take changes from whoever read them."""
        self.seen = snapshot_id
        self._apply(changes)

    def begin(self, snapshot_id: int, state: list[Change]) -> None:
        """Take the state that changes begin with, instead of all there is."""
        self.rows = {}
        self.take(snapshot_id, state)
        self.told = {}

    def _apply(self, changes: list[Change]) -> None:
        self.told.setdefault(self.seen, []).extend(changes)
        super()._apply(changes)


class Consumer:
    """A named reader. Its sink takes rows and the id of their snapshot together, or neither."""

    def __init__(self, name: str, history: History, **start: Any) -> None:
        self.name = name
        self.sink = Sink(history)
        self.state: dict[Key, Values] = {}
        self.begun_at = 0
        self._history = history
        self._start = start
        self._done = 0  # the last snapshot that was said to be dealt with

    def read_on(self) -> None:
        """Read all there is, in as many lives as that takes."""
        while self._life():
            pass

    def _life(self) -> bool:
        """Live until death, which returns True, or until nothing is new."""
        table, dice = another_process(self._history), self._history.dice
        follower = table.follow(consumer_id=self.name, poll_millis=None, **self._start)
        for item in follower:
            assert item.snapshot_id > self._done, "it comes again, and was dealt with"
            fate = dice.random()
            if fate < 0.2:  # half read, and lost
                next(iter(item.to_batches()), None)
                return True
            self._deal(item)
            if fate < 0.4:  # and nobody was told
                return True
            self._done = item.snapshot_id
            if fate < 0.8:
                follower.acknowledge()
                return True
            # It lives on: asking for the next item says that this one has been dealt with.
        return False

    def _deal(self, item: Followed) -> None:
        changes = changes_of(item.to_arrow())
        if item.is_full:
            self.sink.begin(item.snapshot_id, changes)
            self.begun_at, self.state = item.snapshot_id, dict(self.sink.rows)
            return
        assert changes, "an item that says nothing"
        before = self.sink.told.get(item.snapshot_id)
        assert before is None or before == changes, "what comes again is something else"
        if before is None:
            self.sink.take(item.snapshot_id, changes)


class RangeJob:
    """A job that reads from where its last run ended, some snapshots at a time."""

    name = "ranges"

    def __init__(self, history: History) -> None:
        self.sink = Sink(history)
        self._history = history
        self._read = 0
        self._keep()

    def read_on(self) -> None:
        """Read up to the newest snapshot, each part in a process of its own."""
        latest = another_process(self._history).latest_snapshot()
        newest = 0 if latest is None else latest.id
        while self._read < newest:
            upto = self._history.dice.randint(self._read + 1, newest)
            changes = another_process(self._history).changelog(self._read, upto)
            for snapshot_id in pc.unique(changes["_snapshot_id"]).to_pylist():
                own = changes.filter(pc.field("_snapshot_id") == snapshot_id)
                self.sink.take(snapshot_id, changes_of(own))
            self._read = upto
            self._keep()

    def _keep(self) -> None:
        """Expiry is to leave what comes next."""
        another_process(self._history).reset_consumer(self.name, self._read + 1)


class Steady:
    """One process that never stops, and reads what is there before anything expires."""

    def __init__(self, history: History) -> None:
        self.sink = Sink(history)
        self._follower = history.table.follow("from-snapshot", snapshot_id=1, poll_millis=None)

    def read_on(self) -> None:
        """Read what is new."""
        for item in self._follower:
            self.sink.take(item.snapshot_id, changes_of(item.to_arrow()))


def another_process(history: History) -> Table:
    """The table for somebody who knows nothing but its files."""
    return reopen(components(history.storage))


def changes_of(table: pa.Table) -> list[Change]:
    """Changes as Replay has them."""
    rows = table.drop_columns(["_row_kind", "_snapshot_id"]).to_pylist()
    return list(zip(table["_row_kind"].to_pylist(), rows, strict=True))


@dataclass(kw_only=True)
class Readers:
    """Everybody who reads one history."""

    history: History
    steady: Steady
    first: Consumer
    ranges: RangeJob
    late: Consumer | None = None

    def join(self) -> None:
        """Let somebody begin with the newest state."""
        history = self.history
        self.late = Consumer("late", history, start="latest-full")
        self.late.read_on()
        if history.producer in COMPARING:
            assert self.late.state == history.replay.rows, "it begins with what was told"
        elif history.engine.has_twin:
            assert self.late.state == rows_of(history.twin), "it begins with all that was written"

    def read_on(self, *, all_of_them: bool = False) -> None:
        """Let some of those who stop read on, and the one who does not."""
        self.steady.read_on()
        for reader in (self.first, self.ranges, self.late):
            if reader is not None and (all_of_them or self.history.dice.random() < 0.7):
                reader.read_on()

    def expire(self) -> None:
        """Take what nobody needs, once everybody has made themselves known."""
        table = another_process(self.history)
        named = {one.name for one in table.consumers()}
        wanted = {one.name for one in (self.first, self.ranges, self.late) if one is not None}
        if wanted <= named:
            table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")

    def check(self) -> None:
        """Nothing came twice and nothing is missing, for nobody."""
        everything = told_by_key(self.steady.sink)
        if self.history.producer != "none":
            assert isinstance(self.history.replay, Sink)
            assert everything == told_by_key(self.history.replay)
        assert told_by_key(self.first.sink) == everything
        assert told_by_key(self.ranges.sink) == everything
        assert self.late is not None
        later = {at: told for at, told in everything.items() if at > self.late.begun_at}
        assert told_by_key(self.late.sink) == later
        if makes_the_table(self.history):
            seen = rows_of(self.history.table)
            for reader in (self.steady, self.first, self.ranges, self.late):
                assert reader.sink.rows == seen, reader


def told_by_key(sink: Sink) -> dict[int, list[Change]]:
    """What happened to each key, in order, by snapshot: buckets may come in any order."""
    return {
        at: sorted(changes, key=lambda change: int(change[1]["k"]))
        for at, changes in sink.told.items()
        if changes
    }


def makes_the_table(history: History) -> bool:
    """Whether changes need no merging but that the later one counts."""
    plain = history.engine is ENGINES["deduplicate"]
    return plain or history.producer in COMPARING


def rows_of(table: Table) -> dict[Key, Values]:
    """What a read finds, by key."""
    return {(row["k"],): row for row in table.scan().to_arrow().to_pylist()}


def combinations() -> list[tuple[str, str, bool]]:
    """Every engine with every way to learn of changes, as far as they go together."""
    return [
        (name, producer, vectors)
        for name, engine in ENGINES.items()
        for producer in producers(engine)
        for vectors in (False, True)
        if not vectors or (engine.vectors and producer != "full-compaction")
    ]


def producers(engine: Engine) -> tuple[str, ...]:
    """The changelog producers that an engine goes with."""
    first_row = engine.options.get("merge-engine") == "first-row"
    return (*engine.producers, "none") if first_row else (*engine.producers, "none", "input")


def run_history(name: str, producer: str, seed: int, *, vectors: bool) -> None:
    """Run one history with all its readers to its end."""
    dice = random.Random(f"stopped {name} {producer} {vectors} {seed}")
    options = options_of(ENGINES[name], producer, dice, vectors=vectors) | dice.choice(KEEPING)
    options["bucket"] = dice.choice(["1", "2"])
    history = History(ENGINES[name], options, dice)
    history.replay = Sink(history)
    readers = Readers(
        history=history,
        steady=Steady(history),
        first=Consumer("first", history, start="from-snapshot", snapshot_id=1),
        ranges=RangeJob(history),
    )
    steps = dice.randint(2, 5)
    joins_after = dice.randrange(steps)
    for step in range(steps):
        history.write(dice.choice([2, 8, 40]))
        if dice.random() < 0.4:
            history.compact(full=dice.random() < 0.4)
        check_told(history)
        if dice.random() < 0.1:
            deepen(history)
        if step == joins_after:
            readers.join()
        readers.read_on()
        if dice.random() < 0.4:
            readers.expire()
    history.compact(full=True)
    check_told(history)
    readers.read_on(all_of_them=True)
    readers.check()


def deepen(history: History) -> None:
    """Give the table's trees more levels."""
    count = history.table.options.level_count + history.dice.randint(1, 3)
    history.table.alter(lsm.SetOption(key="num-levels", value=str(count)))


def check_told(history: History) -> None:
    """The changelog so far is right by itself."""
    if history.producer in COMPARING:
        history.check()
    else:
        history.replay.follow()

"""A writer is stopped before a mutating file call of a commit, for as long as it takes: others commit,
one kind of upkeep runs to its end, others commit again; then the writer goes on.

Whatever was acknowledged is there, once, for every kind of table. CI stops it at the calls that decide
and some others; before every one:

    python -m pytest tests/fault/test_nemesis.py -m sweep -q

The same before reads of what it builds on.
"""

from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import CommitConflictError, CommitUnknownError, LsmError
from lsm_engine.ddl.create import create_table
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.doubles import ManualClock, NumberedIds
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.fault.scenarios import clone
from tests.model.world import START_MILLIS, components, reopen

LOOKUP = {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"}
KINDS = {
    "fixed": {"bucket": "2"},
    "dynamic": {"bucket": "-1"},
    "postponed": {"bucket": "-2"},
    "append": {"bucket": "-1"},
    "first-row": {"bucket": "1", "merge-engine": "first-row"},
    "partial-update": {"bucket": "1", "merge-engine": "partial-update"},
    "vectors": {"bucket": "1", **LOOKUP},
    "aggregation": {
        "bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum",
    },
}  # fmt: skip
SHARED = 0
OURS = 50
EXTENTS = pytest.mark.parametrize(
    "extent", ["sample", pytest.param("all", marks=[pytest.mark.sweep, pytest.mark.slow])]
)
Upkeep = Callable[["Others"], set[str | None]]
Stop = Callable[[RecordingFileIO, Call], bool]


def rows(key: int) -> pa.Table:
    """A row of its own for each commit, and one that all add to."""
    return pa.table({"k": pa.array([key, SHARED], pa.int64()), "v": pa.array([1, 1], pa.int64())})


def commit(table: lsm.Table, kind: str, key: int) -> Any:
    return table.append(rows(key)) if kind == "append" else table.upsert(rows(key))


class Others:
    """Other processes, each with a clock that is later and ids of its own."""

    def __init__(self, disk: MemoryFileIO, kind: str, first_id: int = 1_000_000) -> None:
        self._disk = disk
        self._kind = kind
        self._numbers = count(1)
        self._first_id = first_id
        self.known: dict[int, str] = {}

    def table(self) -> lsm.Table:
        number = next(self._numbers)
        clock = ManualClock(START_MILLIS + 20_000_000 + 60_000 * number)
        ids = NumberedIds(first=self._first_id + 10_000 * number)
        return reopen(components(self._disk, clock, ids))

    def commit(self, *keys: int) -> None:
        for key in keys:
            made = commit(self.table(), self._kind, key)
            assert made is not None
            self.known[key] = made.uuid


def expire(others: Others) -> set[str | None]:
    others.table().expire_snapshots(retain_min=1, retain_max=1, older_than="1 ms")
    return set()


def roll_back(others: Others) -> set[str | None]:
    there = {one.uuid for one in others.table().snapshots() if one.id > 3}
    others.table().rollback_to(tag="start")
    return there


def expire_and_roll_back(others: Others) -> set[str | None]:
    there = {one.uuid for one in others.table().snapshots() if one.id > 3}
    expire(others)
    return there | roll_back(others)


def remove_orphans(others: Others) -> set[str | None]:
    expire(others)
    others.table().remove_orphan_files(dry_run=False, older_than="1 d")
    return set()


def untag(others: Others) -> set[str | None]:
    expire(others)
    for tag in others.table().tags():
        others.table().delete_tag(tag.name)
    return set()


def fast_forward(others: Others) -> set[str | None]:
    others.table().create_tag("fork")
    others.table().create_branch("side", "fork")
    session = others.table().branch("side").session
    branched = lsm.Table(session, "t")
    made = commit(branched, others._kind, 150)
    others.table().fast_forward("side")
    others.known[150] = made.uuid
    return set()


UPKEEP = [expire, roll_back, expire_and_roll_back, remove_orphans, untag, fast_forward]


@cache
def _prepared(kind: str) -> tuple[MemoryFileIO, frozenset[int]]:
    disk = MemoryFileIO()
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    create_table(
        disk,
        columns,
        primary_key=() if kind == "append" else ("k",),
        partitioned_by=(),
        options=KINDS[kind],
        comment=None,
        clock=ManualClock(START_MILLIS),
    )
    others = Others(disk, kind, first_id=10_000)
    others.commit(1, 2, 3)
    others.table().create_tag("start")
    return disk, frozenset(others.known)


def acting(storage: RecordingFileIO) -> lsm.Table:
    return reopen(components(storage, ManualClock(START_MILLIS + 15_000_000), NumberedIds(500_000)))


def places(kind: str, extent: str) -> list[int]:
    """Numbers of the calls to stop before: those that decide, and some or all of the others."""
    disk, _ = _prepared(kind)
    storage = RecordingFileIO(clone(disk))
    table = acting(storage)
    first = len(storage.calls) + 1
    commit(table, kind, OURS)
    calls = [call for call in storage.calls[first - 1 :] if call.verb not in ("write", "close")]
    if extent == "all":
        return [call.number for call in calls]
    decisive = [
        call.number for call in calls if call.verb in ("publish", "replace") or call is calls[0]
    ]
    return decisive[:5]


def stopped(
    kind: str, upkeep: Upkeep, stops: Stop
) -> tuple[MemoryFileIO, Others, Any, set[str | None]]:
    """Run a commit that is stopped before one call; return what came of it and what was rolled back."""
    start, _ = _prepared(kind)
    disk = clone(start)
    others = Others(disk, kind)
    gone: set[str | None] = set()
    has_stopped = False

    def on_call(call: Call) -> None:
        nonlocal has_stopped
        if not has_stopped and stops(storage, call):
            has_stopped = True
            if upkeep is not fast_forward:
                others.commit(100, 101, 102)
            gone.update(upkeep(others))
            others.commit(200)

    storage = RecordingFileIO(disk, on_call=on_call)
    try:
        came = commit(acting(storage), kind, OURS)
    except LsmError as error:
        came = error
    assert has_stopped
    return disk, others, came, gone


def check(kind: str, disk: MemoryFileIO, others: Others, came: Any, gone: set[str | None]) -> None:
    """Every acknowledged commit is there once, unless it was rolled back; no other is."""
    _, known = _prepared(kind)
    judge = Others(disk, kind, first_id=5_000_000)
    report = judge.table().verify()
    assert not report.problems, report.problems
    judge.table().compact(full=True)
    found = judge.table().scan().to_arrow().to_pylist()
    keys = [row["k"] for row in found if row["k"] != SHARED]
    assert len(keys) == len(set(keys)), f"doubled: {sorted(keys)}"
    wanted = known | {key for key, uuid in others.known.items() if uuid not in gone}
    maybe = set()
    if isinstance(came, CommitUnknownError):
        maybe = {OURS}
    elif isinstance(came, LsmError):
        assert isinstance(came, CommitConflictError), repr(came)
    elif {came.uuid} & gone:
        maybe = {OURS}
    else:
        wanted |= {OURS}
    assert set(keys) - maybe == wanted - maybe, f"{came!r}: {sorted(keys)}, not {sorted(wanted)}"
    if kind == "aggregation":
        (total,) = (row["v"] for row in found if row["k"] == SHARED)
        assert total == len(keys), "a commit is in the sum and its row is not, or the reverse"
    if kind == "append":
        assert len(found) == 2 * len(keys)
    for tag in judge.table().tags():
        if tag.name == "start":
            tagged = judge.table().scan(tag="start").to_arrow()
            assert known >= set(tagged.column("k").to_pylist()) - {SHARED}


PAIRS = [
    (kind, UPKEEP[(number + step) % len(UPKEEP)])
    for number, kind in enumerate(KINDS)
    for step in (0, 1, 3)
]
"""Each kind of table with three kinds of upkeep, each of which meets four kinds of tables."""


@pytest.mark.parametrize(
    ("kind", "upkeep", "extent"),
    [
        *((kind, upkeep, "sample") for kind, upkeep in PAIRS),
        *(
            pytest.param(kind, upkeep, "all", marks=[pytest.mark.sweep, pytest.mark.slow])
            for kind in KINDS
            for upkeep in UPKEEP
        ),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_writer_that_is_stopped_loses_and_doubles_nothing(
    kind: str, upkeep: Upkeep, extent: str
) -> None:
    for at in places(kind, extent):

        def stops(storage: RecordingFileIO, call: Call, at: int = at) -> bool:
            return call.number == at and storage.calls[-1:] == [call]

        disk, others, came, gone = stopped(kind, upkeep, stops)
        try:
            check(kind, disk, others, came, gone)
        except (AssertionError, LsmError) as wrong:
            raise AssertionError(f"stopped at call {at}: {wrong!r}") from wrong


@pytest.mark.parametrize("kind", KINDS)
@EXTENTS
def test_a_writer_that_is_stopped_before_it_reads_its_base_plans_again(
    kind: str, extent: str
) -> None:
    """What it read was to be built on, and is gone: an expired state, which no tag keeps any more."""
    storage = RecordingFileIO(clone(_prepared(kind)[0]))
    table = acting(storage)
    opened = len(storage.reads)
    commit(table, kind, OURS)
    reads = [
        call for call in storage.reads[opened:] if extent == "all" or "manifest-list" in call.path
    ]
    assert reads
    for upkeep in UPKEEP if extent == "all" else [untag]:
        for at in reads:
            disk, others, came, gone = stopped(kind, upkeep, lambda _, call, at=at: call == at)
            assert not isinstance(came, CommitConflictError), came
            check(kind, disk, others, came, gone)


@pytest.mark.parametrize("upkeep", UPKEEP, ids=lambda act: act.__name__)
@pytest.mark.parametrize("kind", ["fixed", "append"])
def test_a_writer_that_is_stopped_between_its_create_and_its_look(
    kind: str, upkeep: Upkeep
) -> None:
    """Others build on it: it has committed, or cannot know any more."""

    def stops(storage: RecordingFileIO, call: Call) -> bool:
        before = storage.calls[-2] if len(storage.calls) > 1 else call
        landed = before.verb == "publish" and before.path.startswith("snapshot/snapshot-")
        return landed and call.path.startswith("snapshot/snapshot-") and call.verb == "read"

    disk, others, came, gone = stopped(kind, upkeep, stops)
    check(kind, disk, others, came, gone)


def test_without_the_fence_the_commit_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nemesis can fail: it finds what the fence was built for."""

    def unfenced(store: Any, landed: Any, base: Any, _: Any) -> bool:
        store.announce(landed, is_first=base is None)
        return True

    monkeypatch.setattr("lsm_engine.commit.publish.confirm", unfenced)
    with pytest.raises(AssertionError):
        test_a_writer_that_is_stopped_loses_and_doubles_nothing("fixed", expire, "sample")

"""Numbered commits that die, fail, or pause while others commit and expire, at the storage calls of all that touches
commit identifiers: each number is applied once, and refused at worst where another client has expired it unseen.

CI takes a sample of the calls, those that change the file of commit identifiers among them. Every call:

    python -m pytest tests/fault/test_replays.py -m sweep -q
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind, LsmError, StorageError
from lsm_engine.ddl.open import load_schema
from lsm_engine.planning import commit_identifiers
from lsm_engine.storage.file_io import FileIO
from lsm_engine.table.components import Components, LocalExecutor
from lsm_engine.table.session import TableSession
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.doubles import ManualClock, NumberedIds
from tests.fault.recording_file_io import (
    Call,
    Crash,
    Die,
    Fail,
    LoseReply,
    RecordingFileIO,
    When,
)
from tests.fault.scenarios import clone
from tests.foreign_documents import commit_as_another_client, expire_as_another_client
from tests.unit.table.history_tables import START, Story

SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}
Act = Callable[[lsm.Table], object]
EXTENTS = pytest.mark.parametrize(
    "extent", ["sample", pytest.param("all", marks=[pytest.mark.sweep, pytest.mark.slow])]
)


_processes = count(1)


def opened(storage: FileIO) -> lsm.Table:
    """The table as a process of its own has it, later than those before."""
    number = next(_processes)
    parts = Components(
        file_io=storage,
        clock=ManualClock(START + 1_000_000 + number * 1000),
        ids=NumberedIds(first=number * 10_000),
        executor=LocalExecutor(threads=1),
    )
    return lsm.Table(TableSession("t", parts, load_schema(storage, "t")), "t")


def feed(table: lsm.Table, identifier: int, user: str = "feed") -> None:
    row = {"id": 1, "v": f"{user}-{identifier}"}
    table.upsert([row], commit_user=user, commit_identifier=identifier)


def fed(disk: FileIO) -> list[str]:
    rows = opened(disk).scan(where="id = 1").to_arrow()["v"].to_pylist()
    return rows[0].split(",") if rows else []


def expire_all(table: lsm.Table) -> object:
    return table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s", everything=True)


def commit_and_expire_as_another_client(table: lsm.Table) -> None:
    disk = table.session.file_io
    expire_as_another_client(disk, commit_as_another_client(disk, 3))


@dataclass(frozen=True)
class Line:
    """A table before the operation: snapshots that carry commit identifiers, others above them, an expiry or not."""

    has_others: bool = False
    is_expired: bool = False
    users: int = 1

    def disk(self) -> MemoryFileIO:
        story = Story(options=SUMS)
        for number in (1, 2):
            for user in range(self.users):
                feed(story.table, number, f"user-{user}" if user else "feed")
            if self.has_others:
                commit_as_another_client(story.disk, 2)
            else:
                story.put(k2="x")
        if self.is_expired:
            story.clock.advance(1000)
            expire_all(story.reopened())
        return story.disk


LINES = {
    "alone": Line(),
    "alone, expired": Line(is_expired=True),
    "many users": Line(users=7),
    "beside others": Line(has_others=True),
    "beside others, expired": Line(has_others=True, is_expired=True),
}
ACTS: dict[str, Act] = {
    "commit": lambda table: feed(table, 3),
    "commit of a new user": lambda table: feed(table, 3, "new"),
    "expiry": expire_all,
}
THEIRS: dict[str, Act] = {
    "replay": lambda table: feed(table, 3),
    "expiry": expire_all,
    "expiry of another client": commit_and_expire_as_another_client,
    "commit of another user": lambda table: feed(table, 9, "another"),
}


@pytest.fixture(params=list(LINES))
def line(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setattr(commit_identifiers, "USERS_CARRIED", 4)
    return LINES[request.param]


def places(disk: MemoryFileIO, act: Act, extent: str, *, mutating: bool) -> list[int]:
    """The calls to break in at: those of an undisturbed run, all or some."""
    calls: list[Call] = []
    storage = RecordingFileIO(clone(disk), on_call=calls.append)
    act(opened(storage))
    if mutating:
        calls = storage.calls
    decisive = [
        number
        for number, call in enumerate(calls, 1)
        if "commit-identifiers" in call.path or call.verb == "publish"
    ]
    sample = {len(calls) // 2, *decisive[:: max(1, len(decisive) - 1)]} - {0}
    return list(range(1, len(calls) + 1)) if extent == "all" else sorted(sample)


def is_committed(disk: FileIO, identifier: int, user: str) -> bool:
    """Whether a number is in the table by now; False: it was refused, as that is not known."""
    try:
        feed(opened(disk), identifier, user)
    except lsm.InvalidInputError as error:
        if error.kind is not ErrorKind.UNKNOWN_IDENTIFIER:
            raise
        return False
    return True


def check(disk: MemoryFileIO, acknowledged: set[str], *, is_cut: bool) -> None:
    """Replay every number and go on, twice, with a full expiry by each client between: each number is there once.

    `is_cut`: another client may have expired the only trace of a commit, so that a number may be refused.
    """
    expected = {"feed-1", "feed-2", "feed-3", "feed-4", "new-3"}
    for between in (expire_all, commit_and_expire_as_another_client):
        for user, identifier in (("feed", 1), ("feed", 2), ("feed", 3), ("new", 3), ("feed", 4)):
            if not is_committed(disk, identifier, user):
                assert is_cut, f"refused {user}-{identifier}"
                expected -= {f"{user}-{identifier}"}
        between(opened(disk))
    now = fed(disk)
    assert len(now) == len(set(now)), f"committed twice: {now}"
    assert expected | acknowledged <= set(now), f"lost: {expected | acknowledged - set(now)}"
    assert opened(disk).verify().problems == ()


def acknowledged_by(act: str) -> set[str]:
    return {"commit": {"feed-3"}, "commit of a new user": {"new-3"}}.get(act, set())


@EXTENTS
@pytest.mark.parametrize("when", list(When), ids=lambda when: when.value)
@pytest.mark.parametrize("act", ACTS)
def test_killed(line: Line, act: str, when: When, extent: str) -> None:
    start = line.disk()
    # The sample cuts every other death: at each call some of those before, halfway and after it.
    first = list(When).index(when)
    for number, place in enumerate(places(start, ACTS[act], extent, mutating=True), first):
        for is_cut in (False, True) if extent == "all" else (number % 2 == 1,):
            disk = clone(start)
            storage = RecordingFileIO(disk, Die(at=place, when=when))
            with pytest.raises(Crash):
                ACTS[act](opened(storage))
            if is_cut:
                commit_and_expire_as_another_client(opened(disk))
            try:
                check(disk, set(), is_cut=is_cut)
            except AssertionError as wrong:
                raise AssertionError(f"killed {when.value} {storage.calls[-1]}: {wrong}") from wrong


@EXTENTS
@pytest.mark.parametrize("act", ACTS)
def test_failed_and_unanswered(line: Line, act: str, extent: str) -> None:
    """A storage error, or an answer that was lost: the commit is in the table or not, and its replay is right."""
    start = line.disk()
    for place in places(start, ACTS[act], extent, mutating=True):
        error = StorageError("the disk is full", errno="ENOSPC")
        for fault in (Fail(at=place, error=error), LoseReply(at=place)):
            disk = clone(start)
            storage = RecordingFileIO(disk, fault)
            acknowledged: set[str] = set()
            with suppress(LsmError):
                ACTS[act](opened(storage))
                acknowledged = acknowledged_by(act)
            try:
                check(disk, acknowledged, is_cut=False)
            except AssertionError as wrong:
                raise AssertionError(f"{fault} {storage.calls[place - 1]}: {wrong}") from wrong


@EXTENTS
@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.parametrize("act", ACTS)
def test_paused(line: Line, act: str, theirs: str, extent: str) -> None:
    """Before a call of one process another one runs from start to end."""
    start = line.disk()
    for place in places(start, ACTS[act], extent, mutating=False):
        disk, calls = clone(start), 0
        acknowledged: set[str] = set()

        def on_call(
            call: Call,
            disk: MemoryFileIO = disk,
            place: int = place,
            acknowledged: set[str] = acknowledged,
        ) -> None:
            nonlocal calls
            calls += 1
            if calls == place:
                with suppress(LsmError):
                    THEIRS[theirs](opened(disk))
                    acknowledged.update({"replay": {"feed-3"}}.get(theirs, ()))

        with suppress(LsmError):
            ACTS[act](opened(RecordingFileIO(disk, on_call=on_call)))
            acknowledged |= acknowledged_by(act)
        try:
            check(disk, acknowledged, is_cut="another client" in theirs)
        except AssertionError as wrong:
            raise AssertionError(f"{theirs} before call {place}: {wrong}") from wrong

"""Crashes and faults over memory: die, fail or lose the answer at the mutating calls of every operation.

CI takes a sample of the calls, those around each publish always. Every call:

    python -m pytest tests/fault/test_commit_crash.py -m sweep -q

Kills of real processes on a real disk are in test_kill.py.
"""

import errno
from contextlib import nullcontext

import pytest

from lsm_engine.base.errors import CommitUnknownError, LsmError, StorageError
from lsm_engine.storage.file_io import to_storage_error
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import (
    Crash,
    Die,
    Fail,
    LoseReply,
    Misread,
    RecordingFileIO,
    When,
)
from tests.fault.scenarios import (
    SCENARIOS,
    Scenario,
    acting,
    check_old_or_new,
    check_retried,
    outcome,
    prepared,
    view,
)
from tests.model.invariants import check_reachability
from tests.model.stored_table import StoredTable

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EACCES": errno.EACCES}
MAINTENANCE = [name for name, scenario in SCENARIOS.items() if scenario.maintains]


EXTENTS = ["sample", pytest.param("all", marks=[pytest.mark.sweep, pytest.mark.slow])]


def calls_of(scenario: Scenario, extent: str, *, reads: bool = False) -> list[int]:
    """Numbers of the calls of an undisturbed run, all or some."""
    disk, _ = prepared(scenario.name)
    storage = RecordingFileIO(disk)
    scenario.act(acting(storage))
    calls = storage.reads if reads else storage.calls
    assert calls, "nothing was done"
    count = len(calls)
    if extent == "all":
        return list(range(1, count + 1))
    chosen = {
        1,
        count,
        *range(1 + len(scenario.name) % 3, count + 1, max(1, count // scenario.sample)),
    }
    for call in calls:
        if call.verb == "publish" and scenario.sample > 2:
            chosen |= {call.number - 1, call.number, call.number + 1} - {0, count + 1}
    return sorted(chosen)


@pytest.fixture(params=list(SCENARIOS))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return SCENARIOS[request.param]


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("when", list(When), ids=lambda when: when.value)
def test_killed(scenario: Scenario, when: When, extent: str) -> None:
    """Old state or new, all tags readable, and a retry gives one copy."""
    for number in calls_of(scenario, extent):
        disk, _ = prepared(scenario.name)
        storage = RecordingFileIO(disk, Die(at=number, when=when))
        with pytest.raises(Crash):
            scenario.act(acting(storage))
        try:
            check_old_or_new(scenario, disk)
            check_retried(scenario, disk)
        except AssertionError as wrong:
            raise AssertionError(f"killed {when.value} {storage.calls[-1]}: {wrong}") from wrong


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("kind", list(ERRORS))
def test_an_error(scenario: Scenario, kind: str, extent: str) -> None:
    """Success, or a clean error with the visible state unchanged and nothing staged left behind."""
    for number in calls_of(scenario, extent):
        disk, before = prepared(scenario.name)
        error = to_storage_error("the call that failed", OSError(ERRORS[kind], kind))
        when = When.HALFWAY if kind == "ENOSPC" else When.BEFORE
        storage = RecordingFileIO(disk, Fail(at=number, error=error, when=when))
        failed = None
        try:
            scenario.act(acting(storage))
        except LsmError as raised:
            failed = raised
        where = f"{kind} at {storage.calls[number - 1]}: {failed!r}"
        now = check_old_or_new(scenario, disk)
        if failed is None:
            assert now.head == outcome(scenario.name).head, where
        elif not scenario.expires and not scenario.rolls_back and not made_part(scenario, storage):
            assert now == before, where
        if scenario.name not in MAINTENANCE and storage.calls[number - 1].verb not in (
            "delete",
            "abort",
        ):
            left = [path for path in disk._files if path.endswith(".tmp")]
            if when is When.HALFWAY:
                left.append(storage.calls[number - 1].path)
            try:
                check_reachability(StoredTable(disk), staged=left)
            except AssertionError as wrong:
                raise AssertionError(f"{where}: {wrong}") from wrong
        check_retried(scenario, disk)


def made_part(scenario: Scenario, storage: RecordingFileIO) -> bool:
    """Whether the first of two snapshots had landed before the call that failed."""
    return (
        any(call.verb == "publish" for call in storage.calls[:-1]) or scenario.name in MAINTENANCE
    )


@pytest.mark.parametrize("extent", EXTENTS)
def test_a_lost_reply(scenario: Scenario, extent: str) -> None:
    """What took effect without an answer is found again; it is never done twice or deleted."""
    for number in calls_of(scenario, extent):
        disk, _ = prepared(scenario.name)
        storage = RecordingFileIO(disk, LoseReply(at=number))
        try:
            scenario.act(acting(storage))
            failed = None
        except LsmError as raised:
            failed = raised
        call = storage.calls[number - 1]
        now = check_old_or_new(scenario, disk)
        if call.verb == "publish" or failed is None:
            assert failed is None, f"{call} had landed, yet: {failed!r}"
            assert now.head == outcome(scenario.name).head, call
            assert now.tags == outcome(scenario.name).tags, call
        check_retried(scenario, disk)


def test_no_answer_and_nothing_done(scenario: Scenario) -> None:
    """The storage says neither yes nor no to a publish, and it was no: the commit lands all the same."""
    for number in publishes(scenario):
        disk, _ = prepared(scenario.name)
        error = CommitUnknownError("no answer")
        storage = RecordingFileIO(disk, Fail(at=number, error=error))
        try:
            scenario.act(acting(storage))
            assert view(disk).head == outcome(scenario.name).head
        except LsmError:
            check_old_or_new(scenario, disk)
        check_retried(scenario, disk)


def publishes(scenario: Scenario) -> list[int]:
    disk, _ = prepared(scenario.name)
    storage = RecordingFileIO(disk)
    scenario.act(acting(storage))
    # A hint may be lost as it likes; the file of commit identifiers is no commit (test_replays loses its replies).
    return [
        call.number
        for call in storage.calls
        if call.verb == "publish" and not call.path.endswith(("EARLIEST", "commit-identifiers"))
    ]


def test_an_unknown_outcome_deletes_nothing(scenario: Scenario) -> None:
    """Reply lost, and then the storage cannot be read: nobody knows, so every staged file stays."""
    for number in publishes(scenario):
        disk, _ = prepared(scenario.name)
        storage = UnreadableAfter(disk, number)
        compacts_too = scenario.name.startswith("commit and compact")
        is_afterthought = compacts_too and number != publishes(scenario)[0]
        unknown = (
            (CommitUnknownError, StorageError) if "tag" in scenario.name else CommitUnknownError
        )
        with nullcontext() if is_afterthought else pytest.raises(unknown):
            scenario.act(acting(storage))
        before_publish = [call for call in storage.calls if call.number <= number]
        deletes = [call for call in storage.calls[number:] if call.verb in ("delete", "abort")]
        assert not deletes, f"deleted after {before_publish[-1]}: {deletes}"
        check_old_or_new(scenario, disk)
        check_retried(scenario, disk)


class UnreadableAfter(RecordingFileIO):
    """Loses the reply of one mutating call; from then on every read fails."""

    def __init__(self, inner: MemoryFileIO, number: int) -> None:
        super().__init__(inner, LoseReply(at=number), on_call=self._unreadable)
        self._number = number

    def _unreadable(self, call: object) -> None:
        if len(self.calls) >= self._number and self.reads and self.reads[-1] is call:
            raise StorageError("cannot be read now", errno="EIO")


@pytest.mark.parametrize("extent", EXTENTS)
def test_a_read_that_fails(scenario: Scenario, extent: str) -> None:
    """Nothing visible is harmed and nothing that is needed deleted."""
    for number in calls_of(scenario, extent, reads=True):
        disk, _ = prepared(scenario.name)
        error = StorageError("cannot be read now", errno="EIO")
        flaky = RecordingFileIO(disk)
        try:
            table = acting(flaky)
            flaky._faults = (Misread(at=number, how=error),)
            scenario.act(table)
        except LsmError:
            pass
        check_old_or_new(scenario, disk)
        check_retried(scenario, disk)

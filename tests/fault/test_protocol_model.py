"""The commit protocol as a model: every order of single file calls of small histories, on the real code.

Writers, an expirer, a reader and a rollback run SnapshotStore, confirm, the fence of expiry and the
steps of rollback (docs/commit-protocol.md). A process is known by the answers that it was given: to
learn its next call it is run again on them. States that were seen are not entered twice, so this is
every interleaving; and as the invariants are checked after each call, every crash and pause is among
them. CI explores those that take the fewest preemptions, as many as fit into seconds; all of them:

    LSM_MODEL_STATES=100000000 python -m pytest tests/fault/test_protocol_model.py -q
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    NotFoundError,
    StorageError,
)
from lsm_engine.codec.documents import decode_snapshot, encode_snapshot
from lsm_engine.io.file_io import FileStatus
from lsm_engine.io.one_by_one import OneByOne
from lsm_engine.io.paths import TablePaths
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import with_base
from lsm_engine.store.snapshots import SnapshotStore
from lsm_engine.table.commit import fence
from lsm_engine.table.history import expire, rollback
from tests.unit.store.documents import snapshot

STATES = int(os.environ.get("LSM_MODEL_STATES", "40000"))
PATHS = TablePaths(root="t")
PREFIX = "t/snapshot/"
Files = frozenset[tuple[str, bytes]]
Answers = tuple[Any, ...]


class NextCall(BaseException):
    """A process has come to a call that nobody has answered yet."""

    def __init__(self, verb: str, path: str, data: bytes) -> None:
        super().__init__(verb, path)
        self.call = (verb, path, data)


class Replayed(OneByOne):
    """A FileIO that gives recorded answers, and stops the process at the first new call."""

    def __init__(self, answers: Answers) -> None:
        self._answers = iter(answers)
        self.waited = 0

    def sleep_millis(self, millis: int) -> None:
        self.waited += 1

    def _call(self, verb: str, path: str, data: bytes = b"") -> Any:
        for answer in self._answers:
            if isinstance(answer, NotFoundError):
                raise answer
            return answer
        raise NextCall(verb, path, data)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._call("read", path)

    def exists(self, path: str) -> bool:
        return self._call("exists", path)

    def list(self, path: str) -> list[FileStatus]:
        return list(self._call("list", path))

    def publish(self, path: str, data: bytes) -> bool:
        return self._call("publish", path, data)

    def replace(self, path: str, data: bytes, *, may_skip: bool = False) -> None:
        self._call("replace", path, data)

    def delete(self, path: str) -> bool:
        return self._call("delete", path)


GONE = NotFoundError("no such file")


def carried_out(files: Files, verb: str, path: str, data: bytes) -> tuple[Files, Any]:
    """Return the files after a call, and its answer."""
    there = dict(files)
    match verb:
        case "read":
            return files, there.get(path, GONE)
        case "exists":
            return files, path in there
        case "list":
            found = (
                FileStatus(path=one, size=1, modified_millis=0, is_directory=False)
                for one in sorted(there)
            )
            return files, tuple(found)
        case "publish":
            return (files, False) if path in there else (files | {(path, data)}, True)
        case "replace":
            return frozenset({**there, path: data}.items()), None
        case "delete":
            return frozenset((one, held) for one, held in files if one != path), path in there
    raise AssertionError(verb)


def content(one: Snapshot | None) -> tuple[str, ...]:
    """The commits that a snapshot's state holds, in order."""
    return () if one is None else tuple(one.commit_user.split(","))


def made_on(base: Snapshot | None, name: str) -> Snapshot:
    number = 1 if base is None else base.id + 1
    return snapshot(  # type: ignore[no-any-return]
        number,
        commit_user=",".join([*content(base), name]),
        delta_manifest_list=f"delta-{number}-{name}",
        uuid=f"{number}-{name}",
        properties=with_base(None, base),
    )


# --- processes: each gets a store, and returns what it would report -----------------------------------


def writer(*names: str) -> Callable[[SnapshotStore], object]:
    """Commit one name after another; what came out of each is reported as soon as it is known."""

    def run(store: SnapshotStore, report: Callable[[str], None]) -> object:
        for name in names:
            for attempt in range(4):
                base = store.latest()
                landed = made_on(base, f"{name}{attempt or ''}")
                try:
                    if store.publish(landed) and fence.confirm(store, landed, base):
                        report(f"{name}{attempt or ''}")
                        break
                except CommitUnknownError:
                    return "unknown"
            else:
                return "gave up"
        return "done"

    return run  # type: ignore[return-value]


def session_of(store: SnapshotStore) -> Any:
    return SimpleNamespace(
        snapshots=store,
        options={core_options.COMMIT_FSYNC: False},
        tags=SimpleNamespace(stable_listing=list),
        clock=store._file_io,
    )


def expirer(store: SnapshotStore, report: Callable[[str], None]) -> object:
    """Take all but the newest, in the order of table/history/expire and table/tags/removal."""
    del report
    try:
        there = store.stable_listing()
    except StorageError:
        return "refused"  # the first snapshot landed between a listing and a probe
    choice = expire.ExpiryChoice(expired=tuple(there[:-1]), kept=tuple(there[-1:]), reason="")
    if choice.expired:
        try:
            expire._raise_fence(session_of(store), choice)
        except CommitConflictError:
            return "conflict"
        for one in choice.expired:
            store.delete_state(one)
    return "done"


def reader(store: SnapshotStore, report: Callable[[str], None]) -> object:
    del report
    return content(store.latest())


def roll_back(store: SnapshotStore, report: Callable[[str], None]) -> object:
    """Return to snapshot 1, in the order of table/history/rollback; report what it says it took."""
    there = store.stable_listing()
    later = tuple(reversed(there[1:]))
    plan: Any = SimpleNamespace(target=there[0], snapshots=later)
    end = "done"
    try:
        store.forget_latest()
        rollback._take_snapshots(session_of(store), plan)
        store.announce(there[0].id)
    except CommitConflictError as error:
        later = tuple(one for one in later if one.id in error.facts["taken"])  # type: ignore[operator]
        end = "conflict"
        if store._file_io.waited >= 2:  # type: ignore[attr-defined]
            report("waited in vain")
    for one in later:
        report("took " + content(one)[-1])
    return end


# --- the search ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """`known` are what processes reported, `began` what was when the reader made its first call."""

    files: Files
    answers: tuple[Answers, ...]
    known: frozenset[str]
    began: frozenset[str] | None = None


@dataclass
class Search:
    """Every state that can be reached, from the files and processes given."""

    processes: tuple[Any, ...]
    files: Files
    rolls_back: bool = False
    steps: dict[tuple[int, Answers], tuple[Any, tuple[str, ...], object]] = field(
        default_factory=dict
    )
    views: dict[Files, Snapshot | None] = field(default_factory=dict)

    def step(self, number: int, answers: Answers) -> tuple[Any, tuple[str, ...], object]:
        """Return a process's next call (None: it has ended), what it reported so far, and its end."""
        if (number, answers) not in self.steps:
            reported: list[str] = []
            store = SnapshotStore(Replayed(answers), PATHS)  # type: ignore[arg-type]
            try:
                end = self.processes[number](store, reported.append)
                found = (None, tuple(reported), end)
            except NextCall as pending:
                found = (pending.call, tuple(reported), None)
            self.steps[number, answers] = found
        return self.steps[number, answers]

    def view(self, files: Files) -> Snapshot | None:
        """Return what somebody who asks for the newest now is given."""
        if files not in self.views:
            self.views[files] = SnapshotStore(Still(files), PATHS).latest()  # type: ignore[arg-type]
        return self.views[files]

    def explore(self, most: int) -> tuple[int, bool]:
        """Check every state, at most so many; return how many there were, and whether that is all."""
        known = frozenset(content(self.view(self.files)))
        first = State(self.files, tuple(() for _ in self.processes), known)
        # By the number of preemptions: what few of them can do is seen first, however few states.
        waiting: dict[int, list[tuple[State, int]]] = {0: [(first, -1)]}
        seen = {first}
        while waiting and len(seen) < most:
            preemptions = min(waiting)
            state, last = waiting[preemptions].pop()
            if not waiting[preemptions]:
                del waiting[preemptions]
            following = self.following(state)
            if not following:
                self.check_end(state)
            goes_on = any(number == last for number, _ in following)
            for number, one in following:
                if one not in seen:
                    seen.add(one)
                    self.check(state, one)
                    costs = preemptions + (goes_on and number != last)
                    waiting.setdefault(costs, []).append((one, number))
        return len(seen), not waiting

    def following(self, state: State) -> list[tuple[int, State]]:
        """Return what may come next: whose call it is, and the state after it."""
        found = []
        for number, answers in enumerate(state.answers):
            call, _, _ = self.step(number, answers)
            if call is None:
                continue
            files, answer = carried_out(state.files, *call)
            given = (*answers, answer)
            _, reported, _ = self.step(number, given)
            began = state.began
            if began is None and self.processes[number] is reader:
                began = frozenset(state.known)
            others = (*state.answers[:number], given, *state.answers[number + 1 :])
            after = State(files, others, state.known | set(reported), began)
            found.append((number, after))
        return found

    def check(self, before: State, after: State) -> None:
        """What is acknowledged is seen, once, and what has been seen is not taken back."""
        if self.rolls_back:
            return
        shown = content(self.view(after.files))
        last = content(self.view(before.files))
        assert shown[: len(last)] == last, f"the table went from {last} to {shown}"
        assert after.known <= set(shown), f"{after.known - set(shown)} lost; there is {shown}"
        self.check_single(shown)
        self.check_reader(after, shown)

    def check_single(self, shown: tuple[str, ...]) -> None:
        commits = [name[0] for name in shown]  # of each writer's commit whatever try
        assert len(set(commits)) == len(commits), f"committed twice: {shown}"

    def check_reader(self, state: State, shown: tuple[str, ...]) -> None:
        for number, answers in enumerate(state.answers):
            if self.processes[number] is reader:
                call, _, seen = self.step(number, answers)
                if call is None:
                    assert isinstance(seen, tuple)
                    assert state.began is not None
                    assert state.began <= set(seen), f"{seen} is older than {set(state.began)}"
                    assert shown[: len(seen)] == seen, f"{seen} was never of the line {shown}"

    def check_end(self, state: State) -> None:
        """When all have ended, hints are exact, and all acknowledged is there but what was rolled back."""
        shown = content(self.view(state.files))
        taken = {name.removeprefix("took ") for name in state.known if name.startswith("took ")}
        known = {name for name in state.known if " " not in name}
        assert known - taken <= set(shown), f"{known - taken - set(shown)} lost; there is {shown}"
        self.check_single(shown)
        store = SnapshotStore(Still(state.files), PATHS)  # type: ignore[arg-type]
        if not self.rolls_back:
            assert store._hint("LATEST") == store.ids()[-1], "LATEST did not converge"
        ids = store.listed_ids()
        if "waited in vain" in state.known and ids[-1] - ids[0] >= len(ids):
            return  # a gap below a commit that counts, for the next expiry
        assert store.earliest_hint() == store.ids()[0], "EARLIEST did not converge"
        assert store.listed_ids() == store.ids(), "a ghost is left, and nobody died"


class Still(Replayed):
    """A FileIO over files that do not change."""

    def __init__(self, files: Files) -> None:
        super().__init__(())
        self._files = files

    def _call(self, verb: str, path: str, data: bytes = b"") -> Any:
        _, answer = carried_out(self._files, verb, path, data)
        if isinstance(answer, NotFoundError):
            raise answer
        return answer


def start(*names: str) -> Files:
    """A table of some commits, as many snapshots, and exact hints."""
    files: dict[str, bytes] = {PREFIX + "EARLIEST": b"1", PREFIX + "LATEST": b"%d" % len(names)}
    base = None
    for name in names:
        base = made_on(base, name)
        files[f"{PREFIX}snapshot-{base.id}"] = encode_snapshot(base)
    return frozenset(files.items())


def two_and_an_expirer() -> Search:
    return Search((writer("a"), writer("b", "c"), expirer), start("x", "y"))


def two_an_expirer_and_a_reader() -> Search:
    return Search((writer("a"), writer("b", "c"), expirer, reader), start("x"))


def an_empty_table() -> Search:
    return Search((writer("a"), writer("b", "c"), expirer), frozenset())


def two_and_a_rollback() -> Search:
    return Search((writer("a"), writer("b"), roll_back), start("x", "y", "z"), rolls_back=True)


def two_expirers() -> Search:
    return Search((writer("a"), writer("b", "c"), expirer, expirer), start("x", "y"))


HISTORIES = [
    two_and_an_expirer,
    two_an_expirer_and_a_reader,
    an_empty_table,
    two_and_a_rollback,
    two_expirers,
]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda made: made.__name__)
def test_no_order_of_file_calls_loses_or_doubles_a_commit(
    history: Callable[[], Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollback, "_LOOKS", 2)
    count, is_all = history().explore(STATES)
    print(f"{history.__name__}: {count} states{', all there are' if is_all else ''}")
    assert is_all or count >= STATES


def unfenced(store: SnapshotStore, landed: Snapshot, base: Snapshot | None) -> bool:
    store.announce(landed.id, is_first=base is None)
    return True


def test_without_the_fence_a_commit_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model can fail: it finds what the fence was built for."""
    monkeypatch.setattr(fence, "confirm", unfenced)
    search = two_and_an_expirer()
    with pytest.raises(AssertionError, match="lost"):
        search.explore(5 * STATES)


def test_a_writer_that_withdraws_whatever_is_below_earliest_commits_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Why a snapshot names its base: one that was built on and has expired counted."""

    def simple(store: SnapshotStore, landed: Snapshot, base: Snapshot | None) -> bool:
        if (store.earliest_hint() or 0) > landed.id:
            store.delete_state(landed)
            return False
        return unfenced(store, landed, base)

    monkeypatch.setattr(fence, "confirm", simple)
    search = two_and_an_expirer()
    with pytest.raises(AssertionError, match="committed twice"):
        search.explore(5 * STATES)


def test_the_model_reads_what_it_writes() -> None:
    one = made_on(None, "a")
    assert decode_snapshot(encode_snapshot(one), file_name="x") == replace(one)

"""The commit protocol as a model: every order of single file calls of small histories, on the real code.

Writers, expirers, readers, rollbacks and forced fast-forwards run SnapshotStore, confirm, the fence of expiry and the
whole of rollback and of what a fast-forward takes over (docs/commit-protocol.md). A process is known by the answers that it was given: to
learn its next call it is run again on them. States that were seen are not entered twice, so this is
every interleaving; and as the invariants are checked after each call, every crash and pause is among
them. CI explores those that take the fewest preemptions, as many as fit into seconds; all of them:

    LSM_MODEL_STATES=100000000 python -m pytest tests/fault/test_protocol_model.py -q
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.commit import publish
from lsm_engine.format.documents import decode_snapshot, encode_snapshot
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.maintenance import branches, expire, rollback
from lsm_engine.metadata.snapshots import SnapshotStore, delete_states
from lsm_engine.metadata.tags import TagStore
from lsm_engine.options.table_options import given_options
from lsm_engine.planning.snapshot_chain import with_base
from lsm_engine.storage import bulk
from lsm_engine.storage.bulk import OneByOne
from lsm_engine.storage.file_io import FileStatus, StoreFacts
from lsm_engine.storage.paths import TablePaths
from lsm_engine.table import tags
from lsm_engine.table.components import CommitTurns
from tests.unit.metadata.documents import snapshot

STATES = int(os.environ.get("LSM_MODEL_STATES", "5000"))
PATHS = TablePaths(root="t")
PREFIX = "t/snapshot/"
SEPARATOR = b"\0"
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

    def now_millis(self) -> int:
        return 400_000 * self.waited  # two waits and `commit.timeout` is over

    def local_time(self) -> tuple[int, ...]:
        return (2024, 1, 1)

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

    def replace(self, path: str, data: bytes, *, may_skip: bool = False, note: str = "") -> None:
        self._call("replace", path, data)

    def delete(self, path: str) -> bool:
        return self._call("delete", path)

    def change_if_unchanged(self, path: str, data: bytes | None, *, expected: bytes) -> bool:
        if data is None:
            return self._call("delete_if_unchanged", path, expected)
        return self._call("replace_if_unchanged", path, expected + SEPARATOR + data)


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
                if one.startswith(path + "/")
            )
            return files, tuple(found)
        case "publish":
            return (files, False) if path in there else (files | {(path, data)}, True)
        case "replace":
            return frozenset({**there, path: data}.items()), None
        case "delete":
            return frozenset((one, held) for one, held in files if one != path), path in there
        case "delete_if_unchanged":
            return files - {(path, data)}, (path, data) in files
        case "replace_if_unchanged":
            expected, _, new = data.partition(SEPARATOR)
            is_there = (path, expected) in files
            return (files - {(path, expected)} | {(path, new)} if is_there else files), is_there
    raise AssertionError(verb)


def content(one: Snapshot | None) -> tuple[str, ...]:
    """The commits that a snapshot's state holds, in order."""
    return () if one is None else tuple(one.base_manifest_list.split(","))


def made_on(base: Snapshot | None, name: str) -> Snapshot:
    number = 1 if base is None else base.id + 1
    return snapshot(  # type: ignore[no-any-return]
        number,
        base_manifest_list=",".join([*content(base), name]),
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
                try:
                    base = store.latest()
                except CorruptFileError:
                    return "refused"  # LATEST is late, and names what never counted
                landed = made_on(base, f"{name}{attempt or ''}")
                try:
                    if store.publish(landed) and publish.confirm(store, landed, base):
                        report(f"{name}{attempt or ''}")
                        break
                except CommitUnknownError:
                    return "unknown"
            else:
                return "gave up"
        return "done"

    return run  # type: ignore[return-value]


class Ids:
    """Ids of one process, the same whenever it is run again."""

    def __init__(self, name: str) -> None:
        self._name, self._count = name, 0

    def new_id(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count:012d}"

    def fraction(self) -> float:
        return 0.5


def session_of(store: SnapshotStore, name: str = "") -> Any:
    """A session over a store; with a name it has tags, and can roll back."""
    file_io: Any = store._file_io
    nothing = SimpleNamespace(all=list, list=list, stable_listing=list)
    session = SimpleNamespace(
        paths=PATHS,
        file_io=file_io,
        snapshots=store,
        options=given_options({"commit.fsync": "false"}),
        tags=TagStore(file_io, PATHS) if name else nothing,
        changelogs=nothing,
        consumers=nothing,
        commit_identifiers=SimpleNamespace(
            read=lambda: None
        ),  # commits of the model have no numbers
        clock=file_io,
        ids=Ids(name),
        notify_removed=lambda kind, reason, **removed: None,
        follow_iceberg=lambda: None,
        components=SimpleNamespace(listeners=(), commit_turns=CommitTurns()),
        live_entries=lambda snapshot: [],
        schema=None,
        identity=SimpleNamespace(is_dropped=lambda: False, require_there=lambda: None),
        name="t",
    )
    session.gathered = lambda paths=(): session
    return session


ALL_BUT_ONE = expire.Retention(
    retained_min=1, retained_max=1, time_retained_millis=0, expire_limit=1000
)


def expirer(
    store: SnapshotStore,
    report: Callable[[str], None],
    name: str = "",
    *,
    is_remote: bool = True,
) -> object:
    """Take all but the newest, in the order of maintenance/expire and table/references.

    Where a call costs a request EARLIEST is written, and files are deleted, after a look and not in one step with it.
    """
    del report
    file_io: Any = store._file_io
    file_io.facts = StoreFacts(is_remote=is_remote)
    # Within an act the calls of a remote store come one after the other.
    try:
        return bulk._as_act(lambda: _expired(store, name))
    finally:
        file_io.facts = StoreFacts()


def _expired(store: SnapshotStore, name: str) -> object:
    try:
        there = store.stable_listing()
        expire.refuse_unfinished(there)
    except (StorageError, CommitConflictError, CorruptFileError):
        return "refused"  # a rollback is under way, or the first snapshot landed between a listing and a probe
    choice = expire.ExpiryChoice(expired=tuple(there[:-1]), retained=tuple(there[-1:]), reason="")
    if choice.expired:
        try:
            session = session_of(store, name)
            expire._Expiry(session, ALL_BUT_ONE, dry_run=False)._raise_fence(choice)
        except CommitConflictError:
            with suppress(CorruptFileError):
                store.mend_earliest()
            return "conflict"
        delete_states(store._file_io, store, choice.expired)
    return "done"


def reader(store: SnapshotStore, report: Callable[[str], None]) -> object:
    del report
    return content(store.latest())


def careful_expirer(store: SnapshotStore, report: Callable[[str], None]) -> object:
    """One that looks for the signs of rollbacks."""
    return expirer(store, report, "e")


def local_expirer(store: SnapshotStore, report: Callable[[str], None]) -> object:
    """One on a local disk, that looks for the signs of rollbacks."""
    return expirer(store, report, "e", is_remote=False)


def roll_back(to: int, *first: str, name: str = "r", by_tag: bool = False) -> Callable[..., object]:
    """Commit some, and return to a snapshot, which with `by_tag` has expired by then."""

    def run(store: SnapshotStore, report: Callable[[str], None]) -> object:
        session = session_of(store, name)
        if by_tag:
            tags.tag_for_operation(session, "kept", store.load(to), None)
        writer(*first)(store, report)
        if by_tag:
            expirer(store, report, name)
        try:
            target = session.tags.load("kept").snapshot if by_tag else store.load(to)
            rollback.rollback(session, target, dry_run=False)
        except (LsmError, StorageError) as error:
            return repr(error)
        return "done"

    return run


def forward(to: int, *names: str, name: str = "f") -> Callable[..., object]:
    """Bring main by force to a branch that has made commits since a snapshot; what main has made since goes.

    The commits of the branch have capital letters.
    """

    def run(store: SnapshotStore, report: Callable[[str], None]) -> object:
        session = session_of(store, name)
        made: list[Snapshot] = []
        try:
            common = store.load(to)
            for commit in names:
                made.append(made_on(made[-1] if made else common, commit))
            plan = branches.FastForwardPlan(
                branch="side",
                common=common,
                schemas=(),
                snapshots=tuple(made),
                tags=(),
                dropped=rollback.plan_rollback(session, common),
            )
            overtaken = branches._take_over(session, NO_IDENTIFIERS, plan)
        except (LsmError, StorageError) as error:
            return repr(error)
        if overtaken is None:
            for commit in names:
                report(commit)
        return "done" if overtaken is None else repr(overtaken)

    return run


NO_IDENTIFIERS: Any = SimpleNamespace(
    commit_identifiers=SimpleNamespace(
        read=lambda: None,
        up_to=lambda _: SimpleNamespace(identifiers=SimpleNamespace(has_file=False)),
    )
)
"""The session of a branch whose commits have no numbers."""


def dies(
    rolls: Callable[..., object], at: int, again: Callable[..., object]
) -> Callable[..., object]:
    """Die before a call, and be done again by somebody else."""

    def run(store: SnapshotStore, report: Callable[[str], None]) -> object:
        mortal = SnapshotStore(Mortal(store._file_io, at), PATHS)  # type: ignore[arg-type]
        with suppress(Died):
            rolls(mortal, report)
        return again(store, report)

    return run


class Died(BaseException):
    """A process has come to its last call."""


class Mortal:
    """A FileIO for so many calls that change something."""

    def __init__(self, beneath: Any, left: int) -> None:
        self._beneath, self._left = beneath, left

    def __getattr__(self, verb: str) -> Any:
        if verb in ("publish", "replace", "delete", "change_if_unchanged"):
            self._left -= 1
            if self._left < 0:
                raise Died
        return getattr(self._beneath, verb)


# --- the search ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """`known` are what processes reported, `taken` what rollbacks took. `began` is what was known when
    the reader made its first call, `shown` what the table has been since.
    """

    files: Files
    answers: tuple[Answers, ...]
    known: frozenset[str]
    taken: frozenset[str] = frozenset()
    began: frozenset[str] | None = None
    shown: frozenset[tuple[str, ...]] = frozenset()


@dataclass
class Search:
    """Every state that can be reached, from the files and processes given."""

    processes: tuple[Any, ...]
    files: Files
    rollers: frozenset[int] = frozenset()
    may_die: bool = False
    steps: dict[tuple[int, Answers], tuple[Any, tuple[str, ...], object]] = field(
        default_factory=dict
    )
    views: dict[Files, tuple[str, ...] | None] = field(default_factory=dict)

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

    def view(self, files: Files) -> tuple[str, ...] | None:
        """Return what somebody who asks for the newest now is given; None: an error."""
        if files not in self.views:
            store = SnapshotStore(Still(files), PATHS)  # type: ignore[arg-type]
            try:
                self.views[files] = content(store.latest())
            except CorruptFileError:
                self.views[files] = None
        return self.views[files]

    def explore(self, most: int) -> tuple[int, bool]:
        """Check every state, at most so many; return how many there were, and whether that is all."""
        known = frozenset(self.view(self.files) or ())
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
            began, shown = state.began, state.shown
            if began is None and self.processes[number] is reader:
                began, shown = frozenset(state.known), frozenset({self.view(state.files) or ()})
            if began is not None:
                shown |= {self.view(files) or ()}
            others = (*state.answers[:number], given, *state.answers[number + 1 :])
            known, taken = state.known | set(reported), state.taken
            if number in self.rollers:
                taken |= self.rolled_back(state.files, files)
                taken -= self.brought(state.files, files)
            found.append((number, State(files, others, known, taken, began, shown)))
        return found

    def rolled_back(self, before: Files, after: Files) -> set[str]:
        """Return what a call of a rollback took from what the table shows: all at once, or nothing."""
        last, shown = self.view(before), self.view(after)
        if last is None or shown is None:
            return set()
        common = len([1 for one, other in zip(last, shown, strict=False) if one == other])
        # A forced fast-forward may bring a commit of its branch in the same call.
        is_forward = all(name.isupper() for name in shown[common:])
        return set(last[common:]) if is_forward else set()

    def brought(self, before: Files, after: Files) -> set[str]:
        """Return what a call of a forced fast-forward brought of its branch, perhaps once more after a rollback."""
        shown = {*(self.view(after) or ())} - {*(self.view(before) or ())}
        return {name for name in shown if name.isupper()}

    def check(self, before: State, after: State) -> None:
        """What is acknowledged is seen, once, and what has been seen is taken back by rollbacks alone."""
        shown, last = self.view(after.files), self.view(before.files)
        if shown is None:
            assert self.rollers
            return
        last = tuple(name for name in last or () if name not in after.taken - before.taken)
        assert shown[: len(last)] == last, f"the table went from {last} to {shown}"
        lost = after.known - after.taken - set(shown)
        assert not lost, f"{lost} lost; there is {shown}"
        assert not after.taken & set(shown), f"{shown} is back, of {after.taken} that was taken"
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
                    left = state.began - state.taken
                    assert left <= set(seen), f"{seen} is older than {set(left)}"
                    # Beside a rollback it may be given what that takes.
                    is_taken = bool(state.taken & set(seen))
                    assert is_taken or seen in state.shown, f"{seen} was never of the line {shown}"

    def check_end(self, state: State) -> None:
        """When all have ended, hints are exact, and all acknowledged is there but what was rolled back."""
        store = SnapshotStore(Still(state.files), PATHS)  # type: ignore[arg-type]
        ids = store.ids()
        if not self.rollers:
            assert store._hint("LATEST") == ids[-1], "LATEST did not converge"
        if self.may_die:
            return
        earliest = store.earliest_hint()
        assert earliest == ids[0], "EARLIEST did not converge"
        # An expiry that gave up for a rollback leaves what it has passed to the next one.
        left = [number for number in store.listed_ids() if not self.rollers or number >= earliest]
        assert left == ids, "a ghost is left, and nobody died"


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
    rolls = roll_back(1, "y", "z")
    return Search((rolls, writer("a"), writer("b")), start("x"), frozenset({0}))


def three_and_a_rollback() -> Search:
    rolls = roll_back(1, "y", "z")
    writers = (writer("a"), writer("b"), writer("c"))
    return Search((rolls, *writers), start("x"), frozenset({0}))


def two_and_two_rollbacks() -> Search:
    rolls = (roll_back(1, "y", "z"), roll_back(2, name="s"))
    return Search((*rolls, writer("a"), writer("b")), start("x", "w"), frozenset({0, 1}))


def two_and_a_rollback_to_a_tag() -> Search:
    rolls = roll_back(1, "y", "z", by_tag=True)
    return Search((rolls, writer("a"), writer("b")), start("x"), frozenset({0}))


def a_rollback_and_an_expirer() -> Search:
    rolls = roll_back(2, "z")
    processes = (rolls, careful_expirer, writer("a"))
    return Search(processes, start("x", "y"), frozenset({0}))


def a_rollback_of_more_and_an_expirer() -> Search:
    """Whoever was stopped before the rollback goes on after it: on a base that it took, or with an EARLIEST above."""
    processes = (roll_back(1, "y", "z"), careful_expirer, writer("a"))
    return Search(processes, start("x"), frozenset({0}))


def a_rollback_an_expirer_and_two_writers() -> Search:
    processes = (roll_back(1, "y", "z"), careful_expirer, writer("a"), writer("b"))
    return Search(processes, start("x"), frozenset({0}))


def two_and_a_forced_fast_forward() -> Search:
    """To a branch that is behind main: the first commit of main is replaced, the second one goes."""
    processes = (forward(1, "P"), writer("a"), writer("b"))
    return Search(processes, start("x", "y", "z"), frozenset({0}))


def a_writer_and_a_forced_fast_forward_beyond_main() -> Search:
    """To a branch that is ahead of main, so that what it has above the marker is published behind it."""
    processes = (forward(1, "P", "Q", "R"), writer("a"))
    return Search(processes, start("x", "y"), frozenset({0}))


def a_forced_fast_forward_and_an_expirer() -> Search:
    processes = (forward(2, "P", "Q"), careful_expirer, writer("a"))
    return Search(processes, start("x", "y", "z"), frozenset({0}))


def a_forced_fast_forward_and_a_reader() -> Search:
    processes = (forward(1, "P"), reader, writer("a"))
    return Search(processes, start("x", "y", "z"), frozenset({0}))


def a_forced_fast_forward_and_a_rollback() -> Search:
    processes = (forward(1, "P"), roll_back(1, name="s"), writer("a"))
    return Search(processes, start("x", "y"), frozenset({0, 1}))


def a_rollback_and_a_reader() -> Search:
    rolls = roll_back(1, "y", "z")
    return Search((rolls, reader, writer("a")), start("x"), frozenset({0}))


def two_expirers() -> Search:
    return Search((writer("a"), writer("b", "c"), expirer, expirer), start("x", "y"))


def two_local_expirers() -> Search:
    processes = (writer("a"), writer("b"), local_expirer, local_expirer)
    return Search(processes, start("x", "y", "z"))


HISTORIES = [
    two_and_an_expirer,
    two_an_expirer_and_a_reader,
    an_empty_table,
    two_and_a_rollback,
    three_and_a_rollback,
    two_and_two_rollbacks,
    two_and_a_rollback_to_a_tag,
    a_rollback_and_an_expirer,
    a_rollback_of_more_and_an_expirer,
    a_rollback_an_expirer_and_two_writers,
    a_rollback_and_a_reader,
    two_and_a_forced_fast_forward,
    a_writer_and_a_forced_fast_forward_beyond_main,
    a_forced_fast_forward_and_an_expirer,
    a_forced_fast_forward_and_a_reader,
    a_forced_fast_forward_and_a_rollback,
    two_expirers,
    two_local_expirers,
]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda made: made.__name__)
def test_no_order_of_file_calls_loses_or_doubles_a_commit(
    history: Callable[[], Search],
) -> None:
    count, is_all = history().explore(STATES)
    print(f"{history.__name__}: {count} states{', all there are' if is_all else ''}")
    assert is_all or count >= STATES


@pytest.mark.parametrize("by_tag", [False, True])
def test_a_rollback_that_dies_anywhere_is_finished_by_another(by_tag: bool) -> None:
    """Beside a writer, and before each call that changes something."""
    for at in range(1, 40):
        again = roll_back(1, name="s")
        rolls = dies(roll_back(1, "y", "z", by_tag=by_tag), at, again)
        search = Search((rolls, writer("a")), start("x"), frozenset({0}), may_die=True)
        search.explore(STATES // 50)


def unfenced(store: SnapshotStore, landed: Snapshot, base: Snapshot | None) -> bool:
    store.announce(landed, is_first=base is None)
    return True


def test_without_the_fence_a_commit_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model can fail: it finds what the fence was built for."""
    monkeypatch.setattr(publish, "confirm", unfenced)
    search = two_and_an_expirer()
    with pytest.raises(AssertionError, match=r"lost|went from"):
        search.explore(8 * STATES)


def test_a_writer_that_withdraws_whatever_is_below_earliest_commits_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Why a snapshot names its base: one that was built on and has expired counted."""

    def simple(store: SnapshotStore, landed: Snapshot, base: Snapshot | None) -> bool:
        if (store.earliest_hint() or 0) > landed.id:
            store.delete_state(landed)
            return False
        return unfenced(store, landed, base)

    monkeypatch.setattr(publish, "confirm", simple)
    search = two_and_an_expirer()
    with pytest.raises(AssertionError, match="committed twice"):
        search.explore(8 * STATES)


def test_a_forced_fast_forward_that_replaces_the_newest_first_shows_what_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Why it goes upwards: a commit lands behind a snapshot that is to go, and the table is back at what went."""
    upwards = rollback._take_snapshots

    def downwards(session: Any, going: Any, *others: Any) -> None:
        upwards(session, tuple(reversed(going)), *others)

    monkeypatch.setattr(rollback, "_take_snapshots", downwards)
    search = two_and_a_forced_fast_forward()
    with pytest.raises(AssertionError, match=r"lost|went from|is back"):
        search.explore(8 * STATES)


def test_the_model_reads_what_it_writes() -> None:
    one = made_on(None, "a")
    assert decode_snapshot(encode_snapshot(one), file_name="x") == replace(one)

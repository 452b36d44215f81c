"""Every operation on names, stopped before each storage call while others run to their end.

    python -m tests.fault.all_pairs                      # all pairs, each kind of table, both stores
    python -m tests.fault.all_pairs --triples            # two others run, one after the other
    python -m tests.fault.all_pairs --kills              # the one that was stopped is killed before a later call
    python -m tests.fault.all_pairs --kinds plain --ours 'rename a branch' --theirs 'commit on a branch'

A schedule is right if what readers see in the end is what some order of the operations that were acknowledged
gives; if every snapshot, tag and branch can be read; and if a later expiry and removal of orphans, and commits,
succeed and change no rows.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count, permutations, product
from typing import Any

from lsm_engine.api.table import Table
from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    ExpiredError,
    LsmError,
    StorageError,
)
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.maintenance.trash import trash_of
from lsm_engine.metadata.trash import TrashRecord
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.tags import is_lock
from lsm_engine.storage.locks import ABANDONED_MILLIS
from tests.fault.conftest import decoded_once
from tests.fault.pair_operations import (
    JUDGE,
    KINDS,
    OPERATIONS,
    OURS,
    STORES,
    actor_of_theirs,
    expire,
    operations_for,
    prepared,
    write,
)
from tests.fault.paused_lakes import lake_doubles
from tests.fault.paused_stores import (
    LISTINGS,
    READS,
    TABLE,
    Actor,
    Disk,
    Footprint,
    Process,
    StorageCall,
    monotonic,
    object_doubles,
)
from tests.fault.stored_references import References, Unreadable
from tests.fault.test_two_preemptions import Turns
from tests.model.world import on_one_thread

TOUCHED_BRANCHES = frozenset({"side", "new"})
State = dict[str, Any]


LONG = 800
"""An operation of more calls is stopped only before those that change something."""
UNCHANGING = READS | LISTINGS | {"sync"}


@dataclass(frozen=True)
class Combination:
    """An operation that is stopped, and the others that then run to their end, one after the other."""

    store: str
    kind: str
    ours: str
    theirs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.store}, {self.kind}: {self.ours} | {', '.join(self.theirs)}"


@dataclass(frozen=True)
class Schedule:
    """A combination that was carried out. `count`: places to stop at that give the same one.

    `theirs_at`: where the others were stopped, too, until ours had ended; 0: nowhere.
    """

    combination: Combination
    at: int
    count: int
    call: StorageCall
    ours: Any
    theirs: tuple[Any, ...]
    disk: Disk
    theirs_at: int = 0


def attempted(operation: str, process: Process, *, knows_newest: bool = False) -> Any:
    """Return what an operation gives, or its error. `knows_newest`: the process has looked for that before."""
    try:
        with process.announcing():
            if OPERATIONS[operation].is_of_catalog:
                return OPERATIONS[operation].act(process.catalog())
            table = process.open_table()
            if knows_newest:
                table.latest_snapshot()
            return OPERATIONS[operation].act(table)
    except Exception as error:  # noqa: BLE001 -- one that is not an LsmError is a finding
        return error


@lru_cache(maxsize=512)
def calls_of(store: str, kind: str, operation: str) -> tuple[StorageCall, ...]:
    """Return the calls of an operation that nobody disturbs."""
    calls: list[StorageCall] = []
    process = prepared(store, kind).process(OURS, calls.append)
    attempted(operation, process, knows_newest=True)
    return tuple(calls)


def schedule(combination: Combination, at: int) -> tuple[Schedule, Footprint]:
    """Stop before one call, and return what came of it and which files the others touched."""
    disk = prepared(combination.store, combination.kind)
    footprint = Footprint()
    answers: list[Any] = []
    number = 0

    def on_call(_: StorageCall) -> None:
        nonlocal number
        number += 1
        if number == at:
            monotonic.pause()
            others = _others_run(disk, combination.theirs)
            answers.extend(others.answers)
            footprint.include(others.footprint)
            monotonic.pause()

    ours = attempted(combination.ours, disk.process(OURS, on_call), knows_newest=True)
    call = calls_of(combination.store, combination.kind, combination.ours)[at - 1]
    if len(answers) != len(combination.theirs):
        raise AssertionError(f"{combination}: there is no call {at}")
    return Schedule(combination, at, 1, call, ours, tuple(answers), disk), footprint


@dataclass(frozen=True)
class Others:
    """What operations give that run one after the other: their answers, what they touched, and the disk."""

    answers: tuple[Any, ...]
    footprint: Footprint
    disk: Disk


OTHERS_MAX = 2_000
_others: dict[Hashable, Others] = {}


def _others_run(disk: Disk, operations: Sequence[str]) -> Others:
    """Run operations on a disk, those of the same files once: between two changes of ours all is the same for others."""
    state = disk.state()
    known = None if state is None else _others.get((*operations, state))
    if known is not None:
        disk.become(known.disk)
        return known
    footprint = Footprint()
    answers = tuple(
        attempted(operation, disk.process(actor_of_theirs(place), footprint.add))
        for place, operation in enumerate(operations)
    )
    others = Others(answers, footprint, disk)
    if state is not None:
        others = replace(others, disk=disk.clone())
        if len(_others) >= OTHERS_MAX:
            _others.pop(next(iter(_others)))
        _others[*operations, state] = others
    return others


def schedules(combination: Combination, *, every_call: bool = False) -> Iterator[Schedule]:
    """Yield the schedules of a combination; those at calls that do not meet what the others touch are one."""
    calls = calls_of(combination.store, combination.kind, combination.ours)
    is_long = len(calls) > LONG
    at = 1
    while at <= len(calls):
        if is_long and calls[at - 1].verb in UNCHANGING:
            at += 1
            continue
        done, footprint = schedule(combination, at)
        last = at
        while not every_call and last < len(calls) and not footprint.meets(calls[last - 1]):
            last += 1
        yield Schedule(**{**vars(done), "count": last - at + 1})
        at = last + 1


_judges = count(100)


def judge() -> Actor:
    """Return a process of its own that comes after all others."""
    return replace(JUDGE, number=next(_judges))


# --- two stops ------------------------------------------------------------------------------------

NAMING = tuple(
    name
    for name in OPERATIONS
    if ("tag" in name or "branch" in name or "fast-forward" in name)
    and name not in ("expire a branch", "roll back to a tag that holds", "restore a tag that holds")
)
"""Operations that make, move or delete tags and branches."""


class PausingTurns(Turns):
    """Turns between which time goes by."""

    def _hand_over(self, actor: int) -> None:
        monotonic.pause()
        super()._hand_over(actor)
        monotonic.pause()


def interleaved(combination: Combination, stops: tuple[int, int]) -> Schedule:
    """Stop ours at one call, theirs at another, let ours end, then theirs."""
    disk = prepared(combination.store, combination.kind)
    turns = PausingTurns(stops)
    operations = (combination.ours, *combination.theirs)
    answers: list[Any] = [None, None]

    def run(place: int) -> None:
        turns.begin(place)
        hook = turns.hook(place)
        try:
            process = disk.process(OURS if place == 0 else actor_of_theirs(0), hook)
            answers[place] = attempted(operations[place], process, knows_newest=place == 0)
        finally:
            turns.end(place)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), f"{combination} is stuck at {stops}"
    call = calls_of(combination.store, combination.kind, combination.ours)[stops[0] - 1]
    return Schedule(combination, stops[0], 1, call, answers[0], (answers[1],), disk, stops[1])


def twofold(combination: Combination, *, every_call: bool = False) -> Iterator[Schedule]:
    """Yield the schedules of a pair in which both are stopped once, at calls that meet what the other one does."""
    ours, theirs = (
        calls_of(combination.store, combination.kind, operation)
        for operation in (combination.ours, *combination.theirs)
    )
    places = _meeting(ours, theirs, every_call), _meeting(theirs, ours, every_call)
    for stops in product(*places):
        yield interleaved(combination, stops)


def _meeting(
    calls: Sequence[StorageCall], others: Iterable[StorageCall], every_call: bool
) -> list[int]:
    footprint = Footprint()
    for call in others:
        footprint.add(call)
    return [at for at, call in enumerate(calls, 1) if every_call or footprint.meets(call)]


# --- a stop, and a kill ---------------------------------------------------------------------------


class Killed(BaseException):
    """In the place of a call before which the process was killed."""


class KilledAnswer(CommitUnknownError):
    """The answer of an operation that was killed: nobody knows whether it counts."""


def killed(combination: Combination, *, every_call: bool = False) -> Iterator[Schedule]:
    """Yield the schedules in which ours is stopped, the others run, and ours is killed before it changes anything more.

    It is killed before each later call that changes something, too.
    """
    del every_call
    calls = calls_of(combination.store, combination.kind, combination.ours)
    theirs = Footprint()
    for operation in combination.theirs:
        for call in calls_of(combination.store, combination.kind, operation):
            theirs.add(call)
    meeting = [at for at, call in enumerate(calls, 1) if theirs.meets(call)]
    changing = [at for at, call in enumerate(calls, 1) if call.verb not in UNCHANGING]
    for at in meeting:
        for last in changing:
            if last >= at:
                yield killed_at(combination, at, last)


def killed_at(combination: Combination, at: int, last: int) -> Schedule:
    disk = prepared(combination.store, combination.kind)
    answers: list[Any] = []
    number = 0

    def on_call(_: StorageCall) -> None:
        nonlocal number
        number += 1
        if number == at:
            monotonic.pause()
            answers.extend(_others_run(disk, combination.theirs).answers)
            monotonic.pause()
        if number >= last:
            raise Killed

    try:
        ours = attempted(combination.ours, disk.process(OURS, on_call), knows_newest=True)
    except Killed:
        ours = KilledAnswer("killed")
    call = calls_of(combination.store, combination.kind, combination.ours)[at - 1]
    return Schedule(combination, at, 1, call, ours, tuple(answers), disk, last)


# --- what readers see -----------------------------------------------------------------------------


def observed(disk: Disk) -> State:
    """Return everything that readers can see by name, as a process does that has just started."""
    state: State = disk.facts(judge())
    for name in disk.names(judge()):
        try:
            seen = _observed_table(disk, name)
        except LsmError as error:
            seen = {"rows": Unreadable(str(error))}
        state |= {
            (f"{what} of {name}" if name != TABLE else what): part for what, part in seen.items()
        }
    return state


def _observed_table(disk: Disk, name: str) -> State:
    table = disk.opened(judge(), name)
    references = References(disk.files(name))
    state: State = {
        "columns": tuple(table.schema.names),
        "options": tuple(sorted(table.options.texts.items())),
    }
    for line in ("main", *table.branches()):
        state |= _observed_line(references, table, line)
    for consumer in table.consumers():
        state[f"consumer {consumer.name}"] = _position(table, consumer.next_snapshot_id)
    return state


def _position(table: Table, next_snapshot_id: int) -> int | str:
    """Return which changes a consumer reads next: the snapshot that has them, or those of the next commit.

    Two operations that rewrite the newest state may publish a snapshot more than one after the other, without changes.
    A consumer that is moved past it misses nothing.
    """
    try:
        by_id = {snapshot.id: snapshot for snapshot in table.snapshots()}
    except LsmError:
        return next_snapshot_id  # unreadable: reported as that
    position = next_snapshot_id
    while position in by_id and _has_no_changes(by_id[position]):
        position += 1
    return "the next commit" if position == max(by_id, default=0) + 1 else position


def _has_no_changes(snapshot: Snapshot) -> bool:
    return snapshot.commit_kind is CommitKind.COMPACT and snapshot.changelog_manifest_list is None


def _with_level_0(line: Table) -> Table:
    """Return a table whose reads have the rows on level 0, too.

    Of a table with deletion vectors they are committed, and readers see them once any later compaction is done.
    """
    return Table(line.session.with_level_0())


def _observed_line(references: References, table: Table, name: str) -> State:
    """Return what can be seen of main or a branch."""
    line = _with_level_0(table.branch(name))
    paths = line.session.paths
    state: State = {}
    try:
        newest = line.latest_snapshot()
    except LsmError as error:
        state[f"rows of {name}"] = Unreadable(str(error))
    else:
        file = newest and paths.snapshot_file(newest.id)
        read = lambda: line.scan().to_arrow()  # noqa: E731
        rows = references.rows(file, read, newest=True) if file else ()
        state[f"rows of {name}"] = rows
    for tag in line.tags():
        if not is_lock(tag.name):
            file = paths.tag_file(tag.name)
            rows = references.rows(file, lambda name=tag.name: line.scan(tag=name).to_arrow())
            state[f"tag {tag.name} of {name}"] = (rows, tag.retained_millis)
    return state


Order = tuple[tuple[str, Actor], ...]


@lru_cache(maxsize=4_096)
def _in_order(store: str, kind: str, order: Order) -> tuple[Disk, tuple[bool, ...]]:
    """Run operations one after the other; return the disk, and which of them succeeded."""
    if not order:
        return prepared(store, kind), ()
    disk, succeeded = _in_order(store, kind, order[:-1])
    disk = disk.clone()
    operation, actor = order[-1]
    answer = attempted(operation, disk.process(actor))
    is_done = not isinstance(answer, LsmError) or OPERATIONS[operation].is_deletion
    return disk, (*succeeded, is_done)


def forget_runs() -> None:
    """Run everything anew: the engine is another one."""
    _others.clear()
    for cached in (calls_of, _in_order, _state_of):
        cached.cache_clear()


def states_of(done: Schedule) -> list[State]:
    """Return what can be seen after each of these orders."""
    return [_state_of(disk) for disk in orders_of(done)]


@lru_cache(maxsize=4_096)
def _state_of(disk: Disk) -> State:
    return observed(disk)


def orders_of(done: Schedule) -> Iterator[Disk]:
    """Yield what an order of the operations leaves in which the same ones succeed."""
    store, kind = done.combination.store, done.combination.kind
    ours = (done.combination.ours, OURS, done.ours)
    theirs = [
        (operation, actor_of_theirs(place), answer)
        for place, (operation, answer) in enumerate(
            zip(done.combination.theirs, done.theirs, strict=True)
        )
    ]
    for place in range(len(theirs) + 1):
        steps = [*theirs[:place], ours, *theirs[place:]]
        unclear = [isinstance(answer, CommitUnknownError) for *_, answer in steps]
        for counted in product(*[(True, False) if each else (True,) for each in unclear]):
            order = tuple(
                step[:2]
                for step, counts in zip(steps, counted, strict=True)
                if counts and not _failed(step[2])
            )
            if all(_in_order(store, kind, order)[1]):
                yield _in_order(store, kind, order)[0]
        every = tuple(step[:2] for step in steps)
        succeeded = tuple(
            not isinstance(step[2], LsmError) or OPERATIONS[step[0]].is_deletion for step in steps
        )
        if _in_order(store, kind, every)[1] == succeeded:
            yield _in_order(store, kind, every)[0]


def _failed(answer: Any) -> bool:
    return isinstance(answer, LsmError) and not isinstance(answer, CommitUnknownError)


# --- judgement ------------------------------------------------------------------------------------

LOST, UNREADABLE, LATER, WRONG_ERROR = "lost", "unreadable", "later failure", "wrong error"


def problems_of(done: Schedule) -> Iterator[tuple[str, str]]:
    """Yield what is wrong after a schedule: LOST, UNREADABLE or LATER, and why."""
    for answer in (done.ours, *done.theirs):
        is_wrong = isinstance(answer, CorruptFileError) or not isinstance(answer, LsmError)
        if isinstance(answer, Exception) and is_wrong:
            yield WRONG_ERROR, repr(answer)
    if _is_as_an_order(done):
        # What readers see, and what comes later, is then what it is without any stop.
        for name in done.disk.names(judge()):
            if missing := References(done.disk.files(name)).missing():
                yield UNREADABLE, f"named, and not there: {missing}"
        return
    state = observed(done.disk)
    unreadable = [f"{name}: {part.reason}" for name, part in _parts(state) if _is_unreadable(part)]
    if unreadable:
        yield UNREADABLE, "; ".join(unreadable)
    expected = states_of(done)
    if not unreadable and state not in expected and not _is_mixed(done, state, expected):
        yield LOST, _difference(state, expected)
    yield from lost_undos(done)
    has_died = any(
        isinstance(answer, CommitUnknownError | StorageError)
        for answer in (done.ours, *done.theirs)
    )
    # An unknown rollback may count once it is finished: then its rows are the target's.
    finished = expected if _is_unknown_rollback(done) else ()
    if any(
        name == "fast-forward by force" and isinstance(answer, CommitUnknownError)
        for name, answer in _steps(done)
    ):
        finished = None  # it is finished by a rollback here
    later = list(
        later_problems(done.disk.clone(), state, finishes_rollback=has_died, finished=finished)
    )
    if later:
        # An order of the operations alone may end so, as one of a rollback after a rescale does.
        usual = {_subject(reason) for reason in _later_problems_of_orders(done)}
        yield from (
            each
            for each in later
            if _subject(each[1]) not in usual and not _is_excluded(done, each[1])
        )


def _is_excluded(done: Schedule, reason: str) -> bool:
    """Whether a repair of EARLIEST ran beside an expiry, which it asks nobody to do: EARLIEST is behind then."""
    names = {name for name, _ in _steps(done)}
    return "repair the earliest" in names and "expire" in names and "no expiry took" in reason


def _is_unknown_rollback(done: Schedule) -> bool:
    unknown = [name for name, answer in _steps(done) if isinstance(answer, CommitUnknownError)]
    return bool(unknown) and all(name.startswith("roll back") for name in unknown)


def _is_as_an_order(done: Schedule) -> bool:
    """Return whether it has left the very files that an order of the operations leaves in which the same ones succeed."""
    if done.at == 1 and not done.theirs_at:
        return True
    contents, facts = done.disk.contents(), done.disk.facts(judge())
    return any(
        disk.contents() == contents and disk.facts(judge()) == facts for disk in orders_of(done)
    )


def _subject(reason: str) -> str:
    return " ".join(reason.split()[:3])


def _later_problems_of_orders(done: Schedule) -> Iterator[str]:
    for disk in orders_of(done):
        yield from (reason for _, reason in later_problems(disk.clone(), observed(disk)))


def _parts(state: State) -> Iterator[tuple[str, Any]]:
    for name, part in state.items():
        yield name, part[0] if name.startswith("tag ") else part


def _is_unreadable(part: Any) -> bool:
    return isinstance(part, Unreadable)


def _is_mixed(done: Schedule, state: State, expected: Sequence[State]) -> bool:
    """Return whether each name is as some order has it, where an operation changes them one by one."""
    steps = _steps(done)
    stepwise = [
        answer
        for name, answer in steps
        # An unknown outcome may have been reached half way, as that of one that was killed.
        if OPERATIONS[name].is_stepwise or isinstance(answer, KilledAnswer | CommitUnknownError)
    ]
    known = list(expected)
    if any(isinstance(answer, LsmError) for answer in stepwise):
        # Who gave up had changed some names.
        every, those = [None] * len(steps), [_unless_stepwise(*step) for step in steps]
        for answers in (every, those):
            known += states_of(replace(done, ours=answers[0], theirs=tuple(answers[1:])))
    known += _states_of_steps(done)
    excepted = set(_excepted_names(done, state))
    names = {name for each in (state, *known) for name in each} - excepted
    if not stepwise:
        return bool(excepted) and any(
            excepted.issuperset(_different(state, each)) for each in known
        )
    return all(any(state.get(name) == each.get(name) for each in known) for name in names)


def _unless_stepwise(name: str, answer: Any) -> Any:
    """Return an answer, and that of a success for who changed some names before it gave up."""
    return None if OPERATIONS[name].is_stepwise else answer


def _states_of_steps(done: Schedule) -> Iterator[State]:
    """Yield what can be seen after the steps of the operations, in every order that keeps those of each."""
    if not any(OPERATIONS[name].steps for name, _ in _steps(done)):
        return
    actors = [OURS, *(actor_of_theirs(place) for place in range(len(done.theirs)))]
    parts: list[list[Order]] = []
    for (name, answer), actor in zip(_steps(done), actors, strict=True):
        steps = tuple((step, actor) for step in OPERATIONS[name].steps or (name,))
        least = 0 if isinstance(answer, LsmError) else len(steps)
        parts.append([steps[:number] for number in range(least, len(steps) + 1)])
    for orders in product(*parts):
        for order in _merged(orders):
            disk, succeeded = _in_order(done.combination.store, done.combination.kind, order)
            if all(succeeded):
                yield _state_of(disk)


def _merged(orders: Sequence[Order]) -> Iterator[Order]:
    if not any(orders):
        yield ()
    for place, order in enumerate(orders):
        if order:
            rest = (*orders[:place], order[1:], *orders[place + 1 :])
            yield from (order[:1] + after for after in _merged(rest))


def _steps(done: Schedule) -> list[tuple[str, Any]]:
    theirs = zip(done.combination.theirs, done.theirs, strict=True)
    return [(done.combination.ours, done.ours), *theirs]


def _excepted_names(done: Schedule, state: State) -> Iterator[str]:
    """Yield names that no order need account for, as they are what one of the operations alone, or none, leaves."""
    store, kind = done.combination.store, done.combination.kind
    operations = {name for name, _ in _steps(done)}

    def same(order: Order, beginning: str = "", end: str = "") -> Iterator[str]:
        other = _state_of(_in_order(store, kind, order)[0])
        for name in {*state, *other} - {*_different(state, other)}:
            if name.startswith(beginning) and name.endswith(end):
                yield name

    if done.combination.kind == "automatic tags":
        yield from _automatic_tags(done, state)
    alone = ((done.combination.ours, OURS),)
    if any(OPERATIONS[name].gives_back for name in operations) and operations & {
        "expire",
        "expire tags",
    }:
        # Of an expiry that goes step by step, what one step took was given back before the next.
        yield from same((), "tag ")
        yield from same((), "consumer ")
    if isinstance(done.ours, KilledAnswer) and any(map(_rolls_back, done.combination.theirs)):
        # Killed before it looked whether a rollback has taken the snapshot of the tag: a tag that nobody acknowledged,
        # of a state that was rolled back (docs/commit-protocol.md).
        yield from same(alone, "tag ")
    if operations == {"roll back to a tag that holds", "move a tag that holds"}:
        # It had read the tag when that was moved to a snapshot above the target, which goes with its tags.
        yield from {"tag held of main"} - {*state}
    if isinstance(done.ours, CommitConflictError) and done.combination.ours == "rename a branch":
        # Its error names the new branch, which stays where the old one was deleted or renamed meanwhile.
        yield from same(alone, end=" of new")


def _automatic_tags(done: Schedule, state: State) -> Iterator[str]:
    """Yield the automatic tags that name a state which an order has for a while.

    A commit makes one in a step of its own, after others have committed, or in the stop of a branch that is not renamed then.
    """
    steps = ((done.combination.ours, OURS), *((name, actor_of_theirs(place)) for place, name in enumerate(done.combination.theirs)))  # fmt: skip
    seen = [
        _state_of(_in_order(done.combination.store, done.combination.kind, order)[0])
        for number in range(len(steps) + 1)
        for order in permutations(steps, number)
    ]
    for name in state:
        tag, _, line = name.removeprefix("tag ").partition(" of ")
        if name.startswith("tag ") and tag[:1].isdigit():
            rows = state[name][0]
            if any(rows == each.get(f"rows of {line}") for each in seen):
                yield name


def _rolls_back(name: str) -> bool:
    return name.startswith("roll back") or name == "fast-forward by force"


def lost_undos(done: Schedule) -> Iterator[tuple[str, str]]:
    """Yield what an acknowledged undo gave back that is neither there nor in the trash, though an order keeps it."""
    for answer in (done.ours, *done.theirs):
        if isinstance(answer, TrashRecord):
            kept = _kept(done.disk)
            lost = [_given_back(answer) & _kept(disk) - kept for disk in orders_of(done)]
            if lost and all(lost):
                yield LOST, f"given back, and lost: {sorted(min(lost, key=len))}"


def _given_back(trash_record: TrashRecord) -> set[tuple[str, str]]:
    snapshots, tags = trash_record.snapshots, trash_record.tags
    return {
        *(("snapshot", snapshot.delta_manifest_list) for snapshot in snapshots),
        *(("tag", f"{tag.name} of {tag.snapshot.delta_manifest_list}") for tag in tags),
    }


def _kept(disk: Disk) -> set[tuple[str, str]]:
    """Return the snapshots and tags of main that are there, or in the trash."""
    table = disk.opened(judge())
    trash_records = trash_of(table.session).list()
    present = TrashRecord(
        name="",
        created_millis=0,
        reason="",
        snapshots=tuple(table.session.snapshots.stable_listing()),
        tags=tuple(table.session.tags.list()),
    )
    return set().union(*map(_given_back, (present, *trash_records)))


def _difference(state: State, expected: Sequence[State]) -> str:
    if not expected:
        return "no order of the operations has the same ones succeed"
    nearest = min(expected, key=lambda each: len(_different(state, each)))
    return "; ".join(
        f"{name}: {_contrast(state.get(name), nearest.get(name))}"
        for name in _different(state, nearest)
    )


def _contrast(part: Any, other: Any) -> str:
    """Return how two values differ, of rows those that only one has."""
    if isinstance(part, tuple) and isinstance(other, tuple) and part and other:
        if isinstance(part[0], tuple):
            return f"{_contrast(part[0], other[0])}, lifetime {part[1]} and {other[1]}"
        return f"has {sorted({*part} - {*other})}, lacks {sorted({*other} - {*part})}"
    return f"{'there' if isinstance(part, tuple) else part}, expected {'there' if isinstance(other, tuple) else other}"


def _different(state: State, other: State) -> list[str]:
    return [name for name in sorted({*state, *other}) if state.get(name) != other.get(name)]


def later_problems(
    disk: Disk,
    state: State,
    *,
    finishes_rollback: bool = False,
    finished: Sequence[State] | None = (),
) -> Iterator[tuple[str, str]]:
    """Yield what fails of that which comes later: reads of snapshots, commits, expiry, removal of orphans.

    `finishes_rollback`: after one that died, or gave up, is done again, as its error asks for, which takes later tags.
    `finished`: the states of which one may be there then; None: any.
    """
    takes_tags = False
    for name in disk.names(judge()):
        try:
            takes_tags |= finishes_rollback and _finished_rollback(disk, name)
            if takes_tags and finished != () and _may_be(after := observed(disk), finished):
                state = after
            yield from _later_problems_of(disk, name)
        except LsmError as error:
            yield LATER, f"{name}: {error}"
    last = observed(disk)
    for name in _different(state, last):
        part = last.get(name)
        if name.startswith("rows of main") and isinstance(part, tuple):
            part = tuple(row for row in part if "'later'" not in row)
        is_over = (
            name.startswith("tag ") and part is None and (takes_tags or state[name][1] == 1000)
        )
        if part != state.get(name) and not is_over and not name.startswith("consumer "):
            yield LATER, f"{name} {_contrast(state.get(name), part)}"


def _may_be(state: State, finished: Sequence[State] | None) -> bool:
    return finished is None or state in finished


def _finished_rollback(disk: Disk, name: str) -> bool:
    """Roll back again what is being rolled back; locks that belonged to who died are abandoned by then."""
    table = disk.opened(judge(), name)
    is_finished = False
    for line in (table.branch(branch) for branch in ("main", *table.branches())):
        target = line.session.snapshots.rollback_under_way()
        if target is not None:
            disk.clock.advance(2 * ABANDONED_MILLIS)
            try:
                line.rollback_to(target)
            except ExpiredError:  # only its tag keeps the target yet
                line.rollback_to(
                    tag=next(tag.name for tag in line.tags.list() if tag.snapshot.id == target)
                )
            is_finished = True
    return is_finished


def _later_problems_of(disk: Disk, name: str) -> Iterator[tuple[str, str]]:
    table = disk.opened(judge(), name)
    references = References(disk.files(name))
    if missing := references.missing():
        yield UNREADABLE, f"named, and not there: {missing}"
    branches = table.branches()
    for line in ("main", *branches):
        yield from _unreadable_snapshots(references, table, line)
    later: list[tuple[str, Callable[[Table], object]]] = [
        ("commit", lambda table: write(table, 200, 1, "later")),
        ("expiry", expire),
        *(
            (f"expiry of {line}", lambda table, line=line: expire(table.branch(line)))
            for line in branches
            if line in TOUCHED_BRANCHES
        ),
        ("removal of orphans", _remove_orphans),
    ]
    for what, act in later:
        try:
            act(disk.opened(judge(), name))
        except LsmError as error:
            yield LATER, f"{what}: {type(error).__name__} {error}"
    if missing := References(disk.files(name)).missing(with_passed=True):
        yield UNREADABLE, f"named after an expiry, and not there: {missing}"
    report = disk.opened(judge(), name).verify()
    if report.problems:
        yield LATER, f"verify: {report.problems}"


def _unreadable_snapshots(
    references: References, table: Table, name: str
) -> Iterator[tuple[str, str]]:
    line = _with_level_0(table.branch(name))
    try:
        listed = line.snapshots()
    except LsmError as error:
        yield UNREADABLE, f"snapshots of {name}: {error}"
        return
    for snapshot in listed:
        number = snapshot.id
        file = line.session.paths.snapshot_file(number)
        rows = references.rows(file, lambda number=number: line.scan(snapshot_id=number).to_arrow())
        if isinstance(rows, Unreadable):
            yield UNREADABLE, f"snapshot {number} of {name}: {rows.reason}"


def _remove_orphans(table: Table) -> object:
    return table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)


@dataclass
class Figures:
    """What a campaign has done and met."""

    combinations: int = 0
    schedules: int = 0
    executed: int = 0
    judged: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        met = ", ".join(
            f"{kind}: {self.problems[kind]}" for kind in (LOST, UNREADABLE, LATER, WRONG_ERROR)
        )
        return (
            f"{self.schedules} schedules of {self.combinations} combinations "
            f"({self.executed} run, {self.judged} with an end of their own); {met}"
        )


def campaign(
    combinations: Iterable[Combination],
    report: Callable[[Schedule, str, str], None],
    *,
    run: Callable[..., Iterator[Schedule]] = schedules,
    every_call: bool = False,
    until: float = float("inf"),
) -> Figures:
    """Carry out schedules, and report what is wrong after them."""
    figures = Figures()
    for combination in combinations:
        if time.monotonic() > until:
            break
        figures.combinations += 1
        ends: set[object] = set()
        for done in run(combination, every_call=every_call):
            figures.schedules += done.count
            figures.executed += 1
            answers = (done.ours, *done.theirs)
            for answer in answers:
                if isinstance(answer, LsmError):
                    figures.errors[type(answer).__name__] += 1
            told = tuple(_told(answer) for answer in answers)
            end = (frozenset(done.disk.contents().items()), told, str(done.disk.facts(JUDGE)))
            if end in ends:
                continue
            ends.add(end)
            figures.judged += 1
            for problem, reason in problems_of(done):
                figures.problems[problem] += 1
                report(done, problem, reason)
    return figures


def _told(answer: Any) -> str:
    return type(answer).__name__ if isinstance(answer, LsmError) else "acknowledged"


def pairs(
    stores: Sequence[str], kinds: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[Combination]:
    """Yield every pair of operations for some kinds of tables."""
    for store, kind in product(stores, kinds):
        those = operations_for(store, kind)
        for first, second in product(those, those):
            # What a lake adds is its catalog.
            if store == "lake" and not {first, second} & CATALOG:
                continue
            if first in ours and second in theirs:
                yield Combination(store, kind, first, (second,))


CATALOG = frozenset(name for name, operation in OPERATIONS.items() if operation.is_of_catalog)
ENDS = ("expire", "compact", "forget", "roll back")


def triples(
    stores: Sequence[str], kinds: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[Combination]:
    """Yield every pair of operations with one more that takes files away, before or after the second."""
    for pair in pairs(stores, kinds, ours, theirs):
        for end in ENDS:
            if end not in pair.theirs:
                for those in ((*pair.theirs, end), (end, *pair.theirs)):
                    yield Combination(pair.store, pair.kind, pair.ours, those)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out what is asked for; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, choices in (("stores", STORES), ("kinds", KINDS), ("ours", OPERATIONS), ("theirs", OPERATIONS)):  # fmt: skip
        parser.add_argument(f"--{name}", nargs="*", choices=list(choices), default=list(choices), metavar=name.upper())  # fmt: skip
    parser.add_argument("--triples", action="store_true", help="two others run, not one")
    parser.add_argument("--two-stops", action="store_true", help="both of a pair are stopped once")
    parser.add_argument("--kills", action="store_true", help="ours is killed after it was stopped")
    parser.add_argument(
        "--every-call", action="store_true", help="run also what must give the same"
    )
    parser.add_argument("--sample", type=int, default=1, help="of so many combinations one")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of a sample")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    asked = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    make = triples if asked.triples else pairs
    every = list(make(asked.stores, asked.kinds, asked.ours, asked.theirs))
    if asked.two_stops:
        every = [each for each in every if {each.ours, *each.theirs} <= {*NAMING}]

    def report(done: Schedule, problem: str, reason: str) -> None:
        told = [_told(answer) for answer in (done.ours, *done.theirs)]
        where = f"{done.call.verb} {done.call.paths[0]}"
        at = f"{done.at} and {done.theirs_at}" if done.theirs_at else done.at
        print(f"{problem}: {done.combination} at {at} ({where}): {told}: {reason}", flush=True)

    with doubles():
        figures = campaign(
            every[asked.first :: asked.sample],
            report,
            run=killed if asked.kills else twofold if asked.two_stops else schedules,
            every_call=asked.every_call,
            until=time.monotonic() + asked.seconds,
        )
    print(figures)
    print(dict(figures.errors))
    return 1 if figures.problems else 0


def doubles() -> ExitStack:
    """Return what has to be in force while schedules run."""
    stack = ExitStack()
    for each in (on_one_thread(), decoded_once(), object_doubles(), lake_doubles()):
        stack.enter_context(each)
    return stack


if __name__ == "__main__":
    sys.exit(main())

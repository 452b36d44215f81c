"""Schedules with two preemptions: ours is stopped at one storage call, theirs at another, then ours ends
first and theirs last. Where theirs ends before it is stopped there was one preemption, so this is every
interleaving of up to two.

CI takes a sample; all of them:

    python -m pytest tests/fault/test_two_preemptions.py -m sweep -q
"""

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from lsm_engine.api.table import Table
from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    ErrorKind,
    InvalidInputError,
    LsmError,
    NotFoundError,
)
from lsm_engine.testing.memory_file_io import MemoryFileIO
from lsm_engine.types.schema_changes import SetOption
from tests.fault.doubles import ManualClock, NumberedIds
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.fault.scenarios import (
    SHAPE,
    acting,
    branched,
    clone,
    fingerprint_of,
    open_again,
    rows,
    view,
)
from tests.fault.scenarios import write_and_compact as prepare
from tests.fault.test_schedules import CHANGES, attempted, disk_with, expire_most, upsert_other
from tests.model.invariants import check_ids, check_reachability, check_snapshot, check_totals
from tests.model.stored_table import StoredTable
from tests.model.strategies import Layout
from tests.model.world import START_MILLIS, components, read, reopen

Act = Callable[[Table], object]
DAYS = 86_400_000
EXTENTS = pytest.mark.parametrize(
    "extent", ["sample", pytest.param("all", marks=[pytest.mark.sweep, pytest.mark.slow])]
)


class Turns:
    """One of two threads runs at a time; each hands over before its call of a number, once."""

    def __init__(self, stops: tuple[int, int]) -> None:
        self._stops = stops
        self._counts = [0, 0]
        self.stopped = [False, False]
        self._turn = 0
        self._done = [False, False]
        self._changed = threading.Condition()

    def hook(self, actor: int) -> Callable[[Call], None]:
        def on_call(call: Call) -> None:
            # The pieces of a file are written one after the other: breaking in once is enough.
            self._counts[actor] += call.verb != "write"
            if call.verb != "write" and self._counts[actor] == self._stops[actor]:
                self._hand_over(actor)

        return on_call

    def begin(self, actor: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == actor)

    def _hand_over(self, actor: int) -> None:
        with self._changed:
            if self._done[1 - actor]:
                return
            self.stopped[actor] = True
            self._turn = 1 - actor
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == actor)

    def end(self, actor: int) -> None:
        with self._changed:
            self._done[actor] = True
            self._turn = 1 - actor
            self._changed.notify_all()


class HurriedClock(ManualClock):
    """A clock on which waits take twenty times as long: `commit.timeout` is over after few of them."""

    def sleep_millis(self, millis: int) -> None:
        super().sleep_millis(20 * millis)


def interleaved(
    disk: MemoryFileIO, ours: Act, theirs: Act, stops: tuple[int, int]
) -> tuple[list[Any], bool]:
    """Run both on one disk, stopped at their calls; return what came out of each, and whether theirs
    was stopped: after its last call it is not.
    """
    turns = Turns(stops)
    came: list[Any] = [None, None]

    def run(actor: int, act: Act) -> None:
        turns.begin(actor)
        try:
            storage = RecordingFileIO(disk, on_call=turns.hook(actor))
            clock = HurriedClock(START_MILLIS + 15_000_000 + actor)
            parts = components(storage, clock, NumberedIds(first=100_000 * (1 + actor)))
            came[actor] = attempted(lambda _: act(reopen(parts)), None)  # type: ignore[arg-type]
        except BaseException as error:  # noqa: BLE001 -- a defect: the test's own thread has to see it
            came[actor] = error
        finally:
            turns.end(actor)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate((ours, theirs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), f"stuck at {stops}"
    for one in came:
        if isinstance(one, BaseException) and not isinstance(one, LsmError):
            raise AssertionError(f"at {stops}: {one!r}") from one
    return came, turns.stopped[1]


def calls_of(start: MemoryFileIO, act: Act, extent: str, some: int) -> list[int]:
    """Numbers of the calls to stop at: all, or some, those that change something among them."""
    verbs: list[str] = []
    storage = RecordingFileIO(clone(start), on_call=lambda call: verbs.append(call.verb))
    attempted(act, acting(storage))
    calls = [verb for verb in verbs if verb != "write"]
    if extent == "all":
        return list(range(1, len(calls) + 1))
    changing = [at for at, verb in enumerate(calls, 1) if verb in CHANGES]
    spread = range(2, len(calls) + 1, max(1, len(calls) // (some // 2 + 1)))
    return sorted({*changing[:: max(1, len(changing) // (some // 2))], *spread})


def every_schedule(
    extent: str,
    ours: Act,
    theirs: Act,
    check: Callable[[MemoryFileIO, Any, Any], None],
    *,
    start: MemoryFileIO | None = None,
    orphans: bool = False,
) -> None:
    start = disk_with(prepare) if start is None else start
    some = calls_of(start, theirs, extent, 2)
    seen: set[object] = set()
    for number, first in enumerate(calls_of(start, ours, extent, 4)):
        # Who is disturbed tries again and makes more calls; after the last one, ours is all that stops.
        # In the sample each stop of ours meets every other stop of theirs, the next one the rest.
        for second in count(1) if extent == "all" else some[number % 2 :: 2]:
            disk = clone(start)
            came, stopped = interleaved(disk, ours, theirs, (first, second))
            # What a reader was given is on no disk.
            finish = (fingerprint_of(disk, ()), *map(repr, came))
            if finish not in seen:
                seen.add(finish)
                try:
                    check_disk(disk, came, orphans=orphans)
                    check(disk, *came)
                except (AssertionError, LsmError) as wrong:
                    raise AssertionError(f"at {first}, {second}: {came!r}: {wrong}") from wrong
            if extent == "all" and not stopped:
                break


def check_disk(disk: MemoryFileIO, came: list[Any], *, orphans: bool) -> None:
    """No snapshot or tag has lost a file, ids have no gap, and nobody left what nothing names.

    `orphans`: some may be left; an expiry that saw a tag keeps files for it.
    """
    stored = StoredTable(disk)
    snapshots = stored.snapshots()
    if any(isinstance(one, CommitConflictError) for one in came):
        # An expiry that gave up for a rollback leaves what it has passed to the next one.
        passed = stored.hint("EARLIEST") or 0
        snapshots = {number: one for number, one in snapshots.items() if number >= passed}
        assert snapshots
    check_ids(stored, snapshots)
    check_totals(stored, snapshots)
    for snapshot in (*snapshots.values(), *stored.tags().values()):
        check_snapshot(stored, snapshot)
    orphans = orphans or any(isinstance(one, NotFoundError) for one in came)
    check_reachability(stored, staged=stored.files() if orphans else ())


def aged(start: MemoryFileIO) -> MemoryFileIO:
    """The same files, written two days ago, with strays among them; new ones get today's stamp."""
    disk = clone(start)
    for stray in ("manifest/manifest-stray-0", "p=0/bucket-0/data-stray-0.parquet"):
        disk.write_new(stray, b"stray")
    disk._files = {path: (data, at - 2 * DAYS) for path, (data, at) in disk._files.items()}
    return disk


def remove_orphans(table: Table) -> object:
    return table.remove_orphan_files(dry_run=False, older_than="1 d")


@EXTENTS
@pytest.mark.parametrize("expirer_first", [True, False])
def test_a_writer_and_an_expiry(extent: str, expirer_first: bool) -> None:
    start = disk_with(prepare)
    upsert_other(open_again(start))
    expected = view(start).head

    def check(disk: MemoryFileIO, ours: Any, theirs: Any) -> None:
        assert not isinstance(ours, LsmError)
        assert not isinstance(theirs, LsmError)
        assert view(disk).head == expected

    pair = (expire_most, upsert_other) if expirer_first else (upsert_other, expire_most)
    every_schedule(extent, *pair, check)


@EXTENTS
@pytest.mark.parametrize("remover_first", [True, False])
def test_a_writer_and_the_removal_of_orphans(extent: str, remover_first: bool) -> None:
    """Files that a writer has just staged are younger than a day, so they are nobody's orphans."""
    start = aged(disk_with(prepare))
    done = clone(start)
    upsert_other(open_again(done))
    expected = view(done).head

    def check(disk: MemoryFileIO, ours: Any, theirs: Any) -> None:
        assert not isinstance(ours, LsmError)
        assert not isinstance(theirs, LsmError)
        assert view(disk).head == expected
        assert not [path for path in disk._files if "stray" in path]

    pair = (remove_orphans, upsert_other) if remover_first else (upsert_other, remove_orphans)
    every_schedule(extent, *pair, check, start=start)


@EXTENTS
@pytest.mark.parametrize("expirer_first", [True, False])
def test_paimon_6978_a_reader_and_an_expiry(extent: str, expirer_first: bool) -> None:
    """A reader of an expiring snapshot gets all of it, or is told that it has expired."""
    start = disk_with(prepare)
    oldest = min(view(start).snapshots)
    expected = view(start).snapshots[oldest]

    def read_oldest(table: Table) -> object:
        return read(table, SHAPE, snapshot_id=oldest)

    def check(_: MemoryFileIO, *came: Any) -> None:
        for one in came:
            if isinstance(one, dict):
                assert one == expected
            elif isinstance(one, LsmError):
                assert isinstance(one, NotFoundError)
                assert one.kind is ErrorKind.EXPIRED

    pair = (expire_most, read_oldest) if expirer_first else (read_oldest, expire_most)
    every_schedule(extent, *pair, check)


@EXTENTS
@pytest.mark.parametrize("expirer_first", [True, False])
def test_a_reader_with_a_tag_of_its_own_and_an_expiry(extent: str, expirer_first: bool) -> None:
    """All of the snapshot, or the news that it has expired; and no tag is left either way."""
    start = disk_with(prepare)
    option = "scan.plan-auto-tag-for-read.time-retained"
    open_again(start).alter(SetOption(key=option, value="1 h"))
    oldest = min(view(start).snapshots)
    expected = view(start).snapshots[oldest]
    tags = view(start).tags.keys()

    def read_oldest(table: Table) -> object:
        return read(table, SHAPE, snapshot_id=oldest)

    def check(disk: MemoryFileIO, *came: Any) -> None:
        for one in came:
            if isinstance(one, dict):
                assert one == expected
            elif isinstance(one, LsmError):
                assert isinstance(one, NotFoundError)
                assert one.kind is ErrorKind.EXPIRED
        assert view(disk).tags.keys() == tags

    pair = (expire_most, read_oldest) if expirer_first else (read_oldest, expire_most)
    every_schedule(extent, *pair, check, start=start, orphans=True)


def tag_oldest(table: Table) -> object:
    return table.create_tag("oldest", 1)


def move_tag(table: Table) -> object:
    return table.replace_tag("kept", 2)


def rename_tag(table: Table) -> object:
    return table.rename_tag("kept", "named anew")


@EXTENTS
@pytest.mark.parametrize("act", [tag_oldest, move_tag, rename_tag], ids=lambda act: act.__name__)
@pytest.mark.parametrize("expirer_first", [True, False])
def test_tags_and_an_expiry(extent: str, act: Act, expirer_first: bool) -> None:
    """Whatever tag there is in the end reads as the snapshot that it names."""
    start = disk_with(prepare)
    known = view(start).snapshots

    def check(disk: MemoryFileIO, *_: Any) -> None:
        table = open_again(disk)
        for tag in table.tags():
            assert read(table, SHAPE, tag=tag.name) == known[tag.snapshot.id], tag.name

    pair = (expire_most, act) if expirer_first else (act, expire_most)
    every_schedule(extent, *pair, check, orphans=act is move_tag)


def untag(table: Table) -> object:
    return table.delete_tag("kept")


def tag_from_tag(table: Table) -> object:
    return table.create_tag("again", from_millis=0)


def branch_from_tag(table: Table) -> object:
    return table.create_branch("new", "kept")


@EXTENTS
@pytest.mark.parametrize("act", [tag_from_tag, branch_from_tag], ids=lambda act: act.__name__)
@pytest.mark.parametrize("deleter_first", [True, False])
def test_what_is_made_of_a_tag_while_it_is_deleted(
    extent: str, act: Act, deleter_first: bool
) -> None:
    """The snapshot has expired: only the tag still names its files. Who comes late is told."""
    start = disk_with(prepare)
    open_again(start).delete_tag("other")
    expire_most(open_again(start))
    expected = view(start).tags["kept"]
    known = {3: expected, 6: view(start).head}

    def check(disk: MemoryFileIO, *_: Any) -> None:
        table = open_again(disk)
        for tag in table.tags():
            assert read(table, SHAPE, tag=tag.name) == known[tag.snapshot.id]
        for name in table.branches():
            assert read(table.branch(name), SHAPE) == expected

    pair = (untag, act) if deleter_first else (act, untag)
    every_schedule(extent, *pair, check, start=start)


@EXTENTS
@pytest.mark.parametrize("expirer_first", [True, False])
def test_a_branch_of_a_tag_and_an_expiry_of_its_changelog(extent: str, expirer_first: bool) -> None:
    """The branch names no changelog list that is deleted: later maintenance reads all that it names."""
    feed = Layout(bucket=1, options=(("write-only", "true"), ("changelog-producer", "input")))
    start = disk_with(prepare, feed)

    def check(disk: MemoryFileIO, *came: Any) -> None:
        assert not [one for one in came if isinstance(one, LsmError)]
        report = open_again(disk).verify()
        assert not report.problems, report.problems
        later = open_again(disk, first_id=700_000)
        later.delete_tag("kept")
        expire_most(later)
        remove_orphans(later)
        assert read(later.branch("new"), SHAPE) == expected

    expected = view(start).tags["kept"]
    pair = (expire_most, branch_from_tag) if expirer_first else (branch_from_tag, expire_most)
    every_schedule(extent, *pair, check, start=start, orphans=True)


def prolong(table: Table) -> object:
    return table.replace_tag("kept", 3, "1000 d")


def rename_to_other(table: Table) -> object:
    return table.rename_tag("kept", "other name")


def move_to_newest(table: Table) -> object:
    return table.replace_tag("kept")


def only_in_tag() -> MemoryFileIO:
    """A table whose snapshot 3 has expired: only the tag `kept` names its files."""
    start = disk_with(prepare)
    open_again(start).delete_tag("other")
    expire_most(open_again(start))
    return start


NAMERS = [untag, prolong, rename_tag, rename_to_other, move_to_newest]


@EXTENTS
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(ours, theirs) for at, ours in enumerate(NAMERS) for theirs in NAMERS[at:]],
    ids=lambda act: act.__name__,
)
def test_two_that_change_one_tag(extent: str, ours: Act, theirs: Act) -> None:
    """Each tag that there is in the end can be read, and what was acknowledged last is there."""
    start = only_in_tag()
    known = {3: view(start).tags["kept"], 6: view(start).head}
    names = {rename_tag: "named anew", rename_to_other: "other name"}
    orders = [names_after(start, ours, theirs), names_after(start, theirs, ours)]

    def check(disk: MemoryFileIO, *came: Any) -> None:
        table = open_again(disk, first_id=700_000)
        for tag in table.tags():
            assert read(table, SHAPE, tag=tag.name) == known[tag.snapshot.id]
        for one in came:
            assert not isinstance(one, LsmError) or isinstance(
                one, NotFoundError | AlreadyExistsError | CommitConflictError
            )
        done = [
            act
            for act, one in zip((ours, theirs), came, strict=True)
            if not isinstance(one, LsmError)
        ]
        if len(done) == 2:
            assert set(table.tag_names()) in orders
        elif done:
            assert set(table.tag_names()) == names_after(start, *done)
        assert set(table.tag_names()) <= {"kept", *names.values()}
        expire_most(table)
        remove_orphans(table)

    every_schedule(extent, ours, theirs, check, start=start, orphans=True)


def names_after(start: MemoryFileIO, *acts: Act) -> set[str]:
    disk = clone(start)
    for number, act in enumerate(acts, 1):
        attempted(act, open_again(disk, first_id=100_000 * number))
    return set(open_again(disk).tag_names())


def in_june(act: Act) -> Act:
    def acted(table: Table) -> object:
        table.session.clock.local_time = lambda: (2024, 6, 1, 0, 0, 0, 0)  # type: ignore[attr-defined]
        return act(table)

    acted.__name__ = act.__name__
    return acted


def expire_brief(table: Table) -> object:
    return table.expire_tags()


def prolong_brief(table: Table) -> object:
    return table.replace_tag("brief", 3, "1000 d")


def make_brief_anew(table: Table) -> object:
    table.delete_tag("brief")
    return table.create_tag("brief", 3, "1000 d")


@EXTENTS
@pytest.mark.parametrize("expirer", [expire_brief, expire_most], ids=lambda act: act.__name__)
@pytest.mark.parametrize("keeper", [prolong_brief, make_brief_anew], ids=lambda act: act.__name__)
@pytest.mark.parametrize("expirer_first", [True, False])
def test_a_tag_that_is_given_a_longer_life_while_it_expires(
    extent: str, expirer: Act, keeper: Act, expirer_first: bool
) -> None:
    """A lifetime that was acknowledged holds."""
    start = disk_with(prepare)
    open_again(start).create_tag("brief", 3, "1 s")
    expected = view(start).tags["brief"]

    def check(disk: MemoryFileIO, *came: Any) -> None:
        kept, expired = reversed(came) if expirer_first else came
        assert not isinstance(expired, LsmError)
        table = open_again(disk)
        assert not isinstance(kept, LsmError) or isinstance(
            kept, NotFoundError | CommitConflictError
        )
        assert ("brief" in table.tag_names()) != isinstance(kept, LsmError)
        if "brief" in table.tag_names():
            assert table.tag("brief").retained_millis == 1000 * DAYS
            assert read(table, SHAPE, tag="brief") == expected

    pair = (in_june(expirer), in_june(keeper))
    every_schedule(
        extent, *(pair if expirer_first else reversed(pair)), check, start=start, orphans=True
    )


def more_rows(table: Table) -> object:
    return table.upsert(rows(30, 2, "more"))


def as_latest(table: Table) -> object:
    return table.rollback_to_as_latest(1)


@EXTENTS
@pytest.mark.parametrize("writer_first", [True, False])
def test_a_writer_and_a_rollback_as_latest(extent: str, writer_first: bool) -> None:
    """Both land: the rows are there after the restored state, or in the history before it."""
    start = disk_with(prepare)
    before = view(start).snapshots[1]

    def check(disk: MemoryFileIO, *came: Any) -> None:
        for one in came:
            assert not isinstance(one, LsmError)
        now = view(disk)
        assert len([key for key in now.head if key not in before]) in (0, 2)
        assert all(now.head[key] == row for key, row in before.items())
        assert len(now.snapshots) >= len(view(start).snapshots) + 2

    pair = (more_rows, as_latest) if writer_first else (as_latest, more_rows)
    every_schedule(extent, *pair, check)


def as_tagged(table: Table) -> object:
    return table.rollback_to_as_latest(tag="kept")


@EXTENTS
@pytest.mark.parametrize(
    ("theirs", "ours"), [(expire_most, as_latest), (untag, as_tagged)], ids=["snapshot", "tag"]
)
@pytest.mark.parametrize("first", [True, False])
def test_what_is_restored_while_it_expires(
    extent: str, theirs: Act, ours: Act, first: bool
) -> None:
    """The restored state is there, whole, or it had expired before and nothing has changed."""
    start = disk_with(prepare)
    if theirs is untag:
        open_again(start).delete_tag("other")
        expire_most(open_again(start))
    known, head = view(start), view(start).head
    wanted = known.tags["kept"] if theirs is untag else known.snapshots[1]

    def check(disk: MemoryFileIO, *came: Any) -> None:
        made = came[0] if first else came[1]
        if isinstance(made, LsmError):
            assert isinstance(made, NotFoundError)
        assert view(disk).head == (head if isinstance(made, LsmError) else wanted)
        names = open_again(disk).tag_names()
        assert not [name for name in names if name.startswith("restoring-")]

    pair = (ours, theirs) if first else (theirs, ours)
    every_schedule(extent, *pair, check, start=start, orphans=True)  # of who saw the tag


def forward(table: Table) -> object:
    return table.fast_forward("fix")


def expire_branch(table: Table) -> object:
    branch = table.branch("fix")
    branch.delete_tag("done")
    branch.upsert(rows(20, 2, "newer"))
    return expire_most(branch)


@EXTENTS
@pytest.mark.parametrize("first", [True, False])
def test_a_fast_forward_and_an_expiry_of_the_branch(extent: str, first: bool) -> None:
    """What main has taken over can be read, each snapshot of it."""
    start = disk_with(branched)

    def check(disk: MemoryFileIO, *came: Any) -> None:
        made = came[0] if first else came[1]
        assert not isinstance(made, LsmError) or isinstance(
            made, CommitConflictError | NotFoundError | InvalidInputError
        )
        assert None not in view(disk).snapshots.values()
        report = open_again(disk).verify()
        assert not report.problems, report.problems

    pair = (forward, expire_branch) if first else (expire_branch, forward)
    every_schedule(extent, *pair, check, start=start, orphans=True)


def roll_back(table: Table) -> object:
    return table.rollback_to(3)


def check_rolled_back(start: MemoryFileIO, disk: MemoryFileIO, writer: Any, roller: Any) -> None:
    """As if one had come after the other: the rollback is done, and the commit taken by it, or after it."""
    assert not isinstance(roller, LsmError)
    before, now = view(start), view(disk)
    added = {key: row for key, row in now.head.items() if row[0] == "more"}
    rest = {key: row for key, row in now.head.items() if row[0] != "more"}
    taken = {one.uuid for one in roller.plan.snapshots}
    if isinstance(writer, CommitUnknownError):
        assert (added, writer.facts["uuid"] in taken) == ({}, True)
    elif isinstance(writer, LsmError):
        assert isinstance(writer, CommitConflictError)
        assert not added
    else:
        assert bool(added) != (writer.uuid in taken), "a commit is lost"
    assert rest == before.snapshots[3], "taken back, and there again"
    assert max(now.snapshots) <= 3 + 2 * bool(added)
    report = open_again(disk).verify()
    assert not report.problems, report.problems


@EXTENTS
@pytest.mark.parametrize("writer_first", [True, False])
def test_a_writer_and_a_rollback(extent: str, writer_first: bool) -> None:
    start = disk_with(prepare)

    def check(disk: MemoryFileIO, *came: Any) -> None:
        check_rolled_back(start, disk, *(came if writer_first else reversed(came)))

    pair = (more_rows, roll_back) if writer_first else (roll_back, more_rows)
    every_schedule(extent, *pair, check, start=start, orphans=True)


@EXTENTS
@pytest.mark.parametrize("reader_first", [True, False])
def test_a_reader_and_a_rollback(extent: str, reader_first: bool) -> None:
    """A reader of the newest snapshot gets all of one of them; the files of those that go stay."""
    start = disk_with(prepare)
    known = view(start).snapshots

    def read_newest(table: Table) -> object:
        return read(table, SHAPE)

    def check(_: MemoryFileIO, *came: Any) -> None:
        found = came[0] if reader_first else came[1]
        assert found in [rows for number, rows in known.items() if number >= 3]

    pair = (read_newest, roll_back) if reader_first else (roll_back, read_newest)
    every_schedule(extent, *pair, check, start=start, orphans=True)


@EXTENTS
@pytest.mark.parametrize("expirer_first", [True, False])
def test_a_rollback_and_an_expiry(extent: str, expirer_first: bool) -> None:
    """The table is never without a snapshot that reads as it did."""
    start = disk_with(prepare)
    known = view(start).snapshots

    def check(disk: MemoryFileIO, *came: Any) -> None:
        now = view(disk)
        assert now.snapshots, "no snapshot is left"
        assert all(rows == known[number] for number, rows in now.snapshots.items())
        for one in came:
            assert not isinstance(one, LsmError) or isinstance(
                one, CommitConflictError | NotFoundError
            )

    pair = (expire_most, roll_back) if expirer_first else (roll_back, expire_most)
    every_schedule(extent, *pair, check, start=start, orphans=True)

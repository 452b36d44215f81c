"""Schedules with one preemption: in the middle of one operation, another runs from start to end.

Both must end well or say cleanly why not; what is visible afterwards is what the order allows. CI
breaks in at some storage calls, the publishes among them; at each one:

    python -m pytest tests/fault/test_schedules.py -m sweep -q
"""

from collections.abc import Callable
from typing import Any

import pytest

from lsm_engine.api.table import Table
from lsm_engine.base.errors import CommitConflictError, ErrorKind, LsmError, NotFoundError
from lsm_engine.changes.splits import Changes
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.fault.scenarios import (
    IDENTIFIER,
    SHAPE,
    TRASH,
    USER,
    WRITE_ONLY,
    acting,
    clone,
    fingerprint_of,
    open_again,
    rows,
    upsert_numbered,
    view,
    write_and_compact,
    write_three_times,
)
from tests.model.invariants import check_ids, check_reachability, check_snapshot, check_totals
from tests.model.stored_table import StoredTable
from tests.model.strategies import Layout
from tests.model.world import components, create, read

Act = Callable[[Table], object]
EXTENTS = pytest.mark.parametrize(
    "extent", ["sample", pytest.param("all", marks=[pytest.mark.sweep, pytest.mark.slow])]
)
DECISIVE = ("publish", "delete", "change_if_unchanged")
CHANGES = ("replace", *DECISIVE)
LAYOUT = Layout(bucket=1, options=(("num-sorted-run.compaction-trigger", "3"),))


def disk_with(prepare: Callable[[Table], None], layout: Layout = LAYOUT) -> MemoryFileIO:
    disk = MemoryFileIO()
    prepare(create(SHAPE, layout, components(disk)))
    return disk


def preempted(disk: MemoryFileIO, ours: Act, theirs: Act, at: int) -> tuple[Any, Any, bool]:
    """Run `ours`, and `theirs` in the middle of it, before storage call `at`; return what came out
    (a value or an LsmError) and whether there was such a call.
    """
    outcome: list[Any] = []
    count = 0

    def on_call(call: Call) -> None:
        nonlocal count
        # The pieces of a file are written one after the other: breaking in once is enough.
        count += call.verb != "write"
        if count == at and not outcome:
            outcome.append(attempted(theirs, open_again(disk)))

    table = acting(RecordingFileIO(disk, on_call=on_call))
    return attempted(ours, table), outcome[0] if outcome else None, bool(outcome)


def attempted(act: Act, table: Table) -> Any:
    try:
        return act(table)
    except LsmError as error:
        return error


def places(start: MemoryFileIO, ours: Act, extent: str) -> list[int]:
    """Where to break in: before every call, or some, but each time files are published or deleted."""
    made: list[Call] = []
    storage = RecordingFileIO(clone(start), on_call=made.append)
    attempted(ours, acting(storage))
    calls = [call for call in made if call.verb != "write"]
    if extent == "all":
        return list(range(1, len(calls) + 1))
    decisive = [at for at, call in enumerate(calls, 1) if call.verb in DECISIVE]
    names = [
        at
        for at, call in enumerate(calls, 1)
        if call.verb in CHANGES and call.path.startswith(("tag/", "trash/"))
    ]
    stride = max(9, len(calls) // 8)  # of long operations fewer
    chosen = {*range(1, len(calls) + 1, stride), *decisive[:: max(1, len(decisive) // 3)], *names}
    return sorted(chosen)


def every_schedule(
    extent: str,
    prepare: Callable[[Table], None],
    ours: Act,
    theirs: Act,
    check: Callable[[MemoryFileIO, Any, Any], None],
    *,
    orphans: bool = False,
    layout: Layout = LAYOUT,
) -> None:
    """Check the places at which `theirs` can break in. `orphans`: some may be left."""
    start = disk_with(prepare, layout)
    seen: set[object] = set()
    for at in places(start, ours, extent):
        disk = clone(start)
        ours_came, theirs_came, broke_in = preempted(disk, ours, theirs, at)
        assert broke_in, f"no call {at}"
        told = (repr(ours_came), repr(theirs_came))  # what a reader was given is on no disk
        if (finish := (fingerprint_of(disk, ()), *told)) in seen:
            continue  # ended in the very same files and answers as a schedule before
        seen.add(finish)
        try:
            stored = StoredTable(disk)
            snapshots = stored.snapshots()
            check_ids(stored, snapshots)
            check_totals(stored, snapshots)
            for snapshot in (*snapshots.values(), *stored.tags().values()):
                check_snapshot(stored, snapshot)
            check(disk, ours_came, theirs_came)
            # Who gave up may leave orphans: an expiry that saw a tag keeps files for it.
            gave_up = any(isinstance(came, NotFoundError) for came in (ours_came, theirs_came))
            check_reachability(stored, staged=stored.files() if gave_up or orphans else ())
        except AssertionError as wrong:
            facts = f"at call {at}: {ours_came!r}, {theirs_came!r}"
            raise AssertionError(f"{facts}: {wrong}") from wrong


def compact_fully(table: Table) -> object:
    return table.compact(full=True)


def expire_most(table: Table) -> object:
    return table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 ms")


def upsert_other(table: Table) -> object:
    return table.upsert(rows(6, 8, "other"))


def overwrite_other(table: Table) -> object:
    return table.overwrite(rows(0, 3, "over"))


def delete_some(table: Table) -> object:
    return table.delete(rows(0, 6, "").select(["k", "p"]))


def run_alone(prepare: Callable[[Table], None], *acts: Act) -> Any:
    disk = disk_with(prepare)
    for number, act in enumerate(acts, 1):
        act(open_again(disk, first_id=100_000 * number))
    return view(disk).head


@pytest.mark.parametrize("ours", [upsert_other, delete_some, compact_fully, overwrite_other])
@pytest.mark.parametrize("theirs", [upsert_numbered, delete_some, compact_fully, overwrite_other])
@EXTENTS
def test_two_writers(ours: Act, theirs: Act, extent: str) -> None:
    """Both land, in the order of their snapshots, or one is told that it lost."""
    orders = {
        (True, True): [
            run_alone(write_three_times, theirs, ours),
            run_alone(write_three_times, ours, theirs),
        ],
        (True, False): [run_alone(write_three_times, ours)],
        (False, True): [run_alone(write_three_times, theirs)],
    }

    def check(disk: MemoryFileIO, ours_came: Any, theirs_came: Any) -> None:
        done = tuple(not isinstance(came, LsmError) for came in (ours_came, theirs_came))
        for came in (ours_came, theirs_came):
            assert not isinstance(came, LsmError) or isinstance(came, CommitConflictError)
        assert done in orders, "both lost"
        assert view(disk).head in orders[done]
        if compact_fully not in (ours, theirs):
            assert done == (True, True), "writers of rows never lose"
        before = view(disk).head
        open_again(disk, first_id=900_000).compact(full=True)
        assert view(disk).head == before, "compaction changed the rows"

    every_schedule(extent, write_three_times, ours, theirs, check)


@EXTENTS
def test_a_replay_while_the_first_attempt_still_runs(extent: str) -> None:
    """A job is started again while its first process is not dead yet: one copy."""

    def check(disk: MemoryFileIO, ours_came: Any, theirs_came: Any) -> None:
        made = [
            one
            for one in open_again(disk).snapshots()
            if (one.commit_user, one.commit_identifier, one.commit_kind.value)
            == (USER, IDENTIFIER, "APPEND")
        ]
        assert len(made) == 1, f"committed {len(made)} times"
        assert not isinstance(ours_came, LsmError)
        assert not isinstance(theirs_came, LsmError)

    every_schedule(extent, write_three_times, upsert_numbered, upsert_numbered, check)


@EXTENTS
def test_a_writer_and_an_expiry(extent: str) -> None:
    expected = run_alone(write_and_compact, upsert_other)

    def check(disk: MemoryFileIO, ours_came: Any, theirs_came: Any) -> None:
        assert not isinstance(theirs_came, LsmError)
        assert not isinstance(ours_came, LsmError)
        assert view(disk).head == expected

    every_schedule(extent, write_and_compact, upsert_other, expire_most, check)
    every_schedule(extent, write_and_compact, expire_most, upsert_other, check)


@EXTENTS
def test_a_compaction_and_an_expiry(extent: str) -> None:
    expected = run_alone(write_and_compact)

    def check(disk: MemoryFileIO, ours_came: Any, theirs_came: Any) -> None:
        for came in (ours_came, theirs_came):
            assert not isinstance(came, LsmError)
        assert view(disk).head == expected

    every_schedule(extent, write_and_compact, compact_fully, expire_most, check)
    every_schedule(extent, write_and_compact, expire_most, compact_fully, check)


@EXTENTS
def test_a_reader_and_an_expiry(extent: str) -> None:
    """A reader of an expiring snapshot gets all of it, or is told that it has expired."""
    disk = disk_with(write_and_compact)
    oldest = min(view(disk).snapshots)
    expected = view(disk).snapshots[oldest]

    def read_oldest(table: Table) -> object:
        return read(table, SHAPE, snapshot_id=oldest)

    def check(_: MemoryFileIO, ours_came: Any, theirs_came: Any) -> None:
        for came in (ours_came, theirs_came):
            if isinstance(came, dict):
                assert came == expected
            elif isinstance(came, LsmError):
                assert isinstance(came, NotFoundError)
                assert came.kind is ErrorKind.EXPIRED

    every_schedule(extent, write_and_compact, read_oldest, expire_most, check)
    every_schedule(extent, write_and_compact, expire_most, read_oldest, check)


def count_oldest(table: Table) -> object:
    return table.scan(snapshot_id=1).count()


def read_changes(table: Table) -> object:
    return changed(table.changes(0, 3))


def read_difference(table: Table) -> object:
    return changed(table.changes(1, 3, mode="diff"))


def changed(changes: Changes) -> object:
    names = [name for name in changes.schema.names if name != "_snapshot_id"]
    return sorted(map(repr, changes.to_arrow().select(names).to_pylist()))


@EXTENTS
@pytest.mark.parametrize("ours", [count_oldest, read_changes, read_difference])
def test_readers_of_the_past_and_an_expiry(ours: Act, extent: str) -> None:
    """All that there was, or the news that it has expired."""
    expected = ours(open_again(disk_with(write_and_compact)))

    def check(_: MemoryFileIO, came: Any, theirs_came: Any) -> None:
        assert not isinstance(theirs_came, LsmError)
        if isinstance(came, LsmError):
            assert came.kind is ErrorKind.EXPIRED
        else:
            assert came == expected

    every_schedule(extent, write_and_compact, ours, expire_most, check)


def expire_tags(table: Table) -> object:
    return [table.delete_tag(name) for name in ("kept", "other")]


def roll_back(table: Table) -> object:
    return table.rollback_to(3)


@EXTENTS
@pytest.mark.parametrize("theirs", [expire_most, expire_tags, roll_back, upsert_other])
def test_a_verification_of_what_changes_finds_nothing_wrong(theirs: Act, extent: str) -> None:
    """What went while it was looked at was not lost."""

    def check(_: MemoryFileIO, came: Any, theirs_came: Any) -> None:
        assert not isinstance(theirs_came, LsmError)
        assert came.problems == ()

    def prepare(table: Table) -> None:
        write_and_compact(table)
        expire_most(table)  # so that tags stand alone
        for _ in range(3):
            table.session.clock.sleep_millis(10_000)
            upsert_other(table)

    every_schedule(
        extent,
        prepare if theirs is expire_tags else write_and_compact,
        lambda table: table.verify(),
        theirs,
        check,
        orphans=theirs is roll_back,
    )


def delete_gone(table: Table) -> object:
    """Delete keys that the newest snapshot lacks, and the first two have."""
    return table.delete(rows(0, 2, "").select(["k", "p"]))


@EXTENTS
@pytest.mark.parametrize(
    "deletes",
    [delete_gone, pytest.param(delete_some, marks=[pytest.mark.sweep, pytest.mark.slow])],
)
def test_a_deletion_and_a_rollback_that_brings_its_keys_back(deletes: Act, extent: str) -> None:
    """The rows are those of one of the two orders, also where the deletion finds nothing to do.

    In the middle of a rollback a deletion is told so, and changes nothing.
    """

    def roll_back_to_first(table: Table) -> object:
        return table.rollback_to(1)

    orders = [
        run_alone(write_three_times, deletes, roll_back_to_first),
        run_alone(write_three_times, roll_back_to_first, deletes),
    ]

    rolled_back = run_alone(write_three_times, roll_back_to_first)

    def check(disk: MemoryFileIO, *outcomes: Any) -> None:
        for came in outcomes:
            assert not isinstance(came, LsmError) or "a rollback to snapshot 1" in str(came)
        is_refused = any(isinstance(came, LsmError) for came in outcomes)
        assert view(disk).head in ([rolled_back] if is_refused else orders)

    every_schedule(extent, write_three_times, deletes, roll_back_to_first, check, orphans=True)
    # In CI the deletion is stopped alone: it is what looks, and a rollback has many calls.
    if extent == "all":
        every_schedule(extent, write_three_times, roll_back_to_first, deletes, check, orphans=True)


def undo(table: Table) -> object:
    return table.undo_maintenance()


@EXTENTS
def test_an_expiry_into_the_trash_and_its_undo(extent: str) -> None:
    """What was given back is there: the expiry deletes no snapshot that has come back."""
    before = view(disk_with(write_and_compact, TRASH)).snapshots

    def check(disk: MemoryFileIO, ours_came: Any, theirs_came: Any) -> None:
        assert not isinstance(ours_came, LsmError) or isinstance(ours_came, CommitConflictError)
        if isinstance(theirs_came, LsmError):  # nothing was in the trash yet
            assert isinstance(theirs_came, NotFoundError)
        else:
            assert view(disk).snapshots == before
        table = open_again(disk, first_id=900_000)
        table.upsert(rows(50, 1, "later"))
        expire_most(table)

    every_schedule(extent, write_and_compact, expire_most, undo, check, orphans=True, layout=TRASH)


def untag_into_trash(table: Table) -> object:
    return table.delete_tag("kept")


@EXTENTS
def test_a_deletion_of_a_tag_into_the_trash_and_its_undo(extent: str) -> None:
    """The tag is there, or in the trash."""

    def check(disk: MemoryFileIO, ours_came: Any, theirs_came: Any) -> None:
        assert not isinstance(ours_came, LsmError)
        table = open_again(disk, first_id=900_000)
        assert "kept" in table.tag_names() or len(table.trash()) == 1

    every_schedule(
        extent, write_and_compact, untag_into_trash, undo, check, orphans=True, layout=TRASH
    )


def compact_and_expire(table: Table) -> object:
    return [compact_fully(table), expire_most(table)]


def forget_one(table: Table) -> object:
    keys = rows(5, 1, "").select(["k", "p"])
    return table.forget(keys, dry_run=False, rewrite_tags=True)


@EXTENTS
def test_a_tag_that_is_rewritten_without_a_key_and_an_expiry_of_the_same_files(extent: str) -> None:
    """The newest state and the tag share files: the tag reads as before or without the key."""

    def prepare(table: Table) -> None:
        table.upsert(rows(0, 8, "first"))
        table.compact(full=True)
        table.create_tag("shared")
        table.upsert(rows(8, 2, "second"))

    before = view(disk_with(prepare, WRITE_ONLY)).tags["shared"]
    forgotten = SHAPE.key_of(("first", 1, "key-5", 5000))
    after = {key: row for key, row in before.items() if key != forgotten}
    assert len(after) == len(before) - 1

    def check(disk: MemoryFileIO, ours_came: Any, theirs_came: Any) -> None:
        assert not isinstance(theirs_came, LsmError)
        if isinstance(
            ours_came, LsmError
        ):  # what it read has expired meanwhile: it goes on when run again
            assert isinstance(ours_came, CommitConflictError | NotFoundError)
            assert view(disk).tags["shared"] in (before, after)
            forget_one(open_again(disk, first_id=900_000))
        assert view(disk).tags["shared"] == after

    every_schedule(
        extent, prepare, forget_one, compact_and_expire, check, orphans=True, layout=WRITE_ONLY
    )


@EXTENTS
def test_a_tagger_and_an_expiry(extent: str) -> None:
    """A tag that was made keeps its snapshot readable, whenever an expiry ran beside it."""
    disk = disk_with(write_and_compact)
    expected = view(disk).snapshots[1]

    def tag_oldest(table: Table) -> object:
        return table.create_tag("oldest", 1)

    def check(disk: MemoryFileIO, ours_came: Any, theirs_came: Any) -> None:
        table = open_again(disk)
        made = [came for came in (ours_came, theirs_came) if hasattr(came, "snapshot")]
        if made:
            assert read(table, SHAPE, tag="oldest") == expected
        assert {tag.name for tag in table.tags()} == {"kept", "other"} | {tag.name for tag in made}

    every_schedule(extent, write_and_compact, tag_oldest, expire_most, check)
    every_schedule(extent, write_and_compact, expire_most, tag_oldest, check)

"""Names of branches: whoever makes, renames, deletes or takes over one is stopped before each call, while others do so.

An acknowledged commit on a branch is there, under whatever name; a branch that is there can be read and verified,
and has one maker; and what a stop or a kill has left is finished by doing it again, or by deleting the branch.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from lsm_engine.api.table import Table
from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    LsmError,
    NotFoundError,
)
from lsm_engine.metadata.publishing import Claim
from lsm_engine.testing.memory_file_io import MemoryFileIO
from lsm_engine.types.schema_changes import AddColumn
from tests.fault import test_two_preemptions as two
from tests.fault.recording_file_io import Call, Crash, Die, LoseReply, RecordingFileIO, When
from tests.fault.scenarios import (
    SHAPE,
    acting,
    branched,
    clone,
    fingerprint_of,
    open_again,
    rows,
    view,
    write_and_compact,
)
from tests.fault.test_schedules import Act, attempted, disk_with
from tests.model.world import read

EXTENTS = two.EXTENTS
KEYS = range(60, 62)
READS = frozenset({"read", "list", "status", "exists", "open_input"})


class Stop:
    """Lets `theirs` run before call `number` of ours; `calls` are those up to that one."""

    def __init__(self, disk: MemoryFileIO, theirs: Act, number: int) -> None:
        self.calls: list[Call] = []
        self.answers: list[Any] = []
        self._disk, self._theirs, self._number = disk, theirs, number

    def __call__(self, call: Call) -> None:
        if not self.answers:
            self.calls.append(call)
            if len(self.calls) == self._number:
                self.answers.append(attempted(self._theirs, open_again(self._disk)))


def stopped(
    start: MemoryFileIO, ours: Act, theirs: Act, extent: str
) -> Iterator[tuple[list[Call], MemoryFileIO, Any, Any]]:
    """Yield the calls up to where `theirs` broke in, the disk, and what came out of both.

    Before each call of ours; of a sample before those that change something and some others.
    """
    whole = Stop(clone(start), lambda _: None, 0)
    attempted(ours, acting(RecordingFileIO(whole._disk, on_call=whole)))
    for number, call in enumerate(whole.calls, 1):
        if extent != "all" and call.verb in READS and number % 7:
            continue
        disk = clone(start)
        stop = Stop(disk, theirs, number)
        answer = attempted(ours, acting(RecordingFileIO(disk, on_call=stop)))
        yield stop.calls, disk, answer, stop.answers[0]


def committing(name: str) -> Act:
    """Commit rows on a branch that nobody else commits."""
    return lambda table: table.branch(name).upsert(rows(KEYS.start, len(KEYS), "acknowledged"))


def has_commit(table: Table) -> bool:
    return any(
        {row[0] for row in read(table.branch(name), SHAPE).values()} & {"acknowledged"}
        for name in table.branches()
    )


_checked: set[object] = set()


def check_branches(disk: MemoryFileIO) -> None:
    """Each branch that is there can be read, and nothing is wrong with the table; maintenance goes on."""
    fingerprint = fingerprint_of(disk, ())
    if fingerprint in _checked:
        return
    _checked.add(fingerprint)
    disk = clone(disk)
    table = open_again(disk, first_id=800_000)
    report = table.verify()
    assert not report.problems, report.problems
    for name in table.branches():
        read(table.branch(name), SHAPE)
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 ms")
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    for name in table.branches():
        read(table.branch(name), SHAPE)


def check_name_is_usable(disk: MemoryFileIO, name: str) -> None:
    """Whatever is left of a branch, deleting it, and making it anew, works."""
    table = open_again(disk, first_id=900_000)
    left = attempted(lambda opened: opened.delete_branch(name), table)
    assert left is None or isinstance(left, NotFoundError), left
    assert not [path for path in disk._files if path.startswith(f"branch/branch-{name}/")]
    table.create_branch(name, table.tag_names()[0])
    assert name in table.branches()
    table.branch(name).upsert(rows(1, 1, "usable"))


def two_tags(table: Table) -> None:
    write_and_compact(table)
    table.create_branch("other", "other")


def with_leftovers(table: Table) -> None:
    """What a maker that died, another one, has left of branch x."""
    two_tags(table)
    disk = table.session.file_io
    assert isinstance(disk, MemoryFileIO)
    storage = RecordingFileIO(disk, Die(at=4, when=When.AFTER))
    with pytest.raises(Crash):
        acting(storage).create_branch("x", "kept")
    assert "x" not in table.branches()


def make(table: Table) -> object:
    return table.create_branch("x", "kept")


def make_empty(table: Table) -> object:
    return table.create_branch("x")


def rename_to_x(table: Table) -> object:
    return table.rename_branch("other", "x")


def make_and_commit(table: Table) -> object:
    """Make the branch of another tag, and commit on it; acknowledged if no error comes."""
    table.create_branch("x", "other")
    return committing("x")(table)


@EXTENTS
@pytest.mark.parametrize("ours", [make, make_empty, rename_to_x], ids=lambda act: act.__name__)
@pytest.mark.parametrize(
    "prepare", [two_tags, with_leftovers], ids=lambda prepare: prepare.__name__
)
def test_f01_a_maker_that_is_stopped_leaves_the_branch_of_another_alone(
    extent: str, prepare: Callable[[Table], None], ours: Act
) -> None:
    start, both = disk_with(prepare), 0
    for calls, disk, maker, other in stopped(start, ours, make_and_commit, extent):
        place = f"before {calls[-1]}: {maker!r}, {other!r}"
        table = open_again(disk)
        if isinstance(other, LsmError):
            assert isinstance(other, AlreadyExistsError), place
        else:
            assert isinstance(maker, AlreadyExistsError | CommitConflictError), place
            assert has_commit(table), place
            both += 1
        check_branches(disk)
        check_name_is_usable(disk, "x")
    assert both > 3


@EXTENTS
@pytest.mark.parametrize("ours", [make, rename_to_x], ids=lambda act: act.__name__)
@pytest.mark.parametrize("first", [True, False])
def test_f01_two_makers_that_are_both_stopped(extent: str, ours: Act, first: bool) -> None:
    start = disk_with(with_leftovers)

    def check(disk: MemoryFileIO, *came: Any) -> None:
        maker, other = came if first else came[::-1]
        acknowledged = [one for one in (maker, other) if not isinstance(one, LsmError)]
        assert len(acknowledged) <= 1
        assert has_commit(open_again(disk)) or isinstance(other, LsmError)
        check_branches(disk)
        check_name_is_usable(disk, "x")

    pair = (ours, make_and_commit) if first else (make_and_commit, ours)
    two.every_schedule(extent, *pair, check, start=start, orphans=True)


def delete(table: Table) -> object:
    return table.delete_branch("fix")


def test_maintenance_goes_on_beside_any_one_file_that_a_dead_deletion_has_left() -> None:
    """The deletions of one directory run side by side: any of them may be missing when the process dies."""
    disk = disk_with(branched)
    with pytest.raises(Crash):
        delete(acting(RecordingFileIO(disk, Die(at=1, when=When.AFTER))))  # its claim
    assert "fix" not in open_again(disk).branches()
    schema = "branch/branch-fix/schema/schema-0"
    files = [path for path in disk._files if path.startswith("branch/branch-fix/")]
    assert schema in files
    assert "branch/branch-fix/snapshot/LATEST" in files
    for kept in files:
        left = clone(disk)
        for path in files:
            if path not in (schema, kept):
                left.delete(path)
        check_branches(left)
        check_name_is_usable(left, "fix")


def delete_and_make(table: Table) -> object:
    """Delete the branch, make it of the same tag, and commit on it."""
    attempted(delete, table)
    table.create_branch("fix", "kept")
    return committing("fix")(table)


def is_claimed(calls: list[Call], path: str) -> bool:
    """Whether a call on `path` that changes it was carried out before the last of some calls."""
    changes = ("publish", "change_if_unchanged")
    return any(call.verb in changes and call.path == path for call in calls[:-1])


@EXTENTS
def test_a_deleter_that_is_stopped_leaves_a_branch_of_the_same_name_and_files_alone(
    extent: str,
) -> None:
    """Once its deletion is decided. Before that it deletes whatever has the name."""
    start, later = disk_with(branched), 0
    for calls, disk, deleter, other in stopped(start, delete, delete_and_make, extent):
        place = f"before {calls[-1]}: {deleter!r}, {other!r}"
        assert not isinstance(deleter, LsmError), place
        if is_claimed(calls, "branch/branch-fix/schema/schema-0"):
            assert not isinstance(other, LsmError), place
            assert has_commit(open_again(disk)), place
            later += 1
        check_branches(disk)
        check_name_is_usable(disk, "fix")
    assert later > 10


def rename(table: Table) -> object:
    return table.rename_branch("fix", "fix2")


@EXTENTS
def test_f05_a_commit_beside_a_rename_is_there_or_fails(extent: str) -> None:
    start, refused, landed = disk_with(branched), 0, 0
    for calls, disk, renamer, writer in stopped(start, rename, committing("fix"), extent):
        place = f"before {calls[-1]}: {renamer!r}, {writer!r}"
        assert not isinstance(renamer, LsmError), place
        table = open_again(disk)
        assert table.branches() == ["fix2"], place
        assert not isinstance(writer, CommitUnknownError), place
        assert has_commit(table) != isinstance(writer, LsmError), place
        refused += isinstance(writer, NotFoundError)
        landed += not isinstance(writer, LsmError)
        ids = [one.id for one in table.branch("fix2").snapshots()]
        assert ids == list(range(3, 3 + len(ids))), place
        check_branches(disk)
    assert refused > 10
    assert landed > 3


@EXTENTS
def test_f05_a_rename_of_an_empty_branch_beside_its_first_commit(extent: str) -> None:
    def prepare(table: Table) -> None:
        write_and_compact(table)
        table.create_branch("fix")

    start, landed = disk_with(prepare), 0
    for calls, disk, renamer, writer in stopped(start, rename, committing("fix"), extent):
        place = f"before {calls[-1]}: {renamer!r}, {writer!r}"
        assert not isinstance(renamer, LsmError), place
        table = open_again(disk)
        assert has_commit(table) != isinstance(writer, LsmError), place
        if isinstance(writer, LsmError):
            assert table.branch("fix2").latest_snapshot() is None, place
        landed += not isinstance(writer, LsmError)
        check_branches(disk)
    assert landed > 3


@EXTENTS
@pytest.mark.parametrize("renamer_first", [True, False])
def test_f05_a_rename_and_a_commit_that_are_both_stopped(extent: str, renamer_first: bool) -> None:
    start = disk_with(branched)

    def check(disk: MemoryFileIO, *came: Any) -> None:
        writer = came[1] if renamer_first else came[0]
        assert has_commit(open_again(disk)) or isinstance(writer, LsmError)
        if has_commit(open_again(disk)):
            assert not isinstance(writer, LsmError) or isinstance(writer, CommitUnknownError)
        check_branches(disk)

    pair = (rename, committing("fix")) if renamer_first else (committing("fix"), rename)
    two.every_schedule(extent, *pair, check, start=start, orphans=True)


def tag_branch(table: Table) -> object:
    return table.branch("fix").create_tag("beside", 4)


def alter_branch(table: Table) -> object:
    return table.branch("fix").alter(AddColumn("added", pa.int32()))


def move_consumer(table: Table) -> object:
    return table.branch("fix").reset_consumer("reader", 4)


ADDED: dict[Act, Callable[[Table], bool]] = {
    tag_branch: lambda branch: "beside" in branch.tag_names(),
    alter_branch: lambda branch: "added" in branch.schema.names,
    move_consumer: lambda branch: [one.next_snapshot_id for one in branch.consumers()] == [4],
}


@EXTENTS
@pytest.mark.parametrize(
    "theirs", [tag_branch, alter_branch, move_consumer], ids=lambda act: act.__name__
)
def test_what_is_added_to_a_branch_beside_its_rename_moves_along(extent: str, theirs: Act) -> None:
    start = disk_with(branched)
    for calls, disk, renamer, other in stopped(start, rename, theirs, extent):
        place = f"before {calls[-1]}: {renamer!r}, {other!r}"
        assert not isinstance(renamer, LsmError) or isinstance(renamer, CommitConflictError), place
        if not isinstance(other, LsmError):
            table = open_again(disk)
            (name,) = table.branches()
            assert ADDED[theirs](table.branch(name)), place
        check_branches(disk)


def rename_elsewhere(table: Table) -> object:
    return table.rename_branch("fix", "fix3")


@EXTENTS
def test_two_renames_of_one_branch(extent: str) -> None:
    """The branch is there, under one of the names where one was acknowledged."""
    start = disk_with(branched)
    expected = read(open_again(start).branch("fix"), SHAPE)
    for calls, disk, *came in stopped(start, rename, rename_elsewhere, extent):
        place = f"before {calls[-1]}: {came!r}"
        table = open_again(disk)
        names = [name for name in table.branches() if read(table.branch(name), SHAPE) == expected]
        assert names, place
        acknowledged = [one for one in came if not isinstance(one, LsmError)]
        assert len(acknowledged) == 1, place
        check_branches(disk)


def rename_back(table: Table) -> object:
    attempted(rename, table)
    table.rename_branch("fix2", "fix")
    return committing("fix")(table)


@EXTENTS
def test_a_renamer_that_is_stopped_leaves_what_was_renamed_back_alone(extent: str) -> None:
    start = disk_with(branched)
    for calls, disk, renamer, other in stopped(start, rename, rename_back, extent):
        place = f"before {calls[-1]}: {renamer!r}, {other!r}"
        assert has_commit(open_again(disk)) or isinstance(other, LsmError), place
        check_branches(disk)


def behind(table: Table) -> None:
    branched(table)
    table.upsert(rows(40, 2, "of main"))


def force(table: Table) -> object:
    return table.fast_forward("fix", force=True)


def delete_and_clean(table: Table) -> object:
    table.delete_branch("fix")
    return table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)


@EXTENTS
@pytest.mark.parametrize(
    "theirs", [delete, delete_and_clean, rename_elsewhere], ids=lambda act: act.__name__
)
def test_f09_a_forced_fast_forward_is_done_or_leaves_main_as_it_was(
    extent: str, theirs: Act
) -> None:
    start = disk_with(behind)
    before = view(start).head
    after = read(open_again(start).branch("fix"), SHAPE)
    own_lists = [
        snapshot.delta_manifest_list for snapshot in open_again(start).branch("fix").snapshots()
    ]
    ends = []
    for calls, disk, forwarder, other in stopped(start, force, theirs, extent):
        place = f"before {calls[-1]}: {forwarder!r}, {other!r}"
        if isinstance(forwarder, CommitUnknownError):
            # The branch was deleted on the way: main is at one of its snapshots, which the error names. Lock tags hold the
            # others for an hour.
            newest = open_again(disk).latest_snapshot()
            assert newest is not None
            assert newest.delta_manifest_list in own_lists, place
        else:
            assert view(disk).head == (before if isinstance(forwarder, LsmError) else after), place
            names = open_again(disk).tag_names()
            assert not [name for name in names if name.startswith("forwarding-")], place
        check_branches(disk)
        ends.append(isinstance(forwarder, LsmError))
    assert True in ends
    assert False in ends


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_f09_a_forced_fast_forward_that_is_killed_is_finished_by_another(when: When) -> None:
    start = disk_with(behind)
    after = read(open_again(start).branch("fix"), SHAPE)
    for at in range(1, 200):
        disk = clone(start)
        table = acting(RecordingFileIO(disk, Die(at=at, when=when)))
        try:
            force(table)
        except Crash:
            force(open_again(disk))
            assert view(disk).head == after, at
        else:
            break
    assert at > 20


@pytest.mark.parametrize(
    ("prepare", "ours"),
    [(two_tags, make), (with_leftovers, make), (branched, rename), (branched, delete)],
    ids=["make", "make over leftovers", "rename", "delete"],
)
def test_lost_replies_to_changes_of_names_are_looked_up(
    prepare: Callable[[Table], None], ours: Act
) -> None:
    start = disk_with(prepare)
    done = clone(start)
    ours(acting(done))
    expected = view(done).branches
    for at in range(1, 400):
        disk = clone(start)
        storage = RecordingFileIO(disk, LoseReply(at))
        answer = attempted(ours, acting(storage))
        if len(storage.calls) < at:
            break
        verb = storage.calls[at - 1].verb
        if verb in ("publish", "change_if_unchanged"):
            assert not isinstance(answer, LsmError), (storage.calls[at - 1], answer)
            assert view(disk).branches == expected, storage.calls[at - 1]
        check_branches(disk)
    assert at > 5


def test_a_void_claim_is_read_as_what_it_held_before() -> None:
    """Of a deleter that was stopped until another had made the branch anew, went on, and was killed.

    The files that both makings wrote alike can be claimed then.
    """
    disk = clone(disk_with(branched))
    delete_and_make(open_again(disk))
    path = "branch/branch-fix/snapshot/snapshot-3"
    claim = Claim(claim_id="of the deleter", reason="deleting", before=disk.read(path))
    disk.replace(path, claim.encoded())
    table = open_again(disk)
    assert has_commit(table)
    assert table.branch("fix").snapshots()[0].id == 3
    assert b"lsm-claim" not in disk.read(path)
    check_branches(disk)

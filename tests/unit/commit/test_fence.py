"""The fence: a writer that lands on an id which expiry has passed, or above what a rollback took."""

from collections.abc import Callable
from dataclasses import replace

import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import CommitUnknownError, CorruptFileError, StorageError
from lsm_engine.commit.publish import confirm
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.planning.snapshot_chain import with_base
from lsm_engine.storage.paths import TablePaths
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.fault.scenarios import SHAPE, acting, open_again, rows, view, write_three_times
from tests.fault.test_schedules import disk_with, expire_most
from tests.model.world import read
from tests.unit.metadata.documents import snapshot

PATHS = TablePaths(root="t")


def made(number: int, base: Snapshot | None, who: str = "us") -> Snapshot:
    lists = {"delta_manifest_list": f"delta-{number}-{who}", "uuid": f"{number}-{who}"}
    return snapshot(number, properties=with_base(None, base), **lists)  # type: ignore[no-any-return]


def line(store: SnapshotStore, upto: int, who: str = "us") -> list[Snapshot]:
    """Commit snapshots 1 to `upto`; return them behind a None, so that each has its id as its place."""
    found: list[Snapshot | None] = [None]
    for number in range(1, upto + 1):
        found.append(made(number, found[-1], who))
        assert store.publish(found[-1])  # type: ignore[arg-type]
        assert confirm(store, found[-1], found[-2])  # type: ignore[arg-type]
    return found  # type: ignore[return-value]


def expire(store: SnapshotStore, below: int, *, foreign: bool = False) -> None:
    """Take the snapshots below an id; clients that are `foreign` leave EARLIEST where it was."""
    if not foreign:
        store.advance_earliest(below, max(store.ids()))
    for number in range(1, below):
        store.delete(number)


@pytest.fixture
def store() -> SnapshotStore:
    return SnapshotStore(MemoryFileIO(), PATHS)


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize(("ghost_id", "below"), [(4, 8), (7, 8), (1, 8), (2, 9), (8, 9)])
def test_who_lands_on_an_id_that_expiry_has_passed_takes_it_back(
    store: SnapshotStore, ghost_id: int, below: int, foreign: bool
) -> None:
    known = line(store, 9)
    expire(store, below, foreign=foreign)
    ghost = made(ghost_id, known[ghost_id - 1], "late")
    assert store.publish(ghost)
    if not foreign:
        # Nobody takes it for a snapshot meanwhile.
        assert store.ids() == list(range(below, 10))
        assert store.find_live(ghost_id) is None
        assert store.stable_listing_with_orphans() == (known[below:], [ghost])
    if foreign and below == 9:  # nothing shows yet that the base has expired, and is not lost
        with pytest.raises(CorruptFileError, match="try again"):
            store.latest()
        store.hint_earliest(9)
    assert store.latest() == known[9]
    assert [one.id for one in store.newest_first()] == list(range(9, below - 1, -1))
    assert not confirm(store, ghost, known[ghost_id - 1])
    assert store.listed_ids() == list(range(below, 10))
    assert store.latest_id() == 9


def test_latest_below_earliest_is_not_believed(store: SnapshotStore) -> None:
    known = line(store, 9)
    expire(store, 8)
    assert store.publish(made(4, known[3], "late"))
    store.hint_latest(4)  # of a writer of the real 4 that was slow
    assert store.latest_id() == 9
    assert store.latest() == known[9]


def test_who_expired_after_landing_has_committed(store: SnapshotStore) -> None:
    """It was stopped between its create and its look; its successor shows that it counted."""
    known = line(store, 5)
    landed = made(6, known[5], "slow")
    assert store.publish(landed)
    newer = made(7, landed)
    assert store.latest() == landed
    assert store.publish(newer)
    assert confirm(store, newer, landed)
    store.advance_earliest(7, 7)
    assert confirm(store, landed, known[5])  # passed, its file still there
    for number in range(1, 7):
        store.delete(number)
    assert confirm(store, landed, known[5])  # its file has gone, too
    assert store.latest() == newer


def test_what_has_come_and_gone_is_unknown(store: SnapshotStore) -> None:
    known = line(store, 9)
    expire(store, 8)
    with pytest.raises(CommitUnknownError, match="an expiry or a rollback took it"):
        confirm(store, made(4, known[3], "late"), known[3])


def test_the_last_base_may_expire_under_a_writer(store: SnapshotStore) -> None:
    """Of two snapshots the older expires while the newer is not confirmed yet."""
    known = line(store, 3)
    landed = made(4, known[3])
    assert store.publish(landed)
    expire(store, 4)
    assert confirm(store, landed, known[3])
    assert store.latest() == landed


def test_who_lands_above_what_a_rollback_took_takes_it_back(store: SnapshotStore) -> None:
    known = line(store, 4)
    store.forget_latest()
    store.delete(3)  # of a rollback to 2 that goes upwards
    store.delete(4)
    late = made(4, known[3], "late")
    assert store.publish(late)
    assert store.latest() == known[2]
    other = made(3, known[2], "after")
    assert store.publish(other)
    assert store.latest() == other, "what was made on another snapshot 3 does not follow this one"
    assert confirm(store, other, known[2])
    assert not confirm(store, late, known[3])
    assert store.latest() == other
    assert store.ids() == store.listed_ids() == [1, 2, 3]


@pytest.mark.parametrize("oldest", [1, 5, 6])
@pytest.mark.parametrize("earliest", [7, 8])
@pytest.mark.parametrize("newer", [0, 1])
def test_an_expiry_that_lost_to_a_rollback_does_not_hide_it_from_a_writer(
    store: SnapshotStore, oldest: int, earliest: int, newer: int
) -> None:
    """The expirer was stopped before it moved EARLIEST, the writer before its create; both went on at last."""
    known = line(store, 8)
    expire(store, oldest)
    for number in (7, 8):  # taken by a rollback to 6
        store.delete(number)
    store.hint_latest(6)
    live = known[:7]
    for number in range(7, 7 + newer):
        live.append(made(number, live[-1], "after"))
        assert store.publish(live[-1])
        assert confirm(store, live[-1], live[-2])
    store.hint_earliest(earliest)  # it planned that while 8 was the newest
    late = made(9, known[8], "late")
    assert store.publish(late)
    # Nobody takes it for a snapshot meanwhile, were its writer to die here.
    assert store.latest() == live[-1]
    assert 9 not in store.ids()
    assert store.stable_listing_with_orphans()[1][-1:] == [late]
    assert not confirm(store, late, known[8])
    assert 9 not in store.listed_ids()
    assert store.latest() == live[-1]


def test_a_rollback_stays_whoever_commits_above_an_earliest_that_names_that_commit(
    store: SnapshotStore,
) -> None:
    """The slow expirer kept the newest, 8, whose id is free again: the late writer gets just that one."""
    known = line(store, 8)
    for number in (7, 8):
        store.delete(number)
    store.hint_latest(6)
    store.hint_earliest(8)
    late = made(8, known[7], "late")
    assert store.publish(late)
    assert (store.latest(), store.ids()) == (known[6], [1, 2, 3, 4, 5, 6])
    assert store.stable_listing_with_orphans() == (known[1:7], [late])
    onward = made(7, known[6], "after")
    assert store.publish(onward)
    assert confirm(store, onward, known[6])
    assert (store.latest(), store.ids()[-1]) == (onward, 7)
    assert not confirm(store, late, known[7])
    assert (store.latest(), store.ids()[-1]) == (onward, 7)


def test_a_ghost_of_long_ago_does_not_revoke_whose_base_another_client_expired(
    store: SnapshotStore,
) -> None:
    known = line(store, 8)
    expire(store, 5)
    assert store.publish(made(3, known[2], "dead"))
    landed = made(9, known[8])
    assert store.publish(landed)
    for number in range(5, 9):  # by Java, which moves EARLIEST last
        store.delete(number)
    assert confirm(store, landed, known[8])
    assert 9 in store.listed_ids()


def test_two_ghosts_beside_each_other_are_no_line(store: SnapshotStore) -> None:
    known = line(store, 6)
    store.forget_latest()
    for number in (3, 4, 5, 6):
        store.delete(number)
    ghosts = [made(5, known[4], "late"), made(6, known[5], "late")]
    assert all(map(store.publish, ghosts))
    assert (store.latest(), store.ids()) == (known[2], [1, 2])
    assert store.stable_listing_with_orphans() == (known[1:3], ghosts)


def test_nobody_builds_on_what_a_late_hint_alone_speaks_for(store: SnapshotStore) -> None:
    """A ghost at an id that was used again, or the newest of a table whose file below is lost."""
    known = line(store, 4)
    store.delete(3)
    store.delete(4)
    late = made(4, known[3], "late")
    assert store.publish(late)
    store.hint_latest(4)
    with pytest.raises(CorruptFileError, match="try again"):
        store.latest()
    assert not confirm(store, late, known[3])
    with pytest.raises(
        CorruptFileError, match="snapshot 4 is missing, and was the newest: try again"
    ):
        store.latest()
    store.announce(known[4])  # whoever wrote the hint looks for itself
    assert store.latest() == known[2]


def test_a_late_hint_at_an_id_that_was_used_again_does_not_let_a_ghost_in(
    store: SnapshotStore,
) -> None:
    known = line(store, 4)
    store.delete(3)
    store.delete(4)
    assert store.publish(made(4, known[3], "late"))
    store.announce(known[4])  # its writer was stopped before that
    assert store._hint("LATEST") == 2
    assert store.latest() == known[2]


def test_what_a_rollback_took_before_it_was_confirmed_is_unknown(store: SnapshotStore) -> None:
    known = line(store, 3)
    landed = made(4, known[3])
    assert store.publish(landed)
    for number in (2, 3, 4):  # it is among what the rollback reports
        store.delete(number)
    with pytest.raises(CommitUnknownError, match="a rollback took it"):
        confirm(store, landed, known[3])
    newer = made(5, landed, "late")
    assert store.publish(newer)
    assert not confirm(store, newer, landed)
    assert store.listed_ids() == [1]


def test_earliest_is_never_moved_back_by_a_slower_expiry(store: SnapshotStore) -> None:
    line(store, 9)
    store.advance_earliest(8, 9)
    store.advance_earliest(3, 5)
    assert store.earliest_hint() == 8
    store.hint_earliest(99)  # garbage
    store.advance_earliest(3, 9)
    assert store.earliest_hint() == 3


def test_the_first_commit_does_not_move_earliest_back(store: SnapshotStore) -> None:
    first = made(1, None)
    assert store.publish(first)
    second = made(2, first)
    assert store.publish(second)
    assert confirm(store, second, first)
    store.advance_earliest(2, 2)
    assert confirm(store, first, None)
    assert store.earliest_hint() == 2


@pytest.mark.parametrize("hint", [b"", b"x", None])
def test_a_torn_earliest_does_not_let_a_ghost_in(store: SnapshotStore, hint: bytes | None) -> None:
    known = line(store, 9)
    expire(store, 8)
    disk = store._file_io
    disk.delete("t/snapshot/EARLIEST")
    if hint is not None:
        disk.replace("t/snapshot/EARLIEST", hint)
    ghost = made(4, known[3], "late")
    assert store.publish(ghost)
    assert store.latest() == known[9]
    assert store.ids() == [8, 9]
    assert not confirm(store, ghost, known[3])
    assert confirm(store, known[9], known[8])


def test_a_storage_that_does_not_answer_leaves_the_commit_unknown(store: SnapshotStore) -> None:
    known = line(store, 3)
    landed = made(4, known[3])
    assert store.publish(landed)
    failing = "snapshot-3"

    def misread(call: Call) -> None:
        if call.path.endswith(failing):
            raise StorageError("no answer")

    deaf = SnapshotStore(RecordingFileIO(store._file_io, on_call=misread), PATHS)
    with pytest.raises(CommitUnknownError, match="does not answer"):
        confirm(deaf, landed, known[3])
    assert store.find(4) == landed
    failing = "EARLIEST"  # the base is there: no expiry has passed it
    assert confirm(deaf, landed, known[3])


def stopped_before_landing(disk: MemoryFileIO, meanwhile: Callable[[], object]) -> lsm.Table:
    """Return a table whose next snapshot lands after others have done something."""
    done = False

    def on_call(call: Call) -> None:
        nonlocal done
        if call.verb == "publish" and "/snapshot-" in f"/{call.path}" and not done:
            done = True
            meanwhile()

    return acting(RecordingFileIO(disk, on_call=on_call))


def test_a_writer_stopped_while_expiry_passes_its_id_commits_on_the_newest() -> None:
    disk = disk_with(write_three_times)

    def others() -> None:
        for number in range(5):
            open_again(disk, first_id=10_000 * (number + 1)).upsert(rows(20 + number, 1, "other"))
        table = open_again(disk, first_id=90_000)
        table.session.clock.sleep_millis(10_000)
        expire_most(table)

    made = stopped_before_landing(disk, others).upsert(rows(30, 2, "ours"))
    after = open_again(disk, first_id=200_000)
    assert made is not None
    assert made.uuid in [one.uuid for one in after.snapshots()]
    found = {row[0] for row in view(disk).head.values()}
    assert {"ours", "other"} <= found
    assert len([key for key, row in view(disk).head.items() if row[0] == "other"]) == 5
    assert after.verify().is_clean


@pytest.mark.parametrize("by", ["orphans", "nobody"])
def test_a_ghost_that_a_crash_left_is_reported_and_removed(by: str) -> None:
    """Its writer died between landing and looking."""
    disk = disk_with(write_three_times)
    table = open_again(disk, first_id=10_000)
    base = table.snapshots()[-1]
    for number in range(3):
        table.upsert(rows(20 + number, 1, "other"))
    table.session.clock.sleep_millis(10_000)
    expire_most(table)
    before = view(disk)
    ghost = replace(base, id=base.id + 1, uuid="ghost", properties=with_base(None, base))
    assert table.session.snapshots.publish(ghost)
    report = open_again(disk).verify()
    assert [one for one in report.problems if f"snapshot/snapshot-{ghost.id}" in one]
    assert len(report.problems) == 1
    assert view_of_readers(disk) == before.head
    expire_most(open_again(disk, first_id=20_000))
    if by == "orphans":
        open_again(disk, first_id=30_000).remove_orphan_files(
            dry_run=False, older_than="0 s", force=True
        )
        assert open_again(disk).verify().is_clean
        assert table.session.snapshots.find(ghost.id) is None
    open_again(disk, first_id=40_000).upsert(rows(40, 1, "after"))
    assert view_of_readers(disk) == {**before.head, **keyed(rows(40, 1, "after"))}


def test_an_expiry_that_fails_while_planning_does_not_lower_the_fence_of_another() -> None:
    """The other found EARLIEST where it wanted it, has read the tags, and goes on to delete."""
    disk = disk_with(write_three_times)
    raised: list[int | None] = []

    def misread(call: Call) -> None:
        now = open_again(disk).session.snapshots.earliest_hint()
        if call.path == "changelog" and now != 1:  # a root that is looked for behind the fence
            raised.append(now)
            raise StorageError("no answer")

    table = acting(RecordingFileIO(disk, on_call=misread))
    table.session.clock.sleep_millis(10_000)
    with pytest.raises(StorageError):
        expire_most(table)
    after = open_again(disk, first_id=10_000)
    assert after.session.snapshots.earliest_hint() == raised[0] != 1
    with pytest.raises(lsm.ExpiredError):
        after.create_tag("late", 1)
    after.session.clock.sleep_millis(10_000)
    expire_most(after)
    assert after.session.snapshots.listed_ids() == after.session.snapshots.ids()
    assert after.verify().is_clean


def view_of_readers(disk: MemoryFileIO) -> object:
    return read(open_again(disk), SHAPE)


def keyed(table: object) -> dict[object, object]:
    scratch = disk_with(lambda made: made.upsert(table))  # type: ignore[arg-type]
    return dict(view(scratch).head)

"""SnapshotStore: hints that lie, publishes that race, ids that expire."""

import pytest

from lsm_engine.base.errors import (
    CommitUnknownError,
    CorruptFileError,
    ErrorKind,
    ExpiredError,
    NotFoundError,
    StorageError,
)
from lsm_engine.commit.publish import confirm
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.planning.snapshot_chain import with_base
from lsm_engine.storage.paths import TablePaths
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
from tests.unit.metadata.documents import snapshot

PATHS = TablePaths(root="t")


@pytest.fixture
def disk():
    return MemoryFileIO()


@pytest.fixture
def store(disk):
    return SnapshotStore(disk, PATHS)


def commit(store, one):
    """Create a snapshot file on the one before, and have it confirmed."""
    base = store.find(one.id - 1)
    return store.publish(one) and confirm(store, one, base)


def hints(disk):
    return {
        name: disk.read(f"t/snapshot/{name}").decode()
        for name in ("LATEST", "EARLIEST")
        if disk.exists(f"t/snapshot/{name}")
    }


def test_a_table_without_snapshots(store):
    assert store.latest_id() is None
    assert store.earliest_id() is None
    assert store.latest() is None
    assert store.all() == []
    assert list(store.newest_first()) == []
    with pytest.raises(NotFoundError) as caught:
        store.load(1)
    assert not isinstance(caught.value, ExpiredError)
    assert caught.value.kind is ErrorKind.NO_SUCH_SNAPSHOT


def test_publish_is_won_once_and_writes_hints(store, disk):
    assert commit(store, snapshot(1))
    assert not store.publish(snapshot(1, uuid="other"))
    assert commit(store, snapshot(2))
    assert store.latest() == snapshot(2)
    assert store.load(1) == snapshot(1)
    assert hints(disk) == {"LATEST": "2", "EARLIEST": "1"}


@pytest.fixture
def three(store):
    for number in (1, 2, 3):
        commit(store, snapshot(number))
    return store


def test_walks(three):
    assert [each.id for each in three.all()] == [1, 2, 3]
    assert [each.id for each in three.newest_first()] == [3, 2, 1]
    assert [each.id for each in three.newest_first(2)] == [3, 2]


@pytest.mark.parametrize("latest", [b"1", b"", b"x", b"3\n", b"0", b"-1", None, b"\xff" * 99])
def test_latest_hint_is_only_advice(three, disk, latest):
    disk.delete("t/snapshot/LATEST")
    if latest is not None:
        disk.write_new("t/snapshot/LATEST", latest)
    assert three.latest_id() == 3
    commit(three, snapshot(4))
    assert hints(disk)["LATEST"] == "4"


@pytest.mark.parametrize("left", [(1, 2), ()])
def test_a_newest_snapshot_that_is_lost_is_missed(three, disk, left):
    """LATEST names it: what was committed with it does not vanish, and nobody builds on what is left."""
    for number in {1, 2, 3} - set(left):
        disk.delete(f"t/snapshot/snapshot-{number}")
    for ask in (three.latest, three.stable_listing):
        with pytest.raises(CorruptFileError, match="snapshot 3 is missing") as caught:
            ask()
        assert caught.value.facts["file"] == "t/snapshot/snapshot-3"
    disk.delete("t/snapshot/LATEST")
    if left:
        assert three.latest_id() == 2
    else:
        with pytest.raises(CorruptFileError, match="snapshot 1 is missing"):
            three.latest()  # EARLIEST names it


def test_a_latest_that_moved_back_meanwhile_is_followed(three, disk):
    """A reader that read LATEST before a rollback finds its file gone, and looks at LATEST again."""

    def rolled_back(call):
        if call.path.endswith("snapshot-3") and disk.exists("t/snapshot/snapshot-3"):
            disk.replace("t/snapshot/LATEST", b"2")
            disk.delete("t/snapshot/snapshot-3")

    assert SnapshotStore(RecordingFileIO(disk, on_call=rolled_back), PATHS).latest_id() == 2


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_latest_whose_rollback_ends_meanwhile_names_nothing_lost(three, disk, at):
    """LATEST was read before it moved, and the file looked for after that: no snapshot is lost."""
    calls = []

    def rolled_back(call):
        calls.append(call)
        if len(calls) == at:
            disk.replace("t/snapshot/LATEST", b"2")
            disk.delete("t/snapshot/snapshot-3")

    assert SnapshotStore(RecordingFileIO(disk, on_call=rolled_back), PATHS).stray_latest(2) is None
    assert len(calls) >= at


@pytest.mark.parametrize("earliest", [b"9", b"", b"x", None])
def test_an_earliest_hint_without_a_snapshot_is_passed_over(three, disk, earliest):
    disk.delete("t/snapshot/EARLIEST")
    if earliest is not None:
        disk.write_new("t/snapshot/EARLIEST", earliest)
    assert three.earliest_id() == 1
    assert three.latest_id() == 3
    assert [one.id for one in three.all()] == [1, 2, 3]
    assert three.load(1) == snapshot(1)
    assert commit(three, snapshot(4))
    assert [one.id for one in three.stable_listing()] == [1, 2, 3, 4]


def test_what_expiry_has_passed_does_not_count(three, disk):
    three.hint_earliest(2)
    assert three.earliest_id() == 2
    assert three.ids() == [2, 3]
    assert [one.id for one in three.all()] == [2, 3]
    with pytest.raises(ExpiredError):
        three.load(1)
    assert [one.id for one in three.stable_listing()] == [1, 2, 3]  # for maintenance to go on with


def test_hints_that_cannot_be_read_are_passed_over(three, disk):
    store = SnapshotStore(RecordingFileIO(disk, Misread(at=1, how=StorageError("no"))), PATHS)
    assert store.latest_id() == 3


def test_a_failed_probe_or_listing_is_an_error_not_an_answer(three, disk):
    disk.delete("t/snapshot/LATEST")
    for failing in ("list", "exists"):

        def misread(call, failing=failing):
            if call.verb == failing:
                raise StorageError("no")

        with pytest.raises(StorageError):
            SnapshotStore(RecordingFileIO(disk, on_call=misread), PATHS).load(4)
    storage = RecordingFileIO(disk, Misread(at=3, how=StorageError("no")))
    with pytest.raises(StorageError):
        SnapshotStore(storage, PATHS).latest_id()  # hints are passed over, a listing is not
    assert storage.reads[2].verb == "list"


def test_a_stale_listing_is_caught_up_with(three, disk):
    disk.delete("t/snapshot/LATEST")
    disk.write_new("t/snapshot/snapshot-4", encode_snapshot(snapshot(4)))
    names = ["snapshot-1", "snapshot-2", "snapshot-3"]
    stale = [one for one in disk.list("t/snapshot") if one.name in names]
    storage = RecordingFileIO(disk)
    storage.list = lambda path: stale
    assert SnapshotStore(storage, PATHS).latest_id() == 4


def test_reading_the_newest_takes_four_calls(three, disk):
    storage = RecordingFileIO(disk)
    assert SnapshotStore(storage, PATHS).latest() == snapshot(3)
    assert [call.path.rpartition("/")[2] for call in storage.reads] == [
        "LATEST", "snapshot-3", "snapshot-4", "EARLIEST",
    ]  # fmt: skip
    four = snapshot(4, properties=with_base(None, snapshot(3)))
    disk.write_new("t/snapshot/snapshot-4", encode_snapshot(four))
    disk.replace("t/snapshot/LATEST", b"4")
    storage = RecordingFileIO(disk)
    assert SnapshotStore(storage, PATHS).latest_id() == 4
    assert [call.path.rpartition("/")[2] for call in storage.reads] == [
        "LATEST", "snapshot-4", "snapshot-5", "snapshot-3",
    ]  # fmt: skip


def test_expired_and_missing_ids(three, disk):
    three.delete(1)
    three.hint_earliest(2)
    with pytest.raises(ExpiredError) as caught:
        three.load(1)
    assert caught.value.facts == {"snapshot_id": 1, "earliest_id": 2}
    for number in (4, 0, -1):
        with pytest.raises(NotFoundError) as missing:
            three.load(number)
        assert not isinstance(missing.value, ExpiredError)
    assert three.find(1) is None
    assert three.find(0) is None
    assert three.earliest_id() == 2
    assert not three.delete(1)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"id":3}', b"\xff"])
def test_damaged_snapshots_are_named(three, disk, data):
    disk.replace("t/snapshot/snapshot-3", data)
    with pytest.raises(CorruptFileError) as caught:
        three.latest()
    assert "t/snapshot/snapshot-3" in str(caught.value)


def test_a_snapshot_under_another_number_is_refused(three, disk):
    disk.replace("t/snapshot/snapshot-3", disk.read("t/snapshot/snapshot-2"))
    with pytest.raises(CorruptFileError, match="another snapshot"):
        three.load(3)


def test_nothing_is_cached_by_id(three, disk):
    assert three.load(3).uuid == "uuid-3"
    three.hint_latest(2)
    three.delete(3)
    assert three.latest_id() == 2
    assert three.publish(snapshot(3, uuid="again"))
    assert three.load(3).uuid == "again"


def test_hints_never_fail_a_commit(disk):
    for at in range(2, 20):
        disk = MemoryFileIO()
        commit(SnapshotStore(disk, PATHS), snapshot(1))
        storage = RecordingFileIO(disk, Fail(at=at, error=StorageError("full")))
        store = SnapshotStore(storage, PATHS)
        assert store.publish(snapshot(2))
        assert confirm(store, snapshot(2), snapshot(1))
        assert SnapshotStore(disk, PATHS).latest_id() == 2
        if len(storage.calls) < at:
            return
    raise AssertionError("hints write without end")


def test_a_publish_that_failed_is_not_there(disk):
    storage = RecordingFileIO(disk, Fail(at=1, error=StorageError("full"), when=When.HALFWAY))
    store = SnapshotStore(storage, PATHS)
    with pytest.raises(StorageError):
        store.publish(snapshot(1))
    assert store.latest_id() is None
    assert store.publish(snapshot(1))


def test_a_lost_reply_is_for_the_committer_to_resolve(disk):
    store = SnapshotStore(RecordingFileIO(disk, LoseReply(at=1)), PATHS)
    with pytest.raises(CommitUnknownError):
        store.publish(snapshot(1))
    assert store.find(1) == snapshot(1)
    assert confirm(store, snapshot(1), None)
    assert hints(disk) == {"LATEST": "1", "EARLIEST": "1"}


@pytest.mark.parametrize("when", When)
def test_a_crash_at_any_call_leaves_old_or_new(when):
    for at in range(1, 20):
        disk = MemoryFileIO()
        commit(SnapshotStore(disk, PATHS), snapshot(1))
        storage = RecordingFileIO(disk, Die(at=at, when=when))
        try:
            commit(SnapshotStore(storage, PATHS), snapshot(2))
        except Crash:
            after = SnapshotStore(disk, PATHS)
            assert after.latest() in (snapshot(1), snapshot(2))
            landed = after.latest_id()
            assert commit(after, snapshot(landed + 1))
            assert hints(disk)["LATEST"] == str(landed + 1)
        else:
            return
    raise AssertionError("never got through")


def test_the_slower_of_two_writers_does_not_turn_latest_back(disk):
    """B publishes and announces 2 between A's publish of 1 and A's hint."""
    fast = SnapshotStore(disk, PATHS)

    def overtake(call):
        if call.verb == "replace" and call.path.endswith("LATEST") and call.number == 3:
            assert commit(fast, snapshot(2))

    slow = SnapshotStore(RecordingFileIO(disk, on_call=overtake), PATHS)
    assert commit(slow, snapshot(1))
    assert hints(disk)["LATEST"] == "2"


def test_a_newest_snapshot_that_keeps_vanishing(disk):
    commit(SnapshotStore(disk, PATHS), snapshot(1))

    def gone(call):
        if call.verb == "read" and call.path.endswith("snapshot-1"):
            raise NotFoundError("gone")

    with pytest.raises(NotFoundError, match="vanishing"):
        SnapshotStore(RecordingFileIO(disk, on_call=gone), PATHS).latest()


def test_other_files_are_no_snapshots(three, disk):
    for name in ("snapshot-7.tmp", ".snapshot-9.x.tmp", "snapshot-x", "snapshot-0x9", "notes"):
        disk.write_new(f"t/snapshot/{name}", b"")
    disk.write_new("t/snapshot/snapshot-8/file", b"")
    assert three.ids() == [1, 2, 3]


class Busy(MemoryFileIO):
    """A storage on which others commit and expire at every listing."""

    def list(self, path):
        listed = super().list(path)
        ids = [int(one.name.rpartition("-")[2]) for one in listed if "snapshot-" in one.name]
        newest = snapshot(max(ids) + 1)
        self.write_new(f"t/snapshot/snapshot-{newest.id}", encode_snapshot(newest))
        self.delete(f"t/snapshot/snapshot-{min(ids)}")
        return listed


def test_maintenance_knows_the_snapshots_of_a_table_that_others_write_and_expire():
    disk = Busy()
    for number in range(1, 9):
        disk.write_new(f"t/snapshot/snapshot-{number}", encode_snapshot(snapshot(number)))
    found = [one.id for one in SnapshotStore(disk, PATHS).stable_listing()]
    assert found == list(range(3, 11))  # two listings later


@pytest.mark.parametrize("kept", [[], [1, 3], [2, 3], [1, 2]])
def test_a_listing_without_some_snapshots_loses_none(three, disk, kept, monkeypatch):
    shown = iter([kept, None, None, kept])

    def listed(path):
        names = None if (ids := next(shown, None)) is None else {f"snapshot-{at}" for at in ids}
        return [one for one in MemoryFileIO.list(disk, path) if names is None or one.name in names]

    monkeypatch.setattr(disk, "list", listed)
    assert [one.id for one in three.stable_listing()] == [1, 2, 3]
    assert [one.id for one in three.stable_listing()] == [1, 2, 3]

"""Going back to a snapshot, a tag, a time or a watermark; and making a former state the newest."""

from collections.abc import Callable
from dataclasses import replace

import pytest

import lsm_engine as lsm
from lsm_engine.plan.live_snapshots import with_base
from lsm_engine.table.commit.fence import confirm
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.unit.table.history_tables import START, Story


@pytest.fixture
def told() -> Story:
    made = Story()
    made.put(k1="a", k2="a")  # 1, at START + 1 s
    made.put(k2="b")  # 2
    made.table.create_tag("two")
    made.put(k3="c")  # 3
    made.table.create_tag("three")
    made.table.compact(full=True)  # 4
    made.put(k1="d")  # 5
    return made


TWO = {1: "a", 2: "b"}


def test_back_to_a_snapshot(told: Story) -> None:
    before = told.files()
    planned = told.table.rollback_to(2, dry_run=True)
    assert str(planned) == "would roll back to snapshot 2: 3 snapshots and 1 tags go"
    assert told.files() == before
    told.table.rollback_to(2)
    assert told.rows() == TWO
    assert [one.id for one in told.table.snapshots()] == [1, 2]
    assert [one.name for one in told.table.tags()] == ["two"]
    assert told.disk.read("snapshot/LATEST") == b"2"
    told.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert told.rows() == TWO


def test_ids_are_used_again_and_nobody_remembers_the_old_ones(told: Story) -> None:
    table = told.table
    query = table.query()
    assert query.lookup([{"id": 3}]).to_pylist()[0]["v"] == "c"
    assert table.lookup([{"id": 3}]).to_pylist()[0]["_found"]
    old = table.session.snapshots.load(3)
    assert table.scan(snapshot_id=3).to_arrow().num_rows == 3
    table.rollback_to(2)
    assert told.put(k3="other") == 3
    assert table.session.snapshots.load(3).uuid != old.uuid
    assert told.rows(snapshot_id=3) == {**TWO, 3: "other"}
    again = {row["id"]: row["v"] for row in table.scan(snapshot_id=3).to_arrow().to_pylist()}
    assert again == {**TWO, 3: "other"}
    assert table.lookup([{"id": 3}]).to_pylist()[0]["v"] == "other"
    query.refresh()
    assert query.lookup([{"id": 3}]).to_pylist()[0]["v"] == "other"
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    told.check()


@pytest.mark.parametrize(
    "asked",
    [{"tag": "two"}, {"as_of_millis": START + 2000}, {"as_of_millis": START + 2999}],
    ids=["tag", "exact time", "time"],
)
def test_back_to_a_tag_or_a_time(told: Story, asked: dict[str, object]) -> None:
    told.table.rollback_to(**asked)
    assert told.rows() == TWO


def test_back_to_a_watermark(told: Story) -> None:
    for number in (1, 2, 3):
        snapshot = told.table.session.snapshots.load(number)
        told.disk.delete(f"snapshot/snapshot-{number}")
        told.table.session.snapshots.publish_only(replace(snapshot, watermark=100 * number))
    assert told.table.rollback_to(watermark=299, dry_run=True).plan.target.id == 2
    assert told.table.rollback_to(watermark=200).plan.target.id == 2
    assert told.rows() == TWO
    with pytest.raises(lsm.NotFoundError, match="watermark"):
        told.table.rollback_to(watermark=99)


def test_back_to_a_tag_whose_snapshot_has_expired(told: Story) -> None:
    told.table.delete_tag("three")
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert [one.id for one in told.table.snapshots()] == [5]
    with pytest.raises(lsm.ExpiredError):
        told.table.rollback_to(2)
    told.table.rollback_to(tag="two")
    assert [one.id for one in told.table.snapshots()] == [2]
    assert told.rows() == TWO
    assert told.put(k9="z") == 3
    told.table.create_tag("again", 2)
    told.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    told.check()


def test_an_expiry_on_its_way_past_the_tag_is_waited_for(told: Story) -> None:
    told.table.session.snapshots.hint_earliest(3)
    told.disk.delete("snapshot/snapshot-2")  # of 1 and 2, which it takes
    before = told.files()
    with pytest.raises(lsm.CommitConflictError, match=r"before 3 are just expiring.*try again"):
        told.table.rollback_to(tag="two")
    assert told.files() == before
    told.disk.delete("snapshot/snapshot-1")
    told.table.rollback_to(tag="two")
    assert told.rows() == TWO
    assert told.reopened().verify().problems == ()


@pytest.mark.parametrize("dies_at", ["snapshot/snapshot-4", "tag/tag-rolling-back-"])
@pytest.mark.parametrize("remedy", ["again", "its tag", "an hour"])
def test_an_expiry_after_a_rollback_that_died_says_how_to_go_on(
    told: Story, dies_at: str, remedy: str
) -> None:
    """It died on its way, or when all was done but for its sign."""
    delete = told.disk.delete

    def dying(path: str) -> bool:
        if path.startswith(dies_at):
            raise lsm.StorageError("cannot be deleted now", path=path)
        return delete(path)

    told.disk.delete = dying  # type: ignore[method-assign]
    with pytest.raises(lsm.StorageError):
        told.table.rollback_to(2)
    told.disk.delete = delete  # type: ignore[method-assign]
    newest = told.reopened().latest_snapshot()
    assert newest is not None
    with pytest.raises(lsm.CommitConflictError, match="roll back to 2 again, or delete") as caught:
        told.reopened().expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    match remedy:
        case "again":
            told.reopened().rollback_to(2)
        case "its tag":
            told.reopened().delete_tag(str(caught.value.facts["tag"]))
        case "an hour":
            told.clock.local_time = lambda: (2024, 2, 29, 13, 35, 0, 0)  # type: ignore[method-assign]
    told.reopened().expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    left = 2 if remedy == "again" else newest.id
    assert [one.id for one in told.reopened().snapshots()] == [left]
    assert "two" in [tag.name for tag in told.reopened().tags()]
    assert told.rows(tag="two") == TWO
    assert told.reopened().verify().problems == ()


def test_nothing_to_do_and_nothing_to_go_to(told: Story) -> None:
    before = told.files()
    assert told.table.rollback_to(5).plan.is_empty
    for asked in ({}, {"snapshot_id": 1, "tag": "two"}):
        with pytest.raises(lsm.InvalidInputError, match="name one"):
            told.table.rollback_to(**asked)
    for asked in ({"snapshot_id": 9}, {"tag": "none"}, {"as_of_millis": START}):
        with pytest.raises(lsm.NotFoundError):
            told.table.rollback_to(**asked)
    assert told.files() == before


def test_a_commit_in_the_middle_is_not_lost(told: Story) -> None:
    """Whoever lands a snapshot while the table is rolled back stays, without a gap in the ids."""
    done = []

    def on_call(call: object) -> None:
        if call.verb == "delete" and call.path == "snapshot/snapshot-4" and not done:
            done.append(told.put(k7="meanwhile"))

    storage = RecordingFileIO(told.disk, on_call=on_call)
    parts = replace(told.parts, file_io=storage)
    session = type(told.table.session)("t", parts, told.table.schema)
    with pytest.raises(lsm.CommitConflictError, match="somebody committed snapshot 5"):
        lsm.Table(session, "t").rollback_to(2)
    assert done == [5]
    assert [one.id for one in told.table.snapshots()] == [1, 2, 3, 4, 5]
    assert told.rows()[7] == "meanwhile"
    assert told.table.verify().is_clean


def rolling_back(told: Story, on_call: Callable[[Call], None]) -> lsm.Table:
    """Return a table that lets others in before each of its calls."""
    parts = replace(told.parts, file_io=RecordingFileIO(told.disk, on_call=on_call))
    return lsm.Table(type(told.table.session)("t", parts, told.table.schema), "t")


def is_look_after_delete(calls: list[Call], number: int) -> bool:
    """Whether the last call looks for a successor of a snapshot that has just gone."""
    deleted = Call(0, "delete", f"snapshot/snapshot-{number}")
    looked = Call(0, "exists", f"snapshot/snapshot-{number + 1}")
    known = [replace(one, number=0) for one in calls if one.verb != "sync"]
    return known[-2:] == [deleted, looked]


def test_a_rollback_gives_back_nothing_above_an_id_that_was_used_again(told: Story) -> None:
    """Else the commit that used it again would be lost under what comes back above it."""
    last = told.table.snapshots()[-1]
    late = replace(
        last,
        id=6,
        uuid="late",
        delta_manifest_list="manifest-list-late-0",
        properties=with_base(None, last),
    )
    calls: list[Call] = []

    def on_call(call: Call) -> None:
        calls.append(call)
        if is_look_after_delete(calls, 3):
            assert told.table.session.snapshots.publish(late)
            assert told.put(k8="other") == 3

    with pytest.raises(lsm.CommitConflictError, match="somebody committed snapshot 6") as raised:
        rolling_back(told, on_call).rollback_to(2)
    assert not confirm(told.table.session.snapshots, late, last)
    assert [one.id for one in told.table.snapshots()] == [1, 2, 3]
    assert told.rows()[8] == "other"
    assert raised.value.facts["taken"] == [3, 4, 5]


def test_a_commit_on_an_id_that_is_being_given_back_does_not_count(told: Story) -> None:
    """A rollback takes 3 while 4 is confirmed on it: who lands on 3 meanwhile leaves it again."""
    snapshots = told.table.session.snapshots
    two = snapshots.load(2)
    other = replace(
        two,
        id=3,
        uuid="other",
        delta_manifest_list="manifest-list-other-0",
        properties=with_base(None, two),
    )
    calls: list[Call] = []

    def on_call(call: Call) -> None:
        calls.append(call)
        if (call.verb, call.path) == ("delete", "snapshot/snapshot-3"):
            assert told.put(k7="meanwhile") == 4
            snapshots.forget_latest()  # as if it was stopped before that
        if is_look_after_delete(calls, 3):
            assert snapshots.publish(other)
            assert not confirm(snapshots, other, two)

    with pytest.raises(lsm.CommitConflictError, match="somebody committed snapshot 4") as raised:
        rolling_back(told, on_call).rollback_to(2)
    assert [one.id for one in told.table.snapshots()] == [1, 2, 3, 4]
    assert told.rows()[7] == "meanwhile"
    assert raised.value.facts["taken"] == [4, 5]


def test_consumers_beyond_go_back(told: Story) -> None:
    told.table.reset_consumer("ahead", 6)
    told.table.reset_consumer("behind", 2)
    told.table.rollback_to(2)
    assert {one.name: one.next_snapshot_id for one in told.table.consumers()} == {
        "ahead": 3, "behind": 2,
    }  # fmt: skip


# --- as latest -----------------------------------------------------------------------------------


def test_a_former_state_becomes_the_newest(told: Story) -> None:
    made = told.table.rollback_to_as_latest(2)
    assert made is not None
    assert (made.id, made.commit_kind.value) == (6, "OVERWRITE")
    assert told.rows() == TWO
    assert told.rows(snapshot_id=5) == {1: "d", 2: "b", 3: "c"}
    assert told.table.rollback_to_as_latest(2) is None
    told.put(k2="e")
    assert told.rows() == {1: "a", 2: "e"}
    told.table.compact(full=True)
    assert told.rows() == {1: "a", 2: "e"}
    told.check()


def test_files_that_came_back_outlive_the_expiry_of_what_took_them(told: Story) -> None:
    """Files of snapshot 2 were merged away by 4 and are added again by 6."""
    told.table.delete_tag("two")
    told.table.delete_tag("three")
    told.table.rollback_to_as_latest(2)
    for left in (5, 4, 3, 2, 1):
        told.table.expire_snapshots(retain_min=left, retain_max=left, older_than="0 s")
        told.check()
        assert told.rows() == TWO
    told.put(k2="e")
    told.table.compact(full=True)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    told.check()
    assert told.rows() == {1: "a", 2: "e"}


def test_expired_tags_can_be_the_newest_again(told: Story) -> None:
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    told.table.rollback_to_as_latest(tag="two")
    told.table.delete_tag("two")
    assert told.rows() == TWO
    told.check()


def test_a_commit_that_lands_first_is_history_too(told: Story) -> None:
    done = []

    def on_call(call: object) -> None:
        if call.verb == "publish" and not done:
            done.append(told.put(k7="meanwhile"))

    storage = RecordingFileIO(told.disk, on_call=on_call)
    session = type(told.table.session)("t", replace(told.parts, file_io=storage), told.table.schema)
    made = lsm.Table(session, "t").rollback_to_as_latest(2)
    assert made is not None
    assert made.id == 7
    assert told.rows() == TWO
    assert told.rows(snapshot_id=6)[7] == "meanwhile"
    told.check()

"""Going back to a snapshot, a tag, a time or a watermark; and making a former state the newest."""

from collections.abc import Callable
from dataclasses import replace

import pytest

import lsm_engine as lsm
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
    assert str(planned) == "would roll back to snapshot 2: 3 snapshots and 1 tag go"
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


def dying(told: Story, at: str) -> None:
    """Let a rollback to 2 die before it deletes a file."""
    deletes = {verb: getattr(told.disk, verb) for verb in ("delete", "change_if_unchanged")}

    def mortal(verb: str) -> Callable[..., bool]:
        def delete(path: str, *data: bytes | None, **expected: bytes) -> bool:
            if path.startswith(at) and data in ((), (None,)):
                raise lsm.StorageError("cannot be deleted now", path=path)
            return deletes[verb](path, *data, **expected)  # type: ignore[no-any-return]

        return delete

    with pytest.MonkeyPatch.context() as patch:
        for verb in deletes:
            patch.setattr(told.disk, verb, mortal(verb))
        with pytest.raises(lsm.CommitUnknownError, match="finishes it"):
            told.table.rollback_to(2)


def expire_all_but_one(table: lsm.Table) -> None:
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")


DEATHS = [
    "tag/tag-three",
    "snapshot/snapshot-3",
    "snapshot/snapshot-4",
    "snapshot/snapshot-5",
    "tag/tag-rolling-back-",
    "snapshot/snapshot-6",
]


@pytest.mark.parametrize("dies_at", DEATHS)
def test_a_rollback_that_died_is_done_for_readers_and_finished_by_another(
    told: Story, dies_at: str
) -> None:
    dying(told, dies_at)
    table = told.reopened()
    assert told.rows() == TWO
    newest = table.latest_snapshot()
    assert newest is not None
    assert newest.id == 2
    assert [one.id for one in table.snapshots()] == table.snapshot_ids() == [1, 2]
    (problem,) = table.verify().problems
    if dies_at != "snapshot/snapshot-6":  # what is left of the seal stands alone
        with pytest.raises(lsm.CommitConflictError, match="roll back to 2 again"):
            expire_all_but_one(table)
    if dies_at in DEATHS[:4]:
        assert problem == "a rollback is not done; roll back to 2 again if it died"
    before = told.files()
    with pytest.raises(lsm.CommitConflictError, match="roll back to 2 again"):
        table.rollback_to(1)
    assert told.files() == before  # also where the marker stands alone, no placeholder is left
    told.reopened().rollback_to(2)
    table = told.reopened()
    assert [one.id for one in table.snapshots()] == table.session.snapshots.listed_ids() == [1, 2]
    assert [one.name for one in table.tags()] == ["two"]
    assert told.rows() == told.rows(tag="two") == TWO
    assert table.verify().problems == ()
    assert told.put(k9="z") == 3
    expire_all_but_one(told.reopened())
    assert [one.id for one in told.reopened().snapshots()] == [3]
    told.reopened().remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    told.check()


@pytest.mark.parametrize("dies_at", DEATHS[2:])
def test_who_commits_behind_a_rollback_that_died_keeps_the_commit(
    told: Story, dies_at: str
) -> None:
    """The ids that are free are used again; where one is not, the writer is told what to do."""
    dying(told, dies_at)
    assert told.put(k7="new") == 3
    told.reopened().create_tag("new")
    told.table.reset_consumer("ahead", 4)
    assert told.rows() == {**TWO, 7: "new"}
    if dies_at == "snapshot/snapshot-4":
        with pytest.raises(lsm.CommitConflictError, match="roll back to 2 again"):
            told.put(k8="waits")
    again = told.reopened().rollback_to(2)
    assert 3 not in [one.id for one in again.plan.snapshots]
    table = told.reopened()
    assert (
        [one.id for one in table.snapshots()] == table.session.snapshots.listed_ids() == [1, 2, 3]
    )
    assert told.rows() == told.rows(tag="new") == {**TWO, 7: "new"}
    assert [one.next_snapshot_id for one in table.consumers()] == [4]
    assert told.put(k8="after") == 4
    assert table.verify().problems == ()


def test_a_rollback_that_the_disk_refuses_holds_up_no_expiry(told: Story) -> None:
    publish = told.disk.publish

    def refuse(path: str, data: bytes) -> bool:
        if path.startswith("snapshot/snapshot-6"):
            raise lsm.StorageError("no permission", path=path)
        return publish(path, data)

    tags = [tag.name for tag in told.table.tags()]
    told.disk.publish = refuse  # type: ignore[method-assign]
    with pytest.raises(lsm.StorageError):
        told.table.rollback_to(2)
    told.disk.publish = publish  # type: ignore[method-assign]
    assert [tag.name for tag in told.reopened().tags()] == tags
    expire_all_but_one(told.reopened())
    assert [snapshot.id for snapshot in told.reopened().snapshots()] == [5]
    assert told.reopened().verify().problems == ()


@pytest.mark.parametrize("remedy", ["again", "its tag", "an hour"])
def test_an_expiry_after_a_rollback_that_died_early_says_how_to_go_on(
    told: Story, remedy: str
) -> None:
    """It died before it was decided."""
    publish = told.disk.publish

    def mortal(path: str, data: bytes) -> bool:
        if path.startswith("snapshot/snapshot-6"):
            raise KeyboardInterrupt(path)
        return publish(path, data)

    told.disk.publish = mortal  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        told.table.rollback_to(2)
    told.disk.publish = publish  # type: ignore[method-assign]
    assert told.rows()[1] == "d"
    with pytest.raises(lsm.CommitConflictError, match="roll back to 2 again, or delete") as caught:
        expire_all_but_one(told.reopened())
    match remedy:
        case "again":
            told.reopened().rollback_to(tag="two")
        case "its tag":
            told.reopened().delete_tag(str(caught.value.facts["tag"]))
        case "an hour":
            told.clock.local_time = lambda: (2024, 2, 29, 13, 35, 0, 0)  # type: ignore[method-assign]
    expire_all_but_one(told.reopened())
    left = 2 if remedy == "again" else 5
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


def rolling_back(told: Story, on_call: Callable[[Call], None]) -> lsm.Table:
    """Return a table that lets others in before each of its calls."""
    parts = replace(told.parts, file_io=RecordingFileIO(told.disk, on_call=on_call))
    return lsm.Table(type(told.table.session)("t", parts, told.table.schema), "t")


def once(verb: str, path: str, act: Callable[[], object]) -> Callable[[Call], None]:
    """Act before the first such call."""
    done: list[Call] = []

    def on_call(call: Call) -> None:
        if (call.verb, call.path) == (verb, path) and not done:
            done.append(call)
            act()

    return on_call


def test_a_commit_before_the_seal_is_rolled_back_too(told: Story) -> None:
    made: list[int] = []
    on_call = once("publish", "snapshot/snapshot-6", lambda: made.append(told.put(k7="meanwhile")))
    report = rolling_back(told, on_call).rollback_to(2)
    assert made == [6]
    assert [one.id for one in report.plan.snapshots] == [3, 4, 5, 6]
    assert told.rows() == TWO
    assert told.table.session.snapshots.listed_ids() == [1, 2]
    assert told.table.verify().is_clean


@pytest.mark.parametrize("at", [4, 5, 6])
def test_a_commit_behind_the_seal_stays(told: Story, at: int) -> None:
    """It lands on the target as soon as the first id is free, and is seen at once."""

    def act() -> None:
        assert told.rows() == TWO
        assert told.put(k7="meanwhile") == 3
        assert told.rows() == {**TWO, 7: "meanwhile"}
        assert [one.id for one in told.reopened().snapshots()] == [1, 2, 3]

    rolling_back(told, once("change_if_unchanged", f"snapshot/snapshot-{at}", act)).rollback_to(2)
    assert told.rows() == {**TWO, 7: "meanwhile"}
    assert told.table.session.snapshots.listed_ids() == [1, 2, 3]
    assert told.disk.read("snapshot/LATEST") == b"3"
    assert told.table.verify().is_clean


def test_a_rollback_that_somebody_else_finishes_stops(told: Story) -> None:
    """It would delete what has an id for a second time."""

    def act() -> None:
        told.reopened().rollback_to(2)
        for key in range(20, 24):
            told.put(**{f"k{key}": "after"})

    done: list[bool] = []

    def before(call: Call) -> None:
        is_look = call.verb == "exists" and call.path.startswith("tag/tag-rolling")
        if is_look and not done and not told.disk.exists("snapshot/snapshot-3"):
            done.append(True)
            act()

    with pytest.raises(lsm.CommitConflictError, match="another rollback to snapshot 2"):
        rolling_back(told, before).rollback_to(2)
    assert done
    assert [one.id for one in told.reopened().snapshots()] == [1, 2, 3, 4, 5, 6]
    assert told.reopened().verify().is_clean


def test_of_two_rollbacks_one_gives_way(told: Story) -> None:
    def act() -> None:
        with pytest.raises(lsm.CommitConflictError, match="is being rolled back to snapshot 2"):
            told.reopened().rollback_to(4)

    rolling_back(told, once("change_if_unchanged", "snapshot/snapshot-3", act)).rollback_to(2)
    assert told.table.session.snapshots.listed_ids() == [1, 2]
    assert [tag.name for tag in told.table.tags()] == ["two"]

    def first() -> None:
        told.reopened().rollback_to(1)

    for key in range(20, 24):
        told.put(**{f"k{key}": "more"})
    with pytest.raises(lsm.LsmError, match="2"):
        rolling_back(told, once("publish", "snapshot/snapshot-7", first)).rollback_to(2)
    assert told.table.session.snapshots.listed_ids() == [1]


def test_a_commit_of_another_client_on_the_seal_stays(told: Story) -> None:
    """It does not know what a seal is: the table goes on from there, with the target's state below."""

    def act() -> None:
        seal = told.table.session.snapshots.find(6)
        assert seal is not None
        foreign = replace(seal, id=7, uuid="foreign", properties=None)
        assert told.table.session.snapshots.publish(foreign)

    on_call = once("change_if_unchanged", "snapshot/snapshot-3", act)
    with pytest.raises(lsm.CommitConflictError, match="another client committed snapshot 7"):
        rolling_back(told, on_call).rollback_to(2)
    assert [one.id for one in told.reopened().snapshots()] == [6, 7]
    assert told.rows() == TWO


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


@pytest.mark.parametrize("engine", ["deduplicate", "first-row", "partial-update"])
def test_a_compaction_after_a_restore_brings_a_file_to_its_level_again(engine: str) -> None:
    """It was deleted from there by the restore; readers fold entries without looking at their order."""
    told = Story(options={"merge-engine": engine, "write-only": "true"})
    told.put(k1="a")
    told.table.compact(full=True)
    told.table.rollback_to_as_latest(1)
    told.table.compact(full=True)
    assert told.rows() == {1: "a"}
    told.put(k2="b")
    told.table.compact(full=True)
    assert told.rows() == {1: "a", 2: "b"}
    told.table.rollback_to_as_latest(1)
    told.table.compact(full=True)
    assert told.rows() == {1: "a"}
    assert told.reopened().verify(deep=True).problems == ()

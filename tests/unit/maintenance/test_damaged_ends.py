"""Damage that no checksum shows: hints, files that nothing names, files exchanged with those beside them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

import lsm_engine as lsm
from lsm_engine.maintenance.verify import wrong_ends
from lsm_engine.planning.snapshot_chain import with_base
from tests.unit.table.history_tables import Story


def six(**options: str) -> Story:
    told = Story(options=options)
    for number in range(6):
        told.put(**{f"k{number}": "a"})
    return told


@pytest.mark.parametrize("hint", [b"5", b"3", b"2"])
def test_a_damaged_earliest_costs_no_snapshot_that_retention_keeps(hint: bytes) -> None:
    """One bit makes a 5 of a 1: what lies below it seems to be what an expiry that died has left."""
    told = six()
    told.disk.replace("snapshot/EARLIEST", hint)
    before = told.files()
    report = told.reopened().verify()
    assert any("EARLIEST is damaged" in text for text in report.warnings)
    assert report.is_clean
    for _ in range(2):
        expired = told.reopened().expire_snapshots()
        assert expired.is_empty
        assert f"EARLIEST is {hint.decode()}" in expired.plan.reason
    told.reopened().remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert told.files() == before
    told.put(k9="b")
    told.disk.replace("snapshot/EARLIEST", b"1")
    assert told.reopened().snapshot_ids() == [1, 2, 3, 4, 5, 6, 7]
    assert told.reopened().verify().warnings == ()


def test_what_an_expiry_of_few_at_a_time_has_left_is_not_to_be_brought_back() -> None:
    """Retention keeps none of it, however few may go at a time: its files may be gone already."""
    told = six(**{
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "1",
        "snapshot.expire.limit": "2",
    })  # fmt: skip
    told.disk.replace("snapshot/EARLIEST", b"5")
    assert told.reopened().verify().warnings == ()
    told.disk.replace("snapshot/EARLIEST", b"1")
    told.table.reset_consumer("reads", 2)
    told.disk.replace("snapshot/EARLIEST", b"5")
    assert any("that snapshots 2 to" in text for text in told.reopened().verify().warnings)
    told.table.alter(lsm.SetOption("consumer.changelog-only", value="true"))
    assert told.reopened().verify().warnings == ()


def test_what_is_below_earliest_goes_once_retention_lets_go_of_it() -> None:
    told = six()
    told.disk.replace("snapshot/EARLIEST", b"5")
    told.reopened().expire_snapshots(retain_max=3, retain_min=1, older_than="1000 d")
    assert told.files("snapshot/snapshot") == {f"snapshot/snapshot-{at}" for at in range(1, 7)}
    told.reopened().expire_snapshots(retain_max=2, retain_min=1, older_than="1000 d")
    assert told.files("snapshot/snapshot") == {"snapshot/snapshot-5", "snapshot/snapshot-6"}
    told.check()


def test_an_expiry_that_died_before_it_deleted_is_finished_whatever_its_limit() -> None:
    """It passed more than goes at a time, as with `--all`; retention lets go of all of it."""
    told = six(**{"snapshot.expire.limit": "1", "snapshot.num-retained.min": "1"})
    told.disk.replace("snapshot/EARLIEST", b"5")
    told.reopened().expire_snapshots(retain_max=2, retain_min=1, older_than="1000 d")
    assert told.files("snapshot/snapshot") == {"snapshot/snapshot-5", "snapshot/snapshot-6"}
    told.check()


def test_an_expiry_that_died_while_it_deleted_is_finished() -> None:
    told = six()
    told.table.compact(full=True)
    before = told.files()
    told.disk.replace("snapshot/EARLIEST", b"5")
    snapshot = told.table.session.snapshots.find(1)
    assert snapshot is not None
    told.disk.delete(f"manifest/{snapshot.delta_manifest_list}")
    told.reopened().expire_snapshots()
    assert told.reopened().snapshot_ids() == [5, 6, 7]
    assert not told.files("snapshot/snapshot") & {f"snapshot/snapshot-{at}" for at in range(1, 5)}
    assert told.files() < before
    told.check()


def test_the_oldest_snapshots_do_not_get_lost_unnoticed() -> None:
    told = six()
    told.disk.delete("snapshot/snapshot-1")
    told.disk.delete("snapshot/snapshot-2")
    (problem,) = told.reopened().verify().problems
    assert "snapshots 1 to 2 are missing" in problem
    told.table.expire_snapshots(retain_max=2, retain_min=1)
    assert told.reopened().verify().is_clean


@pytest.mark.parametrize("lost", [2, 5, 6])
def test_no_snapshot_gets_lost_unnoticed(lost: int) -> None:
    told = six()
    told.disk.delete(f"snapshot/snapshot-{lost}")
    (problem,) = told.reopened().verify().problems
    assert f"snapshot {lost}" in problem


def test_nothing_is_read_and_nothing_built_where_the_newest_snapshot_is_lost() -> None:
    told = six()
    told.disk.delete("snapshot/snapshot-6")
    before = told.files()
    acts: list[Callable[[lsm.Table], object]] = [
        lambda t: t.scan().to_arrow(),
        lambda t: t.changelog(),
        lambda t: t.lookup([{"id": 1}]),
        lambda t: t.upsert([{"id": 9, "v": "b"}]),
        lambda t: t.compact(full=True),
        lambda t: t.create_tag("late"),
        lambda t: t.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s"),
        lambda t: t.remove_orphan_files(dry_run=False, older_than="0 s", force=True),
    ]
    for act in acts:
        with pytest.raises(lsm.CorruptFileError, match="snapshot 6 is missing"):
            act(told.reopened())
    assert told.files() == before
    assert set(told.rows(snapshot_id=5)) == {0, 1, 2, 3, 4}
    (problem,) = told.reopened().verify().problems
    assert "snapshot 6, which LATEST names" in problem
    assert told.reopened().repair_latest_snapshot().found == ("snapshot/LATEST",)
    told.reopened().repair_latest_snapshot(dry_run=False)
    assert set(told.rows()) == {0, 1, 2, 3, 4}
    assert told.put(k9="b") == 6
    assert told.reopened().verify().is_clean


def test_a_table_whose_snapshots_are_all_lost_is_not_empty() -> None:
    told = six()
    for number in range(1, 7):
        told.disk.delete(f"snapshot/snapshot-{number}")
    for _ in range(2):  # LATEST names one; without it EARLIEST does
        with pytest.raises(lsm.CorruptFileError, match="is missing, and was the newest"):
            told.reopened().scan().to_arrow()
        with pytest.raises(lsm.CorruptFileError, match="is missing, and was the newest"):
            told.reopened().upsert([{"id": 9, "v": "b"}])
        with pytest.raises(lsm.CorruptFileError, match="no snapshot and no tag can be read"):
            told.reopened().repair_latest_snapshot()
        assert "is missing, and neither reads nor writes" in str(told.reopened().verify().problems)
        told.disk.delete("snapshot/LATEST")


def test_where_latest_is_lost_too_tags_and_consumers_tell() -> None:
    told = six()
    told.table.create_tag("end")
    told.table.reset_consumer("reader", 7)
    assert told.reopened().verify().warnings == ()
    told.disk.delete("snapshot/LATEST")
    told.disk.delete("snapshot/snapshot-6")
    assert told.reopened().verify().warnings == (
        "warning: tag 'end' is of snapshot 6, and the newest is 5: newer ones were rolled back, or are lost",
        "warning: consumer 'reader' goes on at snapshot 7, and the newest is 5: newer ones were rolled back, "
        "or are lost",
    )


def test_changes_do_not_begin_later_than_earliest_says() -> None:
    told = six()
    for number in (1, 2):
        told.disk.delete(f"snapshot/snapshot-{number}")
    with pytest.raises(lsm.CorruptFileError, match=r"snapshots 1 to 2 are missing.*start after 2"):
        told.reopened().changelog()
    assert set(told.reopened().changelog(after=2)["id"].to_pylist()) == {2, 3, 4, 5}
    told.table.expire_snapshots(retain_max=2, retain_min=1)
    assert set(told.reopened().changelog()["id"].to_pylist()) == {4, 5}


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_a_changelog_does_not_get_lost_unnoticed(lost: int) -> None:
    kept = {"changelog.num-retained.max": "50", "changelog.time-retained": "30 d"}
    told = six(**kept, **{"changelog-producer": "input"})
    told.table.expire_snapshots(retain_max=2, retain_min=1, older_than="0 s")
    assert told.reopened().verify().is_clean
    told.disk.delete(f"changelog/changelog-{lost}")
    (problem,) = told.reopened().verify().problems
    assert f"changelogs {lost} to {lost} are missing" in problem


def test_the_only_changelog_does_not_get_lost_unnoticed() -> None:
    kept = {"changelog.num-retained.max": "50", "changelog.time-retained": "30 d"}
    told = six(**kept, **{"changelog-producer": "input"})
    told.table.expire_snapshots(retain_max=5, retain_min=5, older_than="0 s")
    assert told.disk.read("changelog/EARLIEST") == b"1"
    assert told.reopened().verify().is_clean
    told.disk.delete("changelog/changelog-1")
    (problem,) = told.reopened().verify().problems
    assert "changelogs 1 to 1 are missing" in problem
    told.table.expire_snapshots(retain_max=4, retain_min=4, older_than="0 s")
    assert told.disk.read("changelog/EARLIEST") == b"2"
    assert told.reopened().verify().is_clean


def test_changes_do_not_begin_where_a_damaged_earliest_says() -> None:
    told = six()
    told.disk.replace("snapshot/EARLIEST", b"5")
    with pytest.raises(lsm.CorruptFileError, match="EARLIEST is 5, and snapshot 4 is there"):
        told.reopened().changelog()
    assert told.reopened().changelog(after=4).num_rows == 2
    told.table.alter(lsm.SetOption("snapshot.num-retained.min", "1"))
    told.table.alter(lsm.SetOption("snapshot.num-retained.max", "2"))
    assert told.reopened().changelog().num_rows == 2  # as an expiry under way leaves them


def test_a_branch_whose_schema_is_lost_is_named() -> None:
    told = six()
    told.table.create_tag("a", 2)
    told.table.create_branch("other", tag="a")
    assert told.reopened().verify().warnings == ()
    told.disk.delete("branch/branch-other/schema/schema-0")
    (warning,) = told.reopened().verify().warnings
    assert "branch 'other' has files and no branch/branch-other/schema/schema-0" in warning
    told.disk.replace("branch/branch-other/schema/schema-0", told.disk.read("schema/schema-0"))
    assert told.reopened().branch("other").scan().to_arrow().num_rows == 2
    assert told.reopened().verify().warnings == ()


def test_a_checksum_under_another_name_is_damage() -> None:
    """Two stretches that change places within a document take its checksum's name along."""
    told = six()
    told.table.create_tag("a", 2)
    text = told.disk.read("tag/tag-a")
    assert b'"writerVersion"' in text
    swapped = text.replace(b"writerVersion", b"lsmChecersion").replace(
        b"lsmChecksum", b"writerVksum"
    )
    told.disk.replace("tag/tag-a", swapped)
    with pytest.raises(lsm.CorruptFileError, match="'writerVksum' is a checksum"):
        told.reopened().scan(tag="a").to_arrow()


def test_a_record_of_verified_files_that_is_none_is_named() -> None:
    told = six()
    told.table.create_tag("a", 2)
    told.table.verify(deep=True, incremental=True)
    told.disk.replace("verified/verified-files", told.disk.read("tag/tag-a"))
    (problem,) = told.reopened().verify().problems
    assert "no record of verified files" in problem
    told.table.remove_broken_records(dry_run=False)
    assert told.reopened().verify().is_clean


def tagged(told: Story) -> None:
    told.table.create_tag("a", 2)
    told.table.create_tag("b", 5)


def swapped(told: Story, kind: str) -> None:
    one, other = (told.disk.read(f"{kind}/{kind}-{name}") for name in "ab")
    told.disk.replace(f"{kind}/{kind}-a", other)
    told.disk.replace(f"{kind}/{kind}-b", one)


def copied(told: Story, kind: str) -> None:
    told.disk.replace(f"{kind}/{kind}-a", told.disk.read(f"{kind}/{kind}-b"))


@pytest.mark.parametrize("how", [swapped, copied])
def test_no_tag_or_consumer_passes_for_another(how: Callable[[Story, str], None]) -> None:
    told = six()
    tagged(told)
    for name, position in (("a", 2), ("b", 5)):
        told.table.reset_consumer(name, position)
    how(told, "tag")
    before = told.files()
    with pytest.raises(lsm.CorruptFileError, match="tag-a"):
        told.reopened().scan(tag="a").to_arrow()
    assert "tag-a" in str(told.reopened().verify().problems)
    with pytest.raises(lsm.CorruptFileError, match="that of tag"):
        told.reopened().expire_snapshots(retain_max=1, retain_min=1)
    assert told.files() == before
    other = six()
    for name, position in (("a", 2), ("b", 5)):
        other.table.reset_consumer(name, position)
    how(other, "consumer")
    with pytest.raises(lsm.CorruptFileError, match="consumer-a"):
        other.reopened().consumers()
    with pytest.raises(lsm.CorruptFileError, match="that of consumer"):
        other.reopened().expire_snapshots(retain_max=1, retain_min=1)
    assert "that of consumer" in str(other.reopened().verify().problems)


def test_no_snapshot_passes_for_a_tag() -> None:
    told = six()
    tagged(told)
    told.disk.replace("tag/tag-a", told.disk.read("snapshot/snapshot-4"))
    with pytest.raises(lsm.CorruptFileError, match="holds a snapshot and no tag"):
        told.reopened().scan(tag="a").to_arrow()
    assert "holds a snapshot and no tag" in str(told.reopened().verify().problems)
    of_java = told.disk.read("snapshot/snapshot-4").partition(b',\n  "lsmChecksum"')[0] + b"\n}"
    told.disk.replace("tag/tag-a", of_java)
    assert told.reopened().scan(tag="a").to_arrow().num_rows == 4


@pytest.mark.parametrize("act", ["delete_tag", "rename_tag"])
def test_no_copy_passes_for_a_tag_that_goes(act: str) -> None:
    told = six()
    tagged(told)
    copied(told, "tag")
    before = told.files()
    names = ("b",) if act == "delete_tag" else ("b", "c")
    with pytest.raises(lsm.CorruptFileError, match="tag 'a' has the file of tag 'b'"):
        getattr(told.reopened(), act)(*names)
    assert told.files() == before
    told.table.delete_tag("a")
    getattr(told.reopened(), act)(*names)


def test_a_tag_that_another_client_renamed_is_read() -> None:
    """Java Paimon renames the file, and leaves in it what we wrote; the old name may be used again."""
    told = six()
    tagged(told)
    told.disk.replace("tag/tag-c", told.disk.read("tag/tag-a"))
    told.disk.delete("tag/tag-a")
    assert told.reopened().scan(tag="c").to_arrow().num_rows == 2
    told.table.create_tag("a", 4)
    assert told.reopened().scan(tag="c").to_arrow().num_rows == 2
    assert told.reopened().scan(tag="a").to_arrow().num_rows == 4
    assert told.reopened().verify().is_clean


def test_a_damaged_consumer_hides_nothing_else() -> None:
    """A ghost, a LATEST that names nothing, and an EARLIEST under which snapshots are still kept."""
    told = six()
    newest = told.table.snapshots()[-1]
    gone = replace(newest, delta_manifest_list="manifest-list-rolled-back")
    ghost = replace(newest, id=7, uuid="ghost", properties=with_base(None, gone))
    assert told.table.session.snapshots.publish(ghost)
    told.disk.replace("snapshot/EARLIEST", b"3")
    told.disk.replace("snapshot/LATEST", b"99")
    told.table.reset_consumer("sound", 6)
    sound = told.reopened().verify()
    assert len(sound.problems) == 2
    assert "never counted" in sound.problems[0]
    assert "snapshot 99, which LATEST names" in sound.problems[1]
    assert any("EARLIEST is damaged" in text for text in sound.warnings)
    told.disk.replace("consumer/consumer-broken", b"{")
    report = told.reopened().verify()
    assert set(sound.problems) < set(report.problems)
    assert report.warnings == sound.warnings
    (other,) = set(report.problems) - set(sound.problems)
    assert other.startswith("consumer 'broken'")


def test_snapshots_that_all_go_while_their_ends_are_looked_at_are_no_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = six()
    snapshots = told.table.snapshots()
    monkeypatch.setattr(type(told.table.session.snapshots), "listed_ids", lambda _: [])
    assert wrong_ends(told.table.session, snapshots) == ([], [], None)

"""Changelogs that outlive their snapshots, the consumers that keep them, and how both end."""

import shutil
from pathlib import Path

import pytest

import lsm_engine as lsm
from tests.interop.fixture_tables import FixtureTable
from tests.unit.table.history_tables import START, Story

FEED = {
    "changelog-producer": "input",
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
    "snapshot.time-retained": "1 s",
    "changelog.num-retained.max": "4",
    "changelog.time-retained": "1 h",
}


def told(count: int = 6, **options: str) -> Story:
    made = Story(options={**FEED, **options})
    for number in range(count):
        made.put(k1=f"v{number}")
    return made


def kept(story: Story) -> tuple[list[int], list[int]]:
    session = story.reopened().session
    return session.changelogs.ids(), session.snapshots.ids()


def feed(table: lsm.Table) -> list[str]:
    return table.changelog().column("v").to_pylist()


def test_changelogs_outlive_snapshots_and_end_in_their_turn() -> None:
    story = told()
    before = feed(story.table)
    dry = story.table.expire_snapshots(dry_run=True)
    assert [one.id for one in dry.plan.outlived] == [1, 2, 3, 4]
    assert dry.plan.changelog_files == ()
    report = story.table.expire_snapshots()
    # Of the four that may stay, two are snapshots.
    assert kept(story) == ([3, 4], [5, 6])
    assert report.changelogs is not None
    assert [one.id for one in report.changelogs.expired_changelogs] == [1, 2]
    assert story.disk.read("changelog/LATEST") == b"4"
    assert story.disk.read("changelog/EARLIEST") == b"3"
    assert feed(story.reopened()) == before[-4:]
    story.check()


def test_new_files_stand_for_the_changelogs_of_their_time_whatever_is_produced_now() -> None:
    story = told(**{"changelog-producer": "none", "changelog.num-retained.max": "100"})
    before = feed_of_deltas(story.reopened())
    story.table.expire_snapshots()
    story.reopened().alter(lsm.SetOption("changelog-producer", "input"))
    story.table = story.reopened()
    story.table.compact(full=True)
    for _ in range(3):
        story.put(k1="logged")
    assert len(story.table.expire_snapshots().plan.expired) > 1
    assert feed_of_deltas(story.reopened()) == [*before, "logged", "logged", "logged"]
    story.check()


def feed_of_deltas(table: lsm.Table) -> list[str]:
    return table.changes().to_arrow().column("v").to_pylist()


def test_age_takes_what_the_count_would_keep() -> None:
    story = told(**{"changelog.num-retained.max": "100", "changelog.time-retained": "10 s"})
    story.table.expire_snapshots()
    assert kept(story) == ([1, 2, 3, 4], [5, 6])
    story.clock.millis = START + 12_500  # 2, the successor of 1, was made at START + 2 s
    story.table.expire_snapshots()
    assert kept(story) == ([2, 3, 4, 5], [6])
    story.check()


def test_without_options_nothing_outlives_anything() -> None:
    story = Story(options={key: FEED[key] for key in FEED if not key.startswith("changelog.")})
    for number in range(4):
        story.put(k1=str(number))
    story.table.expire_snapshots()
    assert kept(story) == ([], [3, 4])
    assert len(story.files("changelog")) == 0
    story.check()


def test_new_rows_are_the_changelog_where_nobody_writes_one() -> None:
    story = told(**{"changelog-producer": "none"})
    story.table.compact(full=True)
    story.put(k1="last")
    story.table.expire_snapshots()
    changelogs, snapshots = kept(story)
    assert (changelogs, snapshots) == ([5, 6], [7, 8])
    story.check()
    story.table.expire_snapshots(retain_max=1)
    story.check()


def test_consumers_keep_what_they_need() -> None:
    story = told()
    story.table.reset_consumer("slow", 2)
    story.table.expire_snapshots()
    assert kept(story) == ([1], [2, 3, 4, 5, 6])  # the newest changelog always stays
    story.table.reset_consumer("slow", 4)
    story.table.expire_snapshots()
    assert kept(story) == ([3], [4, 5, 6])
    assert story.table.clear_consumers("s*", "sl*") == ()
    assert story.table.clear_consumers("s*") == ("slow",)
    story.table.expire_snapshots()
    assert kept(story) == ([3, 4], [5, 6])
    story.check()


def test_consumers_may_keep_changelogs_alone() -> None:
    story = told(**{"consumer.changelog-only": "true"})
    story.table.reset_consumer("slow", 2)
    story.table.expire_snapshots()
    assert kept(story) == ([2, 3, 4], [5, 6])
    story.check()


def test_consumers_that_do_not_move_are_forgotten() -> None:
    story = told(**{"consumer.expiration-time": "1 h"})
    story.table.reset_consumer("dead", 1)
    story.clock.advance(3_600_000)
    story.table.reset_consumer("alive", 5)
    assert story.table.expire_snapshots().consumers == ()
    story.clock.advance(1)
    assert story.table.expire_snapshots(dry_run=True).consumers == ("dead",)
    assert story.table.expire_snapshots().consumers == ("dead",)
    assert [one.name for one in story.table.consumers()] == ["alive"]


def test_consumers_go_back_and_forth_but_not_to_what_has_gone() -> None:
    story = told()
    session = story.table.session
    session.consumers.advance("c", 5)
    session.consumers.advance("c", 4)
    assert session.consumers.find("c").next_snapshot_id == 5
    story.table.reset_consumer("c", 2)
    story.table.reset_consumer("c", 5)
    story.table.expire_snapshots()
    with pytest.raises(lsm.ExpiredError, match="oldest whose changes can be read is 3"):
        story.table.reset_consumer("c", 2)
    with pytest.raises(lsm.ExpiredError):
        story.table.reset_consumer("new", 1)
    assert {one.name: one.next_snapshot_id for one in story.table.consumers()} == {"c": 5}
    assert story.table.reset_consumer("c") is None
    with pytest.raises(lsm.NotFoundError):
        story.table.reset_consumer("c")
    for name in ("", "a/b", "..", "a\0", "x" * 256):
        with pytest.raises(lsm.InvalidInputError):
            story.table.reset_consumer(name, 5)


def test_a_rollback_takes_changelogs_along() -> None:
    story = told(3)
    story.table.create_tag("two", 2)
    for number in range(3):
        story.put(k1=f"w{number}")
    story.table.expire_snapshots()
    assert kept(story) == ([3, 4], [5, 6])
    story.table.rollback_to(tag="two")
    assert kept(story) == ([], [2])
    story.put(k1="anew")
    story.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    story.check()
    assert feed(story.table)[-1] == "anew"


def test_a_java_table_with_changelogs_goes_on(tmp_path: Path) -> None:
    fixture = FixtureTable(writer="java-0.9.0", name="changelog_decoupled")
    copy = Path(shutil.copytree(fixture.table, tmp_path / "table"))
    table = lsm.open_table(str(copy))
    before = table.changelog().num_rows
    assert table.session.changelogs.ids() == [1, 2, 3, 4, 5]
    for number in range(3):
        table.upsert([{"k": 100 + number, "v": "x", "n": number}])
    table.expire_snapshots(older_than="0 s")
    assert table.session.snapshots.ids() == [9]
    assert table.session.changelogs.ids() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert table.changelog().num_rows == before + 3
    for number in range(4):
        table.upsert([{"k": 200 + number, "v": "x", "n": number}])
    table.expire_snapshots(older_than="0 s")
    newest = table.session.snapshots.latest_id()
    assert table.session.changelogs.ids() == list(range(newest - 9, newest))
    assert table.verify().is_clean
    orphans = table.remove_orphan_files(older_than="0 s", force=True).plan.orphans
    assert orphans == ()

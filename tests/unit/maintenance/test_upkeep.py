"""Partition expiry, repairs, and a trash that gives back what maintenance took."""

import datetime as dt

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.planning.retention import PartitionClock
from tests.unit.table.history_tables import Story

DAILY = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.string())])


def partitioned(*days: str, **options: str) -> Story:
    story = Story(DAILY, key=("id", "day"), partitioned_by=("day",), options=options)
    for number, day in enumerate(days):
        story.clock.advance(1000)
        story.table.upsert([{"id": number, "day": day, "v": "x"}])
    return story


def days(story: Story) -> list[str]:
    return sorted(story.reopened().scan().to_arrow().column("day").to_pylist())


# --- partitions ----------------------------------------------------------------------------------


def test_old_partitions_are_dropped_and_odd_ones_stay() -> None:
    """The clock stands at noon of 2024-02-29."""
    old = ("2024-02-21", "2024-01-01", "2023-12-31 10:00:00")
    young = ("2024-02-22 12:34:57", "2024-02-29", "9999-01-01", "oops", "2024-02-31")
    story = partitioned(*old, *young, **{"partition.expiration-time": "7 d"})
    planned = story.table.expire_partitions(dry_run=True)
    assert planned.partitions == (
        "day=2023-12-31 10%3A00%3A00", "day=2024-01-01", "day=2024-02-21",
    )  # fmt: skip
    assert len(days(story)) == 8
    report = story.table.expire_partitions()
    assert report.partitions == planned.partitions
    assert report.snapshot is not None
    assert report.snapshot.commit_kind.value == "OVERWRITE"
    assert days(story) == sorted(young)
    assert story.table.expire_partitions().partitions == ()
    story.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    story.check()
    assert not story.files("day=2024-01-01")


def test_a_compaction_leaves_out_expired_partitions_if_it_is_told_to() -> None:
    table = partitioned(
        *("2024-01-01", "2024-02-29", "oops") * 6,
        **{"partition.expiration-time": "7 d", "write-only": "true"},
    ).table

    def due() -> list[bool]:
        return [pressure.compactable for pressure in table.pressure()]

    assert due() == [True] * 3
    table.alter(lsm.SetOption("compaction.skip-expired-partitions", "true"))
    assert sorted(due()) == [False, True, True]
    table.alter(lsm.SetOption("partition.expiration-strategy", "update-time"))
    assert due() == [True] * 3
    table.alter(lsm.RemoveOption("partition.expiration-strategy"))
    table.compact(full=True)
    assert sorted(pressure.run_count for pressure in table.pressure()) == [1, 1, 6]
    assert table.compact(full=True) is None
    table.alter(lsm.RemoveOption("compaction.skip-expired-partitions"))
    table.compact(full=True)
    assert [pressure.run_count for pressure in table.pressure()] == [1] * 3


def test_young_partitions_whose_year_has_two_digits_stay() -> None:
    options = {"partition.timestamp-formatter": "yyMMdd", "partition.expiration-time": "7 d"}
    story = partitioned("240221", "240228", **options)
    assert story.table.expire_partitions().partitions == ("day=240221",)
    assert days(story) == ["240228"]


def test_only_so_many_at_a_time_the_oldest_first() -> None:
    story = partitioned("2024-01-03", "2024-01-01", "2024-01-02",
                        **{"partition.expiration-max-num": "2"})  # fmt: skip
    assert story.table.expire_partitions(older_than="1 d").partitions == (
        "day=2024-01-01", "day=2024-01-02",
    )  # fmt: skip
    assert days(story) == ["2024-01-03"]


def test_by_the_newest_file() -> None:
    story = partitioned("a", "b", **{"partition.expiration-strategy": "update-time",
                                     "partition.expiration-time": "10 s"})  # fmt: skip
    story.clock.advance(9_500)
    assert story.table.expire_partitions().partitions == ("day=a",)
    assert days(story) == ["b"]


def test_a_partition_that_is_written_to_meanwhile_stays() -> None:
    story = partitioned("a", **{"partition.expiration-strategy": "update-time",
                                "partition.expiration-time": "10 s"})  # fmt: skip
    story.clock.advance(60_000)
    publish = story.disk.publish
    done: list[object] = []

    def interrupted(path: str, data: bytes) -> bool:
        if not done:
            done.append(path)
            story.reopened().upsert([{"id": 9, "day": "a", "v": "new"}])
        return publish(path, data)

    story.disk.publish = interrupted  # type: ignore[method-assign]
    story.table.expire_partitions()
    assert days(story) == ["a", "a"]


def test_what_cannot_expire() -> None:
    with pytest.raises(lsm.InvalidInputError, match="no partitions"):
        Story().table.expire_partitions(older_than="1 d")
    with pytest.raises(lsm.InvalidOptionError, match="expiration-time"):
        partitioned("a").table.expire_partitions()
    with pytest.raises(lsm.InvalidInputError, match="an age"):
        partitioned("a").table.expire_partitions(older_than="soon")


@pytest.mark.parametrize(
    ("pattern", "formatter", "values", "wanted"),
    [
        (None, None, {"a": "2024-05-06", "b": "x"}, (2024, 5, 6)),
        (None, "yyyyMMdd", {"a": "20240506", "b": "x"}, (2024, 5, 6)),
        (None, "yyyyMMdd", {"a": "2024-05-06", "b": "x"}, None),
        ("$b", "d/M/yyyy HH'h'", {"a": "x", "b": "6/5/2024 07h"}, (2024, 5, 6, 7)),
        ("$a $b:00:00", None, {"a": "2024-05-06", "b": "07"}, (2024, 5, 6, 7)),
        ("$a-$b", "yyyy-MM", {"a": "2024", "b": "05"}, (2024, 5, 1)),
        ("$a", None, {"a": None, "b": "07"}, None),
        (None, None, {"a": "2024-13-06", "b": "x"}, None),
        (None, None, {"a": "2024-05-06; rm", "b": "x"}, None),
    ],
)  # fmt: skip
def test_times_that_values_spell(pattern, formatter, values, wanted) -> None:
    clock = PartitionClock(columns=("a", "b"), pattern=pattern, formatter=formatter)
    expected = None if wanted is None else dt.datetime(*wanted, tzinfo=dt.UTC)
    assert clock.time_of(values) == expected


@pytest.mark.parametrize(
    ("pattern", "formatter"), [("$c", None), (None, "yyyy-QQ"), (None, "yy-yyyy"), (None, "MMdd")]
)
def test_formats_that_cannot_be(pattern, formatter) -> None:
    clock = PartitionClock(columns=("a",), pattern=pattern, formatter=formatter)
    with pytest.raises(lsm.InvalidOptionError):
        clock.time_of({"a": "2024"})


# --- repairs -------------------------------------------------------------------------------------


def damaged() -> tuple[Story, str]:
    story = Story()
    story.put(k1="a")
    story.put(k2="b")
    lost = story.table.system("files").column("file_path").to_pylist()[0]
    story.disk.delete(lost)
    return story, lost


def test_files_that_are_gone_are_taken_out_of_the_table() -> None:
    story, lost = damaged()
    with pytest.raises(lsm.LsmError):
        story.rows()
    before = story.files()
    assert story.table.remove_unexisting_files().found == (lost,)
    assert story.files() == before
    report = story.table.remove_unexisting_files(dry_run=False)
    assert report.snapshot is not None
    assert len(story.rows()) == 1
    assert story.table.remove_unexisting_files(dry_run=False).snapshot is None


def test_a_repair_counts_what_is_lost() -> None:
    columns = pa.schema([("day", pa.string()), ("id", pa.int64()), ("v", pa.string())])
    story = Story(columns, key=("day", "id"), partitioned_by=("day",))
    story.table.upsert([{"day": "mon", "id": key, "v": "x"} for key in range(3, 10)])
    story.table.upsert([{"day": "tue", "id": 1, "v": "x"}])
    story.table.delete([{"day": "mon", "id": 5}])
    paths = story.table.system("files").column("file_path").to_pylist()
    for path in paths:
        if "day=mon" in path:
            story.disk.delete(path)
    for dry_run in (True, False):
        report = story.table.remove_unexisting_files(dry_run=dry_run)
        assert set(report.found) == {one.path for one in report.lost}
        assert report.lost_row_count == 8
        assert {one.bucket for one in report.lost} == {0}
        assert all(one.partition == {"day": "mon"} for one in report.lost)
        (large, small) = sorted(report.lost, key=lambda one: -one.row_count)
        assert (large.min_key, large.max_key) == ({"id": 3}, {"id": 9})
        assert (large.row_count, large.delete_count) == (7, 0)
        assert (small.row_count, small.delete_count, small.min_key) == (1, 1, {"id": 5})
        assert "8 rows of 1 bucket are lost" in str(report)
        assert "7 rows, partition day='mon', bucket 0, keys id='3' to id='9'" in str(large)
    assert [row["day"] for row in story.reopened().scan().to_arrow().to_pylist()] == ["tue"]
    assert story.table.remove_unexisting_files().lost == ()


def test_a_file_that_one_answer_denies_is_not_gone() -> None:
    story = Story()
    story.put(k1="a")
    path = story.table.system("files").column("file_path").to_pylist()[0]
    exists = story.disk.exists
    denied = []

    def lying(asked: str) -> bool:
        if asked == path and not denied:
            denied.append(asked)
            return False
        return exists(asked)

    story.disk.exists = lying  # type: ignore[method-assign]
    assert story.table.remove_unexisting_files(dry_run=False).found == ()
    assert denied


def test_manifests_are_written_anew() -> None:
    story = Story()
    for number in range(5):
        story.put(k1=str(number))
    story.table.compact(full=True)
    assert story.table.compact_manifest().snapshot is None
    report = story.table.compact_manifest(dry_run=False)
    assert report.snapshot is not None
    assert report.snapshot.commit_kind.value == "COMPACT"
    assert story.table.system("manifests").num_rows == 1
    assert story.table.system("manifests").column("num_deleted_files").to_pylist() == [0]
    assert story.rows() == {1: "4"}
    story.put(k2="x")
    story.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    story.check()
    assert story.rows() == {1: "4", 2: "x"}


def test_broken_snapshots_below_whole_ones() -> None:
    story = Story()
    for number in range(4):
        story.put(k1=str(number))
    lost = story.table.session.snapshots.load(2)
    story.disk.delete(f"manifest/{lost.delta_manifest_list}")
    assert story.reopened().repair_earliest_snapshot().found == (
        "snapshot/snapshot-1", "snapshot/snapshot-2",
    )  # fmt: skip
    story.reopened().repair_earliest_snapshot(dry_run=False)
    assert story.table.session.snapshots.ids() == [3, 4]
    assert story.disk.read("snapshot/EARLIEST") == b"3"
    assert story.reopened().verify().is_clean
    last = story.table.session.snapshots.load(4)
    story.disk.delete(f"manifest/{last.delta_manifest_list}")
    with pytest.raises(lsm.CorruptFileError, match="newest snapshot is broken"):
        story.reopened().repair_earliest_snapshot(dry_run=False)


def test_purged_tables_are_empty_and_go_on() -> None:
    story = Story(options={"changelog-producer": "input", "changelog.num-retained.max": "100",
                           "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})  # fmt: skip
    for number in range(4):
        story.put(k1=str(number))
    story.table.create_tag("t", 2)
    story.table.create_branch("b", tag="t")
    story.table.expire_snapshots()
    story.table.reset_consumer("c", 4)
    before = story.files()
    assert len(story.table.purge_files().found) == 7
    assert story.files() == before
    story.table.purge_files(dry_run=False)
    story.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert story.rows() == {}
    assert not [path for path in story.files() if "bucket-" in path]
    assert not story.files("tag/") | story.files("branch/") | story.files("consumer/")
    story.put(k1="again")
    assert story.rows() == {1: "again"}
    story.check()


# --- trash ---------------------------------------------------------------------------------------


def binned() -> Story:
    story = Story(options={"maintenance.trash-retained": "1 d", "snapshot.num-retained.max": "1",
                           "snapshot.num-retained.min": "1"})  # fmt: skip
    for value in "abc":
        story.put(k1=value)
    story.table.create_tag("t", 2)
    story.table.compact(full=True)
    return story


def test_an_expiry_is_undone() -> None:
    story = binned()
    whole = story.files()
    story.table.expire_snapshots()
    assert [one.id for one in story.table.snapshots()] == [4]
    assert [one.reason for one in story.table.trash()] == ["the newest 1 always stay"]
    assert whole - story.files() == {f"snapshot/snapshot-{number}" for number in (1, 2, 3)}
    story.check()
    assert [one.id for one in story.table.undo_maintenance().snapshots] == [1, 2, 3]
    assert [one.id for one in story.table.snapshots()] == [1, 2, 3, 4]
    assert story.rows(snapshot_id=1) == {1: "a"}
    assert story.table.trash() == []
    assert whole == story.files()
    with pytest.raises(lsm.NotFoundError, match="trash is empty"):
        story.table.undo_maintenance()


def test_tags_and_rollbacks_are_undone() -> None:
    story = binned()
    story.table.expire_snapshots()
    story.table.delete_tag("t")
    story.table.undo_maintenance()
    assert story.rows(tag="t") == {1: "b"}
    story.put(k1="z")
    story.table.create_tag("later")
    story.table.rollback_to(4)
    assert story.rows() == {1: "c"}
    story.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    story.table.undo_maintenance()
    assert story.rows() == {1: "z"}
    assert story.rows(tag="later") == {1: "z"}
    story.check()


def test_orphans_are_undone_by_forgetting_that_they_were_taken() -> None:
    story = binned()
    story.disk.write_new("bucket-0/data-stray-0.parquet", b"x")
    story.clock.advance(1000)
    story.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert story.files("bucket-0/data-stray") != set()
    assert story.table.trash()[0].paths == ("bucket-0/data-stray-0.parquet",)
    story.table.undo_maintenance()
    assert story.files("bucket-0/data-stray") != set()
    story.table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    story.table.empty_trash(everything=True)
    assert story.files("bucket-0/data-stray") == set()


def test_what_joins_nothing_any_more_is_not_undone() -> None:
    story = binned()
    story.table.rollback_to(2)
    story.put(k1="other")
    before = story.files()
    with pytest.raises(lsm.InvalidInputError, match="no longer join"):
        story.table.undo_maintenance()
    assert story.files() == before


def test_the_trash_is_emptied_by_age_and_never_of_what_lives() -> None:
    story = binned()
    story.table.expire_snapshots()
    story.table.delete_tag("t")
    assert story.table.empty_trash().records == ()
    planned = story.table.empty_trash(dry_run=True, everything=True)
    assert len(planned.records) == 2
    story.clock.advance(86_400_001)
    story.table.expire_snapshots()
    assert story.table.trash() == []
    assert story.files("trash") == set()
    assert story.rows() == {1: "c"}
    story.check()
    data = [path for path in story.files() if path.startswith("bucket-")]
    assert len(data) == 1


def test_a_tag_of_the_trash_survives_the_expiry_of_its_snapshot() -> None:
    """Its files were still shared when the tag was taken."""
    story = binned()
    story.table.delete_tag("t")
    record = story.table.trash()[0].name
    story.table.alter(lsm.RemoveOption(key="maintenance.trash-retained"))
    story.table.expire_snapshots()
    story.table.undo_maintenance(record)
    assert story.rows(tag="t") == {1: "b"}
    story.check()


def test_a_torn_record_stops_everything() -> None:
    story = binned()
    story.table.expire_snapshots()
    (path,) = story.files("trash")
    story.disk.replace(path, story.disk.read(path)[:50])
    before = story.files()
    story.put(k1="x")
    for act in (
        story.table.expire_snapshots,
        lambda: story.table.remove_orphan_files(dry_run=False),
    ):
        with pytest.raises(lsm.CorruptFileError, match="trash"):
            act()
    assert before <= story.files()


def test_the_catalog_tells_what_was_taken_and_why(tmp_path) -> None:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table(
            "db.t", pa.schema([("id", pa.int64())]), primary_key=["id"], options={"bucket": 1}
        )
        for number in range(3):
            table.upsert([{"id": number}])
        table.create_tag("one", 1)
        table.delete_tag("one")
        table.expire_snapshots(retain_min=2, retain_max=2, older_than="0 s")
        table.rollback_to(2)
        name = lsm_catalog_name("db.t")
        rows = catalog.lineage.removals(name).to_pylist()
        assert [(row["kind"], row["snapshot_ids"], row["tags"]) for row in rows] == [
            ("rollback", "3", ""),
            ("expire-snapshots", "1", ""),
            ("delete-tag", "", "one"),
        ]
        assert all(row["reason"] for row in rows)
        assert catalog.lineage.snapshots(name).column("snapshot_id").to_pylist()[0] == 2


def lsm_catalog_name(text: str):
    from lsm_engine.catalog.names import TableName

    return TableName.parse(text)

"""`scan.plan-auto-tag-for-read.time-retained`: what a batch read is at stays until it is done."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.planning.tags import READ_PREFIX

OPTION = "scan.plan-auto-tag-for-read.time-retained"


@pytest.fixture
def table(tmp_path: Path):
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        made = catalog.create_table(
            "db.t",
            pa.schema([("id", pa.int64()), ("v", pa.string())]),
            primary_key=["id"],
            options={"bucket": 4, "write-only": "true", OPTION: "1 h"},
        )
        made.upsert([{"id": number, "v": "first"} for number in range(40)])
        yield made


def replace_and_expire(table: lsm.Table) -> None:
    """Let the snapshot go that a reader is at, and with it its files, but for tags."""
    table.upsert([{"id": number, "v": "second"} for number in range(40)])
    table.compact(full=True)
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")


def data_files(table: lsm.Table) -> int:
    return len(list(Path(table.location).rglob("data-*")))


def read_tags(table: lsm.Table) -> list[str]:
    return [tag.name for tag in table.tags() if tag.name.startswith(READ_PREFIX)]


def test_a_read_outlives_the_expiry_of_its_snapshot(table: lsm.Table) -> None:
    reading = table.scan().to_batches()
    read = [next(reading)]
    assert len(read_tags(table)) == 1
    replace_and_expire(table)
    assert [one.id for one in table.snapshots()] == [3]
    read += reading
    assert {row["v"] for batch in read for row in batch.to_pylist()} == {"first"}
    assert sum(batch.num_rows for batch in read) == 40
    assert read_tags(table) == []
    assert data_files(table) == 4, "what only the read needed is gone with its tag"
    assert table.verify().is_clean


def test_without_the_option_nothing_is_tagged(table: lsm.Table) -> None:
    table.alter(lsm.RemoveOption(key=OPTION))
    reading = table.scan().to_batches()
    next(reading)
    assert read_tags(table) == []


@pytest.mark.parametrize("how", ["to the end", "closed", "failed", "counted"])
def test_the_tag_goes_however_the_read_ends(table: lsm.Table, how: str) -> None:
    match how:
        case "to the end":
            table.scan().to_arrow()
        case "closed":
            reading = table.scan().to_batches()
            next(reading)
            assert read_tags(table)
            reading.close()
        case "failed":
            for path in Path(table.location).rglob("data-*"):
                path.unlink()
            with pytest.raises(lsm.LsmError):
                table.scan().to_arrow()
        case "counted":
            assert table.scan().count() == 40
    assert read_tags(table) == []


def test_splits_for_readers_elsewhere_are_kept_for_the_time_named(table: lsm.Table) -> None:
    splits = table.scan().splits()
    assert len(splits) == 4
    (name,) = read_tags(table)
    replace_and_expire(table)
    kept = next(tag for tag in table.tags() if tag.name == name)
    assert kept.retained_millis == 3_600_000
    assert data_files(table) == 8
    table.alter(lsm.SetOption(key=OPTION, value="1 ms"))
    table.scan().splits()
    time.sleep(0.01)
    table.expire_tags()
    assert read_tags(table) == [name], "the other one's time was up"


def test_a_read_whose_tag_expired_meanwhile_ends_without_it(table: lsm.Table) -> None:
    table.alter(lsm.SetOption(key=OPTION, value="1 ms"))
    reading = table.scan().to_batches()
    read = next(reading).num_rows
    time.sleep(0.01)
    table.expire_tags()
    assert read_tags(table) == []
    assert read + sum(batch.num_rows for batch in reading) == 40


def test_a_snapshot_that_has_expired_is_said_to_have(table: lsm.Table) -> None:
    scan = table.scan(snapshot_id=1)
    replace_and_expire(table)
    with pytest.raises(lsm.NotFoundError, match="expired"):
        scan.to_arrow()
    assert read_tags(table) == []


def test_a_read_by_a_tag_needs_no_other(table: lsm.Table) -> None:
    table.create_tag("kept")
    reading = table.scan(tag="kept").to_batches()
    next(reading)
    assert read_tags(table) == []


def test_both_lines_of_a_read_are_kept(table: lsm.Table) -> None:
    table.create_branch("old")
    table.branch("old").upsert([{"id": 1, "v": "old"}])
    table.alter(lsm.SetOption(key="scan.fallback-branch", value="old"))
    reading = table.scan().to_batches()
    next(reading)
    assert len(read_tags(table)) == len(read_tags(table.branch("old"))) == 1
    reading.close()
    assert read_tags(table) == read_tags(table.branch("old")) == []

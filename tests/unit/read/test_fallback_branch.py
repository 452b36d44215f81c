"""`scan.fallback-branch`: a partition that the table does not have is read from the branch."""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm

SCHEMA = pa.schema([("day", pa.string()), ("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path):
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as opened:
        yield opened


@pytest.fixture
def table(catalog) -> lsm.Table:
    """Day 1 is on main, days 1 and 2 on the branch."""
    made = catalog.create_table(
        "db.t",
        SCHEMA,
        primary_key=["day", "id"],
        partitioned_by=["day"],
        options={"bucket": 1, "write-only": "true"},
    )
    made.create_branch("old")
    old = made.branch("old")
    old.alter(lsm.SetOption(key="bucket", value="2"))
    old = made.branch("old")
    old.upsert(days(1, "old", range(4)) + days(2, "old", range(6)))
    old.upsert(days(2, "newer", range(3)))
    made.upsert(days(1, "main", range(2)))
    made.alter(lsm.SetOption(key="scan.fallback-branch", value="old"))
    return made


def days(day: int, value: str, ids: range) -> list[dict[str, object]]:
    return [{"day": f"d{day}", "id": number, "v": value} for number in ids]


def rows(table: lsm.Table, **asked: object) -> list[tuple[object, ...]]:
    found = table.scan(**asked).to_arrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


DAY_1 = [("d1", 0, "main"), ("d1", 1, "main")]
DAY_2 = [("d2", number, "newer" if number < 3 else "old") for number in range(6)]


def test_only_what_is_missing_comes_from_the_branch(table: lsm.Table) -> None:
    assert rows(table) == DAY_1 + DAY_2
    assert table.scan().count() == 8
    assert rows(table, limit=8) == DAY_1 + DAY_2
    assert table.scan(limit=5).to_arrow().num_rows == 5


def test_filters_and_columns_hold_for_both(table: lsm.Table) -> None:
    assert rows(table, where=pc.field("day") == "d2") == DAY_2
    assert rows(table, where=pc.field("v") == "old", columns=["id", "v"]) == [
        (number, "old") for number in range(3, 6)
    ]
    assert table.scan(where=pc.field("id") >= 1).count() == 1 + 5


def test_a_filter_that_no_row_here_meets_does_not_bring_the_branch_in(table: lsm.Table) -> None:
    """The partition is there: what its rows are does not matter."""
    assert rows(table, where=(pc.field("day") == "d1") & (pc.field("id") == 3)) == []
    assert rows(table, where=(pc.field("day") == "d1") & (pc.field("v") == "old")) == []


def test_a_partition_that_comes_hides_the_branchs(table: lsm.Table) -> None:
    table.upsert(days(2, "main", range(9, 10)))
    assert rows(table) == [*DAY_1, ("d2", 9, "main")]
    table.overwrite([], {"day": "d2"})
    assert rows(table) == DAY_1 + DAY_2
    table.compact(full=True)
    assert rows(table) == DAY_1 + DAY_2


def test_the_branch_itself_and_streams_stay_by_themselves(table: lsm.Table) -> None:
    assert rows(table.branch("old"))[:4] == [("d1", number, "old") for number in range(4)]
    first = next(iter(table.follow(poll_millis=None)))
    assert {row["day"] for row in first.to_arrow().to_pylist()} == {"d1"}


def test_an_empty_table_shows_the_branch(catalog, table: lsm.Table) -> None:
    table.overwrite([], {"day": "d1"})
    assert len(rows(table)) == 4 + 6


def test_the_past_is_that_of_both(table: lsm.Table) -> None:
    then = table.latest_snapshot()
    time.sleep(0.005)  # times are told in milliseconds
    table.branch("old").upsert(days(3, "later", range(1)))
    table.upsert(days(4, "main", range(1)))
    assert rows(table) == [*DAY_1, *DAY_2, ("d3", 0, "later"), ("d4", 0, "main")]
    assert rows(table, snapshot_id=then.id) == DAY_1 + DAY_2
    assert rows(table, as_of_millis=then.time_millis) == DAY_1 + DAY_2
    table.create_tag("then", then.id)
    assert rows(table, tag="then") == DAY_1 + DAY_2


def test_a_branch_that_had_nothing_yet_adds_nothing_to_the_past(catalog) -> None:
    table = catalog.create_table("db.u", SCHEMA, primary_key=["day", "id"], partitioned_by=["day"])
    table.upsert(days(1, "main", range(2)))
    time.sleep(0.005)
    table.create_branch("old")
    table.branch("old").upsert(days(2, "old", range(1)))
    table.alter(lsm.SetOption(key="scan.fallback-branch", value="old"))
    assert rows(table, snapshot_id=1) == DAY_1
    assert rows(table) == [*DAY_1, ("d2", 0, "old")]


def test_the_plan_says_where_a_split_comes_from(table: lsm.Table) -> None:
    scan = table.scan()
    assert {split.branch for split in scan.splits()} == {None, "old"}
    text = scan.explain().text()
    assert "falls back on a branch, snapshot 2" in text
    assert "branch old bucket" in text
    assert scan.explain().fallback.files.by_partition > 0


def test_system_table_partitions_lists_what_is_read(table: lsm.Table) -> None:
    found = table.system("partitions").to_pylist()
    assert [row["partition"] for row in found] == ["day=d1", "day=d2"]
    assert [row["record_count"] for row in found] == [2, 9]
    old = table.branch("old").system("partitions").to_pylist()
    assert [row["record_count"] for row in old] == [4, 9]
    assert {row["partition"] for row in table.system("files").to_pylist()} == {"day=d1"}


def test_tables_without_partitions_fall_back_while_they_are_empty(catalog) -> None:
    table = catalog.create_table("db.u", SCHEMA, options={"write-only": "true"})
    table.create_branch("old")
    table.branch("old").append(days(1, "old", range(3)))
    table.alter(lsm.SetOption(key="scan.fallback-branch", value="old"))
    assert len(rows(table)) == 3
    table.append(days(1, "main", range(1)))
    assert rows(table) == [("d1", 0, "main")]


def test_many_files_fall_back_too(table: lsm.Table, monkeypatch) -> None:
    monkeypatch.setattr("lsm_engine.read.scan_plan.MANY_FILES", 1)
    assert rows(table) == DAY_1 + DAY_2


def test_other_columns_are_refused_by_name(table: lsm.Table) -> None:
    table.branch("old").alter(lsm.AddColumn(name="w", type=pa.int32()))
    with pytest.raises(lsm.UnsupportedError, match="other columns") as refused:
        table.scan()
    assert refused.value.facts["columns"] == ["w"]
    table.alter(lsm.AddColumn(name="w", type=pa.int32()))
    assert rows(table) == [(*row, None) for row in DAY_1 + DAY_2]


def test_a_branch_that_is_not_there_is_named(table: lsm.Table) -> None:
    with pytest.raises(lsm.InvalidInputError, match="falls back on this branch"):
        table.delete_branch("old")
    with pytest.raises(lsm.InvalidInputError, match="falls back on this branch"):
        table.rename_branch("old", "older")
    table.alter(lsm.SetOption(key="scan.fallback-branch", value="nowhere"))
    with pytest.raises(lsm.NotFoundError, match="nowhere"):
        table.scan()
    table.alter(lsm.RemoveOption(key="scan.fallback-branch"))
    assert rows(table) == DAY_1

"""Rows that have ids: given by the commit, kept by compactions, and what columns are joined by."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.read import scan_plan
from lsm_engine.table import session
from tests.foreign_documents import edited
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable
from tests.unit.table.history_tables import Story

COLUMNS = pa.schema([("p", pa.string()), ("a", pa.int64()), ("v", pa.string())])
TRACKED = {"row-tracking.enabled": "true", "write-only": "true"}
EVOLVING = {**TRACKED, "data-evolution.enabled": "true"}
DELETING = {**TRACKED, "deletion-vectors.enabled": "true"}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")) as made:
        yield made


def rows(*numbers: int, partition: str = "x") -> pa.Table:
    values = [f"v{number}" for number in numbers]
    return pa.table([[partition] * len(numbers), list(numbers), values], schema=COLUMNS)


def made(catalog: lsm.Catalog, options: dict[str, str], *batches: pa.Table) -> lsm.Table:
    table = catalog.create_table("db.t", COLUMNS, partitioned_by=["p"], options=options)
    for batch in batches:
        table.append(batch)
    return table


def by_id(table: lsm.Table, **at: Any) -> dict[int, tuple[Any, ...]]:
    names = [*table.schema.names, "_ROW_ID", "_SEQUENCE_NUMBER"]
    found = table.scan(columns=names, **at).to_arrow()
    ids = found.column("_ROW_ID").to_pylist()
    others = found.drop_columns(["_ROW_ID"]).to_pydict().values()
    listed = dict(zip(ids, zip(*others, strict=True), strict=True))
    assert len(listed) == len(ids)
    return listed


def live(table: lsm.Table) -> list[ManifestEntry]:
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    return table.session.live_entries(snapshot)


def sound(table: lsm.Table) -> None:
    assert table.verify(deep=True).problems == ()
    check_invariants(StoredTable(table.session.file_io))


@pytest.mark.parametrize("options", [TRACKED, EVOLVING, DELETING])
def test_ids_are_given_in_order_and_stay(catalog: lsm.Catalog, options: dict[str, str]) -> None:
    table = made(catalog, options, rows(1, 2), rows(3), rows(4, 5, partition="y"), rows(6))
    expected = {0: ("x", 1, "v1", 1), 1: ("x", 2, "v2", 1), 2: ("x", 3, "v3", 2),
                3: ("y", 4, "v4", 3), 4: ("y", 5, "v5", 3), 5: ("x", 6, "v6", 4)}  # fmt: skip
    assert by_id(table) == expected
    table.compact(full=True)
    joined = {number: row[:3] for number, row in by_id(table).items()}
    assert joined == {number: row[:3] for number, row in expected.items()}
    if "data-evolution.enabled" not in options:
        assert by_id(table) == expected
    table.append(rows(7))
    assert by_id(table)[6] == ("x", 7, "v7", 6)
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert snapshot.next_row_id == 7
    assert by_id(table, snapshot_id=1) == {0: ("x", 1, "v1", 1), 1: ("x", 2, "v2", 1)}
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert len(by_id(table)) == 7
    sound(table)


def test_a_lost_race_gives_other_ids(catalog: lsm.Catalog) -> None:
    table = made(catalog, TRACKED, rows(1))
    slow, quick = lsm.open_table(table.location), lsm.open_table(table.location)
    publish = slow.session.snapshots.publish
    raced = []

    def beaten(snapshot: Any) -> Any:
        if not raced:
            raced.append(quick.append(rows(2, 3)))
        return publish(snapshot)

    slow.session.snapshots.publish = beaten  # type: ignore[method-assign]
    slow.append(rows(4))
    assert {n: row[1] for n, row in by_id(table).items()} == {0: 1, 1: 2, 2: 3, 3: 4}
    assert by_id(table)[3][-1] == 3
    sound(table)


def test_a_replay_gives_no_ids(catalog: lsm.Catalog) -> None:
    table = made(catalog, TRACKED)
    for _ in range(2):
        table.append(rows(1, 2), commit_user="u", commit_identifier=7)
    assert sorted(by_id(table)) == [0, 1]


def test_every_file_of_a_write_has_a_range_and_the_number_of_its_snapshot(
    catalog: lsm.Catalog,
) -> None:
    options = {
        **EVOLVING,
        "target-file-size": "32 kb",
        "file.block-size": "8 kb",
        "file.compression": "none",
    }
    table = made(catalog, options)
    table.append(pa.table([["x"] * 20_000, range(20_000), map(str, range(20_000))], schema=COLUMNS))
    files = sorted((entry.file for entry in live(table)), key=lambda file: file.first_row_id or 0)
    assert len(files) > 2
    assert {(file.min_sequence_number, file.max_sequence_number) for file in files} == {(1, 1)}
    assert all(n == row[1] for n, row in by_id(table).items())
    meta = table.session.manifest_metas(table.latest_snapshot())[0]  # type: ignore[arg-type]
    assert (meta.min_row_id, meta.max_row_id) == (0, 19_999)
    sound(table)


def test_deleted_rows_leave_their_ids(catalog: lsm.Catalog) -> None:
    table = made(catalog, DELETING, rows(1, 2, 3), rows(4))
    table.delete([{"a": 2}])
    assert sorted(by_id(table)) == [0, 2, 3]
    table.compact(full=True)
    assert {n: row[1] for n, row in by_id(table).items()} == {0: 1, 2: 3, 3: 4}
    table.delete([{"a": 4}])
    assert sorted(by_id(table)) == [0, 2]
    table.append(rows(5))
    assert sorted(by_id(table)) == [0, 2, 4]
    sound(table)


def test_an_overwrite_and_a_restore_go_on_counting(catalog: lsm.Catalog) -> None:
    table = made(catalog, TRACKED, rows(1, 2))
    table.overwrite(rows(3))
    assert sorted(by_id(table)) == [2]
    table.rollback_to_as_latest(1)
    assert sorted(by_id(table)) == [0, 1]
    table.append(rows(4))
    assert sorted(by_id(table)) == [0, 1, 3]
    sound(table)


def test_columns_of_rows_are_updated_by_id(catalog: lsm.Catalog) -> None:
    table = made(catalog, EVOLVING, rows(1, 2, 3), rows(4, 5, partition="y"), rows(6))
    table.update_columns([{"_ROW_ID": 4, "v": "new"}, {"_ROW_ID": 1, "v": None}])
    assert by_id(table) == {
        0: ("x", 1, "v1", 4), 1: ("x", 2, None, 4), 2: ("x", 3, "v3", 4),
        3: ("y", 4, "v4", 4), 4: ("y", 5, "new", 4), 5: ("x", 6, "v6", 3),
    }  # fmt: skip
    assert {entry.file.write_columns for entry in live(table)} == {None, ("v",)}
    assert table.scan().count() == 6
    table.update_columns(pa.table({"_ROW_ID": [1], "a": [22]}))
    before = by_id(table)
    assert before[1][:3] == ("x", 22, None)
    sound(table)
    table.compact(full=True)
    assert {n: row[:3] for n, row in by_id(table).items()} == {
        n: row[:3] for n, row in before.items()
    }
    assert {entry.file.write_columns for entry in live(table)} == {None}
    assert len(live(table)) == 3  # ids 0-2, 3-4 of another partition, and 5
    sound(table)


@pytest.mark.parametrize("given", [
    [{"_ROW_ID": 9, "v": "a"}], [{"_ROW_ID": 0, "v": "a"}, {"_ROW_ID": 0, "v": "b"}],
    [{"v": "a"}], [{"_ROW_ID": 0}], [{"_ROW_ID": 0, "p": "y"}], [{"_ROW_ID": None, "v": "a"}],
    [{"_ROW_ID": 0, "w": 1, "v": "a"}], [{"_ROW_ID": 0, "v": "a"}, {"_ROW_ID": 0, "a": 1}],
])  # fmt: skip
def test_updates_that_cannot_be_write_nothing(
    catalog: lsm.Catalog, given: list[dict[str, Any]]
) -> None:
    table = made(catalog, EVOLVING, rows(1))
    with pytest.raises(lsm.InvalidInputError):
        table.update_columns(given)
    assert by_id(table) == {0: ("x", 1, "v1", 1)}
    assert table.latest_snapshot() == table.session.snapshots.load(1)


def test_filters_look_at_the_newest_file_that_has_a_column(catalog: lsm.Catalog) -> None:
    table = made(catalog, EVOLVING, rows(1, 2), rows(8, 9))
    table.update_columns([{"_ROW_ID": 0, "a": 100}])
    assert sorted(by_id(table, where=lsm.col("a") == 100)) == [0]
    assert sorted(by_id(table, where=lsm.col("a") == 1)) == []
    assert sorted(by_id(table, where=(lsm.col("a") == 100) & (lsm.col("v") == "v1"))) == [0]
    assert sorted(by_id(table, where=(lsm.col("a") == 2) & (lsm.col("v") == "v2"))) == [1]
    assert sorted(by_id(table, where=(lsm.col("a") == 8) | (lsm.col("v") == "v2"))) == [1, 2]
    assert sorted(by_id(table, where=lsm.col("_ROW_ID") > 1)) == [2, 3]
    explained = table.scan(where=lsm.col("a") > 50).explain()
    assert sum(len(split.files) for split in explained.splits) == 2
    table.compact(full=True)
    assert sorted(by_id(table, where=lsm.col("a") == 100)) == [0]


def test_columns_are_joined_across_schemas(catalog: lsm.Catalog) -> None:
    table = made(catalog, EVOLVING, rows(1, 2))
    table.update_columns([{"_ROW_ID": 0, "v": "early"}])
    table.alter(lsm.RenameColumn(name="v", new_name="w"), lsm.AddColumn(name="b", type="INT"))
    assert by_id(table)[0] == ("x", 1, "early", None, 2)
    table.append(pa.table({"p": ["x"], "a": [3], "w": ["w3"], "b": pa.array([30], pa.int32())}))
    table.update_columns([{"_ROW_ID": 1, "b": 20}])
    table.update_columns([{"_ROW_ID": 2, "w": "late"}])
    expected = {0: ("x", 1, "early", None), 1: ("x", 2, "v2", 20), 2: ("x", 3, "late", 30)}
    assert {n: row[:4] for n, row in by_id(table).items()} == expected
    table.alter(lsm.DropColumn(name="w"), lsm.AddColumn(name="w", type="INT"))
    expected = {n: (*row[:2], row[3], None) for n, row in expected.items()}
    assert {n: row[:4] for n, row in by_id(table).items()} == expected
    table.compact(full=True)
    assert {n: row[:4] for n, row in by_id(table).items()} == expected
    sound(table)


def meanwhile(table: lsm.Table, act: Any) -> lsm.Table:
    """Open the table once more; `act` is carried out right before its first snapshot is published."""
    slow = lsm.open_table(table.location)
    publish, done = slow.session.snapshots.publish, []

    def beaten(snapshot: Any) -> Any:
        if not done:
            done.append(True)
            act(lsm.open_table(table.location))
        return publish(snapshot)

    slow.session.snapshots.publish = beaten  # type: ignore[method-assign]
    return slow


def test_updates_of_the_same_rows_take_turns(catalog: lsm.Catalog) -> None:
    table = made(catalog, EVOLVING, rows(1, 2))
    slow = meanwhile(table, lambda other: other.update_columns([{"_ROW_ID": 0, "v": "theirs"}]))
    slow.update_columns([{"_ROW_ID": 1, "v": "ours"}])
    assert {n: row[2] for n, row in by_id(table).items()} == {0: "theirs", 1: "ours"}
    sound(table)


def test_an_update_lands_on_files_that_were_joined_meanwhile(catalog: lsm.Catalog) -> None:
    table = made(catalog, EVOLVING, rows(1), rows(2))
    slow = meanwhile(table, lambda other: other.compact(full=True))
    slow.update_columns([{"_ROW_ID": 1, "v": "ours"}])
    assert {n: row[2] for n, row in by_id(table).items()} == {0: "v1", 1: "ours"}
    sound(table)


def test_a_compaction_gives_way_to_an_update(catalog: lsm.Catalog) -> None:
    table = made(catalog, EVOLVING, rows(1), rows(2))
    slow = meanwhile(table, lambda other: other.update_columns([{"_ROW_ID": 1, "v": "theirs"}]))
    with pytest.raises(lsm.CommitConflictError, match="not all"):
        slow.compact(full=True)
    assert {n: row[2] for n, row in by_id(table).items()} == {0: "v1", 1: "theirs"}
    sound(table)


def test_rows_that_are_overwritten_meanwhile_are_not_updated(catalog: lsm.Catalog) -> None:
    table = made(catalog, EVOLVING, rows(1), rows(2))
    slow = meanwhile(table, lambda other: other.overwrite(rows(3)))
    with pytest.raises(lsm.InvalidInputError, match="could not be found in the table"):
        slow.update_columns([{"_ROW_ID": 1, "v": "ours"}])
    assert {n: row[1] for n, row in by_id(table).items()} == {2: 3}
    sound(table)


def test_changes_are_the_new_rows(catalog: lsm.Catalog) -> None:
    table = made(catalog, EVOLVING, rows(1), rows(2))
    table.update_columns([{"_ROW_ID": 1, "v": "new"}])
    table.append(rows(3))
    table.compact(full=True)
    found = table.changelog().select(["_snapshot_id", "a", "v"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [(1, 1, "v1"), (2, 2, "v2"), (4, 3, "v3")]
    table.expire_snapshots(retain_max=2, retain_min=2)
    assert table.changelog(after=3).column("a").to_pylist() == [3]


def test_tags_and_branches_keep_ids(catalog: lsm.Catalog) -> None:
    table = made(catalog, EVOLVING, rows(1), rows(2))
    table.create_tag("t")
    table.update_columns([{"_ROW_ID": 0, "v": "new"}])
    table.create_branch("b", tag="t")
    branch = table.branch("b")
    branch.append(rows(3))
    assert {n: row[2] for n, row in by_id(branch).items()} == {0: "v1", 1: "v2", 2: "v3"}
    assert by_id(table, tag="t")[0] == ("x", 1, "v1", 1)
    assert by_id(table)[0][2] == "new"
    tracked = table.system("row_tracking", tag="t").sort_by("_ROW_ID").to_pylist()
    assert tracked[1] == {"p": "x", "a": 2, "v": "v2", "_ROW_ID": 1, "_SEQUENCE_NUMBER": 2}
    sound(table)


@pytest.mark.parametrize(("options", "key"), [
    ({"row-tracking.enabled": "true"}, ["a"]),
    ({"row-tracking.enabled": "true", "bucket": "2", "bucket-key": "a"}, []),
    ({"data-evolution.enabled": "true"}, []),
    ({**EVOLVING, "deletion-vectors.enabled": "true"}, []),
])  # fmt: skip
def test_tables_that_cannot_have_row_ids_are_refused_by_name(
    catalog: lsm.Catalog, options: dict[str, str], key: list[str]
) -> None:
    with pytest.raises(lsm.InvalidOptionError, match=r"row-tracking|data-evolution"):
        catalog.create_table("db.t", COLUMNS, primary_key=key, options=options)


def test_row_ids_are_not_turned_on_later(catalog: lsm.Catalog) -> None:
    table = made(catalog, {}, rows(1))
    with pytest.raises(lsm.LsmError, match=r"row-tracking\.enabled"):
        table.alter(lsm.SetOption(key="row-tracking.enabled", value="true"))
    with pytest.raises(lsm.InvalidInputError, match=r"row-tracking\.enabled"):
        table.system("row_tracking")
    with pytest.raises(lsm.NotFoundError, match="_ROW_ID"):
        table.scan(columns=["_ROW_ID"])


def test_a_large_range_is_not_rewritten_for_every_few_small_ones(catalog: lsm.Catalog) -> None:
    options = {name: text for name, text in EVOLVING.items() if name != "write-only"}
    table = made(catalog, options)
    table.append(pa.table([["x"] * 9000, range(9000), map(str, range(9000))], schema=COLUMNS))
    (large,) = (entry.file for entry in live(table))
    for number in range(12):
        table.append(rows(number))
    assert large in [entry.file for entry in live(table)]
    assert len(live(table)) <= 6
    for number in range(5):
        table.update_columns([{"_ROW_ID": 0, "v": f"new {number}"}])
    assert by_id(table)[0][2] == "new 4"
    assert len(live(table)) <= 6
    sound(table)


def test_very_many_column_files_are_read_as_few(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(catalog, EVOLVING, rows(1, 2), rows(3))
    table.update_columns([{"_ROW_ID": 1, "v": "new"}])
    few = by_id(table)
    for module in (scan_plan, session):
        monkeypatch.setattr(module, "MANY_FILES", 1)
    assert by_id(lsm.open_table(table.location)) == few
    assert lsm.open_table(table.location).scan().count() == 3


OTHERS = {
    "key": ({"row-tracking.enabled": "true"}, ("id",)),
    "buckets": ({"row-tracking.enabled": "true", "bucket": "2", "bucket-key": "id"}, ()),
    "untracked": ({"data-evolution.enabled": "true", "bucket": "-1"}, ()),
    "vectors": ({**EVOLVING, "bucket": "-1", "deletion-vectors.enabled": "true"}, ()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_tables_of_others_that_have_ids_in_another_way_are_refused(name: str) -> None:
    options, key = OTHERS[name]
    base = (
        {"bucket": "1"}
        if key
        else {option: text for option, text in options.items() if "bucket" in option}
    )
    story = Story(key=key, options=base or {"bucket": "-1"})
    path = "schema/schema-0"
    stored = json.loads(story.disk.read(path))
    story.disk.replace(
        path, edited(story.disk.read(path), options={**stored["options"], **options})
    )
    with pytest.raises(lsm.UnsupportedError, match=r"row-tracking|data-evolution"):
        story.reopened()

"""Iceberg metadata of a table: other engines read the rows that a scan reads, at that commit."""

import dataclasses as dc
import datetime as dt
import itertools
import json
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlalchemy
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.expressions import GreaterThanOrEqual, IsNull, NotNull

import lsm_engine as lsm
from lsm_engine.data_files import columns as file_columns
from lsm_engine.iceberg import metadata as iceberg_metadata
from lsm_engine.iceberg.manifest import manifest, manifest_list, read_records
from lsm_engine.storage.file_io import FileIO
from lsm_engine.table import iceberg, iceberg_state
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.write import writers as lsm_writers
from tests.engines.iceberg_histories import LAYOUTS, run_history
from tests.engines.iceberg_readers import (
    duckdb_reads_iceberg,
    duckdb_rows,
    face,
    in_order,
    metadata_file,
    metadata_folder,
)

STORAGE = "metadata.iceberg.storage"
STORAGE_LOCATION = "metadata.iceberg.storage-location"
DATABASE, TABLE = "metadata.iceberg.database", "metadata.iceberg.table"
IN_TABLE = {STORAGE: "table-location"}
VECTORS = IN_TABLE | {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"}
COLUMNS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("b", pa.bool_()),
        pa.field("i8", pa.int8()),
        pa.field("i16", pa.int16()),
        pa.field("i", pa.int32()),
        pa.field("f", pa.float32()),
        pa.field("d", pa.float64()),
        pa.field("dec", pa.decimal128(38, 10)),
        pa.field("small", pa.decimal128(5, 2)),
        pa.field("s", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("t3", pa.timestamp("ms")),
        pa.field("t6", pa.timestamp("us")),
        pa.field("tz", pa.timestamp("us", "UTC")),
        pa.field("l", pa.list_(pa.list_(pa.int32()))),
        pa.field("m", pa.map_(pa.string(), pa.list_(pa.int64()))),
        pa.field("r", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
    ]
)  # fmt: skip
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)  # noqa: DTZ001


def row(key: int, text: str = "a") -> dict:
    if key % 7 == 6:
        return {"k": key}
    sign = -1 if key % 2 else 1
    return {
        "k": key,
        "b": key % 3 == 0,
        "i8": sign * (key % 100),
        "i16": sign * key,
        "i": sign * key * 1000,
        "f": float("nan") if key == 5 else sign * key / 4,
        "d": sign * key / 3,
        "dec": Decimal(sign * key) * Decimal("1000000000000000000.0000000001"),
        "small": Decimal(sign * key) / 100,
        "s": f"{text}{key}" * 9,
        "raw": bytes([key % 256, 255]),
        "day": dt.date(1970, 1, 1) + dt.timedelta(days=sign * key),
        "t3": NOON.replace(microsecond=0) + dt.timedelta(seconds=sign * key),
        "t6": NOON + dt.timedelta(microseconds=sign * key),
        "tz": NOON.replace(tzinfo=dt.UTC) + dt.timedelta(hours=sign * key),
        "l": [[key], None, []],
        "m": [("a", [key, None]), ("b", None)],
        "r": {"x": key, "y": ["p", None]},
    }


def rows(*keys: int, text: str = "a") -> pa.Table:
    return pa.Table.from_pylist([row(key, text) for key in keys], COLUMNS)


def create(tmp_path: Path, schema: pa.Schema = COLUMNS, key: str | list[str] = "k", **more: object):
    options = more.pop("options", VECTORS)
    with lsm.open_catalog(str(tmp_path)) as catalog:
        return catalog.create_table("shop.orders", schema, key, options=options, **more)


def assert_shown(table: lsm.Table) -> None:
    """pyiceberg, and DuckDB if it can, read what a scan reads."""
    expected = in_order(table.to_arrow())
    columns = table.schema.arrow
    assert in_order(face(table).scan().to_arrow().select(columns.names).cast(columns)) == expected
    if duckdb_reads_iceberg():
        assert in_order(duckdb_rows(table).select(columns.names).cast(columns)) == expected


@pytest.mark.parametrize("version", [2, 3])
def test_every_type_is_read_at_each_commit_with_vectors(tmp_path, version):
    options = VECTORS | {"metadata.iceberg.format-version": str(version)}
    table = create(tmp_path, options=options)
    assert face(table).scan().to_arrow().num_rows == 0  # of a new table
    for keys, text in (
        (range(60), "a"),
        (range(20, 40), "b"),
        (range(70, 90), "c"),
        ([1, 80], "d"),
    ):
        table.upsert(rows(*keys, text=text))
        assert_shown(table)
    table.delete([{"k": 3}, {"k": 75}])
    assert_shown(table)
    shown = json.loads(Path(metadata_file(table)).read_text())
    assert shown["format-version"] == version
    assert shown["current-snapshot-id"] == table.latest_snapshot().id
    assert min(field["id"] for field in shown["schemas"][0]["fields"]) == 1


def test_version_2_has_deleted_rows_in_position_delete_files_and_3_in_puffin_files(tmp_path):
    table = create(tmp_path, SMALL, options=VECTORS | {"metadata.iceberg.format-version": "2"})
    table.upsert(small(*range(9)))
    table.upsert(small(1, 2, value=9))
    table.delete([{"k": 5}])
    (deletes,) = face(table).inspect.delete_files().to_pylist()
    assert (deletes["content"], deletes["file_format"], deletes["record_count"]) == (
        1,
        "PARQUET",
        3,
    )
    path = Path(deletes["file_path"].removeprefix("file:"))
    assert [column.metadata[b"PARQUET:field_id"] for column in pq.read_schema(path)] == [
        b"2147483546",
        b"2147483545",
    ]
    pairs = pq.read_table(path)
    assert sorted(pairs["pos"].to_pylist()) == pairs["pos"].to_pylist()
    assert table.verify().warnings == ()
    content = path.read_bytes()
    for positions in itertools.combinations(range(9), 3):  # until the file has the same size
        changed = pairs.set_column(1, pairs.schema.field(1), pa.array(positions))
        pq.write_table(changed, path, store_schema=False)
        if path.stat().st_size == len(content) and not changed.equals(pairs):
            break
    (warning,) = table.verify().warnings
    assert "deleted rows" in warning
    path.write_bytes(b"PAR1" + content[4:-8] + bytes(8))
    (warning,) = table.verify().warnings
    assert "cannot be read" in warning
    table.maintenance.sync_iceberg(rebuild=True)
    assert table.verify().warnings == ()
    assert_shown(table)
    table.alter(lsm.SetOption("metadata.iceberg.format-version", "3"))
    table = opened(tmp_path)
    assert_shown(table)
    formats = face(table).inspect.delete_files()["file_format"].to_pylist()
    assert set(formats) == {"PUFFIN"}
    assert table.verify().warnings == ()


def test_no_file_has_a_column_of_a_higher_id_than_the_metadata_says(tmp_path):
    """ClickHouse refuses such a file; a table with a key has copies of the key's columns, and columns are dropped."""
    table = create(tmp_path, SMALL)
    table.upsert(small(1))
    table.alter(lsm.AddColumn("x", "ARRAY<INT>"))
    opened(tmp_path).upsert([{"k": 2, "x": [1]}])
    opened(tmp_path).alter(lsm.DropColumn("x"))
    table = opened(tmp_path)
    table.compact()
    last = json.loads(Path(metadata_file(table)).read_text())["last-column-id"]
    reserved = 2_147_483_645  # of positions, sequence numbers and kinds of rows
    for path in Path(table.location).rglob("*.parquet"):
        numbers = [int(column.metadata[b"PARQUET:field_id"]) for column in pq.read_schema(path)]
        assert all(number <= last or number >= reserved for number in numbers)


FILTERS = [
    ("b", True), ("i8", 20), ("i16", 20), ("i", 20_000), ("f", 5.0), ("d", 6.5), ("s", "a2"), ("small", Decimal("0.20")),
    ("dec", Decimal("20000000000000000000.0000000002")), ("day", dt.date(1970, 1, 21)),
    ("t3", NOON + dt.timedelta(seconds=20)), ("t6", NOON + dt.timedelta(microseconds=20)),
    ("tz", NOON.replace(tzinfo=dt.UTC) + dt.timedelta(hours=20)),
]  # fmt: skip


def test_filters_of_readers_skip_no_row_that_matches(tmp_path):
    table = create(tmp_path, options=VECTORS | {"target-file-size": "1 kb"})
    for start in (0, 10, 20, 30):
        table.upsert(rows(*range(start, start + 10)))
    table.compact()
    scanned = table.to_arrow()
    shown = face(table)
    for name, value in FILTERS:
        expected = scanned.filter(
            pc.greater_equal(scanned[name], pa.scalar(value, scanned[name].type))
        )
        if name in ("f", "d"):
            expected = expected.filter(pc.invert(pc.is_nan(expected[name])))
        literal = value.isoformat() if isinstance(value, dt.date) else value
        found = shown.scan(row_filter=GreaterThanOrEqual(name, literal)).to_arrow()
        if name in ("f", "d"):
            found = found.filter(pc.invert(pc.is_nan(found[name])))
        assert in_order(found.select(["k"])) == in_order(expected.select(["k"])), name
    for condition, count in (
        (IsNull("s"), scanned["s"].null_count),
        (NotNull("s"), pc.count(scanned["s"]).as_py()),
    ):
        assert shown.scan(row_filter=condition).to_arrow().num_rows == count


@pytest.mark.parametrize("wide", ["true", "false"])
def test_vectors_of_either_width_are_shown(tmp_path, wide):
    table = create(
        tmp_path,
        options=VECTORS
        | {"deletion-vectors.bitmap64": wide, "num-sorted-run.compaction-trigger": "9"},
    )
    table.upsert(rows(*range(30)))
    table.upsert(rows(*range(5, 10), text="b"))
    assert_shown(table)
    deletes = face(table).inspect.delete_files().to_pylist()
    assert [file["file_format"] for file in deletes] == ["PUFFIN"]
    assert sum(file["record_count"] for file in deletes) == 5


def test_a_table_without_a_key_shows_all_its_rows_and_those_of_older_snapshots(tmp_path):
    table = create(tmp_path, key=(), options=IN_TABLE)
    table.append(rows(*range(10)))
    first = table.latest_snapshot().id
    table.append(rows(*range(10, 15)))
    assert_shown(table)
    table.tags.create("two")
    shown = face(table)
    assert shown.scan(snapshot_id=first).to_arrow().num_rows == 10
    assert shown.scan(snapshot_id=shown.metadata.refs["two"].snapshot_id).to_arrow().num_rows == 15
    assert shown.metadata.format_version == 2
    table.tags.delete("two")
    assert set(face(table).metadata.refs) == {"main"}


def test_a_table_without_vectors_shows_its_last_full_compaction(tmp_path):
    table = create(tmp_path, options=IN_TABLE | {"write-only": "true"})
    table.upsert(rows(*range(10)))
    assert face(table).scan().to_arrow().num_rows == 0
    table.compact(full=True)
    compacted = in_order(table.to_arrow())
    assert_shown(table)
    table.upsert(rows(2, 20, text="b"))
    assert in_order(face(table).scan().to_arrow().cast(COLUMNS)) == compacted
    table.compact(full=True)
    assert_shown(table)


PARTITION_TYPES = [
    (pa.string(), ["a", "b/c", None, "ü ?#"]), (pa.date32(), [dt.date(1969, 5, 5), dt.date(2024, 2, 29), None]),
    (pa.int8(), [-3, 4]), (pa.int64(), [1, -(1 << 40)]), (pa.bool_(), [True, False, None]),
    (pa.decimal128(9, 2), [Decimal("-1.25"), Decimal("700000.00")]), (pa.decimal128(38, 3), [Decimal("-5.5"), Decimal(10) ** 30]),
    (pa.timestamp("us"), [NOON, NOON - dt.timedelta(days=30_000)]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), PARTITION_TYPES, ids=lambda value: str(value)[:16])
def test_partitions_of_every_type_are_read_and_pruned(tmp_path, kind, values):
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("p", kind), pa.field("v", pa.int32())])
    table = create(tmp_path, schema, key=(), partitioned_by="p", options=IN_TABLE)
    given = [{"k": i, "p": values[i % len(values)], "v": i} for i in range(3 * len(values))]
    table.append(pa.Table.from_pylist(given, schema))
    table.append(pa.Table.from_pylist(given[:2], schema))
    assert_shown(table)
    known = sorted(value for value in values if value is not None)
    literal = known[-1].isoformat() if isinstance(known[-1], dt.date) else known[-1]
    found = face(table).scan(row_filter=GreaterThanOrEqual("p", literal)).to_arrow()
    assert sorted(found["k"].to_pylist()) == sorted(
        each["k"] for each in given + given[:2] if each["p"] == known[-1]
    )


def test_columns_go_by_their_ids_when_the_schema_changes(tmp_path):
    schema = pa.schema(
        [pa.field("k", pa.int64()), pa.field("v", pa.int32()), pa.field("old", pa.string())]
    )
    table = create(tmp_path, schema)
    table.upsert([{"k": i, "v": i, "old": "x"} for i in range(5)])
    table.alter(lsm.RenameColumn("v", "w"), lsm.AddColumn("s", pa.string()))
    assert set(face(table).schema().column_names) == {"k", "w", "old", "s"}
    table = lsm.open_table(table.location)
    table.alter(
        lsm.ChangeType("w", pa.int64()), lsm.DropColumn("old"), lsm.MoveColumn("s", after="k")
    )
    table = lsm.open_table(table.location)
    table.upsert([{"k": 2, "w": 1 << 40, "s": "new"}])
    assert_shown(table)
    table.alter(lsm.AddColumn("old", pa.string()))  # the name of another column before
    table = lsm.open_table(table.location)
    assert_shown(table)
    assert face(table).scan().to_arrow()["old"].null_count == 5


SMALL = pa.schema(
    [pa.field("k", pa.int64()), pa.field("p", pa.string()), pa.field("v", pa.int64())]
)


def small(*keys: int, value: int = 0) -> pa.Table:
    return pa.Table.from_pylist(
        [{"k": key, "p": "ab"[key % 2], "v": value + key} for key in keys], SMALL
    )


def shown_rows(table: lsm.Table) -> list[str]:
    columns = table.schema.arrow
    return in_order(face(table).scan().to_arrow().select(columns.names).cast(columns))


def test_the_option_is_set_and_given_up_on_a_living_table(tmp_path):
    table = create(tmp_path, SMALL, options={"deletion-vectors.enabled": "true"})
    table.upsert(small(*range(5)))
    assert table.inspect.iceberg().metadata_location is None
    table.alter(lsm.SetOption(STORAGE, "table-location"))
    table = lsm.open_table(table.location)
    assert shown_rows(table) == in_order(table.to_arrow())
    table.alter(lsm.SetOption(STORAGE, "hadoop-catalog"))
    assert not (Path(table.location) / "metadata").exists()
    table = lsm.open_table(table.location)
    assert metadata_folder(table) == tmp_path / "iceberg" / "shop" / "orders" / "metadata"
    assert shown_rows(table) == in_order(table.to_arrow())
    table.alter(lsm.SetOption(STORAGE, "disabled"))
    assert not list((tmp_path / "iceberg").rglob("*.json"))
    lsm.open_table(table.location).upsert(small(9))


def test_a_renamed_table_is_shown_where_it_lies_and_a_dropped_one_no_more(tmp_path):
    table = create(tmp_path, SMALL, options=VECTORS | {STORAGE: "hadoop-catalog"})
    table.upsert(small(*range(5)))
    with lsm.open_catalog(str(tmp_path)) as catalog:
        table = catalog.rename_table("shop.orders", "shop.sales")
        assert not list((tmp_path / "iceberg" / "shop" / "orders").rglob("*.json"))
        assert shown_rows(table) == in_order(table.to_arrow())
        catalog.drop_table("shop.sales")
    assert not list((tmp_path / "iceberg").rglob("*.json"))


def test_a_table_renamed_with_its_metadata_shows_files_where_they_lie(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(5)))
    table.upsert(small(7))
    with lsm.open_catalog(str(tmp_path)) as catalog:
        table = catalog.rename_table("shop.orders", "shop.sales")
    table.upsert(small(2, value=10))
    assert shown_rows(table) == in_order(table.to_arrow())


def test_vectors_count_wherever_the_table_lies(tmp_path):
    """Puffin files name data files by their location, which a rename and a link change."""
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(2000)))
    table.upsert(small(2, value=7))
    with lsm.open_catalog(str(tmp_path)) as catalog:
        table = catalog.rename_table("shop.orders", "shop.sales")
    assert shown_rows(table) == in_order(table.to_arrow())
    table.upsert(small(3, value=7))
    assert shown_rows(table) == in_order(table.to_arrow())
    (tmp_path / "link").symlink_to(tmp_path)
    linked = lsm.open_table(str(tmp_path / "link" / "shop.db" / "sales"))
    linked.upsert(small(4, value=7))
    assert shown_rows(linked) == in_order(linked.to_arrow())
    table.maintenance.sync_iceberg(rebuild=True)
    assert shown_rows(table) == in_order(table.to_arrow())


@pytest.mark.parametrize(("before", "after"), [("3", "2"), ("2", "5")])
def test_another_number_of_levels_shows_the_last_full_compaction_still(tmp_path, before, after):
    trigger = "num-sorted-run.compaction-trigger"
    options = IN_TABLE | {"merge-engine": "partial-update", trigger: before, "bucket": "1"}
    table = create(tmp_path, SMALL, options=options)
    table.upsert(small(*range(5000)))
    table.compact(full=True)
    shown = shown_rows(table)
    assert len(shown) == 5000
    table.alter(lsm.SetOption(trigger, after))
    assert shown_rows(table) == shown
    for value in range(4):
        table.upsert([{"k": 1, "p": None, "v": 50 + value}])
        table.compact()
        rows = shown_rows(table)
        assert rows in (shown, in_order(table.to_arrow()))
    table.compact(full=True)
    assert shown_rows(table) == in_order(table.to_arrow())
    table.upsert(small(7, value=9))
    table.compact(full=True)
    assert shown_rows(table) == in_order(table.to_arrow())


@pytest.mark.parametrize(
    ("kind", "narrow", "value"),
    [
        (pa.int32(), "SMALLINT", 70_000),
        (pa.string(), "VARCHAR(2)", "abcd"),
        (
            pa.timestamp("us"),
            "TIMESTAMP(3)",
            dt.datetime.fromisoformat("2024-01-01T00:00:00.123456"),
        ),
    ],
)
def test_a_narrower_type_waits_for_a_compaction(tmp_path, kind, narrow, value):
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    options = VECTORS | {"alter-column.lossy-casts": "true"}
    table = create(tmp_path, schema, options=options)
    table.upsert([{"k": 1, "v": value}])
    table.alter(lsm.ChangeType("v", narrow))
    state = table.inspect.iceberg()
    assert "holds column 'v' in a type" in state.problem
    table.upsert([{"k": 2, "v": None}])
    table.compact(full=True)
    assert table.inspect.iceberg().lag == 0
    assert shown_rows(table) == in_order(table.to_arrow())


@pytest.mark.parametrize("storage", ["disabled", "hadoop-catalog"])
def test_a_version_that_is_written_while_the_option_changes_stays_nowhere(
    tmp_path, monkeypatch, storage
):
    table = create(tmp_path, SMALL)
    table.upsert(small(1))
    folder = metadata_folder(table)
    publish = iceberg.IcebergStore.publish

    def altered_before(store, metadata):
        monkeypatch.setattr(iceberg.IcebergStore, "publish", publish)
        table.alter(lsm.SetOption(STORAGE, storage))
        return publish(store, metadata)

    monkeypatch.setattr(iceberg.IcebergStore, "publish", altered_before)
    lsm.open_table(table.location).upsert(small(2))
    assert not folder.exists()
    with lsm.open_catalog(str(tmp_path)) as catalog:
        table = catalog.table("shop.orders")
        if storage == "hadoop-catalog":
            assert table.inspect.iceberg().lag == 0
            assert shown_rows(table) == in_order(table.to_arrow())


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_death_before_the_hint_holds_nobody_up(tmp_path, monkeypatch, is_torn):
    table = create(tmp_path, SMALL)
    table.upsert(small(1))
    for number in range(5):  # versions run ahead of snapshots
        table.tags.create(f"t{number}")
    with monkeypatch.context() as patched:
        patched.setattr(iceberg.IcebergStore, "_name", lambda *_: None)
        table.upsert(small(2))
    if is_torn:
        newest = max(
            metadata_folder(table).glob("v*.metadata.json"),
            key=lambda path: len(path.name) * 1000 + path.stat().st_mtime_ns,
        )
        newest.write_bytes(newest.read_bytes()[:100])
    table.upsert(small(3))
    assert table.inspect.iceberg().lag == 0
    assert shown_rows(table) == in_order(table.to_arrow())


def test_commits_that_died_before_their_metadata_are_caught_up(tmp_path, monkeypatch, caplog):
    table = create(tmp_path, SMALL, options=VECTORS)
    table.upsert(small(*range(5)))
    before = shown_rows(table)

    def die(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(iceberg.IcebergStore, "write", die)
        for value in (10, 20):
            table.upsert(small(1, 6, value=value))
    assert "lags behind" in caplog.text
    assert shown_rows(table) == before
    state = table.inspect.iceberg()
    assert state.lag > 0
    assert state.newest_snapshot_id == table.latest_snapshot().id
    assert table.maintenance.sync_iceberg().lag == 0
    assert shown_rows(table) == in_order(table.to_arrow())


def test_metadata_that_somebody_damaged_is_written_anew_by_the_next_commit(tmp_path):
    table = create(tmp_path, SMALL, options=VECTORS)
    table.upsert(small(*range(5)))
    for number, damage in enumerate(("hint", "version", "manifests")):
        if damage == "hint":
            (metadata_folder(table) / "version-hint.text").write_text("none")
        elif damage == "version":
            Path(metadata_file(table)).write_text('{"format-version": 3')
        else:
            iceberg._decoded.clear()
            for manifest in metadata_folder(table).glob("*-m*.avro"):
                manifest.write_bytes(b"Obj\x01")
        table.upsert(small(number, value=100))
        table.compact(full=True)
        assert shown_rows(table) == in_order(table.to_arrow()), damage


def flipped(path: Path) -> None:
    """Change one byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_every_edited_file_of_the_metadata_is_named_and_hurts_no_row(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(20)))
    table.tags.create("start")
    table.branches.create("work", tag="start")
    table.upsert(small(1, value=9))
    table.branch("work").upsert(small(3, value=5))
    expected = in_order(table.to_arrow())
    folder = metadata_folder(table)
    current = Path(metadata_file(table)).name
    newest = {Path(location).name for location in newest_files(table)}
    # Versions before the newest are for readers that have opened one.
    names = {
        path.name
        for path in folder.iterdir()
        if not path.name[1:2].isdigit() or path.name[0] != "v"
    }
    names.add(current)
    older_list = Path(face(table).snapshot_by_name("start").manifest_list).read_bytes()
    (vectors,) = (name for name in newest if name.endswith(".puffin"))
    (newest_list,) = (name for name in newest if name.startswith("snap-"))
    edits = [(name, cut) for name in sorted(names)]
    edits += [(vectors, flipped), (newest_list, lambda path: path.write_bytes(older_list))]
    for name, edit in edits:
        content = (folder / name).read_bytes()
        edit(folder / name)
        (warning,) = iceberg_state.warnings_of(table.session)
        assert "lsm iceberg sync" in warning, name
        (folder / name).write_bytes(content)
    assert in_order(table.to_arrow()) == expected
    assert table.verify().warnings == ()
    cut(folder / current)
    assert table.verify().is_clean
    table.upsert(small(7, value=9))
    assert shown_rows(table) == in_order(table.to_arrow())
    assert branch_rows(table, "work") == in_order(table.branch("work").to_arrow())


def newest_files(table: lsm.Table) -> set[str]:
    """Return the locations of the files that the newest snapshot of the metadata is read from."""
    shown = face(table)
    snapshot = shown.current_snapshot()
    manifests = snapshot.manifests(shown.io)
    vectors = shown.inspect.delete_files()["file_path"].to_pylist()
    return {snapshot.manifest_list, *(each.manifest_path for each in manifests), *vectors}


def test_a_commit_of_another_engine_into_the_folder_is_named_and_replaced(tmp_path):
    table = create(tmp_path, SMALL, key=(), options=IN_TABLE)
    table.append(small(1))
    elsewhere = SqlCatalog("x", uri=f"sqlite:///{tmp_path}/x.db", warehouse=str(tmp_path))
    elsewhere.create_namespace("other")
    foreign = elsewhere.register_table("other.orders", metadata_file(table))
    foreign.append(small(77).cast(foreign.schema().as_arrow()))
    # As an engine commits that keeps versions in a folder.
    version = int((metadata_folder(table) / "version-hint.text").read_text()) + 1
    content = Path(foreign.metadata_location.removeprefix("file://")).read_bytes()
    (metadata_folder(table) / f"v{version}.metadata.json").write_bytes(content)
    (metadata_folder(table) / "version-hint.text").write_text(str(version))
    state = table.inspect.iceberg()
    assert "another engine has written it" in state.problem
    assert state.lag == table.latest_snapshot().id
    (warning,) = table.verify().warnings
    assert "lsm iceberg sync" in warning
    table.append(small(2))
    assert sorted(table.to_arrow()["k"].to_pylist()) == [1, 2]
    assert_in_step(table)
    assert table.verify().warnings == ()


class ReadOnlyFolder:
    """Refuses every change of the metadata's files, as a folder without the right to write does."""

    def __init__(self, file_io: FileIO) -> None:
        self.file_io = file_io

    def __getattr__(self, name: str) -> object:
        if name in ("write_new", "publish", "change_if_unchanged", "delete", "delete_many"):
            raise PermissionError(13, "Permission denied", "metadata")
        return getattr(self.file_io, name)


def test_a_metadata_folder_that_cannot_be_written_holds_no_commit_up(tmp_path, monkeypatch, caplog):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(5)))
    shown = shown_rows(table)
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "undurable", ReadOnlyFolder)
        table.upsert(small(1, value=9))
        assert "Permission denied" in caplog.text
        assert table.inspect.iceberg().lag == 2
        assert shown_rows(table) == shown
        with pytest.raises((lsm.LsmError, OSError), match="Permission denied"):
            table.maintenance.sync_iceberg()
        assert "lsm iceberg sync" in table.verify().warnings[0]
    table.maintenance.sync_iceberg()
    assert_in_step(table)


def test_a_rollback_is_shown_and_ids_that_are_used_again_show_the_new_rows(tmp_path):
    table = create(tmp_path, SMALL, options=VECTORS)
    table.upsert(small(*range(5)))
    target = table.latest_snapshot().id
    table.upsert(small(1, 2, value=50))
    table.rollback_to(target)
    table.maintenance.sync_iceberg()
    assert shown_rows(table) == in_order(table.to_arrow())
    table.upsert(small(3, value=70))
    assert shown_rows(table) == in_order(table.to_arrow())
    ids = [shown.snapshot_id for shown in face(table).metadata.snapshots]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("has_tag", [False, True])
def test_a_repair_of_the_newest_snapshot_is_shown(tmp_path, has_tag):
    table = create(tmp_path, SMALL, options=VECTORS)
    table.upsert(small(*range(5)))
    table.upsert(small(1, 2, value=50))
    if has_tag:
        table.tags.create("second")
    table.upsert(small(7, value=70))
    newest = tmp_path / f"shop.db/orders/snapshot/snapshot-{table.latest_snapshot().id}"
    newest.write_text("{")
    table = lsm.open_catalog(str(tmp_path)).table("shop.orders")
    table.maintenance.repair_latest_snapshot(dry_run=False)
    rows = in_order(table.to_arrow())
    assert len(rows) == 5
    assert shown_rows(table) == rows
    assert table.inspect.iceberg().lag == 0
    assert not table.verify().warnings
    table.upsert(small(8, value=80))
    assert shown_rows(table) == in_order(table.to_arrow())


def test_a_repair_of_the_oldest_snapshots_is_shown(tmp_path):
    table = create(tmp_path, SMALL, options=VECTORS)
    for key in range(4):
        table.upsert(small(key))
    snapshots = tmp_path / "shop.db/orders/snapshot"
    (snapshots / f"snapshot-{table.snapshots()[1].id}").write_text("{")
    table = lsm.open_catalog(str(tmp_path)).table("shop.orders")
    table.maintenance.repair_earliest_snapshot(dry_run=False)
    ids = {snapshot.id for snapshot in table.snapshots()}
    assert {shown.snapshot_id for shown in face(table).metadata.snapshots} <= ids
    assert shown_rows(table) == in_order(table.to_arrow())
    assert not table.verify().warnings


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_removal_of_orphans_takes_no_file_that_the_metadata_names(tmp_path, monkeypatch, version):
    """A branch that died away beside the metadata is shown no more before its files go."""
    table = create(tmp_path, SMALL, options=VECTORS | {"metadata.iceberg.format-version": version})
    table.upsert(small(*range(300)))
    table.upsert(small(1, 2, value=1))
    table.tags.create("first")
    table.branches.create("work", tag="first")
    table.branch("work").upsert(small(3, value=2))
    assert "work" in face(table).metadata.refs
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "follow", lambda *_, **__: None)
        table.branches.delete("work")
    assert "work" in face(table).metadata.refs
    table.maintenance.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert "work" not in face(table).metadata.refs
    assert_in_step(table)
    assert not table.verify().warnings


@pytest.mark.parametrize("version", ["2", "3"])
def test_what_an_undo_gives_back_is_shown_again(tmp_path, version):
    """Trash holds what a rollback and an expiry took; the metadata follows the rollback, the expiry and the undo."""
    options = VECTORS | {
        "metadata.iceberg.format-version": version,
        "maintenance.trash-retained": "1 d",
    }
    table = create(tmp_path, SMALL, options=options)
    table.upsert(small(*range(300)))
    table.upsert(small(1, 2, value=1))
    newest = table.latest_snapshot().id
    rows_of_then = shown_rows(table)
    table.rollback_to(2)
    assert_in_step(table)
    assert shown_rows(table) != rows_of_then
    table.maintenance.undo()
    assert table.latest_snapshot().id == newest
    assert_in_step(table)
    assert shown_rows(table) == rows_of_then
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert_in_step(table)
    assert len(face(table).snapshots()) == 1
    table.maintenance.undo()
    assert_in_step(table)
    assert not table.verify().warnings


def test_snapshots_expire_with_those_of_the_table_and_files_go_that_no_version_names(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(iceberg, "_SWEEP_AGE_MILLIS", -60_000)
    options = IN_TABLE | {
        "metadata.iceberg.previous-versions-max": "2",
        "snapshot.num-retained.min": "1",
    }
    table = create(tmp_path, SMALL, key=(), options=options)
    for key in range(6):
        table.append(small(key))
    table.tags.create("kept", snapshot_id=2)
    for _ in range(3):
        table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
        table.maintenance.sync_iceberg()
        table.append(small(10))
    shown = face(table)
    assert shown.scan(snapshot_id=shown.metadata.refs["kept"].snapshot_id).to_arrow().num_rows == 2
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    names = {path.name for path in metadata_folder(table).iterdir()}
    assert len([name for name in names if name.endswith(".metadata.json")]) == 3
    referenced = {Path(each.manifest_list).name for each in face(table).metadata.snapshots}
    assert referenced <= names
    assert len([name for name in names if name.startswith("snap-")]) < 9
    assert shown_rows(table) == in_order(table.to_arrow())


def test_a_tag_of_an_expired_snapshot_stays_when_the_schema_changes(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(1))
    table.tags.create("kept")
    table.upsert(small(2))
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    table.alter(lsm.AddColumn("more", "STRING"))
    table.upsert(small(3))
    shown = face(table)
    snapshot = shown.snapshot_by_name("kept")
    assert snapshot is not None
    assert shown.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["k"].to_pylist() == [1]


def test_a_rebuild_and_an_option_that_comes_later_show_tags_of_older_snapshots(tmp_path):
    table = create(tmp_path, SMALL, options={})
    table.upsert(small(1, 2))
    table.compact(full=True)
    table.tags.create("first")
    table.alter(lsm.AddColumn("w", "INT"))
    table = opened(tmp_path)
    table.upsert(pa.table({"k": [2], "p": ["b"], "v": [7], "w": [1]}, table.schema.arrow))
    table.alter(lsm.SetOption(STORAGE, "table-location"))
    for _ in range(2):
        table = opened(tmp_path)
        shown = face(table)
        tagged = shown.scan(snapshot_id=shown.snapshot_by_name("first").snapshot_id).to_arrow()
        expected = table.scan(tag="first").to_arrow()
        assert in_order(tagged.cast(expected.schema)) == in_order(expected)
        table.maintenance.sync_iceberg(rebuild=True)
    # The next commit goes on from there.
    table.upsert(pa.table({"k": [3], "p": ["b"], "v": [7], "w": [1]}, table.schema.arrow))
    assert face(table).snapshot_by_name("first").snapshot_id == tagged_id(table, "first")


def tagged_id(table: lsm.Table, name: str) -> int:
    return next(tag.snapshot.id for tag in table.tags.list() if tag.name == name)


def test_a_tag_that_readers_would_misread_is_left_out_and_named(tmp_path):
    table = create(tmp_path, {"k": "BIGINT", "t": "TIME(3)"}, options={})
    table.upsert([{"k": 1, "t": dt.time(12)}])
    table.compact(full=True)
    table.tags.create("timed")
    table.alter(lsm.DropColumn("t"))
    table = opened(tmp_path)
    table.upsert([{"k": 2}])
    table.alter(lsm.SetOption(STORAGE, "table-location"))
    state = opened(tmp_path).inspect.iceberg()
    assert "TIME" in state.tags_left_out["timed"]
    assert "tag 'timed' is left out" in str(state)


def test_small_manifests_are_merged_and_others_stay(tmp_path):
    options = IN_TABLE | {
        "metadata.iceberg.compaction.max.file-num": "4",
        "compaction.min.file-num": "100",
    }
    table = create(tmp_path, SMALL, key=(), options=options)
    counts = []
    for key in range(10):
        table.append(small(key))
        shown = face(table)
        counts.append(len(shown.current_snapshot().manifests(shown.io)))
    assert max(counts) == 4
    assert shown_rows(table) == in_order(table.to_arrow())
    entries = shown.inspect.entries()
    assert sorted(entries["snapshot_id"].to_pylist()) == list(range(1, 11))


@pytest.mark.parametrize(
    ("schema", "options", "name"),
    [
        (pa.schema([("k", pa.int64()), ("t", pa.time32("ms"))]), VECTORS, "'t'"),
        (pa.schema([("k", pa.int64()), ("n", pa.timestamp("ns"))]), VECTORS, "'n'"),
        (pa.schema([("k", pa.int64()), ("m", pa.map_(pa.map_(pa.int32(), pa.int32()), pa.list_(pa.int32())))]),
         VECTORS, "field id"),
        (SMALL, VECTORS | {"file.format": "orc"}, "file.format"),
        (SMALL, VECTORS | {STORAGE: "hive-catalog"}, STORAGE),
        (SMALL, VECTORS | {"metadata.iceberg.uri": "thrift://host"}, "metadata.iceberg.uri"),
        (SMALL, VECTORS | {"metadata.iceberg.manifest-compression": "zstd"}, "manifest-compression"),
    ],
    ids=str,
)  # fmt: skip
def test_what_readers_would_misread_is_refused_by_name(tmp_path, schema, options, name):
    with pytest.raises((lsm.UnsupportedError, lsm.InvalidOptionError), match=name):
        create(tmp_path, schema, options=options)
    assert not list(tmp_path.rglob("schema-0"))


def test_a_commit_decodes_the_manifests_of_files_that_go_and_no_others(tmp_path, monkeypatch):
    """Of a table of 100,000 files, whose entries are too many to be kept, others would take seconds."""
    table = create(tmp_path, SMALL, key=(), partitioned_by="p", options=IN_TABLE)
    for name in "abcdef":
        table.append([{"k": 1, "p": name, "v": 1}])
    table.overwrite([{"k": 2, "p": "a", "v": 2}], {"p": "a"})
    iceberg._decoded.clear()
    names = []

    def counted(data: bytes, name: str) -> list:
        names.append(name)
        return read_records(data, name)

    monkeypatch.setattr(iceberg, "read_records", counted)
    table.overwrite([{"k": 2, "p": "b", "v": 2}], {"p": "b"})
    # The list, the manifest of the partition, and the one that was written since the others were decoded.
    assert len(names) == 3
    assert_shown(table)


@pytest.mark.parametrize(
    "change",
    [
        lsm.SetOption("metadata.iceberg.format-version", "2"),
        lsm.RemoveOption("metadata.iceberg.format-version"),
    ],
)
def test_the_format_version_goes_back_only_by_new_metadata(tmp_path, change):
    options = IN_TABLE | {"metadata.iceberg.format-version": "3"}
    table = create(tmp_path, SMALL, key=(), options=options)
    table.append(small(1))
    with pytest.raises(lsm.InvalidOptionError, match=r"format-version.*below 3.*disabled"):
        table.alter(change)
    assert face(table).metadata.format_version == 3
    table.alter(lsm.SetOption(STORAGE, "disabled"), change)
    opened(tmp_path).alter(lsm.SetOption(STORAGE, "table-location"))
    assert face(opened(tmp_path)).metadata.format_version == 2
    assert_shown(opened(tmp_path))


def test_a_type_that_iceberg_does_not_promote_waits_for_a_compaction(tmp_path):
    table = create(tmp_path, SMALL, options=IN_TABLE)
    table.upsert(small(*range(3)))
    table.compact(full=True)
    table.alter(lsm.ChangeType("v", pa.string()))
    table = lsm.open_table(table.location)
    state = table.inspect.iceberg()
    assert "'v'" in state.problem
    with pytest.raises(lsm.UnsupportedError, match="full compaction"):
        table.maintenance.sync_iceberg()
    table.upsert(small(1).set_column(2, "v", pa.array(["x"])))
    table.compact(full=True)
    assert table.inspect.iceberg().problem is None
    assert shown_rows(table) == in_order(table.to_arrow())


# -- Compatibility in one option, lag, files of others ---------------------------------------------

COMPATIBLE = {"iceberg-compatibility.enabled": "true"}


def test_one_option_has_other_engines_read_each_commit(tmp_path):
    table = create(tmp_path, SMALL, options=COMPATIBLE)
    texts = table.schema.options.texts
    assert texts[STORAGE] == "table-location"
    assert texts["deletion-vectors.enabled"] == "true"
    assert min(field.id for field in table.schema.fields) == 1
    for value in range(3):
        table.upsert(small(*range(5), value=value))
        assert shown_rows(table) == in_order(table.to_arrow())
    with pytest.raises(lsm.InvalidOptionError, match=STORAGE):
        table.alter(lsm.SetOption(STORAGE, "disabled"))
    table.alter(
        lsm.RemoveOption("iceberg-compatibility.enabled"), lsm.SetOption(STORAGE, "disabled")
    )


@pytest.mark.parametrize(
    ("key", "more"),
    [
        (STORAGE, {STORAGE: "disabled"}),
        ("deletion-vectors.enabled", {"deletion-vectors.enabled": "false"}),
        ("deletion-vectors.merge-on-read", {"deletion-vectors.merge-on-read": "true"}),
        ("file.format", {"file.format": "avro"}),
    ],
)
def test_options_that_contradict_compatibility_are_refused(tmp_path, key, more):
    with pytest.raises(lsm.InvalidOptionError, match=f"{key}.*iceberg-compatibility.enabled"):
        create(tmp_path, SMALL, options=COMPATIBLE | more)


def test_compatibility_is_set_on_a_table_that_can_have_it(tmp_path):
    table = create(tmp_path, SMALL, key=(), options={})
    table.append(small(1, 2))
    table.alter(lsm.SetOption("iceberg-compatibility.enabled", "true"))
    assert shown_rows(table) == in_order(table.to_arrow())
    with lsm.open_catalog(str(tmp_path)) as catalog:
        keyed = catalog.create_table("shop.keyed", SMALL, "k")
        keyed.upsert(small(1))
        with pytest.raises(lsm.InvalidOptionError, match="max-lag"):
            keyed.alter(lsm.SetOption("iceberg-compatibility.enabled", "true"))
        first_row = catalog.create_table(
            "shop.first", SMALL, "k", options=COMPATIBLE | {"merge-engine": "first-row"}
        )
    for value in range(3):
        first_row.upsert(small(*range(value, value + 3), value=value))
        assert shown_rows(first_row) == in_order(first_row.to_arrow())


def test_a_compaction_is_full_once_commits_wait_for_longer_than_the_option_allows(tmp_path):
    options = IN_TABLE | {"metadata.iceberg.max-lag": "2", "bucket": "2"}
    table = create(tmp_path, SMALL, options=options)
    for number in range(7):
        table.upsert(small(number, number + 1, value=number))
        state = table.inspect.iceberg()
        assert state.waiting_commits <= 2
        if not state.hidden_files:
            assert shown_rows(table) == in_order(table.to_arrow())
    assert any("COMPACT" in str(snapshot.commit_kind) for snapshot in table.snapshots())


def test_upkeep_brings_a_table_up_whose_writers_do_not_compact(tmp_path):
    options = IN_TABLE | {"metadata.iceberg.max-lag": "1", "write-only": "true"}
    table = create(tmp_path, SMALL, options=options)
    table.upsert(small(*range(4)))
    table.compact(full=True)
    table.upsert(small(1, value=9))
    assert not table.inspect.due_buckets()
    table.upsert(small(2, value=9))
    assert table.inspect.iceberg().waiting_commits == 2
    assert table.inspect.due_buckets()
    (finding,) = [each for each in lsm.doctor(table).findings if each.kind == "iceberg"]
    assert "2 commits" in finding.what
    assert finding.command == ("compact", finding.table, "--full")
    table.compact()
    assert table.inspect.iceberg().waiting_commits == 0
    assert shown_rows(table) == in_order(table.to_arrow())
    assert "iceberg" not in {each.kind for each in lsm.doctor(table).findings}


def test_rows_that_wait_for_longer_than_a_duration_are_compacted(tmp_path):
    options = IN_TABLE | {"metadata.iceberg.max-lag": "1 h", "write-only": "true"}
    table = create(tmp_path, SMALL, options=options)
    table.upsert(small(1))
    assert not table.inspect.due_buckets()
    table.alter(lsm.SetOption("metadata.iceberg.max-lag", "1 ms"))
    table = lsm.open_table(table.location)
    assert table.inspect.due_buckets()
    table.compact()
    assert shown_rows(table) == in_order(table.to_arrow())


def strip_field_ids(table: lsm.Table) -> None:
    """Make the data files those of a writer that leaves field ids out."""
    for path in Path(table.location).rglob("data-*.parquet"):
        columns = pq.read_table(path)
        plain = [pa.field(field.name, plain_type(field.type)) for field in columns.schema]
        pq.write_table(columns.cast(pa.schema(plain)).replace_schema_metadata(None), path)


def plain_type(kind: pa.DataType) -> pa.DataType:
    return pa.list_(plain_type(kind.value_type)) if pa.types.is_list(kind) else kind


LISTS = pa.schema([pa.field("k", pa.int64()), pa.field("l", pa.list_(pa.int32()))])


@pytest.fixture
def unchecked(monkeypatch):
    """Files as those of another client: nobody knows their checksums."""
    writer = lsm_writers.metas_of
    monkeypatch.setattr(
        lsm_writers, "metas_of",
        lambda *given: [dc.replace(meta, checksum=None, footer_checksum=None) for meta in writer(*given)],
    )  # fmt: skip


def test_files_without_ids_of_members_are_named_by_the_doctor_and_mended_by_a_compaction(
    tmp_path, monkeypatch
):
    table = create(tmp_path, LISTS, options={"bucket": "1"})
    with monkeypatch.context() as patched:
        patched.setattr(file_columns, "_type_with_ids", lambda kind, *_: arrow_type(kind))
        table.upsert([{"k": 1, "l": [1, 2]}])
        table.compact(full=True)
    table = lsm.open_table(table.location)
    (finding,) = [
        each for each in lsm.doctor(table, depth="deep").findings if each.kind == "iceberg"
    ]
    assert "1 file without field ids" in finding.what
    table.alter(lsm.SetOption(STORAGE, "table-location"))
    table = lsm.open_table(table.location)
    assert "field ids of members" in table.inspect.iceberg().problem
    (finding,) = [each for each in lsm.doctor(table).findings if each.kind == "iceberg"]
    assert finding.command[0] == "compact"
    table.compact(full=True)
    assert table.inspect.iceberg().problem is None
    assert shown_rows(table) == in_order(table.to_arrow())


@pytest.mark.parametrize("key", [("k",), ()])
def test_files_without_any_field_id_are_read_by_the_names_of_columns(tmp_path, unchecked, key):
    table = create(tmp_path, LISTS, key=key, options=IN_TABLE | {"bucket": "1" if key else "-1"})
    (table.upsert if key else table.append)([{"k": 1, "l": [1, 2]}])
    table.compact(full=True)
    strip_field_ids(table)
    table = lsm.open_table(table.location)
    table.maintenance.sync_iceberg(rebuild=True)
    assert shown_rows(table) == in_order(table.to_arrow())
    table.alter(lsm.RenameColumn("l", "m"))
    table = lsm.open_table(table.location)
    assert "another name for column 'm'" in table.inspect.iceberg().problem
    table.compact(full=True)
    assert shown_rows(table) == in_order(table.to_arrow())
    assert table.inspect.iceberg().problem is None


# -- A sync that others overtake -------------------------------------------------------------------


def before_publishing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Have something happen while the next sync has all written but its version."""
    publish = iceberg.IcebergStore.publish

    def overtaken(store, metadata):
        monkeypatch.setattr(iceberg.IcebergStore, "publish", publish)
        act()
        return publish(store, metadata)

    monkeypatch.setattr(iceberg.IcebergStore, "publish", overtaken)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def opened(tmp_path: Path) -> lsm.Table:
    return lsm.open_catalog(str(tmp_path)).table("shop.orders")


def assert_in_step(table: lsm.Table) -> None:
    assert table.inspect.iceberg().lag == 0
    assert shown_rows(table) == in_order(table.to_arrow())


@pytest.mark.parametrize("commits_again", [False, True])
def test_a_sync_beside_a_rollback_shows_no_row_that_was_rolled_back(
    tmp_path, monkeypatch, commits_again
):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(5)))
    target = table.latest_snapshot().id
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "follow", lambda *_, **__: None)
        table.upsert(small(7, value=70))

    def roll_back() -> None:
        other = opened(tmp_path)
        other.rollback_to(target)
        if commits_again:
            other.upsert(small(8, value=80))

    before_publishing(monkeypatch, roll_back)
    table.maintenance.sync_iceberg()
    assert_in_step(opened(tmp_path))
    assert_in_step(opened(tmp_path))


@pytest.mark.parametrize("storage", ["table-location", "hadoop-catalog"])
@pytest.mark.parametrize("is_before_manifests", [False, True])
def test_a_sync_beside_a_drop_leaves_nothing(tmp_path, monkeypatch, storage, is_before_manifests):
    table = create(tmp_path, SMALL, options=VECTORS | {STORAGE: storage})
    table.upsert(small(1))

    def drop() -> None:
        with lsm.open_catalog(str(tmp_path)) as catalog:
            catalog.drop_table("shop.orders")

    if is_before_manifests:
        run = iceberg.MetadataSync.run

        def dropped_before(sync, **given):
            monkeypatch.setattr(iceberg.MetadataSync, "run", run)
            drop()
            return run(sync, **given)

        monkeypatch.setattr(iceberg.MetadataSync, "run", dropped_before)
    else:
        before_publishing(monkeypatch, drop)
    table.upsert(small(2))
    assert files_below(tmp_path / "iceberg" / "shop" / "orders") == []
    assert files_below(tmp_path / "shop.db" / "orders") == []


@pytest.mark.parametrize("storage", ["table-location", "hadoop-catalog"])
def test_a_sync_beside_a_rename_shows_the_table_where_it_lies(tmp_path, monkeypatch, storage):
    table = create(tmp_path, SMALL, options=VECTORS | {STORAGE: storage})
    table.upsert(small(1))

    def rename() -> None:
        with lsm.open_catalog(str(tmp_path)) as catalog:
            catalog.rename_table("shop.orders", "shop.sales")

    before_publishing(monkeypatch, rename)
    table.upsert(small(2))
    assert files_below(tmp_path / "iceberg" / "shop" / "orders") == []
    assert files_below(tmp_path / "shop.db" / "orders") == []
    renamed = lsm.open_catalog(str(tmp_path)).table("shop.sales")
    assert_in_step(renamed)
    renamed.upsert(small(3))
    assert_in_step(renamed)


def test_a_sync_beside_an_expiry_names_no_file_that_went(tmp_path, monkeypatch):
    table = create(tmp_path, SMALL)
    for value in range(4):
        table.upsert(small(*range(5), value=value))

    def expire() -> None:
        other = opened(tmp_path)
        other.upsert(small(6))
        other.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")

    before_publishing(monkeypatch, expire)
    table.upsert(small(7))
    table = opened(tmp_path)
    assert_in_step(table)
    assert table.verify().warnings == ()


def test_a_sync_beside_a_change_of_the_schema_shows_the_new_columns(tmp_path, monkeypatch):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(5)))
    before_publishing(
        monkeypatch,
        lambda: opened(tmp_path).alter(lsm.RenameColumn("v", "w"), lsm.AddColumn("x", "INT")),
    )
    table.upsert(small(7))
    table = opened(tmp_path)
    assert set(face(table).schema().column_names) == {"k", "p", "w", "x"}
    assert_in_step(table)


# -- Branches --------------------------------------------------------------------------------------


def branch_rows(table: lsm.Table, name: str) -> list[str]:
    shown = face(table)
    snapshot = shown.snapshot_by_name(name)
    columns = table.schema.arrow
    rows = shown.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    return in_order(rows.select(columns.names).cast(columns))


@pytest.mark.parametrize("key", [("k",), ()])
def test_a_branch_is_a_branch_to_readers_of_iceberg(tmp_path, key):
    table = create(tmp_path, SMALL, key=key, options=VECTORS)
    write = lambda target, rows: (target.upsert if key else target.append)(rows)  # noqa: E731
    write(table, small(*range(20)))
    table.tags.create("start")
    table.branches.create("work", tag="start")
    assert branch_rows(table, "work") == in_order(table.to_arrow())
    work = table.branch("work")
    for value in (10, 20):
        write(work, small(1, 30, value=value))
        write(table, small(2, 40, value=value))  # the same ids of snapshots, with other rows
        assert branch_rows(table, "work") == in_order(work.to_arrow())
        assert shown_rows(table) == in_order(table.to_arrow())
    versions = table.inspect.iceberg()
    assert set(versions.branches) == {"work"}
    work.rollback_to(work.snapshots()[0].id)
    assert branch_rows(table, "work") == in_order(work.to_arrow())
    write(work, small(7, value=70))
    table.branches.rename("work", "later")
    work = table.branch("later")
    assert branch_rows(table, "later") == in_order(work.to_arrow())
    assert set(face(table).metadata.refs) == {"main", "start", "later"}
    table.maintenance.sync_iceberg(rebuild=True)
    assert branch_rows(table, "later") == in_order(work.to_arrow())
    table.branches.delete("later")
    assert set(face(table).metadata.refs) == {"main", "start"}
    assert len(face(table).metadata.snapshots) == 2


def test_branches_of_one_tag_that_the_table_has_no_more_share_a_snapshot(tmp_path):
    """Ids of snapshots are unique in Iceberg: its own library refuses metadata in which they are not."""
    table = create(tmp_path, SMALL)
    table.upsert(small(1, 2))
    table.upsert(small(3))
    table.tags.create("start")
    for name in ("first", "second"):
        table.branches.create(name, tag="start")
    table.rollback_to(1)
    work = table.branch("second")
    for deleted in (None, "first"):
        if deleted:
            table.branches.delete(deleted)
        ids = [shown.snapshot_id for shown in face(table).snapshots()]
        assert len(ids) == len(set(ids))
        assert branch_rows(table, "second") == in_order(work.to_arrow())
    work.upsert(small(4))
    assert branch_rows(table, "second") == in_order(work.to_arrow())


def test_a_fast_forward_is_shown_with_the_branch(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(5)))
    table.tags.create("start")
    table.branches.create("work", tag="start")
    work = table.branch("work")
    work.upsert(small(1, value=9))
    table.branches.fast_forward("work")
    assert shown_rows(table) == in_order(table.to_arrow())
    assert branch_rows(table, "work") == in_order(work.to_arrow())


def test_a_branch_is_shown_after_its_table_has_expired_the_snapshot_they_shared(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(5)))
    table.tags.create("start")
    table.branches.create("work", tag="start")
    table.upsert(small(1, value=9))
    table.tags.delete("start")
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert branch_rows(table, "work") == in_order(table.branch("work").to_arrow())


def test_a_branch_from_before_the_metadata_is_shown_with_its_commits(tmp_path):
    table = create(tmp_path, SMALL)
    table.alter(
        lsm.SetOption("metadata.iceberg.storage", "disabled"),
        lsm.RemoveOption("iceberg-compatibility.enabled"),
    )
    table = lsm.open_table(table.location)
    table.upsert(small(*range(5)))
    table.tags.create("start")
    table.branches.create("work", tag="start")
    table.alter(
        lsm.SetOption("iceberg-compatibility.enabled", "true"),
        lsm.SetOption("metadata.iceberg.storage", "table-location"),
    )
    work = table.branch("work")
    assert not work.options.writes_iceberg
    work.upsert(small(1, value=9))
    assert branch_rows(table, "work") == in_order(work.to_arrow())


def test_a_branch_with_other_columns_is_left_out_and_named(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(5)))
    table.tags.create("start")
    table.branches.create("work", tag="start")
    table.branch("work").alter(lsm.AddColumn("more", "STRING"))
    table.branch("work").upsert(small(9).append_column("more", pa.array(["x"])))
    state = table.inspect.iceberg()
    assert "columns differ" in state.branches_left_out["work"]
    assert "branch 'work' is left out" in str(state)
    assert "work" not in face(table).metadata.refs
    table.alter(lsm.AddColumn("more", "STRING"))
    assert table.maintenance.sync_iceberg().branches_left_out == {}
    assert branch_rows(lsm.open_table(table.location), "work") == in_order(
        table.branch("work").to_arrow()
    )


def test_a_write_with_vectors_writes_one_version(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(20)))
    before = len(list(metadata_folder(table).glob("v*.metadata.json")))
    table.upsert(small(1, value=5))
    assert table.latest_snapshot().commit_kind is lsm.CommitKind.COMPACT
    assert len(list(metadata_folder(table).glob("v*.metadata.json"))) == before + 1
    assert shown_rows(table) == in_order(table.to_arrow())


# -- By name, in the catalog's database ------------------------------------------------------------


def by_name(folder: Path) -> SqlCatalog:
    return SqlCatalog("jdbc", uri=f"sqlite:///{folder}/catalog.db")


def test_pyiceberg_and_polars_open_a_table_by_its_name(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(5)))
    named = by_name(tmp_path)
    loaded = named.load_table("shop.orders")
    assert loaded.metadata_location == table.inspect.iceberg().metadata_location
    table.upsert(small(1, value=10))
    loaded.refresh()
    assert in_order(loaded.scan().to_arrow().cast(SMALL)) == in_order(table.to_arrow())
    frame = polars.scan_iceberg(loaded, reader_override="pyiceberg")
    assert (
        frame.select(polars.col("v").sum()).collect().item()
        == pc.sum(table.to_arrow()["v"]).as_py()
    )
    assert named.list_tables("shop") == [("shop", "orders")]
    with lsm.open_catalog(str(tmp_path)) as catalog:
        catalog.rename_table("shop.orders", "shop.sales")
        assert named.list_tables("shop") == [("shop", "sales")]
        renamed, table = named.load_table("shop.sales"), catalog.table("shop.sales")
        assert in_order(renamed.scan().to_arrow().cast(SMALL)) == in_order(table.to_arrow())
        catalog.drop_table("shop.sales")
    assert not named.table_exists("shop.sales")


def test_the_row_goes_with_the_option_and_comes_again(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(1))
    named = by_name(tmp_path)
    table.alter(lsm.SetOption(STORAGE, "disabled"))
    assert not named.table_exists("shop.orders")
    table = lsm.open_catalog(str(tmp_path)).table("shop.orders")
    table.alter(lsm.SetOption(STORAGE, "hadoop-catalog"))
    assert named.load_table("shop.orders").scan().to_arrow().num_rows == 1


def test_the_metadata_lies_where_the_storage_location_says(tmp_path):
    options = COMPATIBLE | {STORAGE: "hadoop-catalog", STORAGE_LOCATION: "table-location"}
    table = create(tmp_path, SMALL, options=options)
    table.upsert(small(1))
    assert (tmp_path / "shop.db/orders/metadata/version-hint.text").exists()
    assert not (tmp_path / "iceberg").exists()
    table.alter(lsm.SetOption(STORAGE_LOCATION, "catalog-location"))
    assert not (tmp_path / "shop.db/orders/metadata/version-hint.text").exists()
    location = str(tmp_path / "iceberg/shop/orders/metadata")
    table = lsm.open_catalog(str(tmp_path)).table("shop.orders")
    assert table.inspect.iceberg().metadata_location.startswith(location)
    table.upsert(small(2))
    rows = by_name(tmp_path).load_table("shop.orders").scan().to_arrow()
    assert in_order(rows.cast(SMALL)) == in_order(table.to_arrow())
    # The same by the other storage, as Java has it.
    table.alter(lsm.SetOption(STORAGE, "table-location"))
    assert table.inspect.iceberg().metadata_location.startswith(location)
    with lsm.open_catalog(str(tmp_path)) as catalog:
        catalog.drop_table("shop.orders")
    assert not list((tmp_path / "iceberg").rglob("*.json"))
    with pytest.raises(lsm.InvalidOptionError, match=STORAGE_LOCATION):
        create(tmp_path, SMALL, options=options | {STORAGE_LOCATION: "/elsewhere"})


def test_readers_find_a_table_by_the_name_of_its_options(tmp_path):
    alias = {DATABASE: "lake", TABLE: "sales"}
    table = create(tmp_path, SMALL, options=COMPATIBLE | alias)
    table.upsert(small(1, 2))
    named = by_name(tmp_path)
    assert named.list_tables("lake") == [("lake", "sales")]
    assert not named.table_exists("shop.orders")
    assert named.load_table("lake.sales").scan().to_arrow().num_rows == 2
    # Another name in the place of this one.
    table.alter(lsm.SetOption(TABLE, "revenue"))
    assert named.list_tables("lake") == [("lake", "revenue")]
    table = lsm.open_catalog(str(tmp_path)).table("shop.orders")
    table.alter(lsm.RemoveOption(DATABASE), lsm.RemoveOption(TABLE))
    assert named.list_tables("shop") == [("shop", "orders")]
    assert not named.table_exists("lake.revenue")
    table = lsm.open_catalog(str(tmp_path)).table("shop.orders")
    table.alter(*(lsm.SetOption(key, text) for key, text in alias.items()))
    with lsm.open_catalog(str(tmp_path)) as catalog:
        catalog.rename_table("shop.orders", "shop.later")
        assert named.list_tables("lake") == [("lake", "sales")]
        loaded = named.load_table("lake.sales")
        assert loaded.scan().to_arrow().num_rows == 2
        catalog.drop_table("shop.later")
    assert not named.table_exists("lake.sales")
    assert not named.table_exists("shop.later")
    for name in ("a;b", "a.b", "a/b"):
        with pytest.raises(lsm.InvalidOptionError, match=TABLE):
            create(tmp_path, SMALL, options=COMPATIBLE | {TABLE: name})


def test_a_name_that_readers_know_stays_with_its_table(tmp_path, caplog):
    catalog = lsm.open_catalog(str(tmp_path))
    orders = catalog.create_table("shop.orders", SMALL, ["k"], options=COMPATIBLE)
    orders.upsert(small(1))
    copy = catalog.create_table("shop.copy", SMALL, ["k"], options=COMPATIBLE | {TABLE: "orders"})
    copy.upsert(small(2, 3))
    assert "readers of Iceberg know another table by this name" in caplog.text
    named = by_name(tmp_path)
    assert named.load_table("shop.orders").scan().to_arrow().num_rows == 1
    # A table of pyiceberg's own, in the same database.
    own = named.create_table(("shop", "mine"), SMALL, location=str(tmp_path / "mine"))
    copy.alter(lsm.SetOption(TABLE, "mine"))
    catalog.table("shop.copy").upsert(small(4))
    assert named.load_table("shop.mine").metadata_location == own.metadata_location
    catalog.drop_table("shop.copy")
    assert named.load_table("shop.orders").scan().to_arrow().num_rows == 1
    assert named.load_table("shop.mine").metadata_location == own.metadata_location


def test_a_commit_of_another_engine_is_refused(tmp_path):
    table = create(tmp_path, SMALL, key=(), options=IN_TABLE)
    table.append(small(1))
    loaded = by_name(tmp_path).load_table("shop.orders")
    with pytest.raises(
        sqlalchemy.exc.IntegrityError, match="only read through its Iceberg metadata"
    ):
        loaded.append(small(2).cast(loaded.schema().as_arrow()))
    with pytest.raises(TableAlreadyExistsError) as refusal:  # what pyiceberg makes of any refusal
        by_name(tmp_path).rename_table("shop.orders", "shop.other")
    assert "only read through its Iceberg metadata" in str(refusal.value.__cause__)
    table.append(small(3))
    loaded.refresh()
    assert in_order(loaded.scan().to_arrow().cast(SMALL)) == in_order(table.to_arrow())
    assert table.to_arrow().num_rows == 2
    # Tables that pyiceberg makes in the same database are its own.
    other = by_name(tmp_path).create_table(("shop", "mine"), SMALL, location=str(tmp_path / "mine"))
    other.append(small(4))
    assert other.scan().to_arrow().num_rows == 1


def test_a_postgresql_catalog_names_tables_and_refuses_commits_of_others(tmp_path, postgres):
    url = postgres.fresh_url()
    with lsm.open_catalog(url, warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table("shop.orders", SMALL, options=IN_TABLE)
        for key in range(2):
            table.append(small(key))
        named = SqlCatalog("jdbc", uri=url.replace("postgresql://", "postgresql+psycopg://"))
        loaded = named.load_table("shop.orders")
        assert in_order(loaded.scan().to_arrow().cast(SMALL)) == in_order(table.to_arrow())
        with pytest.raises(sqlalchemy.exc.DatabaseError, match="only read through its Iceberg"):
            loaded.append(small(9).cast(loaded.schema().as_arrow()))
        catalog.drop_table("shop.orders")
        assert not named.table_exists("shop.orders")


def test_a_row_that_another_engine_deleted_comes_again_with_the_next_sync(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(1))
    named = by_name(tmp_path)
    named.drop_table("shop.orders")
    table.maintenance.sync_iceberg()
    assert named.load_table("shop.orders").scan().to_arrow().num_rows == 1


def test_a_busy_catalog_fails_no_commit_and_is_caught_up(tmp_path, caplog):
    table = create(tmp_path, SMALL)
    table.upsert(small(1))
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        table.upsert(small(2))
    assert "busy" in caplog.text
    assert shown_rows(table) == in_order(table.to_arrow())
    table.upsert(small(3))
    loaded = by_name(tmp_path).load_table("shop.orders")
    assert in_order(loaded.scan().to_arrow().cast(SMALL)) == in_order(table.to_arrow())


def test_forget_refuses_a_table_whose_metadata_may_hold_the_key(tmp_path):
    table = create(tmp_path, SMALL)
    table.upsert(small(1))
    with pytest.raises(lsm.InvalidInputError, match=STORAGE):
        table.maintenance.forget([{"k": 1}])


def test_verify_names_metadata_that_is_behind_or_lacks_files_and_finds_the_table_sound(
    tmp_path, monkeypatch
):
    table = create(tmp_path, SMALL)
    table.upsert(small(*range(5)))
    assert table.verify().warnings == ()
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "follow", lambda *_, **__: None)
        table.upsert(small(2, value=9))
    (warning,) = table.verify().warnings
    assert "lsm iceberg sync" in warning
    table.maintenance.sync_iceberg()
    for vectors in metadata_folder(table).glob("*-m*.avro"):
        vectors.unlink()
    report = table.verify()
    assert report.is_clean
    assert "--rebuild" in report.warnings[0]
    table.maintenance.sync_iceberg(rebuild=True)
    assert shown_rows(table) == in_order(table.to_arrow())


def _without_first_column(members: dict[str, Any]) -> None:
    members["schemas"][-1]["fields"].pop(0)


def _other_partition_column(members: dict[str, Any]) -> None:
    members["partition-specs"][0]["fields"][0]["source-id"] += 1


@pytest.mark.parametrize(
    ("damage", "difference"),
    [
        (lambda file: file | {"record_count": 5}, "record_count of file"),
        (lambda file: file | {"partition": {"p": "z"}}, "partition value 'p' of file"),
        (lambda file: file | {"lower_bounds": [{"key": 1, "value": bytes(8)}]}, "lower_bounds of file"),
        (lambda file: file | {"file_path": file["file_path"] + "x"}, "files"),
        (_without_first_column, "columns"),
        (_other_partition_column, "partition columns"),
    ],
)  # fmt: skip
def test_verify_names_what_the_metadata_has_otherwise_than_the_table(tmp_path, damage, difference):
    table = create(tmp_path, SMALL, key=("k", "p"), partitioned_by="p")
    table.upsert(small(3, 4))
    store = iceberg.open_store(table.session)
    attempt = iceberg.MetadataSync(table.session, store, rebuild=False)
    current = store.current()
    if difference.endswith("columns"):
        path = Path(metadata_file(table))
        members = json.loads(path.read_bytes())
        damage(members)
        path.write_text(json.dumps(members))
    else:
        (row, *rows) = read_records(store.file_io.read(store.path_of(current.current["manifest-list"])), "")  # fmt: skip
        entries = read_records(store.file_io.read(store.path_of(row["manifest_path"])), "")
        entries[0]["data_file"] = damage(entries[0]["data_file"])
        data = manifest(entries, attempt.layout, row["content"])
        Path(row["manifest_path"].removeprefix("file:")).write_bytes(data)
        listed = manifest_list([row | {"manifest_length": len(data)}, *rows], attempt.layout, current.current)  # fmt: skip
        Path(current.current["manifest-list"].removeprefix("file:")).write_bytes(listed)
    (warning,) = table.verify().warnings
    assert difference in warning.partition("shows other ")[2].partition(" than ")[0]
    table.maintenance.sync_iceberg(rebuild=True)
    assert table.verify().warnings == ()


def test_files_for_iceberg_have_no_statistics_of_timestamps_in_milliseconds(tmp_path):
    """Iceberg's own library takes these for microseconds; manifests have the bounds, so that scans skip files all the same."""
    columns = {"k": "BIGINT", "t": "TIMESTAMP(3)", "u": "TIMESTAMP(3) WITH LOCAL TIME ZONE", "v": "TIMESTAMP(6)", "r": "ROW<s TIMESTAMP(3)>"}  # fmt: skip
    noon = dt.datetime(2024, 5, 1, 12)  # noqa: DTZ001
    rows = [
        {"k": key, "t": noon.replace(minute=key % 5), "u": noon.replace(tzinfo=dt.UTC), "v": noon, "r": {"s": noon}}
        for key in range(4_000)
    ]  # fmt: skip

    def chunks(table: lsm.Table, name: str) -> list[pq.ColumnChunkMetaData]:
        groups = [
            pq.read_metadata(path).row_group(0) for path in Path(table.location).rglob("*.parquet")
        ]
        all_chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
        return [chunk for chunk in all_chunks if chunk.path_in_schema == name]

    with lsm.open_catalog(tmp_path) as catalog:
        plain = catalog.create_table("shop.plain", columns)
        plain.append(rows)
        assert all(chunk.is_stats_set for chunk in chunks(plain, "t"))
        plain.alter(lsm.SetOption(STORAGE, "table-location"))
        plain = catalog.table("shop.plain")
        (finding,) = [
            found for found in lsm.doctor(catalog, depth="deep").findings if found.kind == "iceberg"
        ]
        assert "1 file of another client" in finding.what
        plain.append(rows)
        assert plain.compact(full=True) is not None
        plain.maintenance.expire(retain_min=1, retain_max=1, older_than="0 s")
        orders = catalog.create_table("shop.orders", columns, "k", options=VECTORS)
        orders.upsert(rows)
        orders.upsert(rows[:10])
        for table in (plain, orders):
            for name in ("t", "u", "r.s"):
                assert not any(
                    chunk.is_stats_set or chunk.has_dictionary_page for chunk in chunks(table, name)
                )
            assert all(chunk.is_stats_set for chunk in chunks(table, "v"))
            later = lsm.col("t") > noon.replace(minute=30)
            assert not table.scan(where=later).explain().splits
            assert (
                table.scan(where=lsm.col("t") == noon.replace(minute=3)).to_arrow().num_rows > 700
            )
        assert not [
            found for found in lsm.doctor(catalog, depth="deep").findings if found.kind == "iceberg"
        ]


def foreign_file(path: Path, first_id: int | None) -> Path:
    """A file of another writer with the columns of SMALL; their field ids go down from `first_id`."""
    fields = [
        field.with_metadata(None if first_id is None else {"PARQUET:field_id": str(first_id - i)})
        for i, field in enumerate(SMALL)
    ]
    pq.write_table(small(7, 8, value=100).cast(pa.schema(fields)), path)
    return path


def test_a_linked_file_with_the_ids_of_another_table_waits_for_a_compaction(tmp_path):
    """Readers find columns by their ids: they would read another column in its place."""
    table = create(tmp_path, SMALL, key=(), options={"iceberg-compatibility.enabled": "true"})
    table.append(small(1, 2))
    table.add_files([foreign_file(tmp_path / "plain.parquet", None)])
    assert shown_rows(table) == in_order(table.to_arrow())
    table.add_files([foreign_file(tmp_path / "foreign.parquet", 3)])
    assert "field ids of another table in column 'k'" in table.inspect.iceberg().problem
    table.compact(full=True)
    assert table.inspect.iceberg().problem is None
    assert shown_rows(table) == in_order(table.to_arrow())
    assert table.verify(deep=True).warnings == ()


def test_deep_verify_names_a_shown_file_whose_columns_are_not_found_by_their_ids(
    tmp_path, monkeypatch
):
    """A version of this engine showed such files."""
    table = create(tmp_path, SMALL, key=(), options={"iceberg-compatibility.enabled": "true"})
    monkeypatch.setattr(iceberg.MetadataSync, "_may_hold_linked_files", False)
    table.add_files([foreign_file(tmp_path / "foreign.parquet", 3)])
    assert shown_rows(table) != in_order(table.to_arrow())
    assert table.verify().warnings == ()
    (warning,) = table.verify(deep=True).warnings
    assert "has field ids of another table in column 'k'; a full compaction" in warning


# -- Histories by chance ---------------------------------------------------------------------------


# Polars calls a function of pyiceberg that goes in its next release.
@pytest.mark.filterwarnings("ignore:Call to to_vector:DeprecationWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_histories_show_what_a_scan_reads(tmp_path, layout):
    """A sample of those that `python -m tests.engines.iceberg_histories` runs."""
    run_history(tmp_path, layout, seed=1, steps=6)


def test_a_commit_encodes_its_own_snapshot_and_decodes_none_of_before(tmp_path, monkeypatch):
    """A version of a thousand snapshots takes no longer than the one before, whose texts go on."""
    encoded: list[object] = []
    decoded: list[int] = []

    def encode(value: object) -> str:
        encoded.append(value)
        return json.dumps(value)

    def decode(data: bytes, version: int) -> iceberg_metadata.TableMetadata:
        decoded.append(version)
        return read_metadata(data, version)

    read_metadata = iceberg_metadata.read_metadata
    table = lsm.open_catalog(str(tmp_path)).create_table(
        "shop.orders", {"k": "BIGINT", "v": "INT"}, "k", options=VECTORS
    )
    for key in range(5):
        table.upsert([{"k": key, "v": key}])
    monkeypatch.setattr(iceberg_metadata, "_encode", encode)
    monkeypatch.setattr(iceberg, "read_metadata", decode)
    table.upsert([{"k": 9, "v": 9}])
    snapshots = [value["snapshot-id"] for value in encoded if "snapshot-id" in value]
    assert snapshots == [table.latest_snapshot().id]
    assert not decoded
    # A version that somebody has replaced is no longer what this process wrote.
    file = Path(metadata_file(table))
    members = json.loads(file.read_bytes())
    assert len(members["snapshots"]) > 5
    file.write_text(json.dumps(members | {"properties": {}}))
    table.upsert([{"k": 10, "v": 10}])
    assert decoded == [int(file.name[1:].partition(".")[0])]
    assert_shown(table)

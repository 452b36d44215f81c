"""`forget`: afterwards no byte of a key is left in warehouse and catalog, and all else is as it was.

The searches are those of byte_search, which shares nothing with the product's own.
"""

import datetime as dt
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.catalog.names import TableName
from lsm_engine.format.documents import encode_tag
from lsm_engine.lookup.lookup import process_cache
from lsm_engine.maintenance import forget
from lsm_engine.storage.local_state import SpillArea
from tests.postgres_server import PostgresServer
from tests.unit.maintenance.test_deep_verify import rewrite_delta
from tests.unit.table.byte_search import files_with, files_with_row, least_keys
from tests.unit.table.history_tables import Story

PERSON = "person-4711@example.org"
TEXT = PERSON.encode()
COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64()), ("note", pa.string())])
AT_ONCE = {"rewrite_tags": True, "rewrite_branches": True, "unreferenced_older_than": "0 s"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}
PRODUCERS = ["none", "input", "lookup", "full-compaction"]
DAY = dt.datetime(2020, 1, 1)  # noqa: DTZ001 -- a type without a zone
PLAIN = {"file.compression": "none", "manifest.compression": "none"}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")) as made:
        yield made


def created(catalog: lsm.Catalog, name: str = "db.t", **options: str) -> lsm.Table:
    return catalog.create_table(
        name,
        COLUMNS,
        primary_key=["k"],
        options={"bucket": "2", **{key.replace("_", "-"): text for key, text in options.items()}},
    )


def others(step: int) -> list[dict[str, Any]]:
    return [{"k": f"other-{number:03d}", "v": step, "note": f"n{step}"} for number in range(20)]


def with_person(step: int) -> list[dict[str, Any]]:
    return [*others(step), {"k": PERSON, "v": step, "note": "hers"}]


def lived(table: lsm.Table) -> None:
    """A life in which the person's key comes into every kind of file."""
    for step in range(3):
        table.upsert(with_person(step))
    table.create_tag("early")
    table.compact(full=True)
    table.create_branch("side", tag="early")
    table.branch("side").upsert(with_person(7))
    table.upsert(with_person(4))
    table.lookup([{"k": PERSON}])
    table.expire_snapshots(retain_max=2, retain_min=1, older_than="0 s")


def state(table: lsm.Table, **at: Any) -> list[dict[str, Any]]:
    rows = table.scan(**at).to_arrow().to_pylist()
    return sorted((row for row in rows if row["k"] != PERSON), key=lambda row: row["k"])


def states(table: lsm.Table) -> list[Any]:
    side = table.branch("side")
    return [state(table), state(table, tag="early"), state(side), state(side, tag="early")]


def forgotten(table: lsm.Table, key: dict[str, Any], **scope: Any) -> lsm.ForgetReport:
    report = table.forget([key], False, **{**AT_ONCE, **scope})
    assert report.is_clean, report
    assert table.verify(deep=True).is_clean, table.verify(deep=True)
    return report


SAMPLE = {
    ("deduplicate", "input"),
    ("partial-update", "lookup"),
    ("aggregation", "full-compaction"),
    ("first-row", "none"),
}
LIVES = [
    pytest.param(
        engine, producer, marks=[] if (engine, producer) in SAMPLE else [pytest.mark.sweep]
    )
    for engine in ENGINES
    for producer in PRODUCERS
    if engine != "first-row" or producer in ("none", "lookup")
]


@pytest.mark.parametrize(("engine", "producer"), LIVES)
def test_no_byte_is_left_with_tags_branches_trash_and_changelogs(
    catalog: lsm.Catalog, tmp_path: Path, engine: str, producer: str
) -> None:
    table = created(
        catalog,
        **ENGINES[engine],
        **PLAIN,
        **{
            "changelog-producer": producer,
            "index.type": "BLOOM",
            "maintenance.trash-retained": "1 d",
            "changelog.num-retained.max": "50",
            "changelog.num-retained.min": "50",
            "changelog.time-retained": "1 d",
        },
    )
    lived(table)
    before = states(table)
    assert files_with(tmp_path, TEXT)
    plan = table.forget([{"k": PERSON}])
    assert plan.dry_run
    assert not plan.is_clean
    assert {one.path for one in plan.plan.traces} >= {
        path.removeprefix("lake/db.db/t/")
        for path in files_with(tmp_path, TEXT)
        if path.startswith("lake") and "/trash" not in path
    }
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)
    assert states(table) == before
    assert not table.trash()
    assert table.forget([{"k": PERSON}]).plan.is_empty
    table.upsert(others(9))
    table.compact(full=True)
    assert table.verify(deep=True).is_clean


@pytest.mark.parametrize(
    "file_format",
    ["parquet", *(pytest.param(each, marks=pytest.mark.sweep) for each in ("orc", "avro"))],
)
def test_compressed_files_with_deletion_vectors(
    catalog: lsm.Catalog, tmp_path: Path, file_format: str
) -> None:
    table = created(
        catalog, **{"deletion-vectors.enabled": "true", "file.format": file_format, "bucket": "1"}
    )
    lived(table)
    before = states(table)
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)
    assert states(table) == before


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [1, 5, 9]),
    "bigint": (pa.int64(), [1, 5, 9]),
    "decimal": (pa.decimal128(12, 2), [Decimal("1.50"), Decimal("5.25"), Decimal("9.75")]),
    "wide decimal": (pa.decimal128(30, 2), [Decimal("1.50"), Decimal("5.25"), Decimal("9.75")]),
    "timestamp": (pa.timestamp("us"), [DAY.replace(month=month) for month in (1, 5, 9)]),
    "date": (pa.date32(), [dt.date(2020, month, 1) for month in (1, 5, 9)]),
    "bytes": (pa.binary(), [b"aaaa-first-one", b"mmmm-\xff\x00-between", b"zzzz-last-one"]),
    "text": (pa.string(), ["aaaa-first-one", "mmmm-between-them", "zzzz-last-one"]),
}


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        pytest.param(kind, at, marks=[] if at == number % 3 else [pytest.mark.sweep])
        for number, kind in enumerate(KEYS)
        for at in range(3)
    ],
)
def test_keys_of_all_types_least_and_greatest_of_their_files_too(
    catalog: lsm.Catalog, tmp_path: Path, kind: str, at: int
) -> None:
    arrow, values = KEYS[kind]
    columns = pa.schema([("a", arrow), ("b", pa.int64()), ("v", pa.int64())])
    table = catalog.create_table("db.t", columns, primary_key=["a", "b"], options={"bucket": "1"})
    rows = [{"a": value, "b": 3, "v": 1} for value in values]
    table.upsert(rows)
    table.upsert([{**row, "v": 2} for row in rows])
    table.create_tag("kept")
    key = {"a": values[at], "b": 3}
    alone = catalog.create_table(
        "scratch.one", columns, primary_key=["a", "b"], options={"bucket": "1"}
    )
    alone.upsert([{**key, "v": 1}])
    (needle,) = least_keys(tmp_path / "lake" / "scratch.db")
    catalog.drop_table("scratch.one")
    forgotten(table, key)
    assert not files_with_row(tmp_path, key)
    assert not files_with(tmp_path / "lake", needle)
    left = [value for value in values if value != values[at]]
    for tag in (None, "kept"):
        found = table.scan(tag=tag).to_arrow()
        assert found.sort_by("a").column("a").to_pylist() == left
    catalog_bytes = [path for path in files_with(tmp_path, needle) if path.startswith("c.db")]
    assert not catalog_bytes


def test_partition_of_the_key_alone_goes_with_its_directory(
    catalog: lsm.Catalog, tmp_path: Path
) -> None:
    table = catalog.create_table(
        "db.t",
        COLUMNS,
        primary_key=["k", "v"],
        partitioned_by=["k"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "2"},
    )
    table.upsert([{"k": PERSON, "v": 1}, {"k": "other", "v": 1}])
    table.upsert([{"k": PERSON, "v": 2}])
    forgotten(table, {"k": PERSON, "v": 1})
    assert table.scan().to_arrow().num_rows == 2, "her other row stays, and its partition"
    forgotten(table, {"k": PERSON, "v": 2})
    assert not files_with(tmp_path, TEXT)
    assert table.scan().to_arrow().column("k").to_pylist() == ["other"]


def test_dynamic_bucket_index_loses_the_hash_of_the_key_alone(
    catalog: lsm.Catalog, tmp_path: Path
) -> None:
    table = created(catalog, bucket="-1", **{"dynamic-bucket.target-row-num": "8"})
    table.upsert(with_person(1))
    before = {path: path.stat().st_size for path in tmp_path.rglob("index-*") if path.is_file()}
    rows = state(table)
    forgotten(table, {"k": PERSON})
    indexes = [
        path
        for path in (tmp_path / "lake/db.db/t/index").iterdir()
        if path.name.startswith("index-")
    ]
    assert (
        sum(path.stat().st_size for path in indexes)
        == sum(size for path, size in before.items() if "manifest" not in path.name) - 4
    )
    table.upsert(with_person(2))
    assert len(table.scan().to_arrow()) == len(rows) + 1, "no key got a second bucket"
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)


def test_rows_that_wait_for_a_bucket(catalog: lsm.Catalog, tmp_path: Path) -> None:
    waits = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    table = created(catalog, **waits)
    table.upsert(with_person(1))
    table.upsert(with_person(2))
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)
    table.compact()
    assert state(table) == sorted(others(2), key=lambda row: row["k"])


def test_rows_that_wait_stay_in_their_order(catalog: lsm.Catalog, tmp_path: Path) -> None:
    """The file that was written anew came behind newer ones, and its older rows won."""
    waits = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    table = created(catalog, **waits)
    table.upsert(with_person(1))
    table.upsert(others(2))
    table.create_tag("both")
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)
    table.create_branch("then", tag="both")
    for each in (table, table.branch("then")):
        each.compact()
        assert state(each) == others(2)


def test_rows_that_wait_in_a_file_of_java() -> None:
    """Its manifest entry names the first and the last key as they came, in no order."""
    told = Story(options={"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"})
    told.put(k9="a", k5="hers", k2="b")
    session = told.table.session
    (entry,) = session.live_entries(session.snapshots.latest())
    ends = {"min_key": entry.file.max_key, "max_key": entry.file.min_key, "checksum": None}
    rewrite_delta(told, replace(entry, file=replace(entry.file, **ends)))
    assert told.table.forget([{"id": 5}], False, **AT_ONCE).is_clean
    told.table.compact()
    assert told.rows() == {2: "b", 9: "a"}


def test_append_table_by_any_column(catalog: lsm.Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("db.t", COLUMNS, options={"bucket": "-1"})
    table.append(with_person(1))
    table.append([*with_person(2), {"k": None, "v": None, "note": None}])
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)
    assert table.scan().to_arrow().num_rows == 41


def test_files_of_older_schemas(catalog: lsm.Catalog, tmp_path: Path) -> None:
    table = created(catalog)
    table.upsert(with_person(1))
    table.create_tag("old")
    table.alter(
        lsm.RenameColumn(name="k", new_name="key"),
        lsm.AddColumn(name="more", type=pa.string()),
        lsm.DropColumn(name="note"),
    )
    table.upsert([{"key": name, "v": 2, "more": "x"} for name in (PERSON, "other-000")])
    kept = table.scan(where=lsm.col("key") != PERSON).to_arrow().to_pylist()
    old = state(table, tag="old")
    forgotten(table, {"key": PERSON})
    assert not files_with(tmp_path, TEXT)
    assert table.scan().to_arrow().to_pylist() == kept
    assert state(table, tag="old") == old


def test_numbers_that_snapshots_order(catalog: lsm.Catalog, tmp_path: Path) -> None:
    table = created(catalog, **{"sequence.snapshot-ordering": "true", "write-only": "true"})
    for step in range(3):
        table.upsert(with_person(step))
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)
    table.upsert([{"k": "other-000", "v": 9, "note": "new"}])
    table.compact(full=True)
    assert [row["v"] for row in state(table)] == [9] + [2] * 19


def test_lookup_files_and_rows_spilled_by_the_dead(
    catalog: lsm.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    area = tmp_path / f"lsm-spill-{dead.pid}-x"
    area.mkdir()
    area.joinpath("0.arrow").write_bytes(TEXT)
    mine = SpillArea()
    rows = mine.spill([pa.record_batch({"a": [1]})])
    table = created(catalog)
    table.upsert(with_person(1))
    with table.query() as query:
        assert query.lookup([{"k": PERSON}]).num_rows == 1
        assert process_cache().metrics().file_count
        forgotten(table, {"k": PERSON})
        assert not process_cache().metrics().file_count
        query.refresh()
        assert query.lookup([{"k": PERSON}]).column("_found").to_pylist() == [False]
    assert not area.exists()
    assert [batch.num_rows for batch in rows] == [1]
    mine.close()
    assert not files_with(tmp_path, TEXT)


def test_rows_spilled_to_any_of_sparks_directories_by_the_dead(
    catalog: lsm.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = [tmp_path / "of_spark_a", tmp_path / "of_spark_b"]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, directories)))
    dead = subprocess.Popen(["true"])
    dead.wait()
    for directory in directories:
        area = directory / f"lsm-spill-{dead.pid}-x"
        left = directory / f"lsm-lookup-{os.getuid()}" / "process-x"
        left.mkdir(parents=True)
        left.parent.chmod(0o700)
        area.mkdir()
        area.joinpath("0.arrow").write_bytes(TEXT)
        left.joinpath("1.lookup").write_bytes(TEXT)
    table = created(catalog)
    table.upsert(with_person(1))
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)


def test_a_value_of_other_rows_stays_and_is_reported(catalog: lsm.Catalog, tmp_path: Path) -> None:
    table = created(catalog, **PLAIN)
    table.upsert([*with_person(1), {"k": "friend", "v": 1, "note": f"knows {PERSON}"}])
    report = forgotten(table, {"k": PERSON})
    assert report.proof is not None
    assert report.proof.texts_elsewhere == (TEXT,)
    assert not files_with_row(tmp_path, {"k": PERSON})
    assert table.forget([{"k": PERSON}]).plan.is_empty


def test_a_longer_key_that_begins_alike_stays(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert([*with_person(1), {"k": f"{PERSON}.uk", "v": 1}])
    forgotten(table, {"k": PERSON})
    assert [row["k"] for row in state(table)][-1] == f"{PERSON}.uk"


def test_keys_that_are_in_one_partition_only_of_all(catalog: lsm.Catalog, tmp_path: Path) -> None:
    columns = pa.schema([("p", pa.string()), ("k", pa.string()), ("v", pa.int64())])
    options = {"bucket": "-1"}
    table = catalog.create_table(
        "db.t", columns, primary_key=["k"], partitioned_by=["p"], options=options
    )
    table.upsert([{"p": "a", "k": PERSON, "v": 1}, {"p": "a", "k": "other", "v": 1}])
    table.upsert([{"p": "b", "k": PERSON, "v": 2}])
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)
    assert table.scan().to_arrow().to_pylist() == [{"p": "a", "k": "other", "v": 1}]
    table.upsert([{"p": "b", "k": PERSON, "v": 3}, {"p": "b", "k": "other", "v": 3}])
    assert len(table.scan().to_arrow()) == 2


@pytest.mark.parametrize("name", ["a/b: 100% né 日本 'x' = \"y\"", "back\\slash\ttab"])
def test_values_that_directories_and_json_escape(
    catalog: lsm.Catalog, tmp_path: Path, name: str
) -> None:
    table = catalog.create_table(
        "db.t", COLUMNS, primary_key=["k", "v"], partitioned_by=["k"], options={"bucket": "1"}
    )
    table.upsert([{"k": name, "v": 1}, {"k": "other", "v": 1}], properties={"asked.for": name})
    (folder,) = [each.name for each in tmp_path.rglob("k=*") if each.name != "k=other"]
    forgotten(table, {"k": name, "v": 1})
    spellings = (name, folder.removeprefix("k="), json.dumps(name)[1:-1])
    assert not files_with(tmp_path, *(each.encode() for each in spellings))


def test_a_table_with_the_key_in_a_tag_alone_keeps_its_history(
    catalog: lsm.Catalog, tmp_path: Path
) -> None:
    table = created(catalog)
    table.upsert(with_person(1))
    table.create_tag("early")
    table.overwrite(others(2))
    table.compact_manifest(dry_run=False)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    table.upsert(others(3))
    ids = table.snapshot_ids()
    plan = table.forget([{"k": PERSON}]).plan
    assert [one.name for one in plan.rewrites] == ["tag 'early' of the table"]
    assert not plan.expires
    forgotten(table, {"k": PERSON})
    assert table.snapshot_ids() == ids
    assert not files_with(tmp_path, TEXT)


def test_a_table_opened_by_its_path_has_no_catalog_to_search(
    catalog: lsm.Catalog, tmp_path: Path
) -> None:
    created(catalog).upsert(with_person(1))
    report = forgotten(lsm.open_table(str(tmp_path / "lake/db.db/t")), {"k": PERSON})
    assert "no catalog was searched" in str(report.plan)
    assert not files_with(tmp_path / "lake", TEXT)
    forgotten(catalog.table("db.t"), {"k": PERSON})
    assert not files_with(tmp_path, TEXT)


def test_a_catalog_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    with lsm.open_catalog(postgres.fresh_url(), warehouse=str(tmp_path)) as catalog:
        table = created(catalog)
        lived(table)
        assert table.forget([{"k": PERSON}]).plan.outside.catalog_rows
        report = forgotten(table, {"k": PERSON})
        assert report.proof is not None
        assert not report.proof.outside.catalog_rows
        files = catalog.lineage.files_of_table(TableName.parse("db.t")).to_pylist()
        assert files
        assert not [row for row in files if TEXT in row["min_key"] or TEXT in row["max_key"]]


def bytes_on_disk(server: PostgresServer, database: str) -> list[Path]:
    """Files of tables, indexes and statistics that hold the key; its log of changes is left out."""
    with server.connect(database) as connection:
        connection.execute("CHECKPOINT")
        (oid,) = connection.execute(
            "SELECT oid FROM pg_database WHERE datname = current_database()"
        ).fetchone()
    found = (path for path in (server.data / "base" / str(oid)).iterdir() if path.is_file())
    return [path for path in found if TEXT in path.read_bytes()]


@pytest.fixture
def recorded(tmp_path: Path, postgres: PostgresServer) -> Iterator[tuple[lsm.Table, str]]:
    """A table whose lineage is in a database, and the name of that."""
    url = postgres.fresh_url()
    with lsm.open_catalog(url, warehouse=str(tmp_path)) as catalog:
        table = created(catalog)
        lived(table)
        assert table.forget([{"k": PERSON}]).plan.outside.catalog_rows
        database = url.rpartition("/")[2]
        with postgres.connect(database) as other:
            other.execute("ANALYZE")
        assert len(bytes_on_disk(postgres, database)) > 1  # rows, and samples of the planner
        catalog._names.database._busy_timeout_millis = 200
        yield table, database


def test_no_byte_is_left_in_the_files_of_postgresql(
    recorded: tuple[lsm.Table, str], postgres: PostgresServer
) -> None:
    """Neither in dead rows nor in the samples that its planner keeps of values."""
    table, database = recorded
    forgotten(table, {"k": PERSON})
    assert bytes_on_disk(postgres, database) == []


def test_who_still_reads_older_rows_of_postgresql_is_named(
    recorded: tuple[lsm.Table, str], postgres: PostgresServer
) -> None:
    """What was deleted stays in the files until that transaction ends: doing it again finishes."""
    table, database = recorded
    with postgres.connect(database) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        (pid,) = reader.execute("SELECT pg_backend_pid()").fetchone()
        with pytest.raises(lsm.StorageError, match="may still read") as caught:
            table.forget([{"k": PERSON}], False, **AT_ONCE)
        assert caught.value.facts["held_by"] == f"process {pid}"
        assert bytes_on_disk(postgres, database)
        assert not table.forget([{"k": PERSON}]).is_clean
    forgotten(table, {"k": PERSON})
    assert bytes_on_disk(postgres, database) == []


# --- what objects --------------------------------------------------------------------------------


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_tags_branches_and_consumers_refuse_by_name(catalog: lsm.Catalog, tmp_path: Path) -> None:
    table = created(catalog)
    lived(table)
    table.reset_consumer("feed", table.snapshot_ids()[0])
    listed = files_below(tmp_path)
    with pytest.raises(lsm.InvalidInputError, match=r"'early'.*'side'") as caught:
        table.forget([{"k": PERSON}], dry_run=False)
    assert "'feed'" in caught.value.message
    assert files_below(tmp_path) == listed
    with pytest.raises(lsm.InvalidInputError, match="'feed'"):
        table.forget([{"k": PERSON}], False, **AT_ONCE)
    forgotten(table, {"k": PERSON}, move_consumers=True)
    table.upsert(others(9))
    assert not files_with(tmp_path, TEXT)


def test_a_consumer_that_has_read_all_goes_on_from_there(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(with_person(1))
    latest = table.latest_snapshot()
    assert latest is not None
    table.reset_consumer("feed", latest.id + 1)
    forgotten(table, {"k": PERSON})
    table.upsert([{"k": "new", "v": 1}])
    items = list(table.follow(consumer_id="feed", poll_millis=None))
    assert [row["k"] for item in items for row in item.to_arrow().to_pylist()] == ["new"]


def test_damage_refuses_and_nothing_is_changed(catalog: lsm.Catalog, tmp_path: Path) -> None:
    table = created(catalog, bucket="1")
    table.upsert(with_person(1))
    table.upsert([{"k": "zzz", "v": 1}])
    damaged = next(path for path in tmp_path.rglob("data-*") if b"zzz" in path.read_bytes())
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-9])
    listed = files_below(tmp_path)
    with pytest.raises(lsm.InvalidInputError, match="cannot be decoded"):
        table.forget([{"k": PERSON}], False, **AT_ONCE)
    assert files_below(tmp_path) == listed
    damaged.write_bytes(whole)
    (manifest, *_) = sorted(tmp_path.rglob("manifest-????????-*"))
    stored = bytearray(manifest.read_bytes())
    stored[len(stored) // 2] ^= 1
    manifest.write_bytes(stored)
    with pytest.raises(lsm.CorruptFileError):
        catalog.table("db.t").forget([{"k": PERSON}], False, **AT_ONCE)
    assert files_below(tmp_path) == listed


def test_nothing_to_forget_changes_nothing(catalog: lsm.Catalog, tmp_path: Path) -> None:
    table = created(catalog)
    table.upsert(others(1))
    before = sorted(tmp_path.joinpath("lake").rglob("*"))
    assert table.forget([{"k": PERSON}], dry_run=False).is_clean
    assert sorted(tmp_path.joinpath("lake").rglob("*")) == before
    with pytest.raises(lsm.InvalidInputError, match="at least one"):
        table.forget([])
    with pytest.raises(lsm.InvalidInputError):
        table.forget([{"v": 1}])
    table.create_tag("here")
    table.create_branch("side", tag="here")
    with pytest.raises(lsm.UnsupportedError, match="branches"):
        table.branch("side").forget([{"k": PERSON}])


def test_empty_table(catalog: lsm.Catalog) -> None:
    assert created(catalog).forget([{"k": PERSON}], dry_run=False).is_clean


def test_the_plan_is_json(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    lived(table)
    plan = json.loads(json.dumps(table.forget([{"k": PERSON}]).facts()))["plan"]
    assert plan["keys"] == 1
    assert {one["kind"] for one in plan["files"]} >= {"data file", "manifest"}
    assert next(one["root"] for one in plan["rewrites"]) == "newest state of the table"
    assert plan["catalog_rows"] > 0
    assert len(plan["refusals"]) >= 2


# --- what is lying about -------------------------------------------------------------------------


def test_files_that_nothing_names_go_once_they_are_old(
    catalog: lsm.Catalog, tmp_path: Path
) -> None:
    table = created(catalog)
    table.upsert(with_person(1))
    bucket = next((tmp_path / "lake/db.db/t").glob("bucket-*"))
    data = next(
        path for path in bucket.parent.rglob("data-*") if files_with_row(path.parent, {"k": PERSON})
    )
    shutil.copy(data, data.with_name("data-left-behind-0.parquet"))
    torn = data.with_name("data-torn-0.parquet")
    torn.write_bytes(data.read_bytes()[:-20])
    report = table.forget([{"k": PERSON}], dry_run=False)
    assert not report.is_clean, "they are younger than a day"
    assert report.proof is not None
    assert len(report.proof.unreferenced) == 2
    old = 1_600_000_000
    for path in (torn, data.with_name("data-left-behind-0.parquet")):
        os.utime(path, (old, old))
    assert table.forget([{"k": PERSON}], dry_run=False, unreferenced_older_than="1 d").is_clean
    assert not files_with(tmp_path, TEXT)


@pytest.mark.parametrize("has_died", ["while it was made", "while it was deleted"])
def test_what_is_left_of_a_branch_goes_once_it_is_old(
    catalog: lsm.Catalog, tmp_path: Path, has_died: str
) -> None:
    table = created(catalog)
    table.upsert(with_person(1))
    table.create_tag("early")
    table.create_branch("side", tag="early")
    table.branch("side").upsert(with_person(2))
    if has_died == "while it was made":
        table.delete_branch("side")
        table.create_branch("side", tag="early")
    directory = tmp_path / "lake/db.db/t/branch/branch-side"
    (directory / "schema/schema-0").unlink()
    table = catalog.table("db.t")
    assert table.branches() == []
    table.delete_tag("early")
    listed = sorted((tmp_path / "lake").rglob("*"))
    refused = {
        "allow rewrite_branches": {**AT_ONCE, "rewrite_branches": False},
        "being made": {**AT_ONCE, "unreferenced_older_than": "1 d"},
    }
    for why, scope in refused.items():
        with pytest.raises(lsm.InvalidInputError, match=f"branch 'side'.*{why}"):
            table.forget([{"k": PERSON}], False, **scope)
        assert sorted((tmp_path / "lake").rglob("*")) == listed
    report = forgotten(table, {"k": PERSON})
    assert "what is left of branch 'side'" in str(report.plan)
    assert not directory.exists()
    assert not files_with(tmp_path, TEXT)
    assert state(table) == sorted(others(1), key=lambda row: row["k"])


def test_what_is_left_of_a_branch_without_the_key_stays(
    catalog: lsm.Catalog, tmp_path: Path
) -> None:
    table = created(catalog)
    table.upsert(others(1))
    table.create_branch("side", tag=table.create_tag("early").name)
    left = tmp_path / "lake/db.db/t/branch/branch-side/schema/schema-0"
    left.unlink()
    table.upsert(with_person(1))
    forgotten(table, {"k": PERSON}, rewrite_branches=False)
    assert (left.parents[1] / "snapshot/snapshot-1").exists()


def test_lineage_that_an_earlier_version_left_in_files(
    catalog: lsm.Catalog, tmp_path: Path
) -> None:
    """Lineage that waited to be recorded lay beside the catalog, with the keys of files."""
    table = created(catalog)
    table.upsert(with_person(1))
    outbox = tmp_path / f"{Path(catalog._names.database.path).name}.jdbc.lineage-outbox"
    outbox.mkdir()
    (outbox / "000000000000001-000000000-x.jsonl").write_bytes(b"0 0 commit " + TEXT)
    assert files_with(tmp_path, TEXT)
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)


# --- crashes and races ---------------------------------------------------------------------------

STEPS: list[tuple[Any, str]] = [
    (forget, "_replace_files"),
    (forget, "plan_removal"),
    (forget, "rewrite_head"),
    (forget, "rewrite_tag"),
    (forget, "_expire_below"),
    (forget, "remove_orphans"),
    (forget, "clear_outside"),
]


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("where", "step", "late"),
    [
        pytest.param(where, step, late, marks=[] if late else [pytest.mark.sweep])
        for where, step in STEPS
        for late in (False, True)
    ],
)
def test_a_crash_at_any_step_is_finished_by_doing_it_again(
    catalog: lsm.Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    step: str,
    late: bool,
) -> None:
    table = created(catalog)
    table.upsert(with_person(1))
    table.create_tag("early")
    table.upsert(with_person(2))
    before = [state(table), state(table, tag="early")]
    real: Callable[..., Any] = getattr(where, step)

    def dying(*args: Any, **options: Any) -> Any:
        if late:
            real(*args, **options)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(where, step, dying)
        with pytest.raises(Killed):
            table.forget([{"k": PERSON}], False, **AT_ONCE)
    assert [state(table), state(table, tag="early")] == before
    table = catalog.table("db.t")
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)
    assert [state(table), state(table, tag="early")] == before


def test_a_writer_that_comes_between_is_forgotten_too_and_loses_nothing(
    catalog: lsm.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    table.upsert(with_person(1))
    other, real, left = catalog.table("db.t"), forget.change_state, [2, 3]

    def change(*args: Any) -> Any:
        made = real(*args)
        if left:
            other.upsert(with_person(left.pop(0)))
        return made

    monkeypatch.setattr(forget, "change_state", change)
    forgotten(table, {"k": PERSON})
    assert not files_with(tmp_path, TEXT)
    assert state(table) == sorted(others(3), key=lambda row: row["k"])


def test_a_key_that_comes_back_is_reported(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    table.upsert(with_person(1))
    other, real = catalog.table("db.t"), forget.clear_outside

    def clear(*args: Any) -> None:
        real(*args)
        other.upsert(with_person(2))

    monkeypatch.setattr(forget, "clear_outside", clear)
    report = table.forget([{"k": PERSON}], False, **AT_ONCE)
    assert not report.is_clean
    assert "came back" in str(report)


def test_a_tag_that_names_the_key_itself_is_reported(catalog: lsm.Catalog, tmp_path: Path) -> None:
    table = created(catalog)
    table.upsert(with_person(1), properties={"asked.for": PERSON})
    table.create_tag("named")
    report = table.forget([{"k": PERSON}], False, **AT_ONCE)
    assert report.proof is not None
    assert [one.kind for one in report.proof.traces] == ["tag"]
    assert encode_tag(table.tags()[0]).count(TEXT) == 1
    table.delete_tag("named")
    assert table.forget([{"k": PERSON}], False, **AT_ONCE).is_clean
    lineage = [path for path in files_with(tmp_path, TEXT) if not path.startswith("c.db")]
    assert not lineage


@pytest.mark.parametrize("commits_again", [False, True])
def test_a_rollback_beside_forget_is_a_conflict_and_the_next_forget_finishes(
    monkeypatch: pytest.MonkeyPatch, commits_again: bool
) -> None:
    story = Story()
    for number in range(4):
        story.put(k1=f"a{number}", k2="b")
    newest = story.table.snapshot_ids()[-1]
    expire_below = forget._expire_below

    def roll_back_before(*args: Any) -> None:
        story.reopened().rollback_to(newest - 1)
        for number in range(3 * commits_again):
            story.put(k3=f"c{number}")
        expire_below(*args)

    with monkeypatch.context() as patched:
        patched.setattr(forget, "_expire_below", roll_back_before)
        with pytest.raises(lsm.CommitConflictError, match="rolled back"):
            story.reopened().forget([{"id": 1}], dry_run=False, **AT_ONCE)
    assert story.rows().get(2) == "b"
    story.clock.advance(1000)
    proof = story.reopened().forget([{"id": 1}], dry_run=False, **AT_ONCE).proof
    assert proof is not None
    assert proof.traces == (), proof
    assert 1 not in story.rows()
    assert story.rows() == {2: "b", **({3: "c2"} if commits_again else {})}
    story.check()

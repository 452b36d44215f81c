"""Many tables, many snapshots: what verbs and pages read of each, which is what they cost.

`python -m tests.bench.large_warehouse` takes the seconds.
"""

import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.api import catalog_tables
from lsm_engine.catalog.lineage.tables import LineageTables
from lsm_engine.metadata import manifests
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.ui.routes import Site
from tests.unit.cli.test_loading import COMPILERS, loaded

pytestmark = pytest.mark.xdist_group("large_warehouse")  # the long history is made once
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
TABLES, SNAPSHOTS = 60, 230
KEEP = {"snapshot.num-retained.min": "9999", "snapshot.num-retained.max": "9999"}


@pytest.fixture
def many(shell):
    with shell.catalog() as catalog:
        made = catalog.create_table("shop.t00", COLUMNS, primary_key="id", options={"bucket": "1"})
        for number in range(3):
            made.upsert([{"id": number, "name": "x"}])
        made.create_tag("monday", 2, retained="30 d")
        for number in range(1, TABLES):
            shutil.copytree(made.location, made.location.replace("t00", f"t{number:02}"))
        catalog.rebuild()
    return shell


@pytest.fixture(scope="module")
def long_history(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("long")
    with lsm.open_catalog(root) as catalog:
        made = catalog.create_table("shop.long", COLUMNS, primary_key="id", options=KEEP)
        table = lsm.open_table(made.location)  # no catalog is told: only files are made
        while (newest := table.latest_snapshot()) is None or newest.id < SNAPSHOTS:
            table.upsert([{"id": newest.id % 40 if newest else 0, "name": "x"}])
        catalog.sync_lineage()
    return root


@pytest.fixture
def files(monkeypatch) -> Counter:
    """How often files were read and folders listed, by what is in them."""
    counts: Counter[str] = Counter()

    def counted(act: str) -> None:
        before = getattr(LocalFileIO, act)

        def counting(self, path="", *span, **more):
            kind = "manifest-list" if "manifest-list" in path else path.partition("/")[0]
            counts["list" if act == "list" else kind] += 1
            return before(self, path, *span, **more)

        monkeypatch.setattr(LocalFileIO, act, counting)

    counted("read")
    counted("list")
    return counts


@pytest.fixture
def statements(monkeypatch) -> list[str]:
    """The SQL that SQLite was asked."""
    asked: list[str] = []
    connect = sqlite3.connect

    def traced(*arguments, **more):
        connection = connect(*arguments, **more)
        connection.set_trace_callback(asked.append)
        return connection

    monkeypatch.setattr(sqlite3.dbapi2, "connect", traced)
    return asked


def test_tables_are_listed_from_their_newest_snapshots(many, files) -> None:
    assert len(many.json("tables")) == TABLES
    assert not files["manifest"] + files["manifest-list"]
    assert files["schema"] == TABLES
    assert files["snapshot"] <= 4 * TABLES, files


def test_a_shallow_doctor_decodes_the_lists_of_all_tables_at_once(many, files, monkeypatch) -> None:
    decoded: list[int] = []
    together = manifests.decode_manifest_lists

    def at_once(opened):
        decoded.append(len(opened))
        return together(opened)

    monkeypatch.setattr(manifests, "decode_manifest_lists", at_once)
    monkeypatch.setattr(manifests, "decode_manifest_list", None)  # none by itself
    assert many.json("doctor", "--shallow") == []
    assert decoded == [2 * TABLES]
    assert files["manifest"] == 0  # lists tell that there is no debt
    assert files["manifest-list"] == 2 * TABLES
    assert sum(files.values()) <= 18 * TABLES, files


@pytest.mark.parametrize("words", [("doctor", "--shallow"), ("show", "sys.tables"), ("tables",)])
def test_a_look_at_many_tables_needs_no_compiler(many, words) -> None:
    modules, _ = loaded("--warehouse", many.warehouse, *words)
    assert modules.isdisjoint({*COMPILERS, "pandas"})


def test_a_rebuild_asks_the_lineage_for_rows_of_each_table_alone(many, monkeypatch) -> None:
    """It asked for all tables once a table: a rebuild of 10,000 took a quarter of an hour and more."""
    rows: list[int] = []
    ask = LineageTables._ask

    def counted(self, statement):
        answer = ask(self, statement)
        rows.append(answer.num_rows)
        return answer

    monkeypatch.setattr(LineageTables, "_ask", counted)
    with many.catalog() as catalog:
        assert len(catalog.rebuild()) == TABLES
    assert TABLES <= sum(rows) <= 4 * TABLES, rows


def test_sys_tables_decodes_the_manifests_of_all_tables_together(many, files, monkeypatch) -> None:
    monkeypatch.setattr(catalog_tables, "partitions", None)  # none by itself
    rows = many.json("show", "sys.tables")
    assert len(rows) == TABLES
    assert {(row["record_count"], row["file_count"], row["problem"]) for row in rows} == {
        (3, 3, None)
    }
    assert files["manifest"] == 3 * TABLES
    assert sum(files.values()) <= 14 * TABLES, files


def test_sys_tables_counts_as_each_table_does(many) -> None:
    """Files that were compacted away, that a branch gives, of which one manifest is damaged, or none."""
    with many.catalog() as catalog:
        compacted = catalog["shop.t05"]
        for number in range(7):
            compacted.upsert([{"id": number, "name": "y"}])
        compacted.compact(full=True)
        compacted.upsert([{"id": 1, "name": "z"}])
        catalog.create_table("shop.empty", COLUMNS, primary_key="id")
        parts = pa.schema([*COLUMNS, ("day", pa.string())])
        falls_back = catalog.create_table(
            "shop.falls_back", parts, primary_key=["id", "day"], partitioned_by="day"
        )
        falls_back.create_branch("other")
        falls_back.branch("other").upsert([{"id": 1, "name": "x", "day": "monday"}])
        falls_back.alter(lsm.SetOption(key="scan.fallback-branch", value="other"))
        damaged = catalog["shop.t07"]
        manifest = next(Path(damaged.location, "manifest").glob("manifest-[0-9a-f]*-0"))
        manifest.write_bytes(manifest.read_bytes()[:-40] + bytes(40))
        rows = {row["table_name"]: row for row in many.json("show", "sys.tables")}
        assert manifest.name in rows["t07"]["problem"]
        assert rows["t07"]["file_count"] is None
        for name in ("t05", "t06", "empty", "falls_back"):
            held = catalog[f"shop.{name}"].system("partitions").to_pylist()
            assert rows[name]["problem"] is None
            for column in ("record_count", "file_size_in_bytes", "file_count"):
                assert rows[name][column] == sum(row[column] for row in held), (name, column)
        assert rows["t05"]["file_count"] == 2
        assert rows["falls_back"]["record_count"] == 1


def test_a_damaged_list_is_found_among_many_tables(many) -> None:
    with many.catalog() as catalog:
        table = catalog["shop.t07"]
        name = table.latest_snapshot().delta_manifest_list
    damaged = Path(table.location, "manifest", name)
    damaged.write_bytes(damaged.read_bytes()[:-40] + bytes(40))
    found = many.json("doctor", "--shallow", code=1)
    assert {(one["table"], one["kind"]) for one in found} == {("shop.t07", "damage")}
    assert name in str(found)


def test_debt_is_found_where_lists_count_enough_files(many) -> None:
    with many.catalog() as catalog:
        table = catalog["shop.t07"]
        table.alter(lsm.SetOption(key="write-only", value="true"))
        table = catalog["shop.t07"]
        for number in range(6):
            table.upsert([{"id": number, "name": "y"}])
    found = many.json("doctor", "--shallow", code=1)
    assert {(one["table"], one["kind"]) for one in found} == {("shop.t07", "debt")}


def test_snapshots_are_listed_from_one_file_each(long_history, shell, files) -> None:
    table = long_history / "shop.db" / "long"
    assert len(shell.json("show", "snapshots", table)) >= SNAPSHOTS
    assert files["snapshot"] <= 1.1 * SNAPSHOTS + 20, files
    assert not files["manifest"] + files["manifest-list"]


@pytest.mark.parametrize(
    ("page", "most"),
    [
        ("/", 70),
        ("/t/shop.long", 400),
        ("/t/shop.long/snapshots", 320),
        ("/t/shop.long/snapshots?from=120", 320),
        ("/t/shop.long/snapshot/150", 150),
        ("/t/shop.long/tree", 100),
        ("/t/shop.long/tree?bucket=0", 100),
        ("/t/shop.long/key?id=7", 700),
        ("/lineage", 30),
    ],
)
def test_a_page_reads_few_files_of_a_long_history(long_history, files, page, most) -> None:
    with lsm.open_catalog(long_history) as catalog:
        site = Site(catalog, lambda words: f"lsm {words}")
        try:
            files.clear()
            assert site.reply(page).status == 200
        finally:
            site.close()
    assert sum(files.values()) <= most, files


def test_a_page_of_tables_reads_those_that_it_shows(many, files, statements) -> None:
    with many.catalog() as catalog:
        site = Site(catalog, lambda words: f"lsm {words}")
        try:
            files.clear()
            statements.clear()
            assert b"60 tables" in site.reply("/").body
            site._board._pool.shutdown(wait=True)
        finally:
            site.close()
    assert files["schema"] <= 2 * 50, files
    assert sum(files.values()) <= 60 * 50, files
    assert len(statements) <= 6 * 50

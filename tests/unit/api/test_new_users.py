"""What new users typed and met, one test for each thing that they wanted: it works, or the error says what to type.

Beside these: sizes and start-up in test_start.py, 80 columns in tests/unit/cli.
"""

import datetime as dt
import shutil

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from tests.unit.cli.conftest import Shell
from tests.unit.table.byte_search import files_with

WELLS = [
    {"well": n, "county": f"county {n % 3}", "depth": 10.5 * n, "drilled": dt.date(1990 + n, 5, 1)}
    for n in range(1, 13)
]


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(tmp_path / "water") as opened:
        yield opened


@pytest.fixture
def wells(catalog):
    made = catalog.create_table(
        "geo.wells", {"well": int, "county": str, "depth": float, "drilled": dt.date}, primary_key="well"
    )  # fmt: skip
    made.upsert(WELLS)
    return made


# --- what they wanted, line by line --------------------------------------------------------------


def test_a_person_is_forgotten_and_it_is_shown(catalog, tmp_path):
    owners = catalog.create_table("geo.owners", {"name": str, "well": int}, primary_key="name")
    owners.upsert([{"name": "Zygmunt Quirrell", "well": 4}, {"name": "Ann", "well": 5}])
    owners.create_tag("first")
    owners.delete([{"name": "Zygmunt Quirrell"}])
    assert files_with(tmp_path / "water", b"Zygmunt")
    plan = owners.forget([{"name": "Zygmunt Quirrell"}], rewrite_tags=True)
    assert plan.plan.traces
    done = owners.forget(
        [{"name": "Zygmunt Quirrell"}],
        dry_run=False,
        rewrite_tags=True,
        unreferenced_older_than="0 s",
    )
    assert done.is_clean
    assert files_with(tmp_path / "water", b"Zygmunt") == []
    assert owners.to_arrow("name", version="first")["name"].to_pylist() == ["Ann"]


def test_a_warehouse_of_others_and_a_lost_catalog_come_back(catalog, wells, tmp_path):
    catalog.close()
    (tmp_path / "water" / "catalog.db").unlink()
    shell = Shell(tmp_path)
    assert "geo.wells" in shell("--warehouse", tmp_path / "water", "tables").output
    again = lsm.open_catalog(tmp_path / "water")
    with pytest.raises(lsm.NotFoundError, match=r"lsm catalog register geo\.wells"):
        again["geo.wells"]
    assert again.register_table("geo.wells").count() == 12
    shutil.move(tmp_path / "water" / "geo.db" / "wells", tmp_path / "elsewhere")
    again.unregister_table("geo.wells")
    assert again.adopt_table(str(tmp_path / "elsewhere"), "geo.adopted").count() == 12
    (tmp_path / "water" / "catalog.db").unlink()
    assert lsm.open_catalog(tmp_path / "water").rebuild() == {"geo.adopted": 1}


def test_there_is_one_place_for_the_catalog(wells, tmp_path, monkeypatch):
    place = tmp_path / "water"
    for same in (lsm.open_catalog(str(place)), lsm.open_catalog(warehouse=place)):
        assert same["geo.wells"].count() == 12
    output = Shell(tmp_path)("--warehouse", place, "count", "geo.wells").output
    assert output.strip() == "12"
    monkeypatch.chdir(place.parent)
    assert lsm.open_catalog("water").list_tables() == ["geo.wells"]
    assert [path.name for path in tmp_path.rglob("catalog.db")] == ["catalog.db"]


def test_what_a_write_returns_is_a_bookmark(catalog):
    table = catalog.create_table(
        "geo.levels", {"well": int, "level": float}, primary_key="well",
        options={"changelog-producer": "lookup"},
    )  # fmt: skip
    seen = table.upsert([{"well": 1, "level": 1.0}])
    assert table.changelog(after=seen).num_rows == 0
    table.upsert([{"well": 1, "level": 2.0}])
    assert table.changelog(after=seen)["level"].to_pylist() == [1.0, 2.0]


def test_polars_and_duckdb_read_a_table_and_hand_filters_down(wells):
    wells.upsert(WELLS[:1])
    assert wells.to_polars().filter(pl.col("well") > 10).select("depth").collect().height == 2
    dataset = wells.to_dataset()
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("well") == 3).collect().height == 1
    assert duckdb.sql("select count(*) from dataset where well > 10").fetchone() == (2,)
    assert duckdb.sql("select count(*) from wells where well > 10").fetchone() == (2,)
    assert pl.DataFrame(wells).height == pa.table(wells).num_rows == 12


def test_a_table_is_changed_from_the_shell(wells, tmp_path):
    shell = Shell(tmp_path)
    shell("--warehouse", tmp_path / "water", "alter", "geo.wells", "--add", "note STRING")
    assert lsm.__version__ in shell("--version").output
    names = lsm.open_catalog(tmp_path / "water")["geo.wells"].schema.names
    assert names == ("well", "county", "depth", "drilled", "note")


def test_filters_are_sql_predicates_or_arrow_wherever_one_is_taken(wells):
    filters = ("depth > 100 and county = 'county 1'", pc.field("well") == 10)
    for where in (*filters, (lsm.col("depth") > 100) & (lsm.col("well") == 10)):
        assert wells.to_arrow("well", where=where)["well"].to_pylist() == [10]
    assert wells.count(where=lsm.col("drilled") >= dt.date(2001, 1, 1)) == 2
    assert wells.count(where="drilled >= '2001-01-01'") == 2
    wells.delete(where="county = 'county 0'")
    wells.update(set={"depth": "depth + 1"}, where="well < 3")
    assert sorted(wells.to_arrow(where="well < 4")["depth"].to_pylist()) == [11.5, 22.0]


def test_rows_are_merged_counted_looked_at_and_handed_on(wells):
    new = [{"well": 1, "county": "new", "depth": 1.0}, {"well": 99, "county": "far", "depth": 9.0}]
    merge = wells.merge(new).when_matched_update({"county": "source.county"})
    assert "execute()" in repr(merge)
    merge.when_not_matched_insert_all().execute()
    assert len(wells) == 13
    assert wells.head(3).num_rows == 3
    assert set(wells.to_pandas()["county"]) >= {"new", "far"}
    assert wells.to_polars().collect().height == 13
    assert wells.history()["commit_kind"].to_pylist() == ["APPEND", "APPEND"]
    assert wells.count(as_of=dt.datetime.now(dt.UTC)) == 13
    assert "snapshot 2: well, county" in repr(wells.scan(["well", "county"]))


def test_names_types_and_versions_are_given_as_they_are_elsewhere(catalog, wells):
    frame = pl.DataFrame({"well": [1], "kind": ["a"]})
    made = catalog.create_table("geo.kinds", frame, primary_key="well")
    made.alter(lsm.AddColumn("x", pa.int64()), lsm.AddColumn("y", float))
    made.alter(lsm.ChangeType("x", "DOUBLE"))
    assert [str(field.type) for field in made.schema.arrow] == ["int64", "string", *["double"] * 2]
    wells.create_tag("a")
    wells.upsert(WELLS[:1])
    wells.create_tag("b")
    diff = wells.diff_snapshots("a", "b")
    assert (diff.first_id, diff.second_id, diff.added.num_rows) == (1, 2, 1)
    assert wells.diff_snapshots(1, 2) == diff


def test_damage_is_named_and_mended(wells, tmp_path):
    wells.upsert(WELLS[:6])
    wells.compact(full=True)
    file = wells.system("files")["file_path"].to_pylist()[0]
    (damaged,) = (tmp_path / "water").rglob(file.rsplit("/", 1)[-1])
    damaged.write_bytes(damaged.read_bytes()[:-40] + b"\0" * 40)
    assert not wells.verify(deep=True).is_clean
    report = wells.restore_files()
    assert "12" in repr(report)
    wells.restore_files(dry_run=False)
    assert sorted(wells.to_arrow("well")["well"].to_pylist()) == list(range(1, 13))


# --- what is nearly right ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("t.upsert({'well': 1})", r"\[row\]"),
        ("t.upsert({'well': [1]})", r"pyarrow\.table"),
        ("t.upsert('wells.csv')", "lsm.read_files"),
        ("t.upsert([(1, 'x')])", r"\[\{'id': 1"),
        ("t.upsert(row for row in WELLS)", r"list\(rows\)"),
        ("t.upsert(pl.DataFrame(WELLS).lazy())", r"\.collect\(\)"),
        ("t.upsert([{'wel': 1}])", "'well'"),
        ("t.delete('well = 1')", "where="),
        ("t.delete('5')", "where="),
        ("t.lookup([1, None])", "key column 'well'"),
        ("t.lookup([1, 'Ann'])", "no type in common"),
        ("t.update({'depth': '0'})", r"set=\{column"),
        ("t.scan('depth > 4')", "where="),
        ("t.scan(where=[('depth', '>', 4)])", r"lsm\.col\('depth'\) > 4"),
        ("t.scan(where=pl.col('depth') > 4)", r"to_polars\(\)\.filter"),
        ("t.scan(where=lsm.col('depth') + 1 > 4)", r"pc\.field\('depth'\)"),
        ("t.scan(where='dpth > 4')", "'depth'"),
        ("t.scan(as_of='opening')", "version="),
        ("t.alter('add column x int')", "AddColumn"),
        ("t.alter([lsm.AddColumn('x', int)])", "one after another"),
        ("t.alter(lsm.AddColumn('x', object))", "'x' has no type"),
        ("t.diff_snapshots('opening', 'closing')", "closing"),
        ("t.create_tag(1)", r"name is text, not 1: create\(name, snapshot_id="),
        ("t.verify('deep')", "snapshot_id is a whole number"),
        ("t.compact('full')", "full is True or False"),
        ("t.expire_snapshots('7 d')", "dry_run is True or False"),
        ("t.compact(partitions='county 1')", "partitions is a list"),
        ("t.update(set='depth = 0')", r"set is a mapping, \{name: value\}"),
        ("t.update(set={})", "none is given"),
        ("t.update(set={'depth': pl.col('depth') * 2})", r"SQL text, such as 'depth \+ 1'"),
        ("t.merge([]).when_matched_update('depth')", "set is a mapping"),
        ("t.delete(where=[('well', '=', 4)])", r"lsm\.col\('well'\) == 4"),
        ("t.upsert(pa.array([1]))", r"pyarrow\.table\(\{name: rows\}\)"),
        ("t.upsert(pl.Series('well', [1]))", r"rows\.to_frame\(name\)"),
        ("t.upsert(pl.DataFrame({'well': [2**70]}))", "cast it first"),
        ("t.lookup('Ann')", "column 'well' takes int64, not string"),
        ("t.query().get('Ann')", "get takes a key as a dictionary"),
        ("t.changelog(after='2026-01-01')", "datetime, or as after_millis=1767225600000"),
        ("t.to_duckdb('select 1')", "a connection of DuckDB"),
        ("t.alter(lsm.SetOption({'write-only': True}, 1))", "key is text"),
        ("t.alter(lsm.AddColumn('x', 'int primary key'))", "write one such as BIGINT"),
        ("t.alter(lsm.AddColumn('x', 'uint64'))", "column 'x' has Arrow type uint64"),
        (
            "catalog.create_table('geo.new', pl.DataFrame({'well': [2**70]}))",
            r"give \{name: type\}",
        ),
        ("lsm.open_catalog(':memory:')", "give a directory"),
        ("lsm.open_catalog('file:///water')", "path of a directory"),
    ],
)
def test_what_is_nearly_right_is_refused_with_what_to_type(typed, instead, catalog, wells):
    wells.create_tag("opening")
    with pytest.raises(lsm.LsmError, match=instead):
        eval(typed, {**globals(), "t": wells, "catalog": catalog})
    assert wells.latest_snapshot().id == 1


def len_of(rows):
    return len(rows)


def test_what_stands_for_the_columns_of_a_table_is_said_and_asked(wells):
    assert "depth" in wells.schema
    assert "dpth" not in wells.schema
    assert len(wells.schema) == 4
    assert wells.alter(lsm.AddColumn("d", lsm.type_of_text("DATE"))).arrow.field("d").type == pa.date32()  # fmt: skip


def test_changes_are_looked_at_row_by_row_and_columns_may_be_one(wells):
    changes = wells.changes(columns="well")
    assert [row["well"] for row in changes] == list(range(1, 13))
    assert repr(changes) == "<Changes of 'geo.wells' after snapshot 0 up to 1>"
    assert wells.system("files", columns="level").column_names == ["level"]
    assert wells.query().get({"well": 3}, "depth") == {"depth": 31.5}


def test_a_rollback_takes_a_tag_by_its_place(wells):
    wells.create_tag("opening")
    wells.delete(where="well > 3")
    assert wells.rollback_to("opening").plan.target.id == 1
    wells.delete(where="well > 4")
    wells.rollback_to_as_latest("opening")
    assert wells.count() == 12


def test_a_table_that_is_there_and_rows_for_columns_say_what_to_type(catalog, wells):
    with pytest.raises(lsm.AlreadyExistsError, match="ignore_if_exists=True"):
        catalog.create_table("geo.wells", {"well": int}, primary_key="well")
    with pytest.raises(lsm.InvalidInputError, match="from_pylist"):
        catalog.create_table("geo.new", WELLS, primary_key="well")

"""What people type who come from other libraries: it works, or the error names what to type."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from tests.unit.table.history_tables import START, Story

ROWS = [{"id": k, "name": f"n{k}", "price": k / 2} for k in range(10)]


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def table(catalog):
    made = catalog.create_table(
        "shop.orders", {"id": int, "name": str, "price": float}, primary_key="id"
    )
    made.upsert(ROWS)
    return made


# --- catalogs ----------------------------------------------------------------------------------


def test_a_directory_is_enough_for_a_catalog(tmp_path, table):
    again = lsm.open_catalog(str(tmp_path / "lake"))
    assert again["shop.orders"].count() == 10
    named = lsm.open_catalog(warehouse=tmp_path / "lake")
    assert named.url == again.url
    assert (tmp_path / "lake" / "catalog.db").is_file()


def test_a_catalog_is_asked_like_a_mapping(catalog, table):
    catalog.create_table("hr.people", {"id": "BIGINT"}, primary_key=["id"])
    assert catalog.list_tables() == list(catalog) == ["hr.people", "shop.orders"]
    assert catalog.list_tables("hr") == ["people"]
    assert "shop.orders" in catalog
    assert "shop.order" not in catalog
    with pytest.raises(lsm.NotFoundError, match="orders"):
        catalog["shop.order"]


# --- schemas -----------------------------------------------------------------------------------

EXPECTED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


@pytest.mark.parametrize(
    "given",
    [
        {"id": pa.int64(), "name": pa.string()},
        {"id": "BIGINT NOT NULL", "name": "STRING"},
        {"id": int, "name": str},
        [("id", "BIGINT"), ("name", "STRING")],
        [pa.field("id", pa.int64()), pa.field("name", pa.string())],
        pa.table({"id": [1], "name": ["a"]}),
        pl.DataFrame({"id": [1], "name": ["a"]}),
        pd.DataFrame({"id": [1], "name": ["a"]}),
        duckdb.sql("select 1::bigint as id, 'a' as name"),
    ],
    ids=[
        "arrow types",
        "SQL types",
        "Python types",
        "pairs",
        "fields",
        "Arrow table",
        "polars",
        "pandas",
        "DuckDB",
    ],
)
def test_columns_are_given_in_many_ways(catalog, given):
    made = catalog.create_table("a.t", given, primary_key="id")
    types = [(f.name, f.type, f.nullable) for f in made.schema.arrow]
    assert types == [(f.name, f.type, f.nullable) for f in EXPECTED]
    made.upsert([{"id": 1, "name": "a"}])
    assert list(made) == [{"id": 1, "name": "a"}]


def test_python_types_have_a_column_type_each(catalog):
    kinds = {"k": int, "f": float, "b": bool, "x": bytes, "d": date, "t": datetime, "n": Decimal}
    made = catalog.create_table("a.t", kinds, primary_key="k")
    row = {"k": 1, "f": 0.5, "b": True, "x": b"x", "d": date(2024, 5, 1),
           "t": datetime.fromisoformat("2024-05-01T08:00:00"), "n": Decimal("1.5")}  # fmt: skip
    made.upsert([row])
    assert list(made) == [row]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"id": object}, "id"),
        ({"id": "BIGNT"}, "BIGNT"),
        (["id"], "'id'"),
        ("id", "str"),
        (7, "int"),
    ],
)
def test_columns_that_are_none_are_refused_by_name(catalog, given, named):
    with pytest.raises(lsm.LsmError, match=named):
        catalog.create_table("a.t", given, primary_key="id")
    assert "a.t" not in catalog


@pytest.mark.parametrize("wrong", [7, [7], None])
def test_a_key_that_is_no_name_is_refused(catalog, wrong):
    with pytest.raises(lsm.InvalidInputError, match="primary_key"):
        catalog.create_table("a.t", {"id": int}, primary_key=wrong)


def test_schema_changes_take_their_arguments_in_order(table):
    table.alter(lsm.AddColumn("x", pa.int64()), lsm.RenameColumn("name", "title"))
    table.alter(lsm.SetColumnComment("x", "new"), lsm.ChangeType("price", "DOUBLE"))
    table.alter(lsm.SetOption("snapshot.num-retained.min", "3"), lsm.DropColumn("x"))
    assert table.schema.names == ("id", "title", "price")
    assert lsm.AddColumn("x", pa.int64()) == lsm.AddColumn(name="x", type=pa.int64())


# --- reads -------------------------------------------------------------------------------------


def test_rows_come_out_as_what_people_go_on_with(table):
    arrow = table.to_arrow("id")
    assert sorted(arrow["id"].to_pylist()) == list(range(10))
    assert table.to_pandas(["id", "price"]).sort_values("id")["price"].tolist() == [
        k / 2 for k in range(10)
    ]
    assert len(table) == table.count() == 10
    assert bool(table)
    assert table.head(3).num_rows == 3
    assert table.count("price > 2") == 5
    assert sorted(row["id"] for row in table) == list(range(10))
    assert pa.table(table).num_rows == pl.from_arrow(pa.table(table)).height == 10
    assert table.to_reader(where="id = 3").read_all().to_pylist() == [ROWS[3]]


def test_a_length_is_counted_also_while_rows_are_iterated(table):
    unread = iter(table)
    assert [len(table) for _ in unread] == [10] * 10
    assert len(list(table)) == len(table) == 10


def test_all_filters_of_a_list_hold(table):
    found = table.to_arrow("id", where=["id > 2", lsm.col("id") < 6, pc.field("id") != 4])
    assert sorted(found["id"].to_pylist()) == [3, 5]
    assert table.count(where=[]) == 10


def test_duckdb_reads_a_table_by_its_variable(table):
    orders = table.scan()  # noqa: F841 -- DuckDB finds it by its name
    assert duckdb.sql("select sum(id) from orders where price > 2").fetchone() == (35,)


def scans_of(monkeypatch):
    """What scans are asked for from now on: the columns and filters of each that is read."""
    asked = []
    original = lsm.Scan.to_batches

    def noted(self):
        asked.append((self._request.columns, self._predicate, self._request.limit))
        return original(self)

    monkeypatch.setattr(lsm.Scan, "to_batches", noted)
    return asked


def test_a_lazy_polars_frame_hands_down_columns_and_filters(table, monkeypatch):
    table.upsert(ROWS[:1])  # two runs: where there is one, polars reads its files
    asked = scans_of(monkeypatch)
    frame = table.to_polars()
    assert isinstance(frame, pl.LazyFrame)
    assert asked == []
    found = frame.filter((pl.col("id") > 3) & (pl.col("id") != 5)).select("price").collect()
    assert sorted(found["price"].to_list()) == [2.0, 3.0, 3.5, 4.0, 4.5]
    ((columns, predicate, _),) = asked
    assert sorted(columns) == ["id", "price"]
    assert predicate is not None
    by_name = frame.filter(pl.col("name").str.ends_with("7")).collect()
    assert by_name["id"].to_list() == [7]
    by_parity = frame.group_by(pl.col("id") % 2).agg(pl.len()).sort("id").collect()
    assert by_parity.rows() == [(0, 5), (1, 5)]
    assert frame.head(2).collect().height == 2


def test_a_lazy_frame_stays_at_its_snapshot(table):
    frame = table.to_polars()
    table.delete([{"id": k} for k in range(5)])
    assert frame.collect().height == 10
    assert table.to_polars().collect().height == 5
    assert table.to_polars(version=1).collect().height == 10


def test_a_dataset_answers_what_others_ask_of_one(table):
    dataset = table.to_dataset(["id", "price"], where="id >= 2")
    assert dataset.schema.names == ["id", "price"]
    assert dataset.count_rows() == 8
    assert dataset.count_rows(filter=pc.field("id") < 4) == 2
    assert dataset.head(3).num_rows == 3
    assert dataset.to_table(columns=["price"], filter=pc.field("id") == 2).to_pylist() == [
        {"price": 1.0}
    ]
    assert dataset.scanner(columns=["id"], batch_size=7).to_table().num_rows == 8
    assert pl.scan_pyarrow_dataset(dataset).select(pl.len()).collect().item() == 8
    with pytest.raises(lsm.NotFoundError, match="name"):
        table.to_dataset("id").to_table(columns=["nmae"])
    with pytest.raises(lsm.InvalidInputError, match="limit"):
        table.to_dataset(limit=2).to_table(filter=pc.field("id") == 2)


# --- times and versions ------------------------------------------------------------------------


def moments():
    """A table of three snapshots, a second apart, with what is in each."""
    story = Story()
    for number in (1, 2, 3):
        story.put(**{f"k{number}": "v"})
    story.table.create_tag("two", snapshot_id=2)
    at = datetime.fromtimestamp(START / 1000, UTC)
    return story.table, at


def test_the_past_is_named_by_version_or_time():
    table, start = moments()
    second = start + timedelta(seconds=2, milliseconds=500)
    assert table.count(version=2) == table.count(version="two") == 2
    assert table.count(as_of=second) == 2
    assert table.count(as_of=second.astimezone(timezone(timedelta(hours=5)))) == 2
    assert table.count(as_of=second.replace(tzinfo=None)) == 2
    assert table.count(as_of=second.isoformat()) == 2
    assert table.count(as_of=int(second.timestamp() * 1000)) == 2
    assert table.count(as_of=(start + timedelta(days=1)).date()) == 3
    assert table.count(as_of=np.datetime64(second.replace(tzinfo=None)).astype(datetime)) == 2
    assert table.changelog(after=start + timedelta(seconds=1), upto=second).num_rows == 1


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"version": 2, "snapshot_id": 1}, "version"),
        ({"version": 2, "as_of": START + 9000}, "several"),
        ({"as_of": START, "as_of_millis": START}, "as_of"),
        ({"as_of": "yesterday"}, "2024-05-01"),
        ({"as_of": 1.5}, "datetime"),
        ({"as_of": True}, "datetime"),
        ({"columns": 7}, "columns"),
        ({"columns": [7]}, "columns"),
    ],
)
def test_a_read_that_names_two_states_or_none_is_refused(asked, named):
    table, _ = moments()
    with pytest.raises(lsm.InvalidInputError, match=named):
        table.scan(**asked)


def test_versions_that_are_not_there_are_named():
    table, _ = moments()
    with pytest.raises(lsm.NotFoundError, match="9"):
        table.scan(version=9)
    with pytest.raises(lsm.NotFoundError, match="nine"):
        table.scan(version="nine")
    with pytest.raises(lsm.NotFoundError, match=r"no tag '2'; .*as a number, 2 without"):
        table.scan(version="2")
    table.tags.create("second", snapshot_id=2)
    table.branches.create("audit", tag="second")
    with pytest.raises(
        lsm.NotFoundError, match=r"no tag 'audit', which is a branch; .*table.branch\('audit'\)"
    ):
        table.scan(version="audit")


def test_history_is_a_table_newest_first():
    table, _ = moments()
    assert table.history()["snapshot_id"].to_pylist() == [3, 2, 1]
    newest = table.history(limit=1).to_pylist()[0]
    assert (newest["snapshot_id"], newest["commit_kind"]) == (3, "APPEND")

"""Habits of other libraries at scans, catalogs, schemas and predicates: they work, or say what to write."""

import pickle

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import lsm_engine as lsm

ROWS = [{"id": k, "name": f"n{k}"} for k in range(10)]


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def table(catalog):
    made = catalog.create_table("shop.orders", {"id": int, "name": str}, primary_key="id")
    assert len(made.scan()) == 0
    assert made.scan()
    made.upsert(ROWS)
    return made


def test_a_scan_is_counted_and_iterated_as_a_table_is(table):
    scan = table.scan(where="id > 2", columns="id")
    assert len(scan) == 7
    assert sorted(row["id"] for row in scan) == list(range(3, 10))
    assert len(pd.DataFrame(scan)) == pl.DataFrame(scan).height == 7
    assert len(list(table.scan(limit=3))) == len(table.scan(limit=3)) == 3


def test_a_catalog_has_a_length_and_drops_nothing_by_del(catalog, table):
    assert len(catalog) == 1
    with pytest.raises(TypeError, match=r"drop_table\('shop.orders'\)"):
        del catalog["shop.orders"]
    with pytest.raises(TypeError, match=r"create_table\('shop.new'"):
        catalog["shop.new"] = pa.table({"id": [1]})
    assert catalog.list_tables() == ["shop.orders"]
    catalog.drop_table("shop.orders")
    assert len(catalog) == 0
    assert catalog


def test_a_schema_is_one_to_arrow_and_is_gone_through(table):
    assert pa.schema(table.schema) == table.schema.arrow
    assert [field.name for field in table.schema] == ["id", "name"]
    assert table.schema["name"] == table.schema.field("name")


@pytest.mark.parametrize("what", ["table", "scan"])
def test_what_takes_a_dataset_is_told_to_dataset(table, what):
    given = {"table": table, "scan": table.scan()}[what]
    with pytest.raises(TypeError):
        ds.dataset(given)
    assert ds.dataset(given.to_arrow()).count_rows() == 10
    assert pa.table(given).num_rows == 10


def test_who_takes_arrow_streams_takes_a_table(table, tmp_path):
    assert pl.DataFrame(table).height == pd.DataFrame(table).shape[0] == 10
    orders = table  # noqa: F841 -- DuckDB finds it by its name
    assert duckdb.sql("select count(*) from orders").fetchone() == (10,)
    ds.write_dataset(table, tmp_path / "out", format="parquet")
    assert ds.dataset(tmp_path / "out").count_rows() == 10


KEYS = [
    *(3, [3], (3,), {3}, range(3, 4), {"id": 3}, [{"id": 3}]),
    *(np.array([3]), pa.array([3]), pa.chunked_array([[3]]), pl.Series([3]), pd.Series([3])),
]


@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: f"{type(keys).__name__} {keys}")
def test_values_alone_are_keys_where_the_key_is_one_column(table, keys):
    assert table.lookup(keys)["name"].to_pylist() == ["n3"]
    assert table.locate(keys).num_rows == 1
    table.delete(keys)
    assert table.lookup(keys)["_found"].to_pylist() == [False]
    assert len(table) == 9


def test_text_alone_is_a_key_to_lookup_and_refused_by_delete(catalog):
    people = catalog.create_table("shop.people", {"name": str, "age": int}, primary_key="name")
    people.upsert([{"name": "Ann", "age": 3}, {"name": "Bo", "age": 4}])
    assert people.lookup("Bo")["age"].to_pylist() == [4]
    with pytest.raises(lsm.InvalidInputError, match="where="):
        people.delete("Bo")
    people.delete(["Bo", "Cy"])
    assert people.to_arrow()["name"].to_pylist() == ["Ann"]


def test_none_for_partitions_is_none_of_them(catalog):
    made = catalog.create_table("shop.log", {"line": str}, "line", partitioned_by=None)
    assert made.schema.partition_keys == ()


def test_a_key_of_two_columns_takes_no_values_alone(catalog):
    lines = catalog.create_table("shop.lines", {"id": int, "line": int}, primary_key=["id", "line"])
    lines.upsert([{"id": 1, "line": 2}])
    assert lines.lookup({"id": 1, "line": 2})["_found"].to_pylist() == [True]
    for keys in (1, [1], [(1, 2)], np.array([1])):
        with pytest.raises(
            lsm.InvalidInputError, match=r"dictionaries|rows must be Arrow|no columns"
        ):
            lines.lookup(keys)
        with pytest.raises(
            lsm.InvalidInputError, match=r"dictionaries|rows must be Arrow|no columns"
        ):
            lines.delete(keys)
    assert len(lines) == 1


def test_a_column_is_an_attribute_of_col(table):
    assert table.to_arrow(where=(lsm.col.id > 7) & (lsm.col.name != "n9")).num_rows == 1


def test_what_is_open_is_not_sent_to_other_processes(catalog, table):
    for what, named in (
        (table, r"lsm\.open_table\(location\)"),
        (table.scan(), r"lsm\.open_table\(location\)"),
        (lsm.open_table(table.location), r"lsm\.open_table\(location\)"),
        (catalog, r"lsm\.open_catalog\("),
    ):
        with pytest.raises(TypeError, match=named):
            pickle.dumps(what)
    assert pickle.loads(pickle.dumps(lsm.col("id") > 3)) == (lsm.col("id") > 3)


@pytest.mark.parametrize("condition", ["id = 3", lsm.col("id") == 3, pc.field("id") == 3])
def test_a_condition_in_the_place_of_keys_deletes_nothing(table, condition):
    with pytest.raises(lsm.InvalidInputError, match="where="):
        table.delete(condition)
    assert len(table) == 10


@pytest.mark.parametrize(
    ("triple", "written"),
    [
        (("id", "=", 3), r"lsm.col\('id'\) == 3"),
        (("id", "<>", 3), r"lsm.col\('id'\) != 3"),
        (("id", "in", [1, 2]), r"lsm.col\('id'\).is_in\(\[1, 2\]\)"),
    ],
)
def test_a_filter_as_a_triple_is_answered_in_python(table, triple, written):
    with pytest.raises(lsm.InvalidInputError, match=written):
        table.scan(where=[triple])


def test_a_doctor_looks_at_tables_and_catalogs(tmp_path):
    with pytest.raises(lsm.InvalidInputError, match="target is a Table or a Catalog"):
        lsm.doctor("lake")


def test_a_triple_as_a_filter_is_refused_with_text_in_quotes(table):
    with pytest.raises(lsm.InvalidInputError, match="such as \"name = 'n1'\""):
        table.to_arrow(where=("name", "=", "n1"))


def test_times_of_numpy_are_times(table):
    assert lsm.millis_of(np.datetime64("2026-05-01T08:00:00.123456")) == 1777622400123
    assert lsm.millis_of(np.datetime64("2026-05-01")) == lsm.millis_of("2026-05-01")
    with pytest.raises(lsm.InvalidInputError):
        lsm.millis_of(np.datetime64("NaT"))
    assert table.to_arrow(as_of=np.datetime64("2100-01-01")).num_rows == len(ROWS)

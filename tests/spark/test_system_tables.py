"""System tables through Spark: the same rows as without it, filtered or not."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException

import lsm_engine as lsm
from lsm_engine.spark import SparkExecutor, register
from tests.spark.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(new_table):
    table = new_table("orders", write_only="true")
    table.upsert(rows(0, 40, "a"))
    table.create_tag("first")
    table.upsert(rows(20, 40, "b"))
    return table


@pytest.mark.parametrize("name", ["files", "snapshots", "consumers", "audit_log", "table_indexes"])
def test_the_same_rows_as_without_spark(spark, orders, name):
    register(spark)
    expected = orders.system(name)
    found = spark.read.format("lsm").load(f"{orders.location}${name}").toArrow()
    assert found.cast(expected.schema).to_pylist() == expected.to_pylist()


def test_filters_are_filters_afterwards(spark, orders):
    register(spark)
    frame = spark.read.format("lsm").load(f"{orders.location}$files")
    found = frame.where("bucket = 1 AND level = 0 AND partition LIKE 'day=%'").select("file_path")
    where = (pc.field("bucket") == 1) & (pc.field("level") == 0)
    assert sorted(found.toArrow()["file_path"].to_pylist()) == sorted(
        orders.system("files", where=where)["file_path"].to_pylist()
    )
    times = frame.where("creation_time IS NOT NULL AND min_key >= '1'").count()
    whole = orders.system("files", where=pc.field("min_key") >= "1")
    assert times == whole.num_rows
    tagged = spark.read.format("lsm").option("tag", "first").load(f"{orders.location}$files")
    assert tagged.count() == orders.system("files", tag="first").num_rows


def test_the_whole_catalog(spark, orders, tmp_path):
    register(spark)
    reader = spark.read.format("lsm").option("catalog", f"sqlite:///{tmp_path}/c.db")
    found = reader.option("warehouse", str(tmp_path)).load("sys.tables")
    (row,) = found.where("table_name = 'orders'").toArrow().to_pylist()
    assert row["file_count"] == orders.system("files").num_rows
    assert pa.types.is_timestamp(found.toArrow().schema.field("last_update_time").type)


def test_a_name_that_is_none(spark, orders):
    register(spark)
    with pytest.raises((PySparkException, lsm.NotFoundError), match="buckets"):
        spark.read.format("lsm").load(f"{orders.location}$nothing").count()


def test_rows_that_have_ids(spark, tmp_path):
    """Column files are joined in tasks, and ids are read and written through Spark as without it."""
    register(spark)
    columns = pa.schema([("a", pa.int64()), ("v", pa.string())])
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "bucket": "-1"}
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        catalog.create_database("shop")
        table = catalog.create_table("shop.clicks", columns, options=options)
        spark.createDataFrame([(1, "x"), (2, "y")], "a long, v string").write.format("lsm").mode(
            "append"
        ).save(table.location)
        ids = {row["a"]: row["_ROW_ID"] for row in table.system("row_tracking").to_pylist()}
        assert sorted(ids.values()) == [0, 1]
        table = lsm.open_table(table.location, executor=SparkExecutor(spark))
        table.update_columns([{"_ROW_ID": ids[2], "v": "new"}])
        frame = spark.read.format("lsm").load(table.location)
        assert {tuple(row) for row in frame.collect()} == {(1, "x"), (2, "new")}
        assert [row["a"] for row in frame.where("v = 'new'").collect()] == [2]
        table.compact(full=True)
        tracked = spark.read.format("lsm").load(f"{table.location}$row_tracking")
        assert {(row["a"], row["v"], row["_ROW_ID"]) for row in tracked.collect()} == {
            (1, "x", ids[1]),
            (2, "new", ids[2]),
        }

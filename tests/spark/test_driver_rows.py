"""Small DataFrames are written by the driver, all others by executors; the rows are the same."""

import os
from contextlib import suppress

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import functions as sql

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.spark import TaskFailedError, executor, merge_dataframe, upsert_dataframe
from lsm_engine.spark.merge import LOCAL_BYTES, FrameRows
from lsm_engine.spark.rows import few_rows
from lsm_engine.spark.session import DRIVER_BYTES

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())])


@pytest.fixture
def setting(spark):
    """Set the limit of the session for one test."""
    yield lambda text: spark.conf.set(DRIVER_BYTES, text)
    spark.conf.unset(DRIVER_BYTES)


def rows(spark, count):
    """Rows of which the later ones of a key count, in several partitions."""
    numbers = spark.range(0, count, 1, 4).withColumn("n", sql.col("id"))
    return numbers.selectExpr("id % 100 AS id", "concat('d', id % 2) AS day", "n")


@pytest.mark.parametrize(("limit", "collected"), [("1mb", True), ("1kb", False), ("0", False)])
def test_rows_up_to_the_limit_are_written_by_the_driver(
    spark, new_table, setting, monkeypatch, limit, collected
):
    setting(limit)
    given = []
    by_executors = executor.stage_frame
    monkeypatch.setattr(
        executor, "stage_frame", lambda *a, **named: given.append(a) or by_executors(*a, **named)
    )
    table = new_table("orders", schema=SCHEMA)
    upsert_dataframe(table, rows(spark, 1000))
    assert bool(given) is not collected
    found = table.scan().to_arrow().to_pylist()
    assert sorted(row["n"] for row in found) == list(range(900, 1000))


def test_rows_that_spark_takes_for_fewer_than_they_are_stay_with_executors(spark):
    exploded = spark.range(3).select(sql.explode(sql.sequence(sql.lit(1), sql.lit(50))))
    assert few_rows(exploded, label="rows") is None
    mapped = spark.range(3).mapInArrow(lambda batches: batches, "id long")
    assert few_rows(mapped, label="rows") is None
    assert (
        few_rows(spark.createDataFrame([(1,)], "id long"), label="rows") is None
    )  # of unknown size
    assert few_rows(spark.range(3), label="rows").column("id").to_pylist() == [0, 1, 2]


@pytest.mark.skipif(os.environ.get("LSM_SPARK_CONNECT") == "1", reason="its workers are elsewhere")
def test_small_work_starts_no_worker_in_python(spark, run, tmp_path, monkeypatch):
    """The empty result of CREATE TABLE alone started three."""
    # Workers of another environment are others: those that tests before this one have started do not count.
    monkeypatch.setitem(spark.sparkContext.environment, "LSM_TEST_WORKERS", str(tmp_path))
    for statement in (
        "CREATE TABLE shop.t (id BIGINT, day STRING, n INT) USING lsm TBLPROPERTIES ('primary-key' = 'id')",
        "INSERT INTO shop.t SELECT id, 'd', 1 FROM range(9)",
        "UPDATE shop.t SET n = length(day) WHERE abs(id) < 3",
        "DELETE FROM shop.t WHERE id = 2",
        "MERGE INTO shop.t t USING (SELECT 3L AS id, 4 AS n) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n",
        "CALL sys.compact(table => 'shop.t')",
        "ALTER TABLE shop.t ADD COLUMNS (city STRING)",
    ):
        run(statement)
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        upsert_dataframe(catalog["shop.t"], spark.range(20).selectExpr("id", "'e' AS day"))
        merge_dataframe(catalog["shop.t"], spark.range(4), on="id").when_matched_delete().execute()
        assert catalog["shop.t"].scan().count() == 16
    started = []
    for process in psutil.Process().children(recursive=True):
        # A process of another test may end meanwhile.
        with suppress(psutil.NoSuchProcess):
            if process.environ().get("LSM_TEST_WORKERS") == str(tmp_path):
                started.append(process.cmdline())
    assert started == []


def test_a_limit_that_is_no_size_is_named(spark, setting):
    setting("much")
    with pytest.raises(InvalidOptionError, match="32mb") as refused:
        few_rows(spark.range(1), label="rows")
    assert refused.value.facts["key"] == DRIVER_BYTES


def test_rows_that_cannot_be_computed_leave_the_table_as_it_was(spark, new_table):
    table = new_table("orders", schema=SCHEMA)
    failing = rows(spark, 10).withColumn("n", sql.expr("CAST(concat(day, 'x') AS BIGINT)"))
    with pytest.raises(TaskFailedError, match="write rows"):
        upsert_dataframe(table, failing)
    assert table.snapshots() == []


@pytest.mark.parametrize("given", [None, "1mb"])
def test_conditions_over_many_rows_are_computed_in_tasks_and_not_in_the_plan(
    spark, new_table, monkeypatch, given
):
    before = spark.conf.get(LOCAL_BYTES)
    table = new_table("orders", schema=SCHEMA, partitioned_by=())
    table.upsert(pa.table({"id": range(20_000), "day": ["d"] * 20_000, "n": range(20_000)}))
    plans = []
    collect = FrameRows.collected
    monkeypatch.setattr(
        FrameRows, "collected", lambda of, rows: plans.append(plan_of(rows)) or collect(of, rows)
    )
    if given is not None:
        spark.conf.set(LOCAL_BYTES, given)
    try:
        merge = merge_dataframe(table, spark.range(20_000), on="id")
        merge.when_matched_delete("abs(target.n) % 10 = 3").execute()
        assert spark.conf.get(LOCAL_BYTES) == (given or before)
    finally:
        spark.conf.unset(LOCAL_BYTES)
    assert plans
    assert not [plan for plan in plans if "LocalRelation" in plan]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [
        at for at in range(20_000) if at % 10 != 3
    ]


def plan_of(frame):
    """What Spark makes of a frame before it runs it."""
    return frame._jdf.queryExecution().optimizedPlan().toString()


@pytest.mark.parametrize("limit", ["32mb", "0"])
def test_a_merge_keeps_values_of_a_column_that_was_added_since_the_table_was_opened(
    spark, new_table, setting, limit
):
    setting(limit)
    table = new_table("orders", schema=SCHEMA)
    upsert_dataframe(table, rows(spark, 100))
    newer = lsm.open_table(table.location)
    newer.alter(lsm.AddColumn("w", "INT"))
    newer.update(set={"w": "cast(id AS INT)"}, where="id < 10")
    source = spark.range(5).selectExpr("id", "concat('d', id % 2) AS day", "1000 + id AS n")
    merge_dataframe(table, source).when_matched_update_all().execute()
    found = lsm.open_table(table.location).to_arrow().sort_by("id").to_pylist()
    assert [row["w"] for row in found] == [*range(10), *[None] * 90]
    assert [row["n"] for row in found[:6]] == [1000, 1001, 1002, 1003, 1004, 5]

"""What Spark's planner has to load, and how large it takes a table for."""

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
import lsm_engine.spark
from lsm_engine.spark import changes_dataframe, read_dataframe, register
from lsm_engine.spark.splits import _multiples, bytes_per_row
from tests.spark.conftest import PUSHDOWN

ROOT = Path(lsm.__file__).parent.parent
NARROW = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64())])


@pytest.mark.parametrize("module", ["source.datasource", "source.reader"])
def test_a_planner_of_reads_loads_nothing_that_it_does_not_use(module):
    """Spark starts one process for each step of planning, and each of them loads the format."""
    others = (
        "pandas", "numba", "polars", "sqlglot", "sqlalchemy", "py4j.clientserver",
        "lsm_engine.api.table", "lsm_engine.write.writers", "lsm_engine.commit.commit",
    )  # fmt: skip
    script = (
        "import sys, pyspark.sql.worker.plan_data_source_read; there = set(sys.modules)\n"
        f"import lsm_engine.spark.{module}\n"
        f"print([name for name in {others!r} if name in set(sys.modules) - there])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n", done.stderr


def test_no_name_of_the_package_is_a_module_of_it():
    """Importing the module would put it in the place of what the package loads under that name."""
    modules = {found.name for found in pkgutil.iter_modules(lsm_engine.spark.__path__)}
    assert modules.isdisjoint(lsm_engine.spark.__all__)


@pytest.mark.parametrize(("first", "count", "step"), [(0, 7, 3), (3, 1, 3), (4, 2, 3), (5, 40, 7), (0, 5, 1)])  # fmt: skip
def test_the_numbers_of_splits_among_others(first, count, step):
    numbers = range(first, first + count)
    assert _multiples(pa.array(numbers, pa.int64()), step) == [n for n in numbers if n % step == 0]


def test_rows_are_as_wide_as_spark_takes_them_for():
    wide = pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.bool_()), ("d", pa.decimal128(9, 2))])  # fmt: skip
    assert bytes_per_row(wide) == 8 + 4 + 20 + 1 + 16


def size_in_spark(frame) -> int:
    plan = frame._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))


@pytest.mark.spark
def test_a_small_table_is_broadcast_and_a_large_one_is_not(spark, new_table):
    small = new_table("small", schema=NARROW, partitioned_by=())
    large = new_table("large", schema=NARROW, partitioned_by=())
    count = 600_000
    small.upsert(pa.table({"id": range(100), "v": range(100)}, schema=NARROW))
    large.upsert(pa.table({"id": range(count), "v": range(count)}, schema=NARROW))
    frames = {table: read_dataframe(table, spark=spark) for table in (small, large)}
    assert size_in_spark(frames[small]) < 100_000
    assert size_in_spark(frames[large]) >= count * 24  # its files are a sixth of it
    assert size_in_spark(read_dataframe(large, ["id"], spark=spark)) < 10 << 20
    assert size_in_spark(changes_dataframe(large, spark=spark)) > 10 << 20
    # Both ways round, as joins are not symmetric to a planner.
    for left, right, wanted in (
        (large, small, True), (small, large, True), (large, large, False),
    ):  # fmt: skip
        joined = frames[left].join(frames[right].withColumnRenamed("v", "w"), "id")
        plan = joined._jdf.queryExecution().sparkPlan().toString()
        assert ("Broadcast" in plan) is wanted, plan
    joined = frames[large].join(frames[small].withColumnRenamed("v", "w"), "id")
    assert joined.where("v = w").count() == 100
    assert read_dataframe(large, ["v"], spark=spark).agg({"v": "sum"}).first()[0] == sum(
        range(count)
    )


@pytest.mark.spark
@pytest.mark.parametrize("offers", [False, True], ids=["as it is", "filters offered"])
def test_each_use_of_a_dataframe_has_its_own_filters(spark, new_table, offers):
    """Spark hands what it planned with the filters of one use to all others."""
    register(spark)
    spark.conf.set(PUSHDOWN, offers)
    table = new_table("t", schema=NARROW, partitioned_by=())
    table.upsert(pa.table({"id": range(100), "v": range(100)}, schema=NARROW))
    try:
        frame = spark.read.format("lsm").load(table.location)
        assert frame.where("id < 10").count() == 10
        assert frame.count() == 100
        ends = frame.where("id < 3").union(frame.where("id >= 95"))
        assert ends.count() == 8
        joined = frame.where("id < 5").join(frame.where("v >= 2").withColumnRenamed("v", "w"), "id")
        assert joined.count() == 3
        later = frame.where("id < 7")
        later._jdf.queryExecution().optimizedPlan()
        assert frame.where("id >= 50").count() == 50
        assert later.count() == 7
        frame.createOrReplaceTempView("t_seen")
        text = "SELECT (SELECT count(*) FROM t_seen WHERE id < 3) a, count(*) b FROM t_seen WHERE v < 9"
        assert tuple(spark.sql(text).first()) == (3, 9)
        asked = spark.read.format("lsm").option("where", "id < 10 or v >= 98").load(table.location)
        assert (asked.count(), asked.where("id < 5").count(), asked.count()) == (12, 5, 12)
    finally:
        spark.conf.unset(PUSHDOWN)
        spark.catalog.dropTempView("t_seen")

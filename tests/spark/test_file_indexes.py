"""File indexes on Spark: a filter of SQL on a value opens the files that have it, whoever reads them."""

import pytest

import lsm_engine as lsm
from lsm_engine.spark import register
from lsm_engine.spark.session import DRIVER_BYTES
from lsm_engine.table.bucket_context import BucketContext
from tests.unit.read.test_file_indexes import numbers

pytestmark = pytest.mark.spark


@pytest.fixture
def indexed(spark, new_table):
    """Ten files of a hundred rows with bloom filters beside them, set on the living table, and the view t of it."""
    register(spark, sql=False)
    schema = numbers(0).schema
    table = new_table("visits", schema=schema, partitioned_by=(), **{"write-only": "true"})
    for first in range(0, 1000, 100):
        table.upsert(numbers(first))
    table.alter(lsm.SetOption("file-index.bloom-filter.columns", "v"))
    table.alter(lsm.SetOption("file-index.bloom-filter.v.fpp", "0.001"))
    table.alter(lsm.SetOption("file-index.in-manifest-threshold", "1 b"))
    table.alter(lsm.SetOption("compaction.force-rewrite-all-files", "true"))
    table.alter(lsm.SetOption("target-file-size", "1 kb"))
    table.compact(full=True)
    spark.read.format("lsm").load(table.location).createOrReplaceTempView("t")
    yield table
    spark.conf.unset(DRIVER_BYTES)
    spark.catalog.dropTempView("t")


def test_a_filter_on_a_value_opens_the_file_that_has_it(indexed, spark, monkeypatch):
    value = numbers(345, 1).column("v")[0].as_py()
    query = f"SELECT k FROM t WHERE v = {value}"
    assert indexed.inspect.files().num_rows >= 5
    opened = []
    open_file = BucketContext.open_file

    def counted(context, *arguments, **options):
        opened.append(arguments[1].file_name)
        return open_file(context, *arguments, **options)

    monkeypatch.setattr(BucketContext, "open_file", counted)
    assert [row.k for row in spark.sql(query).collect()] == [345]
    assert len(set(opened)) == 1
    assert spark.sql("SELECT k FROM t WHERE v = 4001").collect() == []
    assert len(set(opened)) == 1
    spark.conf.set(DRIVER_BYTES, "0")
    plan = spark.sql(query)._jdf.queryExecution().toString()
    assert "ReadSchema: struct" not in plan  # tasks ask the indexes, and Spark's own reader none
    assert [row.k for row in spark.sql(query).collect()] == [345]

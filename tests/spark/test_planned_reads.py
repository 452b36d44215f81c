"""Reads of the format: Spark's optimizer asks for the columns that a query needs, and the rows are those of the format."""

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.spark import jvm, register, registration
from lsm_engine.spark.session import DRIVER_BYTES, READS_PARQUET

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("name", pa.string()), ("c", pa.float64())])  # fmt: skip
DRIVER = {}
JVM = {DRIVER_BYTES: "0"}
TASKS = {DRIVER_BYTES: "0", READS_PARQUET: "false"}
EXCLUDED = "spark.sql.optimizer.excludedRules"
QUERIES = (
    "SELECT count(*) FROM t",
    "SELECT a.name, b.c FROM t a JOIN t b ON a.id = b.n WHERE a.id < 4",
    "WITH s AS (SELECT n, max(c) AS m FROM t GROUP BY n) SELECT x.n, y.m FROM s x JOIN s y ON x.n = y.n + 1",
    "SELECT name FROM t WHERE c > (SELECT avg(n) FROM t) AND id IN (SELECT n + 5 FROM t WHERE name <> 'b1')",
    "SELECT n FROM t WHERE id <= 2 UNION ALL SELECT n + 1 FROM t WHERE name IS NULL",
    "SELECT name, row_number() OVER (PARTITION BY n ORDER BY id) AS r FROM t ORDER BY id DESC LIMIT 5",
    "SELECT id, x FROM t LATERAL VIEW explode(array(n, 7)) e AS x WHERE id = 9L",
)


@pytest.fixture
def reads(spark, new_table, monkeypatch):
    """The view t of a table, and the table; the list gets the columns and the conditions of each read in this process."""
    register(spark, sql=False)
    table = new_table("orders", schema=SCHEMA, partitioned_by=())
    numbers = range(40)
    rows = {"id": numbers, "n": [n % 4 for n in numbers], "name": [f"b{n % 3}" for n in numbers], "c": [n / 4 for n in numbers]}  # fmt: skip
    table.upsert(pa.table(rows, SCHEMA))
    table.upsert(pa.table({"id": [3, 40], "n": [1, 2], "name": [None, "new"], "c": [9.0, None]}, SCHEMA))  # fmt: skip
    table.delete([{"id": 8}])
    asked = []
    scan = registration.LsmReader.scan

    def spied(reader, columns, *conditions):
        asked.append((sorted(columns), [str(condition) for condition in conditions]))
        return scan(reader, columns, *conditions)

    monkeypatch.setattr(registration.LsmReader, "scan", spied)
    spark.read.format("lsm").load(table.location).createOrReplaceTempView("t")
    yield asked, table
    for key in (*TASKS, EXCLUDED):
        spark.conf.unset(key)
    spark.catalog.dropTempView("t")


def answers(spark, queries):
    return [sorted(map(repr, spark.sql(query).collect())) for query in queries]


def test_queries_have_the_rows_of_the_format_however_they_are_read(reads, spark):
    """Each query is read by the format itself, and by the driver, Spark's own reader or tasks of Python."""
    asked, _ = reads
    spark.conf.set(EXCLUDED, "LsmReads")
    by_the_format = answers(spark, QUERIES)
    assert asked == []
    spark.conf.unset(EXCLUDED)
    for first, settings in enumerate((DRIVER, JVM, TASKS)):
        for key, value in settings.items():
            spark.conf.set(key, value)
        assert answers(spark, QUERIES[first::3]) == by_the_format[first::3], settings
    assert asked


@pytest.mark.parametrize("settings", [DRIVER, TASKS])
def test_a_read_takes_the_columns_and_the_files_that_a_query_needs(reads, spark, settings):
    for key, value in settings.items():
        spark.conf.set(key, value)
    asked, _ = reads
    assert (
        spark.sql("SELECT n, c FROM t WHERE id = 5 AND name IN ('b2', 'x') AND c < 3").count() == 1
    )
    columns, (condition,) = asked[-1]
    assert columns == ["c", "id", "name"]  # to count needs no n
    assert "id" in condition
    assert "name" in condition
    assert "'c'" not in condition  # NaN sorts by rules of Spark's own
    asked.clear()
    assert spark.table("t").groupBy("n").count().count() == 4
    assert spark.table("t").count() == 40
    assert [columns for columns, _ in asked] == [["n"], ["id"]]


def test_a_large_read_is_spark_s_own_of_parquet_files(reads, spark):
    _, table = reads
    table.compact(full=True)
    spark.conf.set(DRIVER_BYTES, "0")
    plan = spark.sql("SELECT max(n) FROM t WHERE id > 3")._jdf.queryExecution().toString()
    assert "ReadSchema: struct<id:bigint,n:int>" in plan
    assert "GreaterThan(id,3)" in plan


def test_what_a_read_cannot_be_planned_for_is_the_formats(reads, spark, monkeypatch):
    asked, table = reads
    load = spark.read.format("lsm").load
    assert load(f"{table.location}$snapshots").count() == 3
    assert (
        spark.read.format("lsm").option("incremental-between", "1,3").load(table.location).count()
        == 3
    )
    assert asked == []
    stale = load(table.location)
    table.alter(lsm.ChangeType("n", "BIGINT"))
    assert stale.selectExpr("sum(n)").first()[0] == 60
    monkeypatch.setattr(registration, "_planned", lambda *_: 1 / 0)
    assert load(table.location).count() == 40


def test_the_rule_stands_once_and_not_at_all_where_spark_has_none(reads, spark, monkeypatch):
    methods = spark._jsparkSession.experimental()
    assert methods.extraOptimizations().toString().count("LsmReads") == 1
    monkeypatch.setattr(jvm, "_READS", "another")
    monkeypatch.setattr(jvm, "_factory", lambda *_: spark._jvm.no.such.Factory())
    assert not jvm.plan_reads(spark, "lsm", lambda _: None)


def test_a_read_is_written_into_columns_that_are_not_null(reads, spark, new_table):
    """Spark refused its own plan: the columns of the rows that were read had become nullable."""
    other = new_table("other", schema=SCHEMA, partitioned_by=())
    spark.table("t").where("id > 2").write.format("lsm").mode("append").save(other.location)
    assert other.scan().count() == 37

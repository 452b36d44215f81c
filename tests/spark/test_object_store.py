"""Spark on a table in a bucket: tasks find the store's secrets in their own environment."""

import contextlib

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.spark import SparkExecutor, register
from tests.spark.rows import ROWS, rows
from tests.stores import servers
from tests.stores.stored_tables import location, options

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_executors")]


@contextlib.contextmanager
def environment_of_tasks(spark, variables):
    """What spark.executorEnv sets for a session that is yet to start."""
    environment = spark.sparkContext.environment
    environment.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del environment[name]


def test_upsert_compaction_and_scan_on_executors(spark, tmp_path, monkeypatch):
    with servers.s3proxy(tmp_path / "s3") as server:
        given = options(server)
        with lsm.open_catalog(
            f"sqlite:///{tmp_path}/c.db",
            warehouse=location(server, "spark"),
            storage=given,
            executor=SparkExecutor(spark),
        ) as catalog:
            table = catalog.create_table(
                "shop.a", ROWS, primary_key=["id", "day"], partitioned_by=["day"],
                options={"bucket": "3"},
            )  # fmt: skip
            frame = spark.createDataFrame(rows(0, 200))
            with pytest.raises(InvalidOptionError, match=r"spark\.executorEnv"):
                table.upsert(frame)
            assert table.latest_snapshot() is None
            variables = {
                f"LSM_STORAGE_{name.upper().replace('.', '_').replace('-', '_')}": value
                for name, value in given.items()
            }
            with environment_of_tasks(spark, variables):
                table.upsert(frame)
                table.upsert(spark.createDataFrame(rows(0, 100)))
                table.compact(full=True)
                for name, value in variables.items():
                    monkeypatch.setenv(name, value)
                register(spark)
                read = spark.read.format("lsm").load(table.location)
                assert read.count() == 200
            found = table.scan().to_arrow()
            assert isinstance(found, pa.Table)
            assert found.num_rows == 200
            assert table.verify(deep=True).is_clean


def test_options_of_the_format_reach_tasks_and_are_masked(spark, tmp_path, monkeypatch, capfd):
    with servers.s3proxy(tmp_path / "s3") as server:
        given = dict(options(server))
        where = location(server, "spark")
        with lsm.open_catalog(
            f"sqlite:///{tmp_path}/c.db", warehouse=where, storage=given
        ) as catalog:
            table = catalog.create_table(
                "shop.a", ROWS, primary_key=["id", "day"], partitioned_by=["day"],
                options={"bucket": "2", "changelog-producer": "input"},
            )  # fmt: skip
        register(spark)
        frame = spark.createDataFrame(rows(0, 100))
        with pytest.raises(Exception, match=r"s3\.secretkey"):
            spark.read.format("lsm").option("s3.secret-kee", "x").load(table.location)
        frame.write.format("lsm").options(**given).mode("append").save(table.location)
        reader = spark.read.format("lsm").options(**given)
        found = reader.load(table.location)
        assert found.count() == 100
        assert reader.option("read.changelog", "true").load(table.location).count() == 100
        files = spark.read.format("lsm").options(**given).load(f"{table.location}$files")
        assert files.count() >= 2
        stream = spark.readStream.format("lsm").options(**given).option("read.changelog", "true")
        query = (
            stream.load(table.location).writeStream.format("memory").queryName("stored")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        )  # fmt: skip
        query.processAllAvailable()
        query.stop()
        assert spark.table("stored").count() == 100
        spark.catalog.dropTempView("stored")

        for name, text in given.items():
            spark.conf.set(f"spark.lsm.{name}", text)
        try:
            register(spark)
            assert spark.read.format("lsm").load(table.location).count() == 100
            frame.write.format("lsm").mode("append").save(table.location)
        finally:
            for name in given:
                spark.conf.unset(f"spark.lsm.{name}")
            register(spark)
        write = frame.limit(1).write.format("lsm").options(**given).mode("append")
        with pytest.raises(Exception, match="no table") as failed:
            write.save(f"{table.location}-none")
        plans = [found._jdf.queryExecution().toString(), str(failed.value)]
        printed = capfd.readouterr()
        for shown in (*plans, printed.out, printed.err):
            assert server.secret_key not in shown

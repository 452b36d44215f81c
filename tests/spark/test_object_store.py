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

pytestmark = pytest.mark.spark


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

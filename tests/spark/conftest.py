"""One Spark session for the folder, started late; tables in a directory of their own."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lsm_engine as lsm
from lsm_engine.spark import local_session, register, sql
from lsm_engine.spark.session import DRIVER_BYTES, SHARED_DISK
from tests.spark.rows import ROWS

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def spark():
    """Two threads, four attempts per task; workers can import these tests.

    With LSM_SPARK_CONNECT=1 a session of Spark Connect, whose server is on this machine: what `test_connect` runs.
    """
    if os.environ.get("LSM_SPARK_CONNECT") == "1":
        session = SparkSession.builder.remote("local[2]").getOrCreate()
        session.conf.set(SHARED_DISK, "true")
        return session
    return local_session(
        threads=2, quick_start=True, settings={"spark.executorEnv.PYTHONPATH": str(ROOT)}
    )


@pytest.fixture
def by_executors(spark):
    """The session, whose driver takes no rows over, be they ever so few."""
    spark.conf.set(DRIVER_BYTES, "0")
    yield
    spark.conf.unset(DRIVER_BYTES)


@pytest.fixture
def pushing(spark):
    """The session, offering filters to Python data sources, as a user may have set it."""
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


@pytest.fixture
def new_table(tmp_path):
    """Make a table of `ROWS`: new_table("a", spark=None, **options)."""
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    catalog.create_database("shop")

    def made(name, *, schema=ROWS, partitioned_by=("day",), **options):
        key = [schema.names[0], *partitioned_by]
        return catalog.create_table(
            f"shop.{name}",
            schema,
            primary_key=key,
            partitioned_by=partitioned_by,
            options={"bucket": "3", **{k.replace("_", "-"): v for k, v in options.items()}},
        )

    yield made
    catalog.close()


@pytest.fixture
def run(spark, tmp_path):
    """The rows of a statement, through our door; `run.spark(text)`: through Spark's own, which knows nothing of ours."""
    register(spark, warehouse=str(tmp_path / "lake"), sql=False)

    def run(text):
        return [tuple(row) for row in sql(spark, text).collect()]

    run.spark = lambda text: [tuple(row) for row in spark.sql(text).collect()]
    yield run
    spark.sql("USE default")
    spark.sql("DROP DATABASE IF EXISTS shop CASCADE")

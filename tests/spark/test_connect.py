"""A Spark Connect server of this machine: every way in that docs/spark-clusters.md promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lsm_engine as lsm
from tests.docs.blocks import DOCS, blocks
from tests.interop.environments import made_once, make_virtual_environment

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.interop_full]

ROOT = Path(lsm.__file__).parent.parent
REQUIREMENTS = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71", "zstandard>=0.25", "pyyaml>=6")  # fmt: skip
CLIENT = """
import sys
from pyspark.sql import SparkSession
import lsm_engine as lsm
from lsm_engine.spark import (
    changes_dataframe, lookup_join, merge_dataframe, read_dataframe, register, sql, upsert_batches, upsert_dataframe,
)
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
spark.conf.set("spark.lsm.shared-disk", "true")
lake = sys.argv[1]
register(spark, warehouse=lake)
with lsm.open_catalog(lake) as catalog:
    table = catalog.create_table("shop.t", {"id": "BIGINT", "v": "BIGINT"}, primary_key="id", options={"bucket": "2"})
    rows = spark.range(1000).selectExpr("id", "id * 2 as v")
    assert upsert_dataframe(table, rows).id == 1
    assert read_dataframe(table, spark=spark).selectExpr("sum(v)").first()[0] == 999000
    read = spark.read.format("lsm").load(table.location)
    assert (read.where("id < 10").count(), read.count()) == (10, 1000)
    done = merge_dataframe(table, spark.createDataFrame([(1, 5), (2000, 6)], "id long, v long"), on="id")
    done.when_matched_update_all().when_not_matched_insert_all().execute()
    assert table.count() == 1001
    spark.createDataFrame([(3000, 1)], "id long, v long").write.format("lsm").mode("append").save(table.location)
    assert changes_dataframe(table, spark=spark).count() == 1003
    asked = spark.createDataFrame([(1,), (7777,)], "id long")
    assert lookup_join(asked, table, columns=["v"]).count() == 2
    assert sql(spark, "SELECT count(*) FROM shop.t").first()[0] == 1002
    stream = spark.readStream.format("lsm").option("read.changelog", "true").load(table.location)
    copy = catalog.create_table("shop.copy", {"id": "BIGINT", "v": "BIGINT"}, primary_key="id")
    query = (
        stream.drop("_snapshot_id", "_row_kind").writeStream.format("lsm")
        .option("checkpointLocation", lake + "/checkpoint").trigger(availableNow=True).start(copy.location)
    )
    query.awaitTermination(200)
    assert copy.count() == 1002, query.exception()
    try:
        upsert_batches(copy)(asked, 0)
    except lsm.UnsupportedError as error:
        print("refused:", error.message)
print("to the end")
spark.stop()
"""


def connect_packages() -> Path:
    """The directory of what a Connect client needs beside PySpark, fetched once."""
    home = made_once(
        "spark-connect",
        {"requirements": list(REQUIREMENTS), "python": sys.version.split()[0]},
        lambda folder: make_virtual_environment(folder, REQUIREMENTS),
    )
    (packages,) = home.glob("venv/lib/python*/site-packages")
    return packages


def on_connect(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python command that can open a session of Spark Connect."""
    return subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{connect_packages()}",
            "PYSPARK_PYTHON": sys.executable,
            **environment,
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


def test_a_connect_session_does_all_that_a_classic_one_does(tmp_path):
    done = on_connect("-c", CLIENT, str(tmp_path / "lake"))
    assert done.stdout.endswith("to the end\n"), done.stdout + done.stderr[-4000:]
    assert "refused:" in done.stdout


def test_names_mean_on_connect_what_they_mean_in_a_classic_session():
    """Views, copies, tables of another provider or location, caches, the past, odd columns: all of `test_sql_names`."""
    tests = str(ROOT / "tests" / "spark" / "test_sql_names.py")
    done = on_connect("-m", "pytest", "-q", "-p", "no:cacheprovider", tests, LSM_SPARK_CONNECT="1")
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout


def test_flows_of_a_declarative_pipeline_write_each_batch_once(tmp_path):
    (_, create), *files, (_, run) = [
        (language, text.replace("/data", str(tmp_path)))
        for language, text in blocks(DOCS / "recipes" / "spark-pipelines.md")
    ]
    for _, text in files:
        path = tmp_path / text.split("\n", 1)[0].split()[1]
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    exec(create, {})
    for round_number, price in enumerate((5, 7)):
        for place, key in (("incoming", 1), ("corrections", 2)):
            (tmp_path / place).mkdir(exist_ok=True)
            (tmp_path / place / f"{round_number}.json").write_text(
                f'{{"id": {key}, "price": {price}}}'
            )
        program = str(Path(sys.executable).with_name(run.split()[0]))
        discovery = ROOT / "lsm_engine" / "spark" / "discovery"
        done = subprocess.run(
            [program, *run.split()[1:]],
            env={
                **os.environ, "PYTHONPATH": f"{ROOT}:{discovery}:{connect_packages()}",
                "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
            },
            cwd=tmp_path, capture_output=True, text=True, timeout=1500, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        orders = catalog["shop.orders"]
        assert orders.to_arrow().sort_by("id").to_pylist() == [{"id": 1, "price": 7}, {"id": 2, "price": 7}]  # fmt: skip
        assert len({snapshot.commit_user for snapshot in orders.snapshots()}) == 2
        assert len(orders.snapshots()) == 4

"""The driver's program of spark_scale.py: a table's life on Spark, each step with its CPU of all processes.

The argument is a JSON object: `master`, `settings`, `inputs` (a directory), `warehouse`, `catalog`, `rows`, and the
`roots` of the processes to watch beside this one. Prints a JSON object a step.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

import lsm_engine as lsm
from lsm_engine.spark import SparkExecutor, read_dataframe, register, upsert_dataframe

BATCHES = 6
"""Five upserts and a MERGE, each of a hundredth of the rows: half of them replace rows."""
ROWS_PER_BUCKET = 1_000_000
COLUMNS = (
    "k BIGINT, a BIGINT, b DOUBLE, c DOUBLE, s STRING, t STRING, d DATE, ts TIMESTAMP, "
    "dec DECIMAL(18, 2)"
)
CLAUSES = (
    "ON t.k = s.k WHEN MATCHED AND s.dec < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET * "
    "WHEN NOT MATCHED THEN INSERT *"
)
STRIDE = 200
"""A batch replaces one of so many rows, and adds as many."""


def with_values(keys: DataFrame, batch: int) -> DataFrame:
    """Return rows of nine columns; one in ten replaced rows of a batch has a negative `dec`."""
    return keys.selectExpr(
        "k",
        f"{batch}L AS a",
        f"rand({batch}) AS b",
        f"if(rand({batch + 10}) < 0.1, NULL, rand({batch + 20})) AS c",
        f"concat('name-', cast(rand({batch + 30}) * 100000 AS INT)) AS s",
        f"concat('city ', cast(rand({batch + 40}) * 50 AS INT)) AS t",
        f"date_add(DATE '1970-01-01', cast(rand({batch + 50}) * 20000 AS INT)) AS d",
        f"timestamp_micros(1356998400000000 + cast(rand({batch + 60}) * 3e13 AS BIGINT)) AS ts",
        f"CAST(if(deleted, -1, rand({batch + 70}) * 10000) AS DECIMAL(18, 2)) AS dec",
    )


def write_inputs(spark: SparkSession, folder: Path, rows: int) -> None:
    """Write the rows of the load, in no order of their keys, and of the batches."""
    load = spark.range(0, rows, 1, 8).selectExpr(
        f"pmod(id * 2654435761, {rows}) AS k", "false AS deleted"
    )
    with_values(load, 0).write.parquet(f"file:{folder}/0")
    count = rows // STRIDE
    for batch in range(1, BATCHES + 1):
        replaced = f"id * {STRIDE} + {batch} AS k"
        added = f"{rows + (batch - 1) * count} + id AS k"
        keys = spark.range(0, count, 1, 2).selectExpr(replaced, "id % 10 = 0 AS deleted")
        keys = keys.unionAll(spark.range(0, count, 1, 2).selectExpr(added, "false AS deleted"))
        with_values(keys, batch).write.parquet(f"file:{folder}/{batch}")


def expected(rows: int) -> tuple[int, int]:
    """Return the count of rows and the sum of `a` at the end."""
    count = rows // STRIDE
    deleted = count // 10
    total = sum(2 * batch * count for batch in range(1, BATCHES + 1)) - BATCHES * deleted
    return rows + BATCHES * count - deleted, total


def cpu_seconds(roots: list[int]) -> float:
    """Return the CPU seconds of trees of processes, those that have ended too."""
    total = 0.0
    for root in map(psutil.Process, roots):
        for process in (root, *root.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.Error:  # it has ended meanwhile
                continue
            total += times.user + times.system + times.children_user + times.children_system
    return total


def main(request: dict[str, Any]) -> None:
    """Run the steps."""
    builder = SparkSession.builder.master(request["master"]).appName("spark_scale")
    for key, text in request["settings"].items():
        builder = builder.config(key, text)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    roots, inputs, rows = [os.getpid(), *request["roots"]], Path(request["inputs"]), request["rows"]
    write_inputs(spark, inputs, rows)

    def measure(step: str, act: Callable[[], Any]) -> Any:
        cpu, wall = cpu_seconds(roots), time.perf_counter()
        result = act()
        spent = {"cpu": cpu_seconds(roots) - cpu, "wall": time.perf_counter() - wall}
        print(json.dumps({"step": step, **spent}), flush=True)
        return result

    def batch(number: int) -> DataFrame:
        return spark.read.parquet(f"file:{inputs}/{number}")

    register(spark, warehouse=request["warehouse"], catalog=request["catalog"])
    with lsm.open_catalog(
        request["catalog"], warehouse=request["warehouse"], executor=SparkExecutor(spark)
    ) as catalog:
        catalog.create_database("bench")
        buckets = max(1, rows // ROWS_PER_BUCKET)
        spark.sql(
            f"CREATE TABLE bench.t ({COLUMNS}) USING lsm "
            f"TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '{buckets}')"
        )
        table = catalog.table("bench.t")

        def sums() -> tuple[int, int]:
            frame = read_dataframe(table, ["t", "a"], spark=spark)
            groups = frame.groupBy("t").agg({"*": "count", "a": "sum"}).collect()
            return sum(g["count(1)"] for g in groups), sum(g["sum(a)"] for g in groups)

        measure("load", lambda: upsert_dataframe(table, batch(0)))
        for number in range(1, BATCHES):
            measure("upsert", lambda number=number: upsert_dataframe(table, batch(number)))
        batch(BATCHES).createOrReplaceTempView("source")
        measure("MERGE", lambda: spark.sql(f"MERGE INTO bench.t t USING source s {CLAUSES}"))
        measure("compaction", lambda: table.compact(full=True))
        for _ in range(3):
            assert measure("aggregate", sums) == expected(rows)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

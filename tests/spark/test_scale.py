"""Many partitions, and keys that are hot: how many tasks there are, and what goes through a shuffle.

At full size, with the peak memory of Python and the JVM; 22 minutes on two cores at a load of 20:

    LSM_SCALE_PARTITIONS=1000 LSM_SCALE_ROWS=1000000 python -m pytest -s -m spark tests/spark/test_scale.py
"""

import json
import os
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from lsm_engine.spark import on_spark, read_dataframe, upsert_dataframe
from lsm_engine.spark.session import task_goal

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.usefixtures("by_executors")]

PARTITIONS = int(os.environ.get("LSM_SCALE_PARTITIONS", "12"))
ROWS = int(os.environ.get("LSM_SCALE_ROWS", "6000"))
BUCKETS = 10
SPREAD = pa.schema([pa.field("id", pa.int64()), pa.field("p", pa.int32()), pa.field("v", pa.int64())])  # fmt: skip


def peak_megabytes() -> dict[str, float]:
    """The most that the JVM, this process and the largest worker have held so far."""
    found: dict[str, float] = {}
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            kind = "jvm" if process.name() == "java" else "driver" if process == own else "worker"
        except (OSError, psutil.Error):
            continue
        for line in status.splitlines():  # of a process that has just ended there is none
            if line.startswith("VmHWM"):
                found[kind] = max(found.get(kind, 0), int(line.split()[1]) // 1024)
    return found


def counted(spark, work) -> tuple[list[int], dict[str, float]]:
    """The tasks of each stage that some work ran, its seconds and peaks of memory."""
    context = spark.sparkContext
    group = f"scale {time.monotonic_ns()}"
    context.setJobGroup(group, "scale")
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    tracker = context.statusTracker()
    stages = [
        stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds
    ]  # fmt: skip
    context.setLocalProperty("spark.jobGroup.id", None)
    infos = [tracker.getStageInfo(stage) for stage in sorted(stages)]
    return [info.numTasks for info in infos if info is not None], {
        "seconds": round(seconds, 1),
        **peak_megabytes(),
    }


def test_tasks_are_as_many_as_the_machine_takes_and_not_as_buckets_are(spark, new_table):
    table = new_table("wide", schema=SPREAD, partitioned_by=("p",), bucket=str(BUCKETS), write_only="true")  # fmt: skip
    rows = spark.range(ROWS).selectExpr("id", f"cast(id % {PARTITIONS} as int) as p", "id * 3 as v")
    found = {}
    found["upsert"] = counted(spark, lambda: upsert_dataframe(table, rows))
    found["again"] = counted(spark, lambda: upsert_dataframe(table, rows))
    found["compact"] = counted(spark, lambda: on_spark(table, spark).compact(full=True))
    found["read"] = counted(spark, lambda: read_dataframe(table, ["v"], spark=spark).selectExpr("sum(v)").collect())  # fmt: skip
    print(json.dumps(found, default=str))
    goal = task_goal(spark)
    assert max(found["upsert"][0]) <= goal
    # 120 buckets of some kilobytes, which weigh 1 MiB each, in tasks of a quarter of all and at least 4 MiB.
    most = max(goal, PARTITIONS * BUCKETS // 100)
    assert 0 < max(found["compact"][0]) <= most
    assert 0 < max(found["read"][0]) <= most
    files = table.system("files")
    assert files.num_rows == PARTITIONS * BUCKETS, "each bucket has one file, of the last level"
    assert sum(files["record_count"].to_pylist()) == ROWS
    total = read_dataframe(table, ["v"], spark=spark).selectExpr("sum(v)").first()[0]
    assert total == 3 * ROWS * (ROWS - 1) // 2


def test_a_hot_key_is_merged_before_the_shuffle(spark, new_table):
    """Nine rows of ten are of one key: with a local merge one of each task goes through the shuffle."""
    sums = {"merge_engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = new_table("hot", schema=SPREAD, partitioned_by=(), bucket="4",
                      **{"local-merge-buffer-size": "16 mb"}, **sums)  # fmt: skip
    count = 20_000
    rows = spark.range(0, count, 1, 4).selectExpr(
        "if(id % 10 = 0, id, 7) as id", "cast(0 as int) as p", "cast(1 as bigint) as v"
    )
    upsert_dataframe(table, rows)
    values = dict(
        zip(*table.scan(columns=["id", "v"]).to_arrow().to_pydict().values(), strict=True)
    )
    assert values == {**dict.fromkeys(range(0, count, 10), 1), 7: count * 9 // 10}
    # What was written is what is left after each task merged its own; sums show nothing was lost.
    files = table.system("files")
    assert sum(files["record_count"].to_pylist()) == len(values)

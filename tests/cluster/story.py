"""The driver's program: a table's life on a cluster, with executors killed in the middle.

Argument: a JSON object with `warehouse`, `files` (the directory of its files, as this machine may watch them),
`workers` (a pid and a directory each), `rows` and `buckets`. It begins with the program of the page. Prints JSON.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import lsm_engine as lsm
from lsm_engine.spark import (
    SparkExecutor,
    locate_dataframe,
    lookup_join,
    read_dataframe,
    upsert_dataframe,
)
from lsm_engine.spark.session import DRIVER_BYTES, SHARED_DISK
from tests.cluster.memory import PeakMemory, is_executor
from tests.cluster.page import PAGE, block
from tests.cluster.standalone import kill_tree

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64())])
MARKER = "stalled"


def frame(spark: SparkSession, first: int, stop: int, text: str) -> DataFrame:
    """Rows of ids from `first` to `stop`, in eight partitions."""
    columns = ("id", f"concat('{text} ', id) AS v", "id * 2 AS n")
    return spark.range(first, stop, 1, 8).selectExpr(*columns)


def stall(directory: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Pass rows on; but whoever sees a worker's directory leaves a marker there and waits to be killed."""

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            place = Path(directory)
            if (place / "output.txt").exists():
                (place / MARKER).touch()
                time.sleep(600)

    return passed


def when(seen: Callable[[], bool], act: Callable[[], None]) -> threading.Thread:
    """Act as soon as something is seen."""

    def watch() -> None:
        deadline = time.monotonic() + 240
        while not seen() and time.monotonic() < deadline:
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def executors_of(worker: int) -> list[int]:
    """The executors of a worker, JVMs."""
    found = []
    for each in psutil.Process(worker).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if is_executor(each):
                found.append(each.pid)
    return found


def kill_executors(worker: int) -> None:
    for pid in executors_of(worker):
        kill_tree(pid)


@contextlib.contextmanager
def measured(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Keep how long something took; the figure is for people."""
    started = time.monotonic()
    yield
    seconds[what] = round(time.monotonic() - started, 1)
    print(what, seconds[what], file=sys.stderr, flush=True)


def data_files(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("bucket-*/*") if path.is_file()}


def wanted(rows: int) -> dict[int, str]:
    """The newest text of each id, after the two upserts of the story."""
    return {n: f"{'b' if rows // 2 <= n else 'a'} {n}" for n in range(rows + rows // 2)}


def checked(found: pa.Table, rows: int) -> None:
    """Assert that rows are those that were acknowledged, whichever way they were read."""
    expected = wanted(rows)
    assert found.num_rows == len(expected), (found.num_rows, len(expected))
    got = dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert got == expected


def refused(spark: SparkSession) -> None:
    """A table on the driver's disk: refused before a job, or by the executors if the session is wrong about it."""
    rows = frame(spark, 0, 10, "a")
    with lsm.open_catalog("sqlite:///own.db", warehouse="own") as catalog:
        catalog.create_database("shop")
        options = {"bucket": "1", "commit.fsync": "false"}
        table = catalog.create_table("shop.own", SCHEMA, primary_key=["id"], options=options)
        spark.conf.set(SHARED_DISK, "false")
        for verb in (
            lambda: upsert_dataframe(table, rows),
            lambda: read_dataframe(table, spark=spark),
            lambda: locate_dataframe(table, rows),
            lambda: lookup_join(rows.select("id"), table),
        ):
            assert raised(lsm.InvalidOptionError, verb).kind.value == "not-shared"
        spark.conf.set(SHARED_DISK, "true")
        unseen = raised(lsm.NotFoundError, lambda: upsert_dataframe(table, rows))
        assert "a disk that this machine does not see" in str(unseen)
        assert table.latest_snapshot() is None


def raised(kind: type[lsm.LsmError], act: Callable[[], object]) -> lsm.LsmError:
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"{act} did not raise {kind}")


def tell(story: dict[str, Any]) -> dict[str, Any]:
    catalog_url = "sqlite:///catalog.db"
    os.environ.update(CATALOG=catalog_url, WAREHOUSE=story["warehouse"])
    exec(compile(block("python"), str(PAGE), "exec"), {})  # the page's program starts the session
    spark = SparkSession.active()
    spark.conf.set(DRIVER_BYTES, "0")  # the story is of executors
    rows, files = story["rows"], Path(story["files"])
    one, two = story["workers"].values()
    facts: dict[str, Any] = {"seconds": {}}
    timed = partial(measured, facts["seconds"])
    refused(spark)
    with (
        PeakMemory({name: each["pid"] for name, each in story["workers"].items()}) as memory,
        lsm.open_catalog(
            catalog_url, warehouse=story["warehouse"], executor=SparkExecutor(spark)
        ) as catalog,
    ):
        catalog.create_database("shop")
        options = {"bucket": str(story["buckets"]), "write-only": "true"}
        table = catalog.create_table("shop.orders", SCHEMA, primary_key=["id"], options=options)
        with timed("upsert"):
            upsert_dataframe(table, frame(spark, 0, rows, "a"))

        # A worker dies with its disk while it prepares rows of the second upsert.
        stalled = Path(two["directory"])
        killed = when((stalled / MARKER).exists, lambda: kill_tree(two["pid"]))
        second = frame(spark, rows // 2, rows + rows // 2, "b")
        schema = second.schema
        with timed("upsert, a worker killed"):
            upsert_dataframe(table, second.mapInArrow(stall(two["directory"]), schema))
        killed.join()
        facts["worker killed"] = not psutil.pid_exists(two["pid"]) or (
            psutil.Process(two["pid"]).status() == psutil.STATUS_ZOMBIE
        )
        checked(table.scan().to_arrow(), rows)
        table.create_tag("before")

        # The other worker's executor dies while it compacts; the worker starts another one.
        before = data_files(files)
        dying = executors_of(one["pid"])
        killed = when(
            lambda: len(data_files(files) - before) >= 2, lambda: kill_executors(one["pid"])
        )
        with timed("compaction, an executor killed"):
            table.compact(full=True)
        killed.join()
        facts["executor killed"] = bool(dying) and not any(map(psutil.pid_exists, dying))
        checked(table.scan().to_arrow(), rows)
        assert table.latest_snapshot().commit_kind.value == "COMPACT"

        checked(read_dataframe(table, spark=spark).toArrow(), rows)
        source = spark.read.format("lsm").load(table.location)
        assert source.where("v like 'a %'").count() == rows // 2
        keys = spark.range(rows, rows * 2, 1, 4)
        with timed("lookup join"):
            joined = lookup_join(keys, table, columns=["v"]).toArrow()
        assert joined.num_rows == rows
        assert joined["v"].null_count == rows - rows // 2
        with timed("tagging"):
            actions = locate_dataframe(table, keys).groupBy("_action").count().collect()
        assert {row["_action"]: row["count"] for row in actions} == {
            "update": rows // 2, "insert": rows - rows // 2,
        }  # fmt: skip

        stream = (
            spark.readStream.format("lsm").option("read.changelog", "true").load(table.location)
        )
        query = (
            stream.writeStream.format("memory").queryName("followed")
            .option("checkpointLocation", str(Path("checkpoint").absolute())).start()
        )  # fmt: skip
        with timed("streaming read"):
            query.processAllAvailable()
        checked(spark.table("followed").toArrow(), rows)
        upsert_dataframe(table, frame(spark, 0, 5, "a"))
        query.processAllAvailable()
        assert spark.table("followed").count() == len(wanted(rows)) + 5
        query.stop()

        facts["memory"] = memory.peaks
        orphans = table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
        facts["orphans"] = len(orphans.plan.orphans)
        again = table.remove_orphan_files(dry_run=True, older_than="0 s", force=True)
        assert not again.plan.orphans, again
        checked(table.scan().to_arrow(), rows)
        checked(table.scan(tag="before").to_arrow(), rows)
        assert table.verify(deep=True).is_clean
        facts["location"] = table.location
    spark.stop()
    return facts


if __name__ == "__main__":
    print(json.dumps(tell(json.loads(sys.argv[1]))))

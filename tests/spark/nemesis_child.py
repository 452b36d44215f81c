"""A streaming query and an upsert after another, in one process, until somebody kills it; classic or by Connect."""

import sys
from pathlib import Path

import lsm_engine as lsm
from lsm_engine.spark import local_session, on_spark, register

ROOT = str(Path(__file__).parent.parent.parent)


def session(kind: str):
    """A session with one local core, or a client of a Connect server that it starts."""
    if kind == "classic":
        settings = {"spark.executorEnv.PYTHONPATH": ROOT}
        return local_session(threads=1, quick_start=True, memory="512m", settings=settings)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    spark.conf.set("spark.lsm.shared-disk", "true")
    return spark


def main(kind: str, source: str, into: str, checkpoint: str) -> None:
    """Read a snapshot at a time into sums, up to what is there at the start; then compact on the executors."""
    spark = session(kind)
    register(spark)
    query = (
        spark.readStream.format("lsm").option("read.changelog", "true")
        .option("scan.mode", "from-snapshot").option("scan.snapshot-id", 1)
        .option("maxSnapshotsPerTrigger", 1).load(source).drop("_snapshot_id", "_row_kind")
        .writeStream.format("lsm").option("checkpointLocation", checkpoint)
        .trigger(availableNow=True).start(into)
    )  # fmt: skip
    print("started", flush=True)
    query.awaitTermination()
    on_spark(lsm.open_table(into), spark).compact(full=True)
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

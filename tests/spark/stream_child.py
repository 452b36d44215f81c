"""A streaming query in a process of its own, which `LSM_KILL` kills: "who:where:batch".

Who: the driver with its JVM, or the process alone that Spark has commit. Where: with the rows staged and not
committed, or committed and not in the checkpoint.
"""

import os
import signal
import sys
from pathlib import Path

from lsm_engine.spark import local_session
from lsm_engine.spark.source.datasource import LsmSource
from lsm_engine.spark.source.writer import StreamSink

_GROUP = "LSM_KILL_GROUP"


def die(where: str, batch: int) -> None:
    """Kill whom `LSM_KILL` names, if this is where."""
    who, named, number = os.environ.get("LSM_KILL", "::").split(":")
    if (named, number) == (where, str(batch)):
        if who == "driver":
            os.killpg(int(os.environ[_GROUP]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class KilledSink(StreamSink):
    """Dies before or after it commits."""

    def commit(self, messages, batchId):
        die("staged", batchId)
        super().commit(messages, batchId)
        die("committed", batchId)


class KilledSource(LsmSource):
    """The format, with that sink."""

    def streamWriter(self, schema, overwrite):
        made = super().streamWriter(schema, overwrite)
        made.__class__ = KilledSink
        return made


def main(source: str, into: str, checkpoint: str) -> None:
    """Read what is available, a snapshot at a time."""
    os.environ[_GROUP] = str(os.getpgrp())
    root = str(Path(__file__).parent.parent.parent)
    settings = {"spark.executorEnv.PYTHONPATH": root}
    spark = local_session(threads=1, quick_start=True, memory="512m", settings=settings)
    spark.dataSource.register(KilledSource)
    frame = (
        spark.readStream.format("lsm").option("read.changelog", "true")
        .option("scan.mode", "from-snapshot").option("scan.snapshot-id", 1)
        .option("maxSnapshotsPerTrigger", 1).load(source).drop("_snapshot_id", "_row_kind")
    )  # fmt: skip
    query = (
        frame.writeStream.format("lsm").option("checkpointLocation", checkpoint)
        .trigger(availableNow=True).start(into)
    )  # fmt: skip
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The rows of one split, in Spark's Arrow types: what a reading task yields."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lsm_engine.base.errors import NotFoundError
from lsm_engine.base.record import record
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.scan import Split
from lsm_engine.spark.arrow_rows import arrow_schema_of, fitter
from lsm_engine.spark.jobs import TASK_COUNT_MAX, Batches, map_arrow, prepare_worker
from lsm_engine.store.snapshots import SnapshotStore
from lsm_engine.table.ground.time_travel import raise_if_expired
from lsm_engine.table.read.scan import Scan
from lsm_engine.table.read.split_read import SplitSource

_closures = CloudPickleSerializer()  # type: ignore[no-untyped-call]
_BATCH_ROWS = 64 * 1024
"""Rows of a batch that goes to the JVM, which holds it whole, outside its heap."""


@record
class SplitReader:
    """How the splits of one scan are read. `schema`: the columns as Spark takes them.

    `untagged`: the snapshot that is read, unless by a tag, which keeps its files.
    """

    source: SplitSource
    schema: pa.Schema
    untagged: Snapshot | None

    @staticmethod
    def of(scan: Scan, schema: pa.Schema) -> "SplitReader":
        """Return what the splits of a scan's plan are read with."""
        return SplitReader(source=scan.plan.source, schema=schema, untagged=scan.untagged)

    def batches(self, split: Split) -> Batches:
        """Yield the rows of a split, merged, filtered, projected.

        Raises ExpiredError where a file is missing because the snapshot has expired meanwhile.
        """
        try:
            yield from self._batches(split)
        except NotFoundError as cause:
            if self.untagged is not None:
                context = self.source.context
                snapshots = SnapshotStore(context.file_io, context.paths)
                raise_if_expired(snapshots, self.untagged, cause)
            raise

    def _batches(self, split: Split) -> Batches:
        fit = fitter(self.schema)
        for batch in self.source.batches(split):
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield fit(batch.slice(start, _BATCH_ROWS))


def scanned_frame(scan: Scan, schema: StructType, spark: SparkSession) -> DataFrame:
    """Return a scan's rows as a DataFrame of a session."""
    reader = SplitReader.of(scan, arrow_schema_of(schema))
    return frame_of_splits(scan.plan.splits, reader.batches, schema, spark)


def frame_of_splits(
    splits: Sequence[Any],
    read: Callable[[Any], Batches],
    schema: StructType,
    spark: SparkSession,
) -> DataFrame:
    """Return the rows that `read`, which is pickled, yields for each split, a task reading some of them."""
    if not splits:
        return spark.createDataFrame([], schema)
    task = SplitTask(
        read=read,
        splits=tuple(_closures.dumps(split) for split in splits),  # type: ignore[no-untyped-call]
    )
    numbers = spark.range(0, len(splits), 1, min(len(splits), TASK_COUNT_MAX))
    return map_arrow(numbers, task, schema)


@record
class SplitTask:
    """What a reading task runs: `read`, for the splits whose numbers it is handed."""

    read: Callable[[Any], Batches]
    splits: tuple[bytes, ...]

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                split = _closures.loads(self.splits[number])  # type: ignore[no-untyped-call]
                yield from self.read(split)

"""The rows of splits in Spark's Arrow types, as the tasks of a read yield them."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lsm_engine.base.errors import NotFoundError
from lsm_engine.base.record import record
from lsm_engine.base.units import parse_bytes
from lsm_engine.changes.splits import ROW_KIND, SNAPSHOT_ID, ChangedRows, read_changes
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.planning.incremental import ChangeSplit
from lsm_engine.planning.scan import Split
from lsm_engine.read.scan import Scan
from lsm_engine.read.split import SplitSource
from lsm_engine.spark.jobs import (
    Batches,
    PackedItems,
    map_arrow,
    prepare_worker,
    shows_errors_alone,
)
from lsm_engine.spark.types import empty_frame, fitter, spark_schema
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.time_travel import raise_if_expired
from lsm_engine.types.table_schema import TableSchema

_BATCH_ROWS = 64 * 1024
"""Rows of a batch that goes to the JVM, which holds it whole, outside its heap."""
_VARIABLE_BYTES = 20


@record
class SplitReader:
    """A reader of the splits of one scan. `schema`: the columns as Spark takes them.

    `untagged`: the snapshot that is read, unless by a tag, which keeps its files.
    """

    source: SplitSource
    schema: pa.Schema
    untagged: Snapshot | None

    @staticmethod
    def from_scan(scan: Scan, schema: pa.Schema) -> "SplitReader":
        """Return the reader of the splits of a scan."""
        return SplitReader(source=scan.plan.source, schema=schema, untagged=scan.untagged)

    def batches(self, split: Split) -> Batches:
        """Yield the rows of a split, merged, filtered, projected.

        Raises ExpiredError where a file is missing because the snapshot has expired meanwhile.
        """
        try:
            yield from self._batches(split)
        except NotFoundError as cause:
            # A read without a tag may be overtaken by expiry: that has an error of its own.
            if self.untagged is not None:
                raise_if_expired(self.source.context.snapshots, self.untagged, cause)
            raise

    def _batches(self, split: Split) -> Batches:
        fit = fitter(self.schema)
        for batch in self.source.batches(split):
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield fit(batch.slice(start, _BATCH_ROWS))


def frame_of_splits(
    splits: Sequence[Any],
    read: Callable[[Any], Batches],
    schema: StructType,
    spark: SparkSession,
    *,
    byte_count: int = 0,
    in_order: bool = False,
) -> DataFrame:
    """Return the rows that `read`, which is pickled, yields for each split; small splits share a task.

    `in_order`: the rows of a split are in no earlier partition than those of the splits before it.

    `byte_count`: how large Spark is to take the rows for, once they are its own. It knows nothing of what a
    Python function yields and goes by the input, 8 bytes a number: so there are as many numbers as that
    takes, up to a size that no join broadcasts. Those that are no split's cost some 20 ns each.
    """
    if not splits:
        return empty_frame(spark, schema)
    sizes = [split.size_bytes for split in splits]
    shipped = PackedItems.pack(splits, sizes, spark, in_order=in_order)
    number_count = min(byte_count, 2 * broadcast_threshold(spark)) // 8
    step = max(1, number_count // len(shipped.tasks))
    task = SplitTask(read=read, splits=shipped, step=step)
    return map_arrow(shipped.frame(spark, step=step), task, schema)


def broadcast_threshold(spark: SparkSession) -> int:
    """Return from how many bytes on a join broadcasts no table; 0 where it broadcasts none."""
    text = spark.conf.get("spark.sql.autoBroadcastJoinThreshold", "10485760b") or "0"
    digits = re.fullmatch(r"(-?\d+)b?", text.strip().lower())
    return max(0, int(digits[1]) if digits else parse_bytes(text))


def bytes_per_row(schema: pa.Schema) -> int:
    """Return the size of a row by Spark's reckoning: 20 bytes for a string, 8 for the row itself."""
    return 8 + sum(
        max(1, field.type.bit_width // 8) if _is_fixed(field.type) else _VARIABLE_BYTES
        for field in schema
    )


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


@record
class SplitTask:
    """The work of a task of a read: `read`, for its splits. Each task gets `step` numbers as its input."""

    read: Callable[[Any], Batches]
    splits: PackedItems
    step: int

    @shows_errors_alone
    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        for batch in batches:
            for number in _multiples(batch.column(0), self.step):
                for _, split in self.splits.of_task(number // self.step):
                    yield from self.read(split)


def _multiples(numbers: pa.Array, step: int) -> list[int]:
    """Return the first numbers of tasks among numbers that follow each other."""
    if not len(numbers):
        return []
    first, last = numbers[0].as_py(), numbers[-1].as_py()
    return list(range(-(-first // step) * step, last + 1, step))


# -- Changes as Spark takes them: their columns, and the rows of one split -------------------------

_CHANGE_TYPES = (
    StructField(SNAPSHOT_ID, LongType(), nullable=False),
    StructField(ROW_KIND, StringType(), nullable=False),
)


def change_schema(schema: TableSchema) -> StructType:
    """Return the columns of changes: `_snapshot_id`, `_row_kind`, and the table's."""
    return StructType([*_CHANGE_TYPES, *spark_schema(schema.read_fields).fields])


@record
class ChangeReader:
    """A reader of splits of changes. `schema`: the columns as Spark takes them."""

    rows: ChangedRows
    schema: pa.Schema

    def batches(self, context: BucketContext, split: ChangeSplit) -> Batches:
        """Yield the changes of a split, in order."""
        yield from _fitted(self.schema, read_changes(context, self.rows, split))


def _fitted(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Batches:
    fit = fitter(schema)
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield fit(batch.slice(start, _BATCH_ROWS))

"""Changes as a DataFrame: one task per snapshot and bucket reads them in Python."""

from collections.abc import Sequence

import pyarrow.compute as pc
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lsm_engine.base.record import record
from lsm_engine.spark.arrow_rows import arrow_schema_of
from lsm_engine.spark.change_source import ChangeReader, change_schema
from lsm_engine.spark.jobs import TASK_COUNT_MAX, Batches, map_arrow, prepare_worker
from lsm_engine.spark.read import session_of
from lsm_engine.spark.shared_storage import check_shared
from lsm_engine.table.changes.change_range import Point
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.table import Table

_closures = CloudPickleSerializer()  # type: ignore[no-untyped-call]


def changes_dataframe(
    table: Table,
    after: Point | None = None,
    upto: Point | None = None,
    *,
    after_millis: int | None = None,
    upto_millis: int | None = None,
    mode: str = "auto",
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Return what changed after one snapshot, up to and including another, as a DataFrame; lazy.

    Arguments and columns as in `Table.changes`. Rows of one snapshot and bucket come in order, each
    -U right before its +U; order by `_snapshot_id` where the order of snapshots matters.
    """
    changes = table.changes(
        after,
        upto,
        after_millis=after_millis,
        upto_millis=upto_millis,
        mode=mode,
        columns=columns,
        where=where,
    )
    whole = change_schema(table)
    schema = StructType([whole[name] for name in changes.schema.names])
    session = spark or session_of(table)
    check_shared(session, table.session.file_io)
    splits = [split for _, split in changes.splits()]
    if not splits:
        return session.createDataFrame([], schema)
    schema_ids = {file.schema_id for split in splits for file in split.all_files}
    task = ChangesTask(
        reader=ChangeReader(rows=changes.rows, schema=arrow_schema_of(schema)),
        context=table.session.context(schema_ids),
        splits=tuple(_closures.dumps(split) for split in splits),  # type: ignore[no-untyped-call]
    )
    numbers = session.range(0, len(splits), 1, min(len(splits), TASK_COUNT_MAX))
    return map_arrow(numbers, task, schema)


@record
class ChangesTask:
    """What a reading task runs: the splits whose numbers it is handed."""

    reader: ChangeReader
    context: BucketContext
    splits: tuple[bytes, ...]

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                split = _closures.loads(self.splits[number])  # type: ignore[no-untyped-call]
                yield from self.reader.batches(self.context, split)

"""Changes as a DataFrame: one task per snapshot and bucket reads them in Python."""

from collections.abc import Sequence
from functools import partial

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lsm_engine.spark.arrow_rows import arrow_schema_of
from lsm_engine.spark.change_rows import ChangeReader, change_schema
from lsm_engine.spark.read import session_of
from lsm_engine.spark.shared_storage import check_shared
from lsm_engine.spark.split_rows import bytes_per_row, frame_of_splits
from lsm_engine.table.changes.change_range import Point
from lsm_engine.table.table import Table


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
    -U right before its +U, and snapshots in the order of the DataFrame's partitions, which is the order
    that `upsert_dataframe` goes by; a shuffle loses it.
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
    whole = change_schema(table.schema)
    schema = StructType([whole[name] for name in changes.schema.names])
    session = spark or session_of(table)
    check_shared(session, table.session.file_io)
    splits = [split for _, split in changes.splits()]
    schema_ids = {file.schema_id for split in splits for file in split.all_files}
    reader = ChangeReader(rows=changes.rows, schema=arrow_schema_of(schema))
    read = partial(reader.batches, table.session.context(schema_ids))
    row_count = sum(file.row_count for split in splits for file in split.all_files)
    byte_count = row_count * bytes_per_row(reader.schema)
    return frame_of_splits(splits, read, schema, session, byte_count=byte_count, in_order=True)

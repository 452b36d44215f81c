"""Verbs of a table on Spark, for rows that are a DataFrame or files."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.spark.executor import SparkExecutor
from lsm_engine.spark.file_rows import FileRows
from lsm_engine.spark.session import is_classic
from lsm_engine.spark.source_options import QUERY_ID
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.merge_builder import Merge
from lsm_engine.table.table import Table
from lsm_engine.table.write.write import append, upsert


def on_spark(table: Table, spark: SparkSession) -> Table:
    """Return the same table with its work done by a Spark session's executors."""
    components = replace(table.session.components, executor=SparkExecutor(spark))
    return Table(table.session.with_components(components), table.location)


def upsert_dataframe(table: Table, frame: DataFrame, **commit: Any) -> WriteResult | None:
    """Upsert a DataFrame on its own session, whatever the table's executor; see `Table.upsert`."""
    return on_spark(table, frame.sparkSession).upsert(frame, **commit)


def upsert_batches(table: Table) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that upserts, or appends, each micro-batch in one commit.

    A micro-batch that comes again is a no-op, whatever was committed since. It shuffles the rows to
    their buckets, so that tables with dynamic buckets take them, and takes output mode update, which
    Spark refuses for `writeStream.format("lsm")`. Not for Spark Connect, where the function runs elsewhere.
    """

    def written(frame: DataFrame, batch_id: int) -> None:
        spark = frame.sparkSession
        query_id = spark.sparkContext.getLocalProperty(QUERY_ID) if is_classic(spark) else None
        if query_id is None:
            raise UnsupportedError(
                "call it by foreachBatch of a query: it needs the id of the query, which Spark Connect hides"
            )
        identity = CommitIdentity(commit_user=query_id, commit_identifier=batch_id)
        session = on_spark(table, spark).session
        write = upsert if session.schema.has_primary_key else append
        write(session, frame, identity)

    return written


def merge_dataframe(table: Table, frame: DataFrame, *on: Any, **merge: Any) -> Merge:
    """Begin a MERGE of a DataFrame on its own session; see `Table.merge`.

    The driver does it where source and table are small (`spark.lsm.driver-bytes`) and matched by the key. Else
    nothing is collected: executors look few keys up, or Spark joins source and table. What changes is then kept
    by Spark between a look at it and the write, so let a source that chance has a part in (`rand()`) be
    written somewhere first.
    """
    return on_spark(table, frame.sparkSession).merge(frame, *on, **merge)


def upsert_files(
    table: Table,
    paths: Sequence[str],
    *,
    spark: SparkSession,
    null_values: Sequence[str] = ("",),
    **commit: Any,
) -> WriteResult | None:
    """Upsert the rows of Parquet and CSV files, read by tasks in Python and never by the JVM.

    About twice as fast as reading the files with Spark and upserting the DataFrame. `paths` and
    `null_values` as in FileRows; raises NotFoundError for a path that is not there.
    """
    rows = FileRows(paths=tuple(paths), null_values=tuple(null_values))
    return on_spark(table, spark).upsert(rows, **commit)

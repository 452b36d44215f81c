"""Verbs of a table on Spark, for rows that are a DataFrame or files."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lsm_engine.meta.write_result import WriteResult
from lsm_engine.spark.executor import SparkExecutor
from lsm_engine.spark.file_rows import FileRows
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.merge_builder import Merge
from lsm_engine.table.table import Table


def on_spark(table: Table, spark: SparkSession) -> Table:
    """Return the same table with its work done by a Spark session's executors."""
    session = table.session
    components = replace(session.components, executor=SparkExecutor(spark))
    return Table(TableSession(session.name, components, session.schema), table.location)


def upsert_dataframe(table: Table, frame: DataFrame, **commit: Any) -> WriteResult | None:
    """Upsert a DataFrame on its own session, whatever the table's executor; see `Table.upsert`."""
    return on_spark(table, frame.sparkSession).upsert(frame, **commit)


def merge_dataframe(table: Table, frame: DataFrame, *on: Any, **merge: Any) -> Merge:
    """Begin a MERGE of a DataFrame that its own session's executors do; see `Table.merge`.

    Nothing is collected. Where the source has few rows and is matched by the key, executors look its keys
    up; else Spark joins it with the table. What changes is kept by Spark between a look at it and the
    write, so let a source that chance has a part in (`rand()`) be written somewhere first.
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

"""Reads of a table as a DataFrame: by Spark's own Parquet reader if it can, else by tasks in Python.

Tasks in Python read only the columns that the caller names. Name them here rather than with `select`, which Spark
cannot push down into a Python function.
"""

from collections.abc import Sequence

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lsm_engine.api.table import Table
from lsm_engine.spark.executor import SparkExecutor
from lsm_engine.spark.parquet_rows import scanned_frame
from lsm_engine.spark.session import check_shared
from lsm_engine.spark.types import spark_schema


def read_dataframe(
    table: Table,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    as_of_millis: int | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Return the merged rows of a table as a DataFrame, without deleted keys; in no defined order.

    The snapshot is chosen now and is the same whenever the DataFrame is computed, as long as
    retention leaves it. `columns`, `where` and the snapshot as in `Table.scan`. `spark` None: the
    session of the table's SparkExecutor, or the active one. A time finer than Spark's microseconds
    fails with UnsupportedError rather than be cut off.

    Spark's own reader takes what lies in local Parquet files as it would have it, less replaced rows
    (`parquet_rows.parquet_frame`); columns are nullable then. Other rows that are few, or named by their keys,
    are read now (`spark.lsm.driver-bytes`), and the rest by tasks in Python when Spark asks for them.
    """
    selected = table.schema.names if columns is None else columns
    names = selected or table.schema.names[:1]  # batches without columns lose their rows in Spark
    scan = table.scan(
        columns=names,
        where=where,
        snapshot_id=snapshot_id,
        tag=tag,
        as_of_millis=as_of_millis,
    )
    schema = spark_schema(table.schema.select_read(names))
    session = spark or session_of(table)
    check_shared(session, table.session.file_io)
    frame = scanned_frame(scan, schema, session)
    return frame if selected else frame.select()


def session_of(table: Table) -> SparkSession:
    """Return the session of the table's SparkExecutor, or the active one."""
    executor = table.session.components.executor
    return executor.spark if isinstance(executor, SparkExecutor) else SparkSession.active()

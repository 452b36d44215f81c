"""Operations of a table on Spark: upsert, merge, verify and changes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lsm_engine.api.table import Table
from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.changes.range import Point
from lsm_engine.dml.merge_builder import Merge
from lsm_engine.dml.write import append, upsert
from lsm_engine.format.commit_message import WriteResult
from lsm_engine.format.messages import decode_message, encode_message
from lsm_engine.maintenance import verify
from lsm_engine.maintenance.findings import VerifyReport
from lsm_engine.maintenance.verify_files import FileToRead, Progress, wrong_in_file
from lsm_engine.planning.proposal import CommitIdentity
from lsm_engine.spark.executor import SparkExecutor
from lsm_engine.spark.jobs import (
    ANSWER_DDL,
    Batches,
    PackedItems,
    answer,
    check_items,
    map_arrow,
    prepare_worker,
    run,
)
from lsm_engine.spark.read import session_of
from lsm_engine.spark.rows import FileRows
from lsm_engine.spark.session import check_shared, is_classic
from lsm_engine.spark.source.options import QUERY_ID
from lsm_engine.spark.splits import ChangeReader, bytes_per_row, change_schema, frame_of_splits
from lsm_engine.spark.types import arrow_schema_of
from lsm_engine.table.bucket_context import BucketContext

# -- Verbs of a table on Spark, for rows that are a DataFrame or files -----------------------------


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


# -- Deep verification on Spark --------------------------------------------------------------------
#
# Files are read by tasks, and only what is wrong with them comes back.

_FILES_PER_JOB = 20_000
"""What a job's tasks are handed passes through the driver: more files are several jobs."""
_PROBLEMS_PER_FILE = 20
_CHARACTERS_PER_PROBLEM = 2_000


def verify_table(
    table: Table,
    spark: SparkSession,
    *,
    snapshot_id: int | None = None,
    incremental: bool = False,
    progress: Progress | None = None,
) -> VerifyReport:
    """Return what `Table.verify(deep=True)` returns; the executors of a Spark session read the files.

    Executors need storage that they and the driver see under the same paths. Of each file at most 20
    problems come back, each cut to 2,000 characters. Raises TaskFailedError if tasks die, for example
    for lack of memory: what is wrong with stored bytes is listed, never raised.
    """
    return verify.verify(
        table.session,
        snapshot=snapshot_id,
        deep=True,
        incremental=incremental,
        progress=progress,
        read=partial(_read, spark, table.session.name),
    )


def _read(
    spark: SparkSession, name: str, context: BucketContext, files: Sequence[FileToRead]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    for first in range(0, len(files), _FILES_PER_JOB):
        part = files[first : first + _FILES_PER_JOB]
        shipped = PackedItems.pack(part, [file.entry.file.file_size for file in part], spark)
        task = VerifyTask(context=context, files=shipped)
        answers = run(map_arrow(shipped.frame(spark), task, ANSWER_DDL), label=f"verify {name}")
        check_items(answers, range(len(part)), label="verify")
        for item, message in zip(answers.items, answers.messages, strict=True):
            yield first + item, decode_message(message, FileProblems).texts


@record
class FileProblems:
    """The problems of one file."""

    texts: tuple[str, ...]


@record
class VerifyTask:
    """The work of a task: it reads its files."""

    context: BucketContext
    files: PackedItems

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for number, file in self.files.of_task(task):
                    texts = wrong_in_file(self.context, file)[:_PROBLEMS_PER_FILE]
                    cut = tuple(text[:_CHARACTERS_PER_PROBLEM] for text in texts)
                    yield answer(number, message=encode_message(FileProblems(texts=cut)))


# -- Changes as a DataFrame: one task per snapshot and bucket reads them in Python -----------------


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
    """Return the changes after one snapshot, up to and including another, as a DataFrame; lazy.

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
    full_schema = change_schema(table.schema)
    schema = StructType([full_schema[name] for name in changes.schema.names])
    session = spark or session_of(table)
    check_shared(session, table.session.file_io)
    splits = [split for _, split in changes.splits()]
    schema_ids = {file.schema_id for split in splits for file in split.all_files}
    reader = ChangeReader(rows=changes.rows, schema=arrow_schema_of(schema))
    read = partial(reader.batches, table.session.context(schema_ids))
    row_count = sum(file.row_count for split in splits for file in split.all_files)
    byte_count = row_count * bytes_per_row(reader.schema)
    return frame_of_splits(splits, read, schema, session, byte_count=byte_count, in_order=True)

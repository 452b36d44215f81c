"""Operations of a table on Spark: upsert, merge, verify and changes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, reduce
from itertools import chain
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType
from pyspark.storagelevel import StorageLevel

from lsm_engine.api.accessors import commit_identity
from lsm_engine.api.auto_cdc import (
    DELETES,
    END,
    IS_KEPT,
    IS_NEW,
    IS_STORED,
    ORIGIN,
    SEQUENCE,
    AutoCdc,
    AutoCdcOptions,
    AutoCdcWrite,
    apply_events,
    changed_versions,
    counts_of,
    flow_and_commit,
    keep_events,
    kept_events,
    null_sequence,
)
from lsm_engine.api.catalog import Catalog
from lsm_engine.api.table import Table
from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.changes.range import Point, changes_in
from lsm_engine.changes.splits import SNAPSHOT_ID, Changes
from lsm_engine.dml.merge_builder import Merge
from lsm_engine.dml.write import Write, append, stage, upsert, write_looked_up
from lsm_engine.format.commit_message import CommitMessage, WriteResult
from lsm_engine.format.messages import decode_message, encode_message
from lsm_engine.format.snapshot import RowCounts, Snapshot
from lsm_engine.maintenance import verify
from lsm_engine.maintenance.findings import VerifyReport
from lsm_engine.maintenance.verify_files import FileToRead, Progress, wrong_in_file
from lsm_engine.planning.proposal import CommitIdentity, CommitOptions
from lsm_engine.read.scan import Scan
from lsm_engine.read.scan_plan import ScanRequest
from lsm_engine.spark.executor import SparkExecutor
from lsm_engine.spark.jobs import (
    ANSWER_DDL,
    Batches,
    PackedItems,
    answer,
    check_items,
    collected,
    map_arrow,
    prepare_worker,
    run,
)
from lsm_engine.spark.lookups import lookup_join
from lsm_engine.spark.merge_columns import assigned
from lsm_engine.spark.parquet_rows import scanned_frame
from lsm_engine.spark.read import session_of
from lsm_engine.spark.rows import FileRows, few_rows
from lsm_engine.spark.session import check_shared, is_classic, task_goal
from lsm_engine.spark.source.options import QUERY_ID
from lsm_engine.spark.splits import ChangeReader, bytes_per_row, change_schema, frame_of_splits
from lsm_engine.spark.types import arrow_schema_of, frame_of_rows, quoted, spark_schema
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.incoming import ROW_KIND_COLUMN
from lsm_engine.table.names import refuse_taken
from lsm_engine.table.session import TableSession

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
        session = on_spark(table, frame.sparkSession).session
        write = upsert if session.schema.has_primary_key else append
        write(session, frame, commit_identity(session, **_batch(frame, batch_id)))

    return written


def _batch(frame: DataFrame, batch_id: int) -> CommitOptions:
    """Return the identity of a micro-batch, which is the same when it comes again."""
    spark = frame.sparkSession
    query_id = spark.sparkContext.getLocalProperty(QUERY_ID) if is_classic(spark) else None
    if query_id is None:
        raise UnsupportedError(
            "call it by foreachBatch of a query: it needs the id of the query, which Spark Connect hides"
        )
    return {"commit_user": query_id, "commit_identifier": batch_id}


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


# -- Change events: `Table.auto_cdc` of a DataFrame -------------------------------------------------
#
# Few events are collected, and applied by the driver. Of others executors look up the deletions of their keys (type 1), or
# get the versions of their keys and all events of them in one task (type 2).


def create_auto_cdc_table(
    catalog: Catalog,
    name: str,
    frame: DataFrame,
    *,
    options: Mapping[str, object] | None = None,
    **flow: Unpack[AutoCdcOptions],
) -> Table:
    """Create the table that `auto_cdc` applies events of a DataFrame to; see `Catalog.create_auto_cdc_table`."""
    cdc = AutoCdc.from_options(flow)
    columns = arrow_schema_of(frame.schema)
    sequence = frame.select(_sql(cdc.sequence_by).alias(SEQUENCE)).schema
    columns = cdc.table_columns(columns, arrow_schema_of(sequence).field(0).type)
    table_options = cdc.table_options(columns, options or {})
    return catalog.create_table(name, columns, cdc.primary_key, options=table_options)


def auto_cdc(table: Table, frame: DataFrame, **options: Unpack[AutoCdcWrite]) -> WriteResult | None:
    """Apply the change events of a DataFrame to a table, in one commit; see `Table.auto_cdc`.

    `sequence_by` and `apply_as_deletes` are Spark's SQL, or columns. A DataFrame that is too large for the driver is kept by
    Spark until the commit, so that it is computed once.
    """
    cdc, commit = flow_and_commit(options)
    session = on_spark(table, frame.sparkSession).session
    identity = commit_identity(session, **commit, operation="auto_cdc")
    before = Write(session, identity).replayed()
    if before is not None:
        return before
    names = cdc.columns(frame.columns)
    sequence = cdc.sequence_column(names)
    cdc.check_table(session.schema, [*names, sequence])
    deletes = sql.lit(False) if cdc.apply_as_deletes is None else _sql(cdc.apply_as_deletes)  # noqa: FBT003
    rows = frame.select(
        *(sql.col(quoted(name)) for name in names if name != sequence),
        _sql(cdc.sequence_by).alias(sequence),
        sql.when(deletes, "-D").otherwise("+I").alias(ROW_KIND_COLUMN),
    )
    events = assigned(rows, spark_schema(session.schema.fields))
    driver_rows = few_rows(events, label=_LABEL)
    if driver_rows is not None:
        return apply_events(session, driver_rows, cdc, identity)
    events = events.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        (nulls,) = collected(
            events.select(sql.count_if(sql.col(quoted(sequence)).isNull())), label=_LABEL
        )
        if nulls[0]:
            raise null_sequence(nulls[0])
        if cdc.is_history:
            return write_looked_up(session, identity, partial(_staged_versions, cdc, events))
        return _apply_newest(session, events, cdc, identity)
    finally:
        events.unpersist()


def auto_cdc_batches(
    table: Table, **flow: Unpack[AutoCdcOptions]
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that applies the change events of each micro-batch by `auto_cdc`.

    A micro-batch that comes again is a no-op, as those of `upsert_batches` are.
    """

    def written(frame: DataFrame, batch_id: int) -> None:
        auto_cdc(table, frame, **flow, **_batch(frame, batch_id))

    return written


_LABEL = "apply change events"


def _sql(expression: Any) -> Column:
    return sql.expr(expression) if isinstance(expression, str) else expression


def _apply_newest(
    session: TableSession, events: DataFrame, flow: AutoCdc, identity: CommitIdentity
) -> WriteResult | None:
    (sequence,) = session.schema.sequence_fields
    branch = kept_events(session)
    if branch is not None:
        newer = events.withColumnRenamed(sequence, "_lsm_sequence")
        joined = lookup_join(newer, Table(branch, branch.name), flow.keys, [sequence])
        is_older = sql.col("_lsm_sequence") < sql.col(quoted(sequence))
        events = joined.where(~sql.coalesce(is_older, sql.lit(False))).select(  # noqa: FBT003
            *(
                sql.col("_lsm_sequence").alias(name) if name == sequence else sql.col(quoted(name))
                for name in events.columns
            )
        )
    deleted = events.where(sql.col(ROW_KIND_COLUMN) == "-D").select(
        *map(quoted, (*flow.keys, sequence))
    )
    if collected(deleted.limit(1), label=_LABEL):
        keep_events(session, deleted)
    return upsert(session, events, identity)


def _staged_versions(
    flow: AutoCdc, events: DataFrame, session: TableSession, base: Snapshot | None
) -> tuple[Sequence[CommitMessage], RowCounts] | None:
    """Stage the versions that the events change on one state; None where they change none."""
    schema = spark_schema(session.schema.read_fields)
    keys = events.select(*map(quoted, flow.keys)).distinct()
    parts = [_with_origin(events, schema, IS_NEW)]
    branch = kept_events(session)
    for state, snapshot, origin in (
        (session, base, IS_STORED),
        (branch, None if branch is None else branch.snapshots.latest(), IS_KEPT),
    ):
        if state is not None and snapshot is not None:
            scan = Scan(
                state.with_level_0(),
                ScanRequest(is_batch=False, columns=tuple(schema.names)),
                snapshot,
            )
            rows = scanned_frame(scan, schema, events.sparkSession)
            parts.append(_with_origin(rows.join(keys, [*flow.keys], "left_semi"), schema, origin))
    joined = reduce(DataFrame.unionByName, parts)
    spread = joined.repartition(task_goal(events.sparkSession), *map(quoted, flow.keys))
    result = StructType(
        [*(field for field in schema.fields), StructField(ROW_KIND_COLUMN, StringType())]
    )
    task = VersionsTask(flow=replace(flow, sequence_by=None, apply_as_deletes=None))
    # Two writes and a count read them; the versions of a key are made once.
    changes = map_arrow(spread, task, result).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = {
            row[0]: row[1]
            for row in collected(changes.groupBy(ROW_KIND_COLUMN).count(), label=_LABEL)
        }
        if None in counts:
            keep_events(
                session, changes.where(sql.col(ROW_KIND_COLUMN).isNull()).drop(ROW_KIND_COLUMN)
            )
        if not {*counts} - {None}:
            return None
        written = changes.where(sql.col(ROW_KIND_COLUMN).isNotNull())
        return stage(session, written, base), counts_of(counts)
    finally:
        changes.unpersist()


def _with_origin(rows: DataFrame, schema: StructType, origin: int) -> DataFrame:
    """Return rows as events with all columns of the table; see `changed_versions`."""
    columns = [
        sql.col(quoted(field.name))
        if field.name in rows.columns
        else sql.lit(None).cast(field.dataType).alias(field.name)
        for field in schema.fields
    ]
    deletes = {
        IS_NEW: sql.col(ROW_KIND_COLUMN) == "-D" if origin == IS_NEW else None,
        IS_STORED: sql.lit(False),  # noqa: FBT003
        IS_KEPT: sql.col(END).isNotNull(),
    }[origin]
    assert deletes is not None
    return rows.select(
        *columns, sql.lit(origin).cast("tinyint").alias(ORIGIN), deletes.alias(DELETES)
    )


@record
class VersionsTask:
    """The work of a task: it has all events of its keys."""

    flow: AutoCdc

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        parts = [*batches]
        if parts:
            yield from changed_versions(self.flow, pa.Table.from_batches(parts)).to_batches()


# -- Deep verification on Spark --------------------------------------------------------------------
#
# Files are read by tasks, and only what is wrong with them comes back.

_FILES_PER_JOB = 20_000
"""Files of one job: their entries pass through the driver, so that more files are several jobs."""
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
    return _frame_of_changes(table, changes, spark)


_CHANGE_TYPES = {"+I": "insert", "-U": "update_preimage", "+U": "update_postimage", "-D": "delete"}
_FEED = ("_change_type", "_commit_version", "_commit_timestamp")


def change_feed(changes: Changes, table: Table, spark: SparkSession) -> DataFrame:
    """Return changes with the columns of Delta's change feed: the table's, then type, snapshot and time of each change."""
    refuse_taken(table.schema.names, _FEED, "a read of changes")
    snapshots = changes_in(table.session, changes.range)
    times = [(s.id, datetime.fromtimestamp(s.time_millis / 1000, UTC)) for s in snapshots]
    committed = frame_of_rows(spark, times, {SNAPSHOT_ID: LongType(), _FEED[2]: TimestampType()})
    rows = _frame_of_changes(table, changes, spark).join(sql.broadcast(committed), SNAPSHOT_ID)
    kinds = sql.create_map(*map(sql.lit, chain.from_iterable(_CHANGE_TYPES.items())))
    return rows.select(
        *(sql.col(quoted(name)) for name in table.schema.names),
        kinds[sql.col(ROW_KIND_COLUMN)].alias(_FEED[0]),
        sql.col(SNAPSHOT_ID).alias(_FEED[1]),
        sql.col(_FEED[2]),
    )


def _frame_of_changes(table: Table, changes: Changes, spark: SparkSession | None) -> DataFrame:
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

"""Writing through `format("lsm")`: each task writes its rows, then one commit on the driver."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lsm_engine.base import core_options
from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.base.record import record
from lsm_engine.codec.messages import decode_message, encode_message
from lsm_engine.io.storage_options import NO_OPTIONS, StorageOptions
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.spark.jobs import prepare_worker
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.ground.bucket_context import BucketContext, Staging
from lsm_engine.table.ground.discard import discard
from lsm_engine.table.ground.executor import LocalExecutor
from lsm_engine.table.ground.incoming import Conformer
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import staging_on
from lsm_engine.table.open_table import open_table
from lsm_engine.table.stage.bucket_routing import assigns_buckets
from lsm_engine.table.stage.writers import TableWriter
from lsm_engine.table.write.overwrite import overwrite
from lsm_engine.table.write.write import Write

_TASK_BITS = 32
"""Sequence numbers are set apart by task: no task writes 2^32 rows, no table sees 2^31 tasks."""


@record
class TaskStaging(Staging):
    """Staging of one task among others that write to the same buckets.

    Their sequence numbers must not meet: of two rows of one key the row of the later partition of
    the DataFrame is newer.
    """

    task: int

    def next_sequence_number(self, partition: bytes, bucket: int) -> int:
        """Return the number of this task's next row of a bucket."""
        first = Staging.next_sequence_number(self, partition, bucket)
        return first + (self.task << _TASK_BITS)


class StagedMessages(WriterCommitMessage):
    """What one task wrote: commit messages as JSON."""

    def __init__(self, messages: tuple[bytes, ...]) -> None:
        self.messages = messages


class StagedRows(LocalExecutor):
    """Takes rows that tasks have written already for the rows of an overwrite."""

    def stage(self, staging: Staging, rows: Any) -> list[CommitMessage] | None:
        """Return the messages, which are the rows."""
        del staging
        return list(rows)


def write_rows(staging: Staging, batches: Iterator[pa.RecordBatch]) -> tuple[bytes, ...]:
    """Write one task's rows as level-0 files; return what to commit. What fails deletes what it wrote."""
    prepare_worker()
    task = TaskContext.get()
    writer = TableWriter(
        TaskStaging(
            context=staging.context,
            newest=staging.newest,
            replaces=staging.replaces,
            buckets=staging.buckets,
            snapshot_id=staging.snapshot_id,
            task=0 if task is None else task.partitionId(),
        )
    )
    schema = staging.context.schema
    conformer: Conformer | None = None
    try:
        for batch in batches:
            conformer = conformer or Conformer(batch.schema, schema)
            if batch.num_rows:
                writer.write(conformer.conform(batch))
        messages = writer.finish()
    except BaseException:
        writer.abort()
        raise
    return tuple(encode_message(message) for message in messages)


class SourceWriter(DataSourceArrowWriter):
    """Writes level-0 files in tasks, and commits them, or deletes them, on the driver.

    Spark pickles it between its processes, so that it holds values only.
    """

    def __init__(self, plan: "WritePlan") -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows; what fails deletes what it wrote."""
        return StagedMessages(write_rows(self._plan.staging, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks wrote, at once."""
        self._plan.publish(decoded(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the tasks that worked have written, if another has failed."""
        discard_failed(self._plan.staging.context, messages)


@record
class WritePlan:
    """One write: to which table, on top of which snapshot, under which identity."""

    path: str
    storage: StorageOptions
    staging: Staging
    base: Snapshot | None
    identity: CommitIdentity
    replaces: bool

    def publish(self, messages: list[CommitMessage]) -> WriteResult | None:
        """Commit, as the verbs of the table do."""
        session = open_staged(self.path, self.storage)
        if self.replaces:
            return overwrite(session, messages, None, self.identity)
        return Write(session, self.identity).land(messages, planned_on=self.base)


def open_staged(path: str, storage: StorageOptions) -> TableSession:
    """Open a table whose rows tasks have written already."""
    return open_table(path, storage=storage, executor=StagedRows()).session


def discard_failed(context: BucketContext, messages: list[WriterCommitMessage | None]) -> None:
    """Delete what tasks wrote, if one of them has failed: None stands for it.

    If none has, Spark aborts because the commit failed, or its process died: its rows may be visible. A commit
    deletes what is known not to be; the rest, if any, are orphans.
    """
    if None in messages:
        discard(context, decoded(messages))


def check_rows(session: TableSession, rows: pa.Schema) -> None:
    """Raise InvalidInputError for columns that do not fit, UnsupportedError where tasks have to agree."""
    Conformer(rows, session.schema)
    if assigns_buckets(session.schema.bucket_mode):
        raise UnsupportedError(
            "tasks that write on their own cannot agree on dynamic buckets; write the DataFrame, or each "
            "batch of a stream in foreachBatch, with lsm_engine.spark.upsert_dataframe(table, frame)",
            option=core_options.BUCKET.key,
            value=session.schema.bucket_count,
        )


def plan_write(
    path: str,
    rows: pa.Schema,
    *,
    storage: StorageOptions = NO_OPTIONS,
    replaces: bool,
    commit_user: str | None = None,
    commit_identifier: int | None = None,
) -> WritePlan:
    """Return the plan of a write; raises InvalidInputError for columns that do not fit."""
    session = open_table(path, storage=storage).session
    check_rows(session, rows)
    identity = CommitIdentity(
        commit_user=commit_user or session.ids.new_id(),
        commit_identifier=BATCH_COMMIT_IDENTIFIER
        if commit_identifier is None
        else commit_identifier,
    )
    base = session.snapshots.latest() if replaces else Write(session, identity).base()
    return WritePlan(
        path=path,
        storage=storage,
        staging=staging_on(session, base, replaces=replaces),
        base=base,
        identity=identity,
        replaces=replaces,
    )


def decoded(messages: list[WriterCommitMessage | None]) -> list[CommitMessage]:
    """Return what tasks wrote; None stands for a task that failed."""
    return [
        decode_message(text, CommitMessage)
        for message in messages
        if isinstance(message, StagedMessages)
        for text in message.messages
    ]

"""Writes of `format("lsm")`: each task writes level-0 files, and the driver commits all of them once."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from lsm_engine.api.open_table import open_table
from lsm_engine.base.errors import LsmError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER
from lsm_engine.dml.overwrite import overwrite
from lsm_engine.dml.write import Write
from lsm_engine.format.commit_message import CommitMessage, WriteResult
from lsm_engine.format.messages import decode_message, encode_message
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options import core_options
from lsm_engine.planning.proposal import CommitIdentity
from lsm_engine.spark.jobs import (
    decode_error,
    encode_error,
    is_final,
    prepare_worker,
    shows_its_errors_alone,
)
from lsm_engine.spark.source.options import QUERY_ID, storage_of
from lsm_engine.spark.types import arrow_schema_of
from lsm_engine.storage.options import NO_OPTIONS, StorageOptions
from lsm_engine.table.bucket_context import BucketContext, Staging, discard
from lsm_engine.table.components import LocalExecutor
from lsm_engine.table.incoming import Conformer
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import staging_on
from lsm_engine.write.buckets import assigns_buckets
from lsm_engine.write.writers import TableWriter

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


class RefusedRows(WriterCommitMessage):
    """The error of a task whose rows no other attempt would write; see `jobs.encode_error`."""

    def __init__(self, error: str) -> None:
        self.error = error


class StagedMessages(WriterCommitMessage):
    """The files that one task wrote, as commit messages in JSON."""

    def __init__(self, messages: tuple[bytes, ...]) -> None:
        self.messages = messages


class StagedRows(LocalExecutor):
    """Takes rows that tasks have written already for the rows of an overwrite."""

    def stage(self, staging: Staging, rows: Any) -> list[CommitMessage] | None:
        """Return the messages, which are the rows."""
        del staging
        return list(rows)


def write_rows(staging: Staging, batches: Iterator[pa.RecordBatch]) -> tuple[bytes, ...]:
    """Write the rows of a task as level-0 files; return the commit messages. A failed task deletes its files."""
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
        # A killed task too: its files are in no message, so the driver could not delete them.
        writer.abort()
        raise
    return tuple(encode_message(message) for message in messages)


def staged_or_refused(
    write: Callable[[], StagedMessages], batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """Return what a task wrote, or its error, which the commit raises: Spark neither tries nor logs the task again."""
    try:
        return write()
    except LsmError as error:
        if not is_final(error):
            raise
        deque(batches, maxlen=0)  # Spark replaces a worker that leaves some
        return RefusedRows(encode_error(error))


@shows_its_errors_alone
class SourceWriter(DataSourceArrowWriter):
    """Writes level-0 files in tasks, and commits them, or deletes them, on the driver.

    Spark pickles it between its processes, so that it holds values only.
    """

    def __init__(self, plan: "WritePlan") -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; a failed task deletes its files."""
        return staged_or_refused(
            lambda: StagedMessages(write_rows(self._plan.staging, iterator)), iterator
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks in one snapshot."""
        self._plan.publish(accepted(self._plan.staging.context, messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files of the tasks that succeeded, if another has failed."""
        discard_failed(self._plan.staging.context, messages)


@record
class WritePlan:
    """The plan of a write: its table, base snapshot and commit identity."""

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
    """Open a table to commit rows that tasks have written."""
    return open_table(path, storage=storage, executor=StagedRows()).session


def discard_failed(context: BucketContext, messages: list[WriterCommitMessage | None]) -> None:
    """Delete the files of tasks, one of which has failed: its message is None.

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


def accepted(
    context: BucketContext, messages: list[WriterCommitMessage | None]
) -> list[CommitMessage]:
    """Return the commit messages of tasks; raises the error of one that refused its rows, and deletes the others' files."""
    for message in messages:
        if isinstance(message, RefusedRows):
            discard(context, decoded(messages))
            raise decode_error(message.error, label="write rows")
    return decoded(messages)


def decoded(messages: list[WriterCommitMessage | None]) -> list[CommitMessage]:
    """Return the commit messages of tasks; the message of a failed task is None."""
    return [
        decode_message(text, CommitMessage)
        for message in messages
        if isinstance(message, StagedMessages)
        for text in message.messages
    ]


# -- `writeStream.format("lsm")` -------------------------------------------------------------------
#
# One commit a micro-batch, by the query as `commit_user`, numbered by the batch.
#
# Spark runs a micro-batch again whose end its checkpoint does not know, under the same numbers.
# A commit with a number is applied once: a `commit_identifier` that is not greater than the
# last one of its `commit_user` changes nothing, whatever was committed or expired since, and
# where that last one is not kept any more the commit is refused. A query is the same as long as
# its checkpoint is.

_DELAY = "spark.watermarkDelayMs"
_MICROS = pa.timestamp("us", "UTC")


class StagedBatch(StagedMessages):
    """The files of one task of a micro-batch, with the query and the base snapshot."""

    def __init__(
        self,
        messages: tuple[bytes, ...],
        query_id: str,
        base: Snapshot | None,
        watermark: int | None,
    ) -> None:
        super().__init__(messages)
        self.query_id = query_id
        self.base = base
        self.watermark = watermark


@record
class EventTime:
    """The column that a query declares by `withWatermark`, and how late its rows may come."""

    column: str
    delay_millis: int

    @staticmethod
    def from_schema(schema: StructType) -> "EventTime | None":
        """Return the event time that the metadata of a column declare; None without one."""
        for field in schema.fields:
            if _DELAY in field.metadata:
                return EventTime(column=field.name, delay_millis=int(field.metadata[_DELAY]))
        return None


class _Watched:
    """Passes batches on, and keeps their latest event time."""

    def __init__(self, batches: Iterator[pa.RecordBatch], event_time: EventTime | None) -> None:
        self._batches = batches
        self._event_time = event_time
        self._latest: int | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        event_time = self._event_time
        for batch in self._batches:
            if event_time is not None:
                latest = pc.max(batch.column(event_time.column).cast(_MICROS).cast(pa.int64()))
                if latest.is_valid and (self._latest is None or latest.as_py() > self._latest):
                    self._latest = latest.as_py()
            yield batch

    @property
    def watermark(self) -> int | None:
        """The watermark in milliseconds since 1970, from the event times of the rows of this task."""
        if self._latest is None or self._event_time is None:
            return None
        return self._latest // 1000 - self._event_time.delay_millis


@shows_its_errors_alone
class StreamSink(DataSourceStreamArrowWriter):
    """Writes level-0 files in tasks, and commits a batch once on the driver, however often Spark repeats it.

    Spark makes one to send to tasks, and another in the process that commits.
    """

    def __init__(
        self, path: str, options: Mapping[str, str], schema: StructType, *, replaces: bool
    ) -> None:
        self._path = path
        self._storage = storage_of(options)
        self._replaces = replaces
        self._event_time = EventTime.from_schema(schema)
        self._planned: tuple[Staging, Snapshot | None] | None = None
        check_rows(open_staged(path, self._storage), arrow_schema_of(schema))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that tasks need. The plan is made here, because the process that commits needs none."""
        if self._planned is None:
            session = open_staged(self._path, self._storage)
            # Who they are that compact rows that wait for a bucket does not matter.
            identity = CommitIdentity(commit_user=session.ids.new_id())
            base = session.snapshots.latest() if self._replaces else Write(session, identity).base()
            self._planned = (staging_on(session, base, replaces=self._replaces), base)
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; a failed task deletes its files."""
        assert self._planned is not None
        task = TaskContext.get()
        query_id = None if task is None else task.getLocalProperty(QUERY_ID)
        if query_id is None:
            raise UnsupportedError("this Spark does not tell tasks the id of their streaming query")
        staging, base = self._planned
        watched = _Watched(iterator, self._event_time)

        def written() -> StagedBatch:
            messages = write_rows(staging, iter(watched))
            return StagedBatch(messages, query_id, base, watched.watermark)

        return staged_or_refused(written, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the files of all tasks in one snapshot; a batch that was committed before is a no-op."""
        # The query and its batch number make a replay of the batch a no-op.
        parts = [batch for batch in messages if isinstance(batch, StagedBatch)]
        session = open_staged(self._path, self._storage)
        staged = accepted(session.context(), messages)
        identity = CommitIdentity(
            commit_user=parts[0].query_id,
            commit_identifier=batchId,
            watermark=max(
                (batch.watermark for batch in parts if batch.watermark is not None), default=None
            ),
        )
        if self._replaces:
            overwrite(session, staged, {}, identity)
        else:
            Write(session, identity).land(staged, planned_on=parts[0].base)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the files of the tasks that succeeded, if another has failed."""
        del batchId
        discard_failed(open_staged(self._path, self._storage).context(), messages)

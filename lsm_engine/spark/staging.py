"""Staged writes on Spark: rows are shuffled to the task that owns their bucket, which writes level-0 files.

    stage one   any task      conform, number and route rows, pack them into batches by bucket
    shuffle     Spark         batches to the tasks that own their buckets, in order of bucket and number
    stage two   owner tasks   unpack, buffer, sort, merge, write: write/writers.BucketWriter

The caller commits. No written row is visible before that."""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from lsm_engine.format.commit_message import CommitMessage
from lsm_engine.format.messages import decode_message, encode_message
from lsm_engine.options import core_options
from lsm_engine.read.buffer import LocalMerge
from lsm_engine.spark.jobs import (
    ANSWER_DDL,
    Answers,
    Batches,
    ShippedError,
    TaskFailedError,
    answer,
    by_task,
    encode_error,
    is_answer,
    is_final,
    map_arrow,
    prepare_worker,
    run,
)
from lsm_engine.spark.session import task_attempts, task_goal
from lsm_engine.spark.types import arrow_schema_of
from lsm_engine.storage.local_state import SpillArea
from lsm_engine.table.bucket_context import Staging, discard
from lsm_engine.table.bucket_keys import RoutedRows
from lsm_engine.table.incoming import Conformer, IncomingRows, joined
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.write.buckets import PartitionRouting, assigns_buckets, routing_of
from lsm_engine.write.writers import RowsWriter, TableWriter, bucket_writer, messages_of

# -- Rows on their way to the task that owns their bucket, as batches ------------------------------
#
# One Arrow message per bucket.
#
# Spark shuffles few opaque values instead of many rows, so that rows cross between the JVM and
# Python once at most; and the number of a batch keeps rows in the order in which they came.

SHUFFLE_DDL = "task int, partition binary, bucket int, number bigint, rows binary, error string"
SHUFFLE_SCHEMA = pa.schema(
    [
        pa.field("task", pa.int32()),
        pa.field("partition", pa.binary()),
        pa.field("bucket", pa.int32()),
        pa.field("number", pa.int64()),
        pa.field("rows", pa.binary()),
        pa.field("error", pa.string()),
    ]
)
_KIND = "_kind"
_GATHERED_BYTES = 32 << 20
"""Rows gathered before they are cut by bucket: the more, the fewer and larger the batches."""
_BATCH_BYTES_MAX = 8 << 20
"""No shuffled batch is much larger: Spark copies each through its heap."""
_SOURCE_BITS = 40


class FailedBatchError(Exception):
    """A shuffled batch has an error instead of rows; `error` is the text of `jobs.encode_error`."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


@record
class Owners:
    """Which task owns a bucket. All shuffled batches of one bucket go to one task, and only to that one."""

    task_count: int

    def owner(self, partition: bytes, bucket: int) -> int:
        """Return the number of the task; buckets of one partition go to tasks in turn."""
        return (zlib.crc32(partition) + bucket) % self.task_count


def shuffled_schema(schema: TableSchema) -> pa.Schema:
    """Return the schema of the rows of a shuffled batch: the columns of the table, and the row kind."""
    return schema.arrow.append(pa.field(_KIND, pa.int8()))


class Packer:
    """Packs the rows of one source into batches to shuffle.

    `source` numbers the sources in the order in which their rows count: of two rows of one key the
    one of the later source is newer, and within a source the later one. Where buckets are dynamic,
    a shuffled batch holds rows of a whole partition: its owner gives them buckets.
    """

    def __init__(self, staging: Staging, owners: Owners, *, source: int) -> None:
        schema = staging.context.schema
        assigned = assigns_buckets(schema.bucket_mode)
        self._routing = PartitionRouting(staging) if assigned else routing_of(staging)
        self._schema = shuffled_schema(schema)
        self._owners = owners
        self._merge = LocalMerge.for_schema(schema)
        buffer_size = schema.options[core_options.LOCAL_MERGE_BUFFER_SIZE]
        self._gathered_max = (
            _GATHERED_BYTES if self._merge is None or buffer_size is None else buffer_size
        )
        self._next = source << _SOURCE_BITS
        self._gathered: list[IncomingRows] = []
        self._byte_count = 0

    def pack(self, incoming: IncomingRows) -> Iterator[pa.RecordBatch]:
        """Take rows; yield batches when enough have been gathered."""
        self._gathered.append(incoming)
        self._byte_count += incoming.rows.nbytes
        if self._byte_count >= self._gathered_max:
            yield self._shuffled_batches()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are still gathered, as batches."""
        if self._gathered:
            yield self._shuffled_batches()

    def _shuffled_batches(self) -> pa.RecordBatch:
        shuffled = [
            self._shuffled_batch(routed.partition, routed.bucket, part)
            for rows in self._routing.route(joined(self._gathered))
            for routed in ([rows] if self._merge is None else self._merge.merged(rows))
            for part in self._parts(routed)
        ]
        self._gathered, self._byte_count = [], 0
        return pa.RecordBatch.from_pylist(shuffled, schema=SHUFFLE_SCHEMA)

    def _parts(self, routed: RoutedRows) -> Iterator[pa.RecordBatch]:
        rows = pa.RecordBatch.from_arrays([*routed.rows.columns, routed.kinds], schema=self._schema)
        step = max(1, rows.num_rows * _BATCH_BYTES_MAX // max(1, rows.nbytes))
        return (rows.slice(start, step) for start in range(0, rows.num_rows, step))

    def _shuffled_batch(
        self, partition: bytes, bucket: int, rows: pa.RecordBatch
    ) -> dict[str, object]:
        self._next += 1
        return {
            "task": self._owners.owner(partition, bucket),
            "partition": partition,
            "bucket": bucket,
            "number": self._next,
            "rows": rows.serialize().to_pybytes(),
        }


def unpack(data: pa.Buffer, schema: pa.Schema) -> tuple[pa.RecordBatch, pa.Array]:
    """Return the rows of a shuffled batch, and their row kinds. `schema` is that of `shuffled_schema`."""
    rows = pa.ipc.read_record_batch(data, schema)
    last = rows.num_columns - 1
    return rows.remove_column(last), rows.column(last)


def failed_batch(error: str) -> pa.RecordBatch:
    """Return a shuffled batch without rows that carries an error, as `jobs.encode_error` writes it."""
    return pa.RecordBatch.from_pylist([{"task": 0, "error": error}], schema=SHUFFLE_SCHEMA)


# -- Upsert on Spark -------------------------------------------------------------------------------

Writer = RowsWriter | TableWriter


class RowSource(Protocol):
    """The source of the rows of a task. It pickles."""

    def sources(self, batches: Batches) -> Iterator[tuple[int, Iterator[IncomingRows]]]:
        """Yield the sources that a task reads, by number (see Packer), and the rows of each."""
        ...


def stage_frame(staging: Staging, frame: DataFrame, *, label: str) -> list[CommitMessage]:
    """Write a DataFrame's rows as level-0 files of their buckets; nothing is visible yet.

    Of several rows of one key the last one counts, in the order of the DataFrame's partitions.
    Raises InvalidInputError for rows that do not fit, or TaskFailedError, after the files of this
    attempt were deleted as far as known.
    """
    source = FrameSource(schema=staging.context.schema, deletes=staging.deletes)
    return stage_source(staging, frame, source, label=label)


def check_columns(staging: Staging, frame: DataFrame) -> None:
    """Raise InvalidInputError for columns that do not fit, before a job starts."""
    schema = arrow_schema_of(frame.schema)
    Conformer(schema, staging.context.schema, deletes=staging.deletes)


def stage_source(
    staging: Staging, frame: DataFrame, source: RowSource, *, label: str
) -> list[CommitMessage]:
    """Write the rows that `source` reads from the partitions of a frame; raises as `stage_frame` does.

    Rows of an append table without buckets are written by the tasks that read them; all others are
    shuffled to the tasks that own their buckets.
    """
    if staging.context.schema.bucket_mode.policy.is_unaware:
        attempts = task_attempts(frame.sparkSession)
        appending = AppendTask(staging=staging, source=source, attempts=attempts)
        answers = run(map_arrow(frame, appending, ANSWER_DDL), label=label)
        return _staged(staging, answers, None)
    owners = owners_of(staging.context.schema, frame.sparkSession)
    # Which sequence numbers are taken only the owners have to know.
    packing = replace(staging, newest={})
    task = PackTask(staging=packing, owners=owners, source=source)
    return stage_shuffled(staging, map_arrow(frame, task, SHUFFLE_DDL), owners, label=label)


def stage_shuffled(
    staging: Staging, shuffled: DataFrame, owners: Owners, *, label: str
) -> list[CommitMessage]:
    """Shuffle batches to the tasks that own their buckets, which write them; return the commit messages."""
    handed = by_task(shuffled, owners.task_count).sortWithinPartitions(
        "partition", "bucket", "number"
    )
    task = OwnerTask(staging=staging, attempts=task_attempts(shuffled.sparkSession))
    answers = run(map_arrow(handed, task, ANSWER_DDL), label=label)
    messages = [decode_message(message, CommitMessage) for message in answers.messages]
    return _staged(staging, answers, _doubled(messages, label))


def _staged(staging: Staging, answers: Answers, error: LsmError | None) -> list[CommitMessage]:
    messages = [decode_message(message, CommitMessage) for message in answers.messages]
    error = answers.error or error
    if error is not None:
        # Other tasks have written their buckets; without a commit their files are orphans.
        discard(staging.context, messages)
        raise error
    return messages


def owners_of(schema: TableSchema, spark: SparkSession) -> Owners:
    """Return the owners of buckets: at most two tasks per core, each with its buckets one after the other.

    Dynamic buckets of a partition have one owner, and those of a table whose keys move from
    partition to partition have one for all.
    """
    mode = schema.bucket_mode
    if mode.policy.crosses_partitions:
        # One index of keys covers all partitions, and one task alone may change it.
        return Owners(task_count=1)
    buckets = max(1, schema.bucket_count)
    if mode.policy.is_postponed:
        buckets = schema.options[core_options.POSTPONE_DEFAULT_BUCKET_NUM]
    goal = task_goal(spark)
    return Owners(task_count=goal if schema.partition_keys else min(buckets, goal))


def _doubled(messages: Sequence[CommitMessage], label: str) -> LsmError | None:
    """Return an error if two tasks wrote to one bucket: a bucket has one owner, or none."""
    owned = {(message.partition, message.bucket) for message in messages}
    if len(owned) == len(messages):
        return None
    return TaskFailedError(
        f"Spark gave one bucket to two tasks of {label!r}; nothing was committed, try again",
        buckets=len(owned),
        answers=len(messages),
    )


@record
class FrameSource:
    """The rows of one partition of a DataFrame, coerced to the schema."""

    schema: TableSchema
    deletes: bool

    def sources(self, batches: Batches) -> Iterator[tuple[int, Iterator[IncomingRows]]]:
        """Yield the partition, with its number."""
        context = TaskContext.get()
        yield 0 if context is None else context.partitionId(), self._conformed(batches)

    def _conformed(self, batches: Batches) -> Iterator[IncomingRows]:
        conformer: Conformer | None = None
        for batch in batches:
            conformer = conformer or Conformer(batch.schema, self.schema, deletes=self.deletes)
            if batch.num_rows:
                yield conformer.conform(batch)


@record
class PackTask:
    """Stage one: route and pack the rows of a task's sources."""

    staging: Staging
    owners: Owners
    source: RowSource

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        for number, rows in self.source.sources(batches):
            yield from packed(Packer(self.staging, self.owners, source=number), rows)


@record
class AppendTask:
    """The only stage where rows have no bucket of their own: write the rows of a task's sources."""

    staging: Staging
    source: RowSource
    attempts: int

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        for number, rows in self.source.sources(batches):
            writer = TableWriter(self.staging)
            with aborting([writer]):
                try:
                    for incoming in rows:
                        writer.write(incoming)
                    for message in writer.finish():
                        yield answer(number, message=encode_message(message))
                except LsmError as error:
                    if not is_answer(error, self.attempts):
                        raise ShippedError(error) from error
                    # Without an answer Spark would try the task again, only to fail in the same way.
                    yield _given_up(number, encode_error(error), [writer], batches)


def packed(packer: Packer, rows: Iterator[IncomingRows]) -> Batches:
    """Yield the batches of rows; an error that would only come again travels as a shuffled batch.

    The input of the task is read to its end in any case: Spark replaces a worker that leaves some.
    """
    try:
        for incoming in rows:
            yield from packer.pack(incoming)
        yield from packer.flush()
    except LsmError as error:
        if not is_final(error):  # Spark tries the task again
            raise ShippedError(error) from error
        yield failed_batch(encode_error(error))


@record
class OwnerTask:
    """Stage two: the batches of the buckets that one task owns, bucket after bucket."""

    staging: Staging
    attempts: int

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        task = TaskContext.get()
        number = 0 if task is None else task.partitionId()
        writers: list[Writer] = []
        spills = SpillArea()
        with closing(spills), aborting(writers):
            try:
                for message in self._messages(batches, writers, spills):
                    yield answer(number, message=encode_message(message))
            except LsmError as error:
                if not is_answer(error, self.attempts):
                    raise ShippedError(error) from error
                yield _given_up(number, encode_error(error), writers, batches)
            except FailedBatchError as carried:
                # Stage one failed for good: its error becomes the answer of the job.
                yield _given_up(number, carried.error, writers, batches)

    def _messages(
        self, batches: Batches, writers: list[Writer], spills: SpillArea
    ) -> Iterator[CommitMessage]:
        if assigns_buckets(self.staging.context.schema.bucket_mode):
            yield from self._assigned(batches, writers)
        else:
            yield from self._by_bucket(batches, writers, spills)

    def _assigned(self, batches: Batches, writers: list[Writer]) -> Iterator[CommitMessage]:
        """Write all partitions of the task, whose rows get their buckets here."""
        schema = shuffled_schema(self.staging.context.schema)
        writer = TableWriter(self.staging)
        writers.append(writer)
        for _, _, data in shuffled_batches(batches):
            rows, kinds = unpack(data, schema)
            writer.write(IncomingRows(rows=rows, kinds=kinds))
        yield from writer.finish()

    def _by_bucket(
        self, batches: Batches, writers: list[Writer], spills: SpillArea
    ) -> Iterator[CommitMessage]:
        context = self.staging.context
        schema = shuffled_schema(context.schema)
        memory_bytes = context.schema.options[core_options.WRITE_BUFFER_SIZE]
        routing = routing_of(self.staging)
        current: tuple[bytes, int] | None = None
        writer: RowsWriter | None = None
        for partition, bucket, data in shuffled_batches(batches):
            if writer is None or (partition, bucket) != current:
                if writer is not None:
                    yield from messages_of([writer.finish()])
                current = (partition, bucket)
                total = routing.total_buckets(partition)
                writer = bucket_writer(
                    self.staging, partition, bucket, total_buckets=total, spills=spills
                )
                writers.append(writer)
            writer.write(*unpack(data, schema))
            if writer.byte_count > memory_bytes:
                writer.relieve()
        if writer is not None:
            yield from messages_of([writer.finish()])


def shuffled_batches(batches: Batches) -> Iterator[tuple[bytes, int, pa.Buffer]]:
    """Yield the partition, bucket and rows of each shuffled batch; FailedBatchError for one with an error."""
    for batch in batches:
        _, partitions, buckets, _, rows, errors = batch.columns
        if errors.null_count < len(errors):
            raise FailedBatchError(errors.drop_null()[0].as_py())
        yield from zip(
            partitions.to_pylist(),
            buckets.to_pylist(),
            (data.as_buffer() for data in rows),
            strict=True,
        )


def _given_up(
    number: int, error: str, writers: Sequence[Writer], batches: Batches
) -> pa.RecordBatch:
    """Delete the files of the task and return its answer, with the input read to its end."""
    for writer in writers:
        writer.abort()
    for _ in batches:  # Spark replaces a worker that leaves input unread
        pass
    return answer(number, error=error)


@contextmanager
def aborting(writers: Sequence[Writer]) -> Iterator[None]:
    """Delete the files of writers if the task fails or is cancelled."""
    try:
        yield
    except BaseException:
        for writer in writers:
            writer.abort()
        raise

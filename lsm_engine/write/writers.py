"""Write rows to files of their buckets, which no manifest names before the commit. Runs in any process."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.data_files.writer import DataFileWriter, WrittenFile, metas_of
from lsm_engine.format.commit_message import CommitMessage, DataIncrement
from lsm_engine.format.manifest import Bucket
from lsm_engine.merge.sequence import Rows, with_number
from lsm_engine.options import core_options
from lsm_engine.options.modes import FileSource
from lsm_engine.read.buffer import InputLog, WriteBuffer, merge_together
from lsm_engine.storage.local_state import SpillArea
from lsm_engine.table.bucket_context import Staging
from lsm_engine.table.bucket_keys import RoutedRows
from lsm_engine.table.components import LocalExecutor
from lsm_engine.table.incoming import IncomingRows, conformed, open_rows
from lsm_engine.table.merge_rules import merge_rules
from lsm_engine.write.buckets import routing_of

# -- Turn the written files of all buckets into commit messages ------------------------------------


@record
class WrittenBucket:
    """The finished files of one bucket; none where no row came. `partition` is a stored row."""

    partition: bytes
    bucket: int
    total_buckets: int
    files: Sequence[WrittenFile]
    changelog_files: Sequence[WrittenFile] = ()


def messages_of(written: Iterable[WrittenBucket]) -> list[CommitMessage]:
    """Return a commit message for each bucket with files; one pass computes their statistics."""
    buckets = [bucket for bucket in written if bucket.files or bucket.changelog_files]
    metas = iter(
        metas_of(
            [
                file
                for written_bucket in buckets
                for file in (*written_bucket.files, *written_bucket.changelog_files)
            ]
        )
    )
    return [
        CommitMessage(
            partition=bucket.partition,
            bucket=bucket.bucket,
            total_buckets=bucket.total_buckets,
            data=DataIncrement(
                new_files=tuple(next(metas) for _ in bucket.files),
                changelog_files=tuple(next(metas) for _ in bucket.changelog_files),
            ),
        )
        for bucket in buckets
    ]


# -- Append: rows for a table without a primary key; nothing is sorted, merged or replaced ---------


class AppendWriter:
    """Writes the rows of one bucket of an append table (AppendOnlyWriter). Runs in any process.

    `first_sequence_number` numbers the first row; the numbers stand in manifests only.
    """

    def __init__(self, staging: Staging, bucket: Bucket, *, total_buckets: int) -> None:
        self._place = (*bucket, total_buckets)
        self._writer: DataFileWriter = staging.context.new_files(
            bucket,
            level=0,
            source=FileSource.APPEND,
            first_sequence_number=staging.next_sequence_number(*bucket),
        )

    @property
    def byte_count(self) -> int:
        """Bytes held in memory."""
        return self._writer.waiting_bytes

    def write(self, rows: pa.RecordBatch, kinds: pa.Array) -> None:
        """Take rows of this bucket; all are new ones, so that kinds do not matter."""
        del kinds
        self._writer.write(rows)

    def relieve(self) -> None:
        """Give up the memory."""
        self._writer.relieve()

    def finish(self) -> WrittenBucket:
        """Write the remaining rows and return the files of the bucket."""
        partition, bucket, total_buckets = self._place
        return WrittenBucket(
            partition=partition,
            bucket=bucket,
            total_buckets=total_buckets,
            files=self._writer.finish(),
        )

    def abort(self) -> None:
        """Delete what was written; nothing of it was visible."""
        self._writer.abort()


# -- Write rows to files of their buckets, which no manifest names before the commit ---------------

_SMALL_BYTES = 64 << 10
"""From this size in bytes, a buffer is merged separately and on its own thread."""
_TOGETHER_BYTES = 8 << 20
_TOGETHER_WRITERS = 32
"""The most bytes of buffers that one call merges; the next ones go to another thread."""


class BucketWriter:
    """Writes the rows of one bucket (MergeTreeWriter)."""

    def __init__(
        self, staging: Staging, bucket: Bucket, *, total_buckets: int, spills: SpillArea
    ) -> None:
        self._context = staging.context
        self._bucket = bucket
        self._total_buckets = total_buckets
        self._snapshot_id = staging.snapshot_id
        schema = staging.context.schema
        self.rules = rules = merge_rules(schema)
        # Rows that wait for a bucket (below 0) are not logged before they reach one.
        is_logged = logs_input(staging) and bucket[1] >= 0
        self._log = InputLog(schema, rules, spills) if is_logged else None
        first = staging.next_sequence_number(*bucket)
        self.buffer = WriteBuffer(schema.key_value_arrow, rules, spills, first, self._log)
        self._writers: list[DataFileWriter] = []
        self._files: list[WrittenFile] = []
        self._changelog_files: list[WrittenFile] = []

    @property
    def byte_count(self) -> int:
        """Bytes held in memory."""
        return self.buffer.byte_count

    @property
    def is_small(self) -> bool:
        """Whether one call may merge its rows with those of other buckets, and they are few enough to gain."""
        return self.buffer.may_be_taken and self.byte_count <= _SMALL_BYTES

    def write(self, rows: pa.RecordBatch, kinds: pa.Array) -> None:
        """Take rows of this bucket, in the order in which they came."""
        self.buffer.add(rows, kinds)

    def relieve(self) -> None:
        """Give up the memory: spill, or write level-0 files where spilling is off."""
        if self._context.schema.options[core_options.WRITE_BUFFER_SPILLABLE]:
            self.buffer.spill()
        else:
            self._flush()

    def finish(self) -> WrittenBucket:
        """Write the remaining rows and return the files of the bucket."""
        self._flush()
        partition, bucket = self._bucket
        return WrittenBucket(
            partition=partition,
            bucket=bucket,
            total_buckets=self._total_buckets,
            files=self._files,
            changelog_files=self._changelog_files,
        )

    def abort(self) -> None:
        """Delete what was written; nothing of it was visible."""
        for writer in self._writers:
            writer.abort()

    def _flush(self) -> None:
        if self.buffer.is_empty:
            return
        for run in self.buffer.runs():
            self._files += self._written(self._numbered(run))
        if self._log is not None:
            self._changelog_files += self._written(self._log.rows(), changelog=True)

    def _numbered(self, run: Iterable[Rows]) -> Iterable[Rows]:
        """Number all rows by their snapshot, where that orders them; a lost race corrects it."""
        if self._snapshot_id is None:
            return run
        return (with_number(rows, self._snapshot_id) for rows in run)

    def _written(self, run: Iterable[Rows], *, changelog: bool = False) -> list[WrittenFile]:
        new_files = self._context.new_changelog_files if changelog else self._context.new_files
        writer = new_files(self._bucket, level=0, source=FileSource.APPEND)
        self._writers.append(writer)
        for rows in run:
            writer.write(rows)
        return writer.finish()


RowsWriter = BucketWriter | AppendWriter
"""The writer of one bucket's rows."""


def bucket_writer(
    staging: Staging, partition: bytes, bucket: int, *, total_buckets: int, spills: SpillArea
) -> RowsWriter:
    """Return the writer of one bucket, for tables with and without a primary key."""
    place = (partition, bucket)
    if not staging.context.schema.has_primary_key:
        return AppendWriter(staging, place, total_buckets=total_buckets)
    return BucketWriter(staging, place, total_buckets=total_buckets, spills=spills)


def logs_input(staging: Staging) -> bool:
    """Whether rows are written to the input changelog. Rows of an overwrite are not."""
    producer = staging.context.schema.options[core_options.CHANGELOG_PRODUCER]
    return producer.policy.logs_input and not staging.replaces


class TableWriter:
    """Writes rows of any bucket in bounded memory (FileStoreWrite)."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._routing = routing_of(staging)
        self._memory_bytes = staging.context.schema.options[core_options.WRITE_BUFFER_SIZE]
        self._spills = SpillArea()
        self._writers: dict[tuple[bytes, int], RowsWriter] = {}

    def staged(self, rows: Any) -> list[CommitMessage]:
        """Write rows of any kind that this process can read, and return what to commit."""
        return self.finished(self._fitted(rows))

    def _fitted(self, rows: Any) -> Iterator[IncomingRows]:
        """Yield rows as the table stores them; InvalidInputError, before the first, where they do not fit."""
        schema = self._staging.context.schema
        is_list = isinstance(rows, list)
        if is_list and not rows:
            return  # it names no columns, so there is nothing to check them against
        reader = open_rows(rows, schema)
        if reader.schema.names or is_list or any(batch.num_rows for batch in reader):
            yield from conformed(reader, schema, deletes=self._staging.deletes)

    def finished(self, batches: Iterable[IncomingRows]) -> list[CommitMessage]:
        """Write batches and return what to commit; what fails deletes what was written."""
        try:
            for incoming in batches:
                self.write(incoming)
            return self.finish()
        except BaseException:
            self.abort()
            raise

    def write(self, incoming: IncomingRows) -> None:
        """Take a batch; when the buffers are full, the largest is relieved."""
        self._write(self._routing.route(incoming))

    def _write(self, pieces: Iterable[RoutedRows]) -> None:
        for routed in pieces:
            self._writer(routed.partition, routed.bucket).write(routed.rows, routed.kinds)
        while sum(writer.byte_count for writer in self._writers.values()) > self._memory_bytes:
            max(self._writers.values(), key=lambda writer: writer.byte_count).relieve()

    def finish(self) -> list[CommitMessage]:
        """Write what is left and return what to commit."""
        self._write(self._routing.remaining())
        groups = _grouped(self._writers.values())
        is_remote = self._staging.context.file_io.facts.is_remote

        def are_light(writers: Sequence[RowsWriter]) -> bool:
            return not is_remote and all(writer.byte_count <= _SMALL_BYTES for writer in writers)

        written = list(LocalExecutor().ordered(_finished, groups, is_light=are_light))
        self._spills.close()
        return self._routing.completed(messages_of(list(chain.from_iterable(written))))

    def abort(self) -> None:
        """Delete what was written; nothing of it was visible."""
        for writer in self._writers.values():
            writer.abort()
        self._routing.abort()
        self._spills.close()

    def _writer(self, partition: bytes, bucket: int) -> RowsWriter:
        key = (partition, bucket)
        if key not in self._writers:
            total = self._routing.total_buckets(partition)
            self._writers[key] = bucket_writer(
                self._staging, partition, bucket, total_buckets=total, spills=self._spills
            )
        return self._writers[key]


def _grouped(writers: Iterable[RowsWriter]) -> list[list[RowsWriter]]:
    """Return groups of writers that finish in one call: small ones grouped, large ones alone."""
    groups: list[list[RowsWriter]] = []
    room = 0
    for writer in writers:
        is_small = isinstance(writer, BucketWriter) and writer.is_small
        if not is_small or room < writer.byte_count or len(groups[-1]) == _TOGETHER_WRITERS:
            groups.append([])
            room = _TOGETHER_BYTES
        groups[-1].append(writer)
        room = room - writer.byte_count if is_small else 0
    return groups


def _finished(writers: Sequence[RowsWriter]) -> list[WrittenBucket]:
    if len(writers) > 1:
        small = [writer for writer in writers if isinstance(writer, BucketWriter)]
        merge_together([writer.buffer for writer in small], small[0].rules)
    return [writer.finish() for writer in writers]


def stage_rows(staging: Staging, rows: Any) -> list[CommitMessage]:
    """Write rows as level-0 files that nothing names yet; what fails deletes what it wrote."""
    return TableWriter(staging).staged(rows)


def stage_incoming(staging: Staging, batches: Iterable[IncomingRows]) -> list[CommitMessage]:
    """Write rows that fit the table, as `stage_rows` does."""
    return TableWriter(staging).finished(batches)

"""`writeStream.format("lsm")`: one commit a micro-batch, by the query as `commit_user`, numbered by the batch.

Spark runs a micro-batch again whose end its checkpoint does not know, under the same numbers. A commit with a number
is applied once: a `commit_identifier` that is not greater than the last one of its `commit_user` changes nothing,
whatever was committed or expired since, and where that last one is not kept any more the commit is refused. A query is
the same as long as its checkpoint is.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.spark.arrow_rows import arrow_schema_of
from lsm_engine.spark.source_options import QUERY_ID
from lsm_engine.spark.source_storage import storage_of
from lsm_engine.spark.source_writer import (
    StagedMessages,
    check_rows,
    decoded,
    discard_failed,
    open_staged,
    write_rows,
)
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.ground.bucket_context import Staging
from lsm_engine.table.ground.staging import staging_on
from lsm_engine.table.write.overwrite import overwrite
from lsm_engine.table.write.write import Write

_DELAY = "spark.watermarkDelayMs"
_MICROS = pa.timestamp("us", "UTC")


class StagedBatch(StagedMessages):
    """What one task of a micro-batch wrote, for which query, on top of which snapshot."""

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
    def of(schema: StructType) -> "EventTime | None":
        """Return what the metadata of columns hold; None where nothing is declared."""
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
        """Milliseconds since 1970 up to which, by what came here, all rows are there."""
        if self._latest is None or self._event_time is None:
            return None
        return self._latest // 1000 - self._event_time.delay_millis


class StreamSink(DataSourceStreamArrowWriter):
    """Writes level-0 files in tasks, and commits them once on the driver, whoever asks how often.

    Spark makes one to send to tasks, and another in the process that commits.
    """

    def __init__(
        self, path: str, options: Mapping[str, str], schema: StructType, *, replaces: bool
    ) -> None:
        self._path = path
        self._storage = storage_of(options)
        self._replaces = replaces
        self._event_time = EventTime.of(schema)
        self._planned: tuple[Staging, Snapshot | None] | None = None
        check_rows(open_staged(path, self._storage), arrow_schema_of(schema))

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need. Planned here, as who commits needs no plan of its own."""
        if self._planned is None:
            session = open_staged(self._path, self._storage)
            # Who they are that compact rows that wait for a bucket does not matter.
            nobody = CommitIdentity(commit_user=session.ids.new_id())
            base = session.snapshots.latest() if self._replaces else Write(session, nobody).base()
            self._planned = (staging_on(session, base, replaces=self._replaces), base)
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows; what fails deletes what it wrote."""
        assert self._planned is not None
        task = TaskContext.get()
        query_id = None if task is None else task.getLocalProperty(QUERY_ID)
        if query_id is None:
            raise UnsupportedError("this Spark does not tell tasks the id of their streaming query")
        staging, base = self._planned
        watched = _Watched(iterator, self._event_time)
        written = write_rows(staging, iter(watched))
        return StagedBatch(written, query_id, base, watched.watermark)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish what all tasks wrote, at once; a batch that was committed before is a no-op."""
        parts = [one for one in messages if isinstance(one, StagedBatch)]
        session = open_staged(self._path, self._storage)
        identity = CommitIdentity(
            commit_user=parts[0].query_id,
            commit_identifier=batchId,
            watermark=max(
                (one.watermark for one in parts if one.watermark is not None), default=None
            ),
        )
        if self._replaces:
            overwrite(session, decoded(messages), {}, identity)
        else:
            Write(session, identity).land(decoded(messages), planned_on=parts[0].base)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what the tasks that worked have written, if another has failed."""
        del batchId
        discard_failed(open_staged(self._path, self._storage).context(), messages)

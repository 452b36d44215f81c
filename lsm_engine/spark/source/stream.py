"""Streams of `readStream.format("lsm")`: the first state, then the changes of one snapshot after another.

A micro-batch ends between two buckets of a snapshot, or of the first state. Both are immutable, and so is the order
of their buckets, so an offset is a snapshot and a number of buckets. The rows of a snapshot in one bucket are in one
micro-batch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lsm_engine.api.open_table import open_table
from lsm_engine.api.table import Table
from lsm_engine.base.errors import ErrorKind, InvalidOptionError, NotFoundError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.base.units import parse_bytes
from lsm_engine.changes.follow import emitted_state
from lsm_engine.changes.splits import ROW_KIND, SNAPSHOT_ID
from lsm_engine.options.modes import RowKind
from lsm_engine.planning.incremental import ChangedKeys, ChangeSplit
from lsm_engine.planning.scan import Split
from lsm_engine.spark.jobs import Batches, shows_its_errors_alone
from lsm_engine.spark.source.change_reader import change_partitions
from lsm_engine.spark.source.options import (
    BETWEEN_MODE,
    CONSUMER_ID,
    MAX_BYTES,
    MAX_FILES,
    MAX_SNAPSHOTS,
    SCAN_MODE,
    SCAN_SNAPSHOT_ID,
    SCAN_TIMESTAMP,
    storage_of,
)
from lsm_engine.spark.source.reader import RowsPartition, packed_partitions, rows_of_partition
from lsm_engine.spark.splits import SplitReader
from lsm_engine.spark.types import arrow_schema_of

# -- How much a micro-batch of a stream may read ---------------------------------------------------
#
# PySpark 4.1 has no words for it yet, and reads all there is.

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1 asks for neither
    ReadAllAvailable = ReadMaxFiles = SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

__all__ = ["ReadLimits", "SupportsTriggerAvailableNow", "is_unlimited"]
_UNBOUNDED = 2**31 - 1


def is_unlimited(limit: Any) -> bool:
    """Whether Spark asks for all rows regardless of the options, as `trigger(once=True)` does."""
    return limit is None or isinstance(limit, ReadAllAvailable)


@record
class ReadLimits:
    """The limits of a micro-batch, which has one bucket at least; None: no limit."""

    files: int | None = None
    bytes: int | None = None
    snapshots: int | None = None

    @staticmethod
    def from_options(options: Mapping[str, str]) -> "ReadLimits":
        """Return the limits that options name; raises InvalidOptionError for one below 1."""
        limits = {}
        for name, key, parse in (
            ("files", MAX_FILES, int),
            ("bytes", MAX_BYTES, parse_bytes),
            ("snapshots", MAX_SNAPSHOTS, int),
        ):
            text = options.get(key)
            if text is None:
                continue
            try:
                limits[name] = parse(text)
            except ValueError as cause:
                raise InvalidOptionError("give a number", key=key, value=text) from cause
            if limits[name] < 1:
                raise InvalidOptionError("a micro-batch has to take something", key=key, value=text)
        return ReadLimits(**limits)

    @property
    def of_spark(self) -> Any:
        """The limits in Spark's form, which only has to know whether there are any."""
        return (
            ReadAllAvailable() if self == ReadLimits() else ReadMaxFiles(self.files or _UNBOUNDED)
        )

    def hold(self, files: int, byte_count: int) -> bool:
        """Whether so many files and bytes are within the limits."""
        return (self.files is None or files <= self.files) and (
            self.bytes is None or byte_count <= self.bytes
        )


# -- `readStream.format("lsm")` --------------------------------------------------------------------

_OF_STATE = ".first-state"
"""Ends the name of the consumer that keeps the snapshot of a first state while that is read."""
_AFTER, _FULL, _BUCKETS, _TURNS = "after", "full", "buckets", "turns"
_UUID = "uuid"
"""In an offset: of the snapshot that it reaches, so that another one under that id is noticed."""
_Place = dict[str, Any]


@record
class Offset:
    """The offset of a stream: it has read all changes up to snapshot `after`, and `buckets` buckets of the next.

    Next is the state at snapshot `full`, or where that is None the changes of snapshot `after` + 1.
    `in_turns`: its buckets are counted as `plan.incremental.in_turns` orders them.
    """

    after: int
    full: int | None = None
    buckets: int = 0
    in_turns: bool = False

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Offset":
        """Return the offset that a checkpoint holds."""
        return Offset(
            after=fields[_AFTER],
            full=fields.get(_FULL),
            buckets=fields.get(_BUCKETS, 0),
            in_turns=fields.get(_TURNS, False),
        )

    def as_json(self) -> _Place:
        """Return the offset as a checkpoint stores it; Spark compares its text."""
        full = {} if self.full is None else {_FULL: self.full}
        within = {_BUCKETS: self.buckets} if self.buckets else {}
        turns = {_TURNS: True} if self.buckets and self.in_turns else {}
        return {_AFTER: self.after, **full, **within, **turns}

    @property
    def is_within(self) -> bool:
        """Whether the offset is within a snapshot, or before the first state."""
        return self.full is not None or self.buckets > 0

    @property
    def reaches(self) -> int:
        """The newest snapshot of which a part has been read."""
        return self.next.after if self.is_within else self.after

    @property
    def next(self) -> "Offset":
        """The end of the snapshot, or of the state, that this is before or in."""
        return Offset(after=self.after + 1 if self.full is None else self.full)


@record
class StateReader:
    """A reader of the splits of a state, as rows that its snapshot added."""

    reader: SplitReader
    schema: pa.Schema
    snapshot_id: int

    def batches(self, split: Split) -> Batches:
        """Yield the rows of a split, each as +I."""
        for batch in self.reader.batches(split):
            count = batch.num_rows
            columns = {name: batch.column(name) for name in batch.schema.names}
            columns[SNAPSHOT_ID] = pa.repeat(pa.scalar(self.snapshot_id, pa.int64()), count)
            columns[ROW_KIND] = pa.repeat(RowKind.INSERT.symbol, count)
            chosen = [columns[name] for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(chosen, schema=self.schema)


class StatePartition(RowsPartition):
    """One split of the state that a stream begins with."""

    def __init__(self, reader: StateReader, split: Split) -> None:
        super().__init__(f"state bucket={split.bucket}")
        self.reader = reader
        self.split = split
        self.size_bytes = split.size_bytes

    def batches(self) -> Batches:
        """Yield its rows."""
        return self.reader.batches(self.split)


@record
class BucketToRead:
    """The part of a snapshot's changes, or of the first state, that lies in one bucket."""

    turn: ChangedKeys
    files: int
    bytes: int
    partitions: tuple[RowsPartition, ...]


@shows_its_errors_alone
class LsmStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a table. Its offsets are those of `Offset`, as JSON, each with the snapshot that it reaches."""

    def __init__(self, path: str, options: Mapping[str, str], schema: StructType) -> None:
        self._path = path
        self._options = dict(options)
        self._schema = schema
        self._limits = ReadLimits.from_options(options)
        self._last: int | None = None
        self._may_hold_state = True

    def initialOffset(self) -> _Place:
        """Return where `scan.mode` begins, or where the consumer stands."""
        table = self._table()
        snapshot_text = self._options.get(SCAN_SNAPSHOT_ID)
        since = self._options.get(SCAN_TIMESTAMP)
        follower = table.follow(
            self._options.get(SCAN_MODE, "latest-full"),
            snapshot_id=None if snapshot_text is None else int(snapshot_text),
            timestamp_millis=None if since is None else int(since),
            consumer_id=self._options.get(CONSUMER_ID),
        )
        offset = Offset(after=follower.position - 1)
        if follower.full_snapshot is not None:
            # Before the state, so that Spark sees that there is something to read.
            offset = Offset(after=offset.after - 1, full=follower.full_snapshot.id)
            self._hold_state(follower.full_snapshot.id)
        return _checkpoint(table, offset)

    def prepareForTriggerAvailableNow(self) -> None:
        """End at the snapshot that is the newest now, also where an earlier run began before it."""
        self._last = self._newest(self._table())

    def getDefaultReadLimit(self) -> Any:
        """Return whether `maxFilesPerTrigger` and the like hold micro-batches small."""
        return self._limits.of_spark

    def latestOffset(self, start: _Place | None = None, limit: Any = None) -> _Place:
        """Return where the next micro-batch ends: at the newest snapshot, or where a limit is reached.

        Raises NotFoundError where a rollback took what was read already, or the checkpoint is of another table.
        """
        table = self._table()
        newest = self._newest(table)
        begin = Offset(after=newest)
        if start is not None:
            begin = self._continued(table, start, newest)
        if self._last is not None:  # availableNow ends at what was the newest when the run began
            newest = max(begin.reaches, min(newest, self._last))
        if is_unlimited(limit) or self._limits == ReadLimits():
            return _checkpoint(table, Offset(after=newest))
        return _checkpoint(table, self._limited(table, begin, newest))

    def reportLatestOffset(self) -> _Place:
        """Return the newest snapshot, for the query's progress."""
        table = self._table()
        return _checkpoint(table, Offset(after=self._newest(table)))

    def partitions(self, start: _Place, end: _Place) -> list[InputPartition]:
        """Return the partitions between two offsets, older snapshots first; small ones share a task."""
        return packed_partitions(self._parts(start, end), in_order=True)

    def _continued(self, table: Table, place: _Place, newest: int) -> Offset:
        """Return the place that a checkpoint holds; NotFoundError where the table has another past."""
        begin = Offset.from_json(place)
        snapshot = table.session.snapshots.find(begin.reaches) if place.get(_UUID) else None
        # The id alone may have been given again after a rollback; the UUID is of one commit.
        if newest < begin.reaches or (snapshot is not None and snapshot.uuid != place[_UUID]):
            raise NotFoundError(
                "the table was rolled back below the snapshots that were read, or made anew, or the checkpoint "
                "is of another table; start with another checkpoint",
                kind=ErrorKind.NO_SUCH_SNAPSHOT,
                snapshot_id=begin.reaches,
                latest_id=newest,
                table=self._path,
            )
        return begin

    def _parts(self, start: _Place, end: _Place) -> list[RowsPartition]:
        table, begin, stop = self._table(), Offset.from_json(start), Offset.from_json(end)
        self._continued(table, end, self._newest(table))  # planned before the query died, perhaps
        missing = [name for name in self._columns if name not in table.schema.names]
        if missing:
            raise NotFoundError(
                f"the table has no column {missing[0]!r} any more, which the query began with; start it again, "
                "with the same checkpoint",
                kind=ErrorKind.NO_SUCH_COLUMN,
                column=missing[0],
                table=self._path,
            )
        partitions: list[RowsPartition] = []
        if begin.is_within:
            # First the remaining buckets of the snapshot in which the last micro-batch ended.
            is_last = (begin.after, begin.full) == (stop.after, stop.full)
            buckets = self._next(table, begin)
            partitions += _partitions_of(buckets[begin.buckets : stop.buckets if is_last else None])
            if is_last:
                return partitions
            begin = begin.next
        if begin.after < stop.after:
            partitions += [
                partition for _, partition in self._changes(table, begin.after, stop.after)
            ]
        if stop.buckets:  # then the leading buckets of the one in which this micro-batch ends
            partitions += _partitions_of(self._next(table, stop)[: stop.buckets])
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        yield from rows_of_partition(partition)

    def commit(self, end: _Place) -> None:
        """Advance the consumer to `end`: Spark has checkpointed everything before it.

        Not within the first state: a query without a checkpoint begins with the state again.
        """
        consumer, reached = self._options.get(CONSUMER_ID), Offset.from_json(end)
        if consumer is None or reached.full is not None:
            return
        consumers = self._table().session.consumers
        consumers.advance(consumer, reached.after + 1)
        if self._may_hold_state:  # whichever process began with the state
            consumers.delete(f"{consumer}{_OF_STATE}")
            self._may_hold_state = False

    def stop(self) -> None:
        """Nothing is held open."""

    def _hold_state(self, snapshot_id: int) -> None:
        """Retain the snapshot of the first state by a second consumer, until the state has been read."""
        consumer = self._options.get(CONSUMER_ID)
        if consumer is not None:
            self._table().session.consumers.reset(f"{consumer}{_OF_STATE}", snapshot_id)
            self._may_hold_state = True

    @property
    def _columns(self) -> list[str]:
        return [name for name in self._schema.names if name not in (SNAPSHOT_ID, ROW_KIND)]

    def _table(self) -> Table:
        return open_table(self._path, storage=storage_of(self._options))

    def _newest(self, table: Table) -> int:
        return table.session.snapshots.latest_id() or 0

    def _limited(self, table: Table, begin: Offset, newest: int) -> Offset:
        """Return how far the limits reach: bucket by bucket, and one of them at least."""
        files = byte_count = snapshots = 0
        offset = begin
        while offset.full is not None or offset.after < newest:
            if snapshots == self._limits.snapshots:
                break
            buckets = self._next(table, offset)
            for number, bucket in enumerate(buckets):
                if number < offset.buckets:
                    continue
                files, byte_count, before = files + bucket.files, byte_count + bucket.bytes, files
                if before and not self._limits.hold(files, byte_count):
                    return replace(
                        offset,
                        buckets=number,
                        in_turns=any(candidate.turn for candidate in buckets),
                    )
            offset = offset.next
            snapshots += 1
        return offset

    def _next(self, table: Table, offset: Offset) -> list[BucketToRead]:
        """Return the buckets of the state or the snapshot that is next, in an order that stays.

        Raises UnsupportedError for a place that was counted when moving keys had another order.
        """
        parts: list[tuple[ChangeSplit | Split, RowsPartition]] = []
        if offset.full is not None:
            parts += self._state(table, offset.full)
        else:
            parts += self._changes(table, offset.after, offset.after + 1)
        buckets = [_bucket(group) for _, group in groupby(sorted(parts, key=_place), key=_place)]
        if offset.buckets and not offset.in_turns and any(bucket.turn for bucket in buckets):
            raise UnsupportedError(
                f"the checkpoint ends within snapshot {offset.next.after} and is of an older version, which read "
                "keys that move between partitions in another order: start with another checkpoint",
                snapshot_id=offset.next.after,
                table=self._path,
            )
        return buckets

    def _changes(
        self, table: Table, after: int, upto: int
    ) -> list[tuple[ChangeSplit, RowsPartition]]:
        changes = table.changes(
            after,
            upto,
            mode=self._options.get(BETWEEN_MODE, "auto"),
            columns=self._schema.names,
        )
        partitions = change_partitions(changes, arrow_schema_of(self._schema))
        return [(partition.split, partition) for partition in partitions]

    def _state(self, table: Table, snapshot_id: int) -> list[tuple[Split, RowsPartition]]:
        schema = arrow_schema_of(self._schema)
        snapshot = table.session.snapshots.load(snapshot_id)
        scan = emitted_state(table.session, snapshot, tuple(self._columns))
        columns = pa.schema([schema.field(name) for name in self._columns])
        reader = StateReader(
            reader=SplitReader.from_scan(scan, columns),
            schema=schema,
            snapshot_id=snapshot_id,
        )
        return [(split, StatePartition(reader, split)) for split in scan.plan.splits]


def _checkpoint(table: Table, offset: Offset) -> _Place:
    """Return an offset as a checkpoint stores it, with the UUID of its snapshot if the snapshot has one."""
    snapshot = table.session.snapshots.find(offset.reaches)
    return offset.as_json() | (
        {_UUID: snapshot.uuid} if snapshot is not None and snapshot.uuid else {}
    )


def _place(part: tuple[ChangeSplit | Split, RowsPartition]) -> tuple[int, bytes, int]:
    split, _ = part
    return _turn(split), split.partition, split.bucket


def _turn(split: ChangeSplit | Split) -> ChangedKeys:
    return split.keys if isinstance(split, ChangeSplit) else ChangedKeys.ALL


def _bucket(parts: Iterable[tuple[ChangeSplit | Split, RowsPartition]]) -> BucketToRead:
    splits, partitions = zip(*parts, strict=True)
    return BucketToRead(
        turn=_turn(splits[0]),
        files=sum(
            len(split.files if isinstance(split, Split) else split.all_files) for split in splits
        ),
        bytes=sum(split.size_bytes for split in splits),
        partitions=partitions,
    )


def _partitions_of(buckets: Iterable[BucketToRead]) -> list[RowsPartition]:
    return [partition for bucket in buckets for partition in bucket.partitions]

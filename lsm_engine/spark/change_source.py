"""Changes through Spark: as a DataFrame, as `format("lsm")` with `incremental-between`, as a stream.

One task per snapshot and bucket: what a task yields is in order, and no -U is parted from its +U.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.modes import RowKind
from lsm_engine.base.record import record
from lsm_engine.plan.incremental import ChangeSplit
from lsm_engine.plan.scan import Split
from lsm_engine.spark.arrow_rows import arrow_schema_of, fitter, spark_schema
from lsm_engine.spark.filters import FilteredReader
from lsm_engine.spark.jobs import Batches, prepare_worker
from lsm_engine.spark.source_storage import open_source
from lsm_engine.spark.split_rows import SplitReader
from lsm_engine.table.changes.changelog_splits import CHANGE_FIELDS, Changes
from lsm_engine.table.changes.follow import emitted_state
from lsm_engine.table.changes.read_changes import ROW_KIND, SNAPSHOT_ID, ChangedRows, read_changes
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.read.scan import Scan
from lsm_engine.table.table import Table

BETWEEN = "incremental-between"
BETWEEN_TIMES = "incremental-between-timestamp"
BETWEEN_MODE = "incremental-between-scan-mode"
READ_CHANGELOG = "read.changelog"
SCAN_MODE = "scan.mode"
SCAN_SNAPSHOT_ID = "scan.snapshot-id"
SCAN_TIMESTAMP = "scan.timestamp-millis"
CONSUMER_ID = "consumer-id"
CHANGE_OPTIONS = (
    BETWEEN,
    BETWEEN_TIMES,
    BETWEEN_MODE,
    READ_CHANGELOG,
    SCAN_MODE,
    SCAN_SNAPSHOT_ID,
    SCAN_TIMESTAMP,
    CONSUMER_ID,
)
_AFTER, _FULL = "after", "full"
_BATCH_ROWS = 64 * 1024
_CHANGE_TYPES = (
    StructField(SNAPSHOT_ID, LongType(), nullable=False),
    StructField(ROW_KIND, StringType(), nullable=False),
)


def asks_for_changes(options: Mapping[str, str]) -> bool:
    """Whether options of a read ask for changes and not for a state."""
    return (
        BETWEEN in options
        or BETWEEN_TIMES in options
        or options.get(READ_CHANGELOG, "false").lower() == "true"
    )


def change_schema(table: Table) -> StructType:
    """Return the columns of changes: `_snapshot_id`, `_row_kind`, and the table's."""
    return StructType([*_CHANGE_TYPES, *spark_schema(table.schema.fields).fields])


@record
class ChangeReader:
    """How the splits of changes are read. `schema`: the columns as Spark takes them."""

    rows: ChangedRows
    schema: pa.Schema

    def batches(self, context: BucketContext, split: ChangeSplit) -> Batches:
        """Yield the changes of a split, in order."""
        yield from _fitted(self.schema, read_changes(context, self.rows, split))


@record
class StateReader:
    """How the splits of a state are read as rows that came with its snapshot."""

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


def _fitted(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Batches:
    fit = fitter(schema)
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield fit(batch.slice(start, _BATCH_ROWS))


class ChangePartition(InputPartition):
    """One split of changes, with what its task needs to read it."""

    def __init__(self, reader: ChangeReader, context: BucketContext, split: ChangeSplit) -> None:
        super().__init__(f"snapshot={split.snapshot_id} bucket={split.bucket}")
        self.reader = reader
        self.context = context
        self.split = split

    def batches(self) -> Batches:
        """Yield its rows."""
        return self.reader.batches(self.context, self.split)


class StatePartition(InputPartition):
    """One split of the state that a stream begins with."""

    def __init__(self, reader: StateReader, split: Split) -> None:
        super().__init__(f"state bucket={split.bucket}")
        self.reader = reader
        self.split = split

    def batches(self) -> Batches:
        """Yield its rows."""
        return self.reader.batches(self.split)


def _partitions(changes: Changes, schema: pa.Schema) -> list[InputPartition]:
    reader = ChangeReader(rows=changes.rows, schema=schema)
    return [ChangePartition(reader, context, split) for context, split in changes.splits()]


def _batches(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    prepare_worker()
    if isinstance(partition, ChangePartition | StatePartition):
        yield from partition.batches()


class LsmChangesReader(FilteredReader):
    """Reads the changes of a range of snapshots."""

    def __init__(self, path: str, options: Mapping[str, str], schema: StructType) -> None:
        self._path = path
        self._options = dict(options)
        self._schema = schema

    def columns_to_filter(self) -> pa.Schema:
        """Return the columns of changes."""
        return pa.schema([*CHANGE_FIELDS, *open_source(self._path, self._options).schema.arrow])

    def partitions(self) -> list[InputPartition]:
        """Return one partition per snapshot and bucket."""
        changes = open_source(self._path, self._options).changes(
            **_range(self._options),
            mode=self._options.get(BETWEEN_MODE, "auto"),
            columns=self._schema.names,
            where=self.where,
        )
        return _partitions(changes, arrow_schema_of(self._schema))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        yield from _batches(partition)


class LsmStream(DataSourceStreamReader):
    """Follows a table. An offset is {"after": the last snapshot read}, at first perhaps with the state
    to begin with: {"after": 5, "full": 5}.
    """

    def __init__(self, path: str, options: Mapping[str, str], schema: StructType) -> None:
        self._path = path
        self._options = dict(options)
        self._schema = schema

    def initialOffset(self) -> dict[str, int]:
        """Return where `scan.mode` begins, or where the consumer stands."""
        at = self._options.get(SCAN_SNAPSHOT_ID)
        since = self._options.get(SCAN_TIMESTAMP)
        follower = open_source(self._path, self._options).follow(
            self._options.get(SCAN_MODE, "latest-full"),
            snapshot_id=None if at is None else int(at),
            timestamp_millis=None if since is None else int(since),
            consumer_id=self._options.get(CONSUMER_ID),
        )
        offset = {_AFTER: follower.position - 1}
        if follower.full_snapshot is not None:
            # Before the state, so that Spark sees that there is something to read.
            offset = {_AFTER: offset[_AFTER] - 1, _FULL: follower.full_snapshot.id}
        return offset

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """Return the newest snapshot."""
        del limit  # all that is there
        latest = open_source(self._path, self._options).session.snapshots.latest_id() or 0
        return {_AFTER: max(latest, start[_AFTER])} if latest != start[_AFTER] else start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the partitions of the snapshots after `start` up to `end`."""
        table = open_source(self._path, self._options)
        full = start.get(_FULL)
        after = start[_AFTER] if full is None else full
        made = [] if full is None else self._state(table, full)
        if after < end[_AFTER]:
            changes = table.changes(
                after,
                end[_AFTER],
                mode=self._options.get(BETWEEN_MODE, "auto"),
                columns=self._schema.names,
            )
            made += _partitions(changes, arrow_schema_of(self._schema))
        return made

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        yield from _batches(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Let the consumer move on: everything up to `end` has been dealt with."""
        consumer = self._options.get(CONSUMER_ID)
        if consumer is not None:
            open_source(self._path, self._options).session.consumers.advance(
                consumer, end[_AFTER] + 1
            )

    def stop(self) -> None:
        """Nothing is held open."""

    def _state(self, table: Table, snapshot_id: int) -> list[InputPartition]:
        schema = arrow_schema_of(self._schema)
        names = [name for name in schema.names if name not in (SNAPSHOT_ID, ROW_KIND)]
        request = replace(emitted_state(table.session, snapshot_id), columns=tuple(names))
        scan = Scan(table.session, request)
        columns = pa.schema([schema.field(name) for name in names])
        reader = StateReader(
            reader=SplitReader.of(scan, columns),
            schema=schema,
            snapshot_id=snapshot_id,
        )
        return [StatePartition(reader, split) for split in scan.plan.splits]


def _range(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the range that the options of a read name."""
    if BETWEEN in options:
        after, upto = _pair(options, BETWEEN)
        return {"after": _point(after), "upto": _point(upto)}
    if BETWEEN_TIMES in options:
        after, upto = _pair(options, BETWEEN_TIMES)
        return {"after_millis": int(after), "upto_millis": int(upto)}
    return {}


def _pair(options: Mapping[str, str], key: str) -> tuple[str, str]:
    parts = [part.strip() for part in options[key].split(",")]
    if len(parts) != 2 or not all(parts):
        raise InvalidOptionError(
            "give a start and an end with a comma between, the start exclusive", key=key
        )
    return parts[0], parts[1]


def _point(text: str) -> int | str:
    return int(text) if text.isdigit() else text

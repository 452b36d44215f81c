"""Follow a table: its state or nothing first, then the changes of each new snapshot, as they come."""

from collections.abc import Iterator
from enum import Enum
from typing import Self

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.changes.range import Point, change_range, id_at
from lsm_engine.changes.splits import ROW_KIND, SNAPSHOT_ID, Changes, ChangesRequest
from lsm_engine.filter.expression import flags_of
from lsm_engine.filter.predicate import Predicate
from lsm_engine.filter.where import Filter
from lsm_engine.format.commit_message import WriteResult
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options import core_options
from lsm_engine.options.modes import RowKind
from lsm_engine.planning.incremental import ChangeMode
from lsm_engine.planning.ownership import same_state
from lsm_engine.read.scan import Scan
from lsm_engine.read.scan_plan import ScanRequest
from lsm_engine.table.session import TableSession


class StartMode(Enum):
    """Where following begins, in Paimon's words (`scan.mode`)."""

    LATEST_FULL = "latest-full"
    """The newest state, as far as changelogs have emitted it (decisions/0021), then changes."""
    LATEST = "latest"
    """Changes after the newest snapshot."""
    FROM_TIMESTAMP = "from-timestamp"
    """The changes of the first snapshot at or after a time, and what follows."""
    FROM_SNAPSHOT = "from-snapshot"
    """The changes of a snapshot, and what follows."""
    FROM_SNAPSHOT_FULL = "from-snapshot-full"
    """The state at a snapshot, then what follows."""


@record
class FollowRequest:
    """How to follow. `poll_millis` None: stop when there is nothing new instead of waiting for it.

    `after`: the changes after this point and what follows, whatever `start` is.

    `consumer_id`: where a consumer of this name stands counts more than the start, unless
    `consumer.ignore-progress` is set; it moves on with the reader. `upto`: the last snapshot to read.
    """

    start: StartMode = StartMode.LATEST_FULL
    after: Point | None = None
    snapshot_id: int | None = None
    timestamp_millis: int | None = None
    mode: ChangeMode = ChangeMode.AUTO
    columns: tuple[str, ...] | None = None
    where: Filter | None = None
    consumer_id: str | None = None
    poll_millis: int | None = 1000
    upto: int | None = None


class Followed:
    """One snapshot of a stream: its changes, or with `is_full` its whole state as +I.

    `snapshot` shows after a rollback, which gives ids away again, whether it is the one of that id by now.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        changes: Changes,
        full: Scan | None = None,
        where: Predicate | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.snapshot_id = snapshot.id
        self.is_full = full is not None
        self._changes = changes
        self._full = full
        self._where = where

    @property
    def schema(self) -> pa.Schema:
        """The columns that rows come out with: `_snapshot_id`, `_row_kind`, and the table's."""
        return self._changes.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, in memory that does not grow with them."""
        if self._full is None:
            yield from self._changes.to_batches()
            return
        for batch in self._full.to_batches():
            columns = {name: batch.column(name) for name in batch.schema.names}
            columns[SNAPSHOT_ID] = pa.repeat(pa.scalar(self.snapshot_id), batch.num_rows)
            columns[ROW_KIND] = pa.repeat(RowKind.INSERT.symbol, batch.num_rows)
            rows = pa.table(columns)
            if self._where is not None:
                rows = rows.filter(flags_of(self._where, rows))
            chosen = rows.select(self.schema.names).cast(self.schema)
            yield from (piece for piece in chosen.to_batches() if piece.num_rows)

    def to_arrow(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream that other Arrow libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)


class Follower:
    """An iterator over what each new snapshot brings (StreamTableScan); for one thread.

    `position` is the next snapshot that it reads. Asking for the next item
    acknowledges the one before: only then does a consumer move on. A new consumer is created then
    and not before, so that a reader that dies over the first state begins with it again.
    """

    def __init__(self, session: TableSession, request: FollowRequest) -> None:
        self._session = session
        self._request = request
        self._seen: int | None = None
        stored = self._kept_position()
        position, full = self._start() if stored is None else (stored, None)
        self.position = position
        self._full = full
        self._read = full or session.snapshots.find(position - 1)

    def __repr__(self) -> str:
        return f"<Follower of {self._session.name!r}>"

    @property
    def full_snapshot(self) -> Snapshot | None:
        """The state that comes first, while it has not been returned."""
        return self._full

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Followed:
        """Return the next item, waiting for it; StopIteration past `upto`, or instead of waiting.

        Raises ExpiredError when retention overtook the reader, and NotFoundError when a rollback
        took snapshots that it has read, whatever was committed under their ids since.
        """
        # Asking for more shows that the last item was processed.
        if self._seen is not None:
            self.acknowledge()
        if self._full is not None:
            return self._full_item()
        while True:
            if self._is_over(self.position):
                raise StopIteration
            snapshots = self._session.snapshots
            latest = snapshots.latest_id() or 0
            # Both show a rollback: fewer snapshots than were read, or another one under the last
            # id.
            if latest < self.position - 1 or (latest >= self.position and self._is_replaced()):
                raise NotFoundError(
                    "the table was rolled back below the snapshots that were read already; start anew",
                    kind=ErrorKind.NO_SUCH_SNAPSHOT,
                    snapshot_id=self.position - 1,
                    latest_id=latest,
                )
            if latest >= self.position:
                self._read = snapshots.find_now(self.position)
                # Changelogs may outlive their snapshots.
                snapshot = self._read or self._session.changelogs.find(self.position)
                item = self._item(snapshot or snapshots.load(self.position))
                self.position += 1
                self._seen = self.position
                if item is not None:
                    return item
                # A snapshot without changes is passed at once, so that a consumer does not hold
                # expiry back.
                self.acknowledge()
                continue
            if self._request.poll_millis is None:
                raise StopIteration
            self._session.clock.sleep_millis(self._request.poll_millis)

    def acknowledge(self) -> None:
        """Acknowledge all that was returned; the consumer, if any, moves on."""
        if self._seen is not None and self._request.consumer_id is not None:
            self._session.consumers.advance(self._request.consumer_id, self._seen)
        self._seen = None

    def _is_replaced(self) -> bool:
        """Whether the snapshot that was read last is another one now; an expired one is not looked at."""
        if self._read is None:
            return False
        stored = self._session.snapshots.find_now(self._read.id)
        return stored is not None and not same_state(stored, self._read)

    def _is_over(self, snapshot_id: int) -> bool:
        return self._request.upto is not None and snapshot_id > self._request.upto

    def _item(self, snapshot: Snapshot) -> Followed | None:
        """Return the changes of a snapshot, None if it has none."""
        # Compactions and the like bring no changes: they are passed over.
        changes = self._changes(snapshot.id - 1, snapshot.id)
        return Followed(snapshot, changes) if next(changes.splits(), None) else None

    def _full_item(self) -> Followed:
        assert self._full is not None
        full, request = self._full, self._request
        number, self._full = full.id, None
        # The state counts as read up to its snapshot once the next item is asked for.
        self._seen = self.position
        changes = self._changes(number, number)
        table = self._session.schema.names
        names = tuple(name for name in changes.schema.names if name in table)
        if changes.asks_for_changes:
            return Followed(full, changes, emitted_state(self._session, full), changes.predicate)
        state = emitted_state(self._session, full, names or table[:1], request.where)
        return Followed(full, changes, state)

    def _changes(self, after: int, upto: int) -> Changes:
        request = self._request
        written = request.after if isinstance(request.after, WriteResult) else None
        if written is not None and not (written.buckets and request.mode.reads_changelog):
            written = None
        changes_request = ChangesRequest(
            after=after,
            upto=upto,
            mode=request.mode,
            columns=request.columns,
            where=request.where,
            written=written,
        )
        return Changes(self._session, changes_request)

    def _kept_position(self) -> int | None:
        name = self._request.consumer_id
        if name is None or self._session.options[core_options.CONSUMER_IGNORE_PROGRESS]:
            return None
        consumer = self._session.consumers.find(name)
        return None if consumer is None else consumer.next_snapshot_id

    def _start(self) -> tuple[int, Snapshot | None]:
        """Return the first snapshot whose changes are read, and the state that comes before them."""
        request, session = self._request, self._session
        if request.after is not None:
            reads_changelog = request.mode.reads_changelog
            begin = change_range(session, reads_changelog=reads_changelog, after=request.after)
            return begin.after + 1, None
        latest = session.snapshots.latest()
        match request.start:
            case StartMode.LATEST_FULL:
                return _after(latest), latest
            case StartMode.LATEST:
                return _after(latest), None
            case StartMode.FROM_SNAPSHOT:
                return _required(request.snapshot_id, "snapshot_id"), None
            case StartMode.FROM_SNAPSHOT_FULL:
                full = session.snapshots.load(_required(request.snapshot_id, "snapshot_id"))
                return _after(full), full
            case StartMode.FROM_TIMESTAMP:
                millis = _required(request.timestamp_millis, "timestamp_millis")
                return id_at(session, millis - 1) + 1, None


def emitted_state(
    session: TableSession,
    snapshot: Snapshot,
    columns: tuple[str, ...] | None = None,
    where: Filter | None = None,
) -> Scan:
    """Return the read of the state that the changes up to a snapshot have emitted.

    It has the columns of today, as the changes after it have, and not those of its time.
    """
    producer = session.options[core_options.CHANGELOG_PRODUCER]
    request = ScanRequest(columns=columns, where=where, is_batch=False, before_changes=producer)
    return Scan(session, request, snapshot)


def _after(snapshot: Snapshot | None) -> int:
    return 1 if snapshot is None else snapshot.id + 1


def _required(value: int | None, name: str) -> int:
    if value is None:
        raise InvalidInputError(f"this start needs {name}=", argument=name)
    return value

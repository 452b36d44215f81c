"""The snapshots of a range in order, as live snapshots or as long-lived changelogs.

An expired snapshot may live on as `changelog/changelog-N`. A reader looks an id up in both directories:
expiry writes the changelog before it deletes the snapshot.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date

from lsm_engine.base.errors import (
    CorruptFileError,
    ErrorKind,
    ExpiredError,
    InvalidInputError,
    NotFoundError,
)
from lsm_engine.base.instant import millis_of
from lsm_engine.base.record import record
from lsm_engine.format.commit_message import WriteResult
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.retention import kept_of_passed, retention_of
from lsm_engine.planning.snapshot_chain import follows, lost_below
from lsm_engine.table.session import TableSession

_LOOKS = 3  # an expiry moves EARLIEST before it deletes what is below
Point = int | str | Snapshot | date
"""A snapshot or its id, the name of a tag, what a write returned, or a day or datetime: the latest
snapshot at or before it."""


@record
class ChangeRange:
    """Snapshots after `after`, up to and including `upto`; 0 stands before the first one."""

    after: int
    upto: int

    @property
    def is_empty(self) -> bool:
        """Whether there is no snapshot in it."""
        return self.after >= self.upto


def change_range(
    session: TableSession,
    *,
    reads_changelog: bool = True,
    after: Point | None = None,
    upto: Point | None = None,
    after_millis: int | None = None,
    upto_millis: int | None = None,
) -> ChangeRange:
    """Return a range by snapshot ids, tags or times (the latest snapshot at or before each).

    A WriteResult means the snapshot that emitted its rows, if `reads_changelog`. The default start is
    the oldest retained changes, the default end the newest. Raises InvalidInputError for an end before
    the start and if a bound is given in two ways, and NotFoundError for unknown snapshots and tags.
    """
    for point, millis in ((after, after_millis), (upto, upto_millis)):
        if point is not None and millis is not None:
            raise InvalidInputError("name a snapshot, a tag or a time, not several")
    latest = session.snapshots.latest_id() or 0
    if reads_changelog and isinstance(after, WriteResult):
        _require_there(session, after)
        after = after.position
    if reads_changelog and isinstance(upto, WriteResult):
        _require_there(session, upto)
        upto = upto.changelog_id
    start, end = _id_of(session, after, latest), _id_of(session, upto, latest)
    if after_millis is not None:
        start = id_at(session, after_millis)
    if upto_millis is not None:
        end = id_at(session, upto_millis)
    begins_at = _before_oldest(session) if start is None else start
    covered = ChangeRange(after=begins_at, upto=latest if end is None else end)
    if covered.after > covered.upto and start is not None:
        raise InvalidInputError(
            "the changes asked for end before they begin; swap the two",
            after=covered.after,
            upto=covered.upto,
        )
    return covered


def _before_oldest(session: TableSession) -> int:
    """Return the id before the oldest changes. Raises CorruptFileError if older ones are lost, not expired."""
    for _ in range(_LOOKS):
        oldest = oldest_change_id(session)
        first = None if oldest is None else session.snapshots.find(oldest)
        if first is None:
            return max((oldest or 1) - 1, 0)
        # A gap above EARLIEST is no expiry of this engine: skipping it would lose changes silently.
        lost = lost_below(session.snapshots.earliest_hint(), first)
        if not lost:
            _require_nothing_hidden(session, first)
            return first.id - 1
    raise CorruptFileError(
        f"snapshots {lost[0]} to {lost[-1]} are missing, and no expiry took them: restore their files, or "
        f"start after {lost[-1]}",
        file=session.paths.snapshot_file(lost[0]),
    )


def _require_nothing_hidden(session: TableSession, first: Snapshot) -> None:
    """Raise CorruptFileError if EARLIEST passes snapshots that retention keeps: the hint may be damaged."""
    below, newest = session.snapshots.find(first.id - 1), session.snapshots.latest()
    if below is None or newest is None or not follows(first, below):
        return
    retained = kept_of_passed(
        (below, first) if newest.id <= first.id else (below, first, newest),
        (below,),
        retention_of(session.options),
        now_millis=session.clock.now_millis(),
        consumer_next_ids=(),
    )
    if retained is not None and session.snapshots.exists(below.id):
        raise CorruptFileError(
            f"EARLIEST is {first.id}, and snapshot {below.id} is there, which retention keeps: an expiry is "
            f"under way, or EARLIEST is damaged; see lsm verify, or start after {below.id}",
            file=session.paths.snapshot_hint("EARLIEST"),
        )


def oldest_change_id(session: TableSession) -> int | None:
    """Return the oldest snapshot whose changes may exist; None for a table without snapshots."""
    changelog = session.changelogs.earliest_id()
    snapshot = session.snapshots.earliest_id()
    if changelog is None or snapshot is None:
        return snapshot if changelog is None else changelog
    # Changelogs that do not reach up to the snapshots are of no use: rows would be missing between.
    newest = session.changelogs.latest_id() or changelog
    return min(changelog, snapshot) if newest >= snapshot - 1 else snapshot


def id_at(session: TableSession, millis: int) -> int:
    """Return the latest snapshot, expired or not, at or before a time whose changes are kept.

    The one before the oldest if all are later. Times never decrease with the id.
    """
    low, high = oldest_change_id(session) or 1, session.snapshots.latest_id() or 0
    latest_id = low - 1
    while low <= high:
        middle = (low + high) // 2
        snapshot = find_change(session, middle)
        # A snapshot that expires during the search is older than all remaining ones.
        if snapshot is None or snapshot.time_millis <= millis:
            latest_id, low = middle, middle + 1
        else:
            high = middle - 1
    return latest_id


def find_change(session: TableSession, snapshot_id: int) -> Snapshot | None:
    """Return a snapshot, or the changelog that outlived it; None if neither exists."""
    snapshot = session.snapshots.find_live(snapshot_id)
    return session.changelogs.find(snapshot_id) if snapshot is None else snapshot


def load_change(session: TableSession, snapshot_id: int) -> Snapshot:
    """Return a snapshot or its changelog. Raises ExpiredError if both expired, NotFoundError for a future id."""
    snapshot = find_change(session, snapshot_id)
    if snapshot is not None:
        return snapshot
    oldest = oldest_change_id(session)
    if oldest is not None and snapshot_id < oldest:
        raise ExpiredError(
            f"the changes of snapshot {snapshot_id} have expired; the oldest kept are those of "
            f"{oldest}: start there, or read the whole state first",
            snapshot_id=snapshot_id,
            earliest_id=oldest,
        )
    raise NotFoundError(
        f"no snapshot {snapshot_id}; the newest is {session.snapshots.latest_id()}",
        kind=ErrorKind.NO_SUCH_SNAPSHOT,
        snapshot_id=snapshot_id,
    )


def raise_if_deleted(snapshots: SnapshotStore, ids: Iterable[int], cause: NotFoundError) -> None:
    """Raise ExpiredError for a missing file, if expiry or a rollback has deleted one of these snapshots."""
    earliest = snapshots.earliest_hint()
    for snapshot_id in ids:
        is_marked = earliest is not None and snapshot_id < earliest
        if is_marked or not snapshots.exists(snapshot_id):
            snapshots.require_table(None)
            raise ExpiredError(
                f"snapshot {snapshot_id} has expired, or was rolled back; its files are deleted: "
                "its changes cannot be read; start at a newer one, or read the whole state first",
                snapshot_id=snapshot_id,
                earliest_id=earliest,
            ) from cause


def changes_in(session: TableSession, covered: ChangeRange) -> Iterator[Snapshot]:
    """Yield the snapshots of a range, oldest first; ExpiredError if some are deleted."""
    for snapshot_id in range(covered.after + 1, covered.upto + 1):
        yield load_change(session, snapshot_id)


def state_at(session: TableSession, point: Point | None, snapshot_id: int) -> Snapshot | None:
    """Return a state to compare: a tag keeps its own; None for 0, the empty table."""
    if isinstance(point, str):
        return _tagged(session, point)
    return None if snapshot_id == 0 else session.snapshots.load(snapshot_id)


def _id_of(session: TableSession, point: Point | None, latest: int) -> int | None:
    if isinstance(point, str):
        return _tagged(session, point).id
    if isinstance(point, Snapshot):
        _require_there(session, point)
        point = point.id
    if isinstance(point, date):
        return id_at(session, millis_of(point))
    if point is None:
        return None
    if point < 0:
        raise InvalidInputError("snapshots are numbered from 1; 0 is before the first", id=point)
    if point > latest:
        raise NotFoundError(
            f"no snapshot {point}; the newest is {latest}",
            kind=ErrorKind.NO_SUCH_SNAPSHOT,
            snapshot_id=point,
        )
    return point


def _tagged(session: TableSession, name: str) -> Snapshot:
    try:
        return session.tags.load(name).snapshot
    except NotFoundError as error:
        with suppress(InvalidInputError):
            raise NotFoundError(
                f"no tag {name!r}; a time is given as a datetime, or as after_millis={millis_of(name)}",
                kind=error.kind,
                tag=name,
            ) from error
        raise


def _require_there(session: TableSession, snapshot: Snapshot) -> None:
    """Raise NotFoundError if a rollback deleted a snapshot and its id is used again."""
    stored = session.snapshots.find(snapshot.id)
    # An expired snapshot is no error here: its changelog may have outlived it.
    if stored is not None and not same_state(stored, snapshot):
        raise NotFoundError(
            f"snapshot {snapshot.id} was rolled back, and the one there now is another commit; read "
            "the whole state anew",
            kind=ErrorKind.NO_SUCH_SNAPSHOT,
            snapshot_id=snapshot.id,
        )

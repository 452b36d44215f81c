"""Which snapshot a read sees: the newest, or the one that an id, a tag or a time names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

from lsm_engine.base.errors import (
    CommitConflictError,
    ErrorKind,
    ExpiredError,
    InvalidInputError,
    NotFoundError,
)
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.branches import BranchStore
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.planning.ownership import same_state
from lsm_engine.table.names import is_whole
from lsm_engine.table.session import TableSession


def snapshot_to_read(
    session: TableSession,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    as_of_millis: int | None = None,
) -> Snapshot | None:
    """Return the snapshot to read; None for the newest of an empty table.

    Raises NotFoundError or ExpiredError for what is not there, InvalidInputError if more than one
    is named.
    """
    versions = [version for version in (snapshot_id, tag, as_of_millis) if version is not None]
    if len(versions) > 1:
        raise InvalidInputError(
            "name a snapshot, a tag or a time, not several", given=len(versions)
        )
    if snapshot_id is not None:
        return session.snapshots.load(snapshot_id)
    if tag is not None:
        return _tagged(session, tag)
    if as_of_millis is not None:
        return snapshot_at(session, as_of_millis)
    return session.snapshots.latest(reads_state=True)


def _tagged(session: TableSession, name: str) -> Snapshot:
    try:
        return session.tags.load(name).snapshot
    except NotFoundError as error:
        # To users of Iceberg a version may be a branch.
        if name not in BranchStore(session.file_io, session.paths).directory_names():
            raise
        raise NotFoundError(
            f"no tag {name!r}, which is a branch; read it as table.branch({name!r}), or in SQL as "
            f"`{session.name}@{name}`",
            kind=error.kind,
            tag=name,
        ) from None


class Named(TypedDict, total=False):
    """A snapshot as `snapshot_to_read` takes it."""

    snapshot_id: int
    tag: str


def version_named(version: int | str | None) -> Named:
    """Return what a version names: a snapshot by its id, a tag by its name, None the newest."""
    if version is None:
        return {}
    if isinstance(version, str):
        return {"tag": version}
    if not is_whole(version):
        raise InvalidInputError(
            "a version is the id of a snapshot, such as version=1, or the name of a tag; a time is as_of=",
            version=version,
        )
    return {"snapshot_id": int(version)}


def snapshot_at(session: TableSession, millis: int) -> Snapshot:
    """Return the latest snapshot at or before a time; NotFoundError if all are later.

    Snapshot times never decrease with the id, so the search halves the range; a snapshot that
    expires under it is older than all that are left.
    """
    latest: Snapshot | None = None
    low, high = session.snapshots.earliest_id() or 1, session.snapshots.latest_id() or 0
    while low <= high:
        middle = (low + high) // 2
        # A missing one has expired or was rolled back: the search goes on above it.
        snapshot = session.snapshots.find_live(middle)
        if snapshot is None or snapshot.time_millis <= millis:
            latest = snapshot or latest
            low = middle + 1
        else:
            high = middle - 1
    if latest is None:
        raise NotFoundError(
            "no snapshot is that old; the earliest is later, or has expired",
            kind=ErrorKind.NO_SUCH_SNAPSHOT,
            as_of_millis=millis,
        )
    return latest


def raise_if_expired(snapshots: SnapshotStore, snapshot: Snapshot, cause: NotFoundError) -> None:
    """Raise ExpiredError from the loss of a file, if an expiry or a rollback takes the snapshot."""
    if has_expired(snapshots, snapshot):
        # A dropped table has no files either, and deserves its own error.
        snapshots.require_table(None)
        raise ExpiredError(
            f"snapshot {snapshot.id} has expired, or was rolled back, while it was read; read a "
            "newer one or a tag, or set 'scan.plan-auto-tag-for-read.time-retained'",
            snapshot_id=snapshot.id,
            earliest_id=snapshots.earliest_hint(),
        ) from cause


def has_expired(snapshots: SnapshotStore, snapshot: Snapshot) -> bool:
    """Whether an expiry or a rollback has taken a snapshot, or is about to."""
    # A snapshot below EARLIEST may still have its file while its data files are deleted.
    earliest = snapshots.earliest_hint()
    is_marked = earliest is not None and snapshot.id < earliest
    return is_marked or not same_state(snapshots.find(snapshot.id), snapshot)


def is_overtaken(snapshots: SnapshotStore, base: Snapshot | None) -> bool:
    """Whether a snapshot that is built on has expired, and there is a newer one to build on."""
    if base is None or not has_expired(snapshots, base):
        return False
    newest = snapshots.latest()
    return newest is not None and not same_state(newest, base)


@contextmanager
def built_on(session: TableSession, base: Snapshot | None) -> Iterator[None]:
    """Raise CommitConflictError, kind ROWS_CHANGED, where a file expired with the snapshot that is built on."""
    try:
        yield
    except NotFoundError as cause:
        # Without a newer snapshot the file is lost: no new attempt would find it.
        if base is None or not is_overtaken(session.snapshots, base):
            raise
        raise CommitConflictError(
            "the state that was built on has expired, or was rolled back, while it was read: nothing "
            "of this is visible, try again; if it comes again, let 'snapshot.time-retained' be longer",
            kind=ErrorKind.ROWS_CHANGED,
            snapshot_id=base.id,
            table=session.name,
        ) from cause

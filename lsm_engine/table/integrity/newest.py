"""Find the newest readable snapshot if the newest one is lost or damaged."""

from collections.abc import Sequence
from itertools import takewhile

from lsm_engine.base.errors import CorruptFileError, NotFoundError
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.live_snapshots import is_built_on, named_base
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import readable


def is_readable(session: TableSession) -> bool:
    """Whether there is a newest state, or none yet; False if its snapshot or manifests are lost or damaged."""
    try:
        base = session.snapshots.latest()
    except CorruptFileError:
        ids = session.snapshots.listed_ids()
        if lost_newest(session, ids) != ([], None):
            return False
        base = session.snapshots.find(ids[-1])
    return base is None or is_whole(session, base)


def lost_newest(session: TableSession, ids: Sequence[int]) -> tuple[list[int], int | None]:
    """Return the newest snapshots, of `ids`, that do not count, newest first, and what LATEST names that is not there.

    Neither if the newest can be read, or would be if an older one were.
    """
    try:
        session.snapshots.latest()
    except CorruptFileError:
        broken = [*takewhile(lambda number: not stands(session, number), reversed(ids))]
        return broken, session.snapshots.stray_latest(max(ids, default=0))
    return [], None


def newest_tagged(session: TableSession, above: int, upto: int) -> Tag | None:
    """Return the newest tag of a snapshot between two ids whose manifests can be read, if there is one."""
    tags = readable(session.tags.names(), session.tags.find, CorruptFileError)
    for _, tag in sorted(tags, key=lambda item: -item[1].snapshot.id):
        if above < tag.snapshot.id <= upto and is_whole(session, tag.snapshot):
            return tag
    return None


def is_whole(session: TableSession, snapshot: Snapshot) -> bool:
    """Whether the manifests of a snapshot are there and undamaged; any other error is raised."""
    try:
        session.live_entries(snapshot)
    except (CorruptFileError, NotFoundError):
        return False
    return True


def stands(session: TableSession, number: int) -> bool:
    """Whether a snapshot can be read, and the one that it was made on is below it, expired, torn, or lost.

    It is lost where LATEST names the one above, whose manifests are whole: else that one may be what a rollback has cut off.
    """
    snapshot = found_readable(session, number)
    if snapshot is None or named_base(snapshot) is None:
        return snapshot is not None
    if session.snapshots.earliest_hint() == number:
        return True
    try:
        below = session.snapshots.find(number - 1)
    except CorruptFileError:
        return True
    if below is None:
        return session.snapshots.latest_hint() == number and is_whole(session, snapshot)
    return is_built_on(snapshot, below)


def found_readable(session: TableSession, number: int) -> Snapshot | None:
    """Return a snapshot whose file is there and undamaged, or None."""
    return dict(readable([number], session.snapshots.find, CorruptFileError)).get(number)

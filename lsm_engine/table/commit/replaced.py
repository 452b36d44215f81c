"""Whether another client has put its snapshot in the place of ours after that had landed.

Clients without an exclusive create look whether the name is free, and then rename over it: what landed in
between is lost, and nobody notices (docs/commit-protocol.md). So after a commit beside such a client the
writer looks twice, at once and a moment later, and commits again if its snapshot is not there.
"""

import logging
from collections.abc import Iterable

from lsm_engine.base.errors import CommitUnknownError, LsmError
from lsm_engine.codec.documents import encode_snapshot
from lsm_engine.meta.manifest import BucketScope, ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import is_beside_others, is_built_on, is_of_another_client
from lsm_engine.plan.ownership import same_state
from lsm_engine.table.ground.session import TableSession

log = logging.getLogger(__name__)

LOOKS_AFTER_MILLIS = (0, 40)
"""When it is looked again; a rename that comes later is not noticed."""


def is_replaced(session: TableSession, landed: Snapshot) -> bool:
    """Look whether a snapshot that counted is another client's by now; False where none commits here.

    One that others have built on is part of the table for good, and is put back. A storage that
    does not answer changes nothing: the snapshot has been confirmed.
    """
    if not is_beside_others(landed):
        return False
    for wait in LOOKS_AFTER_MILLIS:
        session.clock.sleep_millis(wait)
        try:
            newer = session.snapshots.find(landed.id + 1)
            found = session.snapshots.find(landed.id)
            if found is None or same_state(found, landed) or not is_of_another_client(found):
                continue
            if is_built_on(newer, landed):
                path = session.paths.snapshot_file(landed.id)
                session.file_io.replace(path, encode_snapshot(landed))
                return False
        except LsmError:
            return False
        log.warning(
            "snapshot %d was replaced by user %r of another client; committing again",
            landed.id,
            found.commit_user,
        )
        return True
    return False


def require_not_built_on(
    session: TableSession, base: Snapshot | None, vanished: Iterable[ManifestEntry]
) -> None:
    """Raise CommitUnknownError if files of a snapshot that was replaced are live all the same.

    Another client had read it before, and has built on it: committed again, the rows would count twice.
    """
    names = {(one.partition, one.bucket, one.file.file_name) for one in vanished}
    if not names or base is None:
        return
    places = {name[:2] for name in names}
    live = session.live_entries(base, BucketScope(buckets=frozenset(places)))
    if any((one.partition, one.bucket, one.file.file_name) in names for one in live):
        raise CommitUnknownError(
            "another client replaced the snapshot of this commit, and one built on it before: its "
            "rows are there; look for them before trying again",
            snapshot_id=base.id,
        )

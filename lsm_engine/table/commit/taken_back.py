"""A commit that landed on a snapshot which a rollback was taking back: it is withdrawn, and made anew.

Whoever rolls back looks for a successor before and after each snapshot that goes; a writer looks, after
its snapshot has landed, whether the one under it is still there. One of the two sees the other, so no
commit is left above a gap (decisions/0025).
"""

import logging

from lsm_engine.base.errors import CommitUnknownError, LsmError
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.ownership import same_state
from lsm_engine.store.snapshots import SnapshotStore

log = logging.getLogger(__name__)


def withdrawn(snapshots: SnapshotStore, landed: Snapshot, base: Snapshot | None) -> bool:
    """Take a snapshot away again that has just landed, if a rollback took the base it was made on.

    What cannot be looked up is taken to be there.
    """
    try:
        is_there = same_state(snapshots.find(landed.id), landed)
        taken = base is not None and _is_taken_back(snapshots, base)
        if is_there and taken and not snapshots.exists(landed.id + 1):
            snapshots.forget_latest()  # others trust it without a look at the file
            snapshots.delete(landed.id)
            if snapshots.exists(landed.id + 1):  # somebody has built on it
                snapshots.publish_only(landed)
                return False
            log.info("withdrew snapshot %d: a rollback took its base", landed.id)
            is_there = False
        if not is_there:
            _announce_newest(snapshots)
        return taken and not is_there
    except CommitUnknownError:
        raise
    except LsmError as error:
        log.warning("snapshot %d landed, and its base cannot be seen: %s", landed.id, error)
        return False


def _announce_newest(snapshots: SnapshotStore) -> None:
    """Mend the hint, which our commit may have set to a snapshot that is gone."""
    newest = snapshots.latest_id()
    if newest is not None:
        snapshots.announce(newest)


def _is_taken_back(snapshots: SnapshotStore, base: Snapshot) -> bool:
    """Whether a snapshot is gone or another one now, and that is no expiry: older ones are left."""
    found = snapshots.find(base.id)
    if same_state(found, base):
        return False
    if found is not None:
        return True
    ids = snapshots.ids()
    return base.id not in ids and any(number < base.id for number in ids)

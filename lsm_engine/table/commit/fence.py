"""The fence: whether a snapshot that has just landed counts, looked up before anybody is notified.

A writer may have been stopped for any time before its create. Meanwhile expiry may have passed the id,
which is free again, or a rollback may have taken the snapshot under it. Both leave traces before they
free an id, so who looks after its create sees them (docs/commit-protocol.md).
"""

import logging
from collections.abc import Callable

from lsm_engine.base.errors import CommitUnknownError, LsmError
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import believed, is_built_on, named_base, rollback_target
from lsm_engine.plan.ownership import same_state
from lsm_engine.store.snapshots import SnapshotStore

log = logging.getLogger(__name__)
_TRIES = 3  # looks before a storage that does not answer leaves the commit unknown


def confirm(
    snapshots: SnapshotStore,
    landed: Snapshot,
    base: Snapshot | None,
    is_dropped: Callable[[], bool] = lambda: False,
) -> bool:
    """Look whether a landed snapshot counts; announce it by LATEST, or revoke it.

    `base` is the snapshot that it was made on. `is_dropped`: whether the directory is another table's by
    now, or nobody's; asked where there is no base to see. False: it was revoked, nothing of it is visible,
    plan again. Raises CommitUnknownError where it cannot be known: where an expiry, a rollback or a rename of
    the table took the file before this look, or the storage does not answer; then nothing may be deleted.
    """
    try:
        counts = _looked_up(snapshots, landed, base, is_dropped)
        if not counts:
            snapshots.delete_state(landed)
    except CommitUnknownError:
        raise
    except LsmError as cause:
        raise _unknown(landed, "the storage does not answer") from cause
    if not counts:
        log.info(
            "revoked snapshot %d: its id expired or was rolled back, or the table was dropped",
            landed.id,
        )
        return False
    if base is None or rollback_target(landed) is not None:
        snapshots.announce(landed, is_first=base is None)
    else:
        snapshots.announce_behind(landed)
    return True


def _looked_up(
    snapshots: SnapshotStore,
    landed: Snapshot,
    base: Snapshot | None,
    is_dropped: Callable[[], bool],
) -> bool:
    for _ in range(_TRIES - 1):
        try:
            return _counts(snapshots, landed, base, is_dropped)
        except CommitUnknownError:
            raise
        except LsmError as error:
            log.warning("snapshot %d landed, and cannot be confirmed yet: %s", landed.id, error)
    return _counts(snapshots, landed, base, is_dropped)


def _counts(
    snapshots: SnapshotStore,
    landed: Snapshot,
    base: Snapshot | None,
    is_dropped: Callable[[], bool],
) -> bool:
    """Return whether a snapshot is on the line, or was until it expired or was rolled back.

    With its base there it is: expiry and rollback delete upwards, so no id above that one was free.
    """
    if base is not None and same_state(snapshots.find(base.id), base):
        return True
    if is_dropped():
        if same_state(snapshots.find(landed.id), landed):
            return False
        # A rename moves the snapshot along with the directory, where it counts; a drop deletes it.
        raise _unknown(landed, "the table was renamed or dropped, and the snapshot with it")
    earliest = snapshots.earliest_hint()
    listed = snapshots.listed_ids()
    newer = snapshots.find(landed.id + 1)
    there = snapshots.find(landed.id)  # after `newer`, as both go upwards
    if is_built_on(newer, landed):
        return True
    fence = believed(earliest, max(listed, default=0))
    is_newest = newer is None and not any(number > landed.id for number in listed)
    has_older = base is not None and any(fence <= number < landed.id for number in listed)
    if fence <= landed.id and is_newest and not has_older:
        # An expiry took the base, and nothing is newer; or a rollback did, and EARLIEST lies above its target.
        return base is None or not snapshots.is_rolled_back_below(landed, listed)
    if newer is not None and named_base(newer) is None:
        # Of another client, which moves EARLIEST last.
        if (fence or 1) == landed.id and there is not None:
            return True
        raise _unknown(landed, "a client that names no base committed above it")
    if not same_state(there, landed):
        raise _unknown(landed, "an expiry or a rollback took it before it was confirmed")
    return False


def _unknown(landed: Snapshot, why: str) -> CommitUnknownError:
    return CommitUnknownError(
        f"snapshot {landed.id} has landed, and it is unknown whether it counts: {why}; look for its "
        "rows before trying again",
        snapshot_id=landed.id,
        uuid=landed.uuid,
    )

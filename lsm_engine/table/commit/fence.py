"""The fence: whether a snapshot that has just landed counts, looked up before anybody is notified.

A writer may have been stopped for any time before its create. Meanwhile expiry may have passed the id,
which is free again, or a rollback may have taken the snapshot under it. Both leave traces before they
free an id, so who looks after its create sees them (docs/commit-protocol.md).
"""

import logging
from enum import Enum

from lsm_engine.base.errors import CommitUnknownError, LsmError
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import believed, is_built_on, named_base
from lsm_engine.plan.ownership import same_state
from lsm_engine.store.snapshots import SnapshotStore

log = logging.getLogger(__name__)
_TRIES = 3  # looks before a storage that does not answer leaves the commit unknown


class Standing(Enum):
    """What a snapshot that has landed is."""

    COUNTS = "counts"
    """It is on the line, or was until it expired."""
    PASSED = "passed"
    """A ghost: expiry had passed its id."""
    CUT_OFF = "cut off"
    """A rollback took the snapshot under it."""


def confirm(snapshots: SnapshotStore, landed: Snapshot, base: Snapshot | None) -> bool:
    """Look whether a landed snapshot counts; announce it by the hints, or revoke it.

    `base` is the snapshot that it was made on. False: it was revoked, nothing of it is visible, plan
    again. Raises CommitUnknownError where it cannot be known: where expiry passed the id and took the
    file before this look, or the storage does not answer; then nothing may be deleted.
    """
    try:
        standing = _looked_up(snapshots, landed, base)
        if standing is not Standing.COUNTS and not _is_revoked(snapshots, landed, standing):
            standing = Standing.COUNTS
    except CommitUnknownError:
        raise
    except LsmError as cause:
        raise _unknown(landed, "the storage does not answer") from cause
    if standing is not Standing.COUNTS:
        log.info("revoked snapshot %d: its id was %s meanwhile", landed.id, standing.value)
        return False
    snapshots.announce(landed.id, is_first=base is None)
    return True


def _looked_up(snapshots: SnapshotStore, landed: Snapshot, base: Snapshot | None) -> Standing:
    for _ in range(_TRIES - 1):
        try:
            return _standing(snapshots, landed, base)
        except CommitUnknownError:
            raise
        except LsmError as error:
            log.warning("snapshot %d landed, and cannot be confirmed yet: %s", landed.id, error)
    return _standing(snapshots, landed, base)


def _standing(snapshots: SnapshotStore, landed: Snapshot, base: Snapshot | None) -> Standing:
    earliest = snapshots.earliest_hint()
    found = None if base is None else snapshots.find(base.id)
    if found is not None and same_state(found, base) and (earliest or 0) <= landed.id:
        # Expiry goes upwards: with the base there, no id above it is free.
        return _below(snapshots, landed) if snapshots.exists(landed.id + 1) else Standing.COUNTS
    earliest = snapshots.earliest_hint()
    listed = snapshots.listed_ids()
    fence = believed(earliest, max(listed, default=0))
    newer = snapshots.find(landed.id + 1)
    there = snapshots.find(landed.id)  # after `newer`, as expiry goes upwards
    if is_built_on(newer, landed):
        return Standing.COUNTS
    if fence > landed.id:
        return _passed(landed, there, newer)
    if found is not None and same_state(found, base):
        return Standing.COUNTS  # EARLIEST is garbage
    if newer is not None or any(number > landed.id for number in listed):
        return _left_behind(landed, there, newer, is_oldest=(fence or 1) == landed.id)
    if base is None or (found is None and not any(fence <= at < base.id for at in listed)):
        return Standing.COUNTS  # an expiry took the base, and nothing is newer
    return Standing.CUT_OFF


def _below(snapshots: SnapshotStore, landed: Snapshot) -> Standing:
    """Judge a snapshot whose base is there and whose successor is, too.

    A successor that was made on another snapshot of our id may have been confirmed before a rollback
    took that one, which will give it back when it sees the successor: the id is not ours.
    """
    newer = snapshots.find(landed.id + 1)
    if newer is None or named_base(newer) in (None, landed.delta_manifest_list):
        return Standing.COUNTS
    return Standing.CUT_OFF


def _passed(landed: Snapshot, there: Snapshot | None, newer: Snapshot | None) -> Standing:
    """Distinguish a ghost from a snapshot that expired between its create and this look.

    The latter was built on, and expiry deletes it before its successor.
    """
    if same_state(there, landed) and (newer is None or named_base(newer) is not None):
        return Standing.PASSED
    raise _unknown(landed, "expiry passed it before it was confirmed")


def _left_behind(
    landed: Snapshot, there: Snapshot | None, newer: Snapshot | None, *, is_oldest: bool
) -> Standing:
    """Judge a snapshot above which others went on, where EARLIEST shows no expiry.

    A rollback took it and its id was used again; or it is a ghost, and the client that expires moves
    EARLIEST last. What such a client commits names no base.
    """
    is_used_again = there is not None and not same_state(there, landed)
    if there is not None and is_used_again and (newer is None or is_built_on(newer, there)):
        return Standing.CUT_OFF
    if newer is not None and named_base(newer) is None and is_oldest and there is not None:
        return Standing.COUNTS
    return _passed(landed, there, newer)


def _is_revoked(snapshots: SnapshotStore, landed: Snapshot, standing: Standing) -> bool:
    """Take our own snapshot away; False if somebody has built on it, and it stays.

    Raises CommitUnknownError if a rollback took it, or may have where deletes are silent: that gives it
    back where somebody has built on it, and committing it again would double it.
    """
    was_there = snapshots.delete_state(landed)
    if standing is Standing.CUT_OFF:
        if not was_there:
            raise _unknown(landed, "a rollback took it before it was confirmed")
        newer = snapshots.find(landed.id + 1)
        if newer is not None and named_base(newer) in (None, landed.delta_manifest_list):
            if snapshots.publish_only(landed):
                return False
            raise _unknown(landed, "somebody has built on it, and its id is another's")
        if snapshots.deletes_are_silent:
            raise _unknown(landed, "a rollback may have taken it first, and may give it back")
    return True


def _unknown(landed: Snapshot, why: str) -> CommitUnknownError:
    return CommitUnknownError(
        f"snapshot {landed.id} has landed, and it is unknown whether it counts: {why}; look for its "
        "rows before trying again",
        snapshot_id=landed.id,
        uuid=landed.uuid,
    )

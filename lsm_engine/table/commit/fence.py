"""Whether a snapshot that has landed counts: the one look between a publish and its announcement."""

from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.store.snapshots import SnapshotStore
from lsm_engine.table.commit.taken_back import withdrawn


def confirm(snapshots: SnapshotStore, landed: Snapshot, base: Snapshot | None) -> bool:
    """Whether a landed snapshot counts; if so LATEST names it, or a later one, when this returns.

    False: it was revoked, as the base it was made on is gone, and has to be planned again.
    """
    if withdrawn(snapshots, landed, base):
        return False
    snapshots.announce(landed.id)  # where the answer to the publish was lost, nobody has
    return True

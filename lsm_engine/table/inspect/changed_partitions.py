"""Which partitions have other rows since a commit: what is derived from the others is still true."""

from lsm_engine.base.modes import CommitKind
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.ground.session import TableSession


def changed_partitions(session: TableSession, snapshot: Snapshot) -> frozenset[str] | None:
    """Return the directories of the partitions whose rows a commit may have changed; "" if unpartitioned.

    None: any of them. A compaction changes none. Read from the delta's manifests; a commit that deletes
    by deletion vectors alone names no data file there, so that it may have changed any partition.
    """
    if snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE):
        return frozenset()
    manifests = session.manifest_list(snapshot, snapshot.delta_manifest_list)
    changed = {
        entry.partition for meta in manifests for entry in session.manifests.read_entries(meta)
    }
    if not session.schema.has_primary_key and snapshot.index_manifest is not None:
        return None
    return frozenset(map(session.context().partition_path, changed))

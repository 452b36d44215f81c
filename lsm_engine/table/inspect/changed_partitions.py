"""Which partitions have other rows since a commit: what is derived from the others is still true."""

from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.scan import ReadMode
from lsm_engine.table.ground.merge_rules import read_mode
from lsm_engine.table.ground.session import TableSession


def changed_partitions(session: TableSession, snapshot: Snapshot) -> frozenset[str] | None:
    """Return the directories of the partitions whose rows a commit may have changed; "" if unpartitioned.

    None: any of them. A compaction changes none, but where reads leave level 0 out: there rows are seen
    once it has taken them up, and a write alone changes nothing. Read from the delta's manifests; a
    commit that deletes by deletion vectors alone names no data file there, so that it may have changed
    any partition.
    """
    compacts, hides = snapshot.commit_kind is CommitKind.COMPACT, hides_level_0(session)
    if snapshot.commit_kind is CommitKind.ANALYZE or (compacts and not hides):
        return frozenset()
    manifests = session.manifest_list(snapshot, snapshot.delta_manifest_list)
    changed = {
        entry.partition
        for meta in manifests
        for entry in session.manifests.read_entries(meta)
        if not hides or _is_seen(entry, compacts=compacts)
    }
    if not session.schema.has_primary_key and snapshot.index_manifest is not None:
        return None
    return frozenset(map(session.context().partition_path, changed))


def hides_level_0(session: TableSession) -> bool:
    """Whether reads leave level 0 out, so that rows are seen once a compaction has taken them up."""
    return read_mode(session.schema) is ReadMode.ABOVE_LEVEL_0


def _is_seen(entry: ManifestEntry, *, compacts: bool) -> bool:
    """Whether a change of files changes what is read above level 0."""
    if compacts:
        return entry.kind is EntryKind.DELETE and entry.file.level == 0
    return entry.kind is EntryKind.DELETE or entry.file.level > 0

"""Make a former state the newest one, in a commit of its own: history stays, writers may go on."""

from collections.abc import Sequence

from lsm_engine.base.modes import CommitKind, ExternalAccess
from lsm_engine.base.table_options import refuse_unsupported
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.commit.flat_commit import Change, commit_flat
from lsm_engine.table.ground.session import TableSession


def restore(session: TableSession, target: Snapshot, identity: CommitIdentity) -> Snapshot | None:
    """Publish an OVERWRITE snapshot with the files of `target`; None if they are the newest already.

    A commit that lands first is undone by it like those before: the answer is the target's state.
    """
    refuse_unsupported(session.options, [ExternalAccess.WRITE])
    wanted = {entry.identity: entry for entry in session.live_entries(target)}

    def change_of(base: Snapshot, live: Sequence[ManifestEntry]) -> Change | None:
        there = {entry.identity for entry in live}
        gone = tuple(entry for entry in live if entry.identity not in wanted)
        added = tuple(entry for key, entry in wanted.items() if key not in there)
        same_index = base.index_manifest == target.index_manifest
        if not gone and not added and same_index:
            return None
        return Change(
            kind=CommitKind.OVERWRITE,
            gone=gone,
            added=added,
            index_manifest=target.index_manifest,
            keeps_index=False,
            watermark=target.watermark,
        )

    return commit_flat(session, identity, change_of)

"""Make a former state the newest one, in a commit of its own: history stays, writers may go on."""

from dataclasses import replace

from lsm_engine.base.modes import CommitKind
from lsm_engine.catalog.provenance import RESTORED
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.proposal import CommitIdentity, LiveChange, Proposal
from lsm_engine.table.commit.commit import propose
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.tags.tag import is_rolled_back, kept, rolled_back, was_rolled_back

RESTORING = "restoring-"
"""Prefix of the names of tags that keep the state that is restored, until that is committed."""


def restore(session: TableSession, target: Snapshot, identity: CommitIdentity) -> Snapshot | None:
    """Publish an OVERWRITE snapshot with the files of `target`; None if they are the newest already.

    A commit that lands first is undone by it like those before: the answer is the target's state.
    But a replay of a numbered restore undoes nothing: it returns the snapshot that it made.
    Raises NotFoundError (expired) where an expiry, or who deletes its last tag, has got hold of the target.
    """
    session.options.require_writable()
    # Expiry, or who deletes the tag, would delete files that the new snapshot is going to name.
    is_kept = was_rolled_back(session, target)
    with kept(session, target, RESTORING):
        return _restored(session, target, identity, is_kept=is_kept)


def _restored(
    session: TableSession, target: Snapshot, identity: CommitIdentity, *, is_kept: bool
) -> Snapshot | None:
    target_entries = {entry.identity: entry for entry in session.live_entries(target)}

    def difference(base: Snapshot | None) -> LiveChange | None:
        if base is None:
            return None
        # A rollback that takes the target deletes the own tag, too. One that comes after this look takes the base.
        if not is_kept and is_rolled_back(session, target):
            raise rolled_back(target)
        there = {entry.identity: entry for entry in session.live_entries(base)}
        removed = tuple(entry for key, entry in there.items() if key not in target_entries)
        back = tuple(entry for key, entry in target_entries.items() if key not in there)
        same_index = base.index_manifest == target.index_manifest
        if not removed and not back and same_index:
            return None
        return LiveChange(deleted=removed, back=back, state=target, rewrites_manifests=True)

    properties = {**(identity.properties or {}), RESTORED: str(target.id)}
    identity = replace(identity, properties=properties)
    proposal = Proposal(identity=identity, kind=CommitKind.OVERWRITE, choose=difference)
    return propose(session, proposal)

"""The life of a table's history: the verbs of the facade that tag, branch, roll back and expire it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.base.modes import CommitKind
from lsm_engine.meta.consumer import Consumer
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.proposal import Proposal
from lsm_engine.plan.retention import NO_LIMIT, retention_of
from lsm_engine.table.commit.commit import CommitIdentity, committed_before, propose
from lsm_engine.table.commit.history_of_base import last_identifier
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history import (
    consumer,
    expire,
    orphans,
    rename_branch,
    restore,
    rollback,
)
from lsm_engine.table.history import fast_forward as forwarding
from lsm_engine.table.history.expire import ExpiryReport
from lsm_engine.table.history.fast_forward import FastForwardReport
from lsm_engine.table.history.orphans import OrphanReport
from lsm_engine.table.history.rollback import RollbackReport
from lsm_engine.table.history.rollback_plan import snapshot_to_return_to
from lsm_engine.table.tags import branch, expire_tags, tag
from lsm_engine.table.tags.auto_tags import AutoTagReport, AutoTags
from lsm_engine.table.tags.branch import Branch
from lsm_engine.table.tags.expire_tags import TagExpiryReport

T = TypeVar("T")


class TableHistory:
    """The part of a Table that tags, branches, restores and expires snapshots."""

    session: TableSession

    # --- snapshots -------------------------------------------------------------------------------
    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots that are there, oldest first."""
        return self.session.snapshots.all()

    def newest_snapshots(self, limit: int | None = None) -> Iterator[Snapshot]:
        """Yield the snapshots backwards from the newest, at most `limit`, each read when asked for."""
        return self.session.snapshots.newest_first(limit)

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """Return one snapshot. Raises ExpiredError if retention took it, NotFoundError if it never was."""
        return self.session.snapshots.load(snapshot_id)

    def snapshot_ids(self) -> list[int]:
        """Return the ids of the snapshots that are there, oldest first, from one listing."""
        return self._of_table(self.session.snapshots.ids())

    def age_millis(self, snapshot: Snapshot) -> int:
        """Return how long ago a snapshot was made, by the clock that the table is run with."""
        return self.session.clock.now_millis() - snapshot.time_millis

    def latest_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot; None for an empty table."""
        return self.session.snapshots.latest()

    def rollback_to(
        self,
        snapshot_id: int | str | None = None,
        tag: str | None = None,
        *,
        as_of_millis: int | None = None,
        watermark: int | None = None,
        dry_run: bool = False,
    ) -> RollbackReport:
        """Go back to a snapshot: later snapshots and tags go, and their ids are used again.

        Name one of: a snapshot, by its id, a tag, by its name in place of that or as `tag` (its snapshot may have expired), a time or a watermark, which
        mean the newest snapshot at or before. Commits that land before the rollback's own go as well;
        later ones stay, and may wait for it. Data files are left to `remove_orphan_files`. Killed half
        way, the table is at the target already, and doing it again deletes the rest. Raises
        CommitConflictError beside another rollback or an expiry.
        """
        target = snapshot_to_return_to(
            self.session,
            snapshot_id=snapshot_id,
            tag=tag,
            as_of_millis=as_of_millis,
            watermark=watermark,
        )
        return rollback.rollback(self.session, target, dry_run=dry_run)

    def rollback_to_as_latest(
        self,
        snapshot_id: int | str | None = None,
        tag: str | None = None,
        *,
        as_of_millis: int | None = None,
        watermark: int | None = None,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Make a former state the newest, by one commit: history stays, and writers may go on.

        Returns the OVERWRITE snapshot made, None if nothing differs. A replay of a numbered commit
        returns the snapshot that it made, and undoes nothing that others committed since.
        """
        identity = CommitIdentity(
            commit_user=commit_user or self.session.ids.new_id(),
            commit_identifier=commit_identifier,
            properties=properties,
        )
        before = committed_before(self.session, identity, CommitKind.OVERWRITE)
        if before is not None:
            return before  # its target may have expired since
        target = snapshot_to_return_to(
            self.session,
            snapshot_id=snapshot_id,
            tag=tag,
            as_of_millis=as_of_millis,
            watermark=watermark,
        )
        return restore.restore(self.session, target, identity)

    def expire_snapshots(
        self,
        dry_run: bool = False,  # noqa: FBT001, FBT002 -- the documented front door
        *,
        retain_min: int | None = None,
        retain_max: int | None = None,
        older_than: str | timedelta | None = None,
        everything: bool = False,
    ) -> ExpiryReport:
        """Take away snapshots that retention no longer keeps, and the files that only they name.

        The options `snapshot.num-retained.min`, `.max` and `snapshot.time-retained` decide where no
        argument does; `older_than` is an age such as "1 h", or a timedelta; `everything`: whatever
        `snapshot.expire.limit` allows at a time. Tags, branches and changelogs keep their
        files. Tags and consumers whose time is over go as well, and changelogs by the options
        `changelog.*`. Nothing is deleted unless every root could be read. With `dry_run` nothing is
        deleted at all.
        """
        retention = retention_of(
            self.session.options,
            retain_min=retain_min,
            retain_max=retain_max,
            older_than=older_than,
        )
        if everything:
            retention = replace(retention, expire_limit=NO_LIMIT)
        return expire.expire(self.session, retention, dry_run=dry_run)

    def remove_orphan_files(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- the documented front door
        older_than: str | timedelta = "1 d",
        *,
        force: bool = False,
    ) -> OrphanReport:
        """Find, and with `dry_run=False` delete, files that nothing names: no snapshot, tag,
        changelog or branch.

        Writers that died leave such files. Only files older than `older_than`, by the storage's own
        clock, are touched; ages below a day need `force`, as a commit that is being written has
        files that nothing names yet. Nothing is deleted unless every root could be read.
        """
        return orphans.remove_orphans(
            self.session, dry_run=dry_run, older_than=older_than, force=force
        )

    # --- tags ------------------------------------------------------------------------------------
    def create_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        retained: str | None = None,
        *,
        from_millis: int | None = None,
    ) -> Tag:
        """Name a snapshot, by default the newest; its files are kept as long as the tag.

        `from_millis`: the first snapshot made at that time or after it. `retained`: a lifetime such
        as "7 d", after which expiry may take the tag. Raises AlreadyExistsError if the name is taken.
        """
        return tag.create(
            self.session, name, snapshot_id=snapshot_id, from_millis=from_millis, retained=retained
        )

    def replace_tag(
        self, name: str, snapshot_id: int | None = None, retained: str | None = None
    ) -> Tag:
        """Move a tag to another snapshot, by default the newest, in one step; NotFoundError if none."""
        return tag.replace(self.session, name, snapshot_id=snapshot_id, retained=retained)

    def rename_tag(self, name: str, new_name: str) -> Tag:
        """Give a tag another name; raises AlreadyExistsError if that is taken."""
        return tag.rename(self.session, name, new_name)

    def delete_tag(self, name: str) -> None:
        """Delete a tag, and the files that nothing else names any more."""
        tag.delete(self.session, name)

    def tag(self, name: str) -> Tag:
        """Return one tag; raises NotFoundError."""
        return self.session.tags.load(name)

    def tag_names(self) -> list[str]:
        """Return the names of the tags, from one listing; no tag is read."""
        return self._of_table(self.session.tags.names())

    def tags(self) -> list[Tag]:
        """Return the tags by snapshot, then name."""
        found = self.session.tags.list()
        self.session.identity.require(found[-1].snapshot if found else None)
        return found

    def expire_tags(
        self,
        dry_run: bool = False,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        older_than: str | None = None,
    ) -> TagExpiryReport:
        """Take tags whose lifetime is over; `older_than`: those created before that age as well."""
        return expire_tags.expire_tags(self.session, dry_run=dry_run, older_than=older_than)

    def create_due_tags(
        self,
        dry_run: bool = False,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
    ) -> AutoTagReport:
        """Create the tags that `tag.automatic-creation` asks for and no commit has made yet."""
        return AutoTags(self.session).create_due(dry_run=dry_run)

    # --- branches --------------------------------------------------------------------------------

    def create_branch(self, name: str, tag: str | None = None) -> Branch:
        """Make a branch from a tag, or an empty one with the newest schema; `branch(name)` opens it.

        Raises InvalidInputError for names that cannot be, AlreadyExistsError for one that is taken.
        """
        return branch.create(self.session, name, tag=tag)

    def branches(self) -> list[str]:
        """Return the names of the branches, "main" left out."""
        return self._of_table(branch.branches(self.session).names())

    def delete_branch(self, name: str) -> None:
        """Take a branch away; files that only it named are freed by `remove_orphan_files`."""
        branch.delete(self.session, name)

    def rename_branch(self, name: str, new_name: str) -> Branch:
        """Give a branch another name; raises AlreadyExistsError if that is taken."""
        return rename_branch.rename(self.session, name, new_name)

    def fast_forward(
        self, name: str, *, force: bool = False, dry_run: bool = False
    ) -> FastForwardReport:
        """Fast-forward the table to a branch: main takes over the branch's snapshots.

        Raises CommitConflictError if the table has commits of its own since then; with `force` they
        are rolled back first. Killed half way, the table is at a snapshot of the branch, and doing it
        again finishes.
        """
        done = forwarding.fast_forward(self.session, name, force=force, dry_run=dry_run)
        newest = self.session.schemas.latest()
        if newest is not None and newest.id != self.session.schema.id:
            self.session = self.session.with_schema(newest)
        return done

    # --- consumers -------------------------------------------------------------------------------

    def consumers(self) -> list[Consumer]:
        """Return the named readers of changes and what they read next, by name."""
        return self._of_table(self.session.consumers.list())

    def reset_consumer(self, name: str, next_snapshot_id: int | None = None) -> Consumer | None:
        """Put a consumer at a snapshot, forwards or back, made if it is new; None forgets it.

        Snapshots (or changelogs) from there on are kept. Raises ExpiredError for what was deleted.
        """
        return consumer.reset(self.session, name, next_snapshot_id)

    def clear_consumers(self, including: str = "*", excluding: str = "") -> tuple[str, ...]:
        """Forget consumers whose names match a pattern such as "etl-*"; return their names."""
        return consumer.clear(self.session, including, excluding)

    # --- commit users ----------------------------------------------------------------------------

    def last_commit_identifier(self, commit_user: str) -> int | None:
        """Return the greatest number that a commit user has committed under; None if there is none.

        Raises InvalidInputError, kind UNKNOWN_IDENTIFIER, where that is not kept any more.
        """
        return last_identifier(self.session, commit_user)

    def set_commit_identifier(
        self, commit_user: str, commit_identifier: int, *, others_are_new: bool = False
    ) -> Snapshot:
        """State the last number that a commit user has committed under, by an empty commit; return that.

        From then on numbers up to `commit_identifier` are replays, which change nothing, and greater ones are new:
        after a refusal of kind UNKNOWN_IDENTIFIER, or for a user that begins anew with smaller numbers. Whoever states
        too small a number has rows committed twice, and too great a one leaves rows out. With `others_are_new` users
        of which nothing is known count as new as well, where another client's expiry took what was known of them.
        """
        identity = CommitIdentity(
            commit_user=commit_user,
            commit_identifier=commit_identifier,
            restates=True,
            others_are_new=others_are_new,
        )
        if not identity.is_numbered:
            raise InvalidInputError(
                "this number is that of commits without one; state a smaller one",
                commit_identifier=commit_identifier,
            )
        self.session.options.require_writable()
        made = propose(self.session, Proposal(identity=identity))
        assert made is not None, identity
        return made

    def _of_table(self, found: list[T]) -> list[T]:
        """Return what was found; NotFoundError where it is nothing, as the table was dropped."""
        if not found:
            self.session.identity.require(None)
        return found

"""Maintenance of a table: methods that drop old data, repair broken state, and undo."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.trash import TrashRecord
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.compact import rescale
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history import expire_partitions, trash
from lsm_engine.table.history.expire_partitions import PartitionExpiryReport
from lsm_engine.table.history.trash import TrashReport
from lsm_engine.table.integrity import repair, restore
from lsm_engine.table.integrity.repair import RepairReport
from lsm_engine.table.integrity.restore import RestoreReport

if TYPE_CHECKING:
    from lsm_engine.table.forget.forget import ForgetReport


class TableMaintenance:
    """The part of a Table that drops and repairs. Repairs only show their plan by default."""

    session: TableSession

    def expire_partitions(
        self,
        dry_run: bool = False,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        older_than: str | None = None,
        commit_user: str | None = None,
    ) -> PartitionExpiryReport:
        """Drop partitions older than `partition.expiration-time`, or than an age such as "30 d".

        One commit drops them all; their files go when its predecessors expire. A partition's age is
        taken from its values, or its newest file (`partition.expiration-strategy`); those
        whose values spell no time are kept for ever.
        """
        identity = self._upkeep(commit_user)
        return expire_partitions.expire_partitions(
            self.session, identity, dry_run=dry_run, older_than=older_than
        )

    def remove_unexisting_files(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        commit_user: str | None = None,
    ) -> RepairReport:
        """Find missing data files of the newest state; with `dry_run=False` drop them from it."""
        identity = self._upkeep(commit_user)
        return repair.remove_unexisting_files(self.session, identity, dry_run=dry_run)

    def restore_files(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        commit_user: str | None = None,
    ) -> RestoreReport:
        """Find damaged and missing data files; with `dry_run=False` give back what they held.

        From the inputs of the compaction that wrote a file, the changelog of its commit, or older rows
        in a snapshot, tag or trash record; the report counts what each has, and what nothing has.
        """
        return restore.restore_files(self.session, self._upkeep(commit_user), dry_run=dry_run)

    def remove_damaged_files(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        commit_user: str | None = None,
    ) -> RepairReport:
        """Find damaged and missing data files of the newest state; with `dry_run=False` let go of them."""
        return repair.remove_damaged_files(self.session, self._upkeep(commit_user), dry_run=dry_run)

    def compact_manifest(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        commit_user: str | None = None,
    ) -> RepairReport:
        """Write the manifests of the newest state anew, fewer and without what was deleted."""
        return repair.compact_manifest(self.session, self._upkeep(commit_user), dry_run=dry_run)

    def repair_earliest_snapshot(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
    ) -> RepairReport:
        """Find snapshots below the oldest whole one; with `dry_run=False` take their files away."""
        return repair.repair_earliest_snapshot(self.session, dry_run=dry_run)

    def repair_latest_snapshot(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
    ) -> RepairReport:
        """Find snapshots above the newest readable one where the newest is lost, and a LATEST that names none.

        With `dry_run=False` take their files away, and with them what they committed; a newer one that a tag
        holds comes back.
        """
        return repair.repair_latest_snapshot(self.session, dry_run=dry_run)

    def remove_broken_records(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
    ) -> RepairReport:
        """Find records beside the snapshots that cannot be read; with `dry_run=False` take them away."""
        return repair.remove_broken_records(self.session, dry_run=dry_run)

    def purge_files(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        commit_user: str | None = None,
    ) -> RepairReport:
        """List what is there; with `dry_run=False` empty the table for good, history and all."""
        return repair.purge_files(self.session, self._upkeep(commit_user), dry_run=dry_run)

    def forget(
        self,
        keys: Any,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        rewrite_tags: bool = False,
        rewrite_branches: bool = False,
        move_consumers: bool = False,
        unreferenced_older_than: str = "1 d",
    ) -> "ForgetReport":
        """Show where keys are kept; with `dry_run=False` take them out of all of it, and prove that.

        `keys`: the primary key columns, as for `delete`; of a table without a primary key any of its
        columns. Every stored version goes: from data files, changelogs, manifests, statistics, indexes,
        the trash, local caches and the catalog. All snapshots but the newest state are expired; time
        travel to them is lost. Tags and branches that hold a key refuse unless `rewrite_tags` and
        `rewrite_branches` allow that they are written anew without it, and so do consumers that have
        not read all changes, unless `move_consumers`. Files that nothing names go once they are older
        than `unreferenced_older_than`. No changelog is emitted: readers of changes are yours to notify.

        The report's `is_clean`: whether a search of every file at the end found none of the keys.
        What lies elsewhere, such as backups, is not searched: docs/forget.md. Raises InvalidInputError,
        with nothing changed, for refusals, UnsupportedError on a branch.
        """
        # Few tables ever ask for this: what it needs is loaded then.
        plans = import_module("lsm_engine.table.forget.forget_plan")
        forget = import_module("lsm_engine.table.forget.forget").forget
        scope = plans.ForgetScope(
            rewrite_tags=rewrite_tags,
            rewrite_branches=rewrite_branches,
            move_consumers=move_consumers,
            unreferenced_older_than=unreferenced_older_than,
        )
        made: ForgetReport = forget(self.session, keys, scope, dry_run=dry_run)
        return made

    # --- trash -----------------------------------------------------------------------------------

    def trash(self) -> list[TrashRecord]:
        """Return what maintenance has taken and can give back, oldest first."""
        return trash.trash_of(self.session).list()

    def undo_maintenance(self, name: str | None = None) -> TrashRecord:
        """Give back what one record of the trash holds, by default the newest; return it.

        Raises NotFoundError for an empty trash, InvalidInputError if the table has new
        snapshots, so that those of the trash no longer fit.
        """
        self.session.options.require_writable()
        return trash.undo(self.session, name)

    def empty_trash(
        self,
        dry_run: bool = False,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        everything: bool = False,
    ) -> TrashReport:
        """Delete the files of records older than `maintenance.trash-retained`, or `everything`."""
        self.session.options.require_writable()
        return trash.empty(self.session, everything=everything, dry_run=dry_run)

    def rescale(
        self,
        buckets: int,
        partitions: Sequence[Mapping[str, object]] | None = None,
        *,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Give partitions, or the whole table, another number of buckets; rows stay the same.

        Every partition is rewritten at once, in an OVERWRITE snapshot; then the option `bucket`, which
        new partitions go by, has the number. Partitions left out keep theirs, and are read and written
        by it. Other clients write to them only once they are rescaled as well. Returns None if all of them have that number already; raises InvalidOptionError for tables
        whose buckets are not a number, CommitConflictError if others keep writing to them.
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        schema, made = rescale.rescale(self.session, buckets, identity, partitions=partitions)
        self.session = self.session.with_schema(schema)
        return made

    def _identity(
        self,
        commit_user: str | None,
        commit_identifier: int,
        properties: Mapping[str, str] | None,
    ) -> CommitIdentity:
        return CommitIdentity(
            commit_user=commit_user or self.session.ids.new_id(),
            commit_identifier=commit_identifier,
            properties=properties,
        )

    def _upkeep(self, commit_user: str | None) -> CommitIdentity:
        return CommitIdentity(commit_user=commit_user or self.session.ids.new_id())

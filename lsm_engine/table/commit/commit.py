"""Commit: fit a proposal to the newest snapshot → check → write manifests → publish → report.

The one engine: every verb that makes a snapshot comes through `propose`. It knows replays, waits
after a lost race, looks for the staged files, resolves what nobody answered, and deletes what is known
not to be visible (docs/decisions/0033).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    ErrorKind,
    LsmError,
    NotFoundError,
)
from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.base.table_options import TableOptions
from lsm_engine.base.version import VERSION
from lsm_engine.catalog.provenance import INPUTS, RUN_KIND
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.index_file import IndexManifestEntry
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.commit import CommitPlan, plan_commit, snapshot_of
from lsm_engine.plan.commit_steps import CommitStep
from lsm_engine.plan.conflicts import Conflict, find_conflict
from lsm_engine.plan.ownership import same_state
from lsm_engine.plan.postponed_buckets import chosen_by_size
from lsm_engine.plan.proposal import (
    NO_CHANGE,
    CommitOutcome,
    LiveChange,
    Proposal,
    overwriting,
)
from lsm_engine.plan.proposal import CommitIdentity as CommitIdentity
from lsm_engine.plan.proposal import Precondition as Precondition
from lsm_engine.plan.proposal import PropertiesOnBase as PropertiesOnBase
from lsm_engine.plan.row_id_conflicts import find_row_id_conflict
from lsm_engine.plan.snapshot_order import id_after, stamped
from lsm_engine.plan.vector_conflicts import find_vector_conflict
from lsm_engine.table.commit.commit_metadata import (
    WrittenMetadata,
    discard_metadata,
    write_metadata,
)
from lsm_engine.table.commit.history_of_base import History, Replays
from lsm_engine.table.commit.preconditions import require
from lsm_engine.table.commit.publish_snapshot import publish, publish_schema, report
from lsm_engine.table.commit.reassign_buckets import WriteAgain, reassigned
from lsm_engine.table.commit.rebase import rebase_step
from lsm_engine.table.commit.replaced import is_replaced, require_not_built_on
from lsm_engine.table.commit.retries import Retries
from lsm_engine.table.ground.components import CommittedFiles
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import is_overtaken
from lsm_engine.table.tags.auto_tags import AutoTags

WRITER_VERSION = f"lsm-engine-{VERSION}"

ChooseOverwritten = Callable[[Snapshot | None], Sequence[ManifestEntry]]


def upkeep_of(identity: CommitIdentity) -> CommitIdentity:
    """Return who does the upkeep that follows a commit: the same run, but nothing was read for it.

    Of a numbered commit it has no number, which is that of the rows: the second compaction of one write, or of a
    branch on which its number was used again, must not be taken for a replay of the first. Nor has it
    the user: other clients take a greater number of theirs, as that of a batch is, for all that is to come.
    """
    if identity.is_numbered:
        identity = replace(
            identity,
            commit_user=f"{identity.commit_user}-upkeep",
            commit_identifier=BATCH_COMMIT_IDENTIFIER,
        )
    if identity.properties is None:
        return identity
    properties = {key: text for key, text in identity.properties.items() if key != INPUTS}
    if RUN_KIND in properties:
        properties[RUN_KIND] = "compact"
    return replace(identity, properties=properties)


def commit(
    session: TableSession,
    identity: CommitIdentity,
    messages: Sequence[CommitMessage],
    *,
    planned_on: Snapshot | None,
    overwritten: ChooseOverwritten | None = None,
    requires: Precondition | None = None,
    properties_on: PropertiesOnBase | None = None,
    write_again: WriteAgain | None = None,
) -> Snapshot | None:
    """Publish the work in `messages`, done against `planned_on`; return the last snapshot made.

    `overwritten` chooses, for the base that is committed on, what an overwrite takes away. Returns
    and raises as `propose` does.
    """
    proposal = Proposal(
        identity=identity,
        messages=tuple(messages),
        planned_on=planned_on,
        kind=CommitKind.APPEND if overwritten is None else CommitKind.OVERWRITE,
        choose=None if overwritten is None else overwriting(overwritten),
        requires=requires,
        properties_on=properties_on,
    )
    return propose(session, proposal, write_again)


def propose(
    session: TableSession, proposal: Proposal, write_again: WriteAgain | None = None
) -> Snapshot | None:
    """Commit what is proposed; return the last snapshot made, None if there was nothing to commit.

    A replay of a numbered commit returns the snapshot that it made. `write_again` writes rows of dynamic
    buckets anew where others gave keys buckets meanwhile; None: a conflict. Raises CommitConflictError when
    nothing is visible and staged files are deleted, CommitUnknownError when it may be visible, all left.
    """
    publish_schema(session, proposal.messages)
    uuids = [session.ids.new_id(), session.ids.new_id()]
    published: Snapshot | None = None
    planned_on = proposal.planned_on
    forced = proposal.identity.restates or _wants_empty_snapshots(session.options)
    for step in proposal.steps(uuids, force=forced):
        made = _Attempts(session, proposal, step, planned_on, write_again).run()
        published = made or published
        planned_on = made or planned_on
    if published is not None:
        AutoTags(session).after_commit(published)
    return published


def committed_before(
    session: TableSession, identity: CommitIdentity, kind: CommitKind
) -> Snapshot | None:
    """Return the snapshot that proves that a numbered commit is a replay, or None.

    For verbs that would fail, or read much, before they could propose anything.
    """
    if not identity.is_numbered:
        return None
    (step,) = Proposal(identity=identity, kind=kind).steps([session.ids.new_id()] * 2, force=True)
    return Replays(session, identity).proof(step, session.snapshots.latest())


def _wants_empty_snapshots(options: TableOptions) -> bool:
    forced = options[core_options.COMMIT_FORCE_CREATE_SNAPSHOT]
    return forced or options[core_options.SNAPSHOT_IGNORE_EMPTY_COMMIT] is False


class _Attempts:
    """One step of a commit, tried on one base after another until it lands or cannot."""

    def __init__(
        self,
        session: TableSession,
        proposal: Proposal,
        step: CommitStep,
        planned_on: Snapshot | None,
        write_again: WriteAgain | None,
    ) -> None:
        self.session = session
        self.step = step
        is_first = step.kind is proposal.kind
        self.choose = proposal.choose if is_first else None
        self.requires = proposal.requires if is_first else None
        self.properties_on = proposal.properties_on if is_first else None
        self.given = step.properties
        self.planned_on = planned_on
        self.fitted_to = planned_on
        self.write_again = write_again
        self.retries = Retries(session)
        self.history = History(session, planned_on)
        self.replays = Replays(session, proposal.identity)
        self.is_stated = proposal.identity.restates
        self.written: WrittenMetadata | None = None
        self.synced: frozenset[str] = frozenset()
        self.vanished: tuple[ManifestEntry, ...] = ()

    def run(self) -> Snapshot | None:
        """Return the snapshot that holds the step, or None if it changes nothing."""
        try:
            while True:
                with self.retries.turn():
                    base = self._next_base()
                    self.history.goes_on_to(base)
                    before = self.replays.proof(self.step, base)
                    if before is not None:
                        self._discard_replay(before)
                        return before
                    try:
                        plan = self._plan(base)
                        prepared = None if plan is None else self._prepared(plan)
                    except NotFoundError:
                        if not is_overtaken(self.session.snapshots, base):
                            raise
                        made = None  # as if another had taken the id
                    else:
                        if plan is None or prepared is None:
                            discard_metadata(self.session, self.written)
                            return None
                        made = self._publish(plan, *prepared)
                if made is not None:
                    return made
                self.retries.wait()
        except CommitUnknownError:
            raise
        except (LsmError, OSError) as error:
            # Staged files of a commit that may be in the table already may be those that it named.
            if isinstance(error, LsmError) and error.kind is ErrorKind.UNKNOWN_IDENTIFIER:
                discard_metadata(self.session, self.written)
            else:
                self._discard()
            raise

    def _next_base(self) -> Snapshot | None:
        """Return the newest snapshot; who lost waits while a file above it does not count."""
        snapshots = self.session.snapshots
        base = snapshots.latest() if self.retries.lost else self.session.newest_of_writer()
        while self.retries.lost and same_state(base, self.fitted_to):
            if not snapshots.exists(id_after(base)):
                break
            self.retries.wait_for(id_after(base))
            base = snapshots.latest()
        return base

    def _plan(self, base: Snapshot | None) -> CommitPlan | None:
        """Return the step on a base; None if that changes nothing."""
        session = self.session
        require_not_built_on(session, base, self.vanished)
        if self.requires is not None:
            require(self.requires, base, session.snapshots)
        change: LiveChange | None = NO_CHANGE if self.choose is None else self.choose(base)
        if change is None:
            return None
        if base is not None and not same_state(base, self.fitted_to):
            self.step = reassigned(session, self.step, self.fitted_to, base, self.write_again)
            self.step = rebase_step(
                session,
                self.step,
                base,
                again=self.retries.lost > 1,
                keeps_files=bool(self.vanished),
            )
            self.fitted_to = base
        if session.schema.orders_by_snapshot and self.step.kind is not CommitKind.COMPACT:
            self.step = stamped(self.step, id_after(base))
        if self.properties_on is not None:
            added = self.properties_on(base, self.step.delta)
            if added:
                self.step = replace(self.step, properties={**(self.given or {}), **added})
        since = self.history.since(base)
        plan = plan_commit(
            self.step,
            base,
            planned_on=self.planned_on,
            since=since,
            change=change,
            counts_differ=chosen_by_size(session.options),
            tracks_rows=session.schema.tracks_rows,
        )
        if plan.is_empty and not (self.is_stated or _wants_empty_snapshots(session.options)):
            return None
        if not plan.scope.is_empty and base is not None:
            conflict = self._conflict(plan, base)
            if conflict is not None:
                raise conflict.since(since or ()).error()
        return plan

    def _conflict(self, plan: CommitPlan, base: Snapshot) -> Conflict | None:
        session = self.session
        live = session.live_entries(base, plan.scope)
        found = find_conflict(plan.delta, live, key_order=session.key_order)
        if found is None and session.schema.evolves_data:
            planned_id = 0 if self.planned_on is None else self.planned_on.id
            found = find_row_id_conflict(plan, live, planned_on_id=planned_id)
        if found is not None or (base.index_manifest is None and not self.step.index_changes):
            return found
        planned: Sequence[IndexManifestEntry] | None = ()
        if self.planned_on is not None:
            try:
                planned = session.index_entries(self.planned_on)
            except NotFoundError:
                planned = None  # expired since
        return find_vector_conflict(
            plan, live, base_index=session.index_entries(base), planned_index=planned
        )

    def _prepared(self, plan: CommitPlan) -> tuple[WrittenMetadata, Snapshot]:
        """Write what the snapshot of a plan will name, and return it with that."""
        session = self.session
        lost, self.written = self.written, None
        self.written = written = write_metadata(session, plan, lost)
        snapshot = snapshot_of(
            plan,
            written.files,
            schema_id=session.schema.id,
            now_millis=session.clock.now_millis(),
            writer_version=WRITER_VERSION,
            commit_identifiers=self.replays.property_on(plan.step, plan.base),
        )
        self._require_files(written)
        self.replays.record_before(plan.step, plan.base)
        return written, snapshot

    def _publish(
        self, plan: CommitPlan, written: WrittenMetadata, snapshot: Snapshot
    ) -> Snapshot | None:
        """Return the snapshot if it landed, None if somebody else took its id."""
        session = self.session
        if publish(session, snapshot, plan.base) is CommitOutcome.LOST:
            return None
        if is_replaced(session, snapshot):
            # Somebody may have read it: its files stay, and are orphans once it is committed again.
            self.vanished, self.written = (*self.vanished, *plan.delta), None
            return None
        files = CommittedFiles(
            snapshot=snapshot,
            schema=session.schema,
            base_manifests=written.base,
            delta_manifests=written.delta,
            changelog_manifests=written.changelog,
            delta=plan.delta,
            changelog=plan.step.changelog,
        )
        report(session, files)
        self.replays.record_landed(plan.step, snapshot, plan.base)
        return snapshot

    def _require_files(self, written: WrittenMetadata) -> None:
        """Look for every file that the snapshot will name, and force new ones to disk if asked to."""
        session, looked_for = self.session, self.synced
        missing: NotFoundError | None = None
        paths = (*written.change_paths, *session.staged_paths(self.step))
        if session.options[core_options.COMMIT_FSYNC] or session.file_io.facts.is_far:
            new = [path for path in (*paths, *written.base_paths) if path not in self.synced]
            try:
                session.file_io.sync(new)
                self.synced = self.synced.union(new)
            except NotFoundError as cause:
                missing = cause
        there = self.synced - looked_for
        lost = [path for path in paths if path not in there and not session.file_io.exists(path)]
        if missing is not None and not lost:
            raise missing
        if lost:
            raise CommitConflictError(
                "files written for this commit are missing, so that nothing was published: a "
                "removal of orphan files took them while the writer was paused, or executors wrote "
                "to disks that this machine does not see; write the rows again, on a cluster to "
                "storage that all of its machines share",
                kind=ErrorKind.STAGED_FILES_GONE,
                files=lost[:5],
                file_count=len(lost),
                table=session.name,
            ) from missing

    def _discard_replay(self, before: Snapshot) -> None:
        """Delete files written for a replay, unless they may be the very files committed before.

        A proof by a later commit does not show which files this one had: then all stay, as orphans.
        """
        discard_metadata(self.session, self.written)
        own = (self.step.commit_user, self.step.commit_identifier)
        if (before.commit_user, before.commit_identifier) != own:
            return
        try:
            committed = {
                entry.file.file_name
                for meta in self.session.manifest_list(before, before.delta_manifest_list)
                for entry in self.session.manifests.read_entries(meta)
                if entry.kind is EntryKind.ADD
            }
        except NotFoundError:
            return  # it has just expired
        staged = self.session.staged_paths(self.step)
        if not committed.intersection(path.rpartition("/")[2] for path in staged):
            self.session.delete_staged(self.step)

    def _discard(self) -> None:
        """Delete the files of work that is known not to be visible."""
        discard_metadata(self.session, self.written)
        if not self.vanished:
            self.session.delete_staged(self.step)

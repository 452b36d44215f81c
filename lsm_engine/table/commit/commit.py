"""Commit: plan on the newest snapshot → check → write manifests → publish → report.

`publish` has three answers. Landed: done. Lost: nothing of ours is visible, plan again on the new
base, a bounded number of times. Unknown: look for our own uuid; files may be deleted only when it is
certain that we lost (format section 14).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    ErrorKind,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.catalog.provenance import INPUTS, RUN_KIND
from lsm_engine.meta.commit_message import CommitMessage, Committable
from lsm_engine.meta.index_file import IndexManifestEntry
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.commit import CommitPlan, plan_commit, snapshot_of
from lsm_engine.plan.commit_steps import CommitStep, steps_of
from lsm_engine.plan.conflicts import Conflict, find_conflict
from lsm_engine.plan.ownership import PublishOutcome, already_committed, resolve_publish, same_state
from lsm_engine.plan.postponed_buckets import chosen_by_size
from lsm_engine.plan.snapshot_order import id_after, stamped
from lsm_engine.plan.vector_conflicts import find_vector_conflict
from lsm_engine.table.commit.commit_metadata import (
    WrittenMetadata,
    discard_metadata,
    write_metadata,
)
from lsm_engine.table.commit.reassign_buckets import WriteAgain, reassigned
from lsm_engine.table.commit.rebase import rebase_step
from lsm_engine.table.commit.taken_back import withdrawn
from lsm_engine.table.ground.components import CommittedFiles
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.tags.auto_tags import tag_after_commit

log = logging.getLogger(__name__)
WRITER_VERSION = "lsm-engine-0.1"
LOOKBACK_SNAPSHOTS = 100

ChooseOverwritten = Callable[[Snapshot | None], Sequence[ManifestEntry]]
OnBase = Callable[[Snapshot | None, Sequence[ManifestEntry]], Mapping[str, str]]
"""Asked for each base that a write is tried on, with its files: properties to add, or an LsmError."""


@record
class CommitIdentity:
    """Who commits, and which of their commits it is; the pair makes a replay a no-op."""

    commit_user: str
    commit_identifier: int = BATCH_COMMIT_IDENTIFIER
    properties: Mapping[str, str] | None = None


def upkeep_of(identity: CommitIdentity) -> CommitIdentity:
    """Return who does the upkeep that follows a commit: the same run, but nothing was read for it."""
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
    on_base: OnBase | None = None,
    write_again: WriteAgain | None = None,
) -> Snapshot | None:
    """Publish the work in `messages`, done against `planned_on`; return the last snapshot made.

    None: there was nothing to commit. `overwritten` chooses, for the base that is committed on,
    what an overwrite takes away. `on_base` is asked for what it adds to the properties of the step
    that brings rows, and may raise to give it up. `write_again` writes rows of dynamic buckets anew
    where others gave buckets to keys meanwhile; None: that is a conflict. Raises CommitConflictError when nothing is visible
    and the staged files are deleted, CommitUnknownError when it may be visible and all is left.
    """
    committable = Committable(
        commit_user=identity.commit_user,
        commit_identifier=identity.commit_identifier,
        messages=tuple(messages),
        properties=identity.properties,
    )
    steps = steps_of(
        committable,
        uuids=[session.ids.new_id(), session.ids.new_id()],
        overwrite=overwritten is not None,
        force=_wants_empty_snapshots(session.options),
    )
    published: Snapshot | None = None
    for step in steps:
        attempt = _Attempt(session, step, planned_on, overwritten, on_base, write_again)
        made = attempt.run()
        published = made or published
        planned_on = made or planned_on
    if published is not None:
        tag_after_commit(session, published)
    return published


def _unknown(snapshot: Snapshot) -> CommitUnknownError:
    return CommitUnknownError(
        "the storage did not say whether the commit is visible; look for its uuid in "
        "table.snapshots() before trying again",
        snapshot_id=snapshot.id,
        uuid=snapshot.uuid,
    )


def _wants_empty_snapshots(options: TableOptions) -> bool:
    forced = options[core_options.COMMIT_FORCE_CREATE_SNAPSHOT]
    return forced or options[core_options.SNAPSHOT_IGNORE_EMPTY_COMMIT] is False


class _Attempt:
    """One step of a commit, tried on one base after another until it lands or cannot."""

    def __init__(
        self,
        session: TableSession,
        step: CommitStep,
        planned_on: Snapshot | None,
        overwritten: ChooseOverwritten | None,
        on_base: OnBase | None = None,
        write_again: WriteAgain | None = None,
    ) -> None:
        self.session = session
        self.step = step
        self.on_base = on_base if step.kind is not CommitKind.COMPACT else None
        self.given = step.properties
        self.planned_on = planned_on
        self.fitted_to = planned_on
        self.write_again = write_again
        self.overwritten = overwritten if step.kind is CommitKind.OVERWRITE else None
        self.started_millis = session.clock.now_millis()

    def run(self) -> Snapshot | None:
        """Return the snapshot that holds the step, or None if it changes nothing."""
        retries = 0
        while True:
            base, before = self._look()
            if before is not None:
                self._discard_replay(before)
                return before
            plan = self._plan(base)
            if plan.is_empty and not _wants_empty_snapshots(self.session.options):
                return None
            made = self._publish(plan)
            if made is not None:
                return made
            retries += 1
            self._wait(retries)

    def _look(self) -> tuple[Snapshot | None, Snapshot | None]:
        """Return the newest snapshot, and the one that proves that the step was committed before.

        Looks for the proof after every lost race: a replay may be racing with its first attempt.
        """
        snapshots = self.session.snapshots
        try:
            base = snapshots.latest()
            if self.step.commit_identifier == BATCH_COMMIT_IDENTIFIER:
                return base, None
            recent = snapshots.newest_first(LOOKBACK_SNAPSHOTS)
            return base, already_committed(self.step, recent)
        except LsmError:
            self._discard_staged()
            raise

    def _plan(self, base: Snapshot | None) -> CommitPlan:
        try:
            if base is not None and not same_state(base, self.fitted_to):
                self.step = reassigned(
                    self.session, self.step, self.fitted_to, base, self.write_again
                )
                self.step = rebase_step(self.session, self.step, base)
                self.fitted_to = base
            if self.session.schema.orders_by_snapshot and self.step.kind is not CommitKind.COMPACT:
                self.step = stamped(self.step, id_after(base))
            if self.on_base is not None:
                added = self.on_base(base, self.step.delta)
                if added:
                    properties = {**(self.given or {}), **added}
                    self.step = replace(self.step, properties=properties)
            since = self._since(base)
            plan = plan_commit(
                self.step,
                base,
                planned_on=self.planned_on,
                since=since,
                overwritten=self.overwritten(base) if self.overwritten is not None else (),
                counts_differ=chosen_by_size(self.session.options),
            )
            if not plan.scope.is_empty and base is not None:
                conflict = self._conflict(plan, base)
                if conflict is not None:
                    raise conflict.since(since or ()).error()
        except LsmError:
            self._discard_staged()
            raise
        return plan

    def _conflict(self, plan: CommitPlan, base: Snapshot) -> Conflict | None:
        session = self.session
        live = session.live_entries(base, plan.scope.holds)
        found = find_conflict(plan.delta, live, key_order=session.key_order)
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

    def _since(self, base: Snapshot | None) -> Sequence[Snapshot] | None:
        """Return the snapshots after the one the work was planned on; None if some have expired."""
        if base is None:
            return ()
        first = 1 if self.planned_on is None else self.planned_on.id + 1
        if base.id - first > LOOKBACK_SNAPSHOTS:
            return None
        try:
            return [self.session.snapshots.load(number) for number in range(first, base.id)] + (
                [base] if base.id >= first else []
            )
        except NotFoundError:
            return None

    def _publish(self, plan: CommitPlan) -> Snapshot | None:
        """Return the snapshot if it landed, None if somebody else took its id."""
        session = self.session
        written: WrittenMetadata | None = None
        try:
            written = write_metadata(session, plan)
            snapshot = snapshot_of(
                plan,
                written.files,
                schema_id=session.schema.id,
                now_millis=session.clock.now_millis(),
                writer_version=WRITER_VERSION,
            )
            if session.options[core_options.COMMIT_FSYNC]:
                session.file_io.sync([*written.paths, *session.staged_paths(self.step)])
        except (LsmError, OSError):
            discard_metadata(session, written)
            self._discard_staged()
            raise
        try:
            landed = self._land(snapshot)
        except StorageError:  # the storage says that the snapshot is not there
            discard_metadata(session, written)
            self._discard_staged()
            raise
        if landed and not withdrawn(session.snapshots, snapshot, plan.base):
            self._report(plan, snapshot, written)
            return snapshot
        discard_metadata(session, written)
        return None

    def _land(self, snapshot: Snapshot) -> bool:
        """Publish once, or as often as it takes to know the answer.

        Raises StorageError only if the snapshot is known not to be there.
        """
        snapshots = self.session.snapshots
        may_be_there = False
        for _ in range(1 + self.session.options[core_options.COMMIT_MAX_RETRIES]):
            try:
                if snapshots.publish(snapshot):
                    return True
            except CommitUnknownError:
                log.warning("publish of snapshot %d gave no answer; looking for it", snapshot.id)
                may_be_there = True
            except StorageError as cause:
                if may_be_there:
                    raise _unknown(snapshot) from cause
                raise
            match self._outcome(snapshot):
                case PublishOutcome.LANDED:
                    snapshots.announce(snapshot.id)
                    return True
                case PublishOutcome.LOST:
                    return False
                case PublishOutcome.UNKNOWN:
                    break
                case PublishOutcome.ABSENT:
                    pass
        raise _unknown(snapshot)

    def _outcome(self, snapshot: Snapshot) -> PublishOutcome:
        """Look who has the snapshot's id; what cannot be looked up is unknown, not lost."""
        snapshots = self.session.snapshots
        try:
            return resolve_publish(
                self.step,
                snapshot.id,
                found=snapshots.find(snapshot.id),
                latest_id=snapshots.latest_id(),
            )
        except LsmError as cause:
            raise _unknown(snapshot) from cause

    def _report(self, plan: CommitPlan, snapshot: Snapshot, written: WrittenMetadata) -> None:
        log.info(
            "published snapshot=%d kind=%s rows=%+d table=%s",
            snapshot.id,
            snapshot.commit_kind.value,
            plan.delta_record_count,
            self.session.name,
        )
        self.session.notify(
            lambda listener: listener.committed(
                self.session.name,
                CommittedFiles(
                    snapshot=snapshot,
                    schema=self.session.schema,
                    base_manifests=written.base,
                    delta_manifests=written.delta,
                    changelog_manifests=written.changelog,
                    delta=plan.delta,
                    changelog=plan.step.changelog,
                ),
            )
        )

    def _wait(self, retries: int) -> None:
        """Wait before the next try, doubling; give up past the bounds of the options."""
        options, clock = self.session.options, self.session.clock
        timeout = options[core_options.COMMIT_TIMEOUT]
        late = timeout is not None and clock.now_millis() - self.started_millis > timeout
        if late or retries > options[core_options.COMMIT_MAX_RETRIES]:
            self._discard_staged()
            raise CommitConflictError(
                "other writers took every snapshot id that this commit tried for; nothing of it is "
                "visible, try again or raise 'commit.max-retries'",
                kind=ErrorKind.RETRIES_EXHAUSTED,
                retries=retries,
                table=self.session.name,
            )
        longest = options[core_options.COMMIT_MAX_RETRY_WAIT]
        wait = min(longest, options[core_options.COMMIT_MIN_RETRY_WAIT] << min(retries - 1, 20))
        clock.sleep_millis(int(wait * (0.5 + self.session.ids.fraction() / 2)))

    def _discard_replay(self, before: Snapshot) -> None:
        """Delete files written for a replay, unless they may be the very files committed before.

        A proof by a later commit does not tell which files this one had: then all stay, as orphans.
        """
        if before.commit_identifier != self.step.commit_identifier:
            return
        committed = {
            entry.file.file_name
            for meta in self.session.manifest_list(before, before.delta_manifest_list)
            for entry in self.session.manifests.read_entries(meta)
            if entry.kind is EntryKind.ADD
        }
        staged = self.session.staged_paths(self.step)
        if not committed.intersection(path.rpartition("/")[2] for path in staged):
            self._discard_staged()

    def _discard_staged(self) -> None:
        """Delete the data files of work that is known not to be visible."""
        self.session.delete_staged(self.step)

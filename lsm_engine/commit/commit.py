"""Commit a proposal: every operation that makes a snapshot calls `propose` (docs/decisions/0033).

`_Attempts` tries one step of a proposal until it is visible, or known not to be:

1. Read the newest snapshot, the base. A replay returns the snapshot that was made before.
2. Rebase: number new rows above those of the base, and move them where another commit assigned buckets meanwhile.
3. Plan the snapshot, and look for conflicts with commits since the work was planned.
4. Write manifests and lists, and look for every file that the snapshot will name.
5. Publish it under the id after the base. If another commit has the id, wait, and begin again.

What is known not to be visible is deleted; files of a commit with an unknown outcome stay."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    ErrorKind,
    InvalidInputError,
    LsmError,
    NotFoundError,
)
from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER, checked_sequence
from lsm_engine.base.version import WRITER_VERSION
from lsm_engine.catalog.provenance import (
    INPUTS,
    RUN_KIND,
    RUN_PROPERTIES,
    RUN_STARTED_MILLIS,
)
from lsm_engine.commit.metadata_writer import WrittenMetadata, discard_metadata, write_metadata
from lsm_engine.commit.publish import (
    Retries,
    notify_published,
    publish,
    publish_schema,
    report,
)
from lsm_engine.commit.replays import History, Replays
from lsm_engine.format.commit_message import CommitMessage, Committable
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.format.index_file import IndexManifestEntry
from lsm_engine.format.manifest import BucketScope, ManifestEntry
from lsm_engine.format.snapshot import OPERATION, STARTED, Snapshot
from lsm_engine.metadata.manifests import keep_lists
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind, EntryKind, FileSource
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.buckets import chosen_by_size
from lsm_engine.planning.commit import (
    CommitPlan,
    CommitRules,
    lists_to_fetch,
    plan_commit,
    snapshot_of,
    with_identifiers,
)
from lsm_engine.planning.conflicts import (
    Conflict,
    find_conflict,
    find_row_id_conflict,
    find_vector_conflict,
)
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.proposal import (
    NO_CHANGE,
    CommitIdentity,
    CommitOutcome,
    CommitStep,
    LiveChange,
    Precondition,
    Proposal,
    RowsUnchanged,
    SameState,
    steps_of,
)
from lsm_engine.planning.row_ids import id_after, stamped
from lsm_engine.planning.snapshot_chain import (
    is_beside_others,
    is_built_on,
    is_of_another_client,
    with_base,
)
from lsm_engine.read.split import BucketReader
from lsm_engine.table.bucket_context import Staging
from lsm_engine.table.bucket_levels import NewestNumbers
from lsm_engine.table.incoming import IncomingRows
from lsm_engine.table.live_files import live_entries
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import bucket_levels, indexes_by_partition, staging_on
from lsm_engine.table.tags import AutoTags
from lsm_engine.table.time_travel import is_overtaken
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND

# -- Rebase ----------------------------------------------------------------------------------------
#
# Renumber new rows when another commit landed first, so that the later commit is the newer
# one.
#
# Writers number rows from what their base snapshot holds. Two writers on one base give equal
# numbers, and then nothing in the files shows whose row is newer. A commit that lands later
# therefore rewrites its own level-0 files with numbers above those that landed before it
# (decisions/0003).

_HEADROOM = 1 << 16
"""Sequence numbers left free where races are lost one after another."""


def rebase_step(
    session: TableSession,
    step: CommitStep,
    base: Snapshot,
    *,
    again: bool = False,
    keeps_files: bool = False,
) -> CommitStep:
    """Return the step with every new row numbered above all rows of `base` in its bucket.

    Files that are numbered high enough stay. Rewritten files are deleted, as no snapshot names them. `again`: a race
    was lost before; the new numbers leave room for those of other commits, so that the next attempt need not rewrite
    the files. `keeps_files`: keep the old files, as a snapshot that another client replaced named them, and may have been read.
    """
    new = [entry for entry in step.delta if _is_new(entry)]
    if not new or session.schema.bucket_mode.policy.is_unaware:
        return step  # rows of no bucket have no order
    if session.schema.orders_by_snapshot:
        return step  # the commit numbers them, without touching the files
    newest = NewestNumbers(bucket_levels(session, base))
    lowest: dict[tuple[bytes, int], int] = {}
    for entry in new:
        bucket = (entry.partition, entry.bucket)
        first = entry.file.min_sequence_number
        lowest[bucket] = min(first, lowest.get(bucket, first))
    offsets = {
        bucket: newest[bucket] + 1 - first + (_HEADROOM if again else 0)
        for bucket, first in lowest.items()
        if newest.get(bucket, -1) >= first
    }
    if not session.schema.has_primary_key:
        return replace(step, delta=tuple(_counted_from(entry, offsets) for entry in step.delta))
    moved = {
        entry.identity: _renumbered(session, entry, offsets[entry.partition, entry.bucket])
        for entry in new
        if (entry.partition, entry.bucket) in offsets
    }
    if not moved:
        return step
    if not keeps_files:
        session.delete_quietly(
            path
            for new_entry in new
            if new_entry.identity in moved
            for path in session.data_paths(new_entry)
        )
    delta = tuple(moved.get(entry.identity, entry) for entry in step.delta)
    return replace(step, delta=delta)


def _is_new(entry: ManifestEntry) -> bool:
    file = entry.file
    return entry.kind is EntryKind.ADD and file.level == 0 and file.file_source is FileSource.APPEND


def _counted_from(entry: ManifestEntry, offsets: Mapping[tuple[bytes, int], int]) -> ManifestEntry:
    """Renumber the rows of an append table: their numbers stand in manifests only."""
    offset = offsets.get((entry.partition, entry.bucket), 0)
    if not (offset and _is_new(entry)):
        return entry
    low, high = entry.file.min_sequence_number, entry.file.max_sequence_number
    checked_sequence(high + offset, 1)
    file = replace(entry.file, min_sequence_number=low + offset, max_sequence_number=high + offset)
    return replace(entry, file=file)


def _renumbered(session: TableSession, entry: ManifestEntry, offset: int) -> ManifestEntry:
    checked_sequence(entry.file.max_sequence_number + offset, 1)
    context = session.context([entry.file.schema_id])
    reader = BucketReader(context, entry.partition, entry.bucket)
    names = (*context.schema.names, SEQUENCE_NUMBER, VALUE_KIND)
    with context.new_files(
        (entry.partition, entry.bucket), level=0, source=FileSource.APPEND, never_roll=True
    ) as writer:
        for batch in reader.file(entry.file, names):
            writer.write(_shifted(batch, offset))
        (file,) = writer.close()
    return replace(entry, file=file)


def _shifted(batch: pa.RecordBatch, offset: int) -> pa.RecordBatch:
    index = batch.schema.get_field_index(SEQUENCE_NUMBER)
    columns = batch.columns
    columns[index] = pc.add(columns[index], offset)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


# -- Dynamic buckets when another writer assigned first --------------------------------------------
#
# The later commit takes their buckets over.
#
# Two writers on one base may give one key to two buckets. The later commit therefore looks
# which partitions got new bucket indexes meanwhile, and writes its rows of those again, by
# the newest indexes (decisions/0016). The rows are read from the staged files, as a stream that
# a user passed in has been read to its end by then.

WriteAgain = Callable[[Staging, Iterable[IncomingRows]], list[CommitMessage]]
"""Writes rows on top of a newer snapshot; write/writers.stage_incoming."""


def reassigned(
    session: TableSession,
    step: CommitStep,
    rebased_on: Snapshot | None,
    base: Snapshot,
    write_again: WriteAgain | None,
) -> CommitStep:
    """Return a step whose rows are in the buckets that `base` gives their keys.

    `rebased_on`: the snapshot whose bucket indexes the step used. Files written before are deleted.
    Raises CommitConflictError where rows would have to move and `write_again` is None.
    """
    moved = _moved_partitions(session, step, rebased_on, base)
    if not moved:
        return step
    if write_again is None:
        raise CommitConflictError(
            "another writer gave buckets to new keys of the same partition; try again",
            kind=ErrorKind.ROWS_CHANGED,
            table=session.name,
            partition_count=len(moved),
        )
    files = [entry for entry in step.delta if entry.partition in moved]
    # The changelog holds every row as it came; data files hold rows that are merged already.
    logged = [entry for entry in step.changelog if entry.partition in moved]
    rows = _staged_rows(session, logged or files)
    messages = write_again(staging_on(session, base), rows)
    committable = Committable(commit_user=step.commit_user, messages=tuple(messages))
    (step_again,) = steps_of(committable, uuids=[step.uuid, step.uuid], force=True)
    session.delete_quietly(
        [
            *(path for entry in (*files, *logged) for path in session.data_paths(entry)),
            *(
                session.paths.index_file(change.index_file.file_name)
                for change in step.index_changes
                if change.kind is EntryKind.ADD and change.partition in moved
            ),
        ]
    )
    return replace(
        step,
        delta=(*(e for e in step.delta if e.partition not in moved), *step_again.delta),
        changelog=(*(e for e in step.changelog if e.partition not in moved), *step_again.changelog),
        index_changes=(
            *(change for change in step.index_changes if change.partition not in moved),
            *step_again.index_changes,
        ),
    )


def _moved_partitions(
    session: TableSession, step: CommitStep, rebased_on: Snapshot | None, base: Snapshot
) -> frozenset[bytes]:
    """Return the step's partitions whose bucket indexes have changed since it used them."""
    if not session.schema.bucket_mode.policy.has_hash_index or step.kind is not CommitKind.APPEND:
        return frozenset()
    try:
        before = {} if rebased_on is None else _bucket_indexes(session, rebased_on)
    except NotFoundError:
        # The snapshot expired: its indexes are unknown, so every partition is written again.
        before = {}
    now = _bucket_indexes(session, base)
    touched = {entry.partition for entry in step.delta}
    return frozenset(part for part in touched if before.get(part) != now.get(part))


def _bucket_indexes(session: TableSession, snapshot: Snapshot) -> dict[bytes, frozenset[str]]:
    """Return the names of the index files of each partition's dynamic buckets."""
    indexes = indexes_by_partition(session.index_entries(snapshot))
    return {
        partition: frozenset(file.file_name for _, file in files)
        for partition, files in indexes.items()
    }


def _staged_rows(session: TableSession, entries: Iterable[ManifestEntry]) -> Iterator[IncomingRows]:
    """Yield rows that were staged; of one key in the order in which they came.

    `entries` are in the order of writing, which is not that of sequence numbers: the layers of a
    retract, and the files of one log, overlap in them.
    """
    names = session.schema.names
    for entry in entries:
        context = session.context([entry.file.schema_id])
        reader = BucketReader(context, entry.partition, entry.bucket)
        for batch in reader.file(entry.file, (*names, VALUE_KIND)):
            index = batch.schema.get_field_index(VALUE_KIND)
            yield IncomingRows(rows=batch.remove_column(index), kinds=batch.column(index))


# -- Preconditions of a commit ---------------------------------------------------------------------


def require(precondition: Precondition, base: Snapshot | None, snapshots: SnapshotStore) -> None:
    """Raise CommitConflictError, kind ROWS_CHANGED, where a precondition does not hold on `base`."""
    match precondition:
        case SameState(on=before):
            holds, reason = same_state(base, before), "others have committed"
        case RowsUnchanged(on=before):
            holds = same_state(base, before) or _only_compacted(before, base, snapshots)
            reason = "rows changed"
        case _:
            assert_never(precondition)
    if not holds:
        raise CommitConflictError(
            f"{reason} after the rows that this commit depends on were looked at; nothing of it is "
            "visible, try again",
            kind=ErrorKind.ROWS_CHANGED,
            looked_at=None if before is None else before.id,
            base=None if base is None else base.id,
        )


def _only_compacted(
    before: Snapshot | None, base: Snapshot | None, snapshots: SnapshotStore
) -> bool:
    if before is None or base is None or base.id <= before.id:
        return False
    if not same_state(snapshots.find(before.id), before):
        return False  # rolled back, or expired: what came in between is unknown
    between = (snapshots.find(number) for number in range(before.id + 1, base.id + 1))
    return all(
        snapshot is not None and snapshot.commit_kind is CommitKind.COMPACT for snapshot in between
    )


# -- Snapshots that another client has replaced ----------------------------------------------------
#
# Clients without an exclusive create look whether the name is free, and then rename over it: a
# commit that landed in between is lost without notice (docs/commit-protocol.md). So after a commit
# beside such a client the writer looks twice, immediately and 40 ms later, and commits again if
# its snapshot was replaced.

log = logging.getLogger(__name__)

LOOKS_AFTER_MILLIS = (0, 40)
"""Waits before the two looks; a rename that comes later is not noticed."""


def is_replaced(session: TableSession, landed: Snapshot) -> bool:
    """Whether another client has replaced a confirmed snapshot; False if only this engine commits to the table.

    A snapshot that other commits were built on is part of the table for good, and is put back. If the storage
    does not answer, the snapshot counts, as it was confirmed.
    """
    if not is_beside_others(landed):
        return False
    for wait in LOOKS_AFTER_MILLIS:
        session.clock.sleep_millis(wait)
        try:
            newer = session.snapshots.find(landed.id + 1)
            stored = session.snapshots.find(landed.id)
            if stored is None or same_state(stored, landed) or not is_of_another_client(stored):
                continue
            # A writer of this engine has built on ours: it is on the chain, and the other client's
            # commit is lost.
            if is_built_on(newer, landed):
                path = session.paths.snapshot_file(landed.id)
                session.file_io.replace(path, encode_snapshot(landed))
                return False
        except LsmError:
            # The commit has been confirmed; a look that fails takes nothing back.
            return False
        log.warning(
            "snapshot %d was replaced by user %r of another client; committing again",
            landed.id,
            stored.commit_user,
        )
        return True
    return False


def require_not_built_on(
    session: TableSession, base: Snapshot | None, vanished: Iterable[ManifestEntry]
) -> None:
    """Raise CommitUnknownError if files of a snapshot that was replaced are live all the same.

    Another client had read it before, and has built on it: committed again, the rows would count twice.
    """
    names = {(entry.partition, entry.bucket, entry.file.file_name) for entry in vanished}
    if not names or base is None:
        return
    places = {name[:2] for name in names}
    live = session.live_entries(base, BucketScope(buckets=frozenset(places)))
    if any((entry.partition, entry.bucket, entry.file.file_name) in names for entry in live):
        raise CommitUnknownError(
            "another client replaced the snapshot of this commit, and one built on it before: its "
            "rows are there; look for them before trying again",
            snapshot_id=base.id,
        )


# -- The commit ------------------------------------------------------------------------------------

ChooseOverwritten = Callable[[Snapshot | None], Sequence[ManifestEntry]]


def with_start(session: TableSession, identity: CommitIdentity) -> CommitIdentity:
    """Return the identity of an operation that begins; its commits carry the time, unless they carry that of a run."""
    properties = identity.properties or {}
    if STARTED in properties or RUN_STARTED_MILLIS in properties:
        return identity
    return replace(identity, properties={STARTED: str(session.clock.now_millis()), **properties})


def maintenance_identity(identity: CommitIdentity) -> CommitIdentity:
    """Return the identity for maintenance after a commit: that of the same run, without its inputs.

    For a numbered commit it has no number: the number belongs to the rows, and a second compaction with it
    would be taken for a replay of the first. It has another user, too, as other clients take the number of
    an unnumbered commit, which is the greatest there is, for the user's last one.
    """
    if identity.is_numbered:
        identity = replace(
            identity,
            commit_user=f"{identity.commit_user}-upkeep",
            commit_identifier=BATCH_COMMIT_IDENTIFIER,
        )
    if identity.properties is None:
        return identity
    # The maintenance begins after the commit.
    dropped = (INPUTS, STARTED)
    properties = {key: text for key, text in identity.properties.items() if key not in dropped}
    properties |= dict.fromkeys({RUN_KIND, OPERATION} & properties.keys(), "compact")
    return replace(identity, properties=properties)


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
        snapshot = _Attempts(session, proposal, step, planned_on, write_again).run()
        published = snapshot or published
        planned_on = snapshot or planned_on
    if published is not None:
        AutoTags(session).after_commit(published)
        if not proposal.is_followed_up:
            session.follow_iceberg()
    return published


def committed_before(
    session: TableSession, identity: CommitIdentity, kind: CommitKind
) -> Snapshot | None:
    """Return the snapshot that proves that a numbered commit is a replay, or None.

    For operations that would fail, or read much, before they could propose a commit.
    """
    if not identity.is_numbered:
        return None
    (step,) = Proposal(identity=identity, kind=kind).steps([session.ids.new_id()] * 2, force=True)
    return Replays(session, identity).proof(step, session.snapshots.latest())


def _wants_empty_snapshots(options: TableOptions) -> bool:
    forced = options[core_options.COMMIT_FORCE_CREATE_SNAPSHOT]
    return forced or options[core_options.SNAPSHOT_IGNORE_EMPTY_COMMIT] is False


def require_files(
    session: TableSession,
    paths: Sequence[str],
    base_paths: Sequence[str] = (),
    synced: frozenset[str] = frozenset(),
) -> frozenset[str]:
    """Look for every file that a snapshot will name, and force new ones to disk if asked to; return all that are.

    `base_paths` are new manifests of the base list; `synced`: files that are on disk already. Raises CommitConflictError
    for missing files.
    """
    on_disk = synced
    missing: NotFoundError | None = None
    if session.options[core_options.COMMIT_FSYNC] or session.file_io.facts.is_remote:
        new = [path for path in (*paths, *base_paths) if path not in synced]
        try:
            session.file_io.sync(new)
            on_disk = synced.union(new)
        except NotFoundError as cause:
            # The look below names every file that is missing, not the first one alone.
            missing = cause
    just_synced = on_disk - synced
    lost = [path for path in paths if path not in just_synced and not session.file_io.exists(path)]
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
    return on_disk


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
        # The later steps of a proposal are compactions, which choose and require nothing.
        is_first = step.kind is proposal.kind
        self.choose = proposal.choose if is_first else None
        self.requires = proposal.requires if is_first else None
        self.properties_on = proposal.properties_on if is_first else None
        self.own_properties = step.properties
        self.planned_on = planned_on
        self.rebased_on = planned_on
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
                    taken_id = self._taken_above(base)
                    landed = CommitOutcome.LOST if taken_id else self._attempt(base)
                if landed is not CommitOutcome.LOST:
                    return landed
                # Outside of the turn: a rollback deletes the file under the lock that a turn holds.
                if taken_id:
                    self.retries.wait_for(taken_id)
                else:
                    self.retries.wait()
        except CommitUnknownError:
            # The snapshot may be visible, so that every file that it names stays.
            raise
        except (LsmError, OSError) as error:
            # Staged files of a commit that may be in the table already may be those that it named.
            if isinstance(error, LsmError) and error.kind is ErrorKind.UNKNOWN_IDENTIFIER:
                discard_metadata(self.session, self.written)
            else:
                self._discard()
            raise

    def _next_base(self) -> Snapshot | None:
        """Return the newest snapshot.

        The first attempt takes the one that the writer saw a moment ago: if it is outdated, the create fails.
        """
        is_again = self.retries.lost
        return self.session.snapshots.latest() if is_again else self.session.newest_of_writer()

    def _taken_above(self, base: Snapshot | None) -> int:
        """Return the id above a base if a file that does not count has it, such as a placeholder; 0 if not."""
        # Only after a lost race on the same base: a commit that took the id would have become the base.
        if not self.retries.lost or not same_state(base, self.rebased_on):
            return 0
        return id_after(base) if self.session.snapshots.exists(id_after(base)) else 0

    def _attempt(self, base: Snapshot | None) -> Snapshot | Literal[CommitOutcome.LOST] | None:
        """Return the snapshot that holds the step on a base, None if it changes nothing, or LOST."""
        self.history.goes_on_to(base)
        # Before anything is planned: the files of a replay may be those of the commit itself.
        committed = self.replays.proof(self.step, base)
        if committed is not None:
            self._discard_replay(committed)
            return committed
        try:
            plan = self._plan(base)
            prepared = None if plan is None else self._prepared(plan)
        except NotFoundError:
            # The writer was paused until its base had expired, if a newer snapshot exists.
            if not is_overtaken(self.session.snapshots, base):
                raise
            return CommitOutcome.LOST  # as if another had taken the id
        if plan is None or prepared is None:
            discard_metadata(self.session, self.written)
            return None
        return self._publish(plan, *prepared)

    def _plan(self, base: Snapshot | None) -> CommitPlan | None:
        """Return the step on a base; None if that changes nothing."""
        session = self.session
        require_not_built_on(session, base, self.vanished)
        if self.requires is not None:
            require(self.requires, base, session.snapshots)
        change: LiveChange | None = NO_CHANGE if self.choose is None else self.choose(base)
        if change is None:
            return None
        if base is not None and not same_state(base, self.rebased_on):
            self.step = reassigned(session, self.step, self.rebased_on, base, self.write_again)
            self.step = rebase_step(
                session,
                self.step,
                base,
                again=self.retries.lost > 1,
                keeps_files=bool(self.vanished),
            )
            self.rebased_on = base
        if session.schema.orders_by_snapshot and self.step.kind is not CommitKind.COMPACT:
            self.step = stamped(self.step, id_after(base))
        # Computed for each base anew, as the properties of the last attempt may be wrong on this one.
        if self.properties_on is not None:
            added = self.properties_on(base, self.step.delta)
            properties = {**(self.own_properties or {}), **added}
            self.step = replace(self.step, properties=properties or None)
        since = self.history.since(base)
        plan = plan_commit(
            self.step,
            base,
            planned_on=self.planned_on,
            since=since,
            change=change,
            rules=CommitRules(
                counts_differ=chosen_by_size(session.options),
                tracks_rows=session.schema.tracks_rows,
            ),
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
        conflict = find_conflict(plan.delta, live, key_order=session.key_order)
        if conflict is None and session.schema.evolves_data:
            planned_id = 0 if self.planned_on is None else self.planned_on.id
            conflict = find_row_id_conflict(plan, live, planned_on_id=planned_id)
        if conflict is not None or (base.index_manifest is None and not self.step.index_changes):
            return conflict
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
        # Before the create: a visible snapshot may not name a missing file.
        self._require_files(written)
        # The file of commit identifiers changes before the snapshot that relies on it.
        self.replays.record_before(plan.step, plan.base)
        return written, snapshot

    def _publish(
        self, plan: CommitPlan, written: WrittenMetadata, snapshot: Snapshot
    ) -> Snapshot | Literal[CommitOutcome.LOST]:
        """Return the snapshot if it landed, LOST if another commit took its id."""
        session = self.session
        if publish(session, snapshot, plan.base) is CommitOutcome.LOST:
            return CommitOutcome.LOST
        if is_replaced(session, snapshot):
            # Another client may have read it: its files stay, and are orphans once it is committed again.
            self.vanished, self.written = (*self.vanished, *plan.delta), None
            return CommitOutcome.LOST
        report(session, snapshot)
        if is_beside_others(snapshot):
            notify_published(session, snapshot, plan.base)
        self.replays.record_landed(plan.step, snapshot, plan.base)
        return snapshot

    def _require_files(self, written: WrittenMetadata) -> None:
        """Look for every file that the snapshot will name, and force new ones to disk if asked to."""
        paths = (*written.change_paths, *self.session.staged_paths(self.step))
        self.synced = require_files(self.session, paths, written.base_paths, self.synced)

    def _discard_replay(self, before: Snapshot) -> None:
        """Delete files written for a replay, unless they may be the very files committed before.

        A proof by a later commit does not show which files this one had: then all of them stay, as orphan files.
        """
        discard_metadata(self.session, self.written)
        own = (self.step.commit_user, self.step.commit_identifier)
        if (before.commit_user, before.commit_identifier) != own:
            return
        try:
            committed = {
                entry.file.file_name
                for entry in self.session.list_entries(before, before.delta_manifest_list)
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
        # Another client may have read the replaced snapshot, whose files are these.
        if not self.vanished:
            self.session.delete_staged(self.step)


# -- Snapshots of other clients, published for them ------------------------------------------------
#
# A client of a REST catalog writes data files, manifests and lists itself, and passes the snapshot that
# names them. The snapshot is checked against its base, its files are looked for, and it is published and
# confirmed as every other one.

_OWN_PROPERTIES = "lsm."
_PROVENANCE = (RUN_PROPERTIES, INPUTS)


def commit_snapshot(
    session: TableSession, snapshot: Snapshot, base_uuid: str | None = None
) -> bool:
    """Publish a snapshot that another client has made; return whether it is in the table.

    `base_uuid`: that of the snapshot that it was made on; None: the client knows none. False: it was made on another
    snapshot than the newest, or another commit has its id; nothing of it is visible. The same snapshot again is in the
    table once. Raises CommitConflictError and InvalidInputError, with nothing visible, for files that are missing or do not
    fit the base, CommitUnknownError where the snapshot may be visible.
    """
    if snapshot.id < 1:
        raise InvalidInputError("ids of snapshots begin with 1", snapshot_id=snapshot.id)
    with Retries(session).turn():
        base = session.snapshots.latest()
        if base is not None and base.id >= snapshot.id:
            return _was_committed(session, snapshot)
        if snapshot.id != id_after(base) or not _is_base(base, base_uuid):
            return False
        # Read together: decoding two small files costs little more than one.
        lists = lists_to_fetch(snapshot)
        keep_lists((session.manifests, name, snapshot.checksum_of(name)) for name in lists)
        try:
            step = _step_of(session, snapshot, base)
            _require_live_files_of(session, base, snapshot)
            _require_fit(session, snapshot, step, base)
        except NotFoundError as missing:
            if session.identity.is_dropped():
                raise session.identity.dropped() from missing
            raise CommitConflictError(
                "files that the snapshot names are missing, so that nothing was published; write the rows again",
                kind=ErrorKind.STAGED_FILES_GONE,
                snapshot_id=snapshot.id,
                **missing.facts,
            ) from missing
        landed = _published(session, snapshot, step, base)
    if landed is None:
        return False
    AutoTags(session).after_commit(landed)
    notify_published(session, landed, base)
    return True


def _was_committed(session: TableSession, snapshot: Snapshot) -> bool:
    """Whether a snapshot whose id is taken is the one that has it; CommitUnknownError if that has expired."""
    stored = session.snapshots.find(snapshot.id)
    if stored is None:
        raise CommitUnknownError(
            "the snapshot of this id has expired, so that it is unknown whether it was this one; look for its rows "
            "before trying again",
            snapshot_id=snapshot.id,
            uuid=snapshot.uuid,
        )
    return same_state(stored, snapshot)


def _is_base(base: Snapshot | None, base_uuid: str | None) -> bool:
    return base_uuid is None or (base is not None and base.uuid == base_uuid)


def _step_of(session: TableSession, snapshot: Snapshot, base: Snapshot | None) -> CommitStep:
    """Return what a snapshot changes, by its own delta and changelog lists and its index manifest."""
    index = session.index_entries(snapshot)
    former = set() if base is None else {entry.index_file for entry in session.index_entries(base)}
    return CommitStep(
        kind=snapshot.commit_kind,
        uuid=snapshot.uuid or snapshot.delta_manifest_list,
        commit_user=snapshot.commit_user,
        commit_identifier=snapshot.commit_identifier,
        delta=_listed_entries(session, snapshot, snapshot.delta_manifest_list),
        changelog=_listed_entries(session, snapshot, snapshot.changelog_manifest_list),
        index_changes=tuple(entry for entry in index if entry.index_file not in former),
    )


def _listed_entries(
    session: TableSession, snapshot: Snapshot, name: str | None
) -> tuple[ManifestEntry, ...]:
    manifests = () if name is None else session.manifest_list(snapshot, name)
    return tuple(
        entry for manifest in manifests for entry in session.manifests.read_entries(manifest)
    )


def _require_live_files_of(
    session: TableSession, base: Snapshot | None, snapshot: Snapshot
) -> None:
    """Raise CommitConflictError unless the base list of a snapshot holds the live files of the base.

    A client may have read another snapshot of this id, which was rolled back, and names the uuid that it saw last. A list
    of the same manifests is no more than read; one that the client has merged is compared file by file.
    """
    own = session.manifest_list(snapshot, snapshot.base_manifest_list)
    manifests = [] if base is None else session.manifest_metas(base)
    if {manifest.file_name for manifest in own} == {manifest.file_name for manifest in manifests}:
        return
    live = {entry.identity for entry in live_entries(session.manifests, manifests)}
    if {entry.identity for entry in live_entries(session.manifests, own)} != live:
        raise CommitConflictError(
            "the snapshot was not made on the newest one, whose files its base list does not hold; nothing was "
            "published, read the newest snapshot and commit again",
            snapshot_id=snapshot.id,
            table=session.name,
        )


def _require_fit(
    session: TableSession, snapshot: Snapshot, step: CommitStep, base: Snapshot | None
) -> None:
    """Raise where a snapshot's counts, schema or files do not fit its base, or its files are missing."""
    try:
        session.schemas.load(snapshot.schema_id)
    except NotFoundError as missing:
        raise InvalidInputError(
            "the table has no schema of the id that the snapshot names; nothing was published",
            kind=ErrorKind.INVALID_SCHEMA,
            schema_id=snapshot.schema_id,
        ) from missing
    _require_counts(snapshot, step, base)
    scope = _contended(session, step)
    if not scope.is_empty:
        live = [] if base is None else session.live_entries(base, scope)
        conflict = find_conflict(step.delta, live, key_order=session.key_order)
        if conflict is not None:
            raise conflict.error()
    former = frozenset() if base is None else _metadata_names(session, base)
    new_names = sorted(_metadata_names(session, snapshot) - former)
    paths = [session.paths.manifest(name) for name in new_names]
    if snapshot.statistics is not None and (base is None or snapshot.statistics != base.statistics):
        paths.append(session.paths.statistics_file(snapshot.statistics))
    require_files(session, [*paths, *session.staged_paths(step)])
    _require_external_files(session, step)
    _require_sizes(session, snapshot)


def _require_external_files(session: TableSession, step: CommitStep) -> None:
    """Raise NotFoundError where files that a client has put outside of the table's directory are missing."""
    context = session.context()
    for entry in (*step.delta, *step.changelog):
        if entry.kind is EntryKind.ADD and entry.file.external_path is not None:
            file_io, path = context.place_of((entry.partition, entry.bucket), entry.file)
            file_io.status(path)


def _require_counts(snapshot: Snapshot, step: CommitStep, base: Snapshot | None) -> None:
    """Raise InvalidInputError where the counts of a snapshot are not those of its base and its own files."""
    own_rows = sum(
        entry.file.row_count if entry.kind is EntryKind.ADD else -entry.file.row_count
        for entry in step.delta
    )
    before = 0 if base is None else base.total_record_count
    total = None if before is None else before + own_rows
    for name, stated, count in (
        ("deltaRecordCount", snapshot.delta_record_count, own_rows),
        ("totalRecordCount", snapshot.total_record_count, total),
    ):
        if None not in (stated, count) and stated != count:
            raise InvalidInputError(
                f"{name} of the snapshot is {stated}, but its base and the files of its delta make {count}; nothing was "
                "published",
                member=name,
            )
    next_row_id = None if base is None else base.next_row_id
    if next_row_id is not None and (snapshot.next_row_id or 0) < next_row_id:
        # The ids of rows would be given a second time.
        raise InvalidInputError(
            f"nextRowId of the snapshot is {snapshot.next_row_id}, and rows of its base have greater ids: "
            f"its nextRowId is {next_row_id}; nothing was published",
            member="nextRowId",
        )


def _contended(session: TableSession, step: CommitStep) -> BucketScope:
    """Return where live files may be in the way of a step, which was planned at some time before its base.

    Files added to level 0 are in the way of nothing, unless they were written for another number of buckets.
    """
    counts = {session.schema.bucket_count}
    if session.schema.id > 0:
        counts = {schema.bucket_count for schema in session.schemas.all()}
    counts |= {entry.total_buckets for entry in step.delta if entry.bucket >= 0}
    if len(counts) > 1:
        return BucketScope(partitions=frozenset(entry.partition for entry in step.delta))
    return BucketScope(
        buckets=frozenset(
            (entry.partition, entry.bucket)
            for entry in step.delta
            if entry.kind is EntryKind.DELETE or entry.file.level > 0
        )
    )


def _require_sizes(session: TableSession, snapshot: Snapshot) -> None:
    """Raise InvalidInputError where a list has another size than the snapshot has recorded: clients could not read it."""
    for name, size in (
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
    ):
        if name is None or size is None:
            continue
        path = session.paths.manifest(name)
        stored_size = session.file_io.status(path).size
        if stored_size != size:
            raise InvalidInputError(
                f"the snapshot records {size} bytes of a manifest list of {stored_size}; nothing was published",
                path=path,
            )


def _metadata_names(session: TableSession, snapshot: Snapshot) -> frozenset[str]:
    """Return the names of a snapshot's lists, manifests and index manifest."""
    lists = (
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        snapshot.changelog_manifest_list,
    )
    list_names = [name for name in lists if name is not None]
    manifests = (
        manifest.file_name
        for name in list_names
        for manifest in session.manifest_list(snapshot, name)
    )
    index = () if snapshot.index_manifest is None else (snapshot.index_manifest,)
    return frozenset((*list_names, *manifests, *index))


def _published(
    session: TableSession, snapshot: Snapshot, step: CommitStep, base: Snapshot | None
) -> Snapshot | None:
    """Publish a snapshot under the name of its base, and with the commit identifiers; None if another has its id."""
    identity = CommitIdentity(
        commit_user=snapshot.commit_user, commit_identifier=snapshot.commit_identifier
    )
    replays = Replays(session, identity)
    # What a client hands on of another snapshot's would be wrong of this one.
    own_properties = {
        name: text
        for name, text in (snapshot.properties or {}).items()
        if not name.startswith(_OWN_PROPERTIES) or name.startswith(_PROVENANCE)
    }
    chained = replace(
        snapshot,
        properties=with_base(
            with_identifiers(own_properties, replays.property_on(step, base)), base
        ),
        manifest_lists=None,
        checksums=None,
    )
    replays.record_before(step, base)
    if publish(session, chained, base) is CommitOutcome.LOST or is_replaced(session, chained):
        return None
    report(session, chained)
    replays.record_landed(step, chained, base)
    return chained

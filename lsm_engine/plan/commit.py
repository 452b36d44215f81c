"""One commit step on one base: what the next snapshot holds, and what has to be true before.

The walk of a commit: `commit_steps.steps_of` returns the snapshots that a committable needs. Each step
is planned on the newest snapshot by `plan_commit`, and again whenever that snapshot turns out not to
be the newest any more. plan/conflicts checks the plan; `snapshot_of` writes it down once its
manifests have names. plan/ownership answers "is it mine?" after a replay or a lost answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.ids import FIRST_SNAPSHOT_ID, LONG_MAX
from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.base.record import record
from lsm_engine.codec.documents import COMMIT_IDENTIFIERS
from lsm_engine.meta.index_file import DELETION_VECTORS, HASH, IndexManifestEntry
from lsm_engine.meta.manifest import Bucket, BucketScope, ManifestEntry, ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.commit_steps import CommitStep
from lsm_engine.plan.live_snapshots import with_base
from lsm_engine.plan.named_manifests import packed_lists, with_manifests
from lsm_engine.plan.ownership import same_state
from lsm_engine.plan.proposal import NO_CHANGE, LiveChange
from lsm_engine.plan.row_ids import with_row_ids
from lsm_engine.plan.snapshot_time import is_far_ahead


@record
class CommitPlan:
    """A step on one base: what the next snapshot will hold, and what has to be true before.

    `scope` names the buckets whose live entries plan/conflicts must see; empty: nothing to check.
    `change` is what was chosen on the base. Counts are of rows, not merged; the total is None where
    the base does not know its own.
    """

    step: CommitStep
    base: Snapshot | None
    change: LiveChange
    delta: tuple[ManifestEntry, ...]
    overwritten: frozenset[Bucket]
    scope: BucketScope
    delta_record_count: int
    total_record_count: int | None
    changelog_record_count: int
    next_row_id: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the snapshot would change nothing."""
        changes = self.delta or self.step.changelog or self.step.index_changes
        return not (changes or self.change.state or self.change.rewrites_manifests)

    @property
    def snapshot_id(self) -> int:
        """The id that this plan publishes under."""
        return FIRST_SNAPSHOT_ID if self.base is None else self.base.id + 1


@record
class SnapshotFiles:
    """The metadata files written for one attempt, by bare name; sizes in bytes."""

    base_manifest_list: str
    base_manifest_list_size: int
    delta_manifest_list: str
    delta_manifest_list_size: int
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    checksums: Mapping[str, int] = field(default_factory=dict)  # of these and the schema, by name
    named_manifests: tuple[
        ManifestFileMeta, ...
    ] = ()  # manifests that the snapshot names, for readers from afar
    lists: Mapping[str, bytes] = field(default_factory=dict)  # what lists hold, for them too


def plan_commit(
    step: CommitStep,
    base: Snapshot | None,
    *,
    planned_on: Snapshot | None,
    since: Sequence[Snapshot] | None = None,
    change: LiveChange = NO_CHANGE,
    counts_differ: bool = False,
    tracks_rows: bool = False,
) -> CommitPlan:
    """Plan `step` on `base`, the newest snapshot (None: the table is empty).

    `planned_on` is the snapshot that the work was done against. `since` holds the snapshots after it
    up to and including `base`; None means that they are not known, because some have expired.
    `change` is what was chosen on `base` (never on an older one). `counts_differ`: writers may give a
    new partition different numbers of buckets, as its size asks. `tracks_rows`: new rows get ids.
    """
    assert step.kind is CommitKind.OVERWRITE or not change.deleted, step.kind
    if base is not None and base.id >= LONG_MAX:
        raise UnsupportedError(
            "the table has no snapshot id left: its newest is the largest there can be; roll back to "
            "an older snapshot, or copy the rows to a new table",
            snapshot_id=base.id,
        )
    deletes = (_entry_like(entry, EntryKind.DELETE) for entry in change.deleted)
    delta = (*deletes, *(_entry_like(entry, EntryKind.ADD) for entry in change.back), *step.delta)
    next_row_id = None if base is None else base.next_row_id
    if tracks_rows:
        delta, next_row_id = with_row_ids(delta, base)
    delta_rows = sum(
        entry.file.row_count if entry.kind is EntryKind.ADD else -entry.file.row_count
        for entry in delta
    )
    before = 0 if base is None else base.total_record_count
    if change.base_record_count is not None and before is not None:
        delta_rows += change.base_record_count - before
    return CommitPlan(
        step=step,
        base=base,
        change=change,
        delta=delta,
        overwritten=frozenset((entry.partition, entry.bucket) for entry in change.deleted),
        scope=_scope(step, base, planned_on, None if counts_differ else since, delta),
        delta_record_count=delta_rows,
        total_record_count=None if before is None else before + delta_rows,
        changelog_record_count=sum(entry.file.row_count for entry in step.changelog),
        next_row_id=next_row_id,
    )


def snapshot_of(
    plan: CommitPlan,
    files: SnapshotFiles,
    *,
    schema_id: int,
    now_millis: int,
    writer_version: str | None = None,
    commit_identifiers: str | None = None,
) -> Snapshot:
    """Return the snapshot that publishes `plan`; `commit_identifiers`: its property of that name.

    Its time never lies before its base's, so that "the newest at or before" has one answer, unless
    the base was made by a clock that was days ahead: that is not handed on. The index manifest, the
    watermark and statistics of the base live on, the last not over an overwrite; where a former
    state is restored, its own index manifest and watermark.
    """
    base, step = plan.base, plan.step
    is_ahead = base is not None and is_far_ahead(base.time_millis, now_millis)
    assert bool(step.changelog) == (files.changelog_manifest_list is not None), step
    state = plan.change.state or base
    inherited_index = None if state is None else state.index_manifest
    marks = [
        mark for mark in (step.watermark, state.watermark if state else None) if mark is not None
    ]
    drops_statistics = step.kind is CommitKind.OVERWRITE or plan.change.drops_statistics
    return Snapshot(
        id=plan.snapshot_id,
        schema_id=schema_id,
        base_manifest_list=files.base_manifest_list,
        base_manifest_list_size=files.base_manifest_list_size,
        delta_manifest_list=files.delta_manifest_list,
        delta_manifest_list_size=files.delta_manifest_list_size,
        changelog_manifest_list=files.changelog_manifest_list,
        changelog_manifest_list_size=files.changelog_manifest_list_size,
        index_manifest=files.index_manifest if rewrites_index(plan) else inherited_index,
        commit_user=step.commit_user,
        commit_identifier=step.commit_identifier,
        commit_kind=step.kind,
        time_millis=now_millis if base is None or is_ahead else max(now_millis, base.time_millis),
        total_record_count=plan.total_record_count,
        delta_record_count=plan.delta_record_count,
        changelog_record_count=plan.changelog_record_count if step.changelog else None,
        watermark=max(marks) if marks else None,
        statistics=None if base is None or drops_statistics else base.statistics,
        properties=with_manifests(
            with_base(_with_identifiers(step.properties, commit_identifiers), base),
            files.named_manifests,
        ),
        manifest_lists=packed_lists(
            files.lists.get(files.base_manifest_list), files.lists.get(files.delta_manifest_list)
        ),
        next_row_id=plan.next_row_id,
        uuid=step.uuid,
        writer_version=writer_version,
        checksums=_checksums(state, files, None if rewrites_index(plan) else inherited_index),
    )


def _with_identifiers(
    properties: Mapping[str, str] | None, text: str | None
) -> Mapping[str, str] | None:
    """Return properties with those commit identifiers; a writer may hand in the properties of another snapshot."""
    others = {
        name: value for name, value in (properties or {}).items() if name != COMMIT_IDENTIFIERS
    }
    return others if text is None else {**others, COMMIT_IDENTIFIERS: text}


def _checksums(
    state: Snapshot | None, files: SnapshotFiles, inherited_index: str | None
) -> Mapping[str, int] | None:
    checksums = dict(files.checksums)
    if state is not None and inherited_index is not None:
        checksum = state.checksum_of(inherited_index)
        if checksum is not None:
            checksums[inherited_index] = checksum
    return checksums or None


def index_entries_after(
    existing: Iterable[IndexManifestEntry], plan: CommitPlan
) -> tuple[IndexManifestEntry, ...]:
    """Return the complete index manifest of the next snapshot; call it if `rewrites_index(plan)`.

    Index files of overwritten buckets go, deleted ones go, new ones come last. Where an overwrite
    brings indexes of dynamic buckets, those of its whole partition go: a bucket without a file may
    still have one, and would keep keys that another bucket has now.
    """
    deleted = {
        change.index_file.file_name
        for change in plan.step.index_changes
        if change.kind is EntryKind.DELETE
    }
    assigned = frozenset(
        change.partition
        for change in plan.step.index_changes
        if plan.step.kind is CommitKind.OVERWRITE and change.index_file.index_type == HASH
    )
    remaining = (
        entry
        for entry in existing
        if entry.index_file.file_name not in deleted
        and (entry.partition, entry.bucket) not in plan.overwritten
        and not (entry.partition in assigned and entry.index_file.index_type == HASH)
    )
    new = (change for change in plan.step.index_changes if change.kind is EntryKind.ADD)
    return (*remaining, *new)


def rewrites_index(plan: CommitPlan) -> bool:
    """Whether the next snapshot needs an index manifest of its own (else a former one lives on)."""
    if plan.change.state is not None:
        return False
    inherited = plan.base is not None and plan.base.index_manifest is not None
    return bool(plan.step.index_changes) or (inherited and bool(plan.overwritten))


# --- what has to be checked ----------------------------------------------------------------------


def _scope(
    step: CommitStep,
    base: Snapshot | None,
    planned_on: Snapshot | None,
    since: Sequence[Snapshot] | None,
    delta: Sequence[ManifestEntry],
) -> BucketScope:
    if same_state(base, planned_on) or not (step.delta or step.index_changes):
        return BucketScope()  # what was chosen on the base cannot be in its way
    marked = frozenset(
        (change.partition, change.bucket)
        for change in step.index_changes
        if change.kind is EntryKind.ADD and change.index_file.index_type == DELETION_VECTORS
    )
    buckets = marked | frozenset((entry.partition, entry.bucket) for entry in delta)
    if step.kind is CommitKind.OVERWRITE:
        # It may change the number of buckets: what others put beside them has to be seen.
        return BucketScope(partitions=frozenset(partition for partition, _ in buckets))
    if step.kind is not CommitKind.APPEND:
        return BucketScope(buckets=buckets)
    contended = marked | frozenset(
        (entry.partition, entry.bucket)
        for entry in delta
        if entry.kind is EntryKind.DELETE or entry.file.level > 0
    )
    # New values of rows that have ids already: their other columns have to be there.
    contended |= frozenset(
        (entry.partition, entry.bucket)
        for entry in step.delta
        if entry.file.first_row_id is not None
    )
    if not _bucket_count_may_differ(planned_on, since):
        return BucketScope(buckets=contended)
    # Any bucket of the partition may record the new count, not only those written to.
    return BucketScope(partitions=frozenset(partition for partition, _ in buckets))


def _bucket_count_may_differ(planned_on: Snapshot | None, since: Sequence[Snapshot] | None) -> bool:
    """Only an overwrite rescales a partition; a first commit or a new schema may differ as well."""
    if since is None or planned_on is None:
        return True
    return any(
        snapshot.commit_kind is CommitKind.OVERWRITE or snapshot.schema_id != planned_on.schema_id
        for snapshot in since
    )


def _entry_like(entry: ManifestEntry, kind: EntryKind) -> ManifestEntry:
    return ManifestEntry(
        kind=kind,
        partition=entry.partition,
        bucket=entry.bucket,
        total_buckets=entry.total_buckets,
        file=entry.file,
    )

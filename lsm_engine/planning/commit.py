"""Plan one commit step on one base: what the next snapshot holds, and what must be checked before.

`plan_commit` plans a step (planning/proposal.steps_of) on the newest snapshot, and again on each newer one.
planning/conflicts checks the plan. `snapshot_of` makes the snapshot once its manifests are written.
planning/ownership recognizes a replay, and the own snapshot after a lost answer."""

import base64
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.base.units import FIRST_SNAPSHOT_ID, LONG_MAX
from lsm_engine.format.documents import COMMIT_IDENTIFIERS
from lsm_engine.format.index_file import DELETION_VECTORS, HASH, IndexManifestEntry
from lsm_engine.format.manifest import Bucket, BucketScope, ManifestEntry, ManifestFileMeta
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.proposal import NO_CHANGE, CommitStep, LiveChange
from lsm_engine.planning.row_ids import with_row_ids
from lsm_engine.planning.snapshot_chain import is_far_ahead, with_base

# -- Manifests named in a snapshot, for readers of a remote store ----------------------------------
#
# A snapshot holds the names of its manifests, and a copy of its two lists.
#
# The names are advice: a reader that knows them fetches the manifests concurrently, and saves a
# round. Only few and small manifests are named, as a filter may need only some of them. The copy
# of a list saves a request; it is used if it has the checksum that the snapshot keeps of the list.

MANIFESTS = "lsm.manifests"
"""Property of a snapshot: the names of its manifests, with a blank between."""

_LISTS_MAX = 16 << 10  # bytes of both, before they are compressed
_STATE = "at:"
_COUNT_MAX = 40
_NOTE_MAX = 1_900  # bytes; stores take 2,048 of metadata with its names
_PREFIX = "manifest-"
_BYTES_MAX = 1 << 20
_NAME = re.compile(r"manifest-[0-9A-Za-z-]{1,80}")


def with_manifests(
    properties: Mapping[str, str] | None, manifests: Sequence[ManifestFileMeta]
) -> Mapping[str, str] | None:
    """Return properties that name manifests, if those are few and small."""
    names = [manifest.file_name for manifest in manifests]
    size = sum(manifest.file_size for manifest in manifests)
    if (
        not 0 < len(names) <= _COUNT_MAX
        or size > _BYTES_MAX
        or not all(map(_NAME.fullmatch, names))
    ):
        return properties
    return {**(properties or {}), MANIFESTS: " ".join(names)}


def packed_lists(base: bytes | None, delta: bytes | None) -> str | None:
    """Return a copy of two manifest lists for their snapshot (`Snapshot.manifest_lists`); None for large ones."""
    if base is None or delta is None or len(base) + len(delta) > _LISTS_MAX:
        return None
    return base64.b64encode(zlib.compress(base + delta, 9)).decode()


def copied_lists(snapshot: Snapshot) -> Mapping[str, bytes]:
    """Return the copy of its manifest lists that a snapshot has, by name: to be checked; empty without one."""
    text = snapshot.manifest_lists
    base_size, delta_size = snapshot.base_manifest_list_size, snapshot.delta_manifest_list_size
    if not text or base_size is None or delta_size is None:
        return {}
    size = base_size + delta_size
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text), _LISTS_MAX)
    except (ValueError, zlib.error):
        # The copy only saves requests: the lists themselves are read then.
        return {}
    if len(data) != size:
        return {}
    return {
        snapshot.base_manifest_list: data[:base_size],
        snapshot.delta_manifest_list: data[base_size:],
    }


def lists_to_fetch(snapshot: Snapshot) -> list[str]:
    """Return the names of a snapshot's manifest lists, unless it has a copy of them."""
    if snapshot.manifest_lists is not None:
        return []
    return [snapshot.base_manifest_list, snapshot.delta_manifest_list]


def named_manifests(snapshot: Snapshot) -> list[str]:
    """Return the names of manifests that a snapshot may have."""
    words = (snapshot.properties or {}).get(MANIFESTS, "").split()
    return [name for name in words[:_COUNT_MAX] if _NAME.fullmatch(name)]


def new_manifests(snapshot: Snapshot) -> list[str]:
    """Return those among them that the snapshot itself may have added: a commit has one id for its files."""
    commit = snapshot.delta_manifest_list.removeprefix("manifest-list-").rpartition("-")[0]
    return [name for name in named_manifests(snapshot) if commit and f"-{commit}-" in name]


def note_of_files(snapshot: Snapshot) -> str:
    """Return which state it is, and its files to be fetched, as a note beside LATEST; the first ones, if too many."""
    files = filter(_NAME.fullmatch, [*lists_to_fetch(snapshot), *named_manifests(snapshot)])
    names = [snapshot.delta_manifest_list, *files]
    note = _STATE + " ".join(name.removeprefix(_PREFIX) for name in names)
    return note if len(note) <= _NOTE_MAX else note[:_NOTE_MAX].rpartition(" ")[0]


def noted_state(note: str) -> str | None:
    """Return the delta manifest list of the snapshot that a note was written for: one that was found to count."""
    first = note.partition(" ")[0]
    return _PREFIX + first.removeprefix(_STATE) if first.startswith(_STATE) else None


def noted_files(note: str) -> list[str]:
    """Return the names in a note; what can be no name of ours is left out."""
    names = (_PREFIX + word for word in note.split()[: _COUNT_MAX + 2])
    return [name for name in names if _NAME.fullmatch(name)]


# -- Manifest merge --------------------------------------------------------------------------------
#
# Which manifests become one, so that neither the base list nor a commit grows with the table.
#
# Two shapes. Minor: neighbouring small manifests are joined, the newest first and older ones
# only while they are no bigger than twice what has been gathered; so each entry is rewritten a
# logarithmic number of times and no commit rewrites the whole tail. Full: once manifests with
# DELETE entries weigh more than a threshold, they are rewritten together with those whose files
# they delete.

Place = tuple[bytes, int, int]
"""(partition, bucket, level)."""
ENTRIES_MAX = 50_000
"""Entries that a merged manifest gets at most: readers decode one as a whole."""
_GROUP_MANIFESTS = 4
"""Full manifests that one task of a rewrite reads."""
_MORE = 2  # times as many bytes as were gathered may an older manifest have


@record
class Keep:
    """A manifest that the next snapshot keeps."""

    meta: ManifestFileMeta


@record
class MergeGroup:
    """Manifests, oldest first, whose folded entries become new manifests in this place.

    `is_complete`: the group holds the ADD of every DELETE in it, so that a DELETE left standing
    after the fold is corruption (format/manifest.live_files) and not a file of an older manifest.
    """

    metas: tuple[ManifestFileMeta, ...]
    is_complete: bool = False


@record
class ManifestMerge:
    """The next base list, oldest first: what is kept and what is merged, and why."""

    parts: tuple[Keep | MergeGroup, ...]
    reason: str

    @property
    def remaining(self) -> tuple[ManifestFileMeta, ...]:
        """Manifests that the next snapshot keeps."""
        return tuple(part.meta for part in self.parts if isinstance(part, Keep))

    @property
    def groups(self) -> tuple[MergeGroup, ...]:
        """Groups to be merged, oldest first."""
        return tuple(part for part in self.parts if isinstance(part, MergeGroup))


@record
class ManifestGroup:
    """Manifests next to each other that one task writes anew. `number`: the place of the group among all."""

    number: int
    metas: tuple[ManifestFileMeta, ...]

    subject = "manifests"
    """What an executor says that it reads."""

    @property
    def size_bytes(self) -> int:
        """The bytes that are read."""
        return sum(meta.file_size for meta in self.metas)


def plan_rewrite(
    metas: Iterable[ManifestFileMeta], *, target_size_bytes: int
) -> tuple[ManifestGroup, ...]:
    """Cut the manifests of a base into groups, each worth a few full manifests.

    Whoever writes them, and with however many tasks: the groups, and what becomes of them, are the same.
    """
    groups: list[list[ManifestFileMeta]] = []
    size_bytes = count = 0
    for meta in metas:
        entry_count = meta.added_file_count + meta.deleted_file_count
        is_full = (
            size_bytes + meta.file_size > _GROUP_MANIFESTS * target_size_bytes
            or count + entry_count > _GROUP_MANIFESTS * ENTRIES_MAX
        )
        if not groups or is_full:
            groups.append([])
            size_bytes = count = 0
        groups[-1].append(meta)
        size_bytes += meta.file_size
        count += entry_count
    return tuple(
        ManifestGroup(number=number, metas=tuple(group)) for number, group in enumerate(groups)
    )


def plan_manifest_merge(
    metas: Sequence[ManifestFileMeta], *, target_size_bytes: int, min_count: int
) -> ManifestMerge:
    """Plan the minor merge of a base list (previous base, then previous delta, oldest first).

    Manifests without entries are left out. Small ones (below `target_size_bytes`, and below ENTRIES_MAX)
    next to each other are joined once they fill a manifest, or once there are `min_count` of them.
    """
    parts: list[Keep | MergeGroup] = []
    small: list[ManifestFileMeta] = []
    for meta in metas:
        if meta.added_file_count + meta.deleted_file_count == 0:
            continue
        if _is_small(meta, target_size_bytes):
            small.append(meta)
            continue
        parts += _join(small, target_size_bytes, min_count)
        parts.append(Keep(meta=meta))
        small = []
    parts += _join(small, target_size_bytes, min_count)
    joined = sum(len(part.metas) for part in parts if isinstance(part, MergeGroup))
    reason = f"minor: {joined} small manifests joined" if joined else "none is due"
    return ManifestMerge(parts=tuple(parts), reason=reason)


def _is_small(meta: ManifestFileMeta, target_size_bytes: int) -> bool:
    count = meta.added_file_count + meta.deleted_file_count
    return meta.file_size < target_size_bytes and count < ENTRIES_MAX


def _join(
    small: Sequence[ManifestFileMeta], target_size_bytes: int, min_count: int
) -> list[Keep | MergeGroup]:
    """Join a stretch of small manifests from its newest end, as far as that is worth its bytes."""
    gathered, count = 0, 0
    for meta in reversed(small):
        is_filled = count > 1 and gathered >= target_size_bytes
        if count and (is_filled or meta.file_size > _MORE * gathered):
            break
        gathered += meta.file_size
        count += 1
    is_due = gathered >= target_size_bytes or len(small) >= min_count
    if count < 2 or not is_due:
        return [Keep(meta=meta) for meta in small]
    older = len(small) - count
    steps: list[Keep | MergeGroup] = [Keep(meta=meta) for meta in small[:older]]
    return [*steps, MergeGroup(metas=tuple(small[older:]))]


def changed_manifests(
    metas: Iterable[ManifestFileMeta], *, full_threshold_bytes: int
) -> tuple[ManifestFileMeta, ...]:
    """Return the manifests with DELETE entries if a full merge is due, else nothing.

    It is due once they weigh at least `full_threshold_bytes`. The caller reads them and says to
    `plan_full_merge` where the DELETE entries are that are left after folding.
    """
    with_deletes = tuple(meta for meta in metas if meta.deleted_file_count > 0)
    is_due = (
        bool(with_deletes) and sum(meta.file_size for meta in with_deletes) >= full_threshold_bytes
    )
    return with_deletes if is_due else ()


def plan_full_merge(
    metas: Sequence[ManifestFileMeta],
    deletes: Sequence[Place],
    *,
    target_size_bytes: int,
    may_hold: Callable[[Sequence[ManifestFileMeta], Sequence[bytes]], Sequence[bool]],
) -> ManifestMerge:
    """Plan the rewrite of every manifest that has a DELETE, or an ADD that `deletes` may take away.

    `deletes`: where the DELETE entries are that are left after folding the changed manifests. `may_hold`
    returns for each manifest whether its partition range may hold one of some partitions
    (filter/partition.manifests_holding). Untouched manifests of at least `target_size_bytes` are
    kept, and come first: nothing deletes from them, so their order to the others has no meaning. Only
    rows that wait for a bucket count in the order of their entries: such manifests are never kept.
    """
    partitions = sorted({partition for partition, _, _ in deletes})
    holds_partition = may_hold(metas, partitions) if partitions else [False] * len(metas)
    buckets = sorted({bucket for _, bucket, _ in deletes})
    levels = sorted({level for _, _, level in deletes})
    unchanged: list[ManifestFileMeta] = []
    rewritten: list[ManifestFileMeta] = []
    for meta, partition_held in zip(metas, holds_partition, strict=True):
        touched = (
            partition_held
            and _may_meet(buckets, meta.min_bucket, meta.max_bucket)
            and _may_meet(levels, meta.min_level, meta.max_level)
        )
        small = _is_small(meta, target_size_bytes)
        # Rows without a bucket are ordered by their entries alone.
        waits = meta.min_bucket is not None and meta.min_bucket < 0
        changes = meta.deleted_file_count > 0 or touched or small or waits
        into = rewritten if changes else unchanged
        if meta.added_file_count + meta.deleted_file_count > 0:
            into.append(meta)
    parts: list[Keep | MergeGroup] = [Keep(meta=meta) for meta in unchanged]
    if rewritten:
        parts.append(MergeGroup(metas=tuple(rewritten), is_complete=True))
    reason = f"full: {len(rewritten)} of {len(metas)} manifests hold deletes or deleted files"
    return ManifestMerge(parts=tuple(parts), reason=reason)


def _may_meet(values: Sequence[int], low: int | None, high: int | None) -> bool:
    if low is None or high is None:
        return True
    return any(low <= value <= high for value in values)


def roll(
    entries: Sequence[ManifestEntry], *, bytes_per_entry: int, target_size_bytes: int
) -> list[Sequence[ManifestEntry]]:
    """Cut folded entries into pieces of about `target_size_bytes`, at least one entry each."""
    per_manifest = max(1, target_size_bytes // max(1, bytes_per_entry))
    return [entries[start : start + per_manifest] for start in range(0, len(entries), per_manifest)]


# -- Plan of one commit step on one base -----------------------------------------------------------


@record
class CommitPlan:
    """A step on one base: what the next snapshot will hold, and what has to be true before.

    `scope` names the buckets whose live entries planning/conflicts must see; empty: nothing to check.
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
        is_rewrite = self.change.rewrites_manifests or self.change.rewritten is not None
        return not (changes or self.change.state or is_rewrite)

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
    ] = ()  # manifests that the snapshot names, for readers of a remote store
    lists: Mapping[str, bytes] = field(default_factory=dict)  # what lists hold, for them too


@record
class CommitRules:
    """The rules of a table for its commits.

    `counts_differ`: writers may give a new partition different numbers of buckets, as its size asks.
    `tracks_rows`: new rows get ids.
    """

    counts_differ: bool = False
    tracks_rows: bool = False


_PLAIN_RULES = CommitRules()


def plan_commit(
    step: CommitStep,
    base: Snapshot | None,
    *,
    planned_on: Snapshot | None,
    since: Sequence[Snapshot] | None = None,
    change: LiveChange = NO_CHANGE,
    rules: CommitRules = _PLAIN_RULES,
) -> CommitPlan:
    """Plan `step` on `base`, the newest snapshot (None: the table is empty).

    `planned_on` is the snapshot that the work was done against. `since` holds the snapshots after it
    up to and including `base`; None means that they are not known, because some have expired.
    `change` is what was chosen on `base` (never on an older one).
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
    if rules.tracks_rows:
        delta, next_row_id = with_row_ids(delta, base)
    delta_rows = sum(
        entry.file.row_count if entry.kind is EntryKind.ADD else -entry.file.row_count
        for entry in delta
    )
    # Other clients may not count: a total that is unknown stays so.
    before = 0 if base is None else base.total_record_count
    if change.base_record_count is not None and before is not None:
        delta_rows += change.base_record_count - before
    return CommitPlan(
        step=step,
        base=base,
        change=change,
        delta=delta,
        overwritten=frozenset((entry.partition, entry.bucket) for entry in change.deleted),
        scope=_scope(step, base, planned_on, None if rules.counts_differ else since, delta),
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
    # One clock in the far future would keep expiry from all later snapshots.
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
            with_base(with_identifiers(step.properties, commit_identifiers), base),
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


def with_identifiers(
    properties: Mapping[str, str] | None, text: str | None
) -> Mapping[str, str] | None:
    """Return properties with those commit identifiers; a writer may hand in the properties of another snapshot."""
    kept_properties = {
        name: value for name, value in (properties or {}).items() if name != COMMIT_IDENTIFIERS
    }
    return kept_properties if text is None else {**kept_properties, COMMIT_IDENTIFIERS: text}


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
    # An old index of an overwritten partition would keep keys in buckets that another one has now.
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

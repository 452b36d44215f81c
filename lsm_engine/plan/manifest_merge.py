"""Which manifests become one, so that neither the base list nor a commit grows with the table.

Two shapes. Minor: neighbouring small manifests are joined, the newest first and older ones only
while they are no bigger than twice what has been gathered; so each entry is rewritten a logarithmic
number of times and no commit rewrites the whole tail. Full: once manifests with DELETE entries weigh
more than a threshold, they are rewritten together with those whose files they delete.
"""

from collections.abc import Callable, Iterable, Sequence

from lsm_engine.base.record import record
from lsm_engine.meta.manifest import ManifestEntry, ManifestFileMeta

Place = tuple[bytes, int, int]
"""(partition, bucket, level)."""
ENTRIES_MAX = 50_000
"""Entries that a merged manifest gets at most: readers decode one as a whole."""
_MORE = 2  # times as many bytes as were gathered may an older manifest have


@record
class Keep:
    """A manifest that goes on as it is."""

    meta: ManifestFileMeta


@record
class MergeGroup:
    """Manifests, oldest first, whose folded entries become new manifests in this place.

    `is_complete`: the group holds the ADD of every DELETE in it, so that a DELETE left standing
    after the fold is corruption (meta/manifest.live_files) and not a file of an older manifest.
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
        """Manifests that go on."""
        return tuple(part.meta for part in self.parts if isinstance(part, Keep))

    @property
    def groups(self) -> tuple[MergeGroup, ...]:
        """Groups to be merged, oldest first."""
        return tuple(part for part in self.parts if isinstance(part, MergeGroup))


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
    (prune/partition.manifests_holding). Untouched manifests of at least `target_size_bytes` are
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

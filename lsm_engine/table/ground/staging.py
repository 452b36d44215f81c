"""What writing on top of a snapshot needs to know: sequence numbers, and where buckets are."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from lsm_engine.base.modes import BucketMode
from lsm_engine.meta.index_file import HASH, IndexFileMeta, IndexManifestEntry
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.ground.bucket_context import BucketFacts, Staging
from lsm_engine.table.ground.live_files import bucket_pairs, level_facts
from lsm_engine.table.ground.session import TableSession

Bucket = tuple[bytes, int]


def staging_on(
    session: TableSession, base: Snapshot | None, *, deletes: bool = False, replaces: bool = False
) -> Staging:
    """Return what writing new rows on top of a snapshot needs.

    Raises UnsupportedError for tables with an option that writers would have to support and this
    version does not. `deletes` and `replaces` as in Staging.
    """
    staging = session.staging(base, deletes=deletes)
    buckets = (
        BucketFacts() if replaces and not _keeps_totals(session) else bucket_facts(session, base)
    )
    unindexed = [entry for entries in buckets.unindexed.values() for entry in entries]
    context = session.context(entry.file.schema_id for entry in unindexed)
    return replace(staging, context=context, replaces=replaces, buckets=buckets)


def _keeps_totals(session: TableSession) -> bool:
    """Whether a partition keeps its number of buckets when its rows are replaced."""
    return session.schema.bucket_mode.policy.is_postponed


def bucket_facts(session: TableSession, base: Snapshot | None) -> BucketFacts:
    """Return what writers of the table have to know about the buckets of a snapshot."""
    if base is None:
        return BucketFacts()
    match session.schema.bucket_mode:
        case BucketMode.FIXED | BucketMode.POSTPONE:
            return BucketFacts(totals=partition_totals(session, base))
        case BucketMode.DYNAMIC:
            indexes = indexes_by_partition(session.index_entries(base))
            return BucketFacts(indexes=indexes, unindexed=_unindexed(session, base, indexes))
        case BucketMode.CROSS_PARTITION:
            return BucketFacts(base=base)
        case BucketMode.UNAWARE:
            return BucketFacts()


def partition_totals(session: TableSession, base: Snapshot) -> dict[bytes, int]:
    """Return how many buckets the live files of each partition were written for.

    Waiting rows (bucket -2) do not count, and partitions without a file are not among them. Where no
    partition was rescaled nothing is folded.
    """
    known: dict[bytes, set[int]] = {}
    files: Counter[bytes] = Counter()
    for facts in session.manifests.facts(session.manifest_metas(base), level_facts):
        for (partition, bucket, _), fact in facts.items():
            if bucket >= 0:
                files[partition] += fact[0]
                known.setdefault(partition, set()).update(fact[2:])
    known = {partition: totals for partition, totals in known.items() if files[partition]}
    if any(len(totals) > 1 for totals in known.values()):
        entries = session.live_entries(base, lambda _, bucket: bucket >= 0)
        known = {entry.partition: {entry.total_buckets} for entry in entries}
    return {partition: max(totals) for partition, totals in known.items()}


def indexes_by_partition(
    entries: Iterable[IndexManifestEntry],
) -> dict[bytes, tuple[tuple[int, IndexFileMeta], ...]]:
    """Return the index files of dynamic buckets, by partition; buckets ascend."""
    found: dict[bytes, list[tuple[int, IndexFileMeta]]] = {}
    for entry in entries:
        if entry.index_file.index_type == HASH:
            found.setdefault(entry.partition, []).append((entry.bucket, entry.index_file))
    return {
        partition: tuple(sorted(files, key=lambda pair: pair[0]))
        for partition, files in found.items()
    }


def _unindexed(
    session: TableSession,
    base: Snapshot,
    indexes: Mapping[bytes, tuple[tuple[int, IndexFileMeta], ...]],
) -> dict[bytes, tuple[ManifestEntry, ...]]:
    indexed = {(partition, bucket) for partition, files in indexes.items() for bucket, _ in files}
    named: set[Bucket] = set()
    for pairs in session.manifests.facts(session.manifest_metas(base), _buckets_of):
        named.update(pairs)
    missing = {pair for pair in named - indexed if pair[1] >= 0}
    if not missing:
        return {}
    found: dict[bytes, list[ManifestEntry]] = {}
    for entry in session.live_entries(base, lambda *bucket: bucket in missing):
        found.setdefault(entry.partition, []).append(entry)
    return {partition: tuple(entries) for partition, entries in found.items()}


def _buckets_of(entries: pa.Table) -> list[Bucket]:
    return bucket_pairs(entries)[0] if entries.num_rows else []

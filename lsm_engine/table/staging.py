"""The state of a snapshot that a write needs: sequence numbers, and the buckets of keys."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from lsm_engine.format.index_file import HASH, IndexFileMeta, IndexManifestEntry
from lsm_engine.format.manifest import Bucket, BucketScope, ManifestEntry, ManifestFileMeta
from lsm_engine.format.manifest_file import refuse_row_ids
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import BucketMode
from lsm_engine.planning.row_ids import id_after
from lsm_engine.table.bucket_context import BucketFacts, Staging
from lsm_engine.table.bucket_levels import BucketLevels, BucketTotals, NewestNumbers
from lsm_engine.table.live_files import BUCKET, PARTITION, bucket_pairs, live_entries
from lsm_engine.table.session import TableSession


def staging_on(
    session: TableSession, base: Snapshot | None, *, deletes: bool = False, replaces: bool = False
) -> Staging:
    """Return what writing new rows on top of a snapshot needs; `deletes`, `replaces` as in Staging.

    Raises UnsupportedError as `require_writable` does.
    """
    require_writable(session, base)
    return _Base(session, base).staging(deletes=deletes, replaces=replaces)


def require_writable(session: TableSession, base: Snapshot | None = None) -> None:
    """Raise UnsupportedError for options, and row ids and indexes of a snapshot, that are not supported.

    Writers of rows would have to.
    """
    session.options.require_writable()
    if base is not None:
        if not session.schema.tracks_rows:
            refuse_row_ids(base, table=session.name)
        session.index_entries(base)  # refuses indexes that new rows would not be in


def bucket_levels(session: TableSession, base: Snapshot | None) -> BucketLevels:
    """Return the levels of a snapshot's buckets."""
    metas = () if base is None else session.manifest_metas(base)
    return BucketLevels(session.manifests, metas, session.schema)


class _Base:
    """The snapshot that rows are written on: what its manifests record, where a writer has to know."""

    def __init__(self, session: TableSession, base: Snapshot | None) -> None:
        self._session = session
        self._base = base
        self._mode = session.schema.bucket_mode

    def staging(self, *, deletes: bool, replaces: bool) -> Staging:
        """Return what writing new rows needs."""
        session = self._session
        # A writer that replaces a partition needs only its number of buckets.
        needed = not replaces or self._mode.policy.is_postponed
        buckets = self._buckets() if needed else BucketFacts()
        unindexed = [entry for entries in buckets.unindexed.values() for entry in entries]
        by_snapshot = session.schema.orders_by_snapshot
        return Staging(
            context=session.context(entry.file.schema_id for entry in unindexed),
            # Where the commit gives the numbers, what others have numbered does not matter.
            newest={}
            if by_snapshot or self._mode.policy.is_unaware
            else NewestNumbers(self._levels),
            deletes=deletes,
            replaces=replaces,
            buckets=buckets,
            snapshot_id=id_after(self._base) if by_snapshot else None,
        )

    @cached_property
    def _metas(self) -> Sequence[ManifestFileMeta]:
        return () if self._base is None else self._session.manifest_metas(self._base)

    @cached_property
    def _levels(self) -> BucketLevels:
        return bucket_levels(self._session, self._base)

    def _buckets(self) -> BucketFacts:
        """Return what writers of the table have to know about its buckets."""
        if self._base is None:
            return BucketFacts()
        match self._mode:
            case BucketMode.FIXED | BucketMode.POSTPONE:
                return BucketFacts(totals=BucketTotals(self._levels))
            case BucketMode.DYNAMIC:
                indexes = indexes_by_partition(self._session.index_entries(self._base))
                return BucketFacts(indexes=indexes, unindexed=self._unindexed(indexes))
            case BucketMode.CROSS_PARTITION:
                return BucketFacts(base=self._base)
            case BucketMode.UNAWARE:
                return BucketFacts()

    def _unindexed(
        self, indexes: Mapping[bytes, tuple[tuple[int, IndexFileMeta], ...]]
    ) -> dict[bytes, tuple[ManifestEntry, ...]]:
        manifests = self._session.manifests
        indexed = {(partition, bucket) for partition, has in indexes.items() for bucket, _ in has}
        pairs_in_manifests: set[Bucket] = set()
        for pairs in manifests.facts(self._metas, _buckets_of, (PARTITION, BUCKET)):
            pairs_in_manifests.update(pairs)
        # Only buckets without an index are read: mostly there are none, as every writer keeps one.
        missing = {pair for pair in pairs_in_manifests - indexed if pair[1] >= 0}
        if not missing:
            return {}
        entries_by_partition: dict[bytes, list[ManifestEntry]] = {}
        for entry in live_entries(manifests, self._metas, BucketScope(buckets=frozenset(missing))):
            entries_by_partition.setdefault(entry.partition, []).append(entry)
        return {partition: tuple(entries) for partition, entries in entries_by_partition.items()}


def indexes_by_partition(
    entries: Iterable[IndexManifestEntry],
) -> dict[bytes, tuple[tuple[int, IndexFileMeta], ...]]:
    """Return the index files of dynamic buckets, by partition; buckets ascend."""
    by_partition: dict[bytes, list[tuple[int, IndexFileMeta]]] = {}
    for entry in entries:
        if entry.index_file.index_type == HASH:
            by_partition.setdefault(entry.partition, []).append((entry.bucket, entry.index_file))
    return {
        partition: tuple(sorted(files, key=lambda pair: pair[0]))
        for partition, files in by_partition.items()
    }


def _buckets_of(entries: pa.Table) -> list[Bucket]:
    return bucket_pairs(entries)[0] if entries.num_rows else []

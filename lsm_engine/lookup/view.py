"""The lookup view of a snapshot: the levels of each bucket, and the buckets that may hold a key."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.cache.disk import CacheLimits
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import VectorPlace
from lsm_engine.format.manifest import Bucket, BucketScope, ManifestEntry
from lsm_engine.format.manifest_file import WITHOUT_STATS
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.buckets import bucket_of, group_rows
from lsm_engine.lookup.key_search import entries_with_buckets
from lsm_engine.lookup.levels import DataFiles, LookupCache, LookupFiles, LookupLevels
from lsm_engine.lookup.sorted_stores import BlockCache
from lsm_engine.lookup.store import StoreSettings
from lsm_engine.lsm.levels import Levels
from lsm_engine.planning.scan import ReadMode
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.bucket_keys import bucket_hashes, partition_numbers
from lsm_engine.table.deletion_vectors import BucketVectors
from lsm_engine.table.live_files import MANY_FILES
from lsm_engine.table.merge_rules import read_mode
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import TableSchema


@record
class PartitionView:
    """The buckets of a partition. `total_buckets` None: a key may be in any of them."""

    total_buckets: int | None
    buckets: Mapping[int, LookupLevels]


@record
class BucketKeys:
    """A bucket that may hold some of the keys, those keys, and their numbers in the input."""

    partition: bytes
    bucket: int
    levels: LookupLevels
    rows: Longs
    keys: pa.RecordBatch
    is_alone: bool
    """Whether no other bucket may hold these keys."""


NO_BUCKETS = PartitionView(total_buckets=1, buckets={})
"""A partition without a file."""


class RestOfView:
    """The partitions that a view has not loaded; a table with very many files loads them on demand."""

    def __init__(
        self, load: Callable[[frozenset[bytes] | None], Mapping[bytes, PartitionView]]
    ) -> None:
        """`load` returns the given partitions that have files, or all of them (None)."""
        self._load = load
        self._is_loaded = False

    def into(self, loaded: dict[bytes, PartitionView], partitions: Iterable[bytes] | None) -> None:
        """Load the missing ones of `partitions`, or all (None). Threads may race: the first result stays."""
        if self._is_loaded:
            return
        missing = None if partitions is None else frozenset(partitions).difference(loaded)
        if missing is not None and not missing:
            return
        for partition, view in self._load(missing).items():
            loaded.setdefault(partition, view)
        for partition in missing or ():
            loaded.setdefault(partition, NO_BUCKETS)
        if missing is None:
            self._is_loaded = True


@record
class LookupView:
    """One snapshot, ready for lookups. A refresh replaces it as a whole, so that threads may share it."""

    snapshot: Snapshot | None
    loaded: dict[bytes, PartitionView] = field(default_factory=dict)
    """The loaded partitions: all, if `unloaded` is None."""
    unloaded: RestOfView | None = None
    vectors: Mapping[Bucket, Mapping[str, VectorPlace]] = field(default_factory=dict)
    """The locations of each bucket's deletion vectors, by data file."""

    def partition(self, stored: bytes) -> PartitionView | None:
        """Return the buckets of a partition, if it has files; NotFoundError once the snapshot has expired."""
        view = self.loaded.get(stored)
        if view is None and self.unloaded is not None:
            self.unloaded.into(self.loaded, [stored])
            view = self.loaded.get(stored)
        return view

    def partitions(self) -> Sequence[bytes]:
        """Return all partitions."""
        if self.unloaded is not None:
            self.unloaded.into(self.loaded, None)
        return list(self.loaded)

    def levels_of(self, partition: bytes, bucket: int) -> LookupLevels | None:
        """Return a bucket's levels, if the bucket has files and is loaded."""
        view = self.loaded.get(partition)
        return None if view is None else view.buckets.get(bucket)

    def by_bucket(self, schema: TableSchema, keys: pa.RecordBatch) -> Iterator[BucketKeys]:
        """Yield each bucket that may hold some of the keys."""
        if not keys.num_rows:
            return
        if not set(schema.partition_keys) <= set(keys.schema.names):
            yield from self._everywhere(schema, keys)
            return
        fields = schema.select(schema.partition_keys)
        stored, ids = partition_numbers(fields, keys)
        if self.unloaded is not None:
            self.unloaded.into(self.loaded, stored)
        for rows, part, number in _grouped(keys, ids, len(stored)):
            yield from self.in_partition(stored[number], schema, rows, part)

    def _everywhere(self, schema: TableSchema, keys: pa.RecordBatch) -> Iterator[BucketKeys]:
        """Yield all buckets, as the keys do not determine their partition."""
        rows: Longs = np.arange(keys.num_rows, dtype=np.int64)
        for partition in self.partitions():
            for bucket_keys in self.in_partition(partition, schema, rows, keys):
                yield replace(bucket_keys, is_alone=False)

    def in_partition(
        self, partition: bytes, schema: TableSchema, rows: Longs, keys: pa.RecordBatch
    ) -> Iterator[BucketKeys]:
        """Yield the buckets of one partition that may hold some of the keys, numbered by `rows`."""
        view = self.partition(partition)
        if view is None or not keys.num_rows:
            return
        total = view.total_buckets
        if total is None or total == 1:
            for bucket, levels in view.buckets.items():
                yield BucketKeys(
                    partition=partition,
                    bucket=bucket,
                    levels=levels,
                    rows=rows,
                    keys=keys,
                    is_alone=total == 1,
                )
            return
        hashes = bucket_hashes(schema.select(schema.bucket_keys), keys)
        for key_numbers, bucket_keys, bucket in _grouped(keys, bucket_of(hashes, total), total):
            bucket_levels = view.buckets.get(bucket)
            if bucket_levels is not None:
                yield BucketKeys(
                    partition=partition,
                    bucket=bucket,
                    levels=bucket_levels,
                    rows=rows[key_numbers],
                    keys=bucket_keys,
                    is_alone=True,
                )


@record
class ViewMaker:
    """Makes views of a table's snapshots, whose local files belong to `owner`."""

    session: TableSession
    cache: LookupCache
    owner: str
    limits: CacheLimits
    settings: StoreSettings
    blocks: BlockCache

    def view(self, snapshot: Snapshot | None, before: LookupView) -> LookupView:
        """Return the view of a snapshot; buckets with unchanged files are reused from `before`.

        For very many files, only the partitions that `before` has loaded are loaded.
        """
        if snapshot is None:
            return LookupView(snapshot=None)
        vectors = self.session.vector_places(snapshot)
        metas = self.session.manifest_metas(snapshot)
        if sum(meta.added_file_count - meta.deleted_file_count for meta in metas) < MANY_FILES:
            loaded = self._partitions(snapshot, vectors, None, before)
            return LookupView(snapshot=snapshot, loaded=loaded, vectors=vectors)
        unloaded = RestOfView(partial(self._partitions, snapshot, vectors))
        again = frozenset(before.loaded)
        loaded = self._partitions(snapshot, vectors, again, before) if again else {}
        return LookupView(snapshot=snapshot, loaded=loaded, unloaded=unloaded, vectors=vectors)

    def _partitions(
        self,
        snapshot: Snapshot,
        vectors: Mapping[Bucket, Mapping[str, VectorPlace]],
        chosen: frozenset[bytes] | None,
        before: LookupView | None = None,
    ) -> dict[bytes, PartitionView]:
        buckets: dict[bytes, dict[int, list[ManifestEntry]]] = {}
        schema_ids = set()
        scope = None if chosen is None else BucketScope(partitions=chosen)
        # Statistics are most of an entry's bytes, and no lookup reads them.
        columns = None if chosen is None else WITHOUT_STATS
        live = self.session.live_entries(snapshot, scope, columns)
        for entry in entries_with_buckets(self.session, live):
            buckets.setdefault(entry.partition, {}).setdefault(entry.bucket, []).append(entry)
            schema_ids.add(entry.file.schema_id)
        context = self.session.context(schema_ids)
        partitions = {}
        for partition, by_bucket in buckets.items():
            levels = {
                bucket: self._levels(
                    context, partition, bucket, entries, before, vectors.get((partition, bucket))
                )
                for bucket, entries in sorted(by_bucket.items())
            }
            total = _total_buckets(self.session.schema, by_bucket.values())
            partitions[partition] = PartitionView(total_buckets=total, buckets=levels)
        return partitions

    def _levels(
        self,
        context: BucketContext,
        partition: bytes,
        bucket: int,
        entries: list[ManifestEntry],
        before: LookupView | None,
        vectors: Mapping[str, VectorPlace] | None,
    ) -> LookupLevels:
        session = self.session
        assert session.key_order is not None
        levels = Levels.from_files(
            (entry.file for entry in entries),
            level_count=session.options.level_count,
            key_order=session.key_order,
        )
        if before is not None and before.vectors.get((partition, bucket)) == vectors:
            cached = before.levels_of(partition, bucket)
            if cached is not None and cached.levels.files == levels.files:
                return cached
        path = context.partition_path(partition).replace("/", "_")
        files = DataFiles(
            read_schema=session.schema,
            schemas=context.schemas,
            place_of=partial(context.place_of, (partition, bucket)),
            bucket_name=f"{path}-{bucket}",
        )
        lookup_files = LookupFiles(
            self.cache, self.owner, self.limits, self.settings, files, self.blocks
        )
        hidden = read_mode(session.schema) is ReadMode.ABOVE_LEVEL_0
        deleted = BucketVectors(context, vectors.values()).deleted if vectors else None
        return LookupLevels(levels, lookup_files, from_level=1 if hidden else 0, deleted=deleted)


def bucket_totals(schema: TableSchema, entries: Iterable[ManifestEntry]) -> dict[bytes, int]:
    """Return the bucket count that keys of each partition are hashed with; 0 if hashes give no bucket."""
    by_partition: dict[bytes, list[ManifestEntry]] = {}
    for entry in entries:
        by_partition.setdefault(entry.partition, []).append(entry)
    return {
        partition: _total_buckets(schema, [partition_entries]) or 0
        for partition, partition_entries in by_partition.items()
    }


def drop_replaced(before: LookupView, now: LookupView) -> None:
    """Remove the lookup files of data files that are no longer live in their bucket."""
    for partition, old in list(before.loaded.items()):
        for bucket, levels in old.buckets.items():
            live = now.levels_of(partition, bucket)
            if live is levels:
                continue
            names = set() if live is None else {file.file_name for file in live.levels.files}
            replaced: list[DataFileMeta] = [
                file for file in levels.levels.files if file.file_name not in names
            ]
            levels.files.drop(replaced)


def _grouped(
    keys: pa.RecordBatch, ids: Any, count: int
) -> Iterator[tuple[Longs, pa.RecordBatch, int]]:
    """Yield the numbers of the keys with each id, those keys, and the id."""
    groups = group_rows(ids, count)
    for number, start, stop in groups.stretches():
        rows = groups.order[start:stop]
        part = keys if len(rows) == keys.num_rows else keys.take(pa.array(rows))
        yield rows, part, number


def _total_buckets(schema: TableSchema, buckets: Any) -> int | None:
    """Return the bucket count that keys of a partition are hashed with; None if hashes give no bucket."""
    if not schema.bucket_mode.policy.is_fixed:
        return None
    totals = {entry.total_buckets for entries in buckets for entry in entries}
    # A table may have been rescaled since a partition was written.
    return totals.pop() if len(totals) == 1 and min(totals) > 0 else None

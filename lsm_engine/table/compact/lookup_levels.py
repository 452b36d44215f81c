"""Rows of files that a compaction leaves out, looked up by the keys of those that it takes.

Lookup files of a bucket's older levels stay on local disk from one compaction to the next, as long as
this process works on the table: each is built once, and a small compaction above a large level costs
what its own keys cost.
"""

import functools
import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from lsm_engine.io.disk_cache import DiskCache
from lsm_engine.io.file_io import FileIO
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.gather import gather
from lsm_engine.kernels.keys import SortKeys
from lsm_engine.kernels.routing import group_rows
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.lookup.lookup_file import (
    DataFiles,
    LookupCache,
    LookupFiles,
    cache_limits,
    store_settings,
)
from lsm_engine.lookup.lookup_levels import DeletedRows, Hits, LookupLevels
from lsm_engine.lookup.lookup_store import LookupStore, StoredValue
from lsm_engine.lookup.sort_store import BlockCache
from lsm_engine.mergetree.levels import Levels
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.table.find.lookup import process_cache
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.ground.schema_keys import key_order_of


class OlderRows:
    """The rows of older files of one bucket. For one thread.

    `files` are of one or several levels below what is compacted, `value` is what is read of their
    rows, `deleted` which of them deletion vectors hide.
    """

    def __init__(
        self,
        context: BucketContext,
        partition: bytes,
        bucket: int,
        files: Sequence[DataFileMeta],
        *,
        value: StoredValue,
        deleted: DeletedRows | None = None,
    ) -> None:
        schema = context.schema
        order = key_order_of(schema)
        assert order is not None, "a table without a key has nothing to look up"
        self._fields = schema.select(schema.trimmed_primary_keys)
        self._schema = schema.key_value_arrow
        count = schema.options.level_count
        levels = Levels.from_files(files, level_count=count, key_order=order)
        stores = _lookup_files(context, partition, bucket, value)
        self._levels = LookupLevels(levels, stores, deleted=deleted)

    def find(self, columns: Sequence[pa.Array], keys: SortKeys) -> Hits:
        """Return the newest older row of each key, a delete included; keys come in key order."""
        return self._levels.find(KeyBatch(columns, [field.type for field in self._fields], keys))

    def rows(self, hits: Hits) -> pa.RecordBatch:
        """Return the rows found, in key order, as rows of `schema.key_value_arrow`."""
        names = self._schema.names
        found = np.flatnonzero(hits.store >= 0)
        sources: list[pa.RecordBatch] = []
        run, row = np.zeros(len(found), np.uint16), np.zeros(len(found), np.int32)
        for store, _, some in _by_store(hits, found):
            fetched = store.fetch(hits.handle[found[some]], names)
            run[some] = fetched.run + np.uint16(len(sources))
            row[some] = fetched.row
            sources += [
                pa.RecordBatch.from_arrays(source.columns, schema=self._schema)
                for source in fetched.sources
            ]
        (batch,) = gather(sources, run, row).combine_chunks().to_batches()
        return batch

    def positions(self, hits: Hits) -> Iterator[tuple[DataFileMeta, Longs]]:
        """Yield the data files that hold rows found, and where those stand in them."""
        found = np.flatnonzero(hits.store >= 0)
        for store, file, some in _by_store(hits, found):
            yield file, store.positions(hits.handle[found[some]])


def forget(
    context: BucketContext,
    partition: bytes,
    bucket: int,
    files: Iterable[DataFileMeta],
    *,
    value: StoredValue,
) -> None:
    """Remove the lookup files of data files that leave a bucket. One that is asked for comes again."""
    if context.file_io in _owners:
        _lookup_files(context, partition, bucket, value).drop(files)


def _lookup_files(
    context: BucketContext, partition: bytes, bucket: int, value: StoredValue
) -> LookupFiles:
    schema = context.schema
    settings = store_settings(schema, value)
    path = context.partition_path(partition).replace("/", "_")
    data = DataFiles(
        file_io=context.file_io,
        read_schema=schema,
        schemas=context.schemas,
        path_of=functools.partial(context.data_file, partition, bucket),
        # Branches share data files, and number schemas of their own alike.
        bucket_name=f"{context.paths.branch_name}@{path}-{bucket}",
    )
    return LookupFiles(
        process_cache(),
        _owner(context.file_io, process_cache()),
        cache_limits(schema.options),
        settings,
        data,
        BlockCache(settings.decoded_blocks_bytes),
    )


def compaction_owner(file_io: FileIO) -> str | None:
    """Return whose the lookup files are that compactions of a table built here; None: there are none."""
    return _owners.get(file_io)


def _by_store(hits: Hits, found: Longs) -> Iterator[tuple[LookupStore, DataFileMeta, Longs]]:
    """Yield each store with its data file and which of the found rows it holds, in key order."""
    groups = group_rows(hits.store[found], len(hits.stores))
    for number, start, stop in groups.stretches():
        yield hits.stores[number], hits.files[number], groups.order[start:stop]


_owners: "weakref.WeakKeyDictionary[FileIO, str]" = weakref.WeakKeyDictionary()
_owners_lock = threading.Lock()
_numbers = itertools.count()


def _owner(file_io: FileIO, cache: LookupCache) -> str:
    """Return whose the lookup files of a table are: everybody's who works on it in this process."""
    with _owners_lock:
        owner = _owners.get(file_io)
        if owner is None:
            owner = f"compaction#{next(_numbers)}"
            _owners[file_io] = owner
            weakref.finalize(file_io, DiskCache.unwatch, cache, owner)
        return owner

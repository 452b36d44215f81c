"""Lookup: keys → the newest row of each, through local lookup files. Scans are slower."""

import atexit
import functools
import itertools
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.arguments import checks_arguments
from lsm_engine.base.errors import (
    CorruptFileError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from lsm_engine.io.cache_entries import CacheMetrics
from lsm_engine.io.clock import SystemClock
from lsm_engine.io.disk_cache import DiskCache
from lsm_engine.kernels.routing import group_rows
from lsm_engine.lookup.columnar_store import ColumnarStore
from lsm_engine.lookup.lookup_file import (
    LookupCache,
    cache_limits,
    local_file_type,
    store_settings,
)
from lsm_engine.lookup.lookup_levels import LookupLevels
from lsm_engine.lookup.lookup_store import StoredValue
from lsm_engine.lookup.point_index import PointIndex
from lsm_engine.lookup.sort_store import BlockCache
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.find.gather_rows import KeyRows, found_rows, is_first_hit_newest
from lsm_engine.table.find.key_search import KeySearch
from lsm_engine.table.find.key_values import KeyEncoder, encodes_directly
from lsm_engine.table.find.lookup_keys import keys_of, require_dictionary, require_key
from lsm_engine.table.find.lookup_view import BucketKeys, LookupView, ViewMaker, drop_replaced
from lsm_engine.table.find.searched_files import FilePlace
from lsm_engine.table.ground.given_names import names_of
from lsm_engine.table.ground.session import TableSession

_LOOK_AFTER_MILLIS = 50
_queries = (
    itertools.count()
)  # ids may come again where they are injected; owners in a cache must not
_FILE_ROWS = 5_000
"""What a local file costs besides its rows: as much as so many of them."""

FOUND = "_found"
"""Name of the column of whether a key is there."""

_TRIES = 10
"""How often a question follows snapshots that expire while it is answered."""


@functools.cache
def process_cache() -> LookupCache:
    """Return the cache that the tables of this process share unless they are given another."""
    cache: LookupCache = DiskCache(SystemClock())
    atexit.register(cache.close)
    return cache


class TableQuery:
    """Looks keys up in one snapshot of a table (LocalTableQuery), with local files until `close`.

    `refresh` moves on to the newest snapshot, unless the query was made for one `snapshot`. Any
    number of threads may share a query. `value`: what the local files keep of each row.
    """

    def __init__(
        self,
        session: TableSession,
        cache: LookupCache | None = None,
        *,
        snapshot: Snapshot | None = None,
        value: StoredValue = StoredValue.ROW,
    ) -> None:
        if isinstance(cache, str | Mapping | list):
            raise InvalidInputError(
                "query(cache) reads rows by key; rows that a condition keeps are scan(where=...), and "
                "SQL is to_duckdb() or to_polars()",
                given=type(cache).__name__,
            )
        session.options.require_readable()
        require_key(session.schema)
        self._session = session
        self._schema = session.schema
        self._names = session.schema.names
        self._cache = process_cache() if cache is None else cache
        self._owner = f"{session.name}#{next(_queries)}"
        self._pinned = snapshot
        settings = store_settings(session.schema, _kept(session, value))
        self._maker = ViewMaker(
            session=session,
            cache=self._cache,
            owner=self._owner,
            limits=cache_limits(session.options),
            settings=settings,
            blocks=BlockCache(settings.decoded_blocks_bytes),
        )
        self._refreshing = threading.Lock()
        self._view = LookupView(snapshot=None)
        self._points: dict[LookupLevels, PointIndex | None] = {}
        self._encoder = KeyEncoder(self._schema) if self._has_points else None
        self._looked_after = 0
        self._now_millis = session.clock.now_millis
        left = weakref.WeakMethod(self._forget_points)
        self._cache.watch(self._owner, lambda: call() if (call := left()) is not None else None)
        weakref.finalize(self, self._cache.unwatch, self._owner)
        self.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that lookups see; None while the table is empty."""
        return self._view.snapshot

    @property
    def cache_metrics(self) -> CacheMetrics:
        """What the cache of local files has done: hits, misses, bytes, evictions by cause.

        A cache is shared by the queries of a process, unless they were given one.
        """
        return self._cache.metrics()

    def close(self) -> None:
        """Remove the local files. A query that is used again builds them again."""
        self._cache.release(self._owner)

    def refresh(self) -> bool:
        """Look into the newest snapshot from now on; False if that is the one already seen.

        Local files of data files that have left the levels are removed.
        """
        with self._refreshing:  # also around the look: a view never goes back
            before = self._view
            newest = self._newest()
            if newest == before.snapshot:  # not by id: ids come again after a rollback
                return False
            self._view = self._newest_view(newest)
            self._points = {}
            drop_replaced(before, self._view)
        return True

    def _newest(self) -> Snapshot | None:
        return self._pinned or self._session.snapshots.latest(reads_state=True)

    def _newest_view(self, newest: Snapshot | None) -> LookupView:
        """Return the view of `newest`, or of what is newest once that has expired under us."""
        while True:
            try:
                return self._maker.view(newest, self._view)
            except NotFoundError:
                tried, newest = newest, self._newest()
                if newest == tried:
                    raise

    @checks_arguments
    def lookup(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """Return one row per key, in the order of the keys, and whether it was found (`_found`).

        `keys`: Arrow data or a list of dictionaries with the primary key columns. The result's key
        columns are those asked for; the others are null where nothing was found. Raises
        InvalidInputError for keys that do not fit, NotFoundError for unknown columns.
        """
        names = self._names if columns is None else tuple(dict.fromkeys(columns))
        self._schema.select(names)
        if FOUND in names:
            raise InvalidInputError(
                f"the table has a column {FOUND!r}, which a lookup adds; name others in columns=",
                kind=ErrorKind.INVALID_NAME,
                column=FOUND,
            )
        key_rows = keys_of(self._schema, keys)
        seen = self._view
        try:
            return self._asked(seen, key_rows, names)
        finally:
            self._drop_replaced(seen)

    def _asked(self, seen: LookupView, key_rows: pa.RecordBatch, names: Sequence[str]) -> pa.Table:
        for _ in range(_TRIES):
            try:
                return self._looked_up(seen, key_rows, names)
            except NotFoundError:
                # Data files expired while we looked; the newest snapshot's are there, for a while.
                if not self.refresh() and self._view is seen:
                    raise
            except CorruptFileError as error:
                # A lookup file that was found damaged after it was opened is built anew.
                if not self._cache.discard(self._owner, str(error.facts.get("file"))):
                    raise
            seen = self._view
        return self._looked_up(seen, key_rows, names)

    @checks_arguments
    def lookup_at(
        self, snapshot: Snapshot, keys: pa.RecordBatch, names: Sequence[str], rows_max: int
    ) -> tuple[pa.Table | None, int]:
        """Return what `lookup` does of one snapshot, and how many rows are made local files for it.

        `keys`: as the table stores them. None where the query is at another snapshot, where more than
        `rows_max` rows would have to be made local files of, or where files are missing or damaged.
        """
        seen = self._view
        if seen.snapshot != snapshot:
            return None, 0
        rows = 0
        try:
            for there in seen.by_bucket(self._schema, keys):
                batch = KeyRows.of(there.keys, there.rows, self._schema).batch
                unbuilt = there.levels.unbuilt(batch)
                rows += sum(_FILE_ROWS + file.row_count for file in unbuilt)
            if rows > rows_max:
                return None, 0
            return self._looked_up(seen, keys, names), rows
        except CorruptFileError as error:
            self._cache.discard(self._owner, str(error.facts.get("file")))
            return None, rows
        except (NotFoundError, StorageError):  # who scans instead finds out what it is
            return None, rows
        finally:
            self._drop_replaced(seen)

    def get(
        self, key: Mapping[str, Any], columns: str | Sequence[str] | None = None
    ) -> dict[str, Any] | None:
        """Return the row of one key as a dictionary, or None: in microseconds once warm.

        `key` maps each primary key column to its value. Answers as `lookup` does.
        """
        if type(key) is not dict:
            require_dictionary(self._schema, key)
        names = self._names
        if columns is not None:
            names = names_of(columns, "columns")
            self._schema.select(names)
        encoder = self._encoder
        if encoder is not None:
            ordered = encoder.encoded(key)
            seen = self._view
            stored = encoder.partition(key)
            partition = seen.known.get(stored)
            if partition is None:
                if seen.rest is None:
                    return None
                return self._got(key, columns)  # which looks at the partition
            if partition.total_buckets is not None:
                levels = partition.buckets.get(encoder.bucket(key, partition.total_buckets))
                if levels is None:
                    return None
                index = self._point_index(levels)
                if self._view is not seen:
                    self._drop_replaced(seen)
                if index is not None:
                    return index.get(ordered, names)
        return self._got(key, columns)

    def _drop_replaced(self, seen: LookupView) -> None:
        """Remove what was built for a view while a refresh replaced it."""
        if self._view is not seen:
            drop_replaced(seen, self._view)

    def _got(self, key: Mapping[str, Any], columns: Sequence[str] | None) -> dict[str, Any] | None:
        found: dict[str, Any] = self.lookup([key], columns).to_pylist()[0]
        return found if found.pop(FOUND) else None

    @property
    def _has_points(self) -> bool:
        kind = local_file_type(self._schema)
        # A key without its partition goes the way of batches.
        has_partition = set(self._schema.partition_keys) <= set(self._schema.primary_keys)
        return kind.policy.gathers_columns and has_partition and encodes_directly(self._schema)

    def _point_index(self, levels: LookupLevels) -> PointIndex | None:
        """Return a bucket's stores ready for single keys; None where versions have to be merged."""
        now = self._now_millis()
        if now - self._looked_after > _LOOK_AFTER_MILLIS:
            self._looked_after = now
            self._look_after()
        points = self._points
        made = points.get(levels)
        if made is not None or levels in points:
            return made
        generation = self._cache.generation
        if is_first_hit_newest(self._schema, levels) and not levels.has_deleted_rows:
            try:
                stores = [levels.files.open(file) for file in levels.data_files]
            except NotFoundError:  # its data file expired: batches know what to do then
                return None
            made = PointIndex([store for store in stores if isinstance(store, ColumnarStore)])
        if generation == self._cache.generation:  # otherwise some of them have left again
            points[levels] = made
        return made

    def _look_after(self) -> None:
        """Keep files alive that are used without being asked for, and give up damaged ones."""
        for partition in list(self._view.known.values()):
            for levels in partition.buckets.values():
                index = self._points.get(levels)
                if index is None:
                    continue
                levels.files.touch(levels.data_files)
                for store in index.stores:
                    try:
                        store.check()
                    except CorruptFileError:
                        self._cache.discard(self._owner, store.path)
        self._cache.expire()

    def _forget_points(self) -> None:
        self._points = {}

    def tag(
        self, search: KeySearch, *, everywhere: bool = False, with_positions: bool = True
    ) -> Snapshot | None:
        """Find the record of each key of a search; return the snapshot in which they were found.

        Keys are looked for in their own partitions, and with `everywhere` then in the others too.
        `with_positions`: note each record's row in its file too, which sort and hash lookup files
        know only where the query keeps positions.
        """
        view = self._view
        for there in view.by_bucket(self._schema, search.keys):
            self._tag_bucket(there, search, with_positions=with_positions)
        for partition in view.partitions() if everywhere else ():
            rows = np.flatnonzero(search.may_be_in(partition, own=False) & ~search.is_there)
            keys = search.keys.take(pa.array(rows))
            for there in view.in_partition(partition, self._schema, rows, keys):
                self._tag_bucket(there, search, with_positions=with_positions)
        self._drop_replaced(view)
        return view.snapshot

    def _tag_bucket(self, there: BucketKeys, search: KeySearch, *, with_positions: bool) -> None:
        count = len(there.rows)
        key_rows = KeyRows.of(there.keys, np.arange(count, dtype=np.int64), self._schema)
        found = found_rows(self._schema, count, ())
        found.add(key_rows, there.levels)
        is_found = found.table()[1]
        hits = there.levels.find(key_rows.batch)
        hit = (hits.store >= 0) & is_found[key_rows.rows]
        groups = group_rows(np.where(hit, hits.store + 1, 0), len(hits.stores) + 1)
        for number, start, stop in groups.stretches():
            if number == 0:
                continue
            some = groups.order[start:stop]
            place = FilePlace(
                partition=there.partition,
                bucket=there.bucket,
                file_name=hits.files[number - 1].file_name,
            )
            store, handles = hits.stores[number - 1], hits.handle[some]
            positions = store.positions(handles) if with_positions else np.full(len(some), -1)
            search.found(there.rows[key_rows.rows[some]], place, positions)

    def _looked_up(self, view: LookupView, keys: pa.RecordBatch, names: Sequence[str]) -> pa.Table:
        values = [name for name in names if name not in self._schema.primary_keys]
        found = found_rows(self._schema, keys.num_rows, values)
        for there in view.by_bucket(self._schema, keys):
            key_rows = KeyRows.of(there.keys, there.rows, self._schema)
            found.add(key_rows, there.levels, is_alone=there.is_alone)
        table, is_found = found.table()
        columns, fields = [], []
        for name in names:
            source = keys if name in self._schema.primary_keys else table
            columns.append(source.column(name))
            fields.append(pa.field(name, source.schema.field(name).type))
        columns.append(pa.array(is_found))
        fields.append(pa.field(FOUND, pa.bool_(), nullable=False))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _kept(session: TableSession, value: StoredValue) -> StoredValue:
    """Return what to keep of rows: where vectors delete rows, each has to know its position."""
    columnar = local_file_type(session.schema).policy.gathers_columns
    has_vectors = session.options[core_options.DELETION_VECTORS_ENABLED]
    if value is StoredValue.ROW and has_vectors and not columnar:
        return StoredValue.POSITION_AND_ROW
    return value

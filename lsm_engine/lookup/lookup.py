"""Look up the newest row of each key through local lookup files, which is faster than a scan."""

import atexit
import functools
import itertools
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base.arguments import checks_arguments
from lsm_engine.base.errors import (
    CorruptFileError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from lsm_engine.base.record import record
from lsm_engine.cache.disk import CacheMetrics, DiskCache
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.kernels.buckets import group_rows
from lsm_engine.kernels.changes import retracts
from lsm_engine.kernels.gather import gather
from lsm_engine.lookup.columnar_store import ColumnarStore, PointIndex
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys, locate
from lsm_engine.lookup.key_search import FilePlace, KeySearch
from lsm_engine.lookup.keys import (
    KeyEncoder,
    encodes_directly,
    keys_of,
    require_dictionary,
    require_key,
)
from lsm_engine.lookup.levels import (
    LookupCache,
    LookupLevels,
    Versions,
    cache_limits,
    local_file_type,
    store_settings,
)
from lsm_engine.lookup.sorted_stores import BlockCache
from lsm_engine.lookup.store import StoredValue
from lsm_engine.lookup.view import BucketKeys, LookupView, ViewMaker, drop_replaced
from lsm_engine.options import core_options
from lsm_engine.options.modes import RowKind
from lsm_engine.planning.scan import ReadMode
from lsm_engine.read.merge import merge_runs
from lsm_engine.storage.clock import SystemClock
from lsm_engine.table.merge_rules import MergeRules, merge_rules, read_mode
from lsm_engine.table.names import names_of
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema

# -- Gather the rows of a lookup from many stores at once, in the order of the keys ----------------

_SOURCES_MAX = 60_000


@record
class KeyRows:
    """Keys of one bucket in key order, and the input row of each key."""

    batch: KeyBatch
    rows: Longs

    @staticmethod
    def from_keys(keys: pa.RecordBatch, rows: Longs, schema: TableSchema) -> "KeyRows":
        """Sort keys; `rows` are their row numbers in the input."""
        fields = schema.select(schema.trimmed_primary_keys)
        columns = [keys.column(field.name) for field in fields]
        batch, places = KeyBatch.from_columns(columns, [field.type for field in fields])
        return KeyRows(batch=batch, rows=rows[places])


class FoundRows:
    """Collects the rows that were found for one input, and builds one table of them."""

    def __init__(
        self, schema: TableSchema, rules: MergeRules, count: int, names: Sequence[str]
    ) -> None:
        self._rules = rules
        self._names = list(names)
        self._stored = [*dict.fromkeys((*names, VALUE_KIND))]
        self._table = schema
        self._needed = [
            *(name for name in schema.names if name in rules.needs(names)),
            SEQUENCE_NUMBER,
            VALUE_KIND,
        ]
        everything = schema.key_value_arrow
        self._schema = pa.schema([everything.field(name) for name in self._stored])
        self._is_alone = True
        # Source 0 is a row of nulls: what was not found points at it.
        self._sources = [_null_row(self._schema)]
        self._run: npt.NDArray[np.uint16] = np.zeros(count, np.uint16)
        self._row: npt.NDArray[np.int32] = np.zeros(count, np.int32)

    def add(self, keys: KeyRows, levels: LookupLevels, *, is_alone: bool = True) -> None:
        """Look keys up in a bucket. Unless `is_alone`, its deletes do not hide rows of other buckets."""
        self._is_alone = is_alone
        if is_first_hit_newest(self._table, levels):
            self._add_first_hits(keys, levels)
        else:
            self._add_merged(keys, levels)

    def table(self) -> tuple[pa.Table, Bools]:
        """Return the requested columns, one row per input row, and the mask of the rows that were found."""
        is_found: Bools = self._run > 0
        kinds = gather(self._selected([VALUE_KIND]), self._run, self._row).column(0)
        retracted = _retracted(kinds)
        if retracted.any():
            is_found &= ~retracted
            self._run[retracted], self._row[retracted] = 0, 0
        return gather(self._selected(self._names), self._run, self._row), is_found

    def _selected(self, names: list[str]) -> list[pa.RecordBatch]:
        return [source.select(names) for source in self._sources]

    def _add_first_hits(self, keys: KeyRows, levels: LookupLevels) -> None:
        hits = levels.find(keys.batch)
        groups = group_rows(hits.store + 1, len(hits.stores) + 1)
        for number, start, stop in groups.stretches():
            if number == 0:
                continue
            hit_rows = groups.order[start:stop]
            fetched = hits.stores[number - 1].fetch(hits.handle[hit_rows], self._stored)
            self._take(keys.rows[hit_rows], fetched.sources, fetched.run, fetched.row)

    def _add_merged(self, keys: KeyRows, levels: LookupLevels) -> None:
        """Merge all versions of the keys, as a scan does."""
        key_versions = list(levels.versions(keys.batch))[::-1]
        runs = [self._rows_of(versions) for versions in key_versions]
        ages = (
            [version.file.level for version in key_versions] if self._rules.newest_stands else None
        )
        merged = list(merge_runs(runs, self._rules, drop_deletes=True, ages=ages))
        for rows in merged:
            batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
            for batch in batches:
                search_keys = SearchKeys.from_sort_keys(self._rules.keys(batch))
                everything = np.arange(len(keys.batch), dtype=np.int64)
                row = locate(search_keys, keys.batch.search, everything).last
                hit = row >= 0
                run = np.zeros(int(hit.sum()), np.uint16)
                self._take(keys.rows[hit], [batch], run, row[hit].astype(np.int32))

    def _rows_of(self, versions: Versions) -> list[pa.RecordBatch]:
        fetched = versions.store.fetch(versions.handles, self._needed)
        rows = gather(fetched.sources, fetched.run, fetched.row)
        batches: list[pa.RecordBatch] = rows.to_batches()
        return batches

    def _take(
        self,
        rows: Longs,
        sources: Sequence[pa.RecordBatch],
        run: npt.NDArray[np.uint16],
        row: npt.NDArray[np.int32],
    ) -> None:
        if len(self._sources) + len(sources) > _SOURCES_MAX:
            self._compact()
        if not self._is_alone:
            kinds = gather([batch.select([VALUE_KIND]) for batch in sources], run, row).column(0)
            is_taken = ~_retracted(kinds) | (self._run[rows] == 0)
            rows, run, row = rows[is_taken], run[is_taken], row[is_taken]
        first = len(self._sources)
        self._run[rows] = run + np.uint16(first)
        self._row[rows] = row
        for source in sources:
            columns = [source.column(name) for name in self._stored]
            self._sources.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _compact(self) -> None:
        """Copy the rows found so far into one source: positions address sources with 16 bits."""
        rows = np.flatnonzero(self._run)
        copies = (
            gather(self._sources, self._run[rows], self._row[rows]).combine_chunks().to_batches()
        )
        assert len(copies) <= 1, (
            "found rows of one column exceed 2 GB; look up fewer keys at a time"
        )
        self._sources = [self._sources[0], *copies]
        self._run[rows] = 1
        self._row[rows] = np.arange(len(rows), dtype=np.int32)


def is_first_hit_newest(schema: TableSchema, levels: LookupLevels) -> bool:
    """Whether the newest version of a key is its row, so that no merge is needed."""
    if levels.run_count <= 1 or read_mode(schema) is ReadMode.ABOVE_LEVEL_0:
        return True  # above level 0 of such tables a key has one row that is not deleted
    engine = schema.options[core_options.MERGE_ENGINE]
    ignores = schema.options[core_options.IGNORE_DELETE]
    if not engine.policy.keeps_newest_row or schema.sequence_fields or ignores:
        return False
    return levels.first_hit_is_newest


def _retracted(kinds: pa.ChunkedArray) -> Bools:
    """Return which rows are deletes; a row that was not found has a null kind."""
    return retracts(kinds.fill_null(int(RowKind.INSERT)).to_numpy())


def found_rows(schema: TableSchema, count: int, names: Sequence[str]) -> FoundRows:
    """Return a collector for `count` keys."""
    return FoundRows(schema, merge_rules(schema), count, names)


def _null_row(schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.nulls(1, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# -- Look up the newest row of each key through local lookup files, which is faster than a scan ----

_LOOK_AFTER_MILLIS = 50
_queries = (
    itertools.count()
)  # ids may come again where they are injected; owners in a cache must not
_FILE_ROWS = 5_000
"""The fixed cost of a local file, in rows."""

FOUND = "_found"
"""Name of the column of whether a key was found."""

_TRIES = 10
"""How often a lookup retries on a newer snapshot because its own has expired."""


@functools.cache
def process_cache() -> LookupCache:
    """Return the default cache, which the tables of this process share."""
    cache: LookupCache = DiskCache(SystemClock())
    atexit.register(cache.close)
    return cache


class TableQuery:
    """Looks up keys in one snapshot of a table (LocalTableQuery), with local files until `close`.

    `refresh` moves on to the newest snapshot, unless the query was made for one `snapshot`. Any
    number of threads may share a query. `value`: the part of each row that local files store.
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
        settings = store_settings(session.schema, _stored_value(session, value))
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
        forget_points = weakref.WeakMethod(self._forget_points)
        self._cache.watch(
            self._owner, lambda: call() if (call := forget_points()) is not None else None
        )
        weakref.finalize(self, self._cache.unwatch, self._owner)
        self.refresh()

    def __repr__(self) -> str:
        return f"<TableQuery of {self._session.name!r}>"

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
        """The metrics of the cache of local files: hits, misses, bytes, evictions by cause.

        The queries of a process share one cache, unless they were given their own.
        """
        return self._cache.metrics()

    def close(self) -> None:
        """Remove the local files. A query that is used again builds them again."""
        self._cache.release(self._owner)

    def refresh(self) -> bool:
        """Move on to the newest snapshot; return False if the query is at it already.

        Local files of data files that are no longer live are removed.
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
        """Return the view of `newest`, or of a newer snapshot if that one expires meanwhile."""
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

        `keys`: Arrow data or a list of dictionaries with the primary key columns. The result has the
        keys as requested; other columns are null if the key was not found. Raises InvalidInputError
        for keys that do not fit, NotFoundError for unknown columns.
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
        view = self._view
        try:
            return self._lookup_with_retries(view, key_rows, names)
        finally:
            self._drop_replaced(view)

    def _lookup_with_retries(
        self, view: LookupView, key_rows: pa.RecordBatch, names: Sequence[str]
    ) -> pa.Table:
        for _ in range(_TRIES):
            try:
                return self._looked_up(view, key_rows, names)
            except NotFoundError:
                # Data files expired during the lookup; those of the newest snapshot exist for a while.
                if not self.refresh() and self._view is view:
                    raise
            except CorruptFileError as error:
                # A lookup file was damaged after it was opened: the retry builds it again.
                if not self._cache.discard(self._owner, str(error.facts.get("file"))):
                    raise
            view = self._view
        return self._looked_up(view, key_rows, names)

    @checks_arguments
    def lookup_at(
        self, snapshot: Snapshot, keys: pa.RecordBatch, names: Sequence[str], rows_max: int
    ) -> tuple[pa.Table | None, int]:
        """Return the `lookup` of one snapshot, and the number of rows written to local files for it.

        `keys`: as the table stores them. None if the query is at another snapshot, if more than
        `rows_max` rows would have to be written to local files, or if files are missing or damaged.
        """
        view = self._view
        if view.snapshot != snapshot:
            return None, 0
        rows = 0
        try:
            for bucket_keys in view.by_bucket(self._schema, keys):
                batch = KeyRows.from_keys(bucket_keys.keys, bucket_keys.rows, self._schema).batch
                unbuilt = bucket_keys.levels.unbuilt(batch)
                rows += sum(_FILE_ROWS + file.row_count for file in unbuilt)
            if rows > rows_max:
                return None, 0
            return self._looked_up(view, keys, names), rows
        except CorruptFileError as error:
            self._cache.discard(self._owner, str(error.facts.get("file")))
            return None, rows
        except (NotFoundError, StorageError):  # the scan instead raises the error
            return None, rows
        finally:
            self._drop_replaced(view)

    def get(
        self, key: Mapping[str, Any], columns: str | Sequence[str] | None = None
    ) -> dict[str, Any] | None:
        """Return the row of one key as a dictionary, or None; takes microseconds once warm.

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
            view = self._view
            stored = encoder.partition(key)
            partition = view.loaded.get(stored)
            if partition is None:
                if view.unloaded is None:
                    return None
                return self._got(key, columns)  # which looks at the partition
            if partition.total_buckets is not None:
                levels = partition.buckets.get(encoder.bucket(key, partition.total_buckets))
                if levels is None:
                    return None
                index = self._point_index(levels)
                if self._view is not view:
                    self._drop_replaced(view)
                if index is not None:
                    return index.get(ordered, names)
        return self._got(key, columns)

    def _drop_replaced(self, view: LookupView) -> None:
        """Remove the local files that were built for a view while a refresh replaced it."""
        if self._view is not view:
            drop_replaced(view, self._view)

    def _got(self, key: Mapping[str, Any], columns: Sequence[str] | None) -> dict[str, Any] | None:
        row: dict[str, Any] = self.lookup([key], columns).to_pylist()[0]
        return row if row.pop(FOUND) else None

    @property
    def _has_points(self) -> bool:
        kind = local_file_type(self._schema)
        # A key without its partition goes the way of batches.
        has_partition = set(self._schema.partition_keys) <= set(self._schema.primary_keys)
        return kind.policy.gathers_columns and has_partition and encodes_directly(self._schema)

    def _point_index(self, levels: LookupLevels) -> PointIndex | None:
        """Return a bucket's stores as an index for single keys; None if versions have to be merged."""
        now = self._now_millis()
        if now - self._looked_after > _LOOK_AFTER_MILLIS:
            self._looked_after = now
            self._look_after()
        points = self._points
        index = points.get(levels)
        if index is not None or levels in points:
            return index
        generation = self._cache.generation
        if is_first_hit_newest(self._schema, levels) and not levels.has_deleted_rows:
            try:
                stores = [levels.files.open(file) for file in levels.data_files]
            except (
                NotFoundError
            ):  # its data file expired: the batch lookup retries on a newer snapshot
                return None
            index = PointIndex([store for store in stores if isinstance(store, ColumnarStore)])
        if generation == self._cache.generation:  # otherwise the cache has evicted some of them
            points[levels] = index
        return index

    def _look_after(self) -> None:
        """Mark files as used that point lookups read without the cache, and drop damaged ones."""
        for partition in list(self._view.loaded.values()):
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

    def locate(
        self, search: KeySearch, *, everywhere: bool = False, with_positions: bool = True
    ) -> Snapshot | None:
        """Find the record of each key of a search; return the snapshot that was searched.

        Keys are searched in their own partitions, and with `everywhere` in the other partitions too.
        `with_positions`: also record each record's row in its file, which sort and hash lookup files
        store only if the query keeps positions.
        """
        view = self._view
        for bucket_keys in view.by_bucket(self._schema, search.keys):
            self._locate_in_bucket(bucket_keys, search, with_positions=with_positions)
        for partition in view.partitions() if everywhere else ():
            rows = np.flatnonzero(search.may_be_in(partition, own=False) & ~search.is_there)
            keys = search.keys.take(pa.array(rows))
            for bucket_keys in view.in_partition(partition, self._schema, rows, keys):
                self._locate_in_bucket(bucket_keys, search, with_positions=with_positions)
        self._drop_replaced(view)
        return view.snapshot

    def _locate_in_bucket(
        self, bucket_keys: BucketKeys, search: KeySearch, *, with_positions: bool
    ) -> None:
        count = len(bucket_keys.rows)
        key_rows = KeyRows.from_keys(
            bucket_keys.keys, np.arange(count, dtype=np.int64), self._schema
        )
        collector = found_rows(self._schema, count, ())
        collector.add(key_rows, bucket_keys.levels)
        is_found = collector.table()[1]
        hits = bucket_keys.levels.find(key_rows.batch)
        hit = (hits.store >= 0) & is_found[key_rows.rows]
        groups = group_rows(np.where(hit, hits.store + 1, 0), len(hits.stores) + 1)
        for number, start, stop in groups.stretches():
            if number == 0:
                continue
            hit_rows = groups.order[start:stop]
            place = FilePlace(
                partition=bucket_keys.partition,
                bucket=bucket_keys.bucket,
                file_name=hits.files[number - 1].file_name,
            )
            store, handles = hits.stores[number - 1], hits.handle[hit_rows]
            positions = store.positions(handles) if with_positions else np.full(len(hit_rows), -1)
            search.add_records(bucket_keys.rows[key_rows.rows[hit_rows]], place, positions)

    def _looked_up(self, view: LookupView, keys: pa.RecordBatch, names: Sequence[str]) -> pa.Table:
        values = [name for name in names if name not in self._schema.primary_keys]
        collector = found_rows(self._schema, keys.num_rows, values)
        for bucket_keys in view.by_bucket(self._schema, keys):
            key_rows = KeyRows.from_keys(bucket_keys.keys, bucket_keys.rows, self._schema)
            collector.add(key_rows, bucket_keys.levels, is_alone=bucket_keys.is_alone)
        table, is_found = collector.table()
        columns, fields = [], []
        for name in names:
            source = keys if name in self._schema.primary_keys else table
            columns.append(source.column(name))
            fields.append(pa.field(name, source.schema.field(name).type))
        columns.append(pa.array(is_found))
        fields.append(pa.field(FOUND, pa.bool_(), nullable=False))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _stored_value(session: TableSession, value: StoredValue) -> StoredValue:
    """Return the part of rows to store: deletion vectors require each row's position."""
    columnar = local_file_type(session.schema).policy.gathers_columns
    has_vectors = session.options[core_options.DELETION_VECTORS_ENABLED]
    if value is StoredValue.ROW and has_vectors and not columnar:
        return StoredValue.POSITION_AND_ROW
    return value

"""Locate the records that incoming rows replace, and their files.

Key ranges, bloom filters and then the key columns decide, file by file. Memory holds the batch, one
file's filter and one file's keys, never pairs of keys and files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from lsm_engine.filter.partition import candidate_values
from lsm_engine.filter.predicate import Predicate
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.arrow_views import Bools, Longs, bool_values
from lsm_engine.kernels.selection import keep
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys
from lsm_engine.lookup.key_batch import locate as locate_keys
from lsm_engine.lookup.key_search import (
    DeletedRows,
    FileKeys,
    FilePlace,
    KeySearch,
    SearchWay,
    schema_ids_of,
    with_buckets,
)
from lsm_engine.lookup.keys import keys_of
from lsm_engine.lookup.levels import local_file_type
from lsm_engine.lookup.lookup import FOUND, TableQuery
from lsm_engine.lookup.store import StoredValue
from lsm_engine.options import core_options
from lsm_engine.planning.keys import moves_records
from lsm_engine.read.scan_plan import PlannedScan
from lsm_engine.read.split import ReplacedRows
from lsm_engine.table.deletion_vectors import BucketVectors
from lsm_engine.table.live_files import FILE_NAME, LEVEL
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import TableSchema

# -- Locate the stored record that each incoming row would replace ---------------------------------
#
# This stage precedes writes that depend on stored rows: inserts and updates, cross-partition
# upserts, and deletes by key through deletion vectors.

MERGED = "versions merged, through lookup files"


@record
class RowLocations:
    """The record that each incoming row would replace; one value per row, in the order of the rows.

    `place` is an index into `places`, the data files of the records, and `position` the record's row in its
    file; both are undefined if `is_there` is false. `partition_of` is an index into `partitions`, the rows' own
    partitions as stored rows. `snapshot` is the state that was searched.
    """

    snapshot: Snapshot | None
    keys: pa.RecordBatch
    is_there: Bools
    places: tuple[FilePlace, ...]
    place: Longs
    position: Longs
    partitions: tuple[bytes, ...]
    partition_of: Longs
    steps: tuple[str, ...]

    @property
    def buckets(self) -> Longs:
        """The bucket of each record; -1 if the key has no record."""
        place_buckets = np.array([*(place.bucket for place in self.places), -1], np.int64)
        buckets: Longs = place_buckets[np.where(self.is_there, self.place, -1)]
        return buckets


def locate_rows(
    session: TableSession,
    rows: Any,
    snapshot: Snapshot | None,
    *,
    everywhere: bool | None = None,
) -> RowLocations:
    """Return for each row which record of a snapshot it would replace.

    `rows`: Arrow data with the primary key and partition columns; other columns are ignored. Keys are
    searched in the row's own partition and, with `everywhere`, then in all others; None: everywhere if a
    partition column is no part of the primary key. Rows in deletion vectors do not exist. Memory is
    bounded by the batch and the keys of one file. Raises InvalidInputError as `keys_of` does.
    """
    schema = session.schema
    keys = keys_of(schema, rows, with_partitions=True)
    search = KeySearch(schema, keys)
    steps: tuple[str, ...] = ("nothing to look into",)
    if snapshot is not None and len(search):
        if everywhere is None:
            everywhere = not set(schema.partition_keys) <= set(schema.primary_keys)
        steps = find_records(session, search, snapshot, everywhere=everywhere)
    return RowLocations(
        snapshot=snapshot,
        keys=keys,
        is_there=search.is_there,
        places=tuple(search.places),
        place=search.place,
        position=search.position,
        partitions=tuple(search.partitions),
        partition_of=search.partition_of.astype(np.int64),
        steps=steps,
    )


def find_records(
    session: TableSession,
    search: KeySearch,
    snapshot: Snapshot,
    *,
    everywhere: bool,
) -> tuple[str, ...]:
    """Find the records of a search in a snapshot; return the steps in words."""
    if not newest_decides(session.schema):
        # Versions have to be merged to know whether a record is there: lookups know how.
        columnar = local_file_type(session.schema).policy.gathers_columns
        value = StoredValue.ROW if columnar else StoredValue.POSITION_AND_ROW
        with TableQuery(session.with_level_0(), snapshot=snapshot, value=value) as query:
            query.locate(search, everywhere=everywhere)
        return (MERGED,)
    files = with_buckets(session, session.live_rows(snapshot))
    way = SearchWay(
        by_ranges=session.options[core_options.INDEX_BLOOM_PRUNE_BY_RANGES],
        by_blooms=session.options[core_options.INDEX_TYPE].policy.reads_blooms,
        deleted=rows_deleted_by_vectors(session, snapshot),
    )
    return search_files(session, search, files, way, everywhere=everywhere)


def search_files(
    session: TableSession,
    search: KeySearch,
    files: pa.Table | None,
    way: SearchWay,
    *,
    everywhere: bool,
) -> tuple[str, ...]:
    """Search live files, given as columns (table/live_files), one by one; return the steps in words."""
    if files is None:
        return ()
    assert session.key_order is not None
    context = session.context(schema_ids_of(files))
    return tuple(search.run(files, context, session.key_order, way, everywhere=everywhere))


def rows_deleted_by_vectors(session: TableSession, snapshot: Snapshot) -> DeletedRows | None:
    """Return the test for rows that deletion vectors hide; None if the snapshot has no vectors."""
    places = session.vector_places(snapshot)
    if not places:
        return None
    context = session.context()
    bucket_vectors = {
        bucket: BucketVectors(context, bucket_places.values())
        for bucket, bucket_places in places.items()
    }

    def deleted(entry: ManifestEntry, positions: Longs) -> Bools:
        vectors = bucket_vectors.get((entry.partition, entry.bucket))
        if vectors is None:
            return np.zeros(len(positions), np.bool_)
        return vectors.deleted(entry.file, positions)

    return deleted


def newest_decides(schema: TableSchema) -> bool:
    """Whether the newest row of a key is its record, so that versions need not be merged."""
    engine = schema.options[core_options.MERGE_ENGINE]
    ignores = schema.options[core_options.IGNORE_DELETE]
    return engine.policy.keeps_newest_row and not schema.sequence_fields and not ignores


def merged_already(schema: TableSchema, files: pa.Table | None) -> bool:
    """Whether the live rows of files (columns), without those in deletion vectors, are the records."""
    if not schema.options[core_options.DELETION_VECTORS_ENABLED]:
        return False
    return files is None or not files.num_rows or bool(pc.min(files.column(LEVEL)).as_py() > 0)


@record
class MatchingRows:
    """Rows of one data file with a searched key: their positions, ascending, and key numbers."""

    entry: ManifestEntry
    positions: Longs
    keys: Longs


def matching_rows(
    session: TableSession,
    keys: pa.RecordBatch,
    entries: Sequence[ManifestEntry],
    *,
    deleted: DeletedRows | None = None,
) -> Iterator[MatchingRows]:
    """Yield, per data file, the rows that have one of some keys; the order of the files is arbitrary.

    For tables without a primary key: `keys` has the columns to match, as the table stores them, without
    nulls; a row with a null in one of them never matches. For equal keys, one key number is returned.
    Files without a matching row are left out.
    """
    schema = session.schema
    names = tuple(keys.schema.names)
    types = [field.type for field in schema.select(names)]
    batch, places = KeyBatch.from_columns(keys.columns, types)
    context = session.context(entry.file.schema_id for entry in entries)
    for entry in entries:
        with context.open_file((entry.partition, entry.bucket), entry.file, names) as reader:
            positions, numbers, begin = [], [], 0
            for rows in reader.batches():
                matched_rows, matched_keys = match_keys(rows, batch, names)
                positions.append(matched_rows + begin)
                numbers.append(places[matched_keys])
                begin += rows.num_rows
        row_positions = np.concatenate([*positions, _NONE])
        key_numbers = np.concatenate([*numbers, _NONE])
        if deleted is not None and len(row_positions):
            is_live = ~deleted(entry, row_positions)
            row_positions, key_numbers = row_positions[is_live], key_numbers[is_live]
        if len(row_positions):
            yield MatchingRows(entry=entry, positions=row_positions, keys=key_numbers)


_NONE: Longs = np.zeros(0, np.int64)


def match_keys(rows: pa.RecordBatch, batch: KeyBatch, names: Sequence[str]) -> tuple[Longs, Longs]:
    """Return the rows that have one of the keys, in order, and the key number of each."""
    columns = [rows.column(name) for name in names]
    valid_rows: Longs = np.arange(rows.num_rows, dtype=np.int64)
    if any(column.null_count for column in columns):
        valid = np.logical_and.reduce(
            [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
        )
        valid_rows = np.flatnonzero(valid)
        columns = [column.take(pa.array(valid_rows)) for column in columns]
    if not len(valid_rows) or not len(batch):
        return _NONE, _NONE
    mine, order = KeyBatch.from_columns(columns, batch.types)
    key_rows: Longs = np.arange(len(mine), dtype=np.int64)
    matches = locate_keys(SearchKeys.from_sort_keys(batch.keys), mine.search, key_rows).last
    hit = np.flatnonzero(matches >= 0)
    positions = valid_rows[order[hit]]
    sorted_ = np.argsort(positions, kind="stable")
    return positions[sorted_], matches[hit][sorted_]


# -- Locate the records that incoming rows replace, and their files --------------------------------

Numbers = npt.NDArray[np.int32]
_ACTIONS = INSERT, UPDATE, MOVE = "insert", "update", "move"
THROUGH_LOOKUPS = "the key's own bucket, through lookup files"


def located_schema() -> pa.Schema:
    """Return the columns of a location."""
    return pa.schema(
        [
            pa.field("action", pa.string(), nullable=False),
            pa.field("partition", pa.string(), nullable=False),
            pa.field("bucket", pa.int32()),
            pa.field("file_name", pa.string()),
            pa.field("snapshot_id", pa.int64()),
        ]
    )


@record
class Location:
    """The locations of the records that rows replace. `how` describes each stage in words."""

    table: pa.Table
    how: tuple[str, ...]


class Locator:
    """Finds records by the table's `index.type`. Threads may share it."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._schema = session.schema
        self._type = session.options[core_options.INDEX_TYPE]
        self._kept: dict[str, FileKeys] = {}

    @property
    def _everywhere(self) -> bool:
        return looks_everywhere(self._schema)

    def locate(self, rows: Any, newest: Callable[[], TableQuery]) -> Location:
        """Return one row per incoming row, in its order; see `located_schema`.

        `newest` returns the query for `index.type` = bucket. The query also answers for other types if the newest
        row of a key does not decide whether its record exists: then versions have to be merged.
        """
        search = KeySearch(self._schema, keys_of(self._schema, rows, with_partitions=True))
        result = None if self._type.policy.uses_lookups else self._by_index(search)
        if result is not None:
            snapshot, steps = result
        else:
            query = newest()
            query.refresh()
            snapshot = query.locate(search, everywhere=self._everywhere, with_positions=False)
            steps = (THROUGH_LOOKUPS if self._type.policy.uses_lookups else MERGED,)
        return Location(table=self._locations(search, snapshot), how=steps)

    def _by_index(self, search: KeySearch) -> tuple[Snapshot | None, tuple[str, ...]] | None:
        """Search the files of the newest snapshot; None if versions have to be merged."""
        session = self._session
        snapshot = session.snapshots.latest(reads_state=True)
        if snapshot is None or not len(search):
            return snapshot, ("nothing to look into",)
        files = with_buckets(session, session.live_rows(snapshot))
        if not newest_decides(self._schema) and not merged_already(self._schema, files):
            return None
        way = SearchWay(
            by_ranges=session.options[core_options.INDEX_BLOOM_PRUNE_BY_RANGES],
            by_blooms=self._type.policy.reads_blooms,
            deleted=rows_deleted_by_vectors(session, snapshot),
            cached_keys=self._kept if self._type.policy.keeps_keys else None,
        )
        steps = search_files(session, search, files, way, everywhere=self._everywhere)
        if way.cached_keys is not None and files is not None:
            live = set(files.column(FILE_NAME).to_pylist())
            self._kept = {name: keys for name, keys in self._kept.items() if name in live}
        return snapshot, steps

    def _locations(self, search: KeySearch, snapshot: Snapshot | None) -> pa.Table:
        context = self._session.context()
        is_found, places = search.is_there, search.places
        paths: dict[str, int] = {}

        def numbers(partitions: Iterable[bytes]) -> Numbers:
            partition_paths = map(context.partition_path, partitions)
            return np.array(
                [paths.setdefault(path, len(paths)) for path in partition_paths], np.int32
            )

        # The last place stands for "no file".
        place_numbers = np.where(is_found, search.place, len(places)).astype(np.int32)
        own = numbers(search.partitions)[search.partition_of]
        place_partitions = np.append(numbers(place.partition for place in places), np.int32(-1))
        partition = np.where(is_found, place_partitions[place_numbers], own)
        buckets = np.array([*(place.bucket for place in places), -1], np.int32)
        bucket = np.where(is_found, buckets[place_numbers], search.own_buckets)
        action = is_found.astype(np.int32)
        if self._everywhere and moves_records(self._session.options):
            action[is_found & (partition != own)] = _ACTIONS.index(MOVE)
        number = pa.scalar(None if snapshot is None else snapshot.id, pa.int64())
        columns = [
            _text_column(_ACTIONS, action),
            _text_column(list(paths), partition),
            pa.array(bucket, pa.int32(), mask=bucket < 0),
            _text_column([*(place.file_name for place in places), None], place_numbers),
            pc.if_else(pa.array(is_found), number, pa.scalar(None, pa.int64())),
        ]
        return pa.Table.from_arrays(columns, schema=located_schema())


def _text_column(texts: Sequence[str | None], numbers: Numbers) -> pa.Array:
    return pa.array(texts, pa.string()).take(pa.array(numbers))


def looks_everywhere(schema: TableSchema) -> bool:
    """Whether a key is searched in all partitions, by the index type or the key columns."""
    is_global = schema.options[core_options.INDEX_TYPE].policy.is_global
    return is_global or not set(schema.partition_keys) <= set(schema.primary_keys)


# -- Read keys of the newest snapshot: lookups, locations, and scans whose filter names keys -------
#
# A scan of a few keys decodes a page of every column for each file that may hold them. A lookup
# is much cheaper, but each lookup file costs the decoding of a whole data file once. So scans
# read pages until the decoded rows equal the cost of the lookup files, and look keys up from
# then on. The total cost is at most twice that of the better choice, whatever the number of
# scans.

_KEYS_MAX = 1_000
"""Keys of one scan up to which it may be a lookup."""
_PAGE_ROWS = 20_000
_SCAN_ROWS = 2_000
"""The cost of a scan of a few keys in decoded rows: at most a page of each file, and its plan."""
_LISTED_ROWS = 100
"""The cost, in decoded rows, of one more file in the view of a lookup."""


class NewestKeys:
    """The query and the locator of a table, created on first use. Threads may share them."""

    def __init__(self, session: TableSession) -> None:
        self.session = session
        self._schema = session.schema
        self.replaced = ReplacedRows()
        self._file_count = 0
        # Racing threads may lose an addition: then lookup files are built a little later.
        self._paid_rows = 0

    @cached_property
    def query(self) -> TableQuery:
        """The query for lookups; its callers refresh it."""
        return TableQuery(self.session)

    @cached_property
    def locator(self) -> Locator:
        """The locator of records."""
        return Locator(self.session)

    def named_by(self, predicate: Predicate) -> pa.RecordBatch | None:
        """Return the keys that a filter restricts rows to, in order; None if it does not name them all."""
        schema = self._schema
        fields = schema.select(schema.primary_keys)
        kinds = [schema.arrow.field(field.name).type for field in fields]
        if any(map(pa.types.is_floating, kinds)) or FOUND in schema.names:
            return None  # zeros are equal, and one key
        if not set(schema.partition_keys) <= set(schema.primary_keys):
            return None
        values = candidate_values(predicate, fields, _KEYS_MAX)
        if values is None:
            return None
        keys = pa.RecordBatch.from_arrays(values, names=list(schema.primary_keys))
        by = [(name, "ascending") for name in schema.primary_keys]
        return keys.take(pc.sort_indices(keys, sort_keys=by))

    def rows(
        self, snapshot: Snapshot, keys: pa.RecordBatch, names: Sequence[str]
    ) -> pa.Table | None:
        """Return columns of the rows that have these keys in a snapshot; None if a scan is cheaper."""
        if "query" not in self.__dict__ or self.query.snapshot != snapshot:
            price = _SCAN_ROWS + _LISTED_ROWS * self._file_count
            if self._paid_rows < price:
                return None
            self._paid_rows -= price
            try:
                self.query.refresh()
            except LsmError:  # tables that are scanned only, and damage in a newer snapshot
                return None
        result, built = self.query.lookup_at(snapshot, keys, names, self._paid_rows)
        self._paid_rows -= built
        return None if result is None else keep(result, bool_values(result.column(FOUND)))

    def scanned(self, plan: PlannedScan) -> None:
        """Add the cost of a scan of a few keys."""
        files = [file for split in plan.splits for file in split.files]
        self._file_count = plan.explanation.files.total
        self._paid_rows += _SCAN_ROWS + sum(min(file.row_count, _PAGE_ROWS) for file in files)

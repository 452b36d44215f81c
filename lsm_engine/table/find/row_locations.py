"""Locate the stored record that each incoming row would replace.

This stage precedes writes that depend on stored rows: inserts and updates, cross-partition upserts, and
deletes by key through deletion vectors.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys
from lsm_engine.lookup.key_batch import locate as locate_keys
from lsm_engine.lookup.lookup_file import local_file_type
from lsm_engine.lookup.lookup_store import StoredValue
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.find.key_search import DeletedRows, KeySearch, SearchWay
from lsm_engine.table.find.lookup import TableQuery
from lsm_engine.table.find.lookup_keys import keys_of
from lsm_engine.table.find.searched_files import FilePlace, schema_ids_of, with_buckets
from lsm_engine.table.ground.deletion_vectors import BucketVectors
from lsm_engine.table.ground.live_files import LEVEL
from lsm_engine.table.ground.session import TableSession

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
        steps = tag_search(session, search, snapshot, everywhere=everywhere)
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


def tag_search(
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
            query.tag(search, everywhere=everywhere)
        return (MERGED,)
    files = with_buckets(session.live_rows(snapshot))
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
    """Search live files, given as columns (table/ground/live_files), one by one; return the steps in words."""
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
        with context.open_file(entry.partition, entry.bucket, entry.file, names) as reader:
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

"""Locate: which incoming rows replace a record that is there, and where that one is.

Ranges, bloom filters, then the key columns alone decide, file by file: what is held is the batch, one
file's filter and one file's keys, never pairs of keys and files.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.key_moves import moves_records
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.find.key_search import FileKeys, KeySearch, SearchWay
from lsm_engine.table.find.lookup import TableQuery
from lsm_engine.table.find.lookup_keys import keys_of
from lsm_engine.table.find.row_locations import (
    MERGED,
    merged_already,
    newest_decides,
    rows_deleted_by_vectors,
    search_files,
)
from lsm_engine.table.find.searched_files import with_buckets
from lsm_engine.table.ground.live_files import FILE_NAME
from lsm_engine.table.ground.session import TableSession

Objects = npt.NDArray[np.object_]
INSERT, UPDATE, MOVE = "insert", "update", "move"
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
    """Where the records are that rows replace. `how` describes what each stage did, for people."""

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

        `newest` gives the query that answers for `index.type` = bucket, and where the newest row of a key does not decide
        whether its record is there: then versions have to be merged, whatever the type.
        """
        search = KeySearch(self._schema, keys_of(self._schema, rows, with_partitions=True))
        found = None if self._type.policy.uses_lookups else self._by_index(search)
        if found is not None:
            snapshot, how = found
        else:
            query = newest()
            query.refresh()
            snapshot = query.tag(search, everywhere=self._everywhere, with_positions=False)
            how = (THROUGH_LOOKUPS if self._type.policy.uses_lookups else MERGED,)
        return Location(table=self._tagged(search, snapshot), how=how)

    def _by_index(self, search: KeySearch) -> tuple[Snapshot | None, tuple[str, ...]] | None:
        """Search the files of the newest snapshot; None where versions have to be merged."""
        session = self._session
        snapshot = session.snapshots.latest(reads_state=True)
        if snapshot is None or not len(search):
            return snapshot, ("nothing to look into",)
        files = with_buckets(session.live_rows(snapshot))
        if not newest_decides(self._schema) and not merged_already(self._schema, files):
            return None
        way = SearchWay(
            by_ranges=session.options[core_options.INDEX_BLOOM_PRUNE_BY_RANGES],
            by_blooms=self._type.policy.reads_blooms,
            deleted=rows_deleted_by_vectors(session, snapshot),
            kept=self._kept if self._type.policy.keeps_keys else None,
        )
        how = search_files(session, search, files, way, everywhere=self._everywhere)
        if way.kept is not None and files is not None:
            live = set(files.column(FILE_NAME).to_pylist())
            self._kept = {name: keys for name, keys in self._kept.items() if name in live}
        return snapshot, how

    def _own_partitions(self, search: KeySearch) -> Objects:
        context = self._session.context()
        own = [context.partition_path(stored) for stored in search.partitions]
        paths: Objects = np.array(own, dtype=object)[search.partition_of]
        return paths

    def _tagged(self, search: KeySearch, snapshot: Snapshot | None) -> pa.Table:
        context = self._session.context()
        found, places = search.is_there, search.places
        own = self._own_partitions(search)
        # The last one stands for "no file", which has number -1.
        paths = np.array([context.partition_path(one.partition) for one in places] + [""], object)
        names = np.array([one.file_name for one in places] + [None], object)
        buckets = np.array([one.bucket for one in places] + [-1], np.int32)
        partition = np.where(found, paths[search.place], own)
        action = np.where(found, UPDATE, INSERT).astype(object)
        if self._everywhere and moves_records(self._session.options):
            action[found & (partition != own)] = MOVE
        return _tags(
            search,
            snapshot,
            action=action,
            partition=partition,
            bucket=np.where(found, buckets[search.place], search.own_buckets),
            names=names[np.where(found, search.place, -1)],
        )


def _tags(
    search: KeySearch,
    snapshot: Snapshot | None,
    *,
    action: Any,
    partition: Objects,
    bucket: npt.NDArray[np.int32],
    names: Objects,
) -> pa.Table:
    number = 0 if snapshot is None else snapshot.id
    is_insert = np.asarray(action == INSERT, np.bool_)
    columns = [
        pa.array(action, pa.string()),
        pa.array(partition, pa.string()),
        pa.array(bucket, pa.int32(), mask=bucket < 0),
        pa.array(names, pa.string()),
        pa.array(np.full(len(search), number), pa.int64(), mask=is_insert),
    ]
    return pa.Table.from_arrays(columns, schema=located_schema())


def looks_everywhere(schema: TableSchema) -> bool:
    """Whether a key is looked for in all partitions: by the index type or the key."""
    is_global = schema.options[core_options.INDEX_TYPE].policy.is_global
    return is_global or not set(schema.partition_keys) <= set(schema.primary_keys)

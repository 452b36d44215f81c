"""Locate the records that incoming rows replace, and their files.

Key ranges, bloom filters and then the key columns decide, file by file. Memory holds the batch, one
file's filter and one file's keys, never pairs of keys and files.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
            snapshot = query.tag(search, everywhere=self._everywhere, with_positions=False)
            steps = (THROUGH_LOOKUPS if self._type.policy.uses_lookups else MERGED,)
        return Location(table=self._tagged(search, snapshot), how=steps)

    def _by_index(self, search: KeySearch) -> tuple[Snapshot | None, tuple[str, ...]] | None:
        """Search the files of the newest snapshot; None if versions have to be merged."""
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
            cached_keys=self._kept if self._type.policy.keeps_keys else None,
        )
        steps = search_files(session, search, files, way, everywhere=self._everywhere)
        if way.cached_keys is not None and files is not None:
            live = set(files.column(FILE_NAME).to_pylist())
            self._kept = {name: keys for name, keys in self._kept.items() if name in live}
        return snapshot, steps

    def _tagged(self, search: KeySearch, snapshot: Snapshot | None) -> pa.Table:
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

"""Route rows of tables whose key lacks partition columns: a key may be stored in any partition.

Incoming rows are buffered, their keys are searched in the files that may hold them
(table/find/row_locations), and plan/key_moves decides where rows go. The routing caches the keys that
earlier rows of the same write have moved.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.modes import RowKind
from lsm_engine.base.record import record
from lsm_engine.codec.binary_row import decode_columns
from lsm_engine.codec.manifest import entries_of
from lsm_engine.kernels.arrow_views import Bools, Longs, fixed_values
from lsm_engine.kernels.row_kinds import adds
from lsm_engine.lookup.key_batch import KeyBatch, locate
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.key_moves import (
    MovedKeys,
    SortedRows,
    check_moves_delete,
    fill_buckets,
    moves,
    moves_records,
)
from lsm_engine.plan.remembered_keys import remembered_buckets
from lsm_engine.table.find.key_search import KeySearch, SearchWay
from lsm_engine.table.find.row_locations import rows_deleted_by_vectors, search_files
from lsm_engine.table.find.searched_files import with_buckets
from lsm_engine.table.ground.bucket_context import BucketContext, Staging
from lsm_engine.table.ground.bucket_keys import RoutedRows, cut, partition_numbers
from lsm_engine.table.ground.components import Components
from lsm_engine.table.ground.executor import LocalExecutor
from lsm_engine.table.ground.incoming import IncomingRows, joined
from lsm_engine.table.ground.live_files import BUCKET, PARTITION, ROW_COUNT
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.stage.dynamic_buckets import DYNAMIC_TOTAL, assignment_rules

_GATHERED_BYTES = 64 << 20
"""The number of rows per key search; each search reads the key columns of candidate files."""


@record
class KeyLocations:
    """Keys in order, with the partition (by number) and bucket of each; -1: the key is not stored."""

    keys: KeyBatch
    partition: Longs
    bucket: Longs


class CrossPartitionRouting:
    """Routes rows to the partition of their key, or deletes the key from it (GlobalIndexAssigner)."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        context = staging.context
        self._schema = context.schema
        check_moves_delete(self._schema.options)
        self._engine = self._schema.options[core_options.MERGE_ENGINE]
        self._rules = assignment_rules(self._schema.options)
        self._gathered: list[IncomingRows] = []
        self._byte_count = 0
        self._partitions: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._earlier: list[KeyLocations] = []
        self._counts: dict[int, Longs] = {}
        base = staging.buckets.base
        self._stored = None if base is None else _StoredKeys(context, base)

    def route(self, incoming: IncomingRows) -> list[RoutedRows]:
        """Buffer rows; once there are enough, return them cut by bucket in the order of arrival."""
        self._gathered.append(incoming)
        self._byte_count += incoming.rows.nbytes
        return self.remaining() if self._byte_count >= _GATHERED_BYTES else []

    def remaining(self) -> list[RoutedRows]:
        """Return the buffered rows, cut by bucket."""
        if not self._gathered:
            return []
        incoming = joined(self._gathered)
        self._gathered, self._byte_count = [], 0
        return self._routed(incoming)

    def total_buckets(self, partition: bytes) -> int:
        """The number of buckets that manifest entries record."""
        del partition
        return DYNAMIC_TOTAL

    def completed(self, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Nothing is added: the data files are the index."""
        return list(messages)

    def abort(self) -> None:
        """Nothing was written."""

    def _routed(self, incoming: IncomingRows) -> list[RoutedRows]:
        schema = self._schema
        stored, local = partition_numbers(schema.select(schema.partition_keys), incoming.rows)
        own = np.array([self._number(partition) for partition in stored], np.int64)[local]
        fields = schema.select(schema.primary_keys)
        columns = [incoming.rows.column(field.name) for field in fields]
        keys, order = KeyBatch.from_columns(columns, [field.type for field in fields])
        heads = np.zeros(len(order), np.bool_)
        heads[keys.firsts] = True
        # Rows of one key in the order in which they came.
        order = order[np.lexsort((order, np.cumsum(heads)))]
        locations = self._locations(incoming, keys, order, heads)
        is_added = adds(fixed_values(incoming.kinds, np.int8)[order])
        of_key = np.cumsum(heads) - 1
        rows = SortedRows(
            heads=heads,
            own=own[order],
            adds=is_added,
            known_partition=locations.partition[of_key],
            known_bucket=locations.bucket[of_key],
        )
        keeps = not moves_records(schema.options)
        moved_keys = moves(rows, self._engine, deletes=self._staging.deletes, keeps=keeps)
        buckets = self._buckets(moved_keys)
        self._remember(locations.keys, rows, moved_keys, buckets)
        return self._cut(incoming, order, rows, moved_keys, buckets)

    def _locations(
        self, incoming: IncomingRows, keys: KeyBatch, order: Longs, heads: Bools
    ) -> KeyLocations:
        """Return the location of each distinct key: by earlier rows of this write, else by files."""
        firsts = np.flatnonzero(heads)
        columns = [column.take(pa.array(firsts)) for column in keys.columns]
        distinct, _ = KeyBatch.from_columns(columns, keys.types)
        partition, bucket = np.full(len(firsts), -1, np.int64), np.full(len(firsts), -1, np.int64)
        unknown = np.ones(len(firsts), np.bool_)
        for earlier in reversed(self._earlier):
            wanted_keys: Longs = np.flatnonzero(unknown)
            place_numbers = locate(earlier.keys.search, distinct.search, wanted_keys).last
            wanted_keys, place_numbers = (
                wanted_keys[place_numbers >= 0],
                place_numbers[place_numbers >= 0],
            )
            partition[wanted_keys], bucket[wanted_keys] = (
                earlier.partition[place_numbers],
                earlier.bucket[place_numbers],
            )
            unknown[wanted_keys] = False
        wanted_keys = np.flatnonzero(unknown)
        if len(wanted_keys) and self._stored is not None:
            places, place_numbers = self._stored.find(
                incoming.rows.take(pa.array(order[firsts[wanted_keys]]))
            )
            numbers = [(self._number(stored), number) for stored, number in places]
            stored_places = np.array([*numbers, (-1, -1)], np.int64)[place_numbers]
            partition[wanted_keys], bucket[wanted_keys] = stored_places[:, 0], stored_places[:, 1]
        return KeyLocations(keys=distinct, partition=partition, bucket=bucket)

    def _buckets(self, moved_keys: MovedKeys) -> Longs:
        """Return the bucket of each row; new keys are assigned one."""
        bucket = moved_keys.bucket.copy()
        begins = moved_keys.root == np.arange(len(bucket))
        new = np.flatnonzero(begins & (bucket < 0) & (moved_keys.target >= 0))
        for partition in np.unique(moved_keys.target[new]).tolist():
            mine = new[moved_keys.target[new] == partition]
            filled = fill_buckets(
                self._counted(partition),
                len(mine),
                target_rows=self._rules.target_rows,
                bucket_limit=self._rules.bucket_limit,
            )
            if filled is None:
                raise InvalidOptionError(
                    "a partition has no bucket for a new key; raise 'dynamic-bucket.max-buckets'",
                    key=core_options.DYNAMIC_BUCKET_MAX_BUCKETS.key,
                )
            bucket[mine], self._counts[partition] = filled
        buckets: Longs = bucket[moved_keys.root]
        return buckets

    def _counted(self, partition: int) -> Longs:
        """Return the rows of each bucket of a partition, by now and not merged."""
        if partition not in self._counts:
            stored = self._stored
            self._counts[partition] = (
                np.zeros(0, np.int64)
                if stored is None
                else stored.rows_by_bucket(self._partitions[partition])
            )
        return self._counts[partition]

    def _remember(
        self, keys: KeyBatch, rows: SortedRows, moved_keys: MovedKeys, buckets: Longs
    ) -> None:
        """Record the location of each key after its last row."""
        last = np.append(np.flatnonzero(rows.heads)[1:], len(rows.heads)) - 1
        if self._engine.policy.keeps_newest_row:
            is_there = rows.adds[last]
            partition = np.where(is_there, moved_keys.target[last], -1)
            bucket = np.where(is_there, buckets[last], -1)
        else:
            heads = np.flatnonzero(rows.heads)
            known_partitions = rows.known_partition[heads]
            partition = np.where(known_partitions >= 0, known_partitions, moved_keys.target[heads])
            bucket = np.where(known_partitions >= 0, rows.known_bucket[heads], buckets[heads])
        self._earlier.append(KeyLocations(keys=keys, partition=partition, bucket=bucket))

    def _cut(
        self,
        incoming: IncomingRows,
        order: Longs,
        rows: SortedRows,
        moved_keys: MovedKeys,
        buckets: Longs,
    ) -> list[RoutedRows]:
        written = np.flatnonzero(moved_keys.target >= 0)
        leaves = np.flatnonzero(moved_keys.left_partition >= 0)
        before = buckets[np.maximum(leaves - 1, 0)]
        left_bucket = np.where(
            moved_keys.left_bucket[leaves] >= 0, moved_keys.left_bucket[leaves], before
        )
        of_row = np.concatenate([order[leaves], order[written]])
        partition = np.concatenate([moved_keys.left_partition[leaves], moved_keys.target[written]])
        bucket = np.concatenate([left_bucket, buckets[written]])
        row_kinds = fixed_values(incoming.kinds, np.int8)[order[written]]
        kinds = np.concatenate([np.full(len(leaves), RowKind.DELETE, np.int8), row_kinds])
        moved = len(leaves) > 0 or bool((moved_keys.target != rows.own)[written].any())
        # The -D in the old partition precedes the row in the new one.
        arrival = np.argsort(
            np.concatenate([2 * order[leaves], 2 * order[written] + 1]), kind="stable"
        )
        if not len(arrival):
            return []
        rows_out = incoming.rows.take(pa.array(of_row[arrival]))
        if moved:
            rows_out = self._in_partitions(rows_out, partition[arrival])
        return cut(
            IncomingRows(rows=rows_out, kinds=pa.array(kinds[arrival])),
            self._partitions,
            partition[arrival],
            bucket[arrival],
        )

    def _in_partitions(self, rows: pa.RecordBatch, partition: Longs) -> pa.RecordBatch:
        """Return rows with the values of the partitions that they are written to."""
        fields = self._schema.select(self._schema.partition_keys)
        stored = pa.array(self._partitions, pa.binary())
        values = decode_columns(stored, [field.type for field in fields])
        columns = list(rows.columns)
        for field, value in zip(fields, values, strict=True):
            index = rows.schema.get_field_index(field.name)
            columns[index] = value.take(pa.array(partition)).cast(rows.schema.field(index).type)
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)

    def _number(self, partition: bytes) -> int:
        if partition not in self._numbers:
            self._numbers[partition] = len(self._partitions)
            self._partitions.append(partition)
        return self._numbers[partition]


class _StoredKeys:
    """The keys of a snapshot. Its manifests are read at the first search."""

    def __init__(self, context: BucketContext, base: Snapshot) -> None:
        self._context = context
        self._options = context.schema.options
        self._base = base

    def find(self, rows: pa.RecordBatch) -> tuple[list[tuple[bytes, int]], Longs]:
        """Return buckets, and the index of the bucket that holds each row's key; -1: none."""
        schema = self._context.schema
        names = list(dict.fromkeys((*schema.primary_keys, *schema.partition_keys)))
        search = KeySearch(schema, rows.select(names))
        search_files(self._session, search, self._files, self._way, everywhere=True)
        # A computed record may exist although its newest version is a retraction.
        newest = self._options[core_options.MERGE_ENGINE].policy.keeps_newest_row
        is_there = search.is_there if newest else search.place >= 0
        places = [(place.partition, place.bucket) for place in search.places]
        return places, np.where(is_there, search.place, -1)

    def rows_by_bucket(self, partition: bytes) -> Longs:
        """Return the rows of each bucket of a partition, those of one key counted each."""
        files = self._files
        if files is None:
            return np.zeros(0, np.int64)
        own = files.filter(pc.equal(files.column(PARTITION), pa.scalar(partition, pa.binary())))
        buckets, rows = own.column(BUCKET).to_numpy(), own.column(ROW_COUNT).to_numpy()
        counts: Longs = np.zeros(int(buckets.max(initial=-1)) + 1, np.int64)
        np.add.at(counts, buckets, rows)
        return counts

    @cached_property
    def _session(self) -> TableSession:
        context = self._context
        components = Components(
            file_io=context.file_io,
            clock=context.clock,
            ids=context.ids,
            executor=LocalExecutor(threads=1),
        )
        return TableSession("", components, context.schema, branch=context.paths.branch_name)

    @cached_property
    def _files(self) -> pa.Table | None:
        """The live files as columns: there may be very many, and a search opens one at a time."""
        return with_buckets(self._session.live_rows(self._base))

    @cached_property
    def _way(self) -> SearchWay:
        options, files = self._options, self._files
        remembers = options[core_options.CROSS_PARTITION_UPSERT_INDEX_TTL]
        elsewhere: frozenset[tuple[bytes, int]] | None = None
        if remembers is not None and files is not None:
            since = self._context.clock.now_millis() - remembers
            elsewhere = remembered_buckets(entries_of(files), since_millis=since)
        return SearchWay(
            by_ranges=options[core_options.INDEX_BLOOM_PRUNE_BY_RANGES],
            by_blooms=options[core_options.INDEX_TYPE].policy.reads_blooms,
            deleted=rows_deleted_by_vectors(self._session, self._base),
            elsewhere=elsewhere,
        )

"""Route incoming rows to their buckets, for every bucket mode."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.format.binary_row import decode_columns
from lsm_engine.format.checksum import check_bytes, checksum_of
from lsm_engine.format.commit_message import CommitMessage, DataIncrement
from lsm_engine.format.index_file import (
    HASH,
    IndexFileMeta,
    decode_bucket_index,
    encode_bucket_index,
)
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.manifest_file import entries_of
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.arrow_views import Bools, Longs, fixed_values
from lsm_engine.kernels.buckets import BUCKETS_MAX, AssignmentRules, HashBuckets, bucket_of
from lsm_engine.kernels.changes import adds
from lsm_engine.lookup.key_batch import KeyBatch, locate
from lsm_engine.lookup.key_search import KeySearch, SearchWay, with_buckets
from lsm_engine.lookup.locate import rows_deleted_by_vectors, search_files
from lsm_engine.options import core_options
from lsm_engine.options.modes import BucketMode, RowKind
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.buckets import waits_for_size
from lsm_engine.planning.keys import (
    MovedKeys,
    SortedRows,
    check_moves_delete,
    fill_buckets,
    moves,
    moves_records,
    remembered_buckets,
)
from lsm_engine.read.split import BucketReader
from lsm_engine.table.bucket_context import BucketContext, Staging
from lsm_engine.table.bucket_keys import RoutedRows, Router, bucket_hashes, cut, partition_numbers
from lsm_engine.table.incoming import IncomingRows, joined
from lsm_engine.table.live_files import BUCKET, PARTITION, ROW_COUNT
from lsm_engine.table.session import TableSession

# -- Dynamic buckets -------------------------------------------------------------------------------
#
# A key keeps the bucket that its hash was assigned, and new keys fill bucket by bucket.
#
# Within one commit a single writer assigns the buckets of a partition. Two concurrent commits
# may assign different buckets; the later one is reassigned when it commits (commit/commit).

DYNAMIC_TOTAL = -1
"""The bucket count that manifest entries record for dynamic buckets."""


def assignment_rules(options: TableOptions) -> AssignmentRules:
    """Return the rules by which new keys are assigned a bucket.

    `initial-buckets` is how many buckets rows spread over at first; it is bounded by
    `assigner-parallelism` where both are given, as in other clients.
    """
    lanes = [
        count
        for count in (
            options[core_options.DYNAMIC_BUCKET_INITIAL_BUCKETS],
            options[core_options.DYNAMIC_BUCKET_ASSIGNER_PARALLELISM],
        )
        if count is not None
    ]
    return AssignmentRules(
        target_rows=options[core_options.DYNAMIC_BUCKET_TARGET_ROW_NUM],
        lanes=min(lanes, default=1),
        max_buckets=options[core_options.DYNAMIC_BUCKET_MAX_BUCKETS],
    )


class PartitionBuckets:
    """The dynamic buckets of one partition: assigned hashes, and assignments of new ones."""

    def __init__(self, staging: Staging, partition: bytes) -> None:
        self._context = staging.context
        self._partition = partition
        self._stored = dict(staging.buckets.indexes.get(partition, ()))
        self._known = HashBuckets(assignment_rules(self._context.schema.options))
        for bucket, file in self._stored.items():
            self._known.add(listed_hashes(self._context, file), bucket)
        self._listed: Longs = np.array(self._known.counts)
        for entry in staging.buckets.unindexed.get(partition, ()):
            self._read_keys(entry)

    def assign(self, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the bucket of each hash; new hashes are assigned one."""
        buckets = self._known.assign(hashes)
        if buckets is None:
            raise InvalidOptionError(
                f"a partition would need more than {BUCKETS_MAX} buckets; raise "
                "'dynamic-bucket.target-row-num', or set 'dynamic-bucket.max-buckets'",
                key=core_options.DYNAMIC_BUCKET_TARGET_ROW_NUM.key,
                partition=self._context.partition_path(self._partition),
            )
        return buckets

    def write_indexes(self) -> dict[int, DataIncrement]:
        """Write an index file per bucket with new hashes; return the increments for the commit."""
        counts = self._known.counts
        listed = np.zeros(len(counts), np.int64)
        listed[: len(self._listed)] = self._listed
        changed_buckets = np.flatnonzero(counts != listed)
        increments: dict[int, DataIncrement] = {}
        for bucket, hashes in zip(
            changed_buckets.tolist(), self._known.hashes_of(changed_buckets), strict=True
        ):
            new = write_hashes(self._context, hashes)
            old = (self._stored[bucket],) if bucket in self._stored else ()
            increments[bucket] = DataIncrement(new_index_files=(new,), deleted_index_files=old)
        return increments

    def _read_keys(self, entry: ManifestEntry) -> None:
        """Compute the hashes of a bucket without a hash index from the keys in its files."""
        schema = self._context.schema
        fields = schema.select(schema.bucket_keys)
        reader = BucketReader(self._context, self._partition, entry.bucket)
        for rows in reader.file(entry.file, schema.bucket_keys):
            self._known.add(bucket_hashes(fields, rows), entry.bucket)


def write_hashes(context: BucketContext, hashes: npt.NDArray[np.int32]) -> IndexFileMeta:
    """Write the index file of a bucket that lists hashes, in the order given."""
    name = f"index-{context.ids.new_id()}-0"
    data = encode_bucket_index(hashes)
    context.file_io.write_new(context.paths.index_file(name), data)
    return IndexFileMeta(
        index_type=HASH,
        file_name=name,
        file_size=len(data),
        row_count=len(hashes),
        checksum=checksum_of(data),
    )


def listed_hashes(context: BucketContext, file: IndexFileMeta) -> npt.NDArray[np.int32]:
    """Return the hashes that an index file of a bucket lists; raises what reading it raises."""
    path = context.paths.index_file(file.file_name)
    data = context.file_io.read(path, length=file.file_size + 1)
    check_bytes(data, file.checksum, file_name=path)
    return decode_bucket_index(data, row_count=file.row_count, file_name=path)


class DynamicRouting:
    """Routes rows to dynamic buckets, and maintains their hash indexes (HashBucketAssigner)."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        schema = staging.context.schema
        self._partition_fields = schema.select(schema.partition_keys)
        self._bucket_fields = schema.select(schema.bucket_keys)
        self._partitions: dict[bytes, PartitionBuckets] = {}
        self._written: list[str] = []

    def total_buckets(self, partition: bytes) -> int:
        """The number of buckets that manifest entries record."""
        del partition
        return DYNAMIC_TOTAL

    def route(self, incoming: IncomingRows) -> list[RoutedRows]:
        """Return the batch cut by bucket; one bucket's rows keep their order."""
        partitions, partition_ids = partition_numbers(self._partition_fields, incoming.rows)
        hashes = bucket_hashes(self._bucket_fields, incoming.rows)
        buckets = np.empty(len(hashes), np.int32)
        for number, partition in enumerate(partitions):
            rows = np.flatnonzero(partition_ids == number) if len(partitions) > 1 else slice(None)
            buckets[rows] = self._buckets_of(partition).assign(hashes[rows])
        return cut(incoming, partitions, partition_ids, buckets)

    def remaining(self) -> list[RoutedRows]:
        """Nothing is held back."""
        return []

    def completed(self, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Return the messages with their index files."""
        by_bucket = {(message.partition, message.bucket): message for message in messages}
        for partition, buckets in self._partitions.items():
            for bucket, increment in buckets.write_indexes().items():
                self._written += [file.file_name for file in increment.new_index_files]
                key = (partition, bucket)
                message = by_bucket.get(key) or CommitMessage(
                    partition=partition, bucket=bucket, total_buckets=DYNAMIC_TOTAL
                )
                data = replace(
                    message.data,
                    new_index_files=(*message.data.new_index_files, *increment.new_index_files),
                    deleted_index_files=increment.deleted_index_files,
                )
                by_bucket[key] = replace(message, data=data)
        return list(by_bucket.values())

    def abort(self) -> None:
        """Delete the index files that were written; nothing names them."""
        discard_indexes(self._staging.context, self._written)

    def _buckets_of(self, partition: bytes) -> PartitionBuckets:
        if partition not in self._partitions:
            self._partitions[partition] = PartitionBuckets(self._staging, partition)
        return self._partitions[partition]


def discard_indexes(context: BucketContext, names: Iterable[str]) -> None:
    """Delete index files that nothing names."""
    for name in names:
        context.file_io.delete(context.paths.index_file(name))


# -- Route rows of tables whose key lacks partition columns ----------------------------------------
#
# A key may be stored in any partition.
#
# Incoming rows are buffered, their keys are searched in the files that may hold them
# (lookup/locate), and planning/keys decides where rows go. The routing caches the keys that
# earlier rows of the same write have moved.

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
        return TableSession.from_context(self._context)

    @cached_property
    def _files(self) -> pa.Table | None:
        """The live files as columns: there may be very many, and a search opens one at a time."""
        return with_buckets(self._session, self._session.live_rows(self._base))

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


# -- Route incoming rows to their buckets, for every bucket mode -----------------------------------

POSTPONED = -2
"""The bucket of rows that wait for a real one; also the bucket count in their manifest entries."""


class Routing(Protocol):
    """Routes batches to buckets. Each write has its own; it is not thread-safe."""

    def route(self, incoming: IncomingRows) -> list[RoutedRows]:
        """Return a batch cut by bucket; one bucket's rows keep their order."""
        ...

    def remaining(self) -> list[RoutedRows]:
        """Return buffered rows, cut by bucket; called after the last batch."""
        ...

    def total_buckets(self, partition: bytes) -> int:
        """Return the number of buckets that manifest entries of a partition record."""
        ...

    def completed(self, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Return the messages to commit, with the index files that routing adds."""
        ...

    def abort(self) -> None:
        """Delete what was written; nothing of it was visible."""
        ...


def routing_of(staging: Staging) -> Routing:
    """Return the routing that the table's `bucket` option defines."""
    match staging.context.schema.bucket_mode:
        case BucketMode.DYNAMIC:
            return DynamicRouting(staging)
        case BucketMode.CROSS_PARTITION:
            return CrossPartitionRouting(staging)
        case BucketMode.POSTPONE:
            return PostponeRouting(staging)
        case BucketMode.FIXED | BucketMode.UNAWARE:
            return FixedRouting(staging)


class PartitionRouting:
    """Routes rows by partition alone, to the task that assigns buckets; not at all if keys move.

    A key that moves has rows in several partitions, and only the last of them remains.
    """

    def __init__(self, staging: Staging) -> None:
        schema = staging.context.schema
        self._moves = schema.bucket_mode.policy.crosses_partitions
        self._partition_fields = schema.select(schema.partition_keys)

    def route(self, incoming: IncomingRows) -> list[RoutedRows]:
        """Return a batch cut by partition; `bucket` has no meaning here."""
        if self._moves:
            routed = RoutedRows(partition=b"", bucket=0, rows=incoming.rows, kinds=incoming.kinds)
            return [routed]
        partitions, partition_ids = partition_numbers(self._partition_fields, incoming.rows)
        return cut(incoming, partitions, partition_ids, None)


def assigns_buckets(mode: BucketMode) -> bool:
    """Whether a single writer must assign the buckets of a partition, or of the table."""
    return mode.policy.assigns_keys


class _ImmediateRouting:
    """Routes each batch by itself: nothing is held back, and no index is written."""

    def remaining(self) -> list[RoutedRows]:
        """Nothing is held back."""
        return []

    def completed(self, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Nothing is added."""
        return list(messages)

    def abort(self) -> None:
        """Nothing was written."""


class FixedRouting(_ImmediateRouting):
    """Fixed buckets, and the single bucket of an append table: row, schema and partition determine them.

    A partition keeps the bucket count that its files were written with until it is rescaled, even if the option
    has changed: a row must reach the bucket of its key's older rows. New partitions take the option's count.
    """

    def __init__(self, staging: Staging) -> None:
        self._context = staging.context
        self._router = Router(staging.context.schema, staging.buckets.totals)

    def route(self, incoming: IncomingRows) -> list[RoutedRows]:
        """Return a batch cut by bucket."""
        return self._router.route(incoming)

    def total_buckets(self, partition: bytes) -> int:
        """Return the number of buckets of a partition; InvalidOptionError for files without a fixed one."""
        total = self._router.total_buckets(partition)
        declared = self._context.schema.bucket_count
        if total < 1 and total != declared:
            raise InvalidOptionError(
                f"the files of a partition have no fixed buckets, and the table's 'bucket' is {declared}: a row "
                "would miss the older rows of its key; overwrite the partition with its rows",
                key=core_options.BUCKET.key,
                partition=self._context.partition_path(partition),
                stored=total,
                bucket=declared,
            )
        return total


class PostponeRouting(_ImmediateRouting):
    """Postponed buckets: rows get real buckets in the batch that writes them, or in a compaction.

    Each partition has its own bucket count: that of its files, or the default for new partitions.
    """

    def __init__(self, staging: Staging) -> None:
        schema = staging.context.schema
        self._totals = staging.buckets.totals
        self._default = schema.options[core_options.POSTPONE_DEFAULT_BUCKET_NUM]
        self._waits = not schema.options[core_options.POSTPONE_BATCH_WRITE_FIXED_BUCKET]
        self._by_size = waits_for_size(schema.options)
        self._partition_fields = schema.select(schema.partition_keys)
        self._bucket_fields = schema.select(schema.bucket_keys)

    def route(self, incoming: IncomingRows) -> list[RoutedRows]:
        """Return a batch cut by bucket."""
        partitions, partition_ids = partition_numbers(self._partition_fields, incoming.rows)
        counts = np.array([self.total_buckets(partition) for partition in partitions], np.int64)
        if (counts == POSTPONED).all():
            return [_waiting(routed) for routed in cut(incoming, partitions, partition_ids, None)]
        hashes = bucket_hashes(self._bucket_fields, incoming.rows)
        # Rows that wait are together until their partition has buckets.
        counts = np.where(counts == POSTPONED, 1, counts)
        buckets = bucket_of(hashes, counts[partition_ids])
        return [
            _waiting(routed) if self.total_buckets(routed.partition) == POSTPONED else routed
            for routed in cut(incoming, partitions, partition_ids, buckets)
        ]

    def total_buckets(self, partition: bytes) -> int:
        """Return the number of buckets of a partition; POSTPONED where rows wait."""
        if self._waits:
            return POSTPONED
        return self._totals.get(partition, POSTPONED if self._by_size else self._default)


def _waiting(routed: RoutedRows) -> RoutedRows:
    return RoutedRows(
        partition=routed.partition, bucket=POSTPONED, rows=routed.rows, kinds=routed.kinds
    )

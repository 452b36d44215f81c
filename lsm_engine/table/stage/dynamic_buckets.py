"""Dynamic buckets: a key keeps the bucket that its hash was assigned, and new keys fill bucket by bucket.

Within one commit a single writer assigns the buckets of a partition. Two concurrent commits may assign
different buckets; the later one is reassigned when it commits (table/commit/reassign_buckets).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.table_options import TableOptions
from lsm_engine.codec.bucket_index import decode_bucket_index, encode_bucket_index
from lsm_engine.codec.checksum import check_bytes, checksum_of
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.assignment import BUCKETS_MAX, AssignmentRules, HashBuckets
from lsm_engine.meta.commit_message import CommitMessage, DataIncrement
from lsm_engine.meta.index_file import HASH, IndexFileMeta
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.table.ground.bucket_context import BucketContext, Staging
from lsm_engine.table.ground.bucket_keys import RoutedRows, bucket_hashes, cut, partition_numbers
from lsm_engine.table.ground.incoming import IncomingRows
from lsm_engine.table.read.split_read import BucketReader

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
        """What manifest entries record as the number of buckets."""
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
        """Return the messages with the index files that go with them."""
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

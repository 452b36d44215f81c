"""Route incoming rows to their buckets, for every bucket mode."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.modes import BucketMode
from lsm_engine.kernels.hashing import bucket_of
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.plan.postponed_buckets import waits_for_size
from lsm_engine.table.ground.bucket_context import Staging
from lsm_engine.table.ground.bucket_keys import (
    RoutedRows,
    Router,
    bucket_hashes,
    cut,
    partition_numbers,
)
from lsm_engine.table.ground.incoming import IncomingRows
from lsm_engine.table.stage.cross_partition import CrossPartitionRouting
from lsm_engine.table.stage.dynamic_buckets import DynamicRouting

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


class FixedRouting:
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

    def remaining(self) -> list[RoutedRows]:
        """Nothing is held back."""
        return []

    def completed(self, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Nothing is added."""
        return list(messages)

    def abort(self) -> None:
        """Nothing was written."""


class PostponeRouting:
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

    def remaining(self) -> list[RoutedRows]:
        """Nothing is held back."""
        return []

    def completed(self, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Nothing is added."""
        return list(messages)

    def abort(self) -> None:
        """Nothing was written."""


def _waiting(routed: RoutedRows) -> RoutedRows:
    return RoutedRows(
        partition=routed.partition, bucket=POSTPONED, rows=routed.rows, kinds=routed.kinds
    )

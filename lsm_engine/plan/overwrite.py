"""Which live files an overwrite replaces: decided on the base that the commit lands on."""

from collections.abc import Sequence

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.prune.partition import partition_mask
from lsm_engine.prune.predicate import Predicate
from lsm_engine.schema.types import DataField


@record
class StaticPartitions:
    """All partitions that satisfy a predicate on partition columns (prune/partition.partition_predicate).

    The constant true is the whole table.
    """

    predicate: Predicate
    fields: tuple[DataField, ...]


@record
class DynamicPartitions:
    """Exactly the partitions that new rows touch, as stored rows; without rows: none."""

    partitions: frozenset[bytes]


OverwriteScope = StaticPartitions | DynamicPartitions


def dynamic_scope(messages: Sequence[CommitMessage]) -> DynamicPartitions:
    """Return the partitions that the new files of `messages` lie in."""
    return DynamicPartitions(
        partitions=frozenset(message.partition for message in messages if message.data.new_files)
    )


def in_scope(partitions: Sequence[bytes], scope: OverwriteScope) -> frozenset[bytes]:
    """Return those of `partitions` that `scope` covers."""
    if isinstance(scope, DynamicPartitions):
        return frozenset(partitions) & scope.partitions
    distinct = sorted(set(partitions))
    mask = partition_mask(scope.predicate, pa.array(distinct, pa.binary()), scope.fields)
    return frozenset(
        partition for partition, covered in zip(distinct, mask, strict=True) if covered
    )


def overwritten(live: Sequence[ManifestEntry], scope: OverwriteScope) -> tuple[ManifestEntry, ...]:
    """Return the live entries that an overwrite of `scope` takes away."""
    covered = in_scope([entry.partition for entry in live], scope)
    return tuple(entry for entry in live if entry.partition in covered)


def require_in_scope(messages: Sequence[CommitMessage], scope: OverwriteScope) -> None:
    """Raise InvalidInputError if new rows lie outside of the partitions that are overwritten."""
    written_partitions = [message.partition for message in messages if message.data.new_files]
    outside = set(written_partitions) - in_scope(written_partitions, scope)
    if outside:
        raise InvalidInputError(
            "rows lie outside of the partition that is overwritten; filter them, or name no partition",
            kind=ErrorKind.INVALID_ROWS,
            partition_count=len(outside),
        )

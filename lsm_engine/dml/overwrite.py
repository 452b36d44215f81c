"""Overwrite: add new rows and delete the live files that they replace, in one commit."""

from collections.abc import Mapping, Sequence
from typing import Any

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.dml.write import Write, stage
from lsm_engine.filter.expression import tree_of
from lsm_engine.filter.partition import partition_predicate
from lsm_engine.filter.predicate import TRUE, Predicate
from lsm_engine.filter.where import Filter
from lsm_engine.format.commit_message import CommitMessage, WriteResult
from lsm_engine.format.manifest import BucketScope, ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options import core_options
from lsm_engine.planning.proposal import (
    CommitIdentity,
    DynamicPartitions,
    OverwriteScope,
    StaticPartitions,
    dynamic_scope,
    in_scope,
    overwritten,
    require_in_scope,
)
from lsm_engine.table.bucket_context import discard
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import bucket_levels
from lsm_engine.table.time_travel import built_on
from lsm_engine.types.arrow_types import compared_schema
from lsm_engine.types.types import DataField


def overwrite(
    session: TableSession,
    rows: Any,
    partition: Mapping[str, object] | Filter | None,
    identity: CommitIdentity,
) -> WriteResult | None:
    """Replace partitions, or the whole table, by rows; None if nothing was there and none came."""
    schema = session.schema
    fields = schema.select_read(schema.partition_keys)
    scope: OverwriteScope | None = None
    all_partitions = StaticPartitions(predicate=TRUE, fields=fields)
    if partition is not None:
        scope = StaticPartitions(predicate=_predicate(partition, fields), fields=fields)
    write = Write(session, identity)

    def staged(_: int) -> tuple[Snapshot | None, list[CommitMessage]]:
        base = session.snapshots.latest()
        with built_on(session, base):
            return base, stage(session, rows, base, replaces=True)

    # The rows may be a stream, which only a repeatable source can give twice.
    base, messages = write.staged_again(rows, staged)
    if scope is None:
        # The staged rows decide which partitions a dynamic overwrite replaces.
        dynamic = bool(fields) and session.options[core_options.DYNAMIC_PARTITION_OVERWRITE]
        scope = dynamic_scope(messages) if dynamic else all_partitions
    try:
        crosses = session.schema.bucket_mode.policy.crosses_partitions
        if messages and crosses and scope != all_partitions:
            raise _needs_whole(session)
        require_in_scope(messages, scope)
    except BaseException:
        # Nothing is committed: the staged files would be orphans.
        discard(session.context(), messages)
        raise

    def replaced(on: Snapshot | None) -> Sequence[ManifestEntry]:
        return _replaced(session, on, scope)

    return write.land(messages, planned_on=base, overwritten=replaced)


def _predicate(partition: Mapping[str, object] | Filter, fields: Sequence[DataField]) -> Predicate:
    if isinstance(partition, Mapping):
        return partition_predicate(partition, fields)
    if not fields:
        raise InvalidInputError(
            "the table has no partitions, so that partition= chooses none; delete(where=...) and upsert(rows) "
            "replace some rows",
            argument="partition",
        )
    return tree_of(partition, compared_schema(fields))


def _needs_whole(session: TableSession) -> InvalidInputError:
    """Keys of the new rows may be in partitions that are kept, and would then exist twice."""
    return InvalidInputError(
        "a key of this table is in one partition only, so that rows cannot replace single "
        "partitions; delete what is to go and upsert, or set "
        "'dynamic-partition-overwrite' = false to replace the whole table",
        option=core_options.DYNAMIC_PARTITION_OVERWRITE.key,
        table=session.name,
    )


def _replaced(
    session: TableSession, base: Snapshot | None, scope: OverwriteScope
) -> Sequence[ManifestEntry]:
    # A table without commits has nothing to replace.
    if base is None:
        return ()
    if isinstance(scope, DynamicPartitions):
        partitions = frozenset(scope.partitions)
    else:
        partitions = in_scope([*bucket_levels(session, base).partitions()], scope)
    live = session.live_entries(base, BucketScope(partitions=partitions))
    return overwritten(live, scope)

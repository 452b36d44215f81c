"""Append and upsert: batches → buckets → level-0 files → commit."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError, ErrorKind, InvalidInputError
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.commit.commit import CommitIdentity, commit, upkeep_of
from lsm_engine.table.commit.rows_unchanged import Unchanged
from lsm_engine.table.compact.compact import compact_due
from lsm_engine.table.compact.postponed_buckets import assign_new_partitions, compact_waiting_rows
from lsm_engine.table.ground.bucket_context import Staging
from lsm_engine.table.ground.incoming import IncomingRows
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import staging_on
from lsm_engine.table.stage.writers import stage_incoming, stage_rows
from lsm_engine.table.write.count_changes import counting


def stage(
    session: TableSession,
    rows: Any,
    base: Snapshot | None,
    *,
    deletes: bool = False,
    replaces: bool = False,
) -> list[CommitMessage]:
    """Write rows of any kind that the table's executor or this process can read.

    With `replaces` they are all that their partitions will hold. Raises UnsupportedError for tables
    with an option that writers would have to honour and we do not.
    """
    staging = staging_on(session, base, deletes=deletes, replaces=replaces)
    messages = session.components.executor.stage(staging, rows)
    return stage_rows(staging, rows) if messages is None else messages


def append(session: TableSession, rows: Any, identity: CommitIdentity) -> Snapshot | None:
    """Add rows to a table without a primary key; return the snapshot made, None for no rows.

    Unless the table is write-only, small files that are then due are joined, in a commit of its own.
    """
    if session.schema.has_primary_key:
        raise InvalidInputError(
            "the table has a primary key, so that a row may replace another; use upsert()",
            kind=ErrorKind.INVALID_ROWS,
            table=session.name,
        )
    return _written(session, rows, identity, deletes=False)


def upsert(
    session: TableSession, rows: Any, identity: CommitIdentity, *, deletes: bool = False
) -> Snapshot | None:
    """Insert rows, replacing those with the same key; return the snapshot made, None for no rows.

    With `deletes` the rows name keys to take away. Unless the table is write-only, buckets that are
    then due are compacted, in a commit of its own: whatever becomes of that, the rows are in.
    """
    if not session.schema.has_primary_key:
        raise InvalidInputError(
            "the table has no primary key, so that no row replaces another; use append()",
            kind=ErrorKind.INVALID_ROWS,
            table=session.name,
        )
    return _written(session, rows, identity, deletes=deletes)


def _written(
    session: TableSession, rows: Any, identity: CommitIdentity, *, deletes: bool
) -> Snapshot | None:
    compact_waiting_rows(session, upkeep_of(identity))
    looks = session.schema.bucket_mode.policy.crosses_partitions
    tries = session.options[core_options.COMMIT_MAX_RETRIES] if looks and _reads_again(rows) else 0
    while True:
        base = session.snapshots.latest()
        messages = stage(session, rows, base, deletes=deletes)
        again = _WrittenAgain()
        try:
            made = commit(
                session,
                identity,
                messages,
                planned_on=base,
                write_again=again,
                on_base=counting(session, Unchanged(session, base) if looks else None),
            )
        except CommitConflictError as conflict:
            # Keys were looked for in a state that is not the newest any more.
            if conflict.kind is not ErrorKind.ROWS_CHANGED or not tries:
                raise
            tries -= 1
            continue
        break
    if made is None:
        return None
    given = assign_new_partitions(session, upkeep_of(identity), messages)
    if not session.options[core_options.WRITE_ONLY]:
        compact_due(session, upkeep_of(identity), _buckets(messages) | again.buckets)
    return given or made


class _WrittenAgain:
    """Writes rows of dynamic buckets anew, and remembers where: it may be elsewhere than at first."""

    def __init__(self) -> None:
        self.buckets: frozenset[tuple[bytes, int]] = frozenset()

    def __call__(self, staging: Staging, rows: Iterable[IncomingRows]) -> list[CommitMessage]:
        messages = stage_incoming(staging, rows)
        self.buckets |= _buckets(messages)
        return messages


def _buckets(messages: Iterable[CommitMessage]) -> frozenset[tuple[bytes, int]]:
    return frozenset((message.partition, message.bucket) for message in messages)


def _reads_again(rows: Any) -> bool:
    """Whether rows can be read a second time; a stream cannot."""
    return not isinstance(rows, pa.RecordBatchReader)

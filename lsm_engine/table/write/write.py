"""Append and upsert: batches → buckets → level-0 files → commit."""

from typing import Any

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError, ErrorKind, InvalidInputError
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.plan.proposal import RowsUnchanged
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import staging_on
from lsm_engine.table.stage.writers import stage_rows
from lsm_engine.table.write.land import Write
from lsm_engine.table.write.unchanged import skips_unchanged


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
    with an option that writers would have to support and we do not.
    """
    staging = staging_on(session, base, deletes=deletes, replaces=replaces)
    messages = session.components.executor.stage(staging, rows)
    return stage_rows(staging.writing_behind(), rows) if messages is None else messages


def append(session: TableSession, rows: Any, identity: CommitIdentity) -> WriteResult | None:
    """Add rows to a table without a primary key; return what `Write.land` does, None for no rows.

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
) -> WriteResult | None:
    """Insert rows, replacing those with the same key; return what `Write.land` does, None for no rows.

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
) -> WriteResult | None:
    looks = session.schema.bucket_mode.policy.crosses_partitions
    again = (looks or skips_unchanged(session.schema)) and _reads_again(rows)
    tries = session.options[core_options.COMMIT_MAX_RETRIES] if again else 0
    write = Write(session, identity)
    while True:
        base = write.base()
        messages = stage(session, rows, base, deletes=deletes)
        requires = RowsUnchanged(on=base) if looks else None
        try:
            return write.land(messages, planned_on=base, requires=requires, tries_again=tries > 0)
        except CommitConflictError as conflict:
            # Keys were looked for in a state that is not the newest any more.
            if conflict.kind is not ErrorKind.ROWS_CHANGED or not tries:
                raise
            tries -= 1


def _reads_again(rows: Any) -> bool:
    """Whether rows can be read a second time; a stream cannot."""
    return not isinstance(rows, pa.RecordBatchReader)

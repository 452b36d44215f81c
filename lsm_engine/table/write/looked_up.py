"""Read-modify-write operations: the rows that they read must be unchanged in the base of the commit.

If rows have changed in between, the commit is abandoned and the rows are read again.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lsm_engine.base.errors import CommitConflictError, ErrorKind
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.row_counts import RowCounts
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.plan.proposal import RowsUnchanged
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import built_on
from lsm_engine.table.write.count_changes import as_merged
from lsm_engine.table.write.write import Write

StageOn: TypeAlias = Callable[
    [TableSession, Snapshot | None], tuple[Sequence[CommitMessage], RowCounts] | None
]
"""Reads a state by the schema in force and stages files on top of it; None if no row changes."""


def write_looked_up(
    session: TableSession, identity: CommitIdentity, stage_on: StageOn
) -> WriteResult | None:
    """Stage rows on the newest state and commit them there, again as often as others change rows.

    Each state is read by the schema in force then, so that rows keep the columns that others added since the table
    was opened. Returns and raises as `upsert` does; CommitConflictError after `commit.max-retries`.
    """
    write = Write(session, identity)
    before = write.replayed()
    if before is not None:
        return before

    def attempt(_: int) -> WriteResult | None:
        base = write.base()
        current = session.newest()
        with built_on(current, base):
            staged = stage_on(current, base)
        if staged is None:
            return None
        messages, counts = staged
        return Write(current, identity).land(
            messages,
            planned_on=base,
            properties=as_merged(current.schema, counts).properties,
            requires=RowsUnchanged(on=base),
        )

    try:
        return write.again(attempt, only=ErrorKind.ROWS_CHANGED)
    except CommitConflictError as error:
        if error.kind is not ErrorKind.ROWS_CHANGED:
            raise
        raise CommitConflictError(
            "other writers kept changing rows between the look and the commit; nothing of this write is "
            "visible, try again or raise 'commit.max-retries'",
            kind=ErrorKind.RETRIES_EXHAUSTED,
            table=session.name,
        ) from error

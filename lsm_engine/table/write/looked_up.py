"""Writes that look at rows first: what they found holds for the state that they are committed on.

Where rows changed in between, the commit is given up, and the rows are looked at anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError, ErrorKind
from lsm_engine.base.modes import CommitKind
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.row_counts import RowCounts
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.plan.proposal import RowsUnchanged
from lsm_engine.table.commit.commit import CommitIdentity, committed_before
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.write.count_changes import as_merged
from lsm_engine.table.write.land import base_of_write, land, land_again

StageOn: TypeAlias = Callable[[Snapshot | None], tuple[Sequence[CommitMessage], RowCounts] | None]
"""Looks at a state and writes files on top of it; None: there is nothing to change."""


def write_looked_up(
    session: TableSession, identity: CommitIdentity, stage_on: StageOn
) -> WriteResult | None:
    """Stage rows on the newest state and commit them there, again as often as others change rows.

    Returns and raises as `upsert` does; CommitConflictError after `commit.max-retries`.
    """
    before = committed_before(session, identity, CommitKind.APPEND)
    if before is not None:
        return land_again(session, identity, before)
    for _ in range(1 + session.options[core_options.COMMIT_MAX_RETRIES]):
        base = base_of_write(session, identity)
        staged = stage_on(base)
        if staged is None:
            return None
        messages, counts = staged
        properties = {**(identity.properties or {}), **as_merged(session.schema, counts).properties}
        try:
            return land(
                session,
                replace(identity, properties=properties),
                messages,
                planned_on=base,
                requires=RowsUnchanged(on=base),
            )
        except CommitConflictError as error:
            if error.kind is not ErrorKind.ROWS_CHANGED:
                raise
    raise CommitConflictError(
        "other writers kept changing rows between the look and the commit; nothing of this write is "
        "visible, try again or raise 'commit.max-retries'",
        kind=ErrorKind.RETRIES_EXHAUSTED,
        table=session.name,
    )

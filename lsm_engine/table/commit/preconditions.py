"""Whether the base of a commit is what its proposal requires, besides conflicts of files."""

from typing import assert_never

from lsm_engine.base.errors import CommitConflictError, ErrorKind
from lsm_engine.base.modes import CommitKind
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.ownership import same_state
from lsm_engine.plan.proposal import Precondition, RowsUnchanged, SameState
from lsm_engine.store.snapshots import SnapshotStore


def require(precondition: Precondition, base: Snapshot | None, snapshots: SnapshotStore) -> None:
    """Raise CommitConflictError, kind ROWS_CHANGED, where a precondition does not hold on `base`."""
    match precondition:
        case SameState(on=before):
            holds, changed = same_state(base, before), "others have committed"
        case RowsUnchanged(on=before):
            holds = same_state(base, before) or _only_compacted(before, base, snapshots)
            changed = "rows changed"
        case _:
            assert_never(precondition)
    if not holds:
        raise CommitConflictError(
            f"{changed} after the rows that this commit depends on were looked at; nothing of it is "
            "visible, try again",
            kind=ErrorKind.ROWS_CHANGED,
            looked_at=None if before is None else before.id,
            base=None if base is None else base.id,
        )


def _only_compacted(
    before: Snapshot | None, base: Snapshot | None, snapshots: SnapshotStore
) -> bool:
    if before is None or base is None or base.id <= before.id:
        return False
    if not same_state(snapshots.find(before.id), before):
        return False  # rolled back, or expired: who knows what came in between
    between = (snapshots.find(number) for number in range(before.id + 1, base.id + 1))
    return all(one is not None and one.commit_kind is CommitKind.COMPACT for one in between)

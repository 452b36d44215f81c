"""Writes that looked at rows before: they hold only for a state in which those rows are as they were."""

from collections.abc import Sequence

from lsm_engine.base.errors import CommitConflictError, ErrorKind
from lsm_engine.base.modes import CommitKind
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.ownership import same_state
from lsm_engine.table.ground.session import TableSession


class Unchanged:
    """Gives a commit up if rows changed since they were tagged."""

    def __init__(self, session: TableSession, tagged_on: Snapshot | None) -> None:
        self._session = session
        self._tagged_on = tagged_on

    def __call__(self, base: Snapshot | None, delta: Sequence[ManifestEntry]) -> dict[str, str]:
        del delta
        if not same_state(base, self._tagged_on) and not self._only_compacted(base):
            raise CommitConflictError(
                "rows changed after they were looked at", kind=ErrorKind.ROWS_CHANGED
            )
        return {}

    def _only_compacted(self, base: Snapshot | None) -> bool:
        before = self._tagged_on
        if before is None or base is None or base.id <= before.id:
            return False
        snapshots = self._session.snapshots
        if not same_state(snapshots.find(before.id), before):
            return False  # rolled back, or expired: who knows what came in between
        between = (snapshots.find(number) for number in range(before.id + 1, base.id + 1))
        return all(one is not None and one.commit_kind is CommitKind.COMPACT for one in between)

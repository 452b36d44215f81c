"""The snapshots below the bases of a commit: whether it was committed before, and what came since its plan."""

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.commit_steps import CommitStep
from lsm_engine.plan.ownership import already_committed, same_state
from lsm_engine.table.ground.session import TableSession

LOOKBACK_SNAPSHOTS = 100


class History:
    """The snapshots below the bases of a commit, read once each as long as nobody rolls back."""

    def __init__(
        self, session: TableSession, planned_on: Snapshot | None, lookback: int | None
    ) -> None:
        self._lookback = lookback
        self._snapshots = session.snapshots
        self._planned_on = planned_on
        self._last: Snapshot | None = None
        self._known: dict[int, Snapshot | None] = {}

    def proof(self, step: CommitStep, base: Snapshot | None) -> Snapshot | None:
        """Return the snapshot that proves that a step was committed before; asked for each base.

        Also after a lost race: a replay may be racing with its first attempt.
        """
        last, self._last = self._last, base
        if last is not None and not same_state(self._snapshots.find(last.id), last):
            self._known.clear()
            last = None
        if base is not None:
            self._known[base.id] = base
        if base is None or step.commit_identifier == BATCH_COMMIT_IDENTIFIER:
            return None
        new = takewhile(lambda one: last is None or one.id > last.id, self._down_from(base))
        return already_committed(step, islice(new, self._lookback))

    def since(self, base: Snapshot | None) -> Sequence[Snapshot] | None:
        """Return the snapshots after the one the work was planned on; None if some have expired."""
        if base is None:
            return ()
        count = max(0, base.id - (0 if self._planned_on is None else self._planned_on.id))
        if count > LOOKBACK_SNAPSHOTS + len(self._known):
            return None
        found = list(islice(self._down_from(base), count))
        return found[::-1] if len(found) == count else None

    def _down_from(self, base: Snapshot) -> Iterator[Snapshot]:
        one: Snapshot | None = base
        while one is not None:
            yield one
            below = one.id - 1
            if below not in self._known:
                self._known[below] = self._snapshots.find(below)
            one = self._known[below]

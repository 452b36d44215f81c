"""Force up level 0: a bucket whose readers do not see level 0, or whose feed is made as it leaves it."""

from collections.abc import Callable

from lsm_engine.base import core_options
from lsm_engine.base.modes import LookupCompact
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.mergetree.compact_unit import CompactUnit, PickReason
from lsm_engine.mergetree.universal import Runs, UniversalCompaction


def at_once(_: int) -> bool:
    """Answer that level 0 has waited long enough."""
    return True


@record
class ForceUpLevelZero:
    """Universal compaction first; where that picks nothing, all of level 0 is compacted.

    Gently, only every `max_interval`-th pick that universal compaction leaves takes level 0. None: it
    never waits (radical).
    """

    universal: UniversalCompaction
    max_interval: int | None = None

    @staticmethod
    def from_options(options: TableOptions, *, hour: int) -> "ForceUpLevelZero":
        """Return the strategy that a table's options ask for at an hour of the day, 0 to 23."""
        gentle = options[core_options.LOOKUP_COMPACT] is LookupCompact.GENTLE
        return ForceUpLevelZero(
            universal=UniversalCompaction.from_options(options, hour=hour),
            max_interval=options.lookup_compact_max_interval if gentle else None,
        )

    def pick(
        self, runs: Runs, *, max_level: int, is_due: Callable[[int], bool] = at_once
    ) -> CompactUnit | None:
        """Return what to merge next, or None: level 0 is empty, or may wait.

        `is_due(max_interval)` counts the picks; it is asked only where level 0 may wait, also if it is
        empty, and never where universal compaction finds something.
        """
        unit = self.universal.pick(runs, max_level=max_level)
        if unit is not None:
            return unit
        if self.max_interval is not None and not is_due(self.max_interval):
            return None
        waiting = sum(1 for run in runs if run.level == 0)
        if not waiting:
            return None
        return self.universal.pick_at_least(
            runs, waiting, max_level=max_level, reason=PickReason.FORCE_UP_LEVEL_0
        )

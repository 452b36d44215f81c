"""Force up level 0: a bucket whose readers do not see level 0, or whose feed is made as it leaves it."""

from lsm_engine.base import core_options
from lsm_engine.base.modes import LookupCompact
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.mergetree.compact_unit import CompactUnit, PickReason
from lsm_engine.mergetree.universal import Runs, UniversalCompaction


@record
class ForceUpLevelZero:
    """Universal compaction first; where that picks nothing, all of level 0 is compacted.

    Gently, level 0 may wait until `patience` files are on it: each commit adds one, so their
    number is how often the compaction was put off. 1: it never waits (radical).
    """

    universal: UniversalCompaction
    patience: int = 1

    @staticmethod
    def of(options: TableOptions, *, hour: int) -> "ForceUpLevelZero":
        """Return the strategy that a table's options ask for at an hour of the day, 0 to 23."""
        gentle = options[core_options.LOOKUP_COMPACT] is LookupCompact.GENTLE
        return ForceUpLevelZero(
            universal=UniversalCompaction.of(options, hour=hour),
            patience=options.lookup_compact_max_interval if gentle else 1,
        )

    def pick(self, runs: Runs, *, max_level: int) -> CompactUnit | None:
        """Return what to merge next, or None: level 0 is empty, or may wait."""
        unit = self.universal.pick(runs, max_level=max_level)
        if unit is not None:
            return unit
        waiting = sum(1 for run in runs if run.level == 0)
        if waiting < max(1, self.patience):
            return None
        return self.universal.pick_at_least(
            runs, waiting, max_level=max_level, reason=PickReason.FORCE_UP_LEVEL_0
        )

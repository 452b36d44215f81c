"""Universal compaction: merge runs of like size; cap space amplification and the number of runs."""

from collections.abc import Sequence
from typing import TypeAlias

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.mergetree.compact_unit import CompactUnit, PickReason
from lsm_engine.mergetree.sorted_run import LevelSortedRun

Runs: TypeAlias = Sequence[LevelSortedRun]
"""Newest first: level 0 file by file, then levels 1, 2, …"""


@record
class UniversalCompaction:
    """The rules, in the order in which they are asked (semantics section 1).

    `size_ratio_percent` is how much larger the next run may be and still join.
    """

    max_size_amplification_percent: int
    size_ratio_percent: int
    run_count_trigger: int

    @staticmethod
    def from_options(options: TableOptions, *, hour: int) -> "UniversalCompaction":
        """Return the strategy that a table's options ask for at an hour of the day, 0 to 23."""
        off_peak = (
            options[core_options.COMPACTION_OFFPEAK_RATIO] if is_off_peak(options, hour) else 0
        )
        return UniversalCompaction(
            max_size_amplification_percent=options[
                core_options.COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT
            ],
            size_ratio_percent=options[core_options.COMPACTION_SIZE_RATIO] + off_peak,
            run_count_trigger=options[core_options.NUM_SORTED_RUN_COMPACTION_TRIGGER],
        )

    def pick(self, runs: Runs, *, max_level: int) -> CompactUnit | None:
        """Return what to merge next, or None when the bucket is in shape."""
        unit = self._pick(runs, max_level)
        return None if unit is None or unit.is_pointless else unit

    def pick_at_least(
        self, runs: Runs, count: int, *, max_level: int, reason: PickReason
    ) -> CompactUnit:
        """Return the first `count` runs, and those that follow as long as they are not too large."""
        return unit_of(runs, self._grown(runs, count), max_level, reason)

    def _pick(self, runs: Runs, max_level: int) -> CompactUnit | None:
        if not runs or len(runs) < self.run_count_trigger:
            return None
        if self._amplifies_space(runs):
            return unit_of(runs, len(runs), max_level, PickReason.SIZE_AMPLIFICATION)
        if (count := self._grown(runs, 1)) > 1:
            return unit_of(runs, count, max_level, PickReason.SIZE_RATIO)
        if (excess := len(runs) - self.run_count_trigger) > 0:
            count = self._grown(runs, excess + 1)
            return unit_of(runs, count, max_level, PickReason.RUN_COUNT)
        return None

    def _amplifies_space(self, runs: Runs) -> bool:
        *newer, oldest = (run.size for run in runs)
        return 100 * sum(newer) > self.max_size_amplification_percent * oldest

    def _grown(self, runs: Runs, count: int) -> int:
        """Return how many runs to take: `count`, and all that follow while they are not too large."""
        size = sum(run.size for run in runs[:count])
        for run in runs[count:]:
            if size * (100 + self.size_ratio_percent) < 100 * run.size:
                break
            size += run.size
            count += 1
        return count


def is_off_peak(options: TableOptions, hour: int) -> bool:
    """Whether an hour lies in `compaction.offpeak.start.hour` .. `end.hour`, which may span midnight.

    The start belongs to it, the end does not; -1 for either, or one for both, means there is none.
    """
    start = options[core_options.COMPACTION_OFFPEAK_START_HOUR]
    end = options[core_options.COMPACTION_OFFPEAK_END_HOUR]
    if start == end or min(start, end) < 0:
        return False
    return start <= hour < end if start < end else hour >= start or hour < end


def unit_of(runs: Runs, count: int, max_level: int, reason: PickReason) -> CompactUnit:
    """Return the first `count` runs as a unit whose result lands just above the next run.

    Level 0 takes no result: further level-0 runs come along, then the run of the level below them,
    which is where the result goes. With every run taken it goes to the last level.
    """
    output_level = 0
    if count < len(runs):
        output_level = max(0, runs[count].level - 1)
    while output_level == 0 and count < len(runs):
        output_level = runs[count].level
        count += 1
    if count == len(runs):
        output_level = max_level
    return CompactUnit(runs=tuple(runs[:count]), output_level=output_level, reason=reason)

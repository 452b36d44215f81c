"""Universal compaction: merge runs of like size; cap space amplification and the number of runs."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeAlias

from lsm_engine.base.record import record
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.lsm.levels import LevelSortedRun, SortedRun
from lsm_engine.options import core_options
from lsm_engine.options.modes import LookupCompact
from lsm_engine.options.table_options import TableOptions

# -- What a compaction takes, where the result goes, and why ---------------------------------------


class PickReason(Enum):
    """Which rule asked for a compaction."""

    SIZE_AMPLIFICATION = "size-amplification"
    SIZE_RATIO = "size-ratio"
    RUN_COUNT = "run-count"
    FULL = "full"
    FORCE_UP_LEVEL_0 = "force-up-level-0"
    RETRACTS = "retracts"
    BULK_LOAD = "bulk-load"
    EARLY_FULL = "early-full"


@record
class CompactUnit:
    """Runs to merge, newest first, and the level of the result.

    `must_rewrite`: the files were picked one by one because of what they hold, so none of them may
    merely change its level, or stay where it is.
    """

    runs: tuple[LevelSortedRun, ...]
    output_level: int
    reason: PickReason
    must_rewrite: bool = False

    def __post_init__(self) -> None:
        assert self.runs, "a unit without runs"
        assert self.output_level > 0, "level 0 is for what writers flush"

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """The files of all runs."""
        return tuple(file for run in self.runs for file in run.files)

    @property
    def is_pointless(self) -> bool:
        """Whether the unit is one file that would stay where it is, as it is."""
        files = self.files
        return len(files) == 1 and files[0].level == self.output_level and not self.must_rewrite


# -- Universal compaction --------------------------------------------------------------------------

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


# -- Full compaction: everything to the last level -------------------------------------------------

FileTest = Callable[[DataFileMeta], bool]


def none_of_them(_: DataFileMeta) -> bool:
    """Answer no for every file."""
    return False


def with_all_older(
    unit: CompactUnit, runs: Runs, *, max_level: int, adds_may_remove: bool = False
) -> CompactUnit:
    """Return a unit, or all runs if it holds retracts and leaves older runs out.

    For merges where one row cannot represent a retract of rows that are not in the merge
    (MergeFunction.may_need_full_history). `adds_may_remove`: any row may be one.
    """
    may_reach_below = adds_may_remove or any(file.may_hold_deletes for file in unit.files)
    if len(unit.runs) == len(runs) or not may_reach_below:
        return unit
    return CompactUnit(runs=tuple(runs), output_level=max_level, reason=PickReason.RETRACTS)


def pick_full(
    runs: Runs,
    *,
    max_level: int,
    must_rewrite: FileTest = none_of_them,
    reason: PickReason = PickReason.FULL,
) -> CompactUnit | None:
    """Return all runs, or None when the bucket is compacted fully already.

    Where only the last level holds files, those that `must_rewrite` names are picked: files whose
    rows have expired, that have deletion vectors, or all of them on demand.
    """
    if not runs:
        return None
    if len(runs) > 1 or runs[0].level != max_level:
        return CompactUnit(runs=tuple(runs), output_level=max_level, reason=reason)
    files = tuple(file for file in runs[0].files if must_rewrite(file))
    if not files:
        return None
    return CompactUnit(
        runs=(LevelSortedRun(level=max_level, run=SortedRun(files=files)),),
        output_level=max_level,
        reason=reason,
        must_rewrite=True,
    )


# -- Early full compaction: fully, although no run is in the way, because of time or of size -------


@record
class EarlyFull:
    """What asks for a full compaction before universal compaction is asked; None: nothing does.

    `interval_millis`: the last one is longer ago. `total_bytes`: the bucket is smaller, so that it
    costs little. `incremental_bytes`: what lies above the last level is larger.
    """

    interval_millis: int | None
    total_bytes: int | None
    incremental_bytes: int | None

    @staticmethod
    def from_options(options: TableOptions) -> "EarlyFull":
        """Return what a table's options ask for."""
        return EarlyFull(
            interval_millis=options[core_options.COMPACTION_OPTIMIZATION_INTERVAL],
            total_bytes=options[core_options.COMPACTION_TOTAL_SIZE_THRESHOLD],
            incremental_bytes=options[core_options.COMPACTION_INCREMENTAL_SIZE_THRESHOLD],
        )

    @property
    def is_asked(self) -> bool:
        """Whether any of its options is set."""
        return self != EarlyFull(interval_millis=None, total_bytes=None, incremental_bytes=None)

    def asks(self, runs: Runs, *, max_level: int, now_millis: int) -> bool:
        """Return whether a bucket is due. One run alone never is: there is nothing to merge.

        The last full compaction is taken to be when the newest file of the last level was written;
        a bucket without one has never had any.
        """
        if len(runs) < 2:
            return False
        last = [run for run in runs if run.level == max_level]
        size, above = (
            sum(run.size for run in runs),
            sum(run.size for run in runs[: -1 if last else None]),
        )
        if self.interval_millis is not None:
            written = [file.creation_millis or 0 for run in last for file in run.files]
            if now_millis - max(written, default=0) > self.interval_millis:
                return True
        if self.total_bytes is not None and size < self.total_bytes:
            return True
        return self.incremental_bytes is not None and above > self.incremental_bytes


# -- Force up level 0 ------------------------------------------------------------------------------
#
# A bucket whose readers do not see level 0, or whose feed is made as it leaves it.


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
        if not runs or runs[0].level > 0:
            return None
        # The result would land on level 1: its run joins, and counts when level 2 is asked to follow.
        count = sum(1 for run in runs if run.level <= 1)
        return self.universal.pick_at_least(
            runs, count, max_level=max_level, reason=PickReason.FORCE_UP_LEVEL_0
        )

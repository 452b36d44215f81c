"""Full compaction: everything to the last level."""

from collections.abc import Callable

from lsm_engine.mergetree.compact_unit import CompactUnit, PickReason
from lsm_engine.mergetree.sorted_run import LevelSortedRun, SortedRun
from lsm_engine.mergetree.universal import Runs
from lsm_engine.meta.data_file import DataFileMeta

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

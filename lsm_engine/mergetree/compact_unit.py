"""What a compaction takes, where the result goes, and why."""

from enum import Enum

from lsm_engine.base.record import record
from lsm_engine.mergetree.sorted_run import LevelSortedRun
from lsm_engine.meta.data_file import DataFileMeta


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

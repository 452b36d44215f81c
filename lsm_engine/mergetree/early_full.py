"""Early full compaction: fully, although no run is in the way, because of time or of size."""

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.mergetree.universal import Runs


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

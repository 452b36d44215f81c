"""What a background compaction has done so far: carried in the properties of its snapshots.

    lsm.compaction.thread-busy       percent of the last 60 s in which it compacted
    lsm.compaction.avg-time          milliseconds that a bucket took, mean of the last 100
    lsm.compaction.queued-count      buckets that waited
    lsm.compaction.completed-count   buckets compacted since its writer was opened
    lsm.compaction.total-count       the same, with those that failed or still ran

Names and windows are those of Java Paimon's CompactionMetrics. Other clients ignore the properties.
"""

from collections.abc import Mapping

from lsm_engine.base.record import record

_PREFIX = "lsm.compaction."


@record
class CompactionMetrics:
    """Times in milliseconds, counts of buckets; `last_error`: the text of the newest failure, if any."""

    compaction_thread_busy: float = 0.0
    avg_compaction_time: float = 0.0
    compaction_queued_count: int = 0
    compaction_running_count: int = 0
    compaction_completed_count: int = 0
    compaction_total_count: int = 0
    last_error: str | None = None

    @property
    def properties(self) -> dict[str, str]:
        """The snapshot properties that carry the metrics."""
        return {
            f"{_PREFIX}thread-busy": f"{self.compaction_thread_busy:.1f}",
            f"{_PREFIX}avg-time": f"{self.avg_compaction_time:.1f}",
            f"{_PREFIX}queued-count": str(self.compaction_queued_count),
            f"{_PREFIX}completed-count": str(self.compaction_completed_count),
            f"{_PREFIX}total-count": str(self.compaction_total_count),
        }


def compaction_metrics_of(properties: Mapping[str, str] | None) -> CompactionMetrics | None:
    """Return the metrics that a snapshot carries; None if it carries none that can be read."""
    texts = properties or {}
    try:
        return CompactionMetrics(
            compaction_thread_busy=float(texts[f"{_PREFIX}thread-busy"]),
            avg_compaction_time=float(texts[f"{_PREFIX}avg-time"]),
            compaction_queued_count=int(texts[f"{_PREFIX}queued-count"]),
            compaction_completed_count=int(texts[f"{_PREFIX}completed-count"]),
            compaction_total_count=int(texts[f"{_PREFIX}total-count"]),
        )
    except (KeyError, ValueError):
        return None

"""The compactions of one background thread: what runs, what is done, how long it took."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from lsm_engine.io.clock import Clock
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.compaction_metrics import CompactionMetrics
from lsm_engine.table.ground.executor import Discard, LocalExecutor

T = TypeVar("T")
BUSY_WINDOW_MILLIS = 60_000
TIMES_KEPT = 100


class CompactionLog:
    """Counts compactions as Java's CompactionMetrics does. Any thread may ask for the metrics."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._times: deque[int] = deque(maxlen=TIMES_KEPT)
        self._spans: deque[tuple[int, int]] = deque()
        self._began: int | None = None
        self._picked = self._started = self._completed = 0
        self._last_error: str | None = None

    def picked(self, count: int) -> None:
        """Take note of buckets that are going to be compacted one after the other."""
        with self._lock:
            self._picked += count

    def measured(self, work: Callable[[T], CommitMessage | None], item: T) -> CommitMessage | None:
        """Compact one bucket and take note of how long it took."""
        with self._lock:
            began = self._began = self._clock.now_millis()
            self._started += 1
        done = 0
        try:
            message = work(item)
            done = 1
            return message
        finally:
            with self._lock:
                now = max(began, self._clock.now_millis())
                self._began = None
                self._completed += done
                self._times.append(now - began)
                self._spans.append((began, now))

    def failed(self, error: BaseException) -> None:
        """Take note that buckets which were picked are given up."""
        with self._lock:
            self._picked = self._started
            self._last_error = f"{type(error).__name__}: {error}"

    def metrics(self, waiting: int = 0) -> CompactionMetrics:
        """Return the state of now; `waiting` buckets have not been looked at yet."""
        now = self._clock.now_millis()
        with self._lock:
            running = [] if self._began is None else [(self._began, now)]
            oldest = now - BUSY_WINDOW_MILLIS
            while self._spans and self._spans[0][1] < oldest:
                self._spans.popleft()
            busy = sum(max(0, end - max(begin, oldest)) for begin, end in (*self._spans, *running))
            return CompactionMetrics(
                compaction_thread_busy=min(100.0, 100 * busy / BUSY_WINDOW_MILLIS),
                avg_compaction_time=sum(self._times) / len(self._times) if self._times else 0.0,
                compaction_queued_count=waiting + self._picked - self._started,
                compaction_running_count=len(running),
                compaction_completed_count=self._completed,
                compaction_total_count=self._started,
                last_error=self._last_error,
            )


class MeasuredExecutor(LocalExecutor):
    """Compacts bucket after bucket on the calling thread, and logs each."""

    def __init__(self, log: CompactionLog) -> None:
        super().__init__(threads=1)
        self._log = log

    def messages(
        self,
        work: Callable[[T], CommitMessage | None],
        items: Sequence[T],
        *,
        label: str,
        discard: Discard,
        is_far: bool = False,
    ) -> list[CommitMessage]:
        """Do the work on one item after the other."""
        del is_far  # there is one thread
        self._log.picked(len(items))
        measured = partial(self._log.measured, work)
        return super().messages(measured, items, label=label, discard=discard)

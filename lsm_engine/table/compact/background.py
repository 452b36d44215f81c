"""Compactions of one open writer on a thread of their own (MergeTreeCompactManager).

The buckets of a commit are queued, each once; the thread takes all that wait, compacts them one after
the other, and commits them together. It is one more process to the table: whatever becomes of it, the rows
are in, and a compaction that died leaves orphan files at most.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from lsm_engine.base.errors import LsmError
from lsm_engine.meta.compaction_metrics import CompactionMetrics
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.compact.compact import Buckets, Compaction, stops_writers
from lsm_engine.table.compact.compaction_log import CompactionLog, MeasuredExecutor
from lsm_engine.table.ground.session import TableSession

log = logging.getLogger(__name__)
QUEUED_BUCKETS_MAX = 1000
"""With more buckets waiting than this, a writer waits for the round that runs."""


class BackgroundCompaction:
    """A queue of buckets and the thread that compacts them, from `start` to `stop`."""

    def __init__(self, session: TableSession) -> None:
        self._log = CompactionLog(session.clock)
        components = replace(session.components, executor=MeasuredExecutor(self._log))
        self._session = session.with_components(components)
        # Of its own: a replay of the writer's numbered commits must not be taken for a compaction.
        self._identity = CommitIdentity(commit_user=session.ids.new_id())
        self._changed = threading.Condition()
        self._queued: Buckets = frozenset()
        self._running: Buckets = frozenset()
        self._awaited = self._running_awaited = self._stopping = False
        self._made: Snapshot | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="lsm-compaction", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def metrics(self) -> CompactionMetrics:
        """Return how much it has done and how busy it is."""
        return self._log.metrics(waiting=len(self._queued))

    def due(
        self,
        session: TableSession,
        identity: CommitIdentity,
        touched: Buckets,
        *,
        rows_wait: Callable[[], bool],
    ) -> Snapshot | None:
        """Queue the buckets of a write, in place of `compact_due`; return what was waited for, if at all.

        A writer waits where its rows could not be read otherwise (`rows_wait`), and where compaction does
        not keep up: a bucket that was queued or in work already is above `num-sorted-run.stop-trigger`.
        """
        awaited = self._unless_it_fails(rows_wait)
        with self._changed:
            self._changed.wait_for(lambda: len(self._queued) <= QUEUED_BUCKETS_MAX)
            lags = bool(touched & (self._queued | self._running))
            self._queued |= touched
            self._awaited |= awaited
            self._identity = replace(self._identity, properties=identity.properties)
            self._changed.notify_all()
        if awaited:
            return self._finished(touched)
        if lags and self._unless_it_fails(lambda: stops_writers(session, touched)):
            self._finished(touched)
        return None

    def raise_error(self) -> None:
        """Raise what a round has failed with since the last call, once."""
        with self._changed:
            error, self._error = self._error, None
        if error is not None:
            error.add_note(
                "in a background compaction: what was committed is in, and the buckets stay due"
            )
            raise error

    def stop(self, *, drain: bool) -> None:
        """End the thread after the round that runs, or, to `drain`, once nothing waits any more."""
        with self._changed:
            self._stopping = True
            if not drain:
                self._queued = frozenset()
            self._changed.notify_all()
        self._thread.join()

    def _finished(self, touched: Buckets) -> Snapshot | None:
        """Wait until buckets have been worked on; return the snapshot of the round, if it made one."""
        with self._changed:
            self._changed.wait_for(lambda: not touched & (self._queued | self._running))
            return self._made

    def _unless_it_fails(self, waits: Callable[[], bool]) -> bool:
        """Ask whether a writer waits. Its rows are in by now: what fails is logged, and it waits."""
        try:
            return waits()
        except LsmError as error:
            log.warning("could not look how far compaction is: %s", error)
            return True

    def _run(self) -> None:
        while self._take():
            made: Snapshot | None = None
            failure: BaseException | None = None
            try:
                made = self._round()
            except BaseException as error:  # noqa: BLE001 -- it is raised where the writer is
                log.warning("a background compaction failed, and its buckets stay due: %s", error)
                failure = error
                self._log.failed(error)
            with self._changed:
                self._running, self._made = frozenset(), made
                self._error = failure or self._error
                self._changed.notify_all()

    def _take(self) -> bool:
        """Wait for buckets and take all of them; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queued or self._stopping)
            self._running, self._queued = self._queued, frozenset()
            self._running_awaited, self._awaited = self._awaited, False
            self._changed.notify_all()
            return bool(self._running)

    def _round(self) -> Snapshot | None:
        compaction = Compaction(self._session, self._identity, lambda: self.metrics().properties)
        return compaction.after_write(self._running, lambda: self._running_awaited)

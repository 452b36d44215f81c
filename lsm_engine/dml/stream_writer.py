"""A writer that stays open: many batches, a commit when it is asked for, compaction meanwhile.

What StreamTableWrite and StreamTableCommit are in Paimon. Rows are staged as by `upsert`, and every
commit ends in `Write.land`, as every write does; only what is due is compacted by a thread of its own."""

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from lsm_engine.base.errors import InvalidInputError, LsmError
from lsm_engine.base.record import record
from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER
from lsm_engine.compact.compact import Buckets, Compaction, stops_writers
from lsm_engine.dml.write import Write
from lsm_engine.format.commit_message import CommitMessage, WriteResult
from lsm_engine.format.snapshot import CompactionMetrics, Snapshot
from lsm_engine.planning.proposal import CommitIdentity, RowsUnchanged
from lsm_engine.storage.clock import Clock
from lsm_engine.table.components import Discard, LocalExecutor
from lsm_engine.table.incoming import IncomingRows, conformed, open_rows
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import staging_on
from lsm_engine.write.writers import TableWriter

# -- Log of the compactions of one background thread -----------------------------------------------

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
        is_remote: bool = False,
    ) -> list[CommitMessage]:
        """Do the work on one item after the other."""
        del is_remote  # there is one thread
        self._log.picked(len(items))
        measured = partial(self._log.measured, work)
        return super().messages(measured, items, label=label, discard=discard)


# -- Compactions of one open writer on a thread of their own (MergeTreeCompactManager) -------------
#
# The buckets of a commit are queued, each once; the thread takes all that wait, compacts them
# one after the other, and commits them together. It is one more process to the table: whatever
# becomes of it, the rows are in, and a compaction that died leaves orphan files at most.

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

    def enqueue(
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
        # The wait releases the lock, which the running round needs to finish.
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
            # An unknown state of compaction must not let files pile up.
            return True

    def _run(self) -> None:
        while self._take():
            snapshot: Snapshot | None = None
            failure: BaseException | None = None
            try:
                snapshot = self._round()
            except BaseException as error:  # noqa: BLE001 -- it is raised where the writer is
                log.warning("a background compaction failed, and its buckets stay due: %s", error)
                failure = error
                self._log.failed(error)
            # The state changes under the lock, so a waiting writer sees all of it.
            with self._changed:
                self._running, self._made = frozenset(), snapshot
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


# -- A writer that stays open ----------------------------------------------------------------------


@record
class _Staged:
    """Rows of the next commit, and the state that they were staged on."""

    writer: TableWriter
    base: Snapshot | None


class StreamWriter:
    """Takes rows until `commit` makes them visible, all at once; use it in a `with` statement.

    Leaving the block commits what is left, waits for compactions that are queued, and ends their
    thread; an exception in the block drops what is not committed. Threads may share a writer, one call at
    a time. It belongs to the process that opened it: in a forked one each call raises
    InvalidInputError, and nothing of the other's is touched.

    A compaction that failed is raised once, by the next call, before that does anything; what was
    committed is in, its buckets stay due, and the call may be made again.
    """

    def __init__(
        self, session: TableSession, identity: CommitIdentity, *, background_compaction: bool
    ) -> None:
        self._session = session
        self._identity = identity
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._staged: _Staged | None = None
        self._is_closed = False
        self._background: BackgroundCompaction | None = None
        self._stop: weakref.finalize | None = None  # type: ignore[type-arg]
        if background_compaction:
            self._background = BackgroundCompaction(session)
            self._background.start()
            self._stop = weakref.finalize(self, _stop, self._background, self._process)

    def __repr__(self) -> str:
        return f"<StreamWriter of {self._session.name!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        elif os.getpid() == self._process:
            with self._lock:
                self._drop()
                self._end(drain=False)

    def write(self, rows: Any) -> None:
        """Take rows, as `upsert` does, or `append` where the table has no primary key.

        A column `_row_kind` may hold +I, -U, +U or -D. Memory stays below `write-buffer-size`. Raises
        InvalidInputError for rows that do not fit: nothing of the call is taken then. Where a stream of
        batches fails on the way, or the disk does, all that is not committed is dropped.
        """
        with self._lock:
            self._check()
            # An empty list has no columns, and no rows either.
            if isinstance(rows, list) and not rows:
                return
            incoming: Iterable[IncomingRows] = conformed(
                open_rows(rows, self._session.schema), self._session.schema
            )
            if isinstance(rows, pa.Table | pa.RecordBatch | list):
                incoming = list(incoming)  # all of it fits, or nothing is taken
            staged = self._staged = self._staged or self._begun()
            try:
                for batch in incoming:
                    staged.writer.write(batch)
            except BaseException:
                # A batch that was staged in part may not be committed with the next ones.
                self._drop()
                raise

    def commit(
        self,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> WriteResult | None:
        """Make all rows since the last commit visible at once; None if there were none.

        Returns and raises as `upsert` does; rows of a commit that raises are dropped, or, after
        CommitUnknownError, may be visible. It waits where compaction does not keep up (`num-sorted-run.stop-trigger`), and where rows can be
        read only once they are compacted (`lookup-wait`).

        A commit with a number is applied once: a `commit_identifier` that is not greater than the last one of its
        `commit_user` changes nothing, whatever was committed or expired since, and where that last one is not kept any more
        the commit is refused (InvalidInputError, kind UNKNOWN_IDENTIFIER).
        """
        with self._lock:
            self._check()
            return self._commit(commit_identifier, properties)

    def _commit(
        self, commit_identifier: int, properties: Mapping[str, str] | None
    ) -> WriteResult | None:
        # The staged rows leave the writer first: a failed commit must not repeat them.
        staged, self._staged = self._staged, None
        if staged is None:
            return None
        try:
            messages = staged.writer.finish()
        except BaseException:
            # Nothing of the writer is committed; its files would be orphans.
            staged.writer.abort()
            raise
        looks = self._session.schema.bucket_mode.policy.crosses_partitions
        identity = replace(
            self._identity,
            commit_identifier=commit_identifier,
            properties={**(self._identity.properties or {}), **(properties or {})} or None,
        )
        compact = None if self._background is None else self._background.enqueue
        return Write(self._session, identity, compact).land(
            messages,
            planned_on=staged.base,
            requires=RowsUnchanged(on=staged.base) if looks else None,
        )

    def compaction_metrics(self) -> CompactionMetrics:
        """Return how busy the background compaction is, and what it has done; zeros without one."""
        return CompactionMetrics() if self._background is None else self._background.metrics()

    def close(self) -> None:
        """Commit what is left, finish queued compactions, and end their thread; harmless if closed.

        Raises what the commit or a compaction raised, after the thread has ended.
        """
        with self._lock:
            if self._is_closed:
                # A second close finds nothing to do.
                return
            self._check_process()
            try:
                # Also where a compaction has failed meanwhile: that is raised once the rows are in.
                self._commit(BATCH_COMMIT_IDENTIFIER, None)
            finally:
                self._drop()
                self._end(drain=True)
            # The error comes last, after the rows are committed.
            if self._background is not None:
                self._background.raise_error()

    def _begun(self) -> _Staged:
        base = Write(self._session, self._identity).base()
        return _Staged(writer=TableWriter(staging_on(self._session, base).settled()), base=base)

    def _drop(self) -> None:
        staged, self._staged = self._staged, None
        if staged is not None:
            staged.writer.abort()

    def _end(self, *, drain: bool) -> None:
        self._is_closed = True
        if self._stop is not None and self._stop.detach() and self._background is not None:
            self._background.stop(drain=drain)

    def _check(self) -> None:
        self._check_process()
        if self._is_closed:
            raise InvalidInputError("the writer is closed; open another with table.writer()")
        if self._background is not None:
            self._background.raise_error()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise InvalidInputError(
                "the writer belongs to another process, which this one was forked from; open one here",
                opened_by=self._process,
            )


def _stop(background: BackgroundCompaction, process: int) -> None:
    """End the thread of a writer that was not closed; in a forked process there is none."""
    if os.getpid() == process:
        background.stop(drain=False)

"""A writer that stays open: many batches, a commit when it is asked for, compaction meanwhile.

What StreamTableWrite and StreamTableCommit are in Paimon. Rows are staged as by `upsert`, and every
commit ends in `Write.land`, as every write does; only what is due is compacted by a thread of its own.
"""

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.base.record import record
from lsm_engine.meta.compaction_metrics import CompactionMetrics
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.plan.proposal import RowsUnchanged
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.compact.background import BackgroundCompaction
from lsm_engine.table.ground.incoming import IncomingRows, conformed, open_rows
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import staging_on
from lsm_engine.table.stage.writers import TableWriter
from lsm_engine.table.write.write import Write


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
        staged, self._staged = self._staged, None
        if staged is None:
            return None
        try:
            messages = staged.writer.finish()
        except BaseException:
            staged.writer.abort()
            raise
        looks = self._session.schema.bucket_mode.policy.crosses_partitions
        identity = replace(
            self._identity,
            commit_identifier=commit_identifier,
            properties={**(self._identity.properties or {}), **(properties or {})} or None,
        )
        return Write(self._session, identity).land(
            messages,
            planned_on=staged.base,
            requires=RowsUnchanged(on=staged.base) if looks else None,
            compact=None if self._background is None else self._background.due,
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
                return
            self._check_process()
            try:
                # Also where a compaction has failed meanwhile: that is raised once the rows are in.
                self._commit(BATCH_COMMIT_IDENTIFIER, None)
            finally:
                self._drop()
                self._end(drain=True)
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

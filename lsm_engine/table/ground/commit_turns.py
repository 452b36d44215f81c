"""Commits of several processes on one machine take turns once they have lost races to each other."""

from collections.abc import Iterator
from contextlib import contextmanager

from lsm_engine.io.clock import Clock
from lsm_engine.io.directory_lock import directory_lock
from lsm_engine.io.file_io import FileIO

_ATTEMPTS = 50
"""So many attempts after a lost race take turns."""

_WITHOUT = 10
"""So many after waiting in vain do not: who holds the lock may be stopped for hours."""

_PATIENCE_MILLIS = 2_000


class CommitTurns:
    """Whether the attempts of a table's commits take turns. Threads may share it.

    Nothing rests on turns: who waits in vain, as behind a process that was stopped, goes on without,
    and writers on other machines or of other clients take none (decision 33).
    """

    def __init__(self) -> None:
        self._attempts = 0  # that take turns; below 0: that take none, whoever loses

    def lost(self) -> None:
        """Take turns from now on: another writer was faster."""
        if self._attempts >= 0:
            self._attempts = _ATTEMPTS

    @contextmanager
    def taken(self, file_io: FileIO, directory: str, clock: Clock) -> Iterator[None]:
        """Wait for a turn, where turns are taken, and hold it for one attempt."""
        if self._attempts <= 0:
            self._attempts = min(0, self._attempts + 1)
            yield
            return
        self._attempts -= 1
        with directory_lock(file_io, directory, clock, patience_millis=_PATIENCE_MILLIS) as is_ours:
            if not is_ours:
                self._attempts = -_WITHOUT
            yield

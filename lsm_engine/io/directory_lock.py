"""Locks of directories among the processes of one machine (flock). They make no file, and go with their process.

Writers queue by `directory_lock`; correctness does not depend on it. Conditional changes of names depend on
`exclusive`.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol, runtime_checkable

from lsm_engine.base.errors import LsmError, StorageError
from lsm_engine.io.clock import Clock, SystemClock
from lsm_engine.io.file_io import FileIO

_POLL_MILLIS = 2
_MOST_PATIENCES = 20
"""How often the patience may restart: the holder may be stopped while others publish without the lock."""
PATIENCE_MILLIS = 10_000
"""How long `exclusive` waits for a holder that changes nothing in the directory."""


def opened_directory(real: str) -> int:
    """Return a descriptor of a directory; the caller closes it."""
    return os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def lock(descriptor: int, directory: int, clock: Clock, *, patience_millis: int) -> bool:
    """Wait for a lock; False where, for longer than the patience, nothing in `directory` changed.

    Where it changes, the wait takes 20 times the patience at most. Raises OSError where the file system has
    no such locks. Polls, as a holder may be stopped for hours.
    """
    polls = max(1, patience_millis // _POLL_MILLIS)
    polls_left, modified = polls, -1
    for _ in range(_MOST_PATIENCES * polls):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            clock.sleep_millis(_POLL_MILLIS)
        else:
            return True
        before, modified = modified, os.fstat(directory).st_mtime_ns
        polls_left = polls_left - 1 if modified == before or before < 0 else polls
        if not polls_left:
            break
    return False


def unlock(descriptor: int) -> None:
    """Release a lock; harmless if none is held."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextmanager
def exclusive(real: str, path: str, *, clock: Clock | None = None) -> Iterator[int]:
    """Hold the lock of a directory, and yield its descriptor; names below it go by that (`dir_fd`).

    Raises FileNotFoundError if there is no such directory, and StorageError that names `path`, with nothing changed,
    where the lock is not to be had.
    """
    clock = SystemClock() if clock is None else clock
    while True:
        descriptor = opened_directory(real)
        try:
            if not _locked(descriptor, path, clock):
                raise StorageError(
                    f"{_holder(descriptor)} holds the lock of this file's directory and does not go on; nothing was "
                    "changed; let it go on or end it, then retry",
                    path=path,
                    directory=real,
                )
            try:
                # Another directory may have taken the name during the wait.
                if os.path.samestat(os.fstat(descriptor), os.stat(real)):
                    yield descriptor
                    return
            finally:
                unlock(descriptor)  # a process that was forked meanwhile shares the descriptor
        finally:
            os.close(descriptor)


def _locked(descriptor: int, path: str, clock: Clock) -> bool:
    try:
        return lock(descriptor, descriptor, clock, patience_millis=PATIENCE_MILLIS)
    except OSError as cause:
        raise StorageError(
            "the file system has no locks (flock), without which a name cannot be changed safely; nothing was "
            "changed; keep the table on a file system that has them",
            path=path,
        ) from cause


def _holder(descriptor: int) -> str:
    """Return the process that holds a lock, as far as the system knows."""
    inode = str(os.fstat(descriptor).st_ino)
    with suppress(OSError, IndexError), open("/proc/locks") as locks:
        for line in locks:
            words = line.split()
            # Such as 12: FLOCK ADVISORY WRITE 4711 fd:01:393 0 EOF, with the process and the inode.
            if words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode:
                return f"process {words[4]}"
    return "another process"


@runtime_checkable
class OnThisMachine(Protocol):
    """Storage whose files have names for the operating system."""

    def real_path(self, path: str) -> str:
        """Return where a file lies, links followed."""
        ...


@contextmanager
def directory_lock(
    file_io: FileIO, directory: str, clock: Clock, *, patience_millis: int
) -> Iterator[bool]:
    """Hold a directory's lock (flock); False where, for longer than the patience, nothing in it changed.

    Where it changes, who waits does so for 20 times the patience at most.

    Those who wait stand in line: the first of them holds the lock of the directory above until it has this
    one, so that who has just let go of it, and is running still, is not the next one too.

    Does nothing where the file system has no such locks, or no directory.
    """
    if not isinstance(file_io, OnThisMachine):
        yield True
        return
    with ExitStack() as stack:
        try:
            real = file_io.real_path(directory)
            own, line = _open(real, stack), _open(os.path.dirname(real), stack)
        except (OSError, LsmError):
            yield True
            return
        is_ours = _acquire(line, own, clock, patience_millis) and _acquire(
            own, own, clock, patience_millis
        )
        unlock(line)
        yield is_ours


def _open(real: str, stack: ExitStack) -> int:
    descriptor = opened_directory(real)
    stack.callback(os.close, descriptor)
    return descriptor


def _acquire(descriptor: int, directory: int, clock: Clock, patience_millis: int) -> bool:
    try:
        return lock(descriptor, directory, clock, patience_millis=patience_millis)
    except OSError:
        return True  # the file system has no locks, so no other process holds one

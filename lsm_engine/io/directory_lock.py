"""A directory that is locked among the processes of one machine: a courtesy, nothing depends on it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lsm_engine.base.errors import LsmError
from lsm_engine.io.clock import Clock
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.local import LocalFileIO

_POLL_MILLIS = 2
_MOST_PATIENCES = 20
"""How often patience may begin anew: who holds the lock may be stopped, while others publish without it."""


@contextmanager
def directory_lock(
    file_io: FileIO, directory: str, clock: Clock, *, patience_millis: int
) -> Iterator[bool]:
    """Hold a directory's lock (flock); False where, for longer than the patience, nothing in it changed.

    Where it changes, who waits does so for 20 times the patience at most.

    Those who wait stand in line: the first of them holds the lock of the directory above until it has this
    one, so that who has just let go of it, and is running still, is not the next one too.

    It makes no file, and goes with the process that holds it. Asked for again and again, as a holder
    may be stopped for hours. Does nothing where the file system has no such locks, or no directory.
    """
    if not isinstance(file_io, LocalFileIO):
        yield True
        return
    with ExitStack() as held:
        try:
            here = file_io.real_path(directory)
            own, line = _opened(here, held), _opened(os.path.dirname(here), held)
        except (OSError, LsmError):
            yield True
            return
        polls = max(1, patience_millis // _POLL_MILLIS)
        is_ours = _taken(line, own, clock, polls) and _taken(own, own, clock, polls)
        _let_go(line)
        yield is_ours


def _opened(real: str, held: ExitStack) -> int:
    descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY)
    held.callback(os.close, descriptor)
    return descriptor


def _taken(descriptor: int, directory: int, clock: Clock, polls: int) -> bool:
    left, changed = polls, -1
    for _ in range(_MOST_PATIENCES * polls):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            clock.sleep_millis(_POLL_MILLIS)
        except OSError:
            return True  # not to be had here: nobody else has it
        else:
            return True
        before, changed = changed, os.fstat(directory).st_mtime_ns
        left = left - 1 if changed == before or before < 0 else polls
        if not left:
            break
    return False


def _let_go(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        return  # where there are no locks none was taken

"""A directory that is locked among the processes of one machine: a courtesy, nothing depends on it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from lsm_engine.base.errors import LsmError
from lsm_engine.io.clock import Clock
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.local import LocalFileIO

_POLL_MILLIS = 2


@contextmanager
def directory_lock(
    file_io: FileIO, directory: str, clock: Clock, *, patience_millis: int
) -> Iterator[bool]:
    """Hold a directory's lock (flock); False where others held it for longer than the patience.

    It makes no file, and goes with the process that holds it. Asked for again and again, as a holder
    may be stopped for hours. Does nothing where the file system has no such locks, or no directory.
    """
    if not isinstance(file_io, LocalFileIO):
        yield True
        return
    try:
        descriptor = os.open(file_io.real_path(directory), os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, LsmError):
        yield True
        return
    try:
        yield _taken(descriptor, clock, patience_millis)
    finally:
        os.close(descriptor)


def _taken(descriptor: int, clock: Clock, patience_millis: int) -> bool:
    for _ in range(max(1, patience_millis // _POLL_MILLIS)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            clock.sleep_millis(_POLL_MILLIS)
        except OSError:
            return True  # not to be had here: nobody else has it
        else:
            return True
    return False

"""Local directories of a process for disposable files: spilled rows, lookup files."""

import os
import tempfile
from itertools import chain

_NAMED_BY_SPARK = ("SPARK_LOCAL_DIRS", "LOCAL_DIRS")
"""Lists with commas: of Spark, which sets it for each Python worker, and of YARN's containers."""


def local_directories() -> list[str]:
    """Return every directory that processes of this environment may keep local files in.

    Those that `SPARK_LOCAL_DIRS` and `LOCAL_DIRS` name, in this order, and the system's place for temporary files.
    """
    lists = [os.environ.get(name, "").split(",") for name in _NAMED_BY_SPARK]
    spread = [[os.path.abspath(path.strip()) for path in paths if path.strip()] for paths in lists]
    return [*chain.from_iterable(map(_from_own, spread)), tempfile.gettempdir()]


def local_directory() -> str:
    """Return the directory for local files that need not outlive this process.

    One of those that `SPARK_LOCAL_DIRS`, else `LOCAL_DIRS`, names, where either does: processes are spread over
    them, and one that cannot be written to is passed over. Else the system's place for temporary files.
    """
    *directories, last = local_directories()
    return next(filter(_takes_files, directories), last)


def _from_own(directories: list[str]) -> list[str]:
    """Return the same directories, that of this process first."""
    first = os.getpid() % len(directories) if directories else 0
    return [*directories[first:], *directories[:first]]


def _takes_files(directory: str) -> bool:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)

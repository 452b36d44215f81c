"""Where a process keeps local files that it can do without: spilled rows, lookup files."""

import os
import tempfile

_NAMED_BY_SPARK = ("SPARK_LOCAL_DIRS", "LOCAL_DIRS")
"""Lists with commas: of Spark, which sets it for each Python worker, and of YARN's containers."""


def local_directory() -> str:
    """Return the directory for local files that need not outlive this process.

    One of those that `SPARK_LOCAL_DIRS`, else `LOCAL_DIRS`, names, where either does: processes are spread over
    them, and one that cannot be written to is passed over. Else the system's place for temporary files.
    """
    for name in _NAMED_BY_SPARK:
        named = [each.strip() for each in os.environ.get(name, "").split(",")]
        directories = [os.path.abspath(each) for each in named if each]
        first = os.getpid() % len(directories) if directories else 0
        for directory in (*directories[first:], *directories[:first]):
            if _takes_files(directory):
                return directory
    return tempfile.gettempdir()


def _takes_files(directory: str) -> bool:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)

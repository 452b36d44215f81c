"""Listings that maintenance may trust: asked until two answers agree.

A storage that answers a listing with nothing, or with half of it, makes roots vanish, and what no root
names is deleted. One wrong answer is seen because the next differs. A storage that repeats the same
wrong answer cannot be told from an empty directory by asking; snapshots have hints and consecutive ids
besides (store/snapshots.py).
"""

from lsm_engine.base.errors import StorageError
from lsm_engine.io.file_io import FileIO, FileStatus

_ASKED_AT_MOST = 6


def settled_listing(file_io: FileIO, directory: str) -> list[FileStatus]:
    """Return a directory's entries once two answers in a row name the same; StorageError if never."""
    before = file_io.list(directory)
    for _ in range(_ASKED_AT_MOST - 1):
        now = file_io.list(directory)
        if _names(now) == _names(before):
            return now
        before = now
    raise StorageError(
        "the storage lists a directory differently each time; nothing was deleted, try again",
        directory=directory,
    )


def _names(entries: list[FileStatus]) -> list[tuple[str, bool]]:
    return [(entry.path, entry.is_directory) for entry in entries]

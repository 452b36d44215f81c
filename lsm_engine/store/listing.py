"""Listings that maintenance may trust: asked until two answers agree.

A storage that answers a listing with nothing, or with half of it, makes roots vanish, and what no root
names is deleted. One wrong answer is seen because the next differs. A storage that repeats the same
wrong answer looks like an empty directory; snapshots have hints and consecutive ids
besides (store/snapshots.py).
"""

from collections.abc import Callable

from lsm_engine.base.errors import StorageError
from lsm_engine.io.file_io import FileIO, FileStatus

_ASKED_AT_MOST = 6


def _name_the_same(before: list[FileStatus], now: list[FileStatus]) -> bool:
    return _names(before) == _names(now)


def _names(entries: list[FileStatus]) -> list[tuple[str, bool]]:
    return [(entry.path, entry.is_directory) for entry in entries]


def stable_listing(
    file_io: FileIO,
    directory: str,
    agree: Callable[[list[FileStatus], list[FileStatus]], bool] = _name_the_same,
) -> list[FileStatus]:
    """Return a directory's entries once two answers in a row agree; StorageError if never.

    A store whose lists are consistent is asked once.

    `agree`: what of two answers must be equal (default: everything) where others write meanwhile.
    """
    before = file_io.list(directory)
    if file_io.facts.lists_are_consistent:
        return before
    for _ in range(_ASKED_AT_MOST - 1):
        now = file_io.list(directory)
        if agree(before, now):
            return now
        before = now
    raise StorageError(
        "the storage lists a directory differently each time; nothing was deleted, try again",
        directory=directory,
    )

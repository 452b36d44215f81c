"""A file that one process appends to, until any process closes it by giving it another name.

No lock is needed: a writer looks, after its bytes are on disk, whether the file still has its
name. If it has, a later closing finds the bytes. If not, they may have come too late, and belong
into the next file.
"""

import contextlib
import logging
import os

from lsm_engine.storage.file_io import FileIO, to_storage_error
from lsm_engine.storage.local import LocalFileIO, sync_path

log = logging.getLogger(__name__)

OPEN = ".open"
CLOSED = ".jsonl"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
_sync = getattr(os, "fdatasync", os.fsync)


class JournalFile:
    """A new file `<stem>.open` of a local directory, which is made if it is missing."""

    def __init__(self, place: FileIO, stem: str) -> None:
        assert isinstance(place, LocalFileIO)
        self._path = os.path.join(place.root, stem + OPEN)
        try:
            if not os.path.isdir(place.root):
                os.makedirs(place.root, exist_ok=True)
                sync_path(os.path.dirname(place.root))
            self._descriptor = os.open(self._path, _FLAGS, 0o666)
            sync_path(place.root)
        except OSError as cause:
            raise to_storage_error(self._path, cause) from cause

    def append(self, data: bytes) -> bool:
        """Append bytes, on disk when this returns; False: the file was closed, write them elsewhere.

        Raises StorageError where the disk refuses; the file then ends in a part of them.
        """
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
            _sync(self._descriptor)
            return os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        except FileNotFoundError:
            # Another process has closed and renamed the journal, maybe before this line.
            return False
        except OSError as cause:
            raise to_storage_error(self._path, cause) from cause

    def close(self) -> None:
        """Let go of the file; it keeps its name until it is closed for good."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def closed_journals(place: FileIO, names: list[str]) -> list[str]:
    """Close the open journals among a directory's names; return the names of all closed ones."""
    assert isinstance(place, LocalFileIO)
    closed = [name for name in names if name.endswith(CLOSED)]
    for name in names:
        if name.endswith(OPEN):
            new = name.removesuffix(OPEN) + CLOSED
            try:
                os.rename(os.path.join(place.root, name), os.path.join(place.root, new))
            except FileNotFoundError:
                continue  # another process was faster
            except OSError as cause:
                log.warning("journal %s in %s cannot be closed: %s", name, place, cause)
                continue
            closed.append(new)
    return closed

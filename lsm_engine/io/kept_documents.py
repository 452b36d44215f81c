"""Small documents of object stores, kept by this process with the tag that the store gives to their content.

A listing has the tags of what it lists: a document that has the tag which is kept is not read again. Two
contents never share a tag: it is a hash of them, or new with each write.
"""

import threading
from collections.abc import Iterable

from cachetools import LRUCache

from lsm_engine.io.file_io import FileIO

KEPT_BYTES = 16 << 20
_DOCUMENT_BYTES = 64 << 10
_TABLES = 4_096  # of which a process remembers the directories
_BYTES_BESIDES = 500  # what a document takes besides its content


def _size_of(kept: tuple[str, bytes]) -> int:
    return _BYTES_BESIDES + len(kept[1])


_kept: "LRUCache[tuple[FileIO, str], tuple[str, bytes]]" = LRUCache(KEPT_BYTES, getsizeof=_size_of)
_directories: "LRUCache[FileIO, frozenset[str]]" = LRUCache(_TABLES)
_lock = threading.Lock()


class KeptDocuments:
    """The documents of one storage, all handles of the process together. Any thread may use it."""

    def __init__(self, file_io: FileIO) -> None:
        self._file_io = file_io

    def keep(self, path: str, tag: str | None, content: bytes) -> None:
        """Keep a document as it was read or written; without a tag, or a large one, it is not kept."""
        with _lock:
            if tag is None or len(content) > _DOCUMENT_BYTES:
                _kept.pop((self._file_io, path), None)
            else:
                _kept[self._file_io, path] = tag, content

    def holds(self, path: str) -> bool:
        """Whether some content of a document is kept."""
        with _lock:
            return (self._file_io, path) in _kept

    def find(self, path: str, tag: str | None) -> bytes | None:
        """Return the content that has this tag, if it is kept."""
        with _lock:
            kept, content = _kept.get((self._file_io, path), (None, b""))
        return content if kept is not None and kept == tag else None

    def keep_directories(self, there: Iterable[str]) -> None:
        """Keep which directories there are: they will be listed at once the next time."""
        with _lock:
            _directories[self._file_io] = frozenset(there)

    def directories(self) -> frozenset[str]:
        """Return which directories there were the last time."""
        with _lock:
            return _directories.get(self._file_io, frozenset())


def forget_documents() -> None:
    """Keep nothing: as in a process that has read and written nothing yet."""
    with _lock:
        _kept.clear()
        _directories.clear()

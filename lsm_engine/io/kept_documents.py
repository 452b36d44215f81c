"""Cache of small documents of object stores, with the tag (ETag) of their content.

A listing has the tags of its entries. A document whose tag is the cached one is not read again. Two
contents never share a tag: it is a hash of the content, or new with each write.
"""

import threading
from collections.abc import Iterable

from cachetools import LRUCache

from lsm_engine.io.file_io import FileIO

KEPT_BYTES = 16 << 20
_DOCUMENT_BYTES = 64 << 10
_TABLES = 4_096  # whose directories a process remembers
_BYTES_BESIDES = 500  # the memory of an entry without its content


def _size_of(document: tuple[str, bytes]) -> int:
    return _BYTES_BESIDES + len(document[1])


_cached: "LRUCache[tuple[FileIO, str], tuple[str, bytes]]" = LRUCache(
    KEPT_BYTES, getsizeof=_size_of
)
_directories: "LRUCache[FileIO, frozenset[str]]" = LRUCache(_TABLES)
_lock = threading.Lock()


class KeptDocuments:
    """The cached documents of one storage, shared by all handles of the process. Any thread may use it."""

    def __init__(self, file_io: FileIO) -> None:
        self._file_io = file_io

    def keep(self, path: str, tag: str | None, content: bytes) -> None:
        """Cache a document; one without a tag, or a large one, is not cached."""
        with _lock:
            if tag is None or len(content) > _DOCUMENT_BYTES:
                _cached.pop((self._file_io, path), None)
            else:
                _cached[self._file_io, path] = tag, content

    def holds(self, path: str) -> bool:
        """Whether some content of a document is cached."""
        with _lock:
            return (self._file_io, path) in _cached

    def find(self, path: str, tag: str | None) -> bytes | None:
        """Return the content with this tag, if it is cached."""
        with _lock:
            cached_tag, content = _cached.get((self._file_io, path), (None, b""))
        return content if cached_tag is not None and cached_tag == tag else None

    def keep_directories(self, directories: Iterable[str]) -> None:
        """Remember the existing directories: the next round lists them right away."""
        with _lock:
            _directories[self._file_io] = frozenset(directories)

    def directories(self) -> frozenset[str]:
        """Return the directories that existed in the last round."""
        with _lock:
            return _directories.get(self._file_io, frozenset())


def forget_documents() -> None:
    """Clear the cache, as in a new process."""
    with _lock:
        _cached.clear()
        _directories.clear()

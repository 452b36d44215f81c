"""What a process keeps of manifests and lists that it has read, each kind up to so many bytes."""

import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
from cachetools import LRUCache

from lsm_engine.io.file_io import FileIO

T = TypeVar("T")
CACHE_BYTES = 64 << 20
FACT_BYTES = 64 << 20
_BYTES_PER_RECORD = 800  # what one record of a list takes, measured
_EXACT_FROM_BYTES = 1 << 15
_BYTES_PER_ARRAY = 1_400
"""What an Arrow array takes besides its values, measured: for a few entries it is nearly all."""


class KeptManifests:
    """Entries of manifests, as tables, and lists and facts about entries, by name. Any thread may use it.

    Entries and the rest have room of their own: the entries of one large manifest would drive out what is
    known of a hundred others. On a far store all handles of a process share what they keep.
    """

    def __init__(self, file_io: FileIO, cache_bytes: int) -> None:
        """`cache_bytes`: of entries, where they are not shared."""
        self._file_io = file_io
        self._is_far = file_io.facts.is_far
        if self._is_far:
            self._entries, self._others, self._lock = _shared_entries, _shared_others, _shared_lock
        else:
            self._entries = LRUCache(cache_bytes, getsizeof=_size_of)
            self._others = LRUCache(FACT_BYTES, getsizeof=_size_of)
            self._lock = threading.Lock()

    def find(self, name: str) -> Any | None:
        """Return what is kept under a name, or None."""
        return self.find_all([name])[0]

    def find_all(self, names: Iterable[str]) -> list[Any | None]:
        """Return what is kept under each name, None where nothing is."""
        keys = [(self._file_io, name) for name in names] if self._is_far else names
        with self._lock:
            entries, others = self._entries, self._others
            return [others[key] if key in others else entries.get(key) for key in keys]

    def holds(self, name: str) -> bool:
        """Whether something is kept under a name."""
        key = self._key(name)
        with self._lock:
            return key in self._others or key in self._entries

    def keep(self, name: str, found: T) -> T:
        """Keep something, unless it is larger than all that may be kept, and return it."""
        cache = self._entries if isinstance(found, pa.Table) else self._others
        with self._lock, suppress(ValueError):
            cache[self._key(name)] = found
        return found

    def forget(self, name: str) -> None:
        """Keep nothing under a name."""
        with self._lock:
            for cache in (self._entries, self._others):
                cache.pop(self._key(name), None)

    def forget_all(self) -> None:
        """Keep nothing of this store."""
        with self._lock:
            for cache in (self._entries, self._others):
                for key in [key for key in cache if not self._is_far or key[0] == self._file_io]:
                    del cache[key]

    def _key(self, name: str) -> Any:
        return (self._file_io, name) if self._is_far else name


def forget_shared() -> None:
    """Keep nothing of any far store: as in a process that has read nothing yet."""
    with _shared_lock:
        _shared_entries.clear()
        _shared_others.clear()


def _size_of(kept: Any) -> int:
    if isinstance(kept, pa.Table):
        # Tables of entries have as many chunks in each column.
        arrays = kept.num_columns * kept.column(0).num_chunks if kept.num_columns else 0
        size = int(kept.get_total_buffer_size())
        # Of manifests decoded together each is a slice of the same buffers, and counts its part.
        if size > _EXACT_FROM_BYTES:
            size = int(kept.nbytes)
        return size + _BYTES_PER_ARRAY * arrays
    stated = getattr(kept, "kept_bytes", None)
    return _BYTES_PER_RECORD * max(len(kept), 1) if stated is None else int(stated)


_shared_entries: LRUCache[Any, Any] = LRUCache(CACHE_BYTES, getsizeof=_size_of)
_shared_others: LRUCache[Any, Any] = LRUCache(FACT_BYTES, getsizeof=_size_of)
_shared_lock = threading.Lock()

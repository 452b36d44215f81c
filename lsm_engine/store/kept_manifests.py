"""Cache of decoded manifests and lists of a process, with a limit in bytes for each kind."""

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
"""The measured overhead of an Arrow array: for a few entries it is nearly all of the memory."""


class KeptManifests:
    """Entries of manifests, as tables, and lists and facts about entries, by name. Any thread may use it.

    Entries and facts have limits of their own: the entries of one large manifest would evict the facts of
    a hundred others. On a remote store all handles of a process share one cache.
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
        """Return the cached value of a name, or None."""
        return self.find_all([name])[0]

    def find_all(self, names: Iterable[str]) -> list[Any | None]:
        """Return the cached value of each name, or None."""
        keys = [(self._file_io, name) for name in names] if self._is_far else names
        with self._lock:
            entries, facts = self._entries, self._others
            return [facts[key] if key in facts else entries.get(key) for key in keys]

    def holds(self, name: str) -> bool:
        """Whether a name has a cached value."""
        key = self._key(name)
        with self._lock:
            return key in self._others or key in self._entries

    def keep(self, name: str, value: T) -> T:
        """Cache a value, unless it is larger than the cache, and return it."""
        cache = self._entries if isinstance(value, pa.Table) else self._others
        with self._lock, suppress(ValueError):
            cache[self._key(name)] = value
        return value

    def forget(self, name: str) -> None:
        """Drop the cached value of a name."""
        with self._lock:
            for cache in (self._entries, self._others):
                cache.pop(self._key(name), None)

    def forget_all(self) -> None:
        """Drop all cached values of this store."""
        with self._lock:
            for cache in (self._entries, self._others):
                for key in [key for key in cache if not self._is_far or key[0] == self._file_io]:
                    del cache[key]

    def _key(self, name: str) -> Any:
        return (self._file_io, name) if self._is_far else name


def forget_shared() -> None:
    """Clear the shared cache of remote stores, as in a new process."""
    with _shared_lock:
        _shared_entries.clear()
        _shared_others.clear()


def _size_of(value: Any) -> int:
    if isinstance(value, pa.Table):
        # Tables of entries have as many chunks in each column.
        arrays = value.num_columns * value.column(0).num_chunks if value.num_columns else 0
        size = int(value.get_total_buffer_size())
        # Of manifests decoded together each is a slice of the same buffers, and counts its part.
        if size > _EXACT_FROM_BYTES:
            size = int(value.nbytes)
        return size + _BYTES_PER_ARRAY * arrays
    stated = getattr(value, "kept_bytes", None)
    return _BYTES_PER_RECORD * max(len(value), 1) if stated is None else int(stated)


_shared_entries: LRUCache[Any, Any] = LRUCache(CACHE_BYTES, getsizeof=_size_of)
_shared_others: LRUCache[Any, Any] = LRUCache(FACT_BYTES, getsizeof=_size_of)
_shared_lock = threading.Lock()

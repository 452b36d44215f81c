"""Cache of footers of data files on remote stores. It needs no invalidation: data files never change."""

import threading
from contextlib import suppress
from typing import Any

import pyarrow.parquet as pq
from cachetools import LRUCache

from lsm_engine.io.file_checksum import parquet_footer
from lsm_engine.io.file_io import FileIO

KEPT_BYTES = 64 << 20
_TIMES_STORED = 8
"""The memory of a decoded footer, in multiples of its stored bytes."""


def _size_of(footer: "pq.FileMetaData") -> int:
    return _TIMES_STORED * int(footer.serialized_size)


_cached: "LRUCache[tuple[FileIO, str, int | None], pq.FileMetaData]" = LRUCache(
    KEPT_BYTES, getsizeof=_size_of
)
_lock = threading.Lock()


def kept_footer(
    file_io: FileIO, source: Any, expected: int | None, *, file_name: str
) -> "pq.FileMetaData":
    """Return a footer as `parquet_footer` does. Footers of remote stores are cached, up to 64 MB in all."""
    if not file_io.facts.is_far:
        return parquet_footer(source, expected, file_name=file_name)
    key = (file_io, file_name, expected)
    with _lock:
        footer = _cached.get(key)
    if footer is None:
        footer = parquet_footer(source, expected, file_name=file_name)
        with _lock, suppress(ValueError):  # larger than the whole cache
            _cached[key] = footer
    return footer

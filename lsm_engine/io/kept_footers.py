"""Footers of data files on far stores, kept by this process: a data file of a name never changes."""

import threading
from contextlib import suppress
from typing import Any

import pyarrow.parquet as pq
from cachetools import LRUCache

from lsm_engine.io.file_checksum import parquet_footer
from lsm_engine.io.file_io import FileIO

KEPT_BYTES = 64 << 20
_TIMES_STORED = 8
"""What a footer takes once it is decoded, by what it takes in its file."""


def _size_of(footer: "pq.FileMetaData") -> int:
    return _TIMES_STORED * int(footer.serialized_size)


_kept: "LRUCache[tuple[FileIO, str, int | None], pq.FileMetaData]" = LRUCache(
    KEPT_BYTES, getsizeof=_size_of
)
_lock = threading.Lock()


def kept_footer(
    file_io: FileIO, source: Any, expected: int | None, *, file_name: str
) -> "pq.FileMetaData":
    """Return what `parquet_footer` does; of a far store it is read once, up to 64 MB of footers in all."""
    if not file_io.facts.is_far:
        return parquet_footer(source, expected, file_name=file_name)
    key = (file_io, file_name, expected)
    with _lock:
        found = _kept.get(key)
    if found is None:
        found = parquet_footer(source, expected, file_name=file_name)
        with _lock, suppress(ValueError):  # larger than all that may be kept
            _kept[key] = found
    return found

"""Entries of a disk cache: limits, causes of removal, counts, and files still being built."""

from collections.abc import Callable
from enum import Enum
from typing import Any, BinaryIO

from lsm_engine.base.record import record


class Leaves(Enum):
    """Why an entry was removed."""

    SIZE = "size"
    EXPIRED = "expired"
    DROPPED = "dropped"
    RELEASED = "released"
    DAMAGED = "damaged"


@record
class CacheLimits:
    """What one table asks for: bytes of all entries together (None: no limit), and idle time."""

    max_bytes: int | None
    retention_millis: int


@record
class CacheMetrics:
    """What a cache has done. `evictions` counts by cause (see Leaves)."""

    hits: int
    misses: int
    file_count: int
    byte_count: int
    built_bytes: int
    evictions: dict[str, int]


@record
class CacheEntry:
    """One entry, as `lsm cache` shows it."""

    owner: str
    name: str
    size: int
    idle_millis: int


class Growing:
    """A lookup file that is being built: its bytes so far."""

    def __init__(self) -> None:
        self.size = 0


class RoomySink:
    """A file being written, for which room is made before each write."""

    def __init__(self, sink: BinaryIO, make_room: Callable[[int], None]) -> None:
        self._sink = sink
        self._make_room = make_room

    def write(self, data: Any) -> int:
        self._make_room(len(data) if isinstance(data, bytes) else memoryview(data).nbytes)
        return self._sink.write(data)

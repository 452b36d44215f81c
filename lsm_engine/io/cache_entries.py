"""Entries of a disk cache: limits, causes of removal, counts, and files still being built."""

import threading
from collections.abc import Callable
from enum import Enum
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np

from lsm_engine.base.record import record

T = TypeVar("T")


class Leaves(Enum):
    """Why an entry was removed."""

    SIZE = "size"
    EXPIRED = "expired"
    DROPPED = "dropped"
    RELEASED = "released"
    DAMAGED = "damaged"

    @property
    def removal_cause(self) -> str:
        """The cause as Caffeine names it: explicit, replaced, expired or size.

        Explicit: the data file left the levels, or its reader closed. Replaced: damaged and built again.
        """
        match self:
            case Leaves.DROPPED | Leaves.RELEASED:
                return "explicit"
            case Leaves.DAMAGED:
                return "replaced"
            case Leaves.EXPIRED:
                return "expired"
            case Leaves.SIZE:
                return "size"


class Accesses:
    """The requested keys of an entry, and the keys it had. Threads may share it.

    `points` holds the same of compiled single lookups, [requests, hits], which add to it without a lock:
    where threads look up at once a few may be missing.
    """

    def __init__(self) -> None:
        self.points = np.zeros(2, np.uint64)
        self._lock = threading.Lock()
        self._requests = self._hits = 0

    def add(self, requests: int, hits: int) -> None:
        """Count a batch."""
        with self._lock:
            self._requests += requests
            self._hits += hits

    @property
    def requests(self) -> int:
        """Keys asked for."""
        return self._requests + int(self.points[0])

    @property
    def hits(self) -> int:
        """Keys that the entry had."""
        return self._hits + int(self.points[1])


@record
class CacheLimits:
    """The limits of one table: bytes of all entries together (None: no limit), and idle time."""

    max_bytes: int | None
    retention_millis: int


@record
class CacheMetrics:
    """The counts of a cache. `evictions` counts by cause (see Leaves)."""

    hits: int
    misses: int
    file_count: int
    byte_count: int
    built_bytes: int
    evictions: dict[str, int]


@record
class CacheEntry:
    """One entry, as `lsm cache` shows it; `removal_cause` None: it is in the cache.

    `request_count`: keys that it was asked for; `hit_count`: those that it had.
    """

    owner: str
    name: str
    size: int
    idle_millis: int
    request_count: int = 0
    hit_count: int = 0
    removal_cause: str | None = None


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


class BuiltEntry(Generic[T]):
    """A built file and its reader."""

    def __init__(
        self, key: tuple[str, str], path: str, reader: T, size: int, limits: CacheLimits, now: int
    ) -> None:
        self.key = key
        self.path = path
        self.opened = reader
        self.size = size
        self.retention_millis = limits.retention_millis
        self.used_millis = now

    def entry(self, now: int, cause: Leaves | None = None) -> CacheEntry:
        """Return the facts of the entry."""
        accesses = getattr(self.opened, "accesses", None)
        counts = accesses if isinstance(accesses, Accesses) else Accesses()
        return CacheEntry(
            owner=self.key[0],
            name=self.key[1],
            size=self.size,
            idle_millis=max(0, now - self.used_millis),
            request_count=counts.requests,
            hit_count=counts.hits,
            removal_cause=None if cause is None else cause.removal_cause,
        )


class Building:
    """The lock of an entry that is being built, and how many threads hold it or wait for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread_count = 0

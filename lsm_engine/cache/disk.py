"""A bounded directory of local files that can be built again, shared by tables and threads.

An entry is removed together with its file. A reader of the file holds a mapping, which stays valid.
Files that are being built count too: room is made before they grow, and they wait for each other if no
room is left. The oldest never waits, so that at most one file exceeds the limit.
Owners are "name#token": `lsm cache` shows what the tables of a name hold."""

import os
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.storage.clock import Clock
from lsm_engine.storage.file_io import naming_path
from lsm_engine.storage.local_state import ProcessDirectory, default_root, unlink, write_private

# -- Entries of a disk cache: limits, causes of removal, counts, and files still being built -------

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


# -- A bounded directory of local files that can be built again, shared by tables and threads ------

_PUBLISH_MILLIS = 1000
_REMOVED_KEPT, _FILES_PUBLISHED = 1000, 100


class DiskCache(Generic[T]):
    """Files built on first need, by (owner, name). Threads may share it; so may tables.

    `root` None: a private directory of the user where storage/local_state has it. Nothing is
    touched before the first entry.
    """

    def __init__(self, clock: Clock, root: str | None = None) -> None:
        self._clock = clock
        self._root = root  # the default is looked up by who needs it: Spark forks workers
        self._directory: ProcessDirectory | None = None
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str], BuiltEntry[T]] = OrderedDict()  # idlest first
        self._building: dict[tuple[str, str], Building] = {}
        self._growing: dict[Growing, None] = {}  # begun first comes first
        self._has_room = threading.Condition(self._lock)
        self._bytes = self._built = self._hits = self._misses = 0
        self._evictions: Counter[str] = Counter()
        self._removed: deque[CacheEntry] = deque(maxlen=_REMOVED_KEPT)
        self._watchers: dict[str, Callable[[], None]] = {}
        self._abandoned: deque[str] = deque()
        self._published_millis = 0
        self.generation = 0

    def get(
        self,
        owner: str,
        name: str,
        limits: CacheLimits,
        build: Callable[[BinaryIO], None],
        opener: Callable[[pa.Buffer, str], T],
    ) -> T:
        """Return the result of `opener` on the bytes of an entry, which `build` writes if it is missing.

        Two threads never build one entry. A file that `build` fails on is removed; one that `opener`
        finds damaged is built a second time, and only then the error is raised. Raises StorageError,
        naming the directory, where it is full, read-only or not ours.
        """
        self._remove_abandoned()
        key = (owner, name)
        entry = self._hit(key)
        if entry is not None:
            return entry.opened
        with self._alone(key):
            entry = self._hit(key)
            if entry is not None:
                return entry.opened
            built = self._make(key, limits, build, opener)
        self._publish(built.used_millis)
        return built.opened

    def drop(self, owner: str, names: Iterable[str], *, cause: Leaves = Leaves.DROPPED) -> None:
        """Remove entries and their files; unknown names are no error."""
        with self._lock:
            leaving = [
                self._remove(self._entries[owner, name], cause)
                for name in names
                if (owner, name) in self._entries
            ]
        self._notify(leaving)

    def watch(self, owner: str, callback: Callable[[], None]) -> None:
        """Call `callback`, without any lock, after entries of an owner were removed, until `unwatch`."""
        with self._lock:
            self._watchers[owner] = callback

    def unwatch(self, owner: str) -> None:
        """Stop notifying an owner and remove its entries, at the latest when the cache is used next.

        Never waits: a finalizer may run anywhere, also where this very thread holds the lock.
        """
        self._abandoned.append(owner)
        self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        while self._abandoned and self._lock.acquire(blocking=False):
            try:
                if not self._abandoned:  # another thread was faster
                    return
                owner = self._abandoned.popleft()
                self._watchers.pop(owner, None)
                for entry in [
                    candidate
                    for candidate in list(self._entries.values())
                    if candidate.key[0] == owner
                ]:
                    self._remove(entry, Leaves.RELEASED)
            finally:
                self._lock.release()

    def discard(self, owner: str, path: str) -> bool:
        """Remove an owner's entry whose file was found damaged; False if it has none at `path`."""
        with self._lock:
            names = [
                entry.key[1]
                for entry in self._entries.values()
                if entry.path == path and entry.key[0] == owner
            ]
        self.drop(owner, names, cause=Leaves.DAMAGED)
        return bool(names)

    def release(self, owner: str) -> None:
        """Remove all entries of an owner."""
        with self._lock:
            names = [name for held_by, name in self._entries if held_by == owner]
        self.drop(owner, names, cause=Leaves.RELEASED)

    def touch(self, owner: str, names: Iterable[str]) -> int:
        """Mark entries as in use, by a reader that does not ask for them; return how many are there."""
        now = self._clock.now_millis()
        with self._lock:
            keys = [(owner, name) for name in names if (owner, name) in self._entries]
            for key in keys:
                self._entries[key].used_millis = now
                self._entries.move_to_end(key)
        return len(keys)

    def expire(self) -> None:
        """Remove entries that are idle for longer than their table retains them."""
        now = self._clock.now_millis()
        self._remove_abandoned()
        with self._lock:
            leaving = self._expired(now)
        self._notify(leaving)
        self._publish(now)

    def metrics(self) -> CacheMetrics:
        """Return the counts so far."""
        with self._lock:
            return CacheMetrics(
                hits=self._hits,
                misses=self._misses,
                file_count=len(self._entries),
                byte_count=self._bytes,
                built_bytes=self._built,
                evictions=dict(self._evictions),
            )

    def entries(self) -> list[CacheEntry]:
        """Return the entries, the idlest first."""
        now = self._clock.now_millis()
        with self._lock:
            return [entry.entry(now) for entry in self._entries.values()]

    def removed(self) -> list[CacheEntry]:
        """Return the last 1,000 entries that were removed, as they were then, the newest last."""
        with self._lock:
            return list(self._removed)

    def close(self) -> None:
        """Remove everything; the cache may be used again."""
        with self._lock:
            leaving = [self._remove(entry, Leaves.RELEASED) for entry in [*self._entries.values()]]
            directory, self._directory = self._directory, None
        self._notify(leaving)
        if directory is not None:
            directory.close()

    @contextmanager
    def _alone(self, key: tuple[str, str]) -> Iterator[None]:
        """Hold the lock of an entry, which is the same object as long as a thread waits for it."""
        with self._lock:
            building = self._building.setdefault(key, Building())
            building.thread_count += 1
        try:
            with building.lock:
                yield
        finally:
            with self._lock:
                building.thread_count -= 1
                if not building.thread_count:
                    del self._building[key]

    def _hit(self, key: tuple[str, str]) -> BuiltEntry[T] | None:
        now = self._clock.now_millis()
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                entry.used_millis = now
                self._entries.move_to_end(key)
                self._hits += 1
        if entry is not None:
            self._publish(now)
        return entry

    def _make(
        self,
        key: tuple[str, str],
        limits: CacheLimits,
        build: Callable[[BinaryIO], None],
        opener: Callable[[pa.Buffer, str], T],
    ) -> BuiltEntry[T]:
        directory = self._own_directory()
        for attempt in (1, 2):
            path = directory.new_path()
            growing = Growing()
            with self._lock:
                self._growing[growing] = None
            try:
                self._write(path, growing, limits, build)
                with naming_path(path), pa.memory_map(path) as mapped:
                    data = mapped.read_buffer()
                reader = opener(data, path)
                entry = BuiltEntry(key, path, reader, data.size, limits, self._clock.now_millis())
                self._take_in(entry, limits, growing)
            except CorruptFileError as error:
                unlink(path)
                # Only the cache's own file is built again: a damaged data file stays damaged.
                if attempt == 2 or error.facts.get("file") != path:
                    raise
            except BaseException:
                unlink(path)
                raise
            else:
                return entry
            finally:
                with self._lock:
                    self._no_longer_grows(growing)
        raise AssertionError("the second attempt returns or raises")

    def _write(
        self,
        path: str,
        growing: Growing,
        limits: CacheLimits,
        build: Callable[[BinaryIO], None],
    ) -> None:
        def make_room(size: int) -> None:
            self._make_room(growing, size, limits)

        def write(sink: BinaryIO) -> None:
            roomy: Any = RoomySink(sink, make_room)
            build(roomy)

        write_private(path, write)

    def _make_room(self, growing: Growing, size: int, limits: CacheLimits) -> None:
        """Let a file grow once there is room for it, or once no file begun earlier still grows."""
        while True:
            with self._lock:
                leaving = self._shrunk(limits, size)
                goes_on = self._fits(limits, size) or next(iter(self._growing)) is growing
                if goes_on:
                    growing.size += size
                elif not leaving:
                    self._has_room.wait()
            self._notify(leaving)
            if goes_on:
                return

    def _fits(self, limits: CacheLimits, size: int) -> bool:
        if limits.max_bytes is None:
            return True
        return (
            self._bytes + sum(growing.size for growing in self._growing) + size <= limits.max_bytes
        )

    def _shrunk(
        self, limits: CacheLimits, size: int = 0, keep: BuiltEntry[T] | None = None
    ) -> list[str]:
        """Remove the idlest entries until so many bytes more fit, or none but `keep` is left."""
        leaving = []
        while self._entries and not self._fits(limits, size):
            idlest = next(iter(self._entries.values()))
            if idlest is keep:  # larger than the limit by itself: it goes with the next one
                break
            leaving.append(self._remove(idlest, Leaves.SIZE))
        return leaving

    def _no_longer_grows(self, growing: Growing) -> None:
        self._growing.pop(growing, None)
        self._has_room.notify_all()

    def _take_in(self, entry: BuiltEntry[T], limits: CacheLimits, growing: Growing) -> None:
        with self._lock:
            self._no_longer_grows(growing)
            self._misses += 1
            self._built += entry.size
            self._bytes += entry.size
            self._entries[entry.key] = entry
            leaving = self._expired(entry.used_millis)
            leaving += self._shrunk(limits, keep=entry)
        self._notify(leaving)

    def _expired(self, now: int) -> list[str]:
        idle = [
            entry
            for entry in self._entries.values()
            if now - entry.used_millis > entry.retention_millis
        ]
        return [self._remove(entry, Leaves.EXPIRED) for entry in idle]

    def _remove(self, entry: BuiltEntry[T], cause: Leaves) -> str:
        del self._entries[entry.key]
        self._bytes -= entry.size
        self._evictions[cause.value] += 1
        self._removed.append(entry.entry(entry.used_millis, cause))
        self.generation += 1
        unlink(entry.path)
        return entry.key[0]

    def _notify(self, owners: Iterable[str]) -> None:
        for owner in set(owners):
            watcher = self._watchers.get(owner)
            if watcher is not None:
                watcher()

    def _publish(self, now: int) -> None:
        """Write the state file that `lsm cache` reads, once a second at most."""
        directory = self._directory
        if directory is None or now - self._published_millis < _PUBLISH_MILLIS:
            return
        self._published_millis = now
        metrics = self.metrics()
        most_requested = sorted(self.entries(), key=lambda entry: -entry.request_count)[
            :_FILES_PUBLISHED
        ]
        listed = [*self.removed()[-_FILES_PUBLISHED:], *most_requested]
        with self._lock:
            sizes: dict[str, list[int]] = {}
            for entry in self._entries.values():
                sizes.setdefault(entry.key[0].partition("#")[0], []).append(entry.size)
        directory.publish_state(
            {
                "pid": os.getpid(),
                "at_millis": now,
                "hits": metrics.hits,
                "misses": metrics.misses,
                "files": metrics.file_count,
                "bytes": metrics.byte_count,
                "built_bytes": metrics.built_bytes,
                "evictions": metrics.evictions,
                "tables": {
                    name: {"files": len(entry_sizes), "bytes": sum(entry_sizes)}
                    for name, entry_sizes in sizes.items()
                },
                "lookup_files": [
                    {
                        "table": entry.owner.partition("#")[0],
                        "file": entry.name,
                        "bytes": entry.size,
                        "requests": entry.request_count,
                        "hits": entry.hit_count,
                        "removal_cause": entry.removal_cause,
                    }
                    for entry in listed
                ],
            }
        )

    def _own_directory(self) -> "ProcessDirectory":
        with self._lock:
            if self._directory is None or self._directory.process != os.getpid():
                self._directory = ProcessDirectory(self._root or default_root())
            return self._directory

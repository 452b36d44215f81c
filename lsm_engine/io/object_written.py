"""Files that this process has written to an object store: those under way, and those that need no look.

A data file of a commit is sent while the next one is made, and the metadata with it; `sync`, which every
commit calls for what it names, waits for all of them and raises what failed.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait

from lsm_engine.base.errors import LsmError
from lsm_engine.io.clock import Clock
from lsm_engine.io.in_flight import begin
from lsm_engine.io.prefetched import Prefetched

_BYTES_UNDER_WAY = 64 << 20
_REMEMBERED = 100_000
_REMEMBERED_MILLIS = 600_000
"""So long a file needs no look: removals of orphans leave files alone for a day at least."""


class WrittenFiles:
    """Files by path. Any thread may use it."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[None]] = {}
        self._bytes = 0
        self._at: OrderedDict[str, int] = OrderedDict()
        self._clock = clock

    def begin(self, write: Callable[[str, bytes], None], path: str, data: bytes) -> None:
        """Begin to write a file; waits while too many bytes are under way."""

        def act(data: bytes) -> None:
            try:
                write(path, data)
            finally:
                with self._lock:
                    self._bytes -= len(data)

        with self._lock:
            self._bytes += len(data)
            waits = [] if self._bytes <= _BYTES_UNDER_WAY else list(self._under_way.values())
        wait(waits)
        begun = begin(act, data)
        with self._lock:
            self._under_way[path] = begun

    def remember(self, path: str) -> None:
        """Keep that a file was written just now."""
        with self._lock:
            self._at[path] = self._clock.now_millis()
            while len(self._at) > _REMEMBERED:
                self._at.popitem(last=False)

    def forget(self, paths: Iterable[str]) -> None:
        """Wait for files that are going to be deleted, however their writing ends."""
        for path in paths:
            with self._lock:
                self._at.pop(path, None)
                begun = self._under_way.pop(path, None)
            if begun is not None:
                wait([begun])

    def await_file(self, path: str) -> None:
        """Wait for a file that is going to be read; raises what its writing raised."""
        begun = self._under_way.get(path)
        if begun is not None:
            begun.result()

    def await_all(self) -> None:
        """Wait until nothing is under way; what failed is raised by who asks for the file."""
        with self._lock:
            begun = list(self._under_way.values())
        wait(begun)

    def unknown(self, paths: Iterable[str]) -> list[str]:
        """Return which of some files have to be looked for, once those under way are there.

        Raises the first error of those that were under way.
        """
        left = []
        failure: LsmError | None = None
        for path in paths:
            with self._lock:
                begun = self._under_way.pop(path, None)
            if begun is not None:
                try:
                    begun.result()
                except LsmError as error:
                    failure = failure or error
            with self._lock:
                at = self._at.get(path)
            if at is None or not 0 <= self._clock.now_millis() - at < _REMEMBERED_MILLIS:
                left.append(path)
        if failure is not None:
            raise failure
        return left


class FilesUnderWay:
    """Files on their way from and to a store."""

    def __init__(self, clock: Clock) -> None:
        self.prefetched = Prefetched(clock)
        self.written = WrittenFiles(clock)

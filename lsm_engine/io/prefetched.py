"""Prefetched files: the next read of a file takes its bytes, once.

A prefetched file that is not read must not stand for a later content: its caller forgets it, and so do a
change of the file and time.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future

from lsm_engine.io.clock import Clock

FILES_MAX = 512
"""Files that are under way or wait to be read; the oldest is forgotten for another. More than all threads of a
scan wait for, with what comes next: what is forgotten is fetched again, each file in a round of its own."""
AGE_MAX_MILLIS = 30_000
"""How long a file waits to be read: what has waited longer is fetched again."""


class Prefetched:
    """Reads under way, by path. Any thread may use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reads: OrderedDict[str, tuple[int, Future[bytes]]] = OrderedDict()

    def holds(self, path: str) -> bool:
        """Whether a file is under way, or here and not too old."""
        with self._lock:
            return path in self._reads and self._is_young(self._reads[path][0])

    def add(self, path: str, read: "Future[bytes]") -> None:
        """Hold a read until it is taken."""
        with self._lock:
            self._reads[path] = (self._clock.now_millis(), read)
            self._reads.move_to_end(path)
            evicted = [
                self._reads.popitem(last=False)[1] for _ in range(len(self._reads) - FILES_MAX)
            ]
        for _, future in evicted:
            future.cancel()

    def take(self, path: str) -> "Future[bytes] | None":
        """Remove and return the read of a file; None if it was not prefetched lately."""
        with self._lock:
            began, read = self._reads.pop(path, (None, None))
        if read is None or began is None or not self._is_young(began):
            return None
        return None if read.cancelled() else read

    def forget(self, paths: Iterable[str]) -> None:
        """Drop the reads of some files."""
        with self._lock:
            entries = [self._reads.pop(path, None) for path in paths]
        for entry in entries:
            if entry is not None:
                entry[1].cancel()

    def _is_young(self, began_millis: int) -> bool:
        return 0 <= self._clock.now_millis() - began_millis <= AGE_MAX_MILLIS

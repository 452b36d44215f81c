"""Files that are fetched before they are asked for: each is handed out once, to whoever reads it next.

A file that nobody came for must not be read later in place of what is there by then: who asked for it
forgets it, a change of the file does, and so does time.
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
        """Keep a read until somebody takes it."""
        with self._lock:
            self._reads[path] = (self._clock.now_millis(), read)
            self._reads.move_to_end(path)
            left = [self._reads.popitem(last=False)[1] for _ in range(len(self._reads) - FILES_MAX)]
        for _, one in left:
            one.cancel()

    def take(self, path: str) -> "Future[bytes] | None":
        """Return the read of a file, which is forgotten; None if nobody asked for it lately."""
        with self._lock:
            began, read = self._reads.pop(path, (None, None))
        if read is None or began is None or not self._is_young(began):
            return None
        return None if read.cancelled() else read

    def forget(self, paths: Iterable[str]) -> None:
        """Drop what was fetched of some files."""
        with self._lock:
            left = [self._reads.pop(path, None) for path in paths]
        for one in left:
            if one is not None:
                one[1].cancel()

    def _is_young(self, began_millis: int) -> bool:
        return 0 <= self._clock.now_millis() - began_millis <= AGE_MAX_MILLIS

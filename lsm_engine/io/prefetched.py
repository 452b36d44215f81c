"""Files that are fetched before they are asked for: each is handed out once, to whoever reads it next."""

import threading
from collections import OrderedDict
from concurrent.futures import Future

FILES_MAX = 64
"""Files that are under way or wait to be read; the oldest is forgotten for another."""


class Prefetched:
    """Reads under way, by path. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: OrderedDict[str, Future[bytes]] = OrderedDict()

    def holds(self, path: str) -> bool:
        """Whether a file is under way, or here."""
        with self._lock:
            return path in self._reads

    def add(self, path: str, read: "Future[bytes]") -> None:
        """Keep a read until somebody takes it."""
        with self._lock:
            self._reads[path] = read
            left = [self._reads.popitem(last=False)[1] for _ in range(len(self._reads) - FILES_MAX)]
        for one in left:
            one.cancel()

    def take(self, path: str) -> "Future[bytes] | None":
        """Return the read of a file, which is forgotten; None if nobody asked for it."""
        with self._lock:
            return self._reads.pop(path, None)

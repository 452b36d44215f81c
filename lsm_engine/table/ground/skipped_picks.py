"""How often level 0 was left alone, where `lookup-compact` is gentle (ForceUpLevel0Compaction)."""

import threading
from typing import TypeAlias

TreeKey: TypeAlias = tuple[str, bytes, int]
"""Branch, partition and bucket."""


class SkippedPicks:
    """Counts per bucket the picks that took nothing. Threads may share it; it dies with its table object.

    Java counts in its writers, and a restarted one begins anew, too (decision 41).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[TreeKey, int] = {}

    def is_due(self, tree: TreeKey, max_interval: int) -> bool:
        """Count one more pick; True, and from 0 again, if it is the `max_interval`-th."""
        with self._lock:
            count = self._counts.pop(tree, 0) + 1
            if count >= max_interval:
                return True
            self._counts[tree] = count
        return False

"""The health of many tables, examined beside the requests: a page never waits long for it."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from lsm_engine.cli.ui.table_list import TableState

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.5
"""What a page waits for tables that are being examined; those that are not done come with the next one."""
FRESH_SECONDS = 15
"""From this age on a table is examined again, its last state being shown meanwhile."""


class HealthBoard:
    """The last known state of each table that was asked for; `examine` reads one, `at_once` so many together."""

    def __init__(self, examine: Callable[[str], TableState], at_once: int = 2) -> None:
        self._examine = examine
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="lsm-ui-health")
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, TableState]] = {}
        self._running: dict[str, Future[None]] = {}

    def states(self, names: Sequence[str]) -> list[TableState]:
        """Return the states of tables, in their order; pending where there is none yet."""
        oldest = time.monotonic() - FRESH_SECONDS
        with self._lock:
            for name in names:
                cached = self._known.get(name)
                if name not in self._running and (cached is None or cached[0] < oldest):
                    self._running[name] = self._pool.submit(self._examined, name)
            running = [self._running[name] for name in names if name in self._running]
        wait(running, timeout=WAIT_SECONDS)
        with self._lock:
            return [
                self._known[name][1] if name in self._known else TableState(name=name, pending=True)
                for name in names
            ]

    def close(self) -> None:
        """Examine nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _examined(self, name: str) -> None:
        try:
            state = self._examine(name)
        except Exception as error:
            log.warning("examining %s failed", name, exc_info=error)
            state = TableState(name=name, problem=f"{type(error).__name__}: {error}")
        with self._lock:
            self._known[name] = time.monotonic(), state
            del self._running[name]

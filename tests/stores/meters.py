"""How many requests an operation sends, and in how many rounds: counted in process, or before a server."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import pytest

from lsm_engine.storage.bulk import settle
from lsm_engine.storage.object_requests import Requests
from tests.stores.chaos_proxy import ChaosProxy, Faults

Cost = tuple[int, int, float]
"""Requests, rounds until the operation returned, and seconds."""


class Meter(Protocol):
    """Measures operations on an object store."""

    def measure(self, act: Callable[[], object]) -> Cost:
        """What one call costs, with what it leaves to be done behind."""
        ...


class LogicalMeter:
    """Counts where requests are made. A round is a request that had to wait for another one's answer.

    Each thread has a time: a request takes one unit of it, a thread that is begun starts at that of who began it,
    and who takes its result goes on at the later of both. So the count does not depend on the machine's speed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.verbs: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._at = threading.local()
        send, create, submit = Requests.send, Requests.create, ThreadPoolExecutor.submit
        result = Future.result

        def counted(verb: str) -> None:
            with self._lock:
                self.verbs[verb] += 1
            self._at.time = self._now() + 1

        def counted_send(requests: Requests, verb: str, *args: Any, **named: Any) -> Any:
            counted(verb)
            return send(requests, verb, *args, **named)

        def counted_create(requests: Requests, *args: Any) -> Any:
            counted("PUT")
            return create(requests, *args)

        def timed_submit(
            pool: ThreadPoolExecutor, act: Callable[..., Any], *args: Any, **named: Any
        ) -> Any:
            begun = self._now()

            def timed() -> Any:
                self._at.time = begun
                try:
                    return act(*args, **named)
                finally:
                    future_end[0] = self._now()

            future_end = [begun]
            future: Future[Any] = submit(pool, timed)
            future.end = future_end  # type: ignore[attr-defined]
            return future

        def timed_result(future: Any, timeout: float | None = None) -> Any:
            try:
                return result(future, timeout)
            finally:
                if hasattr(future, "end"):
                    self._at.time = max(self._now(), future.end[0])

        monkeypatch.setattr(Requests, "send", counted_send)
        monkeypatch.setattr(Requests, "create", counted_create)
        monkeypatch.setattr(ThreadPoolExecutor, "submit", timed_submit)
        monkeypatch.setattr(Future, "result", timed_result)

    def measure(self, act: Callable[[], object]) -> Cost:
        """Count one call."""
        settle()
        self.verbs.clear()
        began, started = self._now(), time.monotonic()
        act()
        seconds, rounds = time.monotonic() - started, self._now() - began
        settle()
        return self.verbs.total(), rounds, seconds

    def _now(self) -> int:
        return getattr(self._at, "time", 0)


class ProxyMeter:
    """Counts at a proxy that delays each request. Rounds are as many as the machine is fast enough for."""

    def __init__(self, proxy: ChaosProxy, delay: float) -> None:
        self._proxy = proxy
        self._delay = delay

    def measure(self, act: Callable[[], object], *, behind: float = 0.0) -> Cost:
        """Count one call. `behind`: seconds in which another process ends what it does behind it."""
        self._settle()
        proxy = self._proxy
        proxy.faults = Faults(delay=self._delay)
        proxy.forget()
        started = time.monotonic()
        act()
        seconds, count = time.monotonic() - started, len(proxy.requests)
        time.sleep(behind)
        self._settle()
        proxy.faults = Faults()
        every = proxy.requests
        proxy.requests = every[:count]
        rounds = proxy.rounds()
        proxy.requests = every
        return len(every), rounds, seconds

    def _settle(self) -> None:
        settle()
        while any(request.ended == float("inf") for request in self._proxy.requests):
            time.sleep(self._delay)

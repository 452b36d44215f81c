"""The threads that wait for a remote store, whatever the number of cores, and the process they belong to."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from threading import main_thread
from typing import TypeVar

from lsm_engine.base.errors import StorageError

T = TypeVar("T")
K = TypeVar("K")

IN_FLIGHT = 32
"""The maximum of concurrent requests of this process. Decoding has a limit of its own."""

REQUESTS, ACTS = "lsm-store", "lsm-act"
"""The two pools of a process: an act may wait for its requests, which must never wait for a thread that acts hold."""
_pools: dict[tuple[int, str], ThreadPoolExecutor] = {}


class OwnProcess:
    """The process that owns the connections to a kind of store. They do not survive a fork."""

    def __init__(self) -> None:
        self._process: int | None = None

    def require(self, location: str) -> None:
        """Raise StorageError if this process was forked from one that had used such a store."""
        own = os.getpid()
        if self._process not in (None, own):
            raise StorageError(
                "this process was forked from one that had used this kind of store, whose "
                "connections do not survive that; start processes by spawn or forkserver",
                location=location,
            )
        self._process = own


def at_once(act: Callable[[K], T], items: Iterable[K], *, width: int = IN_FLIGHT) -> Iterator[T]:
    """Yield the result of `act` for each item, in order, with up to `width` running. Raises the first error.

    An act must not call it: all calls share the pool of the process.
    """
    remaining = iter(items)
    under_way: list[Future[T]] = []
    try:
        for first in islice(remaining, 1):
            second = list(islice(remaining, 1))
            if not second:
                yield act(first)
                return
            under_way = [begin(act, item) for item in (first, *second)]
        under_way += [begin(act, item) for item in islice(remaining, width - len(under_way))]
        while under_way:
            yield under_way.pop(0).result()
            under_way += [begin(act, item) for item in islice(remaining, 1)]
    finally:
        for future in under_way:
            future.cancel()
        wait(under_way)  # no act runs once the caller goes on


def begin(act: Callable[[K], T], item: K, *, pool: str = REQUESTS) -> "Future[T]":
    """Start a call in a thread and return its future. An ending interpreter starts no thread: it calls now.

    Raises StorageError if no thread can be started otherwise; then the act does not run later either.
    """
    future: Future[T] = Future()
    try:
        _pool(pool).submit(_fulfil, future, act, item)
    except RuntimeError as cause:
        if main_thread().is_alive():
            future.cancel()  # the pool queues before it starts a thread, and may have others
            raise StorageError(
                "this process may start no more threads; raise its limit (ulimit -u), or end some",
                reason=str(cause),
            ) from cause
        _fulfil(future, act, item)
    return future


def _fulfil(future: "Future[T]", act: Callable[[K], T], item: K) -> None:
    """Act, unless the future is cancelled; it has the result, or the error."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(act(item))
    except BaseException as error:  # noqa: BLE001 -- as those of a pool do
        future.set_exception(error)


def begin_all(act: Callable[[K], T], items: Iterable[K]) -> "dict[K, Future[T]]":
    """Start calls in threads, and return their futures."""
    return {item: begin(act, item) for item in items}


def in_threads(
    act: Callable[[K], T], items: Iterable[K], *, threads: int, name: str
) -> Iterator[T]:
    """Yield the result of `act` for each item, in order, by threads that end with the items.

    For acts that use the pools of the process themselves.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix=name) as pool:
        yield from pool.map(act, items)


def _pool(name: str) -> ThreadPoolExecutor:
    """Return this process's pool. Without a lock: after a fork one that another thread had is never released."""
    own = os.getpid()
    for process, parents_name in list(_pools):
        if process != own:  # threads of a parent process do not run in this one
            _pools.pop((process, parents_name), None)
    pool = _pools.get((own, name))
    return pool or _pools.setdefault((own, name), ThreadPoolExecutor(IN_FLIGHT, name))

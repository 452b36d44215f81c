"""Requests of a far store that are under way at once, whatever the number of cores, and the process they belong to."""

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
"""Requests of this process that are under way at most; how many it decodes at once is another matter."""

_pools: dict[int, ThreadPoolExecutor] = {}


class OwnProcess:
    """The process whose connections to a kind of store these are. They do not survive a fork."""

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


def at_once(act: Callable[[K], T], of: Iterable[K], *, width: int = IN_FLIGHT) -> Iterator[T]:
    """Yield what `act` returns for each, in order, with up to `width` under way. Raises the first error.

    Do not call it from within such an act: the pool is the process's own.
    """
    rest = iter(of)
    under_way: list[Future[T]] = []
    try:
        for first in islice(rest, 1):
            more = list(islice(rest, 1))
            if not more:
                yield act(first)
                return
            under_way = [begin(act, each) for each in (first, *more)]
        under_way += [begin(act, each) for each in islice(rest, width - len(under_way))]
        while under_way:
            yield under_way.pop(0).result()
            under_way += [begin(act, each) for each in islice(rest, 1)]
    finally:
        for future in under_way:
            future.cancel()
        wait(under_way)  # nothing of it happens once the caller goes on


def begin(act: Callable[[K], T], of: K) -> "Future[T]":
    """Begin one act beside, and return its future; where the interpreter ends, and starts no thread, act now.

    Raises StorageError where no thread can be had otherwise; what was asked is not done later either.
    """
    future: Future[T] = Future()
    try:
        _pool().submit(_fulfil, future, act, of)
    except RuntimeError as cause:
        if main_thread().is_alive():
            future.cancel()  # the pool queues before it starts a thread, and may have others
            raise StorageError(
                "this process may start no more threads; raise its limit (ulimit -u), or end some",
                reason=str(cause),
            ) from cause
        _fulfil(future, act, of)
    return future


def _fulfil(future: "Future[T]", act: Callable[[K], T], of: K) -> None:
    """Act, unless the future is cancelled; it has the result, or the error for whoever asks."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(act(of))
    except BaseException as error:  # noqa: BLE001 -- as those of a pool do
        future.set_exception(error)


def begin_all(act: Callable[[K], T], of: Iterable[K]) -> "dict[K, Future[T]]":
    """Begin one act for each beside, and return their futures."""
    return {each: begin(act, each) for each in of}


def _pool() -> ThreadPoolExecutor:
    """Return this process's pool. Without a lock: after a fork nobody lets go of one that another thread had."""
    own = os.getpid()
    for other in _pools.keys() - {own}:  # threads of a parent process do not run in this one
        _pools.pop(other, None)
    pool = _pools.get(own)
    return pool or _pools.setdefault(own, ThreadPoolExecutor(IN_FLIGHT, "lsm-store"))

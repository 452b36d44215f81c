"""Concurrent storage calls, for remote stores; an act may be several requests.

On a local store they run one after the other, in the calling thread.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar, cast

from lsm_engine.io.file_io import FileIO

T = TypeVar("T")
U = TypeVar("U")

_AT_ONCE = 32
_pools: dict[int, ThreadPoolExecutor] = {}
_behind: set["Future[Any]"] = set()
_lock = threading.Lock()
_here = threading.local()


def together(file_io: FileIO, *acts: Callable[[], T]) -> list[T]:
    """Return the results of acts, in order; raises the first error once all have ended.

    On a remote store they run concurrently, unless an act calls this.
    """
    if not file_io.facts.is_far or len(acts) < 2 or _is_act():
        return [act() for act in acts]
    begun = [_pool().submit(_as_act, act) for act in acts[1:]]
    try:
        first = acts[0]()
    finally:
        wait(begun)
    return [first, *(future.result() for future in begun)]


def both(file_io: FileIO, act: Callable[[], T], other_act: Callable[[], U]) -> tuple[T, U]:
    """Return the results of two acts, as `together` does."""
    first, second = together(file_io, cast(Callable[[], Any], act), other_act)
    return first, second


def behind(file_io: FileIO, act: Callable[[], object]) -> None:
    """Start an act without waiting for it; on a local store it runs right away.

    The act must not raise. A process runs it before it ends, unless it is killed.
    """
    if not file_io.facts.is_far or _is_act():
        act()
        return
    begun = _pool().submit(_as_act, act)
    with _lock:
        _behind.add(begun)
    begun.add_done_callback(_ended)


def settle() -> None:
    """Wait for all acts of `behind`, before a call that must come after them."""
    with _lock:
        under_way = () if _is_act() else tuple(_behind)
    wait(under_way)


def _ended(act: "Future[Any]") -> None:
    with _lock:
        _behind.discard(act)


def _as_act(act: Callable[[], T]) -> T:
    _here.is_act = True
    try:
        return act()
    finally:
        _here.is_act = False


def _is_act() -> bool:
    return getattr(_here, "is_act", False)


def _pool() -> ThreadPoolExecutor:
    with _lock:
        own = os.getpid()
        if own not in _pools:
            _pools.clear()  # threads of a parent process do not run in this one
            _behind.clear()
            _pools[own] = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="lsm-act")
        return _pools[own]

"""Acts that do not wait for each other, where the store is far: each may be several requests.

On a store whose calls cost nothing they run one after the other, where they are asked for.
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
    """Return what some acts return, in order; raises the first error once all have ended.

    They run at once on a far store, unless this is called from within such an act.
    """
    if not file_io.facts.is_far or len(acts) < 2 or _is_act():
        return [act() for act in acts]
    begun = [_pool().submit(_as_act, act) for act in acts[1:]]
    try:
        first = acts[0]()
    finally:
        wait(begun)
    return [first, *(each.result() for each in begun)]


def both(file_io: FileIO, one: Callable[[], T], other: Callable[[], U]) -> tuple[T, U]:
    """Return what two acts return, as `together` does."""
    first, second = together(file_io, cast(Callable[[], Any], one), other)
    return first, second


def behind(file_io: FileIO, act: Callable[[], object]) -> None:
    """Begin what nobody waits for; on a store that is near it is done when this returns.

    The act must not raise. A process that ends does it first, one that is killed may not.
    """
    if not file_io.facts.is_far or _is_act():
        act()
        return
    begun = _pool().submit(_as_act, act)
    with _lock:
        _behind.add(begun)
    begun.add_done_callback(_ended)


def settle() -> None:
    """Wait until nothing is going on behind, for what must not be overtaken by it."""
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

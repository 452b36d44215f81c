"""What kernels are made of where Python interprets them: memory by address, and arithmetic of fixed width.

Python's whole numbers have no width. Those of 64 unsigned bits are NumPy's, which wrap; all others are
Python's, brought back to their width where a kernel names it (`np.int32(…)`).
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np


def _loader(kind: Any) -> Callable[[Any], Any]:
    from_address = kind.from_address
    return lambda address: from_address(int(address)).value


def _storer(kind: Any, limit: int) -> Callable[[Any, Any], None]:
    from_address = kind.from_address

    def store(address: Any, value: Any) -> None:
        from_address(int(address)).value = int(value) & limit

    return store


load_u8 = _loader(ctypes.c_uint8)
load_u16 = _loader(ctypes.c_uint16)
load_u32 = _loader(ctypes.c_uint32)
load_u64 = _loader(ctypes.c_uint64)
load_i8 = _loader(ctypes.c_int8)
load_i16 = _loader(ctypes.c_int16)
load_i32 = _loader(ctypes.c_int32)
load_i64 = _loader(ctypes.c_int64)
_load_f32 = _loader(ctypes.c_float)
_load_f64 = _loader(ctypes.c_double)
store_u8 = _storer(ctypes.c_uint8, 2**8 - 1)
store_u16 = _storer(ctypes.c_uint16, 2**16 - 1)
store_u32 = _storer(ctypes.c_uint32, 2**32 - 1)
store_u64 = _storer(ctypes.c_uint64, 2**64 - 1)


def load_f32(address: Any) -> Any:
    """Return a number that divides by zero as the machine does."""
    return np.float32(_load_f32(address))


def load_f64(address: Any) -> Any:
    """Return a number that divides by zero as the machine does."""
    return np.float64(_load_f64(address))


def copy_bytes(target: Any, source: Any, count: Any) -> None:
    """Copy bytes from an address to another; the stretches do not overlap."""
    ctypes.memmove(int(target), int(source), int(count))


def compare_bytes(left_address: Any, right_address: Any, start: Any, stop: Any) -> int:
    """Compare bytes `start` to `stop` from two addresses: below, at or above zero."""
    count = max(int(stop) - int(start), 0)
    left_bytes = ctypes.string_at(int(left_address) + int(start), count)
    right = ctypes.string_at(int(right_address) + int(start), count)
    return int(left_bytes > right) - int(left_bytes < right)


def gather_values(sources: Any, width: Any, run: Any, row: Any, target: Any) -> None:
    """Copy values of `width` bytes, each from row `row[i]` of the source at `sources[run[i]]`."""
    runs, rows = np.asarray(run), np.asarray(row)
    gathered = _values_at(target, width, len(rows))
    for source in np.flatnonzero(np.bincount(runs)):
        positions = np.flatnonzero(runs == source)
        source_rows = rows[positions]
        gathered[positions] = _values_at(sources[source], width, int(source_rows.max()) + 1)[
            source_rows
        ]


def _values_at(address: int, width: int, count: int) -> Any:
    octets: Any = (ctypes.c_uint8 * (width * count)).from_address(address)
    return np.frombuffer(octets, np.dtype((np.void, width)), count=count)


def argument(value: Any) -> Any:
    """Return an argument as interpreted loops take it: whole numbers, arrays of them as memory views."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind == "f" else _view(value)
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if isinstance(value, tuple):
        items = map(argument, value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _view(array: Any) -> memoryview:
    return memoryview(array)


class _Width:
    """A type of whole numbers: called, it brings a number to its width as the machine would."""

    def __init__(self, dtype: Any) -> None:
        facts: Any = np.iinfo(dtype)
        self.dtype = dtype
        self._lowest = int(facts.min)
        self._mask = 2**facts.bits - 1

    def __call__(self, value: Any) -> int:
        number: int = ((int(value) - self._lowest) & self._mask) + self._lowest
        return number


class _Word(_Width):
    """Numbers of 64 unsigned bits, whose sums and products wrap."""

    def __call__(self, value: Any) -> Any:
        return np.uint64(int(value) & self._mask)


class _Arithmetic:
    """What kernels use of NumPy."""

    int8, int16 = _Width(np.int8), _Width(np.int16)
    int32, int64 = _Width(np.int32), _Width(np.int64)
    uint8, uint16, uint32 = _Width(np.uint8), _Width(np.uint16), _Width(np.uint32)
    uint64 = _Word(np.uint64)
    float32, float64 = np.float32, np.float64
    inf, nan, signbit = np.inf, np.nan, np.signbit

    @staticmethod
    def empty(count: int, kind: _Width) -> memoryview:
        return _view(np.empty(count, kind.dtype))

    @staticmethod
    def zeros(count: int, kind: _Width) -> memoryview:
        return _view(np.zeros(count, kind.dtype))


arithmetic = _Arithmetic()

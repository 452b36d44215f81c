"""How loops over rows are compiled, and how they reach the buffers of any number of sources.

A compiled function is compiled again for every combination of argument types, so sources are handed
over as arrays of addresses: one function then serves any number of runs. Whoever passes addresses
keeps the buffers alive until the call returns.

The cache lies beside the sources, or in the user's cache directory where those are read-only; it is
written through temporary files, so several processes may start cold at once.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function for the machine on first use, without the GIL, cached across processes.

    Where no directory takes the cache, every process compiles anew.
    """
    njit: Any = numba.njit
    try:
        made: F = njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError:  # numba looks for a place when it decorates
        made = njit(nogil=True, error_model="numpy")(function)
    return made


def _loader(value_type: Any) -> Any:
    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer_type = context.get_value_type(value_type).as_pointer()
            pointer = builder.inttoptr(arguments[0], pointer_type)
            return builder.load(pointer, align=1)  # Arrow promises no alignment for slices

        return value_type(types.int64), generate

    return load


def _storer(value_type: Any) -> Any:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer_type = context.get_value_type(value_type).as_pointer()
            pointer = builder.inttoptr(arguments[0], pointer_type)
            builder.store(arguments[1], pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, value_type), generate

    return store


Load: TypeAlias = Callable[[Any], int]
"""What loads one value from an address."""

Store: TypeAlias = Callable[[Any, Any], None]
"""What stores one value at an address."""

load_u8: Load = _loader(types.uint8)
load_u16: Load = _loader(types.uint16)
load_u32: Load = _loader(types.uint32)
load_u64: Load = _loader(types.uint64)
load_i8: Load = _loader(types.int8)
load_i16: Load = _loader(types.int16)
load_i32: Load = _loader(types.int32)
load_i64: Load = _loader(types.int64)
load_f32: Load = _loader(types.float32)
load_f64: Load = _loader(types.float64)
store_u8: Store = _storer(types.uint8)
store_u16: Store = _storer(types.uint16)
store_u32: Store = _storer(types.uint32)
store_u64: Store = _storer(types.uint64)


def _copy_bytes(typing_context: Any, target: Any, source: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte_pointer = context.get_value_type(types.uint8).as_pointer()
        target_pointer = builder.inttoptr(arguments[0], byte_pointer)
        source_pointer = builder.inttoptr(arguments[1], byte_pointer)
        raw_memcpy: Any = cgutils.raw_memcpy
        raw_memcpy(builder, target_pointer, source_pointer, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


_untyped_intrinsic: Any = intrinsic
copy_bytes: Callable[[Any, Any, Any], None] = _untyped_intrinsic(_copy_bytes)
"""Copy a number of bytes (the last argument) to an address (the first) from another one."""

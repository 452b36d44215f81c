"""What kernels are made of where numba compiles them; loaded with the first that is compiled."""

from collections.abc import Callable
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def jit(loop: Callable[..., Any]) -> Any:
    """Return a loop compiled for the machine on first use, cached across processes where that can be."""
    njit: Any = numba.njit
    try:
        dispatcher = njit(nogil=True, cache=True, error_model="numpy")(loop)
    except RuntimeError:  # numba looks for a place when it decorates
        return njit(nogil=True, error_model="numpy")(loop)
    _pass_over_unreadable_index(dispatcher)
    return dispatcher


def _pass_over_unreadable_index(dispatcher: Any) -> None:
    """Let an index of cached code that cannot be unpickled count as none, as one of an older source does.

    It names the classes of arguments, which the present source may have under another name. numba unpickles
    it before it looks whether the source is the same.
    """
    cache_file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    load_index = getattr(cache_file, "_load_index", None)
    if load_index is None:
        return

    def load_readable_index() -> Any:
        try:
            return load_index()
        except (AttributeError, ImportError):
            # The class went with the source that the code was compiled for.
            return {}

    vars(cache_file)["_load_index"] = load_readable_index


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

INTRINSICS: dict[str, Any] = {
    "load_u8": _loader(types.uint8),
    "load_u16": _loader(types.uint16),
    "load_u32": _loader(types.uint32),
    "load_u64": _loader(types.uint64),
    "load_i8": _loader(types.int8),
    "load_i16": _loader(types.int16),
    "load_i32": _loader(types.int32),
    "load_i64": _loader(types.int64),
    "load_f32": _loader(types.float32),
    "load_f64": _loader(types.float64),
    "store_u8": _storer(types.uint8),
    "store_u16": _storer(types.uint16),
    "store_u32": _storer(types.uint32),
    "store_u64": _storer(types.uint64),
    "copy_bytes": _untyped_intrinsic(_copy_bytes),
}
"""Access to memory by address, as what kernels call it."""

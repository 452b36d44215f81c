"""What kernels are made of where numba compiles them; loaded with the first that is compiled."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from typing import Any

import numba
import numpy as np
from llvmlite import binding
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from lsm_engine.kernels.machine_code import (
    COMBINATIONS,
    DATA_OFFSET,
    DIMENSIONS_OFFSET,
    Kinds,
    MachineCode,
    kinds_of,
    target_machine,
)


def jit(loop: Callable[..., Any]) -> Any:
    """Return a loop that other loops and entries call, compiled for the types of each call."""
    njit: Any = numba.njit
    return njit(**_FLAGS)(loop)


def machine_code(loop: Any, kinds: Kinds) -> MachineCode:
    """Return the machine code of a loop of `jit` for some kinds of arguments, as `machine_code` calls it."""
    read = _reader(kinds)
    njit: Any = numba.njit((types.int64,), **_FLAGS)
    compiled_loop = njit(lambda words: loop(*read(words)))
    (overload,) = compiled_loop.overloads.values()
    intermediate = compiled_loop.inspect_llvm((types.int64,))
    result = overload.signature.return_type
    is_tuple = isinstance(result, types.BaseTuple)
    module: Any = binding.parse_assembly(intermediate)
    return MachineCode(
        code=target_machine().emit_object(module),
        symbol=overload.fndesc.llvm_func_name,
        results=tuple(str(_unliteral(item)) for item in (result if is_tuple else (result,))),
        is_tuple=is_tuple,
    )


def compile_all() -> int:
    """Compile every loop for the types that it is called with, and return how many have files."""
    combinations = json.loads(COMBINATIONS.read_text())
    for name, all_stored in combinations.items():
        module, _, kernel = name.rpartition(".")
        loop = getattr(import_module(module), kernel).compiled()
        for stored in all_stored:
            loop.keep(kinds_of(stored))
    return sum(map(len, combinations.values()))


_FLAGS: dict[str, Any] = {
    "nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
}  # fmt: skip


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


# -- Words of a call, as the arguments of a loop -----------------------------------------------------


def _reader(kinds: Kinds) -> Any:
    """Return what reads the arguments of a loop, as a tuple, from the address of their words.

    It is one instruction of the compiler: readers that are functions would be compiled like loops.
    """
    remaining = iter(kinds)
    items = tuple(_argument_type(kind, remaining) for kind in remaining)
    tuple_type = _tuple_type(items)

    @intrinsic
    def read(typing_context: Any, words: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            addresses = (
                builder.add(arguments[0], context.get_constant(types.int64, 8 * number))
                for number in count()
            )
            return _value(context, builder, tuple_type, addresses)

        return tuple_type(types.int64), generate

    return read


_tuple_type: Any = types.Tuple
_unliteral: Any = types.unliteral
"""The type of a value that is the same for all arguments, such as -1: numba gives it a type of its own."""
_named_tuple_type: Any = types.NamedTuple


def _argument_type(kind: Any, remaining: Iterator[Any]) -> Any:
    """Return numba's type of the arguments of a kind; those of a tuple follow it."""
    if not isinstance(kind, tuple):
        return numba.from_dtype(np.dtype(kind))
    first, length = kind
    if isinstance(first, str):
        return types.Array(numba.from_dtype(np.dtype(first)), length, "C")
    items = tuple(_argument_type(next(remaining), remaining) for _ in range(length))
    return _named_tuple_type(items, first) if hasattr(first, "_fields") else _tuple_type(items)


def _value(context: Any, builder: Any, value_type: Any, addresses: Iterator[Any]) -> Any:
    """Return code that builds an argument from the words at the next addresses."""
    if isinstance(value_type, types.BaseTuple):
        item_types: Any = value_type
        items = [_value(context, builder, item, addresses) for item in item_types]
        return context.make_tuple(builder, value_type, items)
    address = next(addresses)
    if isinstance(value_type, types.Array):
        return _array(context, builder, value_type, _word(context, builder, address))
    is_float = value_type in (types.float32, types.float64)
    word_type = types.float64 if is_float else types.int64
    word = _word(context, builder, address, word_type=word_type)
    return context.cast(builder, word, word_type, value_type)


def _array(context: Any, builder: Any, array_type: Any, numpy_object: Any) -> Any:
    """Return code that reads an array's data and shape from its NumPy object."""
    lengths = _word(context, builder, numpy_object, DIMENSIONS_OFFSET)
    shape = [_word(context, builder, lengths, 8 * axis) for axis in range(array_type.ndim)]
    data_type = context.get_data_type(array_type.dtype)
    item_size = context.get_constant(types.intp, context.get_abi_sizeof(data_type))
    strides = [item_size]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    data = builder.inttoptr(
        _word(context, builder, numpy_object, DATA_OFFSET), data_type.as_pointer()
    )
    array = context.make_array(array_type)(context, builder)
    fill: Any = populate_array
    fill(array, data, shape, strides, item_size, None)
    return array._getvalue()  # noqa: SLF001 -- numba has no other name for the value of a proxy


def _word(
    context: Any, builder: Any, address: Any, offset: int = 0, *, word_type: Any = types.int64
) -> Any:
    """Return code that loads the word at an address."""
    place = builder.add(address, context.get_constant(types.int64, offset))
    pointer_type = context.get_value_type(word_type).as_pointer()
    return builder.load(builder.inttoptr(place, pointer_type), align=1)

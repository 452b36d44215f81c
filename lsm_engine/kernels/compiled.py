"""Loops over rows: interpreted while their inputs are small, compiled for the machine once they are not.

A loop is written once, as a Python function over arrays and addresses. Called with few rows it runs as it
stands, so that ten rows need no compiler: loading one takes a quarter of a second, and compiling a loop
as much again. What is interpreted is counted, and beyond `BUDGET` steps of all kernels together loops are
compiled like those that are called with many rows: a call waits not much longer than for the better of the two.
Once the compiler is there, for whatever reason, a kernel is worth compiling after `LOADED_BUDGET` steps.

A compiled function is compiled again for every combination of argument types, so sources are handed
over as arrays of addresses: one function then serves any number of runs. A caller that passes addresses
keeps the buffers alive until the call returns. Arguments that belong together are a NamedTuple: compiled code
reads it as fast as single arguments, and the call costs about a microsecond more.

The cache of compiled code lies beside the sources, or in the user's cache directory where those are
read-only; an entry counts as long as its source file has the same content. It is written through
temporary files, so several processes may start cold at once.
"""

import sys
from collections.abc import Callable, Sequence
from functools import update_wrapper
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np

from lsm_engine.kernels import interpreted_memory
from lsm_engine.kernels.interpreted_memory import argument, arithmetic

if TYPE_CHECKING:
    from lsm_engine.kernels.machine_code import Kinds, MachineCode, MachineLoop

F = TypeVar("F", bound=Callable[..., Any])
Work: TypeAlias = Callable[..., int]

CALL_LIMIT = 20_000
"""Steps that one call may interpret; a step takes about a microsecond."""

BUDGET = 500_000
"""Steps that all kernels of a process interpret together before the compiler is loaded."""

LOADED_BUDGET = 10_000
"""Steps that one kernel interprets once the compiler is there."""

LLVM_BUDGET = 30_000
"""Steps that all kernels interpret although a file has the compiled form: to load LLVM takes 30 milliseconds."""

KEPT_BUDGET = 2_000
"""Steps that one kernel interprets although a file has its compiled form and LLVM is there."""

# Both are imported when a loop is worth it: rules, which import kernels, start no threads and open no files.
_COMPILER = "lsm_engine.kernels.machine_memory"
_MACHINE_CODE = "lsm_engine.kernels.machine_code"


class Kernel:
    """A loop over rows, in both forms. `plain` replaces it where it is interpreted, if given."""

    spent_by_all = 0

    def __init__(self, loop: Callable[..., Any], work: Work | None, interpreted: Any) -> None:
        update_wrapper(self, loop)
        self._loop = loop
        self._work = work or _largest
        self._plain: Callable[..., Any] | None = interpreted
        self._interpreted: Callable[..., Any] | None = None
        self._compiled: MachineLoop | None = None
        self._jit: Any = None
        self._is_compiled = False
        self._spent = 0

    def __call__(self, *arguments: Any) -> Any:
        """Run the loop in the form that its inputs are worth."""
        # Once the compiled form exists it is faster for any input.
        if self._is_compiled:
            return self.compiled()(*arguments)
        steps = self._work(*arguments)
        # The compiler pays only for many steps, so the first few are interpreted.
        if steps > CALL_LIMIT or not self._may_interpret(steps, arguments):
            self._is_compiled = True
            return self.compiled()(*arguments)
        self._spent += steps
        Kernel.spent_by_all += steps
        return self.interpret(*arguments)

    def _may_interpret(self, steps: int, arguments: Sequence[Any]) -> bool:
        spent, by_all = self._spent + steps, Kernel.spent_by_all + steps
        # LLVM is loaded already, and only this kernel's own form is missing.
        if is_loaded():
            return spent <= KEPT_BUDGET or (
                spent <= LOADED_BUDGET and not self.compiled().is_kept(*arguments)
            )
        # Code that a file has costs no compiler, but LLVM, which loads it.
        return by_all <= LLVM_BUDGET or (
            by_all <= BUDGET and not self.compiled().is_kept(*arguments)
        )

    def interpret(self, *arguments: Any) -> Any:
        """Run the loop without a compiler."""
        with np.errstate(all="ignore"):  # whole numbers of 64 bits wrap, as in compiled loops
            return self.interpreted()(*map(argument, arguments))

    def interpreted(self) -> Callable[..., Any]:
        """Return the loop as Python runs it, and with it those that it calls."""
        if self._interpreted is None:
            self._interpreted = self._plain or self._made_of(
                lambda kernel: kernel.interpreted(), {"np": arithmetic}
            )
        return self._interpreted

    def compiled(self) -> "MachineLoop":
        """Return the loop for the machine (`machine_code.MachineLoop`), which runs without the GIL.

        Its first call for each combination of types loads or compiles it. Where no directory takes the code, every process compiles anew.
        """
        if self._compiled is None:
            name = f"{self._loop.__module__}.{self._loop.__name__}"
            machine_loop: MachineLoop = import_module(_MACHINE_CODE).MachineLoop(
                name, self.content(), self._machine_code
            )
            self._compiled = machine_loop
        return self._compiled

    def _machine_code(self, kinds: "Kinds") -> "MachineCode":
        machine = import_module(_COMPILER)
        code: MachineCode = machine.machine_code(self.jitted(machine), kinds)
        return code

    def jitted(self, machine: Any) -> Any:
        """Return the loop as numba calls it from others."""
        if self._jit is None:
            loop = self._made_of(lambda kernel: kernel.jitted(machine), machine.INTRINSICS)
            self._jit = machine.jit(loop)
        return self._jit

    def content(self) -> str:
        """Return all that machine code comes from, as text: byte code, constants, and the same of called kernels."""
        loop = cast("FunctionType", self._loop)
        code = loop.__code__
        used = {name: loop.__globals__.get(name) for name in sorted(_names_of(loop))}
        described = {name: _described(value) for name, value in used.items()}
        return repr((code.co_code, code.co_consts, code.co_names, code.co_varnames, described))

    def _made_of(
        self, form: Callable[["Kernel"], Callable[..., Any]], used_globals: dict[str, Any]
    ) -> Callable[..., Any]:
        """Return the loop with other kernels, and what has one of these names, put in their place."""
        loop = cast("FunctionType", self._loop)
        used = {name: loop.__globals__[name] for name in _names_of(loop) & loop.__globals__.keys()}
        for name, value in used.items():
            if isinstance(value, Kernel):
                used[name] = form(value)
            elif name in used_globals:
                used[name] = used_globals[name]
        function = FunctionType(loop.__code__, {**loop.__globals__, **used}, loop.__name__)
        return update_wrapper(function, loop)


def is_loaded() -> bool:
    """Whether this process has loaded machine code, so that LLVM is there."""
    # Another thread may be importing the module, which has not all of its names until then.
    function = getattr(sys.modules.get(_MACHINE_CODE), "is_loaded", None)
    return function is not None and bool(function())


def _described(value: Any) -> str:
    """Return what compiled code takes of a name: the code of a kernel, the value of a constant."""
    if isinstance(value, Kernel):
        return value.content()
    if isinstance(value, type) and hasattr(value, "_fields"):
        return f"{value.__name__}{value._fields}"
    # The text of a long array leaves out its middle.
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tobytes().hex()}"
    return repr(value) if isinstance(value, int | float | tuple | np.generic) else ""


def _names_of(loop: FunctionType) -> set[str]:
    return set(loop.__code__.co_names)


def _largest(*arguments: Any) -> int:
    """Return how many items the largest array has: the steps of a loop over it."""
    return max(map(_size, arguments), default=0)


def _size(argument: Any) -> int:
    if isinstance(argument, tuple):
        return _largest(*argument)
    return argument.size if isinstance(argument, np.ndarray) else 0


def compiled(function: F) -> F:
    """Make a function of arrays, numbers and addresses a kernel; its largest array counts as its work."""
    return cast("F", Kernel(function, None, None))


def compiled_with(
    *, work: Callable[..., int] | None = None, interpreted: Callable[..., Any] | None = None
) -> Callable[[F], F]:
    """Make a kernel as `compiled` does, with what one call's work is, in steps, or how it is interpreted.

    `plain` takes the same arguments, arrays as memory views, and has the same effect.
    """

    def decorate(function: F) -> F:
        return cast("F", Kernel(function, work, interpreted))

    return decorate


Load: TypeAlias = Callable[[Any], int]
"""What loads one value from an address."""

Store: TypeAlias = Callable[[Any, Any], None]
"""What stores one value at an address."""

load_u8: Load = interpreted_memory.load_u8
load_u16: Load = interpreted_memory.load_u16
load_u32: Load = interpreted_memory.load_u32
load_u64: Load = interpreted_memory.load_u64
load_i8: Load = interpreted_memory.load_i8
load_i16: Load = interpreted_memory.load_i16
load_i32: Load = interpreted_memory.load_i32
load_i64: Load = interpreted_memory.load_i64
load_f32: Load = interpreted_memory.load_f32
load_f64: Load = interpreted_memory.load_f64
store_u8: Store = interpreted_memory.store_u8
store_u16: Store = interpreted_memory.store_u16
store_u32: Store = interpreted_memory.store_u32
store_u64: Store = interpreted_memory.store_u64
copy_bytes: Callable[[Any, Any, Any], None] = interpreted_memory.copy_bytes
"""Copy a number of bytes (the last argument) to an address (the first) from another one."""

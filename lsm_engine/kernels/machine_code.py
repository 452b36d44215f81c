"""Machine code of kernels: kept in files, loaded by LLVM without numba, and called by its address.

A process that finds all its code in files never imports numba, which takes a third of a second, nor its type inference.
The code of a kernel for one combination of argument types is one function:

    int32 function(result*, error*, words*)

The words are 64 bits for each argument: a number, or the address of an array's NumPy object, whose data and shape the
function reads there. Fields of NamedTuples follow each other.

A file is named after everything that its code comes from: the kernel's byte code and that of the kernels that it calls,
their constants, the types, the processor and LLVM's version. So a file is never stale. It carries a checksum, and a
file that does not fit it counts as none: several processes may start cold, and a disk may lose the end of a file.
"""

import ctypes
import hashlib
import json
import os
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_MAGIC = b"LSMK\x02"
"""How each file begins. Its last byte goes up when code is made or called in another way, so that no older file counts."""
_DIRECTORY = "lsm-kernels"

# Where NumPy's C interface promises an array object's data and its dimensions: behind the header of every object, the
# pointer to the data, the number of dimensions (an int, padded) and the pointer to their lengths.
DATA_OFFSET = object.__basicsize__
DIMENSIONS_OFFSET = DATA_OFFSET + 16

_RESULTS: dict[str, Any] = {
    "none": ctypes.c_void_p, "bool": ctypes.c_bool,
    "int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8, "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip

Kinds = tuple[Any, ...]
"""The types of a call's arguments: of an array its type character and dimensions, of a tuple its class and length."""


class MachineCode(NamedTuple):
    """The code of one kernel for one combination of types."""

    code: bytes
    """An object file."""
    symbol: str
    """The name of the function in it."""
    results: tuple[str, ...]
    """The type of the result, or of each item of a tuple."""
    is_tuple: bool


# -- Arguments ---------------------------------------------------------------------------------------


def lay_out(arguments: Sequence[Any], kinds: list[Any], words: list[Any]) -> None:
    """Append the kinds and the words of arguments. Raises TypeError for an array whose items are not side by side."""
    for argument in arguments:
        kind = type(argument)
        if kind is np.ndarray:
            if not argument.flags.c_contiguous:
                raise TypeError("a kernel takes arrays whose items lie side by side in memory")
            kinds.append((argument.dtype.char, argument.ndim))
            words.append(id(argument))
        elif kind is int or kind is bool or kind is float:
            kinds.append(kind)
            words.append(argument)
        elif issubclass(kind, tuple):
            kinds.append((kind, len(argument)))
            lay_out(argument, kinds, words)
        else:
            kinds.append(argument.dtype.char)
            words.append(argument.item())


def _word_formats(kinds: Kinds) -> Iterator[str]:
    for kind in kinds:
        if isinstance(kind, tuple):
            if isinstance(kind[0], str):
                yield "Q"  # an address
        elif kind is float or (isinstance(kind, str) and kind in "fd"):
            yield "d"
        else:
            yield "Q" if isinstance(kind, str) and np.dtype(kind).kind == "u" else "q"


def _described(kinds: Kinds) -> str:
    """Return kinds as text that is the same in every process."""
    return " ".join(map(_described_kind, kinds))


def _described_kind(kind: Any) -> str:
    if isinstance(kind, tuple):
        first, count = kind
        if isinstance(first, str):
            return f"{np.dtype(first).name}[{count}]"
        return f"{first.__name__}({','.join(getattr(first, '_fields', ()))}|{count})"
    return kind if isinstance(kind, str) else str(kind.__name__)


# -- Calls -------------------------------------------------------------------------------------------


class _Entry:
    """A loaded function and how it is called. ctypes releases the GIL for as long as it runs."""

    __slots__ = ("_function", "_is_none", "_is_tuple", "_pack", "_result_type")

    def __init__(self, address: int, kinds: Kinds, machine_code: MachineCode) -> None:
        types = [_RESULTS[name] for name in machine_code.results]
        self._is_tuple = machine_code.is_tuple
        self._is_none = machine_code.results == ("none",)
        self._result_type: Any = types[0] if not self._is_tuple else _structure(types)
        self._pack = struct.Struct("@" + "".join(_word_formats(kinds))).pack
        self._function = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p
        )(address)

    def __call__(self, words: list[Any]) -> Any:
        result = self._result_type()
        error = ctypes.c_void_p()
        if self._function(ctypes.byref(result), ctypes.byref(error), self._pack(*words)):
            raise RuntimeError("a kernel ended with an error; kernels are written to return one")
        if self._is_none:
            return None
        if self._is_tuple:
            return tuple(getattr(result, name) for name, _ in result._fields_)
        return result.value


def _structure(types: list[Any]) -> Any:
    fields = [(f"f{number}", kind) for number, kind in enumerate(types)]
    return type("Results", (ctypes.Structure,), {"_fields_": fields})


class MachineLoop:
    """A kernel as machine code, for each combination of argument types that it is called with.

    `content` is the text that the code comes from, `compile_for` compiles it for kinds of arguments.
    """

    def __init__(
        self, name: str, content: str, compile_for: Callable[[Kinds], MachineCode]
    ) -> None:
        self._name = name
        self._content = content
        self._compile_for = compile_for
        self._entries: dict[Kinds, _Entry] = {}
        self._kept: dict[Kinds, bool] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Run the loop on arguments. The first call for their types loads or compiles it."""
        kinds: list[Any] = []
        words: list[Any] = []
        lay_out(arguments, kinds, words)
        key = tuple(kinds)
        entry = self._entries.get(key)
        return (self._loaded(key) if entry is None else entry)(words)

    def is_kept(self, *arguments: Any) -> bool:
        """Whether a file has the code for these arguments, so that it can be had in a few milliseconds."""
        kinds: list[Any] = []
        lay_out(arguments, kinds, [])
        key = tuple(kinds)
        if key not in self._kept:
            self._kept[key] = any(path.exists() for path in _paths(self._file_name(key)))
        return self._kept[key]

    def _loaded(self, kinds: Kinds) -> _Entry:
        # One compilation at a time, as numba's are.
        with _lock:
            if kinds in self._entries:
                return self._entries[kinds]
            file_name = self._file_name(kinds)
            machine_code = _read(file_name)
            if machine_code is None:
                machine_code = self._compile_for(kinds)
                _write(file_name, machine_code)
            entry = _Entry(_address(machine_code), kinds, machine_code)
            self._entries[kinds] = entry
            return entry

    def _file_name(self, kinds: Kinds) -> str:
        types = hashlib.sha256(f"{_described(kinds)}\n{_processor()}".encode()).hexdigest()[:12]
        content = hashlib.sha256(self._content.encode()).hexdigest()[:16]
        return f"{self._name}.{types}.{content}"


# -- LLVM --------------------------------------------------------------------------------------------

_lock = threading.RLock()
_engines: list[Any] = []


def is_loaded() -> bool:
    """Whether this process has loaded machine code, so that LLVM is there."""
    return bool(_engines)


def target_machine() -> Any:
    """Return LLVM's description of this processor."""
    llvm = _llvm()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(),
        opt=3, codemodel="jitdefault", jit=True,
    )  # fmt: skip


def _address(machine_code: MachineCode) -> int:
    llvm = _llvm()
    if not _engines:
        # Nothing calls what counts references to arrays, as no kernel makes one; LLVM still wants its address.
        llvm.add_symbol("NRT_MemInfo_call_dtor", _address_of_abort())
        _engines.append(llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine()))
    engine = _engines[0]
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code.code))
    engine.finalize_object()
    return int(engine.get_function_address(machine_code.symbol))


def _address_of_abort() -> int:
    return ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value or 0


@cache
def _llvm() -> Any:
    try:
        llvm: Any = import_module("llvmlite.binding")
    except OSError as cause:
        # Whatever keeps the library from being loaded, llvmlite says that it is not found.
        if "failed to map" in str(cause.__context__):
            raise MemoryError(
                "the machine code of loops needs some 200 MB of memory more"
            ) from cause
        raise
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def _processor() -> str:
    llvm = _llvm()
    # The layout of objects differs between builds of one Python version.
    facts = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), DATA_OFFSET)
    return (
        f"{facts} {llvm.get_default_triple()} {version('llvmlite')} {sys.implementation.cache_tag}"
    )


# -- Files -------------------------------------------------------------------------------------------


@cache
def _directories() -> tuple[Path, ...]:
    """Return the directories that may hold machine code, in the order in which they are asked."""
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        return (Path(configured) / _DIRECTORY,)
    package_cache = Path(__file__).parent / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # A user id without a name, as in containers, has no home: "~" would be a directory in the working directory.
    user_cache = (Path(home) / "lsm_engine" / _DIRECTORY,) if os.path.isabs(home) else ()
    return package_cache, *user_cache


def _paths(file_name: str) -> Iterator[Path]:
    return (directory / file_name for directory in _directories())


def _read(file_name: str) -> MachineCode | None:
    """Return the code of a file; None if there is none, or one that is damaged."""
    for path in _paths(file_name):
        with suppress(OSError):  # a missing or unreadable file counts as none
            content = path.read_bytes()
            digest = content[len(_MAGIC) : len(_MAGIC) + 32]
            body = content[len(_MAGIC) + 32 :]
            if content.startswith(_MAGIC) and hashlib.sha256(body).digest() == digest:
                header, _, code = body.partition(b"\n")
                facts = json.loads(header)
                return MachineCode(code, facts["symbol"], tuple(facts["results"]), facts["is_tuple"])  # fmt: skip
    return None


def _write(file_name: str, machine_code: MachineCode) -> None:
    """Keep code in the first directory that takes it; if none does, each process compiles anew."""
    facts = machine_code._asdict()
    del facts["code"]
    header = json.dumps(facts)
    body = header.encode() + b"\n" + machine_code.code
    for path in _paths(file_name):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            number, temporary = tempfile.mkstemp(dir=path.parent, prefix=".lsm-kernel-")
            with os.fdopen(number, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
            os.replace(temporary, path)
        except OSError:
            continue  # the next directory may be writable, or have space
        _delete_older(path)
        return


def _delete_older(path: Path) -> None:
    """Delete what was compiled for the same types and processor from an older source."""
    prefix = path.name.rpartition(".")[0] + "."
    for older in path.parent.glob(f"{prefix}*"):
        if older != path:
            with suppress(OSError):  # another process may have deleted it
                older.unlink()

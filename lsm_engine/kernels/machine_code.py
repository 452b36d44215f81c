"""Machine code of kernels: kept in files, loaded by LLVM without numba, and called by its address.

A process that finds all its code in files never imports numba, which takes a third of a second, nor its type inference.
The code of a kernel for one combination of argument types is one function:

    int32 function(result*, error*, words*)

The words are 64 bits for each argument: a number, or the address of an array's NumPy object, whose data and shape the
function reads there. Fields of NamedTuples follow each other.

A file is named after everything that its code comes from: the kernel's byte code and that of the kernels that it calls,
their constants, the types, the processor and LLVM's version. So a file is never stale. It carries a checksum, and a
file that does not fit it counts as none: several processes may start cold, and a disk may lose the end of a file.

`compile_loops` makes the files ahead, for all x86-64 processors with AVX2: of an image, of an environment that a cluster
ships, of a wheel. A process takes such a file where it has none for its own processor.
"""

import ctypes
import errno
import hashlib
import json
import os
import platform
import struct
import subprocess
import sys
import tempfile
import threading
import time
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
_SHIPPED = Path(__file__).parent / "compiled_ahead"
"""The files that a wheel may bring (lsm_engine/spark/discovery/build_backend.py)."""
COMBINATIONS = Path(__file__).parent / "loops.json"
"""The combinations of types that each kernel is called with; `python -m tests.unit.kernels.combinations` writes it."""
_PORTABLE = "x86-64-v3"
_PORTABLE_FEATURES = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")

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
            self._kept[key] = any(path.exists() for path in self._paths(key))
        return self._kept[key]

    def keep(self, kinds: Kinds) -> None:
        """Compile the loop for some types where no file has that for the processor asked for."""
        file_name = self._file_name(kinds, _processor())
        if _read(_paths(file_name)) is None:
            _write(file_name, self._compile_for(kinds))

    def _loaded(self, kinds: Kinds) -> _Entry:
        # One compilation at a time, as numba's are.
        with _lock:
            if kinds in self._entries:
                return self._entries[kinds]
            machine_code = _read(self._paths(kinds))
            if machine_code is None:
                machine_code = self._compile_for(kinds)
                _write(self._file_name(kinds, _processor()), machine_code)
            entry = _Entry(_address(machine_code), kinds, machine_code)
            self._entries[kinds] = entry
            return entry

    def _paths(self, kinds: Kinds) -> Iterator[Path]:
        """Yield where the code may be: that for this very processor first."""
        yield from _paths(self._file_name(kinds, _processor()))
        if portable := _portable_processor():
            file_name = self._file_name(kinds, portable)
            yield from _paths(file_name)
            yield _SHIPPED / file_name

    def _file_name(self, kinds: Kinds, processor: str) -> str:
        types = hashlib.sha256(f"{_described(kinds)}\n{processor}".encode()).hexdigest()[:12]
        content = hashlib.sha256(self._content.encode()).hexdigest()[:16]
        return f"{self._name}.{types}.{content}"


# -- LLVM --------------------------------------------------------------------------------------------

_lock = threading.RLock()
_engines: list[Any] = []


def is_loaded() -> bool:
    """Whether this process has loaded machine code, so that LLVM is there."""
    return bool(_engines)


def target_machine() -> Any:
    """Return LLVM's description of the processor that code is made for."""
    cpu, features = _target()
    return (
        _llvm()
        .Target.from_default_triple()
        .create_target_machine(cpu=cpu, features=features, opt=3, codemodel="jitdefault", jit=True)
    )


@cache
def _target() -> tuple[str, str]:
    """Return the name and the features of the processor that code is made for: as numba's settings say, or this one."""
    llvm = _llvm()
    cpu = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    return cpu, llvm.get_host_cpu_features().flatten() if features is None else features


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
    if _target() == (_PORTABLE, ""):
        return _portable_text()
    # The layout of objects differs between builds of one Python version.
    facts = (*_target(), DATA_OFFSET)
    triple = _llvm().get_default_triple()
    return f"{facts} {triple} {version('llvmlite')} {sys.implementation.cache_tag}"


@cache
def _portable_processor() -> str | None:
    """Return what names the code for all x86-64 processors with AVX2; None: this is none of them."""
    if not _is_portable_platform():
        return None
    features = _llvm().get_host_cpu_features()
    has_all = all(features.get(name) for name in _PORTABLE_FEATURES)
    return _portable_text() if has_all else None


def _is_portable_platform() -> bool:
    return platform.machine() == "x86_64" and sys.platform == "linux"


def _portable_text() -> str:
    # An object file of one version of LLVM is read by every other one.
    return f"{_PORTABLE} linux {DATA_OFFSET} {sys.implementation.cache_tag}"


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


def _read(paths: Iterator[Path]) -> MachineCode | None:
    """Return the code of the first file that is there and not damaged; None if there is none."""
    for path in paths:
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


# -- Code made ahead -----------------------------------------------------------------------------------


class CompiledLoops(NamedTuple):
    """What `compile_loops` has done."""

    loop_count: int
    """Loops that the directory has the code of."""
    directory: str
    seconds: float


_COMPILE = "from lsm_engine.kernels.machine_memory import compile_all; print(compile_all())"


def compile_loops(directory: str | None = None) -> CompiledLoops:
    """Compile all loops over rows ahead, which processes do one by one as they need them.

    For images, and for environments that a cluster ships: their processes start warm. The code is for all x86-64
    processors with AVX2 (those since 2013), and elsewhere for this machine's. It takes some 20 seconds of CPU.

    Args:
        directory: Where the code goes, to be given to processes as `NUMBA_CACHE_DIR`. By default the directory in which
            processes of this environment look for it anyway.

    Raises:
        OSError: The directory cannot be written to.
        RuntimeError: The compiler failed; the text holds its last line.
    """
    started = time.monotonic()
    base = _first_writable((Path(directory) / _DIRECTORY,) if directory else _directories())
    environment = dict(os.environ)
    if directory:
        environment["NUMBA_CACHE_DIR"] = directory
    if _portable_processor():
        environment |= {"NUMBA_CPU_NAME": _PORTABLE, "NUMBA_CPU_FEATURES": ""}
    # numba reads its settings once, when it is imported.
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"loops were not compiled: {done.stderr.strip().rpartition(chr(10))[2]}")
    return CompiledLoops(int(done.stdout), str(base), time.monotonic() - started)


def _first_writable(directories: Sequence[Path]) -> Path:
    """Return the directory that takes code, as `_write` chooses it: an installation may be read-only."""
    refusal: OSError = PermissionError(
        errno.EACCES, os.strerror(errno.EACCES), str(directories[-1])
    )
    for directory in directories:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            # The next directory may be writable.
            refusal = cause
            continue
        if os.access(directory, os.W_OK):
            return directory
    raise refusal


def stored_kinds(kinds: Kinds) -> list[Any]:
    """Return kinds as JSON holds them: classes by their names."""
    return [
        [kind[0] if isinstance(kind[0], str) else _class_name(kind[0]), kind[1]]
        if isinstance(kind, tuple)
        else kind if isinstance(kind, str) else _class_name(kind)
        for kind in kinds
    ]  # fmt: skip


def _class_name(kind: Any) -> str:
    return f"{kind.__module__}:{kind.__name__}"


def kinds_of(stored: Sequence[Any]) -> Kinds:
    """Return kinds that `stored_kinds` has written."""
    return tuple(
        (_class_or_character(kind[0]), kind[1])
        if isinstance(kind, list)
        else _class_or_character(kind)
        for kind in stored
    )


def _class_or_character(name: str) -> Any:
    module, separator, of_module = name.partition(":")
    return getattr(import_module(module), of_module) if separator else name

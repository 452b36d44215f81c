"""A FileIO that numbers every call and, at chosen ones, fails, dies, lies or lets others in.

    disk = MemoryFileIO()
    storage = RecordingFileIO(disk, Die(at=7, when=When.AFTER))

Mutating calls are numbered from 1, reading calls from 1 in a count of their own. After a Crash the
storage is dead: every later call raises Crash without effect, as nothing runs in a killed process.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from lsm_engine.base.errors import CommitUnknownError, LsmError, StorageError
from lsm_engine.storage.bulk import OneByOne
from lsm_engine.storage.file_io import FileIO, FileStatus, Output


class Crash(BaseException):
    """The process died here. Nothing may catch it."""


class When(Enum):
    """Where in a call something happens."""

    BEFORE = "before"
    HALFWAY = "halfway"  # half of the bytes are there, under the name that half a write leaves
    AFTER = "after"


@dataclass(frozen=True)
class Call:
    """One call: its number among its kind, the verb, and the path (of `sync`, the first)."""

    number: int
    verb: str
    path: str


@dataclass(frozen=True)
class Die:
    """Raise Crash at mutating call `at`; with `kill` send SIGKILL to this process instead."""

    at: int
    when: When = When.BEFORE
    kill: bool = False


@dataclass(frozen=True)
class Fail:
    """Raise `error` instead of doing mutating call `at`; with HALFWAY, half of a write is done."""

    at: int
    error: OSError | LsmError
    when: When = When.BEFORE


@dataclass(frozen=True)
class LoseReply:
    """Do mutating call `at`, then say that nobody knows whether it was done."""

    at: int


class Lie(Enum):
    """What a reading call answers instead of the truth."""

    EMPTY = "empty"  # no bytes, no entries, no such file
    SHORT = "short"  # the first half of the bytes, or of the entries
    STALE = "stale"  # the bytes or entries of the previous call for that path, else empty


@dataclass(frozen=True)
class Misread:
    """Answer reading call `at` wrongly, or raise."""

    at: int
    how: Lie | OSError | LsmError


Fault = Die | Fail | LoseReply | Misread


class RecordingFileIO(OneByOne):
    """Wraps `inner`. `calls` and `reads` are the trace; `on_call` runs before each call takes place,
    and may run other actors, pause, or raise.
    """

    def __init__(
        self, inner: FileIO, *faults: Fault, on_call: Callable[[Call], None] | None = None
    ) -> None:
        self.inner = inner
        self.calls: list[Call] = []
        self.reads: list[Call] = []
        self.dead = False
        self._faults = faults
        self._on_call = on_call
        self._answers: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    # Mutating calls.

    def write_new(self, path: str, data: bytes) -> None:
        half = lambda: self.inner.write_new(path, data[: len(data) // 2])  # noqa: E731
        self._mutate("write_new", path, lambda: self.inner.write_new(path, data), half)

    def open_output(self, path: str) -> Output:
        output = self._mutate("open_output", path, lambda: self.inner.open_output(path))
        return RecordingOutput(self, path, output)

    def publish(self, path: str, data: bytes) -> bool:
        half = lambda: self._leave_temporary(path, data)  # noqa: E731
        return self._mutate("publish", path, lambda: self.inner.publish(path, data), half)

    def replace(self, path: str, data: bytes, *, may_skip: bool = False, note: str = "") -> None:
        half = lambda: self._leave_temporary(path, data)  # noqa: E731
        self._mutate("replace", path, lambda: self.inner.replace(path, data), half)

    def change_if_unchanged(self, path: str, data: bytes | None, *, expected: bytes) -> bool:
        act = lambda: self.inner.change_if_unchanged(path, data, expected=expected)  # noqa: E731
        half = lambda: data is None or self._leave_temporary(path, data)  # noqa: E731
        return self._mutate("change_if_unchanged", path, act, half)

    def delete(self, path: str) -> bool:
        return self._mutate("delete", path, lambda: self.inner.delete(path))

    def remove_empty_directory(self, directory: str) -> bool:
        act = lambda: self.inner.remove_empty_directory(directory)  # noqa: E731
        return self._mutate("remove_empty_directory", directory, act)

    def sync(self, paths: Iterable[str]) -> None:
        listed = list(paths)
        first = listed[0] if listed else ""
        self._mutate("sync", first, lambda: self.inner.sync(listed))

    # Reading calls.

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._read("read", path, lambda: self.inner.read(path, offset, length), b"")

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        def content() -> bytes:
            with self.inner.open_input(path) as source:
                return source.read()

        return pa.BufferReader(self._read("open_input", path, content, b""))

    def exists(self, path: str) -> bool:
        return self._read("exists", path, lambda: self.inner.exists(path), False)

    def status(self, path: str) -> FileStatus:
        return self._read("status", path, lambda: self.inner.status(path), None)

    def list(self, directory: str) -> list[FileStatus]:
        return self._read("list", directory, lambda: self.inner.list(directory), [])

    # How calls go wrong.

    def _mutate(
        self,
        verb: str,
        path: str,
        act: Callable[[], Any],
        half: Callable[[], Any] = lambda: None,
    ) -> Any:
        call = self._numbered(self.calls, verb, path)
        for fault in self._faults:
            if isinstance(fault, Misread) or fault.at != call.number:
                continue
            match fault:
                case LoseReply():
                    act()
                    raise _lost(call)
                case Fail(error=error, when=when):
                    self._partly(when, act, half)
                    raise error
                case Die(when=when, kill=kill):
                    self._partly(when, act, half)
                    self._die(call, kill=kill)
        return act()

    def _partly(self, when: When, act: Callable[[], Any], half: Callable[[], Any]) -> None:
        if when is When.AFTER:
            act()
        elif when is When.HALFWAY:
            half()

    def _die(self, call: Call, *, kill: bool) -> None:
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)
        self.dead = True
        raise Crash(f"at {call}")

    def _read(self, verb: str, path: str, act: Callable[[], Any], empty: Any) -> Any:
        call = self._numbered(self.reads, verb, path)
        stale = self._answers.get((verb, path), empty)
        for fault in self._faults:
            if isinstance(fault, Misread) and fault.at == call.number:
                if isinstance(fault.how, Lie):
                    return self._lie(fault.how, act, stale, empty)
                raise fault.how
        answer = self._answers[verb, path] = act()
        return answer

    def _lie(self, how: Lie, act: Callable[[], Any], stale: Any, empty: Any) -> Any:
        answer = stale if how is Lie.STALE else empty
        if how is Lie.SHORT:
            truth = act()
            answer = truth[: len(truth) // 2] if isinstance(truth, bytes | list) else truth
        if answer is None:  # a status cannot be empty
            raise StorageError("no answer")
        return answer

    def _numbered(self, trace: "list[Call]", verb: str, path: str) -> Call:
        with self._lock:
            if self.dead:
                raise Crash("nothing runs in a dead process")
            call = Call(len(trace) + 1, verb, path)
            trace.append(call)
        if self._on_call is not None:
            self._on_call(call)
        return call

    def _leave_temporary(self, path: str, data: bytes) -> None:
        directory, _, name = path.rpartition("/")
        temporary = f"{directory}/.{name}.{len(self.calls)}.tmp".lstrip("/")
        self.inner.write_new(temporary, data[: len(data) // 2])


class RecordingOutput:
    """An output whose every write is a numbered call."""

    def __init__(self, storage: RecordingFileIO, path: str, inner: Output) -> None:
        self._storage = storage
        self._path = path
        self._inner = inner

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def write(self, data: Any) -> int:
        whole = bytes(data)
        half = lambda: self._flushed(whole[: len(whole) // 2])  # noqa: E731
        act = lambda: self._inner.write(whole)  # noqa: E731
        return self._storage._mutate("write", self._path, act, half)

    def tell(self) -> int:
        return self._inner.tell()

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        if not self._inner.closed:
            self._storage._mutate("close", self._path, self._inner.close)

    def abort(self) -> None:
        self._storage._mutate("abort", self._path, self._inner.abort)

    def _flushed(self, data: bytes) -> None:
        self._inner.write(data)
        self._inner.flush()


def _lost(call: Call) -> Exception:
    if call.verb in {"publish", "change_if_unchanged"}:
        return CommitUnknownError("the reply was lost; look before trying again", path=call.path)
    return StorageError("the storage did not answer in time", path=call.path, errno="ETIMEDOUT")

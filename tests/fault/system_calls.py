"""The operating system as LocalFileIO sees it, with every mutating call numbered.

    with SystemCalls(root) as calls:              # replaces `os` inside lsm_engine.storage.local and its kin
        table.upsert(rows)
    calls.trace                                   # what was done, in order, for tests/fault/power.py

    with SystemCalls(root, dies_at=7, after=True):     # SIGKILL to this process: fork before
        table.upsert(rows)

This is below the FileIO port: `publish` is not one call here but create, write, fsync, link, fsync of
the directory and unlink, and the process dies between any two of them.
"""

import os
import signal
import stat
import threading
from dataclasses import dataclass, field
from typing import Any, Self

from lsm_engine.storage import local, locks

# Those in which LocalFileIO calls the operating system.
MODULES = (locks, local, local)


@dataclass(frozen=True)
class Event:
    """One mutating system call. `inode` names a file whatever it is called."""

    verb: str
    path: str
    to: str = ""
    inode: int = 0
    content: bytes = b""


@dataclass
class SystemCalls:
    """Stands in for the `os` module in LocalFileIO while it is entered."""

    root: str
    dies_at: int = 0
    after: bool = False
    trace: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._count = 0
        self._paths: dict[int, str] = {}  # open descriptor → path

    def __enter__(self) -> Self:
        self._real = local.os
        for module in MODULES:
            module.os = self  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        for module in MODULES:
            module.os = self._real  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    # The calls that change something.

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        path = self._below(path, dir_fd)
        if not flags & os.O_CREAT:
            descriptor = os.open(path, flags, mode)
            self._paths[descriptor] = path
            return descriptor
        with self._call():
            descriptor = os.open(path, flags, mode)
            self._paths[descriptor] = path
            self._note("create", path, inode=os.fstat(descriptor).st_ino)
        return descriptor

    def fdopen(self, descriptor: int, *arguments: Any, **named: Any) -> "_File":
        return _File(self, os.fdopen(descriptor, *arguments, **named), self._paths[descriptor])

    def fsync(self, descriptor: int) -> None:
        path = self._paths[descriptor]
        with self._call():
            os.fsync(descriptor)
            found = os.fstat(descriptor)
            if stat.S_ISDIR(found.st_mode):
                self._note("sync directory", path)
            else:
                self._note("sync file", path, inode=found.st_ino, content=_content(path))

    def write(self, descriptor: int, data: Any) -> int:
        path = self._paths[descriptor]
        if self.count + 1 == self.dies_at and self.after:
            os.write(descriptor, bytes(data)[: len(data) // 2])
        with self._call():
            written = os.write(descriptor, data)
        self.written(path, os.fstat(descriptor).st_ino)
        return written

    def link(self, source: str, target: str) -> None:
        with self._call():
            os.link(source, target)
            self._note("link", source, to=target, inode=os.stat(target).st_ino)

    def replace(
        self,
        source: str,
        target: str,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
    ) -> None:
        source, target = self._below(source, src_dir_fd), self._below(target, dst_dir_fd)
        with self._call():
            os.replace(source, target)
            self._note("rename", source, to=target, inode=os.stat(target).st_ino)

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        path = self._below(path, dir_fd)
        with self._call():
            os.unlink(path)
            self._note("unlink", path)

    def makedirs(self, path: str, *, exist_ok: bool = False) -> None:
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            with self._call():
                os.makedirs(directory, exist_ok=exist_ok)
                self._note("mkdir", directory)

    def mkdir(self, path: str) -> None:
        with self._call():
            os.mkdir(path)
            self._note("mkdir", path)

    def rmdir(self, path: str) -> None:
        with self._call():
            os.rmdir(path)
            self._note("rmdir", path)

    def _below(self, path: str, directory: int | None) -> str:
        return path if directory is None else os.path.join(self._paths[directory], path)

    def written(self, path: str, inode: int) -> None:
        self._note("write", path, inode=inode, content=_content(path))

    def _note(
        self, verb: str, path: str, *, to: str = "", inode: int = 0, content: bytes = b""
    ) -> None:
        real = os.path.realpath(self.root)
        relative = os.path.relpath(path, real)
        target = os.path.relpath(to, real) if to else ""
        with self._lock:
            self.trace.append(Event(verb, relative, target, inode, content))

    def _call(self) -> "_Call":
        with self._lock:
            self._count += 1
            return _Call(self, self._count)

    @property
    def count(self) -> int:
        """Mutating calls so far."""
        return self._count


@dataclass
class _Call:
    calls: SystemCalls
    number: int

    def __enter__(self) -> None:
        if self.number == self.calls.dies_at and not self.calls.after:
            os.kill(os.getpid(), signal.SIGKILL)

    def __exit__(self, *_: object) -> None:
        if self.number == self.calls.dies_at and self.calls.after:
            os.kill(os.getpid(), signal.SIGKILL)


class _File:
    """A file being written. Each write is a call; killed "after" it, half of the bytes are there."""

    def __init__(self, calls: SystemCalls, file: Any, path: str) -> None:
        self._calls = calls
        self._file = file
        self._path = path
        self._inode = os.fstat(file.fileno()).st_ino

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, data: Any) -> int:
        calls = self._calls
        if calls.count + 1 == calls.dies_at and calls.after:
            self._file.write(bytes(data)[: len(data) // 2])
            self._file.flush()
        with calls._call():
            return self._file.write(data)

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            if os.path.exists(self._path):
                self._calls.written(self._path, self._inode)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()

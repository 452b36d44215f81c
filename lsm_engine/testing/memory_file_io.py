"""FileIO over a dictionary, for tests and tables that need not outlive the process."""

import threading
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from lsm_engine.base.errors import AlreadyExistsError, NotFoundError, StorageError
from lsm_engine.storage.bulk import OneByOne
from lsm_engine.storage.clock import Clock, SystemClock
from lsm_engine.storage.file_io import FileStatus, check_path


class MemoryFileIO(OneByOne):
    """Files in this process, shared by every holder of the object. Safe for threads; no pickle."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._lock = threading.RLock()
        self._files: dict[str, tuple[bytes, int]] = {}
        self._directories: dict[str, int] = {}

    # Reading.

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes from `offset`."""
        data = self._data(path)
        return data[offset : len(data) if length is None else offset + length]

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a reader over the bytes, without a copy."""
        return pa.BufferReader(pa.py_buffer(self._data(path)))

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        check_path(path)
        with self._lock:
            return path in self._files

    def status(self, path: str) -> FileStatus:
        """Return size, time and kind."""
        check_path(path)
        with self._lock:
            if path in self._directories:
                return _directory(path, self._directories[path])
            if path not in self._files:
                raise NotFoundError("no such file", path=path)
            data, modified = self._files[path]
            return _file(path, len(data), modified)

    def list(self, directory: str) -> list[FileStatus]:
        """Return the entries by name."""
        if directory:
            check_path(directory)
        prefix = f"{directory}/" if directory else ""
        slash = len(prefix) - 1
        with self._lock:
            if directory in self._files:
                raise StorageError("a file is where a directory should be", path=directory)
            statuses = [
                _file(path, len(data), modified)
                for path, (data, modified) in self._files.items()
                if path.rfind("/") == slash and path.startswith(prefix)
            ] + [
                _directory(path, modified_millis)
                for path, modified_millis in self._directories.items()
                if path.rfind("/") == slash and path.startswith(prefix)
            ]
        return sorted(statuses, key=lambda status: status.path)

    # Writing.

    def write_new(self, path: str, data: bytes) -> None:
        """Write a new file."""
        if not self._put_new(path, bytes(data)):
            raise AlreadyExistsError("a file is already there; nothing was changed", path=path)

    def open_output(self, path: str) -> "MemoryOutput":
        """Start a new file."""
        self.write_new(path, b"")
        return MemoryOutput(self, path)

    def publish(self, path: str, data: bytes) -> bool:
        """Create `path` atomically."""
        return self._put_new(path, bytes(data))

    def replace(self, path: str, data: bytes, *, may_skip: bool = False, note: str = "") -> None:
        """Overwrite atomically."""
        check_path(path)
        with self._lock:
            if path in self._directories:
                raise StorageError("a directory is where a file should be", path=path)
            self._make_parents(path)
            self._files[path] = (bytes(data), self._clock.now_millis())

    def change_if_unchanged(self, path: str, data: bytes | None, *, expected: bytes) -> bool:
        """Replace or remove a file if it still is `expected`."""
        with self._lock:
            if not self._is(path, expected):
                return False
            if data is None:
                del self._files[path]
            else:
                self._files[path] = (bytes(data), self._clock.now_millis())
            return True

    def _is(self, path: str, content: bytes) -> bool:
        check_path(path)
        if path in self._directories:
            raise StorageError("a directory is where a file should be", path=path)
        return path in self._files and self._files[path][0] == content

    def delete(self, path: str) -> bool:
        """Remove one file."""
        check_path(path)
        with self._lock:
            if path in self._directories:
                raise StorageError("a directory is where a file should be", path=path)
            return self._files.pop(path, None) is not None

    def remove_empty_directory(self, directory: str) -> bool:
        """Remove a directory if nothing is in it."""
        check_path(directory)
        with self._lock:
            if directory not in self._directories or self.list(directory):
                return False
            del self._directories[directory]
            return True

    def sync(self, paths: Iterable[str]) -> None:
        """Check that the files are there; memory has nothing to wait for."""
        for path in paths:
            if check_path(path) not in self._directories:
                self._data(path)

    def _data(self, path: str) -> bytes:
        check_path(path)
        with self._lock:
            if path in self._files:
                return self._files[path][0]
            if path in self._directories:
                raise StorageError("a directory is where a file should be", path=path)
        raise NotFoundError("no such file", path=path)

    def _put_new(self, path: str, data: bytes) -> bool:
        check_path(path)
        with self._lock:
            if path in self._files or path in self._directories:
                return False
            self._make_parents(path)
            self._files[path] = (data, self._clock.now_millis())
            return True

    def _make_parents(self, path: str) -> None:
        parts = path.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            directory = "/".join(parts[:count])
            if directory in self._files:
                raise StorageError("a file is where a directory should be", path=directory)
            self._directories.setdefault(directory, self._clock.now_millis())


class MemoryOutput:
    """One file being written; readers see nothing of it before it is closed."""

    def __init__(self, storage: MemoryFileIO, path: str) -> None:
        self._storage = storage
        self._path = path
        self._data = bytearray()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it is closed or aborted."""
        return self._closed

    def write(self, data: Any) -> int:
        """Append bytes."""
        if self._closed:
            raise ValueError("write to a closed file")
        self._data += data
        return len(data)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return len(self._data)

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Finish the file."""
        if not self._closed:
            self._closed = True
            self._storage.replace(self._path, bytes(self._data))

    def abort(self) -> None:
        """Remove the file."""
        self._closed = True
        self._storage.delete(self._path)


def _file(path: str, size: int, modified: int) -> FileStatus:
    return FileStatus(path=path, size=size, modified_millis=modified, is_directory=False)


def _directory(path: str, modified: int) -> FileStatus:
    return FileStatus(path=path, size=0, modified_millis=modified, is_directory=True)

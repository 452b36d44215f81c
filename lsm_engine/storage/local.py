"""FileIO over a directory of this machine.

`publish` is a hard link of a finished temporary file: of any number of processes, one gets the name
(measured against rename, which lets two win). Temporaries are `.<name>.<id>.tmp` beside their target,
which every client's listings pass over."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from lsm_engine.base.errors import CommitUnknownError, NotFoundError, UnsafePathError
from lsm_engine.storage.bulk import OneByOne
from lsm_engine.storage.clock import IdSource, SystemIds
from lsm_engine.storage.executor import at_once
from lsm_engine.storage.file_io import (
    FileStatus,
    Prefetching,
    check_path,
    naming_path,
    to_storage_error,
)
from lsm_engine.storage.locks import exclusive

# -- Waiting for a disk of this machine ------------------------------------------------------------


def sync_path(real: str) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    sync_and_close(os.open(real, os.O_RDONLY | os.O_CLOEXEC))


def sync_above(directory: tuple[str, str]) -> None:
    """Wait for the names in a directory; an error names a path below it, which comes with it."""
    real, path = directory
    with naming_path(path):
        sync_path(real)


def sync_and_close(descriptor: int) -> None:
    """Wait until what was written to a file is on the disk, and close it."""
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- FileIO over a directory of this machine -------------------------------------------------------

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_OUTPUT_BUFFER_BYTES = 1 << 20
_READ_AT_ONCE_BYTES = 64 << 10
_KNOWN_DIRECTORIES = 10_000
_SECTOR_BYTES = 512


class LocalFileIO(OneByOne, Prefetching):
    """Files under `root`. A value: equal by root, pickles, and may be used by any thread.

    `durable` False skips every wait for the disk (option commit.fsync): a commit then survives a
    killed process but not a power cut.
    """

    def __init__(self, root: str, *, durable: bool = True, ids: IdSource | None = None) -> None:
        self.root = os.path.abspath(root)
        self.durable = durable
        self._ids: IdSource = SystemIds() if ids is None else ids
        self._real_root = os.path.realpath(self.root)
        self._has_root = False  # the root was seen: one that vanishes was moved or dropped
        self._made: set[str] = set()  # directories known to exist; a lost one is made again
        self._known: dict[str, str] = {}  # where directories are that were seen, links followed

    def __repr__(self) -> str:
        return f"LocalFileIO({self.root!r}, durable={self.durable})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LocalFileIO):
            return False
        return (self.root, self.durable) == (other.root, other.durable)

    def __hash__(self) -> int:
        return hash((self.root, self.durable))

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"_has_root": self._has_root}
        return partial(LocalFileIO, durable=self.durable), (self.root,), state

    def undurable(self) -> "LocalFileIO":
        """Return the same directory without waits for the disk. Known directories stay known."""
        file_io = object.__new__(LocalFileIO)
        vars(file_io).update(vars(self), durable=False, _made=set(), _known=dict(self._known))
        return file_io

    # Reading.

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes from `offset`."""
        with naming_path(path):
            descriptor, _ = self._open(path)
            try:
                return _read_all(descriptor, offset, length)
            finally:
                os.close(descriptor)

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return the file opened by PyArrow, so that reads need no interpreter lock."""
        if size is not None and size <= _READ_AT_ONCE_BYTES:  # fewer calls than its columns are
            return pa.BufferReader(self.read(path))
        real = self._followed(path)
        with naming_path(path):
            return pa.OSFile(real, "rb")

    def real_path(self, path: str) -> str:
        """Return where a file lies, links followed, for others who read it by name."""
        return self._followed(path)

    def prefetch(self, path: str) -> None:
        """Have the system read the file into its page cache, where it can be asked to."""
        if not hasattr(os, "posix_fadvise"):
            return
        with contextlib.suppress(OSError, UnsafePathError):  # a read raises the error
            # Without O_NONBLOCK a pipe would block.
            descriptor = os.open(self._followed(path), os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)

    def forget_prefetched(self, paths: Iterable[str]) -> None:
        """Do nothing: the page cache of the system is always current."""

    def exists(self, path: str) -> bool:
        """Whether a regular file is there."""
        with naming_path(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = os.lstat(self._path_of(path))
            if stat.S_ISLNK(status.st_mode):
                status = os.stat(self._inside(path, path))
            return stat.S_ISREG(status.st_mode)
        return False

    def status(self, path: str) -> FileStatus:
        """Return size, time and kind, of a link itself if it is one."""
        real = self._path_of(path)
        with naming_path(path):
            return _status(path, os.lstat(real))

    def list(self, directory: str) -> list[FileStatus]:
        """Return the entries by name."""
        real = self._followed(directory) if directory else self._real_root
        statuses = []
        is_missing = contextlib.suppress(FileNotFoundError)
        with naming_path(directory), is_missing, os.scandir(real) as entries:
            for entry in entries:
                path = f"{directory}/{entry.name}" if directory else entry.name
                with contextlib.suppress(FileNotFoundError):  # deleted since: not an entry
                    statuses.append(_status(path, entry.stat(follow_symlinks=False)))
        return sorted(statuses, key=lambda status: status.path)

    # Writing.

    def write_new(self, path: str, data: bytes) -> None:
        """Write a new file; a failed attempt leaves nothing behind if it can help it."""
        real = self._path_of(path)
        with naming_path(path):
            self._write(real, data, sync=False)

    def open_output(self, path: str) -> "LocalOutput":
        """Start a new file; `sync` waits for it and for the names of new directories."""
        real = self._path_of(path)
        with naming_path(path):
            descriptor = self._create(real, waits=False)
            return LocalOutput(path, real, os.fdopen(descriptor, "wb", _OUTPUT_BUFFER_BYTES))

    def publish(self, path: str, data: bytes) -> bool:
        """Create `path` atomically by linking a finished temporary file to it."""
        real = self._path_of(path)
        temporary = self._temporary(real)
        with naming_path(path):
            self._write(temporary, data, sync=self.durable)
        try:
            return self._link(path, temporary, real)
        finally:
            with contextlib.suppress(OSError):  # a leftover is an orphan file
                os.unlink(temporary)

    def _link(self, path: str, temporary: str, real: str) -> bool:
        refusal: OSError | None = None
        try:
            os.link(temporary, real)
        except OSError as cause:
            refusal = cause
        try:
            # A network disk may refuse a repeated request because of the link that the first one made.
            # So the file that has the name now decides.
            if refusal is not None and not os.path.samestat(os.lstat(temporary), os.lstat(real)):
                return False
            if self.durable:
                sync_path(os.path.dirname(real))
        except FileNotFoundError:
            if refusal is None:
                raise CommitUnknownError(
                    "the file vanished right after it was created; look before trying again",
                    path=path,
                ) from None
            # Its holder deleted it since: the name was taken when this one was asked for.
            if isinstance(refusal, FileExistsError):
                return False
            raise to_storage_error(path, refusal) from refusal
        except OSError as cause:
            raise CommitUnknownError(
                "the disk did not confirm that the file was created; look before trying again",
                path=path,
            ) from cause
        return True

    def replace(self, path: str, data: bytes, *, may_skip: bool = False, note: str = "") -> None:
        """Overwrite atomically by renaming a finished temporary file; `may_skip`: without waiting for the disk."""
        real = self._path_of(path)
        temporary = self._temporary(real)
        waits = self.durable and not may_skip
        with naming_path(path):
            try:
                self._write(temporary, data, sync=waits)
            except OSError as cause:
                # An expiry moves a hint on before it deletes: on a full disk it would free nothing.
                if cause.errno == errno.ENOSPC and self._overwrite_in_place(real, data):
                    return
                raise
            try:
                os.replace(temporary, real)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            if waits:  # what it replaced may name files that are deleted next
                sync_path(os.path.dirname(real))

    def _overwrite_in_place(self, real: str, data: bytes) -> bool:
        """Write a hint over the one that a file holds, which needs no more space; return whether that was done.

        Hints are numbers. One that is longer than the former has room made first: a power cut leaves the
        former, a file that holds no number, which readers pass over, or the new one, as all of it lies in
        one sector.
        """
        if not data.isdigit():
            return False
        try:
            descriptor = os.open(real, os.O_RDWR)
        except OSError:  # it is not there, or not ours to write
            return False
        try:
            size = os.fstat(descriptor).st_size
            if not 0 < size <= len(data) <= _SECTOR_BYTES:
                return False
            if size < len(data):
                # Otherwise a power cut may leave the new digits with the former length: another number.
                os.ftruncate(descriptor, len(data))
                if self.durable:
                    os.fsync(descriptor)
            if os.pwrite(descriptor, data, 0) != len(data):
                raise OSError(errno.EIO, "a few bytes were written in part")
            if self.durable:
                os.fsync(descriptor)
        except OSError as cause:
            if cause.errno == errno.ENOSPC:  # a file system that never writes in place
                return False
            raise
        finally:
            os.close(descriptor)
        return True

    def delete(self, path: str) -> bool:
        """Remove one file, or one link, never what it points to."""
        with naming_path(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._path_of(path))
            return True
        return False

    def change_if_unchanged(self, path: str, data: bytes | None, *, expected: bytes) -> bool:
        """Change a file below its directory's lock, which all who do so take, if it still is `expected`."""
        real = self._path_of(path)
        if data is None:
            return self._change(path, real, expected, _unlink)
        try:
            if self.read(path) != expected:  # needs no lock, nor a temporary file
                return False
        except NotFoundError:
            return False
        temporary = self._temporary(real)
        with naming_path(path):
            self._write(temporary, data, sync=self.durable)

        def rename(directory: int, name: str) -> None:
            source = os.path.basename(temporary)
            os.replace(source, name, src_dir_fd=directory, dst_dir_fd=directory)

        try:
            return self._change(path, real, expected, rename)
        finally:
            with contextlib.suppress(OSError):  # renamed, or a leftover that is an orphan, no more
                os.unlink(temporary)

    def _change(
        self, path: str, real: str, expected: bytes, change: Callable[[int, str], None]
    ) -> bool:
        """Change a name below the lock of its directory, and wait for the disk; `change` takes both."""
        parent, name = os.path.split(real)
        is_missing = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        is_changed = False
        # The directory may be deleted or moved meanwhile. Its descriptor still leads to the same one.
        with naming_path(path), is_missing, exclusive(parent, path) as directory:
            descriptor = os.open(name, _OLD, dir_fd=directory)
            try:
                content = _read_all(descriptor, 0, None)
            finally:
                os.close(descriptor)
            if content == expected:
                change(directory, name)
                is_changed = True
        if is_changed and self.durable:
            try:
                sync_path(parent)
            except OSError as cause:
                raise CommitUnknownError(
                    "the disk did not confirm that the file was changed; look before trying again",
                    path=path,
                ) from cause
        return is_changed

    def remove_empty_directory(self, directory: str) -> bool:
        """Remove a directory if nothing is in it."""
        real = self._path_of(directory)
        self._made.discard(os.path.realpath(real))
        self._known.pop(directory, None)
        with contextlib.suppress(OSError):
            os.rmdir(real)
            return True
        return False

    def sync(self, paths: Iterable[str]) -> None:
        """Wait for the disk: files first, then each directory up to the root, once; a journal takes many together."""
        if not self.durable:
            for path in paths:
                with naming_path(path):
                    os.stat(self._followed(path))
            return
        files = list(paths)
        directories: dict[str, str] = {}
        for path, real in zip(files, at_once(self._sync_file, files), strict=True):
            while real != self._real_root:
                real = os.path.dirname(real)
                directories[real] = path
        list(at_once(sync_above, directories.items()))

    def _sync_file(self, path: str) -> str:
        """Wait for a file, and return where it is."""
        with naming_path(path):
            descriptor, real = self._open(path)
            sync_and_close(descriptor)
        return real

    # Paths.

    def _path_of(self, path: str) -> str:
        """Return where `path` is, its own last part not followed; refuse to leave the root."""
        directory, _, name = check_path(path).rpartition("/")
        return os.path.join(self._directory(path, directory), name)

    def _followed(self, path: str) -> str:
        """Return what `path` leads to; refuse to leave the root."""
        real = self._path_of(path)
        try:
            is_link = stat.S_ISLNK(os.lstat(real).st_mode)
        except OSError:
            return real  # the caller's use of it raises the error
        return self._inside(path, path) if is_link else real

    def _open(self, path: str) -> tuple[int, str]:
        """Open what `path` leads to for reading, and return where that is; refuse to leave the root."""
        real = self._path_of(path)
        try:
            return os.open(real, _OLD), real
        except OSError as cause:
            if cause.errno != errno.ELOOP:
                raise
        real = self._inside(path, path)  # a link
        return os.open(real, _OLD), real

    def _directory(self, path: str, directory: str) -> str:
        """Return where a directory is, links followed; looked up once, as each part costs a call."""
        real = self._known.get(directory)
        if real is None:
            real = self._inside(path, directory)
            if os.path.isdir(real):
                self._has_root = True
                if len(self._known) >= _KNOWN_DIRECTORIES:
                    self._known.clear()
                self._known[directory] = real
        return real

    def _inside(self, path: str, part: str) -> str:
        real = self._real_root
        for name in filter(
            None, part.split("/")
        ):  # checked each time: a directory may have become a link
            real = os.path.join(real, name)
            if os.path.islink(real):  # nothing else leads elsewhere
                real = os.path.realpath(os.path.join(self._real_root, part))
                break
        if real != self._real_root and not real.startswith(self._real_root.rstrip("/") + "/"):
            raise UnsafePathError("a link leads out of the table's directory", path=path)
        return real

    def _temporary(self, real: str) -> str:
        directory, name = os.path.split(real)
        return os.path.join(directory, f".{name}.{self._ids.new_id()}.tmp")

    # New files.

    def _create(self, real: str, *, waits: bool) -> int:
        directory = os.path.dirname(real)
        if directory in self._made:
            try:
                return os.open(real, _NEW, 0o666)
            except FileNotFoundError:
                self._made.discard(directory)  # another process has removed it
        self._make_directories(directory, waits=waits)
        self._made.add(directory)
        return os.open(real, _NEW, 0o666)

    def _make_directories(self, directory: str, *, waits: bool) -> None:
        """Make what is missing; a new name is safe from power cuts once its parent is synced.

        A root that was there is not made again: NotFoundError.
        """
        missing = []
        path = directory
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        if not self._has_root:
            os.makedirs(self._real_root, exist_ok=True)
            self._has_root = True
        for path in reversed(missing):
            if path.startswith(
                self._real_root.rstrip("/") + "/"
            ):  # by one call each: a rename may come between
                self._make_directory(path)
        if waits:
            for path in missing:
                sync_path(os.path.dirname(path))

    def _make_directory(self, path: str) -> None:
        try:
            os.mkdir(path)
        except FileExistsError:
            pass  # by another process
        except FileNotFoundError:
            # Either a directory between was removed, or the whole warehouse.
            if os.path.isdir(self._real_root):
                raise
            raise NotFoundError(
                "the directory was renamed or deleted since it was opened: open it anew; or it is on "
                "a disk that this machine does not see: put it where all machines of the cluster see it",
                path=self.root,
            ) from None

    def _write(self, real: str, data: bytes, *, sync: bool) -> None:
        descriptor = self._create(real, waits=self.durable)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(real)
            raise


class LocalOutput:
    """One file being written."""

    def __init__(self, path: str, real: str, file: BinaryIO) -> None:
        self._path = path
        self._real = real
        self._file = file
        self._written = 0

    @property
    def closed(self) -> bool:
        """Whether it is closed or aborted."""
        return self._file.closed

    def write(self, data: Any) -> int:
        """Append bytes."""
        with naming_path(self._path):
            self._file.write(data)
        size = memoryview(data).nbytes
        self._written += size
        return size

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._written

    def flush(self) -> None:
        """Hand what is buffered to the operating system."""
        with naming_path(self._path):
            self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        with naming_path(self._path):
            self._file.close()

    def abort(self) -> None:
        """Close and remove the file."""
        with contextlib.suppress(OSError):  # a full disk may refuse the last buffer
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._real)


def _status(path: str, status: os.stat_result) -> FileStatus:
    return FileStatus(
        path=path,
        size=status.st_size,
        modified_millis=status.st_mtime_ns // 1_000_000,
        is_directory=stat.S_ISDIR(status.st_mode),
    )


def _unlink(directory: int, name: str) -> None:
    os.unlink(name, dir_fd=directory)


def _read_all(descriptor: int, offset: int, length: int | None) -> bytes:
    remaining = os.fstat(descriptor).st_size - offset
    remaining = remaining if length is None else min(remaining, length)
    pieces = []
    while remaining > 0 and (piece := os.pread(descriptor, remaining, offset)):
        pieces.append(piece)
        remaining -= len(piece)
        offset += len(piece)
    return b"".join(pieces)

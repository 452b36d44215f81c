"""The FileIO protocol: what the engine asks of storage, and what storage promises.

Every path is relative to the storage's root, in POSIX spelling. `check_path` refuses strings that
are none; adapters also refuse links that lead out of the root.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from lsm_engine.base.errors import UnsafePathError
from lsm_engine.base.record import record


@record
class FileStatus:
    """One directory entry. `modified_millis` is the storage's own clock; links are not followed."""

    path: str
    size: int
    modified_millis: int
    is_directory: bool

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


class Output(Protocol):
    """A new file that is being written. File-like enough for PyArrow's writers."""

    @property
    def closed(self) -> bool:
        """Whether `close` or `abort` was called."""
        ...

    def write(self, data: Any) -> int:
        """Append bytes; return how many."""
        ...

    def tell(self) -> int:
        """Return the bytes written so far."""
        ...

    def flush(self) -> None:
        """Hand what is buffered to the storage; no guarantee against power cuts."""
        ...

    def close(self) -> None:
        """Finish the file; it now exists with everything written to it."""
        ...

    def abort(self) -> None:
        """Give the file up and remove it. Never raises for storage errors; harmless when closed."""
        ...


class FileIO(Protocol):
    """Storage of immutable files under one root.

    Missing files raise NotFoundError, paths that are not safe UnsafePathError before anything is
    touched, everything else that fails StorageError naming the path. Directories come into being
    with their first file. Nothing here deletes more than the one path it names.
    """

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes from `offset`; fewer than `length` only where the file ends."""
        ...

    def open_input(self, path: str) -> Any:
        """Return a seekable binary file that PyArrow's readers accept; the caller closes it."""
        ...

    def prefetch(self, path: str) -> None:
        """Fetch a file meanwhile, if that can be done: it is going to be read soon, all of it.

        Reports nothing about the file, not even that it is missing; may do nothing.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file nobody has seen yet. Not atomic: readers learn of it from a snapshot.

        Raises AlreadyExistsError, with nothing changed, if the path is taken.
        """
        ...

    def open_output(self, path: str) -> Output:
        """Start a new file piece by piece; raises AlreadyExistsError if the path is taken."""
        ...

    def publish(self, path: str, data: bytes) -> bool:
        """Create `path` with all of `data` atomically; False, and no change, if it exists.

        StorageError: it is known not to be there. CommitUnknownError: the answer was lost, so the
        caller must look, not guess, and must not delete what the file would refer to.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Create or overwrite `path` atomically. Only for hints: the last writer wins."""
        ...

    def delete(self, path: str) -> bool:
        """Remove one file; False if it was not there. Directories are refused (StorageError)."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file is at `path`; raises StorageError rather than guess."""
        ...

    def status(self, path: str) -> FileStatus:
        """Return what the storage knows about a file or directory."""
        ...

    def list(self, directory: str) -> list[FileStatus]:
        """Return a directory's entries by name; none if there is no such directory.

        The root is "". Any other failure raises: a listing is complete or it is an error.
        """
        ...

    def sync(self, paths: Iterable[str]) -> None:
        """Return when these files, and the directories that lead to them, survive a power cut.

        Storage that does not wait for disks looks for each of them all the same: one that is missing
        raises NotFoundError. A directory may be named for what was deleted from it.
        """
        ...

    def remove_empty_directory(self, directory: str) -> bool:
        """Remove a directory; False, and no change, if it is absent or holds anything."""
        ...


_NO_PARTS = frozenset({"", ".", ".."})


def check_path(path: str) -> str:
    """Return `path` if it is a safe relative path; raise UnsafePathError otherwise."""
    parts = path.split("/")
    if (
        not path
        or "\0" in path
        or "\\" in path
        or not _NO_PARTS.isdisjoint(parts)
        or not _is_text(path)
    ):
        raise UnsafePathError(
            "a path must be relative, in plain parts, without '..', backslashes or NUL", path=path
        )
    return path


def check_name(name: str) -> str:
    """Return `name` if it is one safe path part; raise UnsafePathError otherwise.

    File names in manifests and snapshots are other people's words: they pass through here.
    """
    if "/" in name:
        raise UnsafePathError("a file name must not hold a path", name=name)
    return check_path(name)


def _is_text(path: str) -> bool:
    if path.isascii():
        return True
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True

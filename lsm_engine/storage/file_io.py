"""The FileIO protocol: what the engine asks of storage, and what storage promises.

Every path is relative to the storage's root, in POSIX spelling. `check_path` refuses strings that
are none; adapters also refuse links that lead out of the root.

Calls differ in cost: on an object store each is a request. So sizes may be passed where they are known, and `facts` has
what a caller may leave out."""

import contextlib
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field as attribute
from typing import Any, Protocol

from lsm_engine.base.errors import (
    AlreadyExistsError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsafePathError,
)
from lsm_engine.base.record import record
from lsm_engine.format.unfinished_upload import UnfinishedUpload

# -- Errors of the operating system as errors of the engine ----------------------------------------

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space (expire_snapshots and remove_orphan_files need none), then retry",
    errno.EDQUOT: "the disk quota is used up; free space, then retry",
    errno.EFBIG: "the file is too large for this disk; lower target-file-size",
    errno.EACCES: "no permission; give this user access to it",
    errno.EPERM: "not permitted; check the owner, and that the file system has hard links",
    errno.EROFS: "the file system is read-only; remount it for writing",
    errno.EMFILE: "too many open files in this process; raise its limit (ulimit -n)",
    errno.ENFILE: "too many open files on this machine; close some, then retry",
    errno.ENAMETOOLONG: "the path is too long for this file system; shorten names and partition values",
    errno.EISDIR: "a directory is where a file should be; move it away",
    errno.ENOTDIR: "a file is where a directory should be; move it away",
    errno.ENOTSUP: "the file system lacks this operation (hard links?); use another one",
    errno.EMLINK: "the file system has no room for another link; use another one",
    errno.EIO: "the disk failed; check it, then retry",
    errno.ENOMEM: "there is not enough memory; give the process more, then retry",
    errno.ETIMEDOUT: "the storage did not answer in time; retry",
}


def check_path_text(path: str) -> None:
    """Raise UnsafePathError for a path that no operating system takes: with NUL, or half characters."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as cause:
        raise UnsafePathError(
            "the path holds half of a character; correct it", path=path
        ) from cause
    if b"\0" in encoded:
        raise UnsafePathError("the path holds a NUL; correct it", path=path)


def to_storage_error(path: str, cause: OSError) -> LsmError:
    """Return the error to raise, `from cause`, when the operating system refused something."""
    if isinstance(cause, FileNotFoundError):
        return NotFoundError("no such file", path=path)
    if isinstance(cause, FileExistsError):
        return AlreadyExistsError("a file is already there; nothing was changed", path=path)
    # Arrow gives the error of the system as text alone.
    code = cause.errno or (errno.ENOMEM if os.strerror(errno.ENOMEM) in str(cause) else 0)
    if not code:
        return StorageError(f"the storage failed: {cause}; check it, then retry", path=path)
    remedy = _REMEDIES.get(code, "the storage failed; check it, then retry")
    return StorageError(remedy, path=path, errno=errno.errorcode.get(code, str(code)))


@contextlib.contextmanager
def naming_path(path: str) -> Iterator[None]:
    """Raise what the operating system refuses in the block as an error that names a path."""
    try:
        yield
    except OSError as cause:
        raise to_storage_error(path, cause) from cause


# -- The FileIO protocol ---------------------------------------------------------------------------


@record
class FileStatus:
    """One directory entry. `modified_millis` is the storage's own clock; links are not followed.

    `tag`: what the store names the content by (an ETag), other with each content; None where it does not.
    """

    path: str
    size: int
    modified_millis: int
    is_directory: bool
    tag: str | None = attribute(default=None, compare=False)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@record
class StoreFacts:
    """The properties of a store, by which callers avoid work that it does not need.

    `lists_are_consistent`: a listing is complete, asked once. `has_directories`: they exist without
    files, and have times. `is_remote`: a call costs a network request.
    """

    lists_are_consistent: bool = False
    has_directories: bool = True
    is_remote: bool = False


class Noted(bytes):
    """The bytes of a file, with the note that the store keeps beside them (FileIO.replace)."""

    note: str = ""


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
    with their first file. Nothing here deletes more than the paths it names.

    `storage/bulk` has what is composed of these calls, and `OneByOne`, a base class with calls that many stores make
    of others. What only some stores can do is in the classes below: Prefetching, Batching, UploadsInParts.
    """

    @property
    def facts(self) -> StoreFacts:
        """The guarantees of the store, and the cost of a call."""
        ...

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes from `offset`; fewer than `length` only where the file ends."""
        ...

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a seekable binary file that PyArrow's readers accept; the caller closes it.

        `size`: of the file, in bytes, where it is known: saves a remote store a request.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file that no process has seen, under a name that no other makes.

        Not atomic: readers learn of it from a snapshot. Stores with directories raise
        AlreadyExistsError, with nothing changed, if the path is taken; others overwrite.
        """
        ...

    def open_output(self, path: str) -> Output:
        """Start a new file piece by piece; a taken path is treated as `write_new` does."""
        ...

    def publish(self, path: str, data: bytes) -> bool:
        """Create `path` with all of `data` atomically; False, and no change, if it exists.

        StorageError: it is known not to be there. CommitUnknownError: the answer was lost, so the
        caller must look, not guess, and must not delete what the file would refer to.
        """
        ...

    def replace(self, path: str, data: bytes, *, may_skip: bool = False, note: str = "") -> None:
        """Create or overwrite `path` atomically. Only for hints: the last writer wins.

        `may_skip`: a store that throttles writes to one name may give up at once (StorageError), and
        a power cut may take what was written. `note`: up to 1,900 bytes of ASCII that `read` may return
        with the bytes, which are then `Noted`; it is lost where the store has no place for it.
        """
        ...

    def change_if_unchanged(self, path: str, data: bytes | None, *, expected: bytes) -> bool:
        """Replace a file's content by `data`, or delete it (None), in one atomic step if it still is `expected`.

        Returns False, with no change, if it is another one or missing. Tags, branches and consumers change by this call:
        of any number of callers of it and of `publish`, one wins. A `replace` or `delete` of the same file breaks that
        on some stores. Each content has an id of its own, which shows its writer.

        Raises StorageError where nothing changed, and CommitUnknownError where the answer was lost and a look at the
        file did not show the outcome.
        """
        ...

    def delete(self, path: str) -> bool:
        """Remove one file; False if it was not there. Directories are refused (StorageError).

        Where deletes are silent, several who delete at once may all get True.
        """
        ...

    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove files; those that are not there are no error. Raises once all have been tried."""
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

    def list_files(self, directory: str) -> Iterator[FileStatus]:
        """Yield every file below a directory, in no particular order, from listings page by page."""
        ...

    def now_millis(self) -> int:
        """Return the time by the clock that stamps files: milliseconds since 1970-01-01 UTC."""
        ...

    def sync(self, paths: Iterable[str]) -> None:
        """Return when these files, and the directories that lead to them, survive a power cut.

        Storage that does not wait for disks looks for each of them all the same: one that is missing
        raises NotFoundError.
        """
        ...

    def remove_empty_directory(self, directory: str) -> bool:
        """Remove a directory; False, and no change, if it is absent or holds anything.

        Without directories there is nothing to do: True.
        """
        ...


# -- What some stores offer besides ----------------------------------------------------------------
#
# A store inherits from the classes whose calls it has. Functions of `storage/bulk` make these calls on such a store,
# and do nothing on others.


class Prefetching(ABC):
    """Storage that fetches files ahead of their reads."""

    @abstractmethod
    def prefetch(self, path: str) -> None:
        """Begin to fetch a file that will soon be read as a whole.

        The call reports nothing about the file, not even that it is missing. It may do nothing.
        """

    @abstractmethod
    def forget_prefetched(self, paths: Iterable[str]) -> None:
        """Drop the prefetched bytes of files that will not be read."""


class Batching(ABC):
    """Storage that answers many questions by a few concurrent requests, and writes behind the caller."""

    @abstractmethod
    def writing_behind(self) -> FileIO:
        """Return storage whose outputs may be closed before their files are there.

        `sync`, of this storage or of that, waits for the files and raises the errors of their writes; so do a read and a
        deletion of one. Callers sync every path before a snapshot names the files.
        """

    @abstractmethod
    def gathered(
        self, directories: Sequence[str], paths: Iterable[str] = (), *, below: str | None = None
    ) -> FileIO:
        """Return storage that may answer as of now for some directories of small documents.

        For callers that read most of the documents, in any order. `paths`: documents that are likely to exist.
        `below`: the parent of the directories, if it holds few entries; its listing shows which of them exist, and the
        first is likely to. A write or deletion through the returned storage is visible in it. Without directories it
        asks the store for everything.
        """

    @abstractmethod
    def forget_gathered(self, paths: Iterable[str]) -> None:
        """Drop what was gathered or prefetched of some files: the next read asks the store."""


class UploadsInParts(ABC):
    """Storage that keeps the parts of uploads that were never completed. They are no files, but are billed."""

    @abstractmethod
    def unfinished_uploads(self, directory: str) -> Sequence[UnfinishedUpload]:
        """Return the uploads below a directory ("": all) that were begun and not completed.

        Raises UnsupportedError, which names the alternative, where they cannot be listed.
        """

    @abstractmethod
    def abort_uploads(self, uploads: Iterable[UnfinishedUpload]) -> None:
        """Abort uploads; one that has ended meanwhile is no error."""


# -- Paths and names that are safe -----------------------------------------------------------------

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

"""Operating system errors as errors of the engine: which path, what is wrong, what to do."""

import contextlib
import errno
import os
from collections.abc import Iterator

from lsm_engine.base.errors import (
    AlreadyExistsError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsafePathError,
)

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space (expire_snapshots and remove_orphan_files need none), then retry",
    errno.EDQUOT: "the disk quota is used up; free space, then retry",
    errno.EFBIG: "the file is too large for this disk; lower target-file-size",
    errno.EACCES: "no permission; give this user access to it",
    errno.EPERM: "not permitted; check the owner, and that the file system has hard links",
    errno.EROFS: "the file system is read-only; remount it for writing",
    errno.EMFILE: "too many open files in this process; raise its limit (ulimit -n)",
    errno.ENFILE: "too many open files on this machine; close some, then retry",
    errno.ENAMETOOLONG: "the path is too long for this file system; shorten partition values",
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

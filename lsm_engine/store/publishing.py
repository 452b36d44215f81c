"""Create or change a file atomically; if the storage does not report the outcome, read it back.

A content shows who wrote it only where no other process writes the same: names that change hold an id.
"""

from collections.abc import Callable
from contextlib import suppress

from lsm_engine.base.errors import CommitUnknownError, LsmError, NotFoundError
from lsm_engine.io.file_io import FileIO


def published(file_io: FileIO, path: str, data: bytes) -> bool:
    """Create `path` with all of `data`; False if something else has the name.

    Raises CommitUnknownError only if the storage cannot even report whether the file exists.
    """
    try:
        return file_io.publish(path, data)
    except CommitUnknownError:
        try:
            if file_io.exists(path):
                return file_io.read(path) == data
        except LsmError:
            pass  # without an answer the outcome stays unknown
        raise


def replaced(file_io: FileIO, path: str, data: bytes, *, expected: bytes) -> bool:
    """Replace a file's content, which no other has, in one step if it still is `expected`; False otherwise.

    Raises CommitUnknownError if the reply is lost and the file, looked at, holds neither of the two.
    """
    return _changed(
        lambda: file_io.replace_if_unchanged(path, data, expected=expected),
        lambda: _content(file_io, path),
        expected,
        data,
    )


def deleted(file_io: FileIO, path: str, *, expected: bytes) -> bool:
    """Delete a file whose content no other has if it still is `expected`; False otherwise.

    True also where the reply is lost and the file is not there any more. Raises CommitUnknownError if it holds
    something else then.
    """
    return _changed(
        lambda: file_io.delete_if_unchanged(path, expected=expected),
        lambda: _content(file_io, path),
        expected,
        None,
    )


def _changed(
    change: Callable[[], bool],
    look: Callable[[], bytes | None],
    before: bytes,
    after: bytes | None,
) -> bool:
    try:
        return change()
    except CommitUnknownError:
        content = look()
        if content == before:
            # Not applied, or not yet. Once the second request is answered the first can no longer apply.
            with suppress(CommitUnknownError):
                change()
            content = look()
        if content == after:
            return True
        raise


def _content(file_io: FileIO, path: str) -> bytes | None:
    """Return a file's bytes, None if there is none; raises CommitUnknownError if that cannot be found out."""
    try:
        return file_io.read(path)
    except NotFoundError:
        return None
    except LsmError as cause:
        raise CommitUnknownError(
            "the storage did not report whether the file was changed; look before trying again",
            path=path,
        ) from cause

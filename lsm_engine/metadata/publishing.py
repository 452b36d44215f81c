"""Create or change a file atomically; if the storage does not report the outcome, read it back.

A content shows its writer only where no other process writes the same: names that change hold an id."""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress

from lsm_engine.base.errors import (
    CommitUnknownError,
    CorruptFileError,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.base.record import record
from lsm_engine.storage.file_io import FileIO, FileStatus
from lsm_engine.storage.paths import TablePaths, numbered

# -- Listings that maintenance may trust: asked until two answers agree ----------------------------
#
# A storage that answers a listing with nothing, or with half of it, makes retained references vanish, and
# what none of these names is deleted. One wrong answer is seen because the next differs. A storage
# that repeats the same wrong answer looks like an empty directory; snapshots have hints and
# consecutive ids besides (metadata/snapshots.py).

_ASKED_AT_MOST = 6


def _name_the_same(before: list[FileStatus], now: list[FileStatus]) -> bool:
    return _names(before) == _names(now)


def listed_numbers(listed: Iterable[FileStatus], prefix: str) -> list[int]:
    """Return the numbers of the files of a listing with names such as "snapshot-12", in ascending order."""
    numbers = (numbered(status.name, prefix) for status in listed if not status.is_directory)
    return sorted(number for number in numbers if number is not None)


def _names(entries: list[FileStatus]) -> list[tuple[str, bool]]:
    return [(entry.path, entry.is_directory) for entry in entries]


def stable_listing(
    file_io: FileIO,
    directory: str,
    agree: Callable[[list[FileStatus], list[FileStatus]], bool] = _name_the_same,
) -> list[FileStatus]:
    """Return a directory's entries once two answers in a row agree; StorageError if never.

    A store whose lists are consistent is asked once.

    `agree`: what of two answers must be equal (default: everything) where others write meanwhile.
    """
    before = file_io.list(directory)
    if file_io.facts.lists_are_consistent:
        return before
    for _ in range(_ASKED_AT_MOST - 1):
        now = file_io.list(directory)
        if agree(before, now):
            return now
        before = now
    raise StorageError(
        "the storage lists a directory differently each time; nothing was deleted, try again",
        directory=directory,
    )


# -- Create or change a file atomically ------------------------------------------------------------


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
    return _is_changed(file_io, path, data, expected)


def deleted(file_io: FileIO, path: str, *, expected: bytes) -> bool:
    """Delete a file whose content no other has if it still is `expected`; False otherwise.

    True also where the reply is lost and the file is not there any more. Raises CommitUnknownError if it holds
    something else then.
    """
    return _is_changed(file_io, path, None, expected)


def _is_changed(file_io: FileIO, path: str, data: bytes | None, expected: bytes) -> bool:
    try:
        return file_io.change_if_unchanged(path, data, expected=expected)
    except CommitUnknownError:
        content = _content(file_io, path)
        if content == expected:
            # Not applied, or not yet. Once the second request is answered the first can no longer apply.
            with suppress(CommitUnknownError):
                file_io.change_if_unchanged(path, data, expected=expected)
            content = _content(file_io, path)
        if content == data:
            return True
        raise


def _content(file_io: FileIO, path: str) -> bytes | None:
    """Return a file's bytes, None if there is none; raises CommitUnknownError if that cannot be found out."""
    try:
        return file_io.read(path)
    except NotFoundError:
        # For a deletion that is the expected answer.
        return None
    except LsmError as cause:
        # Without an answer neither outcome may be assumed.
        raise CommitUnknownError(
            "the storage did not report whether the file was changed; look before trying again",
            path=path,
        ) from cause


# -- Claims on the files of a branch ---------------------------------------------------------------
#
# A branch has several files, and no call changes them together. So a process that makes, deletes or
# renames one puts a claim, with an id that no other has, in the place of its schema-0: that
# decides whose the name is. Every other file is claimed, too, before it gets its content or is
# deleted, and after all are claimed schema-0 is looked at once more. A process that was stopped
# meanwhile, and goes on in the branch of another, leaves claims there at most, which are void:
# schema-0 does not hold the same one. A file under a void claim reads as what it held before.
# So does schema-0 while the process that renames the branch looks whether it is still the one that
# was copied.

RENAMING = "renaming"
"""Reason of a claim on schema-0 of a branch that is there all the same."""
_START = b'{"lsm-claim":'
_AS_IT_IS = (
    "utf-8",
    "surrogateescape",
)  # a search of the files for a text finds it; damaged ones come back as they are


@record
class Claim:
    """A claim on a file. `before`: the content that it stands in the place of; None: there was no file."""

    claim_id: str
    reason: str
    before: bytes | None = None

    def encoded(self) -> bytes:
        """Return the content of a claimed file, which no client takes for anything else."""
        before = None if self.before is None else self.before.decode(*_AS_IT_IS)
        members = {"lsm-claim": self.claim_id, "reason": self.reason, "before": before}
        return json.dumps(members, ensure_ascii=False).encode(*_AS_IT_IS)


def claim_in(data: bytes, *, file_name: str) -> Claim | None:
    """Return the claim that a file holds; None for any other content. Raises CorruptFileError."""
    if not data.startswith(_START):
        return None
    try:
        members = json.loads(data.decode(*_AS_IT_IS))
        before = members["before"]
        return Claim(
            claim_id=str(members["lsm-claim"]),
            reason=str(members["reason"]),
            before=None if before is None else str(before).encode(*_AS_IT_IS),
        )
    except (ValueError, KeyError, TypeError) as cause:
        raise CorruptFileError(
            "a claim on a branch is not well formed; delete the branch, or restore the file",
            file=file_name,
        ) from cause


def unclaimed(file_io: FileIO, paths: TablePaths, path: str, data: bytes) -> bytes | None:
    """Return what a file of a branch reads as: `data`, unless that is a claim; None: no file.

    Under a void claim that is what it held before, which is put back.
    """
    claim = claim_in(data, file_name=path)
    if claim is None:
        return data
    first = paths.schema_file(0)
    # Schema-0 decides by itself. Under a rename the branch still exists.
    if path == first:
        return claim.before if claim.reason == RENAMING else None
    try:
        content = file_io.read(first)
    except NotFoundError:
        # The name is free, so that the claim is void.
        return claim.before
    owner = claim_in(content, file_name=first)
    if owner is not None:
        # Only the holder's own claims hide a file.
        is_void = owner.claim_id != claim.claim_id or owner.reason == RENAMING
        return claim.before if is_void else None
    with suppress(LsmError):  # a process that may only read goes by what it held
        file_io.change_if_unchanged(path, claim.before, expected=data)
    return claim.before

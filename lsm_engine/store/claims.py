"""Claims: what the files of a branch hold while somebody makes the branch or takes it away.

A branch has several files, and no call changes them together. So whoever makes, deletes or renames one puts a claim,
with an id that no other has, in the place of its schema-0: that decides whose the name is. Every other file is
claimed, too, before it gets its content or is deleted, and after all are claimed schema-0 is looked at once more. Whoever
was stopped meanwhile, and goes on in the branch of another, leaves claims there at most, which are void: schema-0 does not
hold the same one. A file under a void claim reads as what it held before. So does schema-0 while whoever has renamed
the branch looks whether it is still the one that was copied.
"""

import json
from contextlib import suppress

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import TablePaths

RENAMING = "renaming"
"""Reason of a claim on schema-0 of a branch that is there all the same."""
_START = b'{"lsm-claim":'
_AS_IT_IS = (
    "utf-8",
    "surrogateescape",
)  # whoever searches files for a text finds it; damaged ones come back as they are


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
    if path == first:
        return claim.before if claim.reason == RENAMING else None
    try:
        content = file_io.read(first)
    except NotFoundError:
        return claim.before
    owner = claim_in(content, file_name=first)
    if owner is not None:
        is_void = owner.claim_id != claim.claim_id or owner.reason == RENAMING
        return claim.before if is_void else None
    with suppress(LsmError):  # whoever may only read goes by what it held
        if claim.before is None:
            file_io.delete_if_unchanged(path, expected=data)
        else:
            file_io.replace_if_unchanged(path, claim.before, expected=data)
    return claim.before

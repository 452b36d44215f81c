"""Single calls of the library: what is asked of an object store, and what its answers mean."""

from collections.abc import Callable, Sequence
from typing import Any

import obstore

from lsm_engine.io.file_io import FileStatus, Noted
from lsm_engine.io.object_answers import Answer, answer_of
from lsm_engine.io.object_output import PART_BYTES
from lsm_engine.io.object_requests import FAILURES

_NOTE = "lsmnote"  # a name of metadata that every store takes


def read_start(client: Any, key: str, length: int | None) -> bytes:
    """Return a file's first bytes; of a larger one no more is fetched than that."""
    found = obstore.get(client, key)
    if length is None or found.meta["size"] <= length:
        note = found.attributes.get(_NOTE, "")
        if not note:
            return bytes(found.bytes())
        data = Noted(found.bytes())
        data.note = note
        return data
    pieces = bytearray()
    for piece in found.stream(min_chunk_size=min(length, PART_BYTES)) if length else ():
        pieces += piece
        if len(pieces) >= length:
            break
    return bytes(pieces[:length])


def part_of(data: bytes, offset: int, length: int | None) -> bytes:
    """Return some of what was read before; all of it with its note."""
    end = len(data) if length is None else offset + length
    return data if offset == 0 and end >= len(data) else data[offset:end]


def read_tagged(client: Any, key: str) -> tuple[bytes, str | None]:
    """Return a file's bytes, and the tag of this content."""
    found = obstore.get(client, key)
    return bytes(found.bytes()), tag_of(found.meta)


def put_object(
    client: Any, key: str, data: bytes, mode: Any = "overwrite", *, note: str = ""
) -> str | None:
    """Write an object by one request; return the tag of its content. `note`: becomes metadata."""
    kept: Any = {_NOTE: note} if note else None
    return tag_of(obstore.put(client, key, data, mode=mode, use_multipart=False, attributes=kept))


def tag_of(found: Any) -> str | None:
    """Return the tag in an answer or an entry, without quotes: some stores have them in one of the two."""
    tag = found.get("e_tag")
    return tag.strip('"') if tag else None


def delete_objects(client: Any, keys: Sequence[str]) -> None:
    """Delete objects by one request; those that are not there are no error."""
    try:
        obstore.delete(client, keys if len(keys) > 1 else keys[0])
    except FAILURES as cause:
        if len(keys) > 1 or answer_of(cause) is not Answer.MISSING:
            raise


def status_of(path: str, found: Any) -> FileStatus:
    """Return what a listing or a HEAD has of an object."""
    return FileStatus(
        path=path,
        size=found["size"],
        # Google lists fractions of a second, which the answer to a HEAD lacks.
        modified_millis=1000 * int(found["last_modified"].timestamp()),
        is_directory=False,
        tag=tag_of(found),
    )


def entries_of(found: Any, key: str, path_of: Callable[[str], str]) -> list[FileStatus]:
    """Return the objects and common prefixes in the listing of a directory, by name."""
    # Consoles make an object of the directory's own name, and a slash that the library takes off.
    objects = (one for one in found["objects"] if one["path"] != key)
    files = [status_of(path_of(one["path"]), one) for one in objects]
    directories = [
        FileStatus(path=path_of(prefix), size=0, modified_millis=0, is_directory=True)
        for prefix in found["common_prefixes"]
    ]
    return sorted([*files, *directories], key=lambda status: status.path)

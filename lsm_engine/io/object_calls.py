"""Single calls of the library to an object store, and its answers as values."""

from collections.abc import Callable, Sequence
from typing import Any

import obstore

from lsm_engine.io.file_io import FileStatus, Noted
from lsm_engine.io.object_answers import Answer, answer_of
from lsm_engine.io.object_output import PART_BYTES
from lsm_engine.io.object_requests import FAILURES

_NOTE = "lsmnote"  # a name of metadata that every store takes


def read_start(client: Any, key: str, length: int | None) -> bytes:
    """Return a file's first bytes; the rest of a larger file is not fetched."""
    answer = obstore.get(client, key)
    if length is None or answer.meta["size"] <= length:
        note = answer.attributes.get(_NOTE, "")
        if not note:
            return bytes(answer.bytes())
        data = Noted(answer.bytes())
        data.note = note
        return data
    pieces = bytearray()
    for piece in answer.stream(min_chunk_size=min(length, PART_BYTES)) if length else ():
        pieces += piece
        if len(pieces) >= length:
            break
    return bytes(pieces[:length])


def part_of(data: bytes, offset: int, length: int | None) -> bytes:
    """Return a range of a file's bytes; all of them with their note."""
    end = len(data) if length is None else offset + length
    return data if offset == 0 and end >= len(data) else data[offset:end]


def read_tagged(client: Any, key: str) -> tuple[bytes, str | None]:
    """Return a file's bytes and the tag of the content."""
    answer = obstore.get(client, key)
    return bytes(answer.bytes()), tag_of(answer.meta)


def put_object(
    client: Any, key: str, data: bytes, mode: Any = "overwrite", *, note: str = ""
) -> str | None:
    """Write an object by one request; return the tag of its content. `note`: becomes metadata."""
    attributes: Any = {_NOTE: note} if note else None
    return tag_of(
        obstore.put(client, key, data, mode=mode, use_multipart=False, attributes=attributes)
    )


def tag_of(meta: Any) -> str | None:
    """Return the tag in an answer or a listing, without quotes: some stores quote it in one of the two."""
    tag = meta.get("e_tag")
    return tag.strip('"') if tag else None


def delete_objects(client: Any, keys: Sequence[str]) -> None:
    """Delete objects by one request; missing ones are no error."""
    try:
        obstore.delete(client, keys if len(keys) > 1 else keys[0])
    except FAILURES as cause:
        if len(keys) > 1 or answer_of(cause) is not Answer.MISSING:
            raise


def status_of(path: str, meta: Any) -> FileStatus:
    """Return the status of an object from a listing or a HEAD."""
    return FileStatus(
        path=path,
        size=meta["size"],
        # Google lists fractions of a second, which the answer to a HEAD lacks.
        modified_millis=1000 * int(meta["last_modified"].timestamp()),
        is_directory=False,
        tag=tag_of(meta),
    )


def entries_of(listing: Any, key: str, path_of: Callable[[str], str]) -> list[FileStatus]:
    """Return the objects and common prefixes in the listing of a directory, by name."""
    # Consoles create an object named as the directory and a slash, which the library strips.
    objects = (entry for entry in listing["objects"] if entry["path"] != key)
    files = [status_of(path_of(entry["path"]), entry) for entry in objects]
    directories = [
        FileStatus(path=path_of(prefix), size=0, modified_millis=0, is_directory=True)
        for prefix in listing["common_prefixes"]
    ]
    return sorted([*files, *directories], key=lambda status: status.path)

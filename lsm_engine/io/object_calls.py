"""Single calls of the library: what is asked of an object store, and what its answers mean."""

from collections.abc import Sequence
from typing import Any

import obstore

from lsm_engine.io.file_io import FileStatus
from lsm_engine.io.object_answers import Answer, answer_of
from lsm_engine.io.object_output import PART_BYTES
from lsm_engine.io.object_requests import FAILURES


def read_start(client: Any, key: str, length: int | None) -> bytes:
    """Return a file's first bytes; of a larger one no more is fetched than that."""
    found = obstore.get(client, key)
    if length is None or found.meta["size"] <= length:
        return bytes(found.bytes())
    pieces = bytearray()
    for piece in found.stream(min_chunk_size=min(length, PART_BYTES)) if length else ():
        pieces += piece
        if len(pieces) >= length:
            break
    return bytes(pieces[:length])


def put_object(client: Any, key: str, data: bytes, mode: Any = "overwrite") -> None:
    """Write an object by one request."""
    obstore.put(client, key, data, mode=mode, use_multipart=False)


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
    )

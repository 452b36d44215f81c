"""Files that hold a snapshot under its number, and hints beside them: snapshot/ and changelog/ alike."""

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError
from lsm_engine.codec.documents import HINT_BYTES, decode_hint, decode_snapshot
from lsm_engine.codec.json_object import READ_MAX
from lsm_engine.io.file_io import FileIO
from lsm_engine.meta.snapshot import Snapshot


def found_snapshot(
    file_io: FileIO, path: str, snapshot_id: int, *, if_another: str
) -> Snapshot | None:
    """Return the snapshot in a file, or None if there is no file.

    Raises CorruptFileError, with text `if_another`, where the file holds another snapshot's id.
    """
    try:
        data = file_io.read(path, length=READ_MAX)
    except NotFoundError:
        return None
    found = decode_snapshot(data, file_name=path)
    if found.id != snapshot_id:
        raise CorruptFileError(if_another, file=path, id=found.id)
    return found


def hinted_id(file_io: FileIO, path: str) -> int | None:
    """Return the id in a hint file, unchecked; None if it has none: list the directory then."""
    try:
        return decode_hint(file_io.read(path, length=HINT_BYTES))
    except LsmError:
        return None

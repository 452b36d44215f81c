"""Files that hold a snapshot under its number, and hints beside them: snapshot/ and changelog/ alike."""

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError
from lsm_engine.codec.documents import HINT_BYTES, decode_hint, decode_snapshot
from lsm_engine.codec.json_object import READ_MAX
from lsm_engine.io.file_io import FileIO, FileStatus, Noted
from lsm_engine.io.paths import SNAPSHOT_PREFIX, TablePaths, numbered
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import follows, named_base
from lsm_engine.store.claims import unclaimed


def found_snapshot(
    file_io: FileIO, paths: TablePaths, path: str, snapshot_id: int, *, if_another: str
) -> Snapshot | None:
    """Return the snapshot in a file, or None if there is no file, or none yet (store/claims).

    Raises CorruptFileError, with text `if_another`, where the file holds another snapshot's id.
    """
    try:
        data = unclaimed(file_io, paths, path, file_io.read(path, length=READ_MAX))
    except NotFoundError:
        return None
    if data is None:
        return None
    return decoded_snapshot(data, path, snapshot_id, if_another=if_another)


def decoded_snapshot(data: bytes, path: str, snapshot_id: int, *, if_another: str) -> Snapshot:
    """Return the snapshot that a file's bytes hold; raises as `found_snapshot`."""
    snapshot = decode_snapshot(data, file_name=path)
    if snapshot.id != snapshot_id:
        raise CorruptFileError(if_another, file=path, id=snapshot.id)
    return snapshot


def hinted_id(file_io: FileIO, path: str) -> int | None:
    """Return the id in a hint file, unchecked; None if it has none: list the directory then."""
    return hinted(file_io, path)[0]


def hinted(file_io: FileIO, path: str) -> tuple[int | None, str]:
    """Return the id in a hint file, or None, and the note that is kept beside it, or none ("")."""
    try:
        data = file_io.read(path, length=HINT_BYTES)
        return decode_hint(data), data.note if isinstance(data, Noted) else ""
    except LsmError:
        return None, ""


def ids_of(listed: list[FileStatus]) -> list[int]:
    """Return the ids of the snapshot files of a listing, in ascending order."""
    numbers = (
        numbered(status.name, SNAPSHOT_PREFIX) for status in listed if not status.is_directory
    )
    return sorted(number for number in numbers if number is not None)


def are_of_one_history(before: list[FileStatus], now: list[FileStatus]) -> bool:
    """Whether two listings have the same ids in between: above, commits add; below, expiry takes."""
    earlier, later = ids_of(before), ids_of(now)
    if not earlier or not later:
        return not earlier and not later
    low, high = max(earlier[0], later[0]), min(earlier[-1], later[-1])
    return low <= high and _between(earlier, low, high) == _between(later, low, high)


def _between(ids: list[int], low: int, high: int) -> list[int]:
    return [number for number in ids if low <= number <= high]


def require_base(snapshot: Snapshot, below: Snapshot | None, path: str) -> None:
    """Raise CorruptFileError if a snapshot was made on another than the one below it.

    Nobody may build on it then: the file below is lost, one of the two is another branch's, or LATEST, of a commit
    that was rolled back, names for a moment one that never counted. `path` is that of the file below.
    """
    if named_base(snapshot) is not None and (below is None or not follows(snapshot, below)):
        raise CorruptFileError(
            f"the snapshot is missing that snapshot {snapshot.id} was made on; try again, as a rollback or an expiry "
            "may be under way; if it is lost, restore the file, or roll back to one below",
            file=path,
            snapshot_id=snapshot.id,
        )

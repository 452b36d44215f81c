"""Snapshots: the newest, the oldest, one by number; and the one atomic call that makes a commit visible.

The files are the truth. LATEST and EARLIEST are advice that is checked before it is followed, as they
may be stale, torn or missing. Nothing is cached: after a rollback the next commit uses an id again.
"""

from collections.abc import Iterator

from lsm_engine.base.errors import (
    ErrorKind,
    ExpiredError,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.codec.documents import encode_hint, encode_snapshot
from lsm_engine.io.file_io import FileIO, FileStatus
from lsm_engine.io.paths import EARLIEST, LATEST, SNAPSHOT_PREFIX, TablePaths, numbered
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.store.listing import stable_listing
from lsm_engine.store.publishing import published
from lsm_engine.store.snapshot_files import found_snapshot, hinted_id

_RACES = 10  # times that a reader follows a moving table before it gives up
_GAPS_LOOKED_UP = 10_000  # missing ids that maintenance asks for one by one


class SnapshotStore:
    """The snapshots of one table or branch."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._paths = paths

    # Which there are.

    def latest_id(self) -> int | None:
        """Return the newest id, or None before the first commit.

        One hint and two probes in the ordinary case; a listing where the hint is not exact.
        """
        hint = self._hint(LATEST)
        if hint is not None and self.exists(hint) and not self.exists(hint + 1):
            return hint
        newest = max(self.ids(), default=None)
        # A listing may be older than a commit that just landed.
        while newest is not None and self.exists(newest + 1):
            newest += 1
        return newest

    def earliest_id(self) -> int | None:
        """Return the oldest id, or None before the first commit."""
        hint = self._hint(EARLIEST)
        if hint is not None and self.exists(hint) and not self.exists(hint - 1):
            return hint
        return min(self.ids(), default=None)

    def earliest_hint(self) -> int | None:
        """Return what EARLIEST says, unchecked; None if it says nothing.

        Expiry moves it before it reads any root: a smaller id is being taken, or is gone.
        """
        return self._hint(EARLIEST)

    def ids(self) -> list[int]:
        """Return every id there is, oldest first, from a listing; what maintenance goes by."""
        return _ids_of(self._file_io.list(self._paths.snapshot_directory))

    def exists(self, snapshot_id: int) -> bool:
        """Whether there is a snapshot of this id."""
        return snapshot_id > 0 and self._file_io.exists(self._paths.snapshot_file(snapshot_id))

    # What they say.

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot, or None before the first commit."""
        for _ in range(_RACES):
            newest = self.latest_id()
            if newest is None:
                return None
            found = self.find(newest)  # a rollback may have taken it since
            if found is not None:
                return found
        raise NotFoundError(
            "the newest snapshot keeps vanishing; is somebody rolling the table back?",
            kind=ErrorKind.NO_SUCH_SNAPSHOT,
            directory=self._paths.snapshot_directory,
        )

    def earliest(self) -> Snapshot | None:
        """Return the oldest snapshot, or None before the first commit."""
        return next(iter(self.oldest_first()), None)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot, or None if there is none of this id; raises CorruptFileError."""
        if snapshot_id <= 0:
            return None
        return found_snapshot(
            self._file_io,
            self._paths.snapshot_file(snapshot_id),
            snapshot_id,
            if_another="a snapshot file holds another snapshot; restore it",
        )

    def load(self, snapshot_id: int) -> Snapshot:
        """Return a snapshot. ExpiredError: retention took it. NotFoundError: it never was."""
        found = self.find(snapshot_id)
        if found is not None:
            return found
        earliest = self.earliest_id()
        if earliest is not None and 0 < snapshot_id < earliest:
            raise ExpiredError(
                f"snapshot {snapshot_id} has expired; the oldest is {earliest}, or read a tag",
                snapshot_id=snapshot_id,
                earliest_id=earliest,
            )
        raise NotFoundError(
            f"no snapshot {snapshot_id}; the newest is {self.latest_id()}",
            kind=ErrorKind.NO_SUCH_SNAPSHOT,
            snapshot_id=snapshot_id,
        )

    def oldest_first(self) -> Iterator[Snapshot]:
        """Yield the snapshots there are; ones that expire meanwhile are left out."""
        for snapshot_id in self.ids():
            found = self.find(snapshot_id)
            if found is not None:
                yield found

    def all(self) -> list[Snapshot]:
        """Return every snapshot, oldest first."""
        return list(self.oldest_first())

    def stable_listing(self) -> list[Snapshot]:
        """Return every snapshot, oldest first, as maintenance has to know them.

        A listing is asked twice: the answers have to agree on the ids between the ends, where nothing
        comes or goes while others commit and expire. It is then compared with what ids and hints say:
        gaps and both ends are looked up one by one. Raises StorageError where a hint names a snapshot
        that is there and the listing is empty: then no answer of the storage can be believed.
        """
        found = _ids_of(
            stable_listing(self._file_io, self._paths.snapshot_directory, _are_of_one_history)
        )
        if not found:
            hints = (self._hint(LATEST), self._hint(EARLIEST))
            if any(hint is not None and self.exists(hint) for hint in hints):
                raise StorageError(
                    "the storage lists no snapshots, and there are some; nothing was deleted",
                    directory=self._paths.snapshot_directory,
                )
            return []
        while self.exists(found[-1] + 1):
            found.append(found[-1] + 1)
        while self.exists(found[0] - 1):
            found.insert(0, found[0] - 1)
        if found[-1] - found[0] < len(found) + _GAPS_LOOKED_UP:
            found = list(range(found[0], found[-1] + 1))
        return [snapshot for snapshot in map(self.find, found) if snapshot is not None]

    def newest_first(self, limit: int | None = None) -> Iterator[Snapshot]:
        """Yield snapshots backwards from the newest, at most `limit`, until there is none below."""
        found = self.latest()
        count = 0
        while found is not None and (limit is None or count < limit):
            yield found
            count += 1
            found = self.find(found.id - 1)

    def latest_at(self, millis: int) -> Snapshot | None:
        """Return the newest snapshot made at or before a time; None if all are younger."""
        return next((each for each in self.newest_first() if each.time_millis <= millis), None)

    # Making and taking them.

    def publish(self, snapshot: Snapshot) -> bool:
        """Make a snapshot visible; False if somebody else has its id, and nothing changed.

        Raises CommitUnknownError if the storage did not answer: look with `find` before anything is
        deleted, and call `announce` if it turns out to have landed. Hints never fail a commit.
        """
        path = self._paths.snapshot_file(snapshot.id)
        if not self._file_io.publish(path, encode_snapshot(snapshot)):
            return False
        self.announce(snapshot.id)
        return True

    def publish_only(self, snapshot: Snapshot) -> bool:
        """Make a snapshot visible and leave the hints alone; a lost answer is looked up."""
        path = self._paths.snapshot_file(snapshot.id)
        return published(self._file_io, path, encode_snapshot(snapshot))

    def announce(self, snapshot_id: int) -> None:
        """Point LATEST at a snapshot that has landed, and EARLIEST if it is the first.

        Looks once more after writing: of two writers the slower one would else leave its smaller
        id. Whoever writes last sees what landed before, so the hint ends up exact.
        """
        try:
            if snapshot_id == 1:
                self.hint_earliest(snapshot_id)
            self.hint_latest(snapshot_id)
            while self.exists(snapshot_id + 1):
                while self.exists(snapshot_id + 1):
                    snapshot_id += 1
                self.hint_latest(snapshot_id)
        except LsmError:
            return  # the snapshot stands; readers check hints, and the next commit mends this one

    def hint_latest(self, snapshot_id: int) -> None:
        """Write LATEST."""
        self._write_hint(LATEST, snapshot_id)

    def forget_latest(self) -> None:
        """Take LATEST away: until it is written again, everybody lists."""
        self._file_io.delete(self._paths.snapshot_hint(LATEST))

    def hint_earliest(self, snapshot_id: int) -> None:
        """Write EARLIEST. Expiry moves it before it deletes the older snapshots."""
        self._write_hint(EARLIEST, snapshot_id)

    def delete(self, snapshot_id: int) -> bool:
        """Delete one snapshot file and nothing that it names; False if it was not there."""
        return self._file_io.delete(self._paths.snapshot_file(snapshot_id))

    def _write_hint(self, hint: str, snapshot_id: int) -> None:
        self._file_io.replace(self._paths.snapshot_hint(hint), encode_hint(snapshot_id))

    def _hint(self, hint: str) -> int | None:
        return hinted_id(self._file_io, self._paths.snapshot_hint(hint))


def _ids_of(listed: list[FileStatus]) -> list[int]:
    found = (numbered(one.name, SNAPSHOT_PREFIX) for one in listed if not one.is_directory)
    return sorted(number for number in found if number is not None)


def _are_of_one_history(before: list[FileStatus], now: list[FileStatus]) -> bool:
    """Whether two listings have the same ids in between: above, commits add; below, expiry takes."""
    one, other = _ids_of(before), _ids_of(now)
    if not one or not other:
        return not one and not other
    low, high = max(one[0], other[0]), min(one[-1], other[-1])
    return low <= high and _between(one, low, high) == _between(other, low, high)


def _between(ids: list[int], low: int, high: int) -> list[int]:
    return [number for number in ids if low <= number <= high]

"""EARLIEST and LATEST of the snapshots of one table or branch, read unchecked and written by who knows, and ids."""

from collections.abc import Callable, Iterable

from lsm_engine.base.errors import CorruptFileError, LsmError, StorageError, UnsupportedError
from lsm_engine.codec.documents import encode_hint
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import EARLIEST, LATEST, TablePaths
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.named_manifests import note_of_files, noted_files, noted_state
from lsm_engine.store.listing import stable_listing
from lsm_engine.store.publishing import published
from lsm_engine.store.snapshot_files import are_of_one_history, hinted, ids_of

GAPS_LOOKED_UP = 10_000
"""Missing ids that are asked for one by one."""

Expect = Callable[[Iterable[str]], None]
"""Has manifests and lists of these names fetched beside, unless they are kept already."""
_NO_NOTES = (400, 413, 431, 501)
"""Status of the answer of a store that takes no metadata, or not as much."""


class SnapshotHints:
    """The hint files beside the snapshots, which is their store (store/snapshots)."""

    def __init__(self, file_io: FileIO, paths: TablePaths, expect: Expect | None = None) -> None:
        self._file_io = file_io
        self._paths = paths
        self._expect = expect
        self._takes_notes = file_io.facts.is_far

    def earliest_hint(self) -> int | None:
        """Return the EARLIEST hint, unchecked; None if there is none.

        Expiry moves it before it reads any root: a smaller id is being deleted, or is deleted.
        """
        return self._hint(EARLIEST)

    def latest_hint(self) -> int | None:
        """Return the LATEST hint, unchecked; None if there is none. Only commits that count move it up."""
        return self._hint(LATEST)

    def stray_latest(self, newest_id: int) -> int | None:
        """Return the LATEST hint if it is beyond the newest id and names nothing; else None.

        Of a table without a snapshot (`newest_id` 0) and LATEST the EARLIEST hint.
        """
        stray = self._stray(LATEST, newest_id)
        return self._stray(EARLIEST, 0) if stray is None and not newest_id else stray

    def require_reached(self, newest_id: int, hint: int | None) -> None:
        """Raise CorruptFileError if a hint names a newer snapshot than the newest, and no file of it is there.

        `newest_id`: of those that count, 0 if there is none; `hint`: what LATEST was before they were looked
        for, or EARLIEST of a table that has neither LATEST nor a snapshot. Both only name what has counted,
        and a rollback moves LATEST, durably, before its file goes. What had been committed with that
        snapshot would vanish without a word, and the next commit would make it so for good.
        """
        if hint is None or hint <= newest_id:
            return
        lost = self.stray_latest(newest_id)
        if lost is not None:
            raise CorruptFileError(
                f"snapshot {lost} is missing, and was the newest: try again, as a rollback may be under way; if "
                "it is lost, restore its file, or go on without what was committed with it: "
                "table.repair_latest_snapshot, or lsm repair TABLE latest",
                file=self._paths.snapshot_file(lost),
                newest_there=newest_id,
            )

    def _stray(self, name: str, newest_id: int) -> int | None:
        hint = self._hint(name)
        if hint is None or hint <= newest_id:
            return None
        return None if self.exists(hint) else hint

    def exists(self, snapshot_id: int) -> bool:
        """Whether there is a snapshot of this id."""
        return snapshot_id > 0 and self._file_io.exists(self._paths.snapshot_file(snapshot_id))

    def _stable_ids(self) -> list[int]:
        ids = ids_of(
            stable_listing(self._file_io, self._paths.snapshot_directory, are_of_one_history)
        )
        if not ids:
            hints = (self._hint(LATEST), self._hint(EARLIEST))
            if any(hint is not None and self.exists(hint) for hint in hints):
                raise StorageError(
                    "the storage lists no snapshots, and there are some; nothing was deleted",
                    directory=self._paths.snapshot_directory,
                )
            return []
        while self.exists(ids[-1] + 1):
            ids.append(ids[-1] + 1)
        while self.exists(ids[0] - 1):
            ids.insert(0, ids[0] - 1)
        if ids[-1] - ids[0] < len(ids) + GAPS_LOOKED_UP:
            ids = list(range(ids[0], ids[-1] + 1))
        return ids

    def forget_latest(self) -> None:
        """Take LATEST away: everybody lists then."""
        self._file_io.delete(self._paths.snapshot_hint(LATEST))

    def hint_latest(self, snapshot_id: int, *, may_skip: bool = True) -> None:
        """Write LATEST, unless the store throttles: without it, or with an old one, others look on.

        Who then deletes the snapshot that the old one names may not skip it, and waits for the disk.
        """
        self._write_hint(LATEST, snapshot_id, may_skip=may_skip)

    def make_earliest(self, snapshot_id: int) -> None:
        """Create EARLIEST of a table's first snapshot; one that is there stays."""
        published(self._file_io, self._paths.snapshot_hint(EARLIEST), encode_hint(snapshot_id))

    def hint_newest(self, snapshot: Snapshot) -> None:
        """Write LATEST as `hint_latest` does, with a note of the files that readers will ask for."""
        note = note_of_files(snapshot) if self._takes_notes else ""
        try:
            self._write_hint(LATEST, snapshot.id, may_skip=True, note=note)
        except LsmError as error:
            if not note or not _refuses_notes(error):
                raise
            self._takes_notes = False
            self.hint_latest(snapshot.id)

    def hint_earliest(self, snapshot_id: int) -> None:
        """Write EARLIEST, also backwards: for who gives ids back under a sign of its own."""
        self._write_hint(EARLIEST, snapshot_id)

    def _write_hint(
        self, hint: str, snapshot_id: int, *, may_skip: bool = False, note: str = ""
    ) -> None:
        path = self._paths.snapshot_hint(hint)
        self._file_io.replace(path, encode_hint(snapshot_id), may_skip=may_skip, note=note)

    def _hint(self, hint: str) -> int | None:
        return self._noted_hint(hint)[0]

    def _noted_hint(
        self, hint: str, *, expected: bool = False, reads_state: bool = False
    ) -> tuple[int | None, str | None]:
        """Return a hint, and which state it was written for, if that is noted (`noted_state`).

        `expected`: one that was fetched a while ago will do. `reads_state`: the files in a note beside it
        are fetched meanwhile.
        """
        path = self._paths.snapshot_hint(hint)
        if not expected:
            self._file_io.forget_prefetched([path])
        snapshot_id, note = hinted(self._file_io, path)
        if reads_state and self._expect is not None:
            self._expect(noted_files(note))
        return snapshot_id, noted_state(note)


def _refuses_notes(error: LsmError) -> bool:
    """Whether a store takes no metadata, or not as much: without it the request may do; a busy store is left alone."""
    return isinstance(error, UnsupportedError) or error.facts.get("status") in _NO_NOTES

"""Changelogs that outlive their snapshots: copies of snapshot files under changelog/ (format section 11).

A snapshot's changelog is written before the snapshot is deleted, so a reader that moves from changelogs
to snapshots finds every id in one of them or in both.
"""

from collections.abc import Callable

from lsm_engine.base.errors import StorageError
from lsm_engine.format.documents import encode_hint, encode_snapshot
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.publishing import listed_numbers, published, replaced, stable_listing
from lsm_engine.metadata.snapshots import (
    current_content,
    delete_unchanged,
    found_snapshot,
    hinted_id,
    replace_unchanged,
)
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.paths import CHANGELOG_PREFIX, EARLIEST, LATEST, TablePaths

_RACES = 10  # changes of a changelog that others win before it is given up


class ChangelogStore:
    """The long-lived changelogs of one table or branch (ChangelogManager). Ids recur: no cache."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._paths = paths

    def ids(self) -> list[int]:
        """Return every id there is, oldest first, from a listing that was asked twice."""
        listed = stable_listing(self._file_io, self._paths.changelog_directory)
        return listed_numbers(listed, CHANGELOG_PREFIX)

    def earliest_id(self) -> int | None:
        """Return the oldest id; None without changelogs. The hint is checked before it is believed."""
        hint = self._hint(EARLIEST)
        # The hint may be old or damaged: the files beside it show whether it is exact.
        if hint is not None and self.exists(hint) and not self.exists(hint - 1):
            return hint
        return min(self.ids(), default=None)

    def earliest_hint(self) -> int | None:
        """Return the EARLIEST hint, unchecked: smaller ids are being deleted, or are deleted."""
        return self._hint(EARLIEST)

    def latest_hint(self) -> int | None:
        """Return the LATEST hint, unchecked."""
        return self._hint(LATEST)

    def latest_id(self) -> int | None:
        """Return the newest id; None without changelogs."""
        hint = self._hint(LATEST)
        if hint is not None and self.exists(hint) and not self.exists(hint + 1):
            return hint
        return max(self.ids(), default=None)

    def exists(self, snapshot_id: int) -> bool:
        """Whether the changelog of this snapshot exists."""
        return snapshot_id > 0 and self._file_io.exists(self._paths.changelog_file(snapshot_id))

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Return a changelog, or None if there is none of this id; raises CorruptFileError."""
        if snapshot_id <= 0:
            return None
        return found_snapshot(
            self._file_io,
            self._paths,
            self._paths.changelog_file(snapshot_id),
            snapshot_id,
            if_another="a changelog file holds another snapshot's; restore it",
        )

    def all(self) -> list[Snapshot]:
        """Return every changelog, oldest first."""
        return [changelog for changelog in map(self.find, self.ids()) if changelog is not None]

    def publish(self, snapshot: Snapshot) -> bool:
        """Write the changelog of a snapshot that is about to expire; False if it exists already.

        One of another snapshot of the same id, left by a rollback that died, is replaced.
        """
        path = self._paths.changelog_file(snapshot.id)
        data = encode_snapshot(snapshot)
        is_written = published(self._file_io, path, data)
        if not is_written:
            # An expiry that died may have written it, or a rollback that died have left another one.
            stored = self.find(snapshot.id)
            if stored is None or stored.delta_manifest_list != snapshot.delta_manifest_list:
                self._file_io.replace(path, data)
                is_written = True
        return is_written

    def give_back(self, changelog: Snapshot, require: Callable[[], None]) -> None:
        """Create a changelog's file again, or replace that which is there; `require` is called before each change."""
        path, data = self._paths.changelog_file(changelog.id), encode_snapshot(changelog)
        for _ in range(_RACES):
            content = current_content(self._file_io, path)
            require()
            if (
                published(self._file_io, path, data)
                if content is None
                else replaced(self._file_io, path, data, expected=content)
            ):
                return
        raise StorageError("others keep changing the changelog; try again", path=path)

    def delete_unchanged(self, changelog: Snapshot) -> bool:
        """Delete a changelog's file if it still is what was read; False, and no change, otherwise."""
        return delete_unchanged(self._file_io, self._paths.changelog_file(changelog.id), changelog)

    def replace_unchanged(self, old: Snapshot, new: Snapshot) -> bool:
        """Replace a changelog's file if it still is what was read or written; False, and no change, otherwise."""
        return replace_unchanged(self._file_io, self._paths.changelog_file(old.id), old, new)

    def hint_latest(self, snapshot_id: int) -> None:
        """Write LATEST."""
        self._file_io.replace(self._paths.changelog_hint(LATEST), encode_hint(snapshot_id))

    def hint_earliest(self, snapshot_id: int) -> None:
        """Write EARLIEST. Expiry moves it before it deletes older changelogs."""
        self._file_io.replace(self._paths.changelog_hint(EARLIEST), encode_hint(snapshot_id))

    def delete(self, snapshot_id: int) -> bool:
        """Delete one changelog file and nothing that it names; False if it was not there."""
        return self._file_io.delete(self._paths.changelog_file(snapshot_id))

    def _hint(self, hint: str) -> int | None:
        return hinted_id(self._file_io, self._paths.changelog_hint(hint))

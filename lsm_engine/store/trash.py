"""Trash: records of removed files. Their files stay where they were until a record goes.

Nothing is moved: a record is one more root, so that its files live on. Taking something and giving it
back cost a document each, whatever the size of the data, on any storage.
"""

from collections.abc import Sequence
from dataclasses import replace

from lsm_engine.base.errors import AlreadyExistsError, NotFoundError
from lsm_engine.codec.json_object import READ_MAX
from lsm_engine.codec.trash_record import decode_trash, encode_trash
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import TRASH_PREFIX, TablePaths
from lsm_engine.meta.trash import TrashRecord
from lsm_engine.plan.expire import MetadataNames
from lsm_engine.store.listing import stable_listing
from lsm_engine.store.publishing import deleted, published, replaced


class TrashStore:
    """The trash of one table, all branches together."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._paths = paths

    def put(self, record: TrashRecord) -> None:
        """Write a record, whole or not at all. From now on its files are reachable."""
        if not published(self._file_io, self._paths.trash_file(record.name), encode_trash(record)):
            raise AlreadyExistsError("a trash record of this name exists", name=record.name)

    def find(self, name: str) -> TrashRecord | None:
        """Return a record, or None; raises CorruptFileError if it cannot be read."""
        path = self._paths.trash_file(name)
        try:
            data = self._file_io.read(path, length=READ_MAX)
        except NotFoundError:
            return None
        return decode_trash(data, name=name, file_name=path)

    def list(self) -> list[TrashRecord]:
        """Return every record, oldest first. One that cannot be read is an error, not a gap."""
        there = [one for one in map(self.find, self.names()) if one is not None]
        return sorted(there, key=lambda one: (one.created_millis, one.name))

    def names(self) -> Sequence[str]:
        """Return the names of records; nothing of them is read."""
        return [
            status.name
            for status in stable_listing(self._file_io, self._paths.trash_directory)
            if status.name.startswith(TRASH_PREFIX) and not status.is_directory
        ]

    def claim(self, record: TrashRecord, undo_id: str) -> TrashRecord | None:
        """Write down in a record who gives it back; None, and no change, if it has changed since it was read."""
        claimed = replace(record, undo_id=undo_id)
        data = encode_trash(claimed)
        path = self._paths.trash_file(record.name)
        if record.content is None or not replaced(
            self._file_io, path, data, expected=record.content
        ):
            return None
        return replace(claimed, content=data)

    def delete_as_read(self, record: TrashRecord) -> bool:
        """Delete a record, and none of its files; False, and no change, if it has changed since it was read."""
        path = self._paths.trash_file(record.name)
        return record.content is not None and deleted(self._file_io, path, expected=record.content)

    def delete(self, name: str) -> bool:
        """Delete a record, and none of its files, whatever it holds; False if it was not there."""
        return self._file_io.delete(self._paths.trash_file(name))


def kept_by_record(record: TrashRecord) -> tuple[MetadataNames, frozenset[str]]:
    """Return the metadata and the data files, by bare name, that a record keeps. Names are unique."""
    named: dict[str, set[str]] = {}
    for path in record.paths:
        directory, _, name = path.rpartition("/")
        named.setdefault(directory, set()).add(name)
    manifests = frozenset(named.pop("manifest", ()))
    return MetadataNames(
        manifest_lists=manifests,
        manifests=manifests,
        index_manifests=manifests,
        index_files=frozenset(named.pop("index", ())),
        statistics=frozenset(named.pop("statistics", ())),
    ), frozenset(name for names in named.values() for name in names)

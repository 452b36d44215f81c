"""Trash records: what one maintenance operation deleted, kept so that it can be restored."""

from collections.abc import Sequence
from dataclasses import field as attribute
from dataclasses import replace

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CorruptFileError,
    NotFoundError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.format.documents import decode_snapshot, decode_tag, encode_snapshot, encode_tag
from lsm_engine.format.json_object import READ_MAX, object_text, parse_object
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.metadata.publishing import deleted, published, replaced, stable_listing
from lsm_engine.planning.expire import MetadataNames
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.paths import TRASH_PREFIX, TablePaths

ROLLED_BACK = "rolled back to snapshot"
"""How the reason of a rollback begins."""


@record
class TrashRecord:
    """What was removed from one branch of a table (`branch`; "" is main), when, and why.

    `snapshots`, `changelogs` and `tags` are deleted as files and kept here; `paths` are files that stay
    where they are until the record is emptied, relative to the table's directory. `undo_id`: of the process that gives it
    back. `content`: the bytes of the file that it was read from, which do not count in comparisons.
    """

    name: str
    created_millis: int
    reason: str
    branch: str = ""
    snapshots: tuple[Snapshot, ...] = ()
    changelogs: tuple[Snapshot, ...] = ()
    tags: tuple[Tag, ...] = ()
    paths: tuple[str, ...] = ()
    undo_id: str | None = None
    content: bytes | None = attribute(default=None, compare=False, repr=False)

    @property
    def was_rolled_back(self) -> bool:
        """Whether its snapshots are no part of the table's history any more, and not only expired."""
        return self.reason.startswith(ROLLED_BACK)


# -- The JSON document of a trash record -----------------------------------------------------------
#
# Ours alone: no other client knows the directory trash/.

VERSION = 1


def encode_trash(record: TrashRecord) -> bytes:
    """Return the file of a record. Documents that it holds are kept as the text they were."""
    return object_text(
        {
            "version": VERSION,
            "createdMillis": record.created_millis,
            "reason": record.reason,
            "branch": record.branch,
            "snapshots": [encode_snapshot(snapshot).decode() for snapshot in record.snapshots],
            "changelogs": [encode_snapshot(changelog).decode() for changelog in record.changelogs],
            "tagNames": [tag.name for tag in record.tags],
            "tags": [encode_tag(tag).decode() for tag in record.tags],
            "paths": list(record.paths),
            "undoId": record.undo_id,
        }
    )


def decode_trash(data: bytes, *, name: str, file_name: str) -> TrashRecord:
    """Return a record; raises CorruptFileError, and UnsupportedError for a newer version."""
    document = parse_object(data, file_name=file_name)
    if document.long("version") > VERSION:
        raise UnsupportedError("the trash record is newer than this version", file=file_name)
    names, tags = document.texts("tagNames"), document.texts("tags")
    if len(names) != len(tags):
        raise CorruptFileError("a trash record names other tags than it holds", file=file_name)
    return TrashRecord(
        name=name,
        created_millis=document.long("createdMillis"),
        reason=document.text("reason"),
        branch=document.text("branch"),
        snapshots=tuple(
            decode_snapshot(text.encode(), file_name=file_name)
            for text in document.texts("snapshots")
        ),
        changelogs=tuple(
            decode_snapshot(text.encode(), file_name=file_name)
            for text in document.texts("changelogs")
        ),
        tags=tuple(
            replace(decode_tag(text.encode(), name=name, file_name=file_name), content=None)
            for name, text in zip(names, tags, strict=True)
        ),
        paths=document.texts("paths"),
        undo_id=document.optional_text("undoId"),
        content=data,
    )


# -- Trash -----------------------------------------------------------------------------------------
#
# Records of removed files. Their files stay where they were until a record goes.
#
# Nothing is moved: a record is one more retained reference, so that its files live on. Taking something and
# giving it back cost a document each, whatever the size of the data, on any storage.


class TrashStore:
    """The trash of one table, all branches together."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._paths = paths

    def write(self, record: TrashRecord) -> None:
        """Write a record, whole or not at all. From now on its files are reachable."""
        if not published(self._file_io, self._paths.trash_file(record.name), encode_trash(record)):
            raise AlreadyExistsError("a trash record of this name exists", name=record.name)

    def find(self, name: str) -> TrashRecord | None:
        """Return a record, or None; raises CorruptFileError if it cannot be read."""
        path = self._paths.trash_file(name)
        try:
            data = self._file_io.read(path, length=READ_MAX)
        except NotFoundError:
            # Emptied or given back since.
            return None
        return decode_trash(data, name=name, file_name=path)

    def list(self) -> list[TrashRecord]:
        """Return every record, oldest first. One that cannot be read is an error, not a gap."""
        records = [stored for stored in map(self.find, self.names()) if stored is not None]
        return sorted(records, key=lambda record: (record.created_millis, record.name))

    def names(self) -> Sequence[str]:
        """Return the names of records; nothing of them is read."""
        return [
            status.name
            for status in stable_listing(self._file_io, self._paths.trash_directory)
            if status.name.startswith(TRASH_PREFIX) and not status.is_directory
        ]

    def claim(self, record: TrashRecord, undo_id: str) -> TrashRecord | None:
        """Write the id of an undo into a record; None, and no change, if it has changed since it was read."""
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
    by_directory: dict[str, set[str]] = {}
    for path in record.paths:
        directory, _, name = path.rpartition("/")
        by_directory.setdefault(directory, set()).add(name)
    manifests = frozenset(by_directory.pop("manifest", ()))
    return MetadataNames(
        manifest_lists=manifests,
        manifests=manifests,
        index_manifests=manifests,
        index_files=frozenset(by_directory.pop("index", ())),
        statistics=frozenset(by_directory.pop("statistics", ())),
    ), frozenset(name for names in by_directory.values() for name in names)

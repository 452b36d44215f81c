"""The JSON document of a trash record. Ours alone: no other client knows the directory trash/."""

from dataclasses import replace

from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.codec.documents import decode_snapshot, decode_tag, encode_snapshot, encode_tag
from lsm_engine.codec.json_object import object_text, parse_object
from lsm_engine.meta.trash import TrashRecord

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

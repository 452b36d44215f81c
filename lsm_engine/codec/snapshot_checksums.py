"""The checksums that a snapshot keeps of the files it names, as a text among its properties.

`crc32 of=1a2b3c4d base=… delta=… changelog=… index=… schema=…`: properties are what other clients hand on
when they make a tag, a branch or a changelog of a snapshot. Java's `compact_manifest` hands them on to a
snapshot of its own, too: `of`, the checksum of the name of the delta list, tells whose they are. In memory
checksums are kept by file name, so that a copy of a snapshot that names another file has no checksum of it,
rather than a wrong one.
The copy of its manifest lists, which they are for as well, is kept beside them.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.codec.checksum import FORM, checksum_of, checksum_text
from lsm_engine.codec.member_names import refuse_damaged_names
from lsm_engine.meta.snapshot import Snapshot

PROPERTY = "lsm.checksums"
LISTS = "lsm.manifest-lists"
_OURS = "lsm."
_OF = re.compile(r" of=([0-9a-f]{8})")
_PART = re.compile(r"([a-z]+)=([0-9a-f]{8})")


def with_checksums(snapshot: Snapshot, *, file_name: str) -> Snapshot:
    """Return a snapshot as read, its checksums and its copy of lists taken out of its properties.

    Of properties that are those of another snapshot ours are left out, which say how that one was made.
    Raises CorruptFileError for a text that is none, or a property that seems to be it but misspelt.
    """
    properties = snapshot.properties
    if properties is None:
        return snapshot
    refuse_damaged_names(properties, (PROPERTY,), file_name=file_name)
    text, lists = properties.get(PROPERTY), properties.get(LISTS)
    if text is None and lists is None:
        return snapshot
    if (match := _OF.search(text or "")) and match[1] != _mark(snapshot):
        other_properties = {key: properties[key] for key in properties if not key.startswith(_OURS)}
        return replace(snapshot, properties=other_properties or None)
    return replace(
        snapshot,
        properties={key: properties[key] for key in properties if key not in (PROPERTY, LISTS)}
        or None,
        checksums=None if text is None else _parsed(snapshot, text, file_name),
        manifest_lists=lists,
    )


def _parsed(snapshot: Snapshot, text: str, file_name: str) -> Mapping[str, int]:
    form, *parts = _OF.sub("", text).split(" ")
    matches = [_PART.fullmatch(part) for part in parts]
    names = _names(snapshot)
    if form != FORM or not all(match and match[1] in names for match in matches):
        raise CorruptFileError(
            f"property {PROPERTY!r} holds no checksums of this snapshot's files; restore the file",
            file=file_name,
            value=text[:120],
        )
    return {names[match[1]]: int(match[2], 16) for match in matches if match}


def stored_properties(snapshot: Snapshot) -> Mapping[str, str] | None:
    """Return the properties that a snapshot's file has: its own, its copy of lists, and its checksums."""
    checksums = [
        f"{role}={checksum_text(checksum)}"
        for role, name in _names(snapshot).items()
        if (checksum := snapshot.checksum_of(name)) is not None
    ]
    text = " ".join([FORM, f"of={_mark(snapshot)}", *checksums]) if checksums else None
    recorded = {LISTS: snapshot.manifest_lists, PROPERTY: text}
    added = {name: text for name, text in recorded.items() if text is not None}
    return {**(snapshot.properties or {}), **added} if added else snapshot.properties


def _mark(snapshot: Snapshot) -> str:
    """Return what tells a state from others: no two commits name one delta list."""
    return checksum_text(checksum_of(snapshot.delta_manifest_list.encode(errors="replace")))


def _names(snapshot: Snapshot) -> dict[str, str]:
    """Return the names of the files that a snapshot keeps checksums of, by what they are for it."""
    names = {
        "base": snapshot.base_manifest_list,
        "delta": snapshot.delta_manifest_list,
        "changelog": snapshot.changelog_manifest_list,
        "index": snapshot.index_manifest,
        "schema": snapshot.schema_name,
    }
    return {role: name for role, name in names.items() if name is not None}

"""What could give back what a damaged or missing file held."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from lsm_engine.base.errors import LsmError
from lsm_engine.base.units import counted
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import DamagedFile
from lsm_engine.table.integrity.older_rows import older_rows
from lsm_engine.table.integrity.origins import (
    Origin,
    every_root,
    identity,
    is_there,
    older_versions,
    origins_of,
)

_LOOKED_FOR = 100
"""For so many files it is looked up what could give them back: more is a disk that failed."""


def with_sources(session: TableSession, files: Sequence[DamagedFile]) -> tuple[DamagedFile, ...]:
    """Return the same files with their sources."""
    some, rest = files[:_LOOKED_FOR], files[_LOOKED_FOR:]
    if not some:
        return tuple(files)
    entries = entries_at(session, {one.path for one in some if one.stake is not None})
    origins = origins_of(session, [identity(entry) for entry in entries.values()])
    bad = frozenset(one.path for one in files)
    found = []
    for one in some:
        entry = entries.get(one.path)
        if entry is None:
            sound = () if one.stake is not None else tuple(_sound(session, one))
            found.append(replace(one, sources=sound))
            continue
        rebuilt = tuple(_rebuilt(session, origins.get(identity(entry)), bad))
        sources = (*rebuilt, *_older(session, entry, bad))
        found.append(replace(one, sources=sources, is_rebuildable=bool(rebuilt)))
    return (*found, *rest)


def entries_at(session: TableSession, paths: Iterable[str]) -> dict[str, ManifestEntry]:
    """Return an entry of each data file that some root names and whose schema is there, by path."""
    left = set(paths)
    found: dict[str, ManifestEntry] = {}
    for branch, _, snapshot in every_root(session):
        if not left:
            break
        try:
            entries = branch.live_entries(snapshot)
        except LsmError:
            continue
        names = {path.rpartition("/")[2] for path in left}
        for entry in entries:
            if entry.file.file_name in names and (path := session.data_path(entry)) in left:
                left.discard(path)
                if _has_schema(session, entry):
                    found[path] = entry
    return found


def _has_schema(session: TableSession, entry: ManifestEntry) -> bool:
    """Whether the columns of a file are known; where its schema is lost, those of older rows are too."""
    try:
        session.schemas.load(entry.file.schema_id)
    except LsmError:
        return False
    return True


def _sound(session: TableSession, file: DamagedFile) -> Iterator[str]:
    named = set(file.snapshots)
    sound = [number for number in session.snapshots.listed_ids() if number not in named]
    if sound:
        yield f"snapshot {sound[-1]} does not need it"


def _rebuilt(session: TableSession, origin: Origin | None, bad: frozenset[str]) -> Iterator[str]:
    if origin is not None and rebuilt_from(session, origin, bad):
        what = "files that were compacted to it" if origin.inputs else "changelog files of it"
        count = len(origin.inputs or origin.changelog)
        yield f"repair can rebuild it from {count} {what} in snapshot {origin.snapshot.id}"


def _older(session: TableSession, entry: ManifestEntry, bad: frozenset[str]) -> Iterator[str]:
    try:
        older = older_versions(session, entry, bad)
        changed = older_rows(session, entry, bad)
    except LsmError:
        return  # which snapshot is the newest is not known, which is a finding of its own
    if changed is None:
        return  # nothing, or rows that would be merged twice: a restore would not take them
    if older is not None:
        yield f"{older[0]} of {older[0].branch or 'main'} holds older rows of its keys"
    if changed.changelogs:
        yield f"rows of its keys are in {counted(len(changed.changelogs), 'changelog file')}"


def rebuilt_from(
    session: TableSession, origin: Origin, bad: frozenset[str]
) -> tuple[ManifestEntry, ...]:
    """Return the files that a file can be made of again; none: not all of them are there.

    Of a file of another writer, which took no checksum, nothing would show that the rows are the same.
    """
    if origin.made.file.checksum is None:
        return ()
    parts = origin.inputs or origin.changelog
    whole = all(session.data_path(one) not in bad and is_there(session, one) for one in parts)
    return parts if whole else ()

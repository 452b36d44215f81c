"""The sources from which the rows of a damaged or missing file can be restored."""

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
    searched, unsearched = files[:_LOOKED_FOR], files[_LOOKED_FOR:]
    if not searched:
        return tuple(files)
    entries = entries_at(session, {file.path for file in searched if file.stake is not None})
    origins = origins_of(session, [identity(entry) for entry in entries.values()])
    bad = frozenset(file.path for file in files)
    results = []
    for file in searched:
        entry = entries.get(file.path)
        if entry is None:
            sound = () if file.stake is not None else tuple(_sound(session, file))
            results.append(replace(file, sources=sound))
            continue
        rebuilt = tuple(_rebuilt(session, origins.get(identity(entry)), bad))
        sources = (*rebuilt, *_older(session, entry, bad))
        results.append(replace(file, sources=sources, is_rebuildable=bool(rebuilt)))
    return (*results, *unsearched)


def entries_at(session: TableSession, paths: Iterable[str]) -> dict[str, ManifestEntry]:
    """Return an entry of each data file that some root names and whose schema is there, by path."""
    missing = set(paths)
    by_path: dict[str, ManifestEntry] = {}
    for branch, _, snapshot in every_root(session):
        if not missing:
            break
        try:
            entries = branch.live_entries(snapshot)
        except LsmError:
            continue
        names = {path.rpartition("/")[2] for path in missing}
        for entry in entries:
            if entry.file.file_name in names and (path := session.data_path(entry)) in missing:
                missing.discard(path)
                if _has_schema(session, entry):
                    by_path[path] = entry
    return by_path


def _has_schema(session: TableSession, entry: ManifestEntry) -> bool:
    """Whether the columns of a file are known; where its schema is lost, those of older rows are too."""
    try:
        session.schemas.load(entry.file.schema_id)
    except LsmError:
        return False
    return True


def _sound(session: TableSession, file: DamagedFile) -> Iterator[str]:
    damaged_ids = set(file.snapshots)
    sound = [number for number in session.snapshots.listed_ids() if number not in damaged_ids]
    if sound:
        yield f"snapshot {sound[-1]} does not need it"


def _rebuilt(session: TableSession, origin: Origin | None, bad: frozenset[str]) -> Iterator[str]:
    if origin is not None and rebuilt_from(session, origin, bad):
        input_kind = "files that were compacted to it" if origin.inputs else "changelog files of it"
        count = len(origin.inputs or origin.changelog)
        yield f"repair can rebuild it from {count} {input_kind} in snapshot {origin.snapshot.id}"


def _older(session: TableSession, entry: ManifestEntry, bad: frozenset[str]) -> Iterator[str]:
    try:
        older = older_versions(session, entry, bad)
        restorable = older_rows(session, entry, bad)
    except LsmError:
        return  # which snapshot is the newest is not known, which is a finding of its own
    if restorable is None:
        return  # nothing, or rows that would be merged twice: a restore would not take them
    if older is not None:
        yield f"{older[0]} of {older[0].branch or 'main'} holds older rows of its keys"
    if restorable.changelogs:
        yield f"rows of its keys are in {counted(len(restorable.changelogs), 'changelog file')}"


def rebuilt_from(
    session: TableSession, origin: Origin, bad: frozenset[str]
) -> tuple[ManifestEntry, ...]:
    """Return the files that a file can be made of again; none: not all of them are there.

    Of a file of another writer, which took no checksum, nothing would show that the rows are the same.
    """
    if origin.entry.file.checksum is None:
        return ()
    parts = origin.inputs or origin.changelog
    are_all_stored = all(
        session.data_path(part) not in bad and is_there(session, part) for part in parts
    )
    return parts if are_all_stored else ()

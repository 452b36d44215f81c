"""Explain a data file: the commit that added it, the compaction that deleted it, and the references that pin it."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, NotFoundError
from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.base.record import record
from lsm_engine.catalog.edges import bucket_compactions, file_edges
from lsm_engine.codec.manifest import entries_of
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.file_history import Commit, FileExplanation, FileStage, holding
from lsm_engine.plan.names import MAIN_BRANCH
from lsm_engine.table.ground.live_files import FILE_NAME
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.tags.roots import other_branches

_DATA, _CHANGELOG = "data", "changelog"


def explain_file(session: TableSession, file_name: str) -> FileExplanation:
    """Return the life of a data or changelog file, by its name or path.

    Raises NotFoundError if no snapshot and no tag names it.
    """
    name = file_name.rpartition("/")[2]
    snapshots = session.snapshots.all()
    tags = {tag.name: tag.snapshot for tag in session.tags.list()}
    mentions = _mentions(session, snapshots, name)
    held_by = {tag: state for tag, root in tags.items() if (state := _state(session, root, name))}
    listed = [entry for mention in mentions for entry in mention.entries]
    listed += [entry for entries in held_by.values() for entry in entries]
    changelog = [] if listed else _changelog(session, snapshots, name)
    if not listed and not changelog:
        raise NotFoundError(
            "no snapshot and no tag names this file; if it is on disk, it is an orphan, or its "
            "snapshots have expired (the catalog's lineage may remember: lsm show life)",
            kind=ErrorKind.NO_SUCH_FILE,
            table=session.name,
            file=name,
        )
    if changelog:
        listed = [entry for _, entry in changelog]
    newest = listed[-1]
    stages = _stages(mentions, changelog)
    ids = [snapshot.id for snapshot in snapshots]
    snapshot_ids = tuple(s.id for s, _ in changelog) if changelog else holding(stages, ids)
    path = session.data_path(newest)
    made_from, became = _relatives(session, mentions, name)
    return FileExplanation(
        table=session.name,
        partition=session.context().partition_path(newest.partition),
        bucket=newest.bucket,
        path=path,
        content=_CHANGELOG if changelog else _DATA,
        file=newest.file,
        is_stored=session.file_io.exists(path),
        is_live=not changelog and bool(ids) and ids[-1] in snapshot_ids,
        stages=stages,
        made_from=made_from,
        became=became,
        snapshots=snapshot_ids,
        tags=tuple(sorted(held_by)),
        branches=_branches(session, name),
    )


@record
class _Mention:
    """Entries about the file in one delta list; `snapshot` None: in the oldest snapshot's base."""

    snapshot: Snapshot | None
    entries: tuple[ManifestEntry, ...]


def _mentions(session: TableSession, snapshots: Sequence[Snapshot], name: str) -> list[_Mention]:
    mentions = []
    if snapshots:
        base = _entries_of_file(session, snapshots[0], snapshots[0].base_manifest_list, name)
        mentions.append(_Mention(snapshot=None, entries=tuple(_live(base))))
    for snapshot in snapshots:
        entries = _entries_of_file(session, snapshot, snapshot.delta_manifest_list, name)
        mentions.append(_Mention(snapshot=snapshot, entries=tuple(entries)))
    return [mention for mention in mentions if mention.entries]


def _branches(session: TableSession, name: str) -> tuple[str, ...]:
    """Return the other branches that hold the file, main among them for a branch."""
    names = []
    for branch in other_branches(session):
        snapshots = branch.snapshots.all()
        snapshot_ids = holding(
            _stages(_mentions(branch, snapshots, name), ()), [s.id for s in snapshots]
        )
        if snapshot_ids or any(_state(branch, tag.snapshot, name) for tag in branch.tags.list()):
            names.append(branch.paths.branch_name or MAIN_BRANCH)
    return tuple(names)


def _entries_of_file(
    session: TableSession, snapshot: Snapshot, list_name: str, name: str
) -> list[ManifestEntry]:
    """Return the entries about a file; one made object per entry found, not per entry there."""
    entries: list[ManifestEntry] = []
    for meta in session.manifest_list(snapshot, list_name):
        rows = session.manifests.read(meta)
        if rows.num_rows:
            hit = rows.filter(pc.equal(rows.column(FILE_NAME), pa.scalar(name)))
            entries += entries_of(hit) if hit.num_rows else []
    return entries


def _live(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    listed = list(entries)
    deleted = {entry.identity for entry in listed if entry.kind is EntryKind.DELETE}
    return [
        entry for entry in listed if entry.kind is EntryKind.ADD and entry.identity not in deleted
    ]


def _state(session: TableSession, snapshot: Snapshot, name: str) -> list[ManifestEntry]:
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    return _live(
        entry
        for list_name in lists
        for entry in _entries_of_file(session, snapshot, list_name, name)
    )


def _changelog(
    session: TableSession, snapshots: Sequence[Snapshot], name: str
) -> list[tuple[Snapshot, ManifestEntry]]:
    return [
        (snapshot, entry)
        for snapshot in snapshots
        if snapshot.changelog_manifest_list is not None
        for entry in _entries_of_file(session, snapshot, snapshot.changelog_manifest_list, name)
    ]


def _stages(
    mentions: Sequence[_Mention], changelog: Sequence[tuple[Snapshot, ManifestEntry]]
) -> tuple[FileStage, ...]:
    """Return one stage per level that the file lay on, in time."""
    open_stages: dict[int, Commit | None] = {}
    done: list[FileStage] = []
    for mention in mentions:
        commit = None if mention.snapshot is None else _commit(mention.snapshot)
        # An upgrade deletes the file on one level and adds it on another in one commit.
        for entry in sorted(mention.entries, key=lambda item: item.kind is EntryKind.ADD):
            level = entry.file.level
            if entry.kind is EntryKind.ADD:
                open_stages[level] = commit
            else:
                done.append(
                    FileStage(level=level, added_by=open_stages.pop(level, None), deleted_by=commit)
                )
    done += [
        FileStage(level=level, added_by=commit, deleted_by=None)
        for level, commit in open_stages.items()
    ]
    done += [
        FileStage(level=entry.file.level, added_by=_commit(snapshot), deleted_by=None)
        for snapshot, entry in changelog
    ]
    return tuple(done)


def _commit(snapshot: Snapshot) -> Commit:
    return Commit(
        snapshot_id=snapshot.id,
        kind=snapshot.commit_kind.value,
        time_millis=snapshot.time_millis,
    )


def _relatives(
    session: TableSession, mentions: Sequence[_Mention], name: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what compactions made the file from, and what others made of it."""
    made_from: set[str] = set()
    became: set[str] = set()
    for mention in mentions:
        if mention.snapshot is None or mention.snapshot.commit_kind is not CommitKind.COMPACT:
            continue
        place = (mention.entries[0].partition, mention.entries[0].bucket)
        entries = [
            entry
            for meta in session.manifest_list(
                mention.snapshot, mention.snapshot.delta_manifest_list
            )
            for entry in session.manifests.read_entries(meta)
            if (entry.partition, entry.bucket) == place
        ]
        edges = file_edges(bucket_compactions(entries), session.key_order)
        made_from |= {edge.source_name for edge in edges if edge.target_name == name}
        became |= {edge.target_name for edge in edges if edge.source_name == name}
    return tuple(sorted(made_from - {name})), tuple(sorted(became - {name}))

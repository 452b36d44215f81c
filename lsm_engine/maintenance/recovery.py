"""The sources from which the rows of a damaged or missing file can be restored."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.format.binary_row import decode_columns
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import BucketScope, ManifestEntry, PhysicalFile
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.lsm.levels import overlaps, sections
from lsm_engine.maintenance.findings import DamagedFile, Reference, readable
from lsm_engine.metadata.trash import TrashStore
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind, EntryKind, FileSource, RowKind
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.scan import Section
from lsm_engine.read.split import BucketReader
from lsm_engine.table import references
from lsm_engine.table.references import References
from lsm_engine.table.session import TableSession
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema

# -- Origins ---------------------------------------------------------------------------------------
#
# The commit that made a data file, and other retained references that hold versions of its
# rows.


@record
class Origin:
    """The commit that made a file, in one bucket.

    `entry`: the file's entry in it. `inputs`: what a compaction merged; `outputs`: what it wrote;
    `changelog`: files with the rows as they were written, where the producer keeps them.
    """

    snapshot: Snapshot
    entry: ManifestEntry
    inputs: tuple[ManifestEntry, ...]
    outputs: tuple[ManifestEntry, ...]
    changelog: tuple[ManifestEntry, ...]


def all_references_of(
    session: TableSession, *, rolled_back: bool = True
) -> Iterator[tuple[TableSession, Reference, Snapshot]]:
    """Yield what can be read of snapshots, tags and the trash of all branches, newest ids first.

    `rolled_back`: also what rollbacks have left in the trash.
    """
    retained: list[tuple[TableSession, Reference, Snapshot]] = []
    for branch in references.branches(session):
        name = branch.paths.branch_name
        for number, snapshot in readable(branch.snapshots.listed_ids(), branch.snapshots.find):
            retained.append(
                (branch, Reference(kind="snapshot", name=number, branch=name), snapshot)
            )
        for tag_name, tag in readable(branch.tags.names(), branch.tags.find):
            retained.append(
                (branch, Reference(kind="tag", name=tag_name, branch=name), tag.snapshot)
            )
    retained += _of_trash(session, rolled_back=rolled_back)
    yield from sorted(retained, key=lambda item: -item[2].id)


def own_references(session: TableSession) -> Iterator[tuple[TableSession, Reference, Snapshot]]:
    """Yield those of a branch's own history: nothing that was rolled back, and what others share with it.

    Another branch shares the snapshots up to the newest that both have. All else may hold rows that this
    one never had, or no longer has.
    """
    own = session.paths.branch_name
    all_references = list(all_references_of(session, rolled_back=False))
    mine = {
        snapshot.id: snapshot
        for _, reference, snapshot in all_references
        if reference.branch == own
    }
    mine |= {
        snapshot.id: snapshot
        for _, reference, snapshot in all_references
        if (reference.kind, reference.branch) == ("snapshot", own)
    }
    shared: dict[str, int] = {}
    for _, reference, snapshot in all_references:
        if same_state(mine.get(snapshot.id), snapshot):
            shared[reference.branch] = max(shared.get(reference.branch, 0), snapshot.id)
    for branch, reference, snapshot in all_references:
        is_mine = same_state(mine.get(snapshot.id, snapshot), snapshot)
        if is_mine and snapshot.id <= shared.get(reference.branch, 0):
            yield branch, reference, snapshot


def _of_trash(
    session: TableSession, *, rolled_back: bool
) -> list[tuple[TableSession, Reference, Snapshot]]:
    try:
        records = TrashStore(session.file_io, session.paths).list()
    except LsmError:
        # A damaged record is a finding of its own; the other sources may be enough.
        return []
    return [
        (
            session,
            Reference(
                kind=f"snapshot {snapshot.id} in trash", name=trashed.name, branch=trashed.branch
            ),
            snapshot,
        )
        for trashed in records
        if rolled_back or not trashed.was_rolled_back
        for snapshot in (*trashed.snapshots, *(tag.snapshot for tag in trashed.tags))
    ]


def origins_of(
    session: TableSession, identities: Iterable[PhysicalFile]
) -> Mapping[PhysicalFile, Origin]:
    """Return the commits that made some files, as far as their snapshots are still there."""
    missing = set(identities)
    origins: dict[PhysicalFile, Origin] = {}
    visited_lists: set[str] = set()
    for branch, _, snapshot in all_references_of(session):
        if not missing:
            break
        if snapshot.delta_manifest_list in visited_lists:
            continue
        visited_lists.add(snapshot.delta_manifest_list)
        delta = _entries(branch, snapshot, snapshot.delta_manifest_list)
        removed = {entry.physical_file for entry in delta if entry.kind is EntryKind.DELETE}
        for entry in delta:
            key = entry.physical_file
            if entry.kind is EntryKind.ADD and key in missing and key not in removed:
                origins[key] = _origin(branch, snapshot, entry, delta)
                missing.discard(key)
    return origins


def _origin(
    session: TableSession,
    snapshot: Snapshot,
    file_entry: ManifestEntry,
    delta: Sequence[ManifestEntry],
) -> Origin:
    def of_bucket(entries: Iterable[ManifestEntry], kind: EntryKind) -> tuple[ManifestEntry, ...]:
        return tuple(
            entry
            for entry in entries
            if entry.kind is kind and entry.physical_file[:2] == file_entry.physical_file[:2]
        )

    merged = snapshot.commit_kind is CommitKind.COMPACT
    listed = snapshot.changelog_manifest_list
    changelog = [] if merged or listed is None else _entries(session, snapshot, listed)
    return Origin(
        snapshot=snapshot,
        entry=file_entry,
        inputs=of_bucket(delta, EntryKind.DELETE) if merged else (),
        outputs=of_bucket(delta, EntryKind.ADD),
        changelog=of_bucket(changelog, EntryKind.ADD),
    )


def _entries(session: TableSession, snapshot: Snapshot, name: str) -> list[ManifestEntry]:
    try:
        return session.list_entries(snapshot, name)
    except LsmError:
        # What cannot be read gives nothing back. It is only one of several sources.
        return []


def is_there(session: TableSession, entry: ManifestEntry) -> bool:
    """Whether a file is in its place and has its size."""
    try:
        return session.file_io.status(session.data_path(entry)).size == entry.file.file_size
    except LsmError:
        return False


def older_versions(
    session: TableSession, lost: ManifestEntry, bad: frozenset[str]
) -> tuple[Reference, Snapshot, tuple[ManifestEntry, ...]] | None:
    """Return the newest own retained reference that can be read without damaged files, its files of a lost file's keys.

    Of these only such as may hold rows that the lost file was made of: other live files than now.
    """
    order = session.key_order
    if order is None:
        return None
    newest = session.snapshots.latest()
    bucket = (lost.partition, lost.bucket)
    live = {candidate.physical_file for candidate in _live(session, newest, bucket) or ()}
    for branch, reference, snapshot in own_references(session):
        entries = _live(branch, snapshot, bucket)
        if entries is None:
            continue
        overlapping = [entry for entry in entries if overlaps(entry.file, [lost.file], order)]
        versions = tuple(entry for entry in overlapping if entry.physical_file not in live)
        paths = {session.data_path(entry) for entry in overlapping}
        is_whole = not paths & bad and all(is_there(session, entry) for entry in overlapping)
        if (
            versions
            and is_whole
            and lost.physical_file not in {candidate.physical_file for candidate in overlapping}
        ):
            return reference, snapshot, versions
    return None


def _live(
    session: TableSession, snapshot: Snapshot | None, bucket: tuple[bytes, int]
) -> list[ManifestEntry] | None:
    if snapshot is None:
        return []
    try:
        return session.live_entries(snapshot, BucketScope(buckets=frozenset({bucket})))
    except LsmError:
        # An unreadable state shows nothing; None differs from a state without the bucket.
        return None


# -- Rows of a lost file's keys that older states and changelogs still hold ------------------------
#
# Only for merge engines that keep one version of a key: of others a row might count twice.


@record
class OlderRows:
    """What holds versions of a lost file's keys: files of an older retained reference, and changelogs since then."""

    lost: ManifestEntry
    reference: Reference | None
    base: Snapshot | None
    files: tuple[ManifestEntry, ...]
    changelogs: tuple[ManifestEntry, ...]

    @property
    def row_count(self) -> int:
        """How many rows they have, at most as many as may be of the lost file's keys."""
        return sum(entry.file.row_count for entry in (*self.files, *self.changelogs))

    def __str__(self) -> str:
        shown = "" if self.reference is None else str(self.reference)
        if self.reference is not None and self.reference.branch:
            shown += f" of branch {self.reference.branch!r}"
        changes = counted(len(self.changelogs), "changelog file") if self.changelogs else ""
        return " and ".join(text for text in (shown, changes) if text)


def older_rows(session: TableSession, lost: ManifestEntry, bad: frozenset[str]) -> OlderRows | None:
    """Return what has versions of a lost file's keys; None: nothing, or they might count twice."""
    engine = session.options[core_options.MERGE_ENGINE].policy
    has_vectors = session.options[core_options.DELETION_VECTORS_ENABLED]
    if session.key_order is None or engine.combines_versions or has_vectors:
        return None
    reference, base, files = older_versions(session, lost, bad) or (None, None, ())
    changelogs = tuple(_changelogs(session, lost, bad, above=0 if base is None else base.id))
    if not files and not changelogs:
        return None
    return OlderRows(lost=lost, reference=reference, base=base, files=files, changelogs=changelogs)


def _changelogs(
    session: TableSession, lost: ManifestEntry, bad: frozenset[str], *, above: int
) -> Iterator[ManifestEntry]:
    """Yield changelog files of keys that were looked up when they changed: rows as they became."""
    order = session.key_order
    assert order is not None
    producer = session.options[core_options.CHANGELOG_PRODUCER].policy
    if not (producer.looks_up or producer.waits_for_full_compaction):
        return
    if any(
        pa.types.is_floating(arrow_type(session.schema.field(name).type)) for name in _keys(session)
    ):
        return  # Arrow orders NaN and zeros in another way
    listed = {
        **dict(readable(session.changelogs.ids(), session.changelogs.find)),
        **dict(readable(session.snapshots.listed_ids(), session.snapshots.find)),
    }
    for number in sorted(listed):
        if number <= above:
            continue
        try:
            entries = list(References(session).changelog_entries([listed[number]]))
        except LsmError:
            # A damaged changelog gives nothing back; the others may.
            continue
        for entry in entries:
            path = session.data_path(entry)
            if (
                entry.kind is EntryKind.ADD
                and (entry.partition, entry.bucket) == (lost.partition, lost.bucket)
                and entry.file.min_sequence_number <= lost.file.max_sequence_number
                and overlaps(entry.file, [lost.file], order)
                and path not in bad
                and is_there(session, entry)
            ):
                yield entry


def _keys(session: TableSession) -> list[str]:
    return list(session.schema.trimmed_primary_keys)


def write_older_rows(session: TableSession, older: OlderRows) -> list[DataFileMeta]:
    """Write them in the lost file's place: of each of its keys the version that counted last."""
    lost = older.lost
    tables = []
    for rows in merged_files(session, lost, older.base, older.files, drop_deletes=False):
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        tables.append(_between(table, session.schema, lost.file))
    tables += _changed_rows(session, older)
    with session.context().new_files(
        (lost.partition, lost.bucket), level=lost.file.level, source=FileSource.COMPACT
    ) as writer:
        if tables:
            writer.write(_last_of_each(pa.concat_tables(tables), _keys(session)))
        return writer.close()


def _changed_rows(session: TableSession, older: OlderRows) -> Iterator[pa.Table]:
    """Yield what keys became, by changelogs, no newer than the lost file: newer files have the rest."""
    lost = older.lost
    reader = reader_of(session, lost, None, older.changelogs)
    names = (*session.schema.names, SEQUENCE_NUMBER, VALUE_KIND)
    for entry in older.changelogs:
        for batch in reader.file(entry.file, names):
            rows = pa.Table.from_batches([batch])
            not_newer = pc.less_equal(rows.column(SEQUENCE_NUMBER), lost.file.max_sequence_number)
            before = pc.equal(rows.column(VALUE_KIND), RowKind.UPDATE_BEFORE.value)
            rows = rows.filter(pc.and_(not_newer, pc.invert(before)))
            yield _between(rows, session.schema, lost.file)


def _last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the row of each key that has the greatest sequence number, in the order of the keys."""
    order = [(name, "ascending") for name in (*keys, SEQUENCE_NUMBER)]
    rows = rows.sort_by(order)
    if rows.num_rows < 2:
        return rows
    differs = np.zeros(rows.num_rows - 1, np.bool_)
    for name in keys:
        column = rows.column(name)
        differs |= pc.not_equal(column.slice(0, rows.num_rows - 1), column.slice(1)).to_numpy()
    return rows.filter(pa.array(np.append(differs, True)))


def merged_files(
    session: TableSession,
    entry: ManifestEntry,
    base: Snapshot | None,
    parts: Sequence[ManifestEntry],
    *,
    drop_deletes: bool,
) -> Iterator[pa.Table | pa.RecordBatch]:
    reader = reader_of(session, entry, base, parts)
    for section in sections_of(session, parts):
        yield from reader.merged(section, drop_deletes=drop_deletes)


def sections_of(session: TableSession, parts: Sequence[ManifestEntry]) -> list[Section]:
    """Return the sections of files of a bucket."""
    order = session.key_order
    assert order is not None
    file_sections = sections([part.file for part in parts], order)
    return [tuple(tuple(run.files) for run in section) for section in file_sections]


def reader_of(
    session: TableSession,
    entry: ManifestEntry,
    base: Snapshot | None,
    parts: Sequence[ManifestEntry],
) -> BucketReader:
    """Return a reader of files of a bucket without the rows that were deleted in `base`."""
    context = session.context({part.file.schema_id for part in parts})
    places = (
        {} if base is None else session.vector_places(base).get((entry.partition, entry.bucket), {})
    )
    return BucketReader(context, entry.partition, entry.bucket, places.values())


def _between(rows: pa.Table, schema: TableSchema, file: DataFileMeta) -> pa.Table:
    """Return the rows whose keys lie between a file's first and last."""
    fields = schema.select(schema.trimmed_primary_keys)
    columns = [rows.column(field.name) for field in fields]
    low, high = (
        [
            bound[0].cast(column.type)
            for bound, column in zip(
                decode_columns(
                    pa.array([stored], pa.binary()), [field_of_key.type for field_of_key in fields]
                ),
                columns,
                strict=True,
            )
        ]
        for stored in (file.min_key, file.max_key)
    )
    return rows.filter(pc.and_(_beyond(pc.greater, columns, low), _beyond(pc.less, columns, high)))


def _beyond(
    compare: Callable[[Any, Any], Any],
    columns: Sequence[pa.ChunkedArray],
    bound: Sequence[pa.Scalar],
) -> Any:
    """Return which keys are the bound, or beyond it: the first column that differs decides."""
    mask: Any = pa.scalar(True)  # noqa: FBT003 -- pyarrow has no other spelling
    for column, value in reversed(list(zip(columns, bound, strict=True))):
        mask = pc.or_(compare(column, value), pc.and_(pc.equal(column, value), mask))
    return mask


# -- The sources from which the rows of a damaged or missing file can be restored ------------------

_LOOKED_FOR = 100
"""For so many files it is looked up what could give them back: more is a disk that failed."""


def with_sources(session: TableSession, files: Sequence[DamagedFile]) -> tuple[DamagedFile, ...]:
    """Return the same files with their sources."""
    searched, unsearched = files[:_LOOKED_FOR], files[_LOOKED_FOR:]
    if not searched:
        return tuple(files)
    entries = entries_at(session, {file.path for file in searched if file.stake is not None})
    origins = origins_of(session, [entry.physical_file for entry in entries.values()])
    bad = frozenset(file.path for file in files)
    results = []
    for file in searched:
        entry = entries.get(file.path)
        if entry is None:
            sound = () if file.stake is not None else tuple(_sound(session, file))
            results.append(replace(file, sources=sound))
            continue
        rebuilt = tuple(_rebuilt(session, origins.get(entry.physical_file), bad))
        sources = (*rebuilt, *_older(session, entry, bad))
        results.append(replace(file, sources=sources, is_rebuildable=bool(rebuilt)))
    return (*results, *unsearched)


def entries_at(session: TableSession, paths: Iterable[str]) -> dict[str, ManifestEntry]:
    """Return an entry of each data file that some retained reference names and whose schema is there, by path."""
    missing = set(paths)
    by_path: dict[str, ManifestEntry] = {}
    for branch, _, snapshot in all_references_of(session):
        if not missing:
            break
        try:
            entries = branch.live_entries(snapshot)
        except LsmError:
            # Another retained reference may name the same files and be readable.
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

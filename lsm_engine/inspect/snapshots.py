"""The differences between two snapshots: files, and partitions with other rows."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ExpiredError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes
from lsm_engine.filter.partition import partition_rows
from lsm_engine.filter.stats import ColumnBounds, StoredStats, covered_columns, stored_bounds
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.inspect.system_tables import FILE_KEY_RANGES, file_key_ranges
from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.planning.scan import ReadMode
from lsm_engine.planning.snapshot_chain import follows
from lsm_engine.table.live_files import stats_layouts
from lsm_engine.table.merge_rules import read_mode
from lsm_engine.table.session import TableSession

# -- The difference of two snapshots of a table ----------------------------------------------------
#
# Files added, removed, and moved to another level.

_PATH = "file_path"


@record
class SnapshotDiff:
    """The second snapshot seen from the first. Tables have the columns of `file_key_ranges`.

    `moved`: files of both that lie on another level in the second, as it has them. Rows are counted
    as files hold them, before merging.
    """

    first_id: int
    second_id: int
    added: pa.Table
    removed: pa.Table
    moved: pa.Table

    @property
    def row_change(self) -> int:
        """Rows in files that came less rows in files that went."""
        return _sum(self.added, "record_count") - _sum(self.removed, "record_count")

    @property
    def byte_change(self) -> int:
        """Bytes that came less bytes that went."""
        return _sum(self.added, "file_size_in_bytes") - _sum(self.removed, "file_size_in_bytes")

    def by_level(self) -> list[tuple[int, int, int, int]]:
        """Return, per level: (level, files added, files removed, change of bytes)."""
        levels = {
            level
            for rows in (self.added, self.removed)
            for level in rows.column("level").to_pylist()
        }
        return [
            (level, added.num_rows, removed.num_rows, _size(added) - _size(removed))
            for level in sorted(levels)
            for added, removed in [(_on_level(self.added, level), _on_level(self.removed, level))]
        ]

    def partitions(self) -> list[str]:
        """Return the partitions that files came to or went from."""
        names = {
            name
            for rows in (self.added, self.removed)
            for name in rows.column("partition").to_pylist()
        }
        return sorted(names)

    def text(self) -> str:
        """Render for people."""
        lines = [
            f"from snapshot {self.first_id} to {self.second_id}: {counted(self.added.num_rows, 'file')} came, "
            f"{self.removed.num_rows} went, {self.moved.num_rows} changed their level; "
            f"{self.row_change:+,} rows in files"
        ]
        lines += [
            f"  level {level}: +{added} -{removed} files, {'-' if size < 0 else '+'}"
            f"{format_bytes(abs(size))}"
            for level, added, removed, size in self.by_level()
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def compare(session: TableSession, first: Snapshot | None, second: Snapshot) -> SnapshotDiff:
    """Compare two snapshots; `first` None: nothing at all, as before the first commit."""
    before = FILE_KEY_RANGES.empty_table() if first is None else file_key_ranges(session, first)
    after = file_key_ranges(session, second)
    stayed = after.filter(pc.is_in(after.column(_PATH), value_set=_set(before.column(_PATH))))
    levels = dict(
        zip(before.column(_PATH).to_pylist(), before.column("level").to_pylist(), strict=True)
    )
    moved = [
        levels[path] != level
        for path, level in zip(
            stayed.column(_PATH).to_pylist(), stayed.column("level").to_pylist(), strict=True
        )
    ]
    return SnapshotDiff(
        first_id=0 if first is None else first.id,
        second_id=second.id,
        added=_without(after, before),
        removed=_without(before, after),
        moved=stayed.filter(pa.array(moved, pa.bool_())),
    )


def _set(column: pa.ChunkedArray) -> pa.Array:
    return pa.array(column.to_pylist(), pa.string())


def _without(rows: pa.Table, other_rows: pa.Table) -> pa.Table:
    is_other = pc.is_in(rows.column(_PATH), value_set=_set(other_rows.column(_PATH)))
    return rows.filter(pc.invert(is_other))


def _on_level(rows: pa.Table, level: int) -> pa.Table:
    return rows.filter(pc.equal(rows.column("level"), level))


def _sum(rows: pa.Table, name: str) -> int:
    return int(pc.sum(rows.column(name)).as_py() or 0)


def _size(rows: pa.Table) -> int:
    return _sum(rows, "file_size_in_bytes")


# -- The partitions whose rows a commit may have changed -------------------------------------------
#
# Results derived from others stay valid.


def changed_partitions(session: TableSession, snapshot: Snapshot) -> frozenset[str] | None:
    """Return the directories of the partitions whose rows a commit may have changed; "" if unpartitioned.

    None: any of them. A compaction changes none, but where reads leave level 0 out: there rows are seen
    once it has taken them up, and a write alone changes nothing. Read from the delta's manifests, and of
    deletion vectors, which they do not name, from the index manifests of the commit and the one before:
    once that has expired, rows may be deleted in any partition.
    """
    changes = _changes(session, snapshot)
    if changes is None:
        return None
    entries, by_vectors = changes
    partitions = {entry.partition for entry in entries} | by_vectors
    return frozenset(map(session.context().partition_path, partitions))


def changed_ranges(session: TableSession, snapshot: Snapshot, column: str) -> pa.Table | None:
    """Return which values of a column the rows have that a commit may have changed; None: any rows.

    Of each file that came or went a row: its `partition_path`, and the `low` and `high` value; null: any.
    Exact for a partition column. Of another column the bounds are statistics, where they are kept: of a
    primary key, as a row keeps its key, and of append tables. Files where it is null throughout are
    left out; deletion vectors take rows of any value away.
    """
    changes = _changes(session, snapshot)
    if changes is None:
        return None
    entries, by_vectors = changes
    schema, kind = session.schema, session.schema.arrow.field(column).type
    partitions = {entry.partition for entry in entries} | by_vectors
    paths = {partition: session.context().partition_path(partition) for partition in partitions}
    if column in schema.partition_keys:
        stored = pa.array(list(paths), pa.binary())
        values = partition_rows(stored, schema.select(schema.partition_keys))[column]
        tables = [_rows(list(paths.values()), values, values, pc.is_valid(values))]
    else:
        tables = [_rows([paths[partition] for partition in by_vectors], *_unknown(len(by_vectors)))]
        for group, bounds in _bounds(session, entries, column):
            ends = _ends([entry.file for entry in group], bounds)
            tables.append(_rows([paths[entry.partition] for entry in group], *ends))
    columns = {"partition_path": pa.string(), "low": kind, "high": kind}
    empty = pa.schema(columns).empty_table()
    return pa.concat_tables([empty, *(table.cast(empty.schema) for table in tables)])


def hides_level_0(session: TableSession) -> bool:
    """Whether reads leave level 0 out, so that rows are seen once a compaction has taken them up."""
    return read_mode(session.schema) is ReadMode.ABOVE_LEVEL_0


_Changes = tuple[list[ManifestEntry], frozenset[bytes]]


def _changes(session: TableSession, snapshot: Snapshot) -> _Changes | None:
    """Return the files that came or went with rows that readers see, and where deletion vectors did.

    None: any row may have changed.
    """
    compacts, hides = snapshot.commit_kind is CommitKind.COMPACT, hides_level_0(session)
    if snapshot.commit_kind is CommitKind.ANALYZE or (compacts and not hides):
        return [], frozenset()
    by_vectors: frozenset[bytes] | None = frozenset()
    if not session.schema.has_primary_key and snapshot.index_manifest is not None:
        by_vectors = _by_vectors(session, snapshot)
    if by_vectors is None:
        return None
    entries = [
        entry
        for entry in session.list_entries(snapshot, snapshot.delta_manifest_list)
        if not hides or _is_seen(entry, compacts=compacts)
    ]
    return entries, by_vectors


def _by_vectors(session: TableSession, snapshot: Snapshot) -> frozenset[bytes] | None:
    """Return the partitions whose deletion vectors a commit has changed; None: that is not known any more."""
    try:
        before = session.snapshots.load(snapshot.id - 1) if snapshot.id > 1 else None
        if before is not None and not follows(snapshot, before):
            return None
        if before is not None and before.index_manifest == snapshot.index_manifest:
            return frozenset()
        then = session.vector_files(before) if before is not None else {}
    except (NotFoundError, ExpiredError):
        return None
    now = session.vector_files(snapshot)
    return frozenset(
        bucket[0] for bucket in now.keys() | then.keys() if now.get(bucket) != then.get(bucket)
    )


def _is_seen(entry: ManifestEntry, *, compacts: bool) -> bool:
    """Whether a change of files changes what is read above level 0."""
    if compacts:
        return entry.kind is EntryKind.DELETE and entry.file.level == 0
    return entry.kind is EntryKind.DELETE or entry.file.level > 0


def _bounds(
    session: TableSession, entries: Sequence[ManifestEntry], column: str
) -> Iterator[tuple[Sequence[ManifestEntry], ColumnBounds | None]]:
    """Yield files with the bounds of a column; None: nothing is known of it."""
    schema = session.schema
    if schema.has_primary_key:
        fields = schema.select(schema.trimmed_primary_keys)
        if fields[0].name == column:  # also without statistics
            mins, maxs = (
                partition_rows(pa.array(keys, pa.binary()), fields)[column].combine_chunks()
                for keys in (
                    [entry.file.min_key for entry in entries],
                    [entry.file.max_key for entry in entries],
                )
            )
            unknown = pa.nulls(len(entries), pa.int64())
            yield entries, ColumnBounds(mins=mins, maxs=maxs, null_counts=unknown)
            return
        stored = StoredStats.from_stats(
            [entry.file.key_stats for entry in entries], [entry.file.row_count for entry in entries]
        )
        # Of another column it is unknown what the rows held that others have replaced.
        is_key = column in schema.trimmed_primary_keys
        covered = covered_columns(fields, fields)
        yield entries, stored_bounds(stored, covered, [column])[column] if is_key else None
        return
    of_files = {entry.file.file_name: entry for entry in entries}
    files = [entry.file for entry in of_files.values()]
    for layout in stats_layouts(files, schema, session.schemas.load):
        group = [of_files[file.file_name] for file in layout.files]
        # A file of some columns gives rows that are there other values.
        is_whole = all(file.write_columns is None for file in layout.files)
        bounds = stored_bounds(layout.stats, layout.covered, [column]) if is_whole else {}
        yield group, bounds.get(column)


def _ends(
    files: Sequence[DataFileMeta], bounds: ColumnBounds | None
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return low and high values of a column in files, null where unknown, and which have a value."""
    if bounds is None:
        return _unknown(len(files))
    is_valid = pc.and_(pc.is_valid(bounds.mins), pc.is_valid(bounds.maxs))
    counts = pa.array([file.row_count for file in files], pa.int64())
    has_some = pc.fill_null(pc.less(bounds.null_counts, counts), fill_value=True)
    low, high = (pc.if_else(is_valid, ends, None) for ends in (bounds.mins, bounds.maxs))
    return low, high, has_some


def _unknown(count: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    return pa.nulls(count), pa.nulls(count), pa.array([True] * count, pa.bool_())


def _rows(paths: Sequence[str], low: pa.Array, high: pa.Array, mask: pa.Array) -> pa.Table:
    names = ["partition_path", "low", "high"]
    return pa.table([pa.array(paths, pa.string()), low, high], names).filter(mask)

"""The request of a scan, and its plan: all decisions before the first data file is opened."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field as attribute
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import NotFoundError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.filter.expression import to_expression
from lsm_engine.filter.partition import candidate_buckets, manifest_mask, partition_mask
from lsm_engine.filter.predicate import Predicate, split_conjuncts
from lsm_engine.filter.stats import StoredStats, covered_columns, stored_mask
from lsm_engine.filter.where import Filter
from lsm_engine.format.binary_row import encode_rows
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta, by_bucket
from lsm_engine.format.manifest_columns import narrowed
from lsm_engine.format.manifest_file import WITHOUT_STATS, entries_of
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.buckets import bucket_of, murmur32
from lsm_engine.options import core_options
from lsm_engine.options.modes import ChangelogProducer
from lsm_engine.planning.incremental import changed_state
from lsm_engine.planning.names import MAIN_BRANCH
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.row_ids import column_groups
from lsm_engine.planning.scan import (
    Packing,
    PruneCounts,
    Reach,
    ReadMode,
    ScanExplanation,
    Split,
    SplitPlanner,
    first_level,
    prune_counts,
)
from lsm_engine.read.split import ReadRows, SplitSource, replaced_columns, rows_by_index
from lsm_engine.table.branches import on_branch
from lsm_engine.table.live_files import (
    BUCKET,
    FILE_NAME,
    KIND,
    LEVEL,
    MANY_FILES,
    PARTITION,
    ROW_COUNT,
    SCHEMA_ID,
    TOTAL_BUCKETS,
    ManySplits,
    live_rows,
    stats_layouts,
)
from lsm_engine.table.merge_rules import read_mode
from lsm_engine.table.session import TableSession
from lsm_engine.table.time_travel import snapshot_at
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField

# -- The fallback branch of a batch read: it supplies partitions that the read branch lacks --------
#
# Each branch is read with its own schema. Both have the same output columns and partition keys.
# The fallback of a fallback branch is ignored.


@record
class Fallback:
    """A fallback branch and the snapshot of it to read. `snapshot` None: the branch was empty at that time."""

    branch: str
    session: TableSession
    snapshot: Snapshot | None


def fallback_of(session: TableSession, snapshot: Snapshot | None, *, past: bool) -> Fallback | None:
    """Return the branch that `scan.fallback-branch` names; None if the option is not set.

    With `past` the branch is read as of the snapshot's time: snapshot ids differ across branches.
    Raises NotFoundError if the branch does not exist, UnsupportedError if its columns differ.
    """
    name = session.options[core_options.SCAN_FALLBACK_BRANCH]
    # A branch does not fall back on itself.
    if name is None or name == (session.paths.branch_name or MAIN_BRANCH):
        return None
    try:
        branch_session = on_branch(session, name)
    except NotFoundError as cause:
        raise NotFoundError(
            f"the table falls back on branch {name!r}, which is not there; create it, or remove "
            "'scan.fallback-branch'",
            kind=cause.kind,
            branch=name,
        ) from cause
    branch_snapshot = (
        _branch_snapshot(branch_session, snapshot)
        if past and snapshot is not None
        else branch_session.snapshots.latest()
    )
    table_session = session
    if past and snapshot is not None:
        table_session = session.as_of(snapshot)
        branch_session = (
            branch_session if branch_snapshot is None else branch_session.as_of(branch_snapshot)
        )
    # Rows of the branch become rows of this table, so the types have to agree.
    _require_fit(table_session.schema, branch_session.schema, name)
    return Fallback(branch=name, session=branch_session, snapshot=branch_snapshot)


def is_past(session: TableSession, snapshot: Snapshot | None) -> bool:
    """Whether a snapshot is not the newest of its branch."""
    latest = session.snapshots.latest()
    return snapshot is not None and not (latest is not None and same_state(latest, snapshot))


def held_partitions(session: TableSession, snapshot: Snapshot | None) -> frozenset[bytes]:
    """Return the partitions with files that readers see, even if the files hold no rows.

    A partition whose rows all wait for a bucket is not visible yet.
    """
    if snapshot is None:
        return frozenset()
    metas = session.manifest_metas(snapshot)
    rows = live_rows(session.manifests, metas, columns=(KIND, PARTITION, BUCKET, LEVEL, FILE_NAME))
    if rows is None:
        return frozenset()
    if not session.options[core_options.POSTPONE_MERGE_ON_READ]:
        # A bucket below zero marks rows that a compaction has yet to place.
        rows = rows.filter(pc.greater_equal(rows.column(BUCKET), 0))
    return frozenset(pc.unique(rows.column(PARTITION)).to_pylist())


def outside(rows: pa.Table, hidden: frozenset[bytes]) -> pa.Table:
    """Return the entries, as columns, of partitions that are not `hidden`."""
    column = rows.column(PARTITION).cast(pa.binary())
    listed = pa.array(sorted(hidden), column.type)
    return rows.filter(pc.invert(pc.is_in(column, value_set=listed)))


def _branch_snapshot(session: TableSession, snapshot: Snapshot) -> Snapshot | None:
    try:
        return snapshot_at(session, snapshot.time_millis)
    except NotFoundError:
        return None  # the branch had no snapshot yet


def _require_fit(table_schema: TableSchema, branch_schema: TableSchema, branch: str) -> None:
    """Raise UnsupportedError unless the table could hold every row of the branch."""
    wrong = sorted(set(table_schema.names) ^ set(branch_schema.names))
    for name in table_schema.names:
        # A column that one side lacks is wrong already.
        if name in wrong:
            continue
        table_field, branch_field = table_schema.arrow.field(name), branch_schema.arrow.field(name)
        # Nulls of the branch would break a column that forbids them.
        if not table_field.type.equals(branch_field.type) or (
            branch_field.nullable and not table_field.nullable
        ):
            wrong.append(name)
    if wrong or table_schema.partition_keys != branch_schema.partition_keys:
        raise UnsupportedError(
            f"branch {branch!r} has other columns or partition keys than the table that falls back "
            "on it; alter either, or remove 'scan.fallback-branch'",
            branch=branch,
            columns=wrong,
            partition_keys=list(branch_schema.partition_keys),
        )


# -- Prune the files of a snapshot by partition, bucket, key range and statistics ------------------

KEY_STATS = "_FILE._KEY_STATS"
Mask = npt.NDArray[np.bool_]


@record
class PrunedFiles:
    """Live files that may hold a match. `kept_after` counts the files that remain after each step.

    `file_table`: the entries of very many files as columns (`ManySplits`); then `entries` is empty.
    `without_match`: the names of files that may hold a match by their statistics, and hold none by their file
    index in the manifest. `waiting`: the files of rows that wait for a bucket, by partition, in the order of their
    commits; empty unless the read merges them.
    """

    entries: list[ManifestEntry]
    file_table: pa.Table | None
    manifests: PruneCounts
    file_count: int
    kept_after: tuple[tuple[str, int], ...]
    value_match: Callable[[DataFileMeta], bool] | None
    without_match: frozenset[str] = frozenset()
    waiting: Mapping[bytes, Sequence[DataFileMeta]] = attribute(default_factory=dict)

    @property
    def matching(self) -> list[ManifestEntry]:
        """The files that may hold a match by their own statistics."""
        match = self.value_match
        return [entry for entry in self.entries if match is None or match(entry.file)]


def without_partitions(pruned: PrunedFiles, hidden: frozenset[bytes]) -> PrunedFiles:
    """Return the pruned files without those of some partitions."""
    file_table = None if pruned.file_table is None else outside(pruned.file_table, hidden)
    entries = [entry for entry in pruned.entries if entry.partition not in hidden]
    count = len(entries) if file_table is None else file_table.num_rows
    counts = (*pruned.kept_after, ("by_partition", count))
    waiting = {part: files for part, files in pruned.waiting.items() if part not in hidden}
    return replace(
        pruned, entries=entries, file_table=file_table, kept_after=counts, waiting=waiting
    )


def prune_files(
    session: TableSession,
    snapshot: Snapshot | None,
    predicate: Predicate | None,
    pushed: Predicate | None,
    *,
    merges_waiting: bool = False,
) -> PrunedFiles:
    """Return the live files of a snapshot (None: an empty table) that may match a filter.

    `pushed` is the part of `predicate` that reads only key and partition columns: only that part may
    prune a single file, the other conjuncts may only prune a whole section (planning/scan).
    `merges_waiting`: rows that wait for a bucket are read, too.
    """
    return _Pruning(session, predicate, pushed).prune(snapshot, merges_waiting=merges_waiting)


def _are_many(metas: Sequence[ManifestFileMeta]) -> bool:
    return sum(meta.added_file_count - meta.deleted_file_count for meta in metas) >= MANY_FILES


class _Buckets:
    """The buckets that may hold a match, by the bucket count that a file was written with.

    A partition that was not rescaled yet has another bucket count than the schema. If a former schema
    hashed the bucket key by another type, rows of one value are in several buckets: all are read.
    """

    def __init__(self, session: TableSession, pushed: Predicate) -> None:
        self._session = session
        self._pushed = pushed
        self._candidates: dict[int, frozenset[int] | None] = {}

    @cached_property
    def _fields(self) -> Sequence[DataField]:
        """The columns whose hash determines the bucket; empty if one of them has changed its type."""
        schema = self._session.schema
        fields = schema.select(schema.bucket_keys)
        if schema.has_primary_key or schema.id == 0 or not fields:
            return fields  # the type of a key never changes
        types = {field.id: replace(field.type, nullable=True) for field in fields}
        # A missing schema shows in the count of ids.
        schemas = self._session.schemas
        if len(ids := schemas.ids()) <= schema.id:
            return ()  # a schema is missing, and its types with it
        for number in ids:
            # Old rows were hashed as values of the old type.
            for field in schemas.load(number).fields:
                if field.id in types and types[field.id] != replace(field.type, nullable=True):
                    return ()
        return fields

    def candidates(self, total: int) -> frozenset[int] | None:
        """Return the buckets among `total` that may match; None: all, as rows are not hashed."""
        # With one bucket the hash decides nothing.
        if total <= 1 or not self._fields:
            return None
        # The same number of buckets recurs in most entries, so its result is cached.
        if total not in self._candidates:
            self._candidates[total] = candidate_buckets(
                self._pushed, self._fields, partial(self._hashed, total)
            )
        return self._candidates[total]

    def _hashed(self, total: int, columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
        types = [field.type for field in self._fields]
        rows = encode_rows(columns, types, reserve_null_wide=True)
        return bucket_of(murmur32(rows.data, rows.offsets), total)

    def may_be_in(self, meta: ManifestFileMeta) -> bool:
        """Whether a manifest may list files of matching buckets."""
        # Older clients write manifests without these bounds, and rows that wait (below 0) may belong to any bucket.
        if (
            meta.min_bucket is None
            or meta.min_bucket < 0
            or meta.max_bucket is None
            or meta.total_buckets is None
        ):
            return True
        buckets = self.candidates(meta.total_buckets)
        if buckets is None:
            # The filter leaves the hash open.
            return True
        return any(meta.min_bucket <= bucket <= meta.max_bucket for bucket in buckets)

    def mask(self, entries: pa.Table) -> Mask:
        """Return which entries are of matching buckets."""
        totals = entries.column(TOTAL_BUCKETS).to_numpy()
        buckets = entries.column(BUCKET).to_numpy()
        may_match = np.ones(entries.num_rows, np.bool_)
        for total in np.unique(totals).tolist():
            candidates = self.candidates(total)
            if candidates is not None:
                own = totals == total
                may_match[own] = np.isin(buckets[own], list(candidates))
        return may_match


class _Pruning:
    """Prunes manifests and then their entries by a filter, and counts the dropped files.

    ADD and DELETE entries of one file hold the same statistics, so both are kept or both are dropped.
    """

    def __init__(
        self, session: TableSession, predicate: Predicate | None, pushed: Predicate | None
    ) -> None:
        self._session = session
        self._schema = session.schema
        self._predicate = predicate
        self._pushed = pushed
        self._buckets = None if pushed is None else _Buckets(session, pushed)
        self._dropped: Counter[str] = Counter()

    def prune(self, snapshot: Snapshot | None, *, merges_waiting: bool) -> PrunedFiles:
        """Return the live files of a snapshot that may match."""
        metas = [] if snapshot is None else self._session.manifest_metas(snapshot)
        manifests, counts = self._manifests(metas)
        # A scan without a filter reads no statistics, which are most of an entry's bytes. Entries of
        # smaller tables keep them, as the next scan may have a filter.
        is_bare = self._predicate is None and _are_many(manifests)
        rows = live_rows(
            self._session.manifests,
            manifests,
            None if self._pushed is None else self._keep,
            WITHOUT_STATS if is_bare else None,
            shape=narrowed if is_bare else None,
        )
        waiting: dict[bytes, list[DataFileMeta]] = {}
        if rows is not None and rows.num_rows and pc.min(rows.column(BUCKET)).as_py() < 0:
            is_placed = pc.greater_equal(rows.column(BUCKET), 0)
            if merges_waiting:
                for entry in entries_of(rows.filter(pc.invert(is_placed))):
                    waiting.setdefault(entry.partition, []).append(entry.file)
            # Otherwise rows that wait for a bucket (below 0) are not visible yet.
            rows = rows.filter(is_placed)
        count = 0 if rows is None else rows.num_rows
        is_bare = self._predicate is None and not waiting
        file_table = rows if is_bare and count >= MANY_FILES else None
        entries = [] if rows is None or file_table is not None else entries_of(rows)
        without_stats, without_match = self._without_match(entries)
        return PrunedFiles(
            entries=entries,
            file_table=file_table,
            manifests=counts,
            file_count=count + self._dropped_count,
            kept_after=self._kept_after(count),
            value_match=None
            if self._predicate is None
            else lambda file: file.file_name not in without_stats | without_match,
            without_match=without_match,
            waiting=waiting,
        )

    def _manifests(
        self, metas: Sequence[ManifestFileMeta]
    ) -> tuple[list[ManifestFileMeta], PruneCounts]:
        """Return the manifests that may list a match."""
        manifests = list(metas)
        # Without a filter there is nothing to prune by.
        if self._pushed is None or self._buckets is None:
            return manifests, PruneCounts(total=len(metas))
        # Partitions come first: their ranges exclude the most manifests.
        if self._schema.partition_keys:
            fields = self._schema.select(self._schema.partition_keys)
            mask = manifest_mask(self._pushed, manifests, fields)
            manifests = [meta for meta, may in zip(manifests, mask, strict=True) if may]
        after_partition = len(manifests)
        manifests = [meta for meta in manifests if self._buckets.may_be_in(meta)]
        steps = [("by_partition", after_partition), ("by_bucket", len(manifests))]
        return manifests, prune_counts(len(metas), steps)

    @property
    def _dropped_count(self) -> int:
        """The number of dropped files: dropped ADD entries less dropped DELETE entries."""
        return sum(self._dropped.values())

    def _kept_after(self, final_count: int) -> tuple[tuple[str, int], ...]:
        """Return the number of files after each step, from the number after the last one."""
        remaining = final_count + self._dropped_count
        steps = []
        for step in ("by_partition", "by_bucket", "by_key_range"):
            remaining -= self._dropped[step]
            steps.append((step, remaining))
        return tuple(steps)

    def _keep(self, entries: pa.Table) -> Mask:
        """Return which entries of one manifest may match the filter."""
        assert self._pushed is not None
        remaining = np.ones(entries.num_rows, np.bool_)
        # The cheapest test runs first, and the later ones see fewer entries.
        for step, mask in (
            ("by_partition", self._partitions),
            ("by_bucket", self._bucket_mask),
            ("by_key_range", self._key_ranges),
        ):
            if not remaining.any():
                break
            matching = remaining.copy()
            candidates = entries.filter(pa.array(remaining))
            matching[remaining] = mask(candidates)
            if step != "by_partition":
                # Rows that wait for a bucket are not sorted, and may belong to any.
                matching[remaining] |= _mask(pc.less(candidates.column(BUCKET), 0))
            # An entry that deletes a file counts against the one that added it.
            signs = np.where(entries.column("_KIND").to_numpy() == 0, 1, -1)
            self._dropped[step] += int(signs[remaining & ~matching].sum())
            remaining = matching
        return remaining

    def _partitions(self, entries: pa.Table) -> Mask:
        assert self._pushed is not None
        fields = self._schema.select(self._schema.partition_keys)
        # A table without partition columns has one partition.
        if not fields:
            return np.ones(entries.num_rows, np.bool_)
        column = entries.column(PARTITION)
        # Many entries share few partitions, so each is tested once.
        distinct = pc.unique(column)
        mask = partition_mask(self._pushed, distinct, fields)
        matching = distinct.filter(pa.array(mask))
        return _mask(pc.is_in(column, value_set=matching))

    def _bucket_mask(self, entries: pa.Table) -> Mask:
        if self._buckets is None:
            return np.ones(entries.num_rows, np.bool_)
        return self._buckets.mask(entries)

    def _key_ranges(self, entries: pa.Table) -> Mask:
        assert self._pushed is not None
        # Only tables with a primary key sort their files by it.
        if not self._schema.has_primary_key:
            return np.ones(entries.num_rows, np.bool_)
        fields = self._schema.select(self._schema.trimmed_primary_keys)
        stats = _stats(entries, KEY_STATS)
        return stored_mask(self._pushed, stats, covered_columns(fields, fields))

    def _without_match(
        self, entries: Sequence[ManifestEntry]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the files that hold no match by their value statistics, and of the others those by their index."""
        predicate = self._predicate
        # Without a filter no statistics are decoded.
        if predicate is None:
            return frozenset(), frozenset()
        files = (entry.file for entry in entries)
        by_stats: set[str] = set()
        replaced = self._replaced(entries) if self._schema.evolves_data else {}
        for layout in stats_layouts(files, self._schema, self._session.schemas.load, replaced):
            mask = stored_mask(predicate, layout.stats, layout.covered)
            by_stats |= {
                file.file_name for file, may in zip(layout.files, mask, strict=True) if not may
            }
        if not self._schema.options[core_options.FILE_INDEX_READ_ENABLED]:
            return frozenset(by_stats), frozenset()
        by_index = frozenset(
            entry.file.file_name
            for entry in entries
            if entry.file.embedded_index is not None
            and entry.file.file_name not in by_stats
            and not self._may_match(entry, replaced.get(entry.file.file_name, frozenset()))
        )
        return frozenset(by_stats), by_index

    def _may_match(self, entry: ManifestEntry, replaced: frozenset[int]) -> bool:
        """Whether the file index in a manifest entry allows a match; columns that newer files replace do not count."""
        assert self._predicate is not None
        file = entry.file
        written = self._session.schemas.load(file.schema_id).written_fields(file.write_columns)
        stored = [field for field in written if field.id not in replaced]
        place = (entry.partition, entry.bucket)
        rows = rows_by_index(self._session.context(), place, file, self._predicate, stored)
        return rows is None or bool(rows)

    def _replaced(self, entries: Sequence[ManifestEntry]) -> dict[str, frozenset[int]]:
        """Return, by file name, the columns that newer files replace: their statistics are ignored."""
        schemas = self._session.context(entry.file.schema_id for entry in entries).schemas
        replaced: dict[str, frozenset[int]] = {}
        for bucket_entries in by_bucket(entries).values():
            for group in column_groups(entry.file for entry in bucket_entries):
                if len(group) > 1:
                    replaced |= replaced_columns(group, self._schema, schemas)
        return replaced


def _stats(entries: pa.Table, prefix: str) -> StoredStats:
    return StoredStats(
        min_values=_combined(entries.column(f"{prefix}._MIN_VALUES")),
        max_values=_combined(entries.column(f"{prefix}._MAX_VALUES")),
        null_counts=_combined(entries.column(f"{prefix}._NULL_COUNTS")),
        row_counts=_combined(entries.column(ROW_COUNT)),
    )


def _combined(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _mask(column: pa.ChunkedArray) -> Mask:
    mask: Mask = column.to_numpy(zero_copy_only=False)
    return mask


# -- The request of a scan, and its plan: all decisions before the first data file is opened -------

_SMALL_FILE_BYTES = 64 << 10


@record
class ScanRequest:
    """The columns (None: all), rows and time (None: now) to read.

    `read_optimized`: only files that need no merging (system table ro). `is_batch`: a batch read, not the
    initial state of a stream: it uses the fallback branch, and tags its snapshot, if the table's options
    require it. `before_changes`: the state with which a reader of this producer's changelog begins.
    """

    columns: tuple[str, ...] | None = None
    where: Filter | None = None
    snapshot_id: int | None = None
    tag: str | None = None
    as_of_millis: int | None = None
    limit: int | None = None
    read_optimized: bool = False
    is_batch: bool = True
    before_changes: ChangelogProducer | None = None

    @property
    def is_of_the_past(self) -> bool:
        """Whether a snapshot, a tag or a time is named."""
        return (self.snapshot_id, self.tag, self.as_of_millis) != (None, None, None)


@record
class PlannedScan:
    """The splits of one scan, and the explanation of how they were chosen."""

    splits: Sequence[Split]
    explanation: ScanExplanation
    source: SplitSource

    @property
    def has_small_files(self) -> bool:
        """Whether threads would not help: opening a small local file is most of reading it."""
        # A remote file is slow to open, so threads help however small it is.
        if not isinstance(self.splits, tuple) or self.source.context.file_io.facts.is_remote:
            return False
        sizes = [file.file_size for split in self.splits for file in split.files]
        return bool(sum(sizes) < _SMALL_FILE_BYTES * len(sizes))


def plan_scan(
    session: TableSession,
    snapshot: Snapshot | None,
    predicate: Predicate | None,
    request: ScanRequest,
    *,
    hidden: frozenset[bytes] = frozenset(),
) -> PlannedScan:
    """Plan the read of one snapshot (None: an empty table) without the `hidden` partitions."""
    schema = session.schema
    pushable = {*schema.partition_keys, *schema.trimmed_primary_keys}
    if not schema.has_primary_key:
        pushable = set(schema.names)
    pushed, residual = (None, None) if predicate is None else split_conjuncts(predicate, pushable)
    merges_waiting = (
        session.options[core_options.POSTPONE_MERGE_ON_READ]
        and request.is_batch
        and not request.read_optimized
    )
    pruned = prune_files(session, snapshot, predicate, pushed, merges_waiting=merges_waiting)
    if hidden:
        pruned = without_partitions(pruned, hidden)
    mode, reach = _mode_and_reach(schema, request)
    engine = session.options[core_options.MERGE_ENGINE]
    vectors = {} if snapshot is None else session.vector_places(snapshot)
    planner = SplitPlanner(
        key_order=session.key_order or bytes,
        mode=mode,
        packing=Packing(
            target_size_bytes=session.options[core_options.SOURCE_SPLIT_TARGET_SIZE],
            open_file_cost_bytes=session.options[core_options.SOURCE_SPLIT_OPEN_FILE_COST],
        ),
        snapshot_id=None if snapshot is None else snapshot.id,
        value_match=pruned.value_match,
        merge_keeps_rows=schema.has_primary_key and not engine.policy.combines_versions,
        vectors=vectors,
        reach=reach,
        waiting=pruned.waiting,
    )
    splits: Sequence[Split]
    if pruned.file_table is not None:
        is_plain = mode is ReadMode.MERGE and reach is Reach.ALL and not vectors
        splits = ManySplits(pruned.file_table, planner.plan, counts_levels=is_plain)
        levels = pruned.file_table.column(LEVEL)
        is_read = pc.greater_equal(levels, first_level(mode, reach, pc.max(levels).as_py()))
        read = int(pc.sum(is_read).as_py() or 0)
        ids = pc.unique(pruned.file_table.column(SCHEMA_ID)).to_pylist()
    else:
        splits = planner.plan(pruned.entries)
        read = sum(len(split.files) for split in splits)
        ids = [file.schema_id for split in splits for file in (*split.files, *split.waiting)]
    names = schema.names if request.columns is None else request.columns
    return PlannedScan(
        splits=splits,
        explanation=_explanation(snapshot, pushed, residual, pruned, splits, read),
        source=SplitSource(
            context=session.context(ids),
            rows=ReadRows.from_filter(names, predicate, pushed),
        ),
    )


def _mode_and_reach(schema: TableSchema, request: ScanRequest) -> tuple[ReadMode, Reach]:
    mode = read_mode(schema)
    # A read of the state before a commit decides the mode by itself.
    if request.before_changes is not None:
        return changed_state(request.before_changes, mode)
    # Only a merge has levels that an optimized read could leave out.
    optimized = request.read_optimized and mode is ReadMode.MERGE
    return mode, Reach.DEEPEST if optimized else Reach.ALL


def _explanation(
    snapshot: Snapshot | None,
    pushed: Predicate | None,
    residual: Predicate | None,
    pruned: PrunedFiles,
    splits: Sequence[Split],
    read: int,
) -> ScanExplanation:
    by_index = 0
    if pruned.without_match:
        read_names = {file.file_name for split in splits for file in split.files}
        by_index = len(pruned.without_match - read_names)
    return ScanExplanation(
        snapshot_id=None if snapshot is None else snapshot.id,
        pushed_filter=None if pushed is None else str(to_expression(pushed)),
        residual_filter=None if residual is None else str(to_expression(residual)),
        manifests=pruned.manifests,
        files=prune_counts(
            pruned.file_count,
            [*pruned.kept_after, ("by_stats", read + by_index), ("by_file_index", read)],
        ),
        splits=splits,
    )

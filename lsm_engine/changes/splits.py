"""Changes: a range of snapshots → what to read of each → splits → rows with their row kinds."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.arguments import checks_all_arguments
from lsm_engine.base.errors import InvalidInputError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.changes.range import (
    ChangeRange,
    Point,
    change_range,
    changes_in,
    raise_if_deleted,
    state_at,
)
from lsm_engine.filter.expression import tree_of
from lsm_engine.filter.partition import partition_mask
from lsm_engine.filter.predicate import columns_of, split_conjuncts
from lsm_engine.filter.where import Filter
from lsm_engine.format.commit_message import WriteResult
from lsm_engine.format.manifest import BucketScope, ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.arrow_views import Longs, fixed_values, one_array
from lsm_engine.kernels.changes import (
    CREATED,
    REMOVED,
    REPLACED,
    UNCHANGED,
    adds,
    equal_rows,
)
from lsm_engine.kernels.gather import gather
from lsm_engine.kernels.merge_runs import MergeOrder, merge_order
from lsm_engine.merge.selection import changelog_rows
from lsm_engine.merge.sequence import Rows, UserSequence
from lsm_engine.options import core_options
from lsm_engine.options.modes import RowKind
from lsm_engine.planning.incremental import (
    ChangedKeys,
    ChangeMode,
    ChangeSource,
    ChangeSplit,
    ComparedState,
    StatePart,
    change_source,
    changed_state,
    changelog_splits,
    delta_splits,
    in_turns,
    state_splits,
)
from lsm_engine.planning.keys import keys_move
from lsm_engine.planning.row_ids import row_ids_of
from lsm_engine.planning.scan import Reach, ReadMode, read_files
from lsm_engine.read.merge import MatchingGroups, Part, merge_slices, order_of
from lsm_engine.read.split import BucketReader, ReadRows
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.incoming import kind_symbols
from lsm_engine.table.merge_rules import MergeRules, merge_rules, read_mode
from lsm_engine.table.names import refuse_taken
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import VALUE_KIND

# -- Read changes ----------------------------------------------------------------------------------
#
# Read one split of changes → batches with `_snapshot_id`, `_row_kind` and the columns asked
# for.

SNAPSHOT_ID = "_snapshot_id"
ROW_KIND = "_row_kind"
_NOWHERE = -1


@record
class ChangedRows:
    """The output columns and the filter of changes. `names` may include `_snapshot_id` and `_row_kind`.

    `rows` names the columns of the table to read, and the filter part that can skip row groups.
    """

    names: tuple[str, ...]
    rows: ReadRows


def read_changes(
    context: BucketContext, selection: ChangedRows, split: ChangeSplit
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one split, in order, filtered and projected.

    Raises ExpiredError where a file is missing because its snapshot has expired meanwhile.
    """
    finish = replace(selection.rows, names=selection.names).finish
    try:
        for rows in _changes(context, selection.rows, split):
            yield from finish(_as_changes(rows, split.snapshot_id))
    except NotFoundError as cause:
        # Most likely an expiry was faster than the reader; its error names the snapshot.
        raise_if_deleted(context.snapshots, split.named_by, cause)
        raise


def _changes(context: BucketContext, rows: ReadRows, split: ChangeSplit) -> Iterator[Rows]:
    if split.keys is not ChangedKeys.ALL:
        rules = _by_arrival(context)
        for changes in _whole_keys(context, rows, split, rules):
            yield _of_keys(split.keys, changes, rules)
        return
    names = rows.needed(context.schema)
    reader = BucketReader(context, split.partition, split.bucket)
    if context.schema.has_primary_key:
        names = (*names, VALUE_KIND)
    for file in split.files:
        yield from reader.file(file, names, matching=MatchingGroups(rows.predicate))
    yield from _combined(context, reader, rows, split)


def _combined(
    context: BucketContext, reader: BucketReader, rows: ReadRows, split: ChangeSplit
) -> Iterator[Rows]:
    for section in split.sections:
        yield from reader.merged(section, rows, drop_deletes=False)
    for before, after in split.states:
        yield from _compared(context, split, before, after)


def _as_changes(rows: Rows, snapshot_id: int) -> pa.Table:
    table = _table(rows)
    count = table.num_rows
    if VALUE_KIND in table.column_names:
        kinds = kind_symbols().take(one_array(table.column(VALUE_KIND)).cast(pa.int32()))
        table = table.drop_columns([VALUE_KIND])
    else:  # a table without a key takes new rows only
        kinds = pa.repeat(RowKind.INSERT.symbol, count)
    ids = pa.array(np.full(count, snapshot_id, np.int64))
    return table.append_column(SNAPSHOT_ID, ids).append_column(ROW_KIND, kinds)


def _table(rows: Rows) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])


def _by_arrival(context: BucketContext) -> MergeRules:
    """Return merge rules that order rows of a key by arrival."""
    return replace(merge_rules(context.schema), sequence=UserSequence())


# --- keys that move -------------------------------------------------------------------------------


def _whole_keys(
    context: BucketContext, rows: ReadRows, split: ChangeSplit, rules: MergeRules
) -> Iterator[Rows]:
    """Yield the changes of a split in key order, and in order within a key."""
    reader = BucketReader(context, split.partition, split.bucket)
    names = rows.to_merge(context.schema, rules)
    files = [
        reader.file(file, names, matching=MatchingGroups(rows.predicate)) for file in split.files
    ]
    for parts in merge_slices([_uncut(file, rules) for file in files], rules):
        order = order_of(parts, rules)
        yield gather([part.rows for part in parts], order.run, order.row)
    yield from _combined(context, reader, rows, split)


def _uncut(batches: Iterable[pa.RecordBatch], rules: MergeRules) -> Iterator[pa.RecordBatch]:
    """Yield sorted rows in batches that end at a key boundary."""
    pending: pa.RecordBatch | None = None
    for batch in (piece for piece in batches if piece.num_rows):
        both = [batch] if pending is None else [pending, batch]
        (rows,) = pa.Table.from_batches(both).combine_chunks().to_batches()
        begins = int(order_of([Part(run=0, rows=rows, keys=None)], rules).starts[-1])
        if begins:
            yield rows.slice(0, begins)
        pending = rows.slice(begins)
    if pending is not None:
        yield pending


def _of_keys(keys: ChangedKeys, rows: Rows, rules: MergeRules) -> pa.Table:
    """Return the rows of keys whose last row deletes them, or of those whose last row adds them."""
    starts = merge_order([rules.keys(rows)], [rules.ranks(rows)]).starts
    ends = np.append(starts[1:], rows.num_rows)
    kinds = fixed_values(one_array(rows.column(VALUE_KIND)), np.int8)
    chosen = adds(kinds[ends - 1]) == (keys is ChangedKeys.HERE)
    return _table(rows).filter(pa.array(np.repeat(chosen, ends - starts)))


# --- states --------------------------------------------------------------------------------------


def _compared(
    context: BucketContext, split: ChangeSplit, before: StatePart, after: StatePart
) -> Iterator[pa.Table]:
    """Yield the changes from one state of a key range to the other, in key order."""
    # Each state has one row per key, so the order within a key does not matter.
    rules = _by_arrival(context)
    streams = [_state(context, split, part) for part in (before, after)]
    for parts in merge_slices(streams, rules):
        sources = [part.rows for part in parts]
        sides = np.array([part.run for part in parts], np.int64)
        order = order_of(parts, rules)
        differences = _differences(order, sides[order.run], sources, rules)
        if differences is not None:
            yield differences


def _state(context: BucketContext, split: ChangeSplit, part: StatePart) -> Iterator[pa.RecordBatch]:
    reader = BucketReader(context, split.partition, split.bucket, part.vectors)
    for section in part.sections:
        for rows in reader.merged(section):
            yield from _batches(rows)


def _batches(rows: Rows) -> Iterable[pa.RecordBatch]:
    return rows.to_batches() if isinstance(rows, pa.Table) else [rows]


def _differences(
    order: MergeOrder, side: Longs, sources: list[pa.RecordBatch], rules: MergeRules
) -> pa.Table | None:
    """`side`, per row of the order: 0 it was there before, 1 it is there after."""
    keys = len(order.starts)
    key_of = np.repeat(np.arange(keys), np.diff(order.starts, append=len(order)))
    before, after = np.full(keys, _NOWHERE, np.int64), np.full(keys, _NOWHERE, np.int64)
    was, is_now = np.flatnonzero(side == 0), np.flatnonzero(side == 1)
    before[key_of[was]], after[key_of[is_now]] = was, is_now
    codes = np.where(before < 0, CREATED, np.where(after < 0, REMOVED, REPLACED)).astype(np.int8)
    newer_order = order.take(np.where(after < 0, 0, after))
    now = gather(sources, newer_order.run, newer_order.row)
    both = np.flatnonzero(codes == REPLACED)
    if len(both):
        names = [name for name in now.column_names[:-2] if name not in rules.key_columns]
        older_order = order.take(before[both])
        old = gather([source.select(names) for source in sources], older_order.run, older_order.row)
        new = now.select(names).take(pa.array(both))
        codes[both[equal_rows(old.columns, new.columns, len(both))]] = UNCHANGED
    return changelog_rows(codes, order, before, sources, now)


# -- Reads of changes: snapshots, splits, rows with row kinds --------------------------------------

CHANGE_FIELDS = (
    pa.field(SNAPSHOT_ID, pa.int64(), nullable=False),
    pa.field(ROW_KIND, pa.string(), nullable=False),
)
FilesOf = Callable[[Snapshot | None], list[ManifestEntry]]
"""Returns which files of a state are compared; none of the empty table, None."""


@record
class ChangesRequest:
    """Which changes to read: after one point, up to and including another. Points as in `history`.

    `overwrites`: what overwrites did shows, whether `streaming-read-overwrite` is set or not.
    `written`: a write whose rows the changelog emits in this range, and which are left out.
    """

    after: Point | None = None
    upto: Point | None = None
    after_millis: int | None = None
    upto_millis: int | None = None
    mode: ChangeMode = ChangeMode.AUTO
    columns: tuple[str, ...] | None = None
    where: Filter | None = None
    overwrites: bool = False
    written: WriteResult | None = None


@checks_all_arguments
class Changes:
    """The changes of a range of snapshots, oldest first, each -U right before its +U.

    The range is fixed when this is made; rows are read when they are asked for, in memory that does
    not grow with them.
    """

    def __init__(self, session: TableSession, request: ChangesRequest) -> None:
        refuse_taken(session.schema.names, (SNAPSHOT_ID, ROW_KIND), "a read of changes")
        producer = session.options[core_options.CHANGELOG_PRODUCER]
        if request.mode is ChangeMode.CHANGELOG and producer.policy.reads_delta:
            raise InvalidInputError(
                "the table keeps no changelog ('changelog-producer' is none); read the delta, or diff",
                table=session.name,
            )
        self._session = session
        self._request = request
        self.range: ChangeRange = change_range(
            session,
            reads_changelog=request.mode.reads_changelog,
            after=request.after,
            upto=request.upto,
            after_millis=request.after_millis,
            upto_millis=request.upto_millis,
        )
        self._written = request.written or _interleaved(request, self.range)
        fields = pa.schema([*CHANGE_FIELDS, *session.schema.arrow])
        compared = pa.schema([*CHANGE_FIELDS, *session.schema.compared])
        self.predicate = None if request.where is None else tree_of(request.where, compared)
        """The filter over `_snapshot_id`, `_row_kind` and the table's columns."""
        names = fields.names if request.columns is None else request.columns
        for name in names:
            if name not in (SNAPSHOT_ID, ROW_KIND):
                session.schema.field(name)
        self.schema = pa.schema([fields.field(name) for name in names])
        """The columns that rows come out with: `_snapshot_id`, `_row_kind`, and the table's."""

    @property
    def asks_for_changes(self) -> bool:
        """Whether the filter reads `_snapshot_id` or `_row_kind`, which no state has."""
        return self.predicate is not None and not columns_of(self.predicate).isdisjoint(
            (SNAPSHOT_ID, ROW_KIND)
        )

    @property
    def rows(self) -> ChangedRows:
        """Which rows come out; pickles."""
        schema = self._session.schema
        names = [name for name in self.schema.names if name in schema.names]
        pushed = keyed = None
        if self.predicate is not None:
            pushed, _ = split_conjuncts(self.predicate, schema.names)
        if pushed is not None:
            keyed, _ = split_conjuncts(pushed, schema.primary_keys)
        rows = ReadRows.from_filter(names or schema.names[:1], self.predicate, keyed)
        return ChangedRows(names=tuple(self.schema.names), rows=rows.pruned_by(pushed))

    def splits(self) -> Iterator[tuple[BucketContext, ChangeSplit]]:
        """Yield what reader tasks would read, oldest snapshot first; the values pickle.

        The rows of a split are in order. So are the splits of one snapshot where a key may be in several of
        them (`keys` is set); elsewhere any order of them will do.
        """
        contexts: dict[frozenset[int], BucketContext] = {}
        for planned in self._planned():
            schema_ids = frozenset(file.schema_id for file in planned.all_files)
            if schema_ids not in contexts:
                contexts[schema_ids] = self._session.context(schema_ids)
            yield contexts[schema_ids], planned

    def __repr__(self) -> str:
        after, upto = self.range.after, self.range.upto
        return f"<Changes of {self._session.name!r} after snapshot {after} up to {upto}>"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the changes as dictionaries; for people at a prompt, not for many rows."""
        for batch in self.to_batches():
            yield from batch.to_pylist()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes in batches. Raises ExpiredError for snapshots that retention took."""
        rows = self.rows
        for context, split in self.splits():
            for batch in read_changes(context, rows, split):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def to_arrow(self) -> pa.Table:
        """Return all changes."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the changes as a stream that other Arrow libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _planned(self) -> Iterator[ChangeSplit]:
        if self.range.is_empty:
            return
        if self._request.mode is ChangeMode.DIFF:
            before = state_at(self._session, self._request.after, self.range.after)
            after = state_at(self._session, self._request.upto, self.range.upto)
            points = ((self._request.after, before), (self._request.upto, after))
            own = [state for point, state in points if not isinstance(point, str)]
            yield from self._in_partitions(between(self._session, before, after, untagged=own))
            return
        for snapshot in changes_in(self._session, self.range):
            splits = splits_of(
                self._session, snapshot, self._request.mode, overwrites=self._request.overwrites
            )
            if self._written is not None and snapshot.id <= self._written.changelog_id:
                splits = _without_write(self._session, self._written, snapshot, splits)
            yield from self._in_partitions(splits)

    def _in_partitions(self, splits: Iterable[ChangeSplit]) -> list[ChangeSplit]:
        """Leave out partitions that the filter does not want."""
        all_splits = list(splits)
        fields = self._session.schema.select(self._session.schema.partition_keys)
        if self.predicate is None or not fields or not all_splits:
            return all_splits
        partitions = pa.array([split.partition for split in all_splits], pa.binary())
        mask = partition_mask(self.predicate, partitions, fields)
        return [split for split, may in zip(all_splits, mask, strict=True) if may]


def splits_of(
    session: TableSession, snapshot: Snapshot, mode: ChangeMode, *, overwrites: bool = False
) -> list[ChangeSplit]:
    """Return what to read of one snapshot, or of the changelog that outlived it."""
    schema = session.schema
    if snapshot.schema_id != schema.id:
        schema = session.schemas.load(snapshot.schema_id)
    producer = schema.options[core_options.CHANGELOG_PRODUCER]
    source = change_source(
        snapshot,
        mode,
        producer=producer,
        reads_overwrites=overwrites or session.options[core_options.STREAMING_READ_OVERWRITE],
    )
    match source:
        case ChangeSource.NOTHING:
            return []
        case ChangeSource.CHANGELOG:
            assert snapshot.changelog_manifest_list is not None
            entries = _entries(session, snapshot, snapshot.changelog_manifest_list)
            return _as_keys_move(session, changelog_splits(snapshot.id, entries))
        case ChangeSource.DELTA:
            entries = _entries(session, snapshot, snapshot.delta_manifest_list)
            if schema.evolves_data:
                entries = _new_rows(session, snapshot, entries)
            return _as_keys_move(session, merged_delta(session, snapshot.id, entries))
        case ChangeSource.STATES:
            before = None if snapshot.id == 1 else session.snapshots.load(snapshot.id - 1)
            # What the next compaction emits of an overwrite's rows is not emitted here as well.
            reads, reach = changed_state(producer, read_mode(session.schema))
            emitted = partial(_visible, session, mode=reads, reach=reach)
            return between(session, before, snapshot, untagged=(before, snapshot), files_of=emitted)


def _as_keys_move(session: TableSession, splits: list[ChangeSplit]) -> list[ChangeSplit]:
    return in_turns(splits) if keys_move(session.schema) else splits


def _new_rows(
    session: TableSession, snapshot: Snapshot, entries: list[ManifestEntry]
) -> list[ManifestEntry]:
    """Leave out files with new values for rows that were there before: no row is new in them."""
    before = session.snapshots.find(snapshot.id - 1)
    if before is not None:
        first = before.next_row_id or 0
    else:
        live = _entries(session, snapshot, snapshot.base_manifest_list)
        first = max((row_ids_of(entry.file).stop for entry in live), default=0)
    return [entry for entry in entries if row_ids_of(entry.file).start >= first]


def merged_delta(
    session: TableSession, snapshot_id: int, entries: Iterable[ManifestEntry]
) -> list[ChangeSplit]:
    """Return the splits of the files that some entries add."""
    schema = session.schema
    # Retracts that reach below what one row can express stay rows of their own.
    merges = schema.has_primary_key and not merge_rules(schema).function.may_need_full_history
    # Rows that wait for a bucket (below 0) are emitted when they come to one.
    visible = [entry for entry in entries if entry.bucket >= 0]
    return delta_splits(snapshot_id, visible, key_order=session.key_order, merges=merges)


def between(
    session: TableSession,
    before: Snapshot | None,
    after: Snapshot | None,
    *,
    untagged: Iterable[Snapshot | None],
    files_of: FilesOf | None = None,
) -> list[ChangeSplit]:
    """Return the splits that compare two states; None is the empty table.

    `untagged`: those of the two that no tag keeps. `files_of` returns the files of a state that are
    compared, by default those that readers see. Raises ExpiredError if one expires meanwhile.
    """
    if session.key_order is None:
        raise InvalidInputError(
            "rows of a table without a primary key have no identity, so that its states cannot "
            "be compared; read the delta",
            table=session.name,
        )
    assert after is not None
    states_of = tuple(state.id for state in untagged if state is not None)
    return _compared_splits(
        session, before, after, states_of, files_of or partial(_visible, session)
    )


def _compared_splits(
    session: TableSession,
    before: Snapshot | None,
    after: Snapshot,
    states_of: tuple[int, ...],
    files_of: FilesOf,
) -> list[ChangeSplit]:
    assert session.key_order is not None
    try:
        old, new = (
            ComparedState(
                entries=files_of(state),
                vectors={} if state is None else session.vector_places(state),
            )
            for state in (before, after)
        )
        return state_splits(after.id, old, new, key_order=session.key_order, states_of=states_of)
    except NotFoundError as cause:
        # An expiry may have deleted one of the compared states.
        raise_if_deleted(session.snapshots, states_of, cause)
        raise


def _interleaved(request: ChangesRequest, asked_range: ChangeRange) -> WriteResult | None:
    """Return the write that a range begins after, if others committed before its rows were emitted."""
    written = request.after
    if not isinstance(written, WriteResult) or not request.mode.reads_changelog:
        return None
    if not written.buckets or asked_range.is_empty:
        return None
    if asked_range.upto < written.changelog_id:
        raise InvalidInputError(
            f"the changelog emits the rows of this write in snapshot {written.changelog_id}: read up to "
            "there or further",
            upto=asked_range.upto,
            changelog_id=written.changelog_id,
        )
    return written


def _without_write(
    session: TableSession, written: WriteResult, snapshot: Snapshot, splits: list[ChangeSplit]
) -> list[ChangeSplit]:
    """Return the changes of a snapshot without those of a write that is emitted in it or later.

    In the buckets of the write: what turned its state into the one that was emitted in the end.
    """
    other_splits = [
        split for split in splits if (split.partition, split.bucket) not in written.buckets
    ]
    if snapshot.id < written.changelog_id:
        return other_splits
    before = session.snapshots.load(written.id)
    mode = read_mode(session.schema)
    _, reach = changed_state(session.options[core_options.CHANGELOG_PRODUCER], mode)

    def state_files(state: Snapshot | None) -> list[ManifestEntry]:
        assert state is not None
        live = session.live_entries(state, BucketScope(buckets=frozenset(written.buckets)))
        return live if state is before else read_files(live, mode, reach)[0]

    both = (before.id, snapshot.id)
    compared = _compared_splits(session, before, snapshot, both, state_files)
    all_splits = [*other_splits, *compared]
    if not keys_move(session.schema) and not any(split.keys for split in all_splits):
        return all_splits
    # Each part went through turns alone, or had no need to: both go through them together.
    by_bucket = {
        (split.partition, split.bucket): replace(split, keys=ChangedKeys.ALL)
        for split in all_splits
    }
    return in_turns(list(by_bucket.values()))


def _visible(
    session: TableSession,
    snapshot: Snapshot | None,
    *,
    mode: ReadMode | None = None,
    reach: Reach = Reach.ALL,
) -> list[ManifestEntry]:
    if snapshot is None:
        return []
    live = session.live_entries(snapshot, lambda _, bucket: bucket >= 0)
    return read_files(live, mode or read_mode(session.schema), reach)[0]


def _entries(session: TableSession, snapshot: Snapshot, name: str) -> list[ManifestEntry]:
    try:
        return session.list_entries(snapshot, name)
    except NotFoundError as cause:
        # An expiry may have deleted the manifests of the snapshot.
        raise_if_deleted(session.snapshots, [snapshot.id], cause)
        raise

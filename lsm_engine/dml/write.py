"""Append, upsert, and `Write`: the begin and the commit of every write, in whatever process rows were staged.

1. The rows are committed; a replay is a no-op. 2. Postponed rows get their buckets. 3. Due buckets are
compacted, also if rows become readable only by it. 4. The result is a bookmark (decision 35)."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import (
    CommitConflictError,
    ErrorKind,
    InvalidInputError,
    LsmError,
    NotFoundError,
)
from lsm_engine.catalog.provenance import RUN_KIND
from lsm_engine.commit.commit import (
    ChooseOverwritten,
    committed_before,
    maintenance_identity,
    propose,
    with_start,
)
from lsm_engine.compact.compact import PostponedRows, compact_due
from lsm_engine.format.commit_message import CommitMessage, WriteResult
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import Bucket, BucketScope, ManifestEntry, by_bucket
from lsm_engine.format.manifest_columns import rows_of
from lsm_engine.format.snapshot import OPERATION, RowCounts, Snapshot, row_counts_of
from lsm_engine.kernels.arrow_views import Bools, Column, fixed_values, one_array
from lsm_engine.kernels.changes import Kinds, retracts
from lsm_engine.lookup.key_search import KeySearch, SearchWay
from lsm_engine.lookup.locate import find_records, search_files
from lsm_engine.lookup.lookup import FOUND, TableQuery
from lsm_engine.lsm.levels import newest_first
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind, EntryKind, LookupCompact
from lsm_engine.planning.incremental import changed_state
from lsm_engine.planning.proposal import (
    CommitIdentity,
    Precondition,
    PropertiesOnBase,
    Proposal,
    RowsUnchanged,
    overwriting,
)
from lsm_engine.planning.scan import Packing, Reach, ReadMode, SplitPlanner, read_files
from lsm_engine.read.split import ReadRows, read_split
from lsm_engine.table.bucket_context import Staging, discard
from lsm_engine.table.bucket_levels import NewestNumbers
from lsm_engine.table.incoming import IncomingRows
from lsm_engine.table.merge_rules import looks_up_older_rows, read_mode
from lsm_engine.table.references import References
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import bucket_levels, staging_on
from lsm_engine.table.time_travel import built_on
from lsm_engine.types.table_schema import VALUE_KIND, TableSchema
from lsm_engine.types.types import ScalarType
from lsm_engine.write.buckets import POSTPONED
from lsm_engine.write.writers import stage_incoming, stage_rows

# -- Count changes ---------------------------------------------------------------------------------
#
# Count the inserts, updates and deletes of a write against the state that it is committed on.
#
# The key columns of staged files are read back one file at a time, and searched in the live
# files of their buckets: memory is bounded by one file's keys.


def count_changes(
    session: TableSession, base: Snapshot | None, delta: Sequence[ManifestEntry]
) -> RowCounts:
    """Return the changes of new files to the rows of a snapshot; only the newest version of a key counts."""
    added = [entry for entry in delta if entry.kind is EntryKind.ADD and entry.bucket >= 0]
    total = RowCounts()
    for files in by_bucket(added).values():
        files.sort(key=lambda entry: newest_first(entry.file))
        for index, entry in enumerate(files):
            total += _changes_of(session, base, entry, files[:index])
    return total


def _changes_of(
    session: TableSession, base: Snapshot | None, entry: ManifestEntry, newer: list[ManifestEntry]
) -> RowCounts:
    keys, kinds = _keys_and_kinds(session, entry)
    retracted = retracts(kinds)
    if newer:
        superseded = KeySearch(session.schema, keys)
        search_files(session, superseded, rows_of(newer), SearchWay(), everywhere=False)
        is_newest = superseded.place < 0
        keys, retracted = keys.filter(pa.array(is_newest)), retracted[is_newest]
    search = KeySearch(session.schema, keys)
    if base is not None and len(search):
        find_records(session, search, base, everywhere=False)
    return _counted(search.is_there, retracted, ignores=session.options[core_options.IGNORE_DELETE])


def _counted(is_there: Bools, retracted: Bools, *, ignores: bool) -> RowCounts:
    return RowCounts(
        inserted=int((~is_there & ~retracted).sum()),
        updated=int((is_there & ~retracted).sum()),
        deleted=0 if ignores else int((is_there & retracted).sum()),
    )


def _keys_and_kinds(session: TableSession, entry: ManifestEntry) -> tuple[pa.RecordBatch, Kinds]:
    """Return the key columns and the row kinds of a staged file."""
    schema = session.schema
    context = session.context([entry.file.schema_id])
    names = tuple(dict.fromkeys((*schema.primary_keys, *schema.partition_keys)))
    columns = (*names, VALUE_KIND)
    with context.open_file((entry.partition, entry.bucket), entry.file, columns) as reader:
        rows = reader.read()
    keys = pa.RecordBatch.from_arrays([one_array(rows.column(name)) for name in names], list(names))
    return keys, fixed_values(one_array(rows.column(VALUE_KIND)), np.int8)


class ChangeCounter:
    """Adds the counts to the properties of a write, for each base snapshot that it is tried on.

    `overwritten`: the entries that an overwrite deletes; keys of these without a new row are deleted.
    """

    def __init__(self, session: TableSession, overwritten: ChooseOverwritten | None) -> None:
        self._session = session
        self._overwritten = overwritten

    def __call__(self, base: Snapshot | None, delta: Sequence[ManifestEntry]) -> dict[str, str]:
        counts = count_changes(self._session, base, delta)
        # An overwrite also deletes rows that the new files do not mention.
        if self._overwritten is not None and base is not None:
            replaced = _rows_in(self._session, base, self._overwritten(base))
            return (
                counts + RowCounts(deleted=replaced - counts.updated - counts.deleted)
            ).properties
        return as_merged(self._session.schema, counts).properties


class FirstRowCounter:
    """Adds the counts of the first rows of a table to the properties of their write, with no read.

    Unknown, hence no counts, after earlier rows, with deletes, and where files of a bucket may hold one key twice.
    """

    def __init__(self, session: TableSession) -> None:
        self._order = session.key_order or bytes
        self._crosses = session.schema.bucket_mode.policy.crosses_partitions

    def __call__(self, base: Snapshot | None, delta: Sequence[ManifestEntry]) -> dict[str, str]:
        is_first = base is None or base.total_record_count == 0
        if not is_first or self._crosses or any(map(_may_not_insert, delta)):
            return {}
        for files in by_bucket(delta).values():
            spans = sorted(
                (self._order(entry.file.min_key), self._order(entry.file.max_key))
                for entry in files
            )
            if any(high >= low for (_, high), (low, _) in pairwise(spans)):
                return {}
        return RowCounts(inserted=sum(entry.file.row_count for entry in delta)).properties


def _may_not_insert(entry: ManifestEntry) -> bool:
    is_added = entry.kind is EntryKind.ADD and entry.bucket >= 0
    return not is_added or entry.file.may_hold_deletes


def as_merged(schema: TableSchema, counts: RowCounts) -> RowCounts:
    """Return counts of stored and new keys as the counts that the merge engine yields."""
    policy = schema.options[core_options.MERGE_ENGINE].policy
    # The first row of a key stays, so later ones change nothing.
    if policy.keeps_first_row:
        skipped = counts.skipped + counts.updated + counts.deleted
        return RowCounts(inserted=counts.inserted, skipped=skipped)
    removes = schema.options[core_options.AGGREGATION_REMOVE_ON_DELETE]
    if policy.has_functions and not removes:  # a -D takes its values back
        counts = replace(counts, updated=counts.updated + counts.deleted, deleted=0)
    is_open = bool(schema.sequence_fields) and counts.updated + counts.deleted > 0
    return replace(counts, at_most=True) if is_open else counts


def counts_changes(schema: TableSchema) -> bool:
    """Whether the writes of a table are counted."""
    return schema.has_primary_key and schema.options[core_options.WRITE_COUNT_CHANGES]


def _rows_in(session: TableSession, base: Snapshot, entries: Sequence[ManifestEntry]) -> int:
    """Return how many rows the files of whole buckets hold: one per key that is there."""
    schema = session.schema
    rows = ReadRows.from_filter(schema.primary_keys[:1], None)
    context = session.context(entry.file.schema_id for entry in entries)
    planner = SplitPlanner(
        key_order=session.key_order or bytes,
        packing=Packing(),
        snapshot_id=base.id,
        vectors=session.vector_places(base),
    )
    splits = planner.plan([entry for entry in entries if entry.bucket >= 0])
    return sum(
        split.row_count
        if split.raw and split.is_counted
        else sum(batch.num_rows for batch in read_split(context, rows, split))
        for split in splits
    )


# -- Skip buckets whose staged rows equal the stored rows ------------------------------------------

_ROWS = 65_536


def skips_unchanged(schema: TableSchema) -> bool:
    """Whether writes of a table leave out what is stored already."""
    return schema.has_primary_key and schema.options[core_options.WRITE_SKIP_UNCHANGED]


def changed_messages(
    session: TableSession, base: Snapshot | None, messages: Sequence[CommitMessage]
) -> list[CommitMessage]:
    """Return the messages of buckets in which a row differs from that of a snapshot.

    Staged files are read until the first row that differs: a load that changes much costs little, one
    that changes nothing is read whole and looked up. Rows with nested columns count as changed.
    """
    fields = session.schema.fields
    # Nested values have no equality here, so a difference cannot be ruled out.
    if base is None or not all(isinstance(field.type, ScalarType) for field in fields):
        return list(messages)
    with TableQuery(session.with_level_0(), snapshot=base) as query:
        return [message for message in messages if _changes(session, query, message)]


def _changes(session: TableSession, query: TableQuery, message: CommitMessage) -> bool:
    if message.bucket < 0 or not message.data.new_files or not message.compact.is_empty:
        return True  # rows that wait for a bucket cannot be looked up
    return any(
        _differs(query, rows)
        for file in message.data.new_files
        for rows in _rows_of(session, message, file)
    )


def _rows_of(
    session: TableSession, message: CommitMessage, file: DataFileMeta
) -> Iterable[pa.RecordBatch]:
    context = session.context([file.schema_id])
    names = (*session.schema.names, VALUE_KIND)
    with context.open_file((message.partition, message.bucket), file, names) as reader:
        for batch in reader.batches():
            for start in range(0, batch.num_rows, _ROWS):
                yield batch.slice(start, _ROWS)


def _differs(query: TableQuery, rows: pa.RecordBatch) -> bool:
    """Whether storing rows would change what readers see; a delete of no row does not."""
    names = rows.schema.names[:-1]
    retracted = retracts(fixed_values(one_array(rows.column(VALUE_KIND)), np.int8))
    stored = query.lookup(rows.select(names), names)
    is_there = stored.column(FOUND).to_numpy()
    # A new key or a delete of an existing row changes the table.
    if (is_there == retracted).any():
        return True
    new, old = rows.filter(pa.array(is_there)), stored.filter(pa.array(is_there))
    return not all(_equal(new.column(name), old.column(name)) for name in names)


def _equal(new: pa.Array, old: pa.ChunkedArray) -> bool:
    return bool(pc.all(is_same(new, old.cast(new.type)), min_count=0).as_py())


def is_same(new: pa.Array, old: Column) -> Column:
    """Return which values are those of another column: two nulls are, two NaNs, and both zeros."""
    same = pc.fill_null(pc.equal(new, old), pc.and_(pc.is_null(new), pc.is_null(old)))
    if not pa.types.is_floating(new.type):
        return same
    not_numbers = pc.and_(pc.is_nan(new), pc.is_nan(old))
    return pc.or_(same, pc.fill_null(not_numbers, fill_value=False))


# -- Append, upsert, and `Write` -------------------------------------------------------------------

log = logging.getLogger(__name__)
T = TypeVar("T")
CompactsDue = Callable[..., Snapshot | None]
"""Compacts the buckets that a write has made due; has the signature of `compact_due`."""


def append(session: TableSession, rows: Any, identity: CommitIdentity) -> WriteResult | None:
    """Add rows to a table without a primary key; return what `Write.land` does, None for no rows.

    Unless the table is write-only, small files that are then due are joined, in a commit of its own.
    """
    if session.schema.has_primary_key:
        raise InvalidInputError(
            "the table has a primary key, so that a row may replace another; use upsert()",
            kind=ErrorKind.INVALID_ROWS,
            table=session.name,
        )
    return Write(session, identity).committed(rows)


def upsert(
    session: TableSession, rows: Any, identity: CommitIdentity, *, deletes: bool = False
) -> WriteResult | None:
    """Insert rows, replacing those with the same key; return what `Write.land` does, None for no rows.

    With `deletes` the rows name keys to take away. Unless the table is write-only, buckets that are
    then due are compacted, in a commit of its own: whatever becomes of that, the rows are in.
    """
    if not session.schema.has_primary_key:
        raise InvalidInputError(
            "the table has no primary key, so that no row replaces another; use append()",
            kind=ErrorKind.INVALID_ROWS,
            table=session.name,
        )
    return Write(session, identity).committed(rows, deletes=deletes)


def stage(
    session: TableSession,
    rows: Any,
    base: Snapshot | None,
    *,
    deletes: bool = False,
    replaces: bool = False,
) -> list[CommitMessage]:
    """Write rows of any kind that the table's executor or this process can read.

    With `replaces` they are all that their partitions will hold. Raises UnsupportedError for tables
    with an option that writers would have to support and we do not.
    """
    staging = staging_on(session, base, deletes=deletes, replaces=replaces)
    # A stream cannot be staged twice: what is known of its base is read before the base may expire.
    if not _are_read_again(rows):
        staging = staging.settled()
    messages = session.components.executor.stage(staging, rows)
    return stage_rows(staging.writing_behind(), rows) if messages is None else messages


def _are_read_again(rows: Any) -> bool:
    """Whether rows can be read a second time: frames have a length, lazy ones `collect`; a stream ends."""
    return hasattr(rows, "__len__") or hasattr(rows, "collect")


class Write:
    """One write of a table: the state that it builds on, and its end.

    `compact` compacts the buckets that are due once the rows are committed, by default `compact_due`. `count`: returns
    the counts of the write where the caller knows them, else nothing, as properties.
    """

    def __init__(
        self,
        session: TableSession,
        identity: CommitIdentity,
        compact: CompactsDue | None = None,
        count: PropertiesOnBase | None = None,
    ) -> None:
        self._count = count
        self._compact = compact or compact_due
        self._session = session
        self._identity = with_start(session, identity)
        self._maintenance_identity = maintenance_identity(identity)

    def committed(self, rows: Any, *, deletes: bool = False) -> WriteResult | None:
        """Stage and commit rows of any kind, again if other writers changed the rows that were read."""
        session = self._session
        looks = session.schema.bucket_mode.policy.crosses_partitions

        def attempt(tries: int) -> WriteResult | None:
            base = self.base(decides=looks)
            with built_on(session, base):
                messages = stage(session, rows, base, deletes=deletes)
            # Keys were looked up in other partitions: rows that changed there since may be the same
            # keys.
            requires = RowsUnchanged(on=base) if looks else None
            return self.land(messages, planned_on=base, requires=requires, tries_again=tries > 0)

        result = self.staged_again(rows, attempt)
        # Keys that are looked up are not found once the first try of a delete has landed.
        return result or self.replayed()

    def staged_again(self, rows: Any, attempt: Callable[[int], T]) -> T:
        """Return the result of an attempt; retry if the state that it read is no longer the newest.

        Rows that cannot be read a second time have one attempt.
        """
        if not _are_read_again(rows):
            return attempt(0)
        return self.again(attempt, only=ErrorKind.ROWS_CHANGED)

    def again(self, attempt: Callable[[int], T], *, only: ErrorKind | None = None) -> T:
        """Return the result of an attempt; retry after each conflict, with the number of retries left.

        The conflict is raised after `commit.max-retries`, and immediately if it is not of the kind `only`.
        """
        tries = self._session.options[core_options.COMMIT_MAX_RETRIES]
        while True:
            try:
                return attempt(tries)
            except CommitConflictError as conflict:
                # Rows that the write depends on have changed: it reads them anew, a few times.
                if not tries or only not in (None, conflict.kind):
                    raise
                tries -= 1

    def base(self, *, decides: bool = False) -> Snapshot | None:
        """Return the newest snapshot, after older rows that wait for a bucket were assigned one.

        On a remote store it is what was the newest a moment ago, unless its rows decide whether there is
        anything to commit (`decides`): only a create finds out that a base is outdated.
        """
        PostponedRows(self._session.in_force, self._maintenance_identity).before_write()
        session = self._session
        return session.snapshots.latest() if decides else session.newest_of_writer()

    def land(
        self,
        messages: Sequence[CommitMessage],
        *,
        planned_on: Snapshot | None,
        properties: Mapping[str, str] | None = None,
        overwritten: ChooseOverwritten | None = None,
        requires: Precondition | None = None,
        tries_again: bool = False,
    ) -> WriteResult | None:
        """Commit staged rows and run the steps after a write; None if there was nothing to commit.

        `planned_on`: the snapshot that the rows were staged on. `overwritten` chooses, for the base that is committed
        on, what an overwrite takes away. `properties`: beside those of the identity. Raises as `propose` does.
        `tries_again`: the caller stages anew after a conflict of kind ROWS_CHANGED, so that with `write.skip-unchanged` some
        buckets may be left out. Once the rows are committed nothing is raised: what fails after that is
        logged and stays due, and the result holds whether the rows can be read.
        """
        session = self._session
        identity = self._operation_identity(
            overwrites=overwritten is not None, properties=properties or {}
        )
        again = _WrittenAgain()
        # Rows may be skipped only where a conflict leads to another look, or nothing was looked at.
        may_skip = overwritten is None and (requires is None or tries_again)
        if may_skip and skips_unchanged(session.schema):
            # Not the one of a moment ago: without a changed row no create finds out that it is outdated.
            base = session.snapshots.latest() if requires is None else planned_on
            changed_only = self._changed_messages(messages, base, partly=tries_again)
            if len(changed_only) < len(messages):
                messages, requires = changed_only, RowsUnchanged(on=base)
        count: PropertiesOnBase | None = None
        if session.schema.has_primary_key and row_counts_of(identity.properties) is None:
            if counts_changes(session.schema):
                count = ChangeCounter(session, overwritten)
            elif overwritten is None:
                count = self._count or FirstRowCounter(session)
        proposal = Proposal(
            identity=identity,
            messages=tuple(messages),
            planned_on=planned_on,
            kind=CommitKind.APPEND if overwritten is None else CommitKind.OVERWRITE,
            choose=None if overwritten is None else overwriting(overwritten),
            requires=requires,
            properties_on=count,
            is_followed_up=True,
        )
        committed = propose(session, proposal, again if overwritten is None else None)
        if committed is None:
            return None
        assigned = PostponedRows(session, self._maintenance_identity).after_write(messages)
        # The next snapshot is the own one: the result covers both.
        if assigned is not None and assigned.id == committed.id + 1:
            committed = assigned
        return self._followed_up(committed, buckets_of(messages) | again.buckets)

    def _operation_identity(
        self, *, overwrites: bool, properties: Mapping[str, str]
    ) -> CommitIdentity:
        """Return the identity with more properties, and the name of the operation where its caller gave none."""
        by_rows = "upsert" if self._session.schema.has_primary_key else "append"
        own = self._identity.properties or {}
        name = {OPERATION: "overwrite" if overwrites else by_rows} if RUN_KIND not in own else {}
        return replace(self._identity, properties={**name, **own, **properties})

    def replayed(self, kind: CommitKind = CommitKind.APPEND) -> WriteResult | None:
        """Return the result of a numbered write that is committed already; None if it is not.

        The first attempt may have died, so the steps after a write run again.
        """
        committed = committed_before(self._session, self._identity, kind)
        if committed is None:
            return None
        # The buckets of the replay come from its snapshot: the messages of the first attempt are
        # lost.
        live = References(self._session).delta_entries([committed])
        return self._followed_up(
            committed, frozenset((entry.partition, entry.bucket) for entry in live)
        )

    def _changed_messages(
        self, messages: Sequence[CommitMessage], base: Snapshot | None, *, partly: bool
    ) -> Sequence[CommitMessage]:
        """Return the messages that change rows of a state; the files of the others are deleted.

        Not `partly`: all, or none if nothing changes. A replay is left to the commit.
        """
        session, append = self._session, CommitKind.APPEND
        # A replay must not look: its rows are in the table, and would all be unchanged.
        if not messages or committed_before(session, self._identity, append) is not None:
            return messages
        changed_only = changed_messages(session, base, messages)
        if len(changed_only) == len(messages) or (changed_only and not partly):
            return messages
        retained = {id(message) for message in changed_only}
        discard(session.context(), [message for message in messages if id(message) not in retained])
        return changed_only

    def _followed_up(self, committed: Snapshot, buckets: frozenset[Bucket]) -> WriteResult:
        session = self._session
        rows = _CommittedRows(session, committed, buckets)
        compacted: Snapshot | None = None
        if rows.buckets and not session.options[core_options.WRITE_ONLY]:
            compacted = self._compact(
                session, self._maintenance_identity, rows.buckets, rows_wait=rows.wait
            )
        # The commit of a compaction has it follow, which then shows both: a version of the metadata less.
        if compacted is None:
            session.follow_iceberg()
        return rows.result(compacted)


def buckets_of(messages: Iterable[CommitMessage]) -> frozenset[Bucket]:
    """Return the buckets of some commit messages."""
    return frozenset((message.partition, message.bucket) for message in messages)


class _WrittenAgain:
    """Stages rows of dynamic buckets again, and records their buckets, which may differ from the first."""

    def __init__(self) -> None:
        self.buckets: frozenset[Bucket] = frozenset()

    def __call__(self, staging: Staging, rows: Iterable[IncomingRows]) -> list[CommitMessage]:
        messages = stage_incoming(staging, rows)
        self.buckets |= buckets_of(messages)
        return messages


class _CommittedRows:
    """The rows of one write, and whether compactions have made them visible and emitted them."""

    def __init__(
        self, session: TableSession, committed: Snapshot, buckets: frozenset[Bucket]
    ) -> None:
        self._session = session
        self._made = committed
        self._mode = read_mode(session.schema)
        self._reach = changed_state(session.options[core_options.CHANGELOG_PRODUCER], self._mode)[1]
        self.buckets = self._assigned(buckets)

    def wait(self) -> bool:
        """Whether the write waits for a lookup compaction that has not taken its rows up yet."""
        options = self._session.options
        looks_up = self._hidden_at_first or looks_up_older_rows(options)
        if not options[core_options.LOOKUP_WAIT] or not looks_up:
            return False
        latest = self._session.snapshots.latest()
        return latest is not None and self._wait_in(latest, Reach.ABOVE_LEVEL_0)

    def result(self, compacted: Snapshot | None) -> WriteResult:
        """Return what the write returns; `compacted` is the compaction that it did, if any."""
        real = frozenset(bucket for bucket in self.buckets if bucket[1] != POSTPONED)
        options, first = self._session.options, self._made.id
        assigned = real == self.buckets
        untouched = WriteResult.from_snapshot(
            self._made, visible=assigned and not (self._hidden_at_first and real)
        )
        needs_no_compaction = not self._hidden_at_first and self._reach is Reach.ALL
        if options[core_options.WRITE_ONLY] or needs_no_compaction or not real:
            return untouched
        try:
            latest = compacted or self._session.snapshots.latest()
            if latest is None or latest.id <= first:
                return untouched
            radical = options[core_options.LOOKUP_COMPACT] is LookupCompact.RADICAL
            taken_up = compacted is not None and radical
            visible = taken_up or not self._wait_in(latest, Reach.ALL)
            by_lookup = taken_up and self._reach is Reach.ABOVE_LEVEL_0
            emitted = by_lookup or not self._wait_in(latest, self._reach)
        except LsmError as error:
            # The rows are committed; only what is reported about them is unknown.
            log.warning("could not look whether the rows of a write can be read: %s", error)
            return untouched
        emitted = emitted and self._reach is not Reach.ALL
        return WriteResult.from_snapshot(
            self._made,
            visible=assigned and visible,
            changelog_id=latest.id if emitted else first,
            buckets=real if emitted and latest.id > first + 1 else frozenset(),
        )

    @property
    def _hidden_at_first(self) -> bool:
        return self._mode is ReadMode.ABOVE_LEVEL_0

    def _assigned(self, buckets: frozenset[Bucket]) -> frozenset[Bucket]:
        """Return the buckets with those that postponed rows have come to by now."""
        new = {partition for partition, bucket in buckets if bucket == POSTPONED}
        if not new or not self._session.options[core_options.POSTPONE_BATCH_WRITE_FIXED_BUCKET]:
            return buckets
        try:
            latest = self._session.snapshots.latest() or self._made
            live = self._session.live_entries(latest, BucketScope(partitions=frozenset(new)))
        except LsmError as error:
            # The rows are committed; only what is reported about them is unknown.
            log.warning("could not look which buckets the rows of a write have: %s", error)
            return buckets
        assigned = {(entry.partition, entry.bucket) for entry in live}
        return frozenset({pair for pair in buckets if pair[0] not in new} | assigned)

    def _wait_in(self, snapshot: Snapshot, reach: Reach) -> bool:
        """Whether rows of the write are in files of a snapshot that a read of this reach leaves out."""
        live = self._session.live_entries(
            snapshot,
            BucketScope(
                buckets=frozenset(bucket for bucket in self.buckets if bucket[1] != POSTPONED)
            ),
        )
        _, unseen = read_files(live, self._mode, reach)
        # Later writers have greater numbers: only files up to the own ones matter.
        newest = self._newest() if unseen else {}
        return any(
            entry.file.min_sequence_number
            <= newest.get((entry.partition, entry.bucket), entry.file.min_sequence_number)
            for entry in unseen
        )

    def _newest(self) -> Mapping[Bucket, int]:
        """Return the newest sequence number of each bucket in the write's own snapshot.

        Nothing where that has expired: every file may then hold rows of the write.
        """
        session = self._session
        try:
            numbers = NewestNumbers(bucket_levels(session, self._made))
            return {place: numbers[place] for place in self.buckets if place in numbers}
        except NotFoundError:
            # The snapshot has expired already, and its numbers with it.
            return {}


# -- Read-modify-write operations ------------------------------------------------------------------
#
# The rows that they read must be unchanged in the base of the commit.
#
# If rows have changed in between, the commit is abandoned and the rows are read again.

StageOn: TypeAlias = Callable[
    [TableSession, Snapshot | None], tuple[Sequence[CommitMessage], RowCounts] | None
]
"""Reads a state by the schema in force and stages files on top of it; None if no row changes."""


def write_looked_up(
    session: TableSession, identity: CommitIdentity, stage_on: StageOn
) -> WriteResult | None:
    """Stage rows on the newest state and commit them there, again as often as others change rows.

    Each state is read by the schema in force then, so that rows keep the columns that others added since the table
    was opened. Returns and raises as `upsert` does; CommitConflictError after `commit.max-retries`.
    """
    identity = with_start(session, identity)
    write = Write(session, identity)
    # Before the look: after a replay the rows that it depends on have changed.
    before = write.replayed()
    if before is not None:
        return before

    def attempt(_: int) -> WriteResult | None:
        base = write.base(decides=True)
        current = session.newest()
        with built_on(current, base):
            staged = stage_on(current, base)
        if staged is None:
            return None
        messages, counts = staged
        return Write(current, identity).land(
            messages,
            planned_on=base,
            properties=as_merged(current.schema, counts).properties,
            requires=RowsUnchanged(on=base),
        )

    try:
        return write.again(attempt, only=ErrorKind.ROWS_CHANGED)
    except CommitConflictError as error:
        if error.kind is not ErrorKind.ROWS_CHANGED:
            raise
        raise CommitConflictError(
            "other writers kept changing rows between the look and the commit; nothing of this write is "
            "visible, try again or raise 'commit.max-retries'",
            kind=ErrorKind.RETRIES_EXHAUSTED,
            table=session.name,
        ) from error

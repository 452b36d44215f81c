"""Compact: for each bucket pick → plan → run; then commit what changed, all buckets at once."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import CommitConflictError, InvalidInputError, LsmError
from lsm_engine.base.record import record
from lsm_engine.base.units import FIRST_SNAPSHOT_ID
from lsm_engine.commit.commit import committed_before, maintenance_identity, propose, with_start
from lsm_engine.commit.publish import Retries
from lsm_engine.compact.bucket import compact_bucket, run_tasks
from lsm_engine.compact.plan import (
    BucketWork,
    bounds_lag,
    bucket_pressures,
    hidden_from_iceberg,
    plan_compaction,
    unexpired,
)
from lsm_engine.format.commit_message import CommitMessage, CompactIncrement, DataIncrement
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import IndexFileMeta, vector_places
from lsm_engine.format.manifest import BucketScope, by_bucket
from lsm_engine.format.snapshot import CompactedFiles, Snapshot
from lsm_engine.kernels.buckets import bucket_of
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind, FileSource
from lsm_engine.planning.buckets import buckets_for
from lsm_engine.planning.compaction import (
    FULL_COMPACTION,
    AppendSizes,
    append_groups,
    row_range_groups,
)
from lsm_engine.planning.keys import emits_moves
from lsm_engine.planning.proposal import CommitIdentity, Proposal
from lsm_engine.planning.row_ids import column_groups, row_ids_of
from lsm_engine.read.split import BucketReader
from lsm_engine.storage.local_state import SpillArea
from lsm_engine.table.bucket_context import BucketContext, Staging
from lsm_engine.table.bucket_keys import bucket_hashes
from lsm_engine.table.deletion_vectors import BucketDeletions
from lsm_engine.table.incoming import IncomingRows
from lsm_engine.table.names import PartitionTest
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import require_writable, staging_on
from lsm_engine.table.time_travel import built_on
from lsm_engine.types.table_schema import ROW_ID, VALUE_KIND
from lsm_engine.write.buckets import POSTPONED
from lsm_engine.write.writers import bucket_writer, messages_of

# -- Compact an append table: small files become one, rows as they were ----------------------------

log = logging.getLogger(__name__)


@record
class AppendWork:
    """The groups of one bucket that become a file each, oldest rows first in each group.

    `vectors`: the bucket's index files of deletion vectors; deleted rows are left behind.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    groups: tuple[tuple[DataFileMeta, ...], ...]
    vectors: tuple[IndexFileMeta, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes to read and write again."""
        return sum(file.file_size for group in self.groups for file in group)

    @property
    def schema_ids(self) -> frozenset[int]:
        """The schemas of all files that are read."""
        return frozenset(file.schema_id for group in self.groups for file in group)


def plan_append_compaction(
    session: TableSession,
    base: Snapshot,
    holds: Callable[[bytes, int], bool] | None = None,
    *,
    full: bool = False,
) -> list[AppendWork]:
    """Decide which files of each bucket are joined; buckets in shape are left out."""
    options = session.options
    sizes = AppendSizes(
        target_file_size=options.target_file_size(has_primary_key=False),
        min_file_count=options[core_options.COMPACTION_MIN_FILE_NUM],
    )
    vectors = session.vector_files(base)
    work = []
    for bucket, entries in by_bucket(session.live_entries(base, holds)).items():
        files = [entry.file for entry in entries]
        index = vectors.get(bucket, ())
        marked = frozenset(vector_places(index))
        if full:
            marked |= hidden_from_iceberg(session, entries)
        if session.schema.evolves_data:
            groups = row_range_groups(files, sizes, full=full)
        else:
            groups = append_groups(
                files,
                sizes,
                in_order=session.schema.bucket_mode.policy.is_fixed,
                full=full,
                must_rewrite=marked,
            )
        if groups:
            work.append(
                AppendWork(
                    partition=bucket[0],
                    bucket=bucket[1],
                    total_buckets=entries[-1].total_buckets,
                    groups=tuple(groups),
                    vectors=index,
                )
            )
    return work


def compact_append_bucket(context: BucketContext, work: AppendWork) -> CommitMessage | None:
    """Rewrite the groups of one bucket; what was written is deleted again if that fails."""
    deletions = BucketDeletions(context, work.vectors)
    reader = BucketReader(
        context, work.partition, work.bucket, vector_places(work.vectors).values()
    )
    before: list[DataFileMeta] = []
    after: list[DataFileMeta] = []
    try:
        for group in work.groups:
            after += _joined(context, work, reader, group)
            before += group
        deletions.forget(file.file_name for file in before)
        change = deletions.write()
    except BaseException:
        # No snapshot names the new files yet.
        directory = context.bucket_directory(work.partition, work.bucket)
        for name in (name for file in after for name in file.file_names):
            context.file_io.delete(f"{directory}/{name}")
        deletions.abort()
        raise
    log.info("joined bucket=%d files=%d->%d", work.bucket, len(before), len(after))
    return CommitMessage(
        partition=work.partition,
        bucket=work.bucket,
        total_buckets=work.total_buckets,
        compact=CompactIncrement(
            before=tuple(before),
            after=tuple(after),
            new_index_files=change.new,
            deleted_index_files=change.deleted,
        ),
    )


def _joined(
    context: BucketContext,
    work: AppendWork,
    reader: BucketReader,
    group: tuple[DataFileMeta, ...],
) -> list[DataFileMeta]:
    """Rewrite a group. Rows that have ids take them along, as columns of the new file."""
    schema = context.schema
    if schema.evolves_data:
        return _one_range(context, work, reader, group)
    names = (*schema.names, *schema.tracking_names)
    run = _IdRun()
    with context.new_files(
        (work.partition, work.bucket),
        level=0,
        source=FileSource.COMPACT,
        first_sequence_number=group[0].min_sequence_number,
        write_columns=names if schema.tracks_rows else None,
    ) as writer:
        for file in group:
            for rows in reader.file(file, names):
                writer.write(rows)
                if schema.tracks_rows:
                    run.take(rows)
        return run.recorded(writer.close())


class _IdRun:
    """The ids of rows that go by. Where each follows the last one, files can record their range as well.

    They store the ids all the same, as Java's do; but pypaimon looks at the range alone.
    """

    def __init__(self) -> None:
        self._first: int | None = None
        self._count = 0
        self._follows = True

    def take(self, rows: pa.RecordBatch) -> None:
        ids = rows.column(ROW_ID).to_numpy()
        if not len(ids):
            return
        if self._first is None:
            self._first = int(ids[0])
        expected = np.arange(len(ids)) + self._first + self._count
        self._follows = self._follows and bool((ids == expected).all())
        self._count += len(ids)

    def recorded(self, files: list[DataFileMeta]) -> list[DataFileMeta]:
        if self._first is None or not self._follows:
            return files
        begins = accumulate((file.row_count for file in files[:-1]), initial=self._first)
        return [
            replace(file, first_row_id=begin) for file, begin in zip(files, begins, strict=True)
        ]


def _one_range(
    context: BucketContext,
    work: AppendWork,
    reader: BucketReader,
    group: tuple[DataFileMeta, ...],
) -> list[DataFileMeta]:
    """Join the columns of rows whose ids follow each other; ids go on from the first one's."""
    with context.new_files(
        (work.partition, work.bucket), level=0, source=FileSource.COMPACT, never_roll=True
    ) as writer:
        for files in column_groups(group):
            section = tuple((file,) for file in files)
            for rows in reader.joined(section, context.schema.names):
                writer.write(rows)
        (written,) = writer.close()
    return [
        replace(
            written,
            first_row_id=min(row_ids_of(file).start for file in group),
            min_sequence_number=min(file.min_sequence_number for file in group),
            max_sequence_number=max(file.max_sequence_number for file in group),
        )
    ]


# -- Postponed rows get buckets --------------------------------------------------------------------
#
# What waited in bucket -2 goes to the real buckets of its partition.
#
# Rows keep the order of their commits, and become visible in an APPEND snapshot: for those who
# follow the table it is then that they come.


@record
class WaitingRows:
    """Files of rows that wait, oldest commit first, and one of the buckets that they go to."""

    partition: bytes
    files: tuple[DataFileMeta, ...]
    bucket: int
    total_buckets: int

    @property
    def size_bytes(self) -> int:
        """Bytes to read."""
        return sum(file.file_size for file in self.files)


def assign_postponed_buckets(
    session: TableSession,
    identity: CommitIdentity,
    covers: Callable[[bytes], bool] | None = None,
) -> Snapshot | None:
    """Move rows that wait to their buckets; None if none do, or the table has no such rows.

    `covers` limits it to partitions. Raises CommitConflictError if another writer does it, too.
    """
    base = session.snapshots.latest()
    if base is None or not session.schema.bucket_mode.policy.is_postponed:
        return None
    with built_on(session, base):
        waiting = waiting_files(session, base)
        chosen = {part: files for part, files in waiting.items() if covers is None or covers(part)}
        if not chosen:
            return None
        # Rows are written anew: by an older schema they would lose added columns.
        session = session.rewriting(
            file.schema_id
            for waiting_of_partition in chosen.values()
            for file in waiting_of_partition
        )
        messages = _staged(session, base, chosen)
    if not messages:
        return None
    proposal = Proposal(identity=identity, messages=tuple(messages), planned_on=base)
    return propose(session, proposal)


def _staged(
    session: TableSession, base: Snapshot, chosen: Mapping[bytes, tuple[DataFileMeta, ...]]
) -> Sequence[CommitMessage]:
    staging = staging_on(session, base)
    files = [file for waiting in chosen.values() for file in waiting]
    context = session.context(file.schema_id for file in files)
    staging = replace(staging, context=context)
    totals = {
        part: staging.buckets.totals.get(part) or buckets_for(waiting, session.options)
        for part, waiting in chosen.items()
    }
    work = [
        WaitingRows(partition=part, files=waiting, bucket=bucket, total_buckets=totals[part])
        for part, waiting in chosen.items()
        for bucket in range(totals[part])
    ]
    messages = run_tasks(
        session, context, partial(write_waiting, staging), work, verb="give buckets"
    )
    removed = [
        CommitMessage(
            partition=part,
            bucket=POSTPONED,
            total_buckets=POSTPONED,
            data=DataIncrement(deleted_files=waiting),
        )
        for part, waiting in chosen.items()
    ]
    return [*removed, *messages]


class PostponedRows:
    """Rows of batches, which get their buckets as they are written, where an option asks for that."""

    def __init__(self, session: TableSession, identity: CommitIdentity) -> None:
        self._session = session
        self._identity = identity
        at_once = session.options[core_options.POSTPONE_BATCH_WRITE_FIXED_BUCKET]
        self._is_at_once = at_once and session.schema.bucket_mode.policy.is_postponed

    def before_write(self) -> None:
        """Give buckets to rows that wait, as they are older, before newer rows are written to buckets."""
        if self._is_at_once:
            self._assign()

    def after_write(self, written: Iterable[CommitMessage]) -> Snapshot | None:
        """Give buckets to rows that a batch has just written to partitions without any.

        Whatever becomes of that, the rows are in: what fails is logged, and the next write or compaction
        gives them their buckets.
        """
        new = {message.partition for message in written if message.bucket == POSTPONED}
        if not new or not self._is_at_once:
            return None
        try:
            return self._assign(lambda partition: partition in new)
        except LsmError as error:
            # The rows are committed; they wait for the next compaction.
            log.warning(
                "rows of new partitions wait for a compaction to give them buckets: %s", error
            )
            return None

    def _assign(self, covers: Callable[[bytes], bool] | None = None) -> Snapshot | None:
        """Give buckets; where others do so too, look again what still waits."""
        for _ in range(self._session.options[core_options.COMMIT_MAX_RETRIES]):
            try:
                return assign_postponed_buckets(self._session, self._identity, covers)
            except CommitConflictError as conflict:
                # Another writer moved the same rows: the next attempt finds those that still wait.
                log.info("others gave buckets to waiting rows: %s", conflict)
        return assign_postponed_buckets(self._session, self._identity, covers)


def waiting_files(session: TableSession, base: Snapshot) -> dict[bytes, tuple[DataFileMeta, ...]]:
    """Return the files of rows that wait for a bucket, by partition, in the order of their commits."""
    metas = [
        meta
        for meta in session.manifest_metas(base)
        if meta.min_bucket is None or meta.min_bucket < 0
    ]
    if not metas:
        return {}
    by_partition: dict[bytes, list[DataFileMeta]] = {}
    for entry in session.live_entries(base, lambda _, bucket: bucket == POSTPONED):
        by_partition.setdefault(entry.partition, []).append(entry.file)
    return {partition: tuple(files) for partition, files in by_partition.items()}


def write_waiting(staging: Staging, work: WaitingRows) -> CommitMessage | None:
    """Write the rows that belong to one bucket as new ones; what fails deletes what it wrote."""
    spills = SpillArea()
    writer = bucket_writer(
        staging, work.partition, work.bucket, total_buckets=work.total_buckets, spills=spills
    )
    memory_bytes = staging.context.schema.options[core_options.WRITE_BUFFER_SIZE]
    try:
        for incoming in _rows_for(staging, work):
            writer.write(incoming.rows, incoming.kinds)
            if writer.byte_count > memory_bytes:
                writer.relieve()
        return next(iter(messages_of([writer.finish()])), None)
    except BaseException:
        # The rows still wait in their own files, so that nothing is lost.
        writer.abort()
        raise
    finally:
        spills.close()


def _rows_for(staging: Staging, work: WaitingRows) -> Iterator[IncomingRows]:
    schema = staging.context.schema
    fields = schema.select(schema.bucket_keys)
    reader = BucketReader(staging.context, work.partition, POSTPONED)
    for file in work.files:
        for batch in reader.file(file, (*schema.names, VALUE_KIND)):
            buckets = bucket_of(bucket_hashes(fields, batch), work.total_buckets)
            mine = batch.filter(pa.array(np.equal(buckets, work.bucket)))
            if mine.num_rows:
                index = mine.schema.get_field_index(VALUE_KIND)
                yield IncomingRows(rows=mine.remove_column(index), kinds=mine.column(index))


# -- Compaction of all buckets in one commit -------------------------------------------------------

Buckets = frozenset[tuple[bytes, int]]
_RANGE = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?")
HoldsBucket = Callable[[bytes, int], bool]
Properties = Callable[[], Mapping[str, str]]
"""Properties to add to a compaction's snapshot, asked for when its files are written."""


def compact(
    session: TableSession,
    identity: CommitIdentity,
    *,
    full: bool = False,
    partitions: Sequence[Mapping[str, object]] | None = None,
    buckets: Sequence[int] | str | None = None,
) -> Snapshot | None:
    """Merge sorted runs where that is due (or all of them); None if nothing was. A replay returns what it made."""
    before = committed_before(session, identity, CommitKind.COMPACT)
    return before or Compaction(session, identity).requested(
        full=full, partitions=partitions, buckets=buckets
    )


def compact_due(
    session: TableSession,
    identity: CommitIdentity,
    touched: Buckets,
    *,
    rows_wait: Callable[[], bool],
) -> Snapshot | None:
    """Compact the buckets of a write that are due. The write is committed already: a failure is logged, and the bucket remains due."""
    try:
        return Compaction(session, identity).after_write(touched, rows_wait)
    except LsmError as error:
        # The rows are committed: a write must not fail for its compaction.
        log.warning("a compaction after a write failed and stays due: %s", error)
    return None


def carry_out(
    session: TableSession,
    identity: CommitIdentity,
    base: Snapshot,
    work: Sequence[BucketWork] | Sequence[AppendWork],
    properties: Properties | None = None,
) -> Snapshot | None:
    """Run planned work on the table's executor, largest bucket first, and commit it."""
    if not work:
        return None
    identity = with_start(session, identity)
    schema_ids = frozenset[int]().union(*(item.schema_ids for item in work))
    # Rows are written anew: by an older schema they would lose added columns.
    session = session.rewriting(schema_ids)
    context = session.context(schema_ids)
    rewrite = compact_bucket if session.schema.has_primary_key else compact_append_bucket
    with built_on(session, base):
        messages = run_tasks(
            session,
            context,
            partial(rewrite, context.writing_behind()),
            # The largest first, so that no long task begins when the others have ended.
            sorted(work, key=lambda item: -item.size_bytes),
            verb="compact",
        )
    metrics = {} if properties is None else properties()
    merged = {**(identity.properties or {}), **metrics, **_compacted(messages).properties}
    identity = replace(identity, properties=merged)
    proposal = Proposal(identity=identity, messages=tuple(messages), planned_on=base)
    return propose(session, proposal)


def _compacted(messages: Iterable[CommitMessage]) -> CompactedFiles:
    sizes: list[list[int]] = [[], []]
    for message in messages:
        # Keyless tables report a rewrite as deleted and new files.
        before = (*message.compact.before, *message.data.deleted_files)
        after = (*message.compact.after, *message.data.new_files)
        upgraded = {file.file_name for file in before} & {file.file_name for file in after}
        for side, files in enumerate((before, after)):
            sizes[side] += [file.file_size for file in files if file.file_name not in upgraded]
    return CompactedFiles(
        files_before=len(sizes[0]),
        files_after=len(sizes[1]),
        bytes_before=sum(sizes[0]),
        bytes_after=sum(sizes[1]),
    )


class Compaction:
    """The scope of a compaction of one table, and the identity that commits it."""

    def __init__(
        self,
        session: TableSession,
        identity: CommitIdentity,
        properties: Properties | None = None,
    ) -> None:
        self._session = session
        self._identity = identity
        self._properties = properties

    def requested(
        self,
        *,
        full: bool,
        partitions: Sequence[Mapping[str, object]] | None,
        buckets: Sequence[int] | str | None,
    ) -> Snapshot | None:
        """Compact what is due, or all, of some partitions and buckets; None: of all."""
        session = self._session
        base = session.snapshots.latest(reads_state=True)
        require_writable(session, base)
        if base is None:
            return None
        assigned: Snapshot | None = None
        if emits_moves(session.schema) and (partitions is not None or buckets is not None):
            raise InvalidInputError(
                "a key may move between partitions, and compactions emit both ends of its way: compact the "
                "whole table, without partitions and buckets",
                table=session.name,
            )
        covers = None if partitions is None else PartitionTest(session.schema, partitions)
        holds = _chosen(covers, buckets, unexpired(session))
        if session.schema.bucket_mode.policy.is_postponed and buckets is None:
            assigned = assign_postponed_buckets(
                session, maintenance_identity(self._identity), covers
            )
            base = assigned or base
        return self._compacted(base, holds, full=full) or assigned

    def after_write(self, touched: Buckets, rows_wait: Callable[[], bool]) -> Snapshot | None:
        """Compact those of some buckets that are due, or all if `full-compaction.delta-commits` is up.

        A compaction that lost to another stays due. But a writer whose rows still wait for it
        (`rows_wait`) tries again for as long as `commit.timeout` allows and others commit; and one who
        would leave a bucket with more runs than `num-sorted-run.stop-trigger`, up to
        `commit.max-retries` times: writers must not outrun compactions.
        """
        session = self._session
        most = session.options[core_options.COMMIT_MAX_RETRIES]
        retries = Retries(session, rewrites=True)
        newest, stuck = None, 0
        while True:
            base = session.newest_of_writer()
            if base is None:
                return None
            full = session.schema.has_primary_key and self._full_is_due()
            # Buckets that this write did not touch may be behind for readers of Iceberg.
            takes_all = full or emits_moves(session.schema) or bounds_lag(session)
            holds = None if takes_all else BucketScope(buckets=touched)
            try:
                return self._compacted(base, holds, full=full)
            except CommitConflictError as conflict:
                # Whether it pays to try again depends on who waits, as decided below.
                log.info("lost a compaction to another: %s", conflict)
            retries.lost += 1
            before, newest = newest, session.snapshots.latest_id()
            # A compaction that loses although no commit lands would lose for ever.
            stuck = stuck + 1 if newest == before else 0
            if rows_wait():
                given_up = retries.is_late or stuck > most
            else:
                given_up = retries.lost > most
                if not stops_writers(session, touched):
                    return None
            if given_up:
                log.warning("buckets stay due: their compaction lost %d times", retries.lost)
                return None
            retries.sleep()

    def _compacted(
        self, base: Snapshot, holds: HoldsBucket | None, *, full: bool
    ) -> Snapshot | None:
        """Plan, carry out and commit; a full compaction of a whole tree is marked as such."""
        session, identity = self._session, self._identity
        work: Sequence[BucketWork] | Sequence[AppendWork]
        with built_on(session, base):
            if not session.schema.has_primary_key:
                work, marks = plan_append_compaction(session, base, holds, full=full), False
            else:
                work = plan_compaction(session, base, holds, full=full)
                # A key that moved is emitted from both of its partitions in one commit, or twice
                # never.
                if not full and emits_moves(session.schema) and _emits_some(session, work):
                    full, work = True, plan_compaction(session, base, full=True)
                marks = full and holds is None
        if marks:
            marked = {**(identity.properties or {}), FULL_COMPACTION: "true"}
            identity = replace(identity, properties=marked)
        return carry_out(session, identity, base, work, self._properties)

    def _full_is_due(self) -> bool:
        """Whether so many commits came since the last full compaction that the next one is due.

        Also where that is further back than the snapshots that are left.
        """
        patience = self._session.options[core_options.FULL_COMPACTION_DELTA_COMMITS]
        if patience is None:
            return False
        commits = 0
        oldest = FIRST_SNAPSHOT_ID
        for snapshot in self._session.snapshots.newest_first():
            # Counted by snapshots, so that all writers of the table agree.
            if FULL_COMPACTION in (snapshot.properties or {}):
                return False
            commits += snapshot.commit_kind is not CommitKind.COMPACT
            if commits >= patience:
                return True
            oldest = snapshot.id
        return oldest > FIRST_SNAPSHOT_ID


def stops_writers(session: TableSession, bucket_set: Buckets) -> bool:
    """Whether one of some buckets has more sorted runs than `num-sorted-run.stop-trigger`."""
    return any(
        pressure.stopping and (pressure.partition, pressure.bucket) in bucket_set
        for pressure in bucket_pressures(session)
    )


def _emits_some(session: TableSession, work: Sequence[BucketWork]) -> bool:
    """Whether work emits what changed in some buckets where full compactions alone emit all."""
    waits = session.options[core_options.CHANGELOG_PRODUCER].policy.waits_for_full_compaction
    last = session.options.level_count - 1
    return waits and any(step.output_level == last for item in work for step in item.steps)


def _bucket_ranges(buckets: Sequence[int] | str) -> Sequence[range | frozenset[int]]:
    """Return the buckets that numbers, or ranges as a text such as "0-3,8", name; InvalidInputError for others."""
    if isinstance(buckets, str):
        matches = [_RANGE.fullmatch(item) for item in buckets.split(",")]
        ends = [(int(match[1]), int(match[2] or match[1])) for match in matches if match]
        if len(ends) < len(matches) or any(last < first for first, last in ends):
            raise InvalidInputError(
                "buckets are numbers and ranges with both ends, such as '0-3,8'", buckets=buckets
            )
        return [range(first, last + 1) for first, last in ends]
    wrong = [bucket for bucket in buckets if bucket < 0]
    if wrong:
        raise InvalidInputError("buckets are numbered from 0", buckets=wrong)
    return [frozenset(buckets)]


def _chosen(
    covers: Callable[[bytes], bool] | None,
    buckets: Sequence[int] | str | None,
    takes: HoldsBucket | None,
) -> HoldsBucket | None:
    if covers is None and buckets is None:
        return takes
    ranges = None if buckets is None else _bucket_ranges(buckets)
    return lambda partition, bucket: (
        (ranges is None or any(bucket in numbers for numbers in ranges))
        and (covers is None or covers(partition))
        and (takes is None or takes(partition, bucket))
    )

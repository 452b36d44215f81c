"""Rescale: every row of a partition to the bucket that another number of buckets gives it, in one commit.

Files come out fully merged, in the last level. What is read is replaced file by file: rows that
others commit meanwhile are a conflict, after which it is all done again. The option `bucket`
follows the rows: a stop before the commit changes nothing (docs/decisions/0064).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import pyarrow as pa

from lsm_engine.base.errors import (
    CommitConflictError,
    ErrorKind,
    InvalidInputError,
    InvalidOptionError,
)
from lsm_engine.base.record import record
from lsm_engine.commit.commit import committed_before, maintenance_identity, propose
from lsm_engine.compact.bucket import run_tasks
from lsm_engine.compact.compact import carry_out
from lsm_engine.compact.plan import plan_compaction
from lsm_engine.format.commit_message import CommitMessage, DataIncrement
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.index_file import IndexFileMeta, vector_places
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.buckets import BUCKETS_MAX, bucket_of
from lsm_engine.lsm.levels import sections
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind, FileSource
from lsm_engine.planning.buckets import source_buckets
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.proposal import CommitIdentity, Proposal, overwriting
from lsm_engine.planning.scan import ReadMode
from lsm_engine.read.merge import Batches, merge_runs
from lsm_engine.read.split import BucketReader
from lsm_engine.table.bucket_context import BucketContext, key_order_of
from lsm_engine.table.bucket_keys import bucket_hashes
from lsm_engine.table.bucket_levels import BucketTotals
from lsm_engine.table.merge_rules import merge_rules, read_mode
from lsm_engine.table.names import PartitionTest
from lsm_engine.table.session import TableSession
from lsm_engine.table.staging import bucket_levels
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema

log = logging.getLogger(__name__)
_RACES = 5


@record
class OldBucket:
    """A bucket as it was: its files, and the index files of their deletion vectors."""

    bucket: int
    files: tuple[DataFileMeta, ...]
    vectors: tuple[IndexFileMeta, ...] = ()


@record
class RescaleWork:
    """One new bucket of a partition, and the old ones that its rows come from."""

    partition: bytes
    bucket: int
    total_buckets: int
    sources: tuple[OldBucket, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes to read."""
        return sum(file.file_size for source in self.sources for file in source.files)


def rescale(
    session: TableSession,
    buckets: int,
    identity: CommitIdentity,
    *,
    partitions: Sequence[Mapping[str, object]] | None = None,
) -> tuple[TableSchema, Snapshot | None]:
    """Give partitions another number of buckets; return the schema then in force, and the snapshot.

    The option `bucket`, which new partitions go by, follows the rows. A partition that is not among
    `partitions` keeps its number, and in a table with postponed buckets the option stays. None: all of
    them have it already. Doing it again after a failure goes on with what is left; a replay of what is
    committed leaves the option as others may have set it since.
    """
    _check(session.schema, buckets)
    session.options.require_writable()
    before = committed_before(session, identity, CommitKind.OVERWRITE)
    covers = None if partitions is None else PartitionTest(session.schema, partitions)
    if before is not None:
        is_own = before.commit_identifier == identity.commit_identifier
        # A rescale that died after its commit left the option: a replay sets it, unless others
        # have.
        if is_own and not _was_published(session, buckets, since=before):
            return _published(session, buckets, covers), before
        return session.schemas.latest() or session.schema, before
    snapshot, chosen = _raced(session, buckets, identity, covers)
    return _published(session, buckets, chosen.__contains__, snapshot, chosen), snapshot


def _raced(
    session: TableSession,
    buckets: int,
    identity: CommitIdentity,
    covers: Callable[[bytes], bool] | None,
) -> tuple[Snapshot | None, Mapping[bytes, int]]:
    """Rescale what is covered, again where others were first; return the snapshot, and the partitions."""
    for tries_left in reversed(range(_RACES)):
        try:
            base, chosen = _compacted_base(session, identity, buckets, covers)
            if base is None or not chosen:
                return None, chosen
            return _rewritten(session, identity, base, buckets, chosen), chosen
        except CommitConflictError as conflict:
            # Rows landed meanwhile. They may be in buckets that were read already.
            if not tries_left:
                raise
            log.info("rescale starts again: %s", conflict)
    raise AssertionError("the last race returns or raises")


def _check(schema: TableSchema, buckets: int) -> None:
    if type(buckets) is not int or not 0 < buckets <= BUCKETS_MAX:
        raise InvalidInputError(
            f"a number of buckets is from 1 to {BUCKETS_MAX}",
            kind=ErrorKind.INVALID_OPTION,
            buckets=buckets,
        )
    if not schema.bucket_mode.policy.has_bucket_count:
        raise InvalidOptionError(
            f"the buckets of a table with 'bucket' = {schema.bucket_count} are not a number to choose: "
            "dynamic ones grow with their keys, and an append table without a number has one",
            key=core_options.BUCKET.key,
            value=schema.bucket_count,
        )


def _published(
    session: TableSession,
    buckets: int,
    covers: Callable[[bytes], bool] | None,
    rescaled: Snapshot | None = None,
    old_totals: Mapping[bytes, int] = MappingProxyType({}),
) -> TableSchema:
    """Let the option `bucket` follow the rows, which have it by now; return the schema then in force.

    It stays where others have given the partitions another number since: that is theirs to publish. Raises
    CommitConflictError if a rollback has taken `rescaled`, the snapshot of the rescale, or partitions have the number
    of `old_totals` again, as after a restore.
    """
    for _ in range(_RACES):
        newest = session.schemas.latest() or session.schema
        if not newest.bucket_mode.policy.is_fixed or newest.bucket_count == buckets:
            return newest
        # Read after the schema, and before the next one is created: a later rescale publishes later.
        base = session.snapshots.latest()
        _require_not_rolled_back(session, base, rescaled)
        # Partitions have another number since: a later rescale publishes its own.
        totals = _chosen(session, base, buckets, covers)
        if totals.items() & old_totals.items():
            raise CommitConflictError(
                "others have given partitions of this table their former number of buckets back, as a restore does; "
                "'bucket' is as it was, rescale again",
                table=session.name,
            )
        if totals:
            return newest
        schema = replace(
            newest,
            id=newest.id + 1,
            options=newest.options.with_texts({core_options.BUCKET.key: str(buckets)}),
            time_millis=session.clock.now_millis(),
        )
        if published := session.publish_schema(schema):
            return published
    raise CommitConflictError(
        "the rows have their new buckets, but others keep changing the schema of this table, so that 'bucket' "
        "is as it was; rescale again, which sets it",
        kind=ErrorKind.RETRIES_EXHAUSTED,
        table=session.name,
    )


def _require_not_rolled_back(
    session: TableSession, base: Snapshot | None, rescaled: Snapshot | None
) -> None:
    if rescaled is None:
        return
    stored = session.snapshots.find(rescaled.id)
    if base is None or base.id < rescaled.id or not same_state(stored or rescaled, rescaled):
        raise CommitConflictError(
            f"snapshot {rescaled.id}, which rescaled the table, was rolled back meanwhile; 'bucket' is as it was, "
            "rescale again",
            snapshot_id=rescaled.id,
            table=session.name,
        )


def _was_published(session: TableSession, buckets: int, *, since: Snapshot) -> bool:
    """Whether the option had a number at, or after, the commit of a snapshot: others have set it since."""
    newest = session.schemas.latest() or session.schema
    numbers = range(newest.id, since.schema_id - 1, -1)
    return any(session.schemas.load(number).bucket_count == buckets for number in numbers)


def _compacted_base(
    session: TableSession,
    identity: CommitIdentity,
    buckets: int,
    covers: Callable[[bytes], bool] | None,
) -> tuple[Snapshot | None, dict[bytes, int]]:
    """Return the newest snapshot, and the partitions of it to rescale, with their number of buckets.

    A rescale emits no rows: buckets whose rows wait for a lookup compaction have one first. Raises
    CommitConflictError where others commit faster than that.
    """
    compacted_from = _compacted_level(session.schema)
    for _ in range(_RACES):
        base = session.snapshots.latest()
        chosen = _chosen(session, base, buckets, covers)
        if base is None or not chosen:
            return base, chosen
        # A rescale emits nothing: rows that still have to be emitted are compacted first.
        waiting = _waiting(session, base, chosen, compacted_from)
        if not waiting:
            return base, chosen
        work = plan_compaction(
            session,
            base,
            lambda *bucket, waiting_buckets=waiting: bucket in waiting_buckets,
            full=True,
        )
        carry_out(session, maintenance_identity(identity), base, work)
    raise CommitConflictError(
        "others commit rows faster than they can be compacted before a rescale; try again",
        kind=ErrorKind.RETRIES_EXHAUSTED,
        table=session.name,
    )


def _waiting(
    session: TableSession, base: Snapshot, chosen: Mapping[bytes, int], compacted_from: int
) -> frozenset[tuple[bytes, int]]:
    """Return the buckets of partitions that hold rows that are not visible, or not emitted."""
    if not compacted_from:
        return frozenset()
    entries = session.live_entries(base, lambda part, bucket: part in chosen and bucket >= 0)
    return frozenset(
        (entry.partition, entry.bucket) for entry in entries if entry.file.level < compacted_from
    )


def _compacted_level(schema: TableSchema) -> int:
    """Return the level from which on all rows are visible and emitted."""
    producer = schema.options[core_options.CHANGELOG_PRODUCER]
    if producer.policy.waits_for_full_compaction:
        return schema.options.level_count - 1
    hides = read_mode(schema) is ReadMode.ABOVE_LEVEL_0
    return 1 if hides or producer.policy.looks_up else 0


def _chosen(
    session: TableSession,
    base: Snapshot | None,
    buckets: int,
    covers: Callable[[bytes], bool] | None,
) -> dict[bytes, int]:
    """Return the partitions, of those that are covered, with another number of buckets, and that number."""
    if base is None:
        return {}
    totals = BucketTotals(bucket_levels(session, base))
    return {
        partition: total
        for partition, total in totals.items()
        if total != buckets and (covers is None or covers(partition))
    }


def _rewritten(
    session: TableSession,
    identity: CommitIdentity,
    base: Snapshot,
    buckets: int,
    chosen: Mapping[bytes, int],
) -> Snapshot | None:
    entries = session.live_entries(base, lambda part, bucket: part in chosen and bucket >= 0)
    session = session.rewriting(entry.file.schema_id for entry in entries)
    vectors = session.vector_files(base)
    old: dict[bytes, dict[int, list[ManifestEntry]]] = {}
    for entry in entries:
        old.setdefault(entry.partition, {}).setdefault(entry.bucket, []).append(entry)
    work: list[RescaleWork] = []
    removed: list[CommitMessage] = []
    for partition, by_bucket in old.items():
        sources = {
            bucket: OldBucket(
                bucket=bucket,
                files=tuple(entry.file for entry in files),
                vectors=vectors.get((partition, bucket), ()),
            )
            for bucket, files in by_bucket.items()
        }
        total = chosen[partition]
        removed += [_taken_away(partition, total, source) for source in sources.values()]
        work += _work_of(partition, sources, old_total=total, new_total=buckets)
    context = session.context(entry.file.schema_id for entry in entries)
    messages = run_tasks(session, context, partial(rescale_bucket, context), work, verb="rescale")
    proposal = Proposal(
        identity=identity,
        messages=(*removed, *messages),
        planned_on=base,
        kind=CommitKind.OVERWRITE,
        choose=overwriting(lambda _: ()),
    )
    return propose(session, proposal)


def _taken_away(partition: bytes, total: int, source: OldBucket) -> CommitMessage:
    return CommitMessage(
        partition=partition,
        bucket=source.bucket,
        total_buckets=total,
        data=DataIncrement(deleted_files=source.files, deleted_index_files=source.vectors),
    )


def _work_of(
    partition: bytes, sources: Mapping[int, OldBucket], *, old_total: int, new_total: int
) -> Iterator[RescaleWork]:
    for bucket in range(new_total):
        own = source_buckets(bucket, old_total=old_total, new_total=new_total)
        bucket_sources = tuple(sources[number] for number in own if number in sources)
        if bucket_sources:
            yield RescaleWork(
                partition=partition, bucket=bucket, total_buckets=new_total, sources=bucket_sources
            )


def rescale_bucket(context: BucketContext, work: RescaleWork) -> CommitMessage | None:
    """Write one new bucket; return None if no row belongs there. A failure deletes the written files."""
    schema = context.schema
    runs = [_rows_for(context, work, source) for source in work.sources]
    keyed = schema.has_primary_key
    rows: Iterable[pa.Table | pa.RecordBatch] = (
        merge_runs(runs, merge_rules(schema), drop_deletes=True)
        if keyed and len(runs) > 1
        else (batch for run in runs for batch in run)
    )
    with context.new_files(
        (work.partition, work.bucket),
        level=schema.options.level_count - 1 if keyed else 0,
        source=FileSource.COMPACT,
    ) as writer:
        for piece in rows:
            writer.write(piece)
        files = writer.close()
    if not files:
        return None
    return CommitMessage(
        partition=work.partition,
        bucket=work.bucket,
        total_buckets=work.total_buckets,
        data=DataIncrement(new_files=tuple(files)),
    )


def _rows_for(context: BucketContext, work: RescaleWork, source: OldBucket) -> Batches:
    """Yield the rows of an old bucket that belong to the new one, merged and in key order."""
    fields = context.schema.select(context.schema.bucket_keys)
    for batch in _rows_of(context, work.partition, source):
        hashes = bucket_hashes(fields, batch)
        mine = batch.filter(pa.array(bucket_of(hashes, work.total_buckets) == work.bucket))
        if mine.num_rows:
            yield mine


def _rows_of(
    context: BucketContext, partition: bytes, source: OldBucket
) -> Iterator[pa.RecordBatch]:
    schema = context.schema
    places = vector_places(source.vectors).values()
    reader = BucketReader(context, partition, source.bucket, places)
    order = key_order_of(schema)
    if order is None:
        for file in sorted(source.files, key=lambda file: file.min_sequence_number):
            yield from reader.file(file, schema.names)
        return
    for section in sections(source.files, order):
        runs = tuple(tuple(run.files) for run in section)
        for rows in reader.merged(runs):
            columns = rows.select([*schema.names, SEQUENCE_NUMBER, VALUE_KIND])
            yield from columns.to_batches() if isinstance(columns, pa.Table) else [columns]

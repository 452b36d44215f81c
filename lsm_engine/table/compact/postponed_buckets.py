"""Postponed rows get buckets: what waited in bucket -2 goes to the real buckets of its partition.

Rows keep the order of their commits, and become visible in an APPEND snapshot: for those who follow
the table it is then that they come.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError, LsmError
from lsm_engine.base.record import record
from lsm_engine.io.spill import SpillArea
from lsm_engine.kernels.hashing import bucket_of
from lsm_engine.meta.commit_message import CommitMessage, DataIncrement
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.postponed_buckets import buckets_for
from lsm_engine.schema.table_schema import VALUE_KIND
from lsm_engine.table.commit.commit import CommitIdentity, commit
from lsm_engine.table.ground.bucket_context import Staging
from lsm_engine.table.ground.bucket_keys import bucket_hashes
from lsm_engine.table.ground.incoming import IncomingRows
from lsm_engine.table.ground.run_tasks import run_tasks
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import staging_on
from lsm_engine.table.ground.time_travel import built_on
from lsm_engine.table.read.split_read import BucketReader
from lsm_engine.table.stage.bucket_routing import POSTPONED
from lsm_engine.table.stage.writers import bucket_writer
from lsm_engine.table.stage.written_bucket import messages_of

log = logging.getLogger(__name__)


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

    `covers` limits it to partitions. Raises CommitConflictError if somebody else does it, too.
    """
    base = session.snapshots.latest()
    if base is None or not session.schema.bucket_mode.policy.is_postponed:
        return None
    with built_on(session, base):
        waiting = waiting_files(session, base)
        chosen = {part: files for part, files in waiting.items() if covers is None or covers(part)}
        if not chosen:
            return None
        session = session.rewriting(file.schema_id for held in chosen.values() for file in held)
        messages = _staged(session, base, chosen)
    return commit(session, identity, messages, planned_on=base) if messages else None


def _staged(
    session: TableSession, base: Snapshot, chosen: Mapping[bytes, tuple[DataFileMeta, ...]]
) -> Sequence[CommitMessage]:
    staging = staging_on(session, base)
    files = [file for found in chosen.values() for file in found]
    context = session.context(file.schema_id for file in files)
    staging = replace(staging, context=context)
    totals = {
        part: staging.buckets.totals.get(part) or buckets_for(found, session.options)
        for part, found in chosen.items()
    }
    work = [
        WaitingRows(partition=part, files=found, bucket=bucket, total_buckets=totals[part])
        for part, found in chosen.items()
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
            data=DataIncrement(deleted_files=found),
        )
        for part, found in chosen.items()
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
        """Give buckets to rows that wait before newer rows go to buckets at once: they are older."""
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
    found: dict[bytes, list[DataFileMeta]] = {}
    for entry in session.live_entries(base, lambda _, bucket: bucket == POSTPONED):
        found.setdefault(entry.partition, []).append(entry.file)
    return {partition: tuple(files) for partition, files in found.items()}


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
                at = mine.schema.get_field_index(VALUE_KIND)
                yield IncomingRows(rows=mine.remove_column(at), kinds=mine.column(at))

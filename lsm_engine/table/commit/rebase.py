"""Renumber new rows when somebody else committed first, so that the later commit is the newer one.

Writers number rows from what their base snapshot holds. Two writers on one base give equal numbers,
and then nothing in the files shows whose row is newer. A commit that lands later therefore rewrites
its own level-0 files with numbers above those that landed before it (decisions/0003).
"""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.ids import checked_sequence
from lsm_engine.base.modes import EntryKind, FileSource
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.commit_steps import CommitStep
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from lsm_engine.table.ground.bucket_levels import NewestNumbers
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import bucket_levels
from lsm_engine.table.read.split_read import BucketReader

_HEADROOM = 1 << 16
"""Sequence numbers left free where races are lost one after another."""


def rebase_step(
    session: TableSession,
    step: CommitStep,
    base: Snapshot,
    *,
    again: bool = False,
    keeps_files: bool = False,
) -> CommitStep:
    """Return the step with every new row numbered above all rows of `base` in its bucket.

    Files that are numbered high enough stay. Rewritten files are deleted: nothing names them. `again`:
    a race was lost before; numbers then leave room for what others land meanwhile, so that the next
    attempt need not rewrite them. `keeps_files`: a snapshot that has vanished named them, and was read.
    """
    new = [entry for entry in step.delta if _is_new(entry)]
    if not new or session.schema.bucket_mode.policy.is_unaware:
        return step  # rows of no bucket have no order
    if session.schema.orders_by_snapshot:
        return step  # the commit numbers them, without touching the files
    newest = NewestNumbers(bucket_levels(session, base))
    lowest: dict[tuple[bytes, int], int] = {}
    for entry in new:
        bucket = (entry.partition, entry.bucket)
        first = entry.file.min_sequence_number
        lowest[bucket] = min(first, lowest.get(bucket, first))
    offsets = {
        bucket: newest[bucket] + 1 - first + (_HEADROOM if again else 0)
        for bucket, first in lowest.items()
        if newest.get(bucket, -1) >= first
    }
    if not session.schema.has_primary_key:
        return replace(step, delta=tuple(_counted_from(entry, offsets) for entry in step.delta))
    moved = {
        entry.identity: _renumbered(session, entry, offsets[entry.partition, entry.bucket])
        for entry in new
        if (entry.partition, entry.bucket) in offsets
    }
    if not moved:
        return step
    if not keeps_files:
        session.delete_quietly(session.data_path(one) for one in new if one.identity in moved)
    delta = tuple(moved.get(entry.identity, entry) for entry in step.delta)
    return replace(step, delta=delta)


def _is_new(entry: ManifestEntry) -> bool:
    file = entry.file
    return entry.kind is EntryKind.ADD and file.level == 0 and file.file_source is FileSource.APPEND


def _counted_from(entry: ManifestEntry, offsets: Mapping[tuple[bytes, int], int]) -> ManifestEntry:
    """Renumber the rows of an append table: their numbers stand in manifests only."""
    offset = offsets.get((entry.partition, entry.bucket), 0)
    if not (offset and _is_new(entry)):
        return entry
    low, high = entry.file.min_sequence_number, entry.file.max_sequence_number
    checked_sequence(high + offset, 1)
    file = replace(entry.file, min_sequence_number=low + offset, max_sequence_number=high + offset)
    return replace(entry, file=file)


def _renumbered(session: TableSession, entry: ManifestEntry, offset: int) -> ManifestEntry:
    checked_sequence(entry.file.max_sequence_number + offset, 1)
    context = session.context([entry.file.schema_id])
    reader = BucketReader(context, entry.partition, entry.bucket)
    writer = context.new_files(
        entry.partition, entry.bucket, level=0, source=FileSource.APPEND, never_roll=True
    )
    names = (*context.schema.names, SEQUENCE_NUMBER, VALUE_KIND)
    try:
        for batch in reader.file(entry.file, names):
            writer.write(_shifted(batch, offset))
        (file,) = writer.close()
    except BaseException:
        writer.abort()
        raise
    return replace(entry, file=file)


def _shifted(batch: pa.RecordBatch, offset: int) -> pa.RecordBatch:
    at = batch.schema.get_field_index(SEQUENCE_NUMBER)
    columns = batch.columns
    columns[at] = pc.add(columns[at], offset)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

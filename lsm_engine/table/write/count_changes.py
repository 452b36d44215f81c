"""Count the inserts, updates and deletes of a write against the state that it is committed on.

The key columns of staged files are read back one file at a time, and searched in the live files of
their buckets: memory is bounded by one file's keys.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.modes import EntryKind
from lsm_engine.codec.manifest_rows import rows_of
from lsm_engine.kernels.arrow_views import Bools, fixed_values, one_array
from lsm_engine.kernels.row_kinds import Kinds, retracts
from lsm_engine.mergetree.levels import newest_first
from lsm_engine.meta.manifest import ManifestEntry, by_bucket
from lsm_engine.meta.row_counts import RowCounts
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.scan import Packing, plan_splits
from lsm_engine.schema.table_schema import VALUE_KIND, TableSchema
from lsm_engine.table.commit.commit import ChooseOverwritten
from lsm_engine.table.find.key_search import KeySearch, SearchWay
from lsm_engine.table.find.row_locations import search_files, tag_search
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.read.split_read import ReadRows, read_split


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
        tag_search(session, search, base, everywhere=False)
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
    with context.open_file(entry.partition, entry.bucket, entry.file, columns) as reader:
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
        if self._overwritten is not None and base is not None:
            replaced = _rows_in(self._session, base, self._overwritten(base))
            return (
                counts + RowCounts(deleted=replaced - counts.updated - counts.deleted)
            ).properties
        return as_merged(self._session.schema, counts).properties


def as_merged(schema: TableSchema, counts: RowCounts) -> RowCounts:
    """Return counts of stored and new keys as the counts that the merge engine yields."""
    policy = schema.options[core_options.MERGE_ENGINE].policy
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
    planned = plan_splits(
        [entry for entry in entries if entry.bucket >= 0],
        key_order=session.key_order or bytes,
        packing=Packing(),
        snapshot_id=base.id,
        vectors=session.vector_places(base),
    )
    return sum(
        split.row_count
        if split.raw and split.is_counted
        else sum(batch.num_rows for batch in read_split(context, rows, split))
        for split in planned.splits
    )

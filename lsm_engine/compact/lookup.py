"""Lookup compaction (LookupMergeTreeCompactRewriter): finds the before image of each new row's key.

New are the rows of level 0, or with `changelog-producer` = full-compaction all above the last level.
A key's older row is looked for among the files of the step, then in those below. It is the
before image of a changelog row; where deletion vectors hide older rows, it is what they hide
(decisions/0018)."""

import functools
import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.cache.disk import DiskCache
from lsm_engine.compact.plan import older_key_batches, older_key_columns, older_key_runs
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.buckets import group_rows
from lsm_engine.kernels.gather import gather
from lsm_engine.kernels.keys import SortKeys
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.lookup.levels import (
    DataFiles,
    DeletedRows,
    Hits,
    LookupCache,
    LookupFiles,
    LookupLevels,
    cache_limits,
    store_settings,
)
from lsm_engine.lookup.lookup import process_cache
from lsm_engine.lookup.sorted_stores import BlockCache
from lsm_engine.lookup.store import LookupStore, StoredValue
from lsm_engine.lsm.levels import Levels, runs_by_age
from lsm_engine.merge.record_expiry import RecordExpiry, with_deletes
from lsm_engine.merge.selection import (
    BeforeMerge,
    ChangeRules,
    Source,
    without_deletes,
    without_kinds,
)
from lsm_engine.merge.sequence import Rows
from lsm_engine.options import core_options
from lsm_engine.planning.scan import Section
from lsm_engine.read.merge import Batches, MergeLimits, Part, merge_slices, order_of, spilled_runs
from lsm_engine.read.split import BucketReader
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.local_state import SpillArea
from lsm_engine.table.bucket_context import BucketContext, key_order_of
from lsm_engine.table.deletion_vectors import BucketDeletions
from lsm_engine.table.merge_rules import MergeRules
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema

# -- Rows of files that a compaction leaves out, looked up by the keys of those that it takes ------
#
# Lookup files of a bucket's older levels stay on local disk from one compaction to the next, as
# long as this process works on the table: each is built once, and a small compaction above a
# large level costs what its own keys cost.


class OlderRows:
    """The rows of older files of one bucket. For one thread.

    `files` are of one or several levels below what is compacted, `value` is what is read of their
    rows, `deleted` which of them deletion vectors hide.
    """

    def __init__(
        self,
        context: BucketContext,
        partition: bytes,
        bucket: int,
        files: Sequence[DataFileMeta],
        *,
        value: StoredValue,
        deleted: DeletedRows | None = None,
    ) -> None:
        schema = context.schema
        order = key_order_of(schema)
        assert order is not None, "a table without a key has nothing to look up"
        self._fields = schema.select(schema.trimmed_primary_keys)
        self._schema = schema.key_value_arrow
        count = schema.options.level_count
        levels = Levels.from_files(files, level_count=count, key_order=order)
        stores = _lookup_files(context, partition, bucket, value)
        self._levels = LookupLevels(levels, stores, deleted=deleted)

    def find(self, columns: Sequence[pa.Array], keys: SortKeys) -> Hits:
        """Return the newest older row of each key, a delete included; keys come in key order."""
        return self._levels.find(KeyBatch(columns, [field.type for field in self._fields], keys))

    def rows(self, hits: Hits) -> pa.RecordBatch:
        """Return the rows found, in key order, as rows of `schema.key_value_arrow`."""
        names = self._schema.names
        indexes = np.flatnonzero(hits.store >= 0)
        sources: list[pa.RecordBatch] = []
        run, row = np.zeros(len(indexes), np.uint16), np.zeros(len(indexes), np.int32)
        for store, _, members in _by_store(hits, indexes):
            fetched = store.fetch(hits.handle[indexes[members]], names)
            run[members] = fetched.run + np.uint16(len(sources))
            row[members] = fetched.row
            sources += [
                pa.RecordBatch.from_arrays(source.columns, schema=self._schema)
                for source in fetched.sources
            ]
        (batch,) = gather(sources, run, row).combine_chunks().to_batches()
        return batch

    def positions(self, hits: Hits) -> Iterator[tuple[DataFileMeta, Longs]]:
        """Yield the data files that hold rows found, and where those stand in them."""
        indexes = np.flatnonzero(hits.store >= 0)
        for store, file, members in _by_store(hits, indexes):
            yield file, store.positions(hits.handle[indexes[members]])


def forget(
    context: BucketContext,
    partition: bytes,
    bucket: int,
    files: Iterable[DataFileMeta],
    *,
    value: StoredValue,
) -> None:
    """Remove the lookup files of data files that leave a bucket. One that is asked for comes again."""
    if context.file_io in _owners:
        _lookup_files(context, partition, bucket, value).drop(files)


def _lookup_files(
    context: BucketContext, partition: bytes, bucket: int, value: StoredValue
) -> LookupFiles:
    schema = context.schema
    settings = store_settings(schema, value)
    path = context.partition_path(partition).replace("/", "_")
    data = DataFiles(
        read_schema=schema,
        schemas=context.schemas,
        place_of=functools.partial(context.place_of, (partition, bucket)),
        # Branches share data files, and number schemas of their own alike.
        bucket_name=f"{context.paths.branch_name}@{path}-{bucket}",
    )
    return LookupFiles(
        process_cache(),
        _owner(context.file_io, process_cache()),
        cache_limits(schema.options),
        settings,
        data,
        BlockCache(settings.decoded_blocks_bytes),
    )


def compaction_owner(file_io: FileIO) -> str | None:
    """Return whose the lookup files are that compactions of a table built here; None: there are none."""
    return _owners.get(file_io)


def _by_store(hits: Hits, indexes: Longs) -> Iterator[tuple[LookupStore, DataFileMeta, Longs]]:
    """Yield each store with its data file and which of the found rows it holds, in key order."""
    groups = group_rows(hits.store[indexes], len(hits.stores))
    for number, start, stop in groups.stretches():
        yield hits.stores[number], hits.files[number], groups.order[start:stop]


_owners: "weakref.WeakKeyDictionary[FileIO, str]" = weakref.WeakKeyDictionary()
_owners_lock = threading.Lock()
_numbers = itertools.count()


def _owner(file_io: FileIO, cache: LookupCache) -> str:
    """Return the owner of a table's lookup files, which all handles of this process share."""
    with _owners_lock:
        owner = _owners.get(file_io)
        if owner is None:
            owner = f"compaction#{next(_numbers)}"
            _owners[file_io] = owner
            weakref.finalize(file_io, DiskCache.unwatch, cache, owner)
        return owner


# -- Lookup compaction (LookupMergeTreeCompactRewriter) --------------------------------------------

_BELOW = 1 << 20
"""Age of rows that lie below the files of a step: above that of any level."""


@record
class RewrittenRows:
    """Merged rows of a stretch of keys, to be written, and the changelog rows they make."""

    rows: Rows
    changes: pa.Table | None


@record
class LookupRewrite:
    """The tasks of a lookup compaction besides merging.

    `compacted_from`: the level from which rows are not new. `emits_changelog`: changelog rows are
    made. `looks_up`: older rows are looked up, with `whole_rows` their values too.
    """

    compacted_from: int
    emits_changelog: bool
    looks_up: bool
    whole_rows: bool

    @staticmethod
    def from_schema(schema: TableSchema, compacted_from: int) -> "LookupRewrite":
        """Return what the rewrites of a table do."""
        options = schema.options
        producer = options[core_options.CHANGELOG_PRODUCER]
        emits_changelog = producer.policy.compares
        policy = options[core_options.MERGE_ENGINE].policy
        chooses = not policy.combines_versions and not schema.sequence_fields
        return LookupRewrite(
            compacted_from=compacted_from,
            emits_changelog=emits_changelog,
            looks_up=not policy.keeps_first_row,
            whole_rows=emits_changelog or not chooses,
        )

    def stored_value(self, *, marks: bool) -> StoredValue:
        """Return what has to be known of older rows; `marks`: they are hidden where they lie."""
        if not marks:
            return StoredValue.ROW
        return StoredValue.POSITION_AND_ROW if self.whole_rows else StoredValue.POSITION


class LookupRewriter:
    """Merges the sections of one step (LookupMergeTreeCompactRewriter). For one thread.

    `older`: files of the bucket below the step that may hold its keys. `deletions`: the bucket's
    deletion vectors, to which the older rows found are added; None: it has none. `expiry`: rows that
    expire by their age, emitted like deletes.
    """

    def __init__(
        self,
        reader: BucketReader,
        rewrite: LookupRewrite,
        *,
        older: Sequence[DataFileMeta],
        deletions: BucketDeletions | None,
        expiry: RecordExpiry | None = None,
    ) -> None:
        self._expiry = expiry
        self._schema = reader.schema
        self._reader = reader
        self._rewrite = rewrite
        self._deletions = deletions
        self._rules: MergeRules = reader.rules
        self._change_rules = ChangeRules.from_schema(reader.schema)
        self._older_files = older
        self._older: OlderRows | None = None
        if older and rewrite.looks_up:
            self._older = OlderRows(
                reader.context,
                *reader.place,
                older,
                value=rewrite.stored_value(marks=deletions is not None),
                deleted=deletions.deleted if deletions is not None else None,
            )

    def merged(self, section: Section, *, drop_deletes: bool) -> Iterator[RewrittenRows]:
        """Yield a section's merged rows in key order, and what they changed."""
        # Rows that only mark that a key is further down are not for writing.
        drop = drop_deletes or not self._rewrite.looks_up
        limits = MergeLimits.from_options(self._schema.options, section)
        names = (*self._schema.names, SEQUENCE_NUMBER, VALUE_KIND)
        ages: list[int] = []
        runs: list[Batches] = []
        for run in self._older_keys(section):
            ages.append(_BELOW)
            runs.append(run)
        for age, files in runs_by_age(section, self._rewrite.compacted_from):
            ages.append(age)
            runs.append(self._reader.run(files, names, max_rows=limits.batch_rows))
        spills = SpillArea()
        try:
            if limits.spills and self._rules.function.keeps_rows:
                old = sum(1 for age in ages if age > 0)
                new = spilled_runs(runs[old:], self._rules, spills, limits.runs_max)
                runs, ages = [*runs[:old], *new], [*ages[:old], *([0] * len(new))]
            for parts in merge_slices(runs, self._rules):
                yield from self._with_before(
                    parts, [ages[part.run] for part in parts], drop_deletes=drop
                )
        finally:
            spills.close()

    def _older_keys(self, section: Section) -> Iterable[Batches]:
        """Return the keys that older files hold, where that alone decides (first-row)."""
        order = key_order_of(self._schema)
        if self._rewrite.looks_up or order is None:
            return []
        keys = older_key_columns(self._schema)
        return [
            older_key_batches(self._schema, self._reader.run(run, keys))
            for run in older_key_runs(section, self._older_files, order)
        ]

    def _with_before(
        self, parts: Sequence[Part], ages: Sequence[int], *, drop_deletes: bool
    ) -> Iterator[RewrittenRows]:
        if len(parts) == 1 and ages[0] > 0 and self._expiry is None:
            if ages[0] != _BELOW:
                yield RewrittenRows(rows=_dropped(parts[0].rows, drop=drop_deletes), changes=None)
            return
        state, sources = self._before(parts, ages)
        hits = self._looked_up(state, sources)
        if hits is not None:
            assert self._older is not None
            self._mark(self._older.positions(hits))
            if self._rewrite.whole_rows:
                older_part = Part(run=-1, rows=self._older.rows(hits), keys=None)
                state, sources = self._before([older_part, *parts], [_BELOW, *ages])
        if not len(state.order):
            return
        merged = self._rules.function.merge(state.order, sources)
        if self._expiry is not None:
            # First-row comes here with deletes dropped: it never holds a key twice.
            expired = self._expiry.deletes(merged, is_oldest=drop_deletes)
            merged = with_deletes(merged, expired)
            state = replace(state, is_new=state.is_new | expired)
        changes = None
        if self._rewrite.emits_changelog:
            changes = self._change_rules.changes(state, sources, merged)
        yield RewrittenRows(rows=_dropped(merged, drop=drop_deletes), changes=changes)

    def _before(
        self, parts: Sequence[Part], ages: Sequence[int]
    ) -> tuple[BeforeMerge, list[Source]]:
        sources: list[Source] = [part.rows for part in parts]
        order = order_of(parts, self._rules)
        counted = without_kinds(order, sources, self._rules.function.ignored)
        return BeforeMerge.from_order(counted, ages), sources

    def _looked_up(self, state: BeforeMerge, sources: Sequence[Source]) -> Hits | None:
        """Return the older rows of keys whose rows here are all new; None: there are none."""
        unknown = state.unknown
        if self._older is None or not unknown.any():
            return None
        names = list(self._rules.key_columns)
        keys = gather(
            [source.select(names) for source in sources],
            state.order.run[state.order.starts[unknown]],
            state.order.row[state.order.starts[unknown]],
        )
        (batch,) = keys.combine_chunks().to_batches()
        hits = self._older.find(batch.columns, self._rules.keys(batch))
        return hits if hits.stores else None

    def _mark(self, positions: Iterable[tuple[DataFileMeta, Longs]]) -> None:
        """Let deletion vectors hide the older rows, which the rows written here replace."""
        if self._deletions is not None:
            for file, rows in positions:
                self._deletions.add(file.file_name, rows)


def _dropped(rows: Rows, *, drop: bool) -> Rows:
    return without_deletes(rows) if drop else rows

"""Read a split: merged, filtered and projected batches. Runs in any process."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from threading import Lock

import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from pyroaring import BitMap

from lsm_engine.base.errors import CorruptFileError, ErrorKind, NotFoundError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.base.units import POSTPONE_BUCKET_COUNT
from lsm_engine.data_files.reader import DataFileReader
from lsm_engine.filter.expression import flags_of, positions_of
from lsm_engine.filter.file_index import matching_rows
from lsm_engine.filter.predicate import Predicate, columns_of
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.deletion_vector import DeletionVector
from lsm_engine.format.index_file import VectorPlace
from lsm_engine.format.manifest import Bucket
from lsm_engine.kernels.arrow_views import Longs, fixed_values
from lsm_engine.kernels.buckets import bucket_of
from lsm_engine.kernels.changes import adds
from lsm_engine.lsm.levels import runs_are_apart, runs_by_age
from lsm_engine.merge.selection import SelectingFunction
from lsm_engine.options import core_options
from lsm_engine.planning.scan import Run, Section, Split
from lsm_engine.read.buffer import WriteBuffer
from lsm_engine.read.merge import (
    Batches,
    MatchingGroups,
    MergeLimits,
    batches_of,
    file_parts,
    merge_runs,
    merge_slices,
    order_of,
    spilled_runs,
)
from lsm_engine.read.prefetch import Part
from lsm_engine.storage.bulk import forget_prefetched, prefetch
from lsm_engine.storage.local_state import SpillArea
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.bucket_keys import bucket_hashes
from lsm_engine.table.deletion_vectors import BucketVectors
from lsm_engine.table.merge_rules import MergeRules, merge_rules
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_engine.types.types import DataField

log = logging.getLogger(__name__)

# -- Join files that hold columns of the same rows -------------------------------------------------
#
# Each column comes from the newest file that has it.
#
# Tables with `data-evolution.enabled` have such files: rows are appended whole, and new values
# of some columns are stored in files of their own with the same row ids (planning/row_ids).

ReadFile = Callable[[DataFileMeta, Sequence[str]], Iterator[pa.RecordBatch]]
"""Reads columns of one file, in the order of its rows."""


def newest_holders(
    files: Sequence[DataFileMeta], schema: TableSchema, schemas: Mapping[int, TableSchema]
) -> dict[int, int]:
    """Return, by column id, the index of the newest file that has the column. `files` come newest first."""
    holders: dict[int, int] = {}
    for index, file in enumerate(files):
        written = schemas.get(file.schema_id, schema).written_fields(file.write_columns)
        for field in written:
            holders.setdefault(field.id, index)
    return holders


def replaced_columns(
    files: Sequence[DataFileMeta], schema: TableSchema, schemas: Mapping[int, TableSchema]
) -> dict[str, frozenset[int]]:
    """Return, by file name, the columns that a newer file of the same rows replaces."""
    holders = newest_holders(files, schema, schemas)
    return {
        file.file_name: frozenset(number for number, holder in holders.items() if holder < index)
        for index, file in enumerate(files)
    }


def joined_rows(
    read: ReadFile,
    files: Sequence[DataFileMeta],
    names: Sequence[str],
    schema: TableSchema,
    schemas: Mapping[int, TableSchema],
) -> Iterator[pa.RecordBatch]:
    """Yield columns of the rows that `files`, newest first, share; a column that none has is null.

    `_ROW_ID` and `_SEQUENCE_NUMBER` are the newest file's. Raises CorruptFileError where a column that
    is NOT NULL is in none of the files.
    """
    holders = newest_holders(files, schema, schemas)
    chosen: dict[int, list[str]] = {}
    for name in names:
        index = 0
        if name not in schema.tracking_names:
            field = schema.field(name)
            if field.id not in holders and not field.type.nullable:
                raise CorruptFileError(
                    f"no file of these rows has column {name!r}, which is NOT NULL; run verify",
                    file=files[0].file_name,
                    column=name,
                )
            index = holders.get(field.id, 0)
        chosen.setdefault(index, []).append(name)
    # All columns are in one file, so nothing has to be joined.
    if len(chosen) == 1:
        ((index, only),) = chosen.items()
        yield from read(files[index], only)
        return
    streams = [
        _Stream(files[index], read(files[index], column_names))
        for index, column_names in chosen.items()
    ]
    # Batches of the files may end at different rows, so the shortest one is the step.
    while counts := {stream.fetched() for stream in streams} - {0}:
        count = min(counts)
        # A file that ends early has lost rows, or the row ids are wrong.
        if not all(stream.waiting for stream in streams):
            short = next(stream for stream in streams if not stream.waiting)
            raise CorruptFileError(
                "files of the same row ids have different numbers of rows; run verify",
                file=short.file.file_name,
            )
        columns = {
            field.name: (field, column)
            for stream in streams
            for field, column in stream.take(count)
        }
        yield pa.RecordBatch.from_arrays(
            [columns[name][1] for name in names],
            schema=pa.schema([columns[name][0] for name in names]),
        )


class _Stream:
    """The batches of one file, sliced to the length that all files of a group have loaded."""

    def __init__(self, file: DataFileMeta, batches: Iterator[pa.RecordBatch]) -> None:
        self.file = file
        self._batches = batches
        self._batch: pa.RecordBatch | None = None

    @property
    def waiting(self) -> int:
        return 0 if self._batch is None else int(self._batch.num_rows)

    def fetched(self) -> int:
        """Fetch the next batch if the last one is used up; return the number of waiting rows."""
        while not self.waiting:
            self._batch = next(self._batches, None)
            if self._batch is None:
                break
        return self.waiting

    def take(self, count: int) -> list[tuple[pa.Field, pa.Array]]:
        assert self._batch is not None, "asked for rows that are not there"
        piece, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        return list(zip(piece.schema, piece.columns, strict=True))


# -- Read a split ----------------------------------------------------------------------------------

_FILES_AHEAD = 32
_SMALL_FILE_BYTES = 1 << 20


@record
class ReadRows:
    """The output columns, and the filter on rows.

    `row_filter` is the filter, `filter_columns` are its columns, `predicate` prunes row groups, and
    `key_predicate` is the part of it that holds for all versions of a key or for none.
    """

    names: tuple[str, ...]
    row_filter: Predicate | None = None
    filter_columns: frozenset[str] = frozenset()
    predicate: Predicate | None = None
    key_predicate: Predicate | None = None

    @staticmethod
    def from_filter(
        names: Sequence[str],
        predicate: Predicate | None,
        key_predicate: Predicate | None = None,
    ) -> "ReadRows":
        """Return the columns and filters of a scan."""
        columns = frozenset() if predicate is None else columns_of(predicate)
        return ReadRows(
            names=tuple(names),
            row_filter=predicate,
            filter_columns=columns,
            predicate=predicate,
            key_predicate=key_predicate,
        )

    def pruned_by(self, predicate: Predicate | None) -> "ReadRows":
        """Return the same rows, with another predicate for pruning row groups."""
        return replace(self, predicate=predicate)

    @property
    def referenced(self) -> frozenset[str]:
        """The output columns and the columns of the filter."""
        return self.filter_columns.union(self.names)

    def needed(self, schema: TableSchema, also: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the table columns to read, in the table's order."""
        needed = self.referenced.union(also)
        return tuple(name for name in (*schema.names, *schema.tracking_names) if name in needed)

    def to_merge(self, schema: TableSchema, rules: MergeRules) -> tuple[str, ...]:
        """Return the columns that a merge reads, with sequence numbers and row kinds."""
        return (*self.needed(schema, rules.needs(self.referenced)), SEQUENCE_NUMBER, VALUE_KIND)

    def finish(self, rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield rows filtered and projected."""
        if self.row_filter is not None:
            rows = rows.filter(flags_of(self.row_filter, rows))
        yield from self.projected(rows)

    def projected(self, rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield rows with the output columns."""
        chosen = rows.select(list(self.names))
        batches = chosen.to_batches() if isinstance(chosen, pa.Table) else [chosen]
        yield from (batch for batch in batches if batch.num_rows)


def fetch_small_files(
    context: BucketContext, partition: bytes, bucket: int, files: Iterable[DataFileMeta]
) -> list[str]:
    """Prefetch small files of a bucket, as all will be read; return their names, to drop them later."""
    # A local file is opened as fast as it is fetched, and files outside of the table may be on another store.
    if not context.file_io.facts.is_remote:
        return []
    small = [
        file.file_name
        for file in files
        if file.file_size <= _SMALL_FILE_BYTES and file.external_path is None
    ]
    # More files than these would leave the cache before they are read.
    paths = [context.data_file(partition, bucket, name) for name in small[:_FILES_AHEAD]]
    for path in paths:
        prefetch(context.file_io, path)
    return paths


@record
class SplitSource:
    """The context and columns that the splits of one scan are read with. It pickles.

    `fallback`: those of the fallback branch.
    """

    context: BucketContext
    rows: ReadRows
    fallback: "SplitSource | None" = None

    def source_of(self, split: Split) -> "SplitSource":
        """Return the source of a split: this one, or that of the fallback branch."""
        if split.branch is None:
            return self
        assert self.fallback is not None, "a split of a branch comes with its source"
        return self.fallback

    @property
    def wants_all_keys(self) -> bool:
        """Whether the filter selects all keys of a partition."""
        predicate = self.rows.key_predicate
        return predicate is None or columns_of(predicate) <= set(self.context.schema.partition_keys)

    def narrowed(self, names: Sequence[str]) -> "SplitSource":
        """Return the source of the same rows with other columns."""
        fallback = None if self.fallback is None else self.fallback.narrowed(names)
        rows = replace(self.rows, names=tuple(names))
        return replace(self, rows=rows, fallback=fallback)

    @contextmanager
    def fetching(self, splits: Iterable[Split]) -> Iterator[Iterator[Split]]:
        """Yield splits in order while small remote files of the next ones are prefetched.

        Prefetched files that were not read are dropped at the end: the reader may have stopped early.
        """
        if not self.context.file_io.facts.is_remote:
            yield iter(splits)
            return
        fetched: list[str] = []
        try:
            yield self._ahead(splits, fetched)
        finally:
            forget_prefetched(self.context.file_io, fetched)

    def _ahead(self, splits: Iterable[Split], fetched: list[str]) -> Iterator[Split]:
        waiting: deque[Split] = deque()
        for split in splits:
            fetched += fetch_small_files(
                self.source_of(split).context, split.partition, split.bucket, split.files
            )
            waiting.append(split)
            while sum(len(queued.files) for queued in waiting) > _FILES_AHEAD:
                yield waiting.popleft()
        yield from waiting

    def batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        source = self.source_of(split)
        yield from read_split(source.context, source.rows, split)


def read_split(context: BucketContext, rows: ReadRows, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one split, merged, without deleted keys."""
    for part in split_parts(context, rows, split):
        yield from part()


def split_parts(
    context: BucketContext, rows: ReadRows, split: Split, *, max_bytes: int | None = None
) -> Iterator[Part]:
    """Yield the parts of a split: each section to merge, and each raw file.

    `max_bytes`: the approximate decoded bytes of a part of a raw file.
    """
    bucket = BucketReader(context, split.partition, split.bucket, split.vectors)
    if split.waiting:
        yield partial(_with_waiting, bucket, rows, split)
        return
    for section in split.sections:
        if not split.raw:
            read = _joined_rows if context.schema.evolves_data else merged_rows
            # Each part is read later, perhaps in another thread.
            yield partial(read, bucket, rows, section)
            continue
        names = rows.needed(context.schema)
        for file in (file for run in section for file in run):
            groups = MatchingGroups(rows.predicate)
            # Rows that a filter keeps are cut out in steps of Python, which threads would only wait for.
            for part in file_parts(file, max_bytes, len(names) if rows.row_filter is None else 0):
                yield partial(raw_rows, bucket, rows, file, part, groups)


def rows_by_index(
    context: BucketContext,
    place: Bucket,
    file: DataFileMeta,
    predicate: Predicate,
    stored: Iterable[DataField],
) -> BitMap | None:
    """Return the rows of a file that may match a filter by its file index; None: all of them may.

    `stored`: the fields of the file. An index that cannot be read is logged: the data file has all that is needed.
    """
    try:
        indexes = context.file_index(place, file)
        if indexes is None:
            return None
        return matching_rows(indexes, predicate, stored=stored, read=context.schema.fields)
    except (CorruptFileError, NotFoundError) as error:
        log.warning("a scan goes on without a file index: %s", error)
        return None


def merged_rows(
    bucket: "BucketReader", rows: ReadRows, section: Section
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one section, merged, without deleted keys."""
    if not bucket.may_match(section, rows):
        return
    for merged in bucket.merged(section, rows, exact=False):
        yield from rows.finish(merged)


def _joined_rows(
    bucket: "BucketReader", rows: ReadRows, section: Section
) -> Iterator[pa.RecordBatch]:
    for batch in bucket.joined(section, rows.needed(bucket.schema)):
        yield from rows.finish(batch)


def raw_rows(
    bucket: "BucketReader",
    rows: ReadRows,
    file: DataFileMeta,
    part: range,
    groups: MatchingGroups,
    replaced: Callable[[], Mapping[str, DeletionVector]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part of a raw file, without the rows that are `replaced` (by file name).

    `groups`: the matching row groups of the file, shared by all of its parts.
    """
    # The first part has found the matching groups, and this one has none.
    if groups.are_none_in(part):
        return
    deleted = None if replaced is None else replaced().get(file.file_name)
    for batch in bucket.filtered(rows, file, part, groups, deleted):
        yield from rows.projected(batch)


class BucketReader:
    """Reads a bucket's live rows in the present schema (MergeFileSplitRead, RawFileSplitRead).

    `vectors`: the locations of the files' deletion vectors.
    """

    def __init__(
        self,
        context: BucketContext,
        partition: bytes,
        bucket: int,
        vectors: Iterable[VectorPlace] = (),
    ) -> None:
        self._context = context
        self.place = (partition, bucket)
        self._vectors = BucketVectors(context, vectors)
        self._rules = merge_rules(context.schema) if context.schema.has_primary_key else None

    @property
    def context(self) -> BucketContext:
        """The context that the files are read with."""
        return self._context

    def vector(self, file_name: str) -> DeletionVector | None:
        """Return the deletion vector of a file; None if it has none."""
        return self._vectors.vector_of(file_name)

    @property
    def rules(self) -> MergeRules:
        """The rules by which rows of a key are merged."""
        assert self._rules is not None, "a table without a key has nothing to merge"
        return self._rules

    @property
    def schema(self) -> TableSchema:
        """The schema of the rows that are read."""
        return self._context.schema

    def needs_numbers(self, section: Section) -> bool:
        """Whether a merge needs each row's sequence number; mostly one number per file is enough."""
        return self.schema.orders_by_snapshot or not runs_are_apart(section)

    def joined(self, section: Section, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a section whose files, newest first, hold different columns."""
        files = [file for run in section for file in run]
        for file in files:
            if len(files) > 1 and self._vectors.vector_of(file.file_name) is not None:
                raise UnsupportedError(
                    "this version does not support deletion vectors of rows whose columns lie in several "
                    "files; nothing was read",
                    kind=ErrorKind.UNSUPPORTED_FORMAT,
                    file=file.file_name,
                )
        yield from joined_rows(self.file, files, names, self.schema, self._context.schemas)

    def run(
        self,
        run: Run,
        names: Sequence[str],
        *,
        matching: Predicate | None = None,
        max_rows: int | None = None,
        parts: Mapping[str, range] | None = None,
        exact: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a run's files in key order; `parts` as in `merged`.

        Not `exact`: the column of sequence numbers is not read, and each row gets its file's greatest.
        """
        for file in run:
            part = parts.get(file.file_name) if parts else None
            number = None if exact else file.max_sequence_number
            groups = MatchingGroups(matching)
            yield from self.file(
                file, names, matching=groups, max_rows=max_rows, part=part, number=number
            )

    def file(
        self,
        file: DataFileMeta,
        names: Sequence[str],
        *,
        matching: MatchingGroups | None = None,
        max_rows: int | None = None,
        part: range | None = None,
        number: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file, row group by row group; `matching` prunes row groups.

        `part`: read only row groups that begin within it.
        """
        with self._opened(file, names, number=number) as reader:
            groups = reader.groups_from(range(file.row_count) if part is None else part)
            if matching is not None:
                groups = matching.among(groups, reader)
            yield from reader.batches(groups, max_rows=max_rows)

    def filtered(
        self,
        rows: ReadRows,
        file: DataFileMeta,
        part: range,
        matching: MatchingGroups,
        deleted: DeletionVector | None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part of a file that the filter of `rows` keeps; for rows that need no merging.

        `deleted`: rows to leave out (None: the file's own vector).
        """
        indexed = matching.rows(partial(self.indexed_rows, file, rows))
        if indexed is not None and not len(indexed):
            return
        with self._opened(file, rows.needed(self.schema), deleted) as reader:
            groups = matching.among(reader.groups_from(part), reader)
            if indexed is not None:
                groups = reader.groups_with(indexed, groups)
            if rows.row_filter is None:
                yield from reader.batches(groups)
            elif self._context.file_io.facts.is_remote:  # all columns of a group in one round
                for batch in reader.batches(groups):
                    yield from rows.finish(batch)
            else:
                positions = partial(positions_of, rows.row_filter)
                yield from reader.matching(groups, positions, rows.filter_columns, indexed)

    def indexed_rows(self, file: DataFileMeta, rows: ReadRows) -> BitMap | None:
        """Return the rows of a file that may match a filter by its file index; None: all of them may."""
        if rows.predicate is None or not self.schema.options[core_options.FILE_INDEX_READ_ENABLED]:
            return None
        stored = self._context.schemas[file.schema_id].written_fields(file.write_columns)
        return rows_by_index(self._context, self.place, file, rows.predicate, stored)

    def may_match(self, section: Section, rows: ReadRows) -> bool:
        """Whether file indexes allow a match in a section: one file, or several whose rows are merged by key.

        Several files are ruled out together, and only if one of the rows of a key stands for all.
        """
        files = [file for run in section for file in run]
        if len(files) > 1 and (self.schema.evolves_data or not leaves_out(self.schema)):
            return True
        return any(self.indexed_rows(file, rows) != BitMap() for file in files)

    @contextmanager
    def _opened(
        self,
        file: DataFileMeta,
        names: Sequence[str],
        deleted: DeletionVector | None = None,
        *,
        number: int | None = None,
    ) -> Iterator[DataFileReader]:
        """Open a file, without its deleted rows (None: those of its own vector)."""
        checked = self.schema.options[core_options.PAGE_CHECKSUM]
        deleted = deleted or self._vectors.vector_of(file.file_name)
        with self._context.open_file(
            self.place, file, tuple(names), verify_checksums=checked, number=number
        ) as reader:
            yield reader if deleted is None else reader.without(deleted)

    def merged(
        self,
        section: Section,
        rows: ReadRows | None = None,
        *,
        drop_deletes: bool = True,
        parts: Mapping[str, range] | None = None,
        exact: bool = True,
    ) -> Iterator[pa.Table | pa.RecordBatch]:
        """Yield a section's merged rows with sequence numbers and kinds; `rows` None: all columns.

        The runs of a section come oldest first, which orders rows of equal sequence numbers. `parts`: by
        file name, read only row groups that begin within the part. Not `exact`: the caller ignores the
        sequence numbers of the result.
        """
        schema, rules = self._context.schema, self.rules
        ages: list[int] | None = None
        if rules.newest_stands:
            cut = runs_by_age(section, compacted_from=1)
            section, ages = tuple(run for _, run in cut), [age for age, _ in cut]
        read_names = (*schema.names, SEQUENCE_NUMBER, VALUE_KIND)
        if rows is not None:
            read_names = rows.to_merge(schema, rules)
        limits = MergeLimits.from_options(schema.options, section)
        # A condition on a value column holds for the merged row only, so it cannot skip versions of it.
        matching = None if rows is None else rows.key_predicate
        exact, most = exact or self.needs_numbers(section), limits.batch_rows
        runs = [
            self.run(run, read_names, matching=matching, max_rows=most, parts=parts, exact=exact)
            for run in section
        ]
        # Runs of a section may interleave in time: only a choice among rows can be made in groups.
        if not limits.spills or not rules.function.keeps_rows:
            yield from merge_runs(runs, rules, drop_deletes=drop_deletes, ages=ages)
            return
        spills = SpillArea()
        try:
            merged_runs = spilled_runs(runs, rules, spills, limits.runs_max)
            yield from merge_runs(merged_runs, rules, drop_deletes=drop_deletes)
        finally:
            spills.close()


# -- Rows that wait for a bucket (postpone.merge-on-read) ------------------------------------------


def _with_waiting(bucket: BucketReader, rows: ReadRows, split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a bucket, merged with those that wait for it (createPostponeMergeReader).

    They are numbered after the bucket's own, as the compaction that places them would number them.
    """
    schema, rules = bucket.schema, bucket.rules
    names = rows.to_merge(schema, rules)
    runs = _runs_of(split.sections)
    spills = SpillArea()
    try:
        stored: list[Batches] = []
        if runs:
            limits, matching = MergeLimits.from_options(schema.options, runs), rows.key_predicate
            most = limits.batch_rows
            stored = [bucket.run(run, names, matching=matching, max_rows=most) for run in runs]
            if limits.spills and rules.function.keeps_rows:
                stored = spilled_runs(stored, rules, spills, limits.runs_max)
        buffer = WriteBuffer(
            pa.schema([schema.key_value_arrow.field(name) for name in names]),
            rules,
            spills,
            1 + max((file.max_sequence_number for file in split.files), default=-1),
        )
        for batch in _waiting_rows(bucket.context, split, names[:-2]):
            kinds = batch.schema.get_field_index(VALUE_KIND)
            buffer.add(batch.remove_column(kinds), batch.column(kinds))
            if buffer.byte_count > schema.options[core_options.WRITE_BUFFER_SIZE]:
                buffer.spill()
        for merged in merge_runs(
            [*stored, *map(batches_of, buffer.runs())], rules, drop_deletes=True
        ):
            yield from rows.finish(merged)
    finally:
        spills.close()


def _waiting_rows(
    context: BucketContext, split: Split, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the bucket of a split among those that wait, in the order in which they came."""
    fields = context.schema.select(context.schema.bucket_keys)
    reader = BucketReader(context, split.partition, POSTPONE_BUCKET_COUNT)
    for file in split.waiting:
        for batch in reader.file(file, (*names, VALUE_KIND)):
            if split.total_buckets > 1:
                buckets = bucket_of(bucket_hashes(fields, batch), split.total_buckets)
                batch = batch.filter(pa.array(buckets == split.bucket))
            if batch.num_rows:
                yield batch


def _runs_of(sections: Sequence[Section]) -> Section:
    """Return the runs of a whole bucket: sections have no keys in common, so the runs of each join those of the next."""
    count = max(map(len, sections), default=0)
    return tuple(
        tuple(file for section in sections if number < len(section) for file in section[number])
        for number in range(count)
    )


# -- Positions of rows that newer runs replace, cached per section ---------------------------------
#
# They turn a merge into a plain read.
#
# Lazy frames and relations read one state several times, each time a few columns or rows of it.
# A merge reads the keys of all rows first, and then every column of every row. Its outcome is
# the same each time, so it is cached: later reads skip the replaced rows like those of a
# deletion vector, on several threads, and apply filters, limits and statistics.

_ROWS_WORTH_IT = 32 * 1024
"""Sections with fewer rows are merged faster than their files are read one by one."""
_REPLACED_MAX = 2_000_000
"""The most rows of a section outside its largest run; no more rows than these can be replaced."""
_KEPT_BYTES = 64 << 20

_ROWS_AT_ONCE = 4_000_000
"""Up to so many rows of a section, a read of all keys computes the replaced rows for later reads."""
_MERGED_KNOWN = 1024

Replaced = dict[str, DeletionVector]
Name = tuple[object, ...]


class ReplacedRows:
    """A cache of the replaced rows of one table's sections, at most 64 MB. Threads may share it."""

    def __init__(self) -> None:
        self._kept: LRUCache[Name, Replaced] = LRUCache(_KEPT_BYTES, _bytes_of)
        self._merged: LRUCache[Name, bool] = LRUCache(_MERGED_KNOWN)
        self._lock = Lock()

    def serves(
        self,
        bucket: BucketReader,
        split: Split,
        section: Section,
        *,
        all_keys: bool,
        small: bool = False,
    ) -> bool:
        """Whether a section is read without its replaced rows, instead of being merged.

        `all_keys`: the read needs all keys. A read of few keys, or one that may stop early, does not pay for
        a merge of all keys; a large section qualifies only once a read has reached its end. `small`: prefer
        files also where merging rows would be faster.
        """
        # Remote files would be opened one by one, which takes longer than a merge.
        if split.vectors or bucket.context.file_io.facts.is_remote or not leaves_out(bucket.schema):
            return False
        rows = [sum(file.row_count for file in run) for run in section]
        # A small section is merged faster, and many replaced rows take much memory.
        if (sum(rows) < _ROWS_WORTH_IT and not small) or sum(rows) - max(rows) > _REPLACED_MAX:
            return False
        name = _name(bucket, section)
        with self._lock:
            is_small = sum(rows) <= _ROWS_AT_ONCE or name in self._merged
            return name in self._kept or (all_keys and is_small)

    def positions(self, bucket: BucketReader, section: Section) -> Replaced:
        """Return the replaced rows by file name; the first call merges the keys of the section."""
        name = _name(bucket, section)
        # The lock is held while keys are merged, so that two readers do not do it twice.
        with self._lock:
            replaced = self._kept.get(name)
            if replaced is None:
                replaced = _replaced(bucket, section)
                with suppress(ValueError):  # a value larger than the cache is not cached
                    self._kept[name] = replaced
            return replaced

    def merged(
        self, bucket: BucketReader, section: Section, rows: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the merged rows of a section, and record that a read reached its end."""
        yield from rows
        with self._lock:
            self._merged[_name(bucket, section)] = True


def leaves_out(schema: TableSchema) -> bool:
    """Whether the merge selects one row of a key, so that the others can be left out."""
    return not schema.options[core_options.MERGE_ENGINE].policy.combines_versions


def _name(bucket: BucketReader, section: Section) -> Name:
    """Return the cache key of a section: its files, which never change, and the merge rules, which may."""
    return (bucket.rules, *(file.file_name for run in section for file in run))


def _bytes_of(replaced: Replaced) -> int:
    return 1 + sum(rows.positions.nbytes for rows in replaced.values())


def _replaced(bucket: BucketReader, section: Section) -> Replaced:
    rules = bucket.rules
    assert isinstance(rules.function, SelectingFunction), "one of the rows of a key stands for all"
    names = (*rules.key_columns, *rules.sequence.columns, SEQUENCE_NUMBER, VALUE_KIND)
    limit = MergeLimits.from_options(bucket.schema.options, section).batch_rows
    names = tuple(dict.fromkeys(names))
    starts = np.zeros(len(section), np.int64)
    deleted: list[list[Longs]] = [[] for _ in section]
    exact = bucket.needs_numbers(section)
    runs = [bucket.run(run, names, max_rows=limit, exact=exact) for run in section]
    for parts in merge_slices(runs, rules):
        rows = [part.rows for part in parts]
        ends = np.cumsum([0, *(batch.num_rows for batch in rows)])
        if len(parts) == 1:
            stays = adds(fixed_values(rows[0].column(VALUE_KIND), np.int8))
        else:
            chosen = rules.function.chosen(order_of(parts, rules), rows, drop_deletes=True)
            stays = np.zeros(ends[-1], np.bool_)
            stays[ends[chosen.run] + chosen.row] = True
        lost = np.flatnonzero(~stays)
        for index, part in enumerate(parts):
            low, high = np.searchsorted(lost, ends[index : index + 2])
            deleted[part.run].append(lost[low:high] - ends[index] + starts[part.run])
            starts[part.run] += rows[index].num_rows
    return {
        name: vector
        for run, positions in zip(section, deleted, strict=True)
        if positions
        for name, vector in _by_file(run, np.concatenate(positions)).items()
    }


def _by_file(run: Run, positions: Longs) -> Replaced:
    """Return positions in a run as those in its files."""
    ends = np.cumsum([0, *(file.row_count for file in run)])
    cuts = np.searchsorted(positions, ends)
    return {
        file.file_name: DeletionVector(positions[cuts[index] : cuts[index + 1]] - ends[index])
        for index, file in enumerate(run)
        if cuts[index] < cuts[index + 1]
    }

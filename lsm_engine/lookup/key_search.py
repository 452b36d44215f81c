"""Search incoming keys in data files, file by file, for the record that each key would replace.

Memory holds the batch, one file's bloom filter and one file's keys, never pairs of keys and files
(decisions/0012)."""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.data_files.reader import DataFileReader
from lsm_engine.data_files.writer import key_pieces, record_keys
from lsm_engine.format.binary_row import decode_row
from lsm_engine.format.bloom import RecordKeys, read_key_footer
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.manifest_file import entries_of
from lsm_engine.kernels.arrow_views import Bools, Longs, fixed_values, one_array
from lsm_engine.kernels.buckets import bucket_of
from lsm_engine.kernels.changes import retracts
from lsm_engine.kernels.keys import sort_keys
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys
from lsm_engine.lookup.key_batch import locate as locate_keys
from lsm_engine.options import core_options
from lsm_engine.planning.keys import KeySpan, candidates_by_range
from lsm_engine.storage.bulk import prefetch
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.bucket_keys import bucket_hashes, partition_numbers
from lsm_engine.table.live_files import (
    BUCKET,
    CREATION_TIME,
    FILE_NAME,
    MAX_KEY,
    MAX_SEQUENCE_NUMBER,
    MIN_KEY,
    MIN_SEQUENCE_NUMBER,
    SCHEMA_ID,
    TOTAL_BUCKETS,
    bucket_pairs,
)
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema

# -- Live files for a key search: columns for all files, an entry object for the current one -------
#
# Ten thousand entry objects take tens of megabytes; the columns that a search needs take two or
# three.

_ENTRIES_AT_ONCE = 128


@record
class FilePlace:
    """The partition, bucket and name of a data file."""

    partition: bytes
    bucket: int
    file_name: str


class BucketFiles:
    """The live files of one bucket, the newest first."""

    def __init__(self, partition: bytes, bucket: int, rows: pa.Table) -> None:
        self.partition = partition
        self.bucket = bucket
        self.total_buckets: int = rows.column(TOTAL_BUCKETS)[0].as_py()
        self._rows = rows.take(_newest_first(rows)).combine_chunks()
        self.newest: Longs = self._rows.column(MAX_SEQUENCE_NUMBER).to_numpy()
        """The greatest sequence number of each file."""
        self.is_apart = are_apart(self._rows.column(MIN_SEQUENCE_NUMBER).to_numpy(), self.newest)
        """Whether all rows of a file are older, or all newer, than any row of another file."""
        self._made: tuple[int, list[ManifestEntry]] = (0, [])

    def __len__(self) -> int:
        return len(self.newest)

    def entry(self, index: int) -> ManifestEntry:
        """Return one file's entry. Entries are decoded in small batches; only the last batch is cached."""
        begin, entries = self._made
        if not begin <= index < begin + len(entries):
            begin = index - index % _ENTRIES_AT_ONCE
            entries = entries_of(self._rows.slice(begin, _ENTRIES_AT_ONCE))
            self._made = begin, entries
        return entries[index - begin]

    def spans(self, key_order: Callable[[bytes], bytes]) -> "Spans":
        """Return the key ranges of the files."""
        return Spans(self._rows, key_order)


def are_apart(oldest: Longs, newest: Longs) -> Bools:
    """Return which ranges, given by their ends, do not overlap any other range."""
    order = np.argsort(oldest, kind="stable")
    lows, highs = oldest[order], newest[order]
    apart: Bools = np.ones(len(order), np.bool_)
    apart[1:] = np.maximum.accumulate(highs)[:-1] < lows[1:]
    apart[:-1] &= highs[:-1] < lows[1:]
    result = np.empty_like(apart)
    result[order] = apart
    return result


class Spans:
    """The key ranges of some files, created on iteration."""

    def __init__(self, rows: pa.Table, key_order: Callable[[bytes], bytes]) -> None:
        self._rows = rows
        self._key_order = key_order

    def __len__(self) -> int:
        count: int = self._rows.num_rows
        return count

    def __iter__(self) -> Iterator[KeySpan]:
        order = self._key_order
        columns = (self._rows.column(name) for name in (FILE_NAME, MIN_KEY, MAX_KEY))
        for name, low, high in zip(*columns, strict=True):
            yield KeySpan(
                file_name=name.as_py(), lowest=order(low.as_py()), highest=order(high.as_py())
            )


def refuse_waiting(session: TableSession) -> None:
    """Raise UnsupportedError if readers see rows that wait for a bucket, which no look by key finds."""
    option = core_options.POSTPONE_MERGE_ON_READ
    if session.options[option]:
        raise UnsupportedError(
            f"rows wait for a bucket, where no lookup finds them, and {option.key!r} has them read; compact the "
            "table first, or scan it with a filter on the key",
            option=option.key,
            table=session.name,
        )


def entries_with_buckets(
    session: TableSession, entries: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """Return entries without those whose rows wait for a bucket, as `with_buckets` does."""
    placed_entries = [entry for entry in entries if entry.bucket >= 0]
    if len(placed_entries) < len(entries):
        refuse_waiting(session)
    return placed_entries


def with_buckets(session: TableSession, rows: pa.Table | None) -> pa.Table | None:
    """Drop files whose rows wait for a bucket: no reader sees them. Raises as `refuse_waiting` does."""
    # Most tables have no rows that wait, and then the table is returned as it is.
    if rows is None or not rows.num_rows or pc.min(rows.column(BUCKET)).as_py() >= 0:
        return rows
    refuse_waiting(session)
    return rows.filter(pc.greater_equal(rows.column(BUCKET), 0))


def files_at(rows: pa.Table, numbers: Longs) -> pa.Table:
    """Return some files by ascending row numbers; all files are returned without a copy."""
    return rows if len(numbers) == rows.num_rows else rows.take(pa.array(numbers))


def by_bucket(rows: pa.Table) -> list[tuple[bytes, int, Longs]]:
    """Return each partition and bucket of files given as columns, in order, with its row numbers."""
    if not rows.num_rows:
        return []
    pairs, of_row = bucket_pairs(rows)
    order = np.argsort(of_row, kind="stable")
    starts = np.searchsorted(of_row[order], np.arange(len(pairs) + 1))
    return sorted(
        (partition, bucket, order[starts[index] : starts[index + 1]])
        for index, (partition, bucket) in enumerate(pairs)
    )


def _newest_first(rows: pa.Table) -> pa.Array:
    """Return the order of files, newest first, as `lsm/levels` defines it."""
    facts = {name: rows.column(name) for name in _ORDERED_BY}
    facts[CREATION_TIME] = pc.fill_null(rows.column(CREATION_TIME).cast(pa.int64()), -1)
    return pc.sort_indices(pa.table(facts), sort_keys=list(_ORDERED_BY.items()))


_ORDERED_BY = {
    MAX_SEQUENCE_NUMBER: "descending",
    MIN_SEQUENCE_NUMBER: "ascending",
    CREATION_TIME: "ascending",
    FILE_NAME: "ascending",
}


def schema_ids_of(rows: pa.Table) -> list[int]:
    """Return the ids of the schemas that files were written with."""
    ids: list[int] = pc.unique(rows.column(SCHEMA_ID)).to_pylist()
    return ids


# -- Key search ------------------------------------------------------------------------------------

DeletedRows = Callable[[ManifestEntry, Longs], Bools]
"""Returns which row positions of a data file its deletion vector hides."""
_EXPECTED_BYTES_MAX = 1 << 20
"""Larger files are not prefetched whole: footer and keys may be a small part of them."""
_NEVER = -(2**63)
_DECIDED_SHARE = 16
"""Decided keys are removed from the search once they may exceed this share (one in so many)."""
_PRUNED_KEYS_MAX = 1_000
"""Keys up to which row groups are chosen; more keys are in most row groups."""


@record
class FileKeys:
    """The keys of one data file, or of some of its row groups, in key order, with their sequence numbers.

    `kind` is None if the file holds no deletes. `begins`: of each row group that was read, its first row here and
    in the file; None of a whole file.
    """

    search: SearchKeys
    sequence: Longs
    kind: npt.NDArray[np.int8] | None
    begins: tuple[Longs, Longs] | None = None

    def positions(self, rows: Longs) -> Longs:
        """Return the positions in the file of some rows."""
        if self.begins is None:
            return rows
        read_begins, file_begins = self.begins
        group = np.searchsorted(read_begins, rows, side="right") - 1
        return rows - read_begins[group] + file_begins[group]


@record
class SearchedBucket:
    """Files of one bucket, and the searched keys that it may hold, in key order."""

    files: BucketFiles
    batch: KeyBatch
    rows: Longs

    def slice(self, start: int, stop: int) -> "SearchedBucket":
        """Return the same files with the keys from `start` to `stop`."""
        return SearchedBucket(
            files=self.files, batch=self.batch.slice(start, stop), rows=self.rows[start:stop]
        )


@record
class SearchWay:
    """Options of a search. `cached_keys` caches the keys of files that were read.

    `elsewhere`: the buckets to search in partitions other than a key's own; None: all. `numbers`: the
    caller compares the records' sequence numbers with those of other files, so they must be exact.
    """

    by_ranges: bool = True
    by_blooms: bool = False
    deleted: DeletedRows | None = None
    cached_keys: dict[str, FileKeys] | None = None
    elsewhere: frozenset[tuple[bytes, int]] | None = None
    numbers: bool = False


class KeySearch:
    """Incoming keys, and the record found so far that each would replace.

    All arrays have one value per key, in the order of the input. `place` is an index into `places`, -1: no
    record; `position` is the record's row in its data file, `sequence` its sequence number if the search has
    `numbers`. A key whose newest version is a delete has these values too, with `is_there` false.
    """

    def __init__(self, schema: TableSchema, keys: pa.RecordBatch) -> None:
        self.keys = keys
        self.schema = schema
        count = keys.num_rows
        self.is_there: Bools = np.zeros(count, np.bool_)
        self.place: Longs = np.full(count, -1, np.int64)
        self.position: Longs = np.full(count, -1, np.int64)
        self.sequence: Longs = np.full(count, _NEVER, np.int64)
        self.places: list[FilePlace] = []
        fields = schema.select(schema.partition_keys)
        self.partitions, self.partition_of = partition_numbers(fields, keys)
        self.own_buckets: npt.NDArray[np.int32] = np.full(count, -1, np.int32)
        self._hashes: npt.NDArray[np.int32] = np.zeros(count, np.int32)
        if schema.bucket_count > 0 and count:
            self._hashes = bucket_hashes(schema.select(schema.bucket_keys), keys)
            self.own_buckets = bucket_of(self._hashes, schema.bucket_count)

    def __len__(self) -> int:
        count: int = self.keys.num_rows
        return count

    def run(
        self,
        files: pa.Table,
        context: BucketContext,
        key_order: Callable[[bytes], bytes],
        way: SearchWay,
        *,
        everywhere: bool,
    ) -> list[str]:
        """Search live files, given as columns (table/live_files), in a key's own partition, or
        `everywhere` it may be; return how, as text.
        """
        return [
            self._searched(bucket, context, key_order, way)
            for bucket in self._buckets(files, way, everywhere=everywhere)
        ]

    def _searched(
        self,
        bucket: SearchedBucket,
        context: BucketContext,
        key_order: Callable[[bytes], bytes],
        way: SearchWay,
    ) -> str:
        files = bucket.files
        candidates = candidates_by_range(
            files.spans(key_order), bucket.batch.keys, enabled=way.by_ranges
        )
        candidate_files = np.flatnonzero(candidates.starts < candidates.stops).tolist()
        # Keys outside of every file's range are in no file.
        lowest = int(candidates.starts[candidate_files].min(initial=len(bucket.rows)))
        highest = int(candidates.stops[candidate_files].max(initial=lowest))
        bucket = bucket.slice(lowest, highest)
        starts, stops = candidates.starts - lowest, candidates.stops - lowest
        blooms = _record_keys(self.schema, bucket.batch) if way.by_blooms else None
        # Sequence numbers of several buckets do not compare: each bucket begins anew.
        newest = np.full(len(bucket.rows), _NEVER, np.int64)
        search = _BucketSearch(
            bucket=bucket, newest=newest, context=context, blooms=blooms, way=way
        )
        undecided: Longs = np.arange(len(newest))
        decided = pairs = passed = files_read = 0
        for index, after in zip_longest(candidate_files, candidate_files[1:]):
            # A newer file has decided these keys, so an older file cannot change them.
            if decided * _DECIDED_SHARE > len(undecided):
                undecided, decided = undecided[newest[undecided] < files.newest[index]], 0
            numbers = undecided[slice(*np.searchsorted(undecided, (starts[index], stops[index])))]
            if decided * _DECIDED_SHARE > len(numbers):
                numbers = numbers[newest[numbers] < files.newest[index]]
            if len(numbers):
                entry = files.entry(index)
                if after is not None and blooms is not None:
                    _expect(files.entry(after), context)
                # If all rows of a file are older or newer than any other file's, one number is enough.
                can_skip = (
                    bool(files.is_apart[index]) and way.cached_keys is None and not way.numbers
                )
                number = int(files.newest[index]) if can_skip else None
                read_count, decided_count = self._search_file(search, entry, numbers, number)
                decided += decided_count
                pairs, passed, files_read = (
                    pairs + len(numbers),
                    passed + read_count,
                    files_read + (read_count > 0),
                )
        if blooms is None:
            return candidates.text
        blooms_left = f"bloom filters left {passed:,} of {pairs:,} pairs of keys and files"
        return f"{candidates.text}; {blooms_left}, {files_read:,} of {len(files):,} files were read"

    def _search_file(
        self,
        search: "_BucketSearch",
        entry: ManifestEntry,
        numbers: Longs,
        number: int | None,
    ) -> tuple[int, int]:
        """Search one file; return the number of keys that it was read for, and of those it decided.

        `number`: one sequence number for all rows of the file; None: read each row's own.
        """
        way, bucket, newest = search.way, search.bucket, search.newest
        keys = None if way.cached_keys is None else way.cached_keys.get(entry.file.file_name)
        if keys is None:
            with open_keys(entry, search.context, number) as reader:
                if search.blooms is not None:
                    bloom = read_key_footer(reader.footer_members, file_name=reader.path).bloom
                    numbers = numbers if bloom is None else bloom.remaining(search.blooms, numbers)
                # The bloom filter excludes every key, so the file's keys are not read.
                if not len(numbers):
                    return 0, 0
                # Keys that are cached have to be those of the whole file.
                groups = None
                if way.cached_keys is None:
                    groups = _groups_with(reader, self.schema, bucket.batch, numbers)
                keys = read_keys(reader, self.schema, number, groups)
            # A search on the same files can use these keys again.
            if way.cached_keys is not None:
                way.cached_keys[entry.file.file_name] = keys
        read_count, last = len(numbers), locate_keys(keys.search, bucket.batch.search, numbers).last
        numbers, last = numbers[last >= 0], last[last >= 0]
        positions = keys.positions(last)
        # A deleted row is no record, so an older file may still hold the key.
        if way.deleted is not None and len(last):
            is_live = ~way.deleted(entry, positions)
            numbers, last, positions = numbers[is_live], last[is_live], positions[is_live]
        # An equal number keeps the record that was found first.
        newer = keys.sequence[last] > newest[numbers]
        numbers, last, positions = numbers[newer], last[newer], positions[newer]
        newest[numbers] = keys.sequence[last]
        rows = bucket.rows[numbers]
        self.add_records(rows, _place_of(entry), positions)
        self.sequence[rows] = newest[numbers]
        if keys.kind is not None:
            self.is_there[rows] = ~retracts(keys.kind[last])
        return read_count, len(numbers)

    def add_records(self, rows: Longs, place: FilePlace, positions: Longs) -> None:
        """Record that the rows of a file at these positions are the records of keys, by key number."""
        if not len(rows):
            return
        self.is_there[rows] = True
        self.position[rows] = positions
        self.place[rows] = len(self.places)
        self.places.append(place)

    def _buckets(
        self, files: pa.Table, way: SearchWay, *, everywhere: bool
    ) -> Iterator[SearchedBucket]:
        """Yield each bucket's files with the keys that it may hold; own partitions of keys first."""
        buckets = by_bucket(files)
        for own in (True, False) if everywhere else (True,):
            for partition, number, file_rows in buckets:
                # In other partitions only the named buckets can hold such keys.
                if not (own or way.elsewhere is None or (partition, number) in way.elsewhere):
                    continue
                rows = np.flatnonzero(self.may_be_in(partition, own=own) & ~self.is_there)
                if not len(rows):
                    continue
                bucket_files = BucketFiles(partition, number, files_at(files, file_rows))
                total = bucket_files.total_buckets
                # The number of buckets may differ by partition after a rescale.
                if self.schema.bucket_count > 0 and total > 0:
                    rows = rows[bucket_of(self._hashes[rows], total) == number]
                if len(rows):
                    batch, places = self._batch(rows)
                    yield SearchedBucket(files=bucket_files, batch=batch, rows=rows[places])

    def _batch(self, rows: Longs) -> tuple[KeyBatch, Longs]:
        fields = self.schema.select(self.schema.trimmed_primary_keys)
        columns = [self.keys.column(field.name).take(pa.array(rows)) for field in fields]
        return KeyBatch.from_columns(columns, [field.type for field in fields])

    def may_be_in(self, partition: bytes, *, own: bool) -> Bools:
        """Return which keys are of a partition or, unless `own`, of others but may be stored in it."""
        mine = [
            number for number, candidate in enumerate(self.partitions) if candidate == partition
        ]
        # The keys of this partition are known by their own values.
        if own:
            return np.isin(self.partition_of, mine)
        shared = self._shared(partition)
        other_numbers = [
            number
            for number, candidate in enumerate(self.partitions)
            if candidate != partition and self._shared(candidate) == shared
        ]
        return np.isin(self.partition_of, other_numbers)

    def _shared(self, partition: bytes) -> tuple[object, ...]:
        """Return the partition values that are key columns, in tables where some are not.

        If all partition columns are in the primary key, the record key excludes them.
        """
        schema = self.schema
        inside = [name in schema.primary_keys for name in schema.partition_keys]
        if all(inside):
            return ()
        types = [field.type for field in schema.select(schema.partition_keys)]
        values = decode_row(partition, types)
        return tuple(value for value, is_in in zip(values, inside, strict=True) if is_in)


def _expect(entry: ManifestEntry, context: BucketContext) -> None:
    """Prefetch a small file while the one before it is searched; the bloom filter is most of it."""
    if entry.file.file_size <= _EXPECTED_BYTES_MAX:
        prefetch(*context.place_of((entry.partition, entry.bucket), entry.file))


def _place_of(entry: ManifestEntry) -> FilePlace:
    return FilePlace(partition=entry.partition, bucket=entry.bucket, file_name=entry.file.file_name)


@record
class _BucketSearch:
    """The search of one bucket: its keys, and for each the sequence number of the newest version so far."""

    bucket: SearchedBucket
    newest: Longs
    context: BucketContext
    blooms: RecordKeys | None
    way: SearchWay


def open_keys(
    entry: ManifestEntry, context: BucketContext, number: int | None = None
) -> DataFileReader:
    """Open a data file for its keys, sequence numbers and, if it holds deletes, row kinds alone.

    `number`: one sequence number for all rows, whose own numbers are then not read.
    """
    schema = context.schema
    numbers = (SEQUENCE_NUMBER,) if number is None else ()
    kinds = (VALUE_KIND,) if entry.file.may_hold_deletes else ()
    return context.open_file(
        (entry.partition, entry.bucket),
        entry.file,
        (*schema.trimmed_primary_keys, *numbers, *kinds),
        verify_checksums=schema.options[core_options.PAGE_CHECKSUM],
    )


def read_keys(
    reader: DataFileReader,
    schema: TableSchema,
    number: int | None = None,
    groups: Sequence[int] | None = None,
) -> FileKeys:
    """Read the keys of an open data file, or of some of its row groups; `number` as of `open_keys`."""
    rows = reader.read(groups)
    kind = None
    if VALUE_KIND in rows.schema.names:
        kind = fixed_values(one_array(rows.column(VALUE_KIND)), np.int8)
    if number is None:
        sequence = fixed_values(one_array(rows.column(SEQUENCE_NUMBER)), np.int64)
    else:
        sequence = np.broadcast_to(np.int64(number), rows.num_rows)
    begins = None
    if groups is not None:
        counts = np.array(reader.row_group_rows, np.int64)
        read_counts = counts[list(groups)]
        begins = (np.cumsum(read_counts) - read_counts, (np.cumsum(counts) - counts)[list(groups)])
    return FileKeys(
        search=SearchKeys.from_sort_keys(
            sort_keys([rows.column(n) for n in schema.trimmed_primary_keys])
        ),
        sequence=sequence,
        kind=kind,
        begins=begins,
    )


def _groups_with(
    reader: DataFileReader, schema: TableSchema, batch: KeyBatch, numbers: Longs
) -> list[int] | None:
    """Return the row groups that may hold one of few keys, by the bounds of the first key column; None: all."""
    if reader.row_group_count == 1 or len(numbers) > _PRUNED_KEYS_MAX:
        return None
    bounds = reader.bounds(schema.trimmed_primary_keys[0])
    # Bounds of floating numbers compare zeros as equal, and leave NaN out.
    if bounds is None or pa.types.is_floating(bounds.lower.type):
        return None
    values = batch.columns[0].take(pa.array(numbers))
    return [
        group
        for group, (low, high) in enumerate(zip(bounds.lower, bounds.upper, strict=True))
        if not (bounds.is_known[group] and low.is_valid and high.is_valid)
        or pc.any(pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))).as_py()
    ]


def _record_keys(schema: TableSchema, batch: KeyBatch) -> RecordKeys:
    return RecordKeys(*key_pieces(record_keys(schema.trimmed_primary_keys, batch.columns)))

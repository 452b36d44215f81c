"""Incoming keys searched in data files, file by file: which record each would replace, and where.

What is held is the batch, one file's bloom filter and one file's keys, never pairs of keys and files
(decisions/0012).
"""

from collections.abc import Callable, Iterator
from itertools import zip_longest

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.codec.binary_row import decode_row
from lsm_engine.codec.record_key_bloom import read_key_footer
from lsm_engine.codec.record_key_probing import RecordKeys
from lsm_engine.io.data_file_reader import DataFileReader
from lsm_engine.io.key_footers import key_pieces, record_keys
from lsm_engine.kernels.arrow_views import Bools, Longs, fixed_values, one_array
from lsm_engine.kernels.hashing import bucket_of
from lsm_engine.kernels.keys import sort_keys
from lsm_engine.kernels.row_kinds import retracts
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys
from lsm_engine.lookup.key_batch import locate as locate_keys
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.plan.tag_location import candidates_by_range
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_engine.table.find.searched_files import BucketFiles, FilePlace, by_bucket, files_at
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.ground.bucket_keys import bucket_hashes, partition_numbers

DeletedRows = Callable[[ManifestEntry, Longs], Bools]
"""Data file and row positions → which of the rows a deletion vector hides."""
_EXPECTED_BYTES_MAX = 1 << 20
"""Of a larger file, footer and keys may be the smaller part, and reading it waits seldom for its size."""
_NEVER = -(2**63)
_DECIDED_SHARE = 16
"""Keys that are decided are left out once there may be more of them than one in so many."""


@record
class FileKeys:
    """The keys of one data file, in key order, with what decides which of two is newer.

    `kind` is None where the file holds no deletes.
    """

    search: SearchKeys
    sequence: Longs
    kind: npt.NDArray[np.int8] | None


@record
class SearchedBucket:
    """Files of one bucket, and the keys that it may hold, in key order."""

    files: BucketFiles
    batch: KeyBatch
    rows: Longs

    def slice(self, start: int, stop: int) -> "SearchedBucket":
        """Return the same files with keys `start` to `stop` of those."""
        return SearchedBucket(
            files=self.files, batch=self.batch.slice(start, stop), rows=self.rows[start:stop]
        )


@record
class SearchWay:
    """How files are searched. `kept` holds the keys of files that are not read a second time.

    `elsewhere`: the buckets of partitions other than a key's own that are looked into; None: all.
    `numbers`: whoever asks compares the records' sequence numbers with those of files not searched here.
    """

    by_ranges: bool = True
    by_blooms: bool = False
    deleted: DeletedRows | None = None
    kept: dict[str, FileKeys] | None = None
    elsewhere: frozenset[tuple[bytes, int]] | None = None
    numbers: bool = False


class KeySearch:
    """Incoming keys, and what is known so far of the record that each would replace.

    All arrays have one value per key, in the order of the input. `place` numbers `places`, -1: no
    record; `position` is the record's row in its data file, `sequence` its number where files were
    searched by a way with `numbers`. A key whose newest version is a delete has these too, and is not there.
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
        """Search live files, given as columns (table/ground/live_files), in a key's own partition, or
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
        asked = np.flatnonzero(candidates.starts < candidates.stops).tolist()
        # Keys outside of every range have nothing to be asked for.
        lowest = int(candidates.starts[asked].min(initial=len(bucket.rows)))
        highest = int(candidates.stops[asked].max(initial=lowest))
        bucket = bucket.slice(lowest, highest)
        starts, stops = candidates.starts - lowest, candidates.stops - lowest
        blooms = _record_keys(self.schema, bucket.batch) if way.by_blooms else None
        # Sequence numbers of several buckets do not compare: each bucket begins anew.
        newest = np.full(len(bucket.rows), _NEVER, np.int64)
        rest: Longs = np.arange(len(newest))
        decided = pairs = passed = files_read = 0
        for at, after in zip_longest(asked, asked[1:]):
            # What a newer file decided, an older one cannot change: it need not be asked for it.
            if decided * _DECIDED_SHARE > len(rest):
                rest, decided = rest[newest[rest] < files.newest[at]], 0
            some = rest[slice(*np.searchsorted(rest, (starts[at], stops[at])))]
            if decided * _DECIDED_SHARE > len(some):
                some = some[newest[some] < files.newest[at]]
            if len(some):
                entry = files.entry(at)
                if after is not None and blooms is not None:
                    _expect(files.entry(after), context)
                # Where all rows of a file are older or newer than any other, one number will do.
                can_skip = bool(files.is_apart[at]) and way.kept is None and not way.numbers
                number = int(files.newest[at]) if can_skip else None
                left, found = self._search_file(
                    entry, bucket, some, newest, context, blooms, way, number
                )
                decided += found
                pairs, passed, files_read = (
                    pairs + len(some),
                    passed + left,
                    files_read + (left > 0),
                )
        if blooms is None:
            return candidates.text
        blooms_left = f"bloom filters left {passed:,} of {pairs:,} pairs of keys and files"
        return f"{candidates.text}; {blooms_left}, {files_read:,} of {len(files):,} files were read"

    def _search_file(
        self,
        entry: ManifestEntry,
        bucket: SearchedBucket,
        some: Longs,
        newest: Longs,
        context: BucketContext,
        blooms: RecordKeys | None,
        way: SearchWay,
        number: int | None,
    ) -> tuple[int, int]:
        """Search one file; return for how many keys it was read, and how many of them it decided.

        `number`: a sequence number that stands for all of its rows'; None: each has its own.
        """
        keys = None if way.kept is None else way.kept.get(entry.file.file_name)
        if keys is None:
            with open_keys(entry, context, number) as reader:
                if blooms is not None:
                    bloom = read_key_footer(reader.footer_members, file_name=reader.path).bloom
                    some = some if bloom is None else bloom.remaining(blooms, some)
                if not len(some):
                    return 0, 0
                keys = read_keys(reader, self.schema, number)
            if way.kept is not None:
                way.kept[entry.file.file_name] = keys
        asked, last = len(some), locate_keys(keys.search, bucket.batch.search, some).last
        some, last = some[last >= 0], last[last >= 0]
        if way.deleted is not None and len(last):
            kept = ~way.deleted(entry, last)
            some, last = some[kept], last[kept]
        newer = keys.sequence[last] > newest[some]
        some, last = some[newer], last[newer]
        newest[some] = keys.sequence[last]
        rows = bucket.rows[some]
        self.found(rows, _place_of(entry), last)
        self.sequence[rows] = newest[some]
        if keys.kind is not None:
            self.is_there[rows] = ~retracts(keys.kind[last])
        return asked, len(some)

    def found(self, rows: Longs, place: FilePlace, positions: Longs) -> None:
        """Note that keys, by number, have their records in a file."""
        if not len(rows):
            return
        self.is_there[rows] = True
        self.position[rows] = positions
        self.place[rows] = len(self.places)
        self.places.append(place)

    def _buckets(
        self, files: pa.Table, way: SearchWay, *, everywhere: bool
    ) -> Iterator[SearchedBucket]:
        """Yield each bucket's files with the keys that it may hold; a key's own partition first."""
        buckets = by_bucket(files)
        for own in (True, False) if everywhere else (True,):
            for partition, number, which in buckets:
                if not (own or way.elsewhere is None or (partition, number) in way.elsewhere):
                    continue
                rows = np.flatnonzero(self.may_be_in(partition, own=own) & ~self.is_there)
                if not len(rows):
                    continue
                there = BucketFiles(partition, number, files_at(files, which))
                total = there.total_buckets
                if self.schema.bucket_count > 0 and total > 0:
                    rows = rows[bucket_of(self._hashes[rows], total) == number]
                if len(rows):
                    batch, places = self._batch(rows)
                    yield SearchedBucket(files=there, batch=batch, rows=rows[places])

    def _batch(self, rows: Longs) -> tuple[KeyBatch, Longs]:
        fields = self.schema.select(self.schema.trimmed_primary_keys)
        columns = [self.keys.column(field.name).take(pa.array(rows)) for field in fields]
        return KeyBatch.from_columns(columns, [field.type for field in fields])

    def may_be_in(self, partition: bytes, *, own: bool) -> Bools:
        """Return which keys are of a partition, or, not being `own`, may be in it all the same."""
        mine = [number for number, one in enumerate(self.partitions) if one == partition]
        if own:
            return np.isin(self.partition_of, mine)
        shared = self._shared(partition)
        others = [
            number
            for number, one in enumerate(self.partitions)
            if one != partition and self._shared(one) == shared
        ]
        return np.isin(self.partition_of, others)

    def _shared(self, partition: bytes) -> tuple[object, ...]:
        """Return those values of a partition that belong to the key, in tables where some do not.

        Where all partition columns are in the primary key, a record key is what is left of it.
        """
        schema = self.schema
        inside = [name in schema.primary_keys for name in schema.partition_keys]
        if all(inside):
            return ()
        types = [field.type for field in schema.select(schema.partition_keys)]
        values = decode_row(partition, types)
        return tuple(value for value, is_in in zip(values, inside, strict=True) if is_in)


def _expect(entry: ManifestEntry, context: BucketContext) -> None:
    """Have a small file fetched while the one before it is searched; a filter is most of it."""
    if entry.file.file_size <= _EXPECTED_BYTES_MAX:
        path = context.data_file(entry.partition, entry.bucket, entry.file.file_name)
        context.file_io.prefetch(path)


def _place_of(entry: ManifestEntry) -> FilePlace:
    return FilePlace(partition=entry.partition, bucket=entry.bucket, file_name=entry.file.file_name)


def open_keys(
    entry: ManifestEntry, context: BucketContext, number: int | None = None
) -> DataFileReader:
    """Open a data file for its keys, sequence numbers and, if it holds deletes, row kinds alone.

    `number`: the sequence number that stands for those of all rows, which are not read then.
    """
    schema = context.schema
    numbers = (SEQUENCE_NUMBER,) if number is None else ()
    kinds = (VALUE_KIND,) if entry.file.may_hold_deletes else ()
    return context.open_file(
        entry.partition,
        entry.bucket,
        entry.file,
        (*schema.trimmed_primary_keys, *numbers, *kinds),
        verify_checksums=schema.options[core_options.PAGE_CHECKSUM],
    )


def read_keys(reader: DataFileReader, schema: TableSchema, number: int | None = None) -> FileKeys:
    """Read the keys of an open data file; `number` as of `open_keys`."""
    rows = reader.read()
    kind = None
    if VALUE_KIND in rows.schema.names:
        kind = fixed_values(one_array(rows.column(VALUE_KIND)), np.int8)
    if number is None:
        sequence = fixed_values(one_array(rows.column(SEQUENCE_NUMBER)), np.int64)
    else:
        sequence = np.broadcast_to(np.int64(number), rows.num_rows)
    return FileKeys(
        search=SearchKeys.from_sort_keys(
            sort_keys([rows.column(n) for n in schema.trimmed_primary_keys])
        ),
        sequence=sequence,
        kind=kind,
    )


def _record_keys(schema: TableSchema, batch: KeyBatch) -> RecordKeys:
    return RecordKeys(*key_pieces(record_keys(schema.trimmed_primary_keys, batch.columns)))

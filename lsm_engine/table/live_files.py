"""The files of a snapshot: manifests read as columns, pruned, folded, and only then made objects."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import CommitConflictError
from lsm_engine.base.record import record
from lsm_engine.filter.stats import CoveredColumn, StoredStats, covered_columns
from lsm_engine.format.data_file import EMPTY_STATS, DataFileMeta
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta, by_bucket
from lsm_engine.format.manifest_file import entries_of
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.metadata.manifests import ManifestStore
from lsm_engine.options.modes import EntryKind
from lsm_engine.planning.scan import Split
from lsm_engine.types.table_schema import TableSchema, has_unread_columns

Mask = npt.NDArray[np.bool_]
KeepRows = Callable[[pa.Table], Mask]

KIND = "_KIND"
PARTITION = "_PARTITION"
BUCKET = "_BUCKET"
TOTAL_BUCKETS = "_TOTAL_BUCKETS"
FILE_NAME = "_FILE._FILE_NAME"
EXTERNAL_PATH = "_FILE._EXTERNAL_PATH"
FILE_SIZE = "_FILE._FILE_SIZE"
ROW_COUNT = "_FILE._ROW_COUNT"
MIN_KEY = "_FILE._MIN_KEY"
MAX_KEY = "_FILE._MAX_KEY"
LEVEL = "_FILE._LEVEL"
DELETE_ROW_COUNT = "_FILE._DELETE_ROW_COUNT"
SCHEMA_ID = "_FILE._SCHEMA_ID"
MIN_SEQUENCE_NUMBER = "_FILE._MIN_SEQUENCE_NUMBER"
MAX_SEQUENCE_NUMBER = "_FILE._MAX_SEQUENCE_NUMBER"
CREATION_TIME = "_FILE._CREATION_TIME"
IDENTITY_COLUMNS = (PARTITION, BUCKET, LEVEL, FILE_NAME)
"""The columns that the ADD and the DELETE of one file have in common."""
_JOINED_ROWS = 1 << 16
_LARGE_ROWS = 1 << 12
_HALF, _LOW_BITS = 1 << 31, (1 << 32) - 1


@record
class BucketFilter:
    """Buckets whose entries are read, asked once per distinct (partition, bucket)."""

    holds: Callable[[bytes, int], bool]

    def mask(self, entries: pa.Table) -> Mask:
        """Return which entries are in those buckets."""
        pairs, of_row = bucket_pairs(entries)
        masks = np.array([self.holds(*pair) for pair in pairs], dtype=np.bool_)
        return masks[of_row]


def bucket_pairs(entries: pa.Table) -> tuple[list[tuple[bytes, int]], npt.NDArray[np.int64]]:
    """Return the distinct (partition, bucket) pairs of entries, and which one each entry has."""
    partitions = entries.column(PARTITION)
    if not pa.types.is_dictionary(partitions.type):
        partitions = pc.dictionary_encode(partitions)
    partitions = partitions.unify_dictionaries().combine_chunks()
    # Buckets have 32 bits and a sign: this way a pair is one number, which sorts as the pair does.
    both = partitions.indices.to_numpy().astype(np.int64)
    both <<= 32
    both += entries.column(BUCKET).to_numpy()
    both += _HALF
    texts = partitions.dictionary.to_pylist()
    numbers = pc.dictionary_encode(pa.array(both))
    del both, partitions  # a million entries take 8 MB for each such array
    distinct = numbers.dictionary.to_numpy()
    order = np.argsort(distinct)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    sorted_pairs = distinct[order].tolist()
    pairs = [(texts[pair >> 32], (pair & _LOW_BITS) - _HALF) for pair in sorted_pairs]
    return pairs, rank[numbers.indices.to_numpy()]


def live_rows(
    manifests: ManifestStore,
    metas: Iterable[ManifestFileMeta],
    keep: KeepRows | None = None,
    columns: Collection[str] | None = None,
    *,
    shape: Callable[[pa.Table], pa.Table] | None = None,
) -> pa.Table | None:
    """Return the entries of live files as columns; None if there are none.

    `keep` chooses among entries; it must decide alike for the ADD and the DELETE of one file.
    `columns`: only these are decoded and returned. `shape`: what is returned of the entries of some manifests; all
    rows, and the columns that identify a file, have to stay.
    """
    tables = []
    for table in joined(
        manifests.read(meta, columns) for meta in manifests.ahead(metas, columns=columns)
    ):
        # Filtered before the join, so that only entries of the wanted buckets are held.
        selected = table if keep is None else table.filter(pa.array(keep(table)))
        if selected.num_rows:
            tables.append(selected if shape is None else shape(selected))
    if not tables:
        return None
    return _folded(pa.concat_tables(tables, promote_options="permissive" if shape else "none"))


def joined(tables: Iterable[pa.Table], row_count: int = _JOINED_ROWS) -> Iterator[pa.Table]:
    """Yield tables of many small ones: looking at one costs as much as at a thousand rows.

    `row_count`: rows from which on one is yielded; one that comes last may go beyond.
    """
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        if not waiting and table.num_rows >= _LARGE_ROWS:
            yield table
            continue
        if table.num_rows:
            waiting.append(table)
            rows += table.num_rows
        if rows >= row_count:
            yield _as_one(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _as_one(waiting)


def _as_one(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()


def live_entries(
    manifests: ManifestStore,
    metas: Iterable[ManifestFileMeta],
    holds: Callable[[bytes, int], bool] | None = None,
    columns: Collection[str] | None = None,
) -> list[ManifestEntry]:
    """Return live files as objects, those of some buckets or all; of `columns` alone, if there are any."""
    keep = None if holds is None else BucketFilter(holds=holds).mask
    rows = live_rows(manifests, metas, keep, columns)
    return [] if rows is None else entries_of(rows)


def standing(entries: pa.Table) -> Mask:
    """Return which of some ADD and DELETE entries, oldest first, are left once they are folded.

    Of an ADD and a later DELETE of the same file neither is; a DELETE whose ADD is not among `entries` is left, as
    it belongs to a file of an older manifest. Raises CommitConflictError where a live file is added twice.
    """
    stands = np.ones(entries.num_rows, np.bool_)
    counted = pc.value_counts(entries.column(FILE_NAME).combine_chunks())
    often = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    if not len(often):
        return stands
    is_repeated = pc.is_in(entries.column(FILE_NAME), value_set=often).to_numpy(
        zero_copy_only=False
    )
    rows = np.flatnonzero(is_repeated)
    suspects = entries.take(pa.array(rows))
    kinds = suspects.column(KIND).to_numpy()
    pending: dict[tuple[bytes, int, int, str], int] = {}
    for number, identity in enumerate(_identities(suspects)):
        before = pending.pop(identity, None)
        if before is not None:
            stands[rows[before]] = False
        was_added = before is not None and kinds[before] == EntryKind.ADD
        if kinds[number] == EntryKind.ADD:
            if was_added:
                raise CommitConflictError(
                    "a file is added twice; reload the table and try again", file=identity[3]
                )
        elif was_added:
            stands[rows[number]] = False
            continue
        pending[identity] = number
    return stands


def _folded(entries: pa.Table) -> pa.Table:
    """Return the ADD entries that no DELETE takes away.

    Only files whose name some DELETE names are looked at one by one: an identity is never added
    again once it was deleted (format section 5), so the order of entries does not matter.
    """
    deletes = deletes_of(entries)
    return entries if deletes is None else entries.filter(pa.array(live_mask(entries, deletes)))


def deletes_of(entries: pa.Table) -> pa.Table | None:
    """Return the DELETE entries, of IDENTITY_COLUMNS alone; None if there are none."""
    is_delete = entries.column(KIND).to_numpy() == EntryKind.DELETE
    return entries.select(IDENTITY_COLUMNS).filter(pa.array(is_delete)) if is_delete.any() else None


def live_mask(entries: pa.Table, deletes: pa.Table | None) -> Mask:
    """Return which entries are an ADD that none of `deletes` takes away."""
    live: Mask = entries.column(KIND).to_numpy() == EntryKind.ADD
    if deletes is None:
        return live
    # File names come first, as arrays: comparing whole identities is slow, and few are deleted.
    names = entries.column(FILE_NAME)
    is_named = pc.is_in(names, value_set=pc.unique(deletes.column(FILE_NAME)))
    suspects = np.flatnonzero(is_named.to_numpy(zero_copy_only=False) & live)
    if not len(suspects):
        return live
    suspected = entries.take(pa.array(suspects))
    may_delete = pc.is_in(
        deletes.column(FILE_NAME), value_set=pc.unique(suspected.column(FILE_NAME))
    )
    identities = set(_identities(deletes.filter(may_delete)))
    for position, identity in zip(suspects.tolist(), _identities(suspected), strict=True):
        live[position] = identity not in identities
    return live


def _identities(entries: pa.Table) -> list[tuple[bytes, int, int, str]]:
    return list(
        zip(
            *(entries.column(name).to_pylist() for name in IDENTITY_COLUMNS),
            strict=True,
        )
    )


# -- Splits of very many files, made for some buckets at a time when they are asked for ------------
#
# A million files as objects take gigabytes; as columns they take some hundred megabytes.

MANY_FILES = 5_000
"""Files from which on splits are made when asked for, where no filter has looked at each file."""

_ROWS_AT_FIRST, _ROWS_TOGETHER = 64, 1_000
PlanBucket = Callable[[list[ManifestEntry]], tuple[Split, ...]]


class ManySplits(Sequence[Split]):
    """The splits of live files given as columns, in order of partition and bucket.

    Going through them costs memory for some buckets at a time. Their number is only known once all
    have been made; asking for it makes them, and forgets them again.
    """

    def __init__(
        self, rows: pa.Table, plan_bucket: PlanBucket, *, counts_levels: bool = False
    ) -> None:
        """`counts_levels`: a bucket in one level below 0 has the rows that its files have, less none."""
        self._rows = rows
        self._counts_levels = counts_levels
        self._plan_bucket = plan_bucket
        pairs, of_row = bucket_pairs(rows)
        rank = np.empty(len(pairs), np.int64)
        rank[sorted(range(len(pairs)), key=pairs.__getitem__)] = np.arange(len(pairs))
        ranks = rank[of_row].astype(np.int32)
        del of_row
        self._order = np.argsort(ranks, kind="stable").astype(np.int32)
        self._starts = np.searchsorted(ranks[self._order], np.arange(len(pairs) + 1))

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    def __iter__(self) -> Iterator[Split]:
        for entries in self._entries(self._buckets):
            yield from self._plan_bucket(entries)

    def __len__(self) -> int:
        return self._ends[-1]

    def counted_levels(self) -> tuple[int, Iterable[Split]]:
        """Return how many rows the buckets have that need no look at their files, and the splits of the others."""
        rows = self._rows
        if not self._counts_levels or DELETE_ROW_COUNT not in rows.column_names:
            return 0, self
        deletes = pc.fill_null(rows.column(DELETE_ROW_COUNT), 1).to_numpy()[self._order]
        levels = rows.column(LEVEL).to_numpy()[self._order]
        starts = self._starts[:-1]
        least, most = (extreme.reduceat(levels, starts) for extreme in (np.minimum, np.maximum))
        is_plain = (least == most) & (least > 0) & (np.maximum.reduceat(deletes, starts) == 0)
        counts = rows.column(ROW_COUNT).to_numpy()[self._order].astype(np.int64)
        count = int(np.add.reduceat(counts, starts)[is_plain].sum())
        uncounted = self._entries(self._buckets[~is_plain])
        return count, chain.from_iterable(map(self._plan_bucket, uncounted))

    @overload
    def __getitem__(self, index: int) -> Split: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Split, ...]: ...
    def __getitem__(self, index: int | slice) -> Split | tuple[Split, ...]:
        if isinstance(index, slice):
            begin, end = index.start or 0, index.stop
            if begin >= 0 and (end is None or end >= 0) and (index.step or 1) > 0:
                return tuple(islice(self, begin, end, index.step))  # each bucket is planned once
            return tuple(self)[index]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        bucket = int(np.searchsorted(self._ends, position, side="right")) - 1
        return self._splits_of(bucket)[position - self._ends[bucket]]

    @cached_property
    def _ends(self) -> list[int]:
        """How many splits there are before each bucket, and in all."""
        counts: list[int] = []
        for entries in self._entries(self._buckets):
            split_counts = Counter(
                (split.partition, split.bucket) for split in self._plan_bucket(entries)
            )
            counts += [split_counts[place] for place in sorted(by_bucket(entries))]
        return list(accumulate(counts, initial=0))

    def _splits_of(self, bucket: int) -> tuple[Split, ...]:
        (entries,) = self._entries(self._buckets[bucket : bucket + 1])
        return self._plan_bucket(entries)

    @property
    def _buckets(self) -> Longs:
        return np.arange(len(self._starts) - 1)

    def _entries(self, buckets: Longs) -> Iterator[list[ManifestEntry]]:
        """Yield the files of some buckets: a column takes as long for a row as for many, so those of several come together.

        Of few at first, as a limit may end with them.
        """
        ends = np.cumsum(self._starts[buckets + 1] - self._starts[buckets])
        first, room = 0, _ROWS_AT_FIRST
        while first < len(buckets):
            done = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, done + room, side="right")))
            places = np.concatenate(
                [
                    self._order[self._starts[number] : self._starts[number + 1]]
                    for number in buckets[first:last]
                ]
            )
            # Files of a bucket mostly stand together: then nothing is copied.
            if (np.diff(places) == 1).all():
                rows = self._rows.slice(int(places[0]), len(places))
            else:
                rows = self._rows.take(pa.array(places))
            yield entries_of(rows)
            # The longer the reader goes on, the more entries pay at once.
            first, room = last, min(2 * room, _ROWS_TOGETHER)


def counted(splits: Sequence[Split]) -> tuple[int, list[Split]]:
    """Return how many rows metadata has of splits that are read without a filter, and those that are to be read."""
    rows, uncounted = splits.counted_levels() if isinstance(splits, ManySplits) else (0, splits)
    to_read = []
    for split in uncounted:
        if split.raw and split.is_counted:
            rows += split.row_count
        else:
            to_read.append(split)
    return rows, to_read


# -- Value statistics of data files ----------------------------------------------------------------

_NONE: frozenset[int] = frozenset()
_Names = tuple[str, ...] | None
_Layout = tuple[int, _Names, _Names, frozenset[int]]


@record
class StatsLayout:
    """Files of one schema and columns that list the same covered ones, and their statistics, in this order."""

    files: tuple[DataFileMeta, ...]
    stats: StoredStats
    covered: tuple[CoveredColumn, ...]


def stats_layouts(
    files: Iterable[DataFileMeta],
    schema: TableSchema,
    written_with: Callable[[int], TableSchema],
    replaced: Mapping[str, frozenset[int]] | None = None,
) -> Iterator[StatsLayout]:
    """Yield the files by layout, for a reader of `schema`; `written_with` is asked once a layout.

    `replaced`: by file name, ids of columns of which a newer file has the values.
    """
    layouts: dict[_Layout, list[DataFileMeta]] = {}
    for file in files:
        hidden = _NONE if replaced is None else replaced.get(file.file_name, _NONE)
        layout = (file.schema_id, file.value_stats_columns, file.write_columns, hidden)
        layouts.setdefault(layout, []).append(file)
    for (schema_id, listed, written, hidden), members in layouts.items():
        file_schema = written_with(schema_id)
        stored = file_schema.written_fields(written)
        # The rows of statistics have values for columns of types that are not read, too.
        is_known = not has_unread_columns(file_schema, written if listed is None else listed)
        values = [file.value_stats if is_known else EMPTY_STATS for file in members]
        yield StatsLayout(
            files=tuple(members),
            stats=StoredStats.from_stats(values, [file.row_count for file in members]),
            covered=covered_columns(stored, schema.fields, listed=listed, hidden=hidden)
            if is_known
            else (),
        )

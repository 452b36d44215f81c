"""Reader of data files: record batches, projected and cast to the read schema, group by group."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import LRUCache

from lsm_engine.base.errors import (
    CorruptFileError,
    ErrorKind,
    LsmError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.data_files.formats import StoredFile, format_of, open_stored
from lsm_engine.data_files.parquet import ColumnBounds, ParquetFile
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.deletion_vector import DeletionVector
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.selection import RowsLeft, take
from lsm_engine.options import core_options
from lsm_engine.options.modes import FileSource
from lsm_engine.storage.checksum import ExpectedChecksums, parquet_footer
from lsm_engine.storage.file_io import FileIO, to_storage_error
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.casts import lost_count
from lsm_engine.types.declared_lengths import holds_char, padded_values, upper_bounds
from lsm_engine.types.mapping import ColumnMapping, apply_mapping, conform, map_fields, nulls
from lsm_engine.types.table_schema import (
    ROW_ID,
    SEQUENCE_NUMBER,
    VALUE_KIND,
    SameSchema,
    TableSchema,
)
from lsm_engine.types.types import type_text

# -- Cache of footers of data files on remote stores -----------------------------------------------
#
# It needs no invalidation: data files never change.

KEPT_BYTES = 64 << 20
_TIMES_STORED = 8
"""The memory of a decoded footer, in multiples of its stored bytes."""


def _size_of(footer: "pq.FileMetaData") -> int:
    return _TIMES_STORED * int(footer.serialized_size)


_cached: "LRUCache[tuple[FileIO, str, int | None], pq.FileMetaData]" = LRUCache(
    KEPT_BYTES, getsizeof=_size_of
)
_lock = threading.Lock()


def kept_footer(
    file_io: FileIO, source: Any, expected: int | None, *, file_name: str
) -> "pq.FileMetaData":
    """Return a footer as `parquet_footer` does. Footers of remote stores are cached, up to 64 MB in all."""
    # The operating system caches local files, so a second cache would not pay.
    if not file_io.facts.is_remote:
        return parquet_footer(source, expected, file_name=file_name)
    key = (file_io, file_name, expected)
    # The lock covers the cache only: footers of several files are read at the same time.
    with _lock:
        footer = _cached.get(key)
    if footer is None:
        footer = parquet_footer(source, expected, file_name=file_name)
        with _lock, suppress(ValueError):  # larger than the whole cache
            _cached[key] = footer
    return footer


# -- Maps that a format stores as lists of entries, made maps again (Avro --------------------------
#
# Those of other keys than text).


def maps_of_lists(values: Any, target: pa.DataType) -> Any:
    """Return a column with lists of (key, value) as maps where `target` has maps; no copy.

    An array or a chunked array; what goes in comes out. Types beside the maps stay as they are.
    """
    kind = _with_maps(values.type, target)
    # A column without maps stays as it is, without a copy.
    if kind == values.type:
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(kind) for chunk in values.chunks], type=kind)
    return values.view(kind)


def _with_maps(stored: pa.DataType, target: pa.DataType) -> pa.DataType:
    if pa.types.is_list(stored) and pa.types.is_map(target):
        entries = stored.value_type
        # A view of another structure would give wrong keys without an error.
        if not pa.types.is_struct(entries) or entries.num_fields != 2:
            raise ValueError("a map is stored as a list of other things than pairs")
        return pa.map_(
            _with_maps(entries.field(0).type, target.key_type),
            _with_maps(entries.field(1).type, target.item_type),
        )
    if pa.types.is_map(stored) and pa.types.is_map(target):
        return pa.map_(stored.key_type, _with_maps(stored.item_type, target.item_type))
    if pa.types.is_list(stored) and pa.types.is_list(target):
        return pa.list_(_with_maps(stored.value_type, target.value_type))
    if pa.types.is_struct(stored) and pa.types.is_struct(target):
        inner = {field.name: field.type for field in target}
        return pa.struct(
            [
                field.with_type(_with_maps(field.type, inner.get(field.name, field.type)))
                for field in stored
            ]
        )
    return stored


# -- One column of a read --------------------------------------------------------------------------
#
# Where a file stores it, how it is read, and what rows have that store nothing.

SYSTEM = {SEQUENCE_NUMBER: pa.int64(), VALUE_KIND: pa.int8(), ROW_ID: pa.int64()}


class ReadColumn:
    """One column to read. `source` None: it is nowhere stored.

    `constant` is what rows have that store none; with `counted` their number in the file is added. `pads`: CHAR(n)
    is read with blanks up to n.
    """

    def __init__(
        self,
        name: str,
        source: str | None,
        mapping: ColumnMapping | None,
        *,
        constant: int | None = None,
        counted: bool = False,
        pads: bool = False,
    ) -> None:
        self.name = name
        self.pads = pads
        self.type = SYSTEM[name] if mapping is None else arrow_type(mapping.target.type)
        self.source = source
        self.mapping = mapping
        self.constant = constant
        self.counted = counted
        nullable = mapping is not None and mapping.target.type.nullable
        self.field = pa.field(name, self.type, nullable)
        self.orders_alike = constant is None and (mapping is None or mapping.orders_alike)
        self.reads_as_is = mapping is None or mapping.is_identity

    @classmethod
    def tracking(
        cls, name: str, path: str, meta: DataFileMeta, stored_names: frozenset[str]
    ) -> Self:
        """Return `_ROW_ID` or `_SEQUENCE_NUMBER` of a table that tracks rows.

        A file that rows were moved to stores them; a null there, and every row of other files, has
        what the manifest records. Raises CorruptFileError for a file whose rows have no ids.
        """
        source = name if name in stored_names else None
        # Every row of a file that stores no number has the number of its commit.
        if name == SEQUENCE_NUMBER:
            return cls(name, source, None, constant=meta.max_sequence_number)
        # Made-up ids would be given to other rows later.
        if source is None and meta.first_row_id is None:
            raise CorruptFileError(
                "the table tracks rows, but neither this file nor its manifest entry has row ids; "
                "restore it from a client that wrote them",
                file=path,
            )
        return cls(name, source, None, constant=meta.first_row_id, counted=True)

    def unstored(self, count: int, positions: pa.ChunkedArray | None) -> pa.Array:
        """Return what rows have of a column that is nowhere stored: one value, or none.

        `positions`: their numbers in the file, where the column is `counted`.
        """
        # The column was added after this file was written.
        if self.constant is None:
            return nulls(count, self.type)
        if self.counted:
            return pc.add(positions, pa.scalar(self.constant, self.type))
        return pa.repeat(pa.scalar(self.constant, self.type), count)

    def upper(self, bounds: pa.Array) -> pa.Array:
        """Return upper bounds of what is read, given those of what is stored; lower ones are bounds of both."""
        kind = None if self.mapping is None else self.mapping.target.type
        return upper_bounds(kind, bounds) if self.pads and kind is not None else bounds

    def filled(self, values: pa.ChunkedArray, positions: pa.ChunkedArray | None) -> pa.ChunkedArray:
        """Return stored values with the blanks of CHAR(n), or with nulls replaced by what the manifest records."""
        if self.pads and self.mapping is not None:
            return padded_values(self.mapping.target.type, values)
        # Stored values that are all present need no replacement.
        if self.constant is None or not values.null_count:
            return values
        return pc.coalesce(values, self.unstored(len(values), positions))


@lru_cache(maxsize=64)
def plain_columns(
    names: tuple[str, ...],
    file_schema: SameSchema,
    read_schema: SameSchema,
    write_columns: tuple[str, ...] | None,
) -> dict[str, ReadColumn]:
    """Return how columns are read from any file of a layout: all but those that its manifest entry fills.

    System columns are stored under their name. Worked out once for all files of a scan.
    """
    own = [name for name in names if name not in SYSTEM]
    stored = file_schema.schema.written_fields(write_columns)
    mappings = map_fields(stored, read_schema.schema.select(own))
    by_name = {mapping.target.name: mapping for mapping in mappings}
    columns = {}
    for name in names:
        mapping = by_name.get(name)
        source = name if mapping is None else mapping.source.name if mapping.source else None
        pads = (
            mapping is not None
            and holds_char(mapping.target.type)
            and name not in read_schema.schema.unpadded_keys
        )
        columns[name] = ReadColumn(name, source, mapping, pads=pads)
    return columns


def number_of_all(
    path: str, meta: DataFileMeta, names: tuple[str, ...], read_schema: TableSchema
) -> int | None:
    """Return the sequence number of every row, where the commit gave it; None: rows have their own.

    That is so for new rows of tables with `sequence.snapshot-ordering` (planning/row_ids).
    """
    # Only tables that order by snapshot ignore the numbers in their files.
    if not read_schema.orders_by_snapshot or SEQUENCE_NUMBER not in names:
        return None
    if meta.file_source is None:
        raise UnsupportedError(
            "a file does not record whether a writer or a compaction made it, so its rows have no "
            "place in the order of snapshots; copy the rows to a new table",
            option=core_options.SEQUENCE_SNAPSHOT_ORDERING.key,
            file=path,
        )
    # A compaction keeps rows of several commits, and each has its own number.
    return meta.min_sequence_number if meta.file_source is FileSource.APPEND else None


# -- Reader of data files --------------------------------------------------------------------------

POSITION = "_POSITION"
"""Name of the optional column with each row's number in its file, from 0."""
_SPARSE_SHARE = 1 / 8
"""The share of a row group's rows up to which they are read by their positions."""
_UNREADABLE = (
    pa.ArrowException, MemoryError, OSError, ValueError, KeyError, IndexError, NotImplementedError,
)  # fmt: skip


@record
class ReadColumns:
    """The columns to read of a file: its schema, the read schema, and the names.

    `names` are of the read schema, and `_SEQUENCE_NUMBER`, `_VALUE_KIND`, or where rows are tracked
    `_ROW_ID`, `_SEQUENCE_NUMBER`; None: all there are, in the order of `key_value_arrow` (of `arrow`,
    without a primary key). `number` stands for the sequence number of each row, which is not read then.
    """

    file_schema: TableSchema
    read_schema: TableSchema
    names: tuple[str, ...] | None = None
    with_positions: bool = False
    number: int | None = None

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names to read, in order."""
        # The caller chose the columns, system columns among them if it needs them.
        if self.names is not None:
            return self.names
        system = (SEQUENCE_NUMBER, VALUE_KIND) if self.read_schema.has_primary_key else ()
        return (*self.read_schema.names, *system)


def open_data_file(
    file_io: FileIO,
    path: str,
    meta: DataFileMeta,
    columns: ReadColumns,
    *,
    verify_checksums: bool = True,
    keeps_footer: bool = True,
) -> "DataFileReader":
    """Open one data or changelog file; the caller closes it.

    `keeps_footer`: the footer of a remote file may come from the cache; checks read it again.
    Raises NotFoundError if the file is missing, CorruptFileError, naming it, if it does not match
    its manifest entry, and UnsupportedError for extensions other than parquet, orc and avro.
    """
    # The check comes first: a file of another format need not be opened.
    format_of(path)
    source = file_io.open_input(path, size=meta.file_size)
    try:
        with _Reading(path):
            expected = ExpectedChecksums()
            if verify_checksums:
                expected = ExpectedChecksums(whole=meta.checksum, footer=meta.footer_checksum)
            stored = open_stored(
                source,
                path,
                expected,
                verify_pages=verify_checksums,
                footer_of=partial(kept_footer, file_io) if keeps_footer else parquet_footer,
            )
        return DataFileReader(path, source, stored, meta, columns)
    except LsmError:
        # The caller gets no reader that it could close.
        source.close()
        raise


class DataFileReader:
    """One open data file. Rows come out as `schema`, in the order of the file.

    Every read decodes on the calling thread; buckets run in parallel.
    """

    def __init__(
        self,
        path: str,
        source: Any,
        stored: StoredFile,
        meta: DataFileMeta,
        columns: ReadColumns,
    ) -> None:
        self.path = path
        self._source = source
        self._stored = stored
        self._with_positions = columns.with_positions
        self._may_lose = columns.read_schema.options[core_options.ALTER_COLUMN_LOSSY_CASTS]
        self._deleted: DeletionVector | None = None
        self._meta = meta
        self._tracked = columns.read_schema.tracking_names
        names, read_schema = columns.column_names, columns.read_schema
        number = columns.number
        self._number = number_of_all(path, meta, names, read_schema) if number is None else number
        self.row_group_rows = stored.group_rows
        self.row_count = sum(stored.group_rows)
        if self.row_count != meta.row_count:
            raise CorruptFileError(
                "the file does not hold the rows its manifest entry counts; restore it",
                file=path,
                rows=self.row_count,
                expected=meta.row_count,
            )
        with _Reading(path):
            self._stored_names = _distinct(stored.schema.names)
        same = SameSchema(columns.file_schema), SameSchema(read_schema)
        layout_columns = plain_columns(names, *same, meta.write_columns)
        self._columns = [self._column(column) for column in layout_columns.values()]
        fields = [item.field for item in self._columns]
        if self._with_positions:
            fields.append(pa.field(POSITION, pa.int64(), nullable=False))
        self.schema = pa.schema(fields)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was read stays valid."""
        self._source.close()

    @property
    def footer_members(self) -> Mapping[bytes, bytes]:
        """Texts that the writer put into the footer; formats other than Parquet have none."""
        return self._stored.members if isinstance(self._stored, ParquetFile) else {}

    @property
    def row_group_count(self) -> int:
        """How many row groups the file has."""
        return len(self.row_group_rows)

    def groups_from(self, rows: range) -> list[int]:
        """Return the row groups whose first row is one of these, in order."""
        firsts = accumulate(self.row_group_rows[:-1], initial=0)
        return [group for group, first in enumerate(firsts) if first in rows]

    def bounds(self, name: str) -> ColumnBounds | None:
        """Return the bounds of a flat column per row group; None if nothing is known.

        Bounds are of the type read as. As rows are sorted by key, the bounds of all key columns
        side by side bound the keys of a row group, though not tightly beyond the first.
        """
        column = next((candidate for candidate in self._columns if candidate.name == name), None)
        # Bounds that a cast reorders would skip row groups with matches.
        if column is None or column.source is None or not column.orders_alike:
            return None
        with _Reading(self.path):
            stored = self._stored.bounds(column.source)
        if stored is None:
            return None
        return ColumnBounds(
            lower=self._read_as(column, stored.lower),
            upper=column.upper(self._read_as(column, stored.upper)),
            null_counts=stored.null_counts,
            is_known=stored.is_known,
        )

    def without(self, deleted: DeletionVector) -> Self:
        """Leave rows out of all later reads, by their position in the file.

        Raises CorruptFileError for positions that the file does not have.
        """
        if len(deleted) and int(deleted.positions[-1]) >= self.row_count:
            raise CorruptFileError(
                "a deletion vector names rows that the data file does not have; run verify",
                file=self.path,
                rows=self.row_count,
                position=int(deleted.positions[-1]),
            )
        if len(deleted):
            self._deleted = deleted
            with _Reading(self.path):
                self._stored.keep_dictionaries()
        return self

    def read(self, row_groups: Iterable[int] | None = None) -> pa.Table:
        """Return whole row groups (None: all of them) as one table, chunked as they were read."""
        tables = [self._read_row_group(group) for group in self._expected(row_groups)]
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def batches(
        self, row_groups: Iterable[int] | None = None, *, max_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield row groups one after another; only one is in memory at a time, and of a large one a piece.

        Another row group comes as one batch, unless `max_rows` cuts it.
        """
        for group in self._expected(row_groups):
            for piece in self._pieces(group):
                yield from piece.to_batches(max_chunksize=max_rows)

    def _expected(self, row_groups: Iterable[int] | None) -> Sequence[int]:
        groups = range(self.row_group_count) if row_groups is None else tuple(row_groups)
        if isinstance(self._stored, ParquetFile):
            self._stored.expect_groups(groups)
        return groups

    def matching(
        self,
        row_groups: Iterable[int],
        positions_of: Callable[[pa.Table], Longs],
        names: Collection[str],
        candidates: Longs | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of row groups that a filter of the columns `names` keeps, group by group.

        `positions_of`: the filter, given those columns. Of the others only pages with such rows are decompressed.
        `candidates`: the positions in the file of the rows that may match; of others nothing is read.
        """
        assert not self._with_positions, "positions are for those who read every row"
        filter_columns = [
            column for column in self._columns if column.name in names
        ] or self._columns[:1]
        other_columns = [column for column in self._columns if column not in filter_columns]
        for group in row_groups:
            positions = None if candidates is None else self._among_remaining(group, candidates)
            if positions is not None and not len(positions):
                continue
            rows = self._read_row_group(group, filter_columns, positions)
            hits = positions_of(rows)
            if not len(hits):
                continue
            matches = take(rows, hits)
            # Where all rows match, whole pages are read faster than chosen rows.
            chosen = None if len(hits) == rows.num_rows else hits
            if positions is not None:
                chosen = positions[hits]
            other_values = self._read_row_group(group, other_columns, chosen)
            both = dict(zip(matches.column_names, matches.columns, strict=True))
            both |= zip(other_values.column_names, other_values.columns, strict=True)
            columns = [both[name] for name in self.schema.names]
            yield from pa.Table.from_arrays(columns, schema=self.schema).to_batches()

    def groups_with(self, rows: Longs, groups: Iterable[int]) -> list[int]:
        """Return which of some row groups hold one of some rows, given by ascending positions in the file."""
        ends = np.searchsorted(rows, list(accumulate(self.row_group_rows, initial=0)))
        return [group for group in groups if ends[group] < ends[group + 1]]

    def _among_remaining(self, group: int, candidates: Longs) -> Longs | None:
        """Return candidates as positions among the rows of a group that are not deleted.

        None if they are so many that all rows are read faster.
        """
        first = sum(self.row_group_rows[:group])
        end = first + self.row_group_rows[group]
        low, high = np.searchsorted(candidates, (first, end))
        if high - low > self.row_group_rows[group] * _SPARSE_SHARE:
            return None
        rows = candidates[low:high] - first
        if self._deleted is None:
            return rows
        dropped = self._deleted.between(first, end)
        rows = np.setdiff1d(rows, dropped, assume_unique=True)
        remaining: Longs = rows - np.searchsorted(dropped, rows)
        return remaining

    def decode_every_column(self) -> None:
        """Decode all columns that are stored; raises CorruptFileError for what cannot be."""
        for group in range(self.row_group_count):
            names, stored = sorted(self._stored_names), self._stored
            with _Reading(self.path):
                if isinstance(stored, ParquetFile) and stored.is_large(group):
                    for piece in stored.group_pieces(group, names):
                        piece.validate(full=True)
                else:
                    stored.read_group(group, names).validate(full=True)

    def _column(self, column: ReadColumn) -> ReadColumn:
        name, source = column.name, column.source
        # Tracking columns may be in the manifest alone, so their absence is no damage.
        if name in self._tracked:
            return ReadColumn.tracking(name, self.path, self._meta, self._stored_names)
        # The commit gave one number to all rows, and the stored numbers are placeholders.
        if name == SEQUENCE_NUMBER and self._number is not None:
            return ReadColumn(name, None, None, constant=self._number)
        if source is not None and source not in self._stored_names:
            raise CorruptFileError(
                f"column {source!r} is missing in the file; restore it, or run verify",
                file=self.path,
                column=source,
            )
        return column

    def _pieces(self, group: int) -> Iterator[pa.Table]:
        """Yield the rows of a row group: at once, or in pieces if it takes much memory."""
        names = _sources(self._columns)
        stored = self._stored
        if not names or not isinstance(stored, ParquetFile) or not stored.is_large(group):
            yield self._read_row_group(group)
            return
        first = sum(self.row_group_rows[:group])
        end = first + self.row_group_rows[group]
        with _Reading(self.path):
            pieces = stored.group_pieces(group, names)
        while first < end:
            with _Reading(self.path):
                piece = next(pieces, None)
                if piece is None:
                    raise ValueError("a row group has fewer rows than the footer states")
            remaining, count = None, piece.num_rows
            if self._deleted is not None:
                remaining = RowsLeft(count, self._deleted.between(first, first + count))
            columns = {name: pa.chunked_array([piece.column(name)]) for name in names}
            if remaining is not None:
                columns = {name: remaining.filter_column(columns[name]) for name in names}
            yield self._table(self._columns, columns, range(first, first + count), remaining)
            first += count

    def _read_row_group(
        self, group: int, columns: Sequence[ReadColumn] | None = None, chosen: Longs | None = None
    ) -> pa.Table:
        """Return columns (None: all) of a row group; `chosen`: positions among the rows that are not deleted."""
        count = self.row_group_rows[group]
        first = sum(self.row_group_rows[:group])
        read_columns = self._columns if columns is None else columns
        remaining = None
        if self._deleted is not None:
            dropped = self._deleted.between(first, first + count)
            if chosen is None:
                remaining = RowsLeft(count, dropped)
            else:
                chosen = np.delete(np.arange(count), dropped)[chosen]
        stored = self._stored_columns(group, read_columns, remaining, chosen)
        rows = range(first, first + count) if chosen is None else first + chosen
        return self._table(read_columns, stored, rows, remaining)

    def _table(
        self,
        read_columns: Sequence[ReadColumn],
        stored: Mapping[str, pa.ChunkedArray],
        rows: range | Longs,
        remaining: RowsLeft | None,
    ) -> pa.Table:
        """Return columns as they are read from columns as they are stored; `rows`: their positions in the file."""
        with_positions = self._with_positions and read_columns is self._columns
        positions = None
        if with_positions or any(column.counted for column in read_columns):
            positions = pa.chunked_array([np.asarray(rows, np.int64)])
            positions = positions if remaining is None else remaining.filter_column(positions)
        row_count = len(rows) if remaining is None else len(remaining)
        arrays = [
            column.unstored(row_count, positions)
            if column.source is None
            else column.filled(self._read_as(column, stored[column.source]), positions)
            for column in read_columns
        ]
        if with_positions:
            arrays.append(positions)
        is_whole = read_columns is self._columns
        schema = self.schema if is_whole else pa.schema([item.field for item in read_columns])
        return pa.Table.from_arrays(arrays, schema=schema)

    def _stored_columns(
        self,
        group: int,
        read_columns: Sequence[ReadColumn],
        remaining: RowsLeft | None,
        chosen: Longs | None,
    ) -> dict[str, pa.ChunkedArray]:
        """Return columns of a row group as stored, without deleted rows."""
        names = _sources(read_columns)
        # Columns that are nowhere stored need no read.
        if not names:
            return {}
        with _Reading(self.path):
            if chosen is not None:
                stored = self._stored.read_rows(group, names, chosen)
                return {name: stored.column(name) for name in names}
            stored = self._stored.read_group(group, names)
            # A short column would be silently paired with rows of other columns.
            if stored.num_rows != self.row_group_rows[group]:
                raise ValueError("a row group has fewer rows than the footer states")
            columns = {name: stored.column(name) for name in names}
            if remaining is None:
                return columns
            # Before values are decoded or cast: deleted rows cost nothing more.
            return {name: remaining.filter_column(column) for name, column in columns.items()}

    def _read_as(self, column: ReadColumn, values: Any) -> Any:
        # Most columns are stored as they are read, and no cast is tried for them.
        if column.reads_as_is and values.type == column.type:
            return values
        mapping = column.mapping
        if mapping is None or mapping.source is None:
            return conform(values, column.type, file_name=self.path, column=column.name)
        declared_type = arrow_type(mapping.source.type)
        with _Reading(self.path):
            values = maps_of_lists(values, declared_type)
        declared = conform(values, declared_type, file_name=self.path, column=column.name)
        with _Reading(self.path):
            result = apply_mapping(mapping, declared, len(declared))
        if not self._may_lose:
            self._require_kept(mapping, declared, result)
        return result

    def _require_kept(self, mapping: ColumnMapping, stored: Any, result: Any) -> None:
        """Raise UnsupportedError if the cast to the column's type changes stored values."""
        assert mapping.source is not None
        old, new = mapping.source.type, mapping.target.type
        lost = lost_count(stored, result, old, new)
        if lost:
            raise UnsupportedError(
                f"column {mapping.target.name!r} is {type_text(new)} by now, which cannot hold "
                f"{counted(lost, 'value')} stored as {type_text(old)}; change the column's type back, or set "
                f"{core_options.ALTER_COLUMN_LOSSY_CASTS.key!r} = true to read them as Java does",
                kind=ErrorKind.LOSSY_CAST,
                file=self.path,
                column=mapping.target.name,
                values=lost,
            )


def _sources(columns: Sequence[ReadColumn]) -> list[str]:
    return list(dict.fromkeys(column.source for column in columns if column.source is not None))


def _distinct(names: Sequence[str]) -> frozenset[str]:
    distinct = frozenset(names)
    if len(distinct) != len(names):
        raise ValueError("two columns have one name")
    return distinct


class _Reading:
    """Raises exceptions of PyArrow as StorageError (the disk failed) or CorruptFileError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, cause: BaseException | None, __: object) -> None:
        # Our own errors name the file already, and others are no matter of decoding.
        if isinstance(cause, LsmError) or not isinstance(cause, _UNREADABLE):
            return
        # An errno means that the storage failed, and the bytes may be fine.
        if isinstance(cause, OSError) and cause.errno:
            raise to_storage_error(self._path, cause) from cause
        if isinstance(cause, MemoryError):
            raise StorageError(
                "decoding the file takes more memory than there is; read it with more, or run verify to "
                "see whether it is damaged",
                file=self._path,
            ) from cause
        raise CorruptFileError(
            "the file cannot be decoded; restore it, or run verify to see what depends on it",
            file=self._path,
        ) from cause

"""Reader of data files: record batches, projected and cast to the read schema, group by group."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Self

import numpy as np
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    CorruptFileError,
    ErrorKind,
    LsmError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.codec.deletion_vector import DeletionVector
from lsm_engine.io.data_formats import StoredFile, format_of, open_stored
from lsm_engine.io.file_checksum import ExpectedChecksums, parquet_footer
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.kept_footers import kept_footer
from lsm_engine.io.parquet_file import ParquetFile
from lsm_engine.io.parquet_stats import ColumnBounds
from lsm_engine.io.read_column import ReadColumn, number_of_all, plain_columns
from lsm_engine.io.storage_errors import to_storage_error
from lsm_engine.io.stored_maps import maps_of_lists
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.selection import RowsLeft, take
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.lost_values import lost_count
from lsm_engine.schema.mapping import ColumnMapping, apply_mapping, conform
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND, SameSchema, TableSchema
from lsm_engine.schema.types import type_text

POSITION = "_POSITION"
"""Name of the optional column with each row's number in its file, from 0."""
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
        """Yield row groups one after another; only one is in memory at a time.

        A row group comes as one batch, unless `max_rows` or a column of more than 2 GB cuts it.
        """
        for group in self._expected(row_groups):
            yield from self._read_row_group(group).to_batches(max_chunksize=max_rows)

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
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of row groups that a filter of the columns `names` keeps, group by group.

        `positions_of`: the filter, given those columns. Of the others only pages with such rows are decompressed.
        """
        assert not self._with_positions, "positions are for those who read every row"
        filter_columns = [
            column for column in self._columns if column.name in names
        ] or self._columns[:1]
        other_columns = [column for column in self._columns if column not in filter_columns]
        for group in row_groups:
            rows = self._read_row_group(group, filter_columns)
            hits = positions_of(rows)
            if not len(hits):
                continue
            matches = take(rows, hits)
            chosen = None if len(hits) == rows.num_rows else hits
            other_values = self._read_row_group(group, other_columns, chosen)
            both = dict(zip(matches.column_names, matches.columns, strict=True))
            both |= zip(other_values.column_names, other_values.columns, strict=True)
            columns = [both[name] for name in self.schema.names]
            yield from pa.Table.from_arrays(columns, schema=self.schema).to_batches()

    def decode_every_column(self) -> None:
        """Decode all columns that are stored; raises CorruptFileError for what cannot be."""
        for group in range(self.row_group_count):
            with _Reading(self.path):
                self._stored.read_group(group, sorted(self._stored_names)).validate(full=True)

    def _column(self, column: ReadColumn) -> ReadColumn:
        name, source = column.name, column.source
        if name in self._tracked:
            return ReadColumn.tracking(name, self.path, self._meta, self._stored_names)
        if name == SEQUENCE_NUMBER and self._number is not None:
            return ReadColumn(name, None, None, constant=self._number)
        if source is not None and source not in self._stored_names:
            raise CorruptFileError(
                f"column {source!r} is missing in the file; restore it, or run verify",
                file=self.path,
                column=source,
            )
        return column

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
        positions = None
        if self._with_positions or any(column.counted for column in read_columns):
            numbers = np.arange(count) if chosen is None else chosen
            positions = pa.chunked_array([first + numbers])
            positions = positions if remaining is None else remaining.filter_column(positions)
        row_count = count if chosen is None else len(chosen)
        row_count = row_count if remaining is None else len(remaining)
        stored = self._stored_columns(group, read_columns, remaining, chosen)
        arrays = [
            column.unstored(row_count, positions)
            if column.source is None
            else column.filled(self._read_as(column, stored[column.source]), positions)
            for column in read_columns
        ]
        if columns is None and self._with_positions:
            arrays.append(positions)
        schema = (
            self.schema if columns is None else pa.schema([item.field for item in read_columns])
        )
        return pa.Table.from_arrays(arrays, schema=schema)

    def _stored_columns(
        self,
        group: int,
        read_columns: Sequence[ReadColumn],
        remaining: RowsLeft | None,
        chosen: Longs | None,
    ) -> dict[str, pa.ChunkedArray]:
        """Return columns of a row group as stored, without deleted rows."""
        names = list(dict.fromkeys(item.source for item in read_columns if item.source is not None))
        if not names:
            return {}
        with _Reading(self.path):
            if chosen is not None:
                stored = self._stored.read_rows(group, names, chosen)
                return {name: stored.column(name) for name in names}
            stored = self._stored.read_group(group, names)
            if stored.num_rows != self.row_group_rows[group]:
                raise ValueError("a row group has fewer rows than the footer states")
            columns = {name: stored.column(name) for name in names}
            if remaining is None:
                return columns
            # Before values are decoded or cast: deleted rows cost nothing more.
            return {name: remaining.filter_column(column) for name, column in columns.items()}

    def _read_as(self, column: ReadColumn, values: Any) -> Any:
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
        if isinstance(cause, LsmError) or not isinstance(cause, _UNREADABLE):
            return
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

"""Writer of rolling data files from sorted rows.

Files are invisible until a commit names them. A caller that fails calls `abort`, which deletes them."""

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_engine.base.errors import InvalidInputError, LsmError
from lsm_engine.base.record import record
from lsm_engine.base.units import checked_sequence
from lsm_engine.data_files.columns import file_schema
from lsm_engine.data_files.formats import DataEncoding, DataOutput, data_encoding
from lsm_engine.data_files.parquet import column_bounds, leaf_positions, open_parquet
from lsm_engine.data_files.parquet_output import (
    ParquetEncoding,
    ParquetOutput,
    StoredChunks,
    Struct,
    has_columns_of,
    read_footer,
    stored_chunks,
)
from lsm_engine.format.binary_row import decode_row, encode_stored
from lsm_engine.format.bloom import build_record_key_bloom, footer_entries
from lsm_engine.format.column_index import IndexBuilder, Parts, indexed_type
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, SimpleStats
from lsm_engine.format.file_index import INDEX_SUFFIX, encode_indexes
from lsm_engine.format.stats import ColumnExtremes, StatsCollector, stats_modes, stats_of_each
from lsm_engine.kernels.arrow_views import Bytes, Longs, binary_values, one_array
from lsm_engine.options import core_options
from lsm_engine.options.modes import BloomFilterType, FileIndexType, FileSource, RowKind
from lsm_engine.options.table_options import TableOptions
from lsm_engine.storage.checksum import ChecksumOutput, check_whole, footer_with_trailer
from lsm_engine.storage.clock import Clock, IdSource
from lsm_engine.storage.file_io import FileIO
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, SameSchema, TableSchema
from lsm_engine.types.types import DataField

# -- Statistics of finished files for their manifest entries ---------------------------------------
#
# From their footers, or from their rows.


class FileStats(Protocol):
    """Minima, maxima and null counts of one file, as its rows go by and when it is finished."""

    def update(self, rows: pa.Table) -> None:
        """Take in rows of the file's schema; of a format with footers those columns that may hold NaN."""
        ...

    def finish(self, footer: "pq.FileMetaData | None") -> None:
        """Take in the footer, if the format has one that knows the columns."""
        ...

    @staticmethod
    def of_each(files: Sequence[Any]) -> "list[StatsPair]":
        """Return the statistics of finished files of one class and one schema."""
        ...


StatsPair = tuple[SimpleStats, SimpleStats]
"""Statistics of the key columns of a file, and of every column of the table, in order."""


class RowStats:
    """Collected from every row, for formats whose footer has no statistics."""

    def __init__(self, schema: TableSchema) -> None:
        modes = dict(zip(schema.names, stats_modes(schema), strict=True))
        keys = schema.trimmed_primary_keys if schema.has_primary_key else ()
        self._key_names = keys
        self._names = schema.names
        key_types = [field.type for field in schema.select(keys)]
        self._keys = StatsCollector(key_types, [modes[name] for name in keys])
        self._values = StatsCollector(
            [field.type for field in schema.fields], [modes[name] for name in schema.names]
        )

    def update(self, rows: pa.Table) -> None:
        """Take in rows of the file's schema."""
        self._keys.update([rows.column(name) for name in self._key_names])
        self._values.update([rows.column(name) for name in self._names])

    def finish(self, _: "pq.FileMetaData | None") -> None:
        """Nothing is known from a footer."""

    @staticmethod
    def of_each(files: "Sequence[RowStats]") -> list[StatsPair]:
        """Return what each has collected."""
        return [stats.result() for stats in files]

    def result(self) -> StatsPair:
        """Return the statistics so far."""
        keys = self._keys.result() if self._key_names else EMPTY_STATS
        return keys, self._values.result()


class FooterStats:
    """From Parquet footers, without a second look at the rows, and of all files in one pass."""

    def __init__(self, stored: pa.Schema, schema: TableSchema) -> None:
        self.groups: list[pq.RowGroupMetaData] = []
        self.stored = stored
        self.schema = schema
        self.floating = [field.name for field in stored if pa.types.is_floating(field.type)]
        self.nan_columns: set[str] = set()  # Parquet's statistics leave NaN out

    def update(self, rows: pa.Table) -> None:
        """Look for NaN, in the columns that are given."""
        for name in filter(rows.column_names.__contains__, self.floating):
            if pc.any(pc.is_nan(rows.column(name))).as_py():
                self.nan_columns.add(name)

    def finish(self, footer: "pq.FileMetaData | None") -> None:
        """Take in the footer."""
        assert footer is not None, "this format has footers"
        self.groups = [footer.row_group(i) for i in range(footer.num_row_groups)]

    @staticmethod
    def of_each(files: "Sequence[FooterStats]") -> list[StatsPair]:
        """Return the statistics of files of one schema."""
        schema = files[0].schema
        leaves = leaf_positions(files[0].stored)
        columns = {
            field.name: _extremes(files, field, leaves.get(field.name)) for field in schema.fields
        }
        values = _stats(schema, schema.fields, columns, len(files))
        # Files of append tables have no key columns, so their key statistics are empty.
        if not schema.has_primary_key:
            return [(EMPTY_STATS, value_stats) for value_stats in values]
        keys = schema.select(schema.trimmed_primary_keys)
        return list(zip(_stats(schema, keys, columns, len(files)), values, strict=True))


def _stats(
    schema: TableSchema,
    fields: Sequence[DataField],
    columns: dict[str, ColumnExtremes],
    file_count: int,
) -> list[SimpleStats]:
    modes = dict(zip(schema.names, stats_modes(schema), strict=True))
    return stats_of_each(
        [field.type for field in fields],
        [modes[field.name] for field in fields],
        [columns[field.name] for field in fields],
        file_count=file_count,
    )


def _extremes(files: Sequence[FooterStats], field: DataField, leaf: int | None) -> ColumnExtremes:
    """Return what the footers of files know of a column; where a file has NaN, no bounds."""
    value_type = arrow_type(field.type)
    # The column is not in the files, so no footer knows anything of it.
    if leaf is None:
        nulls = pa.nulls(len(files), value_type)
        return ColumnExtremes(least=nulls, greatest=nulls, null_counts=[None] * len(files))
    groups = [group for file in files for group in file.groups]
    stored = files[0].stored.field(field.name).type
    bounds = column_bounds(groups, leaf, stored, nan_free=True)
    extremes = bounds.of_each([len(file.groups) for file in files])
    pair = [extremes.least, extremes.greatest]
    pair = [bound if bound.type == value_type else bound.cast(value_type) for bound in pair]
    # NaN has no place in the order, so a file with it has no bounds.
    with_nan = [field.name in file.nan_columns for file in files]
    if any(with_nan):
        pair = [
            pc.if_else(pa.array(with_nan), pa.scalar(None, value_type), bound) for bound in pair
        ]
    return ColumnExtremes(least=pair[0], greatest=pair[1], null_counts=extremes.null_counts)


# -- Record keys: text, and entries of Parquet footers for `locate` --------------------------------
#
# The record key of one column is its value as text; of several it is "name:value" of each,
# joined by commas. Binary values stand for themselves.

_EMPTY: Bytes = np.zeros(0, np.uint8)


def record_keys(names: Sequence[str], columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Return the record key of each row as bytes (large_binary)."""
    texts = [_text(one_array(column)) for column in columns]
    # A key of one column is stored without its name.
    if len(texts) == 1:
        return texts[0]
    parts = []
    for i, (name, text) in enumerate(zip(names, texts, strict=True)):
        label = f"{',' if i else ''}{name}:".encode()
        parts += [pa.scalar(label, pa.large_binary()), text]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    # Bytes are the key as they are; a cast to text could fail.
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.large_binary())
    return column.cast(pa.string()).cast(pa.large_binary())


def key_footer_members(options: TableOptions, pieces: Sequence[pa.Array]) -> dict[bytes, bytes]:
    """Return the footer members of a file of these record keys: filter, its type, least and greatest."""
    keys = one_array(pa.chunked_array(pieces, pa.large_binary()))
    # A file without keys needs no filter to exclude it.
    if not len(keys):
        return {}
    kind = options[core_options.INDEX_BLOOM_FILTER_TYPE]
    entries = options[core_options.INDEX_BLOOM_NUM_ENTRIES]
    # A simple filter cannot grow, so it is made large enough from the start.
    if kind is BloomFilterType.SIMPLE:
        entries = max(entries, len(keys))
    data, offsets = binary_values(keys)
    stored = build_record_key_bloom(
        data,
        offsets,
        kind,
        entries=entries,
        fpp=options[core_options.INDEX_BLOOM_FPP],
        # Never fewer than there are keys: a filter that is full lets everything through.
        max_entries=max(options[core_options.INDEX_BLOOM_DYNAMIC_MAX_ENTRIES], len(keys)),
    )
    bounds = pc.min_max(keys)
    return footer_entries(stored, kind, bounds["min"].as_py(), bounds["max"].as_py())


def key_pieces(keys: pa.Array) -> tuple[Bytes, Longs]:
    """Return the bytes of record keys and their n + 1 offsets."""
    return binary_values(keys) if len(keys) else (_EMPTY, np.zeros(1, np.int64))


# -- Data files being written, and their manifest entries once they are finished -------------------

DATA_PREFIX = "data-"
CHANGELOG_PREFIX = "changelog-"
POSTPONED_WRITER = "-u-lsm-s-0-w-"
"""The part of the names of files in bucket -2 by which Java Paimon knows their writer.

It reads the files of one writer in the order of their creation, and those of several in any order: ours have one.
"""


@record
class NewFiles:
    """The facts that all files of one writer share. `directory` is the bucket's (TablePaths.bucket_directory).

    `prefix` is DATA_PREFIX or CHANGELOG_PREFIX. `target_file_size` None: from the table's options.
    `write_columns`: what the files of an append table hold, if not exactly the table's columns. `writer`: a part of
    their names, behind the prefix.
    """

    schema: TableSchema
    directory: str
    level: int = 0
    file_source: FileSource = FileSource.APPEND
    prefix: str = DATA_PREFIX
    target_file_size: int | None = None
    write_columns: tuple[str, ...] | None = None
    writer: str = ""

    @property
    def roll_bytes(self) -> int:
        """Bytes at which a file is full."""
        return self.target_file_size or self.schema.options.target_file_size(
            has_primary_key=self.schema.has_primary_key
        )


@record
class FileLayout:
    """The layout of files of one schema, level and choice of columns.

    `columns` are those of the file and `sources` the columns of the rows that they come from; `required`
    are the positions of those without nulls. `stored` is the schema with the columns that the files hold.
    `indexes` build the file index.
    """

    stored: TableSchema
    columns: pa.Schema
    sources: tuple[str, ...]
    required: tuple[int, ...]
    key_names: tuple[str, ...]
    encoding: DataEncoding
    has_footer: bool
    keeps_record_keys: bool
    indexes: tuple[IndexBuilder, ...]


@lru_cache(maxsize=64)
def file_layout(
    same: SameSchema, level: int, write_columns: tuple[str, ...] | None, group_bytes: int
) -> FileLayout:
    """Return the layout of new files. It is cached: a write into many buckets asks for it once per bucket.

    `write_columns` as in NewFiles; `group_bytes`: memory of a row group.
    """
    schema = same.schema
    stored = replace(schema, fields=schema.written_fields(write_columns))
    columns = file_schema(stored)
    keys = schema.trimmed_primary_keys if schema.has_primary_key else ()
    is_thin = schema.options[core_options.DATA_FILE_THIN_MODE]
    has_footer = schema.options.file_format(level).policy.has_footer
    return FileLayout(
        stored=stored,
        columns=columns,
        sources=tuple(columns.names) if is_thin else (*keys, *columns.names[len(keys) :]),
        required=tuple(i for i, field in enumerate(columns) if not field.nullable),
        key_names=keys if is_thin else tuple(columns.names[: len(keys)]),
        encoding=data_encoding(columns, schema.options, level=level, group_bytes=group_bytes),
        has_footer=has_footer,
        # `locate` reads them.
        keeps_record_keys=has_footer
        and schema.options[core_options.INDEX_TYPE].policy.reads_blooms,
        indexes=tuple(_index_builders(stored)),
    )


def _index_builders(stored: TableSchema) -> Iterator[IndexBuilder]:
    """Yield what builds the indexes of the columns that a file holds."""
    types = {field.name: field.type for field in stored.fields}
    for column in stored.options.indexed_columns:
        # Tables of others may name columns, or fields of them, that cannot have one here.
        kind = indexed_type(types[column.name], column.type) if column.name in types else None
        if kind is not None:
            yield IndexBuilder(column, kind)


@record
class WrittenFile:
    """A finished file before its keys and statistics are encoded: `metas_of` does so for many at once.

    `ends`: the keys of its first and of its last row.
    """

    schema: TableSchema
    meta: DataFileMeta
    stats: FileStats
    ends: Sequence[pa.Table]


def metas_of(written: Sequence[WrittenFile]) -> list[DataFileMeta]:
    """Return the facts of files that one operation wrote, with keys and statistics, in one pass.

    Files of one layout (their schema, and the columns and format that they hold) are taken together.
    """
    metas: dict[int, DataFileMeta] = {}
    alike: dict[Any, list[int]] = {}
    for i, file in enumerate(written):
        key = (id(file.schema), type(file.stats), file.meta.write_columns)
        alike.setdefault(key, []).append(i)
    for numbers in alike.values():
        files = [written[i] for i in numbers]
        stats = type(files[0].stats).of_each([file.stats for file in files])
        keys = _stored_ends(files)
        for i, file, (of_keys, of_values), (first, last) in zip(
            numbers, files, stats, keys, strict=True
        ):
            metas[i] = replace(
                file.meta, min_key=first, max_key=last, key_stats=of_keys, value_stats=of_values
            )
    return [metas[i] for i in range(len(written))]


def _stored_ends(files: Sequence[WrittenFile]) -> list[tuple[bytes, bytes]]:
    """Return the first and the last key of each file as stored rows."""
    schema = files[0].schema
    # Rows without a primary key have no order, and the format stores an empty row.
    if not schema.has_primary_key:
        return [(EMPTY_ROW, EMPTY_ROW)] * len(files)
    fields = schema.select(schema.trimmed_primary_keys)
    # One call encodes the ends of all files.
    rows = pa.concat_tables([end for file in files for end in file.ends])
    stored = encode_stored(rows.columns, [field.type for field in fields])
    return list(zip(stored[::2], stored[1::2], strict=True))


@record
class RowGroup:
    """An encoded row group, with the facts that its file collects, and record keys if the table stores them.

    `index_pieces`: what each of the layout's indexes needs of its rows.
    `rows`: those whose values statistics look at. `ends`: the keys of the first and of the last row.
    `sequences`: the least and the greatest sequence number, None where rows carry none.
    """

    rows: pa.Table
    row_count: int
    ends: pa.Table
    sequences: tuple[int, int] | None
    delete_count: int
    stored: Any
    record_keys: pa.Array | None
    index_pieces: Sequence[Any] = ()

    @staticmethod
    def from_rows(
        rows: pa.Table,
        key_names: Sequence[str],
        stored: Any,
        record_keys: pa.Array | None,
        index_pieces: Sequence[Any] = (),
    ) -> "RowGroup":
        """Return the row group of rows, of which there is at least one."""
        keys = rows.select(key_names)
        numbers = _chunks(rows, SEQUENCE_NUMBER)
        return RowGroup(
            rows=rows,
            row_count=rows.num_rows,
            # Copied: a slice would hold all rows in memory until the file is finished.
            ends=pa.concat_tables([keys.slice(0, 1), keys.slice(len(rows) - 1)]).combine_chunks(),
            sequences=(min(int(n.min()) for n in numbers), max(int(n.max()) for n in numbers))
            if numbers
            else None,
            # -U and -D, the kinds that remove a row, are the odd numbers.
            delete_count=sum(int(np.count_nonzero(n & 1)) for n in _chunks(rows, VALUE_KIND)),
            stored=stored,
            record_keys=record_keys,
            index_pieces=index_pieces,
        )


def index_pieces(layout: FileLayout, rows: pa.Table) -> list[Any]:
    """Return what each index of a layout needs of the rows of a row group."""
    return [builder.piece(rows.column(builder.column.name)) for builder in layout.indexes]


def _chunks(rows: pa.Table, name: str) -> list[Any]:
    if name not in rows.column_names:
        return []
    return [chunk.to_numpy() for chunk in rows.column(name).chunks if len(chunk)]


class OpenFile:
    """The file that a writer appends to, and its facts so far."""

    def __init__(
        self,
        name: str,
        output: ChecksumOutput,
        rows: DataOutput,
        files: NewFiles,
        layout: FileLayout,
    ) -> None:
        self.name = name
        self._output = output
        self._rows = rows
        self._files = files
        self._stats: FileStats = (
            FooterStats(layout.columns, layout.stored)
            if layout.has_footer
            else RowStats(layout.stored)
        )
        self._record_keys: list[pa.Array] = []
        self._indexes = layout.indexes if files.prefix == DATA_PREFIX else ()
        self._index_pieces: list[Sequence[Any]] = []
        self._row_count = 0
        self._delete_count = 0
        self._sequences: list[tuple[int, int]] = []
        self._ends: list[pa.Table] = []

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._output.tell()

    def append(self, group: RowGroup) -> None:
        """Append a row group."""
        self._rows.append(group.stored)
        self._stats.update(group.rows)
        if group.record_keys is not None:
            self._record_keys.append(group.record_keys)
        self._index_pieces.append(group.index_pieces)
        self._ends = [*(self._ends or [group.ends.slice(0, 1)])[:1], group.ends.slice(1)]
        self._row_count += group.row_count
        self._delete_count += group.delete_count
        if group.sequences is not None:
            self._sequences.append(group.sequences)

    def close(self, now_millis: int, first_sequence_number: int) -> "WrittenFile":
        """Finish the file; `first_sequence_number` is for rows that carry none."""
        files = self._files
        if isinstance(self._rows, ParquetOutput) and self._record_keys:
            self._rows.add_members(key_footer_members(files.schema.options, self._record_keys))
        has_footer = isinstance(self._rows, ParquetOutput)
        self._stats.finish(self._rows.close())
        size = self._output.tell()
        self._output.close()
        least, greatest = first_sequence_number, first_sequence_number + self._row_count - 1
        checked_sequence(first_sequence_number, self._row_count)
        if self._sequences:
            least = min(low for low, _ in self._sequences)
            greatest = max(high for _, high in self._sequences)
        meta = DataFileMeta(
            file_name=self.name,
            file_size=size,
            row_count=self._row_count,
            min_key=EMPTY_ROW,
            max_key=EMPTY_ROW,
            key_stats=EMPTY_STATS,
            value_stats=EMPTY_STATS,
            min_sequence_number=least,
            max_sequence_number=greatest,
            schema_id=files.schema.id,
            level=files.level,
            creation_millis=now_millis,
            delete_row_count=self._delete_count,
            file_source=files.file_source,
            write_columns=files.write_columns,
            checksum=self._output.checksum,
            footer_checksum=self._output.last_checksum if has_footer else None,
        )
        return WrittenFile(schema=files.schema, meta=meta, stats=self._stats, ends=self._ends)

    def index(self) -> bytes | None:
        """Return the file index of all rows; None if no column has one."""
        indexes: dict[str, dict[FileIndexType, Parts]] = {}
        for builder, pieces in zip(
            self._indexes, zip(*self._index_pieces, strict=True), strict=True
        ):
            built = builder.built(pieces)
            if built is not None:
                indexes.setdefault(builder.column.name, {})[builder.column.type] = built
        return encode_indexes(indexes) if indexes else None

    def abandon(self) -> None:
        """Delete the unfinished file."""
        self._rows.abandon()
        self._output.abort()


# -- Row groups of a Parquet file that another file takes over without encoding them again ---------


@record
class StoredGroups:
    """The row groups of one data file without deletes, all of whose bytes are those that were written.

    `decoded`: floating point columns that may hold NaN, which the statistics of a footer leave out.
    """

    file_io: FileIO
    path: str
    footer: Struct
    metadata: "pq.FileMetaData"
    layout: FileLayout
    decoded: tuple[str, ...]

    @staticmethod
    def read(
        file_io: FileIO, path: str, file: DataFileMeta, layout: FileLayout
    ) -> "StoredGroups | None":
        """Read the row groups of a file; None if its columns are not stored as files of `layout` store them.

        `file`: of the layout's schema. Raises CorruptFileError if its checksum is not the one that its
        manifest entry has, and NotFoundError if it is missing.
        """
        assert isinstance(layout.encoding, ParquetEncoding), "only files in Parquet take copies"
        with closing(file_io.open_input(path, size=file.file_size)) as source:
            # Copied row groups are never decoded, so the checksum is the only proof of them.
            check_whole(source, file.checksum, file_name=path)
            stored = footer_with_trailer(source)
        footer = read_footer(stored)
        # A copied group is valid only under the same columns and types. Others may have the statistics that are left out.
        if layout.encoding.hidden_leaves or not has_columns_of(footer, layout.encoding.footer):
            return None
        return StoredGroups(
            file_io=file_io,
            path=path,
            footer=footer,
            metadata=pq.read_metadata(pa.BufferReader(stored)),
            layout=layout,
            decoded=_may_have_nan(file, layout),
        )

    def group(self, number: int) -> RowGroup:
        """Return a row group as an output appends it; only columns without statistics are decoded."""
        keys = self.layout.key_names
        ends = self._bounds(number, keys[0]) if len(keys) == 1 else None
        sequences = self._bounds(number, SEQUENCE_NUMBER)
        indexed = [builder.column.name for builder in self.layout.indexes]
        names = [*self.decoded, *indexed]
        names += () if ends is not None else keys
        names += () if sequences is not None else (SEQUENCE_NUMBER,)
        with closing(self.file_io.open_input(self.path)) as source:
            chunks = stored_chunks(source, self.footer, number)
            rows = self._read(source, number, dict.fromkeys(names)) if names else pa.table({})
        if ends is None:
            of_keys = rows.select(keys)
            pair = pa.concat_tables([of_keys.slice(0, 1), of_keys.slice(len(rows) - 1)])
        else:
            pair = pa.Table.from_arrays([ends], schema=self._schema(keys))
        numbers = rows.column(SEQUENCE_NUMBER) if sequences is None else sequences
        low, high = pc.min_max(numbers).as_py().values()
        row_count = self.metadata.row_group(number).num_rows
        return RowGroup(
            rows=rows,
            row_count=row_count,
            ends=pair,
            sequences=(low, high),
            delete_count=0,
            stored=StoredChunks(chunks=chunks, row_count=row_count),
            record_keys=None,
            index_pieces=index_pieces(self.layout, rows),
        )

    def _bounds(self, number: int, name: str) -> pa.Array | None:
        """Return the least and the greatest value of a column in a row group; None where its footer knows none."""
        columns = self.layout.columns
        leaf = leaf_positions(columns)[name]
        stored = columns.field(name).type
        bounds = column_bounds([self.metadata.row_group(number)], leaf, stored)
        # One unknown bound makes the other one useless.
        if not all(bounds.is_known) or bounds.lower.null_count or bounds.upper.null_count:
            return None
        return pa.concat_arrays([bounds.lower, bounds.upper])

    def _read(self, source: Any, number: int, names: Iterable[str]) -> pa.Table:
        # The checksum of the whole file was right: pages need not be compared with theirs.
        file = open_parquet(source, self.metadata, verify_checksums=False)
        has_dots = any("." in name for name in file.schema_arrow.names)  # to PyArrow a path
        columns = None if has_dots else list(names)
        rows = file.read_row_group(number, columns, use_threads=False).select(list(names))
        return rows.cast(self._schema(names))

    def _schema(self, names: Iterable[str]) -> pa.Schema:
        return pa.schema([self.layout.columns.field(name) for name in names])


def _may_have_nan(file: DataFileMeta, layout: FileLayout) -> tuple[str, ...]:
    """Return the floating point columns for which a file's manifest entry has no bounds, as where it has NaN."""
    floating = [field.name for field in layout.columns if pa.types.is_floating(field.type)]
    stored = layout.stored
    # Without statistics any of the columns may hold NaN.
    if (
        not floating
        or file.value_stats_columns is not None
        or file.value_stats.max_values == EMPTY_ROW
    ):
        return tuple(floating)
    bounds = decode_row(file.value_stats.max_values, [field.type for field in stored.fields])
    bounded = {name for name, bound in zip(stored.names, bounds, strict=True) if bound is not None}
    return tuple(name for name in floating if name not in bounded)


# -- Writer of rolling data files from sorted rows -------------------------------------------------

ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 128 << 20
ENCODERS = min(4, len(os.sched_getaffinity(0)))
"""Row groups that one writer encodes at a time, as long as they hold no more than ROW_GROUP_BYTES."""
_ROW_GROUP_MIN_ROWS = 1024
_GROUPS_OF_A_LARGE_WRITE = 8


class DataFileWriter:
    """Writes rows of `schema.key_value_arrow` to one bucket, by key, each once (RollingFileWriter).

    Row groups are encoded by threads, up to one for each processor, while the rows of the next ones are
    made; their bytes go into the files in order, and a file is full at its target size.

    A changelog's rows may come several times a key; -U and the +U behind it stay in one file.

    Append tables: rows of `schema.arrow`, numbered on from `first_sequence_number`.
    """

    def __init__(
        self,
        file_io: FileIO,
        files: NewFiles,
        *,
        ids: IdSource,
        clock: Clock,
        first_sequence_number: int = 0,
    ) -> None:
        self._file_io = file_io
        self._files = files
        self._clock = clock
        self._unique = ids.new_id()
        self._next_sequence_number = first_sequence_number
        self._group_bytes = min(
            files.schema.options[core_options.FILE_BLOCK_SIZE] or ROW_GROUP_BYTES, files.roll_bytes
        )
        self._layout = file_layout(
            SameSchema(files.schema), files.level, files.write_columns, self._group_bytes
        )
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._open: OpenFile | None = None
        self._encoders: ThreadPoolExecutor | None = None
        self._encoded: deque[tuple[int, Future[RowGroup]]] = deque()
        self._groups_begun = 0
        self._count = 0
        self._done: list[WrittenFile] = []

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Append rows; what they hold is referenced until its row group is written."""
        if rows.num_rows == 0:
            return
        arranged = self._arranged(rows)
        self._waiting.append(arranged)
        self._waiting_rows += arranged.num_rows
        self._waiting_bytes += arranged.nbytes
        # The number of rows per group may change with the width of the rows.
        while self._waiting_rows >= (most := self._group_rows()):
            # Groups of one size: the last ones are encoded side by side and end together.
            self._encode(-(-self._waiting_rows // -(-self._waiting_rows // most)))

    def is_large(self, row_count: int, memory_bytes: int) -> bool:
        """Whether rows are enough for a row group to stay: files would be made of ever more small ones."""
        return row_count >= ROW_GROUP_ROWS // 4 or memory_bytes >= self._group_bytes // 4

    @property
    def takes_copies(self) -> bool:
        """Whether a stored row group can follow: what waits becomes one of its own then."""
        return not self._waiting or self.is_large(self._waiting_rows, self._waiting_bytes)

    def copy(self, groups: StoredGroups, number: int) -> None:
        """Append a row group of another file as it is stored, behind all rows so far."""
        self.relieve()
        self._append(groups.group(number))

    @property
    def layout(self) -> FileLayout:
        """How the files are laid out."""
        return self._layout

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows in memory that wait for their row group to fill."""
        return self._waiting_bytes

    def relieve(self) -> None:
        """Write the waiting rows as a row group, however small, to free their memory."""
        if self._waiting_rows:
            self._encode(self._waiting_rows)
        self._append_encoded()

    def close(self) -> list[DataFileMeta]:
        """Finish and return the files, in key order; none if no row was written."""
        return metas_of(self.finish())

    def finish(self) -> list[WrittenFile]:
        """Finish the files as `close` does, for `metas_of`: one writer of many asks for all at once."""
        last = self._group(self._take(self._waiting_rows)) if self._waiting_rows else None
        self._append_encoded()
        if last is not None:
            self._append(last)
        self._roll()
        self._stop_encoders()
        return list(self._done)

    def __enter__(self) -> Self:
        """Return the writer; an error in the block deletes its files."""
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        # No snapshot names a half-written file.
        if error is not None:
            self.abort()

    def abort(self) -> None:
        """Delete all files of this writer, as far as the storage allows."""
        # The waiting rows are released first, as they hold memory.
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        # Encoders stop before files are deleted: they would write to them.
        self._stop_encoders()
        if self._open is not None:
            self._open.abandon()
            self._open = None
        while self._done:
            for name in self._done.pop().meta.file_names:
                with contextlib.suppress(LsmError):  # a file that remains is an orphan
                    self._file_io.delete(f"{self._files.directory}/{name}")

    def _arranged(self, rows: pa.RecordBatch | pa.Table) -> pa.Table:
        """Return rows in the columns of the file: the key columns twice, nothing copied."""
        schema = self._layout.columns
        columns = [rows.column(name) for name in self._layout.sources]
        if [column.type for column in columns] != schema.types:
            columns = list(map(pc.cast, columns, schema.types))
        for i in self._layout.required:
            if columns[i].null_count:
                raise InvalidInputError(
                    "a column that is NOT NULL has nulls, of a -D that is not a whole row (delete(keys) "
                    "takes keys alone), or as a merge leaves them where all values were retracted; make "
                    "it nullable with SetNullable, or give it an aggregate function that does not end "
                    "in null",
                    column=schema.names[i],
                )
        return pa.Table.from_arrays(columns, schema=schema)

    def _group_rows(self) -> int:
        """Rows of the next row group, by the size in memory of the rows that wait for it."""
        by_size = self._group_bytes * self._waiting_rows // max(self._waiting_bytes, 1)
        return max(min(by_size, ROW_GROUP_ROWS), _ROW_GROUP_MIN_ROWS)

    def _encode(self, row_count: int) -> None:
        """Hand the next rows to an encoder; waits while all are busy, or hold enough memory."""
        rows = self._take(row_count)
        while len(self._encoded) >= ENCODERS or (
            self._encoded and sum(size for size, _ in self._encoded) + rows.nbytes > ROW_GROUP_BYTES
        ):
            self._append_next()
        if self._encoders is None:
            self._encoders = ThreadPoolExecutor(ENCODERS, thread_name_prefix="lsm-encode")
        self._groups_begun += 1
        is_large = self._groups_begun > _GROUPS_OF_A_LARGE_WRITE
        encode = self._group_apart if is_large else self._group
        self._encoded.append((rows.nbytes, self._encoders.submit(encode, rows)))

    def _group_apart(self, rows: pa.Table) -> RowGroup:
        """Encode, and release the memory of the thread: a tenth of the memory of a large compaction.

        A small compaction would spend an eighth of its time on allocating the memory again.
        """
        group = self._group(rows)
        pa.default_memory_pool().release_unused()
        return group

    def _group(self, rows: pa.Table) -> RowGroup:
        """Encode rows. Runs in any thread and reads no mutable state."""
        keys = None
        if self._layout.keeps_record_keys:
            names = self._files.schema.trimmed_primary_keys
            keys = record_keys(names, [rows.column(name) for name in names])
        encoded = self._layout.encoding.encode(rows)
        pieces = index_pieces(self._layout, rows) if self._files.prefix == DATA_PREFIX else ()
        return RowGroup.from_rows(rows, self._layout.key_names, encoded, keys, pieces)

    def _take(self, row_count: int) -> pa.Table:
        """Take the next waiting rows."""
        waiting = pa.concat_tables(self._waiting)
        row_count = self._uncut(waiting, row_count)
        rows, remaining = waiting.slice(0, row_count), waiting.slice(row_count)
        self._waiting = [remaining] if remaining.num_rows else []
        self._waiting_rows = remaining.num_rows
        self._waiting_bytes = remaining.nbytes if remaining.num_rows else 0
        return rows

    def _append_encoded(self) -> None:
        """Wait for the row groups that are being encoded; raises the errors of their encoding."""
        while self._encoded:
            self._append_next()

    def _append_next(self) -> None:
        _, encoded = self._encoded.popleft()
        self._append(encoded.result())

    def _append(self, group: RowGroup) -> None:
        if self._open is not None and self._open.size >= self._files.roll_bytes:
            self._roll()
        if self._open is None:
            self._open = self._started()
        self._open.append(group)

    def _stop_encoders(self) -> None:
        encoders, self._encoders = self._encoders, None
        self._encoded.clear()
        if encoders is not None:
            encoders.shutdown(cancel_futures=True)

    def _uncut(self, waiting: pa.Table, row_count: int) -> int:
        """Return the number of rows to write so that a -U of a changelog and its +U stay together."""
        # Only a changelog has pairs, and at the end of the rows nothing can follow.
        if self._files.prefix != CHANGELOG_PREFIX or row_count >= waiting.num_rows:
            return row_count
        last = waiting.column(VALUE_KIND)[row_count - 1].as_py()
        return row_count + int(last == RowKind.UPDATE_BEFORE)

    def _started(self) -> OpenFile:
        extension = self._files.schema.options.file_format(self._files.level).value
        files = self._files
        name = f"{files.prefix}{files.writer}{self._unique}-{self._count}.{extension}"
        self._count += 1
        output = ChecksumOutput(self._file_io.open_output(f"{self._files.directory}/{name}"))
        try:
            rows = self._layout.encoding.open(output)
            return OpenFile(name, output, rows, self._files, self._layout)
        except BaseException:  # not yet in `_open`, where `abort` would find it
            output.abort()
            raise

    def _roll(self) -> None:
        # A writer without rows has opened no file.
        if self._open is None:
            return
        index = self._open.index()
        finished = self._open.close(self._clock.now_millis(), self._next_sequence_number)
        self._open = None
        # The next file continues the numbers of this one.
        self._next_sequence_number = finished.meta.max_sequence_number + 1
        self._done.append(finished if index is None else self._indexed(finished, index))
        for name in self._done[-1].meta.extra_files:
            self._file_io.write_new(f"{self._files.directory}/{name}", index or b"")

    def _indexed(self, finished: WrittenFile, index: bytes) -> WrittenFile:
        """Return a file whose index is in its manifest entry, or by its size in a file beside it."""
        limit = self._files.schema.options[core_options.FILE_INDEX_IN_MANIFEST_THRESHOLD]
        if len(index) <= limit:
            return replace(finished, meta=replace(finished.meta, embedded_index=index))
        names = (f"{finished.meta.file_name}{INDEX_SUFFIX}",)
        return replace(finished, meta=replace(finished.meta, extra_files=names))

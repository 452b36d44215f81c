"""Writer of Parquet files that every known client reads. Row groups are encoded separately, then joined.

The settings are those of docs/formats.md: data pages v1, plain and dictionary encodings, decimals as
integers, timestamps in ms or us by their precision and INT96 beyond. A writer of ours never relies on
PyArrow's defaults, whose dictionaries on every column cost four times the encoding.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.io.parquet_footer import (
    MAGIC,
    ColumnChunk,
    only_row_group,
    read_footer,
    row_group,
    split_row_groups,
    stored_footer,
    with_leaves_of,
    with_members,
    with_row_groups,
)
from lsm_engine.io.thrift_compact import Struct
from lsm_engine.schema.table_schema import KEY_PREFIX, VALUE_KIND

_DICTIONARY_SAMPLE_ROWS = 16_384
_DICTIONARY_MIN_ROWS = 1024
_DICTIONARY_MAX_SHARE = 0.2
_HEAD_ROWS = 2048
_HEAD_MAX_SHARE = 0.875  # a fifth of the sample's rows as distinct values show three quarters here
_SHARED_MIN_ROWS = 4096  # below, putting chunks together costs more than encoding keys twice
_COMPRESSED_MIN_BYTES = 256  # of a column: less hardly shrinks, and a codec costs to start
_ZSTD_MIN_BYTES = 4096  # of a column: below, zstd takes longer to start than Snappy to do all of it
_WRITE_BATCH_ROWS = 16_384  # rows encoded at a time: PyArrow's 1,024 costs a tenth more
_COMPRESSION = {"none": "NONE", "lz4": "LZ4_RAW"}


@record
class ParquetSettings:
    """The Parquet settings of one table's data files."""

    compression: str
    compression_level: int | None
    page_checksum: bool
    small_compression: str

    @staticmethod
    def from_options(options: TableOptions, file_level: int = 0) -> "ParquetSettings":
        """Return the settings that a table's options ask for in files of a level."""
        codec = options.file_compression(file_level)
        level = options[core_options.FILE_COMPRESSION_ZSTD_LEVEL] if codec == "zstd" else None
        compression = _COMPRESSION.get(codec, codec.upper())
        is_named = any(key.startswith(core_options.FILE_COMPRESSION.key) for key in options.texts)
        return ParquetSettings(
            compression=compression,
            small_compression=compression if is_named else "SNAPPY",
            compression_level=level,
            page_checksum=options[core_options.PAGE_CHECKSUM],
        )

    def codec_for(self, column_bytes: int) -> str:
        """Return the codec of a row group whose columns have `column_bytes` each."""
        if column_bytes < _COMPRESSED_MIN_BYTES:
            return "NONE"
        is_small = column_bytes < _ZSTD_MIN_BYTES
        return self.small_compression if is_small else self.compression


def dictionary_columns(sample: pa.Table) -> list[str]:
    """Return the flat columns of `sample` with so few distinct values that a dictionary pays.

    Looks at the first 16,384 rows; fewer than 1,024 are too few, and then only the row kind gets
    one. Values repeated in sorted order, such as the first part of a composite key, count too.
    """
    rows = sample.slice(0, _DICTIONARY_SAMPLE_ROWS)
    chosen = [VALUE_KIND] if VALUE_KIND in sample.column_names else []
    if rows.num_rows < _DICTIONARY_MIN_ROWS:
        return chosen
    chosen += [
        field.name
        for field, column in zip(rows.schema, rows.columns, strict=True)
        if field.name not in chosen and _may_have_dictionary(field.type) and _repeats(column)
    ]
    return chosen


def _repeats(column: pa.ChunkedArray) -> bool:
    head = column.slice(
        0, _HEAD_ROWS
    )  # rules out most columns of distinct values at an eighth of the cost
    if pc.count_distinct(head).as_py() > len(head) * _HEAD_MAX_SHARE:
        return False
    distinct: int = pc.count_distinct(column).as_py()
    return distinct <= int(len(column) * _DICTIONARY_MAX_SHARE)


def _may_have_dictionary(value: pa.DataType) -> bool:
    # Never decimals: older Java readers fail on fixed-length bytes behind a dictionary.
    return not (
        pa.types.is_nested(value)
        or pa.types.is_boolean(value)
        or pa.types.is_decimal(value)
        or (pa.types.is_timestamp(value) and value.unit == "ns")
    )


@record
class ParquetGroup:
    """One row group, encoded: a whole Parquet file in memory that holds nothing else.

    With `shares_keys` it lacks the columns whose pages are those of their `_KEY_` columns.
    """

    file: pa.Buffer
    footer: "pq.FileMetaData"
    row_count: int
    shares_keys: bool


@record
class StoredChunks:
    """One row group of another file, as it is stored there: its columns, those of its keys twice."""

    chunks: Sequence[ColumnChunk]
    row_count: int


class ParquetEncoding:
    """The Parquet encoding of one table. Any number of threads may encode concurrently.

    A key column of the table, and the `_KEY_` column of its values, are encoded once in row groups of
    some size: the pages are copied, and only the footer knows of it.

    Files that hold timestamps of both more and fewer than 6 digits need INT96 for some columns only,
    which PyArrow cannot write: the shorter ones go in as plain integers of the same bytes, and the
    file's footer then states their type.
    """

    def __init__(self, schema: pa.Schema, settings: ParquetSettings) -> None:
        self._settings = settings
        self._schema = schema
        self._stored = schema
        self._units = {unit for field in schema for unit in _timestamp_units(field.type)}
        self._mended: frozenset[int] = frozenset()
        if "ns" in self._units and len(self._units) > 1:
            self._stored = pa.schema([_timestamps_as_integers(field) for field in schema])
            self._mended = frozenset(_short_timestamp_leaves(schema))
        self._shared = {
            field.name: schema.get_field_index(KEY_PREFIX + field.name)
            for field in schema
            if _is_key_again(field, schema)
        }

    def encode(self, rows: pa.Table) -> ParquetGroup:
        """Return rows of exactly the schema as one row group; its own first rows choose dictionaries."""
        shares_keys = bool(self._shared) and rows.num_rows >= _SHARED_MIN_ROWS
        stored = _reinterpreted(rows, self._stored) if self._mended else rows
        if shares_keys:
            stored = stored.drop_columns(list(self._shared))
        sink = pa.BufferOutputStream(
            pa.system_memory_pool()
        )  # grows in place, and returns its memory when freed
        dictionaries = dictionary_columns(stored)
        codec = self._settings.codec_for(rows.nbytes // max(rows.num_columns, 1))
        footers: list[pq.FileMetaData] = []
        with self._writer(
            sink,
            stored.schema,
            dictionaries=dictionaries,
            codec=codec,
            metadata_collector=footers,
        ) as writer:
            writer.write_table(stored, row_group_size=max(rows.num_rows, 1))
        return ParquetGroup(
            file=sink.getvalue(),
            footer=footers[0],
            row_count=rows.num_rows,
            shares_keys=shares_keys,
        )

    def open(self, sink: Any) -> "ParquetOutput":
        """Start a file of such row groups."""
        return ParquetOutput(sink, self)

    def chunks(self, group: ParquetGroup) -> list[ColumnChunk]:
        """Return the columns of a row group, all of them, in the order of the schema."""
        stored = ColumnChunk.all_of(memoryview(group.file).cast("B"))
        if not group.shares_keys:
            return stored
        remaining = iter(stored)
        chunks: list[ColumnChunk] = []
        for field in self._schema:
            if field.name in self._shared:
                chunks.append(stored[self._shared[field.name]].with_name(field.name))
            else:
                chunks += islice(remaining, len(list(_leaf_types(field.type))))
        return chunks

    @property
    def is_mended(self) -> bool:
        """Whether PyArrow's footer lacks the logical type of some column."""
        return bool(self._mended)

    @cached_property
    def footer(self) -> Struct:
        """The footer of a file without rows, with the logical type of each column."""
        footer = self._empty_footer(self._stored)
        if not self._mended:
            return footer
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(
            sink, self._schema, version="2.6", store_schema=False, write_time_adjusted_to_utc=True
        ):
            pass
        return with_leaves_of(footer, _footer_in(sink), self._mended)

    def _empty_footer(self, schema: pa.Schema) -> Struct:
        sink = pa.BufferOutputStream()
        self._writer(sink, schema, dictionaries=[], codec="NONE").close()
        return _footer_in(sink)

    def _writer(
        self,
        sink: Any,
        schema: pa.Schema,
        *,
        dictionaries: list[str],
        codec: str,
        **options: Any,
    ) -> "pq.ParquetWriter":
        return pq.ParquetWriter(
            sink,
            schema,
            version="2.6",
            compression=codec,
            compression_level=self._settings.compression_level if codec == "ZSTD" else None,
            use_dictionary=dictionaries or False,
            write_statistics=True,
            use_deprecated_int96_timestamps="ns" in self._units,
            write_batch_size=_WRITE_BATCH_ROWS,
            data_page_version="1.0",
            store_schema=False,
            write_page_checksum=self._settings.page_checksum,
            store_decimal_as_integer=True,
            write_time_adjusted_to_utc=True,
            **options,
        )


def _is_key_again(field: pa.Field, schema: pa.Schema) -> bool:
    """Whether a column has the same pages, byte for byte, as its `_KEY_` column."""
    key = schema.get_field_index(KEY_PREFIX + field.name)
    return (
        key >= 0
        and schema.field(key).type == field.type
        and not field.nullable
        and not schema.field(key).nullable
    )


def _footer_in(sink: pa.BufferOutputStream) -> Struct:
    _, footer = split_row_groups(memoryview(sink.getvalue()).cast("B"))
    return read_footer(bytes(footer))


class ParquetOutput:
    """One Parquet file being written, from row groups that were encoded separately."""

    def __init__(self, sink: Any, encoding: ParquetEncoding) -> None:
        self._sink = sink
        self._encoding = encoding
        self._size = sink.write(MAGIC)
        self._whole: tuple[bytes, pq.FileMetaData] | None = None
        self._groups: list[Struct] = []
        self._members: dict[bytes, bytes] = {}

    def append(self, group: ParquetGroup | StoredChunks) -> None:
        """Append a row group."""
        if isinstance(group, StoredChunks):
            self._append(group.chunks, group.row_count)
        elif self._size == len(MAGIC) and not group.shares_keys:
            # A small file has one row group. Its own footer then becomes the footer of the file.
            pages, footer = split_row_groups(memoryview(group.file).cast("B"))
            self._whole = bytes(footer), group.footer
            self._size += self._sink.write(pages)
        else:
            self._append(self._encoding.chunks(group), group.row_count)

    def _append(self, chunks: Sequence[ColumnChunk], row_count: int) -> None:
        self._split_first_group()
        metadata = row_group(
            chunks, row_count=row_count, offset=self._size, ordinal=len(self._groups)
        )
        for chunk in chunks:
            self._size += self._sink.write(chunk.pages)
        self._groups.append(metadata)

    def add_members(self, members: dict[bytes, bytes]) -> None:
        """Add members to the footer's key-value metadata."""
        self._members |= members

    def close(self) -> "pq.FileMetaData":
        """Write the footer and return it; the sink stays open."""
        if self._members or self._encoding.is_mended:
            self._split_first_group()
        if self._whole is not None:
            footer, metadata = self._whole
            self._sink.write(_end(footer))
            return metadata
        groups = with_row_groups(self._encoding.footer, self._groups)
        end = _end(stored_footer(with_members(groups, self._members)))
        self._sink.write(end)
        return pq.read_metadata(pa.BufferReader(MAGIC + end))

    def abandon(self) -> None:
        """Forget the file: nothing more reaches the sink."""

    def _split_first_group(self) -> None:
        """Keep the first row group's metadata: its own footer is no longer the whole file's."""
        if self._whole is not None:
            self._groups = [only_row_group(self._whole[0])]
            self._whole = None


def _end(footer: bytes) -> bytes:
    return footer + len(footer).to_bytes(4, "little") + MAGIC


# Files with INT96 for some timestamps only.


def _timestamp_units(value: pa.DataType) -> Iterable[str]:
    if pa.types.is_timestamp(value):
        yield value.unit
    for child in _children(value):
        yield from _timestamp_units(child.type)


def _children(value: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(value):
        return [value.key_field, value.item_field]
    if pa.types.is_list(value):
        return [value.value_field]
    if pa.types.is_struct(value):
        return [value.field(i) for i in range(value.num_fields)]
    return []


def _timestamps_as_integers(field: pa.Field) -> pa.Field:
    return field.with_type(_type_with_integers(field.type))


def _type_with_integers(value: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(value) and value.unit != "ns":
        return pa.int64()
    children = [_timestamps_as_integers(child) for child in _children(value)]
    if pa.types.is_map(value):
        return pa.map_(*children)
    if pa.types.is_list(value):
        return pa.list_(children[0])
    return pa.struct(children) if pa.types.is_struct(value) else value


def _short_timestamp_leaves(schema: pa.Schema) -> list[int]:
    leaves = [leaf for field in schema for leaf in _leaf_types(field.type)]
    return [
        i
        for i, leaf in enumerate(leaves)
        if pa.types.is_timestamp(leaf) and leaf.unit != "ns"
    ]  # fmt: skip


def _leaf_types(value: pa.DataType) -> Iterable[pa.DataType]:
    children = _children(value)
    if not children:
        yield value
    for child in children:
        yield from _leaf_types(child.type)


def _reinterpreted(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    columns = [
        column
        if column.type == field.type
        else pa.chunked_array([chunk.view(field.type) for chunk in column.chunks], type=field.type)
        for field, column in zip(stored, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=stored)

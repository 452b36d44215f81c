"""Writer of Parquet files that every known client reads. Row groups are encoded separately, then joined.

The settings are those of docs/formats.md: data pages v1, plain and dictionary encodings, decimals as
integers, timestamps in ms or us by their precision and INT96 beyond. A writer of ours never relies on
PyArrow's defaults, whose dictionaries on every column cost four times the encoding."""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_engine.base.record import record
from lsm_engine.options import core_options
from lsm_engine.options.table_options import TableOptions
from lsm_engine.types.table_schema import KEY_PREFIX, VALUE_KIND

# -- Thrift's compact protocol, in which Parquet keeps its footers and page headers, as trees ------
#
# A tree keeps every field, known here or not.

STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE = range(8)
BINARY, LIST, SET, _, STRUCT = range(8, 13)
_LONG_LIST = 15  # a list header with this size is followed by the real one


class Field(NamedTuple):
    """A field's type in the protocol and its content.

    Integers as they are stored (zigzag: twice the number, if it is not negative), a list as (item
    type, items), a struct as a mapping by field number, anything else as bytes.
    """

    kind: int
    content: Any


Struct = dict[int, Field]


def number_of(field: Field) -> int:
    """Return a size, count or offset: these are never negative."""
    stored: int = field.content
    return stored >> 1


def long_field(number: int) -> Field:
    """Return such a number as a field of 64 bits."""
    return Field(I64, zigzag(number))


def zigzag(number: int) -> int:
    """Return such a number as it is stored."""
    return number << 1


class Reader:
    """The compact protocol, read; `at`: how far. IndexError where the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while (header := self._byte()) != STOP:
            number = number + (header >> 4) if header >> 4 else _unzigzag(self._varint())
            kind = header & 15
            fields[number] = Field(kind, self._content(kind))
        return fields

    def _content(self, kind: int) -> Any:
        if kind in (I16, I32, I64):
            return self._varint()
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            return self._items()
        if kind in (TRUE, FALSE):
            return b""  # a boolean field's value is its type
        assert kind in (BYTE, DOUBLE), "footers hold no maps"
        return self._bytes(1 if kind == BYTE else 8)

    def _items(self) -> tuple[int, list[Any]]:
        header = self._byte()
        kind, count = header & 15, header >> 4
        if count == _LONG_LIST:
            # The long count follows the header and replaces the four bits.
            count = self._varint()
        if kind in (TRUE, FALSE):  # in a list a boolean takes a byte
            return kind, [self._bytes(1) for _ in range(count)]
        return kind, [self._content(kind) for _ in range(count)]

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        self.at += size
        return self._data[self.at - size : self.at]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            # Only the last byte of a number has its highest bit clear.
            if byte < 128:
                return number


class Writer:
    """The compact protocol, written."""

    def __init__(self) -> None:
        self._made = bytearray()

    def struct(self, fields: Struct) -> bytes:
        self._struct(fields)
        return bytes(self._made)

    def _struct(self, fields: Struct) -> None:
        before = 0
        for number in sorted(fields):
            kind, content = fields[number]
            step = number - before
            if 0 < step < 16:
                self._made.append(step << 4 | kind)
            else:
                self._made.append(kind)
                self._varint(2 * number)
            self._content(kind, content)
            before = number
        self._made.append(STOP)

    def _content(self, kind: int, content: Any) -> None:
        if kind in (I16, I32, I64):
            self._varint(content)
        elif kind == STRUCT:
            self._struct(content)
        elif kind in (LIST, SET):
            self._items(*content)
        else:
            if kind == BINARY:
                self._varint(len(content))
            self._made += content

    def _items(self, kind: int, items: Sequence[Any]) -> None:
        self._made.append(min(len(items), _LONG_LIST) << 4 | kind)
        if len(items) >= _LONG_LIST:
            self._varint(len(items))
        for item in items:
            self._content(kind, item)

    def _varint(self, number: int) -> None:
        while number > 127:
            self._made.append(number & 127 | 128)
            number >>= 7
        self._made.append(number)


def _unzigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)


# -- Footers of Parquet files as trees, to join column chunks that were encoded separately ---------
#
# A footer is a Thrift struct in the compact protocol. A tree holds every field, known here or
# not. Only the fields that change are named below (parquet.thrift, FileMetaData and its
# members).

MAGIC = b"PAR1"
_TRAILER_BYTES = 8  # the footer's length, then the magic

_SCHEMA, _ROW_COUNT, _ROW_GROUPS, _MEMBERS = 2, 3, 4, 5  # of FileMetaData
_CHILD_COUNT = 5  # of SchemaElement
_COLUMNS, _BYTES, _GROUP_ROWS, _GROUP_OFFSET, _STORED_BYTES, _ORDINAL = (
    1,
    2,
    3,
    5,
    6,
    7,
)  # of RowGroup
_CHUNK_OFFSET, _CHUNK_FACTS = 2, 3  # of ColumnChunk
_PATH, _CHUNK_BYTES, _CHUNK_STORED_BYTES = 3, 6, 7  # of ColumnMetaData
_DATA_PAGES, _INDEX_PAGES, _DICTIONARY_PAGE = 9, 10, 11  # of ColumnMetaData: where they begin
_STATISTICS = 12  # of ColumnMetaData
_BLOOM_FILTER = 14  # of ColumnMetaData, and what comes after it
_NAME, _VALUE = 1, 2  # of KeyValue


def split_row_groups(file: memoryview) -> tuple[memoryview, memoryview]:
    """Return the row groups of a whole Parquet file, without the magic before them, and its footer."""
    assert file[-len(MAGIC) :] == MAGIC, "not the end of a Parquet file"
    trailer = len(file) - _TRAILER_BYTES
    start = trailer - int.from_bytes(file[trailer : trailer + 4], "little")
    return file[len(MAGIC) : start], file[start:trailer]


def read_footer(data: bytes) -> Struct:
    """Return a footer as a tree."""
    return Reader(data).struct()


def stored_footer(footer: Struct) -> bytes:
    """Return a tree as a footer."""
    return Writer().struct(footer)


class ColumnChunk(NamedTuple):
    """A column of one row group: its pages, and its metadata in a footer (ColumnChunk)."""

    pages: memoryview
    metadata: Struct

    @staticmethod
    def all_of(file: memoryview) -> "list[ColumnChunk]":
        """Return the columns of a file that holds one row group, without page indexes."""
        _, stored = split_row_groups(file)
        group = only_row_group(bytes(stored))
        return [
            ColumnChunk._from_metadata(file, metadata) for metadata in group[_COLUMNS].content[1]
        ]

    @staticmethod
    def _from_metadata(file: memoryview, metadata: Struct) -> "ColumnChunk":
        facts: Struct = metadata[_CHUNK_FACTS].content
        start = _start(facts)
        return ColumnChunk(file[start : start + number_of(facts[_CHUNK_STORED_BYTES])], metadata)

    def with_name(self, name: str) -> "ColumnChunk":
        """Return the same pages as a column of another name and the same type."""
        path = Field(LIST, (BINARY, [name.encode()]))
        facts = self.metadata[_CHUNK_FACTS].content | {_PATH: path}
        return ColumnChunk(self.pages, self.metadata | {_CHUNK_FACTS: Field(STRUCT, facts)})

    def at_offset(self, offset: int) -> Struct:
        """Return the metadata of the chunk for pages that begin at `offset`."""
        facts: Struct = self.metadata[_CHUNK_FACTS].content
        distance = offset - _start(facts)
        moved = {
            number: long_field(number_of(facts[number]) + distance)
            for number in (_DATA_PAGES, _INDEX_PAGES, _DICTIONARY_PAGE)
            if number in facts
        }
        stated = number_of(self.metadata[_CHUNK_OFFSET])  # deprecated: 0 where not stated
        return self.metadata | {
            _CHUNK_OFFSET: long_field(stated + distance if stated else 0),
            _CHUNK_FACTS: Field(STRUCT, facts | moved),
        }


def only_row_group(footer: bytes) -> Struct:
    """Return a footer's metadata of its single row group."""
    (group,) = read_footer(footer)[_ROW_GROUPS].content[1]
    # Readers in Rust want an ordinal in all row groups or in none. PyArrow writes none for a single one.
    result: Struct = group | {_ORDINAL: Field(I16, zigzag(0))}
    return result


def has_columns_of(footer: Struct, columns: Struct) -> bool:
    """Return whether the files of two footers have the same columns, stored as the same types."""
    return bool(footer[_SCHEMA] == columns[_SCHEMA])


def stored_chunks(source: Any, footer: Struct, number: int) -> list[ColumnChunk]:
    """Read the columns of one row group of an open file, whose footer is `footer`.

    Page indexes and bloom filters, which lie elsewhere in the file, are not copied.
    """
    group: Struct = footer[_ROW_GROUPS].content[1][number]
    chunks = []
    for metadata in group[_COLUMNS].content[1]:
        facts: Struct = metadata[_CHUNK_FACTS].content
        source.seek(_start(facts))
        pages = source.read(number_of(facts[_CHUNK_STORED_BYTES]))
        copied = {field: facts[field] for field in facts if field < _BLOOM_FILTER}
        stated = {_CHUNK_OFFSET: metadata[_CHUNK_OFFSET], _CHUNK_FACTS: Field(STRUCT, copied)}
        chunks.append(ColumnChunk(memoryview(pages), stated))
    return chunks


def row_group(
    chunks: Sequence[ColumnChunk], *, row_count: int, offset: int, ordinal: int
) -> Struct:
    """Return the metadata of a row group whose chunks follow each other from `offset`."""
    columns = []
    end = offset
    for chunk in chunks:
        columns.append(chunk.at_offset(end))
        end += len(chunk.pages)
    facts = [chunk.metadata[_CHUNK_FACTS].content for chunk in chunks]
    return {
        _COLUMNS: Field(LIST, (STRUCT, columns)),
        _BYTES: long_field(sum(number_of(chunk_facts[_CHUNK_BYTES]) for chunk_facts in facts)),
        _GROUP_ROWS: long_field(row_count),
        _GROUP_OFFSET: long_field(offset),
        _STORED_BYTES: long_field(end - offset),
        _ORDINAL: Field(I16, zigzag(ordinal)),
    }


def with_row_groups(footer: Struct, groups: Sequence[Struct]) -> Struct:
    """Return the footer of a file of the same columns that holds these row groups."""
    rows = sum(number_of(group[_GROUP_ROWS]) for group in groups)
    return footer | {
        _ROW_COUNT: long_field(rows),
        _ROW_GROUPS: Field(LIST, (STRUCT, list(groups))),
    }


def _start(facts: Struct) -> int:
    pages = number_of(facts[_DATA_PAGES])
    # A chunk without a dictionary begins with its first data page.
    if _DICTIONARY_PAGE not in facts:
        return pages
    # Some writers store zero where they have no dictionary.
    return min(pages, number_of(facts[_DICTIONARY_PAGE]) or pages)


def with_members(footer: Struct, members: dict[bytes, bytes]) -> Struct:
    """Return the footer with members in its key-value metadata, if there are any."""
    _, existing = footer[_MEMBERS].content if _MEMBERS in footer else (STRUCT, [])
    added = [
        {_NAME: Field(BINARY, name), _VALUE: Field(BINARY, value)}
        for name, value in members.items()
    ]
    everything = [*existing, *added]
    return footer | {_MEMBERS: Field(LIST, (STRUCT, everything))} if everything else footer


def with_leaves_of(footer: Struct, template: Struct, leaves: frozenset[int]) -> Struct:
    """Return the footer with the schema elements of some leaves taken from one of the same columns.

    `leaves`: positions among the columns without children.
    """
    own, template_elements = footer[_SCHEMA].content[1], template[_SCHEMA].content[1]
    elements = []
    leaf = 0
    for element, replacement in zip(own, template_elements, strict=True):
        is_leaf = _CHILD_COUNT not in element
        elements.append(replacement if is_leaf and leaf in leaves else element)
        leaf += is_leaf
    return footer | {_SCHEMA: Field(LIST, (STRUCT, elements))}


def without_statistics(footer: Struct, leaves: Collection[int]) -> Struct:
    """Return the footer without the statistics of some leaves, by position, in each row group."""
    groups = []
    for group in footer[_ROW_GROUPS].content[1]:
        chunks = [dict(chunk) for chunk in group[_COLUMNS].content[1]]
        for leaf in leaves:
            facts = dict(chunks[leaf][_CHUNK_FACTS].content)
            facts.pop(_STATISTICS, None)
            chunks[leaf][_CHUNK_FACTS] = Field(STRUCT, facts)
        groups.append(group | {_COLUMNS: Field(LIST, (STRUCT, chunks))})
    return footer | {_ROW_GROUPS: Field(LIST, (STRUCT, groups))}


# -- Writer of Parquet files that every known client reads -----------------------------------------

_DICTIONARY_SAMPLE_ROWS = 16_384
_DICTIONARY_MIN_ROWS = 1024
_DICTIONARY_MAX_SHARE = 0.2
_HEAD_ROWS = 2048
_HEAD_MAX_SHARE = 0.875  # a fifth of the sample's rows as distinct values show three quarters here
_SHARED_MIN_ROWS = 4096  # below, putting chunks together costs more than encoding keys twice
_COMPRESSED_MIN_BYTES = 256  # of a column: less hardly shrinks, and a codec costs to start
_ZSTD_MIN_BYTES = 4096  # of a column: below, zstd takes longer to start than Snappy to do all of it
_WRITE_BATCH_ROWS = 16_384  # rows encoded at a time: PyArrow's 1,024 costs a tenth more
_PAGE_BYTES = 1 << 20  # a page holds whole such batches, and a reader all of a page
_COMPRESSION = {"none": "NONE", "lz4": "LZ4_RAW"}


@record
class ParquetSettings:
    """The Parquet settings of one table's data files. `for_iceberg`: readers of Iceberg read them as well."""

    compression: str
    compression_level: int | None
    page_checksum: bool
    small_compression: str
    for_iceberg: bool = False

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
            for_iceberg=options.writes_iceberg,
        )

    def codec_for(self, column_bytes: int) -> str:
        """Return the codec of a row group whose columns have `column_bytes` each."""
        if column_bytes < _COMPRESSED_MIN_BYTES:
            # Compression of a tiny column costs more time than it saves bytes.
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
        # A share of distinct values means little in so few rows.
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
    # Most columns of distinct values show in the head, which is cheap to count.
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

    Iceberg's own library compares statistics and dictionaries of timestamps in milliseconds with microseconds, and skips
    row groups that match. Where its readers read the files, these columns have neither.
    """

    def __init__(self, schema: pa.Schema, settings: ParquetSettings) -> None:
        self._settings = settings
        self._schema = schema
        self._stored = schema
        self._units = {unit for field in schema for unit in _timestamp_units(field.type)}
        self.hidden_leaves = frozenset(millisecond_leaves(schema) if settings.for_iceberg else ())
        """The leaves, by position, whose statistics are left out of footers."""
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
        if self.hidden_leaves:
            dictionaries = [
                name for name in dictionaries if not _is_millis(self._schema.field(name).type)
            ]
        codec = self._settings.codec_for(rows.nbytes // max(rows.num_columns, 1))
        footers: list[pq.FileMetaData] = []
        with self._writer(
            sink,
            stored.schema,
            dictionaries=dictionaries,
            codec=codec,
            write_batch_size=_batch_rows(rows),
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
            # Without shared keys the file has every column in its own place.
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
        # PyArrow's own types of the empty file are right already.
        if not self._mended:
            return footer
        sink = pa.BufferOutputStream()
        # The second footer declares the types that the first one could not.
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
            data_page_version="1.0",
            store_schema=False,
            write_page_checksum=self._settings.page_checksum,
            store_decimal_as_integer=True,
            write_time_adjusted_to_utc=True,
            **options,
        )


def _batch_rows(rows: pa.Table) -> int:
    """Return how many rows are encoded at a time, so that a page of the widest column stays small."""
    # Most row groups have no column that fills a page so soon.
    if rows.nbytes <= _PAGE_BYTES:
        return _WRITE_BATCH_ROWS
    widest = max(column.nbytes for column in rows.columns)
    fitting: int = max(1, _PAGE_BYTES * rows.num_rows // widest)
    return min(_WRITE_BATCH_ROWS, fitting)


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
        hidden_leaves = self._encoding.hidden_leaves
        # Members and mended types change the footer, so PyArrow's own cannot be stored as it is.
        if self._members or self._encoding.is_mended or hidden_leaves:
            self._split_first_group()
        if self._whole is not None:
            # PyArrow wrote the only row group, and its footer is complete.
            own_footer, metadata = self._whole
            self._sink.write(_end(own_footer))
            return metadata
        groups = with_row_groups(self._encoding.footer, self._groups)
        footer = with_members(groups, self._members)
        end = _end(stored_footer(footer))
        # The manifest entry has all bounds.
        stripped = without_statistics(footer, hidden_leaves) if hidden_leaves else footer
        self._sink.write(_end(stored_footer(stripped)) if hidden_leaves else end)
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


# Timestamps of less than microseconds.


def millisecond_leaves(schema: pa.Schema) -> list[int]:
    """Return the positions of the leaves that Parquet stores as timestamps in milliseconds."""
    leaves = [leaf for field in schema for leaf in _leaf_types(field.type)]
    return [i for i, leaf in enumerate(leaves) if _is_millis(leaf)]


def _is_millis(value: pa.DataType) -> bool:
    return pa.types.is_timestamp(value) and value.unit in ("s", "ms")


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
    # INT96 holds nanoseconds; coarser times are the integers that they are stored as.
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

"""A Parquet file put together from rows that were cut out of the pages of another one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lsm_engine.base.record import record
from lsm_engine.io.parquet_footer import MAGIC, stored_footer
from lsm_engine.io.thrift_compact import (
    BINARY,
    I32,
    LIST,
    STRUCT,
    Field,
    Reader,
    Struct,
    Writer,
    long_field,
    number_of,
    varint,
    zigzag,
)
from lsm_engine.kernels.arrow_views import Bytes

_VERSION, _SCHEMA, _ROW_COUNT, _ROW_GROUPS = 1, 2, 3, 4  # of FileMetaData
_COLUMNS, _BYTES, _GROUP_ROWS = 1, 2, 3  # of RowGroup
_CHUNK_OFFSET, _CHUNK_FACTS = 2, 3  # of ColumnChunk
_TYPE, _CHUNK_ENCODINGS, _PATH, _CODEC, _VALUE_COUNT = 1, 2, 3, 4, 5  # of ColumnMetaData
_CHUNK_BYTES, _CHUNK_STORED_BYTES, _DATA_PAGES, _DICTIONARY_PAGE = 6, 7, 9, 11
_ELEMENT_NAME, _CHILD_COUNT = 4, 5  # of SchemaElement
_KIND, _PAGE_BYTES, _PAGE_STORED_BYTES, _DATA, _DICTIONARY = 1, 2, 3, 5, 7  # of PageHeader
_IS_DATA, _IS_DICTIONARY = 0, 2  # PageType
_VALUES, _ENCODING, _LEVELS, _REPETITIONS = 1, 2, 3, 4  # of DataPageHeader, DictionaryPageHeader
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8  # Encoding
_UNCOMPRESSED = 0  # CompressionCodec
_PHYSICAL_TYPES = (
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY",
)  # fmt: skip
_NO_CHILDREN = Field(I32, 0)


@record
class CutPage:
    """Rows of a column, in an `encoding`; `levels`: a byte for each, whether it has a value."""

    encoding: int
    row_count: int
    levels: Bytes | None
    values: bytes


@record
class CutColumn:
    """A column of such rows: its schema element, and of its dictionary, if there is one, size and values."""

    element: Struct
    physical_type: str
    path: str
    dictionary: tuple[int, bytes] | None
    pages: Sequence[CutPage]


def flat_columns(footer: bytes) -> dict[str, Struct]:
    """Return the schema elements of the columns without children, by name, and the root's under ""."""
    elements = Reader(footer).struct(last=_SCHEMA)[_SCHEMA].content[1]
    found = {"": elements[0]}
    at = 1
    while at < len(elements):
        element = elements[at]
        if _CHILD_COUNT not in element:
            found[element[_ELEMENT_NAME].content.decode()] = element
        below = 1
        while below:  # what is below a column follows it
            below += number_of(elements[at].get(_CHILD_COUNT, _NO_CHILDREN)) - 1
            at += 1
    return found


def packed_run(groups: int) -> bytes:
    """Return what stands before a run of so many times eight packed numbers."""
    return varint(groups << 1 | 1)


def file_of_rows(root: Struct, columns: Sequence[CutColumn], *, row_count: int) -> bytes:
    """Return a Parquet file of one row group that holds these columns. `root`: the schema's first element."""
    made: list[Any] = [MAGIC]
    end = len(MAGIC)
    chunks: list[Struct] = []
    for column in columns:
        start, pages = end, []
        if column.dictionary is not None:
            count, values = column.dictionary
            pages += [_dictionary_header(count, len(values)), values]
            end += len(pages[0]) + len(values)
        first = end
        for page in column.pages:
            levels = b"" if page.levels is None else _stored_levels(page.levels)
            size = len(levels) + len(page.values)
            header = _data_header(page, size)
            pages += [header, levels, page.values]
            end += len(header) + size
        made += pages
        size_field = long_field(end - start)
        facts: Struct = {
            _TYPE: Field(I32, zigzag(_PHYSICAL_TYPES.index(column.physical_type))),
            _CHUNK_ENCODINGS: Field(LIST, (I32, _ENCODINGS)),
            _PATH: Field(LIST, (BINARY, [column.path.encode()])),
            _CODEC: Field(I32, zigzag(_UNCOMPRESSED)),
            _VALUE_COUNT: long_field(row_count),
            _CHUNK_BYTES: size_field,
            _CHUNK_STORED_BYTES: size_field,
            _DATA_PAGES: long_field(first),
        }
        if column.dictionary is not None:
            facts[_DICTIONARY_PAGE] = long_field(start)
        chunks.append({_CHUNK_OFFSET: long_field(start), _CHUNK_FACTS: Field(STRUCT, facts)})
    group: Struct = {
        _COLUMNS: Field(LIST, (STRUCT, chunks)),
        _BYTES: long_field(end),
        _GROUP_ROWS: long_field(row_count),
    }
    elements = [
        root | {_CHILD_COUNT: Field(I32, zigzag(len(columns)))},
        *(column.element for column in columns),
    ]
    footer = stored_footer(
        {
            _VERSION: Field(I32, zigzag(2)),
            _SCHEMA: Field(LIST, (STRUCT, elements)),
            _ROW_COUNT: long_field(row_count),
            _ROW_GROUPS: Field(LIST, (STRUCT, [group])),
        }
    )
    return b"".join((*made, footer, len(footer).to_bytes(4, "little"), MAGIC))


_ENCODINGS = [zigzag(PLAIN), zigzag(RLE), zigzag(RLE_DICTIONARY)]


def _data_header(page: CutPage, size: int) -> bytes:
    numbers = {
        _VALUES: page.row_count, _ENCODING: page.encoding, _LEVELS: RLE, _REPETITIONS: RLE,
    }  # fmt: skip
    return _page_header(_IS_DATA, size, _DATA, numbers)


def _dictionary_header(count: int, size: int) -> bytes:
    return _page_header(_IS_DICTIONARY, size, _DICTIONARY, {_VALUES: count, _ENCODING: PLAIN})


def _page_header(kind: int, size: int, inner: int, numbers: dict[int, int]) -> bytes:
    """Return the header of a page of `size` bytes; `inner`: the field of what only its kind has."""
    outer = {_KIND: kind, _PAGE_BYTES: size, _PAGE_STORED_BYTES: size}
    fields: Struct = {number: Field(I32, zigzag(value)) for number, value in outer.items()}
    of_kind = {number: Field(I32, zigzag(value)) for number, value in numbers.items()}
    return Writer().struct(fields | {inner: Field(STRUCT, of_kind)})


def _stored_levels(levels: Bytes) -> bytes:
    packed = np.packbits(levels, bitorder="little").tobytes()
    run = packed_run(len(packed)) + packed
    return len(run).to_bytes(4, "little") + run

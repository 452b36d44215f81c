"""Pages of a Parquet file: sizes and row counts in their headers, and a new file of some of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from lsm_engine.io.parquet_footer import MAGIC, stored_footer
from lsm_engine.io.thrift_compact import (
    BINARY,
    I32,
    LIST,
    STRUCT,
    Field,
    Reader,
    Struct,
    long_field,
    number_of,
    whole_numbers,
    zigzag,
)

_VERSION, _SCHEMA, _ROW_COUNT, _ROW_GROUPS = 1, 2, 3, 4  # of FileMetaData
_COLUMNS, _BYTES, _GROUP_ROWS = 1, 2, 3  # of RowGroup
_CHUNK_OFFSET, _CHUNK_FACTS = 2, 3  # of ColumnChunk
_TYPE, _CHUNK_ENCODINGS, _PATH, _CODEC, _VALUE_COUNT = 1, 2, 3, 4, 5  # of ColumnMetaData
_CHUNK_BYTES, _CHUNK_STORED_BYTES, _DATA_PAGES, _DICTIONARY_PAGE = 6, 7, 9, 11
_ELEMENT_NAME, _CHILD_COUNT = 4, 5  # of SchemaElement
# Of PageHeader itself, DataPageHeader, DictionaryPageHeader and DataPageHeaderV2.
_PAGE_STORED_BYTES, _ROWS_OF_PAGE, _DICTIONARY_VALUES, _ROWS_OF_PAGE_V2 = (
    (0, 3),
    (5, 1),
    (7, 1),
    (8, 3),
)
_PHYSICAL_TYPES = (
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY",
)  # fmt: skip
_ENCODINGS = {
    "PLAIN": 0, "PLAIN_DICTIONARY": 2, "RLE": 3, "BIT_PACKED": 4, "DELTA_BINARY_PACKED": 5,
    "DELTA_LENGTH_BYTE_ARRAY": 6, "DELTA_BYTE_ARRAY": 7, "RLE_DICTIONARY": 8, "BYTE_STREAM_SPLIT": 9,
}  # fmt: skip
CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}
"""Compressions that PyArrow has a name of its own for: it calls both kinds of LZ4 the same."""
_NO_CHILDREN = Field(I32, 0)


class PageHeader(NamedTuple):
    """What stands before the content of a page. `row_count` None: a page of neither rows nor values.

    Of a column without lists, in which each row is a value.
    """

    byte_count: int
    stored_bytes: int
    is_dictionary: bool
    row_count: int | None

    @staticmethod
    def of(data: bytes) -> "PageHeader":
        """Return the header that bytes begin with.

        Raises IndexError where they end within it, ValueError where they begin with none.
        """
        found, end = whole_numbers(data)
        if end > len(data):
            raise IndexError("the header ends later")
        rows = found.get(_ROWS_OF_PAGE, found.get(_ROWS_OF_PAGE_V2))
        return PageHeader(
            byte_count=end,
            stored_bytes=found[_PAGE_STORED_BYTES],
            is_dictionary=_DICTIONARY_VALUES in found,
            row_count=rows,
        )


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


def file_of_pages(
    root: Struct, columns: Sequence[tuple[Struct, Any, Sequence[bytes]]], *, row_count: int
) -> bytes:
    """Return a Parquet file of one row group: of each column its element, its chunk and its pages.

    `root` is the schema's first element, a chunk the metadata PyArrow has of it in the file that it is from;
    its dictionary, if there is one, is the first of its pages.
    """
    made = [MAGIC]
    end = len(MAGIC)
    chunks: list[Struct] = []
    for _, chunk, pages in columns:
        start, dictionary = end, PageHeader.of(pages[0]).is_dictionary
        made += pages
        end += sum(map(len, pages))
        size = long_field(end - start)
        facts: Struct = {
            _TYPE: Field(I32, zigzag(_PHYSICAL_TYPES.index(chunk.physical_type))),
            _CHUNK_ENCODINGS: Field(
                LIST, (I32, [zigzag(_ENCODINGS[name]) for name in chunk.encodings])
            ),
            _PATH: Field(LIST, (BINARY, [chunk.path_in_schema.encode()])),
            _CODEC: Field(I32, zigzag(CODECS[chunk.compression])),
            _VALUE_COUNT: long_field(row_count),
            _CHUNK_BYTES: size,  # uncompressed: nobody asks for it of a file that is read at once
            _CHUNK_STORED_BYTES: size,
            _DATA_PAGES: long_field(start + len(pages[0]) if dictionary else start),
        }
        if dictionary:
            facts[_DICTIONARY_PAGE] = long_field(start)
        chunks.append({_CHUNK_OFFSET: long_field(start), _CHUNK_FACTS: Field(STRUCT, facts)})
    group: Struct = {
        _COLUMNS: Field(LIST, (STRUCT, chunks)),
        _BYTES: long_field(end),
        _GROUP_ROWS: long_field(row_count),
    }
    elements = [
        root | {_CHILD_COUNT: Field(I32, zigzag(len(columns)))},
        *(element for element, _, _ in columns),
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

"""Footers of Parquet files as trees, to join column chunks that were encoded separately.

A footer is a Thrift struct in the compact protocol. A tree holds every field, known here or not. Only
the fields that change are named below (parquet.thrift, FileMetaData and its members).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from lsm_engine.io.thrift_compact import (
    BINARY,
    I16,
    LIST,
    STRUCT,
    Field,
    Reader,
    Struct,
    Writer,
    long_field,
    number_of,
    zigzag,
)

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
    if _DICTIONARY_PAGE not in facts:
        return pages
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

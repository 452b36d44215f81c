"""Footers of Parquet files as trees: make one file of column chunks that were encoded elsewhere.

A footer is a Thrift struct in the compact protocol. A tree keeps every field, known here or not; only
what has to change is named below (parquet.thrift, FileMetaData and what it holds).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

MAGIC = b"PAR1"
_TRAILER_BYTES = 8  # the footer's length, then the magic
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE = range(8)
_BINARY, _LIST, _SET, _, _STRUCT = range(8, 13)
_LONG_LIST = 15  # a list header with this size is followed by the real one

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
_NAME, _VALUE = 1, 2  # of KeyValue


class Field(NamedTuple):
    """A field's type in the protocol and its content.

    Integers as they are stored (zigzag: twice the number, if it is not negative), a list as (item
    type, items), a struct as a mapping by field number, anything else as bytes.
    """

    kind: int
    content: Any


Struct = dict[int, Field]


def split_row_groups(file: memoryview) -> tuple[memoryview, memoryview]:
    """Return the row groups of a whole Parquet file, without the magic before them, and its footer."""
    assert file[-len(MAGIC) :] == MAGIC, "not the end of a Parquet file"
    trailer = len(file) - _TRAILER_BYTES
    start = trailer - int.from_bytes(file[trailer : trailer + 4], "little")
    return file[len(MAGIC) : start], file[start:trailer]


def read_footer(data: bytes) -> Struct:
    """Return a footer as a tree."""
    return _Reader(data).struct()


def stored_footer(footer: Struct) -> bytes:
    """Return a tree as a footer."""
    return _Writer().struct(footer)


class ColumnChunk(NamedTuple):
    """A column of one row group: its pages, and its metadata in a footer (ColumnChunk)."""

    pages: memoryview
    metadata: Struct

    @staticmethod
    def all_of(file: memoryview) -> "list[ColumnChunk]":
        """Return the columns of a file that holds one row group, without page indexes."""
        _, stored = split_row_groups(file)
        group = only_row_group(bytes(stored))
        return [ColumnChunk._of(file, metadata) for metadata in group[_COLUMNS].content[1]]

    @staticmethod
    def _of(file: memoryview, metadata: Struct) -> "ColumnChunk":
        facts: Struct = metadata[_CHUNK_FACTS].content
        start = _start(facts)
        return ColumnChunk(file[start : start + _number(facts[_CHUNK_STORED_BYTES])], metadata)

    def named(self, name: str) -> "ColumnChunk":
        """Return the same pages as another column, whose type is the same."""
        path = Field(_LIST, (_BINARY, [name.encode()]))
        facts = self.metadata[_CHUNK_FACTS].content | {_PATH: path}
        return ColumnChunk(self.pages, self.metadata | {_CHUNK_FACTS: Field(_STRUCT, facts)})

    def at(self, offset: int) -> Struct:
        """Return its metadata in a footer when its pages begin there."""
        facts: Struct = self.metadata[_CHUNK_FACTS].content
        distance = offset - _start(facts)
        moved = {
            number: _long(_number(facts[number]) + distance)
            for number in (_DATA_PAGES, _INDEX_PAGES, _DICTIONARY_PAGE)
            if number in facts
        }
        stated = _number(self.metadata[_CHUNK_OFFSET])  # deprecated: 0 where not stated
        return self.metadata | {
            _CHUNK_OFFSET: _long(stated + distance if stated else 0),
            _CHUNK_FACTS: Field(_STRUCT, facts | moved),
        }


def only_row_group(footer: bytes) -> Struct:
    """Return a footer's metadata of its single row group."""
    (group,) = read_footer(footer)[_ROW_GROUPS].content[1]
    # Readers in Rust want an ordinal in all row groups or in none; alone, PyArrow gives it none.
    found: Struct = group | {_ORDINAL: Field(_I16, _zigzag(0))}
    return found


def row_group(
    chunks: Sequence[ColumnChunk], *, row_count: int, offset: int, ordinal: int
) -> Struct:
    """Return the metadata of a row group whose chunks lie one behind the other from `offset`."""
    columns = []
    at = offset
    for chunk in chunks:
        columns.append(chunk.at(at))
        at += len(chunk.pages)
    facts = [chunk.metadata[_CHUNK_FACTS].content for chunk in chunks]
    return {
        _COLUMNS: Field(_LIST, (_STRUCT, columns)),
        _BYTES: _long(sum(_number(one[_CHUNK_BYTES]) for one in facts)),
        _GROUP_ROWS: _long(row_count),
        _GROUP_OFFSET: _long(offset),
        _STORED_BYTES: _long(at - offset),
        _ORDINAL: Field(_I16, _zigzag(ordinal)),
    }


def with_row_groups(footer: Struct, groups: Sequence[Struct]) -> Struct:
    """Return the footer of a file of the same columns that holds these row groups."""
    rows = sum(_number(group[_GROUP_ROWS]) for group in groups)
    return footer | {
        _ROW_COUNT: _long(rows),
        _ROW_GROUPS: Field(_LIST, (_STRUCT, list(groups))),
    }


def _start(facts: Struct) -> int:
    pages = _number(facts[_DATA_PAGES])
    if _DICTIONARY_PAGE not in facts:
        return pages
    return min(pages, _number(facts[_DICTIONARY_PAGE]) or pages)


def _number(field: Field) -> int:
    stored: int = field.content
    return stored >> 1  # sizes, counts and offsets are never negative


def _long(number: int) -> Field:
    return Field(_I64, _zigzag(number))


def _zigzag(number: int) -> int:
    return number << 1


def with_members(footer: Struct, members: dict[bytes, bytes]) -> Struct:
    """Return the footer with members in its key-value metadata, if there are any."""
    _, there = footer[_MEMBERS].content if _MEMBERS in footer else (_STRUCT, [])
    added = [
        {_NAME: Field(_BINARY, name), _VALUE: Field(_BINARY, value)}
        for name, value in members.items()
    ]
    everything = [*there, *added]
    return footer | {_MEMBERS: Field(_LIST, (_STRUCT, everything))} if everything else footer


def with_leaves_of(footer: Struct, template: Struct, leaves: frozenset[int]) -> Struct:
    """Return the footer with the schema elements of some leaves taken from one of the same columns.

    `leaves`: positions among the columns without children.
    """
    own, others = footer[_SCHEMA].content[1], template[_SCHEMA].content[1]
    elements = []
    leaf = 0
    for element, other in zip(own, others, strict=True):
        is_leaf = _CHILD_COUNT not in element
        elements.append(other if is_leaf and leaf in leaves else element)
        leaf += is_leaf
    return footer | {_SCHEMA: Field(_LIST, (_STRUCT, elements))}


class _Reader:
    """The compact protocol, read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while (header := self._byte()) != _STOP:
            number = number + (header >> 4) if header >> 4 else _unzigzag(self._varint())
            kind = header & 15
            fields[number] = Field(kind, self._content(kind))
        return fields

    def _content(self, kind: int) -> Any:
        if kind in (_I16, _I32, _I64):
            return self._varint()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == _STRUCT:
            return self.struct()
        if kind in (_LIST, _SET):
            return self._items()
        if kind in (_TRUE, _FALSE):
            return b""  # a boolean field's value is its type
        assert kind in (_BYTE, _DOUBLE), "footers hold no maps"
        return self._bytes(1 if kind == _BYTE else 8)

    def _items(self) -> tuple[int, list[Any]]:
        header = self._byte()
        kind, count = header & 15, header >> 4
        if count == _LONG_LIST:
            count = self._varint()
        if kind in (_TRUE, _FALSE):  # in a list a boolean takes a byte
            return kind, [self._bytes(1) for _ in range(count)]
        return kind, [self._content(kind) for _ in range(count)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number


class _Writer:
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
        self._made.append(_STOP)

    def _content(self, kind: int, content: Any) -> None:
        if kind in (_I16, _I32, _I64):
            self._varint(content)
        elif kind == _STRUCT:
            self._struct(content)
        elif kind in (_LIST, _SET):
            self._items(*content)
        else:
            if kind == _BINARY:
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

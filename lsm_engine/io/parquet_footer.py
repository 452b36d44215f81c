"""Footers of Parquet files as trees: join the row groups of several files, correct schema elements.

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
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7  # of RowGroup
_CHUNK_OFFSET, _CHUNK_FACTS = 2, 3  # of ColumnChunk
_CHUNK_INDEXES = (4, 6)  # of ColumnChunk: offsets of the offset index and of the column index
_PAGE_OFFSETS = (9, 10, 11, 14)  # of ColumnMetaData: data, index and dictionary pages, bloom filter
_NAME, _VALUE = 1, 2  # of KeyValue


class Field(NamedTuple):
    """A field's type in the protocol and its content.

    Integers as they are stored (zigzag: twice the number, if it is not negative), a list as (item
    type, items), a struct as a mapping by field number, anything else as bytes.
    """

    kind: int
    content: Any


Struct = dict[int, Field]


def taken_apart(file: memoryview) -> tuple[memoryview, memoryview]:
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


def joined(footers: Sequence[Struct], moved: Sequence[int]) -> Struct:
    """Return the footer of a file made of the row groups of several, of equal columns.

    `moved`: by how many bytes further back the row groups of each lie than in their own file.
    """
    groups: list[Struct] = []
    for footer, bytes_moved in zip(footers, moved, strict=True):
        for group in footer[_ROW_GROUPS].content[1]:
            _move(group, bytes_moved)
            if _ORDINAL in group:
                group[_ORDINAL] = Field(_I16, 2 * len(groups))
            groups.append(group)
    rows = sum(footer[_ROW_COUNT].content for footer in footers)
    changed = {
        _ROW_COUNT: Field(_I64, rows),
        _ROW_GROUPS: Field(_LIST, (_STRUCT, groups)),
    }
    return footers[0] | changed


def _move(group: Struct, distance: int) -> None:
    _shift(group, _GROUP_OFFSET, distance)
    for chunk in group[_COLUMNS].content[1]:
        for number in (_CHUNK_OFFSET, *_CHUNK_INDEXES):
            _shift(chunk, number, distance)
        for number in _PAGE_OFFSETS:
            _shift(chunk[_CHUNK_FACTS].content, number, distance)


def _shift(struct: Struct, number: int, distance: int) -> None:
    found = struct.get(number)
    if found is not None and found.content:  # 0: deprecated, and not said
        struct[number] = Field(found.kind, found.content + 2 * distance)


def with_members(footer: Struct, members: dict[bytes, bytes]) -> Struct:
    """Return the footer with more members in its key-value metadata."""
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

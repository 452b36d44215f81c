"""Thrift's compact protocol, in which Parquet keeps its footers and page headers, as trees.

A tree keeps every field, known here or not.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

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

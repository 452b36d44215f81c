"""Correct what a Parquet footer says about single columns, without touching anything else.

A footer is a Thrift struct in the compact protocol; its second field is the list of schema elements.
This knows just enough of the protocol to find where each element begins and ends.
"""

from collections.abc import Sequence
from typing import Any

_MAGIC = b"PAR1"
_TRAILER_BYTES = 8  # the footer's length, then the magic
_LAST_PIECES = 8  # PyArrow writes the footer and its trailer in fewer
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE = range(8)
_BINARY, _LIST, _SET, _, _STRUCT = range(8, 13)
_SCHEMA_FIELD = 2
_CHILD_COUNT_FIELD = 5


class FooterPatch:
    """A sink between PyArrow's writer and a file, which replaces schema elements of leaf columns.

    `template` is a whole file with the same columns whose elements are right; `leaves` are the
    positions, among the columns without children, of those to take from it. The last bytes are held
    back until `finish`, as the footer's length comes last.
    """

    def __init__(self, sink: Any, template: bytes, leaves: Sequence[int]) -> None:
        self._sink = sink
        self._template = template
        self._leaves = frozenset(leaves)
        self._pieces: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> int:
        """Pass on everything but what may be the footer."""
        self._pieces.append(bytes(data))
        while len(self._pieces) > _LAST_PIECES:
            self._sink.write(self._pieces.pop(0))
        return len(data)

    def flush(self) -> None:
        """Pass on."""
        self._sink.flush()

    def close(self) -> None:
        """The file itself is closed by its owner."""

    def finish(self) -> None:
        """Write the corrected footer."""
        tail = b"".join(self._pieces)
        length = int.from_bytes(tail[-_TRAILER_BYTES:-4], "little")
        start = len(tail) - _TRAILER_BYTES - length
        assert tail[-4:] == _MAGIC, "not the end of a Parquet file"
        assert start >= 0, "the footer came in more pieces than expected"
        footer = patched(tail[start:-_TRAILER_BYTES], _footer_of(self._template), self._leaves)
        self._sink.write(tail[:start] + footer + len(footer).to_bytes(4, "little") + _MAGIC)


def patched(footer: bytes, template: bytes, leaves: frozenset[int]) -> bytes:
    """Return `footer` with the schema elements of some leaves taken from `template`."""
    elements, others = _Elements(footer), _Elements(template)
    assert len(elements.spans) == len(others.spans), "the template has other columns"
    made = bytearray()
    done = leaf = 0
    for at, (start, end, is_leaf) in enumerate(elements.spans):
        if is_leaf:
            if leaf in leaves:
                other_start, other_end, _ = others.spans[at]
                made += footer[done:start] + template[other_start:other_end]
                done = end
            leaf += 1
    return bytes(made + footer[done:])


def _footer_of(file: bytes) -> bytes:
    length = int.from_bytes(file[-_TRAILER_BYTES:-4], "little")
    return file[-_TRAILER_BYTES - length : -_TRAILER_BYTES]


class _Elements:
    """Where the schema elements of a footer lie: (start, end, has no children)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.spans: list[tuple[int, int, bool]] = []
        field = 0
        while (header := self._byte()) != _STOP:
            field = self._field(header, field)
            if field == _SCHEMA_FIELD:
                self._read_elements()
                return
            self._skip(header & 15)

    def _read_elements(self) -> None:
        for _ in range(self._list_header()[0]):
            start, fields = self._at, self._struct()
            self.spans.append((start, self._at, _CHILD_COUNT_FIELD not in fields))

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def _field(self, header: int, previous: int) -> int:
        if header >> 4:
            return previous + (header >> 4)
        zigzag = self._varint()
        return (zigzag >> 1) ^ -(zigzag & 1)

    def _list_header(self) -> tuple[int, int]:
        header = self._byte()
        size = header >> 4
        return (self._varint() if size == 15 else size), header & 15

    def _struct(self) -> set[int]:
        fields: set[int] = set()
        field = 0
        while (header := self._byte()) != _STOP:
            field = self._field(header, field)
            fields.add(field)
            self._skip(header & 15)
        return fields

    def _skip(self, kind: int) -> None:
        if kind in (_TRUE, _FALSE):
            return  # a boolean field's value is its type
        if kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _STRUCT:
            self._struct()
        elif kind in (_LIST, _SET):
            self._skip_items()
        elif kind == _BINARY:
            size = self._varint()
            self._at += size
        else:
            assert kind in (_BYTE, _DOUBLE), "schema elements hold no maps"
            self._at += 1 if kind == _BYTE else 8

    def _skip_items(self) -> None:
        count, kind = self._list_header()
        for _ in range(count):
            if kind in (_TRUE, _FALSE):
                self._at += 1  # in a list a boolean takes a byte
            else:
                self._skip(kind)

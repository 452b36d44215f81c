"""The file index of a data file, in Paimon's layout: the indexes of several columns (format section 21).

A small one lies in the manifest entry of its data file, others in a file beside it.

head            int64 magic, int32 version, int32 head length, int32 columns; per column: its name, int32 indexes;
                per index: its type, int32 start (-1: all rows are null), int32 length; then int32 redundant
                length and bytes. Names are modified UTF-8 behind an int16 length; numbers are big-endian
redundant bytes ours hold the CRC-32 of the head before them, and of each index in order; other readers pass over them
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.format.checksum import checksum_of
from lsm_engine.format.column_index import ColumnIndex, NullColumn, Parts, indexed_type, read_index
from lsm_engine.options.modes import FileIndexType
from lsm_engine.types.types import DataType

_INT = struct.Struct(">i")
INDEX_SUFFIX = ".index"
"""How the name of an index file beside a data file ends."""
_MAGIC = 1493475289347502
_HEAD = struct.Struct(">qiii")
_VERSION = 1
_CHECKSUM = struct.Struct(">I")
_NO_INDEX = -1
_HEAD_BYTES = 4096
"""Bytes that are read first; most heads of index files fit in."""
_TYPES = {kind.value: kind for kind in FileIndexType}


def encode_indexes(indexes: Mapping[str, Mapping[FileIndexType, Parts]]) -> bytes:
    """Return an index file of the indexes of each column, each in parts."""
    names = {name: _utf(name) for name in indexes}
    types = {kind: _utf(kind.value) for kind in FileIndexType}
    counts = [len(of_column) for of_column in indexes.values()]
    size = _HEAD.size + sum(len(name) + _INT.size for name in names.values())
    size += sum(len(types[kind]) + 8 for of_column in indexes.values() for kind in of_column)
    checksum_count = 1 + sum(len(of_column) for of_column in indexes.values())
    start = size + _INT.size + _CHECKSUM.size * checksum_count
    head, body = [_HEAD.pack(_MAGIC, _VERSION, start, len(counts))], list[Parts]()
    for name, of_column in indexes.items():
        head += [names[name], _INT.pack(len(of_column))]
        for kind, stored in of_column.items():
            length = sum(map(len, stored))
            head += [types[kind], struct.pack(">ii", start, length)]
            body.append(stored)
            start += length
    before: Parts = [b"".join(head)]
    checksums = [_CHECKSUM.pack(_checksum_of_parts(parts)) for parts in (before, *body)]
    file: list[Any] = [*before, _INT.pack(_CHECKSUM.size * checksum_count), *checksums]
    for parts in body:
        file += parts
    return b"".join(file)


def _checksum_of_parts(parts: Parts) -> int:
    checksum = 0
    for part in parts:
        checksum = checksum_of(part, checksum)
    return checksum


def _utf(text: str) -> bytes:
    """Return a text as Java's modified UTF-8, behind its length."""
    units = text.encode("utf-16-be", "surrogatepass")
    stored = b"".join(
        b"\xc0\x80" if unit == "\0" else unit.encode("utf-8", "surrogatepass")
        for unit in (chr(code) for (code,) in struct.iter_unpack(">H", units))
    )
    return struct.pack(">H", len(stored)) + stored


def _text(data: bytes) -> str:
    text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


ReadBytes = Callable[[int, int], bytes]
"""Returns bytes of an index file from an offset on, as many as asked, or fewer where it ends."""


class FileIndexes:
    """The indexes of one data file, by column. What is not asked for is neither read nor decoded.

    Raises CorruptFileError, naming the index file, for bytes that are no index file or not those that were
    written; of an index when it is asked for.
    """

    def __init__(self, read: ReadBytes, *, row_count: int, file_name: str) -> None:
        self._read = read
        self._row_count = row_count
        self._file_name = file_name
        self._checksums: dict[int, int] = {}
        try:
            self._head = memoryview(self._read_head())
            self.places = self._read_places()
        except (struct.error, UnicodeDecodeError, ValueError) as cause:
            raise self.corrupt(str(cause)) from cause

    def _read_head(self) -> bytes:
        head = self._read(0, _HEAD_BYTES)
        magic, version, size, _ = _HEAD.unpack_from(head)
        if magic != _MAGIC or version != _VERSION or size < _HEAD.size:
            raise ValueError("the magic number or the version is another one")
        head = head[:size] if size <= len(head) else self._read(0, size)
        if len(head) < size:
            raise ValueError("the head ends early")
        return head

    def _read_places(self) -> dict[str, dict[str, tuple[int, int]]]:
        head = self._head
        offset = _HEAD.size
        places: dict[str, dict[str, tuple[int, int]]] = {}
        starts: list[int] = []
        for _ in range(_HEAD.unpack_from(head)[3]):
            name, offset = self._read_text(offset)
            (index_count,) = _INT.unpack_from(head, offset)
            offset += _INT.size
            for _index in range(index_count):
                kind, offset = self._read_text(offset)
                start, size = struct.unpack_from(">ii", head, offset)
                offset += 8
                if start != _NO_INDEX and (start < len(head) or size < 0):
                    raise ValueError("an index lies within the head")
                places.setdefault(name, {})[kind] = (start, size)
                starts.append(start)
        (size,) = _INT.unpack_from(head, offset)
        if offset + _INT.size + size != len(head):
            raise ValueError("the head has another length")
        if size == _CHECKSUM.size * (1 + len(starts)):
            stored = head[offset + _INT.size :]
            expected, *checksums = (number for (number,) in _CHECKSUM.iter_unpack(stored))
            if checksum_of(head[:offset]) != expected:
                raise ValueError("the checksum of the head differs")
            self._checksums = dict(zip(starts, checksums, strict=True))
        return places

    def _index_bytes(self, start: int, size: int) -> memoryview:
        data = self._read(start, size)
        if len(data) < size:
            raise ValueError("it ends beyond the file")
        if checksum_of(data) != self._checksums.get(start, checksum_of(data)):
            raise ValueError("its checksum differs")
        return memoryview(data)

    def _read_text(self, offset: int) -> tuple[str, int]:
        (length,) = struct.unpack_from(">H", self._head, offset)
        end = offset + 2 + length
        return _text(bytes(self._head[offset + 2 : end])), end

    def corrupt(self, problem: str) -> CorruptFileError:
        """Return the error for bytes that are not those of an index."""
        return CorruptFileError(
            f"the file index is damaged ({problem}); no row is lost, and scans read all of its data file until "
            "a compaction writes both anew",
            file=self._file_name,
        )

    def of_column(self, name: str, kind: DataType) -> list[ColumnIndex]:
        """Return the indexes of a column of the file, and of its type there."""
        indexes: list[ColumnIndex] = []
        for type_name, (place, size) in self.places.get(name, {}).items():
            index_type = _TYPES.get(type_name)
            # Others may write types that this version does not know.
            if index_type is None:
                continue
            if place == _NO_INDEX:
                indexes.append(NullColumn(self._row_count))
                continue
            values = indexed_type(kind, index_type)
            if values is None:
                continue
            try:
                index = read_index(self._index_bytes(place, size), index_type, values)
            except (struct.error, ValueError, IndexError) as cause:
                raise self.corrupt(f"the {type_name} of column {name!r}: {cause}") from cause
            indexes.append(index)
        return indexes

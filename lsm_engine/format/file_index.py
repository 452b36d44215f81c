"""The file index of a data file, in Paimon's layout: the indexes of several columns (format section 21).

A small one lies in the manifest entry of its data file, others in a file beside it.

head            int64 magic, int32 version, int32 head length, int32 columns; per column: its name, int32 indexes;
                per index: its type, int32 start (-1: all rows are null), int32 length; then int32 redundant
                length and bytes. Names are modified UTF-8 behind an int16 length; numbers are big-endian
redundant bytes ours hold the CRC-32 of everything else, which other readers pass over
"""

import struct
from collections.abc import Mapping

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.format.checksum import checksum_of
from lsm_engine.format.column_index import ColumnIndex, NullColumn, indexed_type, read_index
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
_TYPES = {kind.value: kind for kind in FileIndexType}


def encode_indexes(indexes: Mapping[str, Mapping[FileIndexType, bytes]]) -> bytes:
    """Return an index file of the indexes of each column."""
    names = {name: _utf(name) for name in indexes}
    types = {kind: _utf(kind.value) for kind in FileIndexType}
    counts = [len(of_column) for of_column in indexes.values()]
    size = _HEAD.size + sum(len(name) + _INT.size for name in names.values())
    size += sum(len(types[kind]) + 8 for of_column in indexes.values() for kind in of_column)
    start = size + _INT.size + _CHECKSUM.size
    head, body = [_HEAD.pack(_MAGIC, _VERSION, start, len(counts))], []
    for name, of_column in indexes.items():
        head += [names[name], _INT.pack(len(of_column))]
        for kind, stored in of_column.items():
            head += [types[kind], struct.pack(">ii", start, len(stored))]
            body.append(stored)
            start += len(stored)
    before, after = b"".join(head), b"".join(body)
    checksum = checksum_of(after, checksum_of(before))
    return b"".join((before, _INT.pack(_CHECKSUM.size), _CHECKSUM.pack(checksum), after))


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


class FileIndexes:
    """The indexes of one data file, by column. What is not asked for is not decoded.

    Raises CorruptFileError, naming the index file, for bytes that are no index file or not those that were
    written; `wrong` finds what is behind the head.
    """

    def __init__(self, data: bytes, *, row_count: int, file_name: str) -> None:
        self._data = memoryview(data)
        self._row_count = row_count
        self._file_name = file_name
        try:
            self.places = self._read_head()
        except (struct.error, UnicodeDecodeError, ValueError) as cause:
            raise self.corrupt(str(cause)) from cause

    def _read_head(self) -> dict[str, dict[str, tuple[int, int]]]:
        data = self._data
        magic, version, head_size, column_count = _HEAD.unpack_from(data)
        if magic != _MAGIC or version != _VERSION:
            raise ValueError("the magic number or the version is another one")
        offset = _HEAD.size
        places: dict[str, dict[str, tuple[int, int]]] = {}
        for _ in range(column_count):
            name, offset = self._read_text(offset)
            (index_count,) = _INT.unpack_from(data, offset)
            offset += _INT.size
            for _index in range(index_count):
                kind, offset = self._read_text(offset)
                place, size = struct.unpack_from(">ii", data, offset)
                offset += 8
                if place != _NO_INDEX and not head_size <= place <= place + size <= len(data):
                    raise ValueError("an index lies beyond the file")
                places.setdefault(name, {})[kind] = (place, size)
        (size,) = _INT.unpack_from(data, offset)
        if offset + _INT.size + size != head_size:
            raise ValueError("the head has another length")
        if size == _CHECKSUM.size:
            (expected,) = _CHECKSUM.unpack_from(data, offset + _INT.size)
            if checksum_of(data[head_size:], checksum_of(data[:offset])) != expected:
                raise ValueError("the checksum differs")
        return places

    def _read_text(self, offset: int) -> tuple[str, int]:
        (length,) = struct.unpack_from(">H", self._data, offset)
        end = offset + 2 + length
        return _text(bytes(self._data[offset + 2 : end])), end

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
                index = read_index(self._data[place : place + size], index_type, values)
            except (struct.error, ValueError, IndexError) as cause:
                raise self.corrupt(f"the {type_name} of column {name!r}: {cause}") from cause
            indexes.append(index)
        return indexes

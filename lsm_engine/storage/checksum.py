"""Checksums of data files: of all bytes while they are written, and of what is opened.

ORC and Avro have no checksums of their own, so the whole file is read once before it is decoded. Parquet
has one on every page; its footer has none, and is compared with the one that the manifest keeps.
"""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.base.record import record
from lsm_engine.format.checksum import check_bytes, checksum_of, damaged
from lsm_engine.storage.file_io import Output

_PIECE_BYTES = 1 << 20
_TAIL_BYTES = 64 << 10
_TRAILER_BYTES = 8


class ChecksumOutput:
    """An output that keeps the checksum of what is written to it."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._last: Any = b""
        self.checksum = 0

    @property
    def closed(self) -> bool:
        """Whether `close` or `abort` was called."""
        return self._output.closed

    @property
    def last_checksum(self) -> int:
        """The checksum of what was written last, at once: of a Parquet file its footer."""
        return checksum_of(self._last)

    def write(self, data: Any) -> int:
        """Append bytes; return how many."""
        self.checksum = checksum_of(data, self.checksum)
        self._last = data
        return self._output.write(data)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._output.tell()

    def flush(self) -> None:
        """Hand what is buffered to the storage."""
        self._output.flush()

    def close(self) -> None:
        """Finish the file."""
        self._output.close()

    def abort(self) -> None:
        """Give the file up and remove it."""
        self._output.abort()


@record
class ExpectedChecksums:
    """The checksums of one data file in a manifest; None: it has none. `footer` is of Parquet files alone."""

    whole: int | None = None
    footer: int | None = None


def check_whole(source: Any, expected: int | None, *, file_name: str) -> None:
    """Read an open file from its beginning and compare checksums; leaves it at its beginning.

    Raises CorruptFileError if they differ. None: nothing is known, and nothing is read.
    """
    if expected is None:
        return
    checksum = _checksum_of_all(source)
    source.seek(0)
    if checksum != expected:
        raise damaged(file_name, checksum, expected)


def _checksum_of_all(source: Any) -> int:
    checksum = 0
    source.seek(0)
    while piece := source.read(_PIECE_BYTES):
        checksum = checksum_of(piece, checksum)
    return checksum


def parquet_footer(source: Any, expected: int | None, *, file_name: str) -> "pq.FileMetaData":
    """Return the footer of an open Parquet file, compared with the checksum that is known of it.

    Raises CorruptFileError if they differ, ValueError and pa.ArrowException for what is no footer.
    """
    if expected is None:
        return pq.read_metadata(source)
    stored = footer_with_trailer(source)
    check_bytes(stored, expected, file_name=file_name)
    return pq.read_metadata(pa.BufferReader(stored))


def parquet_checksums(source: Any) -> tuple[int, int]:
    """Return the checksums of an open Parquet file: of all its bytes, and of its footer."""
    return _checksum_of_all(source), checksum_of(footer_with_trailer(source))


def footer_with_trailer(source: Any) -> bytes:
    """Return a footer and what follows it, to the end of the file."""
    size = source.seek(0, 2)
    size = source.tell() if size is None else size
    tail = read_end(
        source, size, _TRAILER_BYTES if isinstance(source, pa.NativeFile) else _TAIL_BYTES
    )
    length = int.from_bytes(tail[-_TRAILER_BYTES:-4], "little") + _TRAILER_BYTES
    if length > len(tail):
        tail = read_end(source, size, length)
    return tail[-length:]


def read_end(source: Any, size: int, count: int) -> bytes:
    """Return the last bytes of a file, at most all of it."""
    source.seek(max(size - count, 0))
    return bytes(source.read(min(count, size)))

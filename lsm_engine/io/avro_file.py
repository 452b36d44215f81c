"""Data files in Avro: read a few blocks at a time, written block by block."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.codec.avro import AvroRecords
from lsm_engine.codec.avro_container import Block, Limits, read_container
from lsm_engine.codec.avro_rows import AvroRows, avro_schema
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.selection import take

DATA_LIMITS = Limits(
    block_bytes=256 << 20,
    total_bytes=1 << 30,
    total_bytes_per_stored_byte=0,
    rows=1 << 40,  # the manifest entry holds the count, and each takes a byte of a block
    items=64 << 10,
    item_bytes=1,
)
"""What is read at once is a group of blocks, so these bound a group and not the file."""
_GROUP_ROWS = 65_536
_GROUP_STORED_BYTES = 2 << 20
_WINDOW = 64 << 10
_CODECS = {"zstd": "zstandard", "gzip": "deflate", "none": "null"}


def check_avro(schema: pa.Schema, compression: str) -> None:
    """Raise UnsupportedError for columns, or a compression, that Avro files cannot have."""
    if compression not in _CODECS:
        raise UnsupportedError(
            f"avro files are not written with {compression}; choose one of "
            f"{', '.join(_CODECS)}, for all levels or for those that are written as avro",
            kind=ErrorKind.UNSUPPORTED_OPTION,
            option=core_options.FILE_COMPRESSION.key,
            value=compression,
        )
    avro_schema(schema)


class AvroOutput:
    """One Avro file being written."""

    def __init__(
        self, sink: Any, schema: pa.Schema, *, compression: str, compression_level: int | None
    ) -> None:
        self._sink = sink
        self._rows = AvroRows(schema, codec=_CODECS[compression], level=compression_level)
        self._sink.write(self._rows.header)

    def append(self, rows: pa.Table) -> None:
        """Write rows of exactly the file's schema as blocks."""
        self._sink.write(self._rows.blocks(rows))

    def close(self) -> None:
        """An Avro file has no footer; the sink stays open."""

    def abandon(self) -> None:
        """Nothing is buffered here."""


class AvroFile:
    """One Avro file being read. A row group is a stretch of blocks; nothing bounds its columns."""

    def __init__(self, source: Any, path: str) -> None:
        container = read_container(_FileBytes(source), file_name=path, limits=DATA_LIMITS)
        self._records = AvroRecords(container, flat=False)
        self.schema: pa.Schema = self._records.schema
        self._groups = _grouped(container.blocks)
        self.group_rows = tuple(sum(b.row_count for b in group) for group in self._groups)

    def keep_dictionaries(self) -> None:
        """There are none to be had (StoredFile)."""

    def read_group(self, group: int, names: Sequence[str]) -> pa.Table:
        """Return columns of one group of blocks."""
        return self._records.decode(names, self._groups[group])

    def read_rows(self, group: int, names: Sequence[str], rows: Longs) -> pa.Table:
        """Return columns of some rows of one group (StoredFile)."""
        return take(self.read_group(group, names), rows)

    def bounds(self, _: str) -> None:
        """Avro keeps no statistics."""
        return


def _grouped(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return blocks in stretches: not so many rows or bytes that memory would be felt."""
    groups: list[list[Block]] = []
    rows = size = 0
    for block in blocks:
        if block.row_count == 0:
            continue
        if not groups or rows >= _GROUP_ROWS or size >= _GROUP_STORED_BYTES:
            groups.append([])
            rows = size = 0
        groups[-1].append(block)
        rows += block.row_count
        size += block.size
    return groups


class _FileBytes:
    """A file as bytes that are fetched when asked for; small spans come out of a window."""

    def __init__(self, source: Any) -> None:
        self._source = source
        source.seek(0, 2)
        self._size = int(source.tell())
        self._start = 0
        self._window = b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, span: slice, /) -> bytes:
        start, stop, _ = span.indices(self._size)
        if stop - start > _WINDOW:
            return self._fetched(start, stop - start)
        if start < self._start or stop > self._start + len(self._window):
            self._window = self._fetched(start, min(_WINDOW, self._size - start))
            self._start = start
        return self._window[start - self._start : stop - self._start]

    def _fetched(self, start: int, size: int) -> bytes:
        self._source.seek(start)
        return bytes(self._source.read(size))

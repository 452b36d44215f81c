"""Some rows of a row group by their positions: of each column only the pages that hold one are read.

Of such a page the rows are copied as they are stored. What comes of it is a Parquet file in memory of
these rows alone, which PyArrow decodes, with all that it knows of types.
"""

import struct
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.base.record import record
from lsm_engine.codec.checksum import checksum_of
from lsm_engine.io.page_file import (
    PLAIN,
    RLE,
    RLE_DICTIONARY,
    CutColumn,
    CutPage,
    file_of_rows,
    flat_columns,
    packed_run,
)
from lsm_engine.kernels.arrow_views import Bytes, Longs, address_of
from lsm_engine.kernels.page_rows import (
    BITS,
    FIXED,
    HEADER_FACTS,
    NO_ROOM,
    NUMBERS,
    TEXT,
    cut_rows,
    page_header,
)

_PAGE_ROWS = 20_000
"""Rows of a page as PyArrow writes them, and other clients at most."""
_MOST_SHARE = 8
"""Of more rows than one in so many, decoding all is as cheap as choosing."""
_HEADER_BYTES = 512
_MOST_HEADER_BYTES = 1 << 20
_TRAILER_BYTES = 8
_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "ZSTD"}
"""Compressions that PyArrow has a name of its own for: it calls both kinds of LZ4 the same."""
_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_DATA_PAGE, _DICTIONARY_PAGE, _SECOND_DATA_PAGE = 0, 2, 3
_PLAIN_DICTIONARY = 2  # Encoding
_WIDEST_NUMBER = 32
_GROUP = 8  # numbers that are packed together


def _pays(rows: Longs, row_count: int) -> bool:
    if _MOST_SHARE * len(rows) <= row_count:
        return True
    pages = -(-row_count // _PAGE_ROWS)
    return 2 * len(np.unique(rows // _PAGE_ROWS)) <= pages


class PageReader:
    """Reads rows of one open file by its pages. `source`: of PyArrow, so that reads need no seek."""

    def __init__(
        self, source: Any, footer: "pq.FileMetaData", *, verify_checksums: bool = True
    ) -> None:
        self._source = source
        self._footer = footer
        self._verify_checksums = verify_checksums
        self._elements: dict[str, Any] | None = None
        self._space = bytearray()
        self._facts = np.empty(HEADER_FACTS, np.int64)
        self._facts_at = address_of(self._facts)

    @property
    def can_cut(self) -> bool:
        """Whether pages of this file can be taken apart: it lies here, and its types are Parquet's own."""
        members = self._footer.metadata or {}
        return isinstance(self._source, pa.NativeFile) and b"ARROW:schema" not in members

    def pays(self, group: int, rows: Longs) -> bool:
        """Whether so few rows of a row group are wanted that choosing them is worth it, and can be done."""
        return self.can_cut and _pays(rows, self._footer.row_group(group).num_rows)

    def rows(self, group: int, leaves: dict[str, int], rows: Longs) -> pa.Buffer | None:
        """Return a file that holds columns of some rows of a row group; None where no column can be cut.

        `leaves`: flat columns by name, and their positions. A column whose pages are of a kind that is not
        taken apart is left out. Raises ValueError for pages that are damaged.
        """
        elements = self._flat_elements()
        metadata = self._footer.row_group(group)
        wanted = np.ascontiguousarray(rows, np.int64)
        made = []
        for name, leaf in leaves.items():
            column = self._cut(name, metadata.column(leaf), leaf, wanted)
            if column is not None:
                made.append(column)
        if not made:
            return None
        return pa.py_buffer(file_of_rows(elements[""], made, row_count=len(rows)))

    def _cut(
        self, name: str, chunk: "pq.ColumnChunkMetaData", leaf: int, rows: Longs
    ) -> CutColumn | None:
        element = self._flat_elements().get(name)
        described = self._footer.schema.column(leaf)
        kind, width = _layout(chunk.physical_type, described.length)
        if (
            chunk.compression not in _CODECS
            or element is None
            or described.max_repetition_level
            or described.max_definition_level > 1
        ):
            return None
        cut = _Cut(kind, width, rows, has_levels=bool(described.max_definition_level))
        for page in self._pages(chunk, rows):
            if not cut.take(page):
                return None
        return CutColumn(
            element=element,
            physical_type=chunk.physical_type,
            path=chunk.path_in_schema,
            dictionary=cut.dictionary,
            pages=tuple(cut.finished()),
        )

    def _pages(self, chunk: "pq.ColumnChunkMetaData", rows: Longs) -> "Iterator[_Page]":
        """Walk through all pages of a column, as headers have no checksum; yield those that hold rows."""
        at = chunk.data_page_offset
        if chunk.dictionary_page_offset:
            at = min(at, chunk.dictionary_page_offset)
        end = at + chunk.total_compressed_size
        codec = None if chunk.compression == "UNCOMPRESSED" else pa.Codec(chunk.compression.lower())
        first = 0
        while at < end:
            start = self._header(at, end)
            header = self._facts.tolist()
            kind, size, stored, crc, count = header[:5]
            if start + stored > end:
                raise ValueError("a page ends beyond its column")
            at = start + stored
            low = high = 0
            if kind in (_DATA_PAGE, _SECOND_DATA_PAGE):
                low, high = np.searchsorted(rows, [first, first + count]).tolist()
                if low == high:
                    first += count
                    continue
            elif kind != _DICTIONARY_PAGE:
                continue
            content = self._content(start, stored)
            if self._verify_checksums and crc >= 0 and checksum_of(content) != crc:
                raise ValueError("a page's checksum is another one")
            # A page larger than its column is PyArrow's to judge: a footer may be careless, or the header damaged.
            is_simple = size <= chunk.total_uncompressed_size and header[7] == 0
            levels_size = header[6] + header[7] if kind == _SECOND_DATA_PAGE else 0
            if levels_size > min(stored, size):
                raise ValueError("the levels of a page end beyond it")
            levels, values = content.slice(0, levels_size), content.slice(levels_size)
            if (
                codec is not None
                and is_simple
                and values.size
                and (kind != _SECOND_DATA_PAGE or header[8])
            ):
                values = codec.decompress(values, size - levels_size)
            yield _Page(
                kind=kind, encoding=header[5], count=count, first=first, low=low, high=high,
                levels=levels, values=values,
                is_simple=is_simple and (kind != _DATA_PAGE or header[10] == RLE),
            )  # fmt: skip
            if kind != _DICTIONARY_PAGE:
                first += count
        if first != chunk.num_values:
            raise ValueError("the pages of a column have other rows than its row group")

    def _content(self, at: int, size: int) -> pa.Buffer:
        """Read bytes, which stay until the next ones are read: memory that is used again is fast."""
        if len(self._space) < size:
            self._space = bytearray(size)
        content = memoryview(self._space)[:size]
        self._source.seek(at)
        if self._source.readinto(content) != size:
            raise ValueError("the file ends within a page")
        return pa.py_buffer(content)

    def _header(self, at: int, end: int) -> int:
        """Read the facts of the header at a place; return where its page begins. ValueError if there is none."""
        size = _HEADER_BYTES
        while True:
            data = pa.py_buffer(self._source.read_at(min(size, end - at), at))
            start, stop = data.address, data.address + data.size
            begins = int(page_header(start, stop, self._facts_at))
            if begins >= 0:
                return at + begins - int(start)
            if data.size < size or size >= _MOST_HEADER_BYTES:
                raise ValueError("the header of a page cannot be read")
            size *= 32  # it holds long statistics

    def _flat_elements(self) -> dict[str, Any]:
        if self._elements is None:
            size = self._source.size()
            length = int.from_bytes(self._source.read_at(4, size - _TRAILER_BYTES), "little")
            start = size - _TRAILER_BYTES - length
            self._elements = flat_columns(self._source.read_at(length, start))
        return self._elements


def _layout(physical_type: str, length: int) -> tuple[int, int]:
    if physical_type == "BOOLEAN":
        return BITS, 0
    if physical_type == "BYTE_ARRAY":
        return TEXT, 0
    return FIXED, _WIDTHS.get(physical_type, length)


@record
class _Page:
    """A page laid open: of rows from `first` on, of which those from `low` to `high` are wanted."""

    kind: int
    encoding: int
    count: int
    first: int
    low: int
    high: int
    levels: pa.Buffer
    values: pa.Buffer
    is_simple: bool


class _Cut:
    """The wanted rows of one column, gathered page by page."""

    def __init__(self, kind: int, width: int, rows: Longs, *, has_levels: bool) -> None:
        self._kind = kind
        self._width = width
        self._rows_at = address_of(rows)
        self._ranks = np.empty(len(rows), np.int64)
        self._ranks_at = address_of(self._ranks)
        self._flags: Bytes | None = np.empty(len(rows), np.uint8) if has_levels else None
        self._flags_at = 0 if self._flags is None else address_of(self._flags)
        self._pieces: list[tuple[int, int, pa.Buffer]] = []
        self.dictionary: tuple[int, bytes] | None = None

    def take(self, page: _Page) -> bool:
        """Copy the wanted rows of a page; False if this page is of a kind that is not known here."""
        if not page.is_simple:
            return False
        if page.kind == _DICTIONARY_PAGE:
            self.dictionary = page.count, page.values.to_pybytes()  # the next page takes its place
            return page.encoding in (PLAIN, _PLAIN_DICTIONARY)
        found = self._values(page)
        if found is None:
            return False
        kind, width, where = found
        count = page.high - page.low
        flags = self._flags_at and self._flags_at + page.low
        room = {NUMBERS: 4, BITS: 1, FIXED: width}.get(kind, 0) * count
        room = room or 2 * count * page.values.size // max(1, page.count) + 64
        while True:
            made = pa.allocate_buffer(room)
            written = cut_rows(
                *where, kind, width, self._rows_at + 8 * page.low, count, page.first,
                flags, self._ranks_at, made.address, room,
            )  # fmt: skip
            if written != NO_ROOM:
                break
            room *= 4
        self._pieces.append((kind, page.high, made.slice(0, max(0, int(written)))))
        return bool(written >= 0)

    def _values(self, page: _Page) -> tuple[int, int, tuple[int, int, int, int]] | None:
        """Return how values of a page lie, their width, and where levels and values begin and end."""
        start, end = page.values.address, page.values.address + page.values.size
        levels = levels_end = 0
        if self._flags is not None and page.kind == _DATA_PAGE:
            if start + 4 > end:
                return None
            (size,) = struct.unpack_from("<I", page.values)
            levels, start = start + 4, start + 4 + size
            levels_end = start
        elif self._flags is not None:
            levels, levels_end = page.levels.address, page.levels.address + page.levels.size
        if start > end:
            return None
        if page.encoding == PLAIN:
            return self._kind, self._width, (levels, levels_end, start, end)
        if page.encoding not in (_PLAIN_DICTIONARY, RLE_DICTIONARY) or self.dictionary is None:
            return None
        width = 0 if start == end else memoryview(page.values)[start - page.values.address]
        if width > _WIDEST_NUMBER:
            return None
        return NUMBERS, width, (levels, levels_end, min(start + 1, end), end)

    def finished(self) -> Iterator[CutPage]:
        """Yield the wanted rows as pages, one for each change of encoding."""
        first = 0
        for is_numbers, pieces in groupby(self._pieces, lambda piece: piece[0] == NUMBERS):
            kinds, ends, values = zip(*pieces, strict=True)
            last = ends[-1]
            yield CutPage(
                encoding=RLE_DICTIONARY if is_numbers else PLAIN,
                row_count=last - first,
                levels=None if self._flags is None else self._flags[first:last],
                values=_as_stored(kinds[0], b"".join(values)),
            )
            first = last


def _as_stored(kind: int, values: bytes) -> bytes:
    """Return what was cut out as a page holds it."""
    if kind == BITS:
        return np.packbits(np.frombuffer(values, np.uint8), bitorder="little").tobytes()
    if kind != NUMBERS:
        return values
    groups = -(-len(values) // (_GROUP * 4))
    content = values.ljust(groups * _GROUP * 4, b"\0")
    return bytes([_WIDEST_NUMBER]) + packed_run(groups) + content

"""Some rows of a row group without the pages that hold none of them: neither read nor decoded.

The pages that do hold some are put together, as they are, into a Parquet file in memory, which PyArrow
reads with all its checks. Columns whose pages end at different rows go into files of their own.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.base.record import record
from lsm_engine.io.page_file import CODECS, PageHeader, file_of_pages, flat_columns
from lsm_engine.kernels.arrow_views import Longs

_PAGE_ROWS = 20_000
"""Rows of a page as PyArrow writes them, and other clients at most."""
_HEADER_BYTES = 512
_MOST_HEADER_BYTES = 1 << 20
_TRAILER_BYTES = 8


def pays(rows: Longs, row_count: int) -> bool:
    """Whether so few pages hold some rows of a row group that looking for them is worth it."""
    pages = -(-row_count // _PAGE_ROWS)
    return 2 * len(np.unique(rows // _PAGE_ROWS)) <= pages


class PageReader:
    """Reads rows of one open file by its pages. `source`: of PyArrow, so that reads need no seek."""

    def __init__(self, source: Any, footer: "pq.FileMetaData") -> None:
        self._source = source
        self._footer = footer
        self._elements: dict[str, Any] | None = None

    @property
    def can_cut(self) -> bool:
        """Whether pages of this file can be taken apart: it lies here, and its types are Parquet's own."""
        members = self._footer.metadata or {}
        return isinstance(self._source, pa.NativeFile) and b"ARROW:schema" not in members

    def files(
        self, group: int, leaves: dict[str, int], rows: Longs
    ) -> "Iterator[tuple[pa.Buffer, Longs]] | None":
        """Return files whose columns together are those of `leaves`, and where `rows` are in each.

        `leaves`: flat columns by name, and their positions. None where a column's pages are of a kind
        that is not taken apart.
        """
        elements = self._flat_elements()
        metadata = self._footer.row_group(group)
        alike: dict[tuple[tuple[int, int], ...], list[_Cut]] = {}
        for name, leaf in leaves.items():
            cut = self._cut(name, metadata.column(leaf), rows)
            if cut is None or name not in elements:
                return None
            alike.setdefault(cut.stretches, []).append(cut)
        return (self._file(cuts, rows) for cuts in alike.values())

    def _file(self, cuts: "Sequence[_Cut]", rows: Longs) -> tuple[pa.Buffer, Longs]:
        stretches = cuts[0].stretches
        firsts = np.array([first for first, _ in stretches], np.int64)
        counts = [count for _, count in stretches]
        begins = np.array(list(accumulate(counts[:-1], initial=0)), np.int64)
        at = np.searchsorted(firsts, rows, side="right") - 1
        elements = self._flat_elements()
        made = file_of_pages(
            elements[""],
            [(elements[cut.name], cut.chunk, cut.pages) for cut in cuts],
            row_count=sum(counts),
        )
        return pa.py_buffer(made), begins[at] + rows - firsts[at]

    def _cut(self, name: str, chunk: "pq.ColumnChunkMetaData", rows: Longs) -> "_Cut | None":
        """Walk through all pages of a column, as headers have no checksum; keep those that hold rows."""
        if chunk.compression not in CODECS:
            return None
        at = chunk.data_page_offset
        if chunk.dictionary_page_offset:
            at = min(at, chunk.dictionary_page_offset)
        end = at + chunk.total_compressed_size
        pages: list[bytes] = []
        stretches: list[tuple[int, int]] = []
        first = 0
        while at < end:
            header = self._header(at)
            size = header.byte_count + header.stored_bytes
            if at + size > end:
                raise ValueError("a page ends beyond its column")
            if header.is_dictionary:
                pages.append(self._source.read_at(size, at))
            elif header.row_count is None:
                return None
            else:
                after = first + header.row_count
                low, high = np.searchsorted(rows, [first, after])
                if low < high:
                    pages.append(self._source.read_at(size, at))
                    stretches.append((first, header.row_count))
                first = after
            at += size
        if first != chunk.num_values:
            raise ValueError("the pages of a column have other rows than its row group")
        return _Cut(name=name, chunk=chunk, pages=pages, stretches=tuple(stretches))

    def _header(self, at: int) -> PageHeader:
        size = _HEADER_BYTES
        while True:
            try:
                return PageHeader.of(self._source.read_at(size, at))
            except IndexError:  # it holds long statistics
                if size >= _MOST_HEADER_BYTES:
                    raise
                size *= 32

    def _flat_elements(self) -> dict[str, Any]:
        if self._elements is None:
            size = self._source.size()
            length = int.from_bytes(self._source.read_at(4, size - _TRAILER_BYTES), "little")
            start = size - _TRAILER_BYTES - length
            self._elements = flat_columns(self._source.read_at(length, start))
        return self._elements


@record
class _Cut:
    """Pages of one column, and for each data page its first row and how many it has."""

    name: str
    chunk: Any
    pages: list[bytes]
    stretches: tuple[tuple[int, int], ...]

"""Some rows of a row group by their positions: of each column only the pages that hold one are decompressed.

Of such a page the rows are copied to where Arrow wants them. Columns whose type, encoding or compression is not
known here are left to PyArrow, which decodes all of their rows."""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.base.record import record
from lsm_engine.format.checksum import checksum_of
from lsm_engine.kernels.arrow_views import Bytes, Longs, address_of
from lsm_engine.kernels.parquet_pages import (
    BIG_ENDIAN,
    BITS,
    COLUMN_FACTS,
    DICTIONARY_PAGE,
    FIXED,
    INT96,
    PAGE_FACTS,
    TEXT,
    UNFINISHED,
    UNKNOWN,
    ColumnLimits,
    PageTable,
    RowNumbers,
    copy_texts,
    cut_rows,
    next_pages,
    place_texts,
    varint_at,
)

# -- Rows of one column, cut out of its pages ------------------------------------------------------

_WIDTHS = {"INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
_ALIGNED = 64  # as Arrow wants its buffers
_NO_PLACES = np.empty(0, np.int64)
_NO_TEXT = np.empty(0, np.uint8)
_MOST_TEXT_BYTES = 2**31 - 1
"""The greatest offset of 32 bits."""


@record
class PageLayout:
    """How the values of a column lie in its pages, and their Arrow type."""

    type: pa.DataType
    kind: int
    width: int
    size: int
    has_levels: bool

    @property
    def is_text(self) -> bool:
        """Whether values are of any length."""
        return self.kind == TEXT


def layout_of(column: "pq.ColumnSchema", kind: pa.DataType) -> PageLayout | None:
    """Return how a column that PyArrow reads as a type lies in pages; None: it is not known here."""
    stored_layout = _stored_as(column.physical_type, column.length, kind)
    # Repeated and nested values need levels that this decoder does not read.
    if stored_layout is None or column.max_repetition_level or column.max_definition_level > 1:
        return None
    stored, width, size = stored_layout
    return PageLayout(
        type=kind,
        kind=stored,
        width=width,
        size=size,
        has_levels=bool(column.max_definition_level),
    )


def _stored_as(physical_type: str, length: int, kind: pa.DataType) -> tuple[int, int, int] | None:
    """Return the kind of values, the width of one as it is stored, and its size in Arrow."""
    types = pa.types
    match physical_type:
        case "BOOLEAN":
            return (BITS, 0, 1) if types.is_boolean(kind) else None
        case "BYTE_ARRAY":
            return (TEXT, 0, 0) if types.is_string(kind) or types.is_binary(kind) else None
        case "INT96":
            return (INT96, 12, 8) if kind == pa.timestamp("ns") else None
        case "FIXED_LEN_BYTE_ARRAY" if types.is_decimal(kind):
            size = kind.bit_width // 8
            return (BIG_ENDIAN, length, size) if 0 < length <= size else None
        case "FIXED_LEN_BYTE_ARRAY":
            return (FIXED, length, length) if length and types.is_fixed_size_binary(kind) else None
        case _:
            # Decimals of up to 18 digits are stored as plain integers.
            if not (types.is_primitive(kind) or types.is_decimal(kind)):
                return None
            return FIXED, _WIDTHS[physical_type], kind.bit_width // 8


class WantedRows:
    """Numbers of rows in a row group, ascending, and memory for what is found of them, column by column."""

    def __init__(self, rows: Longs, layouts: Iterable[PageLayout]) -> None:
        self._rows = rows
        self._ranks: Longs = np.empty(len(rows), np.int64)
        self.address = address_of(rows)
        self.ranks_address = address_of(self._ranks)
        room = sum(map(self._room, layouts))
        self._space: Bytes = np.empty(room + _ALIGNED, np.uint8)
        start = address_of(self._space)
        self._used = -start % _ALIGNED
        self._start = start

    def __len__(self) -> int:
        return len(self._rows)

    def _room(self, layout: PageLayout) -> int:
        count = len(self)
        sizes = (count * layout.has_levels, count * layout.size, 4 * (count + 1) * layout.is_text)
        return sum(map(_aligned, (*sizes, 8 * COLUMN_FACTS)))

    def memory(self, size: int) -> tuple[Bytes, int]:
        """Return memory of one of the columns, and where it lies."""
        start = self._used
        self._used += _aligned(size)
        return self._space[start : start + size], self._start + start


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


class CutColumn:
    """The wanted rows of one column.

    `is_known`: False once pages come that are not known here, or more text than an array holds; what comes
    then changes nothing.
    """

    def __init__(self, layout: PageLayout, rows: WantedRows) -> None:
        self.is_known = True
        self._layout = layout
        self._wanted = rows
        count = len(rows)
        self._flags, flags_at = rows.memory(count * layout.has_levels)
        self._values, self._values_at = rows.memory(count * layout.size)
        self._ends, ends_at = rows.memory(4 * (count + 1) * layout.is_text)
        self._ends[:4] = 0
        self._texts: list[Bytes] = []
        self._text_bytes = 0
        facts, self._facts_at = rows.memory(8 * COLUMN_FACTS)
        self._facts: Longs = facts.view(np.int64)
        self._facts[:] = (
            layout.kind, layout.width, layout.size, rows.address,
            flags_at if layout.has_levels else 0, rows.ranks_address, ends_at + 4, 0, 0, 0, 0,
        )  # fmt: skip
        self._ends_at = ends_at + 4
        self._dictionary: tuple[pa.Buffer, Longs] | None = None  # keeps what facts are addresses of

    def take_dictionary(self, count: int, values: pa.Buffer) -> None:
        """Take the dictionary, of so many values. Raises ValueError if there are fewer."""
        layout = self._layout
        # PyArrow reads a column whose dictionary is not of the expected form.
        if layout.kind == BITS or count > values.size:
            self.is_known = False
            return
        values = pa.py_buffer(values.to_pybytes())  # other pages may take its place
        start, end = values.address, values.address + values.size
        places, places_at = _NO_PLACES, 0
        if layout.is_text:
            # The places of texts are found once, as every data page refers to them.
            places = np.empty(count, np.int64)
            places_at = address_of(places)
            if place_texts(start, end, count, places_at) < 0:
                raise ValueError("a dictionary ends before its last value")
        self._dictionary = values, places
        self._facts[7:] = start, end, places_at, len(places)

    def copy(self, pages_at: int, count: int, rows: tuple[int, int]) -> None:
        """Copy the wanted rows of some decompressed pages.

        `pages_at`: where their facts lie (`PAGE_FACTS`); `rows`: from which to which of the wanted rows they have.
        Raises ValueError where a page ends too early.
        """
        size = int(cut_rows(pages_at, count, self._facts_at, self._values_at, self._text_bytes))
        if size < 0:
            raise ValueError("a page ends before its last value")
        self._text_bytes += size
        if self._text_bytes > _MOST_TEXT_BYTES:
            self.is_known = False
        elif size:
            low, high = rows
            texts = np.empty(size, np.uint8)
            places, ends = self._wanted.ranks_address + 8 * low, self._ends_at + 4 * low
            copy_texts(places, ends, high - low, address_of(texts))
            self._texts.append(texts)

    def finished(self) -> pa.ChunkedArray:
        """Return the rows."""
        layout = self._layout
        valid = None
        if layout.has_levels and not self._flags.all():
            valid = pa.py_buffer(np.packbits(self._flags, bitorder="little"))
        if layout.is_text:
            is_single = len(self._texts) == 1
            contents = [
                self._ends,
                self._texts[0] if is_single else np.concatenate([_NO_TEXT, *self._texts]),
            ]
        else:
            is_bits = layout.kind == BITS
            contents = [np.packbits(self._values, bitorder="little") if is_bits else self._values]
        buffers = [valid, *map(pa.py_buffer, contents)]
        return pa.chunked_array([pa.Array.from_buffers(layout.type, len(self._wanted), buffers)])


# -- Some rows of a row group by their positions ---------------------------------------------------

_PAGE_ROWS = 20_000
"""Rows of a page as PyArrow writes them, and other clients at most."""
_MOST_SHARE = 2
"""Of more rows than one in so many, decoding all is cheaper than choosing."""
_HEADER_BYTES, _MOST_HEADER_BYTES = 512, 1 << 20
_FEW_PAGES_BYTES, _MANY_PAGES_BYTES = 64 << 10, 1 << 20
"""How much is read at once where few pages of a column are wanted, and where most of them are."""
_TOGETHER_BYTES = 2 << 20
"""Bytes of pages that are decompressed together: they stay within the processor's caches."""
_WINDOW_PAGES = 64
_CODECS = {"UNCOMPRESSED", "SNAPPY", "ZSTD"}
"""Compressions whose bytes record how many come out of them: of others a damaged size would go unnoticed."""
_AHEAD_BYTES = 256 << 10
"""How much of the columns that follow a small one is read with it."""


class PageReader:
    """Reads rows of one open file by its pages.

    `source`: the open file; `schema`: as PyArrow reads it.
    """

    def __init__(
        self,
        source: Any,
        footer: "pq.FileMetaData",
        schema: pa.Schema,
        *,
        verify_checksums: bool = True,
    ) -> None:
        self._footer = footer
        self._schema = schema
        self._verify_checksums = verify_checksums
        self._is_near = isinstance(source, pa.NativeFile)
        self._layouts: dict[int, PageLayout | None] = {}
        self._codecs: dict[str, pa.Codec] = {}
        self._bytes = _FileBytes(source)
        self._state = np.empty(3, np.int64)
        self._state_at = address_of(self._state)
        self._found = np.empty((_WINDOW_PAGES, PAGE_FACTS), np.int64)
        self._found_at = address_of(self._found)
        self._pending = _PendingPages()

    @property
    def can_cut(self) -> bool:
        """Whether pages of this file can be taken apart: it lies here, and its types are Parquet's own."""
        return self._is_near and b"ARROW:schema" not in (self._footer.metadata or {})

    def pays(self, group: int, rows: Longs) -> bool:
        """Whether so few rows of a row group are wanted that choosing them is worth it, and can be done."""
        return self.can_cut and _MOST_SHARE * len(rows) <= self._footer.row_group(group).num_rows

    def rows(self, group: int, leaves: dict[str, int], rows: Longs) -> dict[str, pa.ChunkedArray]:
        """Return columns of some rows of a row group, which ascend, without those that cannot be cut.

        `leaves`: flat columns by name, and their positions. Raises ValueError or ArrowException for pages
        that are damaged.
        """
        metadata = self._footer.row_group(group)
        chunks = {name: metadata.column(leaf) for name, leaf in leaves.items()}
        layouts = {
            name: layout
            for name, leaf in leaves.items()
            if (layout := self._layout(name, leaf))
            and chunks[name].compression in _CODECS
            and chunks[name].num_values == metadata.num_rows
        }
        wanted_rows = WantedRows(np.ascontiguousarray(rows, np.int64), layouts.values())
        is_sparse = _are_few_pages(rows, metadata.num_rows)
        self._pending = _PendingPages()
        self._bytes.forget()
        cut = {name: CutColumn(layout, wanted_rows) for name, layout in layouts.items()}
        following = run_end = 0
        ahead: dict[str, int] = {}
        for name in reversed(cut):  # where the columns that lie one behind the other end
            start, end = _place(chunks[name])
            run_end = run_end if following == end else end
            ahead[name], following = run_end, start
        for name, column in cut.items():
            self._collect(
                chunks[name], layouts[name], column, wanted_rows, ahead[name], is_sparse=is_sparse
            )
        self._flush()
        return {name: column.finished() for name, column in cut.items() if column.is_known}

    def _layout(self, name: str, leaf: int) -> PageLayout | None:
        if leaf not in self._layouts:
            kind = self._schema.field(name).type
            self._layouts[leaf] = layout_of(self._footer.schema.column(leaf), kind)
        return self._layouts[leaf]

    def _codec(self, name: str) -> pa.Codec | None:
        if name != "UNCOMPRESSED" and name not in self._codecs:
            self._codecs[name] = pa.Codec(name.lower())
        return self._codecs.get(name)

    def _collect(
        self,
        chunk: "pq.ColumnChunkMetaData",
        layout: PageLayout,
        cut: CutColumn,
        rows: WantedRows,
        ahead: int,
        *,
        is_sparse: bool,
    ) -> None:
        """Have the pages of a column that hold wanted rows decompressed, together with those of other columns.

        `ahead`: up to where columns follow in the file that are read next. All headers are read: they have no
        checksum.
        """
        codec = self._codec(chunk.compression)
        offset, end = _place(chunk)
        count, most_bytes = chunk.num_values, chunk.total_uncompressed_size
        if end - offset > _FEW_PAGES_BYTES:
            # A large column is read in pieces, and what follows it is far away.
            ahead = 0
        least = _read_bytes(end - offset, count) if is_sparse else _MANY_PAGES_BYTES
        first, size = 0, least
        row_numbers = RowNumbers(rows.address, len(rows))
        page_table = PageTable(self._found_at, _WINDOW_PAGES)
        while offset < end and cut.is_known:
            window, start = self._read(offset, min(size, end - offset), ahead)
            self._state[1] = first
            column = ColumnLimits(
                start + end - offset, most_bytes, count, layout.has_levels, codec is not None
            )
            page_count = next_pages(
                start, start + len(window), column, row_numbers, self._state_at, page_table
            )
            after, first, ended = self._state.tolist()
            is_too_short = ended == UNFINISHED and after == start
            if ended == UNKNOWN or (
                is_too_short and (len(window) < size or size >= _MOST_HEADER_BYTES)
            ):
                # PyArrow reads a column whose headers this decoder does not understand.
                cut.is_known = False
                return
            # The header is longer than the window, so a larger window is read.
            if is_too_short:
                size *= 32  # it holds long statistics
                # Nothing was consumed, so the same offset is read again.
                continue
            pages = self._found[:page_count].copy()
            contents: list[memoryview] = []
            for facts in pages.tolist():
                begins, stored = facts[7] - start, facts[2]
                content = window[begins : begins + stored]
                if len(content) < stored:  # the last one goes on beyond the window
                    self._pending.add(cut, codec, pages[: len(contents)], contents)
                    pages, contents = pages[-1:], []
                    content, _ = self._read(offset + begins, stored)
                if self._verify_checksums and facts[3] >= 0 and checksum_of(content) != facts[3]:
                    raise ValueError("a page's checksum is another one")
                contents.append(content)
            self._pending.add(cut, codec, pages, contents)
            offset += after - start
            size = least
        # A page that was lost would shift the rows of all later pages.
        if cut.is_known and first != count:
            raise ValueError("the pages of a column have other rows than its row group")

    def _read(self, offset: int, size: int, ahead: int = 0) -> tuple[memoryview, int]:
        if not self._bytes.holds(offset, size) and not self._bytes.has_room(size):
            self._flush()
        return self._bytes.read(offset, size, ahead)

    def _flush(self) -> None:
        self._pending.flush()
        self._bytes.forget()


def _place(chunk: "pq.ColumnChunkMetaData") -> tuple[int, int]:
    """Return where a column begins in its file, and where it ends."""
    start = chunk.data_page_offset
    if chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _read_bytes(stored_bytes: int, row_count: int) -> int:
    """Return how much of a column to read at once where few pages are wanted: of large ones headers alone."""
    has_large_pages = 2 * stored_bytes * _PAGE_ROWS > _FEW_PAGES_BYTES * row_count
    return _HEADER_BYTES if has_large_pages else _FEW_PAGES_BYTES


def _are_few_pages(rows: Longs, row_count: int) -> bool:
    """Whether no more than half of the pages of a column hold some of its rows."""
    page_count = 1 + np.count_nonzero(np.diff(rows // _PAGE_ROWS))
    return bool(2 * page_count <= -(-row_count // _PAGE_ROWS))


class _PendingPages:
    """Pages of one or more columns that are decompressed together."""

    def __init__(self) -> None:
        self._codec: pa.Codec | None = None
        self._columns: list[tuple[CutColumn, Any]] = []
        self._contents: list[memoryview] = []
        self._size = 0

    def add(
        self, cut: CutColumn, codec: "pa.Codec | None", pages: Any, contents: list[memoryview]
    ) -> None:
        """Add pages of a column: int64[n, PAGE_FACTS], and what follows their headers."""
        # The window held headers of pages that no row needs.
        if not contents:
            return
        # One call decompresses pages of one codec only.
        if codec is not self._codec or self._size > _TOGETHER_BYTES:
            self.flush()
            self._codec = codec
        self._columns.append((cut, pages))
        self._contents += contents
        self._size += pages[:, 1].sum()

    def flush(self) -> None:
        """Decompress these pages, and copy their wanted rows to their columns."""
        if not self._columns:
            return
        pages = np.concatenate([column_pages for _, column_pages in self._columns])
        values = self._decompressed(pages)  # they are to stay until their texts are copied
        address, first = address_of(pages), 0
        for cut, column_pages in self._columns:
            last = first + len(column_pages)
            # The dictionary comes first in its column, and the pages after it need it.
            if cut.is_known and column_pages[0, 0] == DICTIONARY_PAGE:
                cut.take_dictionary(int(column_pages[0, 4]), values[first])
                first += 1
            if cut.is_known and first < last:
                rows = int(pages[first, 9]), int(pages[last - 1, 10])
                cut.copy(address + 8 * PAGE_FACTS * first, last - first, rows)
            first = last
        self._columns, self._contents, self._size = [], [], 0

    def _decompressed(self, pages: Any) -> list[pa.Buffer]:
        """Return pages as they were before they were stored, and note where they lie.

        Frames of zstd in a row are as good as one (RFC 8878, 3): together they need its tables and memory once.
        """
        codec, contents, sizes = self._codec, self._contents, pages[:, 1].tolist()
        if codec is not None and codec.name == "zstd" and len(sizes) > 1:
            joined = codec.decompress(b"".join(contents), sum(sizes))
            starts = accumulate(sizes[:-1], initial=0)
            values = [joined.slice(start, size) for start, size in zip(starts, sizes, strict=True)]
        elif codec is not None:
            values = [_decompressed(codec, *value) for value in zip(contents, sizes, strict=True)]
        else:
            values = [pa.py_buffer(content) for content in contents]
        pages[:, 11] = [value.address for value in values]
        return values


def _decompressed(codec: pa.Codec, content: memoryview, size: int) -> pa.Buffer:
    if codec.name == "snappy":  # zstd compares the size that it records by itself
        address = pa.py_buffer(content).address
        if varint_at(address, address + len(content))[0] != size:
            raise ValueError("a page is of another size than its header states")
    return codec.decompress(content, size)


class _FileBytes:
    """Parts of a file, one behind the other in memory that is used again, as such memory is fast."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._space = memoryview(b"")
        self._address = 0
        self._used = 0
        self._newest = range(0)
        self._newest_at = 0

    def has_room(self, size: int) -> bool:
        return self._used + size <= len(self._space)

    def holds(self, offset: int, size: int) -> bool:
        """Whether bytes were read with those before them."""
        return self._newest.start <= offset and offset + size <= self._newest.stop

    def forget(self) -> None:
        """Let what was read be overwritten."""
        self._used = 0
        self._newest = range(0)

    def read(self, offset: int, size: int, ahead: int) -> tuple[memoryview, int]:
        """Return bytes from `at` on, and where they lie in memory; ValueError if the file ends before.

        `ahead`: up to where more of the file may be read, to be held.
        """
        if not self.holds(offset, size):
            self._read(offset, size, min(ahead - offset, size + _AHEAD_BYTES))
        start = self._newest_at + offset - self._newest.start
        return self._space[start : start + size], self._address + start

    def _read(self, offset: int, size: int, most: int) -> None:
        if not self.has_room(size):
            assert not self._used, "parts that were read are in use"
            space = np.empty(max(size, _MANY_PAGES_BYTES), np.uint8)
            self._space, self._address = space.data, address_of(space)
        end = min(self._used + max(size, most), len(self._space))
        self._source.seek(offset)
        read_count = self._source.readinto(self._space[self._used : end])
        if read_count < size:
            raise ValueError("the file ends within a page")
        self._newest, self._newest_at = range(offset, offset + read_count), self._used
        self._used += read_count

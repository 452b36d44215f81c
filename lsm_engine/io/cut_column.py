"""Wanted rows of one column, gathered page by page and handed out as an Arrow array."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bytes, Longs, address_of
from lsm_engine.kernels.page_rows import (
    BIG_ENDIAN,
    BITS,
    COLUMN_FACTS,
    FIXED,
    INT96,
    TEXT,
    copy_texts,
    cut_rows,
    place_texts,
)

_WIDTHS = {"INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
_ALIGNED = 64  # as Arrow wants its buffers
_NO_PLACES = np.empty(0, np.int64)
_NO_TEXT = np.empty(0, np.uint8)
_MOST_TEXT_BYTES = 2**31 - 1
"""What offsets of 32 bits reach."""


@record
class PageLayout:
    """How values of a column lie in its pages (`page_rows`), and the Arrow type that they are of."""

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
        if layout.kind == BITS or count > values.size:
            self.is_known = False
            return
        values = pa.py_buffer(values.to_pybytes())  # other pages may take its place
        start, end = values.address, values.address + values.size
        places, places_at = _NO_PLACES, 0
        if layout.is_text:
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

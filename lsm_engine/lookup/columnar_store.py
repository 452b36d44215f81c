"""The columnar store: mapped Arrow columns, and the sorted keys as arrays. Nothing is decoded.

    magic "LSMCOL01", then an Arrow IPC stream of the rows in the data file's order
    first words of the keys, second words, offsets (each 8 bytes a row), bytes, as SortKeys has them
    footer (80 bytes): format, rows, key width, and where each part starts; CRC-32 of all before it

The checksum is verified when the file is opened; whether the file was touched since, with each batch
of keys (decisions/0010)."""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.cache.disk import Accesses
from lsm_engine.format.checksum import checksum_of
from lsm_engine.kernels.arrow_views import Longs, address_of
from lsm_engine.kernels.compiled import (
    compiled,
    compiled_with,
    load_i64,
    load_u8,
    load_u64,
    store_u64,
)
from lsm_engine.kernels.keys import ONE_WORD, TWO_WORDS, WORDS_AND_BYTES, SortKeys
from lsm_engine.lookup.key_batch import KeyBatch, SearchKeys, ascending, locate
from lsm_engine.lookup.store import Fetched, Handles, MappedFile
from lsm_engine.options.modes import RETRACTS
from lsm_engine.types.table_schema import VALUE_KIND

_MAGIC = b"LSMCOL01"
_FOOTER = struct.Struct("<8sqqqqqqqqII")
_ALIGNMENT = 64
_CHUNK_BYTES = 1 << 24


class _Sink:
    """Writes and keeps count, checksum and alignment."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.size = 0
        self.checksum = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B") if not isinstance(data, bytes) else data
        for offset in range(0, len(view), _CHUNK_BYTES):
            piece = view[offset : offset + _CHUNK_BYTES]
            self._sink.write(piece)
            self.checksum = checksum_of(piece, self.checksum)
        self.size += len(view)
        return len(view)

    def align(self) -> int:
        self.write(bytes(-self.size % _ALIGNMENT))
        return self.size

    def flush(self) -> None:
        """The owner flushes."""

    def close(self) -> None:
        """The owner closes."""


def write_columnar(
    sink: BinaryIO,
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    keys_of: Callable[[pa.RecordBatch], SortKeys],
    *,
    data_file: str,
) -> None:
    """Write a store; batches come in the order of the data file, whose rows are in key order.

    Of the rows only the keys are held. Raises CorruptFileError, naming the data file, if its keys
    descend.
    """
    out = _Sink(sink)
    out.write(_MAGIC)
    sort_keys: list[SortKeys] = []
    with pa.ipc.new_stream(out, schema) as writer:
        for batch in batches:
            sort_keys.append(keys_of(batch))
            writer.write_batch(batch.select(schema.names))
    keys = _concatenated(sort_keys)
    sorted_, _ = ascending(SearchKeys.from_sort_keys(keys))
    if not sorted_:
        raise CorruptFileError(
            "the rows of the data file are not in key order; restore it, or run verify",
            file=data_file,
        )
    starts = []
    for part in (keys.prefix, keys.second, keys.offsets, keys.data):
        starts.append(out.align())
        out.write(np.ascontiguousarray(part))
    end = out.size
    form = keys.form if len(keys) else 0
    footer = _FOOTER.pack(_MAGIC, form, len(keys), keys.width, *starts, end, 0, 0)
    footer = footer[:-8]
    out.write(footer)
    sink.write(struct.pack("<II", out.checksum, 0))


def _concatenated(keys: Sequence[SortKeys]) -> SortKeys:
    keys = [batch for batch in keys if len(batch)]
    if not keys:
        # Without keys the form does not matter.
        return SortKeys(prefix=np.zeros(0, np.uint64))
    # One batch needs no copy of its keys.
    if len(keys) == 1:
        return _from_zero(keys[0])
    parts = [_from_zero(batch) for batch in keys]
    arrays = {
        "prefix": np.concatenate([part.prefix for part in parts]),
        "second": np.concatenate([part.second for part in parts]),
    }
    if parts[0].form == WORDS_AND_BYTES:
        begins = np.cumsum([0, *(len(part.data) for part in parts)])
        offsets = [part.offsets[:-1] + begin for part, begin in zip(parts, begins, strict=False)]
        arrays["data"] = np.concatenate([part.data for part in parts])
        arrays["offsets"] = np.concatenate([*offsets, begins[-1:]])
    return SortKeys(**arrays, width=parts[0].width)


def _from_zero(keys: SortKeys) -> SortKeys:
    """Return keys whose bytes begin with the first row's."""
    # Keys of one or two words have no bytes to move.
    if keys.form != WORDS_AND_BYTES:
        return keys
    start, stop = int(keys.offsets[0]), int(keys.offsets[-1])
    return SortKeys(
        prefix=keys.prefix,
        second=keys.second,
        data=keys.data[start:stop],
        offsets=keys.offsets - start,
        width=keys.width,
    )


class ColumnarStore:
    """Mapped columns and sorted keys. A handle is the row's position in the data file."""

    def __init__(self, data: pa.Buffer, path: str) -> None:
        self.path = path
        self.accesses = Accesses()
        self._data = data
        parts = _laid_open(data, path)
        self.keys = parts.keys
        self.search = SearchKeys.from_sort_keys(self.keys)
        try:
            with pa.ipc.open_stream(data.slice(len(_MAGIC), parts.stream_end)) as reader:
                self.schema = reader.schema
                self.batches = tuple(batch for batch in reader if batch.num_rows)
        except (pa.ArrowException, OSError) as cause:
            raise _damaged(path) from cause
        counts = [batch.num_rows for batch in self.batches]
        # Keys without their rows would return values of other keys.
        if sum(counts) != len(self.keys):
            raise _damaged(path)
        self._begins = np.cumsum([0, *counts])[:-1]
        self._mapped = MappedFile(path)
        self._selected = lru_cache(maxsize=16)(self._select)

    def find(self, batch: KeyBatch, pending: Longs) -> Handles:
        """Look up keys: one pass over both, as both are sorted."""
        rows = locate(self.search, batch.search, pending)
        return Handles(first=rows.first, last=rows.last)

    def fetch(self, handles: Longs, names: Sequence[str]) -> Fetched:
        """Return rows where they lie in the mapped file."""
        sources = self._selected(tuple(names))
        # One batch holds all rows, so no search for the batch is needed.
        if len(sources) == 1:
            run = np.zeros(len(handles), np.uint16)
            return Fetched(sources=sources, run=run, row=handles.astype(np.int32))
        batch = np.searchsorted(self._begins, handles, side="right") - 1
        rows = (handles - self._begins[batch]).astype(np.int32)
        return Fetched(sources=sources, run=batch.astype(np.uint16), row=rows)

    def positions(self, handles: Longs) -> Longs:
        """Return the handles themselves."""
        return handles

    def check(self) -> None:
        """Raise CorruptFileError if the file was changed; one that was removed remains mapped."""
        self._mapped.check()

    def _select(self, names: tuple[str, ...]) -> tuple[pa.RecordBatch, ...]:
        return tuple(batch.select(list(names)) for batch in self.batches)


class _Parts:
    def __init__(self, keys: SortKeys, stream_end: int) -> None:
        self.keys = keys
        self.stream_end = stream_end


def _laid_open(data: pa.Buffer, path: str) -> _Parts:
    if data.size < len(_MAGIC) + _FOOTER.size:
        raise _damaged(path)
    view = memoryview(data)
    footer_at = data.size - _FOOTER.size
    magic, form, rows, width, *starts, end, stored, _ = _FOOTER.unpack_from(view, footer_at)
    checksum = 0
    for offset in range(0, data.size - 8, _CHUNK_BYTES):
        checksum = checksum_of(view[offset : min(offset + _CHUNK_BYTES, data.size - 8)], checksum)
    if magic != _MAGIC or stored != checksum or bytes(view[:8]) != _MAGIC:
        raise _damaged(path)
    # The checksum vouches for the footer: nothing below can lie outside the file.
    prefix, second, offsets, octets = starts
    count = rows if form in (TWO_WORDS, WORDS_AND_BYTES) else 0
    has_bytes = form == WORDS_AND_BYTES
    assert form in (0, ONE_WORD, TWO_WORDS, WORDS_AND_BYTES), form
    keys = SortKeys(
        prefix=np.frombuffer(view, np.uint64, rows, prefix),
        second=np.frombuffer(view, np.uint64, count, second),
        offsets=np.frombuffer(view, np.int64, rows + 1 if has_bytes else 0, offsets),
        data=np.frombuffer(view, np.uint8, end - octets if has_bytes else 0, octets),
        width=width,
    )
    return _Parts(keys, prefix - len(_MAGIC))


def _damaged(path: str) -> CorruptFileError:
    return CorruptFileError("a lookup file is damaged; it is built anew", file=path)


# -- Cells -----------------------------------------------------------------------------------------
#
# One value of an Arrow column as a Python object, in well under a microsecond for all usual
# types.

CellReader: TypeAlias = Callable[[int], object]

_NUMBERS = {
    pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q", pa.float32(): "f", pa.float64(): "d",
}  # fmt: skip
_WIDTHS = {"b": 1, "h": 2, "i": 4, "q": 8, "f": 4, "d": 8}
_OFFSETS = {pa.string(): "i", pa.binary(): "i", pa.large_string(): "q", pa.large_binary(): "q"}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 -- of times without a zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROS = {pa.timestamp("s"): 1_000_000, pa.timestamp("ms"): 1_000, pa.timestamp("us"): 1}
_DIGITS = Context(prec=76)
_TEXTS = (pa.string(), pa.large_string())


def cell_reader(column: pa.Array) -> CellReader:
    """Return what reads a row of a column: the object that `as_py` gives, None for null. Keeps the column."""
    read = _values(column)
    if read is None:
        # Arrow reads the types that this module has no reader for.
        return lambda row: column[row].as_py()
    bits = column.buffers()[0]
    if bits is None or not column.null_count:
        return read
    begin, valid = column.offset, memoryview(bits).cast("B")

    def read_valid(row: int) -> object:
        offset = begin + row
        return read(row) if valid[offset >> 3] >> (offset & 7) & 1 else None

    return read_valid


def _values(column: pa.Array) -> CellReader | None:
    """Return what reads a row that is not null; None for types that Arrow itself is to read."""
    kind, first, count = column.type, column.offset, len(column)
    # An empty column may have no buffers.
    if not count:
        return None
    if kind in _NUMBERS:
        read: CellReader = _numbers(column, _NUMBERS[kind]).__getitem__
        return read
    if kind == pa.date32():
        days = _numbers(column, "i")
        return lambda row: date.fromordinal(_EPOCH_DAY + days[row])
    if kind in _MICROS:
        ticks, micros = _numbers(column, "q"), _MICROS[kind]
        return lambda row: _EPOCH + timedelta(microseconds=ticks[row] * micros)
    if pa.types.is_decimal128(kind):
        data, scale = memoryview(column.buffers()[1]).cast("B")[16 * first :], -kind.scale
        return lambda row: _DIGITS.scaleb(
            Decimal(int.from_bytes(data[16 * row : 16 * row + 16], "little", signed=True)), scale
        )
    if kind in _OFFSETS:
        _, offsets, data = column.buffers()
        return _pieces(
            _laid_open_cells(offsets, _OFFSETS[kind])[first:],
            memoryview(b"" if data is None else data).cast("B"),
            is_text=kind in _TEXTS,
        )
    return None


def _numbers(column: pa.Array, code: str) -> Any:
    return _laid_open_cells(column.buffers()[1], code)[column.offset : column.offset + len(column)]


def _pieces(begins: Any, data: memoryview, *, is_text: bool) -> CellReader:
    if is_text:
        return lambda row: str(data[begins[row] : begins[row + 1]], "utf-8")
    return lambda row: bytes(data[begins[row] : begins[row + 1]])


def _laid_open_cells(buffer: pa.Buffer, code: Any) -> Any:
    view = memoryview(buffer).cast("B")
    return view[: len(view) // _WIDTHS[code] * _WIDTHS[code]].cast(code)


# -- One key at a time: all stores of a bucket searched in one compiled call, newest first ---------

Places: TypeAlias = npt.NDArray[np.int64]
"""A row per store: where its words, second words, bytes and offsets lie, how many keys it has, where it
counts accesses, the words of its first and last key.
"""
_PLACE_BYTES = 64
_HALVINGS = 20  # in which a million keys are searched

_WORD_BYTES = 16
_PADDING = bytes(_WORD_BYTES)
_unpacked = struct.Struct(">qq").unpack_from
_STORE_BITS = 40
_ROW_MASK = (1 << _STORE_BITS) - 1
_SELECTIONS = 16
"""Choices of columns whose readers are kept."""


class PointIndex:
    """The columnar stores of one bucket, in the order in which they are searched. Keeps them open."""

    def __init__(self, stores: Sequence[ColumnarStore]) -> None:
        self.stores = tuple(store for store in stores if len(store.keys))
        self._form = self.stores[0].search.form if self.stores else ONE_WORD
        self._places: Places = np.empty((len(self.stores), 8), np.int64)
        for row, store in zip(self._places, self.stores, strict=True):
            row[:4] = store.search.places
            row[4:6] = len(store.keys), address_of(store.accesses.points)
            row[6:] = store.keys.prefix[[0, -1]].view(np.int64)
        self._at, self._count = address_of(self._places), len(self._places)
        self._tables = [_Columns(store) for store in self.stores]

    def get(self, key: bytes, names: tuple[str, ...]) -> dict[str, Any] | None:
        """Return columns of the newest row of a key, in memcomparable bytes; None: no such row."""
        first, second = _unpacked(key + _PADDING)
        length, tail_address = len(key), 0
        # The key lies within two words, and the padding fills the rest.
        if length > _WORD_BYTES:
            key_bytes = np.frombuffer(key, np.uint8)
            tail_address = address_of(key_bytes)
        row: int = _find(self._form, self._at, self._count, first, second, tail_address, length)
        if row < 0:
            return None
        return self._tables[row >> _STORE_BITS].row(row & _ROW_MASK, names)


class _Columns:
    """Columns of one store, laid open once they are asked for."""

    def __init__(self, store: ColumnarStore) -> None:
        self._begins = [0]
        for batch in store.batches:
            self._begins.append(self._begins[-1] + batch.num_rows)
        self._batches = store.batches
        self._kinds = [cell_reader(batch.column(VALUE_KIND)) for batch in store.batches]
        self._readers: dict[tuple[str, ...], list[list[tuple[str, CellReader]]]] = {}

    def row(self, row: int, names: tuple[str, ...]) -> dict[str, Any] | None:
        batch = 0
        if len(self._batches) > 1:
            batch = bisect_right(self._begins, row) - 1
            row -= self._begins[batch]
        # A delete is the newest record, so the key has no row.
        if self._kinds[batch](row) in RETRACTS:
            return None
        readers = self._readers.get(names) or self._readers_of(names)
        return {name: read(row) for name, read in readers[batch]}

    def _readers_of(self, names: tuple[str, ...]) -> list[list[tuple[str, CellReader]]]:
        entries = [
            [(name, cell_reader(batch.column(name))) for name in names] for batch in self._batches
        ]
        if len(self._readers) < _SELECTIONS:
            self._readers[names] = entries
        return entries


def _halvings(form: int, places: int, stop: int, *_: Any) -> int:
    return _HALVINGS * stop


# Compiles in about 1 s. Everything is a number or an address: an array takes time to hand over.
@compiled_with(work=_halvings)
def _find(
    form: int, places: int, stop: int, first_word: int, two: int, key: int, length: int
) -> Any:
    first, second = np.uint64(first_word), np.uint64(two)
    for store in range(stop):
        place = places + _PLACE_BYTES * store
        # The bounds of the store exclude the key without a search.
        if first < load_u64(place + 48) or first > load_u64(place + 56):
            continue
        _count(load_i64(place + 40))
        words, count = load_i64(place), load_i64(place + 32)
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            word = load_u64(words + 8 * middle)
            below: Any = word < first
            # One word decides unless it is equal and longer keys exist.
            if word == first and form != ONE_WORD:
                below = _is_below(form, place, middle, second, key, length)
            if below:
                low = middle + 1
            else:
                high = middle
        searched = (first, second, key, length)
        if low < count and _equals(form, place, low, searched):
            # Where a file holds a key more than once, the last one is the newest.
            while low + 1 < count and _equals(form, place, low + 1, searched):
                low += 1
            _count(load_i64(place + 40) + 8)
            return (np.int64(store) << 40) | low
    return np.int64(-1)


@compiled
def _count(address: Any) -> None:
    store_u64(address, load_u64(address) + np.uint64(1))


@compiled
def _is_below(form: int, place: int, row: Any, second: Any, key: int, length: int) -> Any:
    word = load_u64(load_i64(place + 8) + 8 * row)
    # The remaining bytes matter only where both words are equal.
    if word != second or form == TWO_WORDS:
        return word < second
    offsets = load_i64(place + 24) + 8 * row
    start = load_i64(offsets)
    size = load_i64(offsets + 8) - start
    for offset in range(_WORD_BYTES, min(size, length)):
        byte = load_u8(load_i64(place + 16) + start + offset)
        if byte != load_u8(key + offset):
            return byte < load_u8(key + offset)
    return size < length


@compiled
def _equals(form: int, place: int, row: Any, searched: tuple[Any, Any, int, int]) -> bool:
    first, second, key, length = searched
    if load_u64(load_i64(place) + 8 * row) != first:
        return False
    if form == ONE_WORD:
        return True
    if load_u64(load_i64(place + 8) + 8 * row) != second:
        return False
    if form == TWO_WORDS:
        return True
    offsets = load_i64(place + 24) + 8 * row
    start = load_i64(offsets)
    # Keys of different lengths are different keys.
    if load_i64(offsets + 8) - start != length:
        return False
    for offset in range(_WORD_BYTES, length):
        if load_u8(load_i64(place + 16) + start + offset) != load_u8(key + offset):
            return False
    return True

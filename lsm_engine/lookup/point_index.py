"""One key at a time: all stores of a bucket searched in one compiled call, newest first."""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lsm_engine.base.modes import RETRACTS
from lsm_engine.kernels.arrow_views import Bytes, address_of
from lsm_engine.kernels.compiled import compiled, load_i64, load_u8, load_u64, store_u64
from lsm_engine.kernels.keys import ONE_WORD, TWO_WORDS
from lsm_engine.lookup.cells import CellReader, cell_reader
from lsm_engine.lookup.columnar_store import ColumnarStore
from lsm_engine.schema.table_schema import VALUE_KIND

Places: TypeAlias = npt.NDArray[np.int64]
"""A row per store: where its words, second words, bytes and offsets lie, how many keys it has, where it
counts accesses, the words of its first and last key. One array, as handing over a further one takes time.
"""

_WORD_BYTES = 16
_PADDING = bytes(_WORD_BYTES)
_SHORT: Bytes = np.frombuffer(_PADDING, np.uint8)
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
        self._tables = [_Columns(store) for store in self.stores]

    def get(self, key: bytes, names: tuple[str, ...]) -> dict[str, Any] | None:
        """Return columns of the newest row of a key, in memcomparable bytes; None: no such row."""
        first, second = _unpacked(key + _PADDING)
        rest = _SHORT if len(key) <= _WORD_BYTES else np.frombuffer(key, np.uint8)
        found: int = _find(self._form, self._places, first, second, rest, len(key))
        if found < 0:
            return None
        return self._tables[found >> _STORE_BITS].row(found & _ROW_MASK, names)


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
        if self._kinds[batch](row) in RETRACTS:
            return None
        readers = self._readers.get(names) or self._readers_of(names)
        return {name: read(row) for name, read in readers[batch]}

    def _readers_of(self, names: tuple[str, ...]) -> list[list[tuple[str, CellReader]]]:
        made = [
            [(name, cell_reader(batch.column(name))) for name in names] for batch in self._batches
        ]
        if len(self._readers) < _SELECTIONS:
            self._readers[names] = made
        return made


# Compiles in about 1 s.
@compiled
def _find(form: int, places: Places, one: int, two: int, key: Bytes, length: int) -> Any:
    first, second = np.uint64(one), np.uint64(two)
    for store in range(len(places)):
        if first < np.uint64(places[store, 6]) or first > np.uint64(places[store, 7]):
            continue
        _count(places[store, 5])
        words, count = places[store, 0], places[store, 4]
        low, high = np.int64(0), count
        while low < high:
            middle = (low + high) >> 1
            word = load_u64(words + 8 * middle)
            below: Any = word < first
            if word == first and form != ONE_WORD:
                below = _is_below(form, places, store, middle, second, key, length)
            if below:
                low = middle + 1
            else:
                high = middle
        if low < count and _equals(form, places, store, low, first, second, key, length):
            # Where a file holds a key more than once, the last one is the newest.
            while low + 1 < count and _equals(
                form, places, store, low + 1, first, second, key, length
            ):
                low += 1
            _count(places[store, 5] + 8)
            return (np.int64(store) << 40) | low
    return np.int64(-1)


@compiled
def _count(address: Any) -> None:
    store_u64(address, load_u64(address) + np.uint64(1))


@compiled
def _is_below(
    form: int, places: Places, store: int, row: Any, second: np.uint64, key: Bytes, length: int
) -> Any:
    word = load_u64(places[store, 1] + 8 * row)
    if word != second or form == TWO_WORDS:
        return word < second
    start = load_i64(places[store, 3] + 8 * row)
    size = load_i64(places[store, 3] + 8 * row + 8) - start
    for at in range(_WORD_BYTES, min(size, length)):
        byte = load_u8(places[store, 2] + start + at)
        if byte != key[at]:
            return byte < key[at]
    return size < length


@compiled
def _equals(
    form: int,
    places: Places,
    store: int,
    row: Any,
    first: np.uint64,
    second: np.uint64,
    key: Bytes,
    length: int,
) -> bool:
    if load_u64(places[store, 0] + 8 * row) != first:
        return False
    if form == ONE_WORD:
        return True
    if load_u64(places[store, 1] + 8 * row) != second:
        return False
    if form == TWO_WORDS:
        return True
    start = load_i64(places[store, 3] + 8 * row)
    if load_i64(places[store, 3] + 8 * row + 8) - start != length:
        return False
    for at in range(_WORD_BYTES, length):
        if load_u8(places[store, 2] + start + at) != key[at]:
            return False
    return True

"""One key at a time: all stores of a bucket searched in one compiled call, newest first."""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lsm_engine.base.modes import RETRACTS
from lsm_engine.kernels.arrow_views import address_of
from lsm_engine.kernels.compiled import (
    compiled,
    compiled_with,
    load_i64,
    load_u8,
    load_u64,
    store_u64,
)
from lsm_engine.kernels.keys import ONE_WORD, TWO_WORDS
from lsm_engine.lookup.cells import CellReader, cell_reader
from lsm_engine.lookup.columnar_store import ColumnarStore
from lsm_engine.schema.table_schema import VALUE_KIND

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
        if first < load_u64(place + 48) or first > load_u64(place + 56):
            continue
        _count(load_i64(place + 40))
        words, count = load_i64(place), load_i64(place + 32)
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            word = load_u64(words + 8 * middle)
            below: Any = word < first
            if word == first and form != ONE_WORD:
                below = _is_below(form, place, middle, second, key, length)
            if below:
                low = middle + 1
            else:
                high = middle
        if low < count and _equals(form, place, low, first, second, key, length):
            # Where a file holds a key more than once, the last one is the newest.
            while low + 1 < count and _equals(form, place, low + 1, first, second, key, length):
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
def _equals(
    form: int, place: int, row: Any, first: Any, second: Any, key: int, length: int
) -> bool:
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
    if load_i64(offsets + 8) - start != length:
        return False
    for offset in range(_WORD_BYTES, length):
        if load_u8(load_i64(place + 16) + start + offset) != load_u8(key + offset):
            return False
    return True

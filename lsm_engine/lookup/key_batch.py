"""A batch of keys in key order, and sorted keys of a store as compiled searches see them."""

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.format.bloom import Hashes, key_hashes
from lsm_engine.format.lookup_file import encode_compacted
from lsm_engine.kernels.arrow_views import Bytes, Longs, address_of
from lsm_engine.kernels.compiled import compiled, compiled_with, load_i64, load_u8, load_u64
from lsm_engine.kernels.keys import ONE_WORD, TWO_WORDS, SortKeys, sort_keys
from lsm_engine.kernels.merge_runs import RowRanks, sort_order
from lsm_engine.types.types import DataType

_WORD_BYTES = 16
_NOTHING: Longs = np.zeros(0, np.int64)


class KeyBatch:
    """Keys in ascending order; the same key may come more than once.

    `columns` are the trimmed primary key's, without nulls.
    """

    def __init__(
        self, columns: Sequence[pa.Array], types: Sequence[DataType], keys: SortKeys
    ) -> None:
        self.columns = tuple(columns)
        self.types = tuple(types)
        self.keys = keys
        self.search = SearchKeys.from_sort_keys(keys)

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def from_columns(
        columns: Sequence[pa.Array], types: Sequence[DataType]
    ) -> "tuple[KeyBatch, Longs]":
        """Return the batch of keys in any order, and which of them stands at each place of it."""
        keys = sort_keys(columns)
        order = sort_order(keys, RowRanks(sequence=np.zeros(len(keys), np.int64))).row
        places = order.astype(np.int64)
        # Keys that are in order already need no copy.
        if np.array_equal(places, np.arange(len(places))):
            return KeyBatch(columns, types, keys), places
        distinct = [column.take(pa.array(places)) for column in columns]
        if keys.form == ONE_WORD:
            ordered = SortKeys(prefix=keys.prefix[places], width=keys.width)
        else:
            ordered = sort_keys(distinct)
        return KeyBatch(distinct, types, ordered), places

    def slice(self, start: int, stop: int) -> "KeyBatch":
        """Return keys `start` to `stop`, without copying."""
        columns = [column.slice(start, stop - start) for column in self.columns]
        return KeyBatch(columns, self.types, self.keys.slice(start, stop))

    @cached_property
    def firsts(self) -> Longs:
        """The numbers of the keys that differ from the one before: every distinct key once."""
        places = np.empty(len(self), np.int64)
        count = _firsts(self.search.form, self.search.places, len(self), places)
        return places[:count]

    @cached_property
    def compacted(self) -> tuple[Bytes, Longs]:
        """The keys as sort and hash lookup files hold them, with n + 1 offsets."""
        return encode_compacted(self.columns, self.types, row_count=len(self))

    @cached_property
    def hashes(self) -> Hashes:
        """The hashes for the bloom filters of those files."""
        return key_hashes(*self.compacted)


@record
class SearchKeys:
    """Keys as compiled searches see them: where words, bytes and offsets lie. Keeps them alive."""

    keys: SortKeys
    form: int
    places: Longs = field(default_factory=lambda: _NOTHING)

    @staticmethod
    def from_sort_keys(keys: SortKeys) -> "SearchKeys":
        """Lay keys open."""
        contiguous = SortKeys(
            prefix=np.ascontiguousarray(keys.prefix),
            second=np.ascontiguousarray(keys.second),
            data=keys.data,
            offsets=np.ascontiguousarray(keys.offsets),
            width=keys.width,
        )
        arrays = (contiguous.prefix, contiguous.second, contiguous.data, contiguous.offsets)
        places = np.array([address_of(array) for array in arrays], dtype=np.int64)
        return SearchKeys(keys=contiguous, form=contiguous.form, places=places)

    def __len__(self) -> int:
        return len(self.keys)


@record
class Located:
    """Where searched keys stand: the first and the last of equal rows; last = -1 where absent."""

    first: Longs
    last: Longs


def locate(store: SearchKeys, batch: SearchKeys, pending: Longs) -> Located:
    """Search keys of a batch, by number in ascending order, among the sorted keys of a store."""
    first, last = np.empty(len(pending), np.int64), np.empty(len(pending), np.int64)
    if len(store) == 0:
        first.fill(0)
        last.fill(-1)
    else:
        assert store.form == batch.form, "keys of different columns"
        _locate(
            store.form, store.places, len(store), batch.places, pending, _EqualRows(first, last)
        )
    return Located(first=first, last=last)


def ascending(keys: SearchKeys) -> tuple[bool, bool]:
    """Return whether keys never descend, and whether no two are equal."""
    order = _ascending(keys.form, keys.places, len(keys))
    return order >= 0, order > 0


# Compiles in about 1 s, once a machine.


@compiled
def order_of(form: int, store: Longs, row: Any, batch: Longs, key: Any) -> Any:
    """Compare a row of one set of keys with a row of another: below, at or above zero."""
    stored, searched = load_u64(store[0] + 8 * row), load_u64(batch[0] + 8 * key)
    # Words compare like the bytes that they hold, so the first difference decides.
    if stored != searched:
        return -1 if stored < searched else 1
    if form == ONE_WORD:
        return 0
    stored, searched = load_u64(store[1] + 8 * row), load_u64(batch[1] + 8 * key)
    if stored != searched:
        return -1 if stored < searched else 1
    if form == TWO_WORDS:
        return 0
    start: Any = load_i64(store[3] + 8 * row)
    stop: Any = load_i64(store[3] + 8 * row + 8)
    begin: Any = load_i64(batch[3] + 8 * key)
    end: Any = load_i64(batch[3] + 8 * key + 8)
    shared = min(stop - start, end - begin)
    for position in range(_WORD_BYTES, shared):
        x, y = load_u8(store[2] + start + position), load_u8(batch[2] + begin + position)
        if x != y:
            return -1 if x < y else 1
    # The shorter key comes first if it is a prefix of the other.
    return (stop - start) - (end - begin)


class _EqualRows(NamedTuple):
    """The first and the last of equal rows, for each searched key, as `Located` has them."""

    first: Longs
    last: Longs


def _comparisons(form: int, store: Longs, count: int, batch: Longs, pending: Longs, *_: Any) -> int:
    return 2 * len(pending) * count.bit_length()


@compiled_with(work=_comparisons)
def _locate(
    form: int, store: Longs, count: int, batch: Longs, pending: Longs, located: _EqualRows
) -> None:
    first, last = located
    low = np.int64(0)
    for index in range(len(pending)):
        key = pending[index]
        # Keys ascend: look further and further ahead of the last one, then halve what is left.
        step, high = np.int64(1), low
        while high < count and order_of(form, store, high, batch, key) < 0:
            low = high + 1
            high += step
            step += step
        if high > count:
            high = np.int64(count)
        while low < high:
            middle = (low + high) >> 1
            if order_of(form, store, middle, batch, key) < 0:
                low = middle + 1
            else:
                high = middle
        first[index] = low
        after = low
        while after < count and order_of(form, store, after, batch, key) == 0:
            after += 1
        last[index] = after - 1 if after > low else -1


@compiled_with(work=lambda form, keys, count: count)
def _ascending(form: int, keys: Longs, count: int) -> int:
    strict = 1
    for row in range(1, count):
        order = order_of(form, keys, row - 1, keys, row)
        # One inversion is enough to know that the keys are unordered.
        if order > 0:
            return -1
        if order == 0:
            strict = 0
    return strict


@compiled
def _firsts(form: int, keys: Longs, count: int, first_of: Longs) -> int:
    size = 0
    for row in range(count):
        if row == 0 or order_of(form, keys, row - 1, keys, row) != 0:
            first_of[size] = row
            size += 1
    return size

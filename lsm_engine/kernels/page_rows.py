"""Rows of Parquet pages by their positions, copied as Arrow has them."""

from typing import Any

import numpy as np

from lsm_engine.kernels.compiled import (
    compiled,
    compiled_with,
    copy_bytes,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    store_u8,
    store_u32,
    store_u64,
)
from lsm_engine.kernels.page_headers import (
    PAGE_FACTS,
    PLAIN_DICTIONARY,
    RLE_DICTIONARY,
    UNREADABLE,
)
from lsm_engine.kernels.page_runs import are_neighbours, dictionary_indexes, packed_number, ranked

BITS, FIXED, BIG_ENDIAN, INT96, TEXT = range(5)
"""How values lie in a page, and what becomes of them.

Bits: a byte each. Values of `width` bytes: `size` bytes each, of which the sign fills what is more; from the
highest byte on: the other way round. 12 bytes, nanoseconds of a day and its Julian number: nanoseconds since 1970.
Texts after their lengths of 4 bytes: texts alone.
"""
COLUMN_FACTS = 11
"""Numbers that `cut_rows` takes of a column: 0 the kind of its values, 1 their width, 2 their size, 3 where the numbers of all
wanted rows lie, ascending, 4 where a byte for each goes, whether it has a value (0: every row has one, and there are
no levels), 5 where 8 bytes for each are free, 6 of texts where each ends, 4 bytes for each. Of the dictionary 7 where
it lies, 8 where it ends, 9 of texts where their places lie (`place_texts`), 10 how many they are.
"""
_UNIX_DAY, _DAY_NANOS = 2_440_588, 86_400_000_000_000


def _cut_work(pages: int, page_count: int, column: int, *_: int) -> int:
    steps = 0
    rows, is_text = load_i64(column + 24), load_i64(column) == TEXT
    for page in range(pages, pages + 8 * PAGE_FACTS * page_count, 8 * PAGE_FACTS):
        first, low, high = load_i64(page + 64), load_i64(page + 72), load_i64(page + 80)
        passed = load_i64(rows + 8 * (high - 1)) - first if is_text else 0
        steps += 10 * (high - low) + passed
    return steps


# Compiles in about 2 s.
@compiled_with(work=_cut_work)
def cut_rows(pages: int, page_count: int, column: int, target: int, before: int) -> Any:
    """Copy the wanted rows of some pages; return 0, for texts how many bytes they are, or UNREADABLE.

    `pages`, `column`: numbers as `PAGE_FACTS` and `COLUMN_FACTS` say. `target`: where the values of all wanted rows go.
    Of texts nothing is copied yet (`copy_texts`): where each lies is noted in the 8 bytes that are free for it, and
    where it ends, behind `before` bytes of texts of pages before these.
    """
    kind, width, size = load_i64(column), load_i64(column + 8), load_i64(column + 16)
    rows, flags, ranks = load_i64(column + 24), load_i64(column + 32), load_i64(column + 40)
    ends = load_i64(column + 48)
    written: Any = np.int64(before)
    for number in range(page_count):
        page = pages + 8 * PAGE_FACTS * number
        values: Any = load_i64(page + 88)
        values_end = values + load_i64(page + 8)
        levels: Any = np.int64(0)
        levels_end: Any = np.int64(0)
        if flags != 0:
            levels = values + 4
            if levels > values_end:
                return np.int64(UNREADABLE)
            levels_end = levels + np.int64(load_u32(values))
            values = levels_end
            if values > values_end:
                return np.int64(UNREADABLE)
        first, low = load_i64(page + 64), load_i64(page + 72)
        count = load_i64(page + 80) - low
        own = ranks + 8 * low
        if flags == 0:
            for index in range(low, low + count):
                store_u64(ranks + 8 * index, np.uint64(load_i64(rows + 8 * index) - first))
        elif not ranked(levels, levels_end, rows + 8 * low, count, first, flags + low, own):
            return np.int64(UNREADABLE)
        places: Any = np.int64(0)
        if load_i64(page + 40) in (PLAIN_DICTIONARY, RLE_DICTIONARY):
            is_stretch = (
                are_neighbours(rows + 8 * low, count)
                and load_i64(own) >= 0
                and are_neighbours(own, count)
            )
            if load_i64(column + 56) == 0 or not dictionary_indexes(
                values, values_end, own, count, is_stretch
            ):
                return np.int64(UNREADABLE)
            values, values_end = load_i64(column + 56), load_i64(column + 64)
            places = load_i64(column + 72)
        if kind == TEXT:
            written = _placed(
                values, values_end, places, load_i64(column + 80), own, count, ends + 4 * low, written
            )  # fmt: skip
            is_whole = written >= 0
        elif kind == BITS:
            is_whole = _copied_bits(values, values_end, own, count, target + low)
        else:
            is_whole = _copied_values(
                values, values_end, kind, width, size, own, count, target + size * low
            )
        if not is_whole:
            return np.int64(UNREADABLE)
    return written - before


@compiled
def _copied_values(
    values: Any, values_end: Any, kind: Any, width: Any, size: Any, ranks: Any, count: Any, target: Any
) -> Any:  # fmt: skip
    stored_count = (values_end - values) // width
    is_plain = kind == FIXED and size == width
    # A loop that may end early is not made of gathers: with them scattered rows took 1.4 times as long.
    for index in range(count):
        rank, to = load_i64(ranks + 8 * index), target + index * size
        if rank >= stored_count:
            return False
        if is_plain and size == 8:
            store_u64(to, load_u64(values + 8 * rank) if rank >= 0 else np.uint64(0))
        elif is_plain and size == 4:
            store_u32(to, load_u32(values + 4 * rank) if rank >= 0 else np.uint32(0))
        else:
            _copy_value(values + rank * width, rank < 0, kind, width, size, to)
    return True


@compiled
def _copy_value(source: Any, is_null: Any, kind: Any, width: Any, size: Any, target: Any) -> None:
    if is_null:
        for byte in range(size):
            store_u8(target + byte, np.uint8(0))
    elif kind == FIXED and size == width:
        copy_bytes(target, source, np.int64(size))
    elif kind == INT96:
        day = np.int64(load_u32(source + 8)) - _UNIX_DAY
        store_u64(target, np.uint64(day * _DAY_NANOS + load_i64(source)))
    else:
        highest = source if kind == BIG_ENDIAN else source + width - 1
        sign = np.uint8(255) if load_u8(highest) > 127 else np.uint8(0)
        for byte in range(size):
            if byte >= width:
                store_u8(target + byte, sign)
            elif kind == BIG_ENDIAN:
                store_u8(target + byte, load_u8(source + width - 1 - byte))
            else:
                store_u8(target + byte, load_u8(source + byte))


@compiled
def _copied_bits(values: Any, values_end: Any, ranks: Any, count: Any, target: Any) -> Any:
    for index in range(count):
        rank = load_i64(ranks + 8 * index)
        bit = np.int64(0)
        if rank >= 0:
            bit = packed_number(values, values_end, rank, np.int64(1))
        if bit < 0:
            return False
        store_u8(target + index, np.uint8(bit))
    return True


@compiled
def _placed(
    values: Any, values_end: Any, places: Any, place_count: Any, ranks: Any, count: Any, ends: Any, written: Any
) -> Any:  # fmt: skip
    """Put in the place of ranks where the texts lie; return how many bytes they are with others, or UNREADABLE.

    `places`: of a dictionary; 0: ranks ascend, and texts lie one behind the other.
    """
    position: Any = np.int64(values)
    value = np.int64(0)
    for index in range(count):
        rank = load_i64(ranks + 8 * index)
        if rank >= 0:
            if places != 0:
                if rank >= place_count:
                    return np.int64(UNREADABLE)
                position = load_i64(places + 8 * rank)
            else:
                while value < rank and position + 4 <= values_end:
                    position += 4 + np.int64(load_u32(position))
                    value += 1
            if position + 4 > values_end:
                return np.int64(UNREADABLE)
            size = np.int64(load_u32(position))
            if position + 4 + size > values_end:
                return np.int64(UNREADABLE)
            store_u64(ranks + 8 * index, np.uint64(position + 4))
            written += size
        store_u32(ends + 4 * index, np.uint32(written))
    return written


def _texts_work(*arguments: int) -> int:
    return arguments[2]


@compiled_with(work=_texts_work)
def place_texts(values: int, values_end: int, count: int, places: int) -> Any:
    """Note of `count` texts, one behind the other, where each lies, 8 bytes each; return 0 or UNREADABLE."""
    position: Any = np.int64(values)
    for value in range(count):
        if position + 4 > values_end:
            return np.int64(UNREADABLE)
        store_u64(places + 8 * value, np.uint64(position))
        position += 4 + np.int64(load_u32(position))
    return np.int64(0)


@compiled_with(work=_texts_work)
def copy_texts(places: int, ends: int, count: int, target: int) -> None:
    """Copy texts from where they lie (8 bytes each, -1 for none) up to where each ends, 4 bytes for each.

    4 bytes before `ends` lies where the first one begins; `target` is where that goes.
    """
    before = np.int64(load_u32(ends - 4))
    start = before
    for index in range(count):
        end = np.int64(load_u32(ends + 4 * index))
        if end > start:
            copy_bytes(target + start - before, load_i64(places + 8 * index), end - start)
        start = end

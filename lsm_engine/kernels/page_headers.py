"""Headers of the pages of a Parquet column, read one after the other.

They are structs of Thrift's compact protocol (parquet.thrift, PageHeader).
"""

from typing import Any

import numpy as np

from lsm_engine.kernels.compiled import compiled, compiled_with, load_i64, load_u8, store_u64

UNREADABLE = -1
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE = 0, 1, 2
"""Types of pages."""
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8
"""Encodings, as parquet.thrift names them; the second is the older name of the last."""
PAGE_FACTS = 12
"""Numbers that a page's header becomes: 0 type, 1 size, 2 stored size, 3 CRC-32 (negative: none), 4 values,
5 encoding, 6 encoding of levels, and by `next_pages` 7 where the page begins, 8 its first row, 9 and 10 from which to
which of the wanted rows it has. 11 is where its content lies in memory, decompressed.
"""
FOUND, UNFINISHED, UNKNOWN = 0, 1, 2
"""What ended a walk: nothing, a header that cannot be read (or not yet to its end), or what is not known here."""
_DATA, _DICTIONARY = 5, 7  # of PageHeader
_DEEPEST = 2
_CRC = 3  # of the facts
_OF_ALL, _OF_DATA, _OF_DICTIONARY = 0b111, 0b1110111, 0b110111
"""The facts, by number, that no header is without, those of data pages and those of dictionaries."""
_TRUE, _FALSE, _BYTE, _I16, _I32, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 4, 5, 7, 8, 12  # fmt: skip


def _walk_work(data: int, end: int, *_: int) -> int:
    return (end - data) >> 3


# Compiles in about 1 s.
@compiled_with(work=_walk_work)
def next_pages(
    data: int, end: int, column_end: int, most_bytes: int, row_count: int,
    has_levels: int, is_packed: int,
    rows: int, count: int, state: int, page_table: int, room: int,
) -> Any:  # fmt: skip
    """Read headers from `data` on; return how many pages are dictionaries or have wanted rows.

    Up to `room` of them, or `room` times 64 KB of what they hold, and none whose header goes on beyond `end`, or
    that ends beyond `column_end` itself. The column has `row_count` rows, no page of more than `most_bytes`,
    definition levels (`has_levels`), and is compressed (`is_packed`). `rows`: `count` row numbers that ascend.
    `state`: three numbers. The second is how many rows of the column come before `data`; all are set, to where the
    next header lies, the rows before that, and what ended the walk. `found`: where the facts of pages go.
    """
    position, first = np.int64(data), load_i64(state + 8)
    low, pages, size, ended = np.int64(0), np.int64(0), np.int64(0), np.int64(FOUND)
    while position < end and pages < room and size < room << 16:
        facts = page_table + pages * 8 * PAGE_FACTS
        begins = np.int64(_header(position, end, facts))
        if begins < 0:
            ended = np.int64(UNFINISHED)
            break
        if begins + load_i64(facts + 16) > column_end:
            ended = np.int64(UNKNOWN)
            break
        kind = load_i64(facts)
        start, high = first, low
        if kind == DATA_PAGE:
            last = first + load_i64(facts + 32)
            if last > row_count:
                ended = np.int64(UNKNOWN)
                break
            low = _first_from(rows, low, np.int64(count), first)
            high = _first_from(rows, low, np.int64(count), last)
            first = last
        elif kind != INDEX_PAGE and (kind != DICTIONARY_PAGE or pages > 0 or start > 0):
            ended = np.int64(UNKNOWN)
            break
        if high > low or kind == DICTIONARY_PAGE:
            if not _is_known(facts, most_bytes, has_levels, is_packed):
                ended = np.int64(UNKNOWN)
                break
            store_u64(facts + 56, np.uint64(begins))
            store_u64(facts + 64, np.uint64(start))
            store_u64(facts + 72, np.uint64(low))
            store_u64(facts + 80, np.uint64(high))
            size += load_i64(facts + 8)
            pages += 1
        position = begins + load_i64(facts + 16)
        low = high
    store_u64(state, np.uint64(position))
    store_u64(state + 8, np.uint64(first))
    store_u64(state + 16, np.uint64(ended))
    return pages


@compiled
def _is_known(facts: Any, most_bytes: Any, has_levels: Any, is_packed: Any) -> Any:
    """Return whether a page is of a kind that rows can be cut out of.

    One that is larger than its column is PyArrow's to judge: a footer may be careless, or the header damaged.
    """
    size = load_i64(facts + 8)
    if size > most_bytes or (is_packed == 0 and size != load_i64(facts + 16)):
        return False
    if load_i64(facts + 40) not in (PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY):
        return False
    return load_i64(facts) != DATA_PAGE or has_levels == 0 or load_i64(facts + 48) == RLE


@compiled
def _first_from(rows: Any, low: Any, high: Any, least: Any) -> Any:
    """Return which is the first of some ascending rows that is not below another one."""
    while low < high:
        middle = (low + high) >> 1
        if load_i64(rows + 8 * middle) < least:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _header(data: Any, end: Any, page: Any) -> Any:
    """Read the header that lies at `data`, not beyond `end`; return where its page begins, or UNREADABLE.

    One without a fact that all headers of its type have is none: a flipped bit can make an empty one.
    """
    for slot in range(PAGE_FACTS):
        store_u64(page + 8 * slot, np.uint64(0))
    store_u64(page + 24, np.uint64(2**64 - 1))
    position, number, depth = np.int64(data), np.int64(0), np.int64(0)
    outer, inner, seen_fields = np.int64(0), np.int64(0), np.int64(0)
    while position < end:
        byte = np.int64(load_u8(position))
        kind, step = byte & 15, byte >> 4
        position += 1
        if byte == 0:
            if depth == 0:
                return position if _is_whole(load_i64(page), seen_fields) else np.int64(UNREADABLE)
            depth -= 1
            number = outer if depth == 0 else inner
            continue
        if step == 0:
            return np.int64(UNREADABLE)
        number += step
        if depth == 0 and number == _CRC + 1 and kind != _I32:
            return np.int64(UNREADABLE)  # else there would be no checksum to compare
        if kind == _STRUCT and depth < _DEEPEST:
            outer, inner = (number, inner) if depth == 0 else (outer, number)
            depth += 1
            number = np.int64(0)
        elif kind in (_BYTE, _DOUBLE):
            position += 1 if kind == _BYTE else 8
        elif _I16 <= kind <= _BINARY and kind != _DOUBLE:
            value, position = varint_at(position, end)
            if value < 0:
                return np.int64(UNREADABLE)
            if kind == _BINARY:
                position += value
                continue
            slot = _slot(load_i64(page), depth, outer, number)
            if slot == _CRC:
                value = (((value >> 1) ^ -(value & 1)) & 0xFFFFFFFF) << 1
            if slot >= 0:
                if kind != _I32 or value & 1:
                    return np.int64(UNREADABLE)
                store_u64(page + 8 * slot, np.uint64(value >> 1))
                seen_fields |= np.int64(1) << slot
        elif kind not in (_TRUE, _FALSE):
            return np.int64(UNREADABLE)
    return np.int64(UNREADABLE)


@compiled
def _is_whole(kind: Any, seen_fields: Any) -> Any:
    """Return whether a page of a type has all that its header needs."""
    if kind == DATA_PAGE:
        return seen_fields & _OF_DATA == _OF_DATA
    if kind == DICTIONARY_PAGE:
        return seen_fields & _OF_DICTIONARY == _OF_DICTIONARY
    return seen_fields & _OF_ALL == _OF_ALL


@compiled
def _slot(kind: Any, depth: Any, outer: Any, number: Any) -> Any:
    """Return where among the facts a number in the header of a page of a type goes; -1: nowhere."""
    if depth == 0:
        return number - 1 if number <= 4 else -1
    if depth > 1 or outer != (_DATA if kind == DATA_PAGE else _DICTIONARY):
        return -1
    if number <= 2:
        return number + 3
    return 6 if kind == DATA_PAGE and number == 3 else -1


@compiled
def varint_at(position: Any, end: Any) -> Any:
    """Return a number and where it ends; a negative one where it ends too late."""
    value, shift = np.int64(0), np.int64(0)
    while position < end and shift < 56:
        byte = np.int64(load_u8(position))
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position
    return np.int64(UNREADABLE), position

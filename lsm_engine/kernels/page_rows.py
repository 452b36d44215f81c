"""Rows of a Parquet page by their positions, copied as they are stored.

Headers are Thrift's compact protocol; levels, and numbers of a dictionary, are runs of equal values or of
packed bits (parquet-format: README, Encodings).
"""

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

UNREADABLE, NO_ROOM = -1, -2
BITS, FIXED, TEXT, NUMBERS = range(4)
"""How values lie in a page: bits, values of `width` bytes, texts after their lengths of 4 bytes, or numbers
of a dictionary of `width` bits each.
"""
HEADER_FACTS = 12
"""Numbers that a header becomes: 0 type, 1 size, 2 stored size, 3 CRC-32 (negative: none), 4 values,
5 encoding, 6 bytes of levels, 7 bytes of repetition levels, 8 whether values are compressed, 9 rows (those
four of the second version), 10 encoding of levels (of the first).
"""
_DATA, _DICTIONARY, _SECOND = 5, 7, 8  # of PageHeader
_DEEPEST = 2
_CRC = 3  # of the facts
_TRUE, _FALSE, _BYTE, _I16, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 4, 7, 8, 12  # of the protocol


def _header_work(data: int, end: int, found: int) -> int:
    return 100


# Compiles in about 1 s.
@compiled_with(work=_header_work)
def page_header(data: int, end: int, found: int) -> Any:
    """Read the header that lies at `data`, not beyond `end`; return where its page begins, or UNREADABLE.

    `found`: where `HEADER_FACTS` whole numbers go.
    """
    for slot in range(HEADER_FACTS):
        store_u64(found + 8 * slot, np.uint64(0))
    store_u64(found + 24, np.uint64(2**64 - 1))
    store_u64(found + 64, np.uint64(1))
    at, number, depth = np.int64(data), np.int64(0), np.int64(0)
    outer, inner = np.int64(0), np.int64(0)
    while at < end:
        byte = np.int64(load_u8(at))
        kind, step = byte & 15, byte >> 4
        at += 1
        if byte == 0:
            if depth == 0:
                return at
            depth -= 1
            number = outer if depth == 0 else inner
            continue
        if step == 0:
            return np.int64(UNREADABLE)
        number += step
        if kind == _STRUCT and depth < _DEEPEST:
            outer, inner = (number, inner) if depth == 0 else (outer, number)
            depth += 1
            number = np.int64(0)
        elif kind in (_TRUE, _FALSE):
            if depth == 1 and outer == _SECOND and number == 7:
                store_u64(found + 64, np.uint64(2 - kind))
        elif kind in (_BYTE, _DOUBLE):
            at += 1 if kind == _BYTE else 8
        elif _I16 <= kind <= _BINARY and kind != _DOUBLE:
            value, at = _varint(at, end)
            if value < 0:
                return np.int64(UNREADABLE)
            if kind == _BINARY:
                at += value
                continue
            slot = _slot(depth, outer, number)
            if slot == _CRC:
                value = (((value >> 1) ^ -(value & 1)) & 0xFFFFFFFF) << 1
            if slot >= 0:
                store_u64(found + 8 * slot, np.uint64(value >> 1))
        else:
            return np.int64(UNREADABLE)
    return np.int64(UNREADABLE)


@compiled
def _slot(depth: Any, outer: Any, number: Any) -> Any:
    """Return where among the facts a number of a header goes; -1: nowhere."""
    if depth == 0:
        return number - 1 if number <= 4 else -1
    if depth == 1 and (outer in (_DATA, _DICTIONARY)) and number <= 2:
        return number + 3
    if depth == 1 and outer == _DATA and number == 3:
        return 10
    if depth == 1 and outer == _SECOND and number <= 6 and number != 2:
        return (4, 0, 9, 5, 6, 7)[number - 1]
    return -1


@compiled
def _varint(at: Any, end: Any) -> Any:
    """Return a number and where it ends; a negative one where it ends too late."""
    value, shift = np.int64(0), np.int64(0)
    while at < end and shift < 56:
        byte = np.int64(load_u8(at))
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
    return np.int64(UNREADABLE), at


@compiled
def _present(bits: Any, level: Any, low: Any, high: Any) -> Any:
    """Return how many of the rows from `low` up to `high` of a run have a value."""
    if bits == 0:
        return (high - low) * level
    found: Any = np.int64(0)
    at = low
    while at < high:
        byte = np.int64(load_u8(bits + (at >> 3)))
        if at & 7 == 0 and high - at >= 8:
            byte -= (byte >> 1) & 0x55
            byte = (byte & 0x33) + ((byte >> 2) & 0x33)
            found += (byte + (byte >> 4)) & 15
            at += 8
        else:
            found += (byte >> (at & 7)) & 1
            at += 1
    return found


@compiled
def _packed_number(bits: Any, end: Any, first: Any, width: Any) -> Any:
    """Return the number of `width` bits that begins at a bit; UNREADABLE beyond the end."""
    at, stop = bits + (first >> 3), bits + ((first + width + 7) >> 3)
    if stop > end:
        return np.int64(UNREADABLE)
    found, shift = np.int64(0), np.int64(0)
    while at < stop:
        found |= np.int64(load_u8(at)) << shift
        shift += 8
        at += 1
    return (found >> (first & 7)) & ((np.int64(1) << width) - 1)


def _cut_work(
    levels: int, levels_end: int, values: int, values_end: int, kind: int, width: int,
    rows: int, count: int, first: int, *_: int,
) -> int:  # fmt: skip
    passed = load_i64(rows + 8 * (count - 1)) - first if kind == TEXT else 0
    return 8 * count + passed + levels_end - levels


# Compiles in about 2 s.
@compiled_with(work=_cut_work)
def cut_rows(
    levels: int, levels_end: int, values: int, values_end: int, kind: int, width: int,
    rows: int, count: int, first: int, flags: int, ranks: int, target: int, room: int,
) -> Any:  # fmt: skip
    """Copy the values of some rows of a page; return the bytes that they take, UNREADABLE or NO_ROOM.

    `levels`: where runs of definition levels lie; 0: every row has a value. `rows`: `count` row numbers that
    ascend, of which `first` is the page's own first. `flags` take a byte for each: whether it has a value;
    `ranks` 8 bytes for each, which nobody reads. A number of a dictionary becomes 4 bytes, a bit one byte.
    """
    present = _ranked(levels, levels_end, rows, count, first, flags, ranks)
    if present < 0:
        return present
    if kind == NUMBERS:
        return _copied_numbers(values, values_end, width, ranks, present, target, room)
    if kind == TEXT:
        return _copied_texts(values, values_end, ranks, present, target, room)
    written = np.int64(0)
    for wanted in range(present):
        rank = load_i64(ranks + 8 * wanted)
        if kind == BITS:
            number = _packed_number(values, values_end, rank, np.int64(1))
            if number < 0:
                return number
            store_u8(target + written, np.uint8(number))
            written += 1
            continue
        start = values + rank * width
        if start + width > values_end:
            return np.int64(UNREADABLE)
        if width == 8:
            store_u64(target + written, load_u64(start))
        else:
            copy_bytes(target + written, start, np.int64(width))
        written += width
    return written


@compiled
def _ranked(
    levels: int, levels_end: int, rows: int, count: int, first: int, flags: int, ranks: int
) -> Any:
    """Note of each wanted row whether it has a value, and of those that have one which of the page's it is."""
    at, run_first, run_end = np.int64(levels), np.int64(0), np.int64(0)
    bits, level, seen = np.int64(0), np.int64(0), np.int64(0)
    before: Any = np.int64(0)
    present = np.int64(0)
    for wanted in range(count):
        row = load_i64(rows + 8 * wanted) - first
        if levels != 0:
            while run_end <= row:
                before += _present(bits, level, seen - run_first, run_end - run_first)
                seen = run_end
                run_first = run_end
                header, at = _varint(at, levels_end)
                if header < 0 or at >= levels_end:
                    return np.int64(UNREADABLE)
                if header & 1:
                    bits = at
                    at += header >> 1
                    run_end += (header >> 1) * 8
                else:
                    bits = np.int64(0)
                    level = np.int64(load_u8(at)) & 1
                    at += 1
                    run_end += header >> 1
                if at > levels_end:
                    return np.int64(UNREADABLE)
            before += _present(bits, level, seen - run_first, row - run_first)
            seen = np.int64(row)
            is_there = _present(bits, level, row - run_first, row - run_first + 1)
            store_u8(flags + wanted, np.uint8(is_there))
            if is_there == 0:
                continue
            row = before
        store_u64(ranks + 8 * present, np.uint64(row))
        present += 1
    return present


@compiled
def _copied_texts(
    values: int, values_end: int, ranks: int, count: Any, target: int, room: int
) -> Any:
    at: Any = np.int64(values)
    value, written = np.int64(0), np.int64(0)
    for wanted in range(count):
        rank = load_i64(ranks + 8 * wanted)
        while value < rank and at + 4 <= values_end:
            at += 4 + np.int64(load_u32(at))
            value += 1
        if at + 4 > values_end:
            return np.int64(UNREADABLE)
        size = 4 + np.int64(load_u32(at))
        if at + size > values_end:
            return np.int64(UNREADABLE)
        if written + size > room:
            return np.int64(NO_ROOM)
        copy_bytes(target + written, at, size)
        written += size
    return written


@compiled
def _copied_numbers(
    values: int, values_end: int, width: int, ranks: int, count: Any, target: int, room: int
) -> Any:
    at: Any = np.int64(values)
    run_first, run_end, packed = np.int64(0), np.int64(0), np.int64(0)
    number: Any = np.int64(0)
    for wanted in range(count):
        rank = load_i64(ranks + 8 * wanted)
        while run_end <= rank:
            run_first = run_end
            header, at = _varint(at, values_end)
            if header < 0:
                return np.int64(UNREADABLE)
            if header & 1:
                packed = at
                at += (header >> 1) * width
                run_end += (header >> 1) * 8
            else:
                packed = np.int64(0)
                number = _packed_number(at, values_end, np.int64(0), np.int64(width))
                at += (width + 7) >> 3
                run_end += header >> 1
        if packed != 0:
            number = _packed_number(packed, values_end, (rank - run_first) * width, np.int64(width))
        if number < 0:
            return np.int64(UNREADABLE)
        if 4 * wanted + 4 > room:
            return np.int64(NO_ROOM)
        store_u32(target + 4 * wanted, np.uint32(number))
    return np.int64(4) * count

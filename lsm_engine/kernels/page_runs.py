"""Definition levels and dictionary indexes of Parquet pages, which are encoded as RLE.

That is: runs of equal values or of packed bits (parquet-format: README, Encodings).
"""

from typing import Any

import numpy as np

from lsm_engine.kernels.compiled import compiled, load_i64, load_u8, load_u64, store_u8, store_u64
from lsm_engine.kernels.page_headers import UNREADABLE, varint_at


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
def packed_number(bits: Any, end: Any, first: Any, width: Any) -> Any:
    """Return the number of `width` bits that begins at a bit; UNREADABLE beyond the end."""
    at, stop = bits + (first >> 3), bits + ((first + width + 7) >> 3)
    if at + 8 <= end:  # at most 32 bits, and 7 before them
        word = load_u64(at) >> np.uint64(first & 7)
        return np.int64(word & ((np.uint64(1) << np.uint64(width)) - np.uint64(1)))
    if stop > end:
        return np.int64(UNREADABLE)
    found, shift = np.int64(0), np.int64(0)
    while at < stop:
        found |= np.int64(load_u8(at)) << shift
        shift += 8
        at += 1
    return (found >> (first & 7)) & ((np.int64(1) << width) - 1)


@compiled
def _unpacked(bits: Any, end: Any, first: Any, width: Any, count: Any, target: Any) -> Any:
    """Store numbers that follow each other from a bit on, 8 bytes each; return UNREADABLE beyond the end."""
    whole: Any = np.int64(0)  # how many are read by whole words
    if width > 0:
        whole = min(max(((end - bits - 7) * 8 - first + width - 1) // width, 0), count)
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    at, number = first, np.int64(0)
    for one in range(whole):
        word = load_u64(bits + (at >> 3)) >> np.uint64(at & 7)
        store_u64(target + 8 * one, word & mask)
        at += width
    for one in range(whole, count):
        number = packed_number(bits, end, at, width)
        store_u64(target + 8 * one, np.uint64(number))
        if number < 0:
            return number
        at += width
    return number


@compiled
def are_neighbours(rows: Any, count: Any) -> Any:
    """Return whether `count` numbers that ascend follow each other, with none left out."""
    return load_i64(rows + 8 * (count - 1)) - load_i64(rows) == count - 1


@compiled
def ranked(
    levels: Any, levels_end: Any, rows: Any, count: Any, first: Any, flags: Any, ranks: Any
) -> Any:
    """Note of each wanted row whether it has a value, and which of the page's it is (-1: none)."""
    at, run_first, run_end = np.int64(levels), np.int64(0), np.int64(0)
    bits, level, seen = np.int64(0), np.int64(0), np.int64(0)
    before: Any = np.int64(0)
    wanted = np.int64(0)
    is_stretch = are_neighbours(rows, count)
    while wanted < count:
        row = load_i64(rows + 8 * wanted) - first
        while run_end <= row:
            before += _present(bits, level, seen - run_first, run_end - run_first)
            seen = run_end
            run_first = run_end
            header, at = varint_at(at, levels_end)
            if header < 0 or at >= levels_end:
                return False
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
                return False
        if bits == 0:  # a run of equal levels, mostly that of a whole page
            base = before - seen
            if is_stretch:
                last = min(count, wanted + run_end - row)
                for one in range(wanted, last):
                    store_u8(flags + one, np.uint8(level))
                for one in range(wanted, last):
                    rank = base + row + one - wanted if level else np.int64(-1)
                    store_u64(ranks + 8 * one, np.uint64(rank))
                wanted = last
                continue
            while wanted < count and row < run_end:
                store_u8(flags + wanted, np.uint8(level))
                store_u64(ranks + 8 * wanted, np.uint64(base + row if level else -1))
                wanted += 1
                row = load_i64(rows + 8 * wanted) - first if wanted < count else run_end
            continue
        before += _present(bits, level, seen - run_first, row - run_first)
        seen = np.int64(row)
        is_there = _present(bits, level, row - run_first, row - run_first + 1)
        store_u8(flags + wanted, np.uint8(is_there))
        store_u64(ranks + 8 * wanted, np.uint64(before if is_there else -1))
        wanted += 1
    return True


@compiled
def dictionary_indexes(
    values: Any, values_end: Any, ranks: Any, count: Any, is_stretch: Any
) -> Any:
    """Put in the place of ranks the indexes into the dictionary that stand there.

    `is_stretch`: ranks follow each other.
    """
    width = np.int64(0)
    if values < values_end:
        width = np.int64(load_u8(values))
    if width > 32:
        return False
    at: Any = np.int64(values + 1)
    run_first, run_end, packed = np.int64(0), np.int64(0), np.int64(0)
    number: Any = np.int64(0)
    wanted = np.int64(0)
    while wanted < count:
        rank = load_i64(ranks + 8 * wanted)
        if rank < 0:
            wanted += 1
            continue
        while run_end <= rank:
            run_first = run_end
            header, at = varint_at(at, values_end)
            if header < 0:
                return False
            if header & 1:
                packed = at
                at += (header >> 1) * width
                run_end += (header >> 1) * 8
            else:
                packed = np.int64(0)
                number = packed_number(at, values_end, np.int64(0), width)
                at += (width + 7) >> 3
                run_end += header >> 1
        first, last = (rank - run_first) * width, wanted + 1
        if packed != 0 and is_stretch:
            last = min(count, wanted + run_end - rank)
            number = _unpacked(packed, values_end, first, width, last - wanted, ranks + 8 * wanted)
        else:
            if packed != 0:
                number = packed_number(packed, values_end, first, width)
            store_u64(ranks + 8 * wanted, np.uint64(number))
        if number < 0:
            return False
        wanted = last
    return True

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
    ones_count: Any = np.int64(0)
    position = low
    while position < high:
        byte = np.int64(load_u8(bits + (position >> 3)))
        if position & 7 == 0 and high - position >= 8:
            byte -= (byte >> 1) & 0x55
            byte = (byte & 0x33) + ((byte >> 2) & 0x33)
            ones_count += (byte + (byte >> 4)) & 15
            position += 8
        else:
            ones_count += (byte >> (position & 7)) & 1
            position += 1
    return ones_count


@compiled
def packed_number(bits: Any, end: Any, first: Any, width: Any) -> Any:
    """Return the number of `width` bits that begins at a bit; UNREADABLE beyond the end."""
    position, stop = bits + (first >> 3), bits + ((first + width + 7) >> 3)
    if position + 8 <= end:  # at most 32 bits, and 7 before them
        word = load_u64(position) >> np.uint64(first & 7)
        return np.int64(word & ((np.uint64(1) << np.uint64(width)) - np.uint64(1)))
    if stop > end:
        return np.int64(UNREADABLE)
    value, shift = np.int64(0), np.int64(0)
    while position < stop:
        value |= np.int64(load_u8(position)) << shift
        shift += 8
        position += 1
    return (value >> (first & 7)) & ((np.int64(1) << width) - 1)


@compiled
def _unpacked(bits: Any, end: Any, first: Any, width: Any, count: Any, target: Any) -> Any:
    """Store numbers that follow each other from a bit on, 8 bytes each; return UNREADABLE beyond the end."""
    word_count: Any = np.int64(0)  # how many are read by whole words
    if width > 0:
        word_count = min(max(((end - bits - 7) * 8 - first + width - 1) // width, 0), count)
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    position, number = first, np.int64(0)
    for index in range(word_count):
        word = load_u64(bits + (position >> 3)) >> np.uint64(position & 7)
        store_u64(target + 8 * index, word & mask)
        position += width
    for index in range(word_count, count):
        number = packed_number(bits, end, position, width)
        store_u64(target + 8 * index, np.uint64(number))
        if number < 0:
            return number
        position += width
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
    position, run_first, run_end = np.int64(levels), np.int64(0), np.int64(0)
    bits, level, row_count = np.int64(0), np.int64(0), np.int64(0)
    before: Any = np.int64(0)
    selected_count = np.int64(0)
    is_stretch = are_neighbours(rows, count)
    while selected_count < count:
        row = load_i64(rows + 8 * selected_count) - first
        while run_end <= row:
            before += _present(bits, level, row_count - run_first, run_end - run_first)
            row_count = run_end
            run_first = run_end
            header, position = varint_at(position, levels_end)
            if header < 0 or position >= levels_end:
                return False
            if header & 1:
                bits = position
                position += header >> 1
                run_end += (header >> 1) * 8
            else:
                bits = np.int64(0)
                level = np.int64(load_u8(position)) & 1
                position += 1
                run_end += header >> 1
            if position > levels_end:
                return False
        if bits == 0:  # a run of equal levels, mostly that of a whole page
            base = before - row_count
            if is_stretch:
                last = min(count, selected_count + run_end - row)
                for index in range(selected_count, last):
                    store_u8(flags + index, np.uint8(level))
                for index in range(selected_count, last):
                    rank = base + row + index - selected_count if level else np.int64(-1)
                    store_u64(ranks + 8 * index, np.uint64(rank))
                selected_count = last
                continue
            while selected_count < count and row < run_end:
                store_u8(flags + selected_count, np.uint8(level))
                store_u64(ranks + 8 * selected_count, np.uint64(base + row if level else -1))
                selected_count += 1
                row = (
                    load_i64(rows + 8 * selected_count) - first
                    if selected_count < count
                    else run_end
                )
            continue
        before += _present(bits, level, row_count - run_first, row - run_first)
        row_count = np.int64(row)
        is_there = _present(bits, level, row - run_first, row - run_first + 1)
        store_u8(flags + selected_count, np.uint8(is_there))
        store_u64(ranks + 8 * selected_count, np.uint64(before if is_there else -1))
        selected_count += 1
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
    position: Any = np.int64(values + 1)
    run_first, run_end, packed = np.int64(0), np.int64(0), np.int64(0)
    number: Any = np.int64(0)
    selected_count = np.int64(0)
    while selected_count < count:
        rank = load_i64(ranks + 8 * selected_count)
        if rank < 0:
            selected_count += 1
            continue
        while run_end <= rank:
            run_first = run_end
            header, position = varint_at(position, values_end)
            if header < 0:
                return False
            if header & 1:
                packed = position
                position += (header >> 1) * width
                run_end += (header >> 1) * 8
            else:
                packed = np.int64(0)
                number = packed_number(position, values_end, np.int64(0), width)
                position += (width + 7) >> 3
                run_end += header >> 1
        first, last = (rank - run_first) * width, selected_count + 1
        if packed != 0 and is_stretch:
            last = min(count, selected_count + run_end - rank)
            number = _unpacked(
                packed, values_end, first, width, last - selected_count, ranks + 8 * selected_count
            )
        else:
            if packed != 0:
                number = packed_number(packed, values_end, first, width)
            store_u64(ranks + 8 * selected_count, np.uint64(number))
        if number < 0:
            return False
        selected_count = last
    return True

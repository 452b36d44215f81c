"""Pages of a Parquet column: their headers, levels and dictionary indexes, and the rows at some positions."""

from typing import Any, NamedTuple

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

# -- Headers of the pages of a Parquet column, read one after the other ----------------------------
#
# They are structs of Thrift's compact protocol (parquet.thrift, PageHeader).

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


class Stretch(NamedTuple):
    """Bytes in memory, by the addresses of their beginning and end."""

    start: int
    end: int


class RowNumbers(NamedTuple):
    """The address of row numbers that ascend, 8 bytes each, and how many they are."""

    address: int
    row_count: int


class ColumnLimits(NamedTuple):
    """What the pages of a column must not go beyond.

    Where the column ends, the most bytes of a page, and how many rows the column has; whether it has definition
    levels, and whether it is compressed.
    """

    end: int
    most_bytes: int
    row_count: int
    has_levels: bool
    is_packed: bool


class PageTable(NamedTuple):
    """Where the facts of pages go (`PAGE_FACTS` of each), and of how many pages there may be some."""

    address: int
    room: int


def _walk_work(data: int, end: int, *_: Any) -> int:
    return (end - data) >> 3


# Compiles in about 1 s.
@compiled_with(work=_walk_work)
def next_pages(
    data: int,
    end: int,
    column: ColumnLimits,
    row_numbers: RowNumbers,
    state: int,
    page_table: PageTable,
) -> Any:
    """Read headers from `data` on; return how many pages are dictionaries or have wanted rows.

    As many as the page table has room for, or that times 64 KB of what they hold, and none whose header goes on
    beyond `end`, or that ends beyond the column itself. `state`: three numbers. The second is how many rows of the
    column come before `data`; all are set, to where the next header lies, the rows before that, and what ended the
    walk.
    """
    column_end, most_bytes, row_count, has_levels, is_packed = column
    (rows, count), (page_facts, room) = row_numbers, page_table
    position, first = np.int64(data), load_i64(state + 8)
    low, pages, size, ended = np.int64(0), np.int64(0), np.int64(0), np.int64(FOUND)
    while position < end and pages < room and size < room << 16:
        facts = page_facts + pages * 8 * PAGE_FACTS
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


# -- Definition levels and dictionary indexes of Parquet pages, which are encoded as RLE -----------
#
# That is: runs of equal values or of packed bits (parquet-format: README, Encodings).


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
def ranked(levels: Stretch, rows: Any, count: Any, first: Any, flags: Any, ranks: Any) -> Any:
    """Note of each wanted row whether it has a value, and which of the page's it is (-1: none)."""
    levels_end = levels.end
    position, run_first, run_end = np.int64(levels.start), np.int64(0), np.int64(0)
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


# -- Rows of Parquet pages by their positions, copied as Arrow has them ----------------------------

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


class ValueLayout(NamedTuple):
    """How values lie in a page, their width there, and their size as Arrow has them."""

    kind: int
    width: int
    size: int


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
        elif not ranked(
            Stretch(levels, levels_end), rows + 8 * low, count, first, flags + low, own
        ):
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
        stored = Stretch(values, values_end)
        if kind == TEXT:
            dictionary = (places, load_i64(column + 80))
            written = _placed(stored, dictionary, own, count, ends + 4 * low, written)
            is_whole = written >= 0
        elif kind == BITS:
            is_whole = _copied_bits(values, values_end, own, count, target + low)
        else:
            layout = ValueLayout(kind, width, size)
            is_whole = _copied_values(stored, layout, own, count, target + size * low)
        if not is_whole:
            return np.int64(UNREADABLE)
    return written - before


@compiled
def _copied_values(
    stored: Stretch, layout: ValueLayout, ranks: Any, count: Any, target: Any
) -> Any:
    kind, width, size = layout
    values = stored.start
    stored_count = (stored.end - values) // width
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
    stored: Stretch, dictionary: Any, ranks: Any, count: Any, ends: Any, written: Any
) -> Any:
    """Put in the place of ranks where the texts lie; return how many bytes they are with others, or UNREADABLE.

    `dictionary`: where the places of its texts lie, and how many they are; 0: ranks ascend, and texts lie one behind
    the other.
    """
    (values, values_end), (places, place_count) = stored, dictionary
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

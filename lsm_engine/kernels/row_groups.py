"""Compiled loops over rows in key order: where each key begins, and which of its rows is oldest."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lsm_engine.kernels.arrow_views import Longs, Words
from lsm_engine.kernels.compiled import (
    compiled,
    compiled_with,
    copy_bytes,
    load_i32,
    load_i64,
    load_u16,
    load_u64,
    store_u16,
    store_u32,
)
from lsm_engine.kernels.key_table import compare_tags, compare_tied
from lsm_engine.kernels.keys import ONE_WORD

UNRANKED = 0
"""A form of keys beside ONE_WORD and its kin: there are none, the sequence number decides."""
BLOCK = 16
Ranks: TypeAlias = tuple[int, int, int, int, int]
"""What decides which of two rows is newer: what `KeyTable.parts` holds, and where the addresses of the
inputs' first words and of their sequence numbers lie."""


@compiled
def separate(
    form: int,
    tail: int,
    addresses: int,
    ages: NDArray[np.uint16],
    sequences: Longs,
    words: Words,
    tags: NDArray[np.int64],
    run: NDArray[np.uint16],
    row: NDArray[np.int32],
    starts: Longs,
) -> tuple[int, bool]:
    """Split tags into inputs and rows, and note where keys begin.

    Returns how many keys there are, and whether the rows of each stand in order of their sequence
    numbers, inputs and rows (True where there are no `sequences`).
    """
    groups = late = 0
    last_sequence = last_run = last_row = np.int64(-1)
    for index in range(len(tags)):
        run_here = np.int64(ages[tags[index] >> 32])
        row_here = tags[index] & 0xFFFFFFFF
        run[index] = run_here
        row[index] = row_here
        fresh = index == 0 or words[index] != words[index - 1]
        if not fresh and form != ONE_WORD:
            fresh = compare_tags(form, tail, addresses, tags[index], tags[index - 1]) != 0
        starts[groups] = index
        groups += fresh
        if len(sequences) > 0:
            sequence = np.int64(load_i64(sequences[run_here] + 8 * row_here))
            tied = sequence == last_sequence
            place = (run_here < last_run) | ((run_here == last_run) & (row_here < last_row))
            late += (not fresh) & ((sequence < last_sequence) | (tied & place))
            last_sequence, last_run, last_row = sequence, run_here, row_here
    return groups, late == 0


# What is called for each row is handed addresses: an array that is handed on is counted by locked
# instructions, which take longer than a comparison.


@compiled
def _is_newer(ranks: Ranks, a: Any, i: Any, b: Any, j: Any) -> Any:
    form, tail, addresses, first, sequences = ranks
    if form != UNRANKED:
        word = load_u64(load_i64(first + 8 * a) + 8 * i)
        right_word = load_u64(load_i64(first + 8 * b) + 8 * j)
        if word != right_word:
            return word > right_word
        order = compare_tied(form, tail, addresses, a, i, b, j)
        if order != 0:
            return order > 0
    left_sequence = load_i64(load_i64(sequences + 8 * a) + 8 * i)
    two = load_i64(load_i64(sequences + 8 * b) + 8 * j)
    if left_sequence != two:
        return left_sequence > two
    return a > b or (a == b and i > j)


@compiled
def _store_place(runs: int, rows: int, position: int, run: Any, row: Any) -> None:
    store_u16(runs + 2 * position, np.uint16(run))
    store_u32(rows + 4 * position, np.uint32(row))


@compiled
def _sort_few(ranks: Ranks, runs: int, rows: int, low: int, high: int) -> None:
    """Sort positions low to high by insertion."""
    for moving in range(low + 1, high):
        hole = moving
        run, row = np.int64(load_u16(runs + 2 * hole)), np.int64(load_i32(rows + 4 * hole))
        while hole > low:
            before = np.int64(load_u16(runs + 2 * hole - 2))
            above = np.int64(load_i32(rows + 4 * hole - 4))
            if not _is_newer(ranks, before, above, run, row):
                break
            _store_place(runs, rows, hole, before, above)
            hole -= 1
        _store_place(runs, rows, hole, run, row)


@compiled
def _merge(
    ranks: Ranks, runs: int, rows: int, low: int, middle: int, high: int, to: int, to_rows: int
) -> None:
    """Merge positions low to middle with those from there to high, into `to` from its beginning."""
    left_index, right = low, middle
    for index in range(high - low):
        from_right = left_index >= middle
        if not from_right and right < high:
            a, b = np.int64(load_u16(runs + 2 * left_index)), np.int64(load_u16(runs + 2 * right))
            i, j = np.int64(load_i32(rows + 4 * left_index)), np.int64(load_i32(rows + 4 * right))
            from_right = _is_newer(ranks, a, i, b, j)
        source = right if from_right else left_index
        _store_place(to, to_rows, index, load_u16(runs + 2 * source), load_i32(rows + 4 * source))
        right += from_right
        left_index += not from_right


def _rows_in_all(ranks: Ranks, runs: int, rows: int, count: int, *_: Any) -> int:
    return count


# Compiles in about 1 s, and only once some key's rows are out of order.
@compiled_with(work=_rows_in_all)
def arrange(
    ranks: Ranks, runs: int, rows: int, count: int, starts: Longs, spare_run: int, spare_row: int
) -> None:
    """Sort each group in place: blocks by insertion, then bottom-up merges for long groups.

    The spare arrays have room for the longest group, if it is longer than a block.
    """
    for group in range(len(starts)):
        start = starts[group]
        stop = starts[group + 1] if group + 1 < len(starts) else count
        size = stop - start
        for low in range(start, stop, BLOCK):
            _sort_few(ranks, runs, rows, low, min(low + BLOCK, stop))
        width = BLOCK
        while width < size:
            for low in range(start, stop, 2 * width):
                middle, high = min(low + width, stop), min(low + 2 * width, stop)
                to, to_rows = spare_run + 2 * (low - start), spare_row + 4 * (low - start)
                _merge(ranks, runs, rows, low, middle, high, to, to_rows)
            copy_bytes(runs + 2 * start, spare_run, 2 * size)
            copy_bytes(rows + 4 * start, spare_row, 4 * size)
            width *= 2

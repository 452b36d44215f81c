"""Compiled loops over rows in key order: where each key begins, and which of its rows is oldest."""

import numpy as np
from numpy.typing import NDArray

from lsm_engine.kernels.arrow_views import Longs, Words
from lsm_engine.kernels.compiled import compiled, load_i64, load_u64
from lsm_engine.kernels.key_table import compare_tags, compare_tied
from lsm_engine.kernels.keys import ONE_WORD

UNRANKED = 0
"""A form of keys beside ONE_WORD and its kin: there are none, the sequence number decides."""
_BLOCK = 16


@compiled
def separate(
    form: int,
    tail: int,
    addresses: NDArray[np.int64],
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
    for at in range(len(tags)):
        run_here = np.int64(ages[tags[at] >> 32])
        row_here = tags[at] & 0xFFFFFFFF
        run[at] = run_here
        row[at] = row_here
        fresh = at == 0 or words[at] != words[at - 1]
        if not fresh and form != ONE_WORD:
            fresh = compare_tags(form, tail, addresses, tags[at], tags[at - 1]) != 0
        starts[groups] = at
        groups += fresh
        if len(sequences) > 0:
            sequence = np.int64(load_i64(sequences[run_here] + 8 * row_here))
            tied = sequence == last_sequence
            place = (run_here < last_run) | ((run_here == last_run) & (row_here < last_row))
            late += (not fresh) & ((sequence < last_sequence) | (tied & place))
            last_sequence, last_run, last_row = sequence, run_here, row_here
    return groups, late == 0


@compiled
def _is_newer(
    form: int,
    tail: int,
    addresses: NDArray[np.int64],
    first: Longs,
    sequences: Longs,
    a: int,
    i: int,
    b: int,
    j: int,
) -> bool:
    if form != UNRANKED:
        word, other = load_u64(first[a] + 8 * i), load_u64(first[b] + 8 * j)
        if word != other:
            return word > other
        order = compare_tied(form, tail, addresses, a, i, b, j)
        if order != 0:
            return order > 0
    one, two = load_i64(sequences[a] + 8 * i), load_i64(sequences[b] + 8 * j)
    if one != two:
        return one > two
    return a > b or (a == b and i > j)


@compiled
def _sort_few(
    form: int,
    tail: int,
    addresses: NDArray[np.int64],
    first: Longs,
    sequences: Longs,
    runs: NDArray[np.uint16],
    rows: NDArray[np.int32],
    low: int,
    high: int,
) -> None:
    """Sort positions low to high by insertion."""
    for moving in range(low + 1, high):
        run, row, hole = runs[moving], rows[moving], moving
        while hole > low:
            before, above = runs[hole - 1], rows[hole - 1]
            if not _is_newer(form, tail, addresses, first, sequences, before, above, run, row):
                break
            runs[hole], rows[hole] = before, above
            hole -= 1
        runs[hole], rows[hole] = run, row


# Compiles in about 1 s, and only once some key's rows are out of order.
@compiled
def arrange(
    form: int,
    tail: int,
    addresses: NDArray[np.int64],
    first: Longs,
    sequences: Longs,
    runs: NDArray[np.uint16],
    rows: NDArray[np.int32],
    starts: Longs,
) -> None:
    """Sort each group in place: blocks by insertion, then bottom-up merges for long groups."""
    spare_run, spare_row = np.empty(0, np.uint16), np.empty(0, np.int32)
    for group in range(len(starts)):
        start = starts[group]
        stop = starts[group + 1] if group + 1 < len(starts) else len(runs)
        size = stop - start
        for low in range(start, stop, _BLOCK):
            high = min(low + _BLOCK, stop)
            _sort_few(form, tail, addresses, first, sequences, runs, rows, low, high)
        width = _BLOCK
        if width < size and len(spare_run) < size:
            spare_run, spare_row = np.empty(size, np.uint16), np.empty(size, np.int32)
        while width < size:
            for low in range(start, stop, 2 * width):
                left, right = low, min(low + width, stop)
                middle, high = right, min(low + 2 * width, stop)
                for to in range(low - start, high - start):
                    from_right = left >= middle
                    if not from_right and right < high:
                        a, i, b, j = runs[left], rows[left], runs[right], rows[right]
                        from_right = _is_newer(form, tail, addresses, first, sequences, a, i, b, j)
                    source = right if from_right else left
                    spare_run[to], spare_row[to] = runs[source], rows[source]
                    right += from_right
                    left += not from_right
            # Element by element: slices would compile for three seconds more.
            for to in range(size):
                runs[start + to], rows[start + to] = spare_run[to], spare_row[to]
            width *= 2

"""Which row of each group to take: the last or first valid one, the greatest or the least.

Groups are stretches of rows: group g is rows `offsets[g]` to `offsets[g + 1]`, possibly none. Answers
are row positions, -1 where a group has no such row.
"""

from typing import Any, NamedTuple

import numpy as np

from lsm_engine.kernels.arrow_views import Bools, Longs, Words
from lsm_engine.kernels.compiled import (
    compiled,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)
from lsm_engine.kernels.gather import RowPlaces, Rows, Runs

NO_FLAGS: Bools = np.zeros(0, np.bool_)
"""In place of flags that are all set (validity) or all clear (marks)."""


class GroupedRows(NamedTuple):
    """Rows in groups, as the module says: row i is row `row[i]` of source `run[i]`."""

    run: Runs
    row: Rows
    offsets: Longs


class Validity(NamedTuple):
    """Where each source's validity bits of a column lie (0: it holds no null), and at which bit they begin."""

    bitmaps: Longs
    bit_offsets: Longs


class SourceValues(NamedTuple):
    """A column of fixed width: the bytes of a value, where each source's values lie, and which are valid."""

    width: int
    data: Longs
    validity: Validity


# --- compiled loops: 0.2 to 0.4 s each ------------------------------------------------------------


@compiled
def is_valid_at(bitmaps: Longs, bit_offsets: Longs, run: int, row: int) -> Any:
    """Whether a row of a source is valid; a source without a bitmap (0) holds no null."""
    source = bitmaps[run]
    if source == 0:
        return True
    bit = bit_offsets[run] + np.int64(row)
    return ((np.int64(load_u8(source + (bit >> 3))) >> (bit & 7)) & 1) == 1


@compiled
def pick_valid(
    validity: Validity,
    groups: GroupedRows,
    backwards: bool,  # noqa: FBT001 -- compiled functions take arguments by position
    picked: Longs,
) -> None:
    """Pick the first valid row of each group, or with `backwards` the last."""
    bitmaps, bit_offsets = validity.bitmaps, validity.bit_offsets
    run, row, offsets = groups.run, groups.row, groups.offsets
    for group in range(len(offsets) - 1):
        start, stop = offsets[group], offsets[group + 1]
        picked[group] = -1
        for step in range(stop - start):
            position = stop - 1 - step if backwards else start + step
            if is_valid_at(bitmaps, bit_offsets, run[position], row[position]):
                picked[group] = position
                break


@compiled
def place_picked(
    rows: GroupedRows, positions: Longs, flags: Bools, absent: int, target: RowPlaces
) -> bool:
    """Write where the picked row of each flagged group lies; -1 is row 0 of source `absent`.

    Returns whether there was a -1.
    """
    from_run, from_row, run, row = rows.run, rows.row, target.run, target.row
    missed = False
    cursor = 0
    for group in range(len(flags)):
        if not flags[group]:
            continue
        position = positions[cursor]
        cursor += 1
        if position < 0:
            run[group], row[group] = absent, 0
            missed = True
        else:
            run[group], row[group] = from_run[position], from_row[position]
    return missed


@compiled
def take_valid(
    values: SourceValues,
    groups: GroupedRows,
    backwards: bool,  # noqa: FBT001 -- compiled functions take arguments by position
    target: int,
    valid: Bools,
) -> None:
    """Write the first valid value of each group, or with `backwards` the last, to an address.

    Values are 1, 2, 4, 8 or 16 bytes wide. Picking and gathering in one pass took half the time.
    """
    width, data, (bitmaps, bit_offsets) = values.width, values.data, values.validity
    run, row, offsets = groups.run, groups.row, groups.offsets
    for group in range(len(offsets) - 1):
        start, stop = offsets[group], offsets[group + 1]
        valid[group] = False
        for step in range(stop - start):
            position = stop - 1 - step if backwards else start + step
            if not is_valid_at(bitmaps, bit_offsets, run[position], row[position]):
                continue
            valid[group] = True
            source = data[run[position]] + width * np.int64(row[position])
            if width == 8:
                store_u64(target + 8 * group, load_u64(source))
            elif width == 4:
                store_u32(target + 4 * group, load_u32(source))
            elif width == 16:
                store_u64(target + 16 * group, load_u64(source))
                store_u64(target + 16 * group + 8, load_u64(source + 8))
            elif width == 2:
                store_u16(target + 2 * group, load_u16(source))
            else:
                store_u8(target + group, load_u8(source))
            break


@compiled
def pick_greatest(
    words: Words,
    valid: Bools,
    offsets: Longs,
    least: bool,  # noqa: FBT001 -- compiled functions take arguments by position
    last: bool,  # noqa: FBT001 -- as above
    picked: Longs,
) -> None:
    """Pick a valid row of the greatest (or `least`) word of each group: the first such, or `last`."""
    for group in range(len(offsets) - 1):
        best = -1
        for index in range(offsets[group], offsets[group + 1]):
            if len(valid) > 0 and not valid[index]:
                continue
            better = best < 0 or (last and words[index] == words[best])
            if not better:
                better = words[index] < words[best] if least else words[index] > words[best]
            if better:
                best = index
        picked[group] = best


@compiled
def order_around_greatest(
    words: Words, valid: Bools, offsets: Longs, rows: Longs, new_offsets: Longs
) -> None:
    """Write the valid rows of each group: older ones latest first, then the others as they came.

    A row is older if its word is below the greatest before it: a clock that only advances lets such
    rows count, but before everything that counted so far.
    """
    total = 0
    for group in range(len(offsets) - 1):
        start, stop = offsets[group], offsets[group + 1]
        new_offsets[group] = total
        older = 0
        best = -1
        for index in range(start, stop):
            if not valid[index]:
                continue
            if best >= 0 and words[index] < words[best]:
                older += 1
            else:
                best = index
        before, after = total + older - 1, total + older
        best = -1
        for index in range(start, stop):
            if not valid[index]:
                continue
            if best >= 0 and words[index] < words[best]:
                rows[before] = index
                before -= 1
            else:
                best = index
                rows[after] = index
                after += 1
        total = after
    new_offsets[len(offsets) - 1] = total


@compiled
def find_resets(
    words: Words, valid: Bools, latest: Longs, deletes: Bools, offsets: Longs, resets: Longs
) -> None:
    """Write the last row of each group that empties it, or -1.

    `words` and `valid` hold one stretch of len(deletes) rows per clock, and `latest` a place. A delete empties the group
    if one of its clocks is set and not behind; every clock stands at the delete's own then, so that
    older rows that come late are behind it. Without clocks any does.
    """
    count, clocks = len(deletes), len(latest)
    for group in range(len(offsets) - 1):
        resets[group] = -1
        for clock in range(clocks):
            latest[clock] = -1
        for index in range(offsets[group], offsets[group + 1]):
            empties = deletes[index] and clocks == 0
            for clock in range(clocks):
                slot = clock * count + index
                if not valid[slot]:
                    continue
                if latest[clock] < 0 or words[slot] >= words[latest[clock]]:
                    empties = empties or deletes[index]
                    latest[clock] = slot
            if empties:
                resets[group] = index
                for clock in range(clocks):
                    slot = clock * count + index
                    latest[clock] = slot if valid[slot] else -1

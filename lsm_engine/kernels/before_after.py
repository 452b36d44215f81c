"""Per key: its before image, whether any row is new, and the changelog rows of its change.

Inputs have an age each: 0 is new, greater is older. Rows of one key come in the order of a merge.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.kernels.compiled import compiled

UNCHANGED, CREATED, REMOVED, REPLACED = range(4)
"""What became of a key."""

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""Row kinds, as the format numbers them."""


# --- compiled loops: 0.2 s each -------------------------------------------------------------------


@compiled
def find_before(
    run: NDArray[np.uint16],
    starts: Longs,
    ages: Longs,
    before: Longs,
    is_new: Bools,
    survives: Bools,
) -> int:
    """Write, per key, the position of its youngest row that is not new (-1: none), and if any is new.

    Of the rows that are not new only that one is `kept`. Returns how many rows are not.
    """
    dropped = 0
    for group in range(len(starts)):
        stop = starts[group + 1] if group + 1 < len(starts) else len(run)
        youngest: Any = np.int64(-1)
        fresh = False
        for index in range(starts[group], stop):
            age = ages[run[index]]
            survives[index] = age == 0
            if age == 0:
                fresh = True
            elif youngest < 0 or age <= ages[run[youngest]]:
                dropped += youngest >= 0
                youngest = index
            else:
                dropped += 1
        if youngest >= 0:
            survives[youngest] = True
        before[group] = youngest
        is_new[group] = fresh
    return dropped


@compiled
def lay_out_changes(
    changes: NDArray[np.int8],
    before: Longs,
    run: NDArray[np.uint16],
    row: NDArray[np.int32],
    after_run: int,
    runs: NDArray[np.uint16],
    rows: NDArray[np.int32],
    kinds: NDArray[np.int8],
) -> int:
    """Write where the rows of the changes lie, and their kinds; return how many there are.

    The row of key g after the merge is row g of source `after_run`. A key has two rows at most: room
    for those is needed.
    """
    count = 0
    for group in range(len(changes)):
        change = changes[group]
        if change == UNCHANGED:
            continue
        if change != CREATED:
            position = before[group]
            runs[count], rows[count] = run[position], row[position]
            kinds[count] = DELETE if change == REMOVED else UPDATE_BEFORE
            count += 1
        if change != REMOVED:
            runs[count], rows[count] = after_run, group
            kinds[count] = INSERT if change == CREATED else UPDATE_AFTER
            count += 1
    return count

"""Rows of each group of equal keys: first, last, last valid, how many.

A group is the rows from one entry of `starts` to the next, the last one to the end; none is empty.
"""

import numpy as np
from numpy.typing import NDArray

from lsm_engine.kernels.arrow_views import Bools, Longs


def first_of_each(starts: Longs) -> Longs:
    """Return the position of the first row of every group."""
    return starts


def last_of_each(starts: Longs, row_count: int) -> Longs:
    """Return the position of the last row of every group."""
    lasts = np.empty(len(starts), np.int64)
    if len(starts):
        np.subtract(starts[1:], 1, out=lasts[:-1])
        lasts[-1] = row_count - 1
    return lasts


def counts_of_each(starts: Longs, row_count: int) -> Longs:
    """Return the number of rows of every group."""
    return last_of_each(starts, row_count) - starts + 1


def group_of_each(starts: Longs, row_count: int) -> Longs:
    """Return the number of the group that each row is in."""
    numbers: Longs = np.repeat(
        np.arange(len(starts), dtype=np.int64), counts_of_each(starts, row_count)
    )
    return numbers


def last_valid_of_each(valid: Bools, starts: Longs) -> Longs:
    """Return the position of the last valid row of every group, or -1 where a group has none."""
    return _reduced(np.maximum, np.where(valid, np.arange(len(valid)), -1), starts)


def _reduced(reduce: np.ufunc, positions: NDArray[np.int64], starts: Longs) -> Longs:
    if not len(starts):
        return np.zeros(0, np.int64)
    reduced: Longs = reduce.reduceat(positions, starts)
    return reduced


def distinct(values: Longs) -> Longs:
    """Return the values in ascending order, each once.

    Sorted stretches are merged, in linear time. `numpy.unique` hashes integers since 2.3, and takes
    seconds for a million that lie close together.
    """
    ordered: Longs = np.sort(values, kind="stable")
    # A single value has no neighbour to compare with.
    if len(ordered) < 2:
        return ordered
    is_new: Bools = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered if is_new.all() else ordered[is_new]

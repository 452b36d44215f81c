"""Row kinds, equal rows, and the changelog rows between a state and the next."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lsm_engine.kernels.arrow_views import Bools, Column, Longs, bool_values, one_array
from lsm_engine.kernels.compiled import compiled
from lsm_engine.kernels.gather import RowPlaces, Rows, Runs
from lsm_engine.options.modes import RowKind

# -- Row kinds as additions and removals -----------------------------------------------------------

Kinds: TypeAlias = NDArray[np.int8]


def adds(kinds: Kinds) -> Bools:
    """Return which row kinds put a row there (+I, +U) rather than take it away."""
    flags: Bools = (kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER)
    return flags


def retracts(kinds: Kinds) -> Bools:
    """Return which row kinds take a row away (-U, -D); a mark that is no row kind does not."""
    flags: Bools = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
    return flags


# -- Equality of rows; nulls are equal, floats by their bits ---------------------------------------


def equal_rows(columns: Sequence[Column], other_columns: Sequence[Column], row_count: int) -> Bools:
    """Return which rows are equal in all columns; nested values are compared part by part."""
    equal: Bools = np.ones(row_count, np.bool_)
    for column, other_column in zip(columns, other_columns, strict=True):
        equal &= _equal(one_array(column), one_array(other_column))
    return equal


def _equal(left_values: pa.Array, right_values: pa.Array) -> Bools:
    valid, other_valid = bool_values(left_values.is_valid()), bool_values(right_values.is_valid())
    equal: Bools = valid == other_valid
    both = np.flatnonzero(valid & other_valid)
    if len(both) < len(valid):
        left_values, right_values = (
            left_values.take(pa.array(both)),
            right_values.take(pa.array(both)),
        )
    equal[both] = _equal_values(left_values, right_values)
    return equal


def _equal_values(left_values: pa.Array, right_values: pa.Array) -> Bools:
    kind = left_values.type
    # Bits are compared, because NaN differs from itself.
    if pa.types.is_floating(kind):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
        return bool_values(pc.equal(left_values.view(bits), right_values.view(bits)))
    if pa.types.is_struct(kind):
        return equal_rows(left_values.flatten(), right_values.flatten(), len(left_values))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _equal_lists(left_values, right_values)
    return bool_values(pc.equal(left_values, right_values))


def _equal_lists(left_lists: pa.Array, right_lists: pa.Array) -> Bools:
    """Compare lists, or maps in the order of their entries: first lengths, then all elements."""
    sizes, other_sizes = _sizes(left_lists), _sizes(right_lists)
    equal: Bools = sizes == other_sizes
    alike = np.flatnonzero(equal)
    elements = [
        _elements(left_lists.take(pa.array(alike))),
        _elements(right_lists.take(pa.array(alike))),
    ]
    differ = ~_equal(*elements)
    # How many differ up to the end of each list, and so how many inside of it.
    counts = np.concatenate((np.zeros(1, np.int64), np.cumsum(differ, dtype=np.int64)))
    ends = np.cumsum(sizes[alike])
    equal[alike] = counts[ends] == counts[ends - sizes[alike]]
    return equal


def _sizes(lists: pa.Array) -> Longs:
    sizes: Longs = np.diff(lists.offsets.to_numpy().astype(np.int64))
    return sizes


def _elements(lists: pa.Array) -> pa.Array:
    # Keys and items share the offsets of the map, so both are cut alike.
    if pa.types.is_map(lists.type):
        first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
        parts = [lists.keys, lists.items]
        return pa.StructArray.from_arrays(
            [part.slice(first, last - first) for part in parts], names=["key", "value"]
        )
    return lists.flatten()


# -- Before images and changelog rows per key ------------------------------------------------------
#
# Inputs have an age each: 0 is new, greater is older. Rows of one key come in the order of a
# merge.

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


class ChangedRows(NamedTuple):
    """The rows of a changelog: where each lies, and its kind."""

    run: Runs
    row: Rows
    kind: Kinds


@compiled
def lay_out_changes(
    changes: NDArray[np.int8], before: Longs, places: RowPlaces, after_run: int, target: ChangedRows
) -> int:
    """Write where the rows of the changes lie, and their kinds; return how many there are.

    The row of key g after the merge is row g of source `after_run`. A key has two rows at most: room
    for those is needed.
    """
    (run, row), (runs, rows, kinds) = places, target
    count = 0
    for group in range(len(changes)):
        change = changes[group]
        # A key that did not change has no place in a changelog.
        if change == UNCHANGED:
            continue
        # A new key had no row before.
        if change != CREATED:
            position = before[group]
            runs[count], rows[count] = run[position], row[position]
            kinds[count] = DELETE if change == REMOVED else UPDATE_BEFORE
            count += 1
        # A removed key has no row afterwards.
        if change != REMOVED:
            runs[count], rows[count] = after_run, group
            kinds[count] = INSERT if change == CREATED else UPDATE_AFTER
            count += 1
    return count

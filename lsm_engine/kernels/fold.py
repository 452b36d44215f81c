"""Values of groups folded to one: sums, products and extremes, and collections that grow and shrink."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lsm_engine.kernels.arrow_views import Bools, Longs, Words
from lsm_engine.kernels.compiled import (
    compiled,
    load_f32,
    load_f64,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_u64,
)
from lsm_engine.kernels.pick_rows import GroupedRows, SourceValues, is_valid_at

# -- Fold numbers ----------------------------------------------------------------------------------
#
# Sums, products and extremes of the valid values of each group, read where the sources lie;
# overflow is found.
#
# Groups are stretches of rows: group g is rows `offsets[g]` to `offsets[g + 1]`, possibly none.
# A marked row is taken back: subtracted, or divided by. The functions return -1, or what went wrong in group g: g if a result does not fit, -2
# - g for a division by zero.

SUM = 0
PRODUCT = 1
GREATEST = 2
LEAST = 3
NO_OVERFLOW = -1
_LEAST = np.int64(-(2**63))
_GREATEST = np.int64(2**63 - 1)


class FoldedIntegers(NamedTuple):
    """A number for each group, and whether the group has a valid value."""

    out: Longs
    valid: Bools


class FoldedFloats(NamedTuple):
    """A floating number for each group, and whether the group has a valid value."""

    out: NDArray[np.float64]
    valid: Bools


class WideSums(NamedTuple):
    """The halves of a 128-bit sum for each group, and whether the group has a valid value."""

    low: Words
    high: Words
    valid: Bools


# --- compiled loops: about 0.5 s each -------------------------------------------------------------


@compiled
def _integer_at(width: int, source: Any, row: Any) -> Any:
    if width == 8:
        return load_i64(source + 8 * row)
    if width == 4:
        return np.int64(load_i32(source + 4 * row))
    if width == 2:
        return np.int64(load_i16(source + 2 * row))
    if width == 1:
        return np.int64(load_i8(source + row))
    return load_i64(source + 16 * row)  # the low half of a decimal of at most 18 digits


@compiled
def _quotient(a: Any, b: Any) -> Any:
    """Divide towards zero."""
    quotient = a // b
    if quotient * b != a and (a < 0) != (b < 0):
        quotient += 1
    return quotient


# Arithmetic that would wrap is undefined once compiled: so overflow is detected beforehand.


@compiled
def _sum_overflows(total: Any, value: Any, marked: Any) -> Any:
    if marked:
        return total < _LEAST + value if value > 0 else total > _GREATEST + value
    return total > _GREATEST - value if value > 0 else total < _LEAST - value


@compiled
def _product_overflows(total: Any, value: Any) -> Any:
    # A product with zero is zero, and a division by zero must not be tried.
    if value == 0:
        return False
    # The least number has no positive counterpart.
    if value == -1:
        return total == _LEAST
    if value > 0:
        return total > _GREATEST // value or total < _quotient(_LEAST, value)
    return total > _quotient(_LEAST, value) or total < _quotient(_GREATEST, value)


_FITS_SO_FAR, _OVERFLOWS, _DIVIDES_BY_ZERO = 0, 1, 2


@compiled
def _next_total(
    operation: int,
    total: int,
    value: int,
    marked: bool,  # noqa: FBT001 -- compiled functions take positions
    has_value: bool,  # noqa: FBT001
) -> tuple[int, int]:
    """Fold one more value; marked ones are taken away again. Returns how it went, and the total."""
    if operation == SUM:
        if _sum_overflows(total, value, marked):
            return _OVERFLOWS, total
        return _FITS_SO_FAR, total - value if marked else total + value
    # The first value of a group is its total.
    if not has_value:
        return _FITS_SO_FAR, value
    if operation == GREATEST:
        return _FITS_SO_FAR, max(total, value)
    if operation == LEAST:
        return _FITS_SO_FAR, min(total, value)
    if not marked:
        if _product_overflows(total, value):
            return _OVERFLOWS, total
        return _FITS_SO_FAR, total * value
    if value == 0:
        return _DIVIDES_BY_ZERO, total
    if total == _LEAST and value == -1:
        return _OVERFLOWS, total
    return _FITS_SO_FAR, _quotient(total, value)


@compiled
def fold_integers(
    operation: int,
    values: SourceValues,
    groups: GroupedRows,
    marks: Bools,
    bounds: tuple[int, int],
    folded: FoldedIntegers,
) -> int:
    """Fold signed integers of 1, 2, 4, 8 or (low half) 16 bytes into the bounds.

    `folded.out` has one entry per group, or two: the low and the high half of a 128-bit number.
    """
    width, data, (bitmaps, bit_offsets) = values.width, values.data, values.validity
    run, row, offsets = groups.run, groups.row, groups.offsets
    (lowest, highest), out, valid = bounds, folded.out, folded.valid
    step = 2 if len(out) > len(valid) else 1
    for group in range(len(offsets) - 1):
        total: Any = np.int64(0)
        has_value: Any = False
        for index in range(offsets[group], offsets[group + 1]):
            if not is_valid_at(bitmaps, bit_offsets, run[index], row[index]):
                continue
            value = _integer_at(width, data[run[index]], np.int64(row[index]))
            marked = len(marks) > 0 and marks[index]
            if operation not in (SUM, GREATEST, LEAST) and marked and not has_value:
                continue  # nothing to divide: an empty product stays empty
            outcome, next_total = _next_total(operation, total, value, marked, has_value)
            if outcome == _OVERFLOWS:
                return group
            if outcome == _DIVIDES_BY_ZERO:
                return -2 - group
            total, has_value = next_total, True
        # The column's type may be narrower than 64 bits.
        if total < lowest or total > highest:
            return group
        out[step * group], valid[group] = total, has_value
        # The high half of a 128-bit number repeats the sign.
        if step == 2:
            out[2 * group + 1] = total >> 63
    return NO_OVERFLOW


# Extremes go by Java's Double.compare: NaN is the greatest number, and -0.0 is below 0.0. Of two equal numbers
# the sign chooses, which tells zeros apart and no others.


@compiled
def _is_greater(value: Any, total: Any) -> Any:
    """Whether a value takes the place of the greatest one so far."""
    return (value > total) | (value != value) | ((value == total) & np.signbit(total))


@compiled
def _is_less(value: Any, total: Any) -> Any:
    """Whether a value takes the place of the least one so far."""
    return (value < total) | (total != total) | ((value == total) & np.signbit(value))


@compiled
def fold_floats(
    operation: int, values: SourceValues, groups: GroupedRows, marks: Bools, folded: FoldedFloats
) -> int:
    """Fold floating numbers of 4 or 8 bytes, each step rounded to their width."""
    width, data, (bitmaps, bit_offsets) = values.width, values.data, values.validity
    run, row, offsets = groups.run, groups.row, groups.offsets
    out, valid = folded.out, folded.valid
    for group in range(len(offsets) - 1):
        total: Any = 0.0
        has_value = False
        for index in range(offsets[group], offsets[group + 1]):
            if not is_valid_at(bitmaps, bit_offsets, run[index], row[index]):
                continue
            source, position = data[run[index]], np.int64(row[index])
            value: Any = 0.0
            if width == 4:
                value = np.float64(load_f32(source + 4 * position))
            else:
                value = load_f64(source + 8 * position)
            marked = len(marks) > 0 and marks[index]
            if operation == SUM:
                next_total = total - value if marked else total + value
                if not has_value:
                    next_total = -value if marked else value  # keeps the sign of a single zero
            elif not has_value:
                if marked:
                    continue
                next_total = value
            elif operation == GREATEST:
                next_total = value if _is_greater(value, total) else total
            elif operation == LEAST:
                next_total = value if _is_less(value, total) else total
            else:
                next_total = total / value if marked else total * value
            total = np.float64(np.float32(next_total)) if width == 4 else next_total
            has_value = True
        out[group], valid[group] = total, has_value
    return NO_OVERFLOW


# The usual case: nothing is taken back, no group is empty. One step per row and no branch that the
# processor would have to guess, neither at nulls nor where a group ends; two thirds of the time.


@compiled
def reduce_integers(
    operation: int, values: SourceValues, groups: GroupedRows, folded: FoldedIntegers
) -> bool:
    """Do what fold_integers does, but products; False if some sum may have overflowed."""
    width, data, (bitmaps, bit_offsets) = values.width, values.data, values.validity
    run, row, offsets = groups.run, groups.row, groups.offsets
    out, valid = folded.out, folded.valid
    step = 2 if len(out) > len(valid) else 1
    start: Any = np.uint64(0)
    if operation == GREATEST:
        start = np.uint64(2**63)  # the least signed number
    elif operation == LEAST:
        start = np.uint64(2**63 - 1)
    total, has_value, wrapped = start, False, np.uint64(0)
    group, following = -1, np.int64(0)
    for index in range(len(run)):
        fresh = index == following
        group += fresh
        following = offsets[group + 1]
        is_valid = is_valid_at(bitmaps, bit_offsets, run[index], row[index])
        value = np.uint64(_integer_at(width, data[run[index]], np.int64(row[index])))
        total = start if fresh else total
        has_value = is_valid or (has_value and not fresh)
        if operation == SUM:
            value = value if is_valid else np.uint64(0)
            next_total = total + value
            wrapped |= (total ^ next_total) & (value ^ next_total)
            total = next_total
        elif operation == GREATEST:
            total = value if is_valid and np.int64(value) > np.int64(total) else total
        else:
            total = value if is_valid and np.int64(value) < np.int64(total) else total
        out[step * group] = np.int64(total)
        if step == 2:
            out[2 * group + 1] = np.int64(total) >> 63
        valid[group] = has_value
    return bool(wrapped < np.uint64(2**63))


@compiled
def reduce_floats(
    operation: int, values: SourceValues, groups: GroupedRows, folded: FoldedFloats
) -> None:
    """Do what fold_floats does, but products."""
    width, data, (bitmaps, bit_offsets) = values.width, values.data, values.validity
    run, row, offsets = groups.run, groups.row, groups.offsets
    out, valid = folded.out, folded.valid
    start = -0.0  # added to any number, zeros included, it gives that number
    if operation == GREATEST:
        start = -np.inf
    elif operation == LEAST:
        start = np.nan
    total, has_value = start, False
    group, following = -1, np.int64(0)
    for index in range(len(run)):
        fresh = index == following
        group += fresh
        following = offsets[group + 1]
        is_valid = is_valid_at(bitmaps, bit_offsets, run[index], row[index])
        source, position = data[run[index]], np.int64(row[index])
        value: Any = 0.0
        if width == 4:
            value = np.float64(load_f32(source + 4 * position))
        else:
            value = load_f64(source + 8 * position)
        total = start if fresh else total
        has_value = is_valid or (has_value and not fresh)
        if operation == SUM:
            total = total + (value if is_valid else -0.0)
            if width == 4:
                total = np.float64(np.float32(total))
        elif operation == GREATEST:
            total = value if is_valid and _is_greater(value, total) else total
        else:
            total = value if is_valid and _is_less(value, total) else total
        out[group], valid[group] = total, has_value


@compiled
def sum_wide(
    values: SourceValues,
    groups: GroupedRows,
    marks: Bools,
    limit: tuple[np.uint64, np.uint64],
    sums: WideSums,
) -> int:
    """Sum 128-bit integers, given and returned as a low and a high half, to below +-limit."""
    data, (bitmaps, bit_offsets) = values.data, values.validity
    run, row, offsets = groups.run, groups.row, groups.offsets
    (limit_low, limit_high), low, high, valid = limit, sums.low, sums.high, sums.valid
    for group in range(len(offsets) - 1):
        sum_low, sum_high, has_value = np.uint64(0), np.uint64(0), False
        for index in range(offsets[group], offsets[group + 1]):
            if not is_valid_at(bitmaps, bit_offsets, run[index], row[index]):
                continue
            source = data[run[index]] + 16 * np.int64(row[index])
            value_low, value_high = load_u64(source), load_u64(source + 8)
            if len(marks) > 0 and marks[index]:
                borrow = np.uint64(sum_low < value_low)
                sum_low = sum_low - value_low
                sum_high = sum_high - value_high - borrow
            else:
                sum_low = sum_low + value_low
                carry = np.uint64(sum_low < value_low)
                sum_high = sum_high + value_high + carry
            size_low, size_high = sum_low, sum_high
            if sum_high >> np.uint64(63) != 0:
                size_low = ~sum_low + np.uint64(1)
                size_high = ~sum_high + np.uint64(size_low == 0)
            # Two numbers of 38 digits may pass 2^127; what they wrap to is still beyond the limit.
            if size_high > limit_high or (size_high == limit_high and size_low >= limit_low):
                return group
            has_value = True
        low[group], high[group], valid[group] = sum_low, sum_high, has_value
    return NO_OVERFLOW


# -- Additions and removals folded into small collections ------------------------------------------
#
# `ids` number the (collection, key) pairs densely from 0, `groups` the collections. Entries come in
# the order in which they happen; entries of one group need not be neighbours.

NO_LIMIT = np.iinfo(np.int64).max


class KeyChanges(NamedTuple):
    """Additions and removals: the id and the group of each entry, and whether it removes."""

    ids: Longs
    groups: Longs
    removes: Bools


class AdditionQueues(NamedTuple):
    """The additions of each id, oldest first: entries linked from heads to tails; -1 is none."""

    heads: Longs
    tails: Longs
    following: Longs


# --- compiled loops: about 0.2 s each -------------------------------------------------------------


@compiled
def latest_of_keys(
    changes: KeyChanges, words: Words, limit: int, current: Longs, sizes: Longs
) -> None:
    """Write the entry that stands for each id into `current` (-1: none); the later one stands.

    An entry replaces one whose word is not above its own. A key that is new to its group is not
    taken while the group holds `limit` keys. `current` and `sizes` come filled with -1 and 0.
    """
    ids, groups, removes = changes.ids, changes.groups, changes.removes
    for entry in range(len(ids)):
        number, group = ids[entry], groups[entry]
        standing = current[number]
        if removes[entry]:
            if standing >= 0:
                current[number] = -1
                sizes[group] -= 1
        elif standing >= 0:
            if words[entry] >= words[standing]:
                current[number] = entry
        elif sizes[group] < limit:
            current[number] = entry
            sizes[group] += 1


@compiled
def remaining(
    changes: KeyChanges,
    once: bool,  # noqa: FBT001 -- compiled functions take arguments by position
    is_exhaustive: bool,  # noqa: FBT001 -- as above
    queues: AdditionQueues,
    survives: Bools,
) -> None:
    """Flag the additions that are left: a removal takes the oldest of its id, or all (`is_exhaustive`).

    With `once` an addition counts only while no other of its id is there. The queues come empty,
    `survives` filled with False.
    """
    ids, removes = changes.ids, changes.removes
    heads, tails, following = queues.heads, queues.tails, queues.following
    for entry in range(len(ids)):
        number = ids[entry]
        if removes[entry]:
            while heads[number] >= 0:
                survives[heads[number]] = False
                heads[number] = following[heads[number]]
                if not is_exhaustive:
                    break
            continue
        if heads[number] < 0:
            heads[number] = entry
        elif once:
            continue
        else:
            following[tails[number]] = entry
        tails[number] = entry
        survives[entry] = True

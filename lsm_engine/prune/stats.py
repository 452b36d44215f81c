"""Pruning by statistics: the files that may hold a matching row.

The bounds of a column are Arrow arrays with one element per file. A file is pruned only if it is certain
that no row matches, so each unknown (a null bound, a column without bounds, a value that Arrow cannot
compare with a bound) keeps the file. Two masks exist for a predicate, may it be true and may it be
false: NOT exchanges them, while null stays null.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.record import record
from lsm_engine.prune.predicate import (
    And,
    Compare,
    Comparison,
    Constant,
    IsIn,
    IsNull,
    IsValid,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
)

Mask = npt.NDArray[np.bool_]
_VALUES_TRIED_MAX = 256


@record
class ColumnBounds:
    """The bounds of one column in n files. A null element is unknown.

    `mins` and `maxs` bound every value that is neither null nor NaN; they need not occur. A NaN
    bound counts as unknown, and no bound excludes NaN.
    """

    mins: pa.Array
    maxs: pa.Array
    null_counts: pa.Array  # int64


def may_match(
    predicate: Predicate, bounds: Mapping[str, ColumnBounds], row_counts: pa.Array
) -> Mask:
    """Return for each of n files whether a row of it may satisfy `predicate`.

    `bounds` holds columns by name; columns left out are unknown. `row_counts`: int64[n].
    """
    return _Files(bounds, row_counts).may_be_true(predicate)


class _Files:
    """The bounds of n files, and masks of the files that may match."""

    def __init__(self, bounds: Mapping[str, ColumnBounds], row_counts: pa.Array) -> None:
        self._bounds = bounds
        self._row_counts = row_counts
        self._yes = np.ones(len(row_counts), dtype=np.bool_)

    def may_be_true(self, predicate: Predicate) -> Mask:
        match predicate:
            case And():
                return self._intersection(self.may_be_true(part) for part in predicate.parts)
            case Or():
                return self._union(self.may_be_true(part) for part in predicate.parts)
            case Not():
                return self.may_be_false(predicate.part)
            case Compare():
                return self._compare(predicate.column, predicate.comparison, predicate.value)
            case IsIn():
                return self._in(predicate)
            case StartsWith():
                return self._starts(predicate)
            case IsNull():
                return self._some_null(predicate.column)
            case IsValid():
                return self._some_valid(predicate.column)
            case Constant():
                return self._yes if predicate.value else ~self._yes
            case Opaque():
                return self._yes

    def may_be_false(self, predicate: Predicate) -> Mask:
        match predicate:
            case And():
                return self._union(self.may_be_false(part) for part in predicate.parts)
            case Or():
                return self._intersection(self.may_be_false(part) for part in predicate.parts)
            case Not():
                return self.may_be_true(predicate.part)
            case Compare():
                if self._may_meet_nan(predicate.column, predicate.value):
                    return self._some_valid(predicate.column)  # comparing with NaN is false
                inverse = predicate.comparison.inverse
                return self._compare(predicate.column, inverse, predicate.value)
            case IsIn():
                return self._not_in(predicate)
            case StartsWith():
                return self._some_valid(predicate.column) & ~self._all_start(predicate)
            case IsNull():
                return self._some_valid(predicate.column)
            case IsValid():
                return self._some_null(predicate.column)
            case Constant():
                return self._yes if predicate.value is False else ~self._yes
            case Opaque():
                return self._yes

    def _intersection(self, masks: Iterable[Mask]) -> Mask:
        return reduce(np.logical_and, masks, self._yes)

    def _union(self, masks: Iterable[Mask]) -> Mask:
        return reduce(np.logical_or, masks, ~self._yes)

    # --- leaves: may some row of the file … -------------------------------------------------------

    def _compare(self, column: str, comparison: Comparison, value: pa.Scalar) -> Mask:
        """… compare so? Of rows that are not null."""
        column_bounds = self._bounds.get(column)
        if column_bounds is None:
            return self._yes
        mins, maxs = _without_nan(column_bounds.mins), _without_nan(column_bounds.maxs)
        match comparison:
            case Comparison.EQUAL:
                mask = _may(pc.less_equal, mins, value) & _may(pc.greater_equal, maxs, value)
            case Comparison.NOT_EQUAL if self._may_meet_nan(column, value):
                mask = self._yes
            case Comparison.NOT_EQUAL:
                mask = _may(pc.less, mins, value) | _may(pc.greater, maxs, value)
            case Comparison.LESS | Comparison.LESS_EQUAL:
                mask = _may(_FUNCTIONS[comparison], mins, value)
            case Comparison.GREATER | Comparison.GREATER_EQUAL:
                mask = _may(_FUNCTIONS[comparison], maxs, value)
        return mask & self._some_valid(column)

    def _in(self, predicate: IsIn) -> Mask:
        """… be in the set?"""
        values = predicate.values
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            mask = self._some_valid(predicate.column)  # Arrow finds NaN in a set; bounds do not
        elif len(values) <= _VALUES_TRIED_MAX:
            mask = self._union(
                self._compare(predicate.column, Comparison.EQUAL, value) for value in values
            )
        else:
            ends = pc.min_max(values)
            mask = self._compare(predicate.column, Comparison.GREATER_EQUAL, ends["min"])
            mask &= self._compare(predicate.column, Comparison.LESS_EQUAL, ends["max"])
        return mask | self._some_null(predicate.column) if predicate.null_matches else mask

    def _not_in(self, predicate: IsIn) -> Mask:
        """… be outside the set? Not if all rows are one value of it."""
        mask = self._some_valid(predicate.column)
        column_bounds = self._bounds.get(predicate.column)
        is_small_set = len(predicate.values) <= _VALUES_TRIED_MAX
        if (
            column_bounds is not None
            and is_small_set
            and not pa.types.is_floating(column_bounds.mins.type)
        ):
            mask &= ~self._union(
                _must(pc.greater_equal, column_bounds.mins, value)
                & _must(pc.less_equal, column_bounds.maxs, value)
                for value in predicate.values
            )
        return mask if predicate.null_matches else mask | self._some_null(predicate.column)

    def _starts(self, predicate: StartsWith) -> Mask:
        """… start so? Text that starts with a prefix lies between it and the next prefix."""
        mask = self._compare(
            predicate.column, Comparison.GREATER_EQUAL, pa.scalar(predicate.prefix)
        )
        beyond = after_prefix(predicate.prefix)
        if beyond is None:
            return mask
        return mask & self._compare(predicate.column, Comparison.LESS, pa.scalar(beyond))

    def _all_start(self, predicate: StartsWith) -> Mask:
        column_bounds = self._bounds.get(predicate.column)
        beyond = after_prefix(predicate.prefix)
        if column_bounds is None or beyond is None:
            return ~self._yes
        low, high = pa.scalar(predicate.prefix), pa.scalar(beyond)
        return _must(pc.greater_equal, column_bounds.mins, low) & _must(
            pc.less, column_bounds.maxs, high
        )

    def _some_null(self, column: str) -> Mask:
        column_bounds = self._bounds.get(column)
        return (
            self._yes
            if column_bounds is None
            else _may(pc.greater, column_bounds.null_counts, pa.scalar(0))
        )

    def _some_valid(self, column: str) -> Mask:
        column_bounds = self._bounds.get(column)
        return (
            self._yes
            if column_bounds is None
            else _may(pc.less, column_bounds.null_counts, self._row_counts)
        )

    def _may_meet_nan(self, column: str, value: pa.Scalar) -> bool:
        column_bounds = self._bounds.get(column)
        if column_bounds is None or pa.types.is_floating(column_bounds.mins.type):
            return True
        return pa.types.is_floating(value.type) and bool(pc.is_nan(value).as_py())


_FUNCTIONS = {
    Comparison.LESS: pc.less,
    Comparison.LESS_EQUAL: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.GREATER_EQUAL: pc.greater_equal,
}


def after_prefix(prefix: str) -> str | None:
    """Return the least text above all that starts with `prefix`; None if there is none."""
    for end in range(len(prefix), 0, -1):
        last = ord(prefix[end - 1])
        if last < 0x10FFFF:
            following = 0xE000 if last == 0xD7FF else last + 1  # surrogates are no text
            return prefix[: end - 1] + chr(following)
    return None


def _may(compute: Callable[..., pa.Array], array: pa.Array, operand: pa.Array | pa.Scalar) -> Mask:
    return _answer(compute, array, operand, unknown=True)


def _must(compute: Callable[..., pa.Array], array: pa.Array, operand: pa.Array | pa.Scalar) -> Mask:
    return _answer(compute, array, operand, unknown=False)


def _answer(
    compute: Callable[..., pa.Array],
    array: pa.Array,
    operand: pa.Array | pa.Scalar,
    *,
    unknown: bool,
) -> Mask:
    try:
        mask: Mask = compute(array, operand).fill_null(unknown).to_numpy(zero_copy_only=False)
    except pa.ArrowException:  # the types do not unify: the result is unknown
        mask = np.full(len(array), unknown)
    return mask


def _without_nan(array: pa.Array) -> pa.Array:
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)

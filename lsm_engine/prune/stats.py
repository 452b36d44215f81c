"""A predicate against statistics: which of many files may hold a matching row.

Vectorised over files: a column's bounds are Arrow arrays with one element per file. Every answer is a
superset, so each unknown (a null bound, a column without bounds, a value that Arrow cannot compare
with a bound) reads as "may". Both questions are asked of a predicate, may it be true and may it be
false, since NOT turns one into the other while null stays null.
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
    """What is known about one column of n files. A null element means unknown.

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
    """n files, asked together."""

    def __init__(self, bounds: Mapping[str, ColumnBounds], row_counts: pa.Array) -> None:
        self._bounds = bounds
        self._row_counts = row_counts
        self._yes = np.ones(len(row_counts), dtype=np.bool_)

    def may_be_true(self, predicate: Predicate) -> Mask:
        match predicate:
            case And():
                return self._all(self.may_be_true(part) for part in predicate.parts)
            case Or():
                return self._any(self.may_be_true(part) for part in predicate.parts)
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
                return self._any(self.may_be_false(part) for part in predicate.parts)
            case Or():
                return self._all(self.may_be_false(part) for part in predicate.parts)
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

    def _all(self, masks: Iterable[Mask]) -> Mask:
        return reduce(np.logical_and, masks, self._yes)

    def _any(self, masks: Iterable[Mask]) -> Mask:
        return reduce(np.logical_or, masks, ~self._yes)

    # --- leaves: may some row of the file … -------------------------------------------------------

    def _compare(self, column: str, comparison: Comparison, value: pa.Scalar) -> Mask:
        """… compare so? Of rows that are not null."""
        known = self._bounds.get(column)
        if known is None:
            return self._yes
        mins, maxs = _without_nan(known.mins), _without_nan(known.maxs)
        match comparison:
            case Comparison.EQUAL:
                found = _may(pc.less_equal, mins, value) & _may(pc.greater_equal, maxs, value)
            case Comparison.NOT_EQUAL if self._may_meet_nan(column, value):
                found = self._yes
            case Comparison.NOT_EQUAL:
                found = _may(pc.less, mins, value) | _may(pc.greater, maxs, value)
            case Comparison.LESS | Comparison.LESS_EQUAL:
                found = _may(_FUNCTIONS[comparison], mins, value)
            case Comparison.GREATER | Comparison.GREATER_EQUAL:
                found = _may(_FUNCTIONS[comparison], maxs, value)
        return found & self._some_valid(column)

    def _in(self, predicate: IsIn) -> Mask:
        """… be in the set?"""
        values = predicate.values
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            found = self._some_valid(predicate.column)  # Arrow finds NaN in a set; bounds do not
        elif len(values) <= _VALUES_TRIED_MAX:
            found = self._any(
                self._compare(predicate.column, Comparison.EQUAL, value) for value in values
            )
        else:
            ends = pc.min_max(values)
            found = self._compare(predicate.column, Comparison.GREATER_EQUAL, ends["min"])
            found &= self._compare(predicate.column, Comparison.LESS_EQUAL, ends["max"])
        return found | self._some_null(predicate.column) if predicate.null_matches else found

    def _not_in(self, predicate: IsIn) -> Mask:
        """… be outside the set? Not if all rows are one value of it."""
        found = self._some_valid(predicate.column)
        known = self._bounds.get(predicate.column)
        few = len(predicate.values) <= _VALUES_TRIED_MAX
        if known is not None and few and not pa.types.is_floating(known.mins.type):
            found &= ~self._any(
                _must(pc.greater_equal, known.mins, value) & _must(pc.less_equal, known.maxs, value)
                for value in predicate.values
            )
        return found if predicate.null_matches else found | self._some_null(predicate.column)

    def _starts(self, predicate: StartsWith) -> Mask:
        """… start so? Text that starts with a prefix lies between it and the next prefix."""
        found = self._compare(
            predicate.column, Comparison.GREATER_EQUAL, pa.scalar(predicate.prefix)
        )
        beyond = after_prefix(predicate.prefix)
        if beyond is None:
            return found
        return found & self._compare(predicate.column, Comparison.LESS, pa.scalar(beyond))

    def _all_start(self, predicate: StartsWith) -> Mask:
        known = self._bounds.get(predicate.column)
        beyond = after_prefix(predicate.prefix)
        if known is None or beyond is None:
            return ~self._yes
        low, high = pa.scalar(predicate.prefix), pa.scalar(beyond)
        return _must(pc.greater_equal, known.mins, low) & _must(pc.less, known.maxs, high)

    def _some_null(self, column: str) -> Mask:
        known = self._bounds.get(column)
        return self._yes if known is None else _may(pc.greater, known.null_counts, pa.scalar(0))

    def _some_valid(self, column: str) -> Mask:
        known = self._bounds.get(column)
        return self._yes if known is None else _may(pc.less, known.null_counts, self._row_counts)

    def _may_meet_nan(self, column: str, value: pa.Scalar) -> bool:
        known = self._bounds.get(column)
        if known is None or pa.types.is_floating(known.mins.type):
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


def _may(compute: Callable[..., pa.Array], array: pa.Array, other: pa.Array | pa.Scalar) -> Mask:
    return _answer(compute, array, other, unknown=True)


def _must(compute: Callable[..., pa.Array], array: pa.Array, other: pa.Array | pa.Scalar) -> Mask:
    return _answer(compute, array, other, unknown=False)


def _answer(
    compute: Callable[..., pa.Array],
    array: pa.Array,
    other: pa.Array | pa.Scalar,
    *,
    unknown: bool,
) -> Mask:
    try:
        found: Mask = compute(array, other).fill_null(unknown).to_numpy(zero_copy_only=False)
    except pa.ArrowException:  # an overflow while unifying types: nothing is known
        found = np.full(len(array), unknown)
    return found


def _without_nan(array: pa.Array) -> pa.Array:
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)

"""Pruning by statistics: the files that may hold a matching row.

The bounds of a column are Arrow arrays with one element per file. A file is pruned only if it is certain
that no row matches, so each unknown (a null bound, a column without bounds, a value that Arrow cannot
compare with a bound) keeps the file. Two masks exist for a predicate, may it be true and may it be
false: NOT exchanges them, while null stays null."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.record import record
from lsm_engine.filter.predicate import (
    And,
    Compare,
    Comparison,
    Computed,
    Constant,
    IsIn,
    IsNull,
    IsValid,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    columns_of,
)
from lsm_engine.format.binary_row import decode_columns
from lsm_engine.format.data_file import SimpleStats
from lsm_engine.types.declared_lengths import upper_bounds
from lsm_engine.types.types import ArrayType, DataField, DataType, MapType, RowType, type_json

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
            case Opaque() | Computed():  # only Arrow evaluates it, so every file may match
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
            case Opaque() | Computed():
                return self._yes

    def _intersection(self, masks: Iterable[Mask]) -> Mask:
        return reduce(np.logical_and, masks, self._yes)

    def _union(self, masks: Iterable[Mask]) -> Mask:
        return reduce(np.logical_or, masks, ~self._yes)

    # --- leaves: may some row of the file … -------------------------------------------------------

    def _compare(self, column: str, comparison: Comparison, value: pa.Scalar) -> Mask:
        """… compare so? Of rows that are not null."""
        # A column without statistics excludes no file.
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
        # A file with nulls alone has no row that a comparison holds for.
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
        # No text is above the prefix, so the lower bound alone decides.
        if beyond is None:
            return mask
        return mask & self._compare(predicate.column, Comparison.LESS, pa.scalar(beyond))

    def _all_start(self, predicate: StartsWith) -> Mask:
        column_bounds = self._bounds.get(predicate.column)
        beyond = after_prefix(predicate.prefix)
        # Without bounds the texts of a file are unknown.
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
        # Bounds ignore NaN, so a floating column may hold it unseen.
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
    """Return the least text above all texts that start with `prefix`; None if no text is."""
    for end in range(len(prefix), 0, -1):
        last = ord(prefix[end - 1])
        # The last code point has no successor, so a shorter prefix is tried.
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


# -- Statistics of manifests, decoded to bounds of the columns that a filter reads -----------------
#
# Stored rows of one layout (one file schema, one list of covered columns) are decoded together.
# A column of an older schema counts by its field id, and only if its type is still the same.


@record
class StoredStats:
    """The statistics of n files or manifests, of one layout.

    `min_values`, `max_values`: binary[n], stored rows; `null_counts`: list<int64>[n], one element
    per covered column; any of them null or empty where nothing is known. `row_counts`: int64[n].
    """

    min_values: pa.Array
    max_values: pa.Array
    null_counts: pa.Array
    row_counts: pa.Array

    @staticmethod
    def from_stats(stats: Sequence[SimpleStats], row_counts: Sequence[int]) -> "StoredStats":
        """Return the statistics of files or manifests as columns."""
        return StoredStats(
            min_values=pa.array([stored.min_values for stored in stats], pa.binary()),
            max_values=pa.array([stored.max_values for stored in stats], pa.binary()),
            null_counts=pa.array([stored.null_counts for stored in stats], pa.list_(pa.int64())),
            row_counts=pa.array(row_counts, pa.int64()),
        )


@record
class CoveredColumn:
    """A column with its stored type, and the name in the reader's schema (None: dropped, or of another type)."""

    type: DataType
    name: str | None


def covered_columns(
    stored: Sequence[DataField],
    read: Sequence[DataField],
    *,
    listed: Collection[str] | None = None,
    hidden: Collection[int] = (),
) -> tuple[CoveredColumn, ...]:
    """Return the columns that the statistics of files of schema `stored` cover, for a reader of `read`.

    `listed` names the covered columns, in order, for dense statistics; None: all of `stored`. `hidden`:
    ids of columns whose values newer files replace.
    """
    by_name = {field.name: field for field in stored}
    covered = stored if listed is None else [by_name[name] for name in listed if name in by_name]
    now = {field.id: field for field in read}
    return tuple(
        CoveredColumn(
            type=field.type,
            name=now[field.id].name
            if field.id in now
            and field.id not in hidden
            and same_values(field.type, now[field.id].type)
            else None,
        )
        for field in covered
    )


def stored_mask(predicate: Predicate, stats: StoredStats, covered: Sequence[CoveredColumn]) -> Mask:
    """Return for each of n files whether a row of it may satisfy `predicate`.

    Raises CorruptFileError if a stored row is not of the layout that `covered` gives.
    """
    bounds = stored_bounds(stats, covered, columns_of(predicate))
    return may_match(predicate, bounds, stats.row_counts)


def stored_bounds(
    stats: StoredStats, covered: Sequence[CoveredColumn], names: Collection[str]
) -> dict[str, ColumnBounds]:
    """Return the bounds of the columns `names` that are covered. Nested columns have none."""
    positions = [
        position
        for position, column in enumerate(covered)
        if column.name in names and not isinstance(column.type, ArrayType | MapType | RowType)
    ]
    types = [column.type for column in covered]
    mins = decode_columns(stats.min_values, types, positions)
    maxs = decode_columns(stats.max_values, types, positions)
    return {
        str(covered[position].name): ColumnBounds(
            mins=low,
            maxs=upper_bounds(types[position], high),
            null_counts=_element(stats.null_counts, position),
        )
        for position, low, high in zip(positions, mins, maxs, strict=True)
    }


def same_values(first: DataType, second: DataType) -> bool:
    """Whether two types are the same but for nullability, so that bounds mean the same."""
    if first == second:
        return True
    # A type that allows nulls has the same values as one that does not.
    texts = [str(type_json(kind)).removesuffix(" NOT NULL") for kind in (first, second)]
    return texts[0] == texts[1]


def _element(lists: pa.Array, position: int) -> pa.Array:
    """Return the element at `position` of each list; null for a null list and one that is too short."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    starts = lists.offsets.to_numpy()[:-1]
    is_present = lengths > position
    indices = pa.array(np.where(is_present, starts + position, 0), pa.int64(), mask=~is_present)
    return lists.values.take(indices)

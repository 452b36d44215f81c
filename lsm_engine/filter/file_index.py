"""Pruning by file indexes: the rows of a data file that may match a filter.

An answer holds every row that matches, and others only where an index does not know better; None means that every
row may match. As in `filter/stats` there are two answers for a predicate, may it be true and may it be false.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

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
from lsm_engine.filter.stats import after_prefix, same_values
from lsm_engine.format.column_index import ColumnIndex, IndexedType, Key
from lsm_engine.format.file_index import FileIndexes
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.types import DataField, DataType, Root, ScalarType

Rows = BitMap | None
_VALUES_ASKED_MAX = 256
_NEGATIVE_ZERO, _ZERO = -1, 0
"""Keys of the two zeros of floating point numbers, which are equal to each other."""


def matching_rows(
    indexes: FileIndexes,
    predicate: Predicate,
    *,
    stored: Iterable[DataField],
    read: Iterable[DataField],
) -> Rows:
    """Return the rows of a file that may satisfy `predicate`, by position; None: all of them may.

    `stored` are the fields that the file was written with, `read` those that the predicate names. Raises
    CorruptFileError for an index that is damaged.
    """
    columns = {}
    by_id = {field.id: field for field in stored}
    names = columns_of(predicate)
    for field in read:
        own = by_id.get(field.id)
        if field.name in names and own is not None and _is_comparable(own.type, field.type):
            columns[field.name] = _Column(
                type=own.type, indexes=indexes.of_column(own.name, own.type)
            )
    try:
        return _Answers(columns).may_be_true(predicate)
    except (struct.error, ValueError, IndexError) as cause:
        raise indexes.corrupt(str(cause)) from cause


def _is_comparable(stored: DataType, read: DataType) -> bool:
    # CHAR is read with blanks that its index does not have.
    return (
        isinstance(stored, ScalarType)
        and stored.root is not Root.CHAR
        and same_values(stored, read)
    )


@record
class _Column:
    """A column of the filter and its indexes in the file."""

    type: DataType
    indexes: Sequence[ColumnIndex]

    def rows(self, question: Callable[[ColumnIndex], Rows], *, exact: bool = False) -> Rows:
        """Return the rows that no index rules out; `exact`: by indexes alone that rule out all others."""
        answers = [question(index) for index in self.indexes if index.is_exact or not exact]
        return _intersection(answers)

    def key(self, value: pa.Scalar) -> Key | None:
        """Return a value as indexes hold it; None for one that the column's type cannot hold, and for NaN."""
        kind = arrow_type(self.type)
        try:
            own = value.cast(kind)
            if not own.cast(value.type).equals(value):
                return None
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        array = pa.array([own.as_py()], kind) if not own.is_valid else pa.repeat(own, 1)
        if pa.types.is_floating(kind) and pc.is_nan(array)[0].as_py():
            return None
        assert isinstance(self.type, ScalarType)
        key: Key = IndexedType.of_root(self.type.root).keys(array)[0].as_py()
        return key

    @property
    def is_floating(self) -> bool:
        return bool(pa.types.is_floating(arrow_type(self.type)))


def _intersection(answers: Iterable[Rows]) -> Rows:
    bitmaps = [rows for rows in answers if rows is not None]
    return reduce(lambda first, second: first & second, bitmaps) if bitmaps else None


def _union(answers: Iterable[Rows]) -> Rows:
    union = BitMap()
    for rows in answers:
        if rows is None:
            return None
        union |= rows
    return union


class _Answers:
    """The indexes of one file, asked for the rows that may match."""

    def __init__(self, columns: Mapping[str, _Column]) -> None:
        self._columns = columns

    def may_be_true(self, predicate: Predicate) -> Rows:
        match predicate:
            case And():
                return _intersection(map(self.may_be_true, predicate.parts))
            case Or():
                return _union(map(self.may_be_true, predicate.parts))
            case Not():
                return self.may_be_false(predicate.part)
            case Constant():
                return None if predicate.value else BitMap()
            case Compare():
                return self._compare(predicate.column, predicate.comparison, predicate.value)
            case IsIn():
                return self._in(predicate)
            case StartsWith():
                return self._starts(predicate)
            case IsNull():
                return self._null(predicate.column)
            case IsValid():
                return self._valid(predicate.column)
            case Opaque() | Computed():
                return None

    def may_be_false(self, predicate: Predicate) -> Rows:
        match predicate:
            case And():
                return _union(map(self.may_be_false, predicate.parts))
            case Or():
                return _intersection(map(self.may_be_false, predicate.parts))
            case Not():
                return self.may_be_true(predicate.part)
            case Constant():
                return None if predicate.value is False else BitMap()
            case Compare():
                return self._not_compare(predicate)
            case IsIn():
                return self._not_in(predicate)
            case StartsWith():
                return self._valid(predicate.column)
            case IsNull():
                return self._valid(predicate.column)
            case IsValid():
                return self._null(predicate.column)
            case Opaque() | Computed():
                return None

    # --- leaves -----------------------------------------------------------------------------------

    def _valid(self, name: str) -> Rows:
        column = self._columns.get(name)
        return None if column is None else column.rows(lambda index: index.valid())

    def _null(self, name: str) -> Rows:
        column = self._columns.get(name)
        return None if column is None else column.rows(lambda index: index.null())

    def _compare(self, name: str, comparison: Comparison, value: pa.Scalar) -> Rows:
        column = self._columns.get(name)
        key = None if column is None else column.key(value)
        # No row is known to be ruled out.
        if column is None or key is None:
            return None
        keys = [key]
        low = high = key
        if column.is_floating and key in (_NEGATIVE_ZERO, _ZERO):
            keys = [_NEGATIVE_ZERO, _ZERO]
            low, high = keys
        match comparison:
            case Comparison.EQUAL:
                return column.rows(lambda index: index.equal(keys))
            case Comparison.NOT_EQUAL:
                return self._other_than(column, keys)
            case Comparison.LESS:
                return column.rows(lambda index: index.between(None, low, closed=(True, False)))
            case Comparison.LESS_EQUAL:
                return column.rows(lambda index: index.between(None, high, closed=(True, True)))
            case Comparison.GREATER:
                return column.rows(lambda index: index.between(high, None, closed=(False, True)))
            case Comparison.GREATER_EQUAL:
                return column.rows(lambda index: index.between(low, None, closed=(True, True)))

    def _not_compare(self, predicate: Compare) -> Rows:
        column = self._columns.get(predicate.column)
        is_order = predicate.comparison not in (Comparison.EQUAL, Comparison.NOT_EQUAL)
        # Every comparison with NaN is false, in whatever order the index has it.
        if column is not None and column.is_floating and is_order:
            return None
        return self._compare(predicate.column, predicate.comparison.inverse, predicate.value)

    @staticmethod
    def _other_than(column: _Column, keys: Sequence[Key]) -> Rows:
        def other_rows(index: ColumnIndex) -> Rows:
            valid, equal = index.valid(), index.equal(keys)
            return None if valid is None or equal is None else valid - equal

        return column.rows(other_rows, exact=True)

    def _keys(self, column: _Column, predicate: IsIn) -> list[Key] | None:
        """Return the values of a set; None if one of them is not comparable, or if they are too many."""
        keys: list[Key] = []
        if len(predicate.values) > _VALUES_ASKED_MAX:
            return None
        for value in predicate.values:
            key = column.key(value)
            if key is None:
                return None
            zeros = column.is_floating and key in (_NEGATIVE_ZERO, _ZERO)
            keys += [_NEGATIVE_ZERO, _ZERO] if zeros else [key]
        return keys

    def _in(self, predicate: IsIn) -> Rows:
        column = self._columns.get(predicate.column)
        keys = None if column is None else self._keys(column, predicate)
        if column is None or keys is None:
            return None
        rows = column.rows(lambda index: index.equal(keys))
        return _union((rows, self._null(predicate.column))) if predicate.null_matches else rows

    def _not_in(self, predicate: IsIn) -> Rows:
        column = self._columns.get(predicate.column)
        keys = None if column is None else self._keys(column, predicate)
        if column is None or keys is None:
            return None
        rows = self._other_than(column, keys)
        return rows if predicate.null_matches else _union((rows, self._null(predicate.column)))

    def _starts(self, predicate: StartsWith) -> Rows:
        column = self._columns.get(predicate.column)
        if column is None:
            return None
        low, beyond = predicate.prefix.encode(), after_prefix(predicate.prefix)
        high = None if beyond is None else beyond.encode()
        return column.rows(lambda index: index.between(low, high, closed=(True, False)))

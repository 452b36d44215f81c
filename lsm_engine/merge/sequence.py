"""Which row of a key is newest, where the user's own columns decide before the order of arrival."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import (
    Bools,
    Column,
    Longs,
    Words,
    fixed_values,
    one_array,
    valid_rows,
)
from lsm_engine.kernels.groups import group_of_each
from lsm_engine.kernels.keys import ONE_WORD, SortKeys, sort_keys
from lsm_engine.kernels.merge_runs import RowRanks, sort_order
from lsm_engine.options import core_options
from lsm_engine.options.modes import SortOrder
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, TableSchema

# -- Any columns as one unsigned word per row that orders the rows as the columns do ---------------


def words_of(columns: Sequence[pa.Array], *, nulls_first: bool = False) -> tuple[Words, Bools]:
    """Return a word per row, and whether the row is not null in all columns.

    Columns are compared in order, nulls of some of several columns first. The words of one call
    compare with each other only. With `nulls_first` all nulls together have a word as well.
    """
    columns = [in_java_order(column) for column in columns]
    flags = [valid_rows(column) for column in columns]
    valid: Bools = np.ones(len(columns[0]), np.bool_)
    if all(flag is not None for flag in flags):
        valid = np.logical_or.reduce([flag for flag in flags if flag is not None])
    if len(columns) == 1 and not nulls_first:
        keys = sort_keys([without_nulls(columns[0])])
    else:
        keys = sort_keys(columns, nullable=True)
    return (keys.prefix if keys.form == ONE_WORD else _dense(keys)), valid


def _dense(keys: SortKeys) -> Words:
    """Return the rank of each key among the distinct keys."""
    order = sort_order(keys, RowRanks(sequence=np.zeros(len(keys), np.int64)))
    ranks: Longs = np.empty(len(keys), np.int64)
    ranks[order.row] = group_of_each(order.starts, len(order))
    return ranks.view(np.uint64)


def in_java_order(column: Column) -> pa.Array:
    """Return whole numbers that order as Java's Double.compare orders a floating column; another column as it is.

    Keys hold -0.0 and 0.0 for one value, and NaN for the greatest. Here -0.0 is below 0.0.
    """
    array = one_array(column)
    if not pa.types.is_floating(array.type):
        return array
    width = array.type.bit_width // 8
    values, bits = fixed_values(array, f"f{width}"), fixed_values(array, f"i{width}")
    nan = np.array(np.nan, values.dtype).view(bits.dtype)
    bits = np.where(np.isnan(values), nan, bits)
    # The larger a negative number, the larger its bits: all of them but the sign are inverted.
    bits ^= (bits >> (8 * width - 1)) & np.iinfo(bits.dtype).max
    valid = valid_rows(array)
    return pa.array(bits, mask=None if valid is None else ~valid)


def without_nulls(array: pa.Array) -> pa.Array:
    """Return an array whose null rows hold whatever lies under them."""
    if not array.null_count:
        return array
    _, *buffers = array.buffers()
    if pa.types.is_nested(array.type):
        return array
    return pa.Array.from_buffers(
        array.type, len(array), [None, *buffers], null_count=0, offset=array.offset
    )


# -- Sequence --------------------------------------------------------------------------------------

Rows: TypeAlias = pa.RecordBatch | pa.Table


@record
class UserSequence:
    """The `sequence.field` columns, compared in order, and whether the greater value is newer.

    Nulls are the oldest either way. Without columns the sequence number alone decides.
    """

    columns: tuple[str, ...] = ()
    order: SortOrder = SortOrder.ASCENDING

    @staticmethod
    def from_schema(schema: TableSchema) -> "UserSequence":
        """Return the sequence fields that a table's options name."""
        return UserSequence(
            columns=schema.sequence_fields,
            order=schema.options[core_options.SEQUENCE_FIELD_SORT_ORDER],
        )

    def ranks(self, rows: Rows) -> SortKeys | None:
        """Return keys of rows of which the greater is newer, or None without columns."""
        if not self.columns:
            return None
        return sort_keys(
            [in_java_order(rows.column(name)) for name in self.columns],
            nullable=True,
            descending=self.order is SortOrder.DESCENDING,
        )

    def row_ranks(self, rows: Rows) -> RowRanks:
        """Return everything that decides inside a key, the sequence number included."""
        numbers = fixed_values(one_array(rows.column(SEQUENCE_NUMBER)), "i8")
        return RowRanks(sequence=numbers, newest=self.ranks(rows))


def with_number(rows: Rows, number: int) -> Rows:
    """Return rows that all have one sequence number."""
    sequence_index = rows.schema.get_field_index(SEQUENCE_NUMBER)
    numbers = pa.array(np.full(rows.num_rows, number, np.int64))
    return rows.set_column(sequence_index, rows.schema.field(sequence_index), numbers)

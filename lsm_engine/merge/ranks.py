"""Any columns as one unsigned word per row that orders the rows as the columns do."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lsm_engine.kernels.arrow_views import Bools, Longs, Words, valid_rows
from lsm_engine.kernels.groups import group_of_each
from lsm_engine.kernels.keys import ONE_WORD, SortKeys, sort_keys
from lsm_engine.kernels.merge_runs import RowRanks
from lsm_engine.kernels.order import sort_order


def words_of(columns: Sequence[pa.Array], *, nulls_first: bool = False) -> tuple[Words, Bools]:
    """Return a word per row, and whether the row is not null in all columns.

    Columns are compared in order, nulls of some of several columns first. The words of one call
    compare with each other only. With `nulls_first` all nulls together have a word as well.
    """
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

"""Row by row: are two columns equal? Nulls equal nulls, and floats what has the same bits."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.kernels.arrow_views import Bools, Column, Longs, bool_values, one_array


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
    if pa.types.is_map(lists.type):
        first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
        parts = [lists.keys, lists.items]
        return pa.StructArray.from_arrays(
            [part.slice(first, last - first) for part in parts], names=["key", "value"]
        )
    return lists.flatten()

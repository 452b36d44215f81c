"""Row by row: are two columns equal? Nulls equal nulls, and floats what has the same bits."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.kernels.arrow_views import Bools, Column, Longs, bool_values, one_array


def equal_rows(columns: Sequence[Column], others: Sequence[Column], row_count: int) -> Bools:
    """Return which rows are equal in all columns; nested values are compared part by part."""
    equal: Bools = np.ones(row_count, np.bool_)
    for one, other in zip(columns, others, strict=True):
        equal &= _equal(one_array(one), one_array(other))
    return equal


def _equal(one: pa.Array, other: pa.Array) -> Bools:
    valid, other_valid = bool_values(one.is_valid()), bool_values(other.is_valid())
    equal: Bools = valid == other_valid
    both = np.flatnonzero(valid & other_valid)
    if len(both) < len(valid):
        one, other = one.take(pa.array(both)), other.take(pa.array(both))
    equal[both] = _equal_values(one, other)
    return equal


def _equal_values(one: pa.Array, other: pa.Array) -> Bools:
    kind = one.type
    if pa.types.is_floating(kind):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
        return bool_values(pc.equal(one.view(bits), other.view(bits)))
    if pa.types.is_struct(kind):
        return equal_rows(one.flatten(), other.flatten(), len(one))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _equal_lists(one, other)
    return bool_values(pc.equal(one, other))


def _equal_lists(one: pa.Array, other: pa.Array) -> Bools:
    """Compare lists, or maps in the order of their entries: first lengths, then all elements."""
    sizes, other_sizes = _sizes(one), _sizes(other)
    equal: Bools = sizes == other_sizes
    alike = np.flatnonzero(equal)
    elements = [_elements(one.take(pa.array(alike))), _elements(other.take(pa.array(alike)))]
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

"""The elements of arrays and the pairs of maps, of many rows at once: which group each is in, and
which of them are equal.
"""

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.merge.versions import Versions

Codes: TypeAlias = Longs
"""Equal numbers for equal values; null is a value."""


@record
class Entries:
    """The elements of a column's lists, in version order. A map's elements are structs of its pairs.

    `groups` and `retracts` are those of the version that each element comes from; `has_list`
    holds for each group whether some version had a list, be it empty.
    """

    values: pa.Array
    groups: Longs
    retracts: Bools
    has_list: Bools

    @staticmethod
    def from_versions(versions: Versions, name: str) -> "Entries":
        """Collect a column's elements."""
        column = as_lists(versions.column(name))
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        groups = versions.group_of_each
        retracts = np.zeros(len(versions), np.bool_)
        if versions.retracts is not None:
            retracts = versions.retracts
        valid = versions.valid(name) & ~retracts
        has_list = np.bincount(groups[valid], minlength=versions.group_count) > 0
        return Entries(
            values=column.flatten(),
            groups=np.repeat(groups, lengths),
            retracts=np.repeat(retracts, lengths),
            has_list=has_list,
        )

    def __len__(self) -> int:
        return len(self.groups)

    def filtered(self, flags: Bools) -> "Entries":
        """Return the flagged elements."""
        return Entries(
            values=self.values.filter(pa.array(flags)),
            groups=self.groups[flags],
            retracts=self.retracts[flags],
            has_list=self.has_list,
        )

    def lists(self, chosen: Longs, kind: pa.DataType) -> pa.Array:
        """Return one list per group of elements by position, which stand in group order."""
        return self.lists_of(self.values.take(pa.array(chosen)), self.groups[chosen], kind)

    def lists_of(self, values: pa.Array, groups: Longs, kind: pa.DataType) -> pa.Array:
        """Return one list per group of values that stand in group order; null without `has_list`."""
        counts = np.bincount(groups, minlength=len(self.has_list))
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))).astype(np.int32)
        mask = pa.array(~self.has_list)
        if pa.types.is_map(kind):
            keys, items = values.flatten()
            maps = pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=kind)
            return pc.if_else(mask, pa.scalar(None, kind), maps)
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind, mask=mask)


def as_lists(column: pa.Array) -> pa.Array:
    """Return a map column as lists of structs of a key and an item; lists as they are."""
    if not pa.types.is_map(column.type):
        return column
    pair = pa.struct(
        [column.type.key_field.with_name("key"), column.type.item_field.with_name("value")]
    )
    return column.cast(pa.list_(pair))


def codes_of(values: pa.Array) -> Codes:
    """Return equal numbers for equal values, nested ones included; null equals null."""
    kind = values.type
    if pa.types.is_struct(kind):
        codes = np.asarray(values.is_valid()).astype(np.int64)
        for child in values.flatten():
            codes = paired(codes, codes_of(child))
        return codes
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return _list_codes(as_lists(values))
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    indices: Codes = encoded.indices.to_numpy().astype(np.int64)
    return indices


def _list_codes(lists: pa.Array) -> Codes:
    """Lists are equal if the numbers of their elements are: compared as bytes."""
    inner = np.ascontiguousarray(codes_of(lists.flatten()))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))) * 8
    texts = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lists), [None, pa.py_buffer(offsets), pa.py_buffer(inner)]
    )
    valid = np.asarray(lists.is_valid()).astype(np.int64)
    return paired(valid, codes_of(texts))


def paired(left_codes: Codes, right: Codes) -> Codes:
    """Return equal numbers for equal pairs, dense from 0 so that they never overflow."""
    both = left_codes * (int(right.max(initial=0)) + 1) + right
    dense: Codes = np.unique(both, return_inverse=True)[1].astype(np.int64)
    return dense


def first_of_equals(groups: Longs, codes: Codes) -> Bools:
    """Return which elements are the first of their value in their group."""
    firsts = np.unique(paired(groups, codes), return_index=True)[1]
    flags = np.zeros(len(groups), np.bool_)
    flags[firsts] = True
    return flags

"""Functions over arrays, maps and nested tables: collect, merge_map, nested_update, listagg."""

from enum import Enum
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs, Words
from lsm_engine.kernels.fold import (
    NO_LIMIT,
    AdditionQueues,
    KeyChanges,
    latest_of_keys,
    remaining,
)
from lsm_engine.kernels.groups import last_valid_of_each
from lsm_engine.merge.aggregators.aggregator import Aggregator, refuse_retracts
from lsm_engine.merge.sequence import words_of
from lsm_engine.merge.versions import Computed, Folded, Versions, kept_offsets

# -- The elements of arrays and the pairs of maps, of many rows at once ----------------------------
#
# Which group each is in, and which of them are equal.

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


# -- Functions over arrays and maps: collect, merge_map, merge_map_with_keytime --------------------


@record
class Collect(Aggregator):
    """The elements of all arrays, in order; `distinct` keeps the first of equal ones.

    A retract takes the oldest element that equals each of its own, as far as there is one.
    """

    distinct: bool = False
    takes_retracts: bool = True
    may_need_full_history: bool = True  # an element to take may lie in an older array

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        entries = Entries.from_versions(versions, name)
        survives = np.ones(len(entries), np.bool_)
        if self.distinct or entries.retracts.any():
            survives = left_over(entries, codes_of(entries.values), once=self.distinct)
        lists = entries.lists(np.flatnonzero(survives), versions.schema.field(name).type)
        return Computed(values=lists)


@record
class MergeMap(Aggregator):
    """The union of all maps; the newest value of a key stands, a retract removes its keys."""

    takes_retracts: bool = True
    may_need_full_history: bool = True  # a key to remove may lie in an older map

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        entries = Entries.from_versions(versions, name)
        keys = codes_of(entries.values.field(0))
        chosen = latest(entries, keys, entries.retracts)
        return Computed(values=entries.lists(chosen, versions.schema.field(name).type))


@record
class MergeMapWithKeyTime(Aggregator):
    """The union of maps of structs; of each key the value whose `time_field` is newest.

    A null value removes its key from what is older; a value without a time is passed over unless
    it is in the oldest map. Of equal times the older one stands.
    """

    time_field: str
    adds_may_remove: bool = True  # by a null value, of a key that may lie in an older map

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        refuse_retracts(versions, name, "merge_map_with_keytime")
        kept = versions.filtered(versions.valid(name))
        entries = Entries.from_versions(kept, name)
        rows = _rows_of(as_lists(kept.column(name)))
        oldest = rows == kept.offsets[:-1][entries.groups]
        values = entries.values.field(1)
        is_null = np.asarray(pc.is_null(values))
        times, timed = words_of([pc.struct_field(values, self.time_field)], nulls_first=True)
        timed &= ~is_null
        counts = timed | oldest | is_null
        entries = entries.filtered(counts)
        removes = (is_null & ~oldest)[counts]
        # The older of equal times stands: the later an entry, the lower its word among equals.
        ranks = np.unique(times[counts], return_inverse=True)[1].astype(np.int64)
        words = (ranks * len(ranks) - np.arange(len(ranks)) + len(ranks)).view(np.uint64)
        chosen = latest(entries, codes_of(entries.values.field(0)), removes, words)
        return Computed(values=entries.lists(chosen, versions.schema.field(name).type))

    def removes(self, versions: Versions, name: str) -> Bools:
        """See Aggregator: those with a null value."""
        column = as_lists(versions.column(name))
        nulls = np.asarray(pc.is_null(column.flatten().field(1)))
        flags = np.zeros(len(versions), np.bool_)
        flags[_rows_of(column)[nulls]] = True
        return flags


def left_over(entries: Entries, codes: Codes, *, once: bool, is_exhaustive: bool = False) -> Bools:
    """Return which elements are left once retracts have taken theirs; see `remaining`."""
    ids = paired(entries.groups, codes)
    count = int(ids.max(initial=-1)) + 1
    survives = np.zeros(len(ids), np.bool_)
    heads, tails = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    following = np.full(len(ids), -1, np.int64)
    changes = KeyChanges(ids, entries.groups, entries.retracts)
    queues = AdditionQueues(heads, tails, following)
    remaining(changes, once, is_exhaustive, queues, survives)
    return survives


def latest(
    entries: Entries,
    keys: Codes,
    removes: Bools,
    words: Words | None = None,
    limit: int = NO_LIMIT,
) -> Longs:
    """Return the entries that stand for their keys, in group order; see `latest_of_keys`."""
    ids = paired(entries.groups, keys)
    current = np.full(int(ids.max(initial=-1)) + 1, -1, np.int64)
    sizes = np.zeros(len(entries.has_list), np.int64)
    words = np.zeros(len(ids), np.uint64) if words is None else words
    latest_of_keys(KeyChanges(ids, entries.groups, removes), words, limit, current, sizes)
    return np.sort(current[current >= 0])


def _rows_of(lists: pa.Array) -> Longs:
    """Return the row that each element comes from."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return np.repeat(np.arange(len(lists)), lengths.to_numpy())


# -- Functions over a table inside a cell, an array of structs -------------------------------------
#
# Nested_update, nested_partial_update.


class NullKeys(Enum):
    """The handling of a nested row whose key holds a null."""

    MERGE = "merge"
    """Null is a value like others."""
    IGNORE = "ignore"
    ERROR = "error"


@record
class NestedUpdate(Aggregator):
    """Nested rows of all versions. With a `nested_key` the newest row of each key stands.

    Newest is the last, or the last of those with the greatest `nested_sequence`. No row is added
    beyond `count_limit`. A retract takes rows by key, or all rows equal to one of its own.
    """

    nested_key: tuple[str, ...] = ()
    nested_sequence: tuple[str, ...] = ()
    count_limit: int = NO_LIMIT
    null_keys: NullKeys = NullKeys.MERGE
    takes_retracts: bool = True
    may_need_full_history: bool = True  # a row to take may lie in an older array

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator. InvalidInputError for a null key if `null_keys` refuses them."""
        entries = Entries.from_versions(versions, name)
        kind = versions.schema.field(name).type
        entries = entries.filtered(np.asarray(entries.values.is_valid()))
        if not self.nested_key:
            survives = left_over(entries, codes_of(entries.values), once=False, is_exhaustive=True)
            return Computed(values=entries.lists(self._limited(entries, survives), kind))
        entries = with_keys(entries, self.nested_key, self.null_keys, versions, name)
        words: Words | None = None
        if self.nested_sequence:
            words, _ = words_of(_parts(entries.values, self.nested_sequence), nulls_first=True)
        keys = keys_of(entries, self.nested_key)
        chosen = latest(entries, keys, entries.retracts, words, self.count_limit)
        return Computed(values=entries.lists(chosen, kind))

    def _limited(self, entries: Entries, survives: Bools) -> np.ndarray:
        positions = np.flatnonzero(survives)
        groups = entries.groups[positions]
        first = np.searchsorted(groups, np.arange(len(entries.has_list)))
        return positions[np.arange(len(positions)) - first[groups] < self.count_limit]


@record
class NestedPartialUpdate(Aggregator):
    """One nested row per `nested_key`: the newest value of each field that is not null."""

    nested_key: tuple[str, ...]
    null_keys: NullKeys = NullKeys.MERGE

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator. InvalidInputError for a null key if `null_keys` refuses them."""
        refuse_retracts(versions, name, "nested_partial_update")
        entries = Entries.from_versions(versions, name)
        entries = entries.filtered(np.asarray(entries.values.is_valid()))
        entries = with_keys(entries, self.nested_key, self.null_keys, versions, name)
        ids = paired(entries.groups, keys_of(entries, self.nested_key))
        order = np.argsort(ids, kind="stable")
        starts = np.flatnonzero(np.diff(ids[order], prepend=-1))
        values = entries.values.take(pa.array(order))
        kind = versions.schema.field(name).type
        fields = []
        for child in values.flatten():
            newest_rows = last_valid_of_each(np.asarray(child.is_valid()), starts)
            fields.append(child.take(pa.array(newest_rows, mask=newest_rows < 0)))
        rows = pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
        return Computed(values=entries.lists_of(rows, entries.groups[order][starts], kind))


def with_keys(
    entries: Entries,
    nested_key: tuple[str, ...],
    null_keys: NullKeys,
    versions: Versions,
    name: str,
) -> Entries:
    """Return the entries that count, given what becomes of those whose key holds a null."""
    if null_keys is NullKeys.MERGE:
        return entries
    parts = _parts(entries.values, nested_key)
    is_complete = np.logical_and.reduce([np.asarray(part.is_valid()) for part in parts])
    if null_keys is NullKeys.ERROR and not is_complete.all():
        raise InvalidInputError(
            f"column {name!r}: a nested row has no value in its key",
            kind=ErrorKind.INVALID_ROWS,
            column=name,
            nested_key=nested_key,
            key=versions.key(int(entries.groups[is_complete.argmin()])),
        )
    return entries.filtered(is_complete)


def keys_of(entries: Entries, nested_key: tuple[str, ...]) -> Codes:
    """Return equal numbers for entries with equal keys."""
    codes = np.zeros(len(entries), np.int64)
    for part in _parts(entries.values, nested_key):
        codes = paired(codes, codes_of(part))
    return codes


def _parts(values: pa.Array, names: tuple[str, ...]) -> list[pa.Array]:
    children = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    return [children[name] for name in names]


# -- Listagg: texts joined by a delimiter ----------------------------------------------------------


@record
class ListAgg(Aggregator):
    """Texts that are not blank, joined in order. `distinct` adds only tokens that are not there yet.

    Tokens are what the delimiter separates, compared whole; those of the first text all stay.
    """

    delimiter: str = ","
    distinct: bool = False

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        refuse_retracts(versions, name, "listagg")
        column = versions.column(name)
        valid_texts = versions.filtered(_has_text(column))
        texts, offsets = valid_texts.column(name), valid_texts.offsets
        if self.distinct:
            texts, offsets = self._tokens(texts, valid_texts)
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts)
        joined = pc.binary_join(lists, self.delimiter)
        empty = pa.array(np.diff(valid_texts.offsets) == 0)
        return Computed(values=pc.if_else(empty, pa.scalar(None, column.type), joined))

    def _tokens(self, texts: pa.Array, versions: Versions) -> tuple[pa.Array, np.ndarray]:
        split = pc.split_pattern(texts, self.delimiter)
        tokens = split.flatten()
        counts = pc.list_value_length(split).to_numpy()
        rows = np.repeat(np.arange(len(texts)), counts)
        groups = versions.group_of_each[rows]
        fresh = first_of_equals(groups, codes_of(tokens)) & _has_text(tokens)
        # A group's first text is kept unchanged: it may be the result of an earlier merge.
        survives = fresh | (rows == versions.offsets[:-1][groups])
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))[versions.offsets]
        return tokens.filter(pa.array(survives)), kept_offsets(ends, survives)


def _has_text(texts: pa.Array) -> Bools:
    """Return which texts are neither null nor blank."""
    blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
    flags: Bools = ~np.asarray(pc.fill_null(blank, True))  # noqa: FBT003
    return flags

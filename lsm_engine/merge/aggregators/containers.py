"""Functions over arrays and maps: collect, merge_map, merge_map_with_keytime."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs, Words
from lsm_engine.kernels.fold_entries import NO_LIMIT, latest_of_keys, remaining
from lsm_engine.merge.aggregators.aggregator import Aggregator, refuse_retracts
from lsm_engine.merge.aggregators.entries import Codes, Entries, as_lists, codes_of, paired
from lsm_engine.merge.ranks import words_of
from lsm_engine.merge.versions import Computed, Folded, Versions


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
    remaining(ids, entries.retracts, once, is_exhaustive, heads, tails, following, survives)
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
    latest_of_keys(ids, entries.groups, removes, words, limit, current, sizes)
    return np.sort(current[current >= 0])


def _rows_of(lists: pa.Array) -> Longs:
    """Return the row that each element comes from."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return np.repeat(np.arange(len(lists)), lengths.to_numpy())

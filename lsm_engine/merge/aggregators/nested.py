"""Functions over a table inside a cell, an array of structs: nested_update, nested_partial_update."""

from enum import Enum

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Words
from lsm_engine.kernels.fold_entries import NO_LIMIT
from lsm_engine.kernels.groups import last_valid_of_each
from lsm_engine.merge.aggregators.aggregator import Aggregator, refuse_retracts
from lsm_engine.merge.aggregators.containers import latest, left_over
from lsm_engine.merge.aggregators.entries import Codes, Entries, codes_of, paired
from lsm_engine.merge.ranks import words_of
from lsm_engine.merge.versions import Computed, Folded, Versions


class NullKeys(Enum):
    """What becomes of a nested row whose key holds a null."""

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

"""The versions of keys that have several, where they lie, and what a column of them is folded to."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs, one_array, valid_rows
from lsm_engine.kernels.gather import Rows, Runs, gather_column
from lsm_engine.kernels.groups import counts_of_each
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.kernels.pick_rows import GroupedRows, SourceValues, Validity, take_valid


@record
class Picked:
    """One value per key, each that of a version: its position, or -1 for null."""

    positions: Longs


@record
class Computed:
    """One value per key that no version may hold, in the column's type."""

    values: pa.Array


@record
class Newest:
    """One value per key: that of its newest version, null where there is none."""


NEWEST = Newest()
Folded: TypeAlias = Newest | Picked | Computed
"""Aggregates the versions of each key in one column."""


def fixed_width(kind: pa.DataType) -> int | None:
    """Return the bytes of a value of a type, or None where that is not one number of whole bytes."""
    is_complete = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal128(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )
    return int(kind.bit_width) // 8 if is_complete else None


@record
class Versions:
    """Versions grouped by key, oldest to newest inside a key, not yet collected.

    Group g is versions `offsets[g]` to `offsets[g + 1]`, possibly none. Version i is row `row[i]` of
    source `run[i]`. `retracts` marks those that take their values back; None: none does. `removals`
    marks those that emptied their key, and count by their clocks alone; each is the first of its
    group.
    """

    sources: tuple[pa.RecordBatch, ...]
    run: Runs
    row: Rows
    offsets: Longs
    retracts: Bools | None
    key_columns: tuple[str, ...]
    removals: Bools | None = None

    def __len__(self) -> int:
        return len(self.run)

    @property
    def group_count(self) -> int:
        """How many keys there are."""
        return len(self.offsets) - 1

    @property
    def group_of_each(self) -> Longs:
        """The number of the group that each version is in."""
        return np.repeat(np.arange(self.group_count), np.diff(self.offsets))

    @property
    def schema(self) -> pa.Schema:
        """The columns there are to read."""
        return self.sources[0].schema

    def column(self, name: str) -> pa.Array:
        """Collect one column of every version."""
        return one_array(gather_column(self.sources, name, self.run, self.row))

    def valid(self, name: str) -> Bools:
        """Return which versions have a value in a column."""
        flags = valid_rows(self.column(name))
        return np.ones(len(self), np.bool_) if flags is None else flags

    @property
    def rows(self) -> GroupedRows:
        """Where the versions lie, by group, as compiled loops take them."""
        return GroupedRows(self.run, self.row, self.offsets)

    def validity(self, name: str) -> Validity:
        """Return where each source's validity bits of a column lie."""
        arrays = [source.column(name) for source in self.sources]
        bitmaps = [array.buffers()[0] if array.null_count else None for array in arrays]
        return Validity(
            np.array([bitmap.address if bitmap is not None else 0 for bitmap in bitmaps], np.int64),
            np.array([array.offset for array in arrays], np.int64),
        )

    def values(self, name: str, width: int) -> SourceValues:
        """Return where each source's values of a column lie, `width` bytes each."""
        arrays = [source.column(name) for source in self.sources]
        buffers = [(array.buffers()[1], array.offset) for array in arrays]
        addresses = np.array(
            [0 if data is None else data.address + width * offset for data, offset in buffers],
            np.int64,
        )
        return SourceValues(width, addresses, self.validity(name))

    def has_nulls(self, name: str) -> bool:
        """Whether some source has a null in a column."""
        return any(source.column(name).null_count for source in self.sources)

    def picked_values(self, name: str, *, backwards: bool) -> pa.Array | None:
        """Return each key's oldest value of a column that is not null (newest if `backwards`).

        Only for fixed widths of whole bytes; None for other types.
        """
        kind = self.schema.field(name).type
        width = fixed_width(kind)
        if width is None:
            return None
        count = self.group_count
        target = pa.allocate_buffer(width * count)
        valid = np.empty(count, np.bool_)
        take_valid(self.values(name, width), self.rows, backwards, target.address, valid)
        bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(kind, count, [bits, target])

    def filtered(self, flags: Bools) -> "Versions":
        """Return the flagged versions in the same groups, some perhaps empty."""
        return self.arranged(np.flatnonzero(flags), kept_offsets(self.offsets, flags))

    def arranged(self, positions: Longs, offsets: Longs) -> "Versions":
        """Return versions by position, in new groups."""
        return Versions(
            sources=self.sources,
            run=self.run[positions],
            row=self.row[positions],
            offsets=offsets,
            retracts=_chosen(self.retracts, positions),
            key_columns=self.key_columns,
            removals=_chosen(self.removals, positions),
        )

    def groups(self, flags: Bools) -> "Versions":
        """Return the flagged groups."""
        sizes = np.diff(self.offsets)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes[flags])))
        return self.arranged(np.flatnonzero(np.repeat(flags, sizes)), offsets)

    def with_retracts(self, retracts: Bools) -> "Versions":
        """Return the same versions with other flags."""
        return replace(self, retracts=retracts if retracts.any() else None)

    def with_removals(self, removals: Bools) -> "Versions":
        """Return the same versions, some of which have emptied their key."""
        return replace(self, removals=removals if removals.any() else None)

    @property
    def adds(self) -> "Versions":
        """The versions that retract nothing, in the same groups."""
        return self if self.retracts is None else self.filtered(~self.retracts)

    def key(self, group: int) -> dict[str, object]:
        """Return the key of a group, for people to read."""
        position = self.offsets[group]
        source, row = self.sources[self.run[position]], int(self.row[position])
        key_names = [name for name in self.key_columns if name in source.schema.names]
        return {name: source.column(name)[row].as_py() for name in key_names}


def _chosen(flags: Bools | None, positions: Longs) -> Bools | None:
    chosen = None if flags is None else flags[positions]
    return chosen if chosen is not None and chosen.any() else None


def last_rows(versions: Versions) -> Longs:
    """Return the newest version of each key, or -1 where there is none."""
    return np.where(np.diff(versions.offsets) > 0, versions.offsets[1:] - 1, np.int64(-1))


def moved(folded: Folded, chosen: Versions, positions: Longs) -> Folded:
    """Return the positions that chosen versions folded to, among all; `positions` maps them."""
    if isinstance(folded, Computed):
        return folded
    picked = folded.positions.copy() if isinstance(folded, Picked) else last_rows(chosen)
    is_picked = picked >= 0
    picked[is_picked] = positions[picked[is_picked]]
    return Picked(positions=picked)


def of_adds(versions: Versions, fold: Callable[[Versions], Folded]) -> Folded:
    """Fold the versions that retract nothing, and return the outcome in terms of all versions."""
    adds = versions.adds
    if versions.retracts is None:
        return fold(adds)
    return moved(fold(adds), adds, np.flatnonzero(~versions.retracts))


def versions_of(
    order: MergeOrder,
    batches: Sequence[pa.RecordBatch],
    retracts: Bools | None,
    key_columns: tuple[str, ...],
) -> Versions:
    """Return all versions of an order whose sources are single batches."""
    return Versions(
        sources=tuple(batches),
        run=order.run,
        row=order.row,
        offsets=np.append(order.starts, len(order)),
        retracts=retracts,
        key_columns=key_columns,
    )


def kept_offsets(offsets: Longs, flags: Bools) -> Longs:
    """Return where groups begin and end once only flagged rows are left."""
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(flags, dtype=np.int64)))
    before_rows: Longs = before[offsets]
    return before_rows


def chosen_rows(order: MergeOrder, flags: Bools) -> MergeOrder:
    """Return the flagged rows of an order; keys without any are left out."""
    positions = np.flatnonzero(flags)
    offsets = kept_offsets(np.append(order.starts, len(order)), flags)
    starts = offsets[:-1][np.diff(offsets) > 0]
    return MergeOrder(run=order.run[positions], row=order.row[positions], starts=starts)


def chosen_groups(order: MergeOrder, groups: Bools) -> MergeOrder:
    """Return the rows of the flagged keys."""
    return chosen_rows(order, np.repeat(groups, counts_of_each(order.starts, len(order))))

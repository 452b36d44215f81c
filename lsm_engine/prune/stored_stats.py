"""Statistics of manifests, decoded to bounds of the columns that a filter reads.

Stored rows of one layout (one file schema, one list of covered columns) are decoded together. A
column of an older schema counts by its field id, and only if its type is still the same.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.record import record
from lsm_engine.codec.binary_row import decode_columns
from lsm_engine.prune.predicate import Predicate, columns_of
from lsm_engine.prune.stats import ColumnBounds, Mask, may_match
from lsm_engine.schema.declared_lengths import upper_bounds
from lsm_engine.schema.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    type_json,
)


@record
class StoredStats:
    """The statistics of n files or manifests, of one layout.

    `min_values`, `max_values`: binary[n], stored rows; `null_counts`: list<int64>[n], one element
    per covered column; any of them null or empty where nothing is known. `row_counts`: int64[n].
    """

    min_values: pa.Array
    max_values: pa.Array
    null_counts: pa.Array
    row_counts: pa.Array


@record
class CoveredColumn:
    """A column with its stored type, and the name in the reader's schema (None: dropped, or of another type)."""

    type: DataType
    name: str | None


def covered_columns(
    stored: Sequence[DataField],
    read: Sequence[DataField],
    *,
    listed: Collection[str] | None = None,
    hidden: Collection[int] = (),
) -> tuple[CoveredColumn, ...]:
    """Return the columns that the statistics of files of schema `stored` cover, for a reader of `read`.

    `listed` names the covered columns, in order, for dense statistics; None: all of `stored`. `hidden`:
    ids of columns whose values newer files replace.
    """
    by_name = {field.name: field for field in stored}
    covered = stored if listed is None else [by_name[name] for name in listed if name in by_name]
    now = {field.id: field for field in read}
    return tuple(
        CoveredColumn(
            type=field.type,
            name=now[field.id].name
            if field.id in now
            and field.id not in hidden
            and _same_values(field.type, now[field.id].type)
            else None,
        )
        for field in covered
    )


def stored_mask(predicate: Predicate, stats: StoredStats, covered: Sequence[CoveredColumn]) -> Mask:
    """Return for each of n files whether a row of it may satisfy `predicate`.

    Raises CorruptFileError if a stored row is not of the layout that `covered` gives.
    """
    bounds = stored_bounds(stats, covered, columns_of(predicate))
    return may_match(predicate, bounds, stats.row_counts)


def stored_bounds(
    stats: StoredStats, covered: Sequence[CoveredColumn], names: Collection[str]
) -> dict[str, ColumnBounds]:
    """Return the bounds of the columns `names` that are covered. Nested columns have none."""
    positions = [
        position
        for position, column in enumerate(covered)
        if column.name in names and not isinstance(column.type, ArrayType | MapType | RowType)
    ]
    types = [column.type for column in covered]
    mins = decode_columns(stats.min_values, types, positions)
    maxs = decode_columns(stats.max_values, types, positions)
    return {
        str(covered[position].name): ColumnBounds(
            mins=low,
            maxs=upper_bounds(types[position], high),
            null_counts=_element(stats.null_counts, position),
        )
        for position, low, high in zip(positions, mins, maxs, strict=True)
    }


def _same_values(first: DataType, second: DataType) -> bool:
    """Whether two types are the same but for nullability, so that bounds mean the same."""
    if first == second:
        return True
    texts = [str(type_json(kind)).removesuffix(" NOT NULL") for kind in (first, second)]
    return texts[0] == texts[1]


def _element(lists: pa.Array, position: int) -> pa.Array:
    """Return the element at `position` of each list; null for a null list and one that is too short."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    starts = lists.offsets.to_numpy()[:-1]
    is_present = lengths > position
    indices = pa.array(np.where(is_present, starts + position, 0), pa.int64(), mask=~is_present)
    return lists.values.take(indices)

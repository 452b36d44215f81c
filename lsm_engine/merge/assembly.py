"""Merged rows from what their columns became: picked from the sources, or computed."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.kernels.gather import gather
from lsm_engine.kernels.groups import last_of_each
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.kernels.pick_rows import place_picked
from lsm_engine.merge.versions import Computed, Folded, Picked, Versions
from lsm_engine.schema.nested_values import nulls
from lsm_engine.schema.table_schema import VALUE_KIND

Places: TypeAlias = tuple[NDArray[np.uint16], NDArray[np.int32]]
"""Where rows lie: their source, and their row in it."""


def assembled(
    order: MergeOrder,
    batches: Sequence[pa.RecordBatch],
    flags: Bools,
    versions: Versions,
    folded: dict[str, Folded],
    kinds: NDArray[np.int8],
) -> pa.Table:
    """Return one row per key of an order.

    `flags` marks the keys of `versions`, `folded` and `kinds`: all that have more than one version. Others, and columns that are not folded, keep their newest version.
    """
    lasts = last_of_each(order.starts, len(order))
    newest: Places = (order.run[lasts], order.row[lasts])
    schema = batches[0].schema
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    as_newest: list[str] = []
    picked: dict[int, tuple[Longs, list[str]]] = {}
    for name in schema.names:
        value = folded.get(name)
        if isinstance(value, Picked):  # columns that are picked alike are gathered together
            picked.setdefault(id(value.positions), (value.positions, []))[1].append(name)
        elif isinstance(value, Computed):
            columns[name] = _computed(batches, name, newest, flags, value)
        else:
            as_newest.append(name)
    for positions, names in picked.values():
        columns |= _picked(batches, names, newest, flags, versions, positions)
    columns |= _gathered(batches, as_newest, newest)
    columns[VALUE_KIND] = _kinds(columns[VALUE_KIND], flags, kinds)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _gathered(
    batches: Sequence[pa.RecordBatch], names: list[str], places: Places
) -> dict[str, pa.ChunkedArray]:
    gathered = gather([batch.select(names) for batch in batches], *places)
    return dict(zip(names, gathered.columns, strict=True))


def _picked(
    batches: Sequence[pa.RecordBatch],
    names: list[str],
    newest: Places,
    flags: Bools,
    versions: Versions,
    positions: Longs,
) -> dict[str, pa.ChunkedArray]:
    parts = [batch.select(names) for batch in batches]
    run, row = newest[0].copy(), newest[1].copy()
    null_part = len(parts)
    if place_picked(versions.run, versions.row, positions, flags, null_part, run, row):
        schema = parts[0].schema
        parts.append(
            pa.RecordBatch.from_arrays([nulls(1, kind) for kind in schema.types], schema=schema)
        )
    return dict(zip(names, gather(parts, run, row).columns, strict=True))


def _computed(
    batches: Sequence[pa.RecordBatch], name: str, newest: Places, flags: Bools, value: Computed
) -> pa.Array | pa.ChunkedArray:
    if flags.all():
        return value.values
    parts = [batch.select([name]) for batch in batches]
    run, row = newest[0].copy(), newest[1].copy()
    run[flags], row[flags] = len(parts), np.arange(len(value.values), dtype=np.int32)
    parts.append(_one_column(value.values, parts[0].schema))
    return gather(parts, run, row).column(0)


def _kinds(column: pa.ChunkedArray, flags: Bools, kinds: NDArray[np.int8]) -> pa.Array:
    numbers = column.to_numpy().copy()
    numbers[flags] = kinds
    return pa.array(numbers)


def _one_column(values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values], schema=schema)

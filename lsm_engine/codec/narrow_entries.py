"""Entries as columns in the bytes that they need, half of what they had: to be kept in great numbers."""

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.codec.manifest_columns import MANIFEST_COLUMNS

_SIGNED = (np.int8, np.int16, np.int32, np.int64)
_UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
_PARTITION, _EXTRA_FILES = "_PARTITION", "_FILE._EXTRA_FILES"


def narrowed(entries: pa.Table) -> pa.Table:
    """Return entries with numbers no wider than the greatest of a column, and partitions as dictionaries.

    Columns without a value are left out.
    """
    columns = {}
    for name, column in zip(entries.column_names, entries.columns, strict=True):
        if column.null_count == len(column):
            continue
        if name == _EXTRA_FILES and not pc.max(pc.list_value_length(column)).as_py():
            continue
        if name == _PARTITION:
            column = pc.dictionary_encode(column)
        elif pa.types.is_integer(column.type):
            ends = pc.min_max(column)
            least, most = ends["min"].as_py(), ends["max"].as_py()
            column = column.cast(_narrowest(least, most))
        columns[name] = column
    return pa.table(columns)


def _narrowest(least: int, most: int) -> pa.DataType:
    """Return the narrowest type that holds both; of numbers with a sign one that has it."""
    kinds = _SIGNED if least < 0 else _UNSIGNED
    return next(
        pa.from_numpy_dtype(kind)
        for kind in kinds
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max
    )


def widened(entries: pa.Table, columns: Collection[str]) -> pa.Table:
    """Return narrowed entries as they were decoded: these of MANIFEST_COLUMNS, in their order.

    Empty lists of extra files have become null, which means the same.
    """
    column_names = set(entries.column_names)
    wide_columns = {}
    for name, column_type in MANIFEST_COLUMNS.items():
        if name in column_names:
            wide_columns[name] = entries.column(name).cast(column_type.kind)
        elif name in columns:
            wide_columns[name] = pa.nulls(entries.num_rows, column_type.kind)
    return pa.table(wide_columns)

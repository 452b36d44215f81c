"""Statistics of finished files for their manifest entries: from their footers, or from their rows."""

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_engine.codec.stats import ColumnExtremes, StatsCollector, stats_modes, stats_of_each
from lsm_engine.io.parquet_stats import column_bounds, leaf_positions
from lsm_engine.meta.stats import EMPTY_STATS, SimpleStats
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.schema.types import DataField


class FileStats(Protocol):
    """Minima, maxima and null counts of one file, as its rows go by and when it is finished."""

    def update(self, rows: pa.Table) -> None:
        """Take in rows of the file's schema; of a format with footers those columns that may hold NaN."""
        ...

    def finish(self, footer: "pq.FileMetaData | None") -> None:
        """Take in the footer, if the format has one that knows the columns."""
        ...

    @staticmethod
    def of_each(files: Sequence[Any]) -> "list[StatsPair]":
        """Return the statistics of finished files of one class and one schema."""
        ...


StatsPair = tuple[SimpleStats, SimpleStats]
"""Statistics of the key columns of a file, and of every column of the table, in order."""


class RowStats:
    """Collected from every row, for formats whose footer has no statistics."""

    def __init__(self, schema: TableSchema) -> None:
        modes = dict(zip(schema.names, stats_modes(schema), strict=True))
        keys = schema.trimmed_primary_keys if schema.has_primary_key else ()
        self._key_names = keys
        self._names = schema.names
        key_types = [field.type for field in schema.select(keys)]
        self._keys = StatsCollector(key_types, [modes[name] for name in keys])
        self._values = StatsCollector(
            [field.type for field in schema.fields], [modes[name] for name in schema.names]
        )

    def update(self, rows: pa.Table) -> None:
        """Take in rows of the file's schema."""
        self._keys.update([rows.column(name) for name in self._key_names])
        self._values.update([rows.column(name) for name in self._names])

    def finish(self, _: "pq.FileMetaData | None") -> None:
        """Nothing is known from a footer."""

    @staticmethod
    def of_each(files: "Sequence[RowStats]") -> list[StatsPair]:
        """Return what each has collected."""
        return [stats.result() for stats in files]

    def result(self) -> StatsPair:
        """Return the statistics so far."""
        keys = self._keys.result() if self._key_names else EMPTY_STATS
        return keys, self._values.result()


class FooterStats:
    """From Parquet footers, without a second look at the rows, and of all files in one pass."""

    def __init__(self, stored: pa.Schema, schema: TableSchema) -> None:
        self.groups: list[pq.RowGroupMetaData] = []
        self.stored = stored
        self.schema = schema
        self.floating = [field.name for field in stored if pa.types.is_floating(field.type)]
        self.nan_columns: set[str] = set()  # Parquet's statistics leave NaN out

    def update(self, rows: pa.Table) -> None:
        """Look for NaN, in the columns that are given."""
        for name in filter(rows.column_names.__contains__, self.floating):
            if pc.any(pc.is_nan(rows.column(name))).as_py():
                self.nan_columns.add(name)

    def finish(self, footer: "pq.FileMetaData | None") -> None:
        """Take in the footer."""
        assert footer is not None, "this format has footers"
        self.groups = [footer.row_group(i) for i in range(footer.num_row_groups)]

    @staticmethod
    def of_each(files: "Sequence[FooterStats]") -> list[StatsPair]:
        """Return the statistics of files of one schema."""
        schema = files[0].schema
        leaves = leaf_positions(files[0].stored)
        columns = {
            field.name: _extremes(files, field, leaves.get(field.name)) for field in schema.fields
        }
        values = _stats(schema, schema.fields, columns, len(files))
        if not schema.has_primary_key:
            return [(EMPTY_STATS, value_stats) for value_stats in values]
        keys = schema.select(schema.trimmed_primary_keys)
        return list(zip(_stats(schema, keys, columns, len(files)), values, strict=True))


def _stats(
    schema: TableSchema,
    fields: Sequence[DataField],
    columns: dict[str, ColumnExtremes],
    file_count: int,
) -> list[SimpleStats]:
    modes = dict(zip(schema.names, stats_modes(schema), strict=True))
    return stats_of_each(
        [field.type for field in fields],
        [modes[field.name] for field in fields],
        [columns[field.name] for field in fields],
        file_count=file_count,
    )


def _extremes(files: Sequence[FooterStats], field: DataField, leaf: int | None) -> ColumnExtremes:
    """Return what the footers of files know of a column; where a file has NaN, no bounds."""
    value_type = arrow_type(field.type)
    if leaf is None:
        nulls = pa.nulls(len(files), value_type)
        return ColumnExtremes(least=nulls, greatest=nulls, null_counts=[None] * len(files))
    groups = [group for file in files for group in file.groups]
    stored = files[0].stored.field(field.name).type
    bounds = column_bounds(groups, leaf, stored, nan_free=True)
    extremes = bounds.of_each([len(file.groups) for file in files])
    pair = [extremes.least, extremes.greatest]
    pair = [bound if bound.type == value_type else bound.cast(value_type) for bound in pair]
    with_nan = [field.name in file.nan_columns for file in files]
    if any(with_nan):
        pair = [
            pc.if_else(pa.array(with_nan), pa.scalar(None, value_type), bound) for bound in pair
        ]
    return ColumnExtremes(least=pair[0], greatest=pair[1], null_counts=extremes.null_counts)

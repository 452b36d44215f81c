"""A finished file's statistics for its manifest entry: from its footer, or from its rows."""

from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_engine.codec.stats import StatsCollector, stats_modes
from lsm_engine.io.parquet_stats import column_bounds, leaf_positions
from lsm_engine.meta.stats import EMPTY_STATS, SimpleStats
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.table_schema import KEY_PREFIX, TableSchema
from lsm_engine.schema.types import DataField


class FileStats(Protocol):
    """Minima, maxima and null counts of one file, as its rows go by and when it is finished."""

    def update(self, rows: pa.Table) -> None:
        """Take in rows of the file's schema."""
        ...

    def finish(self, footer: "pq.FileMetaData | None") -> None:
        """Take in the footer, if the format has one that knows the columns."""
        ...

    def of_keys(self) -> SimpleStats:
        """Return statistics of the key columns."""
        ...

    def of_values(self) -> SimpleStats:
        """Return statistics of every column of the table, in order."""
        ...


class RowStats:
    """Collected from every row, for formats whose footer has no statistics."""

    def __init__(self, schema: TableSchema) -> None:
        modes = dict(zip(schema.names, stats_modes(schema), strict=True))
        keys = schema.trimmed_primary_keys if schema.has_primary_key else ()
        self._key_names = [KEY_PREFIX + name for name in keys]
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

    def of_keys(self) -> SimpleStats:
        """Return statistics of the key columns."""
        return self._keys.result() if self._key_names else EMPTY_STATS

    def of_values(self) -> SimpleStats:
        """Return statistics of every column of the table, in order."""
        return self._values.result()


class FooterStats:
    """From a Parquet footer, without a second look at the rows."""

    def __init__(self, stored: pa.Schema, schema: TableSchema) -> None:
        self._footer: pq.FileMetaData | None = None
        self._stored = stored
        self._schema = schema
        self._nan_columns: set[str] = set()  # Parquet's statistics leave NaN out
        self._leaves = leaf_positions(stored)

    def update(self, rows: pa.Table) -> None:
        """Look for NaN."""
        for field, column in zip(rows.schema, rows.columns, strict=True):
            if pa.types.is_floating(field.type) and pc.any(pc.is_nan(column)).as_py():
                self._nan_columns.add(field.name)

    def finish(self, footer: "pq.FileMetaData | None") -> None:
        """Take in the footer."""
        self._footer = footer

    def of_keys(self) -> SimpleStats:
        """Return statistics of the key columns."""
        if not self._schema.has_primary_key:
            return EMPTY_STATS
        keys = self._schema.select(self._schema.trimmed_primary_keys)
        return self._stats(keys, KEY_PREFIX)

    def of_values(self) -> SimpleStats:
        """Return statistics of every column of the table, in order."""
        return self._stats(self._schema.fields, "")

    def _stats(self, fields: tuple[DataField, ...], prefix: str) -> SimpleStats:
        modes = dict(zip(self._schema.names, stats_modes(self._schema), strict=True))
        bounds = [self._bounds(field, prefix + field.name) for field in fields]
        collector = StatsCollector(
            [field.type for field in fields], [modes[field.name] for field in fields]
        )
        collector.set_extremes([pair for pair, _ in bounds])
        kept = collector.result()
        null_counts = tuple(
            None if count is None else null_count
            for count, (_, null_count) in zip(kept.null_counts or (), bounds, strict=True)
        )
        return replace(kept, null_counts=null_counts)

    def _bounds(self, field: DataField, name: str) -> tuple[pa.Array, int | None]:
        """Return [minimum, maximum], both null if not known, and the null count."""
        value_type = arrow_type(field.type)
        leaf = self._leaves.get(name)
        assert self._footer is not None, "the file is not finished"
        if leaf is None:
            return pa.nulls(2, value_type), None
        bounds = column_bounds(
            self._footer,
            leaf,
            self._stored.field(name).type,
            range(self._footer.num_row_groups),
            nan_free=name not in self._nan_columns,
        )
        if name in self._nan_columns:
            return pa.nulls(2, value_type), bounds.null_count
        pair = bounds.whole()
        return pair if pair.type == value_type else pair.cast(value_type), bounds.null_count

"""The value statistics of data files, opened together where they are of one layout."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.prune.stored_stats import CoveredColumn, StoredStats, covered_columns
from lsm_engine.schema.table_schema import TableSchema


@record
class StatsLayout:
    """Files of one schema that list the same covered columns, and their statistics, in this order."""

    files: tuple[DataFileMeta, ...]
    stats: StoredStats
    covered: tuple[CoveredColumn, ...]


def stats_layouts(
    files: Iterable[DataFileMeta], schema: TableSchema, written_with: Callable[[int], TableSchema]
) -> Iterator[StatsLayout]:
    """Yield the files by layout, for a reader of `schema`; `written_with` is asked once a layout."""
    layouts: dict[tuple[int, tuple[str, ...] | None], list[DataFileMeta]] = {}
    for file in files:
        layouts.setdefault((file.schema_id, file.value_stats_columns), []).append(file)
    for (schema_id, listed), some in layouts.items():
        values = [file.value_stats for file in some]
        yield StatsLayout(
            files=tuple(some),
            stats=StoredStats(
                min_values=pa.array([one.min_values for one in values], pa.binary()),
                max_values=pa.array([one.max_values for one in values], pa.binary()),
                null_counts=pa.array([one.null_counts for one in values], pa.list_(pa.int64())),
                row_counts=pa.array([file.row_count for file in some], pa.int64()),
            ),
            covered=covered_columns(written_with(schema_id).fields, schema.fields, listed=listed),
        )

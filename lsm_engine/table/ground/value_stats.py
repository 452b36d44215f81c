"""The value statistics of data files, opened together where they are of one layout."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.prune.stored_stats import CoveredColumn, StoredStats, covered_columns
from lsm_engine.schema.table_schema import TableSchema

_NONE: frozenset[int] = frozenset()
_Names = tuple[str, ...] | None
_Layout = tuple[int, _Names, _Names, frozenset[int]]


@record
class StatsLayout:
    """Files of one schema and columns that list the same covered ones, and their statistics, in this order."""

    files: tuple[DataFileMeta, ...]
    stats: StoredStats
    covered: tuple[CoveredColumn, ...]


def stats_layouts(
    files: Iterable[DataFileMeta],
    schema: TableSchema,
    written_with: Callable[[int], TableSchema],
    replaced: Mapping[str, frozenset[int]] | None = None,
) -> Iterator[StatsLayout]:
    """Yield the files by layout, for a reader of `schema`; `written_with` is asked once a layout.

    `replaced`: by file name, ids of columns of which a newer file has the values.
    """
    layouts: dict[_Layout, list[DataFileMeta]] = {}
    for file in files:
        hidden = _NONE if replaced is None else replaced.get(file.file_name, _NONE)
        layout = (file.schema_id, file.value_stats_columns, file.write_columns, hidden)
        layouts.setdefault(layout, []).append(file)
    for (schema_id, listed, written, hidden), some in layouts.items():
        stored = written_with(schema_id).written_fields(written)
        values = [file.value_stats for file in some]
        yield StatsLayout(
            files=tuple(some),
            stats=StoredStats(
                min_values=pa.array([one.min_values for one in values], pa.binary()),
                max_values=pa.array([one.max_values for one in values], pa.binary()),
                null_counts=pa.array([one.null_counts for one in values], pa.list_(pa.int64())),
                row_counts=pa.array([file.row_count for file in some], pa.int64()),
            ),
            covered=covered_columns(stored, schema.fields, listed=listed, hidden=hidden),
        )

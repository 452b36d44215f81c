"""Batch reads of `format("lsm")`: one snapshot, a range of changes, or a system table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from lsm_engine.base.instant import millis_of
from lsm_engine.filter.where import Predicate
from lsm_engine.planning.keys import packed
from lsm_engine.planning.scan import Split
from lsm_engine.read.scan import Scan
from lsm_engine.read.scan_plan import ScanRequest
from lsm_engine.spark.filters import FilteredReader
from lsm_engine.spark.jobs import Batches, prepare_worker, shows_its_errors_alone
from lsm_engine.spark.source.options import (
    AS_OF,
    PATH,
    SNAPSHOT_ID,
    TAG,
    open_source,
)
from lsm_engine.spark.splits import SplitReader
from lsm_engine.spark.types import arrow_schema_of
from lsm_engine.table.time_travel import snapshot_to_read
from lsm_engine.types.table_schema import TableSchema

# -- Partitions of `format("lsm")` -----------------------------------------------------------------
#
# Partitions that know their rows, small ones packed together.

_TASK_GOAL = 64
"""Spark does not tell a Python data source how many cores there are."""


class RowsPartition(InputPartition):
    """A partition that reads itself, and the number of bytes that it reads."""

    size_bytes: int

    def batches(self) -> Batches:
        """Yield its rows."""
        raise NotImplementedError


class PackedPartition(RowsPartition):
    """Several partitions that one task reads, one after the other."""

    def __init__(self, parts: Sequence[RowsPartition]) -> None:
        super().__init__(f"{parts[0].value} and {len(parts) - 1} more")
        self.parts = tuple(parts)
        self.size_bytes = sum(part.size_bytes for part in parts)

    def batches(self) -> Batches:
        """Yield their rows, in order."""
        for part in self.parts:
            yield from part.batches()


def packed_partitions(
    parts: Sequence[RowsPartition], *, in_order: bool = False
) -> list[InputPartition]:
    """Return partitions such that small ones share a task; those of a task, or all, stay in order."""
    sizes = [part.size_bytes for part in parts]
    tasks = packed(sizes, task_goal=_TASK_GOAL, in_order=in_order)
    return [
        parts[task[0]] if len(task) == 1 else PackedPartition([parts[number] for number in task])
        for task in tasks
    ]


def rows_of_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, in a task; no rows for an empty one."""
    prepare_worker()
    if isinstance(partition, RowsPartition):
        yield from partition.batches()


# -- The rows of one snapshot: planned once, read split by split -----------------------------------


def schema_of_the_past(path: str, options: Mapping[str, str]) -> TableSchema:
    """Return the schema that a table had at the snapshot, the tag or the time that options name."""
    session = open_source(path, options)
    snapshot = snapshot_to_read(session, **_moment(options))
    return session.schema if snapshot is None else session.as_of(snapshot).schema


def _moment(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the moment that options name, as arguments of a scan."""
    snapshot_id, as_of = options.get(SNAPSHOT_ID), options.get(AS_OF)
    return {
        "snapshot_id": None if snapshot_id is None else int(snapshot_id),
        "tag": options.get(TAG),
        "as_of_millis": None if as_of is None else millis_of(as_of),
    }


class SplitPartition(RowsPartition):
    """One split, with what its task needs to read it."""

    def __init__(self, reader: SplitReader, split: Split) -> None:
        super().__init__(f"{split.reason} bucket={split.bucket}")
        self.reader = reader
        self.split = split
        self.size_bytes = split.size_bytes

    def batches(self) -> Batches:
        """Yield its rows."""
        return self.reader.batches(self.split)


@shows_its_errors_alone
class LsmReader(FilteredReader):
    """Plans the splits of one snapshot, without those that a filter excludes."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def columns_to_filter(self) -> pa.Schema:
        """Return the table's columns."""
        return open_source(self._options[PATH], self._options).schema.arrow

    def scan(self, columns: Sequence[str], *conditions: Predicate) -> Scan:
        """Return the scan of some of the columns, of rows for which further conditions hold."""
        own = [part for part in (self.where_text, self.pushed) if part is not None]
        row_filter = [*own, *conditions] or None
        request = ScanRequest(columns=tuple(columns), where=row_filter, **_moment(self._options))
        return Scan(open_source(self._options[PATH], self._options), request)

    def partitions(self) -> list[InputPartition]:
        """Return the partitions that tasks read; small splits share one."""
        scan = self.scan(self._schema.names)
        reader = SplitReader.from_scan(scan, arrow_schema_of(self._schema))
        return packed_partitions([SplitPartition(reader, split) for split in scan.plan.splits])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition; none where the table is empty."""
        yield from rows_of_partition(partition)

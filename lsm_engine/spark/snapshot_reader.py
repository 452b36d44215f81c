"""The rows of one snapshot: planned once, read split by split."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from lsm_engine.base.instant import millis_of
from lsm_engine.plan.scan import Split
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.spark.arrow_rows import arrow_schema_of
from lsm_engine.spark.filters import FilteredReader
from lsm_engine.spark.jobs import Batches
from lsm_engine.spark.row_partitions import (
    RowsPartition,
    packed_partitions,
    rows_of_partition,
)
from lsm_engine.spark.source_options import AS_OF, PATH, SNAPSHOT_ID, TAG
from lsm_engine.spark.source_storage import open_source
from lsm_engine.spark.split_rows import SplitReader
from lsm_engine.table.ground.time_travel import snapshot_to_read
from lsm_engine.table.read.scan import Scan
from lsm_engine.table.read.scan_plan import ScanRequest


def schema_of_the_past(path: str, options: Mapping[str, str]) -> TableSchema:
    """Return the schema that a table had at the snapshot, the tag or the time that options name."""
    session = open_source(path, options)
    snapshot = snapshot_to_read(session, **_moment(options))
    return session.schema if snapshot is None else session.as_of(snapshot).schema


def _moment(options: Mapping[str, str]) -> dict[str, Any]:
    """Return what options name, as a scan takes it."""
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


class LsmReader(FilteredReader):
    """Plans the splits of one snapshot, without those that a filter excludes."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def columns_to_filter(self) -> pa.Schema:
        """Return the table's columns."""
        return open_source(self._options[PATH], self._options).schema.arrow

    def partitions(self) -> list[InputPartition]:
        """Return the partitions that tasks read; small splits share one."""
        request = ScanRequest(
            columns=tuple(self._schema.names), where=self.where, **_moment(self._options)
        )
        scan = Scan(open_source(self._options[PATH], self._options), request)
        reader = SplitReader.of(scan, arrow_schema_of(self._schema))
        return packed_partitions([SplitPartition(reader, split) for split in scan.plan.splits])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition; none where the table is empty."""
        yield from rows_of_partition(partition)

"""Changes through Spark, of a range of snapshots: `format("lsm")` with `incremental-between`.

One task per snapshot and bucket: what a task yields is in order, and no -U is parted from its +U.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.plan.incremental import ChangeSplit
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.spark.arrow_rows import arrow_schema_of, fitter, spark_schema
from lsm_engine.spark.filters import FilteredReader
from lsm_engine.spark.jobs import Batches, prepare_worker
from lsm_engine.spark.source_options import BETWEEN, BETWEEN_MODE, BETWEEN_TIMES
from lsm_engine.spark.source_storage import open_source, storage_of
from lsm_engine.table.changes.changelog_splits import CHANGE_FIELDS, Changes
from lsm_engine.table.changes.read_changes import ROW_KIND, SNAPSHOT_ID, ChangedRows, read_changes
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.open_table import open_table

_BATCH_ROWS = 64 * 1024
_CHANGE_TYPES = (
    StructField(SNAPSHOT_ID, LongType(), nullable=False),
    StructField(ROW_KIND, StringType(), nullable=False),
)


def change_schema(schema: TableSchema) -> StructType:
    """Return the columns of changes: `_snapshot_id`, `_row_kind`, and the table's."""
    return StructType([*_CHANGE_TYPES, *spark_schema(schema.fields).fields])


@record
class ChangeReader:
    """How the splits of changes are read. `schema`: the columns as Spark takes them."""

    rows: ChangedRows
    schema: pa.Schema

    def batches(self, context: BucketContext, split: ChangeSplit) -> Batches:
        """Yield the changes of a split, in order."""
        yield from _fitted(self.schema, read_changes(context, self.rows, split))


def _fitted(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Batches:
    fit = fitter(schema)
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield fit(batch.slice(start, _BATCH_ROWS))


class RowsPartition(InputPartition):
    """A partition that knows how to read itself."""

    def batches(self) -> Batches:
        """Yield its rows."""
        raise NotImplementedError


class ChangePartition(RowsPartition):
    """One split of changes, with what its task needs to read it."""

    def __init__(self, reader: ChangeReader, context: BucketContext, split: ChangeSplit) -> None:
        super().__init__(f"snapshot={split.snapshot_id} bucket={split.bucket}")
        self.reader = reader
        self.context = context
        self.split = split

    def batches(self) -> Batches:
        """Yield its rows."""
        return self.reader.batches(self.context, self.split)


def change_partitions(changes: Changes, schema: pa.Schema) -> list[ChangePartition]:
    """Return one partition per snapshot and bucket."""
    reader = ChangeReader(rows=changes.rows, schema=schema)
    return [ChangePartition(reader, context, split) for context, split in changes.splits()]


def rows_of_changes(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition that has its own reader, in a task; none where there is nothing to read."""
    prepare_worker()
    if isinstance(partition, RowsPartition):
        yield from partition.batches()


class LsmChangesReader(FilteredReader):
    """Reads the changes of a range of snapshots."""

    def __init__(self, path: str, options: Mapping[str, str], schema: StructType) -> None:
        self._path = path
        self._options = dict(options)
        self._schema = schema

    def columns_to_filter(self) -> pa.Schema:
        """Return the columns of changes."""
        return pa.schema([*CHANGE_FIELDS, *open_source(self._path, self._options).schema.arrow])

    def partitions(self) -> list[InputPartition]:
        """Return one partition per snapshot and bucket."""
        changes = open_table(self._path, storage=storage_of(self._options)).changes(
            **_range(self._options),
            mode=self._options.get(BETWEEN_MODE, "auto"),
            columns=self._schema.names,
            where=self.where,
        )
        return [*change_partitions(changes, arrow_schema_of(self._schema))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        yield from rows_of_changes(partition)


def _range(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the range that the options of a read name."""
    if BETWEEN in options:
        after, upto = _pair(options, BETWEEN)
        return {"after": _point(after), "upto": _point(upto)}
    if BETWEEN_TIMES in options:
        after, upto = _pair(options, BETWEEN_TIMES)
        return {"after_millis": int(after), "upto_millis": int(upto)}
    return {}


def _pair(options: Mapping[str, str], key: str) -> tuple[str, str]:
    parts = [part.strip() for part in options[key].split(",")]
    if len(parts) != 2 or not all(parts):
        raise InvalidOptionError(
            "give a start and an end with a comma between, the start exclusive", key=key
        )
    return parts[0], parts[1]


def _point(text: str) -> int | str:
    return int(text) if text.isdigit() else text

"""Reads of changes by Spark, of a range of snapshots: `format("lsm")` with `incremental-between`."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from lsm_engine.api.open_table import open_table
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.changes.splits import CHANGE_FIELDS, Changes
from lsm_engine.planning.incremental import ChangeSplit
from lsm_engine.spark.filters import FilteredReader
from lsm_engine.spark.jobs import Batches, shows_its_errors_alone
from lsm_engine.spark.source.options import (
    BETWEEN,
    BETWEEN_MODE,
    BETWEEN_TIMES,
    open_source,
    storage_of,
)
from lsm_engine.spark.source.reader import RowsPartition, packed_partitions, rows_of_partition
from lsm_engine.spark.splits import ChangeReader
from lsm_engine.spark.types import arrow_schema_of
from lsm_engine.table.bucket_context import BucketContext


class ChangePartition(RowsPartition):
    """One split of changes, with what its task needs to read it."""

    def __init__(self, reader: ChangeReader, context: BucketContext, split: ChangeSplit) -> None:
        super().__init__(f"snapshot={split.snapshot_id} bucket={split.bucket}")
        self.reader = reader
        self.context = context
        self.split = split
        self.size_bytes = split.size_bytes

    def batches(self) -> Batches:
        """Yield its rows."""
        return self.reader.batches(self.context, self.split)


def change_partitions(changes: Changes, schema: pa.Schema) -> list[ChangePartition]:
    """Return one partition per snapshot and bucket."""
    reader = ChangeReader(rows=changes.rows, schema=schema)
    return [ChangePartition(reader, context, split) for context, split in changes.splits()]


@shows_its_errors_alone
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
        """Return the partitions that tasks read: each snapshot and bucket in one of them."""
        changes = open_table(self._path, storage=storage_of(self._options)).changes(
            **_range(self._options),
            mode=self._options.get(BETWEEN_MODE, "auto"),
            columns=self._schema.names,
            where=self.row_filter,
        )
        parts = change_partitions(changes, arrow_schema_of(self._schema))
        return packed_partitions(parts, in_order=True)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        yield from rows_of_partition(partition)


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

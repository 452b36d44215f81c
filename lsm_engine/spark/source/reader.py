"""Batch reads of `format("lsm")`: one snapshot, a range of changes, or a system table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from lsm_engine.api.catalog import open_catalog
from lsm_engine.api.catalog_tables import SYSTEM_DATABASE
from lsm_engine.api.open_table import open_table
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.instant import millis_of
from lsm_engine.base.record import record
from lsm_engine.changes.splits import CHANGE_FIELDS, Changes
from lsm_engine.filter.where import Filter
from lsm_engine.inspect.system_tables import TABLES
from lsm_engine.planning.incremental import ChangeSplit
from lsm_engine.planning.keys import packed
from lsm_engine.planning.scan import Split
from lsm_engine.read.scan import Scan
from lsm_engine.read.scan_plan import ScanRequest
from lsm_engine.spark.filters import FilteredReader
from lsm_engine.spark.jobs import Batches, prepare_worker
from lsm_engine.spark.source.options import (
    AS_OF,
    BETWEEN,
    BETWEEN_MODE,
    BETWEEN_TIMES,
    CATALOG,
    PATH,
    SNAPSHOT_ID,
    TAG,
    WAREHOUSE,
    open_source,
    storage_of,
)
from lsm_engine.spark.splits import ChangeReader, SplitReader
from lsm_engine.spark.types import arrow_schema_of, fitter, spark_schema
from lsm_engine.storage.options import NO_OPTIONS, StorageOptions
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.time_travel import snapshot_to_read
from lsm_engine.types.arrow_types import FieldIds, field_from_arrow
from lsm_engine.types.table_schema import TableSchema

# -- What the tasks of `format("lsm")` read --------------------------------------------------------
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
            columns=tuple(self._schema.names), where=self.row_filter, **_moment(self._options)
        )
        scan = Scan(open_source(self._options[PATH], self._options), request)
        reader = SplitReader.from_scan(scan, arrow_schema_of(self._schema))
        return packed_partitions([SplitPartition(reader, split) for split in scan.plan.splits])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition; none where the table is empty."""
        yield from rows_of_partition(partition)


# -- Changes through Spark, of a range of snapshots: `format("lsm")` with `incremental-between` ----
#
# A snapshot and bucket are in one task: what it yields is in order, and no -U is parted from
# its +U.


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


# -- System tables as Spark rows -------------------------------------------------------------------
#
# `load("…/orders$files")`, or of a whole catalog, `load("sys.tables")`.


@record
class SystemSource:
    """Which system table: of the table at `path`, or of the catalog at the URL `catalog`."""

    name: str
    path: str | None = None
    catalog: str | None = None
    warehouse: str | None = None
    storage: StorageOptions = NO_OPTIONS

    @staticmethod
    def from_path(options: Mapping[str, str], path: str) -> "SystemSource | None":
        """Return the system table that a path means; None for a table's own rows."""
        if options.get(CATALOG) is not None and path.startswith(f"{SYSTEM_DATABASE}."):
            return SystemSource(
                name=path,
                catalog=options[CATALOG],
                warehouse=options.get(WAREHOUSE, "lake"),
                storage=storage_of(options),
            )
        table, dollar, name = path.rpartition("$")
        if not dollar or "/" in name:
            return None
        return SystemSource(name=name, path=table, storage=storage_of(options))

    def rows(
        self,
        where: Filter | None = None,
        columns: list[str] | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
    ) -> pa.Table:
        """Return the rows, those for which `where` is true."""
        if self.path is not None:
            table = open_table(self.path, storage=self.storage)
            return table.system(self.name, snapshot_id, tag=tag, where=where, columns=columns)
        assert self.catalog is not None
        assert self.warehouse is not None
        with open_catalog(self.catalog, warehouse=self.warehouse, storage=self.storage) as catalog:
            return catalog.system(self.name, where=where, columns=columns)

    @property
    def columns(self) -> pa.Schema:
        """The columns."""
        system_table = TABLES.get(self.name) if self.path is not None else None
        if system_table is None or self.path is None:
            return self.rows().schema
        if system_table.schema is not None:
            return system_table.schema
        # The table's own columns, some of them: those of no row at all.
        return system_table.make(open_table(self.path, storage=self.storage).session, None).schema

    def schema(self) -> StructType:
        """Return the columns as Spark knows them."""
        ids = FieldIds()
        return spark_schema(field_from_arrow(field, ids) for field in self.columns)


class SystemReader(FilteredReader):
    """Reads a system table in one task, filtered as Spark asks."""

    def __init__(
        self, source: SystemSource, schema: StructType, snapshot_id: int | None, tag: str | None
    ) -> None:
        self._source = source
        self._schema = schema
        self._snapshot_id = snapshot_id
        self._tag = tag

    def columns_to_filter(self) -> pa.Schema:
        """Return the system table's columns."""
        return self._source.columns

    def partitions(self) -> list[InputPartition]:
        """Return one partition."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        del partition
        prepare_worker()
        table = self._source.rows(self.row_filter, self._schema.names, self._snapshot_id, self._tag)
        fit = fitter(arrow_schema_of(self._schema))
        yield from map(fit, table.to_batches())

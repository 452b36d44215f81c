"""`format("lsm")`: a table's directory as a Spark data source, to read and to write.

Spark hands down filters but not the choice of columns: `read_dataframe` reads narrower, and
`Table.upsert` writes one file per bucket where a data source, which cannot shuffle, writes one per
task and bucket.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from lsm_engine.base.errors import ErrorKind, InvalidOptionError
from lsm_engine.io.storage_location import scheme_of
from lsm_engine.io.storage_options import check_storage_name, is_storage_option
from lsm_engine.plan.scan import Split
from lsm_engine.spark.arrow_rows import arrow_schema_of, located, location_in, spark_schema
from lsm_engine.spark.change_source import (
    CHANGE_OPTIONS,
    READ_CHANGELOG,
    LsmChangesReader,
    asks_for_changes,
    change_schema,
)
from lsm_engine.spark.filters import FilteredReader
from lsm_engine.spark.jobs import Batches, prepare_worker
from lsm_engine.spark.read_limits import MAX_BYTES, MAX_FILES, MAX_SNAPSHOTS
from lsm_engine.spark.shared_storage import refuse_disk
from lsm_engine.spark.source_storage import open_source, storage_of
from lsm_engine.spark.source_writer import SourceWriter, plan_write
from lsm_engine.spark.split_rows import SplitReader
from lsm_engine.spark.stream_sink import StreamSink
from lsm_engine.spark.stream_source import LsmStream
from lsm_engine.spark.system_source import CATALOG, WAREHOUSE, SystemReader, SystemSource
from lsm_engine.table.table import Table

PATH = "path"
SNAPSHOT_ID = "snapshot-id"
TAG = "tag"
AS_OF = "as-of"
COMMIT_USER = "commit-user"
COMMIT_IDENTIFIER = "commit-identifier"
_CREATED = "provider"
"""An option that Spark adds where CREATE TABLE asks for columns."""
_OF_SPARK = frozenset(
    {"owner", "location", _CREATED, "serialization.format", "external", "is_managed_location", "comment"}
)  # fmt: skip
_OF_STREAMS = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark hands on to the sink of a stream."""
_OPTIONS = (
    PATH, SNAPSHOT_ID, TAG, AS_OF, COMMIT_USER, COMMIT_IDENTIFIER, CATALOG, WAREHOUSE,
    *CHANGE_OPTIONS, MAX_FILES, MAX_BYTES, MAX_SNAPSHOTS,
)  # fmt: skip


class LsmSource(DataSource):
    """A table by its directory: `load(path)`, `save(path)`.

    Options for reads: `snapshot-id`, `tag`, or `as-of` (milliseconds, or ISO time, UTC unless it
    has an offset). Changes: `incremental-between` = "a,b" (snapshots or tags, the first exclusive),
    `incremental-between-timestamp`, `incremental-between-scan-mode`; or `read.changelog` = true for
    all that are kept, and for `readStream`, with `scan.mode`, `scan.snapshot-id`,
    `scan.timestamp-millis` and `consumer-id`. Options for writes: `commit-user` and `commit-identifier`, which make a replay
    a no-op. Mode append upserts, mode overwrite replaces the partitions that the rows touch, or the
    table where it has none (option `dynamic-partition-overwrite` of the table).

    Storage options (docs/object-stores.md) may be given too: they go to the tasks.

    System tables: `load("…/orders$files")`, and with the options `catalog` (its URL) and `warehouse`
    `load("sys.tables")`.
    """

    storage_of_session: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "lsm"

    @property
    def _given(self) -> dict[str, str]:
        """The options, over those of the session."""
        return {**self.storage_of_session, **self.options}

    def schema(self) -> StructType:
        """The table's present columns, or those of a system table."""
        schema = self._schema()
        is_created = _CREATED in self.options
        return located(schema, self._path()) if is_created else schema

    def _schema(self) -> StructType:
        system = self._system()
        if system is not None:
            return system.schema()
        table = self._table()
        if asks_for_changes(self.options):
            return change_schema(table)
        return spark_schema(table.schema.fields)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of changes as they come, with `read.changelog` = true."""
        self._table(schema)
        if not asks_for_changes(self.options):
            raise InvalidOptionError(
                "a stream of a table holds changes: set read.changelog to true, and mind _row_kind",
                key=READ_CHANGELOG,
            )
        return LsmStream(self._path(schema), self._given, schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns in `schema`, which may be fewer than the table's."""
        system = self._system(schema)
        if system is not None:
            at = self.options.get(SNAPSHOT_ID)
            snapshot_id = None if at is None else int(at)
            return SystemReader(system, schema, snapshot_id, self.options.get(TAG))
        self._table(schema)
        path = self._path(schema)
        if asks_for_changes(self.options):
            return LsmChangesReader(path, self._given, schema)
        return LsmReader({**self._given, PATH: path}, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        """Return a writer of rows of `schema`."""
        self._table(schema)
        identifier = self.options.get(COMMIT_IDENTIFIER)
        plan = plan_write(
            self._path(schema),
            arrow_schema_of(schema),
            storage=storage_of(self._given),
            replaces=overwrite,
            commit_user=self.options.get(COMMIT_USER),
            commit_identifier=None if identifier is None else int(identifier),
        )
        return SourceWriter(plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001
        """Return a writer of micro-batches; `overwrite`: each replaces the table (mode complete)."""
        self._table(schema)
        for key in (COMMIT_USER, COMMIT_IDENTIFIER):
            if key in self.options:
                raise InvalidOptionError(
                    "a stream commits under the ids of its query and its micro-batch, so that none counts "
                    "twice: leave this option out",
                    key=key,
                )
        return StreamSink(self._path(schema), self._given, schema, replaces=overwrite)

    def _system(self, schema: StructType | None = None) -> SystemSource | None:
        self._check_options(schema)
        return SystemSource.of(self._given, self._path(schema))

    def _table(self, schema: StructType | None = None) -> Table:
        self._check_options(schema)
        return open_source(self._path(schema), self._given)

    def _path(self, schema: StructType | None = None) -> str:
        """Return the table's directory: the option, or where the columns of Spark's catalog know it to be."""
        path = self.options.get(PATH) or (None if schema is None else location_in(schema))
        if path is None:
            raise InvalidOptionError(
                "Spark's catalog has this name and no lsm table behind it: Spark asks no Python data "
                "source when CREATE TABLE names columns. DROP TABLE it, then create it with "
                "lsm_engine.spark.sql(spark, 'CREATE TABLE …'), or CREATE TABLE … USING lsm LOCATION '…' "
                "without columns"
                if schema is not None
                else "CREATE TABLE … USING lsm opens a table with LOCATION; to make one use "
                "lsm_engine.spark.sql(spark, 'CREATE TABLE …')"
                if _CREATED in self.options
                else "name the table's directory: load(path) or save(path)"
            )
        # Spark's own form of a path: file:/lake/shop.db/orders
        is_file = path.startswith("file:/") and not path.startswith("file://")
        return path.removeprefix("file:") if is_file else path

    def _check_options(self, schema: StructType | None = None) -> None:
        is_created = _CREATED in self.options
        for key in self.options:
            added = is_created and (key in _OF_SPARK or key.startswith("option."))
            if (
                key not in _OPTIONS
                and key not in _OF_STREAMS
                and not added
                and not is_storage_option(key)
            ):
                check_storage_name(key)
                near = difflib.get_close_matches(key, _OPTIONS, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; there are {_OPTIONS}"
                raise InvalidOptionError(
                    f"the lsm format has no such option{hint}",
                    kind=ErrorKind.UNKNOWN_OPTION,
                    key=key,
                )
        self._path(schema)


class ClusterSource(LsmSource):
    """The same on a cluster: Spark's workers know nothing of the session that plans."""

    def _check_options(self, schema: StructType | None = None) -> None:
        super()._check_options(schema)
        by_catalog = CATALOG in self.options
        location = self.options.get(WAREHOUSE, "") if by_catalog else self._path(schema)
        if scheme_of(location) is None:
            refuse_disk(location)


class SplitPartition(InputPartition):
    """One split, with what its task needs to read it."""

    def __init__(self, reader: SplitReader, split: Split) -> None:
        super().__init__(f"{split.reason} bucket={split.bucket}")
        self.reader = reader
        self.split = split


class LsmReader(FilteredReader):
    """Plans the splits of one snapshot, with the filters that Spark hands down."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def columns_to_filter(self) -> pa.Schema:
        """Return the table's columns."""
        return open_source(self._options[PATH], self._options).schema.arrow

    def partitions(self) -> list[InputPartition]:
        """Return one partition per split."""
        snapshot_id = self._options.get(SNAPSHOT_ID)
        scan = open_source(self._options[PATH], self._options).scan(
            columns=self._schema.names,
            where=self.where,
            snapshot_id=None if snapshot_id is None else int(snapshot_id),
            tag=self._options.get(TAG),
            as_of=self._options.get(AS_OF),
        )
        reader = SplitReader.of(scan, arrow_schema_of(self._schema))
        return [SplitPartition(reader, split) for split in scan.plan.splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split; none where the table is empty."""
        prepare_worker()
        batches: Batches = iter(())
        if isinstance(partition, SplitPartition):
            batches = partition.reader.batches(partition.split)
        yield from batches

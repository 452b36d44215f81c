"""The data source `format("lsm")`: the directory of a table, to read and to write.

Spark pushes no columns into a Python data source, and filters only in part, so `read_dataframe` reads less. A data
source cannot shuffle: it writes a file per task and bucket, and `Table.upsert` one per bucket.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from lsm_engine.base.errors import ErrorKind, InvalidOptionError, NotFoundError
from lsm_engine.base.names import did_you_mean
from lsm_engine.spark.jobs import shows_its_errors_alone
from lsm_engine.spark.source.options import (
    AS_OF,
    CATALOG,
    COMMIT_IDENTIFIER,
    COMMIT_USER,
    OPTIONS,
    PATH,
    PUSH_FILTERS,
    READ_CHANGELOG,
    READS_A_PART,
    SNAPSHOT_ID,
    TAG,
    WAREHOUSE,
    WHERE,
    asks_for_changes,
    open_source,
    storage_of,
)
from lsm_engine.spark.types import arrow_schema_of, located, location_in, spark_schema
from lsm_engine.storage.location import scheme_of
from lsm_engine.storage.options import check_storage_name, is_storage_option
from lsm_engine.types.table_schema import TableSchema

# ruff: noqa: PLC0415 -- Spark plans in processes that need one of the modules below, or none
if TYPE_CHECKING:
    from lsm_engine.spark.filters import FilteredReader
    from lsm_engine.spark.source.system_reader import SystemSource

_CREATED = "provider"
"""An option that Spark adds where CREATE TABLE asks for columns."""
_OF_SPARK = frozenset(
    {"owner", "location", _CREATED, "serialization.format", "external", "is_managed_location", "comment"}
)  # fmt: skip
_OF_STREAMS = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark hands on to the sink of a stream."""


_OF_OTHERS = {
    "versionasof": "snapshot-id, or tag",
    "timestampasof": "as-of",
    **dict.fromkeys(("readchangefeed", "startingversion"), "incremental-between, such as '1,3'"),
    "mergeschema": "ALTER TABLE, or MERGE … WITH SCHEMA EVOLUTION",
    **dict.fromkeys(("primary-key", "bucket"), "an option of the table, which CREATE TABLE sets"),
}
"""Options of other formats, and what to use in their place."""


@shows_its_errors_alone
class LsmSource(DataSource):
    """A table by its directory: `load(path)`, `save(path)`.

    Options for reads: `snapshot-id`, `tag`, or `as-of` (milliseconds, or ISO time, UTC unless it
    has an offset); `where`, a predicate as SQL text, by which files are left out; `push-filters` = true for a
    DataFrame that is used once (filters.FilteredReader). Changes: `incremental-between` = "a,b" (snapshots or tags, the first exclusive),
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
    def _merged_options(self) -> dict[str, str]:
        """The options, over those of the session."""
        return {**self.storage_of_session, **self.options}

    def schema(self) -> StructType:
        """The table's columns, those of the past where options name it, or those of a system table."""
        schema = self._schema()
        is_created = _CREATED in self.options
        return located(schema, self._path()) if is_created else schema

    def _schema(self) -> StructType:
        system = self._system()
        if system is not None:
            return system.schema()
        if asks_for_changes(self.options):
            from lsm_engine.spark.splits import change_schema

            return change_schema(self._table())
        if any(key in self.options for key in (SNAPSHOT_ID, TAG, AS_OF)):
            from lsm_engine.spark.source.reader import schema_of_the_past

            self._check_options()
            return spark_schema(schema_of_the_past(self._path(), self._merged_options).read_fields)
        return spark_schema(self._table().read_fields)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of changes as they come, with `read.changelog` = true."""
        self._table(schema)
        if not asks_for_changes(self.options):
            raise InvalidOptionError(
                "a stream of a table holds changes: set read.changelog to true, and mind _row_kind",
                key=READ_CHANGELOG,
            )
        from lsm_engine.spark.source.stream import LsmStream

        return LsmStream(self._path(schema), self._merged_options, schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns in `schema`, which may be fewer than the table's."""
        reader = self._reader(schema)
        reader.where_text = self.options.get(WHERE)
        reader.takes_filters = self.options.get(PUSH_FILTERS, "false").lower() == "true"
        return reader

    def _reader(self, schema: StructType) -> "FilteredReader":
        system = self._system(schema)
        if system is not None:
            from lsm_engine.spark.source.system_reader import SystemReader

            snapshot_text = self.options.get(SNAPSHOT_ID)
            snapshot_id = None if snapshot_text is None else int(snapshot_text)
            return SystemReader(system, schema, snapshot_id, self.options.get(TAG))
        self._table(schema)
        path = self._path(schema)
        if asks_for_changes(self.options):
            from lsm_engine.spark.source.change_reader import LsmChangesReader

            return LsmChangesReader(path, self._merged_options, schema)
        from lsm_engine.spark.source.reader import LsmReader

        return LsmReader({**self._merged_options, PATH: path}, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        """Return a writer of rows of `schema`."""
        from lsm_engine.spark.source.writer import SourceWriter, plan_write

        self._check_names_path()
        self._check_is_of_now()
        self._table()
        identifier = self.options.get(COMMIT_IDENTIFIER)
        plan = plan_write(
            self._path(),
            arrow_schema_of(schema),
            storage=storage_of(self._merged_options),
            replaces=overwrite,
            commit_user=self.options.get(COMMIT_USER),
            commit_identifier=None if identifier is None else int(identifier),
        )
        return SourceWriter(plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: FBT001
        """Return a writer of micro-batches; `overwrite`: each replaces the table (mode complete)."""
        self._check_names_path()
        self._table()
        for key in (COMMIT_USER, COMMIT_IDENTIFIER):
            if key in self.options:
                raise InvalidOptionError(
                    "a stream commits under the ids of its query and its micro-batch, so that none counts "
                    "twice: leave this option out",
                    key=key,
                )
        from lsm_engine.spark.source.writer import StreamSink

        return StreamSink(self._path(), self._merged_options, schema, replaces=overwrite)

    def _check_names_path(self) -> None:
        """Raise InvalidOptionError for a write by a name of Spark's catalog, which Spark does not hand over.

        The columns are those of the rows: after SELECT * FROM another table they know where that one is.
        """
        if PATH not in self.options:
            raise InvalidOptionError(
                "Spark does not tell a Python data source which table of its catalog it writes to: use "
                "lsm_engine.spark.sql(spark, 'INSERT …') with the name of the table, not of a view of it, instead of "
                "INSERT by spark.sql, insertInto and saveAsTable, or name the table's directory: save(path), start(path)",
                key=PATH,
            )

    def _check_is_of_now(self) -> None:
        """Raise InvalidOptionError for a write to a part of a table or to its past: INSERT into a view of such a read."""
        for key in READS_A_PART:
            if key in self.options:
                raise InvalidOptionError(
                    "rows that are written change the table as it is now, and this option is of reads: leave it out, and "
                    "name the table where a view of it is named",
                    key=key,
                )

    def _system(self, schema: StructType | None = None) -> "SystemSource | None":
        self._check_options(schema)
        path = self._path(schema)
        if CATALOG not in self.options and "$" not in path.rpartition("/")[2]:
            return None
        from lsm_engine.spark.source.system_reader import SystemSource

        return SystemSource.from_path(self._merged_options, path)

    def _table(self, schema: StructType | None = None) -> TableSchema:
        self._check_options(schema)
        path = self._path(schema)
        try:
            return open_source(path, self._merged_options).schema
        except NotFoundError as error:
            if "/" in path or error.kind is not ErrorKind.NO_SUCH_TABLE:
                raise
            raise NotFoundError(
                "load(path) and save(path) take the directory of a table; by its name spark.table(name) reads it, and "
                "INSERT by sql writes to it",
                kind=error.kind,
                location=path,
            ) from None

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
                key not in OPTIONS
                and key not in _OF_STREAMS
                and not added
                and not is_storage_option(key)
            ):
                check_storage_name(key)
                hint = did_you_mean(key, OPTIONS, f"; there are {OPTIONS}")
                if key in _OF_OTHERS:
                    hint = f"; here it is {_OF_OTHERS[key]}"
                raise InvalidOptionError(
                    f"the lsm format has no such option{hint}",
                    kind=ErrorKind.UNKNOWN_OPTION,
                    key=key,
                )
        self._path(schema)


class ClusterSource(LsmSource):
    """The same on a cluster, whose workers do not have the settings of the session that plans."""

    def _check_options(self, schema: StructType | None = None) -> None:
        super()._check_options(schema)
        by_catalog = CATALOG in self.options
        location = self.options.get(WAREHOUSE, "") if by_catalog else self._path(schema)
        if scheme_of(location) is None:
            from lsm_engine.spark.session import refuse_disk

            refuse_disk(location)

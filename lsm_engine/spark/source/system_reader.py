"""Reads of system tables by Spark."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from lsm_engine.api.catalog import open_catalog
from lsm_engine.api.catalog_tables import SYSTEM_DATABASE
from lsm_engine.api.open_table import open_table
from lsm_engine.base.record import record
from lsm_engine.filter.where import Filter
from lsm_engine.inspect.system_tables import TABLES
from lsm_engine.spark.filters import FilteredReader
from lsm_engine.spark.jobs import prepare_worker, shows_its_errors_alone
from lsm_engine.spark.source.options import (
    CATALOG,
    WAREHOUSE,
    storage_of,
)
from lsm_engine.spark.types import arrow_schema_of, fitter, spark_schema
from lsm_engine.storage.options import NO_OPTIONS, StorageOptions
from lsm_engine.types.arrow_types import FieldIds, field_from_arrow


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


@shows_its_errors_alone
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

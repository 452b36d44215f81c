"""The tables of a session's catalog by name: found, made known to Spark, and read as of the past."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lsm_engine.base.errors import NotFoundError
from lsm_engine.base.record import record
from lsm_engine.io.storage_location import scheme_of
from lsm_engine.io.storage_options import SentOptions
from lsm_engine.schema.arrow_types import FieldIds, field_from_arrow
from lsm_engine.spark.arrow_rows import (
    arrow_schema_of,
    fitter,
    location_in,
    spark_schema,
    with_location,
)
from lsm_engine.spark.datasource import LsmSource
from lsm_engine.spark.executor import SparkExecutor
from lsm_engine.spark.read import read_dataframe
from lsm_engine.spark.source_storage import (
    CATALOG_SETTING,
    WAREHOUSE_SETTING,
    session_storage,
)
from lsm_engine.spark.statement import quoted
from lsm_engine.table.open_table import open_table
from lsm_engine.table.table import Table
from lsm_engine.table.warehouse import Catalog, open_catalog

_FORMAT = LsmSource.name()


@record
class Place:
    """Where a session's tables are: the catalog's database (None: the warehouse's own) and the warehouse."""

    url: str | None
    warehouse: str

    @staticmethod
    def of(spark: SparkSession) -> "Place":
        """Return what a session's settings name, or the variables of the command line; else ./lake."""
        environment = os.environ
        url = spark.conf.get(CATALOG_SETTING, None) or environment.get("LSM_CATALOG_URL")
        warehouse = spark.conf.get(WAREHOUSE_SETTING, None) or environment.get("LSM_WAREHOUSE")
        return Place(url=url, warehouse=warehouse or "lake")


class SessionTables:
    """The catalog of a session's settings, and what Spark's own catalog knows of it. Close it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        place = Place.of(spark)
        self.catalog: Catalog = open_catalog(
            place.url, warehouse=place.warehouse, executor=SparkExecutor(spark)
        )
        self._names = {name.lower(): name for name in self.catalog.list_tables()}

    def named(self, name: str) -> str | None:
        """Return the name in our catalog that a name in a statement means; None for Spark's own tables."""
        plain = name.removeprefix("spark_catalog.")
        if "." not in plain:
            if not self._names or self._is_view(plain):
                return None
            plain = f"{self.spark.catalog.currentDatabase()}.{plain}"
        return self._names.get(plain.lower())

    def is_name(self, name: str) -> bool:
        """Whether a dotted name is one of ours; cheap, as it is asked of many."""
        return name.removeprefix("spark_catalog.").lower() in self._names

    def full_name(self, name: str) -> str:
        """Return "database.table" for a name of a new table."""
        plain = name.removeprefix("spark_catalog.")
        return plain if "." in plain else f"{self.spark.catalog.currentDatabase()}.{plain}"

    def table(self, name: str) -> Table:
        """Open a table by any form of its name, a branch's too: "shop.orders@fix"; NotFoundError."""
        plain, _, branch = name.partition("@")
        found = self.named(plain)
        if found is None:
            raise NotFoundError(
                "no such table in the catalog of this session; register(spark, warehouse=…) names another",
                table=name,
                warehouse=self.catalog.warehouse,
            )
        table = self.catalog.table(found)
        return table.branch(branch) if branch else table

    def opened(self, name: str) -> Table | None:
        """Open a table that Spark's catalog has by LOCATION, and this one does not; None for any other."""
        known = self._known(".".join(map(quoted, name.split("."))))
        location = None if known is None else location_in(known)
        if location is None:
            return None
        storage = SentOptions(session_storage(self.spark))
        return open_table(location, storage=storage, executor=SparkExecutor(self.spark))

    def _is_view(self, name: str) -> bool:
        try:
            return self.spark.catalog.getTable(name).isTemporary
        except AnalysisException:
            return False

    def mount(self, name: str) -> None:
        """Make Spark's catalog know a table as it is now. Nothing of it lies in Spark's warehouse."""
        table = self.catalog.table(name)
        schema = with_location(table.schema.fields, table.location)
        sql_name = ".".join(quoted(part) for part in name.split("."))
        known = self._known(sql_name)
        if known == schema:
            return
        if known is not None:
            if location_in(known) is None:
                return  # a table of Spark's own
            self.spark.sql(f"DROP TABLE {sql_name}")
        database = quoted(name.partition(".")[0])
        self.spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
        place = table.location
        if scheme_of(place) is not None:  # Spark asks Hadoop about a scheme, and we do not need it
            place = f"/{place.replace('://', '/')}"
        self.spark.catalog.createTable(sql_name, path=place, source=_FORMAT, schema=schema)

    def unmount(self, name: str) -> None:
        """Make Spark's catalog forget a table; its files stay."""
        sql_name = ".".join(quoted(part) for part in name.split("."))
        known = self._known(sql_name)
        if known is not None and location_in(known) is not None:
            self.spark.sql(f"DROP TABLE IF EXISTS {sql_name}")

    def _known(self, sql_name: str) -> StructType | None:
        try:
            return self.spark.table(sql_name).schema
        except AnalysisException:
            return None

    def view(
        self, name: str, branch: str | None, system: str | None, options: Mapping[str, str]
    ) -> str:
        """Return the name of a temporary view of a table, a branch or a system table, as of the past."""
        table = self.catalog.table(name)
        stated = repr((table.location, branch, system, sorted(options.items()))).encode()
        made = f"lsm_{hashlib.sha256(stated).hexdigest()[:16]}"
        if branch is None:
            path = table.location if system is None else f"{table.location}${system}"
            frame = self.spark.read.format(_FORMAT).options(**options).load(path)
        else:
            at = options.get("as-of")
            snapshot = options.get("snapshot-id")
            travel: dict[str, Any] = {
                "snapshot_id": None if snapshot is None else int(snapshot),
                "tag": options.get("tag"),
            }
            opened = table.branch(branch)
            if system is None:
                as_of = None if at is None else int(at)
                frame = read_dataframe(opened, spark=self.spark, as_of_millis=as_of, **travel)
            else:
                rows = opened.system(system, **travel)
                ids = FieldIds()
                schema = spark_schema(field_from_arrow(field, ids) for field in rows.schema)
                fit = fitter(arrow_schema_of(schema))
                fitted = pa.Table.from_batches(map(fit, rows.to_batches()), arrow_schema_of(schema))
                frame = self.spark.createDataFrame(fitted, schema)
        frame.createOrReplaceTempView(made)
        return made

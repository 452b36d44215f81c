"""The tables of a session by name, from Spark's catalog and from the catalog of the warehouse.

Spark's catalog comes first. A view, a table of another provider and a table with a LOCATION of its own are what
Spark's catalog has, even if their columns have the metadata of an lsm table: Spark copies the metadata of columns.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from lsm_engine.api.catalog import Catalog, open_catalog
from lsm_engine.api.open_table import open_table
from lsm_engine.api.table import Table
from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.spark.executor import SparkExecutor
from lsm_engine.spark.jobs import error_of_source
from lsm_engine.spark.read import read_dataframe
from lsm_engine.spark.source.datasource import LsmSource
from lsm_engine.spark.source.options import (
    CATALOG_SETTING,
    WAREHOUSE_SETTING,
    session_storage,
)
from lsm_engine.spark.types import (
    arrow_schema_of,
    fitter,
    location_in,
    quoted,
    spark_schema,
    with_location,
)
from lsm_engine.storage.location import scheme_of
from lsm_engine.storage.options import SentOptions
from lsm_engine.types.arrow_types import FieldIds, field_from_arrow

_FORMAT = LsmSource.name()
_SPARK_CATALOG = "spark_catalog"
_ABSENT = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "NO_SUCH_DATABASE_EXCEPTION")
_TABLE_TYPES = ("MANAGED", "EXTERNAL")
_SPARK_NAME = re.compile(r"[A-Za-z0-9_]+")
"""Names of tables and databases that Spark's session catalog accepts."""
_MOUNT = "lsm.mount"
"""Option of a table that `mount` creates: whose name and which location it stands for, as digests."""
NameParts = tuple[str, ...]


@record
class Place:
    """Where a session's tables are: the catalog's database (None: the warehouse's own) and the warehouse."""

    url: str | None
    warehouse: str

    @staticmethod
    def from_session(spark: SparkSession) -> "Place":
        """Return the place in a session's settings, or in the environment variables; else ./lake."""
        return Place.named_in(spark) or Place(url=None, warehouse="lake")

    @staticmethod
    def named_in(spark: SparkSession) -> "Place | None":
        """Return the place that the settings of a session, or the environment variables, name; None where none does."""
        environment = os.environ
        url = spark.conf.get(CATALOG_SETTING, None) or environment.get("LSM_CATALOG_URL")
        warehouse = spark.conf.get(WAREHOUSE_SETTING, None) or environment.get("LSM_WAREHOUSE")
        return Place(url=url, warehouse=warehouse or "lake") if url or warehouse else None


@record
class SparkEntry:
    """An entry of Spark's catalog.

    `facts`: of a table of the session catalog, as SHOW TABLE EXTENDED prints them; "" for views and for tables of
    other catalogs.
    """

    is_view: bool
    facts: str = ""

    @staticmethod
    def from_name(spark: SparkSession, parts: NameParts) -> "SparkEntry | None":
        """Return the entry of a name in Spark's catalog, temporary views first; None without one."""
        try:
            table = spark.catalog.getTable(sql_name(parts))
        except AnalysisException as cause:
            # Any other error means that Spark has something there that it does not describe: leave it to Spark.
            absent = (cause.getCondition() or "").startswith(_ABSENT)
            return None if absent else SparkEntry(is_view=False)
        if table.isTemporary or table.tableType not in _TABLE_TYPES:
            return SparkEntry(is_view=True)
        if table.catalog != _SPARK_CATALOG or not table.namespace:
            return SparkEntry(is_view=False)
        database = sql_name((_SPARK_CATALOG, *table.namespace))
        shown = spark.sql(f"SHOW TABLE EXTENDED IN {database} LIKE '{table.name}'").collect()
        facts = [row["information"] for row in shown if not row["isTemporary"]]
        return SparkEntry(is_view=False, facts=facts[0] if len(facts) == 1 else "")

    def fact(self, name: str) -> str | None:
        """Return a fact such as "Provider"; None where the table has none of that name."""
        line = re.search(rf"^{name}: (.*)$", self.facts, re.MULTILINE)
        return None if line is None else line[1]

    @property
    def is_lsm(self) -> bool:
        """Whether it is a table of this format."""
        return (self.fact("Provider") or "").lower() == _FORMAT

    def is_mount(self, name: str, location: str | None = None) -> bool:
        """Whether `mount` created it for a table of the warehouse's catalog, at this location or at any."""
        stated = f"{_MOUNT}={_mark(name, location)}"
        if self.is_lsm and stated in self.facts:
            return True
        return self.is_lsm and location is not None and self.fact("Location") == _place(location)


def spark_parts(name: str) -> NameParts:
    """Return the parts of the name that a table of the warehouse's catalog has in Spark, whatever the current catalog."""
    return (_SPARK_CATALOG, *name.split("."))


def sql_name(parts: NameParts) -> str:
    """Return a name as Spark's SQL takes it."""
    return ".".join(map(quoted, parts))


def _mark(name: str, location: str | None) -> str:
    """Return the value of the option `lsm.mount`; without a location, its prefix."""
    digests = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in (name, location or ""))
    stated = "-".join(digests)
    return stated if location is not None else stated.partition("-")[0] + "-"


def _place(location: str) -> str:
    """Return the location that Spark's catalog shows for a table: Spark asks Hadoop about schemes, we do not."""
    path = location if scheme_of(location) is None else f"/{location.replace('://', '/')}"
    return f"file:{path}"


class SessionTables:
    """The catalog of a session's settings, and the entries of Spark's catalog. Close it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        place = Place.from_session(spark)
        self.catalog: Catalog = open_catalog(
            place.url, warehouse=place.warehouse, executor=SparkExecutor(spark)
        )
        self._entries: dict[NameParts, SparkEntry | None] = {}
        self._names: dict[str, list[str]] = {}
        for name in self.catalog.list_tables():
            self._names.setdefault(name.lower(), []).append(name)

    @cached_property
    def _current(self) -> tuple[str, str]:
        """The session's current catalog and database, as long as one statement runs."""
        return self.spark.catalog.currentCatalog(), self.spark.catalog.currentDatabase()

    def in_warehouse(self, parts: NameParts) -> str | None:
        """Return the table of the warehouse's catalog that has a name, whatever Spark's catalog means by it.

        Raises InvalidInputError for a name that two tables have in different letters.
        """
        parts = _separated(parts)
        if len(parts) == 3 and parts[0].lower() == _SPARK_CATALOG:
            parts = parts[1:]
        elif not self._names or len(parts) > 2 or self._current[0] != _SPARK_CATALOG:
            return None
        if len(parts) == 1:
            parts = (self._current[1], *parts)
        names = self._names.get(".".join(parts).lower(), [])
        if len(names) > 1:
            raise InvalidInputError(
                "Spark compares names without case, and several tables have this one: rename one of them",
                kind=ErrorKind.INVALID_NAME,
                tables=names,
            )
        return names[0] if names else None

    def database(self, parts: NameParts) -> str | None:
        """Return the database of the warehouse's catalog that a name in a statement means; None without one."""
        *catalog, name = parts
        if (catalog or [self._current[0]]) != [_SPARK_CATALOG]:
            return None
        names = {database.lower(): database for database in self.catalog.list_databases()}
        return names.get(name.lower())

    def table_name(self, parts: NameParts) -> str | None:
        """Return the table of the warehouse's catalog that a name in a statement means.

        None where it means something else: a view, or a table of Spark's own that has the name of one of ours.
        """
        name = self.in_warehouse(parts)
        if name is None:
            return None
        entry = self.entry(parts)
        return name if entry is None or entry.is_mount(name) else None

    def entry(self, parts: NameParts) -> SparkEntry | None:
        """Return the entry of Spark's catalog under a name."""
        if parts not in self._entries:
            self._entries[parts] = SparkEntry.from_name(self.spark, parts)
        separated = _separated(parts)
        if self._entries[parts] is None and separated != parts:
            return self.entry(separated)
        return self._entries[parts]

    def new_name(self, parts: NameParts) -> str:
        """Return "database.table" for a name of a new table."""
        parts = _separated(parts)
        if len(parts) == 3 and parts[0].lower() == _SPARK_CATALOG:
            parts = parts[1:]
        return ".".join(parts if len(parts) > 1 else (self._current[1], *parts))

    def is_free(self, name: str) -> bool:
        """Whether neither catalog has a table, or a view, of a name; a table that is not there any more does not count."""
        parts = spark_parts(name)
        entry = self.entry(parts)
        is_new = self.in_warehouse(parts) is None
        return is_new and (entry is None or entry.is_mount(name))

    def table(self, name: str) -> Table:
        """Open a table by any form of its name, a branch's too: "shop.orders@fix"; NotFoundError."""
        text, _, branch = name.partition("@")
        full_name = self.table_name(tuple(text.split(".")))
        if full_name is None:
            raise NotFoundError(
                "no such table in the catalog of this session; register(spark, warehouse=…) names another",
                table=name,
                warehouse=self.catalog.warehouse,
            )
        table = self.catalog.table(full_name)
        return table.branch(branch) if branch else table

    def located(self, parts: NameParts) -> Table | None:
        """Open a table that Spark's catalog alone has, by its own LOCATION; None for any other, such as a view.

        Raises InvalidInputError where its columns belong to another table, which is what Spark would read.
        """
        entry = self.entry(parts)
        if entry is None or not entry.is_lsm:
            return None
        location = location_in(self.spark.table(sql_name(parts)).schema)
        if location is None or entry.fact("Location") not in (location, _place(location)):
            raise InvalidInputError(
                "Spark's catalog has this name for a table at one location, with the columns of another: DROP TABLE "
                "it, which leaves the files, and CREATE TABLE … USING lsm LOCATION '…' it without columns",
                kind=ErrorKind.INVALID_NAME,
                table=".".join(parts),
                location=entry.fact("Location"),
                columns_of=location,
            )
        storage = SentOptions(session_storage(self.spark))
        return open_table(location, storage=storage, executor=SparkExecutor(self.spark))

    def mount(self, name: str) -> bool:
        """Create or replace the entry of a table in Spark's catalog; False if Spark refuses the name.

        Nothing of the table lies in Spark's warehouse. What else Spark's catalog has under the name stays.
        """
        parts = spark_parts(name)
        if not all(map(_SPARK_NAME.fullmatch, parts)):
            return False
        table = self.catalog.table(name)
        schema = with_location(table.schema.read_fields, table.location)
        entry = self.entry(parts)
        if entry is not None:
            if not entry.is_mount(name):
                return True
            # Spark does not see a changed schema or location of its own accord: the entry is replaced.
            is_same = entry.is_mount(name, table.location)
            if is_same and self.spark.table(sql_name(parts)).schema == schema:
                return True
            self.spark.sql(f"DROP TABLE {sql_name(parts)}")
        self._entries.clear()
        self.mount_database(parts[1])
        self.spark.catalog.createTable(
            sql_name(parts),
            path=_place(table.location).removeprefix("file:"),
            source=_FORMAT,
            schema=schema,
            **{_MOUNT: _mark(name, table.location)},
        )
        return True

    def mount_database(self, name: str) -> None:
        """Create a database in Spark's catalog, unless it is there or Spark refuses the name."""
        if _SPARK_NAME.fullmatch(name):
            parts = sql_name((_SPARK_CATALOG, name))
            self.spark.sql(f"CREATE DATABASE IF NOT EXISTS {parts}")

    def unmount(self, name: str) -> None:
        """Drop the entry of a table in Spark's catalog; its files stay, and so does any other entry of the name."""
        parts = spark_parts(name)
        entry = self.entry(parts)
        if entry is not None and entry.is_mount(name):
            self._entries.clear()
            self.spark.sql(f"DROP TABLE IF EXISTS {sql_name(parts)}")

    def refresh(self, parts: NameParts) -> None:
        """Have Spark refresh its cached data of a table, as it does after a write to a table of its own."""
        if self.entry(parts) is not None:
            self.spark.catalog.refreshTable(sql_name(parts))

    def frame(
        self, name: str, branch: str | None, system: str | None, options: Mapping[str, str]
    ) -> DataFrame:
        """Return the rows of a table, a branch or a system table, as of the past or now."""
        table = self.catalog.table(name)
        if branch is None:
            path = table.location if system is None else f"{table.location}${system}"
            try:
                return self.spark.read.format(_FORMAT).options(**options).load(path)
            except PySparkException as cause:
                error = error_of_source(cause)
                if error is None:
                    raise
                # The source knows the table by its directory, and the statement by its name.
                error.message = error.message.replace(table.location, name)
                raise error from None
        snapshot, millis = options.get("snapshot-id"), options.get("as-of")
        travel: dict[str, Any] = {
            "snapshot_id": None if snapshot is None else int(snapshot),
            "tag": options.get("tag"),
        }
        line = table.branch(branch)
        if system is None:
            as_of = None if millis is None else int(millis)
            return read_dataframe(line, spark=self.spark, as_of_millis=as_of, **travel)
        rows = line.system(system, **travel)
        ids = FieldIds()
        schema = spark_schema(field_from_arrow(field, ids) for field in rows.schema)
        fit = fitter(arrow_schema_of(schema))
        fitted = pa.Table.from_batches(map(fit, rows.to_batches()), arrow_schema_of(schema))
        return self.spark.createDataFrame(fitted, schema)


def _separated(parts: NameParts) -> NameParts:
    """Return the parts of a name that stands in one pair of backticks, as `shop.orders@fix` does."""
    return tuple(parts[0].split(".")) if len(parts) == 1 else parts

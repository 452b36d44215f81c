"""LsmResource: the catalog and its tables, as assets, checks and sensors use them."""

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from typing import Any, TypeVar

import dagster as dg
import pyarrow as pa
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import DataFrame

import lsm_engine as lsm
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import table_keys
from lsm_assets.model.pinned_inputs import Pin
from lsm_assets.settings import CATALOG_URL, Settings
from lsm_engine import (
    Clock,
    CommitMessage,
    Discard,
    ErrorKind,
    Executor,
    InvalidInputError,
    LocalExecutor,
    NotFoundError,
    Staging,
    arrow_type,
    type_of_field,
    type_text,
)
from lsm_engine.spark import FileRows, SparkExecutor, check_java, engine_settings, local_settings

T = TypeVar("T")

SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Every run starts a JVM that does little itself: without the second compiler its start costs half
(9 s of CPU in place of 17 on the machine of docs/performance.md), and rows never wait for it.
"""

CLOCK: ContextVar[Clock | None] = ContextVar("lsm_clock", default=None)
"""The clock of tables that runs open: the system's, or one that a test sets (`lsm_assets.testing`)."""

_ABSENT = (ErrorKind.NO_SUCH_TABLE, ErrorKind.NO_SUCH_DATABASE)


class ExecutorOnDemand:
    """An executor that starts when the first work arrives, so that a sensor never starts Spark."""

    def __init__(self, start: Callable[[], Executor]) -> None:
        self._start = start

    @cached_property
    def started(self) -> Executor:
        """The executor itself."""
        return self._start()

    def check_storage(self, file_io: Any) -> None:
        """Let the executor check it: work follows."""
        self.started.check_storage(file_io)

    def messages(
        self,
        work: Callable[[T], CommitMessage | None],
        items: Sequence[T],
        *,
        label: str,
        discard: Discard,
        is_far: bool = False,
    ) -> list[CommitMessage]:
        """Run the work where it belongs."""
        return self.started.messages(work, items, label=label, discard=discard, is_far=is_far)

    def stage(self, staging: Staging, rows: Any) -> list[CommitMessage] | None:
        """Write rows that only the executor can read; Arrow rows need none to be started."""
        return self.started.stage(staging, rows) if isinstance(rows, DataFrame | FileRows) else None

    def merging(self, session: Any, source: Any, plan: Any) -> Callable[[Any], Any] | None:
        """Merge a DataFrame where it is; Arrow rows need no executor to be started."""
        is_dataframe = isinstance(source, DataFrame)
        return self.started.merging(session, source, plan) if is_dataframe else None


class LsmResource(dg.ConfigurableResource):
    """Opens the catalog on first use and closes it when the run or tick ends.

    With `executor="spark"` writes and compactions run on the session of `pyspark`, started by the
    first of them; reads of metadata never start it.
    """

    catalog_url: str = Field(
        description="SQLAlchemy URL of the catalog, e.g. sqlite:///lake/catalog.db"
    )
    warehouse: str = Field(description="Directory or location (s3://…) of databases and tables")
    storage: dict[str, str] = Field(
        default={}, description="Options of the warehouse's store; secrets as LSM_STORAGE_* instead"
    )
    executor: str = Field(default="spark", description="spark or local")
    pyspark: dg.ResourceDependency[LazyPySparkResource]

    _catalog: lsm.Catalog | None = PrivateAttr(default=None)
    _pins: dict[tuple[str, dg.AssetKey], Pin] = PrivateAttr(default_factory=dict)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Close the catalog; a Spark session is kept, as the next run may use it."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    @property
    def pins(self) -> dict[tuple[str, dg.AssetKey], Pin]:
        """What each step of this run has read of which table, by step and asset."""
        return self._pins

    @property
    def catalog(self) -> lsm.Catalog:
        """The open catalog, created if absent."""
        if self._catalog is None:
            self._catalog = lsm.open_catalog(
                self.catalog_url,
                warehouse=self.warehouse,
                storage=self.storage,
                executor=ExecutorOnDemand(self._start_executor),
                clock=CLOCK.get(),
            )
        return self._catalog

    @property
    def spark(self) -> Any:
        """The Spark session, started if there is none."""
        check_java()
        # Workers run this very interpreter; the context reads the variable when it starts.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        with warnings.catch_warnings():
            # Spark looks at the version of pandas when it starts, and needs none here.
            warnings.simplefilter("ignore", FutureWarning)
            return self.pyspark.spark_session

    def _start_executor(self) -> Executor:
        return SparkExecutor(self.spark) if self.executor == "spark" else LocalExecutor()

    def existing_table(self, name: str) -> lsm.Table | None:
        """Return a table, None if there is none yet."""
        try:
            return self.catalog.table(name)
        except NotFoundError as error:
            if error.kind in _ABSENT:
                return None
            raise

    def upstream_table(self, key: dg.AssetKey) -> lsm.Table:
        """Return the table of an asset that is read; raises dagster.Failure, with what to do, if there is none."""
        table = self.existing_table(table_keys(key).name)
        if table is None:
            raise dg.Failure(f"There is no table {table_keys(key).name}: {materialize_first(key)}")
        return table

    def table(self, declaration: TableDeclaration) -> lsm.Table:
        """Return the declared table, created only if the catalog has none of that name.

        Any other failure to open it is raised: a table that cannot be read is not an absent one.
        Raises InvalidInputError if the table there was declared differently.
        """
        table = self.existing_table(declaration.name)
        if table is None:
            return create_table(self.catalog, declaration)
        check_declaration(declaration, table)
        return table


def materialize_first(key: dg.AssetKey) -> str:
    """Return what to do where an asset has to be there first."""
    return f"materialise {key.to_user_string()}, then run this again"


def create_table(catalog: lsm.Catalog, declaration: TableDeclaration) -> lsm.Table:
    """Create a declared table, and its database; one that somebody else just made is taken as is."""
    catalog.create_database(declaration.keys.database, ignore_if_exists=True)
    return catalog.create_table(
        declaration.name,
        declaration.schema,
        primary_key=declaration.primary_key,
        partitioned_by=declaration.partitioned_by,
        options=declaration.options,
        comment=declaration.comment,
        ignore_if_exists=True,
    )


def check_declaration(declaration: TableDeclaration, table: lsm.Table, remedy: str = "") -> None:
    """Raise InvalidInputError, naming the difference, unless `table` is what was declared.

    `remedy`: what may be done about columns and types, besides altering one of the two.
    """
    facts: Mapping[str, tuple[object, object]] = {
        "primary_key": (tuple(declaration.primary_key), tuple(table.schema.primary_keys)),
        "partitioned_by": (tuple(declaration.partitioned_by), tuple(table.schema.partition_keys)),
        "columns": (tuple(declaration.schema.names), tuple(table.schema.names)),
        "types": _different_types(declaration.schema, table.schema),
    }
    for fact, (declared, stored) in facts.items():
        if declared != stored:
            adjective, hint = ("other", remedy) if fact in ("columns", "types") else ("another", "")
            raise InvalidInputError(
                f"the table has {adjective} {fact} than its asset declares; {hint}alter the table or the "
                "declaration, nothing was written",
                kind=ErrorKind.INVALID_SCHEMA,
                table=declaration.name,
                declared=declared,
                stored=stored,
            )


def _different_types(
    declared: pa.Schema, stored: lsm.TableSchema
) -> tuple[dict[str, str], dict[str, str]]:
    """Return types of columns that are declared otherwise than they are stored, and the stored ones.

    A length counts only where it is declared: Arrow has none of its own.
    """
    stored_types = {field.name: field.type for field in stored.fields}
    differences = []
    for field in declared:
        kind, bare_type, stored_type = (
            type_of_field(field),
            type_of_field(field.remove_metadata()),
            stored_types.get(field.name),
        )
        if stored_type is None:
            continue  # the names differ, which was told first
        has_length = kind != bare_type and _type_string(kind) != _type_string(stored_type)
        if has_length or not arrow_type(kind).equals(arrow_type(stored_type)):
            differences.append((field.name, _type_string(kind), _type_string(stored_type)))
    return {name: text for name, text, _ in differences}, {
        name: text for name, _, text in differences
    }


def _type_string(kind: Any) -> str:
    return type_text(kind).removesuffix(" NOT NULL")


def resources_from(settings: Settings) -> dict[str, Any]:
    """Return the resources that the assets ask for: `lsm`, and `pyspark` underneath it."""
    pyspark = LazyPySparkResource(spark_config=spark_settings(settings))
    return {
        "pyspark": pyspark,
        "lsm": LsmResource(
            catalog_url=_hide_url(settings.catalog_url),
            warehouse=settings.warehouse,
            executor=settings.executor,
            pyspark=pyspark,
        ),
    }


def _hide_url(catalog_url: str) -> str:
    """Return the URL, or where it comes from the environment its variable: Dagster shows run config."""
    is_given = os.environ.get(CATALOG_URL) == catalog_url
    return dg.EnvVar(CATALOG_URL) if is_given else catalog_url


def spark_settings(settings: Settings) -> dict[str, str]:
    """Return the configuration of the session: this machine's, or that of a cluster's master."""
    if settings.spark_master:
        return {**engine_settings(), "spark.master": settings.spark_master}
    local = local_settings()
    java = local["spark.driver.extraJavaOptions"]
    return {**local, "spark.driver.extraJavaOptions": f"{java} {SHORT_LIVED_JAVA}"}

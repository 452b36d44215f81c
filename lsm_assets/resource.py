"""LsmResource: the catalog and its tables, for assets, checks and sensors."""

import logging
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
from lsm_assets.declaration import TableDeclaration
from lsm_assets.keys import table_keys
from lsm_assets.settings import CATALOG_URL, Settings
from lsm_assets.versions import Pin
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
    core_options,
    format_bytes,
    type_of_field,
    type_text,
)
from lsm_engine.spark import (
    FileRows,
    SparkExecutor,
    check_java,
    configured_local_bytes,
    engine_settings,
    local_settings,
)

log = logging.getLogger("lsm_engine.executor")
"""A logger of the engine's: Dagster shows its lines in the run (`python_logs` of dagster.yaml)."""
T = TypeVar("T")

SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for a JVM that lives as long as one run. Without the second compiler it starts in half the CPU time (9 s
instead of 17 s on the machine of lsm_engine/docs/performance.md), and rows do not wait for it.
"""

CLOCK: ContextVar[Clock | None] = ContextVar("lsm_clock", default=None)
"""The clock of tables that runs open; None for the system clock. Tests set it (`lsm_assets.testing`)."""


def now_seconds() -> float:
    """Return the time of that clock in seconds since 1970."""
    return (CLOCK.get() or lsm.SystemClock()).now_millis() / 1_000


_ABSENT = (ErrorKind.NO_SUCH_TABLE, ErrorKind.NO_SUCH_DATABASE)


class ExecutorOnDemand:
    """An executor that starts with the first task that is too large for this process.

    Sensors, reads of metadata and small tasks do not start Spark. What is small is decided as for a session that runs
    (`spark.lsm.driver-bytes`).

    Attributes:
        choice: The executor of the last tasks, and the reason for it; "" before the first.
    """

    def __init__(self, start: Callable[[], Executor], local_bytes: int = 0) -> None:
        self._start, self._local_bytes = start, local_bytes
        self._storage: list[Any] = []
        self.choice = ""

    @cached_property
    def started(self) -> Executor:
        """The started executor."""
        executor = self._start()
        for file_io in self._storage:
            executor.check_storage(file_io)
        return executor

    @property
    def is_started(self) -> bool:
        """Whether the executor has started."""
        return "started" in self.__dict__

    def check_storage(self, file_io: Any) -> None:
        """Check that the executor can access the storage, once it starts."""
        if self.is_started:
            self.started.check_storage(file_io)
        else:
            self._storage.append(file_io)

    def takes_locally(self, size_bytes: int, subject: str) -> bool:
        """Whether this process takes files of that many bytes. The reason is in `choice`."""
        is_local = size_bytes <= self._local_bytes
        relation = "up to" if is_local else "more than"
        self.choice = (
            f"{'this process' if is_local else 'Spark'}: {subject} of {format_bytes(size_bytes)}, {relation} the "
            f"{format_bytes(self._local_bytes)} that need no Spark"
        )
        log.info("%s", self.choice)
        return is_local

    def messages(
        self,
        work: Callable[[T], CommitMessage | None],
        items: Sequence[T],
        *,
        label: str,
        discard: Discard,
        is_remote: bool = False,
    ) -> list[CommitMessage]:
        """Run tasks in this process if they are small, else on the executor."""
        sizes = [getattr(item, "size_bytes", 0) for item in items]
        # Items of unknown size are the executor's.
        is_known = bool(items) and all(sizes) and self._local_bytes > 0
        subject = getattr(items[0], "subject", "files") if items else "files"
        if is_known and self.takes_locally(sum(sizes), subject):
            local = LocalExecutor()
            return local.messages(work, items, label=label, discard=discard, is_remote=is_remote)
        return self.started.messages(work, items, label=label, discard=discard, is_remote=is_remote)

    def stage(self, staging: Staging, rows: Any) -> list[CommitMessage] | None:
        """Write rows of a DataFrame by the executor. For Arrow rows return None and do not start it."""
        return self.started.stage(staging, rows) if isinstance(rows, DataFrame | FileRows) else None

    def merging(self, session: Any, source: Any, plan: Any) -> Callable[[Any, Any], Any] | None:
        """Return the merge of a DataFrame by the executor. For Arrow rows return None and do not start it."""
        is_dataframe = isinstance(source, DataFrame)
        return self.started.merging(session, source, plan) if is_dataframe else None


class LsmResource(dg.ConfigurableResource):
    """Opens the catalog on first use and closes it when the run or tick ends.

    With `executor="spark"` writes and compactions run on the session of the resource `pyspark`. The first of them starts
    the session; reads of metadata do not.
    """

    catalog_url: str = Field(
        description="SQLAlchemy URL of the catalog, e.g. sqlite:///lake/catalog.db, or the address of `lsm serve`, "
        "whose token is LSM_TOKEN"
    )
    warehouse: str = Field(description="Directory or location (s3://…) of databases and tables")
    storage: dict[str, str] = Field(
        default={}, description="Options of the warehouse's store; secrets as LSM_STORAGE_* instead"
    )
    executor: str = Field(default="spark", description="spark or local")
    pyspark: dg.ResourceDependency[LazyPySparkResource]

    _catalog: lsm.Catalog | None = PrivateAttr(default=None)
    _on_demand: ExecutorOnDemand | None = PrivateAttr(default=None)
    _pins: dict[tuple[str, dg.AssetKey], Pin] = PrivateAttr(default_factory=dict)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Close the catalog. The Spark session stays open for the next run in this process."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    @property
    def pins(self) -> dict[tuple[str, dg.AssetKey], Pin]:
        """The states of tables that the steps of this run have read, by step key and asset key."""
        return self._pins

    @property
    def catalog(self) -> lsm.Catalog:
        """The open catalog. It is created if it does not exist."""
        if self._catalog is None:
            self._catalog = lsm.open_catalog(
                self.catalog_url,
                warehouse=self.warehouse,
                storage=self.storage,
                executor=self.on_demand,
                clock=CLOCK.get(),
            )
        return self._catalog

    @property
    def on_demand(self) -> ExecutorOnDemand:
        """The executor of the catalog's tables, which starts Spark only for work that is large enough."""
        if self._on_demand is None:
            settings = self.pyspark.spark_config if self.executor == "spark" else {}
            local_bytes = configured_local_bytes(settings) if self.executor == "spark" else 0
            self._on_demand = ExecutorOnDemand(self._start_executor, local_bytes)
        return self._on_demand

    @property
    def spark(self) -> Any:
        """The Spark session, which the first access starts."""
        check_java()
        # Workers must run the same interpreter as the driver. Spark reads the variable when it starts.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        with warnings.catch_warnings():
            # Spark checks the version of pandas and warns. This project does not use Spark's pandas functions.
            warnings.simplefilter("ignore", FutureWarning)
            return self.pyspark.spark_session

    def _start_executor(self) -> Executor:
        return SparkExecutor(self.spark) if self.executor == "spark" else LocalExecutor()

    def existing_table(self, name: str) -> lsm.Table | None:
        """Return a table; None if it does not exist. Other errors are raised: a damaged table is not an absent one."""
        try:
            return self.catalog.table(name)
        except NotFoundError as error:
            # A missing table is an answer. Any other missing file means damage, which must not create a new table.
            if error.kind in _ABSENT:
                return None
            raise

    def upstream_table(self, key: dg.AssetKey) -> lsm.Table:
        """Return the table of an upstream asset; raises dagster.Failure, with the remedy, if it does not exist."""
        table = self.existing_table(table_keys(key).name)
        if table is None:
            raise dg.Failure(f"There is no table {table_keys(key).name}: {materialize_first(key)}")
        return table

    def iceberg_location(self, key: dg.AssetKey) -> str:
        """Return the location of the Iceberg metadata of an asset's table, for engines that read it by Iceberg.

        Metadata that is behind is brought to the newest snapshot. If it cannot be, a warning says why, and the location
        is that of the newest version there is. Raises dagster.Failure, with the remedy, without any.
        """
        table = self.upstream_table(key)
        state, reason = table.inspect.iceberg(), ""
        if state.lag:
            try:
                state = table.maintenance.sync_iceberg()
            except (lsm.LsmError, OSError) as error:
                reason = str(error)
        if state.metadata_location is None:
            raise dg.Failure(
                f"{table.name} has no Iceberg metadata: {reason or state.problem}; set "
                f"{core_options.METADATA_ICEBERG_STORAGE.key!r} to 'table-location', then run `lsm iceberg sync {table.name}`"
            )
        if reason:
            log.warning("the Iceberg metadata of %s is behind: %s", table.name, reason)
        return state.metadata_location

    def table(self, declaration: TableDeclaration) -> lsm.Table:
        """Return the declared table. It is created if the catalog has no table of that name.

        Raises InvalidInputError if the table differs from its declaration.
        """
        table = self.existing_table(declaration.name)
        if table is None:
            return create_table(self.catalog, declaration)
        check_declaration(declaration, table)
        return table


def materialize_first(key: dg.AssetKey) -> str:
    """Return the remedy for an upstream asset that was not materialised yet."""
    return f"materialise {key.to_user_string()}, then run this again"


def create_table(catalog: lsm.Catalog, declaration: TableDeclaration) -> lsm.Table:
    """Create a declared table and its database. A table that another process has just created is returned as it is."""
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
    """Raise InvalidInputError, with the difference, if a table differs from its declaration.

    `remedy` is a further remedy for different columns and types.
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
    """Return the declared and the stored types of columns whose types differ.

    A length is compared only if it is declared, because Arrow types have no length.
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
            continue  # the comparison of columns reports a missing column
        has_length = kind != bare_type and _type_string(kind) != _type_string(stored_type)
        if has_length or not arrow_type(kind).equals(arrow_type(stored_type)):
            differences.append((field.name, _type_string(kind), _type_string(stored_type)))
    return {name: text for name, text, _ in differences}, {
        name: text for name, _, text in differences
    }


def _type_string(kind: Any) -> str:
    return type_text(kind).removesuffix(" NOT NULL")


def resources_from(settings: Settings) -> dict[str, Any]:
    """Return the resources of the assets: `lsm`, and `pyspark`, which it uses."""
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
    """Return the URL, or an EnvVar if the environment has it: Dagster shows run config, and a URL may hold a password."""
    is_given = os.environ.get(CATALOG_URL) == catalog_url
    return dg.EnvVar(CATALOG_URL) if is_given else catalog_url


def spark_settings(settings: Settings) -> dict[str, str]:
    """Return the configuration of the Spark session, on this machine or on a cluster's master."""
    if settings.spark_master:
        return {**engine_settings(), "spark.master": settings.spark_master}
    local = local_settings()
    java = local["spark.driver.extraJavaOptions"]
    return {**local, "spark.driver.extraJavaOptions": f"{java} {SHORT_LIVED_JAVA}"}

"""Environment → settings, read once. Nothing has to be set."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast, get_args

from lsm_engine import (
    LINEAGE_PAGE,
    InvalidOptionError,
    absolute_warehouse,
    default_catalog_url,
    record,
)

ExecutorName = Literal["spark", "local"]

WAREHOUSE = "LSM_WAREHOUSE"
CATALOG_URL = "LSM_CATALOG_URL"
EXECUTOR = "LSM_EXECUTOR"
SPARK_MASTER = "LSM_SPARK_MASTER"
DAGSTER_HOME = "DAGSTER_HOME"
LINEAGE_URL = "LSM_LINEAGE_URL"


@record
class Settings:
    """Where things are and what runs them.

    `warehouse` is an absolute directory, or a location with a scheme. `spark_master` None: this machine, all its cores.
    """

    warehouse: str
    catalog_url: str
    dagster_home: str
    executor: ExecutorName = "spark"
    spark_master: str | None = None

    def with_warehouse(self, warehouse: str | Path) -> "Settings":
        """The same settings on another warehouse, catalog and Dagster home inside it."""
        return settings_from(
            {
                WAREHOUSE: str(warehouse),
                EXECUTOR: self.executor,
                **({SPARK_MASTER: self.spark_master} if self.spark_master else {}),
            }
        )


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Read settings from environment variables.

    LSM_WAREHOUSE (default ./lake), LSM_CATALOG_URL (default catalog.db inside the warehouse),
    LSM_EXECUTOR (spark or local; default spark), LSM_SPARK_MASTER, DAGSTER_HOME (default dagster
    inside the warehouse). A warehouse with a scheme (s3://bucket/lake) has catalog and home below
    ./lake, and its credentials from LSM_STORAGE_*. LSM_LINEAGE_URL is read where links are made: where the lineage page is
    hosted. Raises InvalidOptionError, naming the variable, for a value it cannot use.
    """
    warehouse = absolute_warehouse(environment.get(WAREHOUSE) or "lake")
    home = Path("lake").absolute() if "://" in warehouse else Path(warehouse)
    executor = environment.get(EXECUTOR) or "spark"
    if executor not in get_args(ExecutorName):
        raise InvalidOptionError(
            f"{EXECUTOR} must be one of {', '.join(get_args(ExecutorName))}", value=executor
        )
    return Settings(
        warehouse=warehouse,
        catalog_url=environment.get(CATALOG_URL) or default_catalog_url(warehouse),
        dagster_home=environment.get(DAGSTER_HOME) or str(home / "dagster"),
        executor=cast(ExecutorName, executor),
        spark_master=environment.get(SPARK_MASTER) or None,
    )


def current_settings() -> Settings:
    """Read this process's environment."""
    return settings_from(os.environ)


def served_lineage() -> str | None:
    """Return the address of a lineage that a server shows, by LSM_LINEAGE_URL; None if there is only its file."""
    return os.environ.get(LINEAGE_URL) or None


def lineage_page_url(warehouse: str | Path) -> str:
    """Return where people open the lineage page: LSM_LINEAGE_URL, or its file in the warehouse."""
    page = f"{absolute_warehouse(str(warehouse))}/{LINEAGE_PAGE}"
    return served_lineage() or (page if "://" in page else Path(page).as_uri())

"""Settings from environment variables. All of them have defaults."""

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
    """Settings of a warehouse.

    Attributes:
        warehouse: Absolute directory, or location with a scheme (s3://bucket/lake).
        catalog_url: SQLAlchemy URL of the catalog, or the address of `lsm serve`.
        dagster_home: Directory of Dagster's instance.
        executor: "spark" or "local".
        spark_master: Master of a Spark cluster; None for all cores of this machine.
    """

    warehouse: str
    catalog_url: str
    dagster_home: str
    executor: ExecutorName = "spark"
    spark_master: str | None = None

    def with_warehouse(self, warehouse: str | Path) -> "Settings":
        """Return settings of another warehouse, with the catalog and DAGSTER_HOME in it, and the same executor."""
        return settings_from(
            {
                WAREHOUSE: str(warehouse),
                EXECUTOR: self.executor,
                **({SPARK_MASTER: self.spark_master} if self.spark_master else {}),
            }
        )


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Return settings from environment variables.

    LSM_WAREHOUSE (default ./lake), LSM_CATALOG_URL (default catalog.db in the warehouse), LSM_EXECUTOR (spark or local;
    default spark), LSM_SPARK_MASTER, DAGSTER_HOME (default dagster in the warehouse). The catalog and DAGSTER_HOME of a
    warehouse with a scheme (s3://bucket/lake) are below ./lake; LSM_STORAGE_* has its credentials. Links to the lineage
    page read LSM_LINEAGE_URL. Raises InvalidOptionError, with the name of the variable, for an invalid value.
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


def is_server(catalog_url: str) -> bool:
    """Whether a catalog is that of `lsm serve`."""
    return catalog_url.startswith(("http://", "https://"))


def current_settings() -> Settings:
    """Return settings from the environment of this process."""
    return settings_from(os.environ)


def served_lineage() -> str | None:
    """Return the URL of a lineage server, from LSM_LINEAGE_URL; None if it is not set."""
    return os.environ.get(LINEAGE_URL) or None


def lineage_page_url(warehouse: str | Path) -> str:
    """Return the URL of the lineage page: LSM_LINEAGE_URL, or the file in the warehouse."""
    page = f"{absolute_warehouse(str(warehouse))}/{LINEAGE_PAGE}"
    return served_lineage() or (page if "://" in page else Path(page).as_uri())

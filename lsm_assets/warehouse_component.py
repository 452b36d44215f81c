"""LsmWarehouseComponent: many tables, or all that a catalog has, looked after by one set of everything."""

import logging
import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

import dagster as dg
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.assets.health import health_asset, health_schedule
from lsm_assets.automation.fleet import fleet_jobs, fleet_schedules
from lsm_assets.automation.sensors import table_sensors
from lsm_assets.component import LsmTable
from lsm_assets.factory import LsmTableAssets, lsm_table_assets
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.metadata import described
from lsm_assets.resources import resources_from
from lsm_assets.settings import CATALOG_URL, EXECUTOR, WAREHOUSE, Settings, settings_from

log = logging.getLogger(__name__)


class LsmWarehouseComponent(dg.Component, dg.Model, dg.Resolvable):
    """A warehouse: its resource, its tables, and one set of sensors, jobs, schedules and health for all."""

    name: str = Field(
        default="lsm",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="What its jobs, schedules, sensors and asset of health begin with; of several "
        "components in one project each needs its own",
    )
    warehouse: str | None = Field(
        default=None, description="Directory or s3://…; default LSM_WAREHOUSE, or ./lake"
    )
    catalog_url: str | None = Field(default=None, description="Default LSM_CATALOG_URL, or in it")
    executor: Literal["spark", "local"] | None = Field(default=None, description="Default spark")
    tables: Sequence[LsmTable] = ()
    watch: Sequence[str] = Field(
        default=(),
        description="Patterns, such as shop.*: tables that the catalog has, and that others write",
    )
    owners: Sequence[str] = Field(default=(), description="Owners of the watched tables")
    resource: bool = Field(
        default=True,
        description="Whether to define the resources lsm, pyspark, and the executor: of one component",
    )

    def settings(self) -> Settings:
        """Return what is given, completed from the environment."""
        given = {WAREHOUSE: self.warehouse, CATALOG_URL: self.catalog_url, EXECUTOR: self.executor}
        known = {name: value for name, value in given.items() if value}
        return settings_from({**_environment(with_catalog=not self.warehouse), **known})

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of all tables, and what looks after them."""
        settings = self.settings()
        declared = [table.assets(with_jobs=False) for table in self.tables]
        known = {table.declaration.name for table in declared}
        found = [
            lsm_table_assets(each, with_jobs=False)
            for each in watched(settings, self.watch, tuple(self.owners))
            if each.name not in known
        ]
        return warehouse_definitions(
            [*declared, *found], settings, name=self.name, with_resources=self.resource
        )


def warehouse_definitions(
    tables: Sequence[LsmTableAssets],
    settings: Settings,
    *,
    name: str = "lsm",
    with_resources: bool = True,
) -> dg.Definitions:
    """Return tables with one set of sensors, jobs and schedules, and the asset of their health.

    `name` is what these begin with. Of several sets in one project one defines resources and executor.
    """
    declarations = [table.declaration for table in tables]
    jobs = fleet_jobs(declarations, prefix=name)
    health = health_asset(declarations, prefix=name)
    return dg.Definitions.merge(
        *(table.definitions() for table in tables),
        dg.Definitions(
            assets=[health],
            jobs=jobs,
            schedules=[*fleet_schedules(jobs), health_schedule(health, prefix=name)],
            sensors=table_sensors(declarations, prefix=name) if declarations else [],
            resources=resources_from(settings) if with_resources else {},
            executor=dg.in_process_executor if with_resources else None,
        ),
    )


def watched(
    settings: Settings, patterns: Sequence[str], owners: Sequence[str] = ()
) -> list[TableDeclaration]:
    """Return tables of the catalog that patterns name, as they are there; a damaged one is left out.

    Raises StorageError, naming the catalog, if it cannot tell its tables.
    """
    if not patterns:
        return []
    try:
        with lsm.open_catalog(settings.catalog_url, warehouse=settings.warehouse) as catalog:
            names = [
                name
                for name in catalog.list_tables()
                if any(fnmatchcase(name, pattern) for pattern in patterns)
            ]
            found = (_as_it_is(catalog, name, tuple(owners)) for name in names)
            return [each for each in found if each is not None]
    except lsm.LsmError as error:
        # The engine's errors show no password of a URL.
        raise lsm.StorageError(
            f"cannot list tables of {settings.catalog_url}: {error.message}", kind=error.kind
        ) from error


def _as_it_is(catalog: lsm.Catalog, name: str, owners: tuple[str, ...]) -> TableDeclaration | None:
    try:
        table = catalog.table(name)
    except lsm.LsmError as error:
        log.warning("%s is left out: it cannot be read: %s", name, error)
        return None
    return TableDeclaration(
        name=table.name,
        schema=described(table.schema),
        primary_key=tuple(table.schema.primary_keys),
        partitioned_by=tuple(table.schema.partition_keys),
        comment=table.schema.comment,
        owners=owners,
    )


def _environment(*, with_catalog: bool) -> dict[str, str]:
    """Return the environment; a catalog that it names belongs to the warehouse that it names."""
    return {name: text for name, text in os.environ.items() if with_catalog or name != CATALOG_URL}

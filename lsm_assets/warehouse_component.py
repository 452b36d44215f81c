"""LsmWarehouseComponent: the tables of a warehouse with one set of sensors, jobs and schedules."""

import json
import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

import dagster as dg
import pyarrow as pa
from dagster._core.definitions.definitions_load_context import (
    DefinitionsLoadContext,
    DefinitionsLoadType,
)
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.assets.health import health_asset, health_schedule
from lsm_assets.automation.fleet import fleet_jobs, fleet_schedules
from lsm_assets.automation.sensors import table_sensors
from lsm_assets.component import LsmTable
from lsm_assets.factory import LsmTableAssets, lsm_table_assets
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.metadata import schema_with_comments
from lsm_assets.resources import resources_from
from lsm_assets.settings import CATALOG_URL, EXECUTOR, WAREHOUSE, Settings, settings_from
from lsm_assets.yaml_schema import tables_schema
from lsm_engine import ErrorKind, InvalidInputError

log = logging.getLogger(__name__)


def _is_own(context: dg.ResolutionContext, model: Any) -> bool:
    is_own = bool(context.resolve_value(model.resource))
    _require_own_resource(model.warehouse, model.catalog_url, model.executor, has_resource=is_own)
    return is_own


def _require_own_resource(*values: str | None, has_resource: bool) -> None:
    """Raise InvalidInputError if a component without its own resource sets a warehouse, a catalog or an executor."""
    names = ("warehouse", "catalog_url", "executor")
    own = [name for name, value in zip(names, values, strict=True) if value]
    if own and not has_resource:
        raise InvalidInputError(
            "with 'resource: false' tables are kept where the component with the resource says, or the "
            f"environment ({WAREHOUSE}, {CATALOG_URL}, {EXECUTOR}): leave out {', '.join(own)}",
            kind=ErrorKind.INVALID_NAME,
            fields=own,
        )


class LsmWarehouseComponent(dg.Component, dg.Model, dg.Resolvable):
    """A warehouse: its resource, its tables, and one set of sensors, jobs, schedules and a health asset."""

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
    tables: Sequence[LsmTable] = Field(default=(), json_schema_extra=tables_schema())
    watch: Sequence[str] = Field(
        default=(),
        description="Patterns, such as shop.*: tables that the catalog has, and that others write",
    )
    owners: Sequence[str] = Field(default=(), description="Owners of the watched tables")
    resource: Annotated[bool, dg.Resolver.from_model(_is_own, model_field_type=bool)] = Field(
        default=True,
        description="Whether to define the resources lsm, pyspark, and the executor: of one component",
    )

    def settings(self) -> Settings:
        """Return the settings of the component. The environment has the defaults."""
        attributes = {
            WAREHOUSE: self.warehouse,
            CATALOG_URL: self.catalog_url,
            EXECUTOR: self.executor,
        }
        variables = {name: value for name, value in attributes.items() if value}
        return settings_from({**_environment(with_catalog=not self.warehouse), **variables})

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of all tables, with sensors, jobs and schedules."""
        _require_own_resource(
            self.warehouse, self.catalog_url, self.executor, has_resource=self.resource
        )
        settings = self.settings()
        declared = [table.assets(with_jobs=False) for table in self.tables]
        declared_names = {table.declaration.name for table in declared}
        discovered = [
            lsm_table_assets(declaration, with_jobs=False)
            for declaration in self._watched_tables(settings)
            if declaration.name not in declared_names
        ]
        return warehouse_definitions(
            [*declared, *discovered], settings, name=self.name, with_resources=self.resource
        )

    def _watched_tables(self, settings: Settings) -> list[TableDeclaration]:
        """Return the declarations of the watched tables.

        The process of a run takes them from Dagster's reconstruction metadata, as they were when the code location was
        loaded. It opens no other table, and has the definitions that it was launched from.
        """
        context, key = DefinitionsLoadContext.get(), f"lsm_watched/{self.name}"
        is_run = context.load_type is DefinitionsLoadType.RECONSTRUCTION
        stored = context.reconstruction_metadata.get(key) if is_run else None
        if stored is not None:
            context.add_to_pending_reconstruction_metadata(key, stored)
            return _from_json(stored)
        declarations = watched_tables(settings, self.watch, tuple(self.owners))
        context.add_to_pending_reconstruction_metadata(key, _to_json(declarations))
        return declarations


def warehouse_definitions(
    tables: Sequence[LsmTableAssets],
    settings: Settings,
    *,
    name: str = "lsm",
    with_resources: bool = True,
) -> dg.Definitions:
    """Return the definitions of tables with one set of sensors, jobs and schedules, and a health asset.

    Args:
        tables: Tables, from `lsm_table_assets`.
        settings: Warehouse, catalog and executor.
        name: Prefix of the names of sensors, jobs, schedules and of the health asset.
        with_resources: Whether to define resources and executor. A project must do so once.
    """
    declarations = [table.declaration for table in tables]
    jobs = fleet_jobs(declarations, prefix=name)
    health = health_asset(declarations, prefix=name)
    return dg.Definitions.merge(
        *(table.definitions(settings.executor) for table in tables),
        dg.Definitions(
            assets=[health],
            jobs=jobs,
            schedules=[*fleet_schedules(jobs), health_schedule(health, prefix=name)],
            sensors=table_sensors(declarations, prefix=name) if declarations else [],
            resources=resources_from(settings) if with_resources else {},
            executor=dg.in_process_executor if with_resources else None,
        ),
    )


def watched_tables(
    settings: Settings, patterns: Sequence[str], owners: Sequence[str] = ()
) -> list[TableDeclaration]:
    """Return declarations of the catalog's tables that match a pattern. A table that cannot be read is left out.

    Raises StorageError, with the catalog's URL, if the tables cannot be listed.
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
            declarations = (_read_declaration(catalog, name, tuple(owners)) for name in names)
            return [declaration for declaration in declarations if declaration is not None]
    except lsm.LsmError as error:
        # The message of the engine's error hides the password of a URL.
        raise lsm.StorageError(
            f"cannot list tables of {settings.catalog_url}: {error.message}", kind=error.kind
        ) from error


def _read_declaration(
    catalog: lsm.Catalog, name: str, owners: tuple[str, ...]
) -> TableDeclaration | None:
    try:
        table = catalog.table(name)
    except lsm.LsmError as error:
        # One damaged table must not make the code location, with all other tables, fail to load.
        log.warning("%s is left out: it cannot be read: %s", name, error)
        return None
    return TableDeclaration(
        name=table.name,
        schema=schema_with_comments(table.schema),
        primary_key=tuple(table.schema.primary_keys),
        partitioned_by=tuple(table.schema.partition_keys),
        options=table.options.texts,
        comment=table.schema.comment,
        owners=owners,
    )


def _to_json(declarations: Sequence[TableDeclaration]) -> str:
    """Return declarations as JSON, for `_from_json`."""
    return json.dumps(
        [
            {
                "name": declaration.name,
                "schema": b64encode(declaration.schema.serialize()).decode(),
                "primary_key": declaration.primary_key,
                "partitioned_by": declaration.partitioned_by,
                "options": dict(declaration.options),
                "comment": declaration.comment,
                "owners": declaration.owners,
            }
            for declaration in declarations
        ]
    )


def _from_json(text: str) -> list[TableDeclaration]:
    return [
        TableDeclaration(
            name=row["name"],
            schema=pa.ipc.read_schema(pa.py_buffer(b64decode(row["schema"]))),
            primary_key=tuple(row["primary_key"]),
            partitioned_by=tuple(row["partitioned_by"]),
            options=row["options"],
            comment=row["comment"],
            owners=tuple(row["owners"]),
        )
        for row in json.loads(text)
    ]


def _environment(*, with_catalog: bool) -> dict[str, str]:
    """Return the environment, without the catalog if the component has its own warehouse."""
    return {name: text for name, text in os.environ.items() if with_catalog or name != CATALOG_URL}

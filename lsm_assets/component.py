"""LsmTableComponent: one table's assets from a `defs.yaml`, without a line of Python."""

from collections.abc import Sequence
from importlib import import_module
from typing import cast

import dagster as dg
import pyarrow as pa
from pydantic import Field

from lsm_assets.assets.table import Writer
from lsm_assets.automation.sensors import table_sensors
from lsm_assets.factory import lsm_table_assets
from lsm_assets.model.declaration import TableDeclaration
from lsm_engine import DataField, ErrorKind, InvalidInputError, arrow_fields, parse_type


class LsmColumn(dg.Model, dg.Resolvable):
    """One column; its type as Paimon and SQL spell it: `BIGINT NOT NULL`, `DECIMAL(10, 2)`."""

    name: str
    type: str
    comment: str | None = None


class LsmTableComponent(dg.Component, dg.Model, dg.Resolvable):
    """A table with its files, manifest lists, snapshots, tags, compactions, checks and sensors.

    The resource `lsm` (see `lsm_assets.resources.resources_from`) has to be defined beside it.
    """

    table: str = Field(description="database.table")
    columns: Sequence[LsmColumn]
    primary_key: Sequence[str]
    partitioned_by: Sequence[str] = ()
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    comment: str | None = None
    deps: Sequence[str] = Field(default=(), description="Upstream asset keys, parts joined by /")
    group: str | None = None
    owners: Sequence[str] = ()
    writer: str | None = Field(
        default=None,
        description="module:function, called with (context, table), returning or yielding rows; "
        "without one the table is written elsewhere and only watched here",
    )
    sensors: bool = Field(default=True, description="Whether to look after the table")
    tag_daily: bool = Field(default=False, description="Whether to offer a schedule of daily tags")

    def declaration(self) -> TableDeclaration:
        """Return the YAML as a value."""
        return TableDeclaration(
            name=self.table,
            schema=arrow_schema_of(self.columns),
            primary_key=tuple(self.primary_key),
            partitioned_by=tuple(self.partitioned_by),
            options={key: _option_text(value) for key, value in self.options.items()},
            comment=self.comment,
            deps=tuple(dg.AssetKey.from_user_string(key) for key in self.deps),
            group=self.group,
            owners=tuple(self.owners),
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the table."""
        declaration = self.declaration()
        writer = load_writer(self.writer) if self.writer else None
        table = lsm_table_assets(declaration, writer, tag_daily=self.tag_daily).definitions()
        if not self.sensors:
            return table
        watching = table_sensors([declaration], prefix=declaration.keys.identifier)
        return dg.Definitions.merge(table, dg.Definitions(sensors=watching))


def _option_text(value: object) -> str:
    # YAML reads true and 2 as values of their own; table options are text.
    return str(value).lower() if isinstance(value, bool) else str(value)


def arrow_schema_of(columns: Sequence[LsmColumn]) -> pa.Schema:
    """Return columns as an Arrow schema; raises the engine's error for a type it does not know."""
    fields = [
        DataField(
            id=number, name=column.name, type=parse_type(column.type), description=column.comment
        )
        for number, column in enumerate(columns)
    ]
    return pa.schema(arrow_fields(fields))


def load_writer(path: str) -> Writer:
    """Import a writer; raises InvalidInputError, naming the path, if there is no such function."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise InvalidInputError(
            "a writer is named 'module:function'", kind=ErrorKind.INVALID_NAME, writer=path
        )
    found = getattr(import_module(module), name, None)
    if not callable(found):
        raise InvalidInputError(
            f"module {module!r} has no function {name!r}", kind=ErrorKind.INVALID_NAME, writer=path
        )
    return cast(Writer, found)

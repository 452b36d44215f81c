"""LsmTableComponent: the assets of one table, declared in a `defs.yaml`."""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib import import_module
from typing import Annotated, Any, Literal, cast
from zoneinfo import available_timezones

import dagster as dg
import pyarrow as pa
from pydantic import BaseModel, Field

from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import LsmTableAssets, lsm_table_assets
from lsm_assets.keys import AssetKind, TableKeys
from lsm_assets.sensors import table_sensors
from lsm_assets.staleness import inputs_changed
from lsm_assets.table_assets import Writer
from lsm_assets.translator import LsmTranslator
from lsm_engine import (
    DataField,
    ErrorKind,
    InvalidInputError,
    arrow_fields,
    columns_of_text,
    core_options,
    given_options,
    type_of_text,
)

# -- JSON schemas for `dg check yaml` and editors --------------------------------------------------
#
# Names of types and options, and values of options.
#
# `dg check defs` checks other rules, such as the precision of a DECIMAL and options that exclude each other.

_TEMPLATE = r".*\{\{.*"
"""A template that Dagster resolves when it loads the file, such as {{ env.BUCKETS }}."""
_TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "DEC",
    "NUMERIC", "STRING", "CHAR", "VARCHAR", "BYTES", "BINARY", "VARBINARY", "DATE", "TIME",
    "TIMESTAMP", "TIMESTAMP_LTZ", "ARRAY", "MAP", "ROW",
)  # fmt: skip
_TYPE = rf"^\s*((?i:{'|'.join(_TYPES)})([\s(<].*)?|{_TEMPLATE})$"


def columns_schema() -> dict[str, Any]:
    """Return the JSON schema of columns, in addition to that of their fields: a type begins with a known name.

    As a schema of its own it makes `dg` report an error at the line of the column.
    """
    return {"items": {"properties": {"type": {"pattern": _TYPE}}}}


def tables_schema() -> dict[str, Any]:
    """Return the JSON schema of tables, in addition to that of their fields."""
    return {"items": {"properties": {"columns": columns_schema(), "options": options_schema()}}}


def options_schema() -> dict[str, Any]:
    """Return the JSON schema of a table's options: names, values and descriptions."""
    options = core_options.BY_KEY.values()
    properties = {
        key: {**_values(option.default), "description": option.doc}
        for option in options
        for key in (option.key, *option.aliases)
    }
    of_columns: dict[str, Any] = {
        rf"^{re.escape(option.prefix)}.+\.{re.escape(option.suffix)}$": {}
        for option in core_options.FIELD_OPTIONS
    }
    return {
        "properties": properties,
        "patternProperties": of_columns,
        # With "additionalProperties": False `dg` would report an unknown option at the line of `options`.
        "additionalProperties": {"not": {"description": "no table option has this name"}},
    }


def _values(default: object) -> dict[str, Any]:
    # YAML may hold a template in place of the value.
    if isinstance(default, bool):
        return {"type": ["boolean", "string"], "pattern": rf"^((?i:true|false)|{_TEMPLATE})$"}
    if isinstance(default, Enum):
        words = (re.escape(str(word.value)).replace(r"\-", "[-_]") for word in type(default))
        return {"type": "string", "pattern": rf"^((?i:{'|'.join(words)})|{_TEMPLATE})$"}
    return {"type": ["string", "number", "boolean"]}


# -- LsmTableComponent: the assets of one table, declared in a `defs.yaml` -------------------------

_TIMES: Mapping[str, Callable[..., dg.PartitionsDefinition]] = {
    "hourly": dg.HourlyPartitionsDefinition,
    "daily": dg.DailyPartitionsDefinition,
    "weekly": dg.WeeklyPartitionsDefinition,
    "monthly": dg.MonthlyPartitionsDefinition,
}


def _resolve_type(context: dg.ResolutionContext, text: str) -> str:
    # Both raise with a suggestion. `dg check` shows the error at the line of the type.
    type_of_text(text)
    _field(text, text)
    return text


def _option_strings(options: Mapping[str, Any]) -> dict[str, str]:
    # YAML parses true and 2 as a boolean and a number. Table options are strings.
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
    }


def _resolve_options(context: dg.ResolutionContext, options: dict[str, Any]) -> dict[str, str]:
    texts = _option_strings(context.resolve_value(options))
    given_options(texts)  # raises, with a suggestion, for an unknown option or value
    return texts


class LsmColumn(dg.Model, dg.Resolvable):
    """A column. Its type is written as in Paimon and SQL: `BIGINT NOT NULL`, `DECIMAL(10, 2)`."""

    name: str
    type: Annotated[str, dg.Resolver(_resolve_type, model_field_type=str)]
    comment: str | None = None


class LsmPartitions(dg.Model, dg.Resolvable):
    """Partitions of the table's asset: time partitions from `start` on, static `keys`, or `dynamic` by a name.

    Time partitions begin at local time of `timezone`, by default UTC.
    """

    every: Literal["hourly", "daily", "weekly", "monthly"] | None = None
    start: str | None = None
    end: str | None = None
    timezone: str | None = None
    keys: Sequence[str] = ()
    dynamic: str | None = None

    def definition(self) -> dg.PartitionsDefinition:
        """Return Dagster's definition; raises InvalidInputError unless exactly one kind of partitions is set."""
        kinds = [self.every, self.dynamic, self.keys or None]
        spans = (self.start, self.end, self.timezone)
        is_clear = self.start is not None if self.every else not any(spans)
        if sum(kind is not None for kind in kinds) != 1 or not is_clear:
            raise InvalidInputError(
                "partitions are either 'every' with a 'start' and perhaps an 'end' and a 'timezone', or "
                "'keys', or 'dynamic'",
                kind=ErrorKind.INVALID_NAME,
                given=sorted(self.model_dump(exclude_defaults=True)),
            )
        if self.every is not None:
            if self.timezone is not None and self.timezone not in available_timezones():
                raise InvalidInputError(
                    f"there is no time zone {self.timezone!r}; one is named as Europe/Berlin is",
                    kind=ErrorKind.INVALID_NAME,
                )
            return _TIMES[self.every](
                start_date=self.start, end_date=self.end, timezone=self.timezone
            )
        if self.dynamic is not None:
            return dg.DynamicPartitionsDefinition(name=self.dynamic)
        return dg.StaticPartitionsDefinition(list(self.keys))


def _resolve_partitions(context: dg.ResolutionContext, value: Any) -> LsmPartitions | None:
    if value is None:
        return None
    partitions: LsmPartitions = LsmPartitions.resolve_from_model(context, value)
    partitions.definition()  # raises, with what is wrong
    return partitions


def _column_names_resolver(attribute: str) -> dg.Resolver:
    """Return a resolver of column names that raises InvalidInputError for a column that the table does not declare."""

    def names(context: dg.ResolutionContext, model: Any) -> Any:
        columns = context.resolve_value(getattr(model, attribute))
        if isinstance(model.columns, str):
            return columns  # a template that is not resolved yet
        declared = [context.resolve_value(column.name) for column in model.columns]
        for name in columns:
            if name not in declared:
                raise InvalidInputError(
                    f"{attribute} names {name!r}, and there are the columns {', '.join(declared)}",
                    kind=ErrorKind.NO_SUCH_COLUMN,
                )
        return columns

    resolver: dg.Resolver = dg.Resolver.from_model(names)
    return resolver


def _checked_automation(context: dg.ResolutionContext, text: str | None) -> str | None:
    _condition(text, "a.b")  # raises for what is no cron expression
    return text


def _checked_writer(context: dg.ResolutionContext, path: str | None) -> str | None:
    if path is not None:
        load_writer(path)  # raises, naming it
    return path


def _checked_translator(context: dg.ResolutionContext, path: str | None) -> str | None:
    if path is not None:
        import_callable(path, "translator")  # raises, naming it
    return path


class LsmTable(dg.Model, dg.Resolvable):
    """A table as declared in YAML."""

    table: str = Field(description="database.table", pattern=r"^[^.\s]+\.[^.\s]+$")
    columns: Sequence[LsmColumn] = Field(json_schema_extra=columns_schema())
    primary_key: Annotated[Sequence[str], _column_names_resolver("primary_key")] = ()
    partitioned_by: Annotated[Sequence[str], _column_names_resolver("partitioned_by")] = ()
    options: Annotated[
        dict[str, str | int | float | bool],
        dg.Resolver(_resolve_options, model_field_type=dict[str, Any]),
    ] = Field(default_factory=dict, json_schema_extra=options_schema())
    comment: str | None = None
    deps: Sequence[str] = Field(default=(), description="Upstream asset keys, parts joined by /")
    group: str | None = None
    owners: Sequence[str] = ()
    writer: Annotated[str | None, dg.Resolver(_checked_writer, model_field_type=str | None)] = (
        Field(
            default=None,
            description="module:function, called with (context, table), returning or yielding rows; "
            "without one the table is written elsewhere and only watched here",
        )
    )
    partitions: Annotated[
        LsmPartitions | None,
        dg.Resolver(_resolve_partitions, model_field_type=LsmPartitions.model() | None),
    ] = None
    partition_columns: Annotated[dict[str, str], _column_names_resolver("partition_columns")] = (
        Field(
            default_factory=dict,
            description="Template by column, best a partition column, such as {key:%m}",
        )
    )
    single_run: bool = Field(default=False, description="Whether a backfill is one run")
    retries: int = Field(default=0, ge=0, description="How often a failed write is tried again")
    retry_delay: float = Field(default=0, ge=0, description="Seconds before each retry")
    automation: Annotated[
        str | None, dg.Resolver(_checked_automation, model_field_type=str | None)
    ] = Field(
        default=None,
        description="eager; on_missing; inputs_changed: its check has found a change; late: by fresh_within_minutes; "
        "or a cron expression",
    )
    fresh_within_minutes: float | None = Field(
        default=None,
        ge=1,
        description="The table is late where its last write is older than this, or a partition by time was not written "
        "this long after its end",
    )
    column_lineage: dict[str, Sequence[str]] = Field(
        default_factory=dict, description="By column: upstream columns, such as shop/orders:price"
    )
    translator: Annotated[
        str | None, dg.Resolver(_checked_translator, model_field_type=str | None)
    ] = Field(default=None, description="module:class, a subclass of LsmTranslator")
    tag_daily: bool = Field(default=False, description="Whether to offer a schedule of daily tags")
    views: Sequence[str] = Field(
        default=(), description="Virtual assets: ro, branch_<name> of a branch, or iceberg"
    )

    def declaration(self) -> TableDeclaration:
        """Return the declaration of the table."""
        return TableDeclaration(
            name=self.table,
            schema=arrow_schema_of(self.columns),
            primary_key=tuple(self.primary_key),
            partitioned_by=tuple(self.partitioned_by),
            options=_option_strings(self.options),
            comment=self.comment,
            deps=tuple(dg.AssetKey.from_user_string(key) for key in self.deps),
            group=self.group,
            owners=tuple(self.owners),
            partitions_def=self.partitions.definition() if self.partitions else None,
            partition_columns=self.partition_columns,
            fresh_within_minutes=self.fresh_within_minutes,
            views=tuple(self.views),
            column_lineage={
                column: [_source(text) for text in sources]
                for column, sources in self.column_lineage.items()
            },
        )

    def assets(self, *, with_jobs: bool = True) -> LsmTableAssets:
        """Return the table's definitions. `with_jobs` false: without its own maintenance jobs and schedules."""
        translator = (
            import_callable(self.translator, "translator") if self.translator else LsmTranslator
        )
        retry = dg.RetryPolicy(max_retries=self.retries, delay=self.retry_delay or None)
        return lsm_table_assets(
            self.declaration(),
            load_writer(self.writer) if self.writer else None,
            backfill_policy=dg.BackfillPolicy.single_run() if self.single_run else None,
            retry_policy=retry if self.retries else None,
            automation_condition=_condition(self.automation, self.table),
            tag_daily=self.tag_daily,
            translator=cast(type[LsmTranslator], translator)(),
            with_jobs=with_jobs,
        )


class LsmTableComponent(dg.Component, LsmTable):
    """A table with the assets of its files, manifest lists, snapshots, tags and compactions, checks and sensors.

    The project has to define the resource `lsm` (see `lsm_assets.resource.resources_from`). `LsmWarehouseComponent`
    defines it, and has many tables.
    """

    sensors: bool = Field(default=True, description="Whether to look after the table")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the table."""
        table = self.assets()
        # A component without sensors defines the assets alone.
        if not self.sensors:
            return table.definitions()
        declaration = table.declaration
        watching = table_sensors([declaration], prefix=declaration.keys.identifier)
        return dg.Definitions.merge(table.definitions(), dg.Definitions(sensors=watching))


class TableScaffold(BaseModel):
    """Parameters of `dg scaffold defs lsm_assets.component.LsmTableComponent orders`."""

    table: str = Field(default="shop.orders", description="database.table")
    columns: str = Field(
        default="id BIGINT NOT NULL",
        description='Columns, such as "id BIGINT NOT NULL; price DOUBLE"',
    )
    primary_key: str = Field(default="id", description="Key columns, with commas")


class TableScaffolder(dg.Scaffolder[TableScaffold]):
    """Writes a `defs.yaml` of one table."""

    @classmethod
    def get_scaffold_params(cls) -> type[TableScaffold]:
        """Return the class of the parameters."""
        return TableScaffold

    def scaffold(self, request: dg.ScaffoldRequest[TableScaffold]) -> None:
        """Write the component's YAML."""
        params = request.params
        columns = [column.strip().split(" ", 1) for column in params.columns.split(";")]
        for column in columns:
            type_of_text(column[-1] if len(column) == 2 else "")
        attributes = {
            "table": params.table,
            "columns": [{"name": name, "type": text.strip()} for name, text in columns],
            "primary_key": [name.strip() for name in params.primary_key.split(",")],
        }
        dg.scaffold_component(request, attributes)


dg.scaffold_with(TableScaffolder)(LsmTableComponent)


def arrow_schema_of(columns: Sequence[LsmColumn]) -> pa.Schema:
    """Return columns as an Arrow schema. Field metadata has the lengths of types, which Arrow does not have.

    Raises the engine's error for a type that is unknown or that Arrow would change.
    """
    fields = [_field(column.name, column.type) for column in columns]
    described = [
        field.with_metadata({**(field.metadata or {}), b"comment": column.comment})
        if column.comment
        else field
        for field, column in zip(fields, columns, strict=True)
    ]
    return pa.schema(described)


def _field(name: str, text: str) -> pa.Field:
    # A length is kept in metadata of the field.
    if "(" in text:
        return columns_of_text(f"column {text}").field(0).with_name(name)
    # A type without a length, such as STRING, needs no metadata.
    return arrow_fields([DataField(id=0, name=name, type=type_of_text(text))])[0]


def load_writer(path: str) -> Writer:
    """Return the writer of a path `module:function`; raises InvalidInputError if it cannot be imported."""
    return cast(Writer, import_callable(path, "writer"))


def import_callable(path: str, role: str) -> Any:
    """Return the callable of a path `module:name`; raises InvalidInputError if it cannot be imported.

    `role` says what the path is for, such as "writer"; error messages name it.
    """
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise InvalidInputError(
            f"a {role} is named 'module:name'", kind=ErrorKind.INVALID_NAME, **{role: path}
        )
    try:
        value = getattr(import_module(module), name, None)
    except ImportError as error:
        # The message names the module that is missing, which may be one that the writer's module imports.
        raise InvalidInputError(
            f"module {module!r} of a {role} cannot be imported: {error}",
            kind=ErrorKind.INVALID_NAME,
            **{role: path},
        ) from error
    # The path may name a constant.
    if not callable(value):
        raise InvalidInputError(
            f"module {module!r} has no {role} {name!r}",
            kind=ErrorKind.INVALID_NAME,
            **{role: path},
        )
    return value


def _source(text: str) -> tuple[dg.AssetKey, str]:
    key, colon, column = text.rpartition(":")
    if not colon or not key or not column:
        raise InvalidInputError(
            "an upstream column is named 'asset/key:column'",
            kind=ErrorKind.INVALID_NAME,
            given=text,
        )
    return dg.AssetKey.from_user_string(key), column


def _condition(text: str | None, table: str) -> dg.AutomationCondition | None:
    match text:
        case None:
            return None
        case "eager":
            return dg.AutomationCondition.eager()
        case "on_missing":
            return dg.AutomationCondition.on_missing()
        case "inputs_changed":
            return inputs_changed(TableKeys(name=table).asset(AssetKind.TABLE))
        case "late":
            late = dg.AutomationCondition.freshness_failed().newly_true()
            return late & ~dg.AutomationCondition.in_progress()
        case _:
            return dg.AutomationCondition.on_cron(text)

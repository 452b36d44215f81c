"""Settings of `LsmIOManager`: the metadata that says how a table stores the rows of an asset or of an output."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from functools import reduce
from itertools import groupby
from operator import and_, or_
from typing import Any, TypeVar

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from lsm_assets.declaration import (
    KEY,
    ColumnRanges,
    PartitionTemplates,
    TableDeclaration,
    partition_templates,
)
from lsm_assets.keys import table_keys
from lsm_engine import ErrorKind, InvalidInputError, InvalidOptionError, record

PRIMARY_KEY, PARTITIONED_BY, OPTIONS = "lsm/primary_key", "lsm/partitioned_by", "lsm/options"
PARTITION_COLUMN, PARTITION_COLUMNS = "lsm/partition_column", "lsm/partition_columns"
MODE, SCHEMA, PROPERTIES = "lsm/mode", "lsm/schema", "lsm/properties"
COLUMNS, WHERE, TABLE = "lsm/columns", "lsm/where", "lsm/table"
INPUT_KEYS = (COLUMNS, WHERE)
ROOT_INPUT_KEYS = (*INPUT_KEYS, TABLE)
ASSET_KEYS = (
    *(PRIMARY_KEY, PARTITIONED_BY, OPTIONS, PARTITION_COLUMN, PARTITION_COLUMNS),
    *(MODE, SCHEMA, PROPERTIES),
)
OUTPUT_KEYS = (TABLE, *ASSET_KEYS)
"""Metadata keys `lsm/…` of an input, of an input without an upstream, of an asset and of an op's output."""


class WriteMode(Enum):
    """How the rows that an asset returns are written."""

    UPSERT = "upsert"
    APPEND = "append"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    MERGE = "merge"


class SchemaMode(Enum):
    """Whether a write may change the columns of the table.

    REFUSE raises. EVOLVE adds columns and widens types. MATCH also drops columns that the rows do not have.
    """

    REFUSE = "refuse"
    EVOLVE = "evolve"
    MATCH = "match"


_E = TypeVar("_E", bound=Enum)


@record
class Storage:
    """How a table stores the rows of an asset.

    Attributes:
        primary_key: Primary key columns.
        partitioned_by: Partition columns of the table.
        options: Table options.
        partition_columns: Templates of columns, see `PartitionTemplates`. Any column may have one.
        mode: How rows are written.
        schema: Whether a write may change the columns of the table.
        properties: Snapshot properties, in addition to those of the run.
    """

    primary_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    partition_columns: Mapping[str, str] = field(default_factory=dict)
    mode: WriteMode = WriteMode.UPSERT
    schema: SchemaMode = SchemaMode.REFUSE
    properties: Mapping[str, str] = field(default_factory=dict)

    def templates(
        self, definition: dg.PartitionsDefinition | None, keys: Sequence[str], schema: pa.Schema
    ) -> PartitionTemplates | None:
        """Return the templates that select the rows of some asset partitions.

        None if `keys` is empty, or if templates are neither declared nor can be guessed.

        Args:
            definition: Partitions of the asset.
            keys: Partition keys that are written or read.
            schema: Columns of the table.
        """
        templates = partition_templates(definition, self.partition_columns, self.partitioned_by)
        if templates is None or not templates.columns or not keys:
            return None
        if not templates.is_declared:
            try:
                partition_filter(templates, keys, schema)
            except InvalidInputError:
                # A guess that does not fit the columns is no error of the user: the asset is then stored unpartitioned.
                return None
        return templates

    def declaration(
        self,
        key: dg.AssetKey,
        schema: pa.Schema,
        definition: dg.PartitionsDefinition | None,
        deps: Iterable[dg.AssetKey] = (),
    ) -> TableDeclaration:
        """Return the declaration of the table that stores an asset."""
        # A schema without columns is not known yet: all templates are kept.
        columns = {*self.partitioned_by, *(schema.names or self.partition_columns)}
        table_columns = {
            name: template for name, template in self.partition_columns.items() if name in columns
        }
        return TableDeclaration(
            name=table_keys(key).name,
            schema=schema,
            primary_key=self.primary_key,
            partitioned_by=self.partitioned_by,
            options=self.options,
            deps=tuple(deps),
            partitions_def=definition,
            partition_columns=table_columns,
        )


def declarations_from_assets(
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec],
) -> list[TableDeclaration]:
    """Return declarations, without columns, of the tables that store assets, from the metadata of the assets."""
    specs = [
        spec
        for asset in assets
        for spec in (asset.specs if isinstance(asset, dg.AssetsDefinition) else [asset])
    ]
    return [
        storage_from_metadata(spec.metadata).declaration(
            spec.key, pa.schema([]), spec.partitions_def, (dep.asset_key for dep in spec.deps)
        )
        for spec in specs
    ]


def storage_from_metadata(*layers: Mapping[str, Any] | None) -> Storage:
    """Return settings from metadata. Later layers (I/O manager, asset, run, output) override earlier ones.

    Raises InvalidOptionError for an unknown mode and for options that are no mapping.
    """
    settings: dict[str, Any] = {}
    for layer in layers:
        settings.update({key: unwrap_metadata(value) for key, value in (layer or {}).items()})
    columns = dict(settings.get(PARTITION_COLUMNS) or {})
    if settings.get(PARTITION_COLUMN) is not None:
        columns.setdefault(str(settings[PARTITION_COLUMN]), f"{{{KEY}}}")
    return Storage(
        primary_key=parse_names(settings.get(PRIMARY_KEY)),
        partitioned_by=parse_names(settings.get(PARTITIONED_BY)),
        options=_string_mapping(OPTIONS, settings),
        partition_columns={str(name): str(template) for name, template in columns.items()},
        mode=_enum_member(WriteMode, MODE, settings.get(MODE)) or WriteMode.UPSERT,
        schema=_enum_member(SchemaMode, SCHEMA, settings.get(SCHEMA)) or SchemaMode.REFUSE,
        properties=_string_mapping(PROPERTIES, settings),
    )


def _string_mapping(key: str, settings: Mapping[str, Any]) -> dict[str, str]:
    mapping = settings.get(key) or {}
    if not isinstance(mapping, Mapping):
        raise InvalidOptionError(f"{key!r} is a mapping of names to values", value=mapping)
    return {str(name): str(value) for name, value in mapping.items()}


def require_known_keys(declared: Mapping[str, Any] | None, known_keys: Sequence[str]) -> None:
    """Raise InvalidOptionError for a metadata key `lsm/…` that is not known: a misspelled setting has no effect."""
    for key in declared or {}:
        if key.startswith("lsm/") and key not in known_keys:
            matches = get_close_matches(key, known_keys, 1)
            suggestion = f"; did you mean {matches[0]!r}?" if matches else "."
            raise InvalidOptionError(
                f"no metadata here is named {key!r}{suggestion} There are {', '.join(known_keys)}",
                given=key,
            )


def partition_storage(declared: Mapping[str, Any] | None) -> Storage:
    """Return the settings of an upstream asset that concern its partitions. Only these matter to readers."""
    keys = (PARTITIONED_BY, PARTITION_COLUMN, PARTITION_COLUMNS)
    return storage_from_metadata(
        {key: declared[key] for key in keys if key in declared} if declared else None
    )


def _enum_member(kind: type[_E], key: str, text: Any) -> _E | None:
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        allowed = ", ".join(str(member.value) for member in kind)
        raise InvalidOptionError(f"{key!r} is one of {allowed}", value=text) from None


def parse_names(value: Any) -> tuple[str, ...]:
    """Return names from metadata: a list, or a string with commas."""
    names = unwrap_metadata(value)
    if names is None:
        return ()
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    assert isinstance(names, Sequence), "names are a list, or text with commas"
    return tuple(str(name) for name in names)


def scan_arguments(
    declared: Mapping[str, Any] | None, partition_filter: pc.Expression | None = None
) -> dict[str, Any]:
    """Return the arguments `where` and `columns` of `Table.scan` from an input's metadata and a partition filter."""
    declared = declared or {}
    filters = [
        condition
        for condition in (partition_filter, unwrap_metadata(declared.get(WHERE)))
        if condition is not None
    ]
    columns = parse_names(declared.get(COLUMNS))
    return {"where": filters or None, **({"columns": list(columns)} if columns else {})}


def unwrap_metadata(value: Any) -> Any:
    """Return the value of a MetadataValue; other values as they are."""
    return value.value if isinstance(value, dg.MetadataValue) else value


def partition_filter(
    templates: PartitionTemplates, keys: Sequence[str], schema: pa.Schema
) -> pc.Expression:
    """Return the filter that selects the rows of some asset partitions.

    A date or timestamp column whose template is the complete key of a time partition holds any time of that partition.
    Raises InvalidInputError for values that a column cannot hold.
    """
    windows = [name for name in templates.columns if _is_window(templates, name, schema)]
    if windows:
        require_whole_days(templates, keys, schema)
        return reduce(or_, [_in_window(templates, key, schema, windows) for key in keys])
    # One `isin` for the last column of all partitions that agree in the others: filters stay short.
    *first, last = templates.columns
    rows = sorted(dict.fromkeys(templates.values(key) for key in keys))
    parts = []
    for head, group in groupby(rows, key=lambda values: values[:-1]):
        part = pc.field(last).isin(_values(last, [values[-1] for values in group], schema))
        for name, text in zip(first, head, strict=True):
            part &= pc.field(name) == _values(name, [text], schema)[0]
        parts.append(part)
    return reduce(or_, parts)


def column_ranges(
    templates: PartitionTemplates,
    keys: Sequence[str],
    schema: pa.Schema,
    partitioned_by: Sequence[str],
) -> ColumnRanges | None:
    """Return the ranges of the column that separates asset partitions with the same directories; None if none does.

    It is a partition column with several values of one asset partition, else a column that is no partition column.
    Raises InvalidInputError for values that the column cannot hold.
    """
    directory_columns = [name for name in templates.columns if name in partitioned_by]
    ranged = [name for name in directory_columns if _is_span(templates, name, keys, schema)]
    row_columns = [name for name in templates.columns if name not in partitioned_by]
    ranged += [name for name in row_columns if _is_ordered(name, schema)]
    if not ranged or not keys:
        return None
    column, kind = ranged[0], schema.field(ranged[0]).type
    if _is_window(templates, column, schema):
        ends = [templates.window(column, key) for key in keys]
        first, after = (
            comparable(pa.array([_to_column_value(moment, kind) for moment in moments], kind))
            for moments in zip(*ends, strict=True)
        )
        ranges = {key: (low, high - 1) for key, low, high in zip(keys, first, after, strict=True)}
    else:
        position = list(templates.columns).index(column)
        values = comparable(
            _values(column, [templates.values(key)[position] for key in keys], schema)
        )
        ranges = {key: (value, value) for key, value in zip(keys, values, strict=True)}
    return ColumnRanges(column=column, by_partition=ranges, is_exact=column in partitioned_by)


def comparable(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values that Python compares as Arrow does: dates and timestamps as integers of the column's unit."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return list(values.to_pylist())


def _is_span(
    templates: PartitionTemplates, name: str, keys: Sequence[str], schema: pa.Schema
) -> bool:
    """Whether a column has several values in one partition: timestamps, and dates if a partition is longer than a day."""
    if not _is_window(templates, name, schema):
        return False
    if not pa.types.is_date(schema.field(name).type):
        return True
    wall = ((bound.replace(tzinfo=None) for bound in templates.window(name, key)) for key in keys)
    return any(end - start > timedelta(days=1) for start, end in wall)


def _is_ordered(name: str, schema: pa.Schema) -> bool:
    if schema.get_field_index(name) < 0:
        return False
    kind = schema.field(name).type
    kinds = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_integer, pa.types.is_string)
    return any(is_kind(kind) for is_kind in kinds)


def _values(name: str, texts: Sequence[str], schema: pa.Schema) -> pa.Array:
    try:
        return pa.array(texts, pa.string()).cast(schema.field(name).type)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"column {name!r} cannot hold what {PARTITION_COLUMNS!r} spells: {error}",
            kind=ErrorKind.INVALID_ROWS,
            values=list(texts[:3]),
        ) from error


def _is_window(templates: PartitionTemplates, name: str, schema: pa.Schema) -> bool:
    if schema.get_field_index(name) < 0:
        return False
    kind = schema.field(name).type
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    return is_time and templates.holds_times(name)


def _in_window(
    templates: PartitionTemplates, key: str, schema: pa.Schema, windows: Sequence[str]
) -> pc.Expression:
    values = dict(zip(templates.columns, templates.values(key), strict=True))
    parts = []
    for name, text in values.items():
        column, kind = pc.field(name), schema.field(name).type
        if name in windows:
            start, end = templates.window(name, key)
            parts.append(column >= _time_scalar(start, kind))
            parts.append(column < _time_scalar(end, kind))
        else:
            parts.append(column == _values(name, [text], schema)[0])
    return reduce(and_, parts)


def require_whole_days(
    templates: PartitionTemplates, keys: Sequence[str], schema: pa.Schema
) -> None:
    """Raise InvalidInputError if a date column holds the key of partitions that are shorter than a day."""
    # Rows of one day would belong to several partitions, or to none.
    for name in (name for name in templates.columns if _is_window(templates, name, schema)):
        wall = (
            (bound.replace(tzinfo=None) for bound in templates.window(name, key)) for key in keys
        )
        if pa.types.is_date(schema.field(name).type) and any(
            end - begin < timedelta(days=1) for begin, end in wall
        ):
            raise InvalidInputError(
                f"column {name!r} has dates, and a partition is shorter than a day: take a timestamp column, or add "
                f"to {PARTITION_COLUMNS!r} a column that separates the partitions of a day",
                kind=ErrorKind.INVALID_ROWS,
                column=name,
                partitions=list(keys[:3]),
            )


def _time_scalar(moment: datetime, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(_to_column_value(moment, kind), kind)


def _to_column_value(moment: datetime, kind: pa.DataType) -> date:
    """Return a time as a value of a date or timestamp column; without a time zone, as local time of the partition."""
    if pa.types.is_date(kind):
        return moment.date()
    return moment if kind.tz is not None else moment.replace(tzinfo=None)

"""What an asset's metadata says about the table that keeps its rows: the settings of `LsmIOManager`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Any, TypeVar

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from lsm_assets.model.asset_partitions import KEY, PartitionTemplates, Spans, templates_of
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import keys_of
from lsm_engine import ErrorKind, InvalidInputError, InvalidOptionError, record

PRIMARY_KEY, PARTITIONED_BY, OPTIONS = "lsm/primary_key", "lsm/partitioned_by", "lsm/options"
PARTITION_COLUMN, PARTITION_COLUMNS = "lsm/partition_column", "lsm/partition_columns"
MODE, SCHEMA, PROPERTIES = "lsm/mode", "lsm/schema", "lsm/properties"
COLUMNS, WHERE, TABLE = "lsm/columns", "lsm/where", "lsm/table"
OF_INPUTS = (COLUMNS, WHERE)
OF_ROOT_INPUTS = (*OF_INPUTS, TABLE)
OF_ASSETS = (
    *(PRIMARY_KEY, PARTITIONED_BY, OPTIONS, PARTITION_COLUMN, PARTITION_COLUMNS),
    *(MODE, SCHEMA, PROPERTIES),
)
OF_OUTPUTS = (TABLE, *OF_ASSETS)
"""What metadata of an input, of one without an upstream, of an asset and of an op's output may say: all
that begins with `lsm/`.
"""


class WriteMode(Enum):
    """What becomes of the rows that an asset returns."""

    UPSERT = "upsert"
    APPEND = "append"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    MERGE = "merge"


class SchemaMode(Enum):
    """What becomes of columns that the table or the rows do not have, and of wider types."""

    REFUSE = "refuse"
    EVOLVE = "evolve"
    MATCH = "match"


_E = TypeVar("_E", bound=Enum)


@record
class Storage:
    """How an asset is kept. `partition_columns`: templates over any columns, see `PartitionTemplates`.

    `properties`: what its snapshots say beside the run and its inputs.
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
        """Return where rows of some partitions of the asset are found; None: nobody has said it.

        Where nothing is given it is guessed (`templates_of`), and a guess that does not fit is dropped.
        """
        found = templates_of(definition, self.partition_columns, self.partitioned_by)
        if found is None or not found.columns or not keys:
            return None
        if not found.is_given:
            try:
                partition_filter(found, keys, schema)
            except InvalidInputError:
                return None
        return found

    def declaration(
        self,
        key: dg.AssetKey,
        schema: pa.Schema,
        definition: dg.PartitionsDefinition | None,
        deps: Iterable[dg.AssetKey] = (),
    ) -> TableDeclaration:
        """Return the table that keeps an asset."""
        # Of no columns: nobody has told which there are.
        known = {*self.partitioned_by, *(schema.names or self.partition_columns)}
        of_table = {name: each for name, each in self.partition_columns.items() if name in known}
        return TableDeclaration(
            name=keys_of(key).name,
            schema=schema,
            primary_key=self.primary_key,
            partitioned_by=self.partitioned_by,
            options=self.options,
            deps=tuple(deps),
            partitions_def=definition,
            partition_columns=of_table,
        )


def kept_tables(
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec],
) -> list[TableDeclaration]:
    """Return the tables that keep assets by what their metadata says, which names no columns."""
    specs = [
        spec
        for each in assets
        for spec in (each.specs if isinstance(each, dg.AssetsDefinition) else [each])
    ]
    return [
        storage_of(spec.metadata).declaration(
            spec.key, pa.schema([]), spec.partitions_def, (dep.asset_key for dep in spec.deps)
        )
        for spec in specs
    ]


def storage_of(*layers: Mapping[str, Any] | None) -> Storage:
    """Read settings; those of later layers (asset, run, output) come before those of earlier ones.

    Raises InvalidOptionError for modes that are none.
    """
    told: dict[str, Any] = {}
    for layer in layers:
        told.update({key: plain(value) for key, value in (layer or {}).items()})
    columns = dict(told.get(PARTITION_COLUMNS) or {})
    if told.get(PARTITION_COLUMN) is not None:
        columns.setdefault(str(told[PARTITION_COLUMN]), f"{{{KEY}}}")
    return Storage(
        primary_key=names_of(told.get(PRIMARY_KEY)),
        partitioned_by=names_of(told.get(PARTITIONED_BY)),
        options=_texts(OPTIONS, told),
        partition_columns={str(name): str(template) for name, template in columns.items()},
        mode=_member(WriteMode, MODE, told.get(MODE)) or WriteMode.UPSERT,
        schema=_member(SchemaMode, SCHEMA, told.get(SCHEMA)) or SchemaMode.REFUSE,
        properties=_texts(PROPERTIES, told),
    )


def _texts(key: str, told: Mapping[str, Any]) -> dict[str, str]:
    given = told.get(key) or {}
    if not isinstance(given, Mapping):
        raise InvalidOptionError(f"{key!r} is a mapping of names to values", value=given)
    return {str(name): str(value) for name, value in given.items()}


def require_known(declared: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    """Raise InvalidOptionError for metadata that begins as ours does and means nothing: it would be left out."""
    for key in declared or {}:
        if key.startswith("lsm/") and key not in known:
            near = get_close_matches(key, known, 1)
            meant = f"; did you mean {near[0]!r}?" if near else "."
            raise InvalidOptionError(
                f"no metadata here is named {key!r}{meant} There are {', '.join(known)}", given=key
            )


def kept_in(declared: Mapping[str, Any] | None) -> Storage:
    """Return where an upstream asset keeps its partitions; the rest is a matter of who writes it."""
    named = (PARTITIONED_BY, PARTITION_COLUMN, PARTITION_COLUMNS)
    return storage_of(
        {key: declared[key] for key in named if key in declared} if declared else None
    )


def _member(kind: type[_E], key: str, text: Any) -> _E | None:
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        allowed = ", ".join(str(one.value) for one in kind)
        raise InvalidOptionError(f"{key!r} is one of {allowed}", value=text) from None


def names_of(value: Any) -> tuple[str, ...]:
    """Return names given as a list, or as text with commas."""
    given = plain(value)
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(name.strip() for name in given.split(",") if name.strip())
    assert isinstance(given, Sequence), "names are a list, or text with commas"
    return tuple(str(name) for name in given)


def chosen_by(
    declared: Mapping[str, Any] | None, where: pc.Expression | None = None
) -> dict[str, Any]:
    """Return what `Table.scan` takes of an input's metadata, beside a filter of its partitions."""
    declared = declared or {}
    filters = [each for each in (where, plain(declared.get(WHERE))) if each is not None]
    columns = names_of(declared.get(COLUMNS))
    return {"where": filters or None, **({"columns": list(columns)} if columns else {})}


def plain(value: Any) -> Any:
    """Return what a metadata value holds."""
    return value.value if isinstance(value, dg.MetadataValue) else value


def partition_filter(
    templates: PartitionTemplates, keys: Sequence[str], schema: pa.Schema
) -> pc.Expression:
    """Return the filter of the rows that some partitions of an asset have.

    A column of times that a template fills with the whole key holds the times of the partition, from
    its beginning to its end. Raises InvalidInputError for values that a column cannot hold.
    """
    windows = [name for name in templates.columns if _is_window(templates, name, schema)]
    if windows:
        require_days(templates, keys, schema)
        return reduce(or_, [_in_window(templates, key, schema, windows) for key in keys])
    *first, last = templates.columns
    rows = sorted(dict.fromkeys(templates.values(key) for key in keys))
    parts = []
    for head, group in groupby(rows, key=lambda values: values[:-1]):
        part = pc.field(last).isin(_values(last, [values[-1] for values in group], schema))
        for name, text in zip(first, head, strict=True):
            part &= pc.field(name) == _values(name, [text], schema)[0]
        parts.append(part)
    return reduce(or_, parts)


def spans_of(
    templates: PartitionTemplates,
    keys: Sequence[str],
    schema: pa.Schema,
    partitioned_by: Sequence[str],
) -> Spans | None:
    """Return the values of the column that tells partitions apart where directories do not; None: none does.

    A partition column that holds the times of a span, else a column by which the table is not partitioned.
    Raises InvalidInputError for values that the column cannot hold.
    """
    by_directory = [name for name in templates.columns if name in partitioned_by]
    ranged = [name for name in by_directory if _is_span(templates, name, keys, schema)]
    within = [name for name in templates.columns if name not in partitioned_by]
    ranged += [name for name in within if _is_ordered(name, schema)]
    if not ranged or not keys:
        return None
    column, kind = ranged[0], schema.field(ranged[0]).type
    if _is_window(templates, column, schema):
        ends = [templates.window(column, key) for key in keys]
        first, after = (
            comparable(pa.array([_as_held(moment, kind) for moment in moments], kind))
            for moments in zip(*ends, strict=True)
        )
        of = {key: (low, high - 1) for key, low, high in zip(keys, first, after, strict=True)}
    else:
        at = list(templates.columns).index(column)
        values = comparable(_values(column, [templates.values(key)[at] for key in keys], schema))
        of = {key: (value, value) for key, value in zip(keys, values, strict=True)}
    return Spans(column=column, of=of, is_exact=column in partitioned_by)


def comparable(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values as Python compares them: times as counts of the column's units."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return list(values.to_pylist())


def _is_span(
    templates: PartitionTemplates, name: str, keys: Sequence[str], schema: pa.Schema
) -> bool:
    """Whether a column holds several values of one partition: times, and days of longer spans."""
    if not _is_window(templates, name, schema):
        return False
    if not pa.types.is_date(schema.field(name).type):
        return True
    wall = ((one.replace(tzinfo=None) for one in templates.window(name, key)) for key in keys)
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
            parts.append(column >= _time(start, kind))
            parts.append(column < _time(end, kind))
        else:
            parts.append(column == _values(name, [text], schema)[0])
    return reduce(lambda one, other: one & other, parts)


def require_days(templates: PartitionTemplates, keys: Sequence[str], schema: pa.Schema) -> None:
    """Raise InvalidInputError for spans of less than a day in a column of days: those are of others, or none."""
    for name in (name for name in templates.columns if _is_window(templates, name, schema)):
        wall = ((one.replace(tzinfo=None) for one in templates.window(name, key)) for key in keys)
        if pa.types.is_date(schema.field(name).type) and any(
            end - begin < timedelta(days=1) for begin, end in wall
        ):
            raise InvalidInputError(
                f"column {name!r} has days, and a partition ends within one: take a column of times, or name "
                f"in {PARTITION_COLUMNS!r} one more that tells the partitions of a day apart",
                kind=ErrorKind.INVALID_ROWS,
                column=name,
                partitions=list(keys[:3]),
            )


def _time(moment: datetime, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(_as_held(moment, kind), kind)


def _as_held(moment: datetime, kind: pa.DataType) -> date:
    """Return a moment as a column of days or times holds it; without a time zone, as its clock shows it."""
    if pa.types.is_date(kind):
        return moment.date()
    return moment if kind.tz is not None else moment.replace(tzinfo=None)

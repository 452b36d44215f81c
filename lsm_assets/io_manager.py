"""LsmIOManager: stores rows that assets and ops return in tables, and loads them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from types import NoneType
from typing import Any, get_args
from weakref import WeakKeyDictionary

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.commits import EMPTY_VERSION
from lsm_assets.dagster_core import StepExecutionContext, partitions_loaded_from
from lsm_assets.declaration import PartitionTemplates, TableDeclaration
from lsm_assets.inspection import inspect_table, row_count
from lsm_assets.keys import AssetKind, TableKeys, table_keys
from lsm_assets.metadata import files_metadata
from lsm_assets.partitions import partition_layout, require_layout, versions_after_run
from lsm_assets.pinning import (
    PinnedTable,
    inputs_markdown,
    pin_input,
    pin_reasons,
    pin_version,
    pinned_inputs,
)
from lsm_assets.recording import (
    LaunchedRun,
    build_run_properties,
    commit_identity,
    declared_code_version,
    partition_events,
    recorded_version,
    table_page_metadata,
)
from lsm_assets.resource import LsmResource, check_declaration
from lsm_assets.storage import (
    ASSET_KEYS,
    INPUT_KEYS,
    MODE,
    OUTPUT_KEYS,
    PARTITION_COLUMNS,
    PARTITIONED_BY,
    PRIMARY_KEY,
    ROOT_INPUT_KEYS,
    SCHEMA,
    TABLE,
    SchemaMode,
    Storage,
    WriteMode,
    partition_filter,
    partition_storage,
    require_known_keys,
    require_whole_days,
    scan_arguments,
    storage_from_metadata,
    unwrap_metadata,
)
from lsm_assets.versions import TableVersion, parse_version, version_from_snapshot
from lsm_engine import (
    AddColumn,
    ChangeType,
    DropColumn,
    ErrorKind,
    InvalidInputError,
    SetOption,
    Snapshot,
    Table,
    TableSchema,
    core_options,
    open_rows,
    record,
)

# -- Convert between tables and the frames of assets -----------------------------------------------
#
# Arrow, polars, pandas, DuckDB, daft, Spark.

ScanArguments = Mapping[str, Any]
"""Arguments of `Table.scan`: columns, filter, and snapshot or tag."""


def _load_spark(table: lsm.Table, arguments: ScanArguments, resource: LsmResource) -> Any:
    from lsm_engine.spark import read_dataframe  # noqa: PLC0415 -- PySpark takes a second to import

    return read_dataframe(table, **arguments, spark=resource.spark)


def _load_daft(table: lsm.Table, arguments: ScanArguments, _: LsmResource) -> Any:
    import daft  # noqa: PLC0415 -- an optional dependency

    return daft.from_arrow(table.scan(**arguments).to_arrow())


def _load_reader(
    table: lsm.Table, arguments: ScanArguments, _: LsmResource
) -> pa.RecordBatchReader:
    return table.scan(**arguments).to_reader()


_LOADERS: Mapping[tuple[str, str], Callable[[lsm.Table, ScanArguments, LsmResource], Any]] = {
    ("pyarrow", "Table"): lambda table, read, _: table.scan(**read).to_arrow(),
    ("pyarrow", "RecordBatchReader"): _load_reader,
    ("lsm_engine", "Scan"): lambda table, read, _: table.scan(**read),
    ("polars", "LazyFrame"): lambda table, read, _: table.to_polars(**read),
    ("polars", "DataFrame"): lambda table, read, _: table.to_polars(**read).collect(),
    ("pandas", "DataFrame"): lambda table, read, _: table.scan(**read).to_pandas(),
    ("duckdb", "DuckDBPyRelation"): lambda table, read, _: table.to_duckdb(**read),
    ("_duckdb", "DuckDBPyRelation"): lambda table, read, _: table.to_duckdb(**read),
    ("daft", "DataFrame"): _load_daft,
    ("pyspark", "DataFrame"): _load_spark,
}


def load_rows(
    table: lsm.Table, arguments: ScanArguments, annotation: Any, resource: LsmResource
) -> Any:
    """Return rows of a table as the type of a parameter's annotation.

    LazyFrames of polars, relations of DuckDB and DataFrames of Spark read the rows when they are computed, at the
    snapshot that `arguments` names.

    Args:
        table: The table.
        arguments: Arguments of `Table.scan`.
        annotation: The annotation; None, Any and object mean `pyarrow.Table`.
        resource: The resource, for its Spark session.

    Raises InvalidInputError for a type that is not supported.
    """
    loader = _LOADERS.get(_type_name(annotation))
    if loader is None:
        supported = ", ".join(f"{module}.{kind}" for module, kind in _LOADERS if module[0] != "_")
        raise InvalidInputError(
            f"rows of a table cannot be loaded as {annotation!r}; annotate the parameter with one of "
            + supported,
            table=table.name,
        )
    return loader(table, arguments, resource)


def empty_rows(annotation: Any) -> Any:
    """Return no rows without columns, for a table that does not exist yet; None if the type has no empty value."""
    library, kind = _type_name(annotation)
    # Frames are made empty by their own constructor.
    if library in ("polars", "pandas"):
        return _unwrap_annotation(annotation)()
    rows = pa.table({})
    return {"Table": rows, "RecordBatchReader": rows.to_reader()}.get(kind)


def _unwrap_annotation(annotation: Any) -> Any:
    types = [argument for argument in get_args(annotation) if argument is not NoneType]
    # `Optional[X]` is X, as a load always has rows. `list[X]` collects outputs, which are loaded one by one.
    return types[0] if len(types) == 1 else annotation


def _type_name(annotation: Any) -> tuple[str, str]:
    annotation = _unwrap_annotation(annotation)
    if annotation is None or annotation is Any or annotation is object:
        annotation = pa.Table
    return str(getattr(annotation, "__module__", "")).split(".")[0], getattr(
        annotation, "__name__", ""
    )


def to_rows(value: Any, schema: TableSchema | None = None) -> Any:
    """Return the value of an asset or op as rows that a table can write. Lazy frames are computed.

    A list of dictionaries has the columns of all of them; `schema` distinguishes maps from structs.
    Raises InvalidInputError for a value without rows.
    """
    # Rows of a list may have different columns.
    if isinstance(value, list):
        return open_rows(value, schema).read_all()
    if type(value).__module__.startswith("polars") and not hasattr(value, "__arrow_c_stream__"):
        return value.collect()
    if not hasattr(value, "__arrow_c_stream__") and not hasattr(value, "sparkSession"):
        raise InvalidInputError(
            f"an asset or op returned {type(value).__name__}, which holds no rows; return a frame or table of "
            "pyarrow, polars, pandas, DuckDB, daft or Spark, a list of dictionaries, or None"
        )
    return value


def rows_schema(rows: Any) -> pa.Schema:
    """Return the schema of rows, without `_row_kind`. Nothing is computed, if the rows can tell their schema."""
    if isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        schema = rows.schema
    elif hasattr(rows, "sparkSession"):
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 -- as above

        schema = to_arrow_schema(rows.schema)  # an Arrow stream would run the query
    elif hasattr(rows, "__arrow_c_schema__"):
        schema = pa.schema(rows)  # as above
    else:
        schema = pa.RecordBatchReader.from_stream(rows).schema
    return pa.schema([field for field in schema if field.name != "_row_kind"])


# -- Storing ---------------------------------------------------------------------------------------
#
# Commit the rows of an asset or an op's output to a table, which is created or altered first.

_PARTIAL_ROW_MODES = (WriteMode.DELETE, WriteMode.MERGE)


@record
class WriteRequest:
    """Rows and how to write them.

    Attributes:
        rows: The rows.
        declaration: The table.
        storage: Settings from metadata.
        templates: Templates that select the rows of the run's partitions.
        keys: Partition keys of the run.
        output: Identifier, unique in the run, of an output that is no asset.
        code_version: Code version of the asset or output.
    """

    rows: Any
    declaration: TableDeclaration
    storage: Storage
    templates: PartitionTemplates | None = None
    keys: Sequence[str] = ()
    output: str | None = None
    code_version: str | None = None


@record
class WriteResult:
    """The result of a write.

    Attributes:
        table: The table after the write.
        before: The newest snapshot before it.
        newest: The snapshot in which readers see the rows; the newest one if nothing was written.
        metadata: Metadata for the event of the asset or output.
    """

    table: Table
    before: Snapshot | None
    newest: Snapshot | None
    metadata: Mapping[str, Any]


def write_rows(
    step: StepExecutionContext, resource: LsmResource, request: WriteRequest, table: Table | None
) -> WriteResult:
    """Commit rows to a table. `table` None: create it first.

    Raises InvalidInputError, before anything is written, for rows that do not fit the table or its partitions.
    """
    declaration, storage = request.declaration, request.storage
    templates, keys = request.templates, request.keys
    if templates is not None:
        require_whole_days(templates, keys, declaration.schema)  # before anything is written
    # An overwrite must not delete rows of other partitions: it is refused before anything is written.
    if keys and storage.mode is WriteMode.OVERWRITE:
        _require_partitions(declaration, templates, keys, step.instance)
    table = _prepare_table(resource, declaration, storage, table)
    require_layout(declaration, table, keys)
    before = table.latest_snapshot()
    inputs = pinned_inputs(step, resource)
    writer = f"{step.run_id}/{request.output}" if request.output else step.run_id
    launched = LaunchedRun(
        run_id=step.run_id, engine=resource.executor, user=step.dagster_run.tags.get("user")
    )
    identity = {
        **commit_identity(table, writer, step.previous_attempt_count),
        "properties": {
            **storage.properties,
            **build_run_properties(
                launched,
                declaration.keys,
                AssetKind.TABLE,
                inputs=inputs,
                code_version=request.code_version,
                output=request.output,
            ),
        },
    }
    snapshot = _commit(table, request, identity)
    if snapshot is None:
        # Nothing was committed, so that the schema change of `_prepare_table` was not committed either.
        table = resource.catalog.table(table.name)
    newest = table.latest_snapshot() if snapshot is None else _visible_snapshot(table, snapshot)
    metadata: dict[str, Any] = {}
    if newest is not None:
        reasons = pin_reasons(step, resource)
        metadata = _page_metadata(table, declaration, newest, inputs_markdown(inputs, reasons))
    return WriteResult(table=table, before=before, newest=newest, metadata=metadata)


def _visible_snapshot(table: Table, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot in which readers see a commit: the compaction after it, if reads skip level 0."""
    # Readers of other tables see a commit at once.
    if not table.hides_level_0:
        return snapshot
    later = takewhile(lambda commit: commit.id > snapshot.id, table.newest_snapshots())
    maintenance_user = f"{snapshot.commit_user}-upkeep"
    return next(
        (
            later_snapshot
            for later_snapshot in later
            if later_snapshot.commit_user == maintenance_user
        ),
        snapshot,
    )


def declaration_from_rows(
    key: dg.AssetKey,
    storage: Storage,
    rows: Any,
    definition: dg.PartitionsDefinition | None = None,
    output: str | None = None,
) -> TableDeclaration:
    """Return the declaration of the table of an asset or an op's output, with the columns of its rows.

    Raises InvalidInputError if the primary key is missing and the mode is not `append`.
    """
    if not storage.primary_key and storage.mode is not WriteMode.APPEND:
        subject = {"output": output} if output else {"asset": key.to_user_string()}
        raise InvalidInputError(
            f"the {next(iter(subject))} has no metadata {PRIMARY_KEY!r}; name the columns of its key",
            kind=ErrorKind.INVALID_KEY,
            **subject,
        )
    return storage.declaration(key, rows_schema(rows), definition)


def _prepare_table(
    resource: LsmResource, declaration: TableDeclaration, storage: Storage, table: Table | None
) -> Table:
    """Return the table, created if it does not exist, with the schema changes that the rows need.

    Schema changes are committed with the rows: rows that are refused leave the table as it was.
    """
    if table is None:
        return resource.table(declaration)
    stored = table.schema.arrow
    types = {field.name: field.type for field in declaration.schema}
    changes: list[Any] = [
        AddColumn((name,), kind) for name, kind in types.items() if name not in stored.names
    ]
    changes += [
        ChangeType((name,), kind)
        for name, kind in types.items()
        if name in stored.names and _is_wider(kind, stored.field(name).type)
    ]
    changes += [
        SetOption(name, text)
        for name, text in storage.options.items()
        if table.options.texts.get(name) != text
    ]
    if storage.schema is SchemaMode.MATCH and storage.mode not in _PARTIAL_ROW_MODES:
        changes += [DropColumn((name,)) for name in stored.names if name not in types]
    # A schema that may not change is only checked.
    if changes and storage.schema is not SchemaMode.REFUSE:
        table = table.altering(*changes)
        stored = table.schema.arrow
    is_part = storage.schema is SchemaMode.EVOLVE or storage.mode in _PARTIAL_ROW_MODES
    same = set(types) <= set(stored.names) if is_part else set(types) == set(stored.names)
    schema = stored if same else declaration.schema
    if not declaration.primary_key:
        declaration = replace(declaration, primary_key=table.schema.primary_keys)
    remedy = f"set the metadata {SCHEMA!r} to evolve or match, or "
    remedy = remedy if storage.schema is SchemaMode.REFUSE else ""
    check_declaration(replace(declaration, schema=schema), table, remedy)
    return table


def _require_partitions(
    declaration: TableDeclaration,
    templates: PartitionTemplates | None,
    keys: Sequence[str],
    instance: dg.DagsterInstance,
) -> None:
    """Raise InvalidInputError if an overwrite of the run's partitions would delete rows of other partitions."""
    columns = set(templates.columns) if templates is not None else set[str]()
    if not columns or not columns <= set(declaration.partitioned_by):
        raise InvalidInputError(
            f"the mode overwrite replaces partitions of a table: name its columns in {PARTITIONED_BY!r}, "
            f"and in {PARTITION_COLUMNS!r} which values of them an asset's partition has; or take the "
            "mode upsert. Nothing was written",
            kind=ErrorKind.INVALID_NAME,
            table=declaration.name,
            partitioned_by=list(declaration.partitioned_by),
        )
    assert templates is not None
    all_keys = templates.definition.get_partition_keys(dynamic_partitions_store=instance)
    conflicts = templates.sharing_values(set(keys), all_keys)
    if conflicts:
        raise InvalidInputError(
            "the mode overwrite would take rows of other partitions of the asset, which have the same "
            f"{', '.join(map(repr, templates.columns))}: name in {PARTITION_COLUMNS!r} columns that distinguish "
            "them, run all of them in one run, or take the mode upsert. Nothing was written",
            kind=ErrorKind.INVALID_NAME,
            table=declaration.name,
            others=conflicts[:3],
        )


def _page_metadata(
    table: Table, declaration: TableDeclaration, newest: Snapshot, inputs: str
) -> dict[str, Any]:
    inspection, keys = inspect_table(table, newest), declaration.keys
    return {
        **files_metadata(keys, newest, inspection.tree, level_count=inspection.level_count),
        **table_page_metadata(
            table, keys, newest, row_count=row_count(table, declaration, newest), inputs=inputs
        ),
    }


def _commit(table: Table, request: WriteRequest, identity: Mapping[str, Any]) -> Snapshot | None:
    rows, templates, keys = request.rows, request.templates, request.keys
    match request.storage.mode:
        case WriteMode.UPSERT:
            return table.upsert(rows, **identity)
        case WriteMode.APPEND:
            return table.append(rows, **identity)
        case WriteMode.DELETE:
            return table.delete(rows, **identity)
        case WriteMode.MERGE:
            merge = table.merge(rows, **identity)
            return merge.when_matched_update_all().when_not_matched_insert_all().execute()
        case WriteMode.OVERWRITE:
            # Every partition of the run is replaced, also one for which the asset returned no rows.
            partition: Any = {}
            if templates is not None and keys:
                partition = partition_filter(templates, keys, table.schema.arrow)
            elif core_options.DYNAMIC_PARTITION_OVERWRITE.key in table.options.texts:
                partition = None  # the table option decides
            return table.overwrite(rows, partition, **identity)


def _is_wider(new: pa.DataType, old: pa.DataType) -> bool:
    families = (pa.types.is_signed_integer, pa.types.is_floating)
    return any(family(new) and family(old) for family in families) and bool(
        new.bit_width > old.bit_width
    )


# -- Op outputs ------------------------------------------------------------------------------------
#
# Store outputs of ops that are no assets in tables, and load the commit of an output in the
# next op.

DEFAULT_OUTPUT = "result"
TABLE_NAME, VERSION, MAPPING_KEY = "dagster/table_name", "lsm/version", "lsm/mapping_key"
"""Metadata keys of a stored output's event: the table and the commit that the next op reads."""

_OutputEvents = Mapping[tuple[str, str, str | None], Mapping[str, Any]]
_event_cache: WeakKeyDictionary[StepExecutionContext, dict[str, _OutputEvents]] = (
    WeakKeyDictionary()
)


def store_output(
    context: dg.OutputContext, obj: Any, resource: LsmResource, storage: Storage
) -> None:
    """Commit the rows of an output to its table. None leaves the table as it is."""
    require_known_keys(context.definition_metadata, OUTPUT_KEYS)
    step, layers = context.step_context, (context.definition_metadata, context.output_metadata)
    if obj is None and not _names_table(context, *layers):
        return  # an op without a return statement and without an annotation also has the output `result`
    keys = _output_table(context, *layers)
    table = resource.existing_table(keys.name)
    metadata: dict[str, Any] = {TABLE_NAME: keys.name}
    if obj is None:
        newest = table.latest_snapshot() if table is not None else None
    else:
        output = f"{context.step_key}.{context.name}"
        output += f"[{context.mapping_key}]" if context.mapping_key else ""
        rows = to_rows(obj, None if table is None else table.schema)
        definition, partitions = _run_partitions(step)
        declaration = declaration_from_rows(
            keys.asset(AssetKind.TABLE),
            storage,
            rows,
            definition if storage.partition_columns else None,
            output=output,
        )
        work = WriteRequest(
            rows=rows,
            declaration=declaration,
            storage=storage,
            templates=_run_templates(storage, step, declaration.schema),
            # A table without partitions is overwritten as a whole.
            keys=partitions if storage.partition_columns or storage.partitioned_by else (),
            output=output,
            code_version=context.op_def.output_def_named(context.name).code_version,
        )
        stored = write_rows(step, resource, work, table)
        newest = stored.newest
        metadata |= stored.metadata
    if newest is not None:
        metadata[VERSION] = version_from_snapshot(newest).text
    if context.mapping_key:
        metadata[MAPPING_KEY] = context.mapping_key
    context.add_output_metadata(metadata)


def load_output(context: dg.InputContext, resource: LsmResource) -> Any:
    """Load the table of an upstream output at the commit that the output made, or found if it wrote nothing.

    An input without an upstream output names a table, which is read at its newest snapshot.
    """
    step, upstream = context.step_context, context.upstream_output
    event_metadata: Mapping[str, Any] | None = None
    known_keys: Sequence[str] = ROOT_INPUT_KEYS
    writer, storage = "what writes it", Storage()
    if upstream is not None:
        event_metadata, known_keys = _output_event(step, upstream), INPUT_KEYS
        writer, storage = (
            f"the step {upstream.step_key}",
            partition_storage(upstream.definition_metadata),
        )
    require_known_keys(context.definition_metadata, known_keys)
    keys, recorded = (
        _input_table(context, event_metadata),
        _recorded_version(step, upstream, event_metadata),
    )
    remedy = f"Run {writer} again, then this one."
    annotation, table = context.dagster_type.typing_type, resource.existing_table(keys.name)
    # The output was None and no table existed. A table that was dropped since is an error instead.
    if table is None and event_metadata is not None and recorded is None:
        return empty_rows(annotation)
    if table is None:
        raise dg.Failure(f"There is no table {keys.name}. {remedy}")
    newest, schema = table.latest_snapshot(), table.schema.arrow
    # Without a recorded commit the newest one is pinned, so that the page of the step says what was read.
    if recorded is None and newest is not None:
        recorded = version_from_snapshot(newest)
    templates, row_filter, layout = _run_templates(storage, step, schema), None, None
    if templates is not None:
        _, partitions = _run_partitions(step)
        row_filter = partition_filter(templates, partitions, schema)
        layout = partition_layout(table, templates, partitions)
    pinned = PinnedTable(table=table, at={})
    if recorded is not None:
        key = keys.asset(AssetKind.TABLE)
        pinned = pin_version(step, resource, key, table, recorded, layout, remedy=remedy)
    arguments = {**pinned.at, **scan_arguments(context.definition_metadata, row_filter)}
    return load_rows(pinned.table, arguments, annotation, resource)


def _names_table(output: dg.OutputContext, *layers: Mapping[str, Any] | None) -> bool:
    return output.name != DEFAULT_OUTPUT or any(TABLE in (layer or {}) for layer in layers)


def _output_table(output: dg.OutputContext, *layers: Mapping[str, Any] | None) -> TableKeys:
    if not _names_table(output, *layers):
        raise InvalidInputError(
            f"the output {DEFAULT_OUTPUT!r} of an op is kept in no table as long as it has no name: set the "
            f"metadata {TABLE!r} of its Out to database.table, or name the output; nothing was written",
            kind=ErrorKind.INVALID_NAME,
            op=output.op_def.name,
        )
    names = [unwrap_metadata(layer[TABLE]) for layer in layers if layer and TABLE in layer]
    name = str([output.name, *names][-1])
    return TableKeys(name=name if "." in name else f"default.{name}")


def _input_table(context: dg.InputContext, event_metadata: Mapping[str, Any] | None) -> TableKeys:
    upstream, declared = context.upstream_output, context.definition_metadata or {}
    if upstream is None and TABLE not in declared:
        raise InvalidInputError(
            f"the input {context.name!r} has no upstream output: name its table by the metadata {TABLE!r} of its In",
            kind=ErrorKind.INVALID_NAME,
            op=context.op_def.name,
        )
    if upstream is None:
        return TableKeys(name=str(unwrap_metadata(declared[TABLE])))
    if upstream.has_asset_key:
        return table_keys(upstream.asset_key)
    if event_metadata and TABLE_NAME in event_metadata:
        return TableKeys(name=unwrap_metadata(event_metadata[TABLE_NAME]))
    return _output_table(upstream, upstream.definition_metadata)


def _recorded_version(
    step: StepExecutionContext,
    upstream: dg.OutputContext | None,
    event_metadata: Mapping[str, Any] | None,
) -> TableVersion | None:
    """Return the commit of an output; None if its table was empty or the event has no commit."""
    if upstream is not None and upstream.has_asset_key:
        version = recorded_version(step.instance, upstream.asset_key)
    else:
        version = parse_version(str(unwrap_metadata((event_metadata or {}).get(VERSION))))
    return None if version == EMPTY_VERSION else version


def _output_event(step: StepExecutionContext, output: dg.OutputContext) -> Mapping[str, Any] | None:
    """Return the metadata of an output's event, from the last attempt of its step; None without an event."""
    try:
        run_id = output.run_id
    except dg.DagsterInvariantViolationError:
        return None  # Dagster raises if neither this run nor the run that it re-executes made the output
    events_by_run = _event_cache.setdefault(step, {})
    if run_id not in events_by_run:
        # A step may collect many outputs of one run: its events are read once.
        events_by_run[run_id] = _read_output_events(step.instance, run_id)
    return events_by_run[run_id].get((output.step_key, output.name, output.mapping_key))


def _read_output_events(instance: dg.DagsterInstance, run_id: str) -> _OutputEvents:
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.HANDLED_OUTPUT)
    events = {}
    for event in (entry.dagster_event for entry in entries):
        if event is not None and event.step_key is not None:
            data: Any = event.event_specific_data
            mapping_key = unwrap_metadata(data.metadata.get(MAPPING_KEY))
            events[event.step_key, data.output_name, mapping_key] = data.metadata
    return events


def _run_partitions(
    step: StepExecutionContext,
) -> tuple[dg.PartitionsDefinition | None, Sequence[str]]:
    """Return the definition and the keys of the run's partitions; (None, ()) for a run without partitions."""
    definition = step.run_partitions_def
    if definition is None or not step.has_partitions:
        return None, ()
    if step.has_partition_key:
        return definition, (step.partition_key,)
    with partitions_loaded_from(step.instance):
        return definition, definition.get_partition_keys_in_range(step.partition_key_range)


def _run_templates(
    storage: Storage, step: StepExecutionContext, schema: Any
) -> PartitionTemplates | None:
    """Return the declared templates of an output; None without any. Ops have no partitions to guess them from."""
    definition, keys = _run_partitions(step)
    return storage.templates(definition, keys, schema) if storage.partition_columns else None


# -- LsmIOManager: stores rows that assets and ops return in tables, and loads them ----------------

_PARTITIONS_COUNTED_MAX = 50


class LsmIOManager(dg.ConfigurableIOManager):
    """Stores what an asset returns in the table that its key names, and loads it again, pinned.

    The key `[shop, orders]` is the table `shop.orders`; a key of one part lives in the database
    `default`. The asset's definition metadata holds the rest: `lsm/primary_key` (a list, or names
    joined by commas; required to create a table, but for `append`), `lsm/partitioned_by`,
    `lsm/options`; `lsm/partition_columns`, the values of columns in the rows of an asset's partition
    ({"region": "{region}", "month": "{day:%m}"}; `lsm/partition_column` names the one that holds the
    whole key, for a column of times its span); `lsm/mode` and `lsm/schema`. These two may also be tags
    of a run or metadata of an output, which count before the asset's.

    Rows come as Arrow, polars (also lazy), pandas, DuckDB relations or Spark DataFrames; a downstream
    parameter gets what it is annotated with, `pyarrow.Table` by default, or `lsm_engine.Scan` to choose
    itself. The metadata `lsm/columns` and `lsm/where` (SQL) of its `AssetIn` choose columns and rows.

    An asset's data version becomes the snapshot that its run made, and a downstream asset reads the
    very snapshot that Dagster records as its input.

    An output of an op that is no asset is kept alike, by the metadata of its `Out`: in the table that
    `lsm/table` names, or in that of its own name in the database `default`. The next op reads the very
    snapshot that the output has made, with `lsm/columns` and `lsm/where` of its `In`.
    """

    lsm: dg.ResourceDependency[LsmResource]
    mode: str = Field(
        default="upsert",
        description="upsert, append (tables without a key), overwrite (the table, or the run's "
        "partitions of it), delete (rows name keys) or merge (update the columns given, add new rows)",
    )
    schema_mode: str = Field(
        default="refuse",
        description="evolve adds columns and widens types; match also drops columns that rows lack; "
        "refuse raises",
    )

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Commit the rows of an output. None writes nothing, and an asset keeps its data version."""
        run = context.step_context.dagster_run
        storage = storage_from_metadata(
            {MODE: self.mode, SCHEMA: self.schema_mode},
            context.definition_metadata,
            {name: run.tags[name] for name in (MODE, SCHEMA) if name in run.tags},
            context.output_metadata,
        )
        if not context.has_asset_key:
            store_output(context, obj, self.lsm, storage)
            return
        require_known_keys(context.definition_metadata, ASSET_KEYS)
        definition = context.asset_partitions_def if context.has_asset_partitions else None
        keys = list(context.asset_partition_keys) if context.has_asset_partitions else []
        table = self.lsm.existing_table(table_keys(context.asset_key).name)
        if obj is None:
            # Dagster records an event in any case. It gets the version that the partitions already have.
            self._keep_data_version(context, definition, keys, table)
            return
        rows = to_rows(obj, None if table is None else table.schema)
        declaration = declaration_from_rows(context.asset_key, storage, rows, definition)
        templates = storage.templates(definition, keys, declaration.schema)
        work = WriteRequest(
            rows=rows,
            declaration=declaration,
            storage=storage,
            templates=templates,
            keys=keys,
            code_version=declared_code_version(context.step_context, context.asset_key),
        )
        stored = write_rows(context.step_context, self.lsm, work, table)
        table, metadata = stored.table, stored.metadata
        if stored.newest is not None:
            _add_partition_row_counts(context, table, declaration, stored.newest, templates, keys)
        context.add_output_metadata(metadata)
        self._set_versions(context, declaration, table, keys, stored.before, metadata)

    def load_input(self, context: dg.InputContext) -> Any:
        """Load the upstream table at the version that Dagster has recorded as the input of this run."""
        if not context.has_asset_key:
            return load_output(context, self.lsm)
        require_known_keys(context.definition_metadata, INPUT_KEYS)
        annotation, upstream = context.dagster_type.typing_type, context.upstream_output
        definition = context.asset_partitions_def if context.has_asset_partitions else None
        keys = list(context.asset_partition_keys) if context.has_asset_partitions else []
        name = table_keys(context.asset_key).name
        if definition is not None and not keys and self.lsm.existing_table(name) is None:
            # The partition mapping selects no partition, such as the day before the first of a self-dependent asset.
            return empty_rows(annotation)
        table = self.lsm.upstream_table(context.asset_key)
        schema = table.schema.arrow
        storage = partition_storage(upstream.definition_metadata if upstream is not None else None)
        templates = storage.templates(definition, keys, schema)
        row_filter, partitions = None, None
        if definition is not None and not keys:
            # The mapping selects no partition of a table that exists: no rows, but with the table's columns.
            row_filter = pc.scalar(False)  # noqa: FBT003 -- a filter
        if templates is not None:
            row_filter = partition_filter(templates, keys, schema)
            # The filter excludes rows of other partitions, so that directories without a match do not matter.
            partitions = partition_layout(table, replace(templates, is_declared=True), keys)
        pinned = pin_input(context.step_context, self.lsm, context.asset_key, partitions)
        arguments = {**pinned.at, **scan_arguments(context.definition_metadata, row_filter)}
        if keys and templates is None:
            context.log.warning(
                "all rows of %s are read: the metadata %s of its asset does not say which of them are "
                "those of a partition",
                *(name, PARTITION_COLUMNS),
            )
        return load_rows(pinned.table, arguments, annotation, self.lsm)

    def _keep_data_version(
        self,
        context: dg.OutputContext,
        definition: dg.PartitionsDefinition | None,
        keys: Sequence[str],
        table: Table | None,
    ) -> None:
        if table is None:
            version = dg.DataVersion(EMPTY_VERSION.text)
            context.step_context.set_data_version(context.asset_key, version)
            return
        settings = partition_storage(context.definition_metadata)
        storage = replace(settings, partitioned_by=tuple(table.schema.partition_keys))
        declaration = storage.declaration(context.asset_key, table.schema.arrow, definition)
        self._set_versions(context, declaration, table, keys, table.latest_snapshot(), {})

    def _set_versions(
        self,
        context: dg.OutputContext,
        declaration: TableDeclaration,
        table: Table,
        keys: Sequence[str],
        before: Snapshot | None,
        table_metadata: Mapping[str, Any],
    ) -> None:
        """Set the data version of the run, and of partitions with another version; see `versions_after_run`."""
        step, lineage = context.step_context, self.lsm.catalog.lineage
        version, partition_versions = versions_after_run(
            step.instance, declaration, table, lineage, keys, before.id if before else 0
        )
        step.set_data_version(context.asset_key, dg.DataVersion(version.text))
        event_metadata = {**(context.output_metadata or {}), **table_metadata}
        for event in partition_events(step, declaration, partition_versions, event_metadata):
            context.log_event(event)
        if partition_versions:
            # Dagster's own events come later, and would give these partitions the version of the run again.
            definition, remaining_keys = (
                context.asset_partitions_def,
                [key for key in keys if key not in partition_versions],
            )
            context._asset_partitions_subset = definition.subset_with_partition_keys(remaining_keys)  # noqa: SLF001


def _add_partition_row_counts(
    context: dg.OutputContext,
    table: Table,
    declaration: TableDeclaration,
    snapshot: Snapshot,
    templates: PartitionTemplates | None,
    keys: Sequence[str],
) -> None:
    """Add the row count of each partition to its event, unless counting costs too much."""
    is_large = (snapshot.total_record_count or 0) >= declaration.exact_row_count_below
    if templates is None or is_large or len(keys) > _PARTITIONS_COUNTED_MAX:
        return
    for key in keys:
        row_filter = partition_filter(templates, [key], table.schema.arrow)
        count = table.scan(where=row_filter, snapshot_id=snapshot.id).count()
        metadata = {"dagster/partition_row_count": count}
        context.step_context.add_asset_metadata(metadata, context.asset_key, key)

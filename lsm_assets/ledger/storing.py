"""Commit the rows of an asset or an op's output to a table, which is created or altered first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster._core.execution.context.system import StepExecutionContext

from lsm_assets.ledger.asset_partitions import require_layout
from lsm_assets.ledger.frames import rows_schema
from lsm_assets.ledger.inspection import inspect_table, row_count
from lsm_assets.ledger.pinning import inputs_markdown, pin_reasons, pinned_inputs
from lsm_assets.ledger.recording import build_run_properties, commit_identity, table_page_metadata
from lsm_assets.model.asset_partitions import PartitionTemplates
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import files_metadata
from lsm_assets.model.storage import (
    PARTITION_COLUMNS,
    PARTITIONED_BY,
    PRIMARY_KEY,
    SCHEMA,
    SchemaMode,
    Storage,
    WriteMode,
    partition_filter,
    require_whole_days,
)
from lsm_assets.resources import LsmResource, check_declaration
from lsm_engine import (
    AddColumn,
    ChangeType,
    DropColumn,
    ErrorKind,
    InvalidInputError,
    SetOption,
    Snapshot,
    Table,
    core_options,
    record,
)

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
    identity = {
        **commit_identity(table, writer, step.previous_attempt_count),
        "properties": {
            **storage.properties,
            **build_run_properties(
                step.run_id,
                declaration.keys,
                AssetKind.TABLE,
                engine=resource.executor,
                user=step.dagster_run.tags.get("user"),
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
            f"{', '.join(map(repr, templates.columns))}: name in {PARTITION_COLUMNS!r} columns that tell them "
            "apart, run all of them at once, or take the mode upsert. Nothing was written",
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

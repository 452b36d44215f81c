"""LsmIOManager: assets that return rows, and assets that take them, kept in tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from lsm_assets.ledger.asset_partitions import layout_of, require_layout, versions_after
from lsm_assets.ledger.commits import NOTHING
from lsm_assets.ledger.frames import as_rows, load, nothing_as, schema_of
from lsm_assets.ledger.pinning import inputs_markdown, pin_input, pinned_inputs, reasons_of
from lsm_assets.ledger.recording import (
    code_version_of,
    commit_identity,
    partition_events,
    run_properties_of,
    table_page,
)
from lsm_assets.ledger.survey import row_count, survey
from lsm_assets.model.asset_partitions import PartitionTemplates
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind, keys_of
from lsm_assets.model.metadata import files_metadata
from lsm_assets.model.storage import (
    COLUMNS,
    MODE,
    OF_ASSETS,
    OF_INPUTS,
    PARTITION_COLUMNS,
    PARTITIONED_BY,
    PRIMARY_KEY,
    SCHEMA,
    WHERE,
    SchemaMode,
    Storage,
    WriteMode,
    kept_in,
    names_of,
    partition_filter,
    plain,
    require_days,
    require_known,
    storage_of,
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
)

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
        """Commit the rows; None means that the asset has nothing to write: it keeps its version."""
        require_known(context.definition_metadata, OF_ASSETS)
        definition = context.asset_partitions_def if context.has_asset_partitions else None
        keys = list(context.asset_partition_keys) if context.has_asset_partitions else []
        table = self.lsm.existing_table(keys_of(context.asset_key).name)
        if obj is None:
            self._keep_version(context, definition, keys, table)
            return
        rows = as_rows(obj, None if table is None else table.schema)
        run = context.step_context.dagster_run
        storage = storage_of(
            {MODE: self.mode, SCHEMA: self.schema_mode},
            context.definition_metadata,
            {name: run.tags[name] for name in (MODE, SCHEMA) if name in run.tags},
            context.output_metadata,
        )
        declaration = declaration_of(context.asset_key, storage, rows, definition)
        templates = storage.templates(definition, keys, declaration.schema)
        if templates is not None:
            require_days(templates, keys, declaration.schema)  # before anything is written
        if keys and storage.mode is WriteMode.OVERWRITE:
            _require_partitions(declaration, templates, keys, context.step_context.instance)
        table = self._ready(declaration, storage, table)
        require_layout(declaration, table, keys)
        before = table.latest_snapshot()
        inputs = pinned_inputs(context.step_context, self.lsm)
        identity = {
            **commit_identity(table, context.run_id, context.step_context.previous_attempt_count),
            "properties": {
                **storage.properties,
                **run_properties_of(
                    context.run_id,
                    declaration.keys,
                    AssetKind.TABLE,
                    engine=self.lsm.executor,
                    user=run.tags.get("user"),
                    inputs=inputs,
                    code_version=code_version_of(context.step_context, context.asset_key),
                ),
            },
        }
        snapshot = _committed(table, rows, storage, templates, keys, identity)
        if snapshot is None:
            # Nothing was committed, nor the columns that its rows would have brought.
            table = self.lsm.catalog.table(table.name)
        newest = snapshot or table.latest_snapshot()
        found: dict[str, Any] = {}
        if newest is not None:
            _count_partitions(context, table, declaration, newest, templates, keys)
            reasons = reasons_of(context.step_context, self.lsm)
            found = _shown(table, declaration, newest, inputs_markdown(inputs, reasons))
        context.add_output_metadata(found)
        self._set_versions(context, declaration, table, keys, before, found)

    def load_input(self, context: dg.InputContext) -> Any:
        """Read the upstream table at the snapshot that this run is recorded to have read."""
        require_known(context.definition_metadata, OF_INPUTS)
        wanted, upstream = context.dagster_type.typing_type, context.upstream_output
        definition = context.asset_partitions_def if context.has_asset_partitions else None
        keys = list(context.asset_partition_keys) if context.has_asset_partitions else []
        name = keys_of(context.asset_key).name
        if definition is not None and not keys and self.lsm.existing_table(name) is None:
            # Such as the day before the first of an asset that reads itself.
            return nothing_as(wanted)
        table = self.lsm.upstream_table(context.asset_key)
        schema = table.schema.arrow
        storage = kept_in(upstream.definition_metadata if upstream is not None else None)
        templates = storage.templates(definition, keys, schema)
        where, partitions = None, None
        if definition is not None and not keys:
            where = pc.scalar(False)  # noqa: FBT003 -- a filter
        if templates is not None:
            where = partition_filter(templates, keys, schema)
            # Others have no rows here, whatever their directories are called.
            partitions = layout_of(table, replace(templates, is_given=True), keys)
        asked = plain((context.definition_metadata or {}).get(WHERE))
        pinned = pin_input(context.step_context, self.lsm, context.asset_key, partitions)
        filters = [each for each in (where, asked) if each is not None]
        read: dict[str, Any] = {**pinned.at, "where": filters or None}
        columns = names_of((context.definition_metadata or {}).get(COLUMNS))
        if columns:
            read["columns"] = list(columns)
        if keys and templates is None:
            context.log.warning(
                "all rows of %s are read: the metadata %s of its asset does not say which of them are "
                "those of a partition",
                *(name, PARTITION_COLUMNS),
            )
        return load(pinned.table, read, wanted, self.lsm)

    def _ready(self, declaration: TableDeclaration, storage: Storage, table: Table | None) -> Table:
        """Return the table for rows of the declared columns; it is altered once they are accepted."""
        if table is None:
            return self.lsm.table(declaration)
        stored = table.schema.arrow
        given = {field.name: field.type for field in declaration.schema}
        changes: list[Any] = [
            AddColumn(name, kind) for name, kind in given.items() if name not in stored.names
        ]
        changes += [
            ChangeType(name, kind)
            for name, kind in given.items()
            if name in stored.names and _is_wider(kind, stored.field(name).type)
        ]
        changes += [
            SetOption(name, text)
            for name, text in storage.options.items()
            if table.options.texts.get(name) != text
        ]
        if storage.schema is SchemaMode.MATCH and storage.mode not in _TAKES_SOME_COLUMNS:
            changes += [DropColumn(name) for name in stored.names if name not in given]
        if changes and storage.schema is not SchemaMode.REFUSE:
            table = table.altering(*changes)
            stored = table.schema.arrow
        is_part = storage.schema is SchemaMode.EVOLVE or storage.mode in _TAKES_SOME_COLUMNS
        same = set(given) <= set(stored.names) if is_part else set(given) == set(stored.names)
        schema = stored if same else declaration.schema
        if not declaration.primary_key:
            declaration = replace(declaration, primary_key=table.schema.primary_keys)
        remedy = f"set the metadata {SCHEMA!r} to evolve or match, or "
        remedy = remedy if storage.schema is SchemaMode.REFUSE else ""
        check_declaration(replace(declaration, schema=schema), table, remedy)
        return table

    def _keep_version(
        self,
        context: dg.OutputContext,
        definition: dg.PartitionsDefinition | None,
        keys: Sequence[str],
        table: Table | None,
    ) -> None:
        if table is None:
            version = dg.DataVersion(NOTHING.text)
            context.step_context.set_data_version(context.asset_key, version)
            return
        kept = kept_in(context.definition_metadata)
        storage = replace(kept, partitioned_by=tuple(table.schema.partition_keys))
        declaration = storage.declaration(context.asset_key, table.schema.arrow, definition)
        self._set_versions(context, declaration, table, keys, table.latest_snapshot(), {})

    def _set_versions(
        self,
        context: dg.OutputContext,
        declaration: TableDeclaration,
        table: Table,
        keys: Sequence[str],
        before: Snapshot | None,
        found: Mapping[str, Any],
    ) -> None:
        """Set the data version of the run, and of its partitions that have another; see `versions_after`."""
        step, lineage = context.step_context, self.lsm.catalog.lineage
        version, others = versions_after(
            step.instance, declaration, table, lineage, keys, before.id if before else 0
        )
        step.set_data_version(context.asset_key, dg.DataVersion(version.text))
        given = {**(context.output_metadata or {}), **found}
        for event in partition_events(step, declaration, others, given):
            context.log_event(event)
        if others:
            # Dagster's own events come later, and would give these the version of the run again.
            definition, rest = (
                context.asset_partitions_def,
                [key for key in keys if key not in others],
            )
            context._asset_partitions_subset = definition.subset_with_partition_keys(rest)  # noqa: SLF001


_TAKES_SOME_COLUMNS = (WriteMode.DELETE, WriteMode.MERGE)


def declaration_of(
    key: dg.AssetKey,
    storage: Storage,
    rows: Any,
    definition: dg.PartitionsDefinition | None = None,
) -> TableDeclaration:
    """Return the table that an asset's metadata declares, with the columns of its rows."""
    if not storage.primary_key and storage.mode is not WriteMode.APPEND:
        raise InvalidInputError(
            f"the asset has no metadata {PRIMARY_KEY!r}; name the columns of its key",
            kind=ErrorKind.INVALID_KEY,
            asset=key.to_user_string(),
        )
    return storage.declaration(key, schema_of(rows), definition)


def _require_partitions(
    declaration: TableDeclaration,
    templates: PartitionTemplates | None,
    keys: Sequence[str],
    instance: dg.DagsterInstance,
) -> None:
    """Raise InvalidInputError where rows of the run's partitions share directories with other rows."""
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
    everything = templates.definition.get_partition_keys(dynamic_partitions_store=instance)
    others = templates.sharing(set(keys), everything)
    if others:
        raise InvalidInputError(
            "the mode overwrite would take rows of other partitions of the asset, which have the same "
            f"{', '.join(map(repr, templates.columns))}: name in {PARTITION_COLUMNS!r} columns that tell them "
            "apart, run all of them at once, or take the mode upsert. Nothing was written",
            kind=ErrorKind.INVALID_NAME,
            table=declaration.name,
            others=others[:3],
        )


def _shown(
    table: Table, declaration: TableDeclaration, newest: Snapshot, inputs: str
) -> dict[str, Any]:
    looked, keys = survey(table, newest), declaration.keys
    return {
        **files_metadata(keys, newest, looked.tree, level_count=looked.level_count),
        **table_page(
            table, keys, newest, row_count=row_count(table, declaration, newest), inputs=inputs
        ),
    }


def _committed(
    table: Table,
    rows: Any,
    storage: Storage,
    templates: PartitionTemplates | None,
    keys: Sequence[str],
    identity: Mapping[str, Any],
) -> Snapshot | None:
    match storage.mode:
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
            # All rows of each partition go, also of one for which none come.
            partition: Any = {}
            if templates is not None and keys:
                partition = partition_filter(templates, keys, table.schema.arrow)
            elif core_options.DYNAMIC_PARTITION_OVERWRITE.key in table.options.texts:
                partition = None  # as the table says
            return table.overwrite(rows, partition, **identity)


def _count_partitions(
    context: dg.OutputContext,
    table: Table,
    declaration: TableDeclaration,
    snapshot: Snapshot,
    templates: PartitionTemplates | None,
    keys: Sequence[str],
) -> None:
    """Add to each partition's event how many rows it has, unless counting costs too much."""
    is_large = (snapshot.total_record_count or 0) >= declaration.exact_row_count_below
    if templates is None or is_large or len(keys) > _PARTITIONS_COUNTED_MAX:
        return
    for key in keys:
        where = partition_filter(templates, [key], table.schema.arrow)
        count = table.scan(where=where, snapshot_id=snapshot.id).count()
        found = {"dagster/partition_row_count": count}
        context.step_context.add_asset_metadata(found, context.asset_key, key)


def _is_wider(new: pa.DataType, old: pa.DataType) -> bool:
    families = (pa.types.is_signed_integer, pa.types.is_floating)
    return any(family(new) and family(old) for family in families) and bool(
        new.bit_width > old.bit_width
    )

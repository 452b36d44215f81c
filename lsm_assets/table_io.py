"""LsmIOManager: stores rows that assets and ops return in tables, and loads them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
import pyarrow.compute as pc
from pydantic import Field

from lsm_assets.ledger.asset_partitions import partition_layout, versions_after_run
from lsm_assets.ledger.commits import EMPTY_VERSION
from lsm_assets.ledger.frames import empty_rows, load_rows, to_rows
from lsm_assets.ledger.op_outputs import load_output, store_output
from lsm_assets.ledger.pinning import pin_input
from lsm_assets.ledger.recording import declared_code_version, partition_events
from lsm_assets.ledger.storing import WriteRequest, declaration_from_rows, write_rows
from lsm_assets.model.asset_partitions import PartitionTemplates
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import table_keys
from lsm_assets.model.storage import (
    ASSET_KEYS,
    INPUT_KEYS,
    MODE,
    PARTITION_COLUMNS,
    SCHEMA,
    partition_filter,
    partition_storage,
    require_known_keys,
    scan_arguments,
    storage_from_metadata,
)
from lsm_assets.resources import LsmResource
from lsm_engine import Snapshot, Table

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

"""LsmIOManager: assets that return rows, and assets that take them, kept in tables."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.ledger.commits import data_version
from lsm_assets.ledger.pinning import inputs_markdown, pin_input, pinned_inputs, reasons_of
from lsm_assets.ledger.recording import run_properties_of
from lsm_assets.ledger.survey import row_count, survey
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind, keys_of
from lsm_assets.model.metadata import files_metadata, table_metadata
from lsm_assets.resources import LsmResource
from lsm_engine import ErrorKind, InvalidInputError, Scan

PRIMARY_KEY, PARTITIONED_BY, OPTIONS = "lsm/primary_key", "lsm/partitioned_by", "lsm/options"
PARTITION_COLUMN = "lsm/partition_column"
Mode = Literal["upsert", "overwrite"]


class LsmIOManager(dg.ConfigurableIOManager):
    """Stores what an asset returns in the table that its key names, and loads it again, pinned.

    The key `[shop, orders]` is the table `shop.orders`; a key of one part lives in the database
    `default`. The asset's definition metadata holds the rest: `lsm/primary_key` (a list, or names
    joined by commas; required to create a table), `lsm/partitioned_by`, `lsm/options`, and
    `lsm/partition_column`, the column that holds the asset's partition key.

    An asset's data version becomes the snapshot that its run made, and a downstream asset reads the
    very snapshot that Dagster records as its input. What a downstream parameter is annotated with
    decides what it gets: `pyarrow.Table` (the default), `pyarrow.RecordBatchReader`, or
    `lsm_engine.table.read.scan.Scan` to choose columns and rows itself.
    """

    lsm: dg.ResourceDependency[LsmResource]
    mode: Mode = Field(
        default="upsert", description="overwrite replaces the table, or the run's partitions of it"
    )

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Commit the rows; None means that the asset has nothing to write."""
        if obj is None:
            return
        declaration = declaration_of(context.asset_key, context.definition_metadata, obj)
        table = self.lsm.table(declaration)
        inputs = pinned_inputs(context.step_context, self.lsm)
        properties = run_properties_of(
            context.run_id,
            declaration.keys,
            AssetKind.TABLE,
            engine=self.lsm.executor,
            inputs=inputs,
        )
        user = f"dagster-{context.run_id}"
        if self.mode == "overwrite":
            snapshot = table.overwrite(obj, commit_user=user, properties=properties)
        else:
            snapshot = table.upsert(obj, commit_user=user, properties=properties)
        newest = snapshot or table.latest_snapshot()
        if newest is None:
            return
        looked = survey(table, newest)
        version = data_version(table, self.lsm.catalog.lineage)
        context.step_context.set_data_version(context.asset_key, dg.DataVersion(version.text))
        context.add_output_metadata(
            {
                **files_metadata(
                    declaration.keys, newest, looked.tree, level_count=looked.level_count
                ),
                **table_metadata(
                    declaration.keys,
                    newest,
                    schema=table.schema.arrow,
                    primary_key=table.schema.primary_keys,
                    location=table.location,
                    row_count=row_count(table, declaration, newest),
                    inputs=inputs_markdown(inputs, reasons_of(context.step_context, self.lsm)),
                ),
            }
        )

    def load_input(self, context: dg.InputContext) -> Any:
        """Read the upstream table at the snapshot that this run is recorded to have read."""
        column, keys = _partition_column(context), []
        if column is not None:
            keys = list(context.asset_partition_keys)
        table = self.lsm.catalog.table(keys_of(context.asset_key).name)
        of_partitions = column is not None and table.schema.partition_keys == (column,)
        pinned = pin_input(
            context.step_context,
            self.lsm,
            context.asset_key,
            [{column: key} for key in keys] if column and of_partitions else None,
        )
        where = None if column is None else _partition_filter(table, column, keys)
        scan = pinned.table.scan(where=where, **pinned.at)
        return _as(scan, context.dagster_type.typing_type)


def declaration_of(
    key: dg.AssetKey, metadata: Mapping[str, Any] | None, rows: Any
) -> TableDeclaration:
    """Return the table that an asset's metadata declares, with the columns of its rows."""
    declared = metadata or {}
    primary_key = _names(declared.get(PRIMARY_KEY))
    if not primary_key:
        raise InvalidInputError(
            f"the asset has no metadata {PRIMARY_KEY!r}; name the columns of its key",
            kind=ErrorKind.INVALID_KEY,
            asset=key.to_user_string(),
        )
    options = declared.get(OPTIONS) or {}
    return TableDeclaration(
        name=keys_of(key).name,
        schema=_schema_of(rows),
        primary_key=primary_key,
        partitioned_by=_names(declared.get(PARTITIONED_BY)),
        options={str(name): str(value) for name, value in _plain(options).items()},
    )


def _schema_of(rows: Any) -> pa.Schema:
    plain = pa.Table | pa.RecordBatch | pa.RecordBatchReader
    found = rows.schema if isinstance(rows, plain) else None
    if found is None:
        found = pa.RecordBatchReader.from_stream(rows).schema
    return pa.schema([field for field in found if field.name != "_row_kind"])


def _names(value: Any) -> tuple[str, ...]:
    plain = _plain(value)
    if plain is None:
        return ()
    if isinstance(plain, str):
        return tuple(name.strip() for name in plain.split(",") if name.strip())
    assert isinstance(plain, Sequence), "names are a list, or text with commas"
    return tuple(str(name) for name in plain)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, dg.MetadataValue) else value


def _partition_column(context: dg.InputContext) -> str | None:
    """Return the column that holds the keys of the upstream partitions that are read, if any are."""
    upstream = context.upstream_output
    if upstream is None or not context.has_asset_partitions:
        return None
    column = _plain((upstream.definition_metadata or {}).get(PARTITION_COLUMN))
    return None if column is None else str(column)


def _partition_filter(table: lsm.Table, column: str, keys: list[str]) -> pc.Expression:
    kind = table.schema.arrow.field(column).type
    return pc.field(column).isin(pa.array(keys).cast(kind))


def _as(scan: Any, wanted: Any) -> Any:
    if wanted is Scan:
        return scan
    if wanted is pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(scan.schema, scan.to_batches())
    return scan.to_arrow()

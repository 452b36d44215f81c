"""Read an upstream table at the very snapshot that Dagster records as the input of this run."""

from collections.abc import Iterable

import dagster as dg

from lsm_assets.ledger.recording import DATA_VERSION_TAG
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import keys_of
from lsm_assets.model.metadata import snapshot_link
from lsm_assets.model.pictures import without_html
from lsm_engine import LineageInput as Input


def input_snapshot(context: dg.AssetExecutionContext, key: dg.AssetKey) -> int | None:
    """Return the upstream snapshot that this run is recorded to have read.

    A table's data version is its last data-changing snapshot, and Dagster notes the versions of all
    inputs when a step starts: reading that snapshot makes the recorded provenance true. None if the
    upstream asset has no such version, because it is no table or was never materialised.
    """
    step = context.get_step_execution_context()
    noted = step.maybe_fetch_and_get_input_asset_version_info(key)
    if noted is None or noted.data_version is None:
        return None
    snapshot_id = version_snapshot(noted.data_version.value)
    if snapshot_id is not None or not (
        context.has_partition_key or context.has_partition_key_range
    ):
        return snapshot_id
    # The versions of several partitions come hashed together: the newest run covers them all.
    return _newest_of_partitions(context, key)


def inputs_of_run(
    context: dg.AssetExecutionContext, declaration: TableDeclaration
) -> tuple[Input, ...]:
    """Return what this run reads, for the properties of the snapshots that it makes."""
    return tuple(_inputs(context, declaration))


def inputs_markdown(inputs: Iterable[Input]) -> str:
    """Return as Markdown which snapshots were read; empty text for none."""
    shown = []
    for each in inputs:
        dataset = without_html(each.dataset)
        if each.snapshot_id is None:
            version = f" @ {without_html(each.version)}" if each.version else ""
            shown.append(f"- {dataset}{version}")
        else:
            key = dg.AssetKey(each.dataset.split("."))
            link = snapshot_link(keys_of(key), each.snapshot_id)
            shown.append(f"- {dataset} at {link}")
    return "\n".join(shown)


def _inputs(context: dg.AssetExecutionContext, declaration: TableDeclaration) -> Iterable[Input]:
    for key in declaration.deps:
        snapshot_id = input_snapshot(context, key)
        columns = tuple(
            (column, name)
            for column, sources in declaration.column_lineage.items()
            for source, name in sources
            if source == key
        )
        dataset = keys_of(key).name if snapshot_id is not None else key.to_user_string()
        yield Input(dataset=dataset, snapshot_id=snapshot_id, columns=columns)


def _newest_of_partitions(context: dg.AssetExecutionContext, key: dg.AssetKey) -> int | None:
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=list(context.partition_keys))
    found = context.instance.fetch_materializations(wanted, limit=1).records
    event = found[0].asset_materialization if found else None
    return version_snapshot((event.tags or {}).get(DATA_VERSION_TAG, "")) if event else None


def version_snapshot(version: str) -> int | None:
    """Return the snapshot that a data version names, None for versions of another kind."""
    return int(version) if version.isdecimal() and len(version) < 19 else None

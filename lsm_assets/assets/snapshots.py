"""Snapshots and manifest lists: already immutable, so materialising one reads and checks it again."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

import lsm_engine as lsm
from lsm_assets.checks.references import problem_list
from lsm_assets.ledger.insides import contents_of, manifests_of
from lsm_assets.ledger.recording import dagster_run_of, snapshot_page
from lsm_assets.ledger.survey import manifest_counts
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import manifest_lists_metadata
from lsm_assets.model.partitions import snapshot_id_of
from lsm_engine import NotFoundError, Snapshot


def inspect_snapshot(
    context: dg.AssetExecutionContext, declaration: TableDeclaration
) -> Iterator[dg.MaterializeResult[Any]]:
    """Verify every file that the partition's snapshot names, and index it in the catalog again."""
    table, snapshot = _snapshot_of_partition(context, declaration)
    problems = tuple(table.verify(snapshot_id=snapshot.id).problems)
    if problems:
        raise dg.Failure(
            f"snapshot {snapshot.id} of {declaration.name} is damaged: {problems[0]}",
            metadata={"lsm/problems": dg.MetadataValue.md(problem_list(problems))},
            allow_retries=False,
        )
    keys, version = declaration.keys, dg.DataVersion(str(snapshot.id))
    lists, whole = keys.asset(AssetKind.MANIFEST_LISTS), keys.asset(AssetKind.SNAPSHOTS)
    if lists in context.selected_asset_keys:
        counts = manifest_counts(table, snapshot)
        yield dg.MaterializeResult(
            asset_key=lists,
            metadata=manifest_lists_metadata(keys, snapshot, counts)
            | manifests_of(table, snapshot),
            data_version=version,
        )
    if whole in context.selected_asset_keys:
        maker = dagster_run_of(snapshot)
        yield dg.MaterializeResult(
            asset_key=whole,
            metadata=snapshot_page(table, keys, snapshot, run_id=maker)
            | contents_of(table, snapshot),
            data_version=version,
        )


def _snapshot_of_partition(
    context: dg.AssetExecutionContext, declaration: TableDeclaration
) -> tuple[lsm.Table, Snapshot]:
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    snapshot_id = snapshot_id_of(context.partition_key)
    if table is None or snapshot_id is None:
        raise dg.Failure(
            f"{declaration.name} has no snapshot {context.partition_key!r}: partitions are added by "
            "commits, not by hand",
            allow_retries=False,
        )
    try:
        return table, table.snapshot(snapshot_id)
    except NotFoundError as error:
        raise dg.Failure(
            f"snapshot {snapshot_id} of {declaration.name} cannot be read: {error}. Its history "
            "is kept; the sync sensor removes its partition",
            allow_retries=False,
        ) from error

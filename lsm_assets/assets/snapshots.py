"""The assets of snapshots and manifest lists. Both are immutable: materialising one reads and checks it."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.checks.contents import (
    contents_evaluation,
    damage_metadata,
    damage_text,
    scrub,
)
from lsm_assets.ledger.details import read_contents_metadata, read_manifests_metadata
from lsm_assets.ledger.inspection import manifest_counts
from lsm_assets.ledger.recording import record_commit, run_id_from_snapshot, snapshot_page_metadata
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import manifest_lists_metadata
from lsm_assets.model.partitions import parse_snapshot_partition, sorted_snapshot_partitions
from lsm_engine import NotFoundError, Snapshot, VerifyReport, core_options


class InspectConfig(dg.Config):
    """Options of checking a snapshot."""

    read_again: bool = Field(
        default=False,
        description="Read files again that an earlier run has found sound: damage by a disk leaves "
        "their time of change as it was",
    )


def inspect_snapshots(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, config: InspectConfig
) -> Iterator[Any]:
    """Check the snapshots of the run's partitions, and record them in the lineage.

    For `snapshots` every page of every file is read that no earlier run has read. For `manifest_lists` the manifests
    are read, and compacted if the newest snapshot has too many. Raises dagster.Failure for a damaged snapshot, after
    the check `contents` has recorded it.
    """
    keys = declaration.keys
    lists_key, snapshots_key = keys.asset(AssetKind.MANIFEST_LISTS), keys.asset(AssetKind.SNAPSHOTS)
    is_deep = snapshots_key in context.selected_asset_keys
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    snapshots = [
        _find_snapshot(declaration, table, key)
        for key in sorted_snapshot_partitions(context.partition_keys)
    ]
    assert table is not None, "a snapshot was found in it"
    context.resources.lsm.catalog.record_commits(
        declaration.name, [snapshot.id for snapshot in snapshots]
    )
    for snapshot in snapshots:
        report = _verify(context, table, snapshot, config, is_deep=is_deep)
        # One evaluation per run: of the first damaged snapshot, else of the last one.
        if is_deep and (not report.is_clean or snapshot is snapshots[-1]):
            yield contents_evaluation(declaration, report)
        if not report.is_clean:
            raise dg.Failure(
                f"snapshot {snapshot.id} of {declaration.name} is damaged: "
                + damage_text(declaration.name, report),
                metadata=damage_metadata(declaration.name, report),
                allow_retries=False,
            )
        context.log.info("sound table=%s snapshot=%s %s", table.name, snapshot.id, report)
        _add_page_metadata(context, declaration, table, snapshot)
    version = dg.DataVersion(str(snapshots[-1].id)) if len(snapshots) == 1 else None
    if lists_key in context.selected_asset_keys:
        yield from _compact_manifests(context, declaration, table, snapshots[-1])
        yield dg.MaterializeResult(asset_key=lists_key, data_version=version)
    if is_deep:
        yield dg.MaterializeResult(asset_key=snapshots_key, data_version=version)


def _verify(
    context: dg.AssetExecutionContext,
    table: lsm.Table,
    snapshot: Snapshot,
    config: InspectConfig,
    *,
    is_deep: bool,
) -> VerifyReport:
    if not is_deep:
        return table.verify(snapshot_id=snapshot.id)
    return scrub(context.resources.lsm, table, snapshot.id, incremental=not config.read_again)


def _add_page_metadata(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshot: Snapshot,
) -> None:
    """Add the contents of a snapshot and of its manifest lists to the metadata of their partitions."""
    keys, partition = declaration.keys, str(snapshot.id)
    lists_key, snapshots_key = keys.asset(AssetKind.MANIFEST_LISTS), keys.asset(AssetKind.SNAPSHOTS)
    if lists_key in context.selected_asset_keys:
        metadata = manifest_lists_metadata(keys, snapshot, manifest_counts(table, snapshot))
        context.add_asset_metadata(
            metadata | read_manifests_metadata(table, snapshot), lists_key, partition
        )
    if snapshots_key in context.selected_asset_keys:
        page = snapshot_page_metadata(table, keys, snapshot, run_id=run_id_from_snapshot(snapshot))
        context.add_asset_metadata(
            page | read_contents_metadata(table, snapshot), snapshots_key, partition
        )


def _compact_manifests(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshot: Snapshot,
) -> Iterator[dg.AssetMaterialization]:
    """Compact the manifests of the newest snapshot if they are many, and record that commit."""
    count = table.system("manifests").num_rows
    newest, least = table.latest_snapshot(), table.options[core_options.MANIFEST_MERGE_MIN_COUNT]
    # Older snapshots keep their manifests, as they are immutable.
    if newest is None or newest.id != snapshot.id or count < least:
        return
    user = f"dagster-{context.run.run_id}-{context.retry_number}"
    compacted = table.compact_manifest(dry_run=False, commit_user=user).snapshot
    if compacted is not None:
        context.log.info("compacted manifests table=%s from=%s", declaration.name, count)
        yield from record_commit(context, table, declaration.keys, compacted)


def _find_snapshot(
    declaration: TableDeclaration, table: lsm.Table | None, partition: str
) -> Snapshot:
    snapshot_id = parse_snapshot_partition(partition)
    if table is None or snapshot_id is None:
        raise dg.Failure(
            f"{declaration.name} has no snapshot {partition!r}: partitions are added by "
            "commits, not by hand",
            allow_retries=False,
        )
    try:
        return table.snapshot(snapshot_id)
    except NotFoundError as error:
        raise dg.Failure(
            f"snapshot {snapshot_id} of {declaration.name} cannot be read: {error}. Its history "
            "is kept; the sync sensor removes its partition",
            allow_retries=False,
        ) from error

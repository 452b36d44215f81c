"""Snapshots and manifest lists: already immutable, so materialising one reads and checks it again."""

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
from lsm_assets.ledger.details import contents_of, manifests_of
from lsm_assets.ledger.recording import dagster_run_of, recorded, snapshot_page
from lsm_assets.ledger.survey import manifest_counts
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import manifest_lists_metadata
from lsm_assets.model.partitions import parse_snapshot_partition, sorted_snapshot_partitions
from lsm_engine import NotFoundError, Snapshot, VerifyReport, core_options


class InspectConfig(dg.Config):
    """How much of a snapshot is read."""

    read_again: bool = Field(
        default=False,
        description="Read files again that an earlier run has found sound: damage by a disk leaves "
        "their time of change as it was",
    )


def inspect_snapshots(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, config: InspectConfig
) -> Iterator[Any]:
    """Read the snapshots of the run's partitions, record them in the lineage, and judge their files.

    Of `snapshots` every page of every file that has not been read before; of `manifest_lists` the
    manifests, which are then compacted where the newest snapshot has gathered too many. Raises
    dagster.Failure, once the check has recorded it, for a snapshot that is damaged.
    """
    keys = declaration.keys
    lists, whole = keys.asset(AssetKind.MANIFEST_LISTS), keys.asset(AssetKind.SNAPSHOTS)
    is_deep = whole in context.selected_asset_keys
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    snapshots = [
        _snapshot_of(declaration, table, key)
        for key in sorted_snapshot_partitions(context.partition_keys)
    ]
    assert table is not None, "a snapshot was found in it"
    context.resources.lsm.catalog.record_commits(declaration.name, [one.id for one in snapshots])
    for snapshot in snapshots:
        report = _look(context, table, snapshot, config, is_deep=is_deep)
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
        _show(context, declaration, table, snapshot)
    version = dg.DataVersion(str(snapshots[-1].id)) if len(snapshots) == 1 else None
    if lists in context.selected_asset_keys:
        yield from _compacted_manifests(context, declaration, table, snapshots[-1])
        yield dg.MaterializeResult(asset_key=lists, data_version=version)
    if is_deep:
        yield dg.MaterializeResult(asset_key=whole, data_version=version)


def _look(
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


def _show(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshot: Snapshot,
) -> None:
    """Put what a snapshot and its lists hold on the pages of their partitions."""
    keys, partition = declaration.keys, str(snapshot.id)
    lists, whole = keys.asset(AssetKind.MANIFEST_LISTS), keys.asset(AssetKind.SNAPSHOTS)
    if lists in context.selected_asset_keys:
        found = manifest_lists_metadata(keys, snapshot, manifest_counts(table, snapshot))
        context.add_asset_metadata(found | manifests_of(table, snapshot), lists, partition)
    if whole in context.selected_asset_keys:
        page = snapshot_page(table, keys, snapshot, run_id=dagster_run_of(snapshot))
        context.add_asset_metadata(page | contents_of(table, snapshot), whole, partition)


def _compacted_manifests(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshot: Snapshot,
) -> Iterator[dg.AssetMaterialization]:
    """Write the newest snapshot's manifests anew where they are many, and record that commit."""
    count = table.system("manifests").num_rows
    newest, least = table.latest_snapshot(), table.options[core_options.MANIFEST_MERGE_MIN_COUNT]
    if newest is None or newest.id != snapshot.id or count < least:
        return
    user = f"dagster-{context.run.run_id}-{context.retry_number}"
    made = table.compact_manifest(dry_run=False, commit_user=user).snapshot
    if made is not None:
        context.log.info("compacted manifests table=%s from=%s", declaration.name, count)
        yield from recorded(context, table, declaration.keys, made)


def _snapshot_of(
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

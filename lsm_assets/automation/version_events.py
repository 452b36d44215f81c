"""Events for data versions, of a table and of its asset's partitions, that other clients have changed."""

from typing import Any

import dagster as dg

import lsm_engine as lsm
from lsm_assets.ledger.asset_partitions import changed_versions_since, recorded_partitions
from lsm_assets.ledger.commits import EMPTY_VERSION, data_version, is_rolled_back
from lsm_assets.ledger.recording import (
    inherited_tags,
    recorded_version,
    table_event,
)
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.versions import TableVersion, parse_version, version_from_snapshot
from lsm_engine import Lineage


def version_events(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table | None,
    lineage: Lineage,
    state: dict[str, Any],
    common_id: int = 0,
) -> list[dg.AssetMaterialization]:
    """Return events for the data versions that Dagster has not recorded.

    Commits of other clients change versions, and so do a rollback, a fast-forward, a restore and a dropped or created
    table. Partitions get an event if a commit has changed their rows, or if their recorded commit was rolled back.

    Args:
        instance: Dagster instance.
        declaration: Declaration of the table.
        table: The table; None if it was dropped.
        lineage: Lineage of the catalog.
        state: State of the sensor's cursor: the last seen data version, and the commit at which it was seen.
        common_id: A snapshot that an earlier tick has seen and that was not rolled back; 0 if none is known.
    """
    seen_version, seen_commit = (
        parse_version(state.get(name, "")) for name in ("version", "looked")
    )
    newest = table.latest_snapshot() if table is not None else None
    last_look = (
        (seen_commit, seen_version)
        if seen_commit is not None and seen_version is not None
        else None
    )
    version = EMPTY_VERSION if table is None else data_version(table, lineage, last_look)
    state["version"] = version.text
    state["looked"] = EMPTY_VERSION.text if newest is None else version_from_snapshot(newest).text
    key = declaration.keys.asset(AssetKind.TABLE)
    recorded = recorded_version(instance, key) or EMPTY_VERSION
    if recorded.is_same(version) and seen_version == version:
        return []
    events: list[dg.AssetMaterialization] = []
    if not recorded.is_same(version):
        tags = inherited_tags(instance, declaration)
        events.append(table_event(declaration, table, version, tags=tags))
    # A snapshot after the last seen commit proves nothing about commits before it.
    common_id = common_id if seen_commit is not None and common_id <= seen_commit.snapshot_id else 0
    new_versions = _changed_partition_versions(
        instance, declaration, table, lineage, seen_version, version, common_id
    )
    for name, partition_version in sorted(new_versions.items()):
        tags = inherited_tags(instance, declaration, name)
        events.append(table_event(declaration, table, partition_version, partition=name, tags=tags))
    return events


def _changed_partition_versions(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table | None,
    lineage: Lineage,
    seen_version: TableVersion | None,
    version: TableVersion,
    common_id: int,
) -> dict[str, TableVersion]:
    recorded = recorded_partitions(instance, declaration)
    # Commits before a live commit are live, too: recorded versions up to `common_id` need no check.
    is_live = seen_version is not None and not is_rolled_back(table, lineage, seen_version)
    common_id = seen_version.snapshot_id if seen_version is not None and is_live else common_id
    rolled_back = {
        name: version
        for name, partition_version in recorded.items()
        if partition_version.snapshot_id > common_id
        and is_rolled_back(table, lineage, partition_version)
    }
    if table is None:
        return rolled_back
    remaining = {
        name: partition_version
        for name, partition_version in recorded.items()
        if name not in rolled_back
    }
    start = common_id or min(
        (partition_version.snapshot_id for partition_version in remaining.values()), default=0
    )
    return (
        changed_versions_since(instance, declaration, table, lineage, remaining, start)
        | rolled_back
    )

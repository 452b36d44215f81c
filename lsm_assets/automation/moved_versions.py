"""Data versions that something outside of Dagster has moved: of a table, and of its asset's partitions."""

from typing import Any

import dagster as dg

import lsm_engine as lsm
from lsm_assets.ledger.asset_partitions import moved_since, recorded_partitions
from lsm_assets.ledger.commits import NOTHING, data_version, is_taken_back
from lsm_assets.ledger.recording import (
    inherited_tags,
    recorded_version,
    table_event,
)
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.versions import TableVersion, parse_version, version_from_snapshot
from lsm_engine import Lineage


def moved_versions(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table | None,
    lineage: Lineage,
    state: dict[str, Any],
    kept: int = 0,
) -> list[dg.AssetMaterialization]:
    """Return the table's data version, if something outside Dagster has moved it.

    Commits do, and so do a rollback, a fast-forward, a restore and a table dropped or created anew. Of
    a partitioned asset those partitions move whose rows a commit has changed, and those whose
    recorded commit is no longer part of the table. `state` remembers the version that was seen, and the
    commit up to which it was looked for. `kept`: a commit that was there before, and still is.
    """
    seen, looked = (parse_version(state.get(name, "")) for name in ("version", "looked"))
    newest = table.latest_snapshot() if table is not None else None
    since = (looked, seen) if looked is not None and seen is not None else None
    version = NOTHING if table is None else data_version(table, lineage, since)
    state["version"] = version.text
    state["looked"] = NOTHING.text if newest is None else version_from_snapshot(newest).text
    key = declaration.keys.asset(AssetKind.TABLE)
    recorded = recorded_version(instance, key) or NOTHING
    if recorded.is_same(version) and seen == version:
        return []
    events: list[dg.AssetMaterialization] = []
    if not recorded.is_same(version):
        tags = inherited_tags(instance, declaration)
        events.append(table_event(declaration, table, version, tags=tags))
    kept = kept if looked is not None and kept <= looked.snapshot_id else 0
    moved = _moved_partitions(instance, declaration, table, lineage, seen, version, kept)
    for name, of_partition in sorted(moved.items()):
        tags = inherited_tags(instance, declaration, name)
        events.append(table_event(declaration, table, of_partition, partition=name, tags=tags))
    return events


def _moved_partitions(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table | None,
    lineage: Lineage,
    seen: TableVersion | None,
    version: TableVersion,
    kept: int,
) -> dict[str, TableVersion]:
    known = recorded_partitions(instance, declaration)
    # What came before a commit that is still part of the table is part of it as well.
    is_whole = seen is not None and not is_taken_back(table, lineage, seen)
    kept = seen.snapshot_id if seen is not None and is_whole else kept
    moved = {
        name: version
        for name, of_partition in known.items()
        if of_partition.snapshot_id > kept and is_taken_back(table, lineage, of_partition)
    }
    if table is None:
        return moved
    left = {name: each for name, each in known.items() if name not in moved}
    start = kept or min((each.snapshot_id for each in left.values()), default=0)
    return moved_since(instance, declaration, table, lineage, left, start) | moved

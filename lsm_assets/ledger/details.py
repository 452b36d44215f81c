"""Look inside a table for what its pages show, where that costs little enough to do on every commit."""

from typing import Any

import lsm_engine as lsm
from lsm_assets.model import details
from lsm_assets.model.calendars import tag_calendar, tag_table
from lsm_assets.model.keys import AssetKind, TableKeys, asset_link
from lsm_assets.model.metadata import Metadata, level_table
from lsm_assets.model.tree import count_tree
from lsm_engine import LsmError, Snapshot

FILES_MAX = 20_000
"""Files of a snapshot up to which its state is read to show what changed."""

SNAPSHOTS_MAX = 100
"""Snapshots up to which expiry is simulated on every commit: each one's delta is read."""


def read_changes_metadata(table: lsm.Table, snapshot: Snapshot) -> Metadata:
    """Return what a snapshot changed since the one before it; nothing where that is too large to read."""
    manifests = _read_manifests(table, snapshot)
    files = sum(row["num_added_files"] - row["num_deleted_files"] for row in manifests)
    if files > FILES_MAX:
        return {}
    before = snapshot.id - 1 if snapshot.id > 1 else None
    try:
        return details.diff_metadata(table.diff_snapshots(before, snapshot.id))
    except LsmError:
        return {}  # the one before has expired, or this one is about to


def read_manifests_metadata(table: lsm.Table, snapshot: Snapshot) -> Metadata:
    """Return the manifests of a snapshot with the statistics that readers prune them by."""
    return details.manifests_metadata(_read_manifests(table, snapshot))


def _read_manifests(table: lsm.Table, snapshot: Snapshot) -> list[dict[str, Any]]:
    rows = table.system("manifests", snapshot.id).to_pylist()
    lists = table.system("manifest_lists", snapshot.id).to_pylist()
    kinds = [
        manifest_list["kind"]
        for manifest_list in lists
        for _ in range(manifest_list["manifest_count"])
    ]
    return [{**row, "list": kind} for row, kind in zip(rows, kinds, strict=False)]


def read_maintenance_metadata(table: lsm.Table) -> Metadata:
    """Return what expiry takes next, and the branches; nothing for what cannot be looked at."""
    metadata: Metadata = {}
    try:
        if len(table.snapshot_ids()) <= SNAPSHOTS_MAX:
            metadata |= details.retention_metadata(table.simulate_retention())
        metadata |= details.branches_metadata(
            [(name, _newest_id(table.branch(name))) for name in table.branches()]
        )
    except LsmError:
        return metadata
    return metadata


def _newest_id(branch: lsm.Table) -> int | None:
    newest = branch.latest_snapshot()
    return None if newest is None else newest.id


def read_calendar_metadata(table: lsm.Table, keys: TableKeys) -> Metadata:
    """Return the calendar of a table's tags, and all of them with their days."""
    tags = table.tags()
    if not tags:
        return {}
    link = asset_link(keys.asset(AssetKind.SNAPSHOTS)) + "?view=partitions&partition={}"
    return details.calendar_metadata(tag_calendar(tags), tag_table(tags, link))


def read_contents_metadata(table: lsm.Table, snapshot: Snapshot) -> Metadata:
    """Return what a snapshot contains, level by level, and its partitions; reads its whole state."""
    levels = level_table(count_tree(table.tree(snapshot)).levels)
    rows = table.system("partitions", snapshot.id).to_pylist()
    return details.contents_metadata(levels, rows if table.schema.partition_keys else [])

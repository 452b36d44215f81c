"""Read details of a table for the pages of its assets, unless reading costs too much for every commit."""

from typing import Any

import lsm_engine as lsm
from lsm_assets.model import details
from lsm_assets.model.calendars import tag_calendar, tag_table
from lsm_assets.model.keys import AssetKind, TableKeys, asset_link
from lsm_assets.model.metadata import Metadata, level_table
from lsm_assets.model.tree import count_tree
from lsm_engine import LsmError, Snapshot

FILES_MAX = 20_000
"""Files of a snapshot up to which its change is read."""

SNAPSHOTS_MAX = 100
"""Snapshots up to which expiry is simulated on every commit. A simulation reads the delta of each snapshot."""


def read_changes_metadata(table: lsm.Table, snapshot: Snapshot) -> Metadata:
    """Return the files that a snapshot added and removed; empty for more than FILES_MAX files."""
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
    """Return the manifests of a snapshot with the statistics that scans prune them by."""
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
    """Return the snapshots that expire next, and the branches; parts that cannot be read are left out."""
    metadata: Metadata = {}
    try:
        if len(table.snapshot_ids()) <= SNAPSHOTS_MAX:
            metadata |= details.retention_metadata(table.simulate_retention())
        metadata |= details.branches_metadata(
            [(name, _newest_id(table.branch(name))) for name in table.branches()]
        )
    except LsmError:
        # A damaged branch or tag must not fail the commit whose page this is.
        return metadata
    return metadata


def _newest_id(branch: lsm.Table) -> int | None:
    newest = branch.latest_snapshot()
    return None if newest is None else newest.id


def read_calendar_metadata(table: lsm.Table, keys: TableKeys) -> Metadata:
    """Return the calendar and the list of a table's tags."""
    tags = table.tags()
    if not tags:
        return {}
    link = asset_link(keys.asset(AssetKind.SNAPSHOTS)) + "?view=partitions&partition={}"
    return details.calendar_metadata(tag_calendar(tags), tag_table(tags, link))


def read_contents_metadata(table: lsm.Table, snapshot: Snapshot) -> Metadata:
    """Return the levels and the partitions of a snapshot. Reads all of its manifests."""
    levels = level_table(count_tree(table.tree(snapshot)).levels)
    rows = table.system("partitions", snapshot.id).to_pylist()
    return details.contents_metadata(levels, rows if table.schema.partition_keys else [])

"""Metadata with details of a table: files that a snapshot changed, manifests, retention, branches, tags."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from lsm_assets.model.markdown import markdown_table
from lsm_assets.model.metadata import Metadata, lineage_url
from lsm_engine import RetentionSimulation, SnapshotDiff, format_bytes
from lsm_engine import snapshot_ranges as ranges

MANIFESTS_MAX = 100
PINS_SHOWN = 10

_MANIFEST_COLUMNS = (
    "list", "manifest", "size", "added", "deleted", "partitions", "buckets", "levels",
)  # fmt: skip
_NAME_ENDS = 17, 5
"""First and last characters of a manifest's name that are shown: names of one commit differ in the last ones."""


def diff_metadata(diff: SnapshotDiff) -> Metadata:
    """Return the files that were added and removed between two snapshots, by level."""
    rows = [
        (f"L{level}", added, removed, _signed(size))
        for level, added, removed, size in diff.by_level()
    ]
    if diff.moved.num_rows:
        rows.append(("moved", diff.moved.num_rows, 0, ""))
    partitions = [name for name in diff.partitions() if name]
    metadata: Metadata = {
        "lsm/changed": dg.MetadataValue.md(
            markdown_table(["level", "files added", "files removed", "size"], rows)
        ),
        "lsm/changed_since": dg.MetadataValue.text(
            f"snapshot {diff.first_id}" if diff.first_id else "the beginning"
        ),
    }
    if partitions:
        shown = ", ".join(partitions[:5]) + (
            f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
        )
        metadata["lsm/partitions_changed"] = dg.MetadataValue.text(shown)
    return metadata


def manifests_metadata(manifests: Sequence[Mapping[str, Any]]) -> Metadata:
    """Return the first `MANIFESTS_MAX` manifests of a snapshot with the statistics that scans prune them by."""
    records = [dg.TableRecord(_manifest_row(row)) for row in manifests[:MANIFESTS_MAX]]
    if not records:
        return {}
    columns = [dg.TableColumn(name=name) for name in _MANIFEST_COLUMNS]
    return {
        "lsm/manifest_table": dg.MetadataValue.table(
            records=records, schema=dg.TableSchema(columns=columns)
        )
    }


def _manifest_row(row: Mapping[str, Any]) -> dict[str, str | int]:
    name = str(row["file_name"])
    head, tail = _NAME_ENDS
    short = name if len(name) <= head + tail else f"{name[:head]}…{name[-tail:]}"
    return {
        "list": row["list"],
        "manifest": short,
        "size": format_bytes(row["file_size"]),
        "added": row["num_added_files"],
        "deleted": row["num_deleted_files"],
        "partitions": _span(
            _values(row["min_partition_stats"]), _values(row["max_partition_stats"])
        ),
        "buckets": _span(row["min_bucket"], row["max_bucket"]),
        "levels": _span(row["min_level"], row["max_level"]),
    }


def _span(low: object, high: object) -> str:
    if low is None or low == "":
        return ""
    return f"{low}" if low == high else f"{low} … {high}"


def _values(stats: str | None) -> str:
    """Return {"month": 1} as "month=1"."""
    return ", ".join(f"{name}={value}" for name, value in json.loads(stats or "{}").items())


def retention_metadata(simulated: RetentionSimulation) -> Metadata:
    """Return the snapshots that the next expiry will delete, and the references that retain others."""
    expired = ranges(simulated.expired)
    rows = [
        (pin.name, pin.file_count, format_bytes(pin.size_bytes), format_bytes(pin.only_size_bytes))
        for pin in simulated.pins[:PINS_SHOWN]
    ]
    metadata: Metadata = {
        "lsm/expires_next": dg.MetadataValue.text(
            f"snapshots {expired}: {simulated.freed_file_count} files, {format_bytes(simulated.freed_bytes)}"
            if expired
            else "nothing"
        ),
        "lsm/expires_why": dg.MetadataValue.text(simulated.plan.reason),
        "lsm/readable": dg.MetadataValue.text(f"snapshots {ranges(simulated.readable) or 'none'}"),
    }
    if rows:
        headings = ["kept by", "files", "size", "alone"]
        metadata["lsm/pins"] = dg.MetadataValue.md(markdown_table(headings, rows))
    return metadata


def branches_metadata(branches: Sequence[tuple[str, int | None]]) -> Metadata:
    """Return the branches of a table with their newest snapshots; empty without branches."""
    if not branches:
        return {}
    rows = [(name, "empty" if newest is None else str(newest)) for name, newest in branches]
    table = markdown_table(["branch", "newest snapshot"], rows)
    return {"lsm/branches": dg.MetadataValue.md(table)}


def lineage_link(page_url: str, table: str, snapshot_id: int) -> Metadata:
    """Return the link to a snapshot on the lineage page."""
    return {"lsm/lineage": dg.MetadataValue.url(lineage_url(page_url, table, snapshot_id))}


def _signed(size_bytes: int) -> str:
    return f"{'-' if size_bytes < 0 else '+'}{format_bytes(abs(size_bytes))}"


def calendar_metadata(picture: str, table: str) -> Metadata:
    """Return the calendar and the table of a table's tags, both Markdown."""
    return {
        "lsm/calendar": dg.MetadataValue.md(picture),
        "lsm/tags": dg.MetadataValue.md(table),
    }


def contents_metadata(levels: str, partitions: Sequence[Mapping[str, Any]]) -> Metadata:
    """Return the levels of a snapshot (Markdown) and its partitions (rows of the system table `partitions`)."""
    metadata: Metadata = {"lsm/contains": dg.MetadataValue.md(levels)}
    if partitions:
        rows = [
            (
                partition["partition"],
                partition["file_count"],
                partition["record_count"],
                format_bytes(partition["file_size_in_bytes"]),
            )
            for partition in partitions
        ]
        table = markdown_table(["partition", "files", "rows", "size"], rows)
        metadata["lsm/partitions"] = dg.MetadataValue.md(table)
    return metadata

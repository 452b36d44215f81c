"""Metadata that shows what is inside: a snapshot's change, its manifests, what expiry takes next."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from lsm_assets.model import pictures
from lsm_assets.model.metadata import Metadata, lineage_url
from lsm_engine import RetentionSimulation, SnapshotDiff, format_bytes
from lsm_engine import snapshot_ranges as ranges

MANIFESTS_MAX = 100
PINS_SHOWN = 10

_MANIFEST_COLUMNS = (
    "list", "manifest", "size", "added", "deleted", "partitions", "buckets", "levels",
)  # fmt: skip
_NAME_ENDS = 17, 5
"""Characters that are shown of a manifest's name: those of one commit differ in the last ones."""


def diff_metadata(diff: SnapshotDiff) -> Metadata:
    """What changed from one snapshot to another, level by level."""
    rows = [
        (f"L{level}", added, removed, _signed(size))
        for level, added, removed, size in diff.by_level()
    ]
    if diff.moved.num_rows:
        rows.append(("moved", diff.moved.num_rows, 0, ""))
    partitions = [name for name in diff.partitions() if name]
    found: Metadata = {
        "lsm/changed": dg.MetadataValue.md(
            pictures.markdown_table(["level", "files added", "files removed", "size"], rows)
        ),
        "lsm/changed_since": dg.MetadataValue.text(
            f"snapshot {diff.first_id}" if diff.first_id else "the beginning"
        ),
    }
    if partitions:
        shown = ", ".join(partitions[:5]) + (
            f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
        )
        found["lsm/partitions_changed"] = dg.MetadataValue.text(shown)
    return found


def manifests_metadata(manifests: Sequence[Mapping[str, Any]]) -> Metadata:
    """The manifests of a snapshot, and the statistics that a reader prunes them by."""
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
    """What expiry will take next under the table's own options, and what keeps the rest."""
    gone = ranges(simulated.expired)
    rows = [
        (pin.name, pin.file_count, format_bytes(pin.size_bytes), format_bytes(pin.only_size_bytes))
        for pin in simulated.pins[:PINS_SHOWN]
    ]
    found: Metadata = {
        "lsm/expires_next": dg.MetadataValue.text(
            f"snapshots {gone}: {simulated.freed_file_count} files, {format_bytes(simulated.freed_bytes)}"
            if gone
            else "nothing"
        ),
        "lsm/expires_why": dg.MetadataValue.text(simulated.plan.reason),
        "lsm/readable": dg.MetadataValue.text(f"snapshots {ranges(simulated.readable) or 'none'}"),
    }
    if rows:
        headings = ["kept by", "files", "size", "alone"]
        found["lsm/pins"] = dg.MetadataValue.md(pictures.markdown_table(headings, rows))
    return found


def branches_metadata(branches: Sequence[tuple[str, int | None]]) -> Metadata:
    """The branches of a table and their newest snapshots; nothing where there are none."""
    if not branches:
        return {}
    rows = [(name, "empty" if newest is None else str(newest)) for name, newest in branches]
    table = pictures.markdown_table(["branch", "newest snapshot"], rows)
    return {"lsm/branches": dg.MetadataValue.md(table)}


def lineage_link(page_url: str, table: str, snapshot_id: int) -> Metadata:
    """The way to a snapshot on the lineage page."""
    return {"lsm/lineage": dg.MetadataValue.url(lineage_url(page_url, table, snapshot_id))}


def _signed(size_bytes: int) -> str:
    return f"{'-' if size_bytes < 0 else '+'}{format_bytes(abs(size_bytes))}"


def calendar_metadata(picture: str, table: str) -> Metadata:
    """A calendar of tags and their list, both Markdown."""
    return {
        "lsm/calendar": dg.MetadataValue.md(picture),
        "lsm/tags": dg.MetadataValue.md(table),
    }


def contents_metadata(levels: str, partitions: Sequence[Mapping[str, Any]]) -> Metadata:
    """What a snapshot contains: its levels as Markdown, and its partitions."""
    found: Metadata = {"lsm/contains": dg.MetadataValue.md(levels)}
    if partitions:
        rows = [
            (
                each["partition"],
                each["file_count"],
                each["record_count"],
                format_bytes(each["file_size_in_bytes"]),
            )
            for each in partitions
        ]
        table = pictures.markdown_table(["partition", "files", "rows", "size"], rows)
        found["lsm/partitions"] = dg.MetadataValue.md(table)
    return found

"""The lineage as one self-contained page of HTML: a graph to search, zoom and follow."""

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import pyarrow as pa

from lsm_engine.catalog.lineage.tables import LineageTables
from lsm_engine.catalog.names import TableName

SNAPSHOTS_MAX = 300
"""Snapshots of a table that a page shows, the newest; a browser draws a few thousand well."""

_LABEL = "lsm.label"
_TEMPLATE = "pages/lineage.html"
_PLACE = "{{facts}}"


def lineage_page(
    lineage: LineageTables,
    tables: Iterable[TableName] | None = None,
    *,
    served: bool = False,
    at: int | None = None,
    has_dagster: bool = False,
) -> str:
    """Return the page for some tables, or all; `#shop.orders/12` opens it at a snapshot.

    `#shop.orders/file/<name>` opens it at a data file. `served`: by `lsm ui`, to whose pages it then links,
    those that lead on to Dagster if `has_dagster`; each table then has the line of its whole history.
    `at`: the snapshots about that one, in place of the newest.
    """
    # One sync serves all questions: of the only table, else of every table.
    chosen = [] if tables is None else list(tables)
    recorded = lineage.synced(chosen[0] if len(chosen) == 1 else None)
    names = recorded.tables() if tables is None else chosen
    tables_ = [_table(recorded, name, at, with_line=served) for name in names]
    facts = {"tables": tables_, "served": served, "dagster": has_dagster}
    template = resources.files("lsm_engine.catalog").joinpath(_TEMPLATE).read_text("utf-8")
    # Inside of a script element only "<" could end it, or begin a comment.
    text = json.dumps(facts, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    return template.replace(_PLACE, text)


def _table(
    lineage: LineageTables,
    name: TableName,
    at: int | None,
    *,
    with_line: bool,
) -> dict[str, Any]:
    last = None if at is None else at + SNAPSHOTS_MAX // 2
    history = lineage.snapshots(name, limit=SNAPSHOTS_MAX + 1, upto=last)
    shown = history.slice(0, SNAPSHOTS_MAX).to_pylist()
    ids = [row["snapshot_id"] for row in shown]
    span = {"since": min(ids, default=0), "upto": max(ids, default=0)}
    inputs = _grouped(lineage.inputs_of_table(name, **span))
    columns = _grouped(lineage.column_inputs_of_table(name, **span))
    manifests = _grouped(lineage.manifests_of_table(name, **span))
    return {
        "name": name.text,
        "cut": history.num_rows > SNAPSHOTS_MAX,
        "line": lineage.stretches_of_table(name).to_pylist() if with_line else [],
        "snapshots": [
            _snapshot(
                row,
                inputs.get(row["snapshot_id"], []),
                columns.get(row["snapshot_id"], []),
                manifests.get(row["snapshot_id"], []),
            )
            for row in shown
        ],
        "tags": [
            {"name": row["tag_name"], "snapshot": row["snapshot_id"], "deleted": row["deleted"]}
            for row in lineage.tags(name, with_deleted=True).to_pylist()
        ],
        "files": _files(lineage.files_of_table(name, **span)),
        "edges": [
            {"source": row["source_name"], "target": row["target_name"]}
            for row in lineage.edges_of_table(name, **span).to_pylist()
        ],
    }


def _grouped(rows: pa.Table) -> dict[int, list[dict[str, Any]]]:
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        groups.setdefault(row["snapshot_id"], []).append(row)
    return groups


def _snapshot(
    row: Mapping[str, Any],
    inputs: list[dict[str, Any]],
    columns: list[dict[str, Any]],
    manifests: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "id": row["snapshot_id"],
        "label": _label(row["properties"]),
        "kind": row["commit_kind"],
        "time": row["time_millis"],
        "state": row["state"],
        "run": row["run_id"],
        "asset": row["asset_key"] or None,
        "engine": row["engine"],
        "dagster": row["dagster_run_id"],
        "user": row["user_name"],
        "rows": row["total_record_count"],
        "delta": row["delta_record_count"],
        "added": row["files_added"],
        "deleted": row["files_deleted"],
        "bytes": row["bytes_added"],
        "inputs": [
            {
                "dataset": record["dataset"],
                "snapshot": record["input_snapshot_id"],
                "after": record["after_snapshot_id"],
                "version": record["input_version"],
                "role": record["role"],
            }
            for record in inputs
        ],
        "columns": [
            [record["column_name"], record["dataset"], record["input_column"]] for record in columns
        ],
        "manifests": [
            {
                "kind": record["kind"],
                "list": record["manifest_list"],
                "file": record["file_name"],
                "size": record["file_size"],
                "added": record["added_file_count"],
                "deleted": record["deleted_file_count"],
            }
            for record in manifests
        ],
    }


def _label(properties: str | None) -> str | None:
    members = json.loads(properties) if properties else {}
    return members.get(_LABEL) if isinstance(members, dict) else None


def _files(rows: pa.Table) -> dict[str, dict[str, Any]]:
    files: dict[str, dict[str, Any]] = {}
    for row in rows.to_pylist():
        file = files.setdefault(
            row["file_name"],
            {
                "name": row["file_name"],
                "partition": row["partition_path"],
                "bucket": row["bucket"],
                "rows": row["row_count"],
                "size": row["file_size"],
                "content": row["content"],
                "removed": row["removed"],
                "stages": [],
            },
        )
        file["stages"].append(
            {"level": row["level"], "added": row["added_by"], "deleted": row["deleted_by"]}
        )
    for file in files.values():
        file["stages"].sort(key=lambda stage: (stage["added"] or 0, stage["level"]))
    return files

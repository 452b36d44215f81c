"""Export of the lineage as OpenLineage run events, one per commit.

Identifiers follow from the recorded facts: an event emitted twice names the same run.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lsm_engine.catalog.lineage.tables import LineageTables
from lsm_engine.catalog.names import TableName

NAMESPACE = "lsm"
PRODUCER = "urn:lsm-engine:lineage"
_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = {
    "version": "1-0-1/DatasetVersionDatasetFacet",
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "parent": "1-2-0/ParentRunFacet",
}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Event = dict[str, Any]


def run_events(
    lineage: LineageTables, table: TableName | None = None, *, namespace: str = NAMESPACE
) -> Iterator[Event]:
    """Yield a COMPLETE event per commit of a table, or of all, oldest first per table.

    Datasets are the tables, versions their snapshot ids; a commit's run has what the lineage calls
    a run as its parent. `namespace` stands before the names of jobs and datasets.
    """
    recorded = lineage.synced(table)
    for name in [table] if table is not None else recorded.tables():
        inputs = _by_snapshot(recorded.inputs_of_table(name))
        columns = _by_snapshot(recorded.column_inputs_of_table(name))
        for commit in reversed(recorded.snapshots(name).to_pylist()):
            snapshot_id = commit["snapshot_id"]
            yield _event(name, commit, inputs[snapshot_id], columns[snapshot_id], namespace)


def _by_snapshot(rows: pa.Table) -> dict[int, list[Event]]:
    groups: dict[int, list[Event]] = defaultdict(list)
    for row in rows.to_pylist():
        groups[row["snapshot_id"]].append(row)
    return groups


def _event(
    name: TableName,
    commit: Mapping[str, Any],
    inputs: list[Event],
    columns: list[Event],
    namespace: str,
) -> Event:
    snapshot_id = commit["snapshot_id"]
    output: Event = {
        "namespace": namespace,
        "name": name.text,
        "facets": {"version": _facet("version", datasetVersion=str(snapshot_id))},
        "outputFacets": {"outputStatistics": _statistics(commit)},
    }
    if columns:
        output["facets"]["columnLineage"] = _column_lineage(columns, namespace)
    return {
        "eventType": "COMPLETE",
        "eventTime": _time(commit["time_millis"]),
        "producer": PRODUCER,
        "schemaURL": _EVENT,
        "run": {
            "runId": _uuid(f"{name.text}/{snapshot_id}/{commit['time_millis']}/{commit['run_id']}"),
            "facets": {"parent": _parent(commit, namespace)},
        },
        "job": {"namespace": namespace, "name": _job(name, commit), "facets": {}},
        "inputs": [_input(row, namespace) for row in inputs],
        "outputs": [output],
    }


def _job(name: TableName, commit: Mapping[str, Any]) -> str:
    kind = commit["run_kind"] or commit["commit_kind"].lower()
    return f"{commit['asset_key'] or name.text}.{kind}"


def _parent(commit: Mapping[str, Any], namespace: str) -> Event:
    run = commit["dagster_run_id"] or commit["run_id"]
    run_id = run if _UUID.fullmatch(run) else _uuid(run)
    job = commit["asset_key"] or commit["engine"] or "unknown"
    return _facet("parent", run={"runId": run_id}, job={"namespace": namespace, "name": job})


def _input(row: Mapping[str, Any], namespace: str) -> Event:
    version = row["input_snapshot_id"] if row["input_version"] is None else row["input_version"]
    facets = {} if version is None else {"version": _facet("version", datasetVersion=str(version))}
    return {"namespace": namespace, "name": row["dataset"], "facets": facets}


def _statistics(commit: Mapping[str, Any]) -> Event:
    counts = {
        "rowCount": commit["delta_record_count"],
        "size": commit["bytes_added"],
        "fileCount": commit["files_added"],
    }
    # A commit may delete more rows than it adds; the format has no negative counts.
    statistics = {key: count for key, count in counts.items() if count is not None and count >= 0}
    return _facet("outputStatistics", **statistics)


def _column_lineage(columns: list[Event], namespace: str) -> Event:
    fields: dict[str, Any] = {}
    for row in columns:
        field = fields.setdefault(row["column_name"], {"inputFields": []})
        field["inputFields"].append(
            {"namespace": namespace, "name": row["dataset"], "field": row["input_column"]}
        )
    return _facet("columnLineage", fields=fields)


def _facet(kind: str, **members: Any) -> Event:
    path = _FACETS[kind]
    name = path.rpartition("/")[2]
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{_SPEC}/facets/{path}.json#/$defs/{name}",
        **members,
    }


def _time(millis: int) -> str:
    moment = datetime.fromtimestamp(millis / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _uuid(text: str) -> str:
    """Return the UUID of a text (version 8: of the producer's own making)."""
    digits = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"

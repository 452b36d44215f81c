"""Metadata of each kind of asset: Dagster's standard keys `dagster/…`, and our own keys `lsm/…`.

Ids are text or links, because the UI plots every number over time. Markdown that the UI shall show inline is shorter
than `markdown.INLINE_CHARACTERS_MAX` characters.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import dagster as dg
import pyarrow as pa

from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind, TableKeys, asset_link, run_link
from lsm_assets.model.markdown import markdown_table, sparkline, tree_image
from lsm_assets.model.partitions import snapshot_partition
from lsm_assets.model.tree import LevelFacts, TreeFacts
from lsm_assets.settings import served_lineage
from lsm_engine import (
    Amplification,
    RowCounts,
    Snapshot,
    TableSchema,
    Tag,
    compaction_metrics_of,
    format_bytes,
    row_counts_of,
)

STORAGE_KIND = "paimon"
LABEL_PROPERTY = "lsm.label"
"""The snapshot property with a short description of a commit."""

REASON_TAG = "lsm/reason"
"""The run tag with the reason for a compaction."""

Metadata = dict[str, dg.MetadataValue]


def column_schema(schema: pa.Schema, primary_key: Sequence[str] = ()) -> dg.TableSchema:
    """Return an Arrow schema as Dagster's table schema. Primary key columns are not nullable."""
    columns = [
        dg.TableColumn(
            name=field.name,
            type=str(field.type),
            description=_field_comment(field),
            constraints=dg.TableColumnConstraints(
                nullable=field.nullable and field.name not in primary_key,
                other=["primary key"] if field.name in primary_key else [],
            ),
        )
        for field in schema
    ]
    return dg.TableSchema(columns=columns)


def schema_with_comments(schema: TableSchema) -> pa.Schema:
    """Return the columns of a table as an Arrow schema, with comments in the metadata of fields."""
    fields = [
        field.with_metadata({"comment": stored.description}) if stored.description else field
        for field, stored in zip(schema.arrow, schema.fields, strict=True)
    ]
    return pa.schema(fields)


def _field_comment(field: pa.Field) -> str | None:
    for key in (b"comment", b"description"):
        if field.metadata and key in field.metadata:
            return str(field.metadata[key].decode(errors="replace"))
    return None


def declaration_metadata(declaration: TableDeclaration) -> Metadata:
    """Return definition metadata of a table asset."""
    metadata: Metadata = {
        "dagster/table_name": dg.MetadataValue.text(declaration.name),
        "dagster/storage_kind": dg.MetadataValue.text(STORAGE_KIND),
        "dagster/column_schema": dg.MetadataValue.table_schema(
            column_schema(declaration.schema, declaration.primary_key)
        ),
        "lsm/primary_key": dg.MetadataValue.text(", ".join(declaration.primary_key)),
    }
    if declaration.partitioned_by:
        partitioned_by = ", ".join(declaration.partitioned_by)
        metadata["lsm/partitioned_by"] = dg.MetadataValue.text(partitioned_by)
    if declaration.partition_columns:
        columns = dict(declaration.partition_columns)
        metadata["lsm/partition_columns"] = dg.MetadataValue.json(columns)
    if declaration.options:
        options = sorted(declaration.options.items())
        metadata["lsm/options"] = dg.MetadataValue.md(markdown_table(["option", "value"], options))
    if declaration.column_lineage:
        metadata |= lineage_metadata(declaration)
    return metadata


def lineage_metadata(declaration: TableDeclaration) -> Metadata:
    """Return column lineage for tools that read Dagster's key, and as a table, which the open-source UI shows."""
    lineage = declaration.column_lineage
    rows = [
        (column, ", ".join(f"{key.to_user_string()}.{name}" for key, name in sources))
        for column, sources in lineage.items()
    ]
    return {
        "dagster/column_lineage": dg.MetadataValue.column_lineage(
            dg.TableColumnLineage(
                {
                    column: [
                        dg.TableColumnDep(asset_key=key, column_name=name) for key, name in sources
                    ]
                    for column, sources in lineage.items()
                }
            )
        ),
        "lsm/column_lineage": dg.MetadataValue.md(
            markdown_table(["column", "computed from"], rows)
        ),
    }


def table_metadata(
    keys: TableKeys,
    snapshot: Snapshot,
    *,
    schema: pa.Schema,
    primary_key: Sequence[str],
    location: str,
    row_count: int | None,
    commits: Sequence[Snapshot] = (),
    inputs: str = "",
) -> Metadata:
    """Return metadata of a table's materialisation.

    Args:
        keys: Names of the table.
        snapshot: The newest snapshot.
        schema: Columns of the table.
        primary_key: Primary key columns.
        location: Location of the table.
        row_count: Number of rows that readers see; None if they were not counted.
        commits: Snapshots that the run committed.
        inputs: Markdown list of the snapshots that the run read.
    """
    metadata: Metadata = {
        "dagster/table_name": dg.MetadataValue.text(keys.name),
        "dagster/storage_kind": dg.MetadataValue.text(STORAGE_KIND),
        "dagster/uri": dg.MetadataValue.text(location),
        "dagster/column_schema": dg.MetadataValue.table_schema(column_schema(schema, primary_key)),
        "lsm/snapshot": dg.MetadataValue.md(snapshot_links(keys, snapshot.id)),
    }
    if row_count is not None:
        metadata["dagster/row_count"] = dg.MetadataValue.int(row_count)
    if commits:
        rows = [
            (snapshot_link(keys, commit.id), commit_label(commit), commit.delta_record_count or 0)
            for commit in commits
        ]
        metadata["lsm/commits"] = dg.MetadataValue.md(
            markdown_table(["snapshot", "what", "rows"], rows)
        )
        metadata |= row_counts_metadata(commits)
    if inputs:
        metadata["lsm/inputs"] = dg.MetadataValue.md(inputs)
    return metadata


def files_metadata(
    keys: TableKeys,
    snapshot: Snapshot,
    tree: TreeFacts,
    *,
    level_count: int,
    history: Sequence[Snapshot] = (),
) -> Metadata:
    """Return the metrics of a table's files after a commit. The image shows the bucket with most sorted runs."""
    metadata: Metadata = {}
    if tree.buckets:
        deepest = tree.buckets[0]
        metadata["lsm/tree"] = dg.MetadataValue.md(
            tree_image(deepest.levels, level_count=level_count)
        )
        metadata["lsm/tree_of"] = dg.MetadataValue.text(
            f"{deepest.label}, {deepest.runs} sorted runs"
        )
    metadata |= {
        "lsm/levels": dg.MetadataValue.md(level_table(tree.levels)),
        "lsm/snapshot": dg.MetadataValue.md(snapshot_links(keys, snapshot.id)),
        "lsm/sorted_runs_max": dg.MetadataValue.int(tree.runs_max),
        "lsm/files": dg.MetadataValue.int(tree.files),
        "lsm/bytes": dg.MetadataValue.int(tree.bytes),
        "lsm/buckets": dg.MetadataValue.int(len(tree.buckets)),
    }
    metadata |= background_metadata(history)
    totals = [commit.total_record_count or 0 for commit in history]
    if len(totals) > 1:
        metadata["lsm/records_history"] = dg.MetadataValue.md(
            sparkline(totals, label="records in files")
        )
    return metadata


def level_table(levels: Iterable[LevelFacts]) -> str:
    """Return a Markdown table of levels."""
    rows = [
        (f"L{level.level}", level.runs, level.files, level.rows, format_bytes(level.bytes))
        for level in levels
    ]
    return markdown_table(["level", "runs", "files", "rows", "size"], rows)


def snapshot_metadata(
    keys: TableKeys, snapshot: Snapshot, *, run_id: str | None = None
) -> Metadata:
    """Return metadata of a snapshot, with links to its manifest lists, table, files, run and predecessor."""
    partition = snapshot_partition(snapshot.id)
    links = [
        ("manifest lists", asset_link(keys.asset(AssetKind.MANIFEST_LISTS), partition)),
        ("table", asset_link(keys.asset(AssetKind.TABLE))),
        ("files", asset_link(keys.asset(AssetKind.FILES))),
    ]
    if run_id:
        links.append(("run", run_link(run_id)))
    if snapshot.id > 1:
        before = snapshot_partition(snapshot.id - 1)
        links.append(("previous", asset_link(keys.asset(AssetKind.SNAPSHOTS), before)))
    metadata: Metadata = {
        "lsm/what": dg.MetadataValue.text(commit_label(snapshot)),
        "lsm/kind": dg.MetadataValue.text(snapshot.commit_kind.name),
        "lsm/links": dg.MetadataValue.md(" · ".join(f"[{text}]({url})" for text, url in links)),
        "lsm/committed_at": dg.MetadataValue.timestamp(snapshot.time_millis / 1000),
        "lsm/schema_id": dg.MetadataValue.text(str(snapshot.schema_id)),
        "lsm/commit_user": dg.MetadataValue.text(snapshot.commit_user),
    }
    if snapshot.total_record_count is not None:
        metadata["lsm/records_total"] = dg.MetadataValue.int(snapshot.total_record_count)
    if snapshot.delta_record_count is not None:
        metadata["lsm/records_delta"] = dg.MetadataValue.int(snapshot.delta_record_count)
    metadata |= row_counts_metadata([snapshot])
    metadata |= background_metadata([snapshot])
    if run_id:
        metadata["lsm/run"] = dg.MetadataValue.dagster_run(run_id)
    return metadata


def row_counts_metadata(commits: Iterable[Snapshot]) -> Metadata:
    """Return the sums of rows that commits inserted, updated, deleted and skipped; empty if none has counted them."""
    recorded = [row_counts_of(commit.properties) for commit in commits]
    counts = [row_counts for row_counts in recorded if row_counts is not None]
    if not counts:
        return {}
    total = sum(counts, RowCounts())
    metadata: Metadata = {
        "lsm/rows_inserted": dg.MetadataValue.int(total.inserted),
        "lsm/rows_updated": dg.MetadataValue.int(total.updated),
        "lsm/rows_deleted": dg.MetadataValue.int(total.deleted),
    }
    if total.skipped:
        metadata["lsm/rows_skipped"] = dg.MetadataValue.int(total.skipped)
    return metadata


def background_metadata(commits: Sequence[Snapshot]) -> Metadata:
    """Return the background compaction metrics of the newest commit that has them, under Paimon's names.

    Several commits with metrics also give a sparkline.
    """
    recorded = [compaction_metrics_of(commit.properties) for commit in commits]
    series = [metrics for metrics in recorded if metrics is not None]
    if not series:
        return {}
    newest = series[-1]
    metadata: Metadata = {
        "lsm/compaction_thread_busy": dg.MetadataValue.float(newest.compaction_thread_busy),
        "lsm/avg_compaction_time": dg.MetadataValue.float(newest.avg_compaction_time),
        "lsm/compaction_queued_count": dg.MetadataValue.int(newest.compaction_queued_count),
        "lsm/compaction_completed_count": dg.MetadataValue.int(newest.compaction_completed_count),
    }
    if len(series) > 1:
        busy = [round(metrics.compaction_thread_busy) for metrics in series]
        metadata["lsm/compaction_thread_busy_history"] = dg.MetadataValue.md(
            sparkline(busy, label="percent of the time in which it compacted")
        )
    return metadata


def manifest_lists_metadata(
    keys: TableKeys, snapshot: Snapshot, manifests: Mapping[str, Sequence[int]] | None = None
) -> Metadata:
    """Return the manifest lists of a snapshot.

    `manifests`: by kind of list, the numbers of manifests, of files that they add, and of files that they delete.
    """
    partition = snapshot_partition(snapshot.id)
    lists = [
        ("base", snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        ("delta", snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ]
    if snapshot.changelog_manifest_list:
        size = snapshot.changelog_manifest_list_size
        lists.append(("changelog", snapshot.changelog_manifest_list, size))
    counts = manifests or {}
    blank: Sequence[Any] = ("", "", "")
    rows = [
        (kind, name, "" if size is None else format_bytes(size), *counts.get(kind, blank))
        for kind, name, size in lists
    ]
    headings = ["list", "file", "size", "manifests", "files added", "files deleted"]
    link = asset_link(keys.asset(AssetKind.SNAPSHOTS), partition)
    metadata: Metadata = {
        "lsm/snapshot": dg.MetadataValue.md(f"[snapshot {snapshot.id}]({link})"),
        "lsm/lists": dg.MetadataValue.md(markdown_table(headings, rows)),
    }
    if manifests:
        total = sum(count[0] for count in manifests.values())
        metadata["lsm/manifests"] = dg.MetadataValue.int(total)
    return metadata


def tag_metadata(keys: TableKeys, tag: Tag, *, run_id: str | None = None) -> Metadata:
    """Return the snapshot of a tag and the tag's lifetime."""
    metadata: Metadata = {
        "lsm/snapshot": dg.MetadataValue.md(snapshot_links(keys, tag.snapshot.id)),
        "lsm/committed_at": dg.MetadataValue.timestamp(tag.snapshot.time_millis / 1000),
        "lsm/schema_id": dg.MetadataValue.text(str(tag.snapshot.schema_id)),
        "lsm/retained": dg.MetadataValue.text(_lifetime(tag.retained_millis)),
    }
    if tag.snapshot.total_record_count is not None:
        metadata["lsm/records_total"] = dg.MetadataValue.int(tag.snapshot.total_record_count)
    if run_id:
        metadata["lsm/run"] = dg.MetadataValue.dagster_run(run_id)
    return metadata


def compaction_metadata(
    keys: TableKeys,
    snapshot: Snapshot | None,
    *,
    before: TreeFacts,
    after: TreeFacts,
    level_count: int,
    reason: str,
    cost: Amplification,
) -> Metadata:
    """Return the LSM trees before and after a compaction.

    Args:
        keys: Names of the table.
        snapshot: The compaction's commit; None if no bucket was due.
        before: Trees before it.
        after: Trees after it.
        level_count: Number of levels that the table's options allow.
        reason: Why the compaction was requested.
        cost: Amplification over the last commits.
    """

    def runs(tree: TreeFacts) -> str:
        return f"{sum(level.runs for level in tree.levels):,} in {len(tree.buckets):,} buckets"

    metadata: Metadata = {
        "lsm/reason": dg.MetadataValue.text(reason),
        "lsm/sorted_runs_before": dg.MetadataValue.int(before.runs_max),
        "lsm/sorted_runs_after": dg.MetadataValue.int(after.runs_max),
        "lsm/runs": dg.MetadataValue.text(f"{runs(before)} → {runs(after)}"),
        "lsm/files": dg.MetadataValue.text(f"{before.files:,} → {after.files:,}"),
        "lsm/levels_after": dg.MetadataValue.md(level_table(after.levels)),
    }
    for name, tree in (("lsm/tree_before", before), ("lsm/tree_after", after)):
        if tree.buckets:
            metadata[name] = dg.MetadataValue.md(
                tree_image(tree.buckets[0].levels, level_count=level_count)
            )
    for name, amplification in (("write", cost.write), ("read", cost.read), ("space", cost.space)):
        if amplification is not None:
            metadata[f"lsm/{name}_amplification"] = dg.MetadataValue.float(round(amplification, 3))
    if snapshot is not None:
        metadata["lsm/snapshot"] = dg.MetadataValue.md(snapshot_links(keys, snapshot.id))
    return metadata


def snapshot_link(keys: TableKeys, snapshot_id: int) -> str:
    """Return a Markdown link to a snapshot's partition."""
    url = asset_link(keys.asset(AssetKind.SNAPSHOTS), snapshot_partition(snapshot_id))
    return f"[snapshot {snapshot_id}]({url})"


def snapshot_links(keys: TableKeys, snapshot_id: int) -> str:
    """Return Markdown links to a snapshot's partition and, if a server shows the lineage, to the snapshot there."""
    link, served = snapshot_link(keys, snapshot_id), served_lineage()
    return f"{link} · [lineage]({lineage_url(served, keys.name, snapshot_id)})" if served else link


def lineage_url(page_url: str, table: str, snapshot_id: int) -> str:
    """Return the URL of a snapshot on the lineage page."""
    name = quote(table, safe="")
    # A server draws a page of this table around this snapshot, however old it is.
    part = f"?table={name}&at={snapshot_id}" if page_url.endswith("/lineage") else ""
    return f"{page_url}{part}#{name}/{snapshot_id}"


def commit_label(snapshot: Snapshot) -> str:
    """Return a short description of a commit: the writer's label, else the kind of commit."""
    label = (snapshot.properties or {}).get(LABEL_PROPERTY)
    return label or snapshot.commit_kind.name.lower()


def _lifetime(retained_millis: int | None) -> str:
    if retained_millis is None:
        return "for ever"
    days = retained_millis / 86_400_000
    return f"{days:g} days" if days >= 1 else f"{retained_millis / 3_600_000:g} hours"

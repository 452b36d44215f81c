"""Metadata of each kind of asset: Dagster's standard `dagster/` keys, and ours in `lsm/`.

Ids are text or links, as the UI plots every number over time; Markdown that has to be drawn in
place is kept below `pictures.INLINE_CHARACTERS_MAX` characters.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import dagster as dg
import pyarrow as pa

from lsm_assets.model import pictures
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind, TableKeys, asset_link, run_link
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
"""The snapshot property that labels a commit in a few words."""

REASON_TAG = "lsm/reason"
"""The run tag with the reason why a compaction was requested."""

Metadata = dict[str, dg.MetadataValue]


def column_schema(schema: pa.Schema, primary_key: Sequence[str] = ()) -> dg.TableSchema:
    """Return Dagster's table schema for an Arrow schema."""
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


def described(schema: TableSchema) -> pa.Schema:
    """Return the columns of a table as an Arrow schema, with their comments."""
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


def declared_metadata(declaration: TableDeclaration) -> Metadata:
    """What is known of a table before it exists."""
    found: Metadata = {
        "dagster/table_name": dg.MetadataValue.text(declaration.name),
        "dagster/storage_kind": dg.MetadataValue.text(STORAGE_KIND),
        "dagster/column_schema": dg.MetadataValue.table_schema(
            column_schema(declaration.schema, declaration.primary_key)
        ),
        "lsm/primary_key": dg.MetadataValue.text(", ".join(declaration.primary_key)),
    }
    if declaration.partitioned_by:
        partitioned_by = ", ".join(declaration.partitioned_by)
        found["lsm/partitioned_by"] = dg.MetadataValue.text(partitioned_by)
    if declaration.partition_columns:
        columns = dict(declaration.partition_columns)
        found["lsm/partition_columns"] = dg.MetadataValue.json(columns)
    if declaration.options:
        options = sorted(declaration.options.items())
        found["lsm/options"] = dg.MetadataValue.md(
            pictures.markdown_table(["option", "value"], options)
        )
    if declaration.column_lineage:
        found |= lineage_metadata(declaration)
    return found


def lineage_metadata(declaration: TableDeclaration) -> Metadata:
    """Column lineage, for exporters and, as a table, for the open-source UI."""
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
            pictures.markdown_table(["column", "computed from"], rows)
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
    """Metadata of a table's materialisation. `row_count` counts merged rows; None: not counted.

    `commits` are the snapshots that this run made; `inputs` lists in Markdown what was read.
    """
    found: Metadata = {
        "dagster/table_name": dg.MetadataValue.text(keys.name),
        "dagster/storage_kind": dg.MetadataValue.text(STORAGE_KIND),
        "dagster/uri": dg.MetadataValue.text(location),
        "dagster/column_schema": dg.MetadataValue.table_schema(column_schema(schema, primary_key)),
        "lsm/snapshot": dg.MetadataValue.md(snapshot_links(keys, snapshot.id)),
    }
    if row_count is not None:
        found["dagster/row_count"] = dg.MetadataValue.int(row_count)
    if commits:
        rows = [
            (snapshot_link(keys, commit.id), label_of(commit), commit.delta_record_count or 0)
            for commit in commits
        ]
        found["lsm/commits"] = dg.MetadataValue.md(
            pictures.markdown_table(["snapshot", "what", "rows"], rows)
        )
        found |= row_counts_metadata(commits)
    if inputs:
        found["lsm/inputs"] = dg.MetadataValue.md(inputs)
    return found


def files_metadata(
    keys: TableKeys,
    snapshot: Snapshot,
    tree: TreeFacts,
    *,
    level_count: int,
    history: Sequence[Snapshot] = (),
) -> Metadata:
    """The physical metrics of a table after a commit; the picture shows its deepest bucket."""
    found: Metadata = {}
    if tree.buckets:
        deepest = tree.buckets[0]
        found["lsm/tree"] = dg.MetadataValue.md(
            pictures.tree_picture(deepest.levels, level_count=level_count)
        )
        found["lsm/tree_of"] = dg.MetadataValue.text(f"{deepest.label}, {deepest.runs} sorted runs")
    found |= {
        "lsm/levels": dg.MetadataValue.md(level_table(tree.levels)),
        "lsm/snapshot": dg.MetadataValue.md(snapshot_links(keys, snapshot.id)),
        "lsm/sorted_runs_max": dg.MetadataValue.int(tree.runs_max),
        "lsm/files": dg.MetadataValue.int(tree.files),
        "lsm/bytes": dg.MetadataValue.int(tree.bytes),
        "lsm/buckets": dg.MetadataValue.int(len(tree.buckets)),
    }
    found |= background_metadata(history)
    totals = [each.total_record_count or 0 for each in history]
    if len(totals) > 1:
        found["lsm/records_history"] = dg.MetadataValue.md(
            pictures.sparkline(totals, label="records in files")
        )
    return found


def level_table(levels: Iterable[LevelFacts]) -> str:
    """A Markdown table of levels."""
    rows = [
        (f"L{level.level}", level.runs, level.files, level.rows, format_bytes(level.bytes))
        for level in levels
    ]
    return pictures.markdown_table(["level", "runs", "files", "rows", "size"], rows)


def snapshot_metadata(
    keys: TableKeys, snapshot: Snapshot, *, run_id: str | None = None
) -> Metadata:
    """What a snapshot is, and the way to everything around it."""
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
    found: Metadata = {
        "lsm/what": dg.MetadataValue.text(label_of(snapshot)),
        "lsm/kind": dg.MetadataValue.text(snapshot.commit_kind.name),
        "lsm/links": dg.MetadataValue.md(" · ".join(f"[{text}]({url})" for text, url in links)),
        "lsm/committed_at": dg.MetadataValue.timestamp(snapshot.time_millis / 1000),
        "lsm/schema_id": dg.MetadataValue.text(str(snapshot.schema_id)),
        "lsm/commit_user": dg.MetadataValue.text(snapshot.commit_user),
    }
    if snapshot.total_record_count is not None:
        found["lsm/records_total"] = dg.MetadataValue.int(snapshot.total_record_count)
    if snapshot.delta_record_count is not None:
        found["lsm/records_delta"] = dg.MetadataValue.int(snapshot.delta_record_count)
    found |= row_counts_metadata([snapshot])
    found |= background_metadata([snapshot])
    if run_id:
        found["lsm/run"] = dg.MetadataValue.dagster_run(run_id)
    return found


def row_counts_metadata(commits: Iterable[Snapshot]) -> Metadata:
    """How many rows commits inserted, updated, deleted and skipped, where they counted them."""
    recorded = [row_counts_of(commit.properties) for commit in commits]
    counts = [one for one in recorded if one is not None]
    if not counts:
        return {}
    total = sum(counts, RowCounts())
    found: Metadata = {
        "lsm/rows_inserted": dg.MetadataValue.int(total.inserted),
        "lsm/rows_updated": dg.MetadataValue.int(total.updated),
        "lsm/rows_deleted": dg.MetadataValue.int(total.deleted),
    }
    if total.skipped:
        found["lsm/rows_skipped"] = dg.MetadataValue.int(total.skipped)
    return found


def background_metadata(commits: Sequence[Snapshot]) -> Metadata:
    """How busy the background compaction of an open writer was, as of the newest that carries it.

    Numbers, under Paimon's names, so that the UI plots them over time; with several also as a line.
    """
    recorded = [compaction_metrics_of(commit.properties) for commit in commits]
    series = [one for one in recorded if one is not None]
    if not series:
        return {}
    newest = series[-1]
    found: Metadata = {
        "lsm/compaction_thread_busy": dg.MetadataValue.float(newest.compaction_thread_busy),
        "lsm/avg_compaction_time": dg.MetadataValue.float(newest.avg_compaction_time),
        "lsm/compaction_queued_count": dg.MetadataValue.int(newest.compaction_queued_count),
        "lsm/compaction_completed_count": dg.MetadataValue.int(newest.compaction_completed_count),
    }
    if len(series) > 1:
        busy = [round(one.compaction_thread_busy) for one in series]
        found["lsm/compaction_thread_busy_history"] = dg.MetadataValue.md(
            pictures.sparkline(busy, label="percent of the time in which it compacted")
        )
    return found


def manifest_lists_metadata(
    keys: TableKeys, snapshot: Snapshot, manifests: Mapping[str, Sequence[int]] | None = None
) -> Metadata:
    """The lists that make up a snapshot. `manifests`: per list kind (manifests, added, deleted)."""
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
    found: Metadata = {
        "lsm/snapshot": dg.MetadataValue.md(f"[snapshot {snapshot.id}]({link})"),
        "lsm/lists": dg.MetadataValue.md(pictures.markdown_table(headings, rows)),
    }
    if manifests:
        total = sum(count[0] for count in manifests.values())
        found["lsm/manifests"] = dg.MetadataValue.int(total)
    return found


def tag_metadata(keys: TableKeys, tag: Tag, *, run_id: str | None = None) -> Metadata:
    """What a tag points at, and for how long."""
    found: Metadata = {
        "lsm/snapshot": dg.MetadataValue.md(snapshot_links(keys, tag.snapshot.id)),
        "lsm/committed_at": dg.MetadataValue.timestamp(tag.snapshot.time_millis / 1000),
        "lsm/schema_id": dg.MetadataValue.text(str(tag.snapshot.schema_id)),
        "lsm/retained": dg.MetadataValue.text(_lifetime(tag.retained_millis)),
    }
    if tag.snapshot.total_record_count is not None:
        found["lsm/records_total"] = dg.MetadataValue.int(tag.snapshot.total_record_count)
    if run_id:
        found["lsm/run"] = dg.MetadataValue.dagster_run(run_id)
    return found


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
    """What a compaction found and left; no snapshot: there was nothing to do.

    `cost`: of the last commits up to this one, so that the UI plots it over time.
    """

    def runs(tree: TreeFacts) -> str:
        return f"{sum(level.runs for level in tree.levels):,} in {len(tree.buckets):,} buckets"

    found: Metadata = {
        "lsm/reason": dg.MetadataValue.text(reason),
        "lsm/sorted_runs_before": dg.MetadataValue.int(before.runs_max),
        "lsm/sorted_runs_after": dg.MetadataValue.int(after.runs_max),
        "lsm/runs": dg.MetadataValue.text(f"{runs(before)} → {runs(after)}"),
        "lsm/files": dg.MetadataValue.text(f"{before.files:,} → {after.files:,}"),
        "lsm/levels_after": dg.MetadataValue.md(level_table(after.levels)),
    }
    for name, tree in (("lsm/tree_before", before), ("lsm/tree_after", after)):
        if tree.buckets:
            found[name] = dg.MetadataValue.md(
                pictures.tree_picture(tree.buckets[0].levels, level_count=level_count)
            )
    for name, times in (("write", cost.write), ("read", cost.read), ("space", cost.space)):
        if times is not None:
            found[f"lsm/{name}_amplification"] = dg.MetadataValue.float(round(times, 3))
    if snapshot is not None:
        found["lsm/snapshot"] = dg.MetadataValue.md(snapshot_links(keys, snapshot.id))
    return found


def snapshot_link(keys: TableKeys, snapshot_id: int) -> str:
    """Markdown that opens a snapshot's partition."""
    url = asset_link(keys.asset(AssetKind.SNAPSHOTS), snapshot_partition(snapshot_id))
    return f"[snapshot {snapshot_id}]({url})"


def snapshot_links(keys: TableKeys, snapshot_id: int) -> str:
    """Markdown that opens a snapshot's partition and, where a lineage is served, the snapshot there."""
    link, served = snapshot_link(keys, snapshot_id), served_lineage()
    return f"{link} · [lineage]({lineage_url(served, keys.name, snapshot_id)})" if served else link


def lineage_url(page_url: str, table: str, snapshot_id: int) -> str:
    """Return the address of a snapshot on the lineage page."""
    name = quote(table, safe="")
    # Of a server, the page of the one table, about the one snapshot, however old it is.
    part = f"?table={name}&at={snapshot_id}" if page_url.endswith("/lineage") else ""
    return f"{page_url}{part}#{name}/{snapshot_id}"


def label_of(snapshot: Snapshot) -> str:
    """What a commit was, in a few words: the writer's own, else its kind."""
    label = (snapshot.properties or {}).get(LABEL_PROPERTY)
    return label or snapshot.commit_kind.name.lower()


def _lifetime(retained_millis: int | None) -> str:
    if retained_millis is None:
        return "for ever"
    days = retained_millis / 86_400_000
    return f"{days:g} days" if days >= 1 else f"{retained_millis / 3_600_000:g} hours"

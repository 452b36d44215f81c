"""Metadata of each kind of asset: Dagster's standard keys `dagster/…`, and our own keys `lsm/…`.

Ids are text or links, because the UI plots every number over time. Markdown that the UI shall show inline is shorter
than `markdown.INLINE_CHARACTERS_MAX` characters."""

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import dagster as dg
import pyarrow as pa

from lsm_assets.declaration import TableDeclaration
from lsm_assets.keys import AssetKind, TableKeys, asset_link, run_link, snapshot_partition
from lsm_assets.settings import served_lineage
from lsm_engine import (
    Amplification,
    IcebergState,
    RetentionSimulation,
    RowCounts,
    Snapshot,
    SnapshotDiff,
    TableSchema,
    Tag,
    compaction_metrics_of,
    format_bytes,
    record,
    row_counts_of,
)
from lsm_engine import BucketTree as BucketRuns
from lsm_engine import snapshot_ranges as ranges

# -- Counts of sorted runs, files, rows and bytes of a table's LSM trees ---------------------------


@record
class LevelFacts:
    """Counts of one level of one bucket or of several buckets. A level-0 file is a sorted run of its own."""

    level: int
    runs: int
    files: int
    rows: int
    bytes: int


@record
class BucketTree:
    """The LSM tree of one bucket: its levels with files, level 0 first."""

    partition: str
    bucket: int
    levels: tuple[LevelFacts, ...]

    @property
    def runs(self) -> int:
        """Number of sorted runs, which readers of this bucket merge."""
        return sum(level.runs for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of this bucket's live data files."""
        return sum(level.bytes for level in self.levels)

    @property
    def label(self) -> str:
        """Path of the bucket below the table: `dt=2024-01-01/bucket-0`."""
        return (
            f"{self.partition}/bucket-{self.bucket}" if self.partition else f"bucket-{self.bucket}"
        )


@record
class TreeFacts:
    """The LSM trees of all buckets at one snapshot. The bucket with most sorted runs comes first."""

    buckets: tuple[BucketTree, ...]

    @property
    def levels(self) -> tuple[LevelFacts, ...]:
        """Sums over all buckets, level 0 first."""
        return sum_levels(level for bucket in self.buckets for level in bucket.levels)

    @property
    def runs_max(self) -> int:
        """Number of sorted runs of the bucket that has most of them; 0 without files."""
        return self.buckets[0].runs if self.buckets else 0

    @property
    def files(self) -> int:
        """Number of live data files."""
        return sum(level.files for level in self.levels)

    @property
    def rows(self) -> int:
        """Number of rows in all files, before merging."""
        return sum(level.rows for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of all live data files."""
        return sum(level.bytes for level in self.levels)


def count_tree(buckets: Iterable[BucketRuns]) -> TreeFacts:
    """Return the counts of a table's LSM trees from the engine's buckets."""
    trees = [
        BucketTree(
            partition=bucket.partition,
            bucket=bucket.bucket,
            levels=sum_levels(
                LevelFacts(
                    level=run.level,
                    runs=1,
                    files=run.file_count,
                    rows=run.row_count,
                    bytes=run.size_bytes,
                )
                for run in bucket.runs
            ),
        )
        for bucket in buckets
    ]
    # The sort is stable: buckets with the same number of runs stay in the order of partitions.
    return TreeFacts(buckets=tuple(sorted(trees, key=lambda bucket: -bucket.runs)))


def sum_levels(levels: Iterable[LevelFacts]) -> tuple[LevelFacts, ...]:
    """Return the sums of counts by level."""
    parts: dict[int, list[LevelFacts]] = {}
    for level in levels:
        parts.setdefault(level.level, []).append(level)
    return tuple(_sum_level(number, parts[number]) for number in sorted(parts))


def _sum_level(number: int, parts: Sequence[LevelFacts]) -> LevelFacts:
    return LevelFacts(
        level=number,
        runs=sum(part.runs for part in parts),
        files=sum(part.files for part in parts),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
    )


# -- Markdown for metadata: tables, SVG images of LSM trees and of series, escaped text ------------
#
# Dagster's UI shows Markdown inline if it has less than a thousand characters.

INLINE_CHARACTERS_MAX = 999
"""Longer Markdown is a button in the UI."""

_BARS_MAX = 22  # level-0 files that get a bar of their own
_LEFT, _RIGHT, _ROW = 26, 286, 17  # pixels: where bars begin and end, height of a level
_COLOURS = ("#e0803a", "#d9a441", "#8fae4b", "#4aa383", "#3b8fb0", "#4f6fb5")


def markdown_image(svg: str, alt: str) -> str:
    """Return Markdown that embeds an SVG image."""
    return f"![{alt}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def tree_image(levels: Sequence[LevelFacts], *, level_count: int) -> str:
    """Return an image of one LSM tree, level 0 on top: a bar per level-0 file and a bar per higher level.

    The width of a bar grows with the logarithm of its bytes.

    Args:
        levels: The levels that have files.
        level_count: Number of levels that the table's options allow, level 0 included.
    """
    by_level = {level.level: level for level in levels}
    deepest = max([*by_level, level_count - 1, 1])
    shown = [
        number for number in range(deepest + 1) if number in (0, deepest) or number in by_level
    ]
    # More levels make the Markdown longer than the UI shows inline.
    shown = shown if len(shown) <= 6 else [*shown[:3], *shown[-3:]]
    largest = max((level.bytes for level in levels), default=1)
    parts = [_row(line, number, by_level.get(number), largest) for line, number in enumerate(shown)]
    height = _ROW * len(shown) + 2
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="300" height="{height}" '
        f'font-size="10" fill="#888" stroke-width="9">{"".join(parts)}</svg>'
    )
    picture = markdown_image(svg, "LSM tree")
    assert len(picture) <= INLINE_CHARACTERS_MAX, len(picture)
    return picture


def _row(line: int, number: int, level: LevelFacts | None, largest_bytes: int) -> str:
    middle = line * _ROW + 9
    label = f'<text y="{middle + 4}">L{number}</text>'
    if level is None or not level.files:
        return f'{label}<path stroke="#ccc" stroke-width="1" d="M{_LEFT} {middle}H{_RIGHT}"/>'
    colour = _COLOURS[min(number, len(_COLOURS) - 1)]
    if number == 0:
        drawn = min(level.runs, _BARS_MAX)
        hidden_count = level.runs - drawn
        overflow = (
            f'<text x="{_LEFT + drawn * 11}" y="{middle + 4}">+{hidden_count}</text>'
            if hidden_count
            else ""
        )
        bars = f"M{_LEFT} {middle}" + "h9m2 0" * drawn
        return f'{label}<path stroke="{colour}" d="{bars}"/>{overflow}'
    share = math.log1p(level.bytes) / math.log1p(max(largest_bytes, 1))
    width = max(6, round((_RIGHT - _LEFT) * share))
    return f'{label}<path stroke="{colour}" d="M{_LEFT} {middle}h{width}"/>'


_SPARKLINE_POINTS = 48


def sparkline(values: Sequence[float], *, label: str) -> str:
    """Return an image of the last 48 values of a series as a line, newest on the right; "" without values."""
    if not values:
        return ""
    shown = list(values)[-_SPARKLINE_POINTS:]
    low, high = min(shown), max(shown)
    span = (high - low) or 1  # equal values make a flat line
    step = 200 / max(len(shown) - 1, 1)
    points = [
        (round(i * step), 26 - round((value - low) / span * 22)) for i, value in enumerate(shown)
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    x, y = points[-1]
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="210" height="30" fill="none" '
        f'stroke="#4f6fb5"><polyline points="{line}"/><circle cx="{x}" cy="{y}" r="2"/></svg>'
    )
    return markdown_image(svg, label)


def markdown_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    characters_max: int = INLINE_CHARACTERS_MAX,
) -> str:
    """Return a Markdown table of at most `characters_max` characters. A last line counts the rows left out."""
    head = "| " + " | ".join(headings) + " |\n|" + "---|" * len(headings)
    lines = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    shown: list[str] = []
    budget = characters_max - len(head) - len("\n\n… 1234567 more")
    for line in lines:
        budget -= len(line) + 1
        if budget < 0:
            break
        shown.append(line)
    hidden_count = len(lines) - len(shown)
    text = "\n".join([head, *shown])
    return f"{text}\n\n… {hidden_count} more" if hidden_count else text


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape_html(text).replace("|", "\\|").replace("\n", " ")


def escape_html(text: str) -> str:
    """Return text in which Markdown and HTML do nothing but show it."""
    # Names of tags and labels of commits come from other clients: they must not load images or run scripts.
    return (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("![", "!\\[")
    )


# -- Metadata of each kind of asset ----------------------------------------------------------------

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
            (
                snapshot_link(keys, commit.id),
                commit_label(commit),
                commit.compacted_files or commit.delta_record_count or 0,
            )
            for commit in commits
        ]
        metadata["lsm/commits"] = dg.MetadataValue.md(
            markdown_table(["snapshot", "what", "rows, files"], rows)
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
        metadata["lsm/deepest_bucket"] = dg.MetadataValue.text(
            f"{deepest.label}, {counted(deepest.runs, 'sorted run')}"
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
        "lsm/label": dg.MetadataValue.text(commit_label(snapshot)),
        "lsm/commit_kind": dg.MetadataValue.text(snapshot.commit_kind.name),
        "lsm/operation": dg.MetadataValue.text(snapshot.operation_name),
        "lsm/links": dg.MetadataValue.md(" · ".join(f"[{text}]({url})" for text, url in links)),
        "lsm/committed_at": dg.MetadataValue.timestamp(snapshot.time_millis / 1000),
        "lsm/schema_id": dg.MetadataValue.text(str(snapshot.schema_id)),
        "lsm/commit_user": dg.MetadataValue.text(snapshot.commit_user),
    }
    if snapshot.total_record_count is not None:
        metadata["lsm/records_total"] = dg.MetadataValue.int(snapshot.total_record_count)
    if snapshot.compacted_files is not None:
        metadata["lsm/compacted"] = dg.MetadataValue.text(str(snapshot.compacted_files))
    elif snapshot.delta_record_count is not None:
        metadata["lsm/records_delta"] = dg.MetadataValue.int(snapshot.delta_record_count)
    metadata |= row_counts_metadata([snapshot])
    metadata |= background_metadata([snapshot])
    if snapshot.duration_millis is not None:
        metadata["lsm/seconds"] = dg.MetadataValue.float(snapshot.duration_millis / 1000)
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
        (
            kind,
            *counts.get(kind, blank),
            "" if size is None else format_bytes(size),
            _short_name(name),
        )
        for kind, name, size in lists
    ]
    # Names come last: a narrow window cuts them, and no count.
    headings = ["list", "manifests", "files added", "files deleted", "size", "file"]
    link = asset_link(keys.asset(AssetKind.SNAPSHOTS), partition)
    metadata: Metadata = {
        "lsm/snapshot": dg.MetadataValue.md(f"[snapshot {snapshot.id}]({link})"),
        "lsm/manifest_lists": dg.MetadataValue.md(markdown_table(headings, rows)),
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
        return f"{sum(level.runs for level in tree.levels):,} in {counted(len(tree.buckets), 'bucket')}"

    metadata: Metadata = {
        "lsm/reason": dg.MetadataValue.text(reason),
        "lsm/sorted_runs_before": dg.MetadataValue.int(before.runs_max),
        "lsm/sorted_runs_after": dg.MetadataValue.int(after.runs_max),
        "lsm/sorted_runs": dg.MetadataValue.text(f"{runs(before)} → {runs(after)}"),
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


def counted(number: int, noun: str) -> str:
    """Return `1 file`, or `2 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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


# -- Metadata with details of a table --------------------------------------------------------------
#
# Files that a snapshot changed, manifests, retention, branches, tags.

MANIFESTS_MAX = 100
PINS_SHOWN = 10

_MANIFEST_COLUMNS = (
    "list", "added", "deleted", "size", "levels", "buckets", "partitions", "manifest",
)  # fmt: skip
_NAME_ENDS = 17, 5
"""First and last characters of a manifest's name that are shown: names of one commit differ in the last ones."""


def _short_name(name: str) -> str:
    head, tail = _NAME_ENDS
    return name if len(name) <= head + tail else f"{name[:head]}…{name[-tail:]}"


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
        "lsm/files_changed": dg.MetadataValue.md(
            markdown_table(["level", "files added", "files removed", "size"], rows)
        ),
        "lsm/compared_with": dg.MetadataValue.text(
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
    return {
        "list": row["list"],
        "added": row["num_added_files"],
        "deleted": row["num_deleted_files"],
        "size": format_bytes(row["file_size"]),
        "levels": _span(row["min_level"], row["max_level"]),
        "buckets": _span(row["min_bucket"], row["max_bucket"]),
        "partitions": _span(
            _values(row["min_partition_stats"]), _values(row["max_partition_stats"])
        ),
        "manifest": _short_name(str(row["file_name"])),
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
            f"snapshots {expired}: {counted(simulated.freed_file_count, 'file')}, {format_bytes(simulated.freed_bytes)}"
            if expired
            else "nothing"
        ),
        "lsm/expiry_reason": dg.MetadataValue.text(simulated.plan.reason),
        "lsm/readable_snapshots": dg.MetadataValue.text(
            f"snapshots {ranges(simulated.readable) or 'none'}"
        ),
    }
    if rows:
        headings = ["kept by", "files", "size", "alone"]
        metadata["lsm/retained_by"] = dg.MetadataValue.md(markdown_table(headings, rows))
    return metadata


def iceberg_metadata(keys: TableKeys, state: IcebergState) -> Metadata:
    """Return the state of a table's Iceberg metadata: where it is, what it shows, and its lag."""
    metadata: Metadata = {
        "dagster/table_name": dg.MetadataValue.text(keys.name),
        "dagster/storage_kind": dg.MetadataValue.text("iceberg"),
        "lsm/iceberg": dg.MetadataValue.text(str(state)),
        "lsm/lag": dg.MetadataValue.int(state.lag),
        "lsm/hidden_files": dg.MetadataValue.int(state.hidden_files),
        "lsm/waiting_commits": dg.MetadataValue.int(state.waiting_commits),
    }
    if state.metadata_location is not None:
        metadata["dagster/uri"] = dg.MetadataValue.text(state.metadata_location)
    if state.snapshot_id is not None:
        metadata["lsm/snapshot"] = dg.MetadataValue.md(snapshot_links(keys, state.snapshot_id))
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
    metadata: Metadata = {"lsm/levels": dg.MetadataValue.md(levels)}
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

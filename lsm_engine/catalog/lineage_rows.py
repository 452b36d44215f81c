"""Rows of lineage facts. Pure functions: the same facts give the same rows."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lsm_engine.base.modes import EntryKind
from lsm_engine.catalog.edges import BucketCompaction, FileEdge
from lsm_engine.catalog.facts import CommitFacts, ManifestListFacts
from lsm_engine.catalog.models import CHANGELOG, DATA, EXPIRED, LIVE
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag

Row = dict[str, Any]

_AS_THEY_ARE = (
    "schema_id", "base_manifest_list", "base_manifest_list_size", "delta_manifest_list",
    "delta_manifest_list_size", "changelog_manifest_list", "changelog_manifest_list_size",
    "index_manifest", "commit_user", "commit_identifier", "time_millis", "total_record_count",
    "delta_record_count", "changelog_record_count", "watermark", "statistics", "version",
    "next_row_id", "uuid", "operation", "writer_version",
)  # fmt: skip


def run_row(facts: CommitFacts) -> Row:
    """Return the row of a snapshot's run, from its properties."""
    run = facts.run
    return {
        "run_id": run.run_id,
        "asset_key": run.asset_key or "",
        "engine": run.engine,
        "kind": run.kind,
        "dagster_run_id": run.dagster_run_id,
        "user_name": run.user,
        "started_millis": run.started_millis,
    }


def snapshot_row(table_id: int, facts: CommitFacts) -> Row:
    """Return the row of a snapshot, with the sums of its added and deleted files."""
    snapshot = facts.snapshot
    added = [entry.file for entry in facts.entries if entry.kind is EntryKind.ADD]
    deleted = [entry.file for entry in facts.entries if entry.kind is EntryKind.DELETE]
    return {
        "table_id": table_id,
        "snapshot_id": snapshot.id,
        "state": EXPIRED if facts.expired else LIVE,
        "run_id": facts.run.run_id,
        "asset_key": facts.run.asset_key or "",
        **{name: getattr(snapshot, name) for name in _AS_THEY_ARE},
        "commit_kind": snapshot.commit_kind.value,
        "log_offsets": _json(snapshot.log_offsets),
        "properties": _json(snapshot.properties),
        "files_added": len(added),
        "files_deleted": len(deleted),
        "bytes_added": sum(file.file_size for file in added),
        "bytes_deleted": sum(file.file_size for file in deleted),
    }


def manifest_list_rows(
    table_id: int, snapshot: Snapshot, lists: Iterable[ManifestListFacts]
) -> tuple[list[Row], list[Row]]:
    """Return the rows of a snapshot's manifest lists, and of their manifests."""
    list_rows: list[Row] = []
    manifest_rows: list[Row] = []
    for listed in lists:
        of_list = {"table_id": table_id, "snapshot_id": snapshot.id, "kind": listed.kind}
        list_rows.append(
            {
                **of_list,
                "file_name": listed.file_name,
                "file_size": listed.file_size,
                "manifest_count": len(listed.manifests),
                "added_file_count": sum(manifest.added_file_count for manifest in listed.manifests),
                "deleted_file_count": sum(
                    manifest.deleted_file_count for manifest in listed.manifests
                ),
            }
        )
        manifest_rows += [
            {
                **of_list,
                "position": position,
                "file_name": manifest.file_name,
                "file_size": manifest.file_size,
                "added_file_count": manifest.added_file_count,
                "deleted_file_count": manifest.deleted_file_count,
                "schema_id": manifest.schema_id,
                "min_bucket": manifest.min_bucket,
                "max_bucket": manifest.max_bucket,
                "min_level": manifest.min_level,
                "max_level": manifest.max_level,
            }
            for position, manifest in enumerate(listed.manifests)
        ]
    return list_rows, manifest_rows


def added_file_rows(table_id: int, facts: CommitFacts) -> Iterator[Row]:
    """Yield rows of the files that a snapshot added, changelog files included."""
    for content, entries in ((DATA, facts.entries), (CHANGELOG, facts.changelog_entries)):
        for entry in entries:
            if entry.kind is EntryKind.ADD:
                row = file_row(table_id, entry, facts.partitions, content)
                yield {**row, "added_by": facts.snapshot.id}


def deleted_file_rows(table_id: int, facts: CommitFacts) -> Iterator[Row]:
    """Yield rows of the files that a snapshot deleted, without the snapshot that added them."""
    for entry in facts.entries:
        if entry.kind is EntryKind.DELETE:
            row = file_row(table_id, entry, facts.partitions, DATA)
            yield {**row, "deleted_by": facts.snapshot.id}


def file_row(
    table_id: int, entry: ManifestEntry, partitions: Mapping[bytes, str], content: str
) -> Row:
    """Return the row of a file whose adding and deleting snapshots are unknown."""
    file = entry.file
    return {
        "table_id": table_id,
        "file_name": file.file_name,
        "level": file.level,
        "bucket": entry.bucket,
        "partition": entry.partition,
        "partition_path": partitions[entry.partition],
        "content": content,
        "total_buckets": entry.total_buckets,
        "row_count": file.row_count,
        "delete_row_count": file.delete_row_count,
        "file_size": file.file_size,
        "min_key": file.min_key,
        "max_key": file.max_key,
        "min_sequence_number": file.min_sequence_number,
        "max_sequence_number": file.max_sequence_number,
        "schema_id": file.schema_id,
        "creation_millis": file.creation_millis,
        "file_source": None if file.file_source is None else file.file_source.name.lower(),
        "extra_files": json.dumps(file.extra_files) if file.extra_files else None,
        "external_path": file.external_path,
        "added_by": None,
        "deleted_by": None,
        "removed": False,
    }


def compaction_rows(table_id: int, facts: CommitFacts) -> list[Row]:
    """Return the rows of a compaction, one per bucket."""
    return [
        {
            "table_id": table_id,
            "snapshot_id": facts.snapshot.id,
            "bucket": compaction.bucket,
            "partition": compaction.partition,
            "partition_path": facts.partitions[compaction.partition],
            "output_level": compaction.output_level,
            "files_upgraded": len(compaction.upgraded),
            **_sums(compaction),
        }
        for compaction in facts.compactions
    ]


def _sums(compaction: BucketCompaction) -> Row:
    return {
        "files_read": len(compaction.read),
        "files_written": len(compaction.written),
        "rows_read": sum(file.row_count for file in compaction.read),
        "rows_written": sum(file.row_count for file in compaction.written),
        "bytes_read": sum(file.file_size for file in compaction.read),
        "bytes_written": sum(file.file_size for file in compaction.written),
    }


def edge_rows(table_id: int, snapshot: Snapshot, edges: Iterable[FileEdge]) -> list[Row]:
    """Return the rows of edges between files."""
    return [
        {
            "table_id": table_id,
            "snapshot_id": snapshot.id,
            "bucket": edge.bucket,
            "partition": edge.partition,
            "source_name": edge.source_name,
            "source_level": edge.source_level,
            "target_name": edge.target_name,
            "target_level": edge.target_level,
            "kind": edge.kind,
        }
        for edge in edges
    ]


def input_rows(table_id: int, facts: CommitFacts) -> tuple[list[Row], list[Row]]:
    """Return the rows of a snapshot's inputs: datasets, and columns if they are recorded."""
    of_snapshot = {"table_id": table_id, "snapshot_id": facts.snapshot.id}
    datasets: list[Row] = []
    columns: list[Row] = []
    for position, item in enumerate(facts.inputs):
        of_input = {**of_snapshot, "position": position, "dataset": item.dataset}
        datasets.append(
            {
                **of_input,
                "input_snapshot_id": item.snapshot_id,
                "after_snapshot_id": item.after_snapshot_id,
                "input_version": item.version,
                "role": item.role,
            }
        )
        columns += [
            {**of_input, "column_name": output, "input_column": source}
            for output, source in dict.fromkeys(item.columns)
        ]
    return datasets, columns


def tag_row(table_id: int, tag: Tag) -> Row:
    """Return the row of a tag."""
    return {
        "table_id": table_id,
        "tag_name": tag.name,
        "snapshot_id": tag.snapshot.id,
        "created": _wall_clock(tag.created),
        "retained_millis": tag.retained_millis,
        "deleted": False,
    }


def _wall_clock(created: tuple[int, ...] | None) -> str | None:
    if created is None:
        return None
    year, month, day, hour, minute, second, nanos = (*created, 0, 0, 0, 0, 0)[:7]
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}"


def _json(members: Mapping[str, Any] | None) -> str | None:
    return None if members is None else json.dumps(dict(members), sort_keys=True)

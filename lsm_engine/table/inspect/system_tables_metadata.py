"""System tables made of a table's small files: snapshots, schemas, manifests, tags, branches, …"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.modes import CommitKind
from lsm_engine.codec.binary_row import decode_row
from lsm_engine.codec.json_object import READ_MAX
from lsm_engine.codec.table_statistics import decode_statistics
from lsm_engine.merge.rule_texts import column_rule_texts
from lsm_engine.meta.compaction_metrics import compaction_metrics_of
from lsm_engine.meta.manifest import ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.schema.type_text import columns_of_text
from lsm_engine.schema.types import type_text
from lsm_engine.store.branches import BranchStore
from lsm_engine.table.ground.session import TableSession

_STAMP = pa.timestamp("ms")

SNAPSHOTS = columns_of_text(
    "snapshot_id BIGINT NOT NULL, schema_id BIGINT NOT NULL, commit_user STRING, "
    "commit_identifier BIGINT, commit_kind STRING, commit_time TIMESTAMP(3), "
    "base_manifest_list STRING, delta_manifest_list STRING, changelog_manifest_list STRING, "
    "total_record_count BIGINT, delta_record_count BIGINT, changelog_record_count BIGINT, "
    "watermark BIGINT, properties MAP<STRING, STRING>"
)
COMPACTIONS = columns_of_text(
    "snapshot_id BIGINT NOT NULL, commit_user STRING, commit_time TIMESTAMP(3), "
    "compaction_thread_busy DOUBLE, avg_compaction_time DOUBLE, compaction_queued_count BIGINT, "
    "compaction_completed_count BIGINT, compaction_total_count BIGINT"
)
SCHEMAS = pa.schema(
    [
        pa.field("schema_id", pa.int64(), nullable=False),
        ("fields", pa.string()),
        ("partition_keys", pa.list_(pa.string())),
        ("primary_keys", pa.list_(pa.string())),
        ("options", pa.map_(pa.string(), pa.string())),
        ("comment", pa.string()),
        ("update_time", _STAMP),
    ]
)
OPTIONS = pa.schema([pa.field("key", pa.string(), nullable=False), ("value", pa.string())])
MANIFESTS = columns_of_text(
    "file_name STRING NOT NULL, file_size BIGINT, num_added_files BIGINT, "
    "num_deleted_files BIGINT, schema_id BIGINT, min_bucket INT, max_bucket INT, min_level INT, "
    "max_level INT, min_partition_stats STRING, max_partition_stats STRING"
)
MANIFEST_LISTS = columns_of_text(
    "snapshot_id BIGINT NOT NULL, kind STRING NOT NULL, file_name STRING NOT NULL, "
    "file_size BIGINT, manifest_count BIGINT, num_added_files BIGINT, num_deleted_files BIGINT"
)
TAGS = columns_of_text(
    "tag_name STRING NOT NULL, snapshot_id BIGINT NOT NULL, schema_id BIGINT, "
    "commit_time TIMESTAMP(3), record_count BIGINT, create_time STRING, "
    "time_retained_millis BIGINT"
)


BRANCHES = pa.schema(
    [pa.field("branch_name", pa.string(), nullable=False), ("create_time", _STAMP)]
)
CONSUMERS = columns_of_text(
    "consumer_id STRING NOT NULL, next_snapshot_id BIGINT NOT NULL, last_update_time TIMESTAMP(3)"
)
STATISTICS = columns_of_text(
    "snapshot_id BIGINT NOT NULL, schema_id BIGINT NOT NULL, mergedRecordCount BIGINT, "
    "mergedRecordSize BIGINT, colstat STRING"
)
AGGREGATION_FIELDS = columns_of_text(
    "field_name STRING NOT NULL, field_type STRING NOT NULL, function STRING, "
    "function_options STRING, comment STRING"
)


def _snapshots(session: TableSession, _: Snapshot | None) -> list[dict[str, Any]]:
    return snapshot_rows(session.snapshots.all())


def snapshot_rows(snapshots: Iterable[Snapshot]) -> list[dict[str, Any]]:
    """Return snapshots as rows of the system table of that name, in their order."""
    return [
        {
            "snapshot_id": snapshot.id,
            "schema_id": snapshot.schema_id,
            "commit_user": snapshot.commit_user,
            "commit_identifier": snapshot.commit_identifier,
            "commit_kind": snapshot.commit_kind.value,
            "commit_time": snapshot.time_millis,
            "base_manifest_list": snapshot.base_manifest_list,
            "delta_manifest_list": snapshot.delta_manifest_list,
            "changelog_manifest_list": snapshot.changelog_manifest_list,
            "total_record_count": snapshot.total_record_count,
            "delta_record_count": snapshot.delta_record_count,
            "changelog_record_count": snapshot.changelog_record_count,
            "watermark": snapshot.watermark,
            "properties": _pairs(snapshot.properties),
        }
        for snapshot in snapshots
    ]


def _schemas(session: TableSession, _: Snapshot | None) -> list[dict[str, Any]]:
    return [
        {
            "schema_id": schema.id,
            "fields": ", ".join(f"{field.name} {type_text(field.type)}" for field in schema.fields),
            "partition_keys": list(schema.partition_keys),
            "primary_keys": list(schema.primary_keys),
            "options": _pairs(schema.options.texts),
            "comment": schema.comment,
            "update_time": schema.time_millis,
        }
        for schema in session.schemas.all()
    ]


def _options(session: TableSession, _: Snapshot | None) -> list[dict[str, Any]]:
    texts = session.options.texts
    return [{"key": key, "value": texts[key]} for key in sorted(texts)]


def _manifests(session: TableSession, snapshot: Snapshot | None) -> list[dict[str, Any]]:
    if snapshot is None:
        return []
    return [
        {
            "file_name": meta.file_name,
            "file_size": meta.file_size,
            "num_added_files": meta.added_file_count,
            "num_deleted_files": meta.deleted_file_count,
            "schema_id": meta.schema_id,
            "min_bucket": meta.min_bucket,
            "max_bucket": meta.max_bucket,
            "min_level": meta.min_level,
            "max_level": meta.max_level,
            **_partition_bounds(session, meta),
        }
        for meta in session.manifest_metas(snapshot)
    ]


def _manifest_lists(session: TableSession, snapshot: Snapshot | None) -> list[dict[str, Any]]:
    if snapshot is None:
        return []
    rows = []
    for kind, name, size in (
        ("base", snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        ("delta", snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        ("changelog", snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
    ):
        if name is None:
            continue
        metas = session.manifest_list(snapshot, name)
        rows.append(
            {
                "snapshot_id": snapshot.id,
                "kind": kind,
                "file_name": name,
                "file_size": size,
                "manifest_count": len(metas),
                "num_added_files": sum(meta.added_file_count for meta in metas),
                "num_deleted_files": sum(meta.deleted_file_count for meta in metas),
            }
        )
    return rows


def _tags(session: TableSession, _: Snapshot | None) -> list[dict[str, Any]]:
    return [
        {
            "tag_name": tag.name,
            "snapshot_id": tag.snapshot.id,
            "schema_id": tag.snapshot.schema_id,
            "commit_time": tag.snapshot.time_millis,
            "record_count": tag.snapshot.total_record_count,
            "create_time": _stamp(tag.created),
            "time_retained_millis": tag.retained_millis,
        }
        for tag in session.tags.list()
    ]


def _partition_bounds(session: TableSession, meta: ManifestFileMeta) -> dict[str, str | None]:
    fields = session.schema.select(session.schema.partition_keys)
    stats = meta.partition_stats
    texts: dict[str, str | None] = {}
    for name, stored in (
        ("min_partition_stats", stats.min_values),
        ("max_partition_stats", stats.max_values),
    ):
        has_bounds = bool(fields and stored)
        values = decode_row(stored, [field.type for field in fields]) if has_bounds else ()
        pairs = {field.name: value for field, value in zip(fields, values, strict=False)}
        texts[name] = _json(pairs) if pairs else None
    return texts


def _branches(session: TableSession, _: Snapshot | None) -> list[dict[str, Any]]:
    store = BranchStore(session.file_io, session.paths)
    return [
        {
            "branch_name": name,
            "create_time": session.file_io.status(store.paths(name).schema_file(0)).modified_millis,
        }
        for name in store.names()
    ]


def _consumers(session: TableSession, _: Snapshot | None) -> list[dict[str, Any]]:
    return [
        {
            "consumer_id": consumer.name,
            "next_snapshot_id": consumer.next_snapshot_id,
            "last_update_time": consumer.modified_millis,
        }
        for consumer in session.consumers.list()
    ]


def _statistics(session: TableSession, snapshot: Snapshot | None) -> list[dict[str, Any]]:
    if snapshot is None or snapshot.statistics is None:
        return []
    path = session.paths.statistics_file(snapshot.statistics)
    statistics = decode_statistics(session.file_io.read(path, length=READ_MAX), file_name=path)
    return [
        {
            "snapshot_id": statistics.snapshot_id,
            "schema_id": statistics.schema_id,
            "mergedRecordCount": statistics.merged_record_count,
            "mergedRecordSize": statistics.merged_record_size,
            "colstat": statistics.column_stats,
        }
    ]


def _aggregation_fields(session: TableSession, _: Snapshot | None) -> list[dict[str, Any]]:
    schema = session.schema
    functions: dict[str, str] = {}
    if session.options[core_options.MERGE_ENGINE].policy.has_functions:
        functions = {
            **dict.fromkeys(schema.primary_keys, "primary-key"),
            **column_rule_texts(schema),
        }
    rows = []
    for field in schema.fields:
        prefix = f"fields.{field.name}."
        own = {
            key.removeprefix(prefix): text
            for key, text in sorted(session.options.texts.items())
            if key.startswith(prefix)
        }
        function = own.pop("aggregate-function", None)
        rows.append(
            {
                "field_name": field.name,
                "field_type": type_text(field.type),
                "function": functions.get(field.name, function),
                "function_options": _json(own) if own else None,
                "comment": field.description,
            }
        )
    return rows


def _pairs(mapping: Mapping[str, str] | None) -> list[tuple[str, str]] | None:
    return None if mapping is None else sorted(mapping.items())


def _stamp(created: tuple[int, ...] | None) -> str | None:
    if created is None:
        return None
    year, month, day, hour, minute, second = (*created, 0, 0, 0)[:6]
    return f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"


def _json(values: Mapping[str, object]) -> str:
    return json.dumps(values, default=str, ensure_ascii=False)


def _compactions(session: TableSession, _: Snapshot | None) -> list[dict[str, Any]]:
    """The COMPACT snapshots; of those of background compactions with what these had done so far."""
    rows = []
    for snapshot in session.snapshots.all():
        if snapshot.commit_kind is not CommitKind.COMPACT:
            continue
        metrics = compaction_metrics_of(snapshot.properties)
        of_metrics = {name: getattr(metrics, name, None) for name in COMPACTIONS.names[3:]}
        rows.append(
            {
                "snapshot_id": snapshot.id,
                "commit_user": snapshot.commit_user,
                "commit_time": snapshot.time_millis,
                **of_metrics,
            }
        )
    return rows


Rows = Callable[[TableSession, Snapshot | None], list[dict[str, Any]]]
LISTED: Mapping[str, tuple[pa.Schema, Rows]] = {
    "snapshots": (SNAPSHOTS, _snapshots),
    "compactions": (COMPACTIONS, _compactions),
    "schemas": (SCHEMAS, _schemas),
    "options": (OPTIONS, _options),
    "manifests": (MANIFESTS, _manifests),
    "manifest_lists": (MANIFEST_LISTS, _manifest_lists),
    "tags": (TAGS, _tags),
    "branches": (BRANCHES, _branches),
    "consumers": (CONSUMERS, _consumers),
    "statistics": (STATISTICS, _statistics),
    "aggregation_fields": (AGGREGATION_FIELDS, _aggregation_fields),
}

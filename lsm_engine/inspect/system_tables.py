"""System tables: a table's own metadata as Arrow tables, under Paimon's column names."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.changes.splits import ROW_KIND, SNAPSHOT_ID, Changes, ChangesRequest
from lsm_engine.filter.expression import flags_of, tree_of
from lsm_engine.filter.where import Filter
from lsm_engine.format.binary_row import decode_columns, decode_row
from lsm_engine.format.documents import decode_statistics
from lsm_engine.format.file_index import INDEX_SUFFIX
from lsm_engine.format.json_object import READ_MAX
from lsm_engine.format.manifest import ManifestFileMeta
from lsm_engine.format.snapshot import RowCounts, Snapshot, compaction_metrics_of
from lsm_engine.inspect.health import HEALTH, health
from lsm_engine.kernels.arrow_views import Bools, Longs, one_array
from lsm_engine.kernels.changes import equal_rows
from lsm_engine.maintenance.findings import DamagedFile
from lsm_engine.maintenance.verify import verify
from lsm_engine.merge.function import column_rule_texts
from lsm_engine.metadata.branches import BranchStore
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind, EntryKind, FileSource
from lsm_engine.read.scan import Scan
from lsm_engine.read.scan_plan import ScanRequest, fallback_of, held_partitions, is_past, outside
from lsm_engine.table.live_files import (
    BUCKET,
    EXTERNAL_PATH,
    FILE_NAME,
    KIND,
    LEVEL,
    PARTITION,
    bucket_pairs,
    live_rows,
)
from lsm_engine.table.names import names_of, refuse_taken
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import TableSchema, has_unread_columns
from lsm_engine.types.type_text import columns_of_text
from lsm_engine.types.types import DataField, type_text

# -- System tables made of a snapshot's live files, column by column -------------------------------
#
# Files, buckets, partitions, indexes.

STAMP = pa.timestamp("ms")
_SLICE = 20_000
"""Files whose statistics become text at once."""

FILES = columns_of_text(
    "partition STRING, bucket INT NOT NULL, file_path STRING NOT NULL, file_format STRING, "
    "schema_id BIGINT, level INT NOT NULL, record_count BIGINT, delete_row_count BIGINT, "
    "file_size_in_bytes BIGINT, min_key STRING, max_key STRING, null_value_counts STRING, "
    "min_value_stats STRING, max_value_stats STRING, min_sequence_number BIGINT, "
    "max_sequence_number BIGINT, creation_time TIMESTAMP(3), file_source STRING"
)
FILE_KEY_RANGES = pa.schema(
    [
        *(FILES.field(name) for name in FILES.names[:7]),
        ("file_size_in_bytes", pa.int64()),
        ("min_key", pa.string()),
        ("max_key", pa.string()),
        ("first_row_id", pa.int64()),
    ]
)
FILE_INDEXES = pa.schema(
    [
        ("partition", pa.string()),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("file_path", pa.string(), nullable=False),
        pa.field("index_kind", pa.string(), nullable=False),  # embedded, or sidecar
        ("index_file", pa.string()),  # null: embedded in the manifest
        ("index_size_in_bytes", pa.int64()),  # null: manifests do not record a sidecar's
    ]
)
PARTITIONS = columns_of_text(
    "partition STRING NOT NULL, record_count BIGINT, file_size_in_bytes BIGINT, "
    "file_count BIGINT, last_update_time TIMESTAMP(3), total_buckets INT"
)
BUCKETS = columns_of_text(
    "partition STRING NOT NULL, bucket INT NOT NULL, record_count BIGINT, "
    "file_size_in_bytes BIGINT, file_count BIGINT, last_update_time TIMESTAMP(3)"
)


def files(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return one row per live file, level 0 included; counts are of rows before merging."""
    return _of_files(session, snapshot, FILES, _FILES_COLUMNS, _files)


def _files(session: TableSession, rows: pa.Table) -> dict[str, Any]:
    return {
        **_file_columns(session, rows),
        **_facts(rows),
        "delete_row_count": rows.column("_FILE._DELETE_ROW_COUNT"),
        **_keys(session.schema, rows),
        **_value_stats(session, rows),
        "min_sequence_number": rows.column("_FILE._MIN_SEQUENCE_NUMBER"),
        "max_sequence_number": rows.column("_FILE._MAX_SEQUENCE_NUMBER"),
        "creation_time": rows.column("_FILE._CREATION_TIME"),
        "file_source": _source_names(rows.column("_FILE._FILE_SOURCE")),
    }


def _source_names(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow imports pandas with the first array of Python values: not when this module is imported.
    known_numbers = pa.array([int(source) for source in FileSource], numbers.type)
    names = pa.array([source.name for source in FileSource], pa.string())
    return names.take(pc.index_in(numbers, value_set=known_numbers))


def file_key_ranges(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the range of keys of each live file."""
    return _of_files(session, snapshot, FILE_KEY_RANGES, _RANGE_COLUMNS, _file_key_ranges)


def _file_key_ranges(session: TableSession, rows: pa.Table) -> dict[str, Any]:
    return {
        **_file_columns(session, rows),
        **_facts(rows),
        **_keys(session.schema, rows),
        "first_row_id": rows.column("_FILE._FIRST_ROW_ID"),
    }


def file_indexes(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the file indexes of live files: in the manifest, or in a file beside the data file."""
    rows = _live(session, snapshot, ("_FILE._EMBEDDED_FILE_INDEX", "_FILE._EXTRA_FILES"))
    if rows is None:
        return FILE_INDEXES.empty_table()
    file_columns = _file_columns(session, rows)
    embedded = rows.column("_FILE._EMBEDDED_FILE_INDEX")
    sizes = pc.binary_length(embedded).to_pylist()
    extras: list[list[str] | None] = rows.column("_FILE._EXTRA_FILES").to_pylist()
    indexes: list[tuple[int, str, str | None, int | None]] = [
        (index, "embedded", None, size) for index, size in enumerate(sizes) if size is not None
    ]
    indexes += [
        (index, "sidecar", name, None)
        for index, names in enumerate(extras)
        for name in (names or ())
        if name.endswith(INDEX_SUFFIX)
    ]
    indexes.sort(key=lambda item: (item[0], item[2] or ""))
    places = pa.array([index_row[0] for index_row in indexes], pa.int64())
    columns: dict[str, Any] = {
        name: file_columns[name].take(places) for name in ("partition", "bucket", "file_path")
    }
    columns["index_kind"] = pa.array([index_row[1] for index_row in indexes], pa.string())
    columns["index_file"] = pa.array([index_row[2] for index_row in indexes], pa.string())
    columns["index_size_in_bytes"] = pa.array([index_row[3] for index_row in indexes], pa.int64())
    return _table(columns, FILE_INDEXES)


def partitions(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return one row per partition that holds files; a table without partitions is one, "".

    Those that batch reads take from a fallback branch are among them.
    """
    own = _grouped(session, snapshot, ["partition"], PARTITIONS)
    fallback = fallback_of(session, snapshot, past=is_past(session, snapshot))
    if fallback is None:
        return own
    fallback_rows = _grouped(
        fallback.session,
        fallback.snapshot,
        ["partition"],
        PARTITIONS,
        hidden=held_partitions(session, snapshot),
    )
    hidden = fallback_rows.column(
        "partition"
    )  # here, its rows wait for a bucket: they are read from there
    own = own.filter(pc.invert(pc.is_in(own.column("partition"), value_set=hidden)))
    return pa.concat_tables([own, fallback_rows]).sort_by("partition")


def buckets(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return one row per bucket that holds files."""
    return _grouped(session, snapshot, ["partition", "bucket"], BUCKETS)


def _grouped(
    session: TableSession,
    snapshot: Snapshot | None,
    keys: Sequence[str],
    schema: pa.Schema,
    *,
    hidden: frozenset[bytes] = frozenset(),
) -> pa.Table:
    summed = ("_TOTAL_BUCKETS", "_FILE._ROW_COUNT", "_FILE._FILE_SIZE", "_FILE._CREATION_TIME")
    rows = _live(session, snapshot, summed)
    if rows is not None and hidden:
        rows = outside(rows, hidden)
    if rows is None or not rows.num_rows:
        return schema.empty_table()
    columns = {
        "partition": _partitions(session, rows),
        "bucket": rows.column(BUCKET),
        "total_buckets": rows.column("_TOTAL_BUCKETS"),
        "record_count": rows.column("_FILE._ROW_COUNT"),
        "file_size_in_bytes": rows.column("_FILE._FILE_SIZE"),
        "last_update_time": rows.column("_FILE._CREATION_TIME"),
        "file_count": rows.column(FILE_NAME),
    }
    aggregates = {
        "record_count": "sum",
        "file_size_in_bytes": "sum",
        "file_count": "count",
        "last_update_time": "max",
        "total_buckets": "max",
    }
    aggregated = [name for name in schema.names if name not in keys]
    grouped = (
        pa.table(columns)
        .group_by(list(keys))
        .aggregate([(name, aggregates[name]) for name in aggregated])
    )
    result = {name: grouped.column(name) for name in keys}
    result |= {name: grouped.column(f"{name}_{aggregates[name]}") for name in aggregated}
    return _table(result, schema).sort_by([(name, "ascending") for name in keys])


_FILE_IDENTITY = (PARTITION, BUCKET, LEVEL, FILE_NAME)
_RANGE_COLUMNS = (
    *(f"_FILE.{name}" for name in ("_SCHEMA_ID", "_ROW_COUNT", "_FILE_SIZE", "_MIN_KEY")),
    *("_FILE._MAX_KEY", "_FILE._FIRST_ROW_ID"),
)
_FILES_COLUMNS = (
    *_RANGE_COLUMNS,
    *(f"_FILE._VALUE_STATS.{name}" for name in ("_NULL_COUNTS", "_MIN_VALUES", "_MAX_VALUES")),
    *(f"_FILE.{name}" for name in ("_VALUE_STATS_COLS", "_WRITE_COLS", "_DELETE_ROW_COUNT")),
    *(f"_FILE.{name}" for name in ("_MIN_SEQUENCE_NUMBER", "_MAX_SEQUENCE_NUMBER")),
    *("_FILE._CREATION_TIME", "_FILE._FILE_SOURCE"),
)


def _of_files(
    session: TableSession,
    snapshot: Snapshot | None,
    schema: pa.Schema,
    columns: Collection[str],
    make: Callable[[TableSession, pa.Table], Mapping[str, Any]],
) -> pa.Table:
    """Return one row per live file, ordered by partition, bucket, level and name.

    The entries of one manifest after the other become rows, so that not all of them are in memory. `columns`: those
    of the entries that `make` needs.
    """

    def shape(entries: pa.Table) -> pa.Table:
        is_added = pc.equal(entries.column(KIND), EntryKind.ADD)
        added = entries.filter(is_added)
        rows = _table(make(session, added), schema)
        for name in (KIND, *_FILE_IDENTITY):
            rows = rows.append_column(name, added.column(name))
        if added.num_rows == entries.num_rows:
            return rows
        # A DELETE only takes a file away, and may have no statistics.
        deletes = entries.filter(pc.invert(is_added)).select([KIND, *_FILE_IDENTITY])
        return pa.concat_tables([rows, deletes], promote_options="default")

    rows = _live(session, snapshot, columns, shape)
    return schema.empty_table() if rows is None else rows.select(schema.names).cast(schema)


def _live(
    session: TableSession,
    snapshot: Snapshot | None,
    columns: Collection[str],
    shape: Callable[[pa.Table], pa.Table] | None = None,
) -> pa.Table | None:
    """Return entries of live files, with these columns and the ones that identify a file; None without any."""
    if snapshot is None:
        return None
    needed = (KIND, *_FILE_IDENTITY, EXTERNAL_PATH, *columns)
    metas = session.manifest_metas(snapshot)
    rows = live_rows(session.manifests, metas, columns=needed, shape=shape)
    if rows is None or not rows.num_rows:
        return None
    order = [(name, "ascending") for name in _FILE_IDENTITY]
    places = pc.sort_indices(rows.select(_FILE_IDENTITY), sort_keys=order)
    schema, arrays = rows.schema, rows.columns
    del rows
    # A column goes once it is in order: two copies of all of them would be half of the memory.
    for index in range(len(arrays)):
        arrays[index] = arrays[index].take(places)
    return pa.Table.from_arrays(arrays, schema=schema)


def _partitions(session: TableSession, rows: pa.Table) -> pa.Array:
    encoded = pc.dictionary_encode(rows.column(PARTITION).combine_chunks())
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    context = session.context()
    texts = [context.partition_path(stored) for stored in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _file_columns(session: TableSession, rows: pa.Table) -> dict[str, Any]:
    context = session.context()
    pairs, of_row = bucket_pairs(rows)
    names = rows.column(FILE_NAME)
    if session.options[core_options.PARTITION_LEGACY_NAME]:
        directories = [context.bucket_directory(*pair) for pair in pairs]
        paths = pc.binary_join_element_wise(
            pa.array(directories, pa.string()).take(pa.array(of_row)), one_array(names), "/"
        )
    else:  # a file may lie where a writer of the other spelling has put it
        listed = names.to_pylist()
        places = (pairs[index] for index in of_row.tolist())
        data_files = [
            context.data_file(partition, bucket, name)
            for (partition, bucket), name in zip(places, listed, strict=True)
        ]
        paths = pa.array(data_files, pa.string())
    return {
        "partition": _partitions(session, rows),
        "bucket": rows.column(BUCKET),
        "file_path": pc.coalesce(rows.column(EXTERNAL_PATH), paths),
    }


def _facts(rows: pa.Table) -> dict[str, Any]:
    names = rows.column(FILE_NAME)
    return {
        "file_format": pc.replace_substring_regex(names, r"^.*\.", ""),
        "schema_id": rows.column("_FILE._SCHEMA_ID"),
        "level": rows.column(LEVEL),
        "record_count": rows.column("_FILE._ROW_COUNT"),
        "file_size_in_bytes": rows.column("_FILE._FILE_SIZE"),
    }


def _keys(schema: TableSchema, rows: pa.Table) -> dict[str, Any]:
    if not schema.has_primary_key:
        nulls = pa.nulls(rows.num_rows, pa.string())
        return {"min_key": nulls, "max_key": nulls}
    fields = schema.select(schema.trimmed_primary_keys)
    return {
        "min_key": _row_texts(rows.column("_FILE._MIN_KEY"), fields),
        "max_key": _row_texts(rows.column("_FILE._MAX_KEY"), fields),
    }


def _row_texts(stored: pa.ChunkedArray, fields: Sequence[DataField]) -> pa.Array:
    columns = decode_columns(stored, [field.type for field in fields])
    return pc.binary_join_element_wise(*(_texts(column, str) for column in columns), ", ")


_STATS = ("null_value_counts", "min_value_stats", "max_value_stats")


def _value_stats(session: TableSession, rows: pa.Table) -> dict[str, Any]:
    """Return JSON objects by column name, as the file's own schema calls its columns."""
    layouts = _layouts(rows)
    parts: list[dict[str, pa.Array]] = []
    for (schema_id, names), places in layouts.items():
        schema = session.schemas.load(schema_id)
        # Without the types of all columns none of their statistics can be decoded.
        if has_unread_columns(schema, names):
            parts.append(dict.fromkeys(_STATS, pa.nulls(len(places), pa.string())))
            continue
        fields = schema.written_fields(names)
        # Files of one layout, as nearly always, are in their order already.
        of_layout = rows if len(layouts) == 1 else rows.take(pa.array(places, pa.int64()))
        parts += (
            _stats_of_layout(of_layout.slice(start, _SLICE), fields)
            for start in range(0, len(places), _SLICE)
        )
    columns = {
        name: pa.chunked_array([texts[name] for texts in parts], pa.string()) for name in _STATS
    }
    if len(layouts) == 1:
        return columns
    order = np.argsort(np.concatenate([np.asarray(places) for places in layouts.values()]))
    return {name: column.take(pa.array(order)) for name, column in columns.items()}


def _layouts(rows: pa.Table) -> dict[tuple[int, tuple[str, ...] | None], Longs]:
    """Return the rows of each layout: the schema of a file, and the names of the columns that its statistics hold."""
    listed = one_array(
        pc.coalesce(rows.column("_FILE._VALUE_STATS_COLS"), rows.column("_FILE._WRITE_COLS"))
    )
    name_lists = pc.binary_join(listed, "\0").dictionary_encode()
    ids = one_array(rows.column("_FILE._SCHEMA_ID"))
    numbers = ids.dictionary_encode().indices.to_numpy() * (len(name_lists.dictionary) + 1)
    numbers = numbers + pc.fill_null(name_lists.indices, len(name_lists.dictionary)).to_numpy()
    _, firsts, layout_of = np.unique(numbers, return_index=True, return_inverse=True)
    layouts = {}
    for layout, first in enumerate(firsts.tolist()):
        names = listed[first].as_py()
        key = (ids[first].as_py(), None if names is None else tuple(names))
        layouts[key] = np.flatnonzero(layout_of == layout)
    return layouts


def _stats_of_layout(rows: pa.Table, fields: Sequence[DataField]) -> dict[str, pa.Array]:
    """Return the statistics of files whose statistics hold the same columns, as JSON."""
    names = [field.name for field in fields]
    counts = one_array(rows.column("_FILE._VALUE_STATS._NULL_COUNTS"))
    # Counts of another number of columns cannot be assigned to columns.
    is_complete = pc.fill_null(pc.equal(pc.list_value_length(counts), len(names)), False)  # noqa: FBT003
    complete = counts.filter(is_complete)
    texts = _objects(
        names, [pc.list_element(complete, column) for column in range(len(names))], len(complete)
    )
    places = pc.if_else(is_complete, pc.subtract(pc.cumulative_sum(is_complete.cast("int64")), 1), None)  # fmt: skip
    bounds = {
        name: decode_columns(
            rows.column(f"_FILE._VALUE_STATS.{side}"), [field.type for field in fields]
        )
        for name, side in (("min_value_stats", "_MIN_VALUES"), ("max_value_stats", "_MAX_VALUES"))
    }
    return {
        "null_value_counts": texts.take(places),
        **{name: _objects(names, columns, rows.num_rows) for name, columns in bounds.items()},
    }


def _objects(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> pa.Array:
    """Return each row of the columns as a JSON object."""
    pieces: list[Any] = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        pieces += [f"{', ' if number else '{'}{_json(name)}: ", _texts(column, _json)]
    return pc.binary_join_element_wise(*pieces, "}", "") if pieces else pa.array(["{}"] * count)


def _texts(column: Any, write: Callable[[Any], str]) -> pa.Array:
    """Return the text of each value. A value that repeats is written once, and Arrow writes whole numbers."""
    values = one_array(column)
    if pa.types.is_integer(values.type):
        return pc.fill_null(values.cast(pa.string()), write(None))
    if pa.types.is_nested(values.type):
        return pa.array(map(write, values.to_pylist()), pa.string())
    encoded = values.dictionary_encode()
    distinct, marks = encoded.dictionary, '"' if write is _json else ""
    # Text without a character that JSON escapes needs no loop.
    if pa.types.is_string(distinct.type) and not (marks and _has_escapes(distinct)):
        texts = pc.binary_join_element_wise(marks, distinct, marks, "")
    else:
        texts = pa.array(map(write, distinct.to_pylist()), pa.string())
    return pc.fill_null(texts.take(encoded.indices), write(None))


def _has_escapes(texts: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py())


_ESCAPED = r'["\\\x00-\x1f]'


def _json(value: Any) -> str:
    return json.dumps(value, default=_text_of, ensure_ascii=False)


def _text_of(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _table(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    arrays = [
        column.cast(field.type) if column.type != field.type else column
        for field in schema
        for column in [columns[field.name]]
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


Make = Callable[[TableSession, Snapshot | None], pa.Table]
MADE: Mapping[str, tuple[pa.Schema, Make]] = {
    "files": (FILES, files),
    "file_key_ranges": (FILE_KEY_RANGES, file_key_ranges),
    "file_indexes": (FILE_INDEXES, file_indexes),
    "partitions": (PARTITIONS, partitions),
    "buckets": (BUCKETS, buckets),
}


# -- System tables made of a table's small files ---------------------------------------------------
#
# Snapshots, schemas, manifests, tags, branches, …

_STAMP = pa.timestamp("ms")

SNAPSHOTS = columns_of_text(
    "snapshot_id BIGINT NOT NULL, schema_id BIGINT NOT NULL, commit_user STRING, "
    "commit_identifier BIGINT, commit_kind STRING, commit_time TIMESTAMP(3), "
    "base_manifest_list STRING, delta_manifest_list STRING, changelog_manifest_list STRING, "
    "total_record_count BIGINT, delta_record_count BIGINT, changelog_record_count BIGINT, "
    "watermark BIGINT, properties MAP<STRING, STRING>, operation STRING, rows_inserted BIGINT, "
    "rows_updated BIGINT, rows_deleted BIGINT, rows_unchanged BIGINT, duration_millis BIGINT, user_name STRING, "
    "files_before BIGINT, files_after BIGINT, bytes_before BIGINT, bytes_after BIGINT"
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
            "operation": snapshot.operation_name,
            **_counts_of(snapshot.row_counts),
            "duration_millis": snapshot.duration_millis,
            "user_name": snapshot.user_name,
            **({} if snapshot.compacted_files is None else asdict(snapshot.compacted_files)),
        }
        for snapshot in snapshots
    ]


def _counts_of(counts: RowCounts | None) -> dict[str, int]:
    if counts is None:
        return {}
    return {
        "rows_inserted": counts.inserted,
        "rows_updated": counts.updated,
        "rows_deleted": counts.deleted,
        "rows_unchanged": counts.skipped,
    }


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
        texts[name] = _metadata_json(pairs) if pairs else None
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
                "function_options": _metadata_json(own) if own else None,
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


def _metadata_json(values: Mapping[str, object]) -> str:
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


# -- System tables of verification -----------------------------------------------------------------

_TEXTS = pa.list_(pa.string())
_IDS = pa.list_(pa.int64())
DAMAGED_FILES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False),
        ("problems", _TEXTS),
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("level", pa.int32()),
        ("record_count", pa.int64()),
        ("delete_row_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("min_key", pa.string()),
        ("max_key", pa.string()),
        ("snapshots", _IDS),
        ("tags", _TEXTS),
        ("changelogs", _IDS),
        ("branches", _TEXTS),
        ("sources", _TEXTS),
    ]
)


def damaged_files(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the files that are missing, or whose documents, sizes or references are wrong."""
    del snapshot  # every retained reference is looked at
    return _rows(verify(session).damaged_files)


def deep_damaged_files(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the same, and data files with a page or a row that is wrong: reads the whole table."""
    del snapshot
    return _rows(verify(session, deep=True).damaged_files)


def _rows(files: tuple[DamagedFile, ...]) -> pa.Table:
    return pa.Table.from_pylist([_row(file) for file in files], schema=DAMAGED_FILES)


def _row(file: DamagedFile) -> dict[str, object]:
    stake = file.stake
    row: dict[str, object] = {
        "file_path": file.path,
        "problems": file.problems,
        "snapshots": file.snapshots,
        "tags": file.tags,
        "changelogs": file.changelogs,
        "branches": file.branches,
        "sources": file.sources,
    }
    if stake is None:
        return row
    return row | {
        "partition": _text(stake.partition),
        "bucket": stake.bucket,
        "level": stake.level,
        "record_count": stake.row_count,
        "delete_row_count": stake.delete_count,
        "file_size_in_bytes": stake.byte_count,
        "min_key": _text(stake.min_key),
        "max_key": _text(stake.max_key),
    }


def _text(values: Mapping[str, object] | None) -> str | None:
    if values is None:
        return None
    return ", ".join(f"{name}={value}" for name, value in values.items())


INTEGRITY_TABLES: Mapping[
    str, tuple[pa.Schema, Callable[[TableSession, Snapshot | None], pa.Table]]
] = {
    "damaged_files": (DAMAGED_FILES, damaged_files),
    "damaged_files_deep": (DAMAGED_FILES, deep_damaged_files),
}


# -- System tables that hold a table's own rows ----------------------------------------------------
#
# Audit_log, binlog and ro. And table_indexes.

ROWKIND = "rowkind"
TABLE_INDEXES = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("index_type", pa.string(), nullable=False),
        pa.field("file_name", pa.string(), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        (
            "dv_ranges",
            pa.list_(
                pa.struct(
                    [
                        ("f0", pa.string()),
                        ("f1", pa.int32()),
                        ("f2", pa.int32()),
                        ("cardinality", pa.int64()),
                    ]
                )
            ),
        ),
    ]
)
"""`dv_ranges`: data file, offset and length of each deletion vector, and how many rows it deletes."""


def audit_log(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return all changes that are kept, up to a snapshot, oldest first, with their row kind first."""
    refuse_taken(session.schema.names, (ROWKIND,), "audit_log")
    rows = _changes(session, snapshot)
    columns = [rows.column(ROW_KIND), *(rows.column(name) for name in session.schema.names)]
    kind = pa.field(ROWKIND, pa.string(), nullable=False)
    return pa.Table.from_arrays(columns, schema=pa.schema([kind, *session.schema.arrow]))


def binlog(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the changes with a -U and the +U behind it in one row: every column as a list.

    A list holds [before, after] where `rowkind` is +U and both are known, else the one value.
    """
    refuse_taken(session.schema.names, (ROWKIND,), "binlog")
    rows = _changes(session, snapshot).combine_chunks()
    kinds = one_array(rows.column(ROW_KIND))
    starts = _row_starts(rows, session.schema)
    offsets = pa.array(np.append(starts, rows.num_rows).astype(np.int32))
    # The last of a pair holds the pair's row kind.
    last = pa.array(np.append(starts[1:], rows.num_rows)[: len(starts)] - 1)
    columns = [kinds.take(last)]
    fields = [pa.field(ROWKIND, pa.string(), nullable=False)]
    for field in session.schema.arrow:
        values = one_array(rows.column(field.name))
        listed = pa.ListArray.from_arrays(offsets, values)
        columns.append(listed)
        fields.append(pa.field(field.name, listed.type, nullable=False))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def read_optimized(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the rows of the deepest level alone, which need no merging; newer rows do not show.

    Where level 0 is hidden anyway (deletion vectors, first-row), nothing above it needs merging, and
    all of it is read.
    """
    if snapshot is None:
        return session.schema.arrow.empty_table()
    request = ScanRequest(snapshot_id=snapshot.id, read_optimized=True, is_batch=False)
    return Scan(session, request, snapshot).to_arrow()


def row_tracking(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the rows with their ids, and the snapshots that they came or changed with.

    Raises InvalidInputError for tables without 'row-tracking.enabled'.
    """
    if not session.schema.tracks_rows:
        raise InvalidInputError(
            "rows of this table have no ids; they do in tables created with 'row-tracking.enabled' = true",
            option=core_options.ROW_TRACKING_ENABLED.key,
            table=session.name,
        )
    current_id = None if snapshot is None else snapshot.id
    names = (*session.schema.names, *session.schema.tracking_names)
    request = ScanRequest(columns=names, snapshot_id=current_id, is_batch=False)
    return Scan(session, request, snapshot).to_arrow()


def table_indexes(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the index files of a snapshot: deletion vectors and hash indexes."""
    context = session.context()
    entries = [] if snapshot is None else session.all_indexes(snapshot)
    rows = [
        {
            "partition": context.partition_path(entry.partition),
            "bucket": entry.bucket,
            "index_type": entry.index_file.index_type,
            "file_name": entry.index_file.file_name,
            "file_size": entry.index_file.file_size,
            "row_count": entry.index_file.row_count,
            "dv_ranges": [
                {
                    "f0": vector.data_file_name,
                    "f1": vector.offset,
                    "f2": vector.length,
                    "cardinality": vector.cardinality,
                }
                for vector in entry.index_file.deletion_vectors
            ]
            if entry.index_file.deletion_vectors is not None
            else None,
        }
        for entry in entries
    ]
    return pa.Table.from_pylist(rows, schema=TABLE_INDEXES)


ROWS: Mapping[str, Callable[[TableSession, Snapshot | None], pa.Table]] = {
    "audit_log": audit_log,
    "binlog": binlog,
    "ro": read_optimized,
    "row_tracking": row_tracking,
}
"""By name; their columns are the table's, and some more."""


def _changes(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    request = ChangesRequest(upto=0 if snapshot is None else snapshot.id)
    return Changes(session, request).to_arrow()


def _row_starts(rows: pa.Table, schema: TableSchema) -> Longs:
    """Return where each row of a binlog begins: everywhere but at a +U that follows its own -U."""
    count = rows.num_rows
    begins: Bools = np.ones(count, np.bool_)
    if count > 1:
        kinds = one_array(rows.column(ROW_KIND))
        before = np.asarray(pc.equal(kinds, "-U").to_numpy(zero_copy_only=False), np.bool_)
        after = np.asarray(pc.equal(kinds, "+U").to_numpy(zero_copy_only=False), np.bool_)
        names = [SNAPSHOT_ID, *schema.primary_keys]
        keys = [one_array(rows.column(name)) for name in names]
        alike = equal_rows([key[:-1] for key in keys], [key[1:] for key in keys], count - 1)
        begins[1:] = ~(before[:-1] & after[1:] & alike)
    return np.flatnonzero(begins)


# -- System tables: a table's own metadata as Arrow tables, under Paimon's column names ------------


@record
class SystemTable:
    """One system table: how it is made for a snapshot (None: empty table), and its columns.

    `schema` None: they are the table's own.
    """

    schema: pa.Schema | None
    make: Callable[[TableSession, Snapshot | None], pa.Table]


def system_table(
    session: TableSession,
    name: str,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    where: Filter | None = None,
    columns: str | Sequence[str] | None = None,
) -> pa.Table:
    """Return a system table by name; raises NotFoundError naming those there are.

    `where` keeps the rows for which it is true; it may read columns that `columns` leaves out.
    """
    definition = TABLES.get(name)
    if definition is None:
        raise NotFoundError(
            f"no system table {name!r}; there are {', '.join(sorted(TABLES))}",
            kind=ErrorKind.NO_SUCH_TABLE,
            name=name,
        )
    snapshot = _snapshot(session, snapshot_id, tag)
    return chosen(definition.make(session, snapshot), where, columns)


def chosen(rows: pa.Table, where: Filter | None, columns: str | Sequence[str] | None) -> pa.Table:
    """Return some rows and columns of a system table; a wrong filter or name is a typed error."""
    if where is not None:
        rows = rows.filter(flags_of(tree_of(where, rows.schema), rows))
    if columns is None:
        return rows
    names = names_of(columns, "columns")
    for name in names:
        if name not in rows.schema.names:
            raise NotFoundError(
                f"no column {name!r}; there are {', '.join(rows.schema.names)}",
                kind=ErrorKind.NO_SUCH_COLUMN,
                column=name,
            )
    return rows.select(names)


def _snapshot(session: TableSession, snapshot_id: int | None, tag: str | None) -> Snapshot | None:
    if snapshot_id is not None and tag is not None:
        raise InvalidInputError("name a snapshot or a tag, not both", tag=tag)
    if tag is not None:
        return session.tags.load(tag).snapshot
    return (
        session.snapshots.latest() if snapshot_id is None else session.snapshots.load(snapshot_id)
    )


def _listed(
    schema: pa.Schema, rows: Rows, session: TableSession, snapshot: Snapshot | None
) -> pa.Table:
    return pa.Table.from_pylist(rows(session, snapshot), schema=schema)


TABLES: Mapping[str, SystemTable] = {
    **{
        name: SystemTable(schema=schema, make=partial(_listed, schema, rows))
        for name, (schema, rows) in LISTED.items()
    },
    **{
        name: SystemTable(schema=schema, make=make)
        for name, (schema, make) in {**MADE, **INTEGRITY_TABLES, "health": (HEALTH, health)}.items()
    },
    **{name: SystemTable(schema=None, make=make) for name, make in ROWS.items()},
    "table_indexes": SystemTable(schema=TABLE_INDEXES, make=table_indexes),
}

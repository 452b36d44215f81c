"""System tables made of a snapshot's live files, column by column: files, buckets, partitions, indexes."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.modes import FileSource
from lsm_engine.codec.binary_row import decode_columns
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.schema.type_text import columns_of_text
from lsm_engine.schema.types import DataField
from lsm_engine.table.ground.live_files import (
    BUCKET,
    FILE_NAME,
    LEVEL,
    PARTITION,
    bucket_pairs,
    live_rows,
)
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.read.fallback import fallback_of, held_partitions, is_past, outside

STAMP = pa.timestamp("ms")
INDEX_SUFFIX = ".index"
_SOURCES = {int(source): source.name for source in FileSource}

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
    rows = _live(session, snapshot)
    if rows is None:
        return FILES.empty_table()
    columns: dict[str, Any] = {
        **_file_columns(session, rows),
        **_facts(rows),
        "delete_row_count": rows.column("_FILE._DELETE_ROW_COUNT"),
        **_keys(session.schema, rows),
        **_value_stats(session, rows),
        "min_sequence_number": rows.column("_FILE._MIN_SEQUENCE_NUMBER"),
        "max_sequence_number": rows.column("_FILE._MAX_SEQUENCE_NUMBER"),
        "creation_time": rows.column("_FILE._CREATION_TIME"),
        "file_source": pa.array(
            [_SOURCES.get(source) for source in rows.column("_FILE._FILE_SOURCE").to_pylist()],
            pa.string(),
        ),
    }
    return _table(columns, FILES)


def file_key_ranges(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the range of keys of each live file."""
    rows = _live(session, snapshot)
    if rows is None:
        return FILE_KEY_RANGES.empty_table()
    columns = {
        **_file_columns(session, rows),
        **_facts(rows),
        **_keys(session.schema, rows),
        "first_row_id": rows.column("_FILE._FIRST_ROW_ID"),
    }
    return _table(columns, FILE_KEY_RANGES)


def file_indexes(session: TableSession, snapshot: Snapshot | None) -> pa.Table:
    """Return the file indexes of live files: in the manifest, or in a file beside the data file."""
    rows = _live(session, snapshot)
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
    rows = _live(session, snapshot)
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


def _live(session: TableSession, snapshot: Snapshot | None) -> pa.Table | None:
    if snapshot is None:
        return None
    rows = live_rows(session.manifests, session.manifest_metas(snapshot))
    if rows is None or not rows.num_rows:
        return None
    order = [(name, "ascending") for name in (PARTITION, BUCKET, LEVEL, FILE_NAME)]
    return rows.take(pc.sort_indices(rows.select([name for name, _ in order]), sort_keys=order))


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
            pa.array(directories, pa.string()).take(pa.array(of_row)), names.combine_chunks(), "/"
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
        "file_path": paths,
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
    values = zip(*(column.to_pylist() for column in columns), strict=True)
    return pa.array([", ".join(map(str, row)) for row in values], pa.string())


def _value_stats(session: TableSession, rows: pa.Table) -> dict[str, Any]:
    """Return JSON objects by column name, as the file's own schema calls its columns."""
    stats: dict[str, list[str | None]] = {
        name: [None] * rows.num_rows
        for name in ("null_value_counts", "min_value_stats", "max_value_stats")
    }
    listed = pc.coalesce(
        rows.column("_FILE._VALUE_STATS_COLS"), rows.column("_FILE._WRITE_COLS")
    ).to_pylist()
    ids = rows.column("_FILE._SCHEMA_ID").to_pylist()
    layouts: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
    for row, (schema_id, names) in enumerate(zip(ids, listed, strict=True)):
        layouts.setdefault((schema_id, None if names is None else tuple(names)), []).append(row)
    for (schema_id, names), places in layouts.items():
        fields = session.schemas.load(schema_id).written_fields(names)
        group = rows.take(pa.array(places, pa.int64()))
        counts = group.column("_FILE._VALUE_STATS._NULL_COUNTS").to_pylist()
        columns = [field.name for field in fields]
        for index, row in enumerate(places):
            if counts[index] is not None and len(counts[index]) == len(columns):
                stats["null_value_counts"][row] = _json(
                    dict(zip(columns, counts[index], strict=True))
                )
        for name, side in (("min_value_stats", "_MIN_VALUES"), ("max_value_stats", "_MAX_VALUES")):
            values = decode_columns(
                group.column(f"_FILE._VALUE_STATS.{side}"), [field.type for field in fields]
            )
            texts = zip(*(column.to_pylist() for column in values), strict=True)
            for row, bounds in zip(places, texts, strict=False):
                stats[name][row] = _json(dict(zip(columns, bounds, strict=True)))
    return {name: pa.array(texts, pa.string()) for name, texts in stats.items()}


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, default=_text_of, ensure_ascii=False)


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

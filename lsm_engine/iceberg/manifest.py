"""Manifests and manifest lists of Iceberg (spec, versions 2 and 3), and files of deleted rows.

Entries and rows of lists are mappings of the spec's names, as Avro's codec takes and gives them.
"""

import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from importlib import import_module
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.filter.stats import covered_columns
from lsm_engine.format.avro.container import ContainerEncoder
from lsm_engine.format.binary_row import decode_columns
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.deletion_vector import DeletionVector, encode_vector
from lsm_engine.iceberg.schema import (
    PARTITION_FIELD_START,
    JsonObject,
    PlainValue,
    bound_bytes,
    decimal_size,
    iceberg_schema,
    name_mapping,
    of_avro,
    partition_spec,
    plain_values,
)
from lsm_engine.types.declared_lengths import upper_bounds
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField, Root, ScalarType

EXISTING, ADDED = 0, 1
"""Status of an entry."""
DATA, DELETES = 0, 1
"""Content of a manifest, and of a file in it (position deletes)."""
_CODEC_NAMES = {"none": "null", "gzip": "deflate", "deflate": "deflate"}


class Layout:
    """The common parts of the manifests of a table: its schema, format version and codec.

    What is the same in each file is made once (`layout_of`).
    """

    def __init__(self, schema: TableSchema, format_version: int, codec: str) -> None:
        self.schema = schema
        self.format_version = format_version
        self.codec = codec

    @property
    def has_puffin_files(self) -> bool:
        """Whether deleted rows are in Puffin files, and not in position delete files."""
        return self.format_version >= 3

    @cached_property
    def partition_fields(self) -> tuple[DataField, ...]:
        """The partition columns."""
        return self.schema.select(self.schema.partition_keys)

    def partition(self, values: Sequence[PlainValue]) -> JsonObject:
        """Return values of the partition columns as the record of a manifest entry."""
        return dict(zip(self._partition_names, values, strict=True))

    @cached_property
    def _partition_names(self) -> list[str]:
        return [avro_name(field.name) for field in self.partition_fields]

    @cached_property
    def columns(self) -> JsonObject:
        """The schema in Iceberg's JSON. Raises UnsupportedError for a type that Iceberg's readers cannot read."""
        return iceberg_schema(self.schema)

    @cached_property
    def name_mapping(self) -> str:
        """The names of columns in files without field ids, as JSON."""
        return json.dumps(name_mapping(self.schema))

    @cached_property
    def entries(self) -> ContainerEncoder:
        """The encoder of manifests."""
        return ContainerEncoder(_entry_schema(self))

    @cached_property
    def metadata(self) -> dict[str, str]:
        """The members of the header of each manifest, beside its content."""
        return {
            "schema": json.dumps(self.columns),
            "schema-id": str(self.schema.id),
            "partition-spec": json.dumps(partition_spec(self.schema)),
            "partition-spec-id": "0",
            "format-version": str(self.format_version),
        }


class _Identity:
    """A schema as a key: to hash its content takes longer than to make a manifest."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, value: object) -> bool:
        return isinstance(value, _Identity) and self.schema is value.schema


def layout_of(schema: TableSchema, format_version: int, codec: str) -> Layout:
    """Return the layout of the manifests of a table: the same object as long as its schema is the same object."""
    return _kept_layout(_Identity(schema), format_version, codec)


@lru_cache(maxsize=64)
def _kept_layout(identity: _Identity, format_version: int, codec: str) -> Layout:
    return Layout(identity.schema, format_version, codec)


_NOT_AVRO = re.compile("[^A-Za-z0-9_]")


def avro_name(name: str) -> str:
    """Return a name that Avro allows: readers such as DuckDB's refuse a file with another.

    Iceberg's library makes the same of it; readers find fields by their ids.
    """
    escaped = _NOT_AVRO.sub(lambda match: f"_x{ord(match[0]):X}", name)
    return f"_{escaped}" if escaped[0].isdigit() else escaped


# -- Files of deleted rows (spec: Puffin in version 3, position delete files in version 2) -----------

_MAGIC = b"PFA1"
_BLOB_TYPE = "deletion-vector-v1"
_PATH_FIELD, _POSITION_FIELD = 2_147_483_546, 2_147_483_545
"""The ids of the columns of a position delete file (spec, reserved field ids)."""
_ROW_POSITION_FIELD = 2_147_483_645
"""The id of the column that a vector's blob names (spec, reserved field ids)."""
_UNKNOWN = -1
_NO_FLAGS = bytes(4)
_POSITION_SCHEMA = pa.schema(
    [
        pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})
        for name, kind, number in (
            ("file_path", pa.string(), _PATH_FIELD),
            ("pos", pa.int64(), _POSITION_FIELD),
        )
    ]
)


@record
class DeletesFile:
    """A file of deleted rows, and the members of `data_file` that differ from entry to entry of it."""

    data: bytes
    entries: tuple[JsonObject, ...]


def puffin_file(vectors: Iterable[tuple[str, DeletionVector]]) -> DeletesFile:
    """Return a Puffin file of the vectors of some data files, by location. Each vector has an entry.

    A blob is a 64-bit vector as Paimon's index files have it: length, magic number, bitmap and CRC-32.
    """
    parts = [_MAGIC]
    blobs: list[JsonObject] = []
    entries: list[JsonObject] = []
    offset = len(_MAGIC)
    for data_file, vector in vectors:
        stored = encode_vector(vector, wide=True)
        entries.append(
            {
                "record_count": len(vector),
                "referenced_data_file": data_file,
                "content_offset": offset,
                "content_size_in_bytes": len(stored),
            }
        )
        blobs.append(
            {
                "type": _BLOB_TYPE,
                "fields": [_ROW_POSITION_FIELD],
                "snapshot-id": _UNKNOWN,
                "sequence-number": _UNKNOWN,
                "offset": offset,
                "length": len(stored),
                "properties": {
                    "referenced-data-file": data_file,
                    "cardinality": str(len(vector)),
                },
            }
        )
        parts.append(stored)
        offset += len(stored)
    footer = json.dumps({"blobs": blobs}, separators=(",", ":")).encode()
    parts += [_MAGIC, footer, len(footer).to_bytes(4, "little"), _NO_FLAGS, _MAGIC]
    return DeletesFile(data=b"".join(parts), entries=tuple(entries))


def position_deletes(data_file: str, vector: DeletionVector) -> pa.Table:
    """Return the rows of a position delete file: the location of a data file, and the positions of its deleted rows.

    Polars refuses a file that names several data files.
    """
    locations = pa.repeat(pa.scalar(data_file, pa.string()), len(vector))
    return pa.Table.from_arrays([locations, vector.positions], schema=_POSITION_SCHEMA)


def position_delete_file(data_file: str, vector: DeletionVector) -> DeletesFile:
    """Return a position delete file, in Parquet."""
    target = io.BytesIO()
    # Without Arrow's own schema: a reader takes the types of the columns from the specification.
    pq.write_table(position_deletes(data_file, vector), target, store_schema=False)
    bounds = [
        [
            {"key": _PATH_FIELD, "value": data_file.encode()},
            {"key": _POSITION_FIELD, "value": int(position).to_bytes(8, "little")},
        ]
        for position in vector.positions[[0, -1]]
    ]
    entry: JsonObject = {
        "record_count": len(vector),
        "lower_bounds": bounds[0],
        "upper_bounds": bounds[1],
        "referenced_data_file": data_file,
        "content_offset": None,
        "content_size_in_bytes": None,
    }
    return DeletesFile(data=target.getvalue(), entries=(entry,))


def read_position_deletes(data: bytes, file_name: str) -> pa.Table:
    """Return the rows of a position delete file. Raises CorruptFileError, naming the file."""
    try:
        return pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as cause:
        raise CorruptFileError(
            "a file of deleted rows cannot be read; `lsm iceberg sync --rebuild` writes it anew",
            file=file_name,
        ) from cause


# -- Avro schemas ----------------------------------------------------------------------------------


def _field(name: str, kind: Any, number: int) -> JsonObject:
    return {"name": name, "type": kind, "field-id": number}


def _optional(name: str, kind: Any, number: int) -> JsonObject:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _map(name: str, number: int, key: int, value: int, kind: str) -> JsonObject:
    pair = {
        "type": "record",
        "name": f"k{key}_v{value}",
        "fields": [_field("key", "int", key), _field("value", kind, value)],
    }
    return _optional(name, {"type": "array", "items": pair, "logicalType": "map"}, number)


def _partition_type(kind: ScalarType, number: int) -> Any:
    match kind.root:
        case Root.BOOLEAN:
            return "boolean"
        case Root.BIGINT:
            return "long"
        case Root.FLOAT:
            return "float"
        case Root.DOUBLE:
            return "double"
        case Root.STRING | Root.CHAR | Root.VARCHAR:
            return "string"
        case Root.BYTES | Root.BINARY | Root.VARBINARY:
            return "bytes"
        case Root.DATE:
            return {"type": "int", "logicalType": "date"}
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            is_instant = kind.root is Root.TIMESTAMP_LTZ
            return {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": is_instant}
        case Root.DECIMAL:
            return {
                "type": "fixed",
                "name": f"decimal_{number}",
                "size": decimal_size(kind),
                "logicalType": "decimal",
                "precision": kind.precision,
                "scale": kind.scale,
            }
        case _:
            return "int"


def _entry_schema(layout: Layout) -> JsonObject:
    partition = [
        _optional(avro_name(field.name), _partition_type(field.type, number), number)
        for number, field in enumerate(layout.partition_fields, PARTITION_FIELD_START)
        if isinstance(field.type, ScalarType)
    ]
    data_file = [
        _field("content", "int", 134),
        _field("file_path", "string", 100),
        _field("file_format", "string", 101),
        _field("partition", {"type": "record", "name": "r102", "fields": partition}, 102),
        _field("record_count", "long", 103),
        _field("file_size_in_bytes", "long", 104),
        _map("column_sizes", 108, 117, 118, "long"),
        _map("value_counts", 109, 119, 120, "long"),
        _map("null_value_counts", 110, 121, 122, "long"),
        _map("nan_value_counts", 137, 138, 139, "long"),
        _map("lower_bounds", 125, 126, 127, "bytes"),
        _map("upper_bounds", 128, 129, 130, "bytes"),
        _optional("referenced_data_file", "string", 143),
    ]
    if layout.format_version >= 3:
        data_file += [
            _optional("first_row_id", "long", 142),
            _optional("content_offset", "long", 144),
            _optional("content_size_in_bytes", "long", 145),
        ]
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field("status", "int", 0),
            _optional("snapshot_id", "long", 1),
            _optional("sequence_number", "long", 3),
            _optional("file_sequence_number", "long", 4),
            _field("data_file", {"type": "record", "name": "r2", "fields": data_file}, 2),
        ],
    }


def _list_schema(format_version: int) -> JsonObject:
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            _field("contains_null", "boolean", 509),
            _optional("contains_nan", "boolean", 518),
            _optional("lower_bound", "bytes", 510),
            _optional("upper_bound", "bytes", 511),
        ],
    }
    summaries = {"type": "array", "items": summary, "element-id": 508}
    fields = [
        _field("manifest_path", "string", 500),
        _field("manifest_length", "long", 501),
        _field("partition_spec_id", "int", 502),
        _field("content", "int", 517),
        _field("sequence_number", "long", 515),
        _field("min_sequence_number", "long", 516),
        _field("added_snapshot_id", "long", 503),
        _field("added_files_count", "int", 504),
        _field("existing_files_count", "int", 505),
        _field("deleted_files_count", "int", 506),
        _field("added_rows_count", "long", 512),
        _field("existing_rows_count", "long", 513),
        _field("deleted_rows_count", "long", 514),
        _optional("partitions", summaries, 507),
    ]
    if format_version >= 3:
        fields.append(_optional("first_row_id", "long", 520))
    return {"type": "record", "name": "manifest_file", "fields": fields}


# -- Files -----------------------------------------------------------------------------------------


def manifest(entries: Sequence[JsonObject], layout: Layout, content: int) -> bytes:
    """Return a manifest of some entries, all of data files or all of deletes."""
    metadata = {**layout.metadata, "content": "data" if content == DATA else "deletes"}
    return _avro_file(layout.entries, entries, metadata, layout.codec)


def manifest_list(rows: Sequence[JsonObject], layout: Layout, snapshot: JsonObject) -> bytes:
    """Return the manifest list of a snapshot."""
    metadata = {
        "snapshot-id": str(snapshot["snapshot-id"]),
        "parent-snapshot-id": str(snapshot.get("parent-snapshot-id", "null")),
        "sequence-number": str(snapshot["sequence-number"]),
        "format-version": str(layout.format_version),
    }
    return _avro_file(_list_encoder(layout.format_version), rows, metadata, layout.codec)


@cache
def _list_encoder(format_version: int) -> ContainerEncoder:
    return ContainerEncoder(_list_schema(format_version))


def _avro_file(
    encoder: ContainerEncoder,
    records: Iterable[JsonObject],
    metadata: Mapping[str, str],
    codec: str,
) -> bytes:
    encoded = map(encoder.record, records)
    return encoder.file(encoded, codec=_CODEC_NAMES[codec], metadata=metadata)


def read_records(data: bytes, file_name: str) -> list[JsonObject]:
    """Return the entries of a manifest, or the rows of a manifest list.

    Raises CorruptFileError, naming the file.
    """
    try:
        return list(import_module("fastavro").reader(io.BytesIO(data)))
    except (ValueError, KeyError, IndexError, EOFError, TypeError, OSError) as cause:
        raise CorruptFileError(
            "a file of Iceberg metadata cannot be read; `lsm iceberg sync --rebuild` writes it anew",
            file=file_name,
        ) from cause


# -- Entries ---------------------------------------------------------------------------------------


def added_entry(data_file: JsonObject, snapshot_id: int) -> JsonObject:
    """Return the entry of a file that a snapshot adds; snapshot ids are sequence numbers."""
    return {
        "status": ADDED,
        "snapshot_id": snapshot_id,
        "sequence_number": snapshot_id,
        "file_sequence_number": snapshot_id,
        "data_file": data_file,
    }


def existing_entry(entry: JsonObject) -> JsonObject:
    """Return the entry of a file that an earlier snapshot added, for a newer manifest."""
    return {**entry, "status": EXISTING}


_METRICS = (
    "column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds",
)  # fmt: skip
_NO_METRICS: JsonObject = {name: [] for name in _METRICS}
"""Nothing is known of any column. Some readers take no null for that."""


@record
class LocatedFile:
    """A data file, where it lies for readers, and its partition in Iceberg's units."""

    file: DataFileMeta
    location: str
    partition: tuple[PlainValue, ...]
    first_row_id: int | None = None


def data_files(
    files: Sequence[LocatedFile], layout: Layout, schemas: Mapping[int, TableSchema]
) -> list[JsonObject]:
    """Return `data_file` of each file, with the counts and bounds of its columns as far as they are known.

    `schemas`: those that the files were written with, by id.
    """
    metrics: list[JsonObject] = [{} for _ in files]
    layouts: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
    for i, located in enumerate(files):
        key = (located.file.schema_id, located.file.value_stats_columns)
        layouts.setdefault(key, []).append(i)
    for (schema_id, listed), places in layouts.items():
        group = [files[i].file for i in places]
        columns = _metrics(group, schemas[schema_id], layout.schema, listed)
        for i, metric in zip(places, columns, strict=True):
            metrics[i] = metric
    return [
        {
            "content": DATA,
            "file_path": located.location,
            "file_format": "PARQUET",
            "partition": layout.partition(located.partition),
            "record_count": located.file.row_count,
            "file_size_in_bytes": located.file.file_size,
            **_NO_METRICS,
            **metric,
            "referenced_data_file": None,
            "first_row_id": located.first_row_id,
            "content_offset": None,
            "content_size_in_bytes": None,
        }
        for located, metric in zip(files, metrics, strict=True)
    ]


def _metrics(
    files: Sequence[DataFileMeta],
    stored: TableSchema,
    read: TableSchema,
    listed: tuple[str, ...] | None,
) -> list[JsonObject]:
    """Return value counts, null counts and bounds of files of one layout, each as pairs of field id and value."""
    covered = covered_columns(stored.fields, read.fields, listed=listed)
    positions = [
        i
        for i, column in enumerate(covered)
        if column.name is not None and isinstance(column.type, ScalarType)
    ]
    stats = [file.value_stats for file in files]
    # Minima and maxima together: to decode takes as long for two rows as for one.
    rows = pa.array(
        [*(row.min_values for row in stats), *(row.max_values for row in stats)], pa.binary()
    )
    columns = decode_columns(rows, [column.type for column in covered], positions)
    metrics: list[JsonObject] = [
        {"value_counts": [], "null_value_counts": [], "lower_bounds": [], "upper_bounds": []}
        for _ in files
    ]
    for position, column in zip(positions, columns, strict=True):
        field = read.field(str(covered[position].name))
        kind = field.type
        assert isinstance(kind, ScalarType), kind
        maxs = upper_bounds(covered[position].type, column[len(files) :])
        lower = bound_bytes(plain_values(column[: len(files)], kind), kind)
        upper = bound_bytes(plain_values(maxs, kind), kind)
        for file, metric, low, high in zip(files, metrics, lower, upper, strict=True):
            counts = file.value_stats.null_counts or ()
            null_count = counts[position] if position < len(counts) else None
            if null_count is not None:
                metric["value_counts"].append({"key": field.id, "value": file.row_count})
                metric["null_value_counts"].append({"key": field.id, "value": null_count})
            if low is not None and high is not None:
                metric["lower_bounds"].append({"key": field.id, "value": low})
                metric["upper_bounds"].append({"key": field.id, "value": high})
    return metrics


def delete_files(file: DeletesFile, *, location: str, partition: JsonObject) -> list[JsonObject]:
    """Return `data_file` of each entry of a file of deleted rows."""
    return [
        {
            "content": DELETES,
            "file_path": location,
            "file_format": location.rpartition(".")[2].upper(),
            "partition": partition,
            "file_size_in_bytes": len(file.data),
            **_NO_METRICS,
            "first_row_id": None,
            **entry,
        }
        for entry in file.entries
    ]


# -- Rows of manifest lists ------------------------------------------------------------------------


def list_row(
    entries: Sequence[JsonObject],
    layout: Layout,
    *,
    location: str,
    size: int,
    snapshot_id: int,
) -> JsonObject:
    """Return the row of a manifest that a snapshot has written."""
    content = entries[0]["data_file"]["content"]
    by_status: dict[int, list[int]] = {EXISTING: [], ADDED: []}
    for entry in entries:
        by_status[entry["status"]].append(entry["data_file"]["record_count"])
    row_ids = [entry["data_file"].get("first_row_id") for entry in entries]
    return {
        "manifest_path": location,
        "manifest_length": size,
        "partition_spec_id": 0,
        "content": content,
        "sequence_number": snapshot_id,
        "min_sequence_number": min(entry["sequence_number"] for entry in entries),
        "added_snapshot_id": snapshot_id,
        "added_files_count": len(by_status[ADDED]),
        "existing_files_count": len(by_status[EXISTING]),
        "deleted_files_count": 0,
        "added_rows_count": sum(by_status[ADDED]),
        "existing_rows_count": sum(by_status[EXISTING]),
        "deleted_rows_count": 0,
        "partitions": _summaries(entries, layout),
        "first_row_id": min((number for number in row_ids if number is not None), default=None),
    }


def _summaries(entries: Sequence[JsonObject], layout: Layout) -> list[JsonObject]:
    """Return the ranges of the partition values of some entries; readers skip manifests by them."""
    summaries = []
    for field in layout.partition_fields:
        kind = field.type
        assert isinstance(kind, ScalarType), kind
        name = avro_name(field.name)
        values = [of_avro(entry["data_file"]["partition"][name], kind) for entry in entries]
        non_null = [value for value in values if value is not None]
        numbers: list[Any] = [value for value in non_null if not _is_nan(value)]
        bounds = bound_bytes((min(numbers), max(numbers)), kind) if numbers else (None, None)
        summaries.append(
            {
                "contains_null": len(non_null) < len(values),
                "contains_nan": len(numbers) < len(non_null),
                "lower_bound": bounds[0],
                "upper_bound": bounds[1],
            }
        )
    return summaries


def _is_nan(value: PlainValue) -> bool:
    return isinstance(value, float) and math.isnan(value)

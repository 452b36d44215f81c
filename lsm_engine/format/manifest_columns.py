"""The columns of manifests and manifest lists, with defaults for those that other clients leave out."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.format.avro.container import CHECKSUM, FOOTER_CHECKSUM
from lsm_engine.format.avro.decoder import decode_table
from lsm_engine.format.data_file import SimpleStats
from lsm_engine.format.manifest import ManifestEntry

ENTRY_VERSION = 2
INDEX_VERSION = 1


@record
class KnownColumn:
    """A column of a metadata file: its Arrow type, and whether a writer may leave it out."""

    kind: pa.DataType
    required: bool = False


def _stats(prefix: str) -> dict[str, KnownColumn]:
    # RS writes nullable statistics records; null is "nothing known".
    return {
        f"{prefix}._MIN_VALUES": KnownColumn(kind=pa.binary()),
        f"{prefix}._MAX_VALUES": KnownColumn(kind=pa.binary()),
        f"{prefix}._NULL_COUNTS": KnownColumn(kind=pa.list_(pa.int64())),
    }


def _needed(kind: pa.DataType) -> KnownColumn:
    return KnownColumn(kind=kind, required=True)


def _optional(kind: pa.DataType) -> KnownColumn:
    return KnownColumn(kind=kind)


_INT, _LONG, _TEXT, _BYTES = pa.int32(), pa.int64(), pa.string(), pa.binary()
_TEXTS = pa.list_(pa.string())

MANIFEST_COLUMNS: Mapping[str, KnownColumn] = {
    "_VERSION": _needed(_INT),
    "_KIND": _needed(_INT),
    "_PARTITION": _needed(_BYTES),
    "_BUCKET": _needed(_INT),
    "_TOTAL_BUCKETS": _needed(_INT),
    "_FILE._FILE_NAME": _needed(_TEXT),
    "_FILE._FILE_SIZE": _needed(_LONG),
    "_FILE._ROW_COUNT": _needed(_LONG),
    "_FILE._MIN_KEY": _needed(_BYTES),
    "_FILE._MAX_KEY": _needed(_BYTES),
    **_stats("_FILE._KEY_STATS"),
    **_stats("_FILE._VALUE_STATS"),
    "_FILE._MIN_SEQUENCE_NUMBER": _needed(_LONG),
    "_FILE._MAX_SEQUENCE_NUMBER": _needed(_LONG),
    "_FILE._SCHEMA_ID": _needed(_LONG),
    "_FILE._LEVEL": _needed(_INT),
    "_FILE._EXTRA_FILES": _optional(_TEXTS),
    "_FILE._CREATION_TIME": _optional(pa.timestamp("ms")),
    "_FILE._DELETE_ROW_COUNT": _optional(_LONG),
    "_FILE._EMBEDDED_FILE_INDEX": _optional(_BYTES),
    "_FILE._FILE_SOURCE": _optional(_INT),
    "_FILE._VALUE_STATS_COLS": _optional(_TEXTS),
    "_FILE._EXTERNAL_PATH": _optional(_TEXT),
    "_FILE._FIRST_ROW_ID": _optional(_LONG),
    "_FILE._WRITE_COLS": _optional(_TEXTS),
    f"_FILE.{CHECKSUM}": _optional(_LONG),
    f"_FILE.{FOOTER_CHECKSUM}": _optional(_LONG),
}

FILE_MEMBERS = {
    "_FILE._FILE_NAME": "file_name",
    "_FILE._FILE_SIZE": "file_size",
    "_FILE._ROW_COUNT": "row_count",
    "_FILE._MIN_KEY": "min_key",
    "_FILE._MAX_KEY": "max_key",
    "_FILE._MIN_SEQUENCE_NUMBER": "min_sequence_number",
    "_FILE._MAX_SEQUENCE_NUMBER": "max_sequence_number",
    "_FILE._SCHEMA_ID": "schema_id",
    "_FILE._LEVEL": "level",
    "_FILE._EXTRA_FILES": "extra_files",
    "_FILE._CREATION_TIME": "creation_millis",
    "_FILE._DELETE_ROW_COUNT": "delete_row_count",
    "_FILE._EMBEDDED_FILE_INDEX": "embedded_index",
    "_FILE._VALUE_STATS_COLS": "value_stats_columns",
    "_FILE._EXTERNAL_PATH": "external_path",
    "_FILE._FIRST_ROW_ID": "first_row_id",
    "_FILE._WRITE_COLS": "write_columns",
    f"_FILE.{CHECKSUM}": "checksum",
    f"_FILE.{FOOTER_CHECKSUM}": "footer_checksum",
}
"""What is stored of a data file as it is: the column, and the attribute of DataFileMeta."""

MANIFEST_LIST_COLUMNS: Mapping[str, KnownColumn] = {
    "_VERSION": _needed(_INT),
    "_FILE_NAME": _needed(_TEXT),
    "_FILE_SIZE": _needed(_LONG),
    "_NUM_ADDED_FILES": _needed(_LONG),
    "_NUM_DELETED_FILES": _needed(_LONG),
    **_stats("_PARTITION_STATS"),
    "_SCHEMA_ID": _needed(_LONG),
    "_MIN_BUCKET": _optional(_INT),
    "_MAX_BUCKET": _optional(_INT),
    "_MIN_LEVEL": _optional(_INT),
    "_MAX_LEVEL": _optional(_INT),
    "_MIN_ROW_ID": _optional(_LONG),
    "_MAX_ROW_ID": _optional(_LONG),
    "_TOTAL_BUCKETS": _optional(_INT),
    "_EXTRA_FILES": _optional(_TEXTS),
    CHECKSUM: _optional(_LONG),
}

LIST_MEMBERS = {
    "_FILE_NAME": "file_name",
    "_FILE_SIZE": "file_size",
    "_NUM_ADDED_FILES": "added_file_count",
    "_NUM_DELETED_FILES": "deleted_file_count",
    "_SCHEMA_ID": "schema_id",
    "_MIN_BUCKET": "min_bucket",
    "_MAX_BUCKET": "max_bucket",
    "_MIN_LEVEL": "min_level",
    "_MAX_LEVEL": "max_level",
    "_MIN_ROW_ID": "min_row_id",
    "_MAX_ROW_ID": "max_row_id",
    "_TOTAL_BUCKETS": "total_buckets",
    "_EXTRA_FILES": "extra_files",
    CHECKSUM: "checksum",
}
"""What is stored of a manifest as it is: the column, and the attribute of ManifestFileMeta."""

_RANGE = pa.struct(
    [("f0", pa.string()), ("f1", pa.int32()), ("f2", pa.int32()), ("_CARDINALITY", pa.int64())]
)
INDEX_MANIFEST_COLUMNS: Mapping[str, KnownColumn] = {
    "_VERSION": _needed(_INT),
    "_KIND": _needed(_INT),
    "_PARTITION": _needed(_BYTES),
    "_BUCKET": _needed(_INT),
    "_INDEX_TYPE": _needed(_TEXT),
    "_FILE_NAME": _needed(_TEXT),
    "_FILE_SIZE": _needed(_LONG),
    "_ROW_COUNT": _needed(_LONG),
    "_DELETIONS_VECTORS_RANGES": _optional(pa.list_(_RANGE)),
    "_EXTERNAL_PATH": _optional(_TEXT),
    CHECKSUM: _optional(_LONG),
}


def decode_known(
    data: bytes,
    known_columns_by_name: Mapping[str, KnownColumn],
    *,
    file_name: str,
    version: int,
    columns: Collection[str] | None = None,
) -> pa.Table:
    """Return the known columns of a metadata file, in their order; `columns` None: all of them.

    Columns that the writer left out are null. Raises CorruptFileError where a required column is
    missing or null or a column has another type, UnsupportedError for another format version.
    """
    chosen = [name for name in known_columns_by_name if columns is None or name in columns]
    decoded = decode_table(data, file_name=file_name, columns={*chosen, "_VERSION"})
    return known_columns(
        decoded, known_columns_by_name, chosen, file_name=file_name, version=version
    )


def known_columns(
    decoded: pa.Table,
    columns_by_name: Mapping[str, KnownColumn],
    chosen: Sequence[str],
    *,
    file_name: str,
    version: int,
) -> pa.Table:
    """Return some of the known columns of a decoded file; raises as `decode_known` does."""
    _check_version(decoded, version, file_name)
    decoded_columns = dict(zip(decoded.column_names, decoded.columns, strict=True))
    arrays = [
        _column(decoded_columns.get(name), columns_by_name[name], name, decoded.num_rows, file_name)
        for name in chosen
    ]
    return pa.Table.from_arrays(arrays, names=chosen)


def _check_version(decoded: pa.Table, version: int, file_name: str) -> None:
    if "_VERSION" not in decoded.column_names:
        raise CorruptFileError(
            "the file is no such metadata file: it has no version", file=file_name
        )
    versions = pc.unique(decoded.column("_VERSION")).to_pylist()
    if any(value != version for value in versions):
        raise UnsupportedError(
            f"format version {versions} is not {version}, the one this version reads",
            kind=ErrorKind.UNSUPPORTED_FORMAT,
            file=file_name,
        )


def _column(
    column: pa.ChunkedArray | None, expected: KnownColumn, name: str, row_count: int, file_name: str
) -> pa.ChunkedArray:
    if column is None:
        if expected.required:
            raise CorruptFileError(
                f"the file has no column {name}; restore it", file=file_name, column=name
            )
        return pa.chunked_array([pa.nulls(row_count, expected.kind)])
    if expected.required and column.null_count:
        raise CorruptFileError(
            f"column {name} holds a null; restore the file", file=file_name, column=name
        )
    if column.type == expected.kind:
        return column
    try:
        return _cast(column, expected.kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as cause:
        raise CorruptFileError(
            f"column {name} holds {column.type} and not {expected.kind}; restore the file",
            file=file_name,
            column=name,
        ) from cause


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return pa.chunked_array([_cast_ranges(chunk) for chunk in column.chunks], kind)
    if not (_is_number(column.type) and (_is_number(kind) or pa.types.is_timestamp(kind))) and not (
        pa.types.is_list(kind) and pa.types.is_list(column.type)
    ):
        raise pa.ArrowInvalid("the types have nothing in common")
    return column.cast(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))


def _cast_ranges(chunk: pa.Array) -> pa.Array:
    """Fill in the members of deletion-vector ranges that older writers did not have."""
    if not (pa.types.is_list(chunk.type) and pa.types.is_struct(chunk.type.value_type)):
        raise pa.ArrowInvalid("no list of records")
    items = chunk.values
    members = [
        items.field(member.name)
        if items.type.get_field_index(member.name) >= 0
        else pa.nulls(len(items), member.type)
        for member in _RANGE
    ]
    mask = items.is_null() if items.null_count else None
    filled = pa.StructArray.from_arrays(
        [member.cast(field.type) for member, field in zip(members, _RANGE, strict=True)],
        fields=list(_RANGE),
        mask=mask,
    )
    nulls = chunk.is_null() if chunk.null_count else None
    return pa.ListArray.from_arrays(chunk.offsets, filled, pa.list_(_RANGE), mask=nulls)


def require(table: pa.Table, checks: Sequence[tuple[str, object]], file_name: str) -> None:
    """Raise CorruptFileError for the first (message, mask) whose mask holds anywhere."""
    for message, mask in checks:
        if table.num_rows and pc.any(mask).as_py():
            raise CorruptFileError(f"{message}; restore or re-create the file", file=file_name)


# -- Manifest entries from columns -----------------------------------------------------------------


def rows_of(entries: Sequence[ManifestEntry], *, with_stats: bool = False) -> pa.Table:
    """Return entries as the columns that `manifest_file.entries_of` takes.

    `with_stats`: as `manifest_file.decode_manifest` returns them; else all statistics are null.
    """
    files = [entry.file for entry in entries]
    members = {
        "_VERSION": [ENTRY_VERSION] * len(entries),
        "_KIND": [entry.kind.value for entry in entries],
        "_PARTITION": [entry.partition for entry in entries],
        "_BUCKET": [entry.bucket for entry in entries],
        "_TOTAL_BUCKETS": [entry.total_buckets for entry in entries],
        "_FILE._FILE_SOURCE": [
            None if f.file_source is None else f.file_source.value for f in files
        ],
    }
    if with_stats:
        members |= _stats_members("_FILE._KEY_STATS", [file.key_stats for file in files])
        members |= _stats_members("_FILE._VALUE_STATS", [file.value_stats for file in files])
    columns = []
    for name, column_type in MANIFEST_COLUMNS.items():
        if name in members:
            columns.append(pa.array(members[name], column_type.kind))
        elif name in FILE_MEMBERS:
            columns.append(
                pa.array([getattr(file, FILE_MEMBERS[name]) for file in files], column_type.kind)
            )
        else:
            columns.append(pa.nulls(len(entries), column_type.kind))
    return pa.Table.from_arrays(columns, names=list(MANIFEST_COLUMNS))


def _stats_members(prefix: str, stats: Sequence[SimpleStats]) -> dict[str, list[Any]]:
    return {
        f"{prefix}._MIN_VALUES": [stat.min_values for stat in stats],
        f"{prefix}._MAX_VALUES": [stat.max_values for stat in stats],
        f"{prefix}._NULL_COUNTS": [stat.null_counts for stat in stats],
    }


# -- Manifest entries as narrow columns ------------------------------------------------------------
#
# To be kept in great numbers.

_SIGNED = (np.int8, np.int16, np.int32, np.int64)
_UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
_PARTITION, _EXTRA_FILES = "_PARTITION", "_FILE._EXTRA_FILES"


def narrowed(entries: pa.Table) -> pa.Table:
    """Return entries with numbers no wider than the greatest of a column, and partitions as dictionaries.

    Columns without a value are left out.
    """
    columns = {}
    for name, column in zip(entries.column_names, entries.columns, strict=True):
        if column.null_count == len(column):
            continue
        if name == _EXTRA_FILES and not pc.max(pc.list_value_length(column)).as_py():
            continue
        if name == _PARTITION:
            column = pc.dictionary_encode(column)
        elif pa.types.is_integer(column.type):
            ends = pc.min_max(column)
            least, most = ends["min"].as_py(), ends["max"].as_py()
            column = column.cast(_narrowest(least, most))
        columns[name] = column
    return pa.table(columns)


def _narrowest(least: int, most: int) -> pa.DataType:
    """Return the narrowest type that holds both; of numbers with a sign one that has it."""
    kinds = _SIGNED if least < 0 else _UNSIGNED
    return next(
        pa.from_numpy_dtype(kind)
        for kind in kinds
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max
    )


def widened(entries: pa.Table, columns: Collection[str]) -> pa.Table:
    """Return narrowed entries as they were decoded: these of MANIFEST_COLUMNS, in their order.

    Empty lists of extra files have become null, which means the same.
    """
    column_names = set(entries.column_names)
    wide_columns = {}
    for name, column_type in MANIFEST_COLUMNS.items():
        if name in column_names:
            wide_columns[name] = entries.column(name).cast(column_type.kind)
        elif name in columns:
            wide_columns[name] = pa.nulls(entries.num_rows, column_type.kind)
    return pa.table(wide_columns)

"""Manifests, manifest lists and index manifests (format sections 4, 5, 12): Avro ⇄ facts.

Manifests are large, so they are decoded into columns; only entries that survive pruning and folding
need become records (`entries_of`).
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.modes import EntryKind, FileSource
from lsm_engine.codec.avro import decode_joined
from lsm_engine.codec.avro_container import Container, ContainerEncoder
from lsm_engine.codec.avro_schemas import (
    CHECKSUM,
    INDEX_MANIFEST,
    MANIFEST_LIST,
)
from lsm_engine.codec.entry_bytes import stats_record
from lsm_engine.codec.entry_checks import UNSAFE_NAME, checked_entries, outside
from lsm_engine.codec.manifest_columns import (
    ENTRY_VERSION,
    INDEX_MANIFEST_COLUMNS,
    INDEX_VERSION,
    MANIFEST_COLUMNS,
    MANIFEST_LIST_COLUMNS,
    decode_known,
    known_columns,
    require,
)
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.index_file import DeletionVectorMeta, IndexFileMeta, IndexManifestEntry
from lsm_engine.meta.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.meta.stats import SimpleStats

_KINDS = (EntryKind.ADD, EntryKind.DELETE)
_SOURCES = {source.value: source for source in FileSource}
_LISTS, _INDEXES = map(ContainerEncoder, (MANIFEST_LIST, INDEX_MANIFEST))


def decode_manifest(
    data: bytes,
    *,
    file_name: str,
    columns: Collection[str] | None = None,
    expected_count: int | None = None,
) -> pa.Table:
    """Return the entries of a manifest as columns with flat names such as `_FILE._FILE_NAME`.

    All of MANIFEST_COLUMNS, or those of `columns`, in that order; what the writer left out is null.
    `expected_count`: entries that the manifest list counts. Raises CorruptFileError for
    wrong bytes, counts and values, UnsupportedError for another format version.
    """
    table = decode_known(
        data, MANIFEST_COLUMNS, file_name=file_name, version=ENTRY_VERSION, columns=columns
    )
    if expected_count is not None and table.num_rows != expected_count:
        raise CorruptFileError(
            "the manifest does not hold as many entries as its list records; restore it",
            file=file_name,
            entries=table.num_rows,
            expected=expected_count,
        )
    return checked_entries(table, file_name)


WITHOUT_STATS = tuple(
    name for name in MANIFEST_COLUMNS if "_STATS." not in name and name != "_VERSION"
)
"""Columns of an entry that a plan needs where no filter looks at statistics: most bytes are theirs."""


def entries_of(table: pa.Table) -> list[ManifestEntry]:
    """Return the rows of a decoded manifest as entries; columns that are not there are null."""
    nulls = [None] * table.num_rows
    column_names = set(table.column_names)
    values = {
        name: _values(table.column(name)) if name in column_names else nulls
        for name in MANIFEST_COLUMNS
    }
    return [
        ManifestEntry(
            kind=_KINDS[kind], partition=partition, bucket=bucket, total_buckets=total, file=file
        )
        for kind, partition, bucket, total, file in zip(
            values["_KIND"],
            values["_PARTITION"],
            values["_BUCKET"],
            values["_TOTAL_BUCKETS"],
            _files(values),
            strict=True,
        )
    ]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column as Python values: times as numbers, lists as tuples."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    elif pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type):
        return [value for chunk in column.chunks for value in _tuples(chunk)]
    return list(column.to_pylist())


def _tuples(lists: pa.Array) -> Iterable[tuple[Any, ...] | None]:
    # Several times faster than a Python list per row by way of scalars.
    items = lists.values.to_pylist()
    ends = lists.offsets.to_pylist()
    tuples = (tuple(items[begin:end]) for begin, end in pairwise(ends))
    if not lists.null_count:
        return tuples
    valid = lists.is_valid().to_pylist()
    return (value if is_valid else None for value, is_valid in zip(tuples, valid, strict=True))


def _files(values: dict[str, list[Any]]) -> Iterable[DataFileMeta]:
    names = [
        name for name in MANIFEST_COLUMNS if name.startswith("_FILE.") and "_STATS." not in name
    ]
    columns = [values[name] for name in names]
    key_stats = _stats_of(values, "_FILE._KEY_STATS")
    value_stats = _stats_of(values, "_FILE._VALUE_STATS")
    for row, keys, value_columns in zip(
        zip(*columns, strict=True), key_stats, value_stats, strict=True
    ):
        (
            name, size, rows, min_key, max_key, min_sequence, max_sequence, schema_id, level,
            extra_files, created, deletes, index, source, stats_columns, external, first_row,
            write_columns, checksum, footer_checksum,
        ) = row  # fmt: skip
        yield DataFileMeta(
            file_name=name,
            file_size=size,
            row_count=rows,
            min_key=min_key,
            max_key=max_key,
            key_stats=keys,
            value_stats=value_columns,
            min_sequence_number=min_sequence,
            max_sequence_number=max_sequence,
            schema_id=schema_id,
            level=level,
            extra_files=extra_files or (),
            creation_millis=created,
            delete_row_count=deletes,
            embedded_index=index,
            # Sources that later versions may add are unknown to this one.
            file_source=_SOURCES.get(source),
            value_stats_columns=stats_columns,
            external_path=external,
            first_row_id=first_row,
            write_columns=write_columns,
            checksum=checksum,
            footer_checksum=footer_checksum,
        )


def _stats_of(values: dict[str, list[Any]], prefix: str) -> Iterable[SimpleStats]:
    for low, high, counts in zip(
        values[f"{prefix}._MIN_VALUES"],
        values[f"{prefix}._MAX_VALUES"],
        values[f"{prefix}._NULL_COUNTS"],
        strict=True,
    ):
        yield SimpleStats(
            min_values=low or b"",
            max_values=high or b"",
            null_counts=counts,
        )


def decode_manifest_list_table(data: bytes, *, file_name: str) -> pa.Table:
    """Return the rows of a manifest list as columns, all of MANIFEST_LIST_COLUMNS."""
    table = decode_known(data, MANIFEST_LIST_COLUMNS, file_name=file_name, version=ENTRY_VERSION)
    _check_list(table, file_name)
    return table


def _check_list(table: pa.Table, file_name: str) -> None:
    unsafe = pc.match_substring_regex(table["_FILE_NAME"], UNSAFE_NAME)
    checks: list[tuple[str, object]] = [
        ("a manifest's name leads out of its directory", unsafe),
        ("_FILE_SIZE is negative", pc.less(table["_FILE_SIZE"], 0)),
        ("_NUM_ADDED_FILES is negative", pc.less(table["_NUM_ADDED_FILES"], 0)),
        ("_NUM_DELETED_FILES is negative", pc.less(table["_NUM_DELETED_FILES"], 0)),
    ]
    require(table, checks, file_name)


def decode_manifest_list(data: bytes, *, file_name: str) -> list[ManifestFileMeta]:
    """Return the manifests of a list, in order; raises CorruptFileError and UnsupportedError."""
    return _metas_of(decode_manifest_list_table(data, file_name=file_name))


def decode_manifest_lists(containers: Sequence[Container]) -> list[list[ManifestFileMeta]]:
    """Return the manifests of small lists: many cost little more than one.

    Of lists whose schemas differ, nothing. What is raised may name another of them.
    """
    joined = decode_joined(containers)
    if joined is None:
        return []
    name, columns = containers[0].file_name, MANIFEST_LIST_COLUMNS
    table = known_columns(joined[0], columns, [*columns], file_name=name, version=ENTRY_VERSION)
    _check_list(table, name)
    metas = iter(_metas_of(table))
    return [list(islice(metas, count)) for count in joined[1]]


def _metas_of(table: pa.Table) -> list[ManifestFileMeta]:
    values = {name: _values(table.column(name)) for name in table.column_names}
    names = [name for name in MANIFEST_LIST_COLUMNS if "_STATS." not in name]
    rows = zip(*(values[name] for name in names), strict=True)
    return [
        ManifestFileMeta(
            file_name=row[1],
            file_size=row[2],
            added_file_count=row[3],
            deleted_file_count=row[4],
            partition_stats=stats,
            schema_id=row[5],
            min_bucket=row[6],
            max_bucket=row[7],
            min_level=row[8],
            max_level=row[9],
            min_row_id=row[10],
            max_row_id=row[11],
            total_buckets=row[12],
            extra_files=row[13],
            checksum=row[14],
        )
        for row, stats in zip(rows, _stats_of(values, "_PARTITION_STATS"), strict=True)
    ]


def encode_manifest_list(metas: Sequence[ManifestFileMeta], *, codec: str = "zstandard") -> bytes:
    """Return a manifest list, in order; an empty one is a valid file too."""
    return _LISTS.file(map(_stored_meta, metas), codec=codec)


@lru_cache(maxsize=4096)
def _stored_meta(meta: ManifestFileMeta) -> bytes:
    """Return a manifest as lists name it: each commit writes all of them again, and most stay."""
    return _LISTS.record(_meta_record(meta))


def _meta_record(meta: ManifestFileMeta) -> dict[str, Any]:
    return {
        "_VERSION": ENTRY_VERSION,
        "_FILE_NAME": meta.file_name,
        "_FILE_SIZE": meta.file_size,
        "_NUM_ADDED_FILES": meta.added_file_count,
        "_NUM_DELETED_FILES": meta.deleted_file_count,
        "_PARTITION_STATS": stats_record(meta.partition_stats),
        "_SCHEMA_ID": meta.schema_id,
        "_MIN_BUCKET": meta.min_bucket,
        "_MAX_BUCKET": meta.max_bucket,
        "_MIN_LEVEL": meta.min_level,
        "_MAX_LEVEL": meta.max_level,
        "_MIN_ROW_ID": meta.min_row_id,
        "_MAX_ROW_ID": meta.max_row_id,
        "_TOTAL_BUCKETS": meta.total_buckets,
        "_EXTRA_FILES": meta.extra_files,
        CHECKSUM: meta.checksum,
    }


def decode_index_manifest(data: bytes, *, file_name: str) -> list[IndexManifestEntry]:
    """Return the index files of an index manifest; raises CorruptFileError and UnsupportedError."""
    table = decode_known(data, INDEX_MANIFEST_COLUMNS, file_name=file_name, version=INDEX_VERSION)
    unsafe = pc.match_substring_regex(table["_FILE_NAME"], UNSAFE_NAME)
    checks: list[tuple[str, object]] = [
        ("an entry neither adds nor deletes", outside(table["_KIND"], 0, 1)),
        ("an index file's name leads out of its directory", unsafe),
        ("_FILE_SIZE is negative", pc.less(table["_FILE_SIZE"], 0)),
        ("_ROW_COUNT is negative", pc.less(table["_ROW_COUNT"], 0)),
    ]
    require(table, checks, file_name)
    return [_index_entry(row) for row in table.to_pylist()]


def _index_entry(row: dict[str, Any]) -> IndexManifestEntry:
    ranges = row["_DELETIONS_VECTORS_RANGES"]
    vectors = None
    if ranges is not None:
        vectors = tuple(
            DeletionVectorMeta(
                data_file_name=item["f0"],
                offset=item["f1"],
                length=item["f2"],
                cardinality=item["_CARDINALITY"],
            )
            for item in ranges
            if item is not None
        )
    return IndexManifestEntry(
        kind=EntryKind(row["_KIND"]),
        partition=row["_PARTITION"],
        bucket=row["_BUCKET"],
        index_file=IndexFileMeta(
            index_type=row["_INDEX_TYPE"],
            file_name=row["_FILE_NAME"],
            file_size=row["_FILE_SIZE"],
            row_count=row["_ROW_COUNT"],
            deletion_vectors=vectors,
            external_path=row["_EXTERNAL_PATH"],
            checksum=row[CHECKSUM],
        ),
    )


def encode_index_manifest(
    entries: Sequence[IndexManifestEntry], *, codec: str = "zstandard"
) -> bytes:
    """Return an index manifest, in order."""
    return _INDEXES.file((_INDEXES.record(_index_record(entry)) for entry in entries), codec=codec)


def _index_record(entry: IndexManifestEntry) -> dict[str, Any]:
    file = entry.index_file
    ranges = None
    if file.deletion_vectors is not None:
        ranges = [
            {"f0": vector.data_file_name, "f1": vector.offset, "f2": vector.length,
             "_CARDINALITY": vector.cardinality}
            for vector in file.deletion_vectors
        ]  # fmt: skip
    return {
        "_VERSION": INDEX_VERSION,
        "_KIND": entry.kind.value,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": file.index_type,
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": ranges,
        "_EXTERNAL_PATH": file.external_path,
        CHECKSUM: file.checksum,
    }

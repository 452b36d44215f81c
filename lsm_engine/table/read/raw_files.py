"""Data files that query engines may read directly, because their rows need no merging."""

import re
from collections.abc import Collection, Iterable

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.codec.deletion_vector import DeletionVector
from lsm_engine.io.local import LocalFileIO
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.plan.scan import Split
from lsm_engine.schema.declared_lengths import holds_char
from lsm_engine.schema.table_schema import TableSchema, char_keys
from lsm_engine.table.ground.bucket_context import BucketContext
from lsm_engine.table.read.replaced_rows import Replaced, ReplacedRows
from lsm_engine.table.read.split_read import BucketReader

_FILES_MAX = 10_000
_PATTERN = re.compile(r"[*?\[\]{}]")
"""Characters that make a path a glob pattern."""


@record
class RawFile:
    """A local data file: its path, its row count, and the deleted rows to leave out (None: none)."""

    path: str
    row_count: int
    deleted: DeletionVector | None = None


def raw_parquet_files(
    context: BucketContext,
    splits: Iterable[Split],
    schema: pa.Schema,
    replaced: ReplacedRows | None = None,
    *,
    all_keys: bool = False,
    small: bool = False,
) -> tuple[RawFile, ...] | None:
    """Return the files of `splits`, if they store the columns of `schema` unchanged; else None.

    These are local Parquet files of the newest schema, or of one with the same columns, whose rows need no merging.
    With `replaced`, also files with deletion vectors, and files whose replaced rows are known or computed now
    (`ReplacedRows.serves`). At most 10,000 files.
    """
    table = context.schema
    if not isinstance(context.file_io, LocalFileIO) or table.evolves_data:
        return None
    if not set(schema.names) <= set(table.names):
        return None
    schemas = {**context.schemas, table.id: table}
    schema_ids = {number for number, stored in schemas.items() if _holds(stored, table, schema)}
    files: list[RawFile] = []
    for split in splits:
        if split.branch is not None or (split.vectors and (replaced is None or not split.raw)):
            return None
        bucket = BucketReader(context, split.partition, split.bucket, split.vectors)
        for section in split.sections:
            stored = [file for run in section for file in run]
            if not all(_is_plain(file, schema_ids) for file in stored):
                return None
            deleted: Replaced = {}
            if not split.raw:
                if replaced is None or not replaced.serves(
                    bucket, split, section, all_keys=all_keys, small=small
                ):
                    return None
                deleted = replaced.positions(bucket, section)
            for file in stored:
                path = context.data_file(split.partition, split.bucket, file.file_name)
                files.append(
                    RawFile(
                        path=context.file_io.real_path(path),
                        row_count=file.row_count,
                        deleted=deleted.get(file.file_name) or bucket.vector(file.file_name),
                    )
                )
        if len(files) > _FILES_MAX:
            return None
    return None if _PATTERN.search("".join(file.path for file in files)) else tuple(files)


def _is_plain(file: DataFileMeta, schema_ids: Collection[int]) -> bool:
    """Whether a file is a Parquet file with all columns of one of some schemas."""
    has_all_columns = file.schema_id in schema_ids and file.write_columns is None
    return has_all_columns and file.file_name.endswith(".parquet")


def _holds(stored: TableSchema, table: TableSchema, schema: pa.Schema) -> bool:
    """Whether files of a stored schema have the table's ids and types of these columns and of the merge columns."""
    names = {*schema.names, *table.primary_keys, *table.sequence_fields}
    stored_columns = {field.name: (field.id, field.type) for field in stored.fields}
    # Other CHAR columns lack the blanks that a scan adds.
    as_is = char_keys(table) - table.unpadded_keys
    return all(
        stored_columns.get(field.name) == (field.id, field.type)
        and (field.name in as_is or not holds_char(field.type))
        for field in table.fields
        if field.name in names
    )

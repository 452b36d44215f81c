"""Data files that others may read by themselves, because nothing in them has to be merged."""

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
"""What makes a name a pattern of names."""


@record
class RawFile:
    """A file's place on this machine, how many rows it has, and which of them to leave out (None: none)."""

    path: str
    row_count: int
    deleted: DeletionVector | None = None


def raw_parquet_files(
    context: BucketContext,
    splits: Iterable[Split],
    schema: pa.Schema,
    replaced: ReplacedRows | None = None,
    *,
    whole: bool = False,
    small: bool = False,
) -> tuple[RawFile, ...] | None:
    """Return the files of `splits`, if they hold the columns of `schema` as they are; else None.

    That is: local Parquet files of the table's newest schema, or of one that had these columns as they are, of rows
    that stand alone. With `replaced` also of rows that deletion vectors name, or whose replaced rows are known or
    found now (`ReplacedRows.serves`). At most 10,000 of them.
    """
    table = context.schema
    if not isinstance(context.file_io, LocalFileIO) or table.evolves_data:
        return None
    if not set(schema.names) <= set(table.names):
        return None
    schemas = {**context.schemas, table.id: table}
    plain = {number for number, stored in schemas.items() if _holds(stored, table, schema)}
    files: list[RawFile] = []
    for split in splits:
        if split.branch is not None or (split.vectors and (replaced is None or not split.raw)):
            return None
        bucket = BucketReader(context, split.partition, split.bucket, split.vectors)
        for section in split.sections:
            stored = [file for run in section for file in run]
            if not all(_is_plain(file, plain) for file in stored):
                return None
            deleted: Replaced = {}
            if not split.raw:
                if replaced is None or not replaced.serves(
                    bucket, split, section, whole=whole, small=small
                ):
                    return None
                deleted = replaced.of(bucket, section)
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


def _is_plain(file: DataFileMeta, plain: Collection[int]) -> bool:
    """Whether a file is Parquet of one of some schemas, whole."""
    whole = file.schema_id in plain and file.write_columns is None
    return whole and file.file_name.endswith(".parquet")


def _holds(stored: TableSchema, table: TableSchema, schema: pa.Schema) -> bool:
    """Whether files of a schema hold columns of `schema`, and those that rows are merged by, as the table has them."""
    named = {*schema.names, *table.primary_keys, *table.sequence_fields}
    kept = {field.name: (field.id, field.type) for field in stored.fields}
    as_is = (
        char_keys(table) - table.unpadded_keys
    )  # other CHAR columns lack blanks that a scan adds
    return all(
        kept.get(field.name) == (field.id, field.type)
        and (field.name in as_is or not holds_char(field.type))
        for field in table.fields
        if field.name in named
    )

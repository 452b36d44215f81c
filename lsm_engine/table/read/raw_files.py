"""Data files that others may read by themselves, because nothing in them has to be merged."""

import re
from collections.abc import Iterable

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.codec.deletion_vector import DeletionVector
from lsm_engine.io.local import LocalFileIO
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.plan.scan import Split
from lsm_engine.schema.table_schema import TableSchema
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

    That is: local Parquet files of the table's newest schema, without deletion vectors, of rows that
    stand alone, or whose replaced rows are known or found now (`ReplacedRows.serves`). At most 10,000 of them.
    """
    table = context.schema
    if not isinstance(context.file_io, LocalFileIO) or table.evolves_data:
        return None
    if not set(schema.names) <= set(table.names):
        return None
    files: list[RawFile] = []
    for split in splits:
        if split.vectors or split.branch is not None:
            return None
        bucket = BucketReader(context, split.partition, split.bucket)
        for section in split.sections:
            stored = [file for run in section for file in run]
            if not all(_is_plain(file, table) for file in stored):
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
                        deleted=deleted.get(file.file_name),
                    )
                )
        if len(files) > _FILES_MAX:
            return None
    return None if _PATTERN.search("".join(file.path for file in files)) else tuple(files)


def _is_plain(file: DataFileMeta, table: TableSchema) -> bool:
    """Whether a file holds every column as the table has it now."""
    same = file.schema_id == table.id and file.write_columns is None
    return same and file.file_name.endswith(".parquet")

"""Data files that others may read by themselves, because nothing in them has to be merged."""

import re
from collections.abc import Iterable

import pyarrow as pa

from lsm_engine.io.local import LocalFileIO
from lsm_engine.plan.scan import Split
from lsm_engine.table.ground.bucket_context import BucketContext

_FILES_MAX = 10_000
_PATTERN = re.compile(r"[*?\[\]{}]")
"""What makes a name a pattern of names."""


def raw_parquet_files(
    context: BucketContext, splits: Iterable[Split], schema: pa.Schema
) -> list[str] | None:
    """Return the files of `splits`, if they hold the columns of `schema` as they are; else None.

    That is: local Parquet files of the table's newest schema, without deletion vectors, of rows that
    stand alone. At most 10,000 of them.
    """
    table = context.schema
    if not isinstance(context.file_io, LocalFileIO) or table.evolves_data:
        return None
    if not set(schema.names) <= set(table.names):
        return None
    files: list[str] = []
    for split in splits:
        if not split.raw or split.vectors or split.branch is not None:
            return None
        for file in split.files:
            plain = file.schema_id == table.id and file.write_columns is None
            if not plain or not file.file_name.endswith(".parquet"):
                return None
            path = context.data_file(split.partition, split.bucket, file.file_name)
            files.append(context.file_io.real_path(path))
        if len(files) > _FILES_MAX:
            return None
    return None if _PATTERN.search("".join(files)) else files

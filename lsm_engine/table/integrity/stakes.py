"""The contents of a data file by its manifest entry: the rows at stake if the file is missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.codec.binary_row import decode_row
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.schema.table_schema import TableSchema

Values = Mapping[str, Any]
_SHOWN_CHARACTERS = 40


@record
class FileStake:
    """Rows are stored versions, retracts among them (`delete_count`; None: not recorded).

    `partition`: its columns and values. `min_key`, `max_key`: the first and the last key by column,
    partition columns aside. Each is empty for a table without such columns, None if it cannot be decoded.
    """

    path: str
    row_count: int
    delete_count: int | None
    byte_count: int
    level: int
    partition: Values | None
    bucket: int
    min_key: Values | None
    max_key: Values | None

    def __str__(self) -> str:
        parts = [f"{counted(self.row_count, 'row')}"]
        if self.partition != {}:
            parts.append(f"partition {_shown(self.partition)}")
        parts.append(f"bucket {self.bucket}")
        if self.min_key != {}:
            parts.append(f"keys {_shown(self.min_key)} to {_shown(self.max_key)}")
        return ", ".join(parts)


def stake_of(entry: ManifestEntry, schema: TableSchema, path: str) -> FileStake:
    """Return what a data file holds, from its entry alone."""
    file = entry.file
    keys = schema.trimmed_primary_keys if schema.has_primary_key else ()
    return FileStake(
        path=path,
        row_count=file.row_count,
        delete_count=file.delete_row_count,
        byte_count=file.file_size,
        level=file.level,
        partition=_values(entry.partition, schema, schema.partition_keys),
        bucket=entry.bucket,
        min_key=_values(file.min_key, schema, keys),
        max_key=_values(file.max_key, schema, keys),
    )


def _values(stored: bytes, schema: TableSchema, names: Sequence[str]) -> Values | None:
    if not names:
        return {}
    try:
        values = decode_row(stored, [field.type for field in schema.select(tuple(names))])
    except LsmError:
        return None
    return dict(zip(names, values, strict=True))


def _shown(values: Values | None) -> str:
    if values is None:
        return "that cannot be read"
    return ", ".join(f"{name}={str(value)[:_SHOWN_CHARACTERS]!r}" for name, value in values.items())

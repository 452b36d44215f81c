"""What a schema defines for stored rows: how keys compare, and the directory of a partition."""

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.codec.key_order import KeyOrder, key_order
from lsm_engine.codec.partition_path import partition_path, partition_paths
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.schema.types import DataField


def key_order_of(schema: TableSchema) -> KeyOrder | None:
    """Return how stored keys of a table compare; None for tables without a primary key."""
    if not schema.has_primary_key:
        return None
    return key_order([field.type for field in schema.select(schema.trimmed_primary_keys)])


def partition_path_of(
    schema: TableSchema, partition: bytes, *, legacy_name: bool | None = None
) -> str:
    """Return the directory of a partition, relative to its table's; "" if unpartitioned.

    `legacy_name`: how values are spelled; None: by the table's option.
    """
    fields, default_name, by_option = _spelling(schema)
    legacy = by_option if legacy_name is None else legacy_name
    return _path(partition, fields, default_name=default_name, legacy_name=legacy)


def partition_paths_of(schema: TableSchema, columns: Sequence[pa.Array]) -> list[str]:
    """Return the directories of many partitions, given as columns, as `partition_path_of` does."""
    fields, default_name, legacy = _spelling(schema)
    return partition_paths(columns, fields, default_name=default_name, legacy_name=legacy)


def _spelling(schema: TableSchema) -> tuple[tuple[DataField, ...], str, bool]:
    fields = tuple(schema.select(schema.partition_keys))
    default_name = schema.options[core_options.PARTITION_DEFAULT_NAME]
    return fields, default_name, schema.options[core_options.PARTITION_LEGACY_NAME]


@lru_cache(maxsize=4096)
def _path(
    partition: bytes, fields: tuple[DataField, ...], *, default_name: str, legacy_name: bool
) -> str:
    # Asked for every file of a partition, and decoding a row costs as much as opening a file.
    return partition_path(partition, fields, default_name=default_name, legacy_name=legacy_name)

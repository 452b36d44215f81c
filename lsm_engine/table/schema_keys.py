"""What a schema says about stored rows: how keys compare, and where a partition lives."""

from lsm_engine.base import declared
from lsm_engine.codec.key_order import KeyOrder, key_order
from lsm_engine.codec.partition_path import partition_path
from lsm_engine.schema.table_schema import TableSchema


def key_order_of(schema: TableSchema) -> KeyOrder | None:
    """Return how stored keys of a table compare; None for tables without a primary key."""
    if not schema.has_primary_key:
        return None
    return key_order([field.type for field in schema.select(schema.trimmed_primary_keys)])


def partition_path_of(
    schema: TableSchema, partition: bytes, *, legacy_name: bool | None = None
) -> str:
    """Return the directory of a partition, relative to its table's; "" if unpartitioned.

    `legacy_name`: how values are spelled; None: as the table's option says.
    """
    if legacy_name is None:
        legacy_name = schema.options[declared.PARTITION_LEGACY_NAME]
    return partition_path(
        partition,
        schema.select(schema.partition_keys),
        default_name=schema.options[declared.PARTITION_DEFAULT_NAME],
        legacy_name=legacy_name,
    )

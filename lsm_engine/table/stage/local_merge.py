"""Merge rows of one key in the task that reads them, before the shuffle, to shuffle fewer rows.

The result must equal a write without local merges. So no rows are merged if an aggregate function meets a
`sequence.field` (a merged row takes the position of its newest version, and a row of another task may
belong before it, decisions/0013), or if keys move between partitions.
"""

from collections.abc import Iterator

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.io.spill import SpillArea
from lsm_engine.schema.table_schema import VALUE_KIND, TableSchema
from lsm_engine.table.ground.bucket_keys import RoutedRows
from lsm_engine.table.ground.merge_rules import merge_rules
from lsm_engine.table.stage.write_buffer import WriteBuffer


class LocalMerge:
    """Merges rows that were routed together (LocalMergeOperator). For one thread."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._rules = merge_rules(schema)
        self._spills = SpillArea()

    @staticmethod
    def for_schema(schema: TableSchema) -> "LocalMerge | None":
        """Return the local merge of a table; None if its rows are shuffled unmerged."""
        if (
            not schema.has_primary_key
            or schema.options[core_options.LOCAL_MERGE_BUFFER_SIZE] is None
        ):
            return None
        if schema.bucket_mode.policy.crosses_partitions:
            return None
        merge = LocalMerge(schema)
        computes = not merge._rules.function.keeps_rows
        return None if computes and schema.sequence_fields else merge

    def merged(self, routed: RoutedRows) -> Iterator[RoutedRows]:
        """Yield the merged rows of one partition and bucket, in the order of their sequence."""
        arrow = self._schema.key_value_arrow
        buffer = WriteBuffer(arrow, self._rules, self._spills, 0)
        buffer.add(routed.rows, routed.kinds)
        for rows in buffer.merged():
            for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
                yield RoutedRows(
                    partition=routed.partition,
                    bucket=routed.bucket,
                    rows=batch.select(list(self._schema.names)),
                    kinds=batch.column(VALUE_KIND),
                )

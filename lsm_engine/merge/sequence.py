"""Which row of a key is newest, where the user's own columns decide before the order of arrival."""

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.modes import SortOrder
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import fixed_values, one_array
from lsm_engine.kernels.keys import SortKeys, sort_keys
from lsm_engine.kernels.merge_runs import RowRanks
from lsm_engine.merge.ranks import in_java_order
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, TableSchema

Rows: TypeAlias = pa.RecordBatch | pa.Table


@record
class UserSequence:
    """The `sequence.field` columns, compared in order, and whether the greater value is newer.

    Nulls are the oldest either way. Without columns the sequence number alone decides.
    """

    columns: tuple[str, ...] = ()
    order: SortOrder = SortOrder.ASCENDING

    @staticmethod
    def from_schema(schema: TableSchema) -> "UserSequence":
        """Return the sequence fields that a table's options name."""
        return UserSequence(
            columns=schema.sequence_fields,
            order=schema.options[core_options.SEQUENCE_FIELD_SORT_ORDER],
        )

    def ranks(self, rows: Rows) -> SortKeys | None:
        """Return keys of rows of which the greater is newer, or None without columns."""
        if not self.columns:
            return None
        return sort_keys(
            [in_java_order(rows.column(name)) for name in self.columns],
            nullable=True,
            descending=self.order is SortOrder.DESCENDING,
        )

    def row_ranks(self, rows: Rows) -> RowRanks:
        """Return everything that decides inside a key, the sequence number included."""
        numbers = fixed_values(one_array(rows.column(SEQUENCE_NUMBER)), "i8")
        return RowRanks(sequence=numbers, newest=self.ranks(rows))


def with_number(rows: Rows, number: int) -> Rows:
    """Return rows that all have one sequence number."""
    sequence_index = rows.schema.get_field_index(SEQUENCE_NUMBER)
    numbers = pa.array(np.full(rows.num_rows, number, np.int64))
    return rows.set_column(sequence_index, rows.schema.field(sequence_index), numbers)

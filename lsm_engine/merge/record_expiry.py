"""Rows that have outlived `record-level.expire-time`: compaction leaves them out."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.merge.sequence import Rows
from lsm_engine.options import core_options
from lsm_engine.options.modes import RowKind
from lsm_engine.types.table_schema import VALUE_KIND, TableSchema
from lsm_engine.types.types import Root, ScalarType

_TIMES = (Root.INT, Root.BIGINT, Root.TIMESTAMP, Root.TIMESTAMP_LTZ)
_LEAST_MILLIS = 10**12
"""A BIGINT from here on counts milliseconds (since 2001), below it seconds."""


@record
class RecordExpiry:
    """Rows whose `column` lies before `before_millis` (since 1970, UTC) have expired.

    A row without a time never expires. `marks`: an expired row that may hide an older one
    becomes a delete; False: it is kept as it is until nothing is below it, because a delete
    would be a retract to its merge engine.
    """

    column: str
    before_millis: int
    marks: bool

    @staticmethod
    def from_schema(schema: TableSchema, now_millis: int) -> "RecordExpiry | None":
        """Return what expires at a time; None: the table keeps its rows.

        Raises InvalidOptionError, naming option and column, for a column that holds no time.
        """
        options = schema.options
        age, column = (
            options[core_options.RECORD_LEVEL_EXPIRE_TIME],
            options[core_options.RECORD_LEVEL_TIME_FIELD],
        )
        if age is None:
            return None
        key = core_options.RECORD_LEVEL_TIME_FIELD.key
        if column is None:
            raise InvalidOptionError(
                f"{core_options.RECORD_LEVEL_EXPIRE_TIME.key!r} needs {key!r}, the column that holds the "
                "time of a row",
                key=core_options.RECORD_LEVEL_EXPIRE_TIME.key,
            )
        if column not in schema.names:
            raise InvalidOptionError(
                f"option {key!r} names column {column!r}, which the table does not have",
                key=key,
                column=column,
            )
        kind = schema.field(column).type
        if not isinstance(kind, ScalarType) or kind.root not in _TIMES:
            raise InvalidOptionError(
                f"option {key!r} takes a column of type INT (seconds), BIGINT (seconds or "
                "milliseconds) or TIMESTAMP",
                key=key,
                column=column,
            )
        marks = options[core_options.MERGE_ENGINE].policy.keeps_newest_row
        return RecordExpiry(column=column, before_millis=now_millis - age, marks=marks)

    def expired(self, times: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """Return which times lie before the limit; no time does not."""
        before: Any = pc.fill_null(
            pc.less(_millis(times), self.before_millis), pa.scalar(value=False)
        )
        return np.asarray(before.to_numpy(zero_copy_only=False), np.bool_)

    def applied(self, rows: Rows, *, is_oldest: bool) -> Rows:
        """Return merged rows without the expired ones. `is_oldest`: nothing below holds their keys.

        Otherwise an expired row becomes a delete, or is kept (see `marks`).
        """
        is_expired = self.expired(rows.column(self.column))
        if not is_expired.any() or not (is_oldest or self.marks):
            return rows
        if is_oldest:
            return rows.filter(pa.array(~is_expired))
        return with_deletes(rows, is_expired)

    def deletes(self, rows: Rows, *, is_oldest: bool) -> npt.NDArray[np.bool_]:
        """Return which merged rows are deletes from now on, as `applied` removes them."""
        if not (is_oldest or self.marks):
            return np.zeros(rows.num_rows, np.bool_)
        return self.expired(rows.column(self.column))


def with_deletes(rows: Rows, flags: npt.NDArray[np.bool_]) -> Rows:
    """Return rows of which the flagged ones are deletes."""
    if not flags.any():
        return rows
    kind_index = rows.schema.get_field_index(VALUE_KIND)
    kinds = np.where(flags, np.int8(RowKind.DELETE.value), rows.column(kind_index).to_numpy())
    return rows.set_column(kind_index, rows.schema.field(kind_index), pa.array(kinds, pa.int8()))


def _millis(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_timestamp(times.type):
        per_milli = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
        factor, divisor = per_milli[times.type.unit]
        return pc.divide(pc.multiply(pc.cast(times, pa.int64()), factor), divisor)
    numbers = pc.cast(times, pa.int64())
    return pc.if_else(pc.greater_equal(numbers, _LEAST_MILLIS), numbers, pc.multiply(numbers, 1000))

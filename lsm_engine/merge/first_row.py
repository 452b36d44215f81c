"""First-row: the oldest row of each key wins, whole."""

from collections.abc import Sequence

import numpy as np

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.kernels.groups import counts_of_each, first_of_each
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.kernels.row_kinds import retracts
from lsm_engine.merge.selection import Source, kinds_of
from lsm_engine.schema.table_schema import VALUE_KIND

REFUSAL = (
    "a first-row table takes no -U and -D: its first row stays; set 'ignore-delete' = true to drop "
    "such rows"
)


@record
class FirstRow:
    """The oldest row wins; a retract beside it is an InvalidInputError."""

    def select(self, order: MergeOrder, sources: Sequence[Source]) -> MergeOrder:
        """Return the first version of each key."""
        if len(order.starts) == len(order):
            return order
        is_retract = retracts(kinds_of(order, sources))
        if is_retract.any():
            alone = np.repeat(
                counts_of_each(order.starts, len(order)) == 1,
                counts_of_each(order.starts, len(order)),
            )
            if (is_retract & ~alone).any():
                raise InvalidInputError(REFUSAL, kind=ErrorKind.INVALID_ROWS, column=VALUE_KIND)
        return order.take(first_of_each(order.starts))

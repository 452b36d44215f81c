"""Deduplicate: the newest row of each key wins, whole."""

from collections.abc import Sequence

from lsm_engine.base.record import record
from lsm_engine.kernels.groups import last_of_each
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.merge.selection import Source


@record
class Deduplicate:
    """The newest row wins with its kind; a delete is kept, for the caller to drop."""

    def select(self, order: MergeOrder, sources: Sequence[Source]) -> MergeOrder:
        """Return the last version of each key."""
        if len(order.starts) == len(order):
            return order
        return order.take(last_of_each(order.starts, len(order)))

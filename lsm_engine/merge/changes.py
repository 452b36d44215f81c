"""What a merge changed: the rows before it and after it, as +I, -U, +U and -D.

The row before is the one that readers of the changelog know: of a key's rows that are not new the
youngest. The row after is what the merge makes of it and the new ones. A key without new rows did
not change.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs, fixed_values, one_array
from lsm_engine.kernels.before_after import (
    CREATED,
    REMOVED,
    REPLACED,
    UNCHANGED,
    find_before,
    lay_out_changes,
)
from lsm_engine.kernels.equality import equal_rows
from lsm_engine.kernels.gather import gather
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.kernels.row_kinds import adds, retracts
from lsm_engine.merge.selection import Source, kinds_of
from lsm_engine.merge.versions import chosen_rows
from lsm_engine.schema.table_schema import VALUE_KIND, TableSchema


@record
class BeforeMerge:
    """Rows to merge, of those that are not new one a key: where it is (-1: none), and what is new."""

    order: MergeOrder
    before: Longs
    is_new: Bools

    @staticmethod
    def from_order(order: MergeOrder, ages: Sequence[int]) -> "BeforeMerge":
        """Leave out rows that a younger one, also not new, stands for. `ages`: one per source."""
        merge, dropped, survives = _find_before(order, ages)
        return _find_before(chosen_rows(order, survives), ages)[0] if dropped else merge

    @property
    def unknown(self) -> Bools:
        """The keys that are new here, and may be further down."""
        return self.is_new & (self.before < 0)


def _find_before(order: MergeOrder, ages: Sequence[int]) -> tuple[BeforeMerge, int, Bools]:
    before, is_new = np.empty(len(order.starts), np.int64), np.empty(len(order.starts), np.bool_)
    survives = np.empty(len(order), np.bool_)
    dropped = find_before(
        order.run, order.starts, np.array(ages, np.int64), before, is_new, survives
    )
    return BeforeMerge(order=order, before=before, is_new=is_new), dropped, survives


@record
class ChangeRules:
    """Which changes a table's changelog emits.

    `inserts_only`: an existing row never changes, it only expires (first-row). `compared`: replacing
    a row by one that is equal in these columns is no change; None: it is.
    """

    inserts_only: bool = False
    compared: tuple[str, ...] | None = None

    @staticmethod
    def from_schema(schema: TableSchema) -> "ChangeRules":
        """Return the rules of a table."""
        options = schema.options
        compared = None
        if options[core_options.CHANGELOG_ROW_DEDUPLICATE]:
            ignored = options[core_options.CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS]
            uncompared = {*schema.primary_keys, *ignored}
            compared = tuple(name for name in schema.names if name not in uncompared)
        return ChangeRules(
            inserts_only=options[core_options.MERGE_ENGINE].policy.keeps_first_row,
            compared=compared,
        )

    def changes(
        self, merge: BeforeMerge, sources: Sequence[Source], after: pa.Table
    ) -> pa.Table | None:
        """Return the changelog rows of a merge, in key order; None: nothing changed.

        `after` has one row per key of the merge, deletes included.
        """
        codes = self._codes(merge, sources, after)
        count = int(np.count_nonzero(codes)) + int(np.count_nonzero(codes == REPLACED))
        if not count:
            return None
        runs, rows = np.empty(count, np.uint16), np.empty(count, np.int32)
        kinds = np.empty(count, np.int8)
        order = merge.order
        lay_out_changes(codes, merge.before, order.run, order.row, len(sources), runs, rows, kinds)
        emitted = gather([*sources, after], runs, rows)
        kind_index = emitted.schema.get_field_index(VALUE_KIND)
        return emitted.set_column(kind_index, emitted.schema.field(kind_index), pa.array(kinds))

    def _codes(
        self, merge: BeforeMerge, sources: Sequence[Source], after: pa.Table
    ) -> NDArray[np.int8]:
        was = np.zeros(len(merge.before), np.bool_)
        with_before = np.flatnonzero(merge.before >= 0)
        before_order = merge.order.take(merge.before[with_before])
        was[with_before] = True if self.inserts_only else adds(kinds_of(before_order, sources))
        kinds = fixed_values(one_array(after.column(VALUE_KIND)), np.int8)
        # A first row below the merge is there too: its key is marked as already emitted.
        is_now = ~retracts(kinds) if self.inserts_only else adds(kinds)
        codes = np.full(len(was), UNCHANGED, np.int8)
        codes[~was & is_now & merge.is_new] = CREATED
        codes[was & ~is_now & merge.is_new] = REMOVED
        if self.inserts_only:
            return codes
        replaced = np.flatnonzero(was & is_now & merge.is_new)
        if self.compared is not None and len(replaced):
            replaced = replaced[~self._equal(merge, sources, after, replaced)]
        codes[replaced] = REPLACED
        return codes

    def _equal(
        self, merge: BeforeMerge, sources: Sequence[Source], after: pa.Table, keys: Longs
    ) -> Bools:
        assert self.compared is not None
        names = list(self.compared)
        before_order = merge.order.take(merge.before[keys])
        before = gather(
            [source.select(names) for source in sources], before_order.run, before_order.row
        )
        zeros = np.zeros(len(keys), np.uint16)
        now = gather([after.select(names)], zeros, keys.astype(np.int32))
        return equal_rows(before.columns, now.columns, len(keys))

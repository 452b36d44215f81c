"""The protocol of merge functions, and which of them a table's options ask for."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.modes import MergeEngine, RowKind
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.merge.aggregate import aggregation
from lsm_engine.merge.deduplicate import Deduplicate
from lsm_engine.merge.first_row import FirstRow
from lsm_engine.merge.partial_update import partial_update
from lsm_engine.merge.selection import SelectingFunction, Source
from lsm_engine.schema.table_schema import TableSchema


class MergeFunction(Protocol):
    """Folds the versions of each key into at most one row. Pure.

    Merging neighbouring versions first, then the result with the others, gives the same: in the
    write buffer, when spilled, read or compacted. Where `may_need_full_history`, only
    `history_layers` promises that for a part of a key's versions that is not its oldest part.
    """

    @property
    def keeps_rows(self) -> bool:
        """Whether each merged row is one of the versions, as it was."""
        ...

    @property
    def ignored(self) -> frozenset[RowKind]:
        """Kinds of rows that do nothing."""
        ...

    @property
    def may_need_full_history(self) -> bool:
        """Whether a retract among newer versions may undo more than one merged row can represent.

        Then rows that hold retracts are merged only together with everything that is older.
        """
        ...

    @property
    def adds_may_remove(self) -> bool:
        """Whether rows that add may do so as well: then any rows are."""
        ...

    def needs(self, names: Iterable[str]) -> frozenset[str]:
        """Return the columns that must be read to merge some columns, those included."""
        ...

    def merge(
        self, order: MergeOrder, sources: Sequence[Source], *, drop_deletes: bool = False
    ) -> pa.Table:
        """Return the surviving rows in key order, in the sources' schema.

        A key whose answer is a delete keeps it, as a row of kind -U or -D: only the caller knows
        whether an older run still holds the key, and passes `drop_deletes` if none does.
        """
        ...

    def history_layers(self, order: MergeOrder, sources: Sequence[Source]) -> list[pa.Table]:
        """Return runs, oldest first, that merge like the versions themselves; usually one."""
        ...


def build_merge_function(schema: TableSchema) -> MergeFunction:
    """Return the merge function of a table.

    Raises InvalidOptionError where the options of its merge engine contradict each other or the
    columns.
    """
    ignored: frozenset[RowKind] = frozenset()
    if schema.options[core_options.IGNORE_DELETE]:
        ignored = frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE})
    match schema.options[core_options.MERGE_ENGINE]:
        case MergeEngine.DEDUPLICATE:
            return SelectingFunction(selection=Deduplicate(), ignored=ignored)
        case MergeEngine.FIRST_ROW:
            return SelectingFunction(selection=FirstRow(), ignored=ignored)
        case MergeEngine.PARTIAL_UPDATE:
            return partial_update(schema)
        case MergeEngine.AGGREGATION:
            return aggregation(schema)

"""How the rows of one table merge: its key, what decides inside a key, and the function."""

from collections.abc import Iterable

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.kernels.keys import SortKeys, sort_keys
from lsm_engine.kernels.merge_runs import RowRanks
from lsm_engine.merge.function import MergeFunction, build_merge_function
from lsm_engine.merge.sequence import Rows, UserSequence
from lsm_engine.options import core_options
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.scan import ReadMode
from lsm_engine.types.table_schema import TableSchema


@record
class MergeRules:
    """The rules of a merge of rows of `schema.key_value_arrow`.

    `newest_stands`: a compaction of level 0 has merged every key with its older row, so that of the
    rows above level 0 the one of the smallest level stands for all.
    """

    key_columns: tuple[str, ...]
    sequence: UserSequence
    function: MergeFunction
    newest_stands: bool = False

    def needs(self, names: Iterable[str]) -> frozenset[str]:
        """Return the table columns to read so that those asked for merge right."""
        return self.function.needs((*names, *self.key_columns, *self.sequence.columns))

    def keys(self, rows: Rows, before: pa.Array | None = None) -> SortKeys:
        """Return the keys of rows; `before`: one value for each row that sorts before its key."""
        first = [] if before is None else [before]
        return sort_keys([*first, *(rows.column(name) for name in self.key_columns)])

    def ranks(self, rows: Rows) -> RowRanks:
        """Return what decides inside a key."""
        return self.sequence.row_ranks(rows)


def read_mode(schema: TableSchema) -> ReadMode:
    """Return which files of a table a batch read sees, and whether it merges them."""
    if not schema.has_primary_key:
        return ReadMode.ROW_ID if schema.evolves_data else ReadMode.NO_KEY
    return ReadMode.ABOVE_LEVEL_0 if schema.options.hides_level_0 else ReadMode.MERGE


def merge_rules(schema: TableSchema) -> MergeRules:
    """Return the rules of a table; InvalidOptionError where its options contradict."""
    function = build_merge_function(schema)
    return MergeRules(
        key_columns=schema.trimmed_primary_keys,
        sequence=UserSequence.from_schema(schema),
        function=function,
        newest_stands=not function.keeps_rows and looks_up_older_rows(schema.options),
    )


def looks_up_older_rows(options: TableOptions) -> bool:
    """Whether compactions of level 0 look up the older row of each key, wherever that is."""
    return (
        options[core_options.CHANGELOG_PRODUCER].policy.looks_up
        or options[core_options.DELETION_VECTORS_ENABLED]
    ) and not options[core_options.MERGE_ENGINE].policy.keeps_first_row

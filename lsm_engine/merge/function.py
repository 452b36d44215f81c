"""The protocol of merge functions, and which of them a table's options ask for."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.merge.aggregators.aggregator import Aggregator
from lsm_engine.merge.aggregators.numeric import LastValue
from lsm_engine.merge.aggregators.registry import DEFAULT_FUNCTION, aggregator_of, function_of
from lsm_engine.merge.folding import ColumnRule, Folding, OwnColumn, Removal, SequenceGroup
from lsm_engine.merge.partial_update import group_options, partial_update
from lsm_engine.merge.selection import REFUSAL as FIRST_ROW_REFUSAL
from lsm_engine.merge.selection import Deduplicate, FirstRow, SelectingFunction, Source
from lsm_engine.options import core_options
from lsm_engine.options.modes import MergeEngine, RowKind, SortOrder
from lsm_engine.types.table_schema import TableSchema

# -- Aggregation: every column by a function of its own --------------------------------------------


def aggregation(schema: TableSchema) -> Folding:
    """Return the merge of an aggregation table.

    Key columns are what rows share; `sequence.field` columns follow the newest row. Raises
    InvalidOptionError for functions that are unknown or do not take their column's type.
    """
    rules: list[ColumnRule] = [
        OwnColumn(name=name, aggregator=_function(schema, name))
        for name in schema.names
        if name not in schema.primary_keys
    ]
    ignores = schema.options[core_options.IGNORE_DELETE]
    on_delete = schema.options[core_options.AGGREGATION_REMOVE_ON_DELETE]
    if ignores and on_delete:
        raise InvalidOptionError(
            f"{core_options.AGGREGATION_REMOVE_ON_DELETE.key!r} and 'ignore-delete' contradict each "
            "other; choose one"
        )
    return Folding(
        key_columns=schema.primary_keys,
        rules=tuple(rules),
        removal=Removal(on_delete=on_delete),
        ignored=frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE}) if ignores else frozenset(),
    )


def _function(schema: TableSchema, name: str) -> Aggregator:
    if name in schema.sequence_fields:
        if schema.options.of_field(name, "aggregate-function") is not None:
            raise InvalidOptionError(
                f"column {name!r} is a 'sequence.field' and follows the newest row; leave its "
                "function out",
                key=f"fields.{name}.aggregate-function",
                column=name,
            )
        return LastValue()
    function = function_of(schema, name) or DEFAULT_FUNCTION
    return aggregator_of(schema, schema.field(name), function)


# -- The protocol of merge functions, and which of them a table's options ask for ------------------


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


# -- Row kinds that a table drops or refuses -------------------------------------------------------

_BOTH = frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE})
_NEITHER: frozenset[RowKind] = frozenset()


@record
class RetractRule:
    """The handling of -U and -D rows on write. `remedy` is the error's text.

    A -D that has none of `delete_needs` would do nothing; empty: the key is enough.
    """

    dropped: frozenset[RowKind] = _NEITHER
    refused: frozenset[RowKind] = _NEITHER
    remedy: str = ""
    delete_needs: tuple[str, ...] = ()


def retract_rule(schema: TableSchema) -> RetractRule:
    """Return what the merge engine of a table can do with rows that take values back."""
    rule = _engine_rule(schema)
    if not schema.options[core_options.IGNORE_UPDATE_BEFORE]:
        return rule
    ignored = frozenset({RowKind.UPDATE_BEFORE})
    return replace(rule, dropped=rule.dropped | ignored, refused=rule.refused - ignored)


def deleted_columns(schema: TableSchema) -> tuple[str, ...]:
    """Return the columns that a -D needs of the row that it deletes; the others may be null.

    All of them where a merge, a column of kinds or readers of changes make something of the values: those of a
    changelog that a compaction makes get the row that it looks up.
    """
    options = schema.options
    if (
        not options[core_options.MERGE_ENGINE].policy.keeps_newest_row
        or not options[core_options.CHANGELOG_PRODUCER].policy.compares
        or options[core_options.ROWKIND_FIELD] is not None
    ):
        return tuple(schema.names)
    checked = {*schema.primary_keys, *schema.partition_keys, *schema.sequence_fields}
    return tuple(
        field.name for field in schema.fields if field.name in checked or not field.type.nullable
    )


def _engine_rule(schema: TableSchema) -> RetractRule:
    if schema.options[core_options.IGNORE_DELETE]:
        return RetractRule(dropped=_BOTH)
    match schema.options[core_options.MERGE_ENGINE]:
        case MergeEngine.DEDUPLICATE:
            return RetractRule()
        case MergeEngine.FIRST_ROW:
            return RetractRule(refused=_BOTH, remedy=FIRST_ROW_REFUSAL)
        case MergeEngine.PARTIAL_UPDATE:
            return _computed(partial_update(schema))
        case MergeEngine.AGGREGATION:
            return _computed(aggregation(schema))


def _computed(merge: Folding) -> RetractRule:
    if merge.refusal is not None:
        return RetractRule(refused=_BOTH, remedy=merge.refusal)
    needs: tuple[str, ...] = ()
    if merge.removal.clocks:
        needs = tuple(name for clock in merge.removal.clocks for name in clock.sequence)
    elif not merge.removal.on_delete:
        needs = tuple(
            name
            for rule in merge.rules
            for name in (rule.sequence if isinstance(rule, SequenceGroup) else rule.columns)
            if not (isinstance(rule, OwnColumn) and rule.adds_only)
        )
    columns = [name for rule in merge.rules for name in rule.refusing]
    if not columns:
        return RetractRule(dropped=merge.ignored, delete_needs=needs)
    # With remove-record-on-delete a -D empties the key and asks no function.
    refused = frozenset({RowKind.UPDATE_BEFORE}) if merge.removal.on_delete else _BOTH
    return RetractRule(
        dropped=merge.ignored,
        refused=refused - merge.ignored,
        delete_needs=needs,
        remedy=f"the functions of columns {', '.join(map(repr, columns))} cannot take values back; "
        f"set 'fields.{columns[0]}.ignore-retract' = true, or 'ignore-delete' = true",
    )


# -- Merge rules in words --------------------------------------------------------------------------

_LAST_NON_NULL = "the newest value that is not null"


def order_text(schema: TableSchema) -> str:
    """Return, in words, what makes one version newer than another."""
    if not schema.sequence_fields:
        return "a greater sequence number is newer"
    falling = schema.options[core_options.SEQUENCE_FIELD_SORT_ORDER] is SortOrder.DESCENDING
    direction = "smaller" if falling else "greater"
    fields = ", ".join(schema.sequence_fields)
    return f"a {direction} {fields} is newer, of equal ones the greater sequence number"


def row_rule_text(schema: TableSchema) -> str:
    """Return, in words, how the merge engine merges versions of a key."""
    match schema.options[core_options.MERGE_ENGINE]:
        case MergeEngine.DEDUPLICATE:
            rule = "deduplicate: the newest version is the row"
        case MergeEngine.FIRST_ROW:
            rule = "first-row: the oldest version is the row; level 0 is read once it is compacted"
        case MergeEngine.PARTIAL_UPDATE:
            rule = "partial-update: versions are put together column by column"
        case MergeEngine.AGGREGATION:
            rule = "aggregation: each column is what its function makes of the versions"
    ignores = schema.options[core_options.IGNORE_DELETE]
    return f"{rule}; {order_text(schema)}" + ("; -U and -D are ignored" if ignores else "")


def column_rule_texts(schema: TableSchema) -> dict[str, str]:
    """Return, per column, what decides its value; empty where whole rows win or lose."""
    engine = schema.options[core_options.MERGE_ENGINE]
    if engine.policy.has_sequence_groups:
        return _partial_update(schema)
    return _aggregation(schema) if engine.policy.has_functions else {}


def _aggregation(schema: TableSchema) -> dict[str, str]:
    return {
        name: "follows the newest version"
        if name in schema.sequence_fields
        else function_of(schema, name) or DEFAULT_FUNCTION
        for name in schema.names
        if name not in schema.primary_keys
    }


def _partial_update(schema: TableSchema) -> dict[str, str]:
    texts = {name: _LAST_NON_NULL for name in schema.names if name not in schema.primary_keys}
    for group in group_options(schema):
        clock = ", ".join(group.sequence)
        texts |= dict.fromkeys(group.sequence, "the greatest clock of its group")
        for name in group.members:
            function = function_of(schema, name)
            description = "as of" if function is None else f"{function}, in the order of"
            texts[name] = f"{description} the clock {clock}"
    return texts

"""Which kinds of rows a table takes: what a writer drops, and what it refuses."""

from dataclasses import replace

from lsm_engine.base import core_options
from lsm_engine.base.modes import MergeEngine, RowKind
from lsm_engine.base.record import record
from lsm_engine.merge.aggregate import aggregation
from lsm_engine.merge.first_row import REFUSAL as FIRST_ROW_REFUSAL
from lsm_engine.merge.folding import Folding
from lsm_engine.merge.partial_update import partial_update
from lsm_engine.merge.rules import OwnColumn, SequenceGroup
from lsm_engine.schema.table_schema import TableSchema

_BOTH = frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE})
_NEITHER: frozenset[RowKind] = frozenset()


@record
class RetractRule:
    """What becomes of -U and -D rows as they are written. `remedy` is the error's text.

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

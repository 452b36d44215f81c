"""What decides between the versions of a key, in words: for whole rows, and column by column."""

from lsm_engine.base import core_options
from lsm_engine.base.modes import MergeEngine, SortOrder
from lsm_engine.merge.aggregators.registry import DEFAULT_FUNCTION, function_of
from lsm_engine.merge.partial_update import group_options
from lsm_engine.schema.table_schema import TableSchema

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

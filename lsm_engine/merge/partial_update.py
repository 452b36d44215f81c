"""Partial update: the newest value of each column that is not null; groups of columns by their clock."""

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.merge.aggregators.aggregator import Aggregator
from lsm_engine.merge.aggregators.numeric import LastNonNull, LastValue
from lsm_engine.merge.aggregators.registry import DEFAULT_FUNCTION, aggregator_of, function_of
from lsm_engine.merge.folding import ColumnRule, Folding, OwnColumn, Removal, SequenceGroup
from lsm_engine.options import core_options
from lsm_engine.options.modes import RowKind
from lsm_engine.options.option import names
from lsm_engine.types.table_schema import TableSchema

SUFFIX = "sequence-group"
REFUSAL = (
    "a partial-update table takes no -U and -D by default; set 'ignore-delete' = true to drop such "
    "rows, 'partial-update.remove-record-on-delete' = true to let -D remove the key, or give columns "
    "a clock with 'fields.<clock>.sequence-group'"
)


@record
class GroupOption:
    """One `fields.<clock>[,<clock>…].sequence-group` option: its clocks and its members."""

    key: str
    sequence: tuple[str, ...]
    members: tuple[str, ...]


def group_options(schema: TableSchema) -> tuple[GroupOption, ...]:
    """Return the sequence groups that the options describe, unchecked."""
    groups = []
    for key, text in sorted(schema.options.texts.items()):
        if key.startswith("fields.") and key.endswith("." + SUFFIX):
            clocks = names(key.removeprefix("fields.").removesuffix("." + SUFFIX))
            groups.append(GroupOption(key=key, sequence=clocks, members=names(text)))
    return tuple(groups)


def partial_update(schema: TableSchema) -> Folding:
    """Return the merge of a partial-update table.

    Raises InvalidOptionError for groups and functions that cannot be: unknown columns, keys, a
    column in two groups, a function outside of a group, a type that a function does not take.
    """
    options = group_options(schema)
    _check_groups(schema, options)
    groups = tuple(
        SequenceGroup(
            sequence=option.sequence,
            members=tuple((name, _in_group(schema, name)) for name in option.members),
        )
        for option in options
    )
    grouped = {name for group in groups for name in group.columns}
    alone = [name for name in schema.names if name not in grouped | set(schema.primary_keys)]
    for name in alone:
        _check_alone(schema, name)
    rules: list[ColumnRule] = [
        OwnColumn(name=name, aggregator=_alone(schema, name), adds_only=True) for name in alone
    ]
    removal = _removal(schema, groups)
    ignores = schema.options[core_options.IGNORE_DELETE]
    return Folding(
        key_columns=schema.primary_keys,
        rules=(*rules, *groups),
        removal=removal,
        ignored=_ignored(ignores=ignores, removal=removal),
        refusal=None if ignores or groups or removal.on_delete else REFUSAL,
    )


def _ignored(*, ignores: bool, removal: Removal) -> frozenset[RowKind]:
    if ignores:
        return frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE})
    # Only -D removes; a -U adds nothing to what the +U after it states.
    return frozenset({RowKind.UPDATE_BEFORE}) if removal.on_delete else frozenset()


def _removal(schema: TableSchema, groups: tuple[SequenceGroup, ...]) -> Removal:
    on_delete = schema.options[core_options.PARTIAL_UPDATE_REMOVE_ON_DELETE]
    clocks = schema.options[core_options.PARTIAL_UPDATE_REMOVE_ON_GROUP]
    key = core_options.PARTIAL_UPDATE_REMOVE_ON_DELETE.key
    if on_delete and schema.options[core_options.IGNORE_DELETE]:
        raise InvalidOptionError(f"{key!r} and 'ignore-delete' contradict each other; choose one")
    if on_delete and groups:
        raise InvalidOptionError(
            f"{key!r} does not go with sequence groups; use "
            f"{core_options.PARTIAL_UPDATE_REMOVE_ON_GROUP.key!r} to name the groups that remove"
        )
    sequence_columns = {name for group in groups for name in group.sequence}
    missing = [name for name in clocks if name not in sequence_columns]
    if missing:
        raise InvalidOptionError(
            f"{core_options.PARTIAL_UPDATE_REMOVE_ON_GROUP.key!r} names columns that no sequence group "
            "has as its clock",
            columns=missing,
            clocks=sorted(sequence_columns),
        )
    removing = tuple(group for group in groups if not set(group.sequence).isdisjoint(clocks))
    return Removal(on_delete=on_delete, clocks=removing)


def _alone(schema: TableSchema, name: str) -> Aggregator:
    # One that kept a value for a null would make the merged row newer than its newest version.
    return LastValue() if name in schema.sequence_fields else LastNonNull()


def _in_group(schema: TableSchema, name: str) -> Aggregator | None:
    function = function_of(schema, name)
    return None if function is None else aggregator_of(schema, schema.field(name), function)


def _check_alone(schema: TableSchema, name: str) -> None:
    function = function_of(schema, name)
    if function is None or function == DEFAULT_FUNCTION or name in schema.sequence_fields:
        return
    raise InvalidOptionError(
        f"column {name!r} has the function {function!r} and is in no sequence group; put it into one "
        f"with 'fields.<clock>.{SUFFIX}', or use merge engine 'aggregation'",
        column=name,
    )


def _check_groups(schema: TableSchema, options: tuple[GroupOption, ...]) -> None:
    owners: dict[str, str] = {}
    for option in options:
        if not option.sequence or not option.members:
            raise InvalidOptionError(f"option {option.key!r} names no columns", key=option.key)
        for name in (*option.sequence, *option.members):
            if name not in schema.names:
                raise InvalidOptionError(
                    f"option {option.key!r} names column {name!r}, which the table does not have",
                    key=option.key,
                    column=name,
                )
            if name in schema.primary_keys:
                raise InvalidOptionError(
                    f"option {option.key!r}: key column {name!r} cannot be in a sequence group, it "
                    "is the same in every version",
                    key=option.key,
                    column=name,
                )
            if name in owners:
                raise InvalidOptionError(
                    f"column {name!r} is in two sequence groups, or twice in one",
                    column=name,
                    keys=sorted({option.key, owners[name]}),
                )
            owners[name] = option.key
        for name in option.sequence:
            if schema.options.of_field(name, "aggregate-function") is not None:
                raise InvalidOptionError(
                    f"column {name!r} is the clock of a sequence group and cannot have a function",
                    column=name,
                )

"""Aggregation: every column by a function of its own."""

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.modes import RowKind
from lsm_engine.merge.aggregators.aggregator import Aggregator
from lsm_engine.merge.aggregators.ordered import LastValue
from lsm_engine.merge.aggregators.registry import DEFAULT_FUNCTION, aggregator_of, function_of
from lsm_engine.merge.folding import Folding, Removal
from lsm_engine.merge.rules import ColumnRule, OwnColumn
from lsm_engine.schema.table_schema import TableSchema


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

"""Conversion of filters to predicate trees, and of trees to Arrow expressions and to masks of rows.

Arrow serializes an expression as Substrait. Arrow evaluates expressions that Substrait cannot hold.
"""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import reduce
from importlib import import_module
from itertools import accumulate
from operator import and_, or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.filter import where
from lsm_engine.filter.binding import COMPUTE, bind
from lsm_engine.filter.predicate import (
    And,
    Compare,
    Computed,
    Constant,
    IsIn,
    IsNull,
    IsValid,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    all_of,
)
from lsm_engine.filter.substrait import is_known, predicate_of
from lsm_engine.kernels.arrow_views import Bools, Longs

SUBSTRAIT_DEPTH_MAX = 10
"""Levels of an Arrow expression that are read to choose files by; 2 ms at most."""

_NUMBERED = re.compile(r"FieldPath\(\d")
_QUOTED = re.compile(r'"[^"]*"')
_SET = re.compile(r"is_in\(([^,]+), \{value_set=([^:]+(?:\[[^]]*\])?):\[")
"""A set of values in Arrow's text of an expression: the column, and the type of the values."""
_OPERATORS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=", "in", "not in")
_IN_PYTHON = {
    "=": " == {}",
    "<>": " != {}",
    "in": ".is_in({})",
    "not in": ".is_in({}), with ~ before it,",
}
_UNKNOWN_COLUMN = re.compile(r"No match for FieldRef\.\w+\((?:FieldRef\.Name\()?([^)]*)\)")


def tree_of(filter_: where.Filter, schema: pa.Schema) -> Predicate:
    """Return the tree of a filter over columns of `schema`: a predicate, SQL text or an expression.

    All filters of a list have to hold. Raises InvalidInputError for anything that is no filter of
    such rows.
    """
    if isinstance(filter_, list | tuple):
        # A triple is the filter of another library and would be read as a list here.
        refuse_triple(filter_)
        return all_of(tree_of(part, schema) for part in filter_)
    if isinstance(filter_, where.Predicate):
        return bind(filter_, schema)
    if isinstance(filter_, str):
        sql = import_module("lsm_engine.filter.sql")  # its parser takes a while to load
        parsed: where.Predicate = sql.parse_filter(filter_, schema)
        return bind(parsed, schema)
    if isinstance(filter_, pc.Expression):
        return from_expression(filter_, schema)
    raise _invalid(
        "a filter is a predicate such as lsm.col('k') > 3, SQL text such as 'k > 3', or a "
        "pyarrow.compute.Expression such as pc.field('k') > 3; expressions of polars and DuckDB go to "
        "to_polars().filter(...) and to_duckdb().filter(...)",
        given=type(filter_).__name__,
    )


def refuse_triple(filter_: Sequence[Any]) -> None:
    """Raise InvalidInputError for a condition as pyarrow.parquet and deltalake take it: column, operator, value."""
    if len(filter_) == 3 and isinstance(filter_[1], str) and filter_[1] in _OPERATORS:
        column, operator, value = filter_
        written = _IN_PYTHON.get(operator, f" {operator} {{}}").format(f"{value!r}")
        raise _invalid(
            f"a filter is no triple: write lsm.col({column!r}){written}"
            f' or SQL text such as "{column} {operator} {value!r}"'
        )


def from_expression(expression: pc.Expression, schema: pa.Schema) -> Predicate:
    """Return the tree of a boolean Arrow expression over columns of `schema`.

    Raises InvalidInputError for a column that `schema` lacks, and for an expression that Arrow cannot
    evaluate on such rows.
    """
    # A number means another column once a schema changes.
    if _NUMBERED.search(_QUOTED.sub("", str(expression))):
        raise _invalid(
            "name the columns of a filter instead of numbering them", filter=str(expression)
        )
    # The check runs first, so a wrong filter fails before anything is read.
    _require_evaluable(expression, schema)
    read = _read(expression, schema)
    # Arrow, and engines that hand its expressions down, compare texts letter by letter.
    tree = bind(read, pa.schema([field.remove_metadata() for field in schema]))
    if is_known(read):  # the tree is the whole expression: Arrow need not evaluate it
        # Arrow evaluates only what the tree does not express.
        return tree
    _require_exact_sets(expression, schema)
    columns = tuple(_columns(expression, schema, schema.names))
    return all_of([tree, Opaque(columns=columns, expression=expression)])


def to_expression(predicate: Predicate) -> pc.Expression:
    """Return the Arrow expression of a tree, to be shown: what SQL computes is in it as a column of that text."""
    match predicate:
        case And():
            return reduce(and_, (to_expression(part) for part in predicate.parts))
        case Or():
            return reduce(or_, (to_expression(part) for part in predicate.parts))
        case Not():
            return ~to_expression(predicate.part)
        case Compare():
            return COMPUTE[predicate.comparison](
                pc.field(predicate.column), pc.scalar(predicate.value)
            )
        case IsIn():
            return pc.field(predicate.column).isin(_set_of(predicate))
        case StartsWith():
            return pc.starts_with(pc.field(predicate.column), predicate.prefix)
        case IsNull():
            return pc.field(predicate.column).is_null()
        case IsValid():
            return pc.field(predicate.column).is_valid()
        case Constant():
            return pc.scalar(pa.scalar(predicate.value, pa.bool_()))
        case Opaque():
            return predicate.expression
        case Computed():
            return pc.field(predicate.expression.text)


def flags_of(predicate: Predicate, rows: pa.Table | pa.RecordBatch) -> Any:
    """Return a column of flags: whether a filter is true, false or null for each row.

    Arrow's expression engine takes three times as long for a row group, and its threads lose the order.
    """
    match predicate:
        case And():
            return reduce(pc.and_kleene, (flags_of(part, rows) for part in predicate.parts))
        case Or():
            return reduce(pc.or_kleene, (flags_of(part, rows) for part in predicate.parts))
        case Not():
            return pc.invert(flags_of(predicate.part, rows))
        case Compare():
            return COMPUTE[predicate.comparison](rows.column(predicate.column), predicate.value)
        case IsIn():
            return pc.is_in(rows.column(predicate.column), value_set=_set_of(predicate))
        case StartsWith():
            return pc.starts_with(rows.column(predicate.column), pattern=predicate.prefix)
        case IsNull():
            return pc.is_null(rows.column(predicate.column))
        case IsValid():
            return pc.is_valid(rows.column(predicate.column))
        case Constant():
            return pa.repeat(pa.scalar(predicate.value, pa.bool_()), rows.num_rows)
        case Opaque():
            return _evaluated(predicate.expression, rows)
        case Computed():
            return predicate.expression.flags(rows)


def _set_of(predicate: IsIn) -> pa.Array:
    values = predicate.values
    # Arrow matches a null row if the set has a null.
    return (
        pa.concat_arrays([values, pa.nulls(1, values.type)]) if predicate.null_matches else values
    )


def _evaluated(expression: pc.Expression, rows: pa.Table | pa.RecordBatch) -> pa.Array:
    from pyarrow import acero  # noqa: PLC0415 -- few filters need Arrow's engine, which loads the dataset module

    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    projection = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["flags"]))
    projected = acero.Declaration.from_sequence([source, projection]).to_table(use_threads=False)
    return projected.column("flags").combine_chunks()


def matches(predicate: Predicate, rows: pa.Table | pa.RecordBatch) -> Bools:
    """Return the mask of the rows that a filter keeps."""
    mask: Bools = np.zeros(rows.num_rows, np.bool_)
    mask[positions_of(predicate, rows)] = True
    return mask


def positions_of(predicate: Predicate, rows: pa.Table | pa.RecordBatch) -> Longs:
    """Return the positions of the rows that a filter keeps, in order."""
    indices = pc.indices_nonzero(flags_of(predicate, rows))
    positions: Longs = indices.to_numpy().astype(np.int64)
    return positions


def _read(expression: pc.Expression, schema: pa.Schema) -> where.Predicate:
    """Return the predicate of an expression by way of Substrait; Unknown for one it cannot hold.

    Arrow casts a column to the type of a wider literal, and Substrait has no casts. The second attempt
    declares the columns with wide types, so that no cast is needed. The time doubles with each level of
    nesting, to minutes for thirty levels, so deep expressions are Unknown.
    """
    if _depth(expression) > SUBSTRAIT_DEPTH_MAX:
        return where.Unknown()
    for types in (schema, pa.schema([field.with_type(_wide(field.type)) for field in schema])):
        with suppress(pa.ArrowException):
            return predicate_of(bytes(expression.to_substrait(types)), schema)
    return where.Unknown()


def _depth(expression: pc.Expression) -> int:
    """Return the depth of an expression, by the parentheses in Arrow's text of it."""
    shown = _QUOTED.sub("", str(expression))
    return max(accumulate((c == "(") - (c == ")") for c in shown if c in "()"), default=0)


def _wide(kind: pa.DataType) -> pa.DataType:
    # Doubles are the type to which Arrow would cast the column.
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return kind


def _columns(expression: pc.Expression, schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """Return the columns that an expression names, without which Arrow cannot evaluate it."""
    # Half of the columns can be ruled out by one trial.
    if _evaluates(expression, [field for field in schema if field.name not in names]):
        return []
    if len(names) == 1:
        return list(names)
    # Halves, because each attempt costs an evaluation and most filters name few of many columns.
    middle = len(names) // 2
    return [
        *_columns(expression, schema, names[:middle]),
        *_columns(expression, schema, names[middle:]),
    ]


def _evaluates(expression: pc.Expression, fields: Sequence[pa.Field]) -> bool:
    try:
        _no_rows(fields).filter(expression)
    except (pa.ArrowException, TypeError):  # a column of the expression is not in `fields`
        return False
    return True


def _no_rows(fields: Sequence[pa.Field]) -> pa.Table:
    """Return an empty table with one more column: Arrow filters no table without columns."""
    spare = pa.field(_spare([field.name for field in fields]), pa.null())
    return pa.schema([*fields, spare]).empty_table()


def _spare(names: Collection[str]) -> str:
    """Return a name that is not in `names`."""
    return "_" * (1 + max(map(len, names), default=0))


def _require_evaluable(expression: pc.Expression, schema: pa.Schema) -> None:
    nulls = {field.name: pa.nulls(1, field.type) for field in schema}
    try:  # one row of nulls: Arrow compares nothing in an empty table, and finds no wrong type
        pa.table({**nulls, _spare(schema.names): pa.nulls(1)}).filter(expression)
    except (pa.ArrowException, TypeError) as cause:
        missing = _UNKNOWN_COLUMN.search(str(cause))
        # A column that is missing is a mistake in a name, and the error can list the names.
        if missing is not None and missing[1] not in schema.names:
            raise InvalidInputError(
                f"the filter names column {missing[1]!r}; there are {', '.join(schema.names)}",
                kind=ErrorKind.NO_SUCH_COLUMN,
                column=missing[1],
            ) from cause
        raise _invalid(
            f"Arrow cannot evaluate this filter: {str(cause).splitlines()[0]}",
            filter=str(expression),
        ) from cause


def _require_exact_sets(expression: pc.Expression, schema: pa.Schema) -> None:
    """Refuse a set of values that Arrow would round to its column's type before it compares them."""
    for name, values in _SET.findall(str(expression)):
        index = schema.get_field_index(name)
        if index < 0 or str(schema.field(index).type) == values:
            continue
        column = schema.field(index).type
        are_integers = pa.types.is_integer(column) and values.lstrip("u").startswith("int")
        # A set of integers is rounded to no other value, and texts have one meaning.
        if not are_integers and not (_is_text(str(column)) and _is_text(values)):
            raise _invalid(
                f"the set for column {name!r} holds values of type {values}, which Arrow rounds to "
                f"{column}; give values of that type, or use lsm.col({name!r}).is_in([...])",
                column=name,
                filter=str(expression),
            )


def _is_text(kind: str) -> bool:
    return kind.endswith(("string", "binary", "null"))


def _invalid(message: str, **facts: object) -> InvalidInputError:
    return InvalidInputError(message, kind=ErrorKind.INVALID_FILTER, **facts)

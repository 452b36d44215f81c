"""Binding of predicates to the columns of a schema.

A negation moves down to the comparisons, because null has a known result only in them. Rows for which the
tree is null do not match. Literals take the column's type without rounding (`prune/literal.py`).
"""

from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.near_names import nearest
from lsm_engine.prune import predicate as bound
from lsm_engine.prune import where
from lsm_engine.prune.literal import (
    counted,
    double_of,
    is_counted,
    limits,
    place_of,
    same_kind,
    unfit,
)
from lsm_engine.prune.predicate import Comparison
from lsm_engine.schema.arrow_types import char_length

_FALSE = bound.Constant(value=False)
_BELOW = (Comparison.LESS, Comparison.LESS_EQUAL)
_WILDCARDS = frozenset("%_\\")


def bind(
    predicate: where.Predicate, schema: pa.Schema, *, negated: bool = False
) -> bound.Predicate:
    """Return the tree of a predicate, or of its negation, over the columns of `schema`.

    Raises InvalidInputError that names the column, for a column that `schema` lacks and for a literal of
    a type that the column is not compared with.
    """
    match predicate:
        case where.AllOf() | where.AnyOf():
            join = any_of if isinstance(predicate, where.AnyOf) != negated else bound.all_of
            return join([bind(part, schema, negated=negated) for part in predicate.parts])
        case where.Negated():
            return bind(predicate.part, schema, negated=not negated)
        case where.Unknown():
            return bound.TRUE
        case where.Fixed():
            return bound.Constant(
                value=predicate.value != negated if predicate.value is not None else None
            )
        case where.NullTest():
            column = _field(predicate.column, schema).name
            return bound.IsValid(column=column) if negated else bound.IsNull(column=column)
        case where.Among():
            return _among(predicate, _field(predicate.column, schema), negated=negated)
        case where.ColumnTest():
            return _columns(predicate, schema, negated=negated)
        case where.Test():
            field = _field(predicate.column, schema)
            return compared(field, predicate.comparison, predicate.value, negated=negated)
        case where.Column():
            field = _field(predicate.name, schema)
            if not pa.types.is_boolean(field.type):
                raise InvalidInputError(
                    f"column {field.name!r} is {field.type}: write a test of it, such as = or IS NULL; "
                    "columns to read are columns=[...]",
                    kind=ErrorKind.INVALID_FILTER,
                    column=field.name,
                )
            return compared(field, Comparison.EQUAL, True, negated=negated)  # noqa: FBT003
        case where.Prefix() | where.LikePattern():
            return _text(predicate, _field(predicate.column, schema), negated=negated)
        case _:
            raise AssertionError(predicate)


def any_of(parts: Iterable[bound.Predicate]) -> bound.Predicate:
    """Return the disjunction of `parts`; without parts it is false."""
    disjuncts = tuple(part for part in parts if part != _FALSE)
    if bound.TRUE in disjuncts:
        return bound.TRUE
    return (
        disjuncts[0] if len(disjuncts) == 1 else bound.Or(parts=disjuncts) if disjuncts else _FALSE
    )


def compared(
    field: pa.Field, comparison: Comparison, value: object, *, negated: bool = False
) -> bound.Predicate:
    """Return the comparison of a column with a value that is not null."""
    kind = field.type
    if pa.types.is_floating(kind):
        return _compared_float(field, comparison, value, negated=negated)
    operator = comparison.inverse if negated else comparison
    length = char_length(field)
    if length is not None:
        text: str = same_kind(value, field.name, kind).as_py()
        return _compared_char(field.name, operator, text, length)
    if not is_counted(kind):
        scalar = same_kind(value, field.name, kind)
        return bound.Compare(column=field.name, comparison=operator, value=scalar)
    place = place_of(value, field.name, kind)
    low, high = limits(kind)
    if operator in (Comparison.EQUAL, Comparison.NOT_EQUAL):
        if not place.is_exact or not low <= place.units <= high:
            return _FALSE if operator is Comparison.EQUAL else bound.IsValid(column=field.name)
    elif not low <= place.units <= high:
        holds = (place.units > high) == (operator in _BELOW)
        return bound.IsValid(column=field.name) if holds else _FALSE
    elif not place.is_exact:
        operator = Comparison.LESS_EQUAL if operator in _BELOW else Comparison.GREATER
    return bound.Compare(column=field.name, comparison=operator, value=counted(place.units, kind))


def _compared_char(column: str, operator: Comparison, text: str, length: int) -> bound.Predicate:
    """Blanks at the end of CHAR(n) and of the literal do not count: the shorter one has as many as it lacks."""
    stored, suffix = text[:length].ljust(length), text[length:]
    blanks = " " * len(suffix)
    if suffix != blanks:  # the literal lies between two that the column can hold
        if operator in (Comparison.EQUAL, Comparison.NOT_EQUAL):
            return _FALSE if operator is Comparison.EQUAL else bound.IsValid(column=column)
        reaches = (blanks < suffix) == (operator in _BELOW)
        pair = (Comparison.LESS, Comparison.LESS_EQUAL) if operator in _BELOW else (Comparison.GREATER, Comparison.GREATER_EQUAL)  # fmt: skip
        operator = pair[reaches]
    return bound.Compare(column=column, comparison=operator, value=pa.scalar(stored))


def _compared_float(
    field: pa.Field, comparison: Comparison, value: object, *, negated: bool
) -> bound.Predicate:
    """Return the comparison of a floating-point column, as doubles.

    The negation stays a Not: NaN makes both a comparison and its inverse false.
    """
    double, side = double_of(value, field.name, field.type)
    operator = comparison
    if side and comparison in (Comparison.EQUAL, Comparison.NOT_EQUAL):
        holds = (comparison is Comparison.NOT_EQUAL) != negated
        return bound.IsValid(column=field.name) if holds else _FALSE
    if side:
        reaches = (side > 0) == (comparison in _BELOW)
        pair = (Comparison.LESS, Comparison.LESS_EQUAL) if comparison in _BELOW else (Comparison.GREATER, Comparison.GREATER_EQUAL)  # fmt: skip
        operator = pair[reaches]
    test = bound.Compare(
        column=field.name, comparison=operator, value=pa.scalar(double, pa.float64())
    )
    return bound.Not(part=test) if negated else test


def _among(test: where.Among, field: pa.Field, *, negated: bool) -> bound.Predicate:
    is_sql = test.null_is is None
    values = _values(test.values, field)
    if not is_sql and pa.types.is_floating(field.type) and _has_nan(test.values):
        # Arrow finds NaN in a set; SQL, where it equals nothing, does not.
        values = pa.concat_arrays([values, pa.array([float("nan")], values.type)])
    predicate: bound.Predicate = bound.IsIn(
        column=field.name, values=values, null_matches=test.null_is is True
    )
    if not negated:
        return predicate
    predicate = bound.Not(part=predicate)
    valid = bound.IsValid(column=field.name)
    return bound.all_of([valid, predicate]) if is_sql else predicate


def _values(literals: object, field: pa.Field) -> pa.Array:
    """Return the values of a set that the column can hold. No row equals the other ones."""
    kind = field.type
    values: pa.Array | None = literals if isinstance(literals, pa.Array) else _array(literals)
    if (
        values is not None
        and char_length(field) is None
        and (values.type == kind or _widens(values.type, kind))
    ):
        cast_values = values.cast(kind)
        return (
            cast_values.filter(pc.equal(cast_values, cast_values))
            if pa.types.is_floating(kind)
            else cast_values
        )
    python_values = literals.to_pylist() if isinstance(literals, pa.Array) and not pa.types.is_temporal(literals.type) else literals  # fmt: skip
    assert isinstance(python_values, Iterable)
    scalars: list[pa.Scalar] = []
    for value in python_values:
        if pa.types.is_floating(kind):
            double, side = double_of(value, field.name, kind)
            scalar = pa.scalar(double, kind)
            if not side and scalar.as_py() == double:
                scalars.append(scalar)
        else:
            test = compared(field, Comparison.EQUAL, value)
            if isinstance(test, bound.Compare):
                scalars.append(test.value)
    return pa.array(scalars, kind)


def _has_nan(literals: object) -> bool:
    values = literals if isinstance(literals, pa.Array) else _array(literals)
    assert values is not None, "numbers of one type"
    return bool(pc.any(pc.is_nan(values)).as_py())


def _array(literals: object) -> pa.Array | None:
    try:
        return pa.array(literals)
    except (pa.ArrowException, OverflowError):  # of several types: each value is coerced by itself
        return None


def _widens(source: pa.DataType, kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(source) and types.is_integer(kind):
        low, high = limits(source)
        least, most = limits(kind)
        return bool(least <= low and high <= most)
    return bool(types.is_large_string(source) and types.is_string(kind))


def _text(
    test: where.Prefix | where.LikePattern, field: pa.Field, *, negated: bool
) -> bound.Predicate:
    if not pa.types.is_string(field.type):
        raise InvalidInputError(
            f"column {field.name!r} is {field.type}; LIKE compares a text column with 'text'",
            kind=ErrorKind.INVALID_FILTER,
            column=field.name,
        )
    predicate: bound.Predicate
    if isinstance(test, where.Prefix):
        predicate = bound.StartsWith(column=field.name, prefix=test.text)
    elif not _WILDCARDS & set(test.pattern):
        unpadded = field.remove_metadata()  # of a pattern every blank counts
        return compared(unpadded, Comparison.EQUAL, test.pattern, negated=negated)
    elif test.pattern.endswith("%") and not _WILDCARDS & set(test.pattern[:-1]):
        predicate = bound.StartsWith(column=field.name, prefix=test.pattern[:-1])
    else:
        like = pc.match_like(pc.field(field.name), test.pattern)
        predicate = bound.Opaque(columns=(field.name,), expression=like)
    return bound.Not(part=predicate) if negated else predicate


def _columns(test: where.ColumnTest, schema: pa.Schema, *, negated: bool) -> bound.Predicate:
    left_field, right_field = _field(test.column, schema), _field(test.other_column, schema)
    build = COMPUTE[test.comparison]
    try:
        build(pa.array([], left_field.type), pa.array([], right_field.type))
    except pa.ArrowException as cause:
        raise unfit(where.col(right_field.name), left_field.name, left_field.type) from cause
    lengths = char_length(left_field), char_length(right_field)
    left_operand, right_operand = (
        _as_long(pc.field(field.name), lengths) for field in (left_field, right_field)
    )
    predicate: bound.Predicate = bound.Opaque(
        columns=(left_field.name, right_field.name), expression=build(left_operand, right_operand)
    )
    return bound.Not(part=predicate) if negated else predicate


def _as_long(column: pc.Expression, lengths: tuple[int | None, int | None]) -> pc.Expression:
    """Return one of two columns of CHAR with as many blanks as the longer one; other columns as they are."""
    if None in lengths or lengths[0] == lengths[1]:
        return column
    return pc.utf8_rpad(column, max(length or 0 for length in lengths), " ")


COMPUTE: dict[Comparison, Callable[..., pc.Expression]] = {
    Comparison.EQUAL: pc.equal,
    Comparison.NOT_EQUAL: pc.not_equal,
    Comparison.LESS: pc.less,
    Comparison.LESS_EQUAL: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.GREATER_EQUAL: pc.greater_equal,
}


def _field(name: str, schema: pa.Schema) -> pa.Field:
    if name in schema.names:
        return schema.field(name)
    suggestion = nearest(name, schema.names)
    hint = f"; did you mean {suggestion!r}?" if suggestion else "; text is written in single quotes"
    column, *fields = name.split(".")
    if fields and column in schema.names:
        parts = ", ".join(map(repr, (column, *fields)))
        hint = f"; of a nested field make pc.field({parts}) == value"
    raise InvalidInputError(
        f"the filter names column {name!r}; there are {', '.join(schema.names)}{hint}",
        kind=ErrorKind.NO_SUCH_COLUMN,
        column=name,
    )

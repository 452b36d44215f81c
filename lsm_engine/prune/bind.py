"""Predicates as written → trees over the columns of a schema.

Negations are carried down to the tests, where SQL's answer for null is known: what is left is true or
not, and null counts as not. Values take the column's own type without rounding (`prune/literal.py`).
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
    """Return the tree that is true for the rows of `schema` that a predicate (or its opposite) keeps.

    Raises InvalidInputError, naming the column, for columns that are not there and for values that
    they are not compared with.
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
    """Return the disjunction of `parts`, of none: false."""
    found = tuple(part for part in parts if part != _FALSE)
    if bound.TRUE in found:
        return bound.TRUE
    return found[0] if len(found) == 1 else bound.Or(parts=found) if found else _FALSE


def compared(
    field: pa.Field, comparison: Comparison, value: object, *, negated: bool = False
) -> bound.Predicate:
    """Return the tree of a column against a value that is not null."""
    kind = field.type
    if pa.types.is_floating(kind):
        return _compared_float(field, comparison, value, negated=negated)
    wanted = comparison.inverse if negated else comparison
    length = char_length(field)
    if length is not None:
        text: str = same_kind(value, field.name, kind).as_py()
        return _compared_char(field.name, wanted, text, length)
    if not is_counted(kind):
        scalar = same_kind(value, field.name, kind)
        return bound.Compare(column=field.name, comparison=wanted, value=scalar)
    place = place_of(value, field.name, kind)
    low, high = limits(kind)
    if wanted in (Comparison.EQUAL, Comparison.NOT_EQUAL):
        if not place.is_exact or not low <= place.at <= high:
            return _FALSE if wanted is Comparison.EQUAL else bound.IsValid(column=field.name)
    elif not low <= place.at <= high:
        holds = (place.at > high) == (wanted in _BELOW)
        return bound.IsValid(column=field.name) if holds else _FALSE
    elif not place.is_exact:
        wanted = Comparison.LESS_EQUAL if wanted in _BELOW else Comparison.GREATER
    return bound.Compare(column=field.name, comparison=wanted, value=counted(place.at, kind))


def _compared_char(column: str, wanted: Comparison, text: str, length: int) -> bound.Predicate:
    """Blanks at the end of CHAR(n) and of the literal do not count: the shorter one has as many as it lacks."""
    kept, rest = text[:length].ljust(length), text[length:]
    blanks = " " * len(rest)
    if rest != blanks:  # the literal lies between two that the column can hold
        if wanted in (Comparison.EQUAL, Comparison.NOT_EQUAL):
            return _FALSE if wanted is Comparison.EQUAL else bound.IsValid(column=column)
        reaches = (blanks < rest) == (wanted in _BELOW)
        pair = (Comparison.LESS, Comparison.LESS_EQUAL) if wanted in _BELOW else (Comparison.GREATER, Comparison.GREATER_EQUAL)  # fmt: skip
        wanted = pair[reaches]
    return bound.Compare(column=column, comparison=wanted, value=pa.scalar(kept))


def _compared_float(
    field: pa.Field, comparison: Comparison, value: object, *, negated: bool
) -> bound.Predicate:
    """Numbers are compared as doubles. NaN compares false, and so its opposites are not exchanged."""
    near, side = double_of(value, field.name, field.type)
    wanted = comparison
    if side and comparison in (Comparison.EQUAL, Comparison.NOT_EQUAL):
        holds = (comparison is Comparison.NOT_EQUAL) != negated
        return bound.IsValid(column=field.name) if holds else _FALSE
    if side:
        reaches = (side > 0) == (comparison in _BELOW)
        pair = (Comparison.LESS, Comparison.LESS_EQUAL) if comparison in _BELOW else (Comparison.GREATER, Comparison.GREATER_EQUAL)  # fmt: skip
        wanted = pair[reaches]
    test = bound.Compare(column=field.name, comparison=wanted, value=pa.scalar(near, pa.float64()))
    return bound.Not(part=test) if negated else test


def _among(given: where.Among, field: pa.Field, *, negated: bool) -> bound.Predicate:
    ours = given.null_is is None
    values = _values(given.values, field)
    if not ours and pa.types.is_floating(field.type) and _has_nan(given.values):
        # Arrow finds NaN in a set; SQL, where it equals nothing, does not.
        values = pa.concat_arrays([values, pa.array([float("nan")], values.type)])
    found: bound.Predicate = bound.IsIn(
        column=field.name, values=values, null_matches=given.null_is is True
    )
    if not negated:
        return found
    found = bound.Not(part=found)
    valid = bound.IsValid(column=field.name)
    return bound.all_of([valid, found]) if ours else found


def _values(given: object, field: pa.Field) -> pa.Array:
    """The values of a set that the column can hold; no row equals the others."""
    kind = field.type
    values: pa.Array | None = given if isinstance(given, pa.Array) else _array(given)
    if (
        values is not None
        and char_length(field) is None
        and (values.type == kind or _widens(values.type, kind))
    ):
        found = values.cast(kind)
        return found.filter(pc.equal(found, found)) if pa.types.is_floating(kind) else found
    each = given.to_pylist() if isinstance(given, pa.Array) and not pa.types.is_temporal(given.type) else given  # fmt: skip
    assert isinstance(each, Iterable)
    held: list[pa.Scalar] = []
    for value in each:
        if pa.types.is_floating(kind):
            near, side = double_of(value, field.name, kind)
            scalar = pa.scalar(near, kind)
            if not side and scalar.as_py() == near:
                held.append(scalar)
        else:
            test = compared(field, Comparison.EQUAL, value)
            if isinstance(test, bound.Compare):
                held.append(test.value)
    return pa.array(held, kind)


def _has_nan(given: object) -> bool:
    values = given if isinstance(given, pa.Array) else _array(given)
    assert values is not None, "numbers of one type"
    return bool(pc.any(pc.is_nan(values)).as_py())


def _array(given: object) -> pa.Array | None:
    try:
        return pa.array(given)
    except (pa.ArrowException, OverflowError):
        return None


def _widens(given: pa.DataType, kind: pa.DataType) -> bool:
    of = pa.types
    if of.is_integer(given) and of.is_integer(kind):
        low, high = limits(given)
        least, most = limits(kind)
        return bool(least <= low and high <= most)
    return bool(of.is_large_string(given) and of.is_string(kind))


def _text(
    given: where.Prefix | where.LikePattern, field: pa.Field, *, negated: bool
) -> bound.Predicate:
    if not pa.types.is_string(field.type):
        raise InvalidInputError(
            f"column {field.name!r} is {field.type}; LIKE compares a text column with 'text'",
            kind=ErrorKind.INVALID_FILTER,
            column=field.name,
        )
    found: bound.Predicate
    if isinstance(given, where.Prefix):
        found = bound.StartsWith(column=field.name, prefix=given.text)
    elif not _WILDCARDS & set(given.pattern):
        plain = field.remove_metadata()  # of a pattern every blank counts
        return compared(plain, Comparison.EQUAL, given.pattern, negated=negated)
    elif given.pattern.endswith("%") and not _WILDCARDS & set(given.pattern[:-1]):
        found = bound.StartsWith(column=field.name, prefix=given.pattern[:-1])
    else:
        like = pc.match_like(pc.field(field.name), given.pattern)
        found = bound.Opaque(columns=(field.name,), expression=like)
    return bound.Not(part=found) if negated else found


def _columns(given: where.ColumnTest, schema: pa.Schema, *, negated: bool) -> bound.Predicate:
    one, other = _field(given.column, schema), _field(given.other, schema)
    build = COMPUTE[given.comparison]
    try:
        build(pa.array([], one.type), pa.array([], other.type))
    except pa.ArrowException as cause:
        raise unfit(where.col(other.name), one.name, one.type) from cause
    lengths = char_length(one), char_length(other)
    left, right = (_as_long(pc.field(each.name), lengths) for each in (one, other))
    found: bound.Predicate = bound.Opaque(
        columns=(one.name, other.name), expression=build(left, right)
    )
    return bound.Not(part=found) if negated else found


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
    near = nearest(name, schema.names)
    hint = f"; did you mean {near!r}?" if near else "; text is written in single quotes"
    column, *fields = name.split(".")
    if fields and column in schema.names:
        parts = ", ".join(map(repr, (column, *fields)))
        hint = f"; of a nested field make pc.field({parts}) == value"
    raise InvalidInputError(
        f"the filter names column {name!r}; there are {', '.join(schema.names)}{hint}",
        kind=ErrorKind.NO_SUCH_COLUMN,
        column=name,
    )

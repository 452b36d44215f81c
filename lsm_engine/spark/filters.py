"""Spark's filters → Arrow expressions, where both mean the same to the last row."""

import datetime
from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as sql

_COMPARE = {
    sql.EqualTo: "__eq__",
    sql.GreaterThan: "__gt__",
    sql.GreaterThanOrEqual: "__ge__",
    sql.LessThan: "__lt__",
    sql.LessThanOrEqual: "__le__",
}
_TEXT = {
    sql.StringStartsWith: pc.starts_with,
    sql.StringEndsWith: pc.ends_with,
    sql.StringContains: pc.match_substring,
}


def handed_down(
    filters: Iterable[sql.Filter], schema: pa.Schema
) -> tuple[pc.Expression | None, list[sql.Filter]]:
    """Return the filters that mean the same in Arrow as one expression, and those left to Spark."""
    taken, left = [], []
    for given in filters:
        expression = as_expression(given, schema)
        if expression is None:
            left.append(given)
        else:
            taken.append(expression)
    return (reduce(and_, taken) if taken else None), left


def as_expression(given: sql.Filter, schema: pa.Schema) -> pc.Expression | None:
    """Return the expression that keeps the rows that Spark's filter keeps; None to leave it to Spark.

    Left to Spark: nested columns, floating numbers (Spark sorts NaN above all and equal to itself,
    Arrow compares it with nothing), and literals that the column's type cannot hold.
    """
    match given:
        case sql.Not(child=child):
            if isinstance(child, sql.EqualNullSafe):  # its negation keeps nulls
                return None
            inner = as_expression(child, schema)
            return None if inner is None else ~inner
        case sql.IsNull(attribute=(name,)) if name in schema.names:
            return pc.field(name).is_null()
        case sql.IsNotNull(attribute=(name,)) if name in schema.names:
            return pc.field(name).is_valid()
        case sql.EqualNullSafe(attribute=(name,), value=None) if name in schema.names:
            return pc.field(name).is_null()
        case sql.EqualNullSafe(attribute=attribute, value=value):
            return as_expression(sql.EqualTo(attribute, value), schema)
        case sql.In(attribute=(name,), value=values) if name in schema.names:
            return _is_in(name, values, schema.field(name).type)
        case sql.StringStartsWith() | sql.StringEndsWith() | sql.StringContains():
            return _text(given, schema)
        case _:
            return _comparison(given, schema)


def _comparison(given: Any, schema: pa.Schema) -> pc.Expression | None:
    operator = _COMPARE.get(type(given))
    if operator is None or len(given.attribute) != 1 or given.attribute[0] not in schema.names:
        return None
    (name,) = given.attribute
    literal = _literal(given.value, schema.field(name).type)
    if literal is None:
        return None
    compared: pc.Expression = getattr(pc.field(name), operator)(literal)
    return compared


def _is_in(name: str, values: tuple[Any, ...], kind: pa.DataType) -> pc.Expression | None:
    literals = [_literal(value, kind) for value in values]
    if any(literal is None for literal in literals):
        return None
    return pc.field(name).isin(pa.array([each.as_py() for each in literals if each], kind))


def _text(given: Any, schema: pa.Schema) -> pc.Expression | None:
    if len(given.attribute) != 1 or given.attribute[0] not in schema.names:
        return None
    (name,) = given.attribute
    if not pa.types.is_string(schema.field(name).type) or not isinstance(given.value, str):
        return None
    found: pc.Expression = _TEXT[type(given)](pc.field(name), given.value)
    return found


def _literal(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Return a literal in the column's own type; None if it is not certain to mean the same."""
    if not _is_of(value, kind):
        return None
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None


def _is_of(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_integer(kind):
        return isinstance(value, int) and not isinstance(value, bool)
    if pa.types.is_decimal(kind):
        return isinstance(value, Decimal | int) and not isinstance(value, bool)
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_binary(kind):
        return isinstance(value, bytes | bytearray)
    if pa.types.is_timestamp(kind):
        zoned = isinstance(value, datetime.datetime) and value.tzinfo is not None
        return isinstance(value, datetime.datetime) and zoned == (kind.tz is not None)
    if pa.types.is_date(kind):
        return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
    return False

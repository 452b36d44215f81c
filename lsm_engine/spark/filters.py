"""Conversion of Spark's filters to Arrow expressions, where both match exactly the same rows."""

import datetime
import math
from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as sql
from pyspark.sql.datasource import Filter as SparkFilter  # PySpark 4.1 has it first

from lsm_engine.filter.where import Filter


class FilteredReader(sql.DataSourceReader):
    """A reader that takes the filter of the option `where`, and Spark's own if asked by `push-filters`.

    Spark keeps what it planned with the filters of one use of a DataFrame for every other use: with
    filters or without, in the same query or a later one, they get the rows of the last that was planned.
    So its filters are taken only for a DataFrame whose reader promises to use it once.

    Where `spark.sql.python.filterPushdown.enabled` is off Spark refuses a reader that overrides `pushFilters`:
    what looks like an override. Rows are the same, so that is not for us.
    """

    pushed: pc.Expression | None = None
    where_text: str | None = None
    takes_filters = False

    def columns_to_filter(self) -> pa.Schema:
        """Return the columns that filters may be about."""
        raise NotImplementedError

    @property
    def row_filter(self) -> Filter | None:
        """The filter of the option and that of Spark."""
        return [
            condition for condition in (self.where_text, self.pushed) if condition is not None
        ] or None

    @property
    def pushFilters(self) -> "_TakesFilters":
        """Take the filters that mean the same in Arrow; return the others for Spark to apply."""
        return _TakesFilters(self)


class _TakesFilters:
    """Stands where Spark looks for the method of `DataSourceReader`."""

    __func__ = staticmethod(sql.DataSourceReader.pushFilters)

    def __init__(self, reader: FilteredReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[SparkFilter]) -> Iterable[SparkFilter]:
        if not self._reader.takes_filters:
            return filters
        self._reader.pushed, remaining = handed_down(filters, self._reader.columns_to_filter())
        return remaining


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
    """Return the filters that Arrow can apply as one expression, and those that Spark applies.

    A filter with a literal finer than its column's type is among both: the expression leaves files
    out, and Spark decides about the rows.
    """
    expressions, remaining = [], []
    for spark_filter in filters:
        expression = as_expression(spark_filter, schema)
        if expression is not None:
            expressions.append(expression)
        if expression is None or not _fits(spark_filter, schema):
            remaining.append(spark_filter)
    return (reduce(and_, expressions) if expressions else None), remaining


def as_expression(spark_filter: sql.Filter, schema: pa.Schema) -> pc.Expression | None:
    """Return the expression that keeps the rows that Spark's filter keeps; None to leave it to Spark.

    Left to Spark: nested columns, literals that the column's type cannot hold, and of floating numbers what NaN
    and zeroes decide (Spark sorts NaN above all and equal to itself, Arrow compares it with nothing): > and
    >=, NaN itself, equality with zero. An OR never comes: Spark hands none to Python.
    """
    match spark_filter:
        case sql.Not(child=sql.EqualNullSafe() | sql.Not()):  # null, negated, would keep its row
            return None
        case sql.Not(child=child) if _is_floating(child, schema):
            return None  # statistics know nothing of NaN, which such a filter keeps
        case sql.Not(child=child):
            inner = as_expression(child, schema)
            if inner is not None and isinstance(child, sql.In):
                # For null Arrow's is_in is false, where SQL's IN is null.
                return pc.field(child.attribute[0]).is_valid() & ~inner
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
            return _text(spark_filter, schema)
        case _:
            return _comparison(spark_filter, schema)


def _comparison(spark_filter: Any, schema: pa.Schema) -> pc.Expression | None:
    operator = _COMPARE.get(type(spark_filter))
    if (
        operator is None
        or len(spark_filter.attribute) != 1
        or spark_filter.attribute[0] not in schema.names
    ):
        return None
    (name,) = spark_filter.attribute
    kind = schema.field(name).type
    literal = _literal(spark_filter.value, kind)
    if literal is None or (pa.types.is_floating(kind) and not _is_as_in_arrow(spark_filter)):
        return None
    compared: pc.Expression = getattr(pc.field(name), operator)(literal)
    return compared


def _is_floating(spark_filter: Any, schema: pa.Schema) -> bool:
    name = spark_filter.attribute[0]
    return name in schema.names and pa.types.is_floating(schema.field(name).type)


def _is_as_in_arrow(spark_filter: Any) -> bool:
    """Whether NaN and zeroes in a column of floating numbers are compared alike by Spark and Arrow."""
    if isinstance(spark_filter, sql.EqualTo):
        return bool(spark_filter.value)
    return isinstance(spark_filter, sql.LessThan | sql.LessThanOrEqual)


def _is_in(name: str, values: tuple[Any, ...], kind: pa.DataType) -> pc.Expression | None:
    if any(_literal(value, kind) is None for value in values):
        return None
    if pa.types.is_floating(kind) and 0 in values:
        return None
    # Nothing in the column equals what its type cannot hold.
    return pc.field(name).isin(
        pa.array([literal for literal in values if _holds(kind, literal)], kind)
    )


def _text(spark_filter: Any, schema: pa.Schema) -> pc.Expression | None:
    if len(spark_filter.attribute) != 1 or spark_filter.attribute[0] not in schema.names:
        return None
    (name,) = spark_filter.attribute
    if not pa.types.is_string(schema.field(name).type) or not isinstance(spark_filter.value, str):
        return None
    expression: pc.Expression = _TEXT[type(spark_filter)](pc.field(name), spark_filter.value)
    return expression


def _literal(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Return a literal that compares with the column without loss; None if it may mean another."""
    if not _is_of(value, kind):
        return None
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", kind.tz)  # as fine as Spark's; the engine compares it exactly
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        # The column's type does not hold the value: Spark applies the filter.
        return None


def _fits(spark_filter: sql.Filter, schema: pa.Schema) -> bool:
    """Whether the column's type holds the literals of a filter as they are."""
    compared: Any = spark_filter
    while isinstance(compared, sql.Not):
        compared = compared.child
    if not hasattr(compared, "value") or isinstance(compared, sql.In):
        return True
    return _holds(schema.field(compared.attribute[0]).type, compared.value)


def _holds(kind: pa.DataType, value: Any) -> bool:
    """Whether a type holds a literal that `_literal` accepts: only times may be finer than the type."""
    if not pa.types.is_timestamp(kind) or not isinstance(value, datetime.datetime):
        return True
    step = {"s": 1_000_000, "ms": 1000}.get(kind.unit, 1)
    return value.microsecond % step == 0


def _fits_float(value: float, kind: pa.DataType) -> bool:
    return bool(pa.scalar(value, kind).as_py() == value)


def _is_of(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_integer(kind):
        return isinstance(value, int) and not isinstance(value, bool)
    if pa.types.is_floating(kind):
        # Of a FLOAT column Spark hands over the literal as the FLOAT nearest to it, or compares DOUBLEs itself.
        return isinstance(value, float) and math.isfinite(value) and _fits_float(value, kind)
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

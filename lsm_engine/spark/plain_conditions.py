"""Conditions that need no Spark: comparisons of columns with literals, of which both make the same.

`a % 10 = 3 AND day < DATE '2024-05-01'`: AND, OR, NOT, comparisons, IN, BETWEEN and IS NULL over columns of whole numbers,
texts and days. Casts, functions, fractions, times and subqueries stay with Spark, whose rules they go by.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as sql_types
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from lsm_engine.base.record import record
from lsm_engine.prune.where import AllOf, AnyOf, Column, Predicate, col
from lsm_engine.spark.merge_columns import Sides, SparkSql
from lsm_engine.table.write.merge_clauses import SOURCE, TARGET, Computed, Frame, Match

Values = Callable[[Frame], Any]
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_COMPARED: Mapping[type[exp.Expr], tuple[Callable[[Any, Any], Any], str, str]] = {
    exp.EQ: (pc.equal, "__eq__", "__eq__"),
    exp.NEQ: (pc.not_equal, "__ne__", "__ne__"),
    exp.LT: (pc.less, "__lt__", "__gt__"),
    exp.LTE: (pc.less_equal, "__le__", "__ge__"),
    exp.GT: (pc.greater, "__gt__", "__lt__"),
    exp.GTE: (pc.greater_equal, "__ge__", "__le__"),
}
"""How values are compared, and what a column does the same by as a filter, first or second."""


class _NotPlainError(Exception):
    """An expression is none that Arrow and Spark make the same of."""


@record
class _Part:
    """A condition, or a value. `where`: for rows of the table, a filter that keeps all for which it is true.

    `is_exact`: it keeps no others.
    """

    of: Values
    kind: pa.DataType
    where: Predicate | None = None
    is_exact: bool = True
    column: Column | None = None
    literal: Any = None


def plain_condition(
    given: Any, sides: Sides, schemas: Mapping[str, sql_types.StructType], match: Match
) -> Computed | None:
    """Return a condition as Arrow computes it, SQL of Spark's or of ours; None where Spark has to.

    Raises InvalidInputError for names that are of no side.
    """
    if not isinstance(given, str | SparkSql):
        return None
    text = sides.text_of(given, match)
    if "\\" in text:  # text between quotes may be escaped
        return None
    try:
        reader = _Reader(sides, schemas)
        made = reader.condition(parse_one(text, dialect="spark"))
    except (SqlglotError, _NotPlainError, RecursionError):
        return None
    return Computed(evaluate=made.of, needs=frozenset(reader.needs), prefilter=made.where)


class _Reader:
    def __init__(self, sides: Sides, schemas: Mapping[str, sql_types.StructType]) -> None:
        self._sides = sides
        self._schemas = schemas
        self.needs: set[str] = set()

    def condition(self, node: exp.Expr) -> _Part:
        """Return what an expression means as a condition."""
        if type(node) in _COMPARED:
            return self._compared(type(node), self._value(node.this), self._value(node.expression))
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.And() | exp.Or():
                return self._joined(node)
            case exp.Not():
                part = self.condition(node.this)
                kept = ~part.where if part.where is not None and part.is_exact else None
                return _condition(lambda frame: pc.invert(part.of(frame)), kept)
            case exp.Between() if not set(node.args) - {"this", "low", "high", "symmetric"}:
                value = self._value(node.this)
                low, high = self._value(node.args["low"]), self._value(node.args["high"])
                above = self._compared(exp.GTE, value, low)
                return _both(above, self._compared(exp.LTE, value, high))
            case exp.In() if node.expressions and not node.args.get("query"):
                return self._is_in(node)
            case exp.Is() if isinstance(node.expression, exp.Null):
                value = self._column(node.this)
                kept = None if value.column is None else value.column.is_null()
                return _condition(lambda frame: pc.is_null(value.of(frame)), kept)
        raise _NotPlainError

    def _joined(self, node: exp.Expr) -> _Part:
        left, right = self.condition(node.this), self.condition(node.expression)
        if isinstance(node, exp.And):
            return _both(left, right)
        whole = left.where is not None and right.where is not None
        kept = AnyOf(parts=(left.where, right.where)) if whole else None  # type: ignore[arg-type]
        exact = left.is_exact and right.is_exact
        return _condition(
            lambda frame: pc.or_kleene(left.of(frame), right.of(frame)), kept, is_exact=exact
        )

    def _compared(self, how: type[exp.Expr], left: _Part, right: _Part) -> _Part:
        compare, forwards, backwards = _COMPARED[how]
        left, right = _as(left, right.kind), _as(right, left.kind)
        if left.kind != right.kind or (left.literal is not None and right.literal is not None):
            raise _NotPlainError
        kept = None
        if left.column is not None and right.literal is not None:
            kept = getattr(left.column, forwards)(right.literal)
        elif right.column is not None and left.literal is not None:
            kept = getattr(right.column, backwards)(left.literal)
        return _condition(lambda frame: compare(left.of(frame), right.of(frame)), kept)

    def _is_in(self, node: exp.In) -> _Part:
        value = self._value(node.this)
        given = [_as(self._value(each), value.kind) for each in node.expressions]
        if value.literal is not None or any(
            each.literal is None or each.kind != value.kind for each in given
        ):
            raise _NotPlainError
        literals = [each.literal for each in given]
        among = pa.array(literals, value.kind)

        def found(frame: Frame) -> Any:
            rows = value.of(frame)
            return pc.if_else(pc.is_null(rows), pa.scalar(None, pa.bool_()), pc.is_in(rows, among))

        return _condition(found, None if value.column is None else value.column.is_in(literals))

    def _value(self, node: exp.Expr) -> _Part:
        match node:
            case exp.Paren():
                return self._value(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Literal() | exp.Neg() | exp.Cast():
                return _literal(node)
            case exp.Mod():
                value, by = self._value(node.this), self._value(node.expression)
                if value.kind != pa.int64() or value.literal is not None or (by.literal or 0) <= 0:
                    raise _NotPlainError
                return _Part(
                    of=lambda frame: _remainder(value.of(frame), by.literal), kind=value.kind
                )
            case _:
                raise _NotPlainError

    def _column(self, node: exp.Expr) -> _Part:
        if not isinstance(node, exp.Column) or node.args.get("db"):
            raise _NotPlainError
        called = {self._sides.target.lower(): TARGET, self._sides.source.lower(): SOURCE}
        side = called.get(node.table.lower()) if node.table else None
        if node.table and side is None:
            raise _NotPlainError
        found = [
            (each, field)
            for each in ((TARGET, SOURCE) if side is None else (side,))
            for field in self._schemas[each].fields
            if field.name.lower() == node.name.lower()
        ]
        if len(found) != 1:
            raise _NotPlainError
        ((side, field),) = found
        match field.dataType:
            case (
                sql_types.ByteType()
                | sql_types.ShortType()
                | sql_types.IntegerType()
                | sql_types.LongType()
            ):
                kind = pa.int64()
            case sql_types.DateType():
                kind = pa.date32()
            case sql_types.StringType() if field.dataType == sql_types.StringType():
                kind = pa.string()
            case _:
                raise _NotPlainError
        column = None
        if side == TARGET:
            self.needs.add(field.name)
            column = col(field.name)
        name = field.name
        return _Part(of=lambda frame: frame.column(side, name).cast(kind), kind=kind, column=column)


def _condition(of: Values, kept: Predicate | None, *, is_exact: bool = True) -> _Part:
    return _Part(of=of, kind=pa.bool_(), where=kept, is_exact=is_exact)


def _both(left: _Part, right: _Part) -> _Part:
    parts = tuple(part.where for part in (left, right) if part.where is not None)
    kept = AllOf(parts=parts) if len(parts) == 2 else next(iter(parts), None)
    exact = len(parts) == 2 and left.is_exact and right.is_exact
    return _condition(
        lambda frame: pc.and_kleene(left.of(frame), right.of(frame)), kept, is_exact=exact
    )


def _as(value: _Part, kind: pa.DataType) -> _Part:
    """Return a day that is written as a text as one; any other value as it is."""
    text = value.literal
    if kind != pa.date32() or not isinstance(text, str):
        return value
    return _day(text)


def _day(text: str) -> _Part:
    try:
        day = date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None:
        raise _NotPlainError
    return _constant(day, pa.date32())


def _literal(node: exp.Expr) -> _Part:
    if isinstance(node, exp.Cast):
        text = node.this.this if isinstance(node.this, exp.Literal) else None
        if node.to.this is not exp.DataType.Type.DATE or not isinstance(text, str):
            raise _NotPlainError
        return _day(text)
    sign, node = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if isinstance(node, exp.Literal) and node.is_string and sign > 0:
        return _constant(node.this, pa.string())
    if isinstance(node, exp.Literal) and node.this.isdecimal() and int(node.this) < 1 << 63:
        return _constant(sign * int(node.this), pa.int64())
    raise _NotPlainError


def _constant(value: Any, kind: pa.DataType) -> _Part:
    scalar = pa.scalar(value, kind)
    return _Part(of=lambda _: scalar, kind=kind, literal=value)


def _remainder(values: Any, by: int) -> Any:
    """Return the remainder with the sign of the dividend, as Java has it: Arrow's division of integers cuts off."""
    return pc.subtract(values, pc.multiply(pc.divide(values, by), by))

"""Filters on a column as each reader of Iceberg metadata takes them, and the rows that they keep."""

import datetime as dt
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.expressions as ie

_TESTS: dict[str, tuple[str, Callable[..., ie.BooleanExpression], Callable[..., Any]]] = {
    "=": ("eq", ie.EqualTo, pc.equal),
    "<>": ("not-eq", ie.NotEqualTo, pc.not_equal),
    "<": ("lt", ie.LessThan, pc.less),
    "<=": ("lt-eq", ie.LessThanOrEqual, pc.less_equal),
    ">": ("gt", ie.GreaterThan, pc.greater),
    ">=": ("gt-eq", ie.GreaterThanOrEqual, pc.greater_equal),
    "startswith": ("starts-with", ie.StartsWith, pc.starts_with),
    "IS NULL": ("is-null", ie.IsNull, pc.is_null),
    "IS NOT NULL": ("not-null", ie.NotNull, pc.is_valid),
}
_OPERATORS = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_UNARY = ("IS NULL", "IS NOT NULL")


@dataclass(frozen=True)
class Filter:
    """A test of a column, against a value unless it is of null.

    Readers differ in whether `<>` keeps a null and what is greater than NaN, so rows with these do not count.
    """

    name: str
    kind: str
    test: str
    value: Any = None

    def __str__(self) -> str:
        return f"{self.name!r} ({self.kind}) {self.test} {self.value!r}"

    def kept(self, rows: pa.Table) -> pa.Table:
        """Return the rows that the filter keeps."""
        column, function = rows[self.name], _TESTS[self.test][2]
        if self.test in _UNARY:
            return rows.filter(function(column))
        value = pa.scalar(self.value, column.type)
        mask = (
            function(column, pattern=self.value)
            if self.test == "startswith"
            else function(column, value)
        )
        return self.comparable(rows.filter(mask))

    def comparable(self, rows: pa.Table) -> pa.Table:
        """Return the rows that readers must agree on."""
        if self.test in _UNARY:
            return rows
        rows = rows.filter(pc.is_valid(rows[self.name]))
        if pa.types.is_floating(rows[self.name].type):
            rows = rows.filter(pc.invert(pc.is_nan(rows[self.name])))
        return rows

    def expression(self) -> ie.BooleanExpression:
        """Return the filter as pyiceberg takes it."""
        make = _TESTS[self.test][1]
        if self.test in _UNARY:
            return make(self.name)
        return make(self.name, self._text() if isinstance(self.value, dt.date) else self.value)

    def members(self) -> dict[str, Any]:
        """Return the filter as Iceberg's library takes it, in the JSON of its `ExpressionParser`."""
        members = {"type": _TESTS[self.test][0], "term": self.name}
        is_text = isinstance(self.value, (dt.date, Decimal, bytes))
        value = self._text() if is_text else self.value
        return members if self.test in _UNARY else members | {"value": value}

    def sql(self) -> str:
        """Return the filter in the SQL of Spark."""
        name = f"`{self.name.replace('`', '``')}`"
        if self.test in _UNARY:
            return f"{name} {self.test}"
        literal = sql_literal(self.value, self.kind)
        if self.test == "startswith":
            return f"startswith({name}, {literal})"
        return f"{name} {self.test} {literal}"

    def duckdb(self) -> tuple[str, list[Any]]:
        """Return the filter in the SQL of DuckDB, and its parameters."""
        name = '"{}"'.format(self.name.replace('"', '""'))
        if self.test in _UNARY:
            return f"{name} {self.test}", []
        text = f"starts_with({name}, ?)" if self.test == "startswith" else f"{name} {self.test} ?"
        return text, [self.value]

    def polars(self) -> polars.Expr:
        """Return the filter as Polars takes it."""
        column = polars.col(self.name)
        match self.test:
            case "IS NULL":
                return column.is_null()
            case "IS NOT NULL":
                return column.is_not_null()
            case "startswith":
                return column.str.starts_with(self.value)
        expression: polars.Expr = _OPERATORS[self.test](column, polars.lit(self.value))
        return expression

    def _text(self) -> str:
        if isinstance(self.value, bytes):
            return self.value.hex().upper()
        return f"{self.value:f}" if isinstance(self.value, Decimal) else self.value.isoformat()


def random_filter(chance: random.Random, rows: pa.Table, name: str, kind: str) -> Filter:
    """Return a filter with a value of the column, or of null."""
    # Spark takes zeros as equal, and Iceberg's library the negative one as less.
    values = [value for value in rows[name].to_pylist() if value is not None and not _is_odd(value)]
    if not values or chance.random() < 0.2:
        return Filter(name, kind, chance.choice(_UNARY))
    value = chance.choice(values)
    tests = [test for test in _TESTS if test not in (*_UNARY, "startswith")]
    if isinstance(value, bool):
        tests = ["=", "<>"]
    elif isinstance(value, str):
        tests.append("startswith")
    test = chance.choice(tests)
    return Filter(
        name, kind, test, value[: chance.randint(1, 4)] if test == "startswith" else value
    )


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and (value == 0 or value - value != 0)


def sql_literal(value: Any, kind: str) -> str:
    """Return a value of a type as Spark's SQL writes it."""
    if kind.startswith("TIMESTAMP"):
        word = "TIMESTAMP" if "ZONE" in kind else "TIMESTAMP_NTZ"
        return f"{word} '{value}'"
    if kind in ("DATE", "FLOAT", "DOUBLE"):
        return f"{kind} '{value}'" if kind == "DATE" else f"{kind.lower()}('{value}')"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return "'{}'".format(value.replace("\\", "\\\\").replace("'", "\\'"))
    return str(value)

"""Parser of filters in SQL: `price > 5 AND dt = DATE '2026-01-01'`. sqlglot parses; nothing is evaluated.

a OR b, a AND b, NOT a, (a)
column = value, also == <> != < <= > >=, either way round, or two columns
column [NOT] IN (value, …)     column [NOT] BETWEEN value AND value
column IS [NOT] NULL           column [NOT] LIKE 'x%' (% any text, _ any letter)
a boolean column by itself     TRUE, FALSE
names: plain, or "with blanks", or `with blanks`
values: 12  -1.5  'text' ('' is a quote)  true  X'00ff'  DATE '2024-05-01'
        TIMESTAMP '2024-05-01 08:00:00'  TIME '08:00:00' (plain text does for times as well)
"""

import re
from decimal import Decimal
from typing import ClassVar

import pyarrow as pa
from sqlglot import exp, parse, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.prune import where
from lsm_engine.prune.predicate import Comparison

FILTER_CHARACTERS_MAX = 20_000

_COMPARISONS: dict[type[exp.Expr], Comparison] = {
    exp.EQ: Comparison.EQUAL,
    exp.NEQ: Comparison.NOT_EQUAL,
    exp.LT: Comparison.LESS,
    exp.LTE: Comparison.LESS_EQUAL,
    exp.GT: Comparison.GREATER,
    exp.GTE: Comparison.GREATER_EQUAL,
}
_TYPES = {"DATE": "date", "TIMESTAMP": "timestamp", "TIME": "time"}
_MISSING = re.compile(r"Required keyword: '\w+' missing for .*")
_WHOLE = re.compile(r"\d+")


class _Filters(Dialect):
    """The SQL standard's words, with bytes as X'00ff' and names in double quotes or backticks."""

    class Tokenizer(tokens.Tokenizer):
        HEX_STRINGS: ClassVar = [("X'", "'"), ("x'", "'")]
        IDENTIFIERS: ClassVar = ['"', "`"]
        COMMENTS: ClassVar[list[str | tuple[str, str]]] = []


def parse_filter(text: str, schema: pa.Schema) -> where.Predicate:
    """Return the predicate of a filter in SQL.

    Only the names of `schema` count. A column may be written in another case if one column alone matches.
    Raises InvalidInputError that names the place for text that is no filter.
    """
    node = parsed_sql(text)
    try:
        return _Reader(text, schema.names).condition(node)
    except RecursionError as cause:
        raise wrong_sql("it is nested too deeply") from cause


def parsed_sql(text: str) -> exp.Expr:
    """Return the one expression of a text; InvalidInputError that names the place for anything else."""
    if len(text) > FILTER_CHARACTERS_MAX:
        raise wrong_sql(
            f"a filter is at most {FILTER_CHARACTERS_MAX} characters long; of many values make "
            "lsm.col(...).is_in([...])"
        )
    try:
        statements = parse(text, dialect=_Filters)
        if len(statements) != 1 or statements[0] is None:
            raise wrong_sql("write one condition, such as price > 5")
        return statements[0]
    except TokenError as cause:
        quotes = (
            "a quote is not closed"
            if text.count("'") % 2 or text.count('"') % 2
            else "unexpected character"
        )
        raise wrong_sql(quotes) from cause
    except ParseError as cause:
        raise _misplaced(text, cause) from cause
    except RecursionError as cause:
        raise wrong_sql("it is nested too deeply") from cause


def _misplaced(text: str, cause: ParseError) -> InvalidInputError:
    error = cause.errors[0]
    lines = text.splitlines(keepends=True)[: int(error["line"] or 1) - 1]
    end = sum(map(len, lines)) + int(error["col"] or 0)  # of the word that does not fit
    message = _MISSING.sub("something is missing", str(error["description"]))
    excerpt = text[:end][-20:]
    if excerpt:
        message += f", at {excerpt!r}"
    if text.lstrip()[:6].upper() == "WHERE ":
        return wrong_sql(f"{message}; leave out WHERE", character=end)
    return wrong_sql(
        f'{message}; a name that is a word of SQL, or has blanks, is put in "double quotes"',
        character=end,
    )


def wrong_sql(message: str, **facts: object) -> InvalidInputError:
    """Return the error for SQL text that is not understood."""
    return InvalidInputError(
        f"the filter is not understood: {message}", kind=ErrorKind.INVALID_FILTER, **facts
    )


class _Reader:
    """A reader of parsed SQL. The parser knows all of SQL; a filter is a small part of it."""

    def __init__(self, text: str, names: list[str]) -> None:
        self._text = text
        self._names = names

    def condition(self, node: exp.Expr) -> where.Predicate:
        """Return the predicate of an expression."""
        comparison = _COMPARISONS.get(type(node))
        if comparison is not None:
            return self._test(node, comparison)
        match node:
            case exp.And():
                return where.AllOf(parts=tuple(map(self.condition, node.flatten())))
            case exp.Or():
                return where.AnyOf(parts=tuple(map(self.condition, node.flatten())))
            case exp.Not():
                return ~self.condition(node.this)
            case exp.Paren():
                return self.condition(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Boolean():
                return where.Fixed(value=bool(node.this))
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._is_in(node)
            case exp.Between():
                column = self._column(node.this)
                low, high = self._value(node.args["low"]), self._value(node.args["high"])
                return column.between(low, high)
            case exp.Like():
                predicate = self._like(node)
                return ~predicate if node.args.get("negate") else predicate
            case _:
                raise self._no_condition(node)

    def _test(self, node: exp.Expr, comparison: Comparison) -> where.Predicate:
        left_operand, right_operand = _bare(node.this), _bare(node.expression)
        if not isinstance(left_operand, exp.Column):
            left_operand, right_operand, comparison = (
                right_operand,
                left_operand,
                comparison.mirrored,
            )
        if not isinstance(left_operand, exp.Column):
            raise wrong_sql(
                f"one side of {shown_sql(node)} has to be a column; write an Arrow expression where it is computed"
            )
        column = self._column(left_operand)
        if isinstance(right_operand, exp.Column):
            right_name = self._column(right_operand).name
            return where.ColumnTest(
                column=column.name, comparison=comparison, other_column=right_name
            )
        return where.Test(
            column=column.name, comparison=comparison, value=self._value(right_operand)
        )

    def _is(self, node: exp.Is) -> where.Predicate:
        column = self._column(node.this)
        if isinstance(node.expression, exp.Null):
            return column.is_null()
        raise wrong_sql(f"after IS comes NULL or NOT NULL, in {shown_sql(node)}")

    def _is_in(self, node: exp.In) -> where.Predicate:
        column = self._column(node.this)
        if not node.expressions:
            raise wrong_sql(f"IN takes a list of values, such as IN (1, 2), in {shown_sql(node)}")
        return column.is_in([self._value(value) for value in node.expressions])

    def _like(self, node: exp.Like) -> where.Predicate:
        pattern = self._value(node.expression)
        if not isinstance(pattern, str):
            raise wrong_sql(f"LIKE compares a text column with 'text', in {shown_sql(node)}")
        return self._column(node.this).like(pattern)

    def _column(self, node: exp.Expr) -> where.Column:
        node = _bare(node)
        if not isinstance(node, exp.Column) or node.table:
            raise wrong_sql(
                f"a column is expected in place of {shown_sql(node)}; put a name with dots in double "
                "quotes; of a nested field make pc.field('column', 'field') == value"
            )
        name = node.name
        if name not in self._names and not node.this.quoted:
            alike = [column for column in self._names if column.lower() == name.lower()]
            name = alike[0] if len(alike) == 1 else name
        return where.col(name)

    def _value(self, node: exp.Expr) -> object:
        match node:
            case exp.Literal() if node.is_string:
                return str(node.this)
            case exp.Literal():
                return int(node.this) if _WHOLE.fullmatch(node.this) else Decimal(node.this)
            case exp.Neg(this=exp.Literal() as literal) if not literal.is_string:
                value = self._value(literal)
                assert isinstance(value, int | Decimal)
                return value.copy_negate() if isinstance(value, Decimal) else -value
            case exp.Boolean():
                return bool(node.this)
            case exp.HexString():
                return self._bytes(str(node.this))
            case exp.Cast(this=exp.Literal() as literal) if (
                literal.is_string and node.to.this.name in _TYPES
            ):
                return where.TypedText(kind=_TYPES[node.to.this.name], text=str(literal.this))
            case exp.Paren():
                return self._value(node.this)
            case exp.Null():
                raise wrong_sql("nothing equals NULL; write IS NULL or IS NOT NULL")
            case _:
                raise wrong_sql(
                    f"a value is expected in place of {shown_sql(node)}; text is written in single quotes"
                )

    def _bytes(self, digits: str) -> bytes:
        try:
            return bytes.fromhex(digits)
        except ValueError as cause:
            raise wrong_sql(
                f"X'{digits}' is no row of bytes: each takes two hexadecimal digits"
            ) from cause

    def _no_condition(self, node: exp.Expr) -> InvalidInputError:
        return wrong_sql(
            f"{shown_sql(node)} is no test of a column; write =, <>, <, <=, >, >=, IN, BETWEEN, LIKE or IS NULL"
        )


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def shown_sql(node: exp.Expr) -> str:
    """Return the beginning of the SQL text of an expression."""
    text = " ".join(node.sql(dialect=_Filters).split())
    return text if len(text) <= 40 else f"{text[:40]}…"

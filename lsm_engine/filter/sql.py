"""Parser of filters in SQL: `price > 5 AND dt = DATE '2026-01-01'`. sqlglot parses; nothing is evaluated.

a OR b, a AND b, NOT a, (a)
column = value, also == <> != < <= > >=, either way round, or two columns
any side may be computed: upper(name) = 'A', price * 2 > 5, year(dt) = 2026 (see below)
column [NOT] IN (value, …)     column [NOT] BETWEEN value AND value
column IS [NOT] NULL           column [NOT] LIKE 'x%' (% any text, _ any letter)
a IS [NOT] DISTINCT FROM b     a <=> b (equal, or both null)
a boolean column by itself     TRUE, FALSE
names: plain, or "with blanks", or `with blanks`
values: 12  -1.5  'text' ('' is a quote)  true  X'00ff'  DATE '2024-05-01'
        TIMESTAMP '2024-05-01 08:00:00'  TIME '08:00:00' (plain text does for times as well)"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp, parse, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError

from lsm_engine.base.errors import ErrorKind, InvalidInputError, LsmError
from lsm_engine.filter import where
from lsm_engine.filter.predicate import Comparison
from lsm_engine.types.arrow_types import arrow_type, char_length
from lsm_engine.types.type_text import type_of_text

FILTER_CHARACTERS_MAX = 20_000
_DECIMAL_DIGITS_MAX = 38

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
        return _Reader(text, schema).condition(node)
    except RecursionError as cause:
        raise wrong_sql("it is nested too deeply") from cause


def parsed_sql(text: str) -> exp.Expr:
    """Return the one expression of a text; InvalidInputError that names the place for anything else."""
    # The parser is slow for long texts, and its nesting may exhaust the stack.
    if len(text) > FILTER_CHARACTERS_MAX:
        raise wrong_sql(
            f"a filter is at most {FILTER_CHARACTERS_MAX} characters long; of many values make "
            "lsm.col(...).is_in([...])"
        )
    try:
        statements = parse(text, dialect=_Filters)
        # A filter is one condition, and a semicolon would start another statement.
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
    # The parser counts lines and columns, and a caller wants the position in the text.
    lines = text.splitlines(keepends=True)[: int(error["line"] or 1) - 1]
    end = sum(map(len, lines)) + int(error["col"] or 0)  # of the word that does not fit
    message = _MISSING.sub("something is missing", str(error["description"]))
    excerpt = text[:end][-20:]
    if excerpt:
        message += f", at {excerpt!r}"
    # Callers used to SQL begin with WHERE, which the parser takes for a column.
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

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self._names = schema.names

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
                if not self._are_values(node.args["low"], node.args["high"], column=node.this):
                    return self._computed(node)
                column = self._column(node.this)
                low, high = self._value(node.args["low"]), self._value(node.args["high"])
                return column.between(low, high)
            case exp.Like():
                if not self._are_values(node.expression, column=node.this):
                    return self._computed(node)
                predicate = self._like(node)
                return ~predicate if node.args.get("negate") else predicate
            case _:
                return self._computed(node)

    def _are_values(self, *values: exp.Expr, column: exp.Expr) -> bool:
        """Whether a test is one of a column with literals, which files are chosen by."""
        return isinstance(_bare(column), exp.Column) and all(map(_is_literal, values))

    def _computed(self, node: exp.Expr) -> where.Predicate:
        """Return a condition whose sides are computed; InvalidInputError if that is no condition."""
        columns = dict.fromkeys(self._column(column).name for column in node.find_all(exp.Column))
        condition = SqlCondition(node.sql(dialect=_Filters, comments=False), self._schema)
        unknown = set(columns) - set(self._names)
        if unknown:
            # Binding refuses the column, and names the nearest.
            return where.col(min(unknown)).is_null()
        if not columns:
            raise self._no_condition(node)
        try:
            kind = condition.flags(self._schema.empty_table()).type
        except InvalidInputError as cause:
            if isinstance(node, exp.Anonymous | exp.ILike) or not isinstance(node, _CONDITIONS):
                raise self._no_condition(node) from cause
            raise
        if not pa.types.is_boolean(kind):
            raise self._no_condition(node)
        return where.Computed(columns=tuple(columns), expression=condition)

    def _test(self, node: exp.Expr, comparison: Comparison) -> where.Predicate:
        left_operand, right_operand = _bare(node.this), _bare(node.expression)
        sides = (left_operand, right_operand)
        if node.find(exp.Column) and not all(
            isinstance(side, exp.Column) or _is_literal(side) for side in sides
        ):
            return self._computed(node)
        # A literal may stand first, so the comparison is mirrored.
        if not isinstance(left_operand, exp.Column):
            left_operand, right_operand, comparison = (
                right_operand,
                left_operand,
                comparison.mirrored,
            )
        # Two literals make no filter of rows.
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
        if not isinstance(_bare(node.this), exp.Column):
            return self._computed(node)
        column = self._column(node.this)
        # SQL compares with null only by IS.
        if isinstance(node.expression, exp.Null):
            return column.is_null()
        raise wrong_sql(f"after IS comes NULL or NOT NULL, in {shown_sql(node)}")

    def _is_in(self, node: exp.In) -> where.Predicate:
        if not node.expressions:
            raise wrong_sql(f"IN takes a list of values, such as IN (1, 2), in {shown_sql(node)}")
        if not self._are_values(*node.expressions, column=node.this):
            return self._computed(node)
        column = self._column(node.this)
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


def _is_literal(node: exp.Expr) -> bool:
    """Whether a side of a test has no column, and is no call: a literal, or what is refused as none."""
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
        return node.to.this.name in _TYPES
    return not any(node.find_all(exp.Column, exp.Func, exp.Binary))


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def shown_sql(node: exp.Expr) -> str:
    """Return the beginning of the SQL text of an expression."""
    text = " ".join(node.sql(dialect=_Filters).split())
    return text if len(text) <= 40 else f"{text[:40]}…"


# -- SQL expressions that give a value for each row ------------------------------------------------
#
# `target.n + 1`, `coalesce(source.name, 'none')`.
#
# sqlglot parses, Arrow computes. Null makes null, as in SQL; numbers that do not fit raise.
#
# column, source.column, target.column     12  -1.5  'text'  NULL  TRUE  X'00ff'  DATE '2024-05-01'
# + - * / %   ||   = <> < <= > >= <=>   AND OR NOT   IS [NOT] NULL   [NOT] IN (…)   [NOT] BETWEEN   [NOT] LIKE
# CASE WHEN … THEN … ELSE … END   IF(c, a, b)   COALESCE   NULLIF   GREATEST   LEAST   CAST(x AS type)
# UPPER   LOWER   TRIM   LENGTH   CONCAT   SUBSTRING   REPLACE   STARTS_WITH   ILIKE
# ABS   ROUND   FLOOR   CEIL   SQRT   SIGN   POWER
# YEAR   QUARTER   MONTH   DAY   HOUR   MINUTE   SECOND   EXTRACT(part FROM x)   DATE_TRUNC('month', x)   DATE(x)

Value: TypeAlias = pa.Scalar | pa.Array | pa.ChunkedArray
Resolve: TypeAlias = Callable[[str | None, str, bool], Value]
"""Returns a column: of a qualifier (None: none was written), by name; whether the name was quoted."""

CharLength: TypeAlias = Callable[[str | None, str, bool], int | None]
"""Returns n of such a column that is CHAR(n); None of any other."""


def _no_length(*_: object) -> None:
    return None


_SCALE_MIN = 6
"""Digits after the point that a decimal keeps if those before it leave fewer, as on Spark."""


def _are_decimals(*values: Value) -> bool:
    return all(pa.types.is_decimal(value.type) for value in values)


def _wide(value: Value) -> Value:
    return pc.cast(value, pa.decimal256(value.type.precision, value.type.scale))


def _narrowed(value: Value) -> Value:
    """Return a decimal with at most 38 digits, rounded where there are more after the point."""
    whole_digits = value.type.precision - value.type.scale
    scale = min(value.type.scale, max(_DECIMAL_DIGITS_MAX - whole_digits, _SCALE_MIN))
    rounded = pc.round(value, scale, round_mode="half_towards_infinity")
    return pc.cast(rounded, pa.decimal128(_DECIMAL_DIGITS_MAX, scale))


def _exact(compute: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """Return a function whose decimals may have more than 38 digits between."""

    def computed(first: Value, second: Value) -> Value:
        try:
            return compute(first, second)
        except pa.ArrowInvalid:
            # Arrow refuses types of more than 38 digits, whatever the values are.
            if not _are_decimals(first, second):
                raise
        result = compute(_wide(first), _wide(second))
        return _narrowed(result) if _are_decimals(result) else result

    return computed


_divide = _exact(pc.divide_checked)


def _modulo(operand: Value, divisor: Value) -> Value:
    """Return the remainder of a division that is cut at the point; it has the sign of the operand."""
    are_decimals = _are_decimals(operand, divisor)
    if are_decimals:
        operand, divisor = _wide(operand), _wide(divisor)
    quotient = pc.divide_checked(operand, divisor)
    if not pa.types.is_integer(quotient.type):
        quotient = pc.trunc(quotient)
    if are_decimals:
        whole_digits = quotient.type.precision - quotient.type.scale
        quotient = pc.cast(quotient, pa.decimal256(max(whole_digits, 1), 0))
    remainder = pc.subtract_checked(operand, pc.multiply_checked(quotient, divisor))
    if not are_decimals:
        return remainder
    # It is less than the divisor, so it needs no more digits before the point.
    return pc.cast(remainder, pa.decimal128(_DECIMAL_DIGITS_MAX, remainder.type.scale))


_TWO: Mapping[type, Callable[[Value, Value], Value]] = {
    exp.Add: _exact(pc.add_checked),
    exp.Sub: _exact(pc.subtract_checked),
    exp.Mul: _exact(pc.multiply_checked),
    exp.Mod: _modulo,
    exp.EQ: _exact(pc.equal),
    exp.NEQ: _exact(pc.not_equal),
    exp.LT: _exact(pc.less),
    exp.LTE: _exact(pc.less_equal),
    exp.GT: _exact(pc.greater),
    exp.GTE: _exact(pc.greater_equal),
    exp.And: pc.and_kleene,
    exp.Or: pc.or_kleene,
}
_ONE: Mapping[type, Callable[[Value], Value]] = {
    exp.Not: pc.invert,
    exp.Upper: pc.utf8_upper,
    exp.Lower: pc.utf8_lower,
    exp.Trim: pc.utf8_trim_whitespace,
    exp.Length: pc.utf8_length,
    exp.Abs: pc.abs_checked,
    exp.Neg: pc.negate_checked,
    exp.Floor: pc.floor,
    exp.Ceil: pc.ceil,
    exp.Sqrt: pc.sqrt_checked,
    exp.Sign: pc.sign,
    exp.Year: pc.year,
    exp.Quarter: pc.quarter,
    exp.Month: pc.month,
    exp.Day: pc.day,
    exp.Hour: pc.hour,
    exp.Minute: pc.minute,
    exp.Second: pc.second,
}
_PARTS = {
    "YEAR": pc.year, "QUARTER": pc.quarter, "MONTH": pc.month, "DAY": pc.day,
    "HOUR": pc.hour, "MINUTE": pc.minute, "SECOND": pc.second,
}  # fmt: skip
FUNCTIONS = (
    "abs, round, floor, ceil, sqrt, sign, power, greatest, least, upper, lower, trim, length, substring, replace, "
    "starts_with, concat, regexp_like, year, quarter, month, day, hour, minute, second, extract, date_trunc, date, "
    "coalesce, nullif, if, CASE and CAST"
)
"""The functions that are computed, as messages list them."""
_NULL_SAFE = (exp.NullSafeEQ, exp.NullSafeNEQ)
_CONDITIONS = (*_COMPARISONS, *_NULL_SAFE, exp.Between, exp.In, exp.Like, exp.Is, exp.Func)
"""Expressions that are conditions, or functions that may be."""


class SqlValue:
    """One expression, parsed once; `evaluate` computes it for the rows of a batch."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._node = parsed_sql(text)

    def columns(self) -> list[tuple[str | None, str, bool]]:
        """Return the columns that the expression names, as arguments of `Resolve`."""
        return [_column_reference(node) for node in self._node.find_all(exp.Column)]

    def evaluate(
        self, resolve: Resolve, count: int, char_length: CharLength = _no_length
    ) -> pa.Array:
        """Return the value of each of `count` rows. `char_length`: n of the columns that are CHAR(n).

        Raises InvalidInputError that shows the expression where a name, a type or a number does not fit.
        """
        try:
            result = _ValueReader(resolve, char_length).value(self._node)
        except LsmError:  # it names the column or the part of the expression already
            raise
        except (pa.ArrowException, OverflowError, ValueError) as cause:
            digits = "recision" in str(cause)
            hint = "; cast a side to a DECIMAL of fewer digits, or to DOUBLE" if digits else ""
            raise InvalidInputError(
                f"{self.text!r} cannot be computed: {cause}{hint}", kind=ErrorKind.INVALID_ROWS
            ) from cause
        # Arrow may return chunks, and callers expect one array.
        if isinstance(result, pa.ChunkedArray):
            return result.combine_chunks()
        return pa.repeat(result, count) if isinstance(result, pa.Scalar) else result


class SqlCondition:
    """An expression that is true, false or null for each row of a table."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.text = text
        self._schema = schema
        self._value: SqlValue | None = None

    def __reduce__(self) -> tuple[type["SqlCondition"], tuple[str, pa.Schema]]:
        # Parsed again where it arrives: trees of the parser are large.
        return SqlCondition, (self.text, self._schema)

    def flags(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return its value for each row."""
        if self._value is None:
            self._value = SqlValue(self.text)

        def resolve(_: str | None, name: str, quoted: bool) -> Value:  # noqa: FBT001 -- as `Resolve`
            return rows.column(self._place(name, quoted=quoted, names=rows.schema.names))

        def length(_: str | None, name: str, quoted: bool) -> int | None:  # noqa: FBT001 -- as `Resolve`
            names = self._schema.names
            return char_length(self._schema.field(self._place(name, quoted=quoted, names=names)))

        return self._value.evaluate(resolve, rows.num_rows, length)

    def _place(self, name: str, *, quoted: bool, names: list[str]) -> int:
        if name not in names and not quoted:
            (name,) = (column for column in names if column.lower() == name.lower())
        return names.index(name)


class _ValueReader:
    """An evaluator of a parsed expression, from its leaves."""

    def __init__(self, resolve: Resolve, char_length: CharLength) -> None:
        self._resolve = resolve
        self._char_length = char_length

    def value(self, node: exp.Expr) -> Any:
        """Return the value of an expression: a column, or a scalar for all rows."""
        binary, unary = _TWO.get(type(node)), _ONE.get(type(node))
        # The tables of operators come first, because most expressions are of them.
        if binary is not None:
            return binary(*self._pair(node.this, node.expression))
        if unary is not None and not set(node.args) - {"this"} - _unset(node):
            return unary(self.value(node.this))
        match node:
            case exp.Paren():
                return self.value(node.this)
            case exp.Column():
                return self._resolve(*_column_reference(node))
            case exp.Literal() | exp.Boolean() | exp.Null() | exp.HexString():
                return _literal(node)
            case exp.Div():
                return _quotient(self.value(node.this), self.value(node.expression))
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                pair = self._pair(node.this, node.expression)
                are_null = pc.and_(*map(pc.is_null, pair))
                equal = pc.coalesce(_TWO[exp.EQ](*pair), are_null)
                return equal if isinstance(node, exp.NullSafeEQ) else pc.invert(equal)
            case exp.Cast():
                return pc.cast(self.value(node.this), arrow_type(type_of_text(node.to.sql())))
            case exp.Is():
                return self._is(node)
            case exp.In() if node.expressions:
                tests = [_TWO[exp.EQ](*self._pair(node.this, value)) for value in node.expressions]
                return reduce(pc.or_kleene, tests)
            case exp.Between():
                above = _TWO[exp.GTE](*self._pair(node.this, node.args["low"]))
                return pc.and_kleene(
                    above, _TWO[exp.LTE](*self._pair(node.this, node.args["high"]))
                )
            case exp.Like(expression=exp.Literal() as pattern):
                flags = pc.match_like(self.value(node.this), str(pattern.this))
                return pc.invert(flags) if node.args.get("negate") else flags
            case exp.Case():
                return self._case(node)
            case exp.If():
                default = node.args.get("false")
                return self._chosen([node], None if default is None else default)
            case exp.Round():
                digits = node.args.get("decimals")
                return pc.round(self.value(node.this), 0 if digits is None else int(digits.name))
            case exp.Nullif():
                operand = self.value(node.this)
                equal = pc.equal(operand, self.value(node.expression))
                # A null is equal to nothing, so it stays as it is.
                is_equal = pc.fill_null(equal, fill_value=False)
                return pc.if_else(is_equal, pa.scalar(None, operand.type), operand)
            case exp.Coalesce() | exp.Greatest() | exp.Least():
                parts = [self.value(part) for part in (node.this, *node.expressions)]
                return _FOLDS[type(node)](_alike(parts))
            case exp.Pow():
                return pc.power_checked(self.value(node.this), self.value(node.expression))
            case exp.Extract() if node.name in _PARTS:
                return _PARTS[node.name](self.value(node.expression))
            case exp.DateTrunc():
                return pc.floor_temporal(
                    self.value(node.this), unit=str(node.args["unit"].name).lower()
                )
            case exp.Date():
                return pc.cast(self.value(node.this), pa.date32(), safe=False)
            case exp.Substring():
                return self._substring(node)
            case exp.Replace(expression=exp.Literal() as pattern):
                return pc.replace_substring(
                    self.value(node.this), str(pattern.this), str(node.args["replacement"].name)
                )
            case exp.StartsWith(expression=exp.Literal() as prefix):
                return pc.starts_with(self.value(node.this), str(prefix.this))
            case exp.ILike(expression=exp.Literal() as pattern):
                return pc.match_like(self.value(node.this), str(pattern.this), ignore_case=True)
            case exp.RegexpLike(expression=exp.Literal() as pattern):
                return pc.match_substring_regex(self.value(node.this), str(pattern.this))
            case exp.DPipe() | exp.Concat():
                joined = list(node.flatten()) if isinstance(node, exp.DPipe) else node.expressions
                texts = [_as_text(self.value(part)) for part in joined]
                return pc.binary_join_element_wise(*texts, "")
            case _:
                clock = isinstance(node, (exp.CurrentDate, exp.CurrentTimestamp, exp.Interval))
                advice = "write the day itself, such as DATE '2026-06-01'; " if clock else ""
                raise wrong_sql(
                    f"{shown_sql(node)} is no expression that is computed here; {advice}functions are {FUNCTIONS}"
                )

    def _pair(self, first: exp.Expr, second: exp.Expr) -> tuple[Value, Value]:
        """Return two values side by side: a CHAR, and the literal or the CHAR beside it, with the blanks of the longer."""
        left_value, right_value = self.value(first), self.value(second)
        # A time is written as text beside one.
        if _is_text_literal(second) and pa.types.is_temporal(left_value.type):
            right_value = pc.cast(right_value, left_value.type)
        elif _is_text_literal(first) and pa.types.is_temporal(right_value.type):
            left_value = pc.cast(left_value, right_value.type)
        widths = [self._width(first), self._width(second)]
        is_char = any(
            isinstance(node, exp.Column) and width
            for node, width in zip((first, second), widths, strict=True)
        )
        # Only a comparison of CHAR ignores blanks at the end.
        if not is_char or None in widths:
            left_value, right_value = _decimals([left_value, right_value])
            return left_value, right_value
        width = max(width or 0 for width in widths)
        return pc.utf8_rpad(left_value, width, " "), pc.utf8_rpad(right_value, width, " ")

    def _width(self, node: exp.Expr) -> int | None:
        """Return how long a column of CHAR or a text in quotes is; None for any other value."""
        if isinstance(node, exp.Column):
            return self._char_length(*_column_reference(node))
        return len(node.this) if isinstance(node, exp.Literal) and node.is_string else None

    def _is(self, node: exp.Is) -> Value:
        if not isinstance(node.expression, exp.Null):
            raise wrong_sql(f"after IS comes NULL or NOT NULL, in {shown_sql(node)}")
        return pc.is_null(self.value(node.this))

    def _substring(self, node: exp.Substring) -> Value:
        places = [node.args.get("start"), node.args.get("length")]
        if not all(place is None or isinstance(place, exp.Literal) for place in places):
            raise wrong_sql(f"SUBSTRING takes numbers, in {shown_sql(node)}")
        start = max(1, int(places[0].name) if places[0] is not None else 1) - 1
        stop = None if places[1] is None else start + int(places[1].name)
        return pc.utf8_slice_codeunits(self.value(node.this), start, stop)

    def _case(self, node: exp.Case) -> Value:
        subject = node.args.get("this")
        branches = node.args["ifs"]
        if subject is not None:
            branches = [
                exp.If(this=exp.EQ(this=subject, expression=branch.this), true=branch.args["true"])
                for branch in branches
            ]
        return self._chosen(branches, node.args.get("default"))

    def _chosen(self, branches: Sequence[exp.Expr], default: exp.Expr | None) -> Value:
        conditions = [self.value(branch.this) for branch in branches]
        values = [self.value(branch.args["true"]) for branch in branches]
        fallback = pa.scalar(None) if default is None else self.value(default)
        # Branches may have different types, and a column has one.
        *values, fallback = _alike([*values, fallback])
        names = [str(i) for i in range(len(conditions))]
        cases = pc.make_struct(*conditions, field_names=names)
        # All conditions are constants, so one branch serves every row.
        if isinstance(cases, pa.StructScalar):
            matching = [i for i, condition in enumerate(conditions) if condition.as_py()]
            return values[matching[0]] if matching else fallback
        return pc.case_when(cases, *values, fallback)


def _is_text_literal(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _column_reference(node: exp.Column) -> tuple[str | None, str, bool]:
    return node.table or None, node.name, bool(node.this.quoted)


def _unset(node: exp.Expr) -> set[str]:
    return {key for key, value in node.args.items() if value in (None, False, [])}


def _literal(node: exp.Expr) -> pa.Scalar:
    match node:
        case exp.Null():
            return pa.scalar(None)
        case exp.Boolean():
            return pa.scalar(bool(node.this))
        case exp.HexString():
            return pa.scalar(bytes.fromhex(str(node.this)))
        case exp.Literal() if node.is_string:
            return pa.scalar(str(node.this))
        case _:
            is_integer = _WHOLE.fullmatch(node.this)
            return pa.scalar(int(node.this) if is_integer else Decimal(node.this))


def _as_text(value: Value) -> Value:
    return value if pa.types.is_string(value.type) else pc.cast(value, pa.string())


def _alike(values: Sequence[Value]) -> list[Value]:
    """Return values as the narrowest type that holds all of them."""
    values = _decimals(values)
    kinds = [pa.schema([("", value.type)]) for value in values]
    kind = pa.unify_schemas(kinds, promote_options="permissive").field(0).type
    return [value if value.type == kind else pc.cast(value, kind) for value in values]


def _decimals(values: Sequence[Value]) -> list[Value]:
    """Return values, whole numbers beside decimals as decimals of their digits."""
    if not any(pa.types.is_decimal(value.type) for value in values):
        return list(values)
    return [_decimal(value) if pa.types.is_integer(value.type) else value for value in values]


def _decimal(value: Value) -> Value:
    if isinstance(value, pa.Scalar) and value.is_valid:
        return pa.scalar(Decimal(value.as_py()))
    return pc.cast(value, pa.decimal128(19, 0))


def _quotient(operand: Value, divisor: Value) -> Value:
    operand, divisor = _decimals([operand, divisor])
    # SQL divides two integers exactly here, while Arrow would cut the quotient.
    if pa.types.is_integer(operand.type) and pa.types.is_integer(divisor.type):
        return pc.divide_checked(pc.cast(operand, pa.float64()), divisor)
    try:
        return _divide(operand, divisor)
    except pa.ArrowInvalid:
        # Of decimals: the quotient may have more than 76 digits. A division by zero fails again.
        return pc.divide_checked(*(pc.cast(value, pa.float64()) for value in (operand, divisor)))


def _greatest(parts: Sequence[Value]) -> Value:
    return pc.max_element_wise(*parts)


def _least(parts: Sequence[Value]) -> Value:
    return pc.min_element_wise(*parts)


def _coalesce(parts: Sequence[Value]) -> Value:
    return pc.coalesce(*parts)


_FOLDS: Mapping[type, Callable[[Sequence[Value]], Value]] = {
    exp.Coalesce: _coalesce,
    exp.Greatest: _greatest,
    exp.Least: _least,
}

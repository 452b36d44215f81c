"""SQL expressions that give a value for each row: `target.n + 1`, `coalesce(source.name, 'none')`.

sqlglot parses, Arrow computes. Null makes null, as in SQL; numbers that do not fit raise.

column, source.column, target.column     12  -1.5  'text'  NULL  TRUE  X'00ff'  DATE '2024-05-01'
+ - * / %   ||   = <> < <= > >=   AND OR NOT   IS [NOT] NULL   [NOT] IN (…)   [NOT] BETWEEN   [NOT] LIKE
CASE WHEN … THEN … ELSE … END   IF(c, a, b)   COALESCE   NULLIF   GREATEST   LEAST   CAST(x AS type)
UPPER   LOWER   TRIM   LENGTH   CONCAT   ABS   ROUND
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lsm_engine.base.errors import ErrorKind, InvalidInputError, LsmError
from lsm_engine.prune.sql import parsed_sql, shown_sql, wrong_sql
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.types import parse_type

Value: TypeAlias = pa.Scalar | pa.Array | pa.ChunkedArray
Resolve: TypeAlias = Callable[[str | None, str, bool], Value]
"""Returns a column: of a qualifier (None: none was written), by name; whether the name was quoted."""

CharLength: TypeAlias = Callable[[str | None, str, bool], int | None]
"""Returns n of such a column that is CHAR(n); None of any other."""


def _no_length(*_: object) -> None:
    return None


_WHOLE = re.compile(r"\d+")
_TWO: Mapping[type, Callable[[Value, Value], Value]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
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
}


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
            result = _Reader(resolve, char_length).value(self._node)
        except LsmError:  # it names the column or the part of the expression already
            raise
        except (pa.ArrowException, OverflowError, ValueError) as cause:
            raise InvalidInputError(
                f"{self.text!r} cannot be computed: {cause}", kind=ErrorKind.INVALID_ROWS
            ) from cause
        if isinstance(result, pa.ChunkedArray):
            return result.combine_chunks()
        return pa.repeat(result, count) if isinstance(result, pa.Scalar) else result


class _Reader:
    """An evaluator of a parsed expression, from its leaves."""

    def __init__(self, resolve: Resolve, char_length: CharLength) -> None:
        self._resolve = resolve
        self._char_length = char_length

    def value(self, node: exp.Expr) -> Any:
        """Return the value of an expression: a column, or a scalar for all rows."""
        binary, unary = _TWO.get(type(node)), _ONE.get(type(node))
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
                operand, divisor = self.value(node.this), self.value(node.expression)
                are_integers = pa.types.is_integer(operand.type) and pa.types.is_integer(
                    divisor.type
                )
                return pc.divide_checked(
                    pc.cast(operand, pa.float64()) if are_integers else operand, divisor
                )
            case exp.Mod():
                operand, divisor = self.value(node.this), self.value(node.expression)
                quotient = pc.divide_checked(operand, divisor)
                if not pa.types.is_integer(quotient.type):
                    quotient = pc.trunc(quotient)
                return pc.subtract_checked(operand, pc.multiply_checked(quotient, divisor))
            case exp.Cast():
                return pc.cast(self.value(node.this), arrow_type(parse_type(node.to.sql())))
            case exp.Is():
                return self._is(node)
            case exp.In() if node.expressions:
                tests = [pc.equal(*self._pair(node.this, value)) for value in node.expressions]
                return reduce(pc.or_kleene, tests)
            case exp.Between():
                above = pc.greater_equal(*self._pair(node.this, node.args["low"]))
                return pc.and_kleene(
                    above, pc.less_equal(*self._pair(node.this, node.args["high"]))
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
                is_equal = pc.fill_null(equal, fill_value=False)
                return pc.if_else(is_equal, pa.scalar(None, operand.type), operand)
            case exp.Coalesce() | exp.Greatest() | exp.Least():
                parts = [self.value(part) for part in (node.this, *node.expressions)]
                return _FOLDS[type(node)](_alike(parts))
            case exp.DPipe() | exp.Concat():
                joined = list(node.flatten()) if isinstance(node, exp.DPipe) else node.expressions
                texts = [_as_text(self.value(part)) for part in joined]
                return pc.binary_join_element_wise(*texts, "")
            case _:
                raise wrong_sql(f"{shown_sql(node)} is no expression that is computed here")

    def _pair(self, first: exp.Expr, second: exp.Expr) -> tuple[Value, Value]:
        """Return two values side by side: a CHAR, and the literal or the CHAR beside it, with the blanks of the longer."""
        left_value, right_value = self.value(first), self.value(second)
        widths = [self._width(first), self._width(second)]
        is_char = any(
            isinstance(node, exp.Column) and width
            for node, width in zip((first, second), widths, strict=True)
        )
        if not is_char or None in widths:
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
        *values, fallback = _alike([*values, fallback])
        names = [str(i) for i in range(len(conditions))]
        cases = pc.make_struct(*conditions, field_names=names)
        if isinstance(cases, pa.StructScalar):
            matching = [i for i, condition in enumerate(conditions) if condition.as_py()]
            return values[matching[0]] if matching else fallback
        return pc.case_when(cases, *values, fallback)


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
    kinds = [pa.schema([("", value.type)]) for value in values]
    kind = pa.unify_schemas(kinds, promote_options="permissive").field(0).type
    return [value if value.type == kind else pc.cast(value, kind) for value in values]


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

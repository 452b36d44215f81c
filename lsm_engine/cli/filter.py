"""The language of `--where` → a pyarrow expression. A small piece of SQL, parsed; nothing is evaluated.

    filter      any of   a OR b     a AND b     NOT a     (a)
    test        column < value, also <= > >= = == != <>, either way round; or two columns
                column [NOT] IN (value, …)         column [NOT] BETWEEN value AND value
                column IS [NOT] NULL               column [NOT] LIKE 'x%' (% any text, _ any letter)
                a boolean column by itself
    column      a name, or "a name" in double quotes
    value       12  -1.5  'text' ('' is a quote)  true  false  X'00ff'
                DATE '2024-05-01'  TIMESTAMP '2024-05-01 08:00:00'  TIME '08:00:00'
                (plain text does for dates and times as well)

A test of null is neither true nor false, as in SQL, and rows are kept where the filter is true.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from functools import reduce
from operator import and_, or_

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.cli.literals import Literal, typed

FILTER_CHARACTERS_MAX = 20_000
DEPTH_MAX = 50

Condition = Callable[[bool], pc.Expression]
"""The expression of a condition, or, for True, of its opposite, with SQL's answer for nulls."""

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<binary>[xX]'[^']*')
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol><=|>=|<>|!=|==|[<>=(),])
    | (?P<end>$)
    )""",
    re.VERBOSE,
)
_KEYWORDS = frozenset(
    [
        "and",
        "or",
        "not",
        "in",
        "between",
        "is",
        "null",
        "like",
        "true",
        "false",
        "date",
        "timestamp",
        "time",
    ]
)
_COMPARE: dict[str, Callable[..., pc.Expression]] = {
    "=": pc.equal, "==": pc.equal, "!=": pc.not_equal, "<>": pc.not_equal,
    "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@record
class Token:
    """One word of a filter; `kind` is the name of its group, or "keyword"."""

    kind: str
    text: str
    position: int


@record
class ColumnName:
    """A column in a filter."""

    name: str


def parse_filter(text: str, schema: pa.Schema) -> pc.Expression:
    """Return the expression that a filter means for rows of `schema`.

    Raises InvalidInputError that names the place for anything that is not in the language, and for
    columns that are not there or cannot be compared so.
    """
    if len(text) > FILTER_CHARACTERS_MAX:
        raise _wrong(f"a filter is at most {FILTER_CHARACTERS_MAX} characters long", text, 0)
    return _Parser(text, schema).whole()(False)  # noqa: FBT003  not negated


def _wrong(message: str, text: str, position: int) -> InvalidInputError:
    here = text[position : position + 20]
    return InvalidInputError(
        f"the filter is not understood: {message}"
        + (f", before {here!r}" if here else ", at its end"),
        kind=ErrorKind.INVALID_FILTER,
        character=position + 1,
    )


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while True:
        found = _TOKEN.match(text, position)
        if found is None:
            start = len(text) - len(text[position:].lstrip())
            what = "a quote is not closed" if text[start] in "'\"" else "unexpected character"
            raise _wrong(what, text, start)
        kind = str(found.lastgroup)
        word, start = found[kind], found.start(kind)
        if kind == "word" and word.lower() in _KEYWORDS:
            yield Token(kind="keyword", text=word.lower(), position=start)
        else:
            yield Token(kind=kind, text=word, position=start)
        if kind == "end":
            return
        position = found.end()


class _Parser:
    """Recursive descent over the tokens: OR of ANDs of NOTs of tests."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        found = self._either()
        if self._next.kind != "end":
            raise self._unexpected("AND, OR or the end")
        return found

    # --- conditions ---

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._takes("or"):
            parts.append(self._both())
        return _joined(parts, or_, and_)

    def _both(self) -> Condition:
        parts = [self._opposite()]
        while self._takes("and"):
            parts.append(self._opposite())
        return _joined(parts, and_, or_)

    def _opposite(self) -> Condition:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _wrong(f"it is nested deeper than {DEPTH_MAX}", self._text, self._next.position)
        try:
            if self._takes("not"):
                inner = self._opposite()
                return lambda negated: inner(not negated)
            if self._takes("("):
                found = self._either()
                self._needs(")")
                return found
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Condition:
        start = self._next
        left = self._operand()
        if self._next.text in _COMPARE and self._next.kind == "symbol":
            return self._comparison(start, left)
        if not isinstance(left, ColumnName):
            raise self._unexpected("a comparison")
        negated = self._takes("not")
        if self._takes("in"):
            return _turned(self._is_in(left), negated)
        if self._takes("between"):
            return _turned(self._between(left), negated)
        if self._takes("like"):
            return _turned(self._like(left), negated)
        if negated:
            raise self._unexpected("IN, BETWEEN or LIKE")
        if self._takes("is"):
            negated = self._takes("not")
            self._needs("null")
            return _turned(_null_test(left), negated)
        if not pa.types.is_boolean(self._type(left)):
            raise self._unexpected(f"a test of {left.name!r}, such as = or IS NULL")
        return _plain(pc.field(left.name))

    def _comparison(self, start: Token, left: ColumnName | Literal) -> Condition:
        sign = self._take().text
        right = self._operand()
        if isinstance(left, Literal):
            if isinstance(right, Literal):
                raise _wrong("one side has to be a column", self._text, start.position)
            left, right, sign = right, left, _MIRRORED.get(sign, sign)
        build = _COMPARE[sign]
        if isinstance(right, ColumnName):
            return _plain(build(pc.field(left.name), pc.field(right.name)))
        return _plain(build(pc.field(left.name), self._value(left, right)))

    def _is_in(self, column: ColumnName) -> Condition:
        self._needs("(")
        values = [self._value(column, self._literal())]
        while self._takes(","):
            values.append(self._value(column, self._literal()))
        self._needs(")")
        field = pc.field(column.name)
        try:
            kind = self._type(column)
            among = pa.array([value.cast(kind) for value in values], kind)
        except pa.ArrowException:
            # Some value is none that the column could hold: each is compared for itself.
            return _joined([_plain(field == value) for value in values], or_, and_)
        # Arrow answers false for null where SQL does not know; it matters for the opposite only.
        return lambda negated: (
            field.is_valid() & ~field.isin(among) if negated else field.isin(among)
        )

    def _between(self, column: ColumnName) -> Condition:
        low = self._value(column, self._literal())
        self._needs("and")
        high = self._value(column, self._literal())
        field = pc.field(column.name)
        return _joined([_plain(field >= low), _plain(field <= high)], and_, or_)

    def _like(self, column: ColumnName) -> Condition:
        pattern = self._literal()
        if pattern.kind != "text" or not pa.types.is_string(self._type(column)):
            raise _wrong("LIKE compares a text column with 'text'", self._text, pattern.position)
        field, prefix = pc.field(column.name), pattern.text[:-1]
        if pattern.text.endswith("%") and not set("%_\\") & set(prefix):
            return _plain(pc.starts_with(field, prefix))  # the one form that files are pruned by
        return _plain(pc.match_like(field, pattern.text))

    # --- operands ---

    def _operand(self) -> ColumnName | Literal:
        token = self._next
        if token.kind == "quoted":
            return self._column(self._take(), token.text[1:-1].replace('""', '"'))
        is_column = token.text in self._schema.names and not self._is_typed_literal()
        if token.kind == "word" or (token.kind == "keyword" and is_column):
            return self._column(self._take(), self._original(token))
        return self._literal()

    def _is_typed_literal(self) -> bool:
        follows = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        return self._next.text in ("date", "timestamp", "time") and follows.kind == "text"

    def _original(self, token: Token) -> str:
        return self._text[token.position : token.position + len(token.text)]

    def _column(self, token: Token, name: str) -> ColumnName:
        if name not in self._schema.names:
            near = difflib.get_close_matches(name, self._schema.names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "; text is written in single quotes"
            raise InvalidInputError(
                f"the filter names a column {name!r} that the table does not have{hint}",
                kind=ErrorKind.NO_SUCH_COLUMN,
                character=token.position + 1,
            )
        return ColumnName(name=name)

    def _literal(self) -> Literal:
        token = self._next
        position = token.position
        if token.kind == "number":
            return Literal(kind="number", text=self._take().text, position=position)
        if token.kind == "text":
            return Literal(kind="text", text=_unquoted(self._take().text), position=position)
        if token.kind == "binary":
            return Literal(kind="binary", text=self._take().text[2:-1], position=position)
        if token.kind == "keyword" and token.text in ("true", "false"):
            return Literal(kind="boolean", text=self._take().text, position=position)
        if self._is_typed_literal():
            kind = self._take().text
            return Literal(kind=kind, text=_unquoted(self._take().text), position=position)
        if token.text == "null" and token.kind == "keyword":
            raise _wrong("nothing equals NULL; write IS NULL", self._text, position)
        raise self._unexpected("a value")

    def _value(self, column: ColumnName, literal: Literal) -> pa.Scalar:
        return typed(literal, column.name, self._type(column))

    def _type(self, column: ColumnName) -> pa.DataType:
        return self._schema.field(column.name).type

    # --- tokens ---

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += 1
        return token

    def _takes(self, word: str) -> bool:
        found = self._next.kind in ("keyword", "symbol") and self._next.text == word
        self._at += found
        return found

    def _needs(self, word: str) -> None:
        if not self._takes(word):
            raise self._unexpected(word.upper())

    def _unexpected(self, wanted: str) -> InvalidInputError:
        return _wrong(f"expected {wanted}", self._text, self._next.position)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _plain(expression: pc.Expression) -> Condition:
    return lambda negated: ~expression if negated else expression


def _null_test(column: ColumnName) -> Condition:
    field = pc.field(column.name)
    return lambda negated: field.is_valid() if negated else field.is_null()


def _turned(condition: Condition, turn: bool) -> Condition:  # noqa: FBT001  NOT or not
    return (lambda negated: condition(not negated)) if turn else condition


def _joined(
    parts: list[Condition],
    join: Callable[[pc.Expression, pc.Expression], pc.Expression],
    opposite: Callable[[pc.Expression, pc.Expression], pc.Expression],
) -> Condition:
    if len(parts) == 1:
        return parts[0]
    return lambda negated: reduce(opposite if negated else join, [part(negated) for part in parts])

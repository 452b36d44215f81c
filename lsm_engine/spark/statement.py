"""One SQL statement as tokens over its own text. Spark gets its clauses as they were written."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.spark.types import quoted

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET}
_NAMES = {TokenType.VAR, TokenType.IDENTIFIER}
_SIGNED = {TokenType.NUMBER}
_TEXTS = {TokenType.STRING, TokenType.RAW_STRING}
_LITERALS = {*_SIGNED, *_TEXTS, TokenType.TRUE, TokenType.FALSE}
_ABSENT = object()
_DIALECT = Spark()
_DIALECT.SUPPORTS_VALUES_DEFAULT = False  # DEFAULT is a column in trees, which knows its place
_OF_OTHERS = ("OPTIMIZE", "VACUUM", "RESTORE")
"""Statements that Spark's own parser does not know."""
_WHOLE = {TokenType.COMMAND, TokenType.SHOW}


class StatementError(InvalidInputError):
    """A statement is not understood, or not done. `tail`: its text from that place on.

    `is_known`: the error says what to use instead, so that Spark's parser, which may not know the statement, is not asked.
    """

    default_kind = ErrorKind.INVALID_STATEMENT
    tail = ""
    is_known = False


def position_of(error: Exception, text: str) -> tuple[int, int] | tuple[()]:
    """Return the line (from 1) and column (from 0) of a text where an error says that it is not understood; () if it does not."""
    if not isinstance(error, StatementError):
        return ()
    before = text[: text.rfind(error.tail)] if error.tail and error.tail in text else text.rstrip()
    return before.count("\n") + 1, len(before) - before.rfind("\n") - 1


def _words(token: Token) -> list[Token]:
    """Return a token as one per word: "PARTITIONED BY" is one of the parser's."""
    if not word_of(token) or not any(letter.isspace() for letter in token.text):
        return [token]
    return [
        Token(
            token.token_type,
            word[0],
            token.line,
            token.col,
            token.start + word.start(),
            token.start + word.end() - 1,
        )
        for word in re.finditer(r"\S+", token.text)
    ]


def word_of(token: Token) -> str:
    """Return a token as a word of upper case; "" for names in quotes, and for text."""
    return "" if token.token_type in (TokenType.IDENTIFIER, *_TEXTS) else token.text.upper()


def parsed_expression(text: str) -> exp.Expr | None:
    """Return the tree of one expression in Spark's SQL; None for a text that is none, or that the parser does not know."""
    try:
        return parse_one(text, into=exp.Condition, dialect="spark")
    except (SqlglotError, RecursionError):  # Spark may well know the expression
        return None


@record
class SparkSql:
    """An expression in Spark's own SQL, as it was written. `tree`: None for one that the parser does not know."""

    text: str
    tree: exp.Expr | None = field(repr=False, compare=False)

    @staticmethod
    def parsed(text: str) -> "SparkSql":
        """Return a text with its tree, whose names and literals know their places in it."""
        tree = parsed_expression(text)
        columns = () if tree is None else tree.find_all(exp.Column)
        if not all("start" in part.meta for column in columns for part in column.parts):
            tree = (
                None  # t.true: the parser does not tell where a name is that it takes for a literal
            )
        return SparkSql(text=text, tree=tree)


_MOMENTS = {
    " VERSION AS OF": "VERSION",
    " SYSTEM_VERSION AS OF": "VERSION",
    " TIMESTAMP AS OF": "TIMESTAMP",
    " SYSTEM_TIME AS OF": "TIMESTAMP",
}
_MOMENT_WORDS = 4
Node = TypeVar("Node", bound=exp.Expr | None)


class _Rules(SparkParser):
    """Spark's rules over all tokens of a statement, known or not: a rule that fails ends where it got to.

    Clauses that other text takes the place of know where they stand, and VERSION AS OF where its value does: their `meta` has
    it as "place".
    """

    STATEMENT_PARSERS: ClassVar = {
        **SparkParser.STATEMENT_PARSERS,
        TokenType.TABLE: lambda self: self._parse_table(),
    }

    def trees(self, text: str, tokens: list[Token]) -> Iterator[exp.Expr]:
        """Yield the tree of a statement, or those of what is one in it."""
        self.reset()
        self.sql, self._chunks, self._chunk_index = text, [tokens], 0
        self._advance_chunk()
        while self._index < len(tokens):
            first = self._index
            tree = self._parse_statement()
            if isinstance(tree, exp.Command):  # nothing but its text
                self._retreat(first)
            elif tree is not None:
                yield tree
            if self._index == first:
                self._advance()

    def _placed(self, first: int, node: Node) -> Node:
        if node is not None and self._index > first:
            node.meta["place"] = (self._tokens[first].start, self._prev.end + 1)
        return node

    def _parse_version(self) -> exp.Version | None:
        # Here, because some versions of the parser do not know all of Spark's words.
        first, words = self._index, ""
        while self._curr and not words.endswith(" AS OF") and words.count(" ") < _MOMENT_WORDS:
            words = f"{words} {self._curr.text.upper()}"
            self._advance()
        kind = _MOMENTS.get(words.removeprefix(" FOR"))
        if kind is None:
            self._retreat(first)
            return None
        first = self._index
        version = exp.Version(this=kind, expression=self._parse_bitwise(), kind="AS OF")
        return self._placed(first, version)

    def _parse_table_sample(self, *args: Any, **kwargs: Any) -> exp.TableSample | None:
        return self._placed(self._index, super()._parse_table_sample(*args, **kwargs))

    def _parse_interval(self, *args: Any, **kwargs: Any) -> exp.Add | exp.Interval | None:
        return self._placed(self._index, super()._parse_interval(*args, **kwargs))

    def _warn_unsupported(self) -> None:
        """Say nothing: what is no tree is Spark's, or read by a cursor."""


def relations(trees: Iterable[exp.Expr]) -> list[exp.Table]:
    """Return the tables, and functions of rows, that stand in trees, in the order of the text; no names of WITH."""
    by_start = {
        table.parts[0].meta["start"]: table
        for tree in trees
        for table in tree.find_all(exp.Table)
        if all("start" in part.meta for part in table.parts)
        and table.find_ancestor(exp.Version) is None
        and not _names_cte(table)
    }
    return [by_start[start] for start in sorted(by_start)]


def _names_cte(table: exp.Table) -> bool:
    """Whether a name is that of a query of WITH, and no table."""
    node: exp.Expr | None = table
    while node is not None and len(table.parts) == 1 and not table.args.get("version"):
        ctes = node.args["with_"].expressions if node.args.get("with_") else []
        if isinstance(node, exp.CTE) and isinstance(node.parent, exp.With):
            # One knows those before it, and itself only where it is recursive.
            index = node.parent.expressions.index(node) + bool(node.parent.args.get("recursive"))
            ctes, node = node.parent.expressions[:index], node.parent.parent
        if table.name.lower() in (cte.alias.lower() for cte in ctes):
            return True
        node = node and node.parent
    return False


def products(trees: Iterable[exp.Expr]) -> dict[int, tuple[int, int, str]]:
    """Return products in the place of `INTERVAL column DAY`, which Spark takes of literals alone: by start, with start and end."""
    pieces = {}
    for interval in (node for tree in trees for node in tree.find_all(exp.Interval)):
        column, unit, place = interval.this, interval.args.get("unit"), interval.meta.get("place")
        if isinstance(column, exp.Column) and isinstance(unit, exp.Var) and place:
            start, end = place
            names = ".".join(quoted(part.name) for part in column.parts)
            pieces[start] = (start, end, f"({names} * INTERVAL '1' {unit.name})")
    return pieces


def conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    """Return the parts of a condition that AND joins, without brackets around them."""
    tree = tree.unnest()
    if not isinstance(tree, exp.And):
        return [tree]
    return [*conjuncts(tree.this), *conjuncts(tree.expression)]


def with_parameters(text: str, args: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return a statement with literals in the place of its parameters: :name of a mapping, or ? in their order.

    Raises InvalidInputError for a value that is not plain. A parameter without a value stays, and Spark refuses it.
    """
    statement = Statement.from_text(text)
    if statement is None:
        return text
    tokens = statement.tokens
    literals: list[tuple[int, int, str]] = []
    values = iter(() if isinstance(args, Mapping) else args)
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else token
        end = token.end
        if isinstance(args, Mapping):
            end = following.end
            is_glued = index > 0 and tokens[index - 1].end + 1 == token.start
            is_type = is_glued and tokens[index - 1].token_type in _NAMES  # STRUCT<a:INT>
            is_parameter = token.token_type is TokenType.COLON and following.start == token.end + 1
            if not is_parameter or is_type or following.text not in args:
                continue
            value = args[following.text]
        elif token.token_type is TokenType.PLACEHOLDER:
            value = next(values, _ABSENT)
            if value is _ABSENT:
                continue
        else:
            continue
        literals.append((token.start, end + 1, literal_of(value)))
    return replaced(text, literals)


def statement_texts(text: str) -> list[str]:
    """Return the texts of the statements between semicolons; a script with BEGIN is one."""
    texts: list[str] = []
    while True:
        statement = Statement.from_text(text)
        if statement is None or not statement.tokens:
            break
        words = [word_of(token) for token in statement.tokens]
        ends = [t.start for t in statement.tokens if t.token_type is TokenType.SEMICOLON]
        if not ends or "BEGIN" in (words[0], *words[2:3]):  # of a script, which may have a label
            break
        if ends[0] > statement.tokens[0].start:
            texts.append(text[: ends[0]])
        text = text[ends[0] + 1 :]
    if statement is None or statement.tokens:
        texts.append(text)
    return texts


def with_defaults(text: str) -> str:
    """Return VALUES, or a SELECT, with nulls in the place of DEFAULT: a null becomes the column's default when written."""
    statement = Statement.from_text(text) if "DEFAULT" in text.upper() else None
    tree = None if statement is None else next(iter(statement.trees()), None)
    rows = tree.expressions if isinstance(tree, exp.Values) else [tree or exp.Tuple()]
    places = [value.this.meta for row in rows for value in row.expressions if is_default(value)]
    return replaced(text, [(place["start"], place["end"] + 1, "NULL") for place in places])


def is_default(value: exp.Expr | None) -> bool:
    """Whether a value is the word DEFAULT."""
    name = value.this if isinstance(value, exp.Column) and len(value.parts) == 1 else None
    return isinstance(name, exp.Identifier) and name.name.upper() == "DEFAULT" and not name.quoted


def with_names(text: str, value_of: Callable[[str], str | None]) -> str:
    """Return a statement with names in the place of `IDENTIFIER(expression)`.

    `value_of`: returns the text that an expression stands for; None for one that Spark had better refuse itself.
    """
    statement = Statement.from_text(text) if "IDENTIFIER" in text.upper() else None
    names: list[tuple[int, int, str]] = []
    for index, token in enumerate([] if statement is None else statement.tokens):
        assert statement is not None
        statement.at = index
        if not statement.takes("IDENTIFIER", "("):
            continue
        expression = statement.until(")")
        value = value_of(expression)
        name = None if value is None else Statement.from_text(value)
        if name is not None and statement.takes(")"):
            end = statement.tokens[statement.at - 1].end + 1
            names.append((token.start, end, ".".join(map(quoted, name.path()))))
    return replaced(text, names)


def replaced(
    text: str, pieces: Iterable[tuple[int, int, str]], between: Callable[[str], str] = str
) -> str:
    """Return a text with others in the place of stretches of it, given by their start and end, in order.

    `between`: makes what stands for the text between them.
    """
    parts, end = [], 0
    for start, after, piece in pieces:
        parts += [between(text[end:start]), piece]
        end = after
    return "".join([*parts, between(text[end:])])


def literal_of(value: Any) -> str:
    """Return a plain value as a literal of Spark's SQL; InvalidInputError for any other."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            return f"{value}" if -(1 << 31) <= value < 1 << 31 else f"{value}L"
        case float():
            return f"CAST('{value}' AS DOUBLE)"
        case Decimal() if value.is_finite():
            return f"{value:f}BD"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP_LTZ"
            return f"{kind}'{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case time():
            return f"TIME'{value.isoformat()}'"
        case list():
            return f"array({', '.join(map(literal_of, value))})"
        case _:
            raise InvalidInputError(
                "args takes plain values: None, bool, int, float, Decimal, str, bytes, date, datetime, time and lists of them",
                kind=ErrorKind.INVALID_FILTER,
                given=repr(value),
            )


class Statement:
    """A cursor over the tokens of a text. Words compare without case."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self._rule_tokens = [*tokens]
        while self._rule_tokens and self._rule_tokens[-1].token_type is TokenType.SEMICOLON:
            self._rule_tokens.pop()
        self.tokens = [part for token in self._rule_tokens for part in _words(token)]
        self.at = 0
        self.expression_of: Callable[[SparkSql], SparkSql] = lambda expression: expression
        """What makes of an expression as it was written one that Spark knows."""

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Return a statement; None for text that Spark had better refuse itself."""
        try:
            tokens = Spark().tokenize(text)
            if tokens and tokens[0].token_type in _WHOLE:  # the rest of it is one token
                start = tokens[0].start
                verb, *tokens = Spark().tokenize(f"{text[:start]}x{text[start + 1 :]}")
                word = text[start : verb.end + 1]
                tokens.insert(0, Token(TokenType.VAR, word, verb.line, verb.col, start, verb.end))
        except TokenError:  # Spark's own message names the place
            return None
        return cls(text, tokens)

    def trees(self) -> list[exp.Expr]:
        """Return its tree, or those of what the parser knows of it."""
        rules = _Rules(dialect=_DIALECT, error_level=ErrorLevel.IGNORE)
        trees: list[exp.Expr] = []
        with suppress(
            Exception
        ):  # of rules that go on behind what they do not know; Spark may well know it
            trees.extend(rules.trees(self.text, self._rule_tokens))
        return trees

    def dotted_names(self) -> Iterator[tuple[str, ...]]:
        """Yield names of two parts or more wherever they stand, and one more word: `shop.orders o` is three."""
        dots = [token.token_type is TokenType.DOT for token in self.tokens]
        for index in range(1, len(dots) - 1):
            if dots[index] and not (index > 1 and dots[index - 2]):
                yield tuple(token.text for token in self.tokens[index - 1 : index + 4 : 2])

    def go_to(self, start: int) -> None:
        """Set the cursor on the token that begins at a place of the text."""
        self.at = next(i for i, token in enumerate(self.tokens) if token.start >= start)

    @property
    def first_words(self) -> tuple[str, str]:
        """The words that it begins with, wherever the cursor is."""
        return self.word(-self.at), self.word(1 - self.at)

    def behind_ctes(self, *verbs: str) -> tuple[str, Self]:
        """Return the text of WITH … before one of these verbs, and the statement that begins with it.

        That is "" and this statement where none of them follows.
        """
        depth = 0
        for index, token in enumerate(self.tokens):
            depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
            closes = index > 0 and self.tokens[index - 1].token_type is TokenType.R_PAREN
            if depth == 0 and closes and self.word(index - self.at) in verbs:
                return self.text[: token.start], self.part(index)
        return "", self

    @property
    def done(self) -> bool:
        """Whether the cursor is behind the last token."""
        return self.at >= len(self.tokens)

    def word(self, ahead: int = 0) -> str:
        """Return a token as a word of upper case; "" behind the last one, and for quoted names and text."""
        index = self.at + ahead
        if index >= len(self.tokens):
            return ""
        return word_of(self.tokens[index])

    def index_of(self, word: str) -> int:
        """Return the index of the first token outside of brackets that is a word; behind the last one if none is."""
        depth = 0
        for index, token in enumerate(self.tokens):
            depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
            if depth == 0 and word_of(token) == word:
                return index
        return len(self.tokens)

    def takes(self, *words: str) -> bool:
        """Step over these words if they come next."""
        if any(self.word(ahead) != word for ahead, word in enumerate(words)):
            return False
        self.at += len(words)
        return True

    def takes_form(self, form: str) -> bool:
        """Step over words if they come next, such as "DROP TABLE [IF EXISTS]": those in brackets may be missing."""
        first = self.at
        for needed, optional in re.findall(r"([^][]+)|\[([^]]+)\]", form):
            if not self.takes(*needed.split()):
                self.at = first
                return False
            self.takes(*optional.split())
        return True

    def needs(self, *words: str) -> None:
        """Step over words that have to come next."""
        if not self.takes(*words):
            self.refuse(f"{' '.join(words)} is expected")

    def refuse(self, problem: str) -> NoReturn:
        """Raise InvalidInputError that names the place."""
        error = self._error(f"the statement is not understood: {problem}")
        error.is_known = self.first_words[0] in _OF_OTHERS
        raise error

    def not_done(self, remedy: str) -> NoReturn:
        """Raise InvalidInputError for what other formats do, which says what to use instead and names the place."""
        error = self._error(f"this is not done here: {remedy}")
        error.is_known = True
        raise error

    def _error(self, message: str) -> StatementError:
        tail = "" if self.done else self.text[self.tokens[self.at].start :]
        location = repr(tail[:30]) if tail else "the end"
        error = StatementError(f"{message}, at {location}")
        error.tail = tail
        return error

    def name(self) -> str:
        """Step over a dotted name; quoted parts lose their quotes."""
        return ".".join(self.path())

    def path(self) -> tuple[str, ...]:
        """Step over a dotted name; return its parts without their quotes."""
        parts = [self._part()]
        while not self.done and self.tokens[self.at].token_type is TokenType.DOT:
            self.at += 1
            parts.append(self._part())
        return tuple(parts)

    def _part(self) -> str:
        if self.done or not (self.tokens[self.at].text[:1].isalpha() or self.is_name):
            self.refuse("a name is expected")
        self.at += 1
        return self.tokens[self.at - 1].text

    @property
    def is_name(self) -> bool:
        """Whether a name comes next that is no word of the parser's."""
        token = None if self.done else self.tokens[self.at]
        return token is not None and (token.token_type in _NAMES or token.text[:1] == "_")

    def alias(self, otherwise: str) -> str:
        """Step over [AS] alias."""
        if self.takes("AS"):
            return self._part()
        if not self.done and self.tokens[self.at].token_type in _NAMES:
            return self._part()
        return otherwise

    def until(self, *words: str, types: bool = False) -> str:
        """Step over everything before one of these words, outside of brackets; return its text.

        `types`: what is read declares columns, where < and > are brackets.
        """
        first, depth = self.at, 0
        while not self.done:
            kind = self.tokens[self.at].token_type
            if depth == 0 and (self.word() in words or kind in _CLOSE):
                break
            depth += (kind in _OPEN) - (kind in _CLOSE)
            if types:
                depth += self.word().count("<") - self.word().count(">")
            self.at += 1
        if self.at == first:
            self.refuse("something is missing")
        return self.since(first)

    def expression(self, *words: str) -> SparkSql:
        """Step over the expression before one of these words, or before the end; return it.

        The word is the first one with a whole expression before it: within CASE there is a WHEN, within BETWEEN an AND.
        Of an expression that the parser does not know it is the first one of all.
        """
        first, depth = self.at, 0
        ends: list[int] = []
        while not self.done:
            kind = self.tokens[self.at].token_type
            if depth == 0 and self.at > first and (self.word() in words or kind in _CLOSE):
                ends.append(self.at)
                expression = SparkSql.parsed(self.since(first))
                if kind in _CLOSE or expression.tree is not None:
                    return self.expression_of(expression)
            depth += (kind in _OPEN) - (kind in _CLOSE)
            self.at += 1
        if self.at == first:
            self.refuse("something is missing")
        expression = SparkSql.parsed(self.since(first))
        if ends and expression.tree is None:
            self.at = ends[0]
            expression = SparkSql(text=self.since(first), tree=None)
        return self.expression_of(expression)

    def since(self, first: int) -> str:
        """Return the text from a token up to the cursor."""
        return self.text[self.tokens[first].start : self.tokens[self.at - 1].end + 1]

    def remainder(self) -> str:
        """Return the text from here on, and step behind it."""
        if self.done:
            self.refuse("something is missing")
        first, self.at = self.tokens[self.at].start, len(self.tokens)
        return self.text[first : self.tokens[-1].end + 1]

    def part(self, first: int, end: int | None = None) -> Self:
        """Return some of its tokens as a statement of its own over the same text."""
        return type(self)(self.text, self.tokens[first:end])

    def item(self, *, types: bool = False) -> Self:
        """Step over what comes before a comma, or before the end; return it. `types`: as for `until`."""
        first = self.at
        self.until(",", types=types)
        return self.part(first, self.at)

    def listed(self, *, types: bool = False) -> list[Self]:
        """Step over "(a, b, …)"; return each part. `types`: as for `until`."""
        self.needs("(")
        parts = []
        while not self.takes(")"):
            parts.append(self.item(types=types))
            self.takes(",")
        return parts

    def names(self) -> list[str]:
        """Step over "(a, b, …)" of plain names; return them without their quotes."""
        parts = self.listed()
        names = [part.name() for part in parts]
        for part in parts:
            part.ended()
        return names

    def properties(self) -> dict[str, str]:
        """Step over "('key' = 'value', key value, …)"; return the properties."""
        properties = {}
        for part in self.listed():
            key = part.key()
            part.takes("=")
            properties[key] = part.literal()
        return properties

    def key(self) -> str:
        """Step over the key of a property: text in quotes, or a name."""
        return self.literal() if self.is_text else self.name()

    @property
    def is_text(self) -> bool:
        """Whether text in quotes comes next."""
        return not self.done and self.tokens[self.at].token_type is TokenType.STRING

    def literal(self) -> str:
        """Step over text in quotes, a number, or a word; return it as text."""
        if self.done:
            self.refuse("a value is expected")
        sign = "-" if self.takes("-") else ""
        self.at += 1
        return sign + self.tokens[self.at - 1].text

    def default(self) -> str | None:
        """Step over the value after DEFAULT; return its text, None for NULL.

        Raises InvalidInputError for what is computed, and for literals that text does not stand for, such as X'00'.
        """
        if self.takes("NULL"):
            return None
        sign = self.word() if self.word() in ("+", "-") else ""
        self.at += bool(sign)
        if self.done or self.tokens[self.at].token_type not in (_SIGNED if sign else _LITERALS):
            self.refuse("a default is a literal: text in quotes, a number, TRUE, FALSE or NULL")
        return self.literal() if sign != "-" else f"-{self.literal()}"

    def ended(self) -> None:
        """Raise InvalidInputError unless the statement ends here."""
        if not self.done:
            self.refuse("this is not expected")

"""One SQL statement as tokens over its own text: clauses are cut out as they were written, for Spark to read."""

import re
from collections.abc import Sequence
from typing import NoReturn, Self

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from lsm_engine.base.errors import ErrorKind, InvalidInputError

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}
_NAMES = {TokenType.VAR, TokenType.IDENTIFIER}
_SIGNED = {TokenType.NUMBER}
_TEXTS = {TokenType.STRING, TokenType.RAW_STRING}
_LITERALS = {*_SIGNED, *_TEXTS, TokenType.TRUE, TokenType.FALSE}
_WHOLE = {TokenType.COMMAND, TokenType.SHOW}


def _words(token: Token) -> list[Token]:
    """Return a token as one per word: "PARTITIONED BY" is one of the parser's."""
    quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    if quoted or not any(each.isspace() for each in token.text):
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


def quoted(name: str) -> str:
    """Return a name as Spark's SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


class Statement:
    """A cursor over the tokens of a text. Words compare without case."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = [*tokens]
        while self.tokens and self.tokens[-1].token_type is TokenType.SEMICOLON:
            self.tokens.pop()
        self.at = 0

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return a statement; None for text that Spark had better refuse itself."""
        try:
            tokens = Spark().tokenize(text)
            if tokens and tokens[0].token_type in _WHOLE:  # the rest of it is one token
                tokens = Spark().tokenize(
                    f"{text[: tokens[0].start]}x{text[tokens[0].start + 1 :]}"
                )
        except TokenError:
            return None
        return cls(text, [part for token in tokens for part in _words(token)])

    @property
    def done(self) -> bool:
        """Whether no token is left."""
        return self.at >= len(self.tokens)

    def word(self, ahead: int = 0) -> str:
        """Return a token as a word of upper case; "" behind the last one, and for quoted names and text."""
        at = self.at + ahead
        if at >= len(self.tokens):
            return ""
        token = self.tokens[at]
        quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        return "" if quoted else self.text[token.start : token.end + 1].upper()

    def takes(self, *words: str) -> bool:
        """Step over these words if they come next."""
        if any(self.word(at) != word for at, word in enumerate(words)):
            return False
        self.at += len(words)
        return True

    def needs(self, *words: str) -> None:
        """Step over words that have to come next."""
        if not self.takes(*words):
            self.refuse(f"{' '.join(words)} is expected")

    def refuse(self, problem: str) -> NoReturn:
        """Raise InvalidInputError that names the place."""
        near = "the end" if self.done else repr(self.text[self.tokens[self.at].start :][:30])
        raise InvalidInputError(
            f"the statement is not understood: {problem}, at {near}", kind=ErrorKind.INVALID_FILTER
        )

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
        if self.done or not (self.tokens[self.at].text[:1].isalpha() or self._is_name):
            self.refuse("a name is expected")
        self.at += 1
        return self.tokens[self.at - 1].text

    @property
    def _is_name(self) -> bool:
        token = self.tokens[self.at]
        return token.token_type in _NAMES or token.text[:1] == "_"

    def alias(self, otherwise: str) -> str:
        """Step over [AS] alias."""
        if self.takes("AS"):
            return self._part()
        if not self.done and self.tokens[self.at].token_type in _NAMES:
            return self._part()
        return otherwise

    def until(self, *words: str, types: bool = False) -> str:
        """Step over everything before one of these words, outside of brackets and CASE; return its text.

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
        return self.text[self.tokens[first].start : self.tokens[self.at - 1].end + 1]

    def rest(self) -> str:
        """Return the text from here on, and step behind it."""
        if self.done:
            self.refuse("something is missing")
        first, self.at = self.tokens[self.at].start, len(self.tokens)
        return self.text[first : self.tokens[-1].end + 1]

    def listed(self, *, types: bool = False) -> list[str]:
        """Step over "(a, b, …)"; return the text of each part. `types`: as for `until`."""
        self.needs("(")
        parts = []
        while not self.takes(")"):
            parts.append(self.until(",", types=types))
            self.takes(",")
        return parts

    def properties(self) -> dict[str, str]:
        """Step over "('key' = 'value', key value, …)"; return what is set."""
        found = {}
        for part in self.listed():
            inner = Statement.of(part)
            assert inner is not None
            key = inner.literal() if inner.is_text else inner.name()
            inner.takes("=")
            found[key] = inner.literal()
        return found

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
        """Step over what stands after DEFAULT: the text of a value, None for NULL.

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
        """Raise InvalidInputError if something is left."""
        if not self.done:
            self.refuse("this is not expected")

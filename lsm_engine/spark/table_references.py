"""Names of tables among the tokens of a statement, and the state that is asked of them."""

from sqlglot.tokenizer_core import Token, TokenType

from lsm_engine.base.instant import millis_of

NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


def is_relation(tokens: list[Token], at: int) -> bool:
    """Whether a name stands where a table does: after FROM, JOIN, INTO, TABLE, DESCRIBE, or a comma."""
    before = tokens[at - 1].text.upper() if at else ""
    return before in (
        "FROM",
        "JOIN",
        "INTO",
        "TABLE",
        "USING",
        "DESCRIBE",
        "DESC",
        "EXTENDED",
        ",",
        "UPDATE",
    )


def dotted(tokens: list[Token], at: int) -> tuple[int, str | None]:
    """Return the dotted name that begins at a token, None if none does, and where it ends."""
    if tokens[at].token_type not in NAMES or (at and tokens[at - 1].token_type is TokenType.DOT):
        return at + 1, None
    end, parts = at + 1, [tokens[at].text]
    while end + 1 < len(tokens) and tokens[end].token_type is TokenType.DOT:
        parts.append(tokens[end + 1].text)
        end += 2
    return end, ".".join(parts)


def travel(tokens: list[Token], at: int) -> tuple[dict[str, str], int]:
    """Return the options that VERSION AS OF or TIMESTAMP AS OF mean, and where they end."""
    words = [token.text.upper() for token in tokens[at : at + 5]]
    skipped = 1 if words[:1] == ["FOR"] else 0
    if words[skipped + 1 : skipped + 3] != ["AS", "OF"] or len(words) < skipped + 4:
        return {}, at
    kind, given = words[skipped], tokens[at + skipped + 3]
    end = at + skipped + 4
    if kind in ("VERSION", "SYSTEM_VERSION"):
        return {"snapshot-id" if given.text.isdigit() else "tag": given.text}, end
    if kind in ("TIMESTAMP", "SYSTEM_TIME"):
        if given.text.upper() == "TIMESTAMP" and end < len(tokens):
            given, end = tokens[end], end + 1
        return {"as-of": str(millis_of(given.text))}, end
    return {}, at

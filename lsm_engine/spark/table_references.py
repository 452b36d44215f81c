"""Names of tables among the tokens of a statement, and the state that is asked of them."""

from sqlglot.tokenizer_core import Token, TokenType

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


def dotted(tokens: list[Token], at: int) -> tuple[int, tuple[str, ...] | None]:
    """Return where the dotted name that begins at a token ends, and its parts; None if none begins there."""
    if tokens[at].token_type not in NAMES or (at and tokens[at - 1].token_type is TokenType.DOT):
        return at + 1, None
    end, parts = at + 1, [tokens[at].text]
    while end + 1 < len(tokens) and tokens[end].token_type is TokenType.DOT:
        parts.append(tokens[end + 1].text)
        end += 2
    return end, tuple(parts)


def travel(tokens: list[Token], at: int) -> tuple[str, int, int] | None:
    """Return the option that VERSION AS OF or TIMESTAMP AS OF means, where its value begins, and where it ends.

    A moment is a literal, a call, or any expression in brackets. None where neither comes next.
    """
    words = [token.text.upper() for token in tokens[at : at + 5]]
    skipped = 1 if words[:1] == ["FOR"] else 0
    if words[skipped + 1 : skipped + 3] != ["AS", "OF"] or len(words) < skipped + 4:
        return None
    first = at + skipped + 3
    if words[skipped] in ("VERSION", "SYSTEM_VERSION"):
        return "snapshot-id" if tokens[first].text.isdigit() else "tag", first, first + 1
    if words[skipped] in ("TIMESTAMP", "SYSTEM_TIME"):
        return "as-of", first, _ends(tokens, first)
    return None


def sampled(tokens: list[Token], index: int) -> int:
    """Return where a TABLESAMPLE that begins at a token ends; the token itself if none does."""
    for word in ("TABLESAMPLE", "REPEATABLE"):
        if index < len(tokens) and tokens[index].text.upper() == word:
            index = _ends(tokens, index + 1)
    return index


def _ends(tokens: list[Token], first: int) -> int:
    """Return where a literal, a call, or what stands in brackets ends."""
    following = tokens[first + 1].token_type if first + 1 < len(tokens) else None
    if tokens[first].token_type is not TokenType.STRING and following is TokenType.STRING:
        return first + 2  # DATE'2024-05-01'
    if TokenType.L_PAREN not in (tokens[first].token_type, following):
        return first + 1
    depth = 0
    for end, token in enumerate(tokens[first:], start=first + 1):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and token.token_type is TokenType.R_PAREN:
            return end
    return len(tokens)

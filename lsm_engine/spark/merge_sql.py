"""MERGE INTO, UPDATE and DELETE FROM as text: cut into clauses here, computed by Spark as they were written."""

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from sqlglot.tokenizer_core import Token, TokenType

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.units import counted
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.spark.merge_columns import Sides, SparkSql
from lsm_engine.spark.merge_on_driver import staged_merge
from lsm_engine.spark.statement import Statement, quoted
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.table import Table
from lsm_engine.table.write.looked_up import write_looked_up
from lsm_engine.table.write.merge import MergePlan
from lsm_engine.table.write.merge_clauses import Action, Clause, Match

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_BEFORE_NO_COLUMN = (TokenType.DOT, TokenType.NUMBER, TokenType.STRING)
"""Behind a literal stands the unit of an interval: INTERVAL 30 DAY."""
_SUBQUERY = ("SELECT", "WITH", "FROM")


def merge_statement(
    spark: SparkSession, table: Table, statement: Statement, query: Callable[[str], DataFrame]
) -> WriteResult | None:
    """Do a MERGE INTO whose table's name was read already. `query`: runs the source."""
    target = statement.alias(_last(table.name))
    statement.needs("USING")
    if statement.takes("("):
        frame, plain = query(statement.until(")")), "source"
        statement.needs(")")
    else:
        first = statement.at
        plain = _last(statement.name())
        last = statement.at - 1
        text = statement.text[statement.tokens[first].start : statement.tokens[last].end + 1]
        frame = query(f"SELECT * FROM {text}")
    source = statement.alias(plain)
    statement.needs("ON")
    condition = statement.until("WHEN")
    sides = Sides.of(table.schema.names, frame.columns, target, source)
    on, rest = _equalities(condition, sides, table, frame)
    plan = MergePlan(on=on, condition=rest, clauses=_clauses(statement, sides, table, frame))
    return _merged(spark, table, frame, plan, sides)


def update_statement(spark: SparkSession, table: Table, statement: Statement) -> WriteResult | None:
    """Do an UPDATE whose table's name was read already."""
    alias = statement.alias(_last(table.name))
    statement.needs("SET")
    sides = Sides.of(table.schema.names, [], alias, "_lsm_source")
    values = _assigned(statement, sides, table, ("WHERE",))
    where = SparkSql(text=statement.rest()) if statement.takes("WHERE") else None
    statement.ended()
    clause = Clause(
        match=Match.NOT_MATCHED_BY_SOURCE, action=Action.UPDATE, condition=where, values=values
    )
    return _merged(spark, table, None, MergePlan(on=(), condition=None, clauses=(clause,)), sides)


def delete_statement(spark: SparkSession, table: Table, statement: Statement) -> WriteResult | None:
    """Do a DELETE FROM whose table's name was read already."""
    alias = statement.alias(_last(table.name))
    sides = Sides.of(table.schema.names, [], alias, "_lsm_source")
    where = SparkSql(text=statement.rest()) if statement.takes("WHERE") else None
    statement.ended()
    clause = Clause(match=Match.NOT_MATCHED_BY_SOURCE, action=Action.DELETE, condition=where)
    return _merged(spark, table, None, MergePlan(on=(), condition=None, clauses=(clause,)), sides)


def _merged(
    spark: SparkSession, table: Table, frame: DataFrame | None, plan: MergePlan, sides: Sides
) -> WriteResult | None:
    session = table.session
    identity = CommitIdentity(commit_user=session.ids.new_id())
    return write_looked_up(session, identity, staged_merge(session, frame, plan, sides, spark))


def _last(name: str) -> str:
    return name.rpartition(".")[2].partition("@")[0]


def _equalities(
    condition: str, sides: Sides, table: Table, frame: DataFrame
) -> tuple[tuple[tuple[str, str], ...], SparkSql | None]:
    """Return the pairs of columns that `a.x = b.y AND …` equates, and what else has to hold."""
    statement = Statement.of(condition)
    assert statement is not None
    pairs, others = [], []
    while not statement.done:
        part = statement.until("AND") if _is_conjunction(statement) else statement.rest()
        statement.takes("AND")
        pair = _pair(part, sides, table, frame)
        pairs.append(pair) if pair else others.append(f"({part})")
    return tuple(pairs), SparkSql(text=" AND ".join(others)) if others else None


def _is_conjunction(statement: Statement) -> bool:
    """Whether AND binds the parts at the outermost level: no OR, no BETWEEN is beside it."""
    words, depth = [], 0
    for token in statement.tokens[statement.at :]:
        depth += token.text == "("
        depth -= token.text == ")"
        if depth == 0:
            words.append(token.text.upper())
    return not {"OR", "BETWEEN", "NOT", "||"} & {*words}


def _pair(text: str, sides: Sides, table: Table, frame: DataFrame) -> tuple[str, str] | None:
    statement = Statement.of(text)
    assert statement is not None
    columns = {
        sides.target.lower(): {name.lower(): name for name in table.schema.names},
        sides.source.lower(): {name.lower(): name for name in frame.columns},
    }
    kinds = [token.token_type for token in statement.tokens]
    dotted = [TokenType.DOT, *_NAMES]
    if (
        len(kinds) != 7
        or kinds[3] is not TokenType.EQ
        or any(kind not in dotted for kind in (*kinds[:3], *kinds[4:]))
    ):
        return None
    found = {}
    for at in (0, 4):
        side, name = statement.tokens[at].text.lower(), statement.tokens[at + 2].text.lower()
        if name not in columns.get(side, {}):
            return None
        found[side] = columns[side][name]
    if len(found) != 2:
        return None
    return found[sides.target.lower()], found[sides.source.lower()]


def _clauses(
    statement: Statement, sides: Sides, table: Table, frame: DataFrame
) -> tuple[Clause, ...]:
    found = []
    while not statement.done:
        statement.needs("WHEN")
        match = Match.MATCHED
        if statement.takes("NOT"):
            match = Match.NOT_MATCHED
        statement.needs("MATCHED")
        if statement.takes("BY", "SOURCE"):
            match = Match.NOT_MATCHED_BY_SOURCE
        else:
            statement.takes("BY", "TARGET")
        where = None
        alone = {Match.NOT_MATCHED: sides.source, Match.NOT_MATCHED_BY_SOURCE: sides.target}.get(
            match
        )
        if statement.takes("AND"):
            where = _qualified(statement.until("THEN"), alone, sides, table, frame)
        statement.needs("THEN")
        action, values = _action(statement, sides, table, frame, alone)
        if (action is Action.INSERT) is not (match is Match.NOT_MATCHED):
            statement.refuse("WHEN NOT MATCHED inserts, the others update or delete")
        found.append(Clause(match=match, action=action, condition=where, values=values))
    return tuple(found)


def _action(
    statement: Statement, sides: Sides, table: Table, frame: DataFrame, alone: str | None
) -> tuple[Action, dict[str, Any] | None]:
    if statement.takes("DELETE"):
        return Action.DELETE, None
    if statement.takes("UPDATE"):
        statement.needs("SET")
        if statement.takes("*"):
            return Action.UPDATE, None
        return Action.UPDATE, _assigned(statement, sides, table, ("WHEN",), alone, frame)
    statement.needs("INSERT")
    if statement.takes("*"):
        return Action.INSERT, None
    names = [_column(part, sides, table) for part in statement.listed()]
    statement.needs("VALUES")
    values = [_qualified(part, alone, sides, table, frame) for part in statement.listed()]
    if len(names) != len(values):
        statement.refuse(f"{counted(len(names), 'column')} and {counted(len(values), 'value')}")
    return Action.INSERT, dict(zip(names, values, strict=True))


def _assigned(
    statement: Statement,
    sides: Sides,
    table: Table,
    ends: tuple[str, ...],
    alone: str | None = None,
    frame: DataFrame | None = None,
) -> dict[str, Any]:
    """Step over "a = x, t.b = y"; return the value of each column."""
    values: dict[str, Any] = {}
    while True:
        name = _column(statement.name(), sides, table)
        statement.needs("=")
        values[name] = _qualified(statement.until(",", *ends), alone, sides, table, frame)
        if not statement.takes(","):
            return values


def _column(text: str, sides: Sides, table: Table) -> str:
    """Return the column that is set. Raises InvalidInputError for a field within one."""
    qualifier, _, plain = text.replace("`", "").strip().rpartition(".")
    known = {name.lower(): name for name in table.schema.names}
    if qualifier.lower() not in (
        "",
        sides.target.lower(),
        _last(table.name).lower(),
        table.name.lower(),
    ):
        raise InvalidInputError(
            f"{text.strip()!r} is no column of the table: set the whole column, {qualifier} = named_struct(…)",
            kind=ErrorKind.NO_SUCH_COLUMN,
            column=text.strip(),
        )
    return known.get(plain.lower(), plain)


def _qualified(
    text: str, alone: str | None, sides: Sides, table: Table, frame: DataFrame | None
) -> Any:
    """Return an expression whose plain columns belong to the only side that its rows have."""
    statement = Statement.of(text)
    assert statement is not None
    tokens = statement.tokens
    lone = [token.token_type for token in tokens]
    if frame is not None and len(lone) == 3 and lone[1] is TokenType.DOT:
        names = {name.lower(): name for name in frame.columns}
        if tokens[0].text.lower() == sides.source.lower() and tokens[2].text.lower() in names:
            return 'source."' + names[tokens[2].text.lower()].replace('"', '""') + '"'
    if alone is None or frame is None:
        return SparkSql(text=text)
    owned = frame.columns if alone == sides.source else table.schema.names
    known = {name.lower() for name in owned}
    made, after = [], 0
    inner = _subqueries(tokens)
    for at, token in enumerate(tokens):
        before = tokens[at - 1] if at else None
        following = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if (
            token.token_type in _NAMES
            and token.text.lower() in known
            and at not in inner
            and (before is None or before.token_type not in _BEFORE_NO_COLUMN)
            and following not in (".", "(")
        ):
            made += [text[after : token.start], f"{quoted(alone)}.{quoted(token.text)}"]
            after = token.end + 1
    return SparkSql(text="".join([*made, text[after:]]))


def _subqueries(tokens: Sequence[Token]) -> set[int]:
    """Return the places of the tokens within subqueries, whose names are their own."""
    found, depth, began = set(), 0, 0
    for at, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            depth += 1
            following = tokens[at + 1].text.upper() if at + 1 < len(tokens) else ""
            if not began and following in _SUBQUERY:
                began = depth
        if began:
            found.add(at)
        if token.token_type is TokenType.R_PAREN:
            began = 0 if depth == began else began
            depth -= 1
    return found

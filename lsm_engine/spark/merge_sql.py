"""MERGE INTO, UPDATE and DELETE FROM as text: cut into clauses here, computed by Spark as they were written."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.units import counted
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.schema.changes import AddColumn
from lsm_engine.spark.arrow_rows import arrow_schema_of
from lsm_engine.spark.merge_columns import Sides, SparkSql
from lsm_engine.spark.merge_on_driver import staged_merge
from lsm_engine.spark.statement import Statement, parsed_expression, quoted
from lsm_engine.spark.table_references import travel
from lsm_engine.table.commit.commit import CommitIdentity
from lsm_engine.table.table import Table
from lsm_engine.table.write.looked_up import write_looked_up
from lsm_engine.table.write.merge import MergePlan
from lsm_engine.table.write.merge_clauses import Action, Clause, Match, quoted_source


def merge_statement(
    table: Table,
    statement: Statement,
    query: Callable[[str], DataFrame],
    *,
    evolves: bool = False,
) -> WriteResult | None:
    """Do a MERGE INTO whose table's name was read already.

    `query`: runs the source. `evolves`: the same commit adds the columns that the source alone has, where a clause
    takes all columns or sets one of the same name to it.
    """
    target = statement.alias(_last(table.name))
    statement.needs("USING")
    if statement.takes("("):
        frame, name = query(statement.until(")")), "source"
        statement.needs(")")
    else:
        text, name = _source(statement)
        frame = query(f"SELECT * FROM {text}")
    source = statement.alias(name)
    first = statement.at
    plan, sides = _plan(statement, table, frame, target, source)
    changes = _new_columns(table, frame, plan) if evolves else []
    if changes:
        table, statement.at = table.altering(*changes), first
        plan, sides = _plan(statement, table, frame, target, source)
    return _merged(frame.sparkSession, table, frame, plan, sides)


def _plan(
    statement: Statement, table: Table, frame: DataFrame, target: str, source: str
) -> tuple[MergePlan, Sides]:
    """Step over ON and the clauses; return what they ask for."""
    statement.needs("ON")
    condition = statement.expression("WHEN")
    sides = Sides.of(table.schema, frame.columns, target, source)
    on, others = _equalities(condition, sides, table, frame)
    clauses = _clauses(statement, sides, table, frame)
    return MergePlan(on=on, condition=others, clauses=clauses), sides


def _new_columns(table: Table, frame: DataFrame, plan: MergePlan) -> list[AddColumn]:
    """Return the columns of the source that a MERGE WITH SCHEMA EVOLUTION adds to the table."""
    known = {name.lower() for name in table.schema.names}
    clauses = [clause for clause in plan.clauses if clause.action is not Action.DELETE]
    takes_all = any(clause.values is None for clause in clauses)
    values = [pair for clause in clauses for pair in (clause.values or {}).items()]
    return [
        AddColumn((field.name,), field.type)
        for field in arrow_schema_of(frame.schema)
        if field.name.lower() not in known
        and (takes_all or (field.name, quoted_source(field.name)) in values)
    ]


def _source(statement: Statement) -> tuple[str, str]:
    """Step over the name of a source, and the state that is asked of it; return their text, and what it is called."""
    first = statement.at
    name = _last(statement.name())
    moment = travel(statement.tokens, statement.at)
    statement.at = statement.at if moment is None else moment[2]
    return statement.since(first), name


def update_statement(spark: SparkSession, table: Table, statement: Statement) -> WriteResult | None:
    """Do an UPDATE whose table's name was read already."""
    alias = statement.alias(_last(table.name))
    statement.needs("SET")
    sides = Sides.of(table.schema, [], alias, "_lsm_source")
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
    sides = Sides.of(table.schema, [], alias, "_lsm_source")
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
    tree = parsed_expression(condition)
    parts: list[str] = []
    while isinstance(tree, exp.And) and not statement.done:  # no OR binds its parts with others
        parts.append(statement.expression("AND"))
        statement.takes("AND")
    if tree is None or len(parts) != len([*tree.flatten()]):
        parts = [condition]
    pairs = {part: _pair(part, sides, table, frame) for part in parts}
    others = [f"({part})" for part, pair in pairs.items() if pair is None]
    equal = tuple(pair for pair in pairs.values() if pair is not None)
    return equal, SparkSql(text=" AND ".join(others)) if others else None


def _pair(text: str, sides: Sides, table: Table, frame: DataFrame) -> tuple[str, str] | None:
    """Return the columns of the table and of the source that "t.x = s.y" compares; None for any other condition."""
    tree = parsed_expression(text)
    columns = {
        sides.target.lower(): {name.lower(): name for name in table.schema.names},
        sides.source.lower(): {name.lower(): name for name in frame.columns},
    }
    names: dict[str, str] = {}
    for column in (tree.this, tree.expression) if isinstance(tree, exp.EQ) else ():
        if not isinstance(column, exp.Column) or len(column.parts) != 2:
            return None
        side = column.table.lower()
        name = columns.get(side, {}).get(column.name.lower())
        if name is not None:
            names[side] = name
    if len(names) != 2:
        return None
    return names[sides.target.lower()], names[sides.source.lower()]


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
            where = _qualified(statement.expression("THEN"), alone, sides, table, frame)
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
    names = [_column((name,), sides, table) for name in statement.names()]
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
        name = _column(statement.path(), sides, table)
        statement.needs("=")
        values[name] = _qualified(statement.expression(",", *ends), alone, sides, table, frame)
        if not statement.takes(","):
            return values


def _column(path: tuple[str, ...], sides: Sides, table: Table) -> str:
    """Return the column that is set. Raises InvalidInputError for a field within one."""
    qualifier, name = ".".join(path[:-1]), path[-1]
    known = {column.lower(): column for column in table.schema.names}
    if qualifier.lower() not in (
        "",
        sides.target.lower(),
        _last(table.name).lower(),
        table.name.lower(),
    ):
        raise InvalidInputError(
            f"{'.'.join(path)!r} is no column of the table: set the whole column, {qualifier} = named_struct(…)",
            kind=ErrorKind.NO_SUCH_COLUMN,
            column=".".join(path),
        )
    return known.get(name.lower(), name)


def _qualified(
    text: str, alone: str | None, sides: Sides, table: Table, frame: DataFrame | None
) -> Any:
    """Return an expression whose plain columns belong to the only side that its rows have."""
    tree = parsed_expression(text)
    if frame is None or tree is None:
        return SparkSql(text=text)
    if isinstance(tree, exp.Column) and len(tree.parts) <= 2:
        names = {name.lower(): name for name in frame.columns}
        side = tree.table.lower() if tree.table else (alone or "").lower()
        if side == sides.source.lower() and tree.name.lower() in names:
            return quoted_source(names[tree.name.lower()])
    if alone is None:
        return SparkSql(text=text)
    owned = frame.columns if alone == sides.source else table.schema.names
    known = {name.lower() for name in owned}
    places = set()
    for column in tree.find_all(exp.Column):
        first, *fields = column.parts
        is_side = bool(fields) and first.name.lower() in (
            sides.target.lower(),
            sides.source.lower(),
        )
        # The names of a subquery are its own.
        if first.name.lower() in known and not is_side and column.find_ancestor(exp.Query) is None:
            places.add(first.meta["start"])
    for place in sorted(places, reverse=True):
        text = f"{text[:place]}{quoted(alone)}.{text[place:]}"
    return SparkSql(text=text)

"""The statements INSERT, MERGE, UPDATE and DELETE."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, StructType, TimestampType
from sqlglot import exp

from lsm_engine.api.accessors import commit_identity
from lsm_engine.api.table import Table
from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.units import counted
from lsm_engine.dml.merge import Action, Clause, Match, MergePlan, quoted_source
from lsm_engine.dml.write import write_looked_up
from lsm_engine.format.commit_message import WriteResult
from lsm_engine.spark.merge import staged_merge
from lsm_engine.spark.merge_columns import Sides, assigned, sql_name
from lsm_engine.spark.statement import (
    SparkSql,
    Statement,
    conjuncts,
    is_default,
    literal_of,
    relations,
    replaced,
    with_defaults,
)
from lsm_engine.spark.types import arrow_schema_of, quoted, spark_schema
from lsm_engine.types.arrow_types import default_of
from lsm_engine.types.schema_changes import AddColumn

# -- INSERT INTO, INSERT OVERWRITE and TRUNCATE TABLE as text --------------------------------------
#
# Rows by position or name, in the columns' types.

Query = Callable[[str], DataFrame]
_EPOCH = datetime.fromtimestamp(0, UTC)
_QUERY_WORDS = ("SELECT", "WITH", "VALUES", "FROM", "(")


def insert_statement(
    table: Table, statement: Statement, query: Query, *, evolves: bool = False
) -> WriteResult | None:
    """Run an INSERT, from behind the table's name.

    `query`: runs the rest of it. `evolves`: the same commit adds the columns that the query alone has, by their names.
    """
    replaces = "OVERWRITE" in statement.first_words
    constant, partition = _partition(table, statement, query, replaces=replaces)
    _refuse_other_inserts(statement)
    by_name = statement.takes("BY", "NAME")
    names = None
    if statement.word() == "(" and statement.word(1) not in _QUERY_WORDS:
        names = statement.names()
    rows = query(with_defaults(statement.remainder()))
    if evolves and names is None:
        table_names = {name.lower() for name in table.schema.names}
        fields = [*arrow_schema_of(rows.schema)][
            0 if by_name else len(table_names) - len(constant) :
        ]
        new = [AddColumn((f.name,), f.type) for f in fields if f.name.lower() not in table_names]
        table = table.altering(*new) if new else table
    if not by_name:
        names = names or [name for name in table.schema.names if name not in constant]
        if len(names) != len(rows.columns):
            raise InvalidInputError(
                f"the query gives {counted(len(rows.columns), 'column')} for {len(names)} of the table",
                columns=names,
                query=rows.columns,
            )
        rows = rows.toDF(*names)
    for name, value in constant.items():
        rows = rows.selectExpr("*", f"{value} AS {quoted(name)}")
    return write_rows(table, rows, partition, replaces=replaces, by_position=not by_name)


def drops_partition(statement: Statement) -> bool:
    """Whether an ALTER TABLE goes on with DROP [IF EXISTS] PARTITION (…)."""
    words = [statement.word(ahead) for ahead in range(5)]
    return (words[:2] == ["DROP", "PARTITION"] and words[2] == "(") or words[:4] == [
        "DROP", "IF", "EXISTS", "PARTITION"
    ]  # fmt: skip


def drop_partition_statement(
    table: Table, statement: Statement, query: Query
) -> WriteResult | None:
    """Run an ALTER TABLE … DROP PARTITION, from behind the table's name: one commit deletes the partition's rows."""
    statement.takes("DROP")
    statement.takes("IF", "EXISTS")
    _, partition = _partition(table, statement, query, replaces=True)
    if statement.word() == ",":
        statement.not_done("one partition a statement; of several, DELETE FROM … WHERE")
    statement.takes("PURGE")
    statement.ended()
    if partition is None:
        statement.refuse("the value of each partition column is expected: PARTITION (day = '…')")
    return table.overwrite(table.schema.arrow.empty_table(), partition)


def _refuse_other_inserts(statement: Statement) -> None:
    """Raise InvalidInputError for what an INSERT of other formats takes behind the name of its table."""
    words = (statement.word(), statement.word(1), statement.word(2))
    if "REPLACE" in words:
        statement.not_done("DELETE the rows first, or INSERT OVERWRITE … PARTITION")
    if words[0] == "IF":
        statement.not_done("leave IF NOT EXISTS out: a partition is there once it has rows")
    if words[:2] == ("WITH", "("):
        statement.not_done(
            "options of a write are those of the table: ALTER TABLE … SET TBLPROPERTIES"
        )


def _partition(
    table: Table, statement: Statement, query: Query, *, replaces: bool
) -> tuple[dict[str, str], dict[str, object] | None]:
    """Step over PARTITION (…); return the columns that it sets, as SQL, and the partition to replace."""
    constant: dict[str, str] = {}
    column_names = {name.lower(): name for name in table.schema.names}
    if statement.takes("PARTITION"):
        for inner in statement.listed():
            column = inner.name()
            if column.lower() not in column_names:
                statement.refuse(f"the table has no column {column!r}")
            if inner.takes("="):
                constant[column_names[column.lower()]] = inner.remainder()
    if not constant:  # PARTITION (day): the rows have the values themselves
        return constant, None
    schema = spark_schema(table.schema.fields)
    # try_cast: a plain cast makes null, or another number, of what does not fit where the session is not ANSI.
    cast = {
        name: f"try_cast(({value}) AS {sql_name(schema[name].dataType)})"
        for name, value in constant.items()
    }
    literals = [f"({value})" for value in constant.values()]
    frame = query(f"SELECT {', '.join((*cast.values(), *literals))}")
    frame = frame.toDF(*map(str, range(2 * len(cast))))
    # Collected as they are, instants come by the clock of this process, which is no zone of the session's.
    instants = {f.name for f in frame.schema if isinstance(f.dataType, TimestampType)}
    selected = [
        sql.unix_micros(n) if n in instants else sql.col(n) for n in frame.columns[: len(cast)]
    ]
    shown = [
        sql.col(n).cast("timestamp_ntz" if n in instants else frame.schema[n].dataType)
        for n in frame.columns[len(cast) :]
    ]
    row = frame.select(*selected, *shown).collect()[0]
    values = [
        _EPOCH + timedelta(microseconds=value) if n in instants and value is not None else value
        for n, value in zip(frame.columns, row[: len(cast)], strict=False)
    ]
    for (name, text), value, before in zip(constant.items(), values, row[len(cast) :], strict=True):
        if _is_other(before, value):
            raise InvalidInputError(
                f"PARTITION: {text} is no value of column {name!r}, {schema[name].dataType.simpleString()}",
                kind=ErrorKind.INVALID_ROWS,
                column=name,
            )
    return cast, dict(zip(cast, values, strict=True)) if replaces else None


def _is_other(before: object, value: object) -> bool:
    """Whether the cast to the column's type changed a value: 1.5 would be 1, a time its day."""
    if value is None or before is None:
        return value is not before
    if isinstance(value, int | Decimal) and isinstance(before, int | float | Decimal):
        return value != before
    return isinstance(before, datetime) and type(value) is date and before.time() != time.min


def write_rows(
    table: Table,
    rows: DataFrame,
    partition: dict[str, object] | None = None,
    *,
    replaces: bool = False,
    by_position: bool = False,
) -> WriteResult | None:
    """Write the rows of a DataFrame as INSERT does: upsert, or append without a key, or overwrite."""
    rows = assigned(rows, spark_schema(table.schema.fields), by_position=by_position)
    if replaces:
        return table.overwrite(rows, partition)
    return table.upsert(rows) if table.schema.has_primary_key else table.append(rows)


# -- MERGE INTO, UPDATE and DELETE FROM as text ----------------------------------------------------
#
# Cut into clauses here, computed by Spark as they were written.


def merge_statement(
    table: Table,
    statement: Statement,
    query: Callable[[str], DataFrame],
    *,
    evolves: bool = False,
) -> WriteResult | None:
    """Run a MERGE INTO, from behind the table's name.

    `query`: runs the source. `evolves`: the same commit adds the columns that the source alone has, where a clause
    takes all columns or sets one of the same name to it.
    """
    target, full_names = _target(statement, table)
    statement.needs("USING")
    path: tuple[str, ...] = ()
    if statement.takes("("):
        frame = query(statement.until(")"))
        statement.needs(")")
        source = statement.alias("source")
    else:
        text, path, source = _source(statement)
        frame = query(f"SELECT * FROM {text}")
    if source.lower() == target.lower():
        statement.refuse(
            f"the table and the source are both called {source}: write AS and another name"
        )
    if len(path) > 1 and source == path[-1]:
        full_names = (*full_names, (tuple(part.lower() for part in path), source))
    sides = Sides.from_columns(table.schema, frame.schema, target, source, full_names)
    first = statement.at
    plan = _plan(statement, table, sides)
    changes = _new_columns(table, frame, plan) if evolves else []
    if changes:
        table, statement.at = table.altering(*changes), first
        sides = Sides.from_columns(table.schema, frame.schema, target, source, full_names)
        plan = _plan(statement, table, sides)
    return _merged(frame.sparkSession, table, frame, plan, sides, "merge")


def _target(
    statement: Statement, table: Table
) -> tuple[str, tuple[tuple[tuple[str, ...], str], ...]]:
    """Step over the alias of a table; return it, or the table's name, and the full names that the table has without one."""
    name = _last(table.name)
    alias = statement.alias(name)
    if alias != name:
        return alias, ()
    path = tuple(table.name.lower().partition("@")[0].split("."))
    return alias, ((path, alias), (("spark_catalog", *path), alias))


def _plan(statement: Statement, table: Table, sides: Sides) -> MergePlan:
    """Step over ON and the clauses; return them as a plan."""
    statement.needs("ON")
    on, residual = _equalities(statement.expression("WHEN"), sides)
    clauses = _clauses(statement, sides, table)
    return MergePlan(on=on, condition=residual, clauses=clauses)


def _new_columns(table: Table, frame: DataFrame, plan: MergePlan) -> list[AddColumn]:
    """Return the columns of the source that a MERGE WITH SCHEMA EVOLUTION adds to the table."""
    table_names = {name.lower() for name in table.schema.names}
    clauses = [clause for clause in plan.clauses if clause.action is not Action.DELETE]
    takes_all = any(clause.values is None for clause in clauses)
    values = [pair for clause in clauses for pair in (clause.values or {}).items()]
    return [
        AddColumn((field.name,), field.type)
        for field in arrow_schema_of(frame.schema)
        if field.name.lower() not in table_names
        and (takes_all or (field.name, quoted_source(field.name)) in values)
    ]


def _source(statement: Statement) -> tuple[str, tuple[str, ...], str]:
    """Step over the name of a source, its time travel and its alias; return their text, the name, and what it is called."""
    first = statement.at
    text = statement.until("ON")
    behind = Statement.from_text(f"TABLE {text}")
    tables = [] if behind is None else relations(behind.trees())
    if not tables or isinstance(tables[0].this, exp.Func):
        statement.at = first
        statement.not_done("a function of rows is a query: USING (SELECT * FROM …) AS s")
    path = tuple(part.name for part in tables[0].parts)
    return text, path, tables[0].alias or path[-1]


def update_statement(spark: SparkSession, table: Table, statement: Statement) -> WriteResult | None:
    """Run an UPDATE, from behind the table's name."""
    target, full_names = _target(statement, table)
    statement.needs("SET")
    sides = Sides.from_columns(table.schema, StructType(), target, "_lsm_source", full_names)
    values = _assigned(statement, sides, table, Match.NOT_MATCHED_BY_SOURCE, ("WHERE", "FROM"))
    if statement.word() == "FROM":
        statement.not_done(
            "MERGE INTO … USING … WHEN MATCHED THEN UPDATE takes values of another table"
        )
    condition = statement.expression() if statement.takes("WHERE") else None
    statement.ended()
    clause = Clause(
        match=Match.NOT_MATCHED_BY_SOURCE, action=Action.UPDATE, condition=condition, values=values
    )
    return _merged(
        spark, table, None, MergePlan(on=(), condition=None, clauses=(clause,)), sides, "update"
    )


def delete_statement(spark: SparkSession, table: Table, statement: Statement) -> WriteResult | None:
    """Run a DELETE FROM, from behind the table's name."""
    target, full_names = _target(statement, table)
    sides = Sides.from_columns(table.schema, StructType(), target, "_lsm_source", full_names)
    condition = statement.expression() if statement.takes("WHERE") else None
    statement.ended()
    clause = Clause(match=Match.NOT_MATCHED_BY_SOURCE, action=Action.DELETE, condition=condition)
    return _merged(
        spark, table, None, MergePlan(on=(), condition=None, clauses=(clause,)), sides, "delete"
    )


def _merged(
    spark: SparkSession,
    table: Table,
    frame: DataFrame | None,
    plan: MergePlan,
    sides: Sides,
    operation: str,
) -> WriteResult | None:
    session = table.session
    identity = commit_identity(session, operation=operation)
    return write_looked_up(session, identity, staged_merge(session, frame, plan, sides, spark))


def _last(name: str) -> str:
    return name.rpartition(".")[2].partition("@")[0]


def _equalities(
    condition: SparkSql, sides: Sides
) -> tuple[tuple[tuple[str, str], ...], SparkSql | None]:
    """Return the pairs of columns that `a.x = b.y AND …` equates, and the residual condition."""
    parts = [] if condition.tree is None else conjuncts(condition.tree)
    pairs = {id(part): pair for part in parts if (pair := _pair(part, sides)) is not None}
    equal = tuple(dict.fromkeys(pairs.values()))
    if pairs and len(pairs) == len(parts):
        return equal, None
    places = [
        (part.this.parts[0].meta["start"], part.expression.parts[-1].meta["end"] + 1, "TRUE")
        for part in parts
        if id(part) in pairs
    ]
    return equal, SparkSql.parsed(replaced(condition.text, places)) if places else condition


def _pair(part: exp.Expr, sides: Sides) -> tuple[str, str] | None:
    """Return the columns of the table and of the source that "t.x = s.y" compares; None for any other condition."""
    operands = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
    if not operands or not all(isinstance(operand, exp.Column) for operand in operands):
        return None
    names = dict(place for operand in operands if (place := sides.place(operand)) is not None)
    return (names[sides.target], names[sides.source]) if len(names) == 2 else None


def _clauses(statement: Statement, sides: Sides, table: Table) -> tuple[Clause, ...]:
    clauses = []
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
        condition = None
        if statement.takes("AND"):
            condition = _value(statement.expression("THEN"), sides, match)
        statement.needs("THEN")
        action, values = _action(statement, sides, table, match)
        if (action is Action.INSERT) is not (match is Match.NOT_MATCHED):
            statement.refuse("WHEN NOT MATCHED inserts, the others update or delete")
        clauses.append(Clause(match=match, action=action, condition=condition, values=values))
    if not clauses:
        statement.refuse("a MERGE has at least one WHEN")
    return tuple(clauses)


def _action(
    statement: Statement, sides: Sides, table: Table, match: Match
) -> tuple[Action, dict[str, Any] | None]:
    if statement.takes("DELETE"):
        return Action.DELETE, None
    if statement.takes("UPDATE"):
        statement.needs("SET")
        if statement.takes("*"):
            return Action.UPDATE, None
        return Action.UPDATE, _assigned(statement, sides, table, match, ("WHEN",))
    statement.needs("INSERT")
    if statement.takes("*"):
        return Action.INSERT, None
    names = [_column_path((name,), sides, table)[0] for name in statement.names()]
    statement.needs("VALUES")
    statement.needs("(")
    values = []
    while not statement.takes(")"):
        expression = statement.expression(",")
        # A null becomes the column's default when it is inserted, and stays null in an update.
        values.append(None if is_default(expression.tree) else _value(expression, sides, match))
        statement.takes(",")
    if len(names) != len(values):
        statement.refuse(f"{counted(len(names), 'column')} and {counted(len(values), 'value')}")
    return Action.INSERT, dict(zip(names, values, strict=True))


def _assigned(
    statement: Statement, sides: Sides, table: Table, match: Match, ends: tuple[str, ...]
) -> dict[str, Any]:
    """Step over "a = x, t.b = y, c.field = z"; return the value of each column."""
    values: dict[str, Any] = {}
    fields: dict[str, dict[tuple[str, ...], str]] = {}
    while True:
        column, *inner = _column_path(statement.path(), sides, table)
        statement.needs("=")
        expression = statement.expression(",", *ends)
        if column in values or (column in fields and not inner):
            statement.refuse(f"column {column!r} is set twice")
        if inner:
            path = tuple(name.lower() for name in inner)
            fields.setdefault(column, {})[path] = expression.text
        else:
            values[column] = (
                default_of(table.schema.field(column))
                if is_default(expression.tree)
                else _value(expression, sides, match)
            )
        if not statement.takes(","):
            break
    schema = spark_schema(table.schema.fields)
    for column, texts in fields.items():
        if column in values:
            statement.refuse(f"column {column!r} is set twice")
        owner = f"{quoted(sides.target)}.{quoted(column)}"
        text = _struct_text(schema[column].dataType, owner, texts)
        values[column] = SparkSql.parsed(text)
    return values


def _value(expression: SparkSql, sides: Sides, match: Match) -> Any:
    """Return an expression as a clause has it: a column of the source in the engine's own words."""
    place = sides.place(expression.tree, match) if isinstance(expression.tree, exp.Column) else None
    if place is None or place[0] != sides.source:
        return expression
    return quoted_source(place[1])


def _struct_text(kind: DataType, owner: str, texts: dict[tuple[str, ...], str]) -> str:
    """Return a structure in SQL whose fields are those of `owner`, but for those with a text, by their paths."""
    names = [name.lower() for name in kind.names] if isinstance(kind, StructType) else []
    for path in texts:
        if path[0] not in names:
            raise InvalidInputError(
                f"{owner} has no field {path[0]!r} to set",
                kind=ErrorKind.NO_SUCH_COLUMN,
                column=".".join((owner, *path)),
            )
    assert isinstance(kind, StructType)
    parts = []
    for field in kind.fields:
        inner = f"{owner}.{quoted(field.name)}"
        within = {path[1:]: text for path, text in texts.items() if path[0] == field.name.lower()}
        if within and () not in within:
            inner = _struct_text(field.dataType, inner, within)
        parts += [literal_of(field.name), within.get((), inner)]
    return f"named_struct({', '.join(parts)})"


def _column_path(path: tuple[str, ...], sides: Sides, table: Table) -> tuple[str, ...]:
    """Return the column that is set, as the table writes it, and the fields within it."""
    names = {column.lower(): column for column in table.schema.names}
    lower = tuple(part.lower() for part in path)
    qualifiers = (
        tuple(table.name.lower().split(".")),
        (_last(table.name).lower(),),
        (sides.target.lower(),),
        (),
    )
    for qualifier in qualifiers:
        column, *fields = path[len(qualifier) :] or ("",)
        if lower[: len(qualifier)] == qualifier and column.lower() in names:
            return names[column.lower()], *fields
    return (path[-1],)  # no column, which the plan's check names

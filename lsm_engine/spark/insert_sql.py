"""INSERT INTO, INSERT OVERWRITE and TRUNCATE TABLE as text: rows by position or name, in the columns' types."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import TimestampType

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.units import counted
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.spark.arrow_rows import spark_schema
from lsm_engine.spark.statement import Statement, quoted
from lsm_engine.spark.store_assignment import assigned, sql_name
from lsm_engine.table.table import Table

Query = Callable[[str], DataFrame]
_EPOCH = datetime.fromtimestamp(0, UTC)
_QUERY_WORDS = ("SELECT", "WITH", "VALUES", "FROM", "(")


def insert_statement(table: Table, statement: Statement, query: Query) -> WriteResult | None:
    """Do an INSERT whose table's name was read already. `query`: runs the rest of it."""
    replaces = any(token.text.upper() == "OVERWRITE" for token in statement.tokens[:2])
    constant, partition = _partition(table, statement, query, replaces=replaces)
    by_name = statement.takes("BY", "NAME")
    names = None
    if statement.word() == "(" and statement.word(1) not in _QUERY_WORDS:
        names = statement.names()
    rows = query(statement.rest())
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


def _partition(
    table: Table, statement: Statement, query: Query, *, replaces: bool
) -> tuple[dict[str, str], dict[str, object] | None]:
    """Step over PARTITION (…); return the columns that it sets, as SQL, and the partition to replace."""
    constant: dict[str, str] = {}
    known = {name.lower(): name for name in table.schema.names}
    if statement.takes("PARTITION"):
        for part in statement.listed():
            inner = Statement.of(part)
            assert inner is not None
            column = inner.name()
            if column.lower() not in known:
                statement.refuse(f"the table has no column {column!r}")
            if inner.takes("="):
                constant[known[column.lower()]] = inner.rest()
    if not constant:
        return constant, None
    schema = spark_schema(table.schema.fields)
    # try_cast: a plain cast makes null, or another number, of what does not fit where the session is not ANSI.
    cast = {
        name: f"try_cast(({value}) AS {sql_name(schema[name].dataType)})"
        for name, value in constant.items()
    }
    given = [f"({value})" for value in constant.values()]
    found = query(f"SELECT {', '.join((*cast.values(), *given))}")
    found = found.toDF(*map(str, range(2 * len(cast))))
    # Collected as they are, instants come by the clock of this process, which is no zone of the session's.
    instants = {f.name for f in found.schema if isinstance(f.dataType, TimestampType)}
    made = [sql.unix_micros(n) if n in instants else sql.col(n) for n in found.columns[: len(cast)]]
    shown = [
        sql.col(n).cast("timestamp_ntz" if n in instants else found.schema[n].dataType)
        for n in found.columns[len(cast) :]
    ]
    row = found.select(*made, *shown).collect()[0]
    values = [
        _EPOCH + timedelta(microseconds=value) if n in instants and value is not None else value
        for n, value in zip(found.columns, row[: len(cast)], strict=False)
    ]
    for (name, text), value, before in zip(constant.items(), values, row[len(cast) :], strict=True):
        if _is_other(before, value):
            raise InvalidInputError(
                f"PARTITION: {text} is no value of column {name!r}, {schema[name].dataType.simpleString()}",
                kind=ErrorKind.INVALID_ROWS,
                column=name,
            )
    return cast, dict(zip(cast, values, strict=True)) if replaces else None


def _is_other(given: object, value: object) -> bool:
    """Whether a value that was given became another in its column's type: 1.5 would be 1, a time its day."""
    if value is None or given is None:
        return value is not given
    if isinstance(value, int | Decimal) and isinstance(given, int | float | Decimal):
        return value != given
    return isinstance(given, datetime) and type(value) is date and given.time() != time.min


def write_rows(
    table: Table,
    rows: DataFrame,
    partition: dict[str, object] | None = None,
    *,
    replaces: bool = False,
    by_position: bool = False,
) -> WriteResult | None:
    """Write a DataFrame's rows as SQL does: upserted, or appended where there is no key, or in the place of others."""
    rows = assigned(rows, spark_schema(table.schema.fields), by_position=by_position)
    if replaces:
        return table.overwrite(rows, partition)
    return table.upsert(rows) if table.schema.has_primary_key else table.append(rows)

"""`sql(spark, text)`: statements about lsm tables that Spark cannot do itself; all others it gets as they are.

CREATE TABLE … USING lsm [AS …]   DROP TABLE   INSERT INTO   INSERT OVERWRITE   MERGE INTO   UPDATE   DELETE FROM
ALTER TABLE   COMMENT ON TABLE   SHOW TBLPROPERTIES   CALL sys.procedure(…)   shop.orders VERSION AS OF 3   TIMESTAMP AS OF '…'   `shop.orders$snapshots`   SHOW TABLES
"""

import re
from collections.abc import Callable
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from sqlglot.tokenizer_core import Token, TokenType

from lsm_engine.base.errors import AlreadyExistsError, InvalidInputError
from lsm_engine.catalog.names import TableName
from lsm_engine.meta.row_counts import RowCounts, row_counts_of
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.schema.changes import SetColumnComment
from lsm_engine.spark.alter_sql import alter_statement, comment_statement, properties_of
from lsm_engine.spark.arrow_rows import arrow_schema_of
from lsm_engine.spark.merge_columns import quoted
from lsm_engine.spark.merge_sql import delete_statement, merge_statement, update_statement
from lsm_engine.spark.procedures import call_statement
from lsm_engine.spark.session import is_classic
from lsm_engine.spark.session_tables import SessionTables
from lsm_engine.spark.statement import Statement
from lsm_engine.spark.table_references import NAMES, dotted, is_relation, travel
from lsm_engine.table.table import Table

PRIMARY_KEY = "primary-key"
_LSM = "lsm"
_SYSTEM = re.compile(r"(?P<table>[^$@]+)(?:@(?P<branch>[^$]+))?(?:\$(?P<system>\w+))?")


def sql(spark: SparkSession, text: str) -> DataFrame:
    """Run one SQL statement; what Spark cannot do with lsm tables is done here, the rest by `spark.sql`.

    Tables are those of the session's catalog: `register(spark, warehouse=…)`. CREATE TABLE … USING lsm takes
    columns, PARTITIONED BY, COMMENT, and options by TBLPROPERTIES or OPTIONS, the key as 'primary-key' =
    'a, b'. A table that a statement names is made known to Spark, so that `spark.sql` finds it from then
    on. Writes return one row with the counts of rows. Raises InvalidInputError for a statement that is not
    understood, and as the verbs of `Table` do.
    """
    statement = Statement.of(text)
    if statement is None:
        return spark.sql(text)
    with closing(_Session(spark)) as session:
        return session.run(statement)


class _Session:
    """One statement's look at the catalog."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tables = SessionTables(spark)
        self._views: set[str] = set()

    def close(self) -> None:
        """Close the catalog; what Spark has analysed needs no view any more, unless it analyses elsewhere."""
        if is_classic(self._spark):
            for view in self._views:
                self._spark.catalog.dropTempView(view)
        self._tables.catalog.close()

    def run(self, statement: Statement) -> DataFrame:
        """Do what a statement asks for."""
        first = statement.word()
        if first == "CREATE" and statement.word(1) == "TABLE" and _uses_lsm(statement):
            return self._create(statement)
        if first == "CALL":
            return call_statement(self._spark, self._tables, statement)
        if first == "SHOW" and statement.word(1) == "TABLES":
            return self._show(statement)
        target = self._target(statement)
        if target is None:
            return self._spark.sql(self._rewritten(statement))
        if first == "DROP":
            return self._drop(target)
        if first == "INSERT":
            return self._insert(statement, self._tables.table(target))
        if first in ("ALTER", "COMMENT"):
            return self._alter(
                statement, target, alter_statement if first == "ALTER" else comment_statement
            )
        table = self._tables.table(target)
        if first == "SHOW":
            return self._spark.createDataFrame(
                properties_of(table, statement), "key string, value string"
            )
        self._mount(statement)
        if first == "MERGE":
            return _counted(self._spark, merge_statement(self._spark, table, statement, self.query))
        verb = update_statement if first == "UPDATE" else delete_statement
        return _counted(self._spark, verb(self._spark, table, statement))

    def query(self, text: str) -> DataFrame:
        """Return what a query gives, of lsm tables too."""
        statement = Statement.of(text)
        assert statement is not None
        return self._spark.sql(self._rewritten(statement))

    def _target(self, statement: Statement) -> str | None:
        """Return the lsm table that a statement changes, and step over its name; None for any other."""
        first = statement.at
        for words in (
            ("DROP", "TABLE", "IF", "EXISTS"),
            ("DROP", "TABLE"),
            ("INSERT", "INTO", "TABLE"),
            ("INSERT", "INTO"),
            ("INSERT", "OVERWRITE", "TABLE"),
            ("INSERT", "OVERWRITE"),
            ("MERGE", "INTO"),
            ("DELETE", "FROM"),
            ("ALTER", "TABLE"),
            ("COMMENT", "ON", "TABLE"),
            ("SHOW", "TBLPROPERTIES"),
            ("UPDATE",),
        ):
            if statement.takes(*words):
                found = self._tables.named(statement.name().partition("@")[0])
                if found is not None:
                    return found
                statement.at = first
                return None
        return None

    # --- tables ----------------------------------------------------------------------------------

    def _create(self, statement: Statement) -> DataFrame:
        statement.needs("CREATE", "TABLE")
        ignores = statement.takes("IF", "NOT", "EXISTS")
        name = self._tables.full_name(statement.name())
        columns = ", ".join(statement.listed()) if statement.word() == "(" else None
        options: dict[str, str] = {}
        partitions: list[str] = []
        comment: str | None = None
        while not statement.done and statement.word() not in ("AS", "SELECT", "WITH", "VALUES"):
            if statement.takes("USING"):
                statement.name()
            elif statement.takes("TBLPROPERTIES") or statement.takes("OPTIONS"):
                options |= statement.properties()
            elif statement.takes("PARTITIONED", "BY"):
                partitions = [part.strip("` ") for part in statement.listed()]
            elif statement.takes("COMMENT"):
                comment = statement.literal()
            elif statement.word() == "LOCATION":
                statement.refuse(
                    "a table of the catalog lies in its warehouse; open one elsewhere with "
                    "spark.sql(\"CREATE TABLE … USING lsm LOCATION '…'\"), without columns"
                )
            else:
                statement.refuse(
                    "after the columns come USING, PARTITIONED BY, COMMENT and TBLPROPERTIES"
                )
        rows = None if statement.done else self._rows_of(statement, columns)
        if self._tables.named(name) is not None or _is_there(self._spark, name):
            if ignores:
                return _nothing(self._spark)
            raise AlreadyExistsError("a table of this name is there", table=name)
        if columns is None and rows is None:
            statement.refuse("a new table needs columns, or AS and a query")
        assert rows is not None or columns is not None
        schema = rows.schema if rows is not None else _columns_of(columns or "")
        key = options.pop(PRIMARY_KEY, "")
        return self._created(name, schema, key, partitions, options, comment, rows)

    def _created(
        self,
        name: str,
        schema: StructType,
        key: str,
        partitions: list[str],
        options: dict[str, str],
        comment: str | None,
        rows: DataFrame | None,
    ) -> DataFrame:
        table = self._tables.catalog.create_table(
            name,
            arrow_schema_of(schema),
            primary_key=[part.strip("` ") for part in key.split(",") if part.strip()],
            partitioned_by=partitions,
            options=options,
            comment=comment,
        )
        try:
            comments = [
                SetColumnComment(name=field.name, comment=field.metadata["comment"])
                for field in schema.fields
                if field.metadata.get("comment")
            ]
            if comments:
                table.alter(*comments)
            if rows is not None:
                _write(table, rows)
        except BaseException:
            self._tables.catalog.drop_table(name)
            raise
        self._tables.mount(name)
        return _nothing(self._spark)

    def _alter(
        self, statement: Statement, name: str, verb: Callable[[Table, Statement], None]
    ) -> DataFrame:
        if statement.takes("RENAME", "TO"):
            new = self._tables.full_name(statement.name())
            statement.ended()
            self._tables.catalog.rename_table(name, new)
            self._tables.unmount(name)
            self._tables.mount(new)
            return _nothing(self._spark)
        verb(self._tables.table(name), statement)
        self._tables.mount(name)
        return _nothing(self._spark)

    def _rows_of(self, statement: Statement, columns: str | None) -> DataFrame:
        statement.takes("AS")
        if columns is not None:
            statement.refuse(
                "CREATE TABLE … AS takes its columns from the query; leave out the others"
            )
        return self.query(statement.rest())

    def _drop(self, name: str) -> DataFrame:
        self._tables.unmount(name)
        self._tables.catalog.drop_table(name)
        return _nothing(self._spark)

    def _show(self, statement: Statement) -> DataFrame:
        """Return Spark's tables of a database, and those of the catalog that it does not know."""
        shown = self._spark.sql(statement.text)
        statement.needs("SHOW", "TABLES")
        of = statement.takes("IN") or statement.takes("FROM")
        database = statement.name() if of else self._spark.catalog.currentDatabase()
        if not statement.done or database not in self._tables.catalog.list_databases():
            return shown
        known = {row["tableName"] for row in shown.collect()}
        more = [
            (database, name, False)
            for name in self._tables.catalog.list_tables(database)
            if name not in known
        ]
        return shown.union(self._spark.createDataFrame(more, shown.schema)) if more else shown

    # --- rows ------------------------------------------------------------------------------------

    def _insert(self, statement: Statement, table: Table) -> DataFrame:
        replaces = any(token.text.upper() == "OVERWRITE" for token in statement.tokens[:2])
        fixed: dict[str, str | None] = {}
        if statement.takes("PARTITION"):
            for part in statement.listed():
                inner = Statement.of(part)
                assert inner is not None
                column = inner.name()
                fixed[column] = inner.rest() if inner.takes("=") else None
        by_name = statement.takes("BY", "NAME")
        names = (
            [part.strip("` ") for part in statement.listed()] if _lists_columns(statement) else None
        )
        rows = self.query(statement.rest())
        constant = {name: value for name, value in fixed.items() if value is not None}
        if not by_name:
            names = names or [name for name in table.schema.names if name not in constant]
            if len(names) != len(rows.columns):
                raise InvalidInputError(
                    f"the query gives {len(rows.columns)} columns for {len(names)} of the table",
                    columns=names,
                    query=rows.columns,
                )
            rows = rows.toDF(*names)
        for name, value in constant.items():
            rows = rows.selectExpr("*", f"{value} AS {quoted(name)}")
        partition = None
        if replaces and constant:
            partition = self.query(
                "SELECT "
                + ", ".join(f"{value} AS {quoted(name)}" for name, value in constant.items())
            )
        one = None if partition is None else partition.collect()[0].asDict()
        return _counted(self._spark, _write(table, rows, one, replaces=replaces))

    # --- names in queries ------------------------------------------------------------------------

    def _mount(self, statement: Statement) -> None:
        self._rewritten(statement)

    def _rewritten(self, statement: Statement) -> str:
        """Return a statement whose lsm tables Spark finds; those of the past are replaced by views."""
        text, tokens = statement.text, statement.tokens
        made, after, at = [], 0, 0
        while at < len(tokens):
            end, name = dotted(tokens, at)
            if name is None:
                at += 1
                continue
            found = self._replaced(tokens, at, end, name)
            if found is not None:
                end, replacement = found
                made += [text[after : tokens[at].start], replacement]
                after = tokens[end - 1].end + 1
            at = end
        return "".join([*made, text[after:]])

    def _replaced(
        self, tokens: list[Token], at: int, end: int, name: str
    ) -> tuple[int, str] | None:
        """Return where a name of the past ends, and the view in its place; else make the table known."""
        parts = _SYSTEM.fullmatch(name)
        if parts is None or (not self._tables.is_name(parts["table"]) and "." in parts["table"]):
            self._prefix(name)
            return None
        table = self._tables.named(parts["table"])
        if table is None or not is_relation(tokens, at):
            return None
        options, last = travel(tokens, end)
        if not options and parts["system"] is None and parts["branch"] is None:
            self._tables.mount(table)
            return None
        view = self._tables.view(table, parts["branch"], parts["system"], options)
        self._views.add(view)
        aliased = last < len(tokens) and tokens[last].token_type in (*NAMES, TokenType.ALIAS)
        plain = quoted(TableName.parse(table).table)
        return last, view if aliased else f"{view} AS {plain}"

    def _prefix(self, name: str) -> None:
        """Make `shop.orders` known where a column is written with it: shop.orders.id."""
        table = ".".join(name.split(".")[:2])
        if self._tables.is_name(table):
            self._tables.mount(self._tables.named(table) or table)


def _uses_lsm(statement: Statement) -> bool:
    return any(
        token.text.upper() == "USING" and following.text.lower() == _LSM
        for token, following in zip(statement.tokens, statement.tokens[1:], strict=False)
    ) and not any(
        token.text.upper() == "LOCATION" for token in statement.tokens[: _first(statement, "AS")]
    )


def _first(statement: Statement, word: str) -> int:
    found = [at for at, token in enumerate(statement.tokens) if token.text.upper() == word]
    return found[0] if found else len(statement.tokens)


def _lists_columns(statement: Statement) -> bool:
    """Whether "(a, b)" comes next, and not a query in brackets."""
    return statement.word() == "(" and statement.word(1) not in (
        "SELECT",
        "WITH",
        "VALUES",
        "FROM",
        "(",
    )


def _write(
    table: Table,
    rows: DataFrame,
    partition: dict[str, object] | None = None,
    *,
    replaces: bool = False,
) -> WriteResult | None:
    if replaces:
        return table.overwrite(rows, partition)
    return table.upsert(rows) if table.schema.has_primary_key else table.append(rows)


def _columns_of(text: str) -> StructType:
    """Return columns as Spark reads them: id BIGINT NOT NULL COMMENT '…', …"""
    schema = StructType.fromDDL(text)
    assert isinstance(schema, StructType)
    return schema


def _is_there(spark: SparkSession, name: str) -> bool:
    return spark.catalog.tableExists(name)


def _nothing(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], StructType())


def _counted(spark: SparkSession, made: WriteResult | None) -> DataFrame:
    """Return the counts of a write as one row; null where nobody counted."""
    counts = RowCounts() if made is None else row_counts_of(made.properties)
    row = (
        None if made is None else made.id,
        *((None,) * 3 if counts is None else (counts.inserted, counts.updated, counts.deleted)),
    )
    return spark.createDataFrame(
        [row],
        "snapshot_id bigint, num_inserted_rows bigint, num_updated_rows bigint, num_deleted_rows bigint",
    )

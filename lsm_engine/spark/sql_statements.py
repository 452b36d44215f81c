"""`sql(spark, text)`: statements about lsm tables that Spark cannot do itself; all others it gets as they are.

CREATE TABLE … USING lsm [AS …]   DROP TABLE   INSERT INTO   INSERT OVERWRITE   TRUNCATE TABLE   MERGE INTO   UPDATE
DELETE FROM   ALTER TABLE   COMMENT ON TABLE   DESCRIBE EXTENDED   SHOW CREATE TABLE, PARTITIONS, TBLPROPERTIES   CALL sys.procedure(…)   shop.orders VERSION AS OF 3   TIMESTAMP AS OF '…'   `shop.orders$snapshots`   SHOW TABLES
"""

import re
from collections.abc import Callable
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType
from sqlglot.tokenizer_core import TokenType

from lsm_engine.base.errors import AlreadyExistsError, ErrorKind, InvalidInputError
from lsm_engine.catalog.names import TableName
from lsm_engine.meta.row_counts import RowCounts, row_counts_of
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.spark.alter_sql import alter_statement, comment_statement
from lsm_engine.spark.arrow_rows import frame_of_rows
from lsm_engine.spark.create_sql import create_statement
from lsm_engine.spark.describe_sql import (
    Shown,
    describe_statement,
    show_create_statement,
    show_partitions_statement,
    show_properties_statement,
)
from lsm_engine.spark.insert_sql import insert_statement
from lsm_engine.spark.merge_sql import delete_statement, merge_statement, update_statement
from lsm_engine.spark.procedures import call_statement
from lsm_engine.spark.session import is_classic
from lsm_engine.spark.session_tables import SessionTables
from lsm_engine.spark.statement import Statement, quoted
from lsm_engine.spark.table_references import NAMES, dotted, is_relation, travel
from lsm_engine.table.table import Table

_LSM = "lsm"
_SECOND_DIGITS = 11
"""More digits than seconds since 1970 have for three thousand years, and fewer than milliseconds have today."""
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
        if first in ("CREATE", "REPLACE") and _makes_table(statement) and _uses_lsm(statement):
            return self._create(statement)
        if first == "CALL":
            return call_statement(self._spark, self._tables, statement)
        if first == "SHOW" and statement.word(1) == "TABLES":
            return self._show(statement)
        target = self._target(statement)
        if target is None:
            opened = self._opened(statement) if first == "INSERT" else None
            if opened is not None:
                return _counted(self._spark, insert_statement(opened, statement, self.query))
            return self._spark.sql(self._rewritten(statement))
        if first in ("DROP", "ALTER", "COMMENT") and "@" in target:
            raise InvalidInputError(
                f"{first} changes a whole table: leave the branch out, or CALL sys.delete_branch to drop one",
                kind=ErrorKind.INVALID_NAME,
                table=target,
            )
        if first == "DROP":
            return self._drop(statement, target)
        if first == "INSERT":
            done = insert_statement(self._tables.table(target), statement, self.query)
            return _counted(self._spark, done)
        if first in ("ALTER", "COMMENT"):
            return self._alter(
                statement, target, alter_statement if first == "ALTER" else comment_statement
            )
        table = self._tables.table(target)
        shown = _SHOWN.get(f"SHOW {statement.tokens[1].text.upper()}" if first == "SHOW" else first)
        if shown is not None:
            return shown(self._spark, table, statement)
        if first == "TRUNCATE":
            statement.ended()
            return _counted(self._spark, table.overwrite(table.schema.arrow.empty_table(), {}))
        if "@" not in target:
            self._tables.mount(target)
        rest = self._read_anew(statement)
        if first == "MERGE":
            return _counted(self._spark, merge_statement(self._spark, table, rest, self.query))
        verb = update_statement if first == "UPDATE" else delete_statement
        return _counted(self._spark, verb(self._spark, table, rest))

    def query(self, text: str) -> DataFrame:
        """Return what a query gives, of lsm tables too."""
        statement = Statement.of(text)
        assert statement is not None
        return self._spark.sql(self._rewritten(statement))

    def _target(self, statement: Statement) -> str | None:
        """Return the lsm table that a statement changes, and step over its name; None for any other.

        A branch keeps its part of the name: "shop.orders@fix".
        """
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
            ("SHOW", "CREATE", "TABLE"),
            ("SHOW", "PARTITIONS"),
            ("DESCRIBE", "TABLE", "EXTENDED"),
            ("DESCRIBE", "TABLE", "FORMATTED"),
            ("DESCRIBE", "EXTENDED"),
            ("DESCRIBE", "FORMATTED"),
            ("DESC", "TABLE", "EXTENDED"),
            ("DESC", "TABLE", "FORMATTED"),
            ("DESC", "EXTENDED"),
            ("DESC", "FORMATTED"),
            ("TRUNCATE", "TABLE"),
            ("UPDATE",),
        ):
            if statement.takes(*words):
                plain, at, branch = statement.name().partition("@")
                found = self._tables.named(plain)
                if found is not None:
                    return f"{found}@{branch}" if at else found
                statement.at = first
                return None
        return None

    def _opened(self, statement: Statement) -> Table | None:
        """Return the table that Spark's catalog alone has, by its LOCATION, and step over its name; None for others."""
        first = statement.at
        statement.at += 2  # INSERT INTO, or OVERWRITE
        statement.takes("TABLE")
        opened = None if statement.done else self._tables.opened(statement.name())
        if opened is None:
            statement.at = first
        return opened

    # --- tables ----------------------------------------------------------------------------------

    def _create(self, statement: Statement) -> DataFrame:
        if not statement.takes("CREATE", "TABLE"):
            statement.refuse(
                "a table is not replaced as one: INSERT OVERWRITE replaces its rows, ALTER TABLE changes it, "
                "or DROP TABLE it first"
            )
        ignores = statement.takes("IF", "NOT", "EXISTS")
        name = self._new_name(statement)
        new = create_statement(statement, name)
        statement.takes("AS")
        rows = None if statement.done else self.query(statement.rest())
        if self._tables.named(name) is not None or _is_there(self._spark, name):
            if ignores:
                return _nothing(self._spark)
            raise AlreadyExistsError("a table of this name is there", table=name)
        new.create(self._tables.catalog, rows)
        self._tables.mount(name)
        return _nothing(self._spark)

    def _alter(
        self, statement: Statement, name: str, verb: Callable[[Table, Statement], None]
    ) -> DataFrame:
        if statement.takes("RENAME", "TO"):
            new = self._new_name(statement)
            statement.ended()
            self._tables.catalog.rename_table(name, new)
            self._tables.unmount(name)
            self._tables.mount(new)
            return _nothing(self._spark)
        verb(self._tables.table(name), statement)
        self._tables.mount(name)
        return _nothing(self._spark)

    def _new_name(self, statement: Statement) -> str:
        """Step over the name that a table gets; InvalidInputError for one that would mean a branch."""
        name = self._tables.full_name(statement.name())
        if "@" in name:
            raise InvalidInputError(
                "an @ in a name means a branch: CALL sys.create_branch makes one",
                kind=ErrorKind.INVALID_NAME,
                table=name,
            )
        return name

    def _drop(self, statement: Statement, name: str) -> DataFrame:
        statement.takes("PURGE")
        statement.ended()
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
        kinds = {field.name: field.dataType for field in shown.schema.fields}
        return shown.union(frame_of_rows(self._spark, more, kinds)) if more else shown

    # --- names in queries ------------------------------------------------------------------------

    def _read_anew(self, statement: Statement) -> Statement:
        """Return what stands behind the target's name, with the tables in it as Spark finds them."""
        rest = Statement.of("" if statement.done else statement.rest())
        assert rest is not None
        made = Statement.of(self._rewritten(rest))
        assert made is not None
        return made

    def _rewritten(self, statement: Statement) -> str:
        """Return a statement whose lsm tables Spark finds; those of the past are replaced by views."""
        text, tokens = statement.text, statement.tokens
        made, after, at = [], 0, 0
        while at < len(tokens):
            end, name = dotted(tokens, at)
            if name is None:
                at += 1
                continue
            found = self._replaced(statement, at, end, name)
            if found is not None:
                end, replacement = found
                made += [text[after : tokens[at].start], replacement]
                after = tokens[end - 1].end + 1
            at = end
        return "".join([*made, text[after:]])

    def _replaced(
        self, statement: Statement, at: int, end: int, name: str
    ) -> tuple[int, str] | None:
        """Return where a name of the past ends, and the view in its place; else make the table known."""
        tokens = statement.tokens
        parts = _SYSTEM.fullmatch(name)
        if parts is None or (not self._tables.is_name(parts["table"]) and "." in parts["table"]):
            self._prefix(name)
            return None
        table = self._tables.named(parts["table"])
        if table is None or not is_relation(tokens, at):
            return None
        asked = travel(tokens, end)
        options, last = {}, end
        if asked is not None:
            option, first, last = asked
            text = statement.text[tokens[first].start : tokens[last - 1].end + 1]
            options = {option: self._millis(text) if option == "as-of" else tokens[first].text}
        if not options and parts["system"] is None and parts["branch"] is None:
            self._tables.mount(table)
            return None
        view = self._tables.view(table, parts["branch"], parts["system"], options)
        self._views.add(view)
        aliased = last < len(tokens) and tokens[last].token_type in (*NAMES, TokenType.ALIAS)
        plain = quoted(TableName.parse(table).table)
        return last, view if aliased else f"{view} AS {plain}"

    def _millis(self, text: str) -> str:
        """Return the moment that an expression of Spark is, by the session's zone; a number is seconds."""
        if text.isdigit() and len(text) > _SECOND_DIGITS:
            raise InvalidInputError(
                "TIMESTAMP AS OF takes a number for seconds since 1970, as Spark does; divide milliseconds "
                "by 1000",
                value=text,
            )
        moment = self.query(f"SELECT unix_millis(try_cast(({text}) AS TIMESTAMP_LTZ))").first()
        if moment is None or moment[0] is None:
            raise InvalidInputError(
                "TIMESTAMP AS OF takes a time, '2024-05-01 08:00:00', with an offset or in the session's zone",
                value=text,
            )
        return str(moment[0])

    def _prefix(self, name: str) -> None:
        """Make `shop.orders` known where a column is written with it: shop.orders.id."""
        table = ".".join(name.split(".")[:2])
        if self._tables.is_name(table):
            self._tables.mount(self._tables.named(table) or table)


_SHOWN: dict[str, Shown] = {
    "DESC": describe_statement,
    "DESCRIBE": describe_statement,
    "SHOW CREATE": show_create_statement,
    "SHOW PARTITIONS": show_partitions_statement,
    "SHOW TBLPROPERTIES": show_properties_statement,
}


def _makes_table(statement: Statement) -> bool:
    """Whether CREATE, or REPLACE, is about a table."""
    words = [statement.word(at) for at in range(4)]
    return words[: words.index("TABLE") if "TABLE" in words else 0] in (
        ["CREATE"],
        ["REPLACE"],
        ["CREATE", "OR", "REPLACE"],
    )


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
    counted = ("num_inserted_rows", "num_updated_rows", "num_deleted_rows")
    return frame_of_rows(spark, [row], dict.fromkeys(("snapshot_id", *counted), LongType()))

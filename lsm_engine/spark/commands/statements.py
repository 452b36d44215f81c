"""`sql(spark, text)`: the statements on lsm tables that Spark cannot run itself. Spark gets all others unchanged.

CREATE TABLE … USING lsm [AS …]   CREATE TABLE … LIKE   DROP TABLE   INSERT INTO   INSERT OVERWRITE   TRUNCATE TABLE   MERGE INTO   UPDATE
DELETE FROM   ALTER TABLE   COMMENT ON TABLE   DESCRIBE EXTENDED, DETAIL, HISTORY   table_changes(…)   SHOW CREATE TABLE, PARTITIONS, TBLPROPERTIES   CALL sys.procedure(…)   shop.orders VERSION AS OF 3   TIMESTAMP AS OF '…'   `shop.orders$snapshots`   SHOW TABLES

A statement changes the table that its name means to Spark's catalog (tables.py), and no other.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructType
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from lsm_engine.api.table import Table
from lsm_engine.base.errors import AlreadyExistsError, ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.catalog.names import TableName
from lsm_engine.format.commit_message import WriteResult
from lsm_engine.format.snapshot import RowCounts
from lsm_engine.inspect.system_tables import TABLES
from lsm_engine.spark.commands.ddl import (
    COUNTED,
    NewTable,
    Shown,
    alter_statement,
    clauses_of,
    comment_statement,
    count_columns,
    create_statement,
    describe_statement,
    detail_statement,
    history_statement,
    like_statement,
    show_create_statement,
    show_partitions_statement,
    show_properties_statement,
)
from lsm_engine.spark.commands.dml import (
    delete_statement,
    drop_partition_statement,
    drops_partition,
    insert_statement,
    merge_statement,
    update_statement,
)
from lsm_engine.spark.commands.procedures import (
    call_statement,
    maintain_statement,
    names_tag_or_branch,
)
from lsm_engine.spark.commands.tables import Place, SessionTables, spark_parts, sql_name
from lsm_engine.spark.jobs import error_of_source, from_spark, remedy
from lsm_engine.spark.operations import change_feed
from lsm_engine.spark.session import AT_WORK, is_classic
from lsm_engine.spark.statement import (
    SparkSql,
    Statement,
    StatementError,
    products,
    relations,
    replaced,
    statement_texts,
    with_names,
    with_parameters,
    word_of,
)
from lsm_engine.spark.types import empty_frame, frame_of_rows, quoted
from lsm_engine.storage.clock import SystemIds

_LSM = "lsm"
_SECOND_DIGITS = 11
"""More digits than seconds since 1970 have for three thousand years, and fewer than milliseconds have today."""
_SYSTEM = re.compile(r"(?P<table>[^$@]+)(?:@(?P<branch>[^$]+))?(?:\$(?P<system>\w+))?")


def sql(
    spark: SparkSession, text: str, args: Mapping[str, Any] | Sequence[Any] | None = None
) -> DataFrame:
    """Run one SQL statement: by the engine if Spark cannot do it with lsm tables, else by `spark.sql`.

    Tables are those of the session's catalog: `register(spark, warehouse=…)`. CREATE TABLE … USING lsm takes
    columns, PARTITIONED BY, COMMENT, and options by TBLPROPERTIES or OPTIONS, the key as 'primary-key' =
    'a, b'. A table that a statement names is made known to Spark, so that `spark.sql` finds it from then
    on. What Spark's catalog has under the name of a table, a view or a table of its own, is what the statement is
    about. `args`: plain values of the parameters in the text, by name (:day) or in their order (?). Writes return one
    row with the counts of rows. Raises InvalidInputError for a statement that is not understood, and as the verbs of
    `Table` do.
    """
    if args:
        text = with_parameters(text, args)
    with _engine_at_work(spark):
        try:
            frame = _result(spark, text)
            return spark.sql(text) if frame is None else frame
        except PySparkException as cause:
            # Spark starts Python to plan a data source: a wrong interpreter shows here first.
            if remedy(str(cause)):
                raise from_spark(
                    cause, label="plan a query"
                ) from None  # its note holds Spark's text
            raise error_of_source(cause) or cause from None


def statements_of(spark: SparkSession) -> Callable[[str], DataFrame | None]:
    """Return the function that takes the statements of `spark.sql`: None for those that Spark shall run as they are."""

    def take(text: str) -> DataFrame | None:
        if getattr(_thread, "is_engine_at_work", False):
            return None
        with _engine_at_work(spark):
            try:
                # Without a place for names no catalog is opened, let alone made, for other people's statements.
                return None if Place.named_in(spark) is None else _result(spark, text)
            except PySparkException as cause:
                # Spark asks the data source for the columns of a state of the past while it reads the query.
                raise error_of_source(cause) or cause from None

    return take


_thread = threading.local()


@contextmanager
def _engine_at_work(spark: SparkSession) -> Iterator[None]:
    """Mark the statements that the engine itself has Spark run inside: they are Spark's as they are.

    The parser in the JVM asks the JVM's thread, since its calls come on other threads of Python than this one.
    """
    before = getattr(_thread, "is_engine_at_work", False)
    context = spark.sparkContext if is_classic(spark) else None
    marked = None if context is None else context.getLocalProperty(AT_WORK)
    _thread.is_engine_at_work = True
    try:
        if context is not None:
            context.setLocalProperty(AT_WORK, "true")
        yield
    finally:
        _thread.is_engine_at_work = before
        if context is not None:
            context.setLocalProperty(AT_WORK, marked)  # type: ignore[arg-type]


def _result(spark: SparkSession, text: str) -> DataFrame | None:
    """Return the result of the last of some statements, which run in order; None for one that Spark runs as it is."""
    texts = statement_texts(text)
    if len(texts) > 1:
        frames = [_result(spark, part) or spark.sql(part) for part in texts]
        return frames[-1]
    statement = Statement.from_text(with_names(text, partial(_constant, spark)))
    if statement is None or (statement.word() in _SETS and "(" not in text):
        return None
    with closing(_Session(spark)) as session:
        if statement.word() != "EXPLAIN":
            return session.run(statement, unchanged=text)
        return session.explain(statement)


def _constant(spark: SparkSession, expression: str) -> str | None:
    """Return the text that a constant expression is; None where Spark does not take it for one."""
    try:
        row = spark.sql(f"SELECT ({expression})").first()
    except PySparkException:  # Spark refuses the whole statement, with its own words
        return None
    return row[0] if row is not None and isinstance(row[0], str) else None


@record
class _Target:
    """The table that a statement changes, or shows. `located`: it is in Spark's catalog alone, by its LOCATION.

    `name`: of the warehouse's catalog. `parts`: of the name that it has in Spark.
    """

    name: str
    parts: tuple[str, ...]
    branch: str = ""
    located: Table | None = None

    @property
    def full_name(self) -> str:
        """Return its name with its branch."""
        return f"{self.name}@{self.branch}" if self.branch else self.name


class _PlannedError(Exception):
    """Ends a statement whose source is only to be explained."""

    def __init__(self, rows: DataFrame) -> None:
        self.rows = rows


class _Session:
    """The catalogs as one statement sees them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tables = SessionTables(spark)
        self._views: list[str] = []
        self._mounted: dict[str, bool] = {}
        self._framed: set[str] = set()
        self._ctes = ""
        self._cte_names: set[str] = set()

    def close(self) -> None:
        """Close the catalog, and drop the views that a write has read."""
        for view in self._views:
            self._spark.catalog.dropTempView(view)
        self._tables.catalog.close()

    def run(self, statement: Statement, *, unchanged: str) -> DataFrame | None:
        """Run the statement; None where Spark runs it as it is, with the same text as `unchanged`."""
        first = statement.word()
        if first in ("CREATE", "REPLACE") and self._makes_lsm_table(statement):
            return self._create(statement)
        if first == "CALL":
            return call_statement(self._spark, self._tables, statement)
        if first == "SHOW" and statement.word(1) == "TABLES":
            return self._show(statement)
        if first == "DROP" and statement.word(1) in _DATABASE:
            statement.at = 2
            statement.takes("IF", "EXISTS")
            database = self._tables.database(statement.path())
            if database is not None:
                return self._drop_database(statement, database)
            statement.at = 0
        self._make_known(statement)
        change = statement
        if first == "WITH":
            change = self._behind_ctes(statement)
        target = self._target(change)
        if target is None:
            return self._by_spark(statement, unchanged=unchanged)
        verb = change.first_words[0]
        show = _shown(change)
        if show is not None:
            return show(self._spark, self._table(target), change)
        done = self._run_change(verb, change, target)
        if not target.branch:  # a branch has no entry in Spark's catalog
            self._tables.refresh(target.parts)
        return done

    def _run_change(self, verb: str, statement: Statement, target: _Target) -> DataFrame:
        """Run a statement that changes a table; return the counts of the rows that it writes."""
        if verb in _MAINTAINS or (verb == "ALTER" and names_tag_or_branch(statement)):
            return maintain_statement(self._spark, self._table(target), statement)
        if verb == "ALTER" and drops_partition(statement):
            table = self._table(target)
            return _counted(self._spark, drop_partition_statement(table, statement, self.query))
        if verb in _OF_SPARKS_CATALOG:
            if target.branch:
                raise InvalidInputError(
                    f"{verb} changes a whole table: leave the branch out, or CALL sys.delete_branch to drop one",
                    kind=ErrorKind.INVALID_NAME,
                    table=target.full_name,
                )
            if verb == "DROP":
                return self._drop(statement, target.name)
            change = alter_statement if verb == "ALTER" else comment_statement
            return self._alter(statement, target.name, change)
        table = self._table(target)
        evolves = statement.first_words == (verb, "WITH")  # SCHEMA EVOLUTION
        if verb == "INSERT":
            result = insert_statement(table, statement, self.query, evolves=evolves)
            return _counted(self._spark, result)
        if verb == "TRUNCATE":
            if statement.word() == "PARTITION":
                statement.not_done("delete its rows: DELETE FROM … WHERE day = '…'")
            statement.ended()
            return _counted(self._spark, table.overwrite(table.schema.arrow.empty_table(), {}))
        if target.located is None:
            self._mount(target.name)
        statement.expression_of = self._with_views
        if verb == "MERGE":
            result = merge_statement(table, statement, self.query, evolves=evolves)
        elif verb == "UPDATE":
            result = update_statement(self._spark, table, statement)
        else:
            result = delete_statement(self._spark, table, statement)
        return _counted(self._spark, result)

    def _table(self, target: _Target) -> Table:
        if target.located is not None:
            return target.located
        table = self._tables.catalog.table(target.name)
        return table.branch(target.branch) if target.branch else table

    def _behind_ctes(self, statement: Statement) -> Statement:
        """Return the write behind WITH …, whose queries it may name from now on; the statement itself where it is none."""
        self._ctes, change = statement.behind_ctes("INSERT", "MERGE", "UPDATE", "DELETE")
        query = Statement.from_text(f"{self._ctes} SELECT 1")
        trees = [] if query is None else query.trees()
        ctes = [cte for tree in trees if isinstance(tree, exp.Query) for cte in tree.ctes]
        self._cte_names = {cte.alias.lower() for cte in ctes}
        return change

    def query(self, text: str) -> DataFrame:
        """Return the rows of a query, which may use lsm tables and the CTEs before its statement."""
        if self._ctes and text.lstrip()[:4].upper() == "WITH":
            text = f"({text})"
        statement = Statement.from_text(self._ctes + text)
        assert statement is not None
        frame = self._by_spark(statement)
        assert frame is not None
        return frame

    def explain(self, statement: Statement) -> DataFrame | None:
        """Return the plan of a statement that changes a table, without running it; None for what Spark explains as it is."""
        statement.takes("EXPLAIN")
        mode = next((word for word in _EXPLAINED if statement.takes(word)), "")
        change = statement.part(statement.at)
        if change.word() == "WITH":
            change = self._behind_ctes(change)
        target = self._target(change)
        verb = change.first_words[0]
        if target is None or verb not in _WRITES:
            return self._by_spark(statement, unchanged=statement.text)
        table = self._table(target)
        lines = ["== Physical Plan ==", f"lsm_engine {verb} {target.full_name} {table.location}"]
        if verb in ("INSERT", "MERGE"):
            run = insert_statement if verb == "INSERT" else merge_statement
            try:
                run(table, change, self._planned)
            except _PlannedError as planned:
                view = self._view(planned.rows)
                plan = self._spark.sql(f"EXPLAIN {mode} SELECT * FROM {view}").first()
                assert plan is not None
                lines.append(plan[0].partition("==\n")[2] if not mode else plan[0])
        return frame_of_rows(self._spark, [("\n".join(lines),)], {"plan": StringType()})

    def _planned(self, text: str) -> DataFrame:
        raise _PlannedError(self.query(text))

    def _view(self, frame: DataFrame) -> str:
        """Return the name of a new temporary view of rows; `close` drops it."""
        name = f"lsm_{SystemIds().new_id().replace('-', '_')}"
        self._views.append(name)
        frame.createOrReplaceTempView(name)
        return name

    def _by_spark(self, statement: Statement, *, unchanged: str | None = None) -> DataFrame | None:
        """Have Spark run a statement, with DataFrames for the names that it does not know.

        None where nothing is left to be done but to hand Spark the text of `unchanged`.
        """
        text, frames = self._rewritten(statement)
        if (
            frames
            and statement.word() in ("CREATE", "CACHE", "ALTER", "DECLARE")
            and not _makes_table(statement)
        ):
            return self._keep_query(statement)
        return None if text == unchanged else self._spark.sql(text, **frames)

    def _with_views(self, expression: SparkSql) -> SparkSql:
        """Return an expression with temporary views for the rows in it that Spark does not know; `close` drops them."""
        tree = expression.tree
        if tree is not None and tree.find(exp.Query, exp.Interval) is None:
            return expression
        statement = Statement.from_text(expression.text)
        assert statement is not None
        text, frames = self._rewritten(statement)
        views = {name: self._view(frame) for name, frame in frames.items()}
        return SparkSql.parsed(text.format(**views) if views else text)

    def _keep_query(self, statement: Statement) -> DataFrame:
        """Run a CREATE TEMPORARY VIEW of rows that Spark has no name for; refuse other statements that store a query.

        Spark keeps a query as text, in which names of this one statement stand.
        """
        statement.takes("CREATE")
        replaces = statement.takes("OR", "REPLACE")
        is_temporary = statement.takes("TEMPORARY", "VIEW") or statement.takes("TEMP", "VIEW")
        name = statement.path() if is_temporary else ()
        if len(name) != 1 or not statement.takes("AS"):
            statement.not_done(
                "of a state of the past, a branch or a system table Spark keeps no query, but CREATE TEMP VIEW name AS "
                "SELECT …; sql(spark, 'SELECT …') is a DataFrame, for createOrReplaceTempView and cache"
            )
        frame = self.query(statement.remainder())
        create = frame.createOrReplaceTempView if replaces else frame.createTempView
        create(quoted(name[0]))
        return empty_frame(self._spark, StructType())

    def _target(self, statement: Statement) -> _Target | None:
        """Return the lsm table that a statement changes or shows, and step over its name; None for any other.

        A branch keeps its part of the name: "shop.orders@fix".
        """
        first = statement.at
        for form in _BEFORE_A_TARGET:
            if statement.takes_form(form):
                if form.endswith(("HISTORY", "DETAIL")) and not statement.is_name:
                    statement.at = first  # a table of this name
                    continue
                describes = form in _PLAIN_DESCRIBE
                if describes and not statement.is_name:
                    break  # of a query
                locates = statement.first_words[0] not in _OF_SPARKS_CATALOG and not describes
                target = self._meant(statement.path(), locates=locates)
                if target is None or (describes and not statement.done):
                    target = None  # of one column, or of what has another kind in front of its name
                    statement.at = first
                return target
        return None

    def _meant(self, parts: tuple[str, ...], *, locates: bool) -> _Target | None:
        *database, last = parts
        if database and last.lower().startswith("branch_") and not self._tables.in_warehouse(parts):
            # Iceberg's name of a branch: shop.orders.branch_fix
            main = self._tables.table_name(tuple(database))
            if main is not None:
                return _Target(name=main, parts=spark_parts(main), branch=last[len("branch_") :])
        table, _, branch = last.partition("@")
        name = self._tables.table_name((*database, table))
        if name is not None:
            return _Target(name=name, parts=spark_parts(name), branch=branch)
        located = self._tables.located(parts) if locates else None
        return (
            None if located is None else _Target(name=".".join(parts), parts=parts, located=located)
        )

    # --- tables ----------------------------------------------------------------------------------

    def _makes_lsm_table(self, statement: Statement) -> bool:
        """Whether a statement makes a table of this format; a copy of another one has its format, unless USING names one."""
        if not _makes_table(statement):
            return False
        source = _source_of_like(statement)
        if source is None or _provider(statement):
            return _uses_lsm(statement) or (source is not None and _provider(statement) == _LSM)
        return self._meant(source, locates=True) is not None

    def _like(self, statement: Statement, name: str) -> NewTable:
        """Return the clauses of a CREATE TABLE … LIKE, from behind LIKE."""
        parts = statement.path()
        target = self._meant(parts, locates=True)
        if target is not None:
            return like_statement(statement, name, clauses_of(self._table(target).schema))
        columns = self._spark.catalog.listColumns(sql_name(parts))
        source = NewTable(
            name=name,
            schema=self._spark.table(sql_name(parts)).schema,
            partitions=tuple(column.name for column in columns if column.isPartition),
        )
        return like_statement(statement, name, source)

    def _create(self, statement: Statement) -> DataFrame:
        creates = statement.takes("CREATE")
        replaces = statement.takes("OR", "REPLACE") or statement.takes("REPLACE")
        statement.needs("TABLE")
        ignores = creates and not replaces and statement.takes("IF", "NOT", "EXISTS")
        name = self._new_name(statement)
        if statement.word() in _CLONES:
            statement.not_done(
                "CREATE TABLE … AS SELECT * FROM … copies the rows; a branch copies no file: CALL sys.create_branch"
            )
        is_like = statement.takes("LIKE")
        new = self._like(statement, name) if is_like else create_statement(statement, name)
        statement.takes("AS")
        rows = None if statement.done else self.query(statement.remainder())
        # Both catalogs: a view of the name in Spark's would hide the new table.
        is_free = self._tables.is_free(name)
        if not creates and is_free:
            raise NotFoundError("there is no table to replace; CREATE TABLE it", table=name)
        if is_free:
            new.create(self._tables.catalog, rows)
        elif replaces and self._tables.table_name(spark_parts(name)) is not None:
            self._replace(new, rows)
        elif ignores:
            return empty_frame(self._spark, StructType())
        else:
            raise AlreadyExistsError("a table of this name is there", table=name)
        self._tables.mount(name)
        return empty_frame(self._spark, StructType())

    def _replace(self, new: NewTable, rows: DataFrame | None) -> None:
        """Put a new table in the place of another, whose rows the new one may come from."""
        catalog, unique = self._tables.catalog, SystemIds().new_id()[:8]
        new_name, old_name = f"{new.name}_new_{unique}", f"{new.name}_old_{unique}"
        replace(new, name=new_name).create(catalog, rows)
        try:
            catalog.rename_table(new.name, old_name)
        except BaseException:
            # A store renames nothing: the old table stays what it is.
            catalog.drop_table(new_name)
            raise
        self._tables.unmount(new.name)
        catalog.rename_table(new_name, new.name)
        catalog.drop_table(old_name)

    def _alter(
        self, statement: Statement, name: str, verb: Callable[[Table, Statement], None]
    ) -> DataFrame:
        if statement.takes("RENAME", "TO"):
            new = self._new_name(statement)
            statement.ended()
            if not self._tables.is_free(new):
                raise AlreadyExistsError("a table or a view of this name is there", table=new)
            # The catalog of the warehouse first: the entries of Spark's can be made again from it.
            self._tables.catalog.rename_table(name, new)
            self._tables.unmount(name)
            self._tables.mount(new)
            return empty_frame(self._spark, StructType())
        verb(self._tables.catalog.table(name), statement)
        self._tables.mount(name)
        return empty_frame(self._spark, StructType())

    def _new_name(self, statement: Statement) -> str:
        """Step over the name that a table gets; InvalidInputError for one that no table may have, or that means a branch."""
        name = self._tables.new_name(statement.path())
        if "@" in name:
            raise InvalidInputError(
                "an @ in a name means a branch: CALL sys.create_branch makes one",
                kind=ErrorKind.INVALID_NAME,
                table=name,
            )
        TableName.parse(name)
        return name

    def _drop(self, statement: Statement, name: str) -> DataFrame:
        statement.takes("PURGE")
        statement.ended()
        self._tables.unmount(name)
        self._tables.catalog.drop_table(name)
        return empty_frame(self._spark, StructType())

    def _drop_database(self, statement: Statement, name: str) -> DataFrame:
        cascades = statement.takes("CASCADE")
        if not cascades:
            statement.takes("RESTRICT")
        statement.ended()
        catalog = self._tables.catalog
        tables = catalog.list_tables(name)
        if tables and not cascades:
            raise InvalidInputError(
                f"database {name!r} has tables; DROP DATABASE … CASCADE drops them and their files",
                tables=tables,
            )
        # Spark refuses a database that it cannot drop, before any file of a table goes.
        self._tables.mount_database(name)
        self._spark.sql(statement.text)
        catalog.drop_database(name, cascade=cascades)
        return empty_frame(self._spark, StructType())

    def _show(self, statement: Statement) -> DataFrame:
        """Return Spark's tables of a database, and those of the catalog that it does not know."""
        # Spark knows only the tables that a statement has named before.
        shown = self._spark.sql(statement.text)
        statement.needs("SHOW", "TABLES")
        has_database = statement.takes("IN") or statement.takes("FROM")
        database = statement.name() if has_database else self._spark.catalog.currentDatabase()
        if not statement.done or database not in self._tables.catalog.list_databases():
            return shown
        spark_names = {row["tableName"] for row in shown.collect()}
        catalog_rows = [
            (database, name, False)
            for name in self._tables.catalog.list_tables(database)
            if name not in spark_names
        ]
        kinds = {field.name: field.dataType for field in shown.schema.fields}
        return (
            shown.union(frame_of_rows(self._spark, catalog_rows, kinds)) if catalog_rows else shown
        )

    def _make_known(self, statement: Statement) -> None:
        """Make databases and tables known to Spark that a statement looks for in Spark's catalog by itself."""
        first, second, third = (statement.word(ahead) for ahead in range(3))
        catalog = self._tables.catalog
        if first == "USE" or (first == "SHOW" and second in _DATABASES):
            for database in catalog.list_databases():
                self._tables.mount_database(database)
        elif (first, second, third) == ("SHOW", "TABLE", "EXTENDED"):
            statement.needs("SHOW", "TABLE", "EXTENDED")
            has_database = statement.takes("IN") or statement.takes("FROM")
            database = statement.name() if has_database else self._spark.catalog.currentDatabase()
            statement.needs("LIKE")
            pattern = re.escape(statement.literal()).replace(r"\*", ".*").replace(r"\|", "|")
            if database in catalog.list_databases():
                self._tables.mount_database(database)
                for name in catalog.list_tables(database):
                    if re.fullmatch(pattern, name, re.IGNORECASE):
                        self._tables.mount(f"{database}.{name}")
            statement.at = 0

    # --- names in queries ------------------------------------------------------------------------

    def _rewritten(self, statement: Statement) -> tuple[str, dict[str, Any]]:
        """Return a statement whose lsm tables Spark finds, and the rows that names in braces stand for in it.

        These are tables of the past, branches, system tables, and tables whose name Spark does not take; in a clause the
        queries of WITH before its statement, too.
        """
        words = {word_of(token) for token in statement.tokens}
        trees = statement.trees() if words & _BEFORE_ROWS else []
        frames: dict[str, Any] = {}
        pieces = products(trees)
        for table in relations(trees):
            rows = self._rows(statement, table)
            if rows is not None:
                frame, shown, end = rows
                name = f"lsm_{len(frames)}"
                frames[name] = frame
                sample = table.args.get("sample")
                first, last = (end, end) if sample is None else sample.meta["place"]
                # Spark takes an alias behind a sample alone.
                alias = "" if table.alias else f"AS {quoted(shown)}"
                behind = _escaped(f" {statement.text[first:last]} {alias}")
                start = table.parts[0].meta["start"]
                pieces[start] = (start, last, f"{{{name}}}{behind}")
        for parts in statement.dotted_names():  # of statements that the parser does not know, too
            for length in (2, 3):
                table_name = self._tables.table_name(parts[:length])
                if table_name is not None and table_name not in self._framed:
                    self._mount(table_name)
        ordered = [pieces[start] for start in sorted(pieces)]
        return replaced(statement.text, ordered, _escaped if frames else str), frames

    def _mount(self, name: str) -> bool:
        """Make a table known to Spark, once a statement; False if Spark refuses its name."""
        if name not in self._mounted:
            self._mounted[name] = self._tables.mount(name)
        return self._mounted[name]

    def _rows(self, statement: Statement, table: exp.Table) -> tuple[DataFrame, str, int] | None:
        """Return the rows that a name stands for, what they are called, and where it ends; else make the table known to Spark."""
        start, end = table.parts[0].meta["start"], table.parts[-1].meta["end"] + 1
        if isinstance(table.this, exp.Func):
            return self._changes(statement, table.this)
        parts = tuple(part.name for part in table.parts)
        moment = table.args.get("version")
        is_clause = statement.first_words[0] != "WITH"
        if is_clause and len(parts) == 1 and parts[0].lower() in self._cte_names:
            return self.query(f"SELECT * FROM {quoted(parts[0])}"), parts[0], end
        *database, last = self._as_system_name(statement, start, parts)
        words = _SYSTEM.fullmatch(last)
        name = words and self._tables.table_name((*database, words["table"]))
        if words is None or name is None:
            return None
        options: dict[str, str] = {}
        if moment is not None and "place" in moment.meta:
            first, end = moment.meta["place"]
            text = statement.text[first:end]
            version = moment.expression.name if moment.expression.is_string else text
            options = {"snapshot-id" if version.isdigit() else "tag": version}
            if moment.name == "TIMESTAMP":
                options = {"as-of": self._millis(text)}
        is_now = not options and words["system"] is None and words["branch"] is None
        if is_now and self._mount(name):
            return None
        self._framed.add(name)
        frame = self._tables.frame(name, words["branch"], words["system"], options)
        return frame, TableName.parse(name).table, end

    def _as_system_name(
        self, statement: Statement, start: int, parts: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the name here of what Iceberg calls `shop.orders.snapshots`: (shop, orders$snapshots); else the same."""
        if len(parts) < 2 or self._tables.in_warehouse(parts):
            return parts
        *owner, last = parts
        name, prefix = last.lower(), last[: last.find("_") + 1].lower()
        is_state = prefix in ("branch_", "tag_")
        is_known = is_state or name in TABLES or name in _TABLES_OF_ICEBERG
        if not is_known or self._tables.table_name(tuple(owner)) is None:
            return parts
        shown = f"{'.'.join(owner)}{'@' if is_state else '$'}"
        if prefix == "branch_":
            return (*owner[:-1], f"{owner[-1]}@{last[len(prefix) :]}")
        if name in TABLES:
            return (*owner[:-1], f"{owner[-1]}${name}")
        statement.go_to(start)
        instead = _TABLES_OF_ICEBERG.get(name, f"{'.'.join(owner)} VERSION AS OF '{last[4:]}'")
        return statement.not_done(f"{last}: {instead.format(table=shown)}")

    def _changes(
        self, statement: Statement, function: exp.Expr
    ) -> tuple[DataFrame, str, int] | None:
        """Return the rows of table_changes('shop.orders', 1, 3); None of a table that is not of this format."""
        if function.name.lower() not in _CHANGE_FUNCTIONS:
            return None
        statement.go_to(function.meta["start"])
        name = statement.path()[-1]
        arguments = statement.listed()
        end = statement.tokens[statement.at - 1].end + 1
        if not arguments or not arguments[0].is_text:
            return None
        target = self._meant(tuple(arguments[0].literal().split(".")), locates=True)
        if target is None:
            return None
        if name.lower() != "table_changes" or len(arguments) not in (2, 3):
            statement.go_to(function.meta["start"])
            statement.refuse(
                "changes are read by table_changes('table', first, last): snapshots or times, both inclusive"
            )
        bounds: dict[str, Any] = {}
        for name, argument in zip(("after", "upto"), arguments[1:], strict=False):
            text = argument.remainder()
            is_id = text.isdigit()
            value = int(text) if is_id else int(self._millis(text))
            # Delta's range begins with its first version, ours behind a snapshot.
            bounds[name if is_id else f"{name}_millis"] = max(value - (name == "after"), 0)
        table = self._table(target)
        frame = change_feed(table.changes(**bounds), table, self._spark)
        return frame, "table_changes", end

    def _millis(self, text: str) -> str:
        """Return the moment that an expression of Spark is, by the session's zone; a number is seconds."""
        if text.isdigit() and len(text) > _SECOND_DIGITS:
            # Milliseconds taken for seconds would be a year far ahead, and so the newest snapshot.
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


_PLAIN_DESCRIBE = ("DESCRIBE [TABLE]", "DESC [TABLE]")
"""Spark itself shows CHAR(n) and VARCHAR(n) of a Python data source as texts of any length."""
_BEFORE_A_TARGET = (
    "DROP TABLE [IF EXISTS]",
    "INSERT [WITH SCHEMA EVOLUTION] INTO [TABLE]",
    "INSERT OVERWRITE [TABLE]",
    "MERGE [WITH SCHEMA EVOLUTION] INTO",
    "DELETE FROM",
    "UPDATE",
    "TRUNCATE TABLE",
    "ALTER TABLE",
    "COMMENT ON TABLE",
    "OPTIMIZE",
    "VACUUM",
    "RESTORE [TABLE]",
    "SHOW TBLPROPERTIES",
    "SHOW CREATE TABLE",
    "SHOW PARTITIONS",
    *(f"{verb} {kind}" for verb in ("DESCRIBE", "DESC") for kind in ("HISTORY", "DETAIL")),
    *(f"{form} {kind}" for form in _PLAIN_DESCRIBE for kind in ("EXTENDED", "FORMATTED")),
    *_PLAIN_DESCRIBE,
)
"""The words before the name of a table that a statement changes, or shows; see `Statement.takes_form`."""
_BEFORE_ROWS = {"FROM", "JOIN", "TABLE", "USING", "DESCRIBE", "DESC", "INTERVAL"}
"""Words without which a statement names no rows."""
_TABLES_OF_ICEBERG = {
    "refs": "SELECT … FROM `{table}tags`, and FROM `{table}branches`",
    "history": "SELECT … FROM `{table}snapshots`, or DESCRIBE HISTORY",
    "metadata_log_entries": "SELECT … FROM `{table}schemas`",
    **dict.fromkeys(("entries", "data_files", "all_data_files", "all_files", "all_entries"), "SELECT … FROM `{table}files`"),
    **dict.fromkeys(("delete_files", "position_deletes", "all_delete_files"), "SELECT … FROM `{table}table_indexes`"),
    "all_manifests": "SELECT … FROM `{table}manifests`",
}  # fmt: skip
"""Metadata tables of Iceberg that have another name here, and where their rows are."""
_CLONES = ("CLONE", "SHALLOW", "DEEP")
_CHANGE_FUNCTIONS = (
    "table_changes",
    "paimon_incremental_query",
    "paimon_incremental_between_timestamp",
)
"""Functions of Delta and paimon-spark that read changes."""
_SETS = ("SET", "RESET", "ADD", "LIST", "CLEAR")
"""Statements about the session alone: no catalog is asked."""
_DATABASE = ("DATABASE", "SCHEMA", "NAMESPACE")
_DATABASES = ("DATABASES", "SCHEMAS", "NAMESPACES")
_EXPLAINED = ("EXTENDED", "CODEGEN", "COST", "FORMATTED")
_WRITES = ("INSERT", "MERGE", "UPDATE", "DELETE", "TRUNCATE")
_MAINTAINS = ("OPTIMIZE", "VACUUM", "RESTORE")
_OF_SPARKS_CATALOG = ("DROP", "ALTER", "COMMENT")
"""Statements about an entry of Spark's catalog that only Spark knows."""
_SHOWN: dict[str, Shown] = {
    "DESC": describe_statement,
    "DESC DETAIL": detail_statement,
    "DESC HISTORY": history_statement,
    "DESCRIBE": describe_statement,
    "DESCRIBE DETAIL": detail_statement,
    "DESCRIBE HISTORY": history_statement,
    "SHOW CREATE": show_create_statement,
    "SHOW PARTITIONS": show_partitions_statement,
    "SHOW TBLPROPERTIES": show_properties_statement,
}


def _shown(statement: Statement) -> Shown | None:
    """Return what shows a table for a statement; None for one that changes it."""
    verb, second = statement.first_words
    # `DESCRIBE detail` and `DESCRIBE history.orders` are about tables of these names.
    is_named = all(token.token_type is TokenType.DOT for token in statement.tokens[2:3])
    return _SHOWN.get(verb if is_named else f"{verb} {second}", _SHOWN.get(verb))


def _makes_table(statement: Statement) -> bool:
    """Whether CREATE, or REPLACE, is about a table."""
    words = [statement.word(index) for index in range(4)]
    return words[: words.index("TABLE") if "TABLE" in words else 0] in (
        ["CREATE"],
        ["REPLACE"],
        ["CREATE", "OR", "REPLACE"],
    )


def _source_of_like(statement: Statement) -> tuple[str, ...] | None:
    """Return the name of the table that a CREATE TABLE … LIKE, or CLONE, is about; None of any other statement."""
    statement.at = statement.index_of("TABLE") + 1
    statement.takes("IF", "NOT", "EXISTS")
    try:
        statement.path()
        _ = statement.takes("SHALLOW") or statement.takes("DEEP")
        is_copy = statement.takes("LIKE") or statement.takes("CLONE")
        return statement.path() if is_copy else None
    except StatementError:  # no name, which whoever reads the statement refuses
        return None
    finally:
        statement.at = 0


def _provider(statement: Statement) -> str:
    """Return the format that USING names; "" where none does."""
    place = statement.index_of("USING") + 1
    return statement.tokens[place].text.lower() if place < len(statement.tokens) else ""


def _uses_lsm(statement: Statement) -> bool:
    """Whether a CREATE TABLE names this format, and no location: Spark's catalog has a table of one."""
    tokens = statement.tokens[: statement.index_of("AS")]
    has_location = any(
        word_of(token) == "LOCATION" and following.token_type is TokenType.STRING
        for token, following in pairwise(tokens)
    )
    return _provider(statement) == _LSM and not has_location


def _escaped(text: str) -> str:
    """Return a text as PySpark's formatter takes it, which puts rows in the place of names in braces."""
    return text.replace("{", "{{").replace("}", "}}")


def _counted(spark: SparkSession, result: WriteResult | None) -> DataFrame:
    """Return the counts of a write as one row; null if the write has none."""
    counts = RowCounts() if result is None else result.row_counts
    row = (None if result is None else result.id, *count_columns(counts))
    return frame_of_rows(spark, [row], {"snapshot_id": LongType(), **COUNTED})

"""CREATE TABLE … USING lsm as text: cut into clauses, columns as Spark reads them."""

from collections.abc import Iterator
from dataclasses import field
from typing import NoReturn

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lsm_engine.base.record import record
from lsm_engine.schema.changes import SchemaChange, SetColumnComment, SetColumnDefault
from lsm_engine.spark.arrow_rows import arrow_schema_of
from lsm_engine.spark.insert_sql import write_rows
from lsm_engine.spark.statement import Statement
from lsm_engine.table.warehouse import Catalog

PRIMARY_KEY = "primary-key"
_QUERY_WORDS = ("AS", "SELECT", "WITH", "VALUES")
_COLUMN_WORDS = (
    "DEFAULT",
    "PRIMARY",
    "COMMENT",
    "NOT",
    "GENERATED",
    "CHECK",
    "REFERENCES",
    "UNIQUE",
)


@record
class NewTable:
    """What a CREATE TABLE asks for. `schema` None: the query's columns."""

    name: str
    schema: StructType | None
    key: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    comment: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)

    def create(self, catalog: Catalog, rows: DataFrame | None) -> None:
        """Make the table, with rows if there are any: all of it or nothing."""
        schema = self.schema if rows is None else rows.schema
        assert schema is not None
        table = catalog.create_table(
            self.name,
            arrow_schema_of(schema),
            primary_key=self.key,
            partitioned_by=self.partitions,
            options=self.options,
            comment=self.comment,
        )
        try:
            changes: list[SchemaChange] = [
                SetColumnComment(path, text) for path, text in comments_of(schema)
            ]
            changes += [SetColumnDefault((name,), text) for name, text in self.defaults.items()]
            if changes:
                table.alter(*changes)
            if rows is not None:
                write_rows(table, rows)
        except BaseException:
            catalog.drop_table(self.name)
            raise


def comments_of(
    kind: DataType, within: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the comments in a type, each with the path of its field, which begins with `within`."""
    match kind:
        case StructType():
            for each in kind.fields:
                path = (*within, each.name)
                if each.metadata.get("comment"):
                    yield path, each.metadata["comment"]
                yield from comments_of(each.dataType, path)
        case ArrayType():
            yield from comments_of(kind.elementType, (*within, "element"))
        case MapType():
            yield from comments_of(kind.valueType, (*within, "value"))
        case _:
            return


def create_statement(statement: Statement, name: str) -> NewTable:
    """Read a CREATE TABLE behind its table's name, up to its query; `name`: the full one."""
    columns = _Columns()
    if statement.word() == "(":
        for part in statement.listed(types=True):
            columns.add(part)
    key: list[str] = columns.key
    options: dict[str, str] = {}
    partitions: list[str] = []
    comment: str | None = None
    while not statement.done and statement.word() not in _QUERY_WORDS:
        if statement.takes("USING"):
            statement.name()
        elif statement.takes("TBLPROPERTIES") or statement.takes("OPTIONS"):
            options |= statement.properties()
        elif statement.takes("PARTITIONED", "BY"):
            partitions = statement.names()
        elif statement.takes("CLUSTERED", "BY"):
            options |= _buckets(statement)
        elif statement.takes("COMMENT"):
            comment = statement.literal()
        elif statement.word() == "LOCATION":
            statement.refuse(
                "a table of the catalog lies in its warehouse; open one elsewhere with "
                "spark.sql(\"CREATE TABLE … USING lsm LOCATION '…'\"), without columns"
            )
        else:
            statement.refuse(
                "after the columns come USING, PARTITIONED BY, CLUSTERED BY … INTO … BUCKETS, COMMENT "
                "and TBLPROPERTIES"
            )
    has_columns = bool(columns.texts)
    if statement.done and not has_columns:
        statement.refuse("a new table needs columns, or AS and a query")
    if has_columns and not statement.done:
        statement.refuse("CREATE TABLE … AS takes its columns from the query; leave out the others")
    listed = [part.strip("` ") for part in options.pop(PRIMARY_KEY, "").split(",") if part.strip()]
    return NewTable(
        name=name,
        schema=columns.schema() if has_columns else None,
        key=tuple(key or listed),
        partitions=tuple(partitions),
        comment=comment,
        options=options,
        defaults=columns.defaults,
    )


class _Columns:
    """The columns of a new table, gathered part by part, and the key that stands among them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.key: list[str] = []
        self.defaults: dict[str, str] = {}

    def add(self, text: str) -> None:
        """Take what stands between two commas: a column, or PRIMARY KEY (…)."""
        part = Statement.of(text)
        assert part is not None
        if part.takes("PRIMARY", "KEY"):
            self.key = part.names()
            _ = part.takes("NOT", "ENFORCED")
            part.ended()
            return
        first = part.tokens[0]
        name = part.name()
        kept = [
            text[first.start : part.tokens[part.at - 1].end + 1],
            part.until(*_COLUMN_WORDS, types=True),
        ]
        while not part.done:
            if part.takes("DEFAULT"):
                default = part.default()
                if default is not None:
                    self.defaults[name] = default
            elif part.takes("PRIMARY", "KEY"):
                _ = part.takes("NOT", "ENFORCED")
                self.key.append(name)
            elif part.takes("NOT", "NULL"):
                kept.append("NOT NULL")
            elif part.takes("COMMENT"):
                kept.append(f"COMMENT {_literal_text(part)}")
            else:
                _refuse_column(part)
        self.texts.append(" ".join(kept))

    def schema(self) -> StructType:
        """Return the columns as Spark reads them."""
        schema = StructType.fromDDL(", ".join(self.texts))
        assert isinstance(schema, StructType)
        return schema


def _refuse_column(part: Statement) -> NoReturn:
    part.refuse("a column has a type, NOT NULL, DEFAULT, PRIMARY KEY and COMMENT, and nothing else")


def _literal_text(part: Statement) -> str:
    """Step over a literal; return it as it was written."""
    token = part.tokens[part.at]
    part.literal()
    return part.text[token.start : token.end + 1]


def _buckets(statement: Statement) -> dict[str, str]:
    """Step over "(a, b) INTO 4 BUCKETS"."""
    keys = statement.names()
    statement.needs("INTO")
    count = statement.literal()
    statement.needs("BUCKETS")
    return {"bucket": count, "bucket-key": ",".join(keys)}

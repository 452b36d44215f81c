"""The statements CREATE TABLE, ALTER TABLE, COMMENT ON, DESCRIBE and SHOW."""

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from lsm_engine.api.catalog import Catalog
from lsm_engine.api.table import Table
from lsm_engine.base.record import record
from lsm_engine.format.snapshot import RowCounts
from lsm_engine.inspect.system_tables import partitions
from lsm_engine.options import core_options
from lsm_engine.spark.commands.dml import write_rows
from lsm_engine.spark.statement import Statement, word_of
from lsm_engine.spark.types import arrow_schema_of, declared_text, frame_of_rows, quoted, spark_type
from lsm_engine.types.arrow_types import declared_column
from lsm_engine.types.column_path import path_text
from lsm_engine.types.schema_changes import (
    AddColumn,
    ChangeType,
    DropColumn,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetColumnComment,
    SetColumnDefault,
    SetComment,
    SetNullable,
    SetOption,
)
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import ArrayType as TypesArrayType
from lsm_engine.types.types import DataField, Root, RowType, ScalarType, type_text
from lsm_engine.types.types import DataType as TypesDataType
from lsm_engine.types.types import MapType as TypesMapType

# -- CREATE TABLE … USING lsm as text: cut into clauses, columns as Spark reads them ---------------

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
    """The clauses of a CREATE TABLE. `schema` None: the query's columns; Arrow's: those of a table of the engine."""

    name: str
    schema: StructType | pa.Schema | None
    key: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    comment: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)

    def create(self, catalog: Catalog, rows: DataFrame | None) -> None:
        """Create the table, with the rows of a query if it has one: all of it or nothing."""
        schema = self.schema if rows is None else rows.schema
        assert schema is not None
        table = catalog.create_table(
            self.name,
            schema if isinstance(schema, pa.Schema) else arrow_schema_of(schema),
            primary_key=self.key,
            partitioned_by=self.partitions,
            options=self.options,
            comment=self.comment,
        )
        try:
            changes: list[SchemaChange] = []
            if isinstance(schema, StructType):  # Arrow's columns bring their comments along
                changes += [SetColumnComment(path, text) for path, text in comments_of(schema)]
            changes += [SetColumnDefault((name,), text) for name, text in self.defaults.items()]
            if changes:
                table.alter(*changes)
            if rows is not None:
                write_rows(table, rows)
        except BaseException:
            # CREATE TABLE … AS is all or nothing: a table without its rows would look finished.
            catalog.drop_table(self.name)
            raise


def comments_of(
    kind: DataType, within: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the comments in a type, each with the path of its field, which begins with `within`."""
    match kind:
        case StructType():
            for field in kind.fields:
                path = (*within, field.name)
                if field.metadata.get("comment"):
                    yield path, field.metadata["comment"]
                yield from comments_of(field.dataType, path)
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
            partitions = _partition_columns(statement)
        elif statement.takes("CLUSTERED", "BY"):
            options |= _buckets(statement)
        elif statement.takes("COMMENT"):
            comment = statement.literal()
        elif statement.word() == "LOCATION":
            _refuse_location(statement)
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
    listed = _taken_key(options)
    return NewTable(
        name=name,
        schema=columns.schema() if has_columns else None,
        key=tuple(key or listed),
        partitions=tuple(partitions),
        comment=comment,
        options=options,
        defaults=columns.defaults,
    )


def like_statement(statement: Statement, name: str, source: NewTable) -> NewTable:
    """Read a CREATE TABLE … LIKE behind the name of its source; return the source's clauses, with those of the statement.

    `name`: the full one of the new table.
    """
    options: dict[str, str] = {}
    while not statement.done:
        if statement.takes("USING"):
            statement.name()
        elif statement.takes("TBLPROPERTIES"):
            options |= statement.properties()
        elif statement.word() == "LOCATION":
            _refuse_location(statement)
        else:
            statement.refuse(
                "after CREATE TABLE … LIKE and its source come USING and TBLPROPERTIES"
            )
    key = tuple(_taken_key(options))
    return replace(source, name=name, key=key or source.key, options={**source.options, **options})


def clauses_of(schema: TableSchema) -> NewTable:
    """Return the clauses that make a table of the same columns, key, partitions, comment and options."""
    return NewTable(
        name="",
        schema=pa.schema(map(declared_column, schema.fields)),
        key=schema.primary_keys,
        partitions=schema.partition_keys,
        comment=schema.comment,
        options=dict(schema.options.texts),
    )


def _taken_key(options: dict[str, str]) -> list[str]:
    """Take the primary key out of properties; return its columns, none where no property names them."""
    return [part.strip("` ") for part in options.pop(PRIMARY_KEY, "").split(",") if part.strip()]


def _refuse_location(statement: Statement) -> NoReturn:
    statement.not_done(
        "a table of the catalog lies in its warehouse; open one elsewhere with "
        "spark.sql(\"CREATE TABLE … USING lsm LOCATION '…'\"), without columns"
    )


_INSTEAD_OF_TRANSFORMS = {
    **dict.fromkeys(
        ("YEAR", "YEARS", "MONTH", "MONTHS", "DAY", "DAYS", "DATE", "HOUR", "HOURS", "DATE_HOUR"),
        "add a column with the computed date or number to the table, write it with each row, and name it here",
    ),
    "BUCKET": "CLUSTERED BY (column) INTO 16 BUCKETS, or the properties 'bucket' and 'bucket-key', divide rows by a hash",
    "TRUNCATE": "add a column with the shortened value to the table, write it with each row, and name it here",
}
"""Transforms of Iceberg and Delta by which rows are partitioned, and what to use."""


def _partition_columns(statement: Statement) -> list[str]:
    """Step over the "(a, b)" of PARTITIONED BY; columns of the table alone make partitions."""
    names = []
    for part in statement.listed():
        if part.word(1) == "(":
            _refuse_transform(part)
        names.append(part.name())
        if not part.done:
            part.refuse(
                "declare the column with its type among the columns, and name it here alone"
            )
    return names


def _refuse_transform(part: Statement) -> NoReturn:
    transform = part.word()
    instead = _INSTEAD_OF_TRANSFORMS.get(
        transform, "add a column with the computed value to the table"
    )
    part.not_done(
        f"partitions are values of columns, and {transform.lower()}(…) is none: {instead}"
    )


class _Columns:
    """The columns of a new table, gathered part by part, and the key that stands among them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.key: list[str] = []
        self.defaults: dict[str, str] = {}

    def add(self, part: Statement) -> None:
        """Add what stands between two commas: a column, or PRIMARY KEY (…)."""
        if part.takes("PRIMARY", "KEY"):
            self.key = part.names()
            _ = part.takes("NOT", "ENFORCED")
            part.ended()
            return
        name = part.name()
        words = [part.since(0), part.until(*_COLUMN_WORDS, types=True)]
        while not part.done:
            if part.takes("DEFAULT"):
                default = part.default()
                if default is not None:
                    self.defaults[name] = default
            elif part.takes("PRIMARY", "KEY"):
                _ = part.takes("NOT", "ENFORCED")
                self.key.append(name)
            elif part.takes("NOT", "NULL"):
                words.append("NOT NULL")
            elif part.takes("COMMENT"):
                first = part.at
                part.literal()
                words.append(f"COMMENT {part.since(first)}")
            else:
                _refuse_column(part)
        self.texts.append(" ".join(words))

    def schema(self) -> StructType:
        """Return the columns as Spark reads them."""
        schema = StructType.fromDDL(", ".join(self.texts))
        assert isinstance(schema, StructType)
        return schema


def _refuse_column(part: Statement) -> NoReturn:
    part.refuse("a column has a type, NOT NULL, DEFAULT, PRIMARY KEY and COMMENT, and nothing else")


def _buckets(statement: Statement) -> dict[str, str]:
    """Step over "(a, b) INTO 4 BUCKETS"."""
    keys = statement.names()
    statement.needs("INTO")
    count = statement.literal()
    statement.needs("BUCKETS")
    return {"bucket": count, "bucket-key": ",".join(keys)}


# -- ALTER TABLE, COMMENT ON TABLE and SHOW TBLPROPERTIES as text → schema changes of a table ------
#
# ADD COLUMNS   DROP COLUMNS   RENAME COLUMN a TO b   ALTER COLUMN c TYPE, COMMENT, FIRST, AFTER, DROP NOT NULL, DEFAULT
# SET TBLPROPERTIES   UNSET TBLPROPERTIES

_COMMENT = "comment"
_AFTER_TYPE = ("COMMENT", "FIRST", "AFTER", "DEFAULT", "NOT")
_INSTEAD = (
    (("ADD", "PARTITION", "FIELD"), "the partitions of a table stay; CREATE TABLE … PARTITIONED BY a column, AS SELECT its rows"),
    (("DROP", "PARTITION", "FIELD"), "the partitions of a table stay; CREATE TABLE … AS SELECT its rows"),
    (("REPLACE", "PARTITION", "FIELD"), "the partitions of a table stay; CREATE TABLE … PARTITIONED BY a column, AS SELECT its rows"),
    (("ADD", "PARTITION"), "a partition is there once it has rows; leave the statement out"),
    (("RENAME", "PARTITION"), "write its rows under the other value, and delete them under this one"),
    (("RECOVER", "PARTITIONS"), "no partition of a snapshot is ever unknown; leave the statement out"),
    (("SET", "LOCATION"), "a table stays where it is; copy it by CREATE TABLE … AS SELECT"),
    (("SET", "SERDE"), "the format of new files is the property 'file.format'"),
    (("SET", "SERDEPROPERTIES"), "options are properties: SET TBLPROPERTIES"),
    (("REPLACE", "COLUMNS"), "name what changes: ADD, DROP, RENAME and ALTER COLUMN"),
    (("WRITE",), "rows lie in the order of the primary key"),
    (("SET", "IDENTIFIER", "FIELDS"), "the primary key of a table stays what it is"),
    (("DROP", "IDENTIFIER", "FIELDS"), "the primary key of a table stays what it is"),
    (("CLUSTER",), "rows lie in the order of the primary key"),
    (("ADD", "CONSTRAINT"), "the primary key is the one constraint, and NOT NULL of new tables"),
)  # fmt: skip


def alter_statement(table: Table, statement: Statement) -> None:
    """Run an ALTER TABLE, from behind the table's name: all of it or nothing."""
    table.alter(*_changes(table, statement))


def comment_statement(table: Table, statement: Statement) -> None:
    """Run a COMMENT ON TABLE, from behind the table's name."""
    statement.needs("IS")
    comment = None if statement.takes("NULL") else statement.literal()
    statement.ended()
    table.alter(SetComment(comment))


def properties_of(table: Table, statement: Statement) -> list[tuple[str, str]]:
    """Return the properties of SHOW TBLPROPERTIES: options, the primary key and the comment, or one of them."""
    properties = dict(table.schema.options.texts)
    if table.schema.primary_keys:
        properties["primary-key"] = ",".join(table.schema.primary_keys)
    if table.schema.comment:
        properties[_COMMENT] = table.schema.comment
    if statement.word() == "(":
        (argument,) = statement.listed()
        key = argument.key()
        missing = f"Table {table.name} does not have property: {key}"
        properties = {key: properties.get(key, missing)}
    statement.ended()
    return sorted(properties.items())


def _changes(table: Table, statement: Statement) -> list[SchemaChange]:
    changes: list[SchemaChange]
    if statement.takes("SET", "TBLPROPERTIES"):
        properties = statement.properties()
        changes = [
            SetComment(text) if key == _COMMENT else SetOption(key, text)
            for key, text in properties.items()
        ]
    elif statement.takes("UNSET", "TBLPROPERTIES"):
        ignores = statement.takes("IF", "EXISTS")
        changes = [*_removed(table, statement, ignores=ignores)]
    elif statement.takes("ADD", "COLUMNS") or statement.takes("ADD", "COLUMN"):
        changes = [change for part in _parts(statement) for change in _added(part)]
    elif statement.takes("DROP", "COLUMNS") or statement.takes("DROP", "COLUMN"):
        ignores = statement.takes("IF", "EXISTS")
        paths = [part.path() for part in _parts(statement)]
        changes = [
            DropColumn(path)
            for path in paths
            if not (ignores and len(path) == 1 and path[0] not in table.schema.names)
        ]
    elif statement.takes("RENAME", "COLUMN"):
        old = statement.path()
        statement.needs("TO")
        changes = [RenameColumn(old, path_text(statement.path()))]
    elif statement.takes("ALTER", "COLUMN") or statement.takes("ALTER"):
        changes = [_altered(statement)]
    elif statement.takes("CHANGE", "COLUMN") or statement.takes("CHANGE"):
        changes = _changes_of_column(statement)
    else:
        # Clauses that Spark knows for other tables name the statement to use instead.
        for words, instead in _INSTEAD:
            if statement.takes(*words):
                statement.not_done(f"{' '.join(words)}: {instead}")
        statement.refuse(
            "ADD, DROP, RENAME or ALTER COLUMN, SET or UNSET TBLPROPERTIES is expected"
        )
    statement.ended()
    return changes


def _parts(statement: Statement) -> list[Statement]:
    """Return the items of a list, in brackets or without them, each as a statement."""
    if statement.word() == "(":
        return statement.listed(types=True)
    parts = [statement.item(types=True)]
    while statement.takes(","):
        parts.append(statement.item(types=True))
    return parts


def _added(column: Statement) -> Iterator[SchemaChange]:
    path = column.path()
    declared = _declared(column)
    kind = _kind(declared)
    comment = default = after = None
    first = False
    while not column.done:
        if column.takes("COMMENT"):
            comment = column.literal()
        elif column.takes("FIRST"):
            first = True
        elif column.takes("AFTER"):
            after = column.name()
        elif column.takes("DEFAULT"):
            default = column.default()
        elif column.takes("NOT", "NULL"):
            column.not_done("rows that are there have null in a new column: leave NOT NULL out")
        else:
            column.refuse("COMMENT, FIRST, AFTER or DEFAULT is expected")
    yield AddColumn(path, kind, comment=comment, first=first, after=after)
    for inner, text in comments_of(declared.fields[0].dataType, path):
        yield SetColumnComment(inner, text)
    if default is not None:
        yield SetColumnDefault(path, default)


def _altered(statement: Statement) -> SchemaChange:
    path = statement.path()
    if statement.takes("TYPE"):
        return ChangeType(path, _kind(_declared(statement)))
    if statement.takes("COMMENT"):
        return SetColumnComment(path, statement.literal())
    if statement.takes("FIRST"):
        return MoveColumn(path, first=True)
    if statement.takes("AFTER"):
        return MoveColumn(path, after=statement.name())
    if statement.takes("DROP", "NOT", "NULL"):
        return SetNullable(path)
    if statement.takes("SET", "NOT", "NULL"):
        statement.not_done(
            "files that are there may hold nulls: a column stays nullable once it is"
        )
    if statement.takes("DROP", "DEFAULT"):
        return SetColumnDefault(path, None)
    if statement.takes("SET", "DEFAULT"):
        return SetColumnDefault(path, statement.default())
    return statement.refuse("TYPE, COMMENT, FIRST, AFTER, DROP NOT NULL or SET DEFAULT is expected")


def _changes_of_column(statement: Statement) -> list[SchemaChange]:
    """Return what CHANGE COLUMN changes: as ALTER COLUMN, or as Hive, which gives name, type and comment anew."""
    if statement.word(1) in ("TYPE", "COMMENT", "FIRST", "AFTER", "DROP", "SET"):
        return [_altered(statement)]
    old, new = statement.path(), statement.path()
    changes: list[SchemaChange] = [ChangeType(old, _kind(_declared(statement)))]
    if statement.takes("COMMENT"):
        changes.append(SetColumnComment(old, statement.literal()))
    if statement.takes("FIRST"):
        changes.append(MoveColumn(old, first=True))
    elif statement.takes("AFTER"):
        changes.append(MoveColumn(old, after=statement.name()))
    if path_text(old).lower() != path_text(new).lower():
        changes.append(RenameColumn(old, path_text(new)))
    return changes


def _declared(statement: Statement) -> StructType:
    """Step over a type in Spark's words; return one column of it."""
    schema = StructType.fromDDL(f"c {statement.until(*_AFTER_TYPE, types=True)}")
    assert isinstance(schema, StructType)
    return schema


def _kind(declared: StructType) -> pa.DataType | str:
    """Return the type of a column for `alter`; a length stands in its text."""
    kind = declared.fields[0].dataType
    if isinstance(kind, CharType | VarcharType):
        return kind.simpleString()
    return arrow_schema_of(declared).field(0).type


def _removed(table: Table, statement: Statement, *, ignores: bool) -> Iterator[SchemaChange]:
    for part in statement.listed():
        key = part.key()
        if key == _COMMENT:
            yield SetComment(None)
        elif key in table.schema.options.texts:
            yield RemoveOption(key)
        elif not ignores:
            part.refuse(
                f"the table has no property {key!r}; UNSET TBLPROPERTIES IF EXISTS passes over it"
            )


# -- DESCRIBE EXTENDED, SHOW CREATE TABLE, SHOW PARTITIONS and SHOW TBLPROPERTIES ------------------
#
# What Spark's catalog does not keep.

COUNTED: dict[str, DataType] = dict.fromkeys(
    ("num_inserted_rows", "num_updated_rows", "num_deleted_rows"), LongType()
)
"""How many rows a write has changed, as columns of its result."""
_DESCRIBED = dict.fromkeys(("col_name", "data_type", "comment"), StringType())
_HISTORY: dict[str, DataType] = {
    "version": LongType(), "timestamp": TimestampType(), "user": StringType(), "operation": StringType(),
    **COUNTED,
}  # fmt: skip
_TEXTS = ArrayType(StringType())
_DETAIL: dict[str, DataType] = {
    "format": StringType(), "name": StringType(), "description": StringType(), "location": StringType(),
    "createdAt": TimestampType(), "lastModified": TimestampType(), "partitionColumns": _TEXTS, "primaryKeyColumns": _TEXTS,
    "numFiles": LongType(), "sizeInBytes": LongType(), "properties": MapType(StringType(), StringType()),
}  # fmt: skip
Shown = Callable[[SparkSession, Table, Statement], DataFrame]


def describe_statement(spark: SparkSession, table: Table, statement: Statement) -> DataFrame:
    """Run a DESCRIBE [EXTENDED], from behind the table's name: columns, and properties of the table."""
    statement.ended()
    schema = table.schema
    rows: list[tuple[str, str, str | None]] = [
        (field.name, declared_text(field.type), field.description) for field in schema.fields
    ]
    types = {name: kind for name, kind, _ in rows}
    if schema.partition_keys:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [(name, types[name], None) for name in schema.partition_keys]
    words = {word_of(token) for token in statement.tokens[:3]}
    if words & {"EXTENDED", "FORMATTED"}:
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [(name, text, "") for name, text in _facts(table).items()]
    return frame_of_rows(spark, rows, _DESCRIBED)


def count_columns(counts: RowCounts | None) -> tuple[int | None, ...]:
    """Return the values of the columns `COUNTED`."""
    return (None,) * 3 if counts is None else (counts.inserted, counts.updated, counts.deleted)


def history_statement(spark: SparkSession, table: Table, statement: Statement) -> DataFrame:
    """Run a DESCRIBE HISTORY, from behind the table's name: the snapshots, the newest first."""
    limit = int(statement.literal()) if statement.takes("LIMIT") else None
    statement.ended()
    rows = []
    for snapshot in table.newest_snapshots(limit):
        facts = (
            snapshot.id,
            _instant(snapshot.time_millis),
            snapshot.user_name,
            snapshot.operation_name,
        )
        rows.append((*facts, *count_columns(snapshot.row_counts)))
    return frame_of_rows(spark, rows, _HISTORY)


def detail_statement(spark: SparkSession, table: Table, statement: Statement) -> DataFrame:
    """Run a DESCRIBE DETAIL, from behind the table's name: one row of facts, of the newest snapshot."""
    statement.ended()
    schema, snapshot = table.schema, table.latest_snapshot()
    partitions = table.system("partitions")
    first_schema = table.session.schemas.load(min(table.session.schemas.ids()))
    modified = max(schema.time_millis, 0 if snapshot is None else snapshot.time_millis)
    row = (
        "lsm", table.name, schema.comment, table.location,
        _instant(first_schema.time_millis), _instant(modified),
        [*schema.partition_keys], [*schema.primary_keys],
        sum(partitions["file_count"].to_pylist()), sum(partitions["file_size_in_bytes"].to_pylist()),
        [*schema.options.texts.items()],
    )  # fmt: skip
    return frame_of_rows(spark, [row], _DETAIL)


def _instant(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)


def _facts(table: Table) -> dict[str, str]:
    schema, snapshot = table.schema, table.session.snapshots.latest()
    shown = {
        "Name": table.name,
        "Type": "MANAGED",
        "Provider": "lsm",
        "Location": table.location,
        "Comment": schema.comment or "",
        "Primary Key": ", ".join(schema.primary_keys),
        "Merge Engine": schema.options[core_options.MERGE_ENGINE].value
        if schema.has_primary_key
        else "",
        "Bucket": str(schema.bucket_count),
        "Snapshot": "" if snapshot is None else str(snapshot.id),
        "Schema": str(schema.id),
    }
    if snapshot is not None:
        size = sum(table.system("partitions")["file_size_in_bytes"].to_pylist())
        shown["Statistics"] = f"{size} bytes, {snapshot.total_record_count} rows before merging"
    properties = ", ".join(f"{key}={text}" for key, text in sorted(schema.options.texts.items()))
    return {key: text for key, text in shown.items() if text} | {
        "Table Properties": f"[{properties}]"
    }


def show_create_statement(spark: SparkSession, table: Table, statement: Statement) -> DataFrame:
    """Run a SHOW CREATE TABLE: a statement for `sql` that makes an empty table like this one; of a branch, its schema.

    What Spark has no words for is not given back: TIMESTAMP is of microseconds whatever its precision, BINARY(n) and
    texts within a column lose their length, elements of arrays and values of maps may be null.
    """
    statement.ended()
    schema = table.schema
    columns = []
    for column_field in schema.fields:
        parts = [quoted(column_field.name), _type_in_sql(column_field.type)]
        if not column_field.type.nullable and column_field.name not in (
            *schema.primary_keys,
            *schema.partition_keys,
        ):
            parts.append("NOT NULL")
        if column_field.default_value is not None:
            parts.append(f"DEFAULT {_text(column_field.default_value)}")
        if column_field.description:
            parts.append(f"COMMENT {_text(column_field.description)}")
        columns.append("  " + " ".join(parts))
    name = ".".join(map(quoted, table.session.name.split(".")))
    lines = [f"CREATE TABLE {name} (", ",\n".join(columns) + ")", "USING lsm"]
    if schema.partition_keys:
        lines.append(f"PARTITIONED BY ({', '.join(map(quoted, schema.partition_keys))})")
    if schema.comment:
        lines.append(f"COMMENT {_text(schema.comment)}")
    properties = dict(schema.options.texts)
    if schema.primary_keys:
        properties["primary-key"] = ",".join(schema.primary_keys)
    listed = ",\n".join(
        f"  {_text(key)} = {_text(text)}" for key, text in sorted(properties.items())
    )
    lines.append(f"TBLPROPERTIES (\n{listed})")
    return frame_of_rows(spark, [("\n".join(lines) + "\n",)], {"createtab_stmt": StringType()})


def show_partitions_statement(spark: SparkSession, table: Table, statement: Statement) -> DataFrame:
    """Run a SHOW PARTITIONS: those that have rows, in order."""
    if not statement.done:
        statement.not_done("of some partitions: SELECT … FROM `table$partitions` WHERE …")
    # Values as Spark compares them: a DATE as a day, which directories name by its number unless the option is false.
    session = table.session
    spelled = session.options.with_texts({core_options.PARTITION_LEGACY_NAME.key: "false"})
    snapshot = session.snapshots.latest()
    names = sorted(partitions(session.with_options(spelled), snapshot)["partition"].to_pylist())
    return frame_of_rows(spark, [(name,) for name in names], {"partition": StringType()})


def show_properties_statement(spark: SparkSession, table: Table, statement: Statement) -> DataFrame:
    """Run a SHOW TBLPROPERTIES."""
    columns = dict.fromkeys(("key", "value"), StringType())
    return frame_of_rows(spark, properties_of(table, statement), columns)


def _type_in_sql(kind: TypesDataType) -> str:
    """Return a type in Spark's words; texts of a declared length keep it."""
    if isinstance(kind, ScalarType) and kind.root in (Root.CHAR, Root.VARCHAR):
        return type_text(kind.with_nullable(nullable=True))
    match kind:
        case TypesArrayType():
            return f"array<{_type_in_sql(kind.element)}>"
        case TypesMapType():
            return f"map<{_type_in_sql(kind.key)}, {_type_in_sql(kind.value)}>"
        case RowType():
            return f"struct<{', '.join(map(_field_in_sql, kind.fields))}>"
        case ScalarType():
            return spark_type(kind).simpleString()


def _field_in_sql(field: DataField) -> str:
    parts = [f"{quoted(field.name)}: {_type_in_sql(field.type)}"]
    if not field.type.nullable:
        parts.append("NOT NULL")
    if field.description:
        parts.append(f"COMMENT {_text(field.description)}")
    return " ".join(parts)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

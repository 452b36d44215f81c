"""ALTER TABLE, COMMENT ON TABLE and SHOW TBLPROPERTIES as text → schema changes of a table.

ADD COLUMNS   DROP COLUMNS   RENAME COLUMN a TO b   ALTER COLUMN c TYPE, COMMENT, FIRST, AFTER, DROP NOT NULL, DEFAULT
SET TBLPROPERTIES   UNSET TBLPROPERTIES
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import CharType, StructType, VarcharType

from lsm_engine.schema.changes import (
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
from lsm_engine.schema.column_path import path_text
from lsm_engine.spark.arrow_rows import arrow_schema_of
from lsm_engine.spark.create_sql import comments_of
from lsm_engine.spark.statement import Statement
from lsm_engine.table.table import Table

_COMMENT = "comment"
_AFTER_TYPE = ("COMMENT", "FIRST", "AFTER", "DEFAULT", "NOT")
_INSTEAD = (
    (("ADD", "PARTITION"), "a partition is there once it has rows; leave the statement out"),
    (("DROP", "PARTITION"), "delete its rows: DELETE FROM … WHERE day = '…'"),
    (("RENAME", "PARTITION"), "write its rows under the other value, and delete them under this one"),
    (("RECOVER", "PARTITIONS"), "no partition of a snapshot is ever unknown; leave the statement out"),
    (("SET", "LOCATION"), "a table stays where it is; copy it by CREATE TABLE … AS SELECT"),
    (("SET", "SERDE"), "the format of new files is the property 'file.format'"),
    (("SET", "SERDEPROPERTIES"), "options are properties: SET TBLPROPERTIES"),
    (("REPLACE", "COLUMNS"), "name what changes: ADD, DROP, RENAME and ALTER COLUMN"),
    (("CHANGE",), "use ALTER COLUMN and RENAME COLUMN"),
    (("CLUSTER",), "rows lie in the order of the primary key"),
    (("ADD", "CONSTRAINT"), "the primary key is the one constraint, and NOT NULL of new tables"),
)  # fmt: skip


def alter_statement(table: Table, statement: Statement) -> None:
    """Do what stands after ALTER TABLE and the table's name: all of it or nothing."""
    table.alter(*_changes(table, statement))


def comment_statement(table: Table, statement: Statement) -> None:
    """Do what stands after COMMENT ON TABLE and the table's name."""
    statement.needs("IS")
    comment = None if statement.takes("NULL") else statement.literal()
    statement.ended()
    table.alter(SetComment(comment))


def properties_of(table: Table, statement: Statement) -> list[tuple[str, str]]:
    """Return what SHOW TBLPROPERTIES shows: options, the primary key and the comment, or one of them."""
    found = dict(table.schema.options.texts)
    if table.schema.primary_keys:
        found["primary-key"] = ",".join(table.schema.primary_keys)
    if table.schema.comment:
        found[_COMMENT] = table.schema.comment
    if statement.word() == "(":
        (asked,) = statement.listed()
        inner = Statement.of(asked)
        assert inner is not None
        key = inner.literal() if inner.is_text else inner.name()
        missing = f"Table {table.name} does not have property: {key}"
        found = {key: found.get(key, missing)}
    statement.ended()
    return sorted(found.items())


def _changes(table: Table, statement: Statement) -> list[SchemaChange]:
    made: list[SchemaChange]
    if statement.takes("SET", "TBLPROPERTIES"):
        given = statement.properties()
        made = [
            SetComment(text) if key == _COMMENT else SetOption(key, text)
            for key, text in given.items()
        ]
    elif statement.takes("UNSET", "TBLPROPERTIES"):
        ignores = statement.takes("IF", "EXISTS")
        made = [*_removed(table, statement, ignores=ignores)]
    elif statement.takes("ADD", "COLUMNS") or statement.takes("ADD", "COLUMN"):
        made = [change for part in _parts(statement) for change in _added(part)]
    elif statement.takes("DROP", "COLUMNS") or statement.takes("DROP", "COLUMN"):
        ignores = statement.takes("IF", "EXISTS")
        paths = [part.path() for part in _parts(statement)]
        made = [
            DropColumn(path)
            for path in paths
            if not (ignores and len(path) == 1 and path[0] not in table.schema.names)
        ]
    elif statement.takes("RENAME", "COLUMN"):
        old = statement.path()
        statement.needs("TO")
        made = [RenameColumn(old, path_text(statement.path()))]
    elif statement.takes("ALTER", "COLUMN") or statement.takes("ALTER"):
        made = [_altered(statement)]
    else:
        for words, instead in _INSTEAD:
            if statement.takes(*words):
                statement.refuse(f"{' '.join(words)} is not done here: {instead}")
        statement.refuse(
            "ADD, DROP, RENAME or ALTER COLUMN, SET or UNSET TBLPROPERTIES is expected"
        )
    statement.ended()
    return made


def _parts(statement: Statement) -> list[Statement]:
    """Return what is listed in brackets, or after them, each part on its own."""
    texts = []
    if statement.word() == "(":
        texts = statement.listed(types=True)
    else:
        texts.append(statement.until(",", types=True))
        while statement.takes(","):
            texts.append(statement.until(",", types=True))
    parts = [Statement.of(text) for text in texts]
    return [part for part in parts if part is not None]


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
        else:
            column.refuse("rows that are there have null in a new column: leave NOT NULL out")
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
        statement.refuse("files that are there may hold nulls: a column stays nullable once it is")
    if statement.takes("DROP", "DEFAULT"):
        return SetColumnDefault(path, None)
    if statement.takes("SET", "DEFAULT"):
        return SetColumnDefault(path, statement.default())
    return statement.refuse("TYPE, COMMENT, FIRST, AFTER, DROP NOT NULL or SET DEFAULT is expected")


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
    for text in statement.listed():
        part = Statement.of(text)
        assert part is not None
        key = part.literal() if part.is_text else part.name()
        if key == _COMMENT:
            yield SetComment(None)
        elif key in table.schema.options.texts:
            yield RemoveOption(key)
        elif not ignores:
            part.refuse(
                f"the table has no property {key!r}; UNSET TBLPROPERTIES IF EXISTS passes over it"
            )

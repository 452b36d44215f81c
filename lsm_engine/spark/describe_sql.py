"""DESCRIBE EXTENDED, SHOW CREATE TABLE, SHOW PARTITIONS and SHOW TBLPROPERTIES: what Spark's catalog does not keep."""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType

from lsm_engine.base import core_options
from lsm_engine.base.units import format_bytes
from lsm_engine.schema.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    Root,
    RowType,
    ScalarType,
    type_text,
)
from lsm_engine.spark.alter_sql import properties_of
from lsm_engine.spark.arrow_rows import declared_text, frame_of_rows, spark_type
from lsm_engine.spark.statement import Statement, quoted
from lsm_engine.table.table import Table

_DESCRIBED = dict.fromkeys(("col_name", "data_type", "comment"), StringType())
Shown = Callable[[SparkSession, Table, Statement], DataFrame]


def describe_statement(spark: SparkSession, table: Table, statement: Statement) -> DataFrame:
    """Do a DESCRIBE [EXTENDED] whose table's name was read already: columns, and facts about the table."""
    statement.ended()
    schema = table.schema
    rows: list[tuple[str, str, str | None]] = [
        (field.name, declared_text(field.type), field.description) for field in schema.fields
    ]
    types = {name: kind for name, kind, _ in rows}
    if schema.partition_keys:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [(name, types[name], None) for name in schema.partition_keys]
    words = {token.text.upper() for token in statement.tokens[:3]}
    if words & {"EXTENDED", "FORMATTED"}:
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [(name, text, "") for name, text in _facts(table).items()]
    return frame_of_rows(spark, rows, _DESCRIBED)


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
        shown["Statistics"] = (
            f"{format_bytes(size)}, {snapshot.total_record_count} rows before merging"
        )
    properties = ", ".join(f"{key}={text}" for key, text in sorted(schema.options.texts.items()))
    return {key: text for key, text in shown.items() if text} | {
        "Table Properties": f"[{properties}]"
    }


def show_create_statement(spark: SparkSession, table: Table, statement: Statement) -> DataFrame:
    """Do a SHOW CREATE TABLE: a statement for `sql` that makes an empty table like this one; of a branch, its schema.

    What Spark has no words for is not given back: TIMESTAMP is of microseconds whatever its precision, BINARY(n) and
    texts within a column lose their length, elements of arrays and values of maps may be null.
    """
    statement.ended()
    schema = table.schema
    columns = []
    for field in schema.fields:
        parts = [quoted(field.name), _type_in_sql(field.type)]
        if not field.type.nullable and field.name not in (
            *schema.primary_keys,
            *schema.partition_keys,
        ):
            parts.append("NOT NULL")
        if field.default_value is not None:
            parts.append(f"DEFAULT {_text(field.default_value)}")
        if field.description:
            parts.append(f"COMMENT {_text(field.description)}")
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
    """Do a SHOW PARTITIONS: those that have rows, in order."""
    if not statement.done:
        statement.refuse("of some partitions: SELECT … FROM `table$partitions` WHERE …")
    names = sorted(table.system("partitions")["partition"].to_pylist())
    return frame_of_rows(spark, [(name,) for name in names], {"partition": StringType()})


def show_properties_statement(spark: SparkSession, table: Table, statement: Statement) -> DataFrame:
    """Do a SHOW TBLPROPERTIES."""
    columns = dict.fromkeys(("key", "value"), StringType())
    return frame_of_rows(spark, properties_of(table, statement), columns)


def _type_in_sql(kind: DataType) -> str:
    """Return a type in Spark's words; texts of a declared length keep it."""
    if isinstance(kind, ScalarType) and kind.root in (Root.CHAR, Root.VARCHAR):
        return type_text(kind.with_nullable(nullable=True))
    match kind:
        case ArrayType():
            return f"array<{_type_in_sql(kind.element)}>"
        case MapType():
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

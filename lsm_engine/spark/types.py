"""Conversion between Spark types and column types, and of batches to the Arrow types that Spark takes."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as sql

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.types.arrow_types import sql_field
from lsm_engine.types.types import (
    BINARY,
    TEXT,
    ArrayType,
    DataField,
    DataType,
    MapType,
    Root,
    RowType,
    ScalarType,
    scalars_of,
)

_PLAIN: dict[Root, sql.DataType] = {
    Root.BOOLEAN: sql.BooleanType(),
    Root.TINYINT: sql.ByteType(),
    Root.SMALLINT: sql.ShortType(),
    Root.INT: sql.IntegerType(),
    Root.BIGINT: sql.LongType(),
    Root.FLOAT: sql.FloatType(),
    Root.DOUBLE: sql.DoubleType(),
    Root.DATE: sql.DateType(),
    Root.TIMESTAMP: sql.TimestampNTZType(),
    Root.TIMESTAMP_LTZ: sql.TimestampType(),
}
_ARROW: dict[type[sql.DataType], pa.DataType] = {
    sql.BooleanType: pa.bool_(),
    sql.ByteType: pa.int8(),
    sql.ShortType: pa.int16(),
    sql.IntegerType: pa.int32(),
    sql.LongType: pa.int64(),
    sql.FloatType: pa.float32(),
    sql.DoubleType: pa.float64(),
    sql.StringType: pa.string(),
    sql.CharType: pa.string(),
    sql.VarcharType: pa.string(),
    sql.BinaryType: pa.binary(),
    sql.DateType: pa.date32(),
    sql.TimestampType: pa.timestamp("us", "UTC"),
    sql.TimestampNTZType: pa.timestamp("us"),
}
_TIME: Any = getattr(sql, "TimeType", None)  # PySpark 4.1 has it first
if _TIME is not None:
    _ARROW[_TIME] = pa.time64("ns")
_FINEST_TIME = 6
"""Digits of a second that Spark holds; finer values are refused when they are met."""


def spark_type(value: DataType) -> sql.DataType:
    """Return the Spark type that holds values of a column type."""
    match value:
        case ArrayType():
            return sql.ArrayType(spark_type(value.element), value.element.nullable)
        case MapType():
            return sql.MapType(spark_type(value.key), spark_type(value.value), value.value.nullable)
        case RowType():
            return sql.StructType(
                [
                    sql.StructField(
                        field.name,
                        spark_type(field.type),
                        field.type.nullable,
                        {"comment": field.description} if field.description else None,
                    )
                    for field in value.fields
                ]
            )
        case ScalarType(root=Root.DECIMAL):
            return sql.DecimalType(value.precision or 10, value.scale or 0)
        case ScalarType(root=Root.TIME):
            if _TIME is None:
                raise UnsupportedError(
                    "Spark has TIME columns from 4.1 on; read the others",
                    kind=ErrorKind.UNSUPPORTED_TYPE,
                    type="TIME",
                )
            return cast(sql.DataType, _TIME(min(value.precision or 0, _FINEST_TIME)))
        case ScalarType() if value.root in TEXT:
            return sql.StringType()
        case ScalarType() if value.root in BINARY:
            return sql.BinaryType()
        case ScalarType():
            return _PLAIN[value.root]


_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""Key in the metadata of columns: their type as Spark declares it, where texts in it have a length."""
_CHAR = re.compile(r"char\((\d+)\)")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


def spark_schema(fields: Iterable[DataField]) -> sql.StructType:
    """Return columns as a Spark schema; a column's description becomes its comment.

    Spark compares CHAR(n), and describes it and VARCHAR(n), by what the column's metadata says.
    """
    return sql.StructType(
        [
            sql.StructField(
                field.name, spark_type(field.type), field.type.nullable, _metadata(field)
            )
            for field in fields
        ]
    )


def _metadata(field: DataField) -> dict[str, Any] | None:
    metadata = {"comment": field.description} if field.description else {}
    if any(scalar.root in (Root.CHAR, Root.VARCHAR) for scalar in scalars_of(field.type)):
        metadata[_DECLARED] = declared_text(field.type)
    return metadata or None


def declared_text(kind: DataType) -> str:
    """Return a type as Spark describes it, texts with their length."""
    match kind:
        case ArrayType():
            return f"array<{declared_text(kind.element)}>"
        case MapType():
            return f"map<{declared_text(kind.key)},{declared_text(kind.value)}>"
        case RowType():
            inner = (
                f"{_quoted_name(field.name)}:{declared_text(field.type)}" for field in kind.fields
            )
            return f"struct<{','.join(inner)}>"
        case ScalarType(root=Root.CHAR | Root.VARCHAR):
            return f"{kind.root.value.lower()}({kind.precision})"
        case ScalarType():
            return str(spark_type(kind).simpleString())


def _quoted_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def char_length(field: sql.StructField) -> int | None:
    """Return n of a column that Spark takes for CHAR(n); None for any other."""
    declared = _CHAR.fullmatch(field.metadata.get(_DECLARED, ""))
    return int(declared[1]) if declared else None


LOCATION = "lsm.location"
"""Key in the metadata of columns: Spark's catalog keeps it, and no option, for Python data sources."""


def with_location(fields: Iterable[DataField], location: str) -> sql.StructType:
    """Return columns as Spark's catalog keeps them: every one of them knows where its table is."""
    return located(spark_schema(fields), location)


def located(schema: sql.StructType, location: str) -> sql.StructType:
    """Return a schema whose columns have the location of their table in their metadata."""
    return sql.StructType(
        [
            sql.StructField(
                field.name, field.dataType, field.nullable, {**field.metadata, LOCATION: location}
            )
            for field in schema.fields
        ]
    )


def location_in(schema: sql.StructType) -> str | None:
    """Return where the table of a schema from Spark's catalog is; None for any other schema."""
    locations = (field.metadata.get(LOCATION) for field in schema.fields)
    return next((location for location in locations if location is not None), None)


def arrow_type_of(value: sql.DataType, column: str) -> pa.DataType:
    """Return the Arrow type in which Spark exchanges values of a Spark type.

    Raises UnsupportedError, naming the column, for types without a counterpart in a table:
    intervals, variants, geometries, the type of a column of nulls.
    """
    match value:
        case sql.DecimalType():
            return pa.decimal128(value.precision, value.scale)
        case sql.ArrayType():
            return pa.list_(_field("element", value.elementType, value.containsNull, column))
        case sql.MapType():
            return pa.map_(
                _field("key", value.keyType, False, column),  # noqa: FBT003
                _field("value", value.valueType, value.valueContainsNull, column),
            )
        case sql.StructType():
            return pa.struct(list(arrow_schema_of(value)))
        case _:
            return _scalar_arrow(value, column)


def _scalar_arrow(value: sql.DataType, column: str) -> pa.DataType:
    arrow_type = _ARROW.get(type(value))
    if arrow_type is None:
        raise UnsupportedError(
            f"column {column!r} has Spark type {value.simpleString()}, which no table type holds; "
            "cast it first",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            column=column,
            type=value.simpleString(),
        )
    return arrow_type


def arrow_schema_of(schema: sql.StructType) -> pa.Schema:
    """Return the Arrow form of a schema, for `create_table`. Texts of a declared length keep it."""
    return pa.schema(
        [_field(field.name, field.dataType, field.nullable, field.name) for field in schema.fields]
    )


def _field(name: str, kind: sql.DataType, nullable: bool, column: str) -> pa.Field:  # noqa: FBT001
    if isinstance(kind, sql.CharType | sql.VarcharType):
        return sql_field(name, kind.simpleString(), nullable=nullable)
    return pa.field(name, arrow_type_of(kind, column), nullable)


def frame_of_rows(
    spark: SparkSession, rows: Sequence[Sequence[Any]], columns: Mapping[str, sql.DataType]
) -> DataFrame:
    """Return a few rows as a DataFrame. Of a list of tuples Spark would make one with a worker in Python."""
    schema = sql.StructType([sql.StructField(name, kind) for name, kind in columns.items()])
    if not hasattr(DataFrame, "toArrow"):  # before PySpark 4.0 it takes no Arrow
        return spark.createDataFrame([*map(tuple, rows)], schema)
    arrow = arrow_schema_of(schema)
    values = [[row[index] for row in rows] for index in range(len(arrow))]
    arrays = [pa.array(column, field.type) for column, field in zip(values, arrow, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), schema)


def empty_frame(spark: SparkSession, schema: sql.StructType) -> DataFrame:
    """Return no rows with these columns. Of an empty list Spark would make them with a worker in Python."""
    if not schema.fields:
        return spark.range(0).select()
    if not hasattr(DataFrame, "toArrow"):  # before PySpark 4.0 it takes no Arrow
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(arrow_schema_of(schema).empty_table(), schema)


def fitter(schema: pa.Schema) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that turns a batch into Spark's Arrow types, columns by name.

    It raises UnsupportedError for a time finer than Spark's microseconds rather than cut it off.
    """

    def fit(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [_fitted(batch.column(field.name), field) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    return fit


def _fitted(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as cause:
        raise UnsupportedError(
            f"column {field.name!r} holds values of {column.type} that Spark's {field.type} "
            "cannot; read the other columns, or read it without Spark",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            column=field.name,
        ) from cause


def quoted(name: str) -> str:
    """Return a name as Spark's SQL takes it."""
    return "`" + name.replace("`", "``") + "`"

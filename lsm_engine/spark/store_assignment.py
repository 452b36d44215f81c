"""What a query gives, in the types of the table's columns: Spark's ANSI rules of store assignment.

https://spark.apache.org/docs/latest/sql-ref-ansi-compliance.html, "Store assignment". FLOAT and DOUBLE
take any number, rounded to what they hold, under these rules too. Any other cast that could change a value without an
error is left out where the session is not ANSI; such values are then checked when they are written.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as sql_types

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.spark.statement import quoted

_TEXT = (sql_types.StringType, sql_types.CharType, sql_types.VarcharType)
_TIMES = (sql_types.TimestampType, sql_types.TimestampNTZType)
_FLOATS = (sql_types.FloatType, sql_types.DoubleType)
_TIME_OF_DAY = [sql_types.TimeType] if hasattr(sql_types, "TimeType") else []  # since PySpark 4.1
_CHECKED_WHEN_WRITTEN: list[type] = [sql_types.IntegralType, *_TIME_OF_DAY]


def assigned(
    frame: DataFrame, schema: sql_types.StructType, *, by_position: bool = False
) -> DataFrame:
    """Return rows cast to the types of the columns of the same names, where Spark would do so by itself.

    Names are compared without case, and come out as the table writes them; columns that the table does not have stay.
    `by_position`: fields of a struct too whose names are all others, as those of struct(1, 2), col1 and col2.
    """
    is_ansi = uses_ansi(frame.sparkSession)
    known = {field.name.lower(): field for field in schema.fields}
    columns = []
    for field in frame.schema.fields:
        target = known.get(field.name.lower())
        column = sql.col(quoted(field.name))
        if target is not None:
            kind = target.dataType
            is_same = field.dataType.simpleString() == kind.simpleString()
            if not is_same and _may_store(
                field.dataType, kind, is_ansi=is_ansi, by_position=by_position
            ):
                column = column.cast(kind)
            column = column.alias(target.name)
        columns.append(column)
    return frame.select(*columns)


def stored(
    value: Column, given: sql_types.DataType, wanted: sql_types.StructField, *, is_ansi: bool
) -> Column:
    """Return the value of a clause cast to the type of its column. Text is read as what the column holds.

    Whole numbers, where the session is not ANSI, and times of day of another precision are left as they are: what does
    not fit is refused when it is written. Raises InvalidInputError for what neither fits.
    """
    kind = wanted.dataType
    if given.simpleString() == kind.simpleString():  # may differ in what can be null
        return value
    if _may_store(given, kind, is_ansi=is_ansi):
        return value.cast(kind)
    if is_ansi and isinstance(given, _TEXT) and isinstance(kind, sql_types.AtomicType):
        return value.cast(kind)
    if any(isinstance(given, one) and isinstance(kind, one) for one in _CHECKED_WHEN_WRITTEN):
        return value
    raise InvalidInputError(
        f"column {wanted.name!r} takes {kind.simpleString()}, not {given.simpleString()}; cast it first",
        kind=ErrorKind.INVALID_ROWS,
        column=wanted.name,
        given=given.simpleString(),
        wanted=kind.simpleString(),
    )


def sql_name(kind: sql_types.DataType) -> str:
    """Return a type as SQL names it, whatever the session takes a plain TIMESTAMP for."""
    return (
        "timestamp_ltz" if isinstance(kind, sql_types.TimestampType) else str(kind.simpleString())
    )


def uses_ansi(spark: SparkSession) -> bool:
    """Whether a cast that does not fit fails in a session, rather than give null or another number."""
    return (spark.conf.get("spark.sql.ansi.enabled", "true") or "").lower() == "true"


def _may_store(
    given: sql_types.DataType,
    wanted: sql_types.DataType,
    *,
    is_ansi: bool,
    by_position: bool = False,
) -> bool:
    match given, wanted:
        case sql_types.NullType(), _:
            return True
        case sql_types.ArrayType(), sql_types.ArrayType():
            return _each(
                [(given.elementType, wanted.elementType)], is_ansi=is_ansi, by_position=by_position
            )
        case sql_types.MapType(), sql_types.MapType():
            pairs = [(given.keyType, wanted.keyType), (given.valueType, wanted.valueType)]
            return _each(pairs, is_ansi=is_ansi, by_position=by_position)
        case sql_types.StructType(), sql_types.StructType():
            names, others = ([name.lower() for name in each.names] for each in (given, wanted))
            unnamed = by_position and len(names) == len(others) and not {*names} & {*others}
            pairs = [
                (one.dataType, other.dataType)
                for one, other in zip(given.fields, wanted.fields, strict=False)
            ]
            return (names == others or unnamed) and _each(
                pairs, is_ansi=is_ansi, by_position=by_position
            )
        case sql_types.NumericType(), sql_types.NumericType():
            return is_ansi or isinstance(wanted, _FLOATS)
        case sql_types.DateType(), _:
            return isinstance(wanted, (*_TIMES, *_TEXT))
        case _:
            if isinstance(given, _TIMES) and isinstance(wanted, _TIMES):
                return True
            is_plain = isinstance(given, sql_types.AtomicType)
            return isinstance(wanted, _TEXT) and is_plain and given != sql_types.BinaryType()


def _each(
    pairs: Sequence[tuple[sql_types.DataType, sql_types.DataType]],
    *,
    is_ansi: bool,
    by_position: bool,
) -> bool:
    return all(
        one == other or _may_store(one, other, is_ansi=is_ansi, by_position=by_position)
        for one, other in pairs
    )

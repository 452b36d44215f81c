"""Rows that Spark's own Parquet reader takes from the files of a table."""

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as sql_types

from lsm_engine.read.scan import RawFile, Scan
from lsm_engine.read.split import ReplacedRows
from lsm_engine.spark.rows import driver_bytes, is_plain
from lsm_engine.spark.session import READS_PARQUET, set_meanwhile
from lsm_engine.spark.splits import (
    SplitReader,
    broadcast_threshold,
    bytes_per_row,
    frame_of_splits,
)
from lsm_engine.spark.types import arrow_schema_of, empty_frame, fitter, quoted

_FILES_MAX = 1_000
_SEARCHED_MAX = 64
"""Files of which rows are left out: each row looks its file up among them, one after the other."""
_RANGE_VALUE, _RANGE_ROW = 8, 16
"""Bytes by which Spark reckons a number of a range, alone and as a row."""
_WORD_SHIFT = 6
_WORD_BITS = 1 << _WORD_SHIFT
_BUILT_IN = (
    sql_types.BooleanType, sql_types.ByteType, sql_types.ShortType, sql_types.IntegerType,
    sql_types.LongType, sql_types.FloatType, sql_types.DoubleType, sql_types.DecimalType,
    sql_types.StringType, sql_types.BinaryType, sql_types.DateType, sql_types.TimestampType,
    sql_types.TimestampNTZType,
)  # fmt: skip
_OPTIONS = {
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}
"""A session's own settings could leave rows out, or change old dates."""
_LISTED_BY_JOB = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_replaced = ReplacedRows()
"""Of all tables that this process reads on Spark: each statement of SQL opens its tables anew, and no file changes."""


def scanned_frame(scan: Scan, schema: sql_types.StructType, spark: SparkSession) -> DataFrame:
    """Return a scan's rows as a DataFrame of a session: by Spark's own reader, or by tasks in Python."""
    stored = parquet_frame(scan, schema, spark)
    if stored is not None:
        return stored
    columns = arrow_schema_of(schema)
    table = _few_rows(scan, columns, spark) if is_plain(schema) else None
    if table is not None:
        fit = fitter(columns)
        return spark.createDataFrame(
            pa.Table.from_batches(map(fit, table.to_batches()), columns), schema
        )
    # The plan is made on the driver: tasks get their splits, and read no manifest.
    splits = list(scan.plan.splits)
    row_count = sum(split.row_count for split in splits)
    read = SplitReader.from_scan(scan, columns).batches
    return frame_of_splits(
        splits, read, schema, spark, byte_count=row_count * bytes_per_row(columns)
    )


def _few_rows(scan: Scan, columns: pa.Schema, spark: SparkSession) -> pa.Table | None:
    """Return the rows of a scan if this process reads them in less time than workers take to start; else None."""
    most = driver_bytes(spark)
    if not most or not columns:
        return None
    is_small = scan.names_keys or scan.explain().row_count * bytes_per_row(columns) <= most
    return scan.to_arrow() if is_small else None


def parquet_frame(
    scan: Scan, schema: sql_types.StructType, spark: SparkSession
) -> DataFrame | None:
    """Return the rows of a scan by Spark's Parquet reader; None if that would read other rows.

    That is: local Parquet files that have the columns as the table has them now, of plain types, at most 1,000. Rows
    that have to be merged are, by their keys and in this process, where one of them stands for all (up to 4,000,000,
    as many as `ReplacedRows.serves` says, and unless `spark.lsm.driver-bytes` is 0). Columns are nullable, as Spark's are.
    """
    read = scan.explain()
    if not _reads(scan.schema, schema, spark) or read.files.kept > _FILES_MAX:
        return None
    merged = sum(len(split.sections) for split in read.splits if not split.raw)
    knows = hasattr(DataFrame, "scalar") and driver_bytes(spark) > 0 and merged <= _SEARCHED_MAX
    files = scan.parquet_files(_replaced if knows else None, whole=True, small=True)
    if not files or any(map(_is_hidden, files)):
        return None
    partial = [file for file in files if 0 < _left_out(file) < file.row_count]
    if len({*map(_name, partial)}) < len(partial) or len(partial) > _SEARCHED_MAX:
        # Spark knows a file by its name alone, and other clients may give files of several partitions one name.
        return None
    complete_files = [file for file in files if not _left_out(file)]
    parts = [_read(spark, schema, complete_files)] if complete_files else []
    if partial:
        parts.append(_without_replaced(_read(spark, schema, partial), partial))
    if not parts:
        return empty_frame(spark, schema)
    frame = _sized(reduce(DataFrame.unionAll, parts), read.row_count, read.size_bytes)
    return frame.select(*map(_as_declared, schema.fields))


def _reads(columns: pa.Schema, schema: sql_types.StructType, spark: SparkSession) -> bool:
    """Whether Spark reads columns of such types with the same values as a task in Python."""
    if str(spark.conf.get(READS_PARQUET, "true")).lower() != "true":
        return False
    # Times without a zone are stored as instants in UTC; another zone of the session would shift them.
    zone = spark.conf.get("spark.sql.session.timeZone")
    if zone != "UTC" and any(_has_no_zone(field) for field in schema.fields):
        return False
    names = {name.lower() for name in schema.names}  # Spark compares them so
    built_in = all(isinstance(field.dataType, _BUILT_IN) for field in schema.fields)
    finest = any(pa.types.is_timestamp(kind) and kind.unit == "ns" for kind in columns.types)
    return built_in and not finest and len(names) == len(schema.names) and "_metadata" not in names


def _is_hidden(file: RawFile) -> bool:
    """Whether Spark passes over a file without a word, or reads its name as a pattern."""
    return _name(file).startswith(("_", ".")) or "\\" in file.path


def _name(file: RawFile) -> str:
    return file.path.rpartition("/")[2]


def _left_out(file: RawFile) -> int:
    return 0 if file.deleted is None else len(file.deleted)


def _read(spark: SparkSession, schema: sql_types.StructType, files: Sequence[RawFile]) -> DataFrame:
    stored = sql_types.StructType(
        [
            sql_types.StructField(
                field.name, sql_types.TimestampType() if _has_no_zone(field) else field.dataType
            )
            for field in schema.fields
        ]
    )
    reader = spark.read.schema(stored).options(**_OPTIONS)
    # A job that lists the files would take longer than the driver does.
    with set_meanwhile(spark, _LISTED_BY_JOB, str(_FILES_MAX)):
        return reader.parquet(*(f"file:{file.path}" for file in files))


def _word_count(file: RawFile) -> int:
    return -(-file.row_count // _WORD_BITS)


def _bitmap(files: Sequence[RawFile]) -> pa.Table:
    """Return a bitmap with a bit for each row of files, set for rows to leave out; each file begins a word."""
    words = []
    for file in files:
        assert file.deleted is not None
        bits = np.zeros(_word_count(file) * _WORD_BITS, np.bool_)
        bits[file.deleted.positions] = True
        words.append(np.packbits(bits, bitorder="little").view("<i8"))
    offsets = pa.array([0, sum(map(len, words))], pa.int32())
    return pa.table({"words": pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(words)))})


def _without_replaced(frame: DataFrame, files: Sequence[RawFile]) -> DataFrame:
    """Return the rows of files, without the replaced ones."""
    words = frame.sparkSession.createDataFrame(_bitmap(files)).scalar()
    firsts = np.cumsum([0, *map(_word_count, files)]).tolist()
    first = sql.create_map(
        *(
            sql.lit(value)
            for file, word_index in zip(files, firsts, strict=False)
            for value in (_name(file), word_index)
        )
    )
    row = sql.col("_metadata.row_index")
    word_index = sql.element_at(first, sql.col("_metadata.file_name")) + sql.shiftright(
        row, _WORD_SHIFT
    )
    bit = row.bitwiseAND(_WORD_BITS - 1).cast("int")
    live_rows: DataFrame = frame.where(
        sql.bit_get(sql.get(words, word_index.cast("int")), bit) == 0
    )
    return live_rows


def _sized(frame: DataFrame, row_count: int, file_bytes: int) -> DataFrame:
    """Return a frame that Spark does not take for small because its files are.

    Spark knows a relation by the bytes of its files, and would broadcast what is many times as large in memory. It
    adds up what is united: here as many numbers as that takes, none of which stays.
    """
    spark = frame.sparkSession
    threshold, row_bytes = broadcast_threshold(spark), bytes_per_row(arrow_schema_of(frame.schema))
    if row_count * row_bytes <= threshold or file_bytes > threshold:
        return frame
    step = row_bytes / _RANGE_ROW * _RANGE_VALUE
    none = spark.range(0, int(2 * threshold / step), 1, 1).where("id < 0")
    return frame.unionAll(
        # No constants: by a filter on them Spark would see that no row stays, and forget the size.
        none.select(*(sql.col("id").cast("string").cast(f.dataType) for f in frame.schema.fields))
    )


def _has_no_zone(field: sql_types.StructField) -> bool:
    """Whether a column is TIMESTAMP_NTZ: Paimon stores it like a time in UTC, which Spark reads as such alone."""
    return isinstance(field.dataType, sql_types.TimestampNTZType)


def _as_declared(field: sql_types.StructField) -> Column:
    """Return a column as a DataFrame of a table has it; of a floating one the filters stay with Spark.

    Statistics in files leave NaN out, which is the greatest number to Spark: a filter on it would lose rows.
    """
    column = sql.col(quoted(field.name))
    if _has_no_zone(field):
        column = column.cast(field.dataType)  # in UTC, by the session's zone as it is now
    elif isinstance(field.dataType, sql_types.FloatType | sql_types.DoubleType):
        column = sql.nanvl(column, sql.lit(float("nan")).cast(field.dataType))
    return column.alias(field.name, metadata=field.metadata)

"""Lazy reads by polars and DuckDB: columns, filters and limits of their queries reach the scan.

If no rows need merging, the engines get the Parquet files themselves and read them like any others: with
their own threads and statistics, and without page checksums. That applies only to columns for which an engine
gives the same answers from files and from rows in memory; tests/engines compares them.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import InvalidInputError, UnsupportedError
from lsm_engine.prune.polars_expression import polars_predicate
from lsm_engine.table.read.arrow_dataset import ArrowDataset
from lsm_engine.table.read.raw_files import RawFile
from lsm_engine.table.read.scan import Scan

if TYPE_CHECKING:
    import duckdb
    import polars as pl


_FILES_KNOWN = 1024
"""Data files whose engine compatibility is cached; file names are never reused, so no entry is stale."""
_FILES_MAX = 64
"""Up to so many files, polars reads each file by itself, without its replaced rows."""
_ROWS_AT_ONCE = 1 << 20


def lazy_frame(scan: Scan) -> "pl.LazyFrame":
    """Return the rows of a scan as a polars LazyFrame; UnsupportedError where polars is not installed."""
    polars = _installed("polars")
    files = scan.parquet_files() if _polars_takes_files(scan.schema) else None
    if files and _polars_reads(files[0].path, scan.schema):
        paths = [file.path for file in files]
        raw: pl.LazyFrame = polars.scan_parquet(paths, glob=False).select(scan.schema.names)
        return raw
    schema = _polars_schema(scan.schema)

    def rows(
        columns: list[str] | None, predicate: Any, limit: int | None, _batch_size: int | None
    ) -> Iterator[Any]:
        if limit == 0:
            return
        narrowed = partial(_narrowed, scan, columns, predicate, limit)
        files = _files_less_replaced(scan, narrowed, limit, predicate)
        if files and len(files) <= _FILES_MAX and _polars_reads(files[0].path, scan.schema):
            names = scan.schema.names
            lazy = _lazy_frames(
                files, columns or names, predicate, limit, "_" + max(names, key=len)
            )
            frames = _collected(lazy, narrowed)
        else:
            frames = _frames_of_batches(narrowed(), predicate)
        for frame in frames:
            if limit is not None:
                frame = frame.head(limit)
                limit -= frame.height
            yield frame
            if limit == 0:
                return

    plugins = import_module("polars.io.plugins")
    lazy_rows: pl.LazyFrame = plugins.register_io_source(rows, schema=schema, is_pure=True)
    return lazy_rows


def _files_less_replaced(
    scan: Scan, narrowed: Callable[[], Scan], limit: int | None, predicate: Any
) -> tuple[RawFile, ...] | None:
    """Return the files of a scan, if the rows to leave out are known or this read pays for finding them."""
    if scan.replaced is None or not _polars_takes_files(scan.schema):
        return None
    files = scan.parquet_files(scan.replaced)
    if files is None and limit is None and (predicate is None or narrowed().reads_all):
        files = scan.parquet_files(scan.replaced, whole=True)
    return files


def _frames_of_batches(narrowed: Scan, predicate: Any) -> Iterator[Any]:
    from_arrow = import_module("polars").from_arrow
    for batch in narrowed.to_batches():
        yield from_arrow(batch) if predicate is None else from_arrow(batch).filter(predicate)


def _lazy_frames(
    files: Sequence[RawFile], names: Sequence[str], predicate: Any, limit: int | None, number: str
) -> Iterator[tuple[int, Any, Any]]:
    """Yield per file its row count, a lazy frame, and the mask of the rows to keep.

    The mask is None if the frame filters by itself. `number`: a name that no column has.
    """
    polars = import_module("polars")
    for file in sorted(files, key=lambda file: -file.row_count):
        deleted = np.zeros(0, np.int64) if file.deleted is None else file.deleted.positions
        if predicate is not None:
            rows = polars.scan_parquet(file.path, glob=False, row_index_name=number)
            is_deleted = polars.col(number).is_in(
                polars.Series(deleted, dtype=polars.UInt32).implode()
            )
            yield file.row_count, rows.filter(~is_deleted, predicate).select(names), None
            continue
        count = file.row_count
        if limit is not None:  # as many rows as hold so many that count
            count = min(
                count, limit + int(np.searchsorted(deleted - np.arange(len(deleted)), limit))
            )
        counts = np.ones(count, np.bool_)
        counts[deleted[: np.searchsorted(deleted, count)]] = False
        rows = polars.scan_parquet(file.path, glob=False).select(names)
        for first in range(0, count, _ROWS_AT_ONCE):
            flags = polars.Series(counts[first : first + _ROWS_AT_ONCE])
            yield len(flags), rows.slice(first, len(flags)), flags


def _collected(lazy: Iterator[tuple[int, Any, Any]], narrowed: Callable[[], Scan]) -> Iterator[Any]:
    """Yield lazy frames collected; small ones are collected in one call.

    If polars cannot read a file, the scan (`narrowed`) reads it again, as its error names the damage.
    """
    polars = import_module("polars")
    try:
        for batch in _up_to(lazy, _ROWS_AT_ONCE):
            frames = polars.collect_all([frame for _, frame, _ in batch])
            for (_, _, flags), frame in zip(batch, frames, strict=True):
                yield frame if flags is None else frame.filter(flags)
    except (OSError, polars.exceptions.PolarsError):
        # The scan raises our own error for a missing or damaged file; polars' error stands otherwise.
        for _ in narrowed().to_batches():
            pass
        raise


def _up_to(lazy: Iterator[tuple[int, Any, Any]], most: int) -> Iterator[list[tuple[int, Any, Any]]]:
    """Yield groups of adjacent frames with at most `most` rows in all; a larger frame is a group of its own."""
    batch: list[tuple[int, Any, Any]] = []
    for frame in lazy:
        if batch and frame[0] + sum(rows for rows, _, _ in batch) > most:
            yield batch
            batch = []
        batch.append(frame)
    if batch:
        yield batch


def _polars_schema(schema: pa.Schema) -> Any:
    return import_module("polars").from_arrow(schema.empty_table()).schema


def _polars_takes_files(schema: pa.Schema) -> bool:
    """Whether polars can filter files with these columns: on a TIME column it panics or finds no rows."""
    return not any(_holds(pa.types.is_time, column.type) for column in schema)


@lru_cache(maxsize=_FILES_KNOWN)
def _polars_reads(file: str, schema: pa.Schema) -> bool:
    """Whether polars gives columns of a file the same types as Arrow data of `schema`."""
    raw = import_module("polars").scan_parquet([file], glob=False).select(schema.names)
    return bool(raw.collect_schema() == _polars_schema(schema))


def _narrowed(scan: Scan, columns: list[str] | None, predicate: Any, limit: int | None) -> Scan:
    """Return a scan that reads at least the rows that a query needs."""
    if predicate is None:
        return scan.narrowed(columns or None, None, limit)
    condition = polars_predicate(predicate.meta.serialize(format="json"), scan.schema)
    try:
        return scan.narrowed(columns or None, condition, None)
    except InvalidInputError:  # a literal that the column has no room for, or a scan with a limit
        return scan.narrowed(columns or None, None, None)


def duckdb_relation(
    scan: Scan, connection: "duckdb.DuckDBPyConnection | None"
) -> "duckdb.DuckDBPyRelation":
    """Return the rows of a scan as a DuckDB relation; UnsupportedError where DuckDB is not installed."""
    engine = _installed("duckdb")
    database = engine.default_connection() if connection is None else connection
    if database is not engine and not isinstance(database, engine.DuckDBPyConnection):
        raise InvalidInputError(
            "to_duckdb takes a connection of DuckDB first; columns= and where= are given by name",
            given=type(database).__name__,
        )
    if not scan.schema.names:
        raise InvalidInputError(
            "a relation of DuckDB has at least one column; name one in columns="
        )
    files = scan.parquet_files()
    if files is None and scan.replaced is not None:  # what is known by now is left out
        files = scan.narrowed(None, None, None).parquet_files(scan.replaced)
    if (
        files
        and not _takes_bytes_for_text(database, scan.schema)
        and _duckdb_reads(files[0].path, scan.schema)
        and (all(file.deleted is None for file in files) or _duckdb_counts(files))
    ):
        return _duckdb_rows(database, files, scan.schema)
    rows = database.from_arrow(ArrowDataset(scan.schema, scan.narrowed))
    relation: duckdb.DuckDBPyRelation = rows.select(*_duckdb_columns(scan.schema))
    return relation


def _duckdb_columns(schema: pa.Schema) -> list["duckdb.Expression"]:
    """Return the columns of a relation, as expressions where a pushed filter would give wrong rows.

    DuckDB sorts NaN above every number and equal to itself; file statistics and pyarrow ignore NaN. DuckDB pushes
    nanosecond times down as microseconds. DuckDB does not push a filter on an expression down.
    """
    engine = import_module("duckdb")

    def column(field: pa.Field) -> Any:
        stored = engine.ColumnExpression(field.name)
        if pa.types.is_floating(field.type):
            # The constant is NaN, so that DuckDB does not infer the values' bounds from those of the file.
            nan = engine.ConstantExpression("nan").cast(_DUCKDB_FLOATS[field.type])
            is_nan = engine.FunctionExpression("isnan", stored)
            return engine.CaseExpression(is_nan, nan).otherwise(stored).alias(field.name)
        if _holds(_is_in_nanoseconds, field.type) or _holds(pa.types.is_floating, field.type):
            null = engine.ConstantExpression(None)
            return engine.CaseExpression(stored.isnull(), null).otherwise(stored).alias(field.name)
        return stored

    return [*map(column, schema)]


_DUCKDB_FLOATS = {pa.float32(): "FLOAT", pa.float64(): "DOUBLE"}


def _is_in_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _holds(is_such: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Whether a type, or a type nested in it, satisfies a test."""
    parts = (kind.field(index).type for index in range(kind.num_fields))
    return is_such(kind) or any(_holds(is_such, part) for part in parts)


def _duckdb_rows(
    database: "duckdb.DuckDBPyConnection", files: Sequence[RawFile], schema: pa.Schema
) -> "duckdb.DuckDBPyRelation":
    """Return the live rows of files as a DuckDB relation: a BIT constant marks the rows to keep."""
    engine = import_module("duckdb")
    columns = _duckdb_columns(schema)
    if all(file.deleted is None for file in files):
        stored = database.read_parquet([file.path for file in files], hive_partitioning=False)
        return stored.select(*columns)
    counts = np.array([file.row_count for file in files])
    firsts = np.cumsum(counts) - counts
    stays = np.ones(counts.sum(), np.bool_)
    for first, file in zip(firsts, files, strict=True):
        if file.deleted is not None:
            stays[first + file.deleted.positions] = False
    bits = engine.ConstantExpression(np.packbits(stays).tobytes()).cast("BIT")
    file_index = engine.ColumnExpression("file_index").cast("BIGINT")
    first_rows = engine.ConstantExpression(firsts.tolist())
    first_row = engine.FunctionExpression("list_extract", first_rows, file_index + 1)
    row = engine.ColumnExpression("file_row_number")
    largest = int(
        counts.argmax()
    )  # most rows are in it, and a constant is faster than a list look-up
    place = engine.CaseExpression(file_index == largest, row + int(firsts[largest]))
    place = place.otherwise(first_row + row).cast("INTEGER")
    stored = database.sql(_COUNTED.format(", ".join(_sql_text(file.path) for file in files)))
    return stored.filter(engine.FunctionExpression("get_bit", bits, place) == 1).select(*columns)


_COUNTED = (
    "SELECT *, file_index, file_row_number FROM read_parquet([{}], hive_partitioning = false)"
)
_COUNTED_MAX = 1 << 26
"""The most rows for which DuckDB gets a BIT constant."""


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _duckdb_counts(files: Sequence[RawFile]) -> bool:
    """Whether DuckDB can filter rows of files by their row numbers."""
    return sum(file.row_count for file in files) <= _COUNTED_MAX and _duckdb_numbers(files[0].path)


@lru_cache(maxsize=_FILES_KNOWN)
def _duckdb_numbers(file: str) -> bool:
    """Whether DuckDB numbers files and rows of a read, and no column is named like such a number."""
    engine = import_module("duckdb")
    with engine.connect() as alone:
        try:
            alone.sql(_COUNTED.format(_sql_text(file)))
        except engine.BinderException:  # an older version
            return False
        column_names = {
            name.lower() for name in alone.read_parquet([file], hive_partitioning=False).columns
        }
        return not column_names & {"file_index", "file_row_number"}


def _takes_bytes_for_text(connection: "duckdb.DuckDBPyConnection", schema: pa.Schema) -> bool:
    """Whether a connection reads Parquet binary columns as text, and the schema has such columns."""
    if not any(pa.types.is_binary(column.type) for column in schema):
        return False
    setting = connection.sql("SELECT current_setting('binary_as_string')").fetchone()
    return bool(setting and setting[0])


@lru_cache(maxsize=_FILES_KNOWN)
def _duckdb_reads(file: str, schema: pa.Schema) -> bool:
    """Whether DuckDB gives columns of a file the same types as Arrow data of `schema`."""
    engine = import_module("duckdb")
    with engine.connect() as alone:
        raw = alone.read_parquet([file], hive_partitioning=False).select(
            *map(engine.ColumnExpression, schema.names)
        )
        expected = alone.from_arrow(schema.empty_table())
        return bool((raw.columns, raw.types) == (expected.columns, expected.types))


def _installed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as cause:
        raise UnsupportedError(
            f"{name} is not installed: pip install 'lsm-assets[{name}]'"
        ) from cause

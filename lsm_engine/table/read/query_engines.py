"""Lazy reads by polars and DuckDB: columns, filters and limits of their queries reach the scan.

Where nothing has to be merged, they get the Parquet files themselves, and read them as any others: with
their own threads and statistics, and without the checksums of pages. That is so only for columns on which
an engine answers alike from files and from rows in memory; tests/engines compares them.
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
"""Data files of which it is remembered how an engine reads them; their names are never used again."""
_FILES_MAX = 64
"""Files up to which polars reads each by itself, without its replaced rows."""
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
    made: pl.LazyFrame = plugins.register_io_source(rows, schema=schema, is_pure=True)
    return made


def _files_less_replaced(
    scan: Scan, narrowed: Callable[[], Scan], limit: int | None, predicate: Any
) -> tuple[RawFile, ...] | None:
    """Return the files of a scan, if what to leave out is known, or worth to be found out for this read."""
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
    """Yield what polars reads of files: of how many rows, as a lazy frame, and which of its rows count.

    The last is None where the frame looks at that itself. `number`: a name that no column has.
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
    """Yield lazy frames collected, small ones together.

    What polars cannot read the engine does (`narrowed`), for the error that this raises.
    """
    polars = import_module("polars")
    try:
        for together in _up_to(lazy, _ROWS_AT_ONCE):
            frames = polars.collect_all([frame for _, frame, _ in together])
            for (_, _, flags), frame in zip(together, frames, strict=True):
                yield frame if flags is None else frame.filter(flags)
    except (OSError, polars.exceptions.PolarsError):
        for _ in narrowed().to_batches():
            pass
        raise


def _up_to(lazy: Iterator[tuple[int, Any, Any]], most: int) -> Iterator[list[tuple[int, Any, Any]]]:
    """Yield neighbours of so many rows in all, or one of more."""
    together: list[tuple[int, Any, Any]] = []
    for one in lazy:
        if together and one[0] + sum(rows for rows, _, _ in together) > most:
            yield together
            together = []
        together.append(one)
    if together:
        yield together


def _polars_schema(schema: pa.Schema) -> Any:
    return import_module("polars").from_arrow(schema.empty_table()).schema


def _polars_takes_files(schema: pa.Schema) -> bool:
    """Whether polars filters files with such columns: on a TIME column it panics, or finds nothing."""
    return not any(_holds(pa.types.is_time, column.type) for column in schema)


@lru_cache(maxsize=_FILES_KNOWN)
def _polars_reads(file: str, schema: pa.Schema) -> bool:
    """Whether polars makes columns of a file what it makes of Arrow data of `schema`."""
    raw = import_module("polars").scan_parquet([file], glob=False).select(schema.names)
    return bool(raw.collect_schema() == _polars_schema(schema))


def _narrowed(scan: Scan, columns: list[str] | None, predicate: Any, limit: int | None) -> Scan:
    """Return a read of no fewer rows than a query wants."""
    if predicate is None:
        return scan.narrowed(columns or None, None, limit)
    where = polars_predicate(predicate.meta.serialize(format="json"), scan.schema)
    try:
        return scan.narrowed(columns or None, where, None)
    except InvalidInputError:  # a literal that the column has no room for, or a scan with a limit
        return scan.narrowed(columns or None, None, None)


def duckdb_relation(
    scan: Scan, connection: "duckdb.DuckDBPyConnection | None"
) -> "duckdb.DuckDBPyRelation":
    """Return the rows of a scan as a DuckDB relation; UnsupportedError where DuckDB is not installed."""
    engine = _installed("duckdb")
    at = engine.default_connection() if connection is None else connection
    if at is not engine and not isinstance(at, engine.DuckDBPyConnection):
        raise InvalidInputError(
            "to_duckdb takes a connection of DuckDB first; columns= and where= are given by name",
            given=type(at).__name__,
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
        and not _takes_bytes_for_text(at, scan.schema)
        and _duckdb_reads(files[0].path, scan.schema)
        and (all(file.deleted is None for file in files) or _duckdb_counts(files))
    ):
        return _duckdb_rows(at, files, scan.schema)
    rows = at.from_arrow(ArrowDataset(scan.schema, scan.narrowed))
    made: duckdb.DuckDBPyRelation = rows.select(*_duckdb_columns(scan.schema))
    return made


def _duckdb_columns(schema: pa.Schema) -> list["duckdb.Expression"]:
    """Return the columns of a relation; of those that only DuckDB filters rightly, expressions with the same values.

    Statistics of files, and pyarrow, leave out NaN, which to DuckDB is equal to itself and above every number. Of times in
    nanoseconds it hands down microseconds. A filter on an expression reaches neither files nor pyarrow.
    """
    engine = import_module("duckdb")

    def column(field: pa.Field) -> Any:
        stored = engine.ColumnExpression(field.name)
        if pa.types.is_floating(field.type):
            # The constant is NaN, so that DuckDB does not take the bounds of the file for those of the values.
            nan = engine.ConstantExpression("nan").cast(_DUCKDB_FLOATS[field.type])
            is_nan = engine.FunctionExpression("isnan", stored)
            return engine.CaseExpression(is_nan, nan).otherwise(stored).alias(field.name)
        if _holds(_is_in_nanoseconds, field.type) or _holds(pa.types.is_floating, field.type):
            nothing = engine.ConstantExpression(None)
            return (
                engine.CaseExpression(stored.isnull(), nothing).otherwise(stored).alias(field.name)
            )
        return stored

    return [*map(column, schema)]


_DUCKDB_FLOATS = {pa.float32(): "FLOAT", pa.float64(): "DOUBLE"}


def _is_in_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _holds(is_such: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Whether a type, or one inside of it, is such a type."""
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return is_such(kind) or any(_holds(is_such, part) for part in parts)


def _duckdb_rows(
    at: "duckdb.DuckDBPyConnection", files: Sequence[RawFile], schema: pa.Schema
) -> "duckdb.DuckDBPyRelation":
    """Return the rows of files that nothing replaces, as DuckDB reads them: with a bit for each row that stays."""
    engine = import_module("duckdb")
    columns = _duckdb_columns(schema)
    if all(file.deleted is None for file in files):
        stored = at.read_parquet([file.path for file in files], hive_partitioning=False)
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
    largest = int(counts.argmax())  # has most of the rows, and needs no look into a list for each
    place = engine.CaseExpression(file_index == largest, row + int(firsts[largest]))
    place = place.otherwise(first_row + row).cast("INTEGER")
    stored = at.sql(_COUNTED.format(", ".join(_sql_text(file.path) for file in files)))
    return stored.filter(engine.FunctionExpression("get_bit", bits, place) == 1).select(*columns)


_COUNTED = (
    "SELECT *, file_index, file_row_number FROM read_parquet([{}], hive_partitioning = false)"
)
_COUNTED_MAX = 1 << 26
"""Rows of files that DuckDB is handed a bit for."""


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _duckdb_counts(files: Sequence[RawFile]) -> bool:
    """Whether DuckDB can leave rows of files out by their numbers."""
    return sum(file.row_count for file in files) <= _COUNTED_MAX and _duckdb_numbers(files[0].path)


@lru_cache(maxsize=_FILES_KNOWN)
def _duckdb_numbers(file: str) -> bool:
    """Whether DuckDB numbers the files of a read and their rows, and no column has the name of such a number."""
    engine = import_module("duckdb")
    with engine.connect() as alone:
        try:
            alone.sql(_COUNTED.format(_sql_text(file)))
        except engine.BinderException:  # an older version
            return False
        named = {
            name.lower() for name in alone.read_parquet([file], hive_partitioning=False).columns
        }
        return not named & {"file_index", "file_row_number"}


def _takes_bytes_for_text(connection: "duckdb.DuckDBPyConnection", schema: pa.Schema) -> bool:
    """Whether somebody has set on a connection that bytes in Parquet files are text, and there are some."""
    if not any(pa.types.is_binary(column.type) for column in schema):
        return False
    found = connection.sql("SELECT current_setting('binary_as_string')").fetchone()
    return bool(found and found[0])


@lru_cache(maxsize=_FILES_KNOWN)
def _duckdb_reads(file: str, schema: pa.Schema) -> bool:
    """Whether DuckDB makes columns of a file what it makes of Arrow data of `schema`."""
    engine = import_module("duckdb")
    with engine.connect() as alone:
        raw = alone.read_parquet([file], hive_partitioning=False).select(
            *map(engine.ColumnExpression, schema.names)
        )
        made = alone.from_arrow(schema.empty_table())
        return bool((raw.columns, raw.types) == (made.columns, made.types))


def _installed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as cause:
        raise UnsupportedError(
            f"{name} is not installed: pip install 'lsm-assets[{name}]'"
        ) from cause

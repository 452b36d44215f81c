"""Lazy reads by polars and DuckDB: columns, filters and limits of their queries reach the scan.

If no rows need merging, the engines get the Parquet files themselves and read them like any others: with
their own threads and statistics, and without page checksums. That applies only to columns for which an engine
gives the same answers from files and from rows in memory; tests/engines compares them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lsm_engine.base.errors import InvalidInputError, UnsupportedError
from lsm_engine.filter.where import AllOf, AnyOf, Filter, Predicate, col
from lsm_engine.read.scan import RawFile, Scan

if TYPE_CHECKING:
    import duckdb
    import polars as pl


# -- A pyarrow dataset over a table, for engines that push columns and filters into one ------------

OpenScan = Callable[[Sequence[str] | None, Filter | None, int | None], Scan]


class ArrowDataset(ds.Dataset):  # type: ignore[misc]
    """One state of a table with the methods of a `pyarrow.dataset.Dataset`.

    Columns, filters and limits reach the scan. Arguments that only steer how pyarrow reads files
    (`use_threads`, `memory_pool`, readahead) are accepted and ignored; so is `batch_size`, except by `to_batches`.
    """

    def __init__(self, schema: pa.Schema, open_scan: OpenScan) -> None:
        self._schema = schema  # what pyarrow's own class would hold is never made
        self._open_scan = open_scan

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None, **_: Any
    ) -> pa.Table:
        """Return the rows that a filter keeps."""
        return self._scan(columns, filter).to_arrow()

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        batch_size: int | None = None,
        **_: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, of at most `batch_size` rows."""
        for batch in self._scan(columns, filter).to_batches():
            size = batch_size or max(1, batch.num_rows)
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)

    def to_reader(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return self._scan(columns, filter).to_reader()

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None, **_: Any
    ) -> ds.Scanner:
        """Return the rows as a pyarrow Scanner."""
        return ArrowScanner(self._scan(columns, filter))

    def head(
        self,
        num_rows: int,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        **_: Any,
    ) -> pa.Table:
        """Return the first rows that are found."""
        return self._scan(columns, filter, num_rows).to_arrow()

    def count_rows(self, filter: Filter | None = None, **_: Any) -> int:
        """Return how many rows a filter keeps."""
        return self._scan(None, filter).count()

    def filter(self, expression: Filter) -> "ArrowDataset":
        """Return the rows that a filter keeps, as a dataset."""
        scan = self._scan(None, expression)
        return ArrowDataset(scan.schema, scan.narrowed)

    def take(self, indices: Any, **_: Any) -> pa.Table:
        """Return rows by their place; all are read."""
        return self.to_table().take(indices)

    def sort_by(self, sorting: Any, **_: Any) -> pa.Table:
        """Return all rows in an order."""
        return self.to_table().sort_by(sorting)

    @property
    def partition_expression(self) -> pc.Expression:
        """The expression that all rows satisfy: always true, as no partition is promised."""
        return pc.scalar(value=True)

    def get_fragments(self, filter: Filter | None = None) -> Iterator["ArrowFragment"]:
        """Yield the only fragment, with the rows that a filter keeps."""
        yield ArrowFragment(self if filter is None else self.filter(filter))

    def _get_fragments(self, filter: Filter | None) -> Iterator["ArrowFragment"]:
        return self.get_fragments(filter)

    def _not_here(self, *_: Any, **__: Any) -> Any:
        raise UnsupportedError("a table's dataset cannot do this; read it first: to_table()")

    join = join_asof = replace_schema = _scanner_options = _scan_options = _not_here
    __reduce__ = __reduce_cython__ = __setstate_cython__ = _not_here

    def _scan(
        self, columns: Sequence[str] | None, row_filter: Filter | None, limit: int | None = None
    ) -> Scan:
        return self._open_scan(columns, row_filter, limit)


class ArrowScanner(ds.Scanner):  # type: ignore[misc]
    """A scan with the methods of a pyarrow Scanner. The caller's thread reads rows as it consumes them.

    PyArrow's own scanner pulls rows in a background thread. That thread goes on after a reader has reached its limit,
    and aborts the process if the interpreter ends meanwhile.
    """

    def __init__(self, scan: Scan) -> None:
        self._read = scan  # what pyarrow's own class would hold is never made

    @property
    def dataset_schema(self) -> pa.Schema:
        """The columns that are read."""
        return self._read.schema

    projected_schema = dataset_schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return self._read.to_reader()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches."""
        return self._read.to_batches()

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """Yield the rows in batches, each with its fragment: the only one."""
        fragment = ArrowFragment(ArrowDataset(self._read.schema, self._read.narrowed))
        return (ds.TaggedRecordBatch(batch, fragment) for batch in self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows."""
        return self._read.to_arrow()

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows that are found."""
        return self._read.narrowed(None, None, num_rows).to_arrow()

    def take(self, indices: Any) -> pa.Table:
        """Return rows by their place; all are read."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return self._read.count()


class ArrowFragment:
    """The only fragment of a dataset, for engines that read fragment by fragment."""

    def __init__(self, dataset: ArrowDataset) -> None:
        self._dataset = dataset
        self.physical_schema = dataset.schema
        self.partition_expression = dataset.partition_expression

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> ds.Scanner:
        """Return a pyarrow Scanner; `schema` is the dataset's."""
        return self._dataset.scanner(**options)

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """Return the rows; `schema` is the dataset's."""
        return self._dataset.to_table(**options)

    def count_rows(self, **options: Any) -> int:
        """Return how many rows there are."""
        return self._dataset.count_rows(**options)


# -- Polars expression -----------------------------------------------------------------------------
#
# Conversion of polars expressions to predicates that keep at least the rows that polars keeps.
#
# polars serializes an expression as JSON and does not promise its form. polars itself applies
# the whole expression to the rows that the scan returns, so unknown parts are left out.
# Comparisons of floats are left out too: NaN is above every number in polars, and incomparable
# in Arrow.

_EPOCH = date(1970, 1, 1)
_COMPARED: Mapping[str, Callable[[Any, Any], Predicate]] = {
    "Eq": lambda column, value: column == value,
    "NotEq": lambda column, value: column != value,
    "Lt": lambda column, value: column < value,
    "LtEq": lambda column, value: column <= value,
    "Gt": lambda column, value: column > value,
    "GtEq": lambda column, value: column >= value,
}
_FLIPPED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}


def polars_predicate(text: str, schema: pa.Schema) -> Predicate | None:
    """Return a predicate for every row that a polars expression, in JSON, keeps; None: any row."""
    try:
        return _read(json.loads(text), schema)
    except (
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
        OverflowError,
    ):  # polars filters itself
        return None


def _read(node: Any, schema: pa.Schema) -> Predicate | None:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            parts = [
                part for part in (_read(left, schema), _read(right, schema)) if part is not None
            ]
            return AllOf(parts=tuple(parts)) if len(parts) > 1 else next(iter(parts), None)
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            first, second = _read(left, schema), _read(right, schema)
            return None if first is None or second is None else AnyOf(parts=(first, second))
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": {"Literal": value}}}:
            return _compared(name, op, value, schema)
        case {"BinaryExpr": {"left": {"Literal": value}, "op": op, "right": {"Column": name}}}:
            return _compared(name, _FLIPPED.get(op, op), value, schema)
        case {"Function": {"input": [{"Column": name}, *arguments], "function": function}}:
            return _called(name, arguments, function, schema)
        case _:
            return None


def _called(name: str, arguments: list[Any], function: Any, schema: pa.Schema) -> Predicate | None:
    match function, arguments:
        case {"Boolean": "IsNull"}, []:
            return col(name).is_null()
        case {"Boolean": "IsNotNull"}, []:
            return col(name).is_not_null()
        case {"StringExpr": "StartsWith"}, [{"Literal": {"Scalar": {"String": prefix}}}]:
            return (
                col(name).starts_with(prefix)
                if pa.types.is_string(schema.field(name).type)
                else None
            )
        case {"Boolean": {"IsBetween": _}}, [{"Literal": low}, {"Literal": high}]:
            above = _compared(name, "GtEq", low, schema)
            below = _compared(name, "LtEq", high, schema)
            return None if above is None or below is None else above & below
        case _:
            return None


def _compared(name: str, op: str, literal: Any, schema: pa.Schema) -> Predicate | None:
    compare = _COMPARED.get(op)
    value = _value(literal, schema.field(name).type)
    return None if compare is None or value is None else compare(col(name), value)


def _value(literal: Any, kind: pa.DataType) -> object:
    """Return a literal as a value of a column's type; None if it is of another, or null."""
    match literal:
        case {"Scalar": {"String": str(text)}} if pa.types.is_string(kind):
            return text
        case {"Scalar": {"Boolean": bool(flag)}} if pa.types.is_boolean(kind):
            return flag
        case {"Scalar": {"Date": int(days)}} if pa.types.is_date32(kind):
            return _EPOCH + timedelta(days=days)
        case {"Scalar": {"Decimal": [int(unscaled), _, int(scale)]}} if pa.types.is_decimal(kind):
            # Arithmetic of decimals would round to 28 digits.
            return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
        case {"Scalar": {"Datetime": [int(count), "Microseconds", None]}}:
            is_zoneless = pa.types.is_timestamp(kind) and kind.tz is None
            return pa.scalar(count, pa.timestamp("us")) if is_zoneless else None
        case {"Scalar": dict(forms)} | {"Dyn": dict(forms)} if pa.types.is_integer(kind):
            return next((n for form, n in forms.items() if "Int" in form and type(n) is int), None)
        case _:
            return None


# -- Lazy reads by polars and DuckDB ---------------------------------------------------------------

_FILES_KNOWN = 1024
"""Data files whose engine compatibility is cached; file names are never reused, so no entry is stale."""
_FILES_MAX = 64
"""Up to so many files, polars reads each file by itself, without its replaced rows."""
_ROWS_AT_ONCE = 1 << 20
_ROW_BYTES_MAX = 256
"""Rows that take more come from a scan: polars holds whole row groups of several files at once."""


def lazy_frame(scan: Scan) -> "pl.LazyFrame":
    """Return the rows of a scan as a polars LazyFrame; UnsupportedError where polars is not installed."""
    polars = _installed("polars")
    # polars reads the files itself where the rows need no merge.
    files = scan.parquet_files() if _polars_takes_files(scan.schema) else None
    if files and _polars_reads(files[0].path, scan.schema):
        paths = [file.path for file in files]
        raw: pl.LazyFrame = polars.scan_parquet(paths, glob=False).select(scan.schema.names)
        return raw
    schema = _polars_schema(scan.schema)

    def rows(
        columns: list[str] | None, predicate: Any, limit: int | None, _batch_size: int | None
    ) -> Iterator[Any]:
        # A limit of zero reads nothing, not even the plan.
        if limit == 0:
            return
        narrowed = partial(_narrowed, scan, columns, predicate, limit)
        files = _files_less_replaced(scan, narrowed, limit, predicate)
        names = scan.schema.names
        if (
            files
            and len(files) <= _FILES_MAX
            and _polars_reads(files[0].path, scan.schema)
            and _row_bytes(files[0].path, tuple(columns or names)) <= _ROW_BYTES_MAX
        ):
            lazy = _lazy_frames(
                files, columns or names, predicate, limit, "_" + max(names, key=len)
            )
            frames = _collected(lazy, narrowed)
        else:
            frames = _frames_of_batches(narrowed(), predicate)
        # The limit holds over all frames, so each one lowers it.
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
    # Without known replaced rows each file would hold stale versions.
    if scan.replaced is None or not _polars_takes_files(scan.schema):
        return None
    files = scan.parquet_files(scan.replaced)
    # A merge of all keys pays only for a read that reaches the end.
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
    # The largest files come first, so that no thread ends late with one of them.
    for file in sorted(files, key=lambda file: -file.row_count):
        deleted = np.zeros(0, np.int64) if file.deleted is None else file.deleted.positions
        # A filter changes the positions of rows, so deletions are applied by number.
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


@lru_cache(maxsize=_FILES_KNOWN)
def _row_bytes(file: str, names: tuple[str, ...]) -> int:
    """Return the encoded, uncompressed bytes of a row of a Parquet file in some columns."""
    footer = import_module("pyarrow.parquet").read_metadata(file)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = [group.column(leaf) for group in groups for leaf in range(group.num_columns)]
    chosen = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in names]
    stored_bytes: int = sum(chunk.total_uncompressed_size for chunk in chosen)
    return stored_bytes // max(int(footer.num_rows), 1)


def _narrowed(scan: Scan, columns: list[str] | None, predicate: Any, limit: int | None) -> Scan:
    """Return a scan that reads at least the rows that a query needs."""
    # Only without a predicate does the limit count the rows that are read.
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
    # A relation belongs to one connection, and the default one is what users expect.
    database = engine.default_connection() if connection is None else connection
    if database is not engine and not isinstance(database, engine.DuckDBPyConnection):
        raise InvalidInputError(
            "to_duckdb takes a connection of DuckDB first; columns= and where= are given by name",
            given=type(database).__name__,
        )
    # DuckDB has no relation without columns.
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
    # Without deleted rows DuckDB needs no numbers of rows.
    if all(file.deleted is None for file in files):
        stored = database.read_parquet([file.path for file in files], hive_partitioning=False)
        return stored.select(*columns)
    counts = np.array([file.row_count for file in files])
    firsts = np.cumsum(counts) - counts
    stays = np.ones(counts.sum(), np.bool_)
    for first, file in zip(firsts, files, strict=True):
        if file.deleted is not None:
            stays[first + file.deleted.positions] = False
    # A bit per row is the smallest form in which DuckDB takes the deletions.
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
    # A connection of its own leaves the caller's settings alone.
    with engine.connect() as alone:
        try:
            alone.sql(_COUNTED.format(_sql_text(file)))
        except engine.BinderException:  # an older version
            return False
        # A column of such a name would hide the number.
        column_names = {
            name.lower() for name in alone.read_parquet([file], hive_partitioning=False).columns
        }
        return not column_names & {"file_index", "file_row_number"}


def _takes_bytes_for_text(connection: "duckdb.DuckDBPyConnection", schema: pa.Schema) -> bool:
    """Whether a connection reads Parquet binary columns as text, and the schema has such columns."""
    # Without binary columns the setting changes nothing.
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

"""Lazy reads by polars and DuckDB: columns, filters and limits of their queries reach the scan.

Where nothing has to be merged, they get the Parquet files themselves, and read them as any others: with
their own threads and statistics, and without the checksums of pages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import InvalidInputError, UnsupportedError
from lsm_engine.prune.expression import to_expression, tree_of
from lsm_engine.prune.polars_expression import polars_predicate
from lsm_engine.prune.predicate import And, Compare, Comparison, Opaque, Or, Predicate
from lsm_engine.prune.where import Filter
from lsm_engine.table.read.arrow_dataset import ArrowDataset
from lsm_engine.table.read.scan import Scan

if TYPE_CHECKING:
    import duckdb
    import polars as pl


_FILES_KNOWN = 1024
"""Data files of which it is remembered how an engine reads them; their names are never used again."""
_ABOVE = (Comparison.GREATER, Comparison.GREATER_EQUAL)


def lazy_frame(scan: Scan) -> "pl.LazyFrame":
    """Return the rows of a scan as a polars LazyFrame; UnsupportedError where polars is not installed."""
    polars = _installed("polars")
    files = scan.parquet_files()
    if files and _polars_reads(files[0], scan.schema):
        raw: pl.LazyFrame = polars.scan_parquet(files, glob=False).select(scan.schema.names)
        return raw
    schema = _polars_schema(scan.schema)

    def rows(
        columns: list[str] | None, predicate: Any, limit: int | None, _batch_size: int | None
    ) -> Iterator[Any]:
        if limit == 0:
            return
        narrowed = _narrowed(scan, columns, predicate, limit)
        for batch in narrowed.to_batches():
            frame = polars.from_arrow(batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            if limit is not None:
                frame = frame.head(limit)
                limit -= frame.height
            yield frame
            if limit == 0:
                return

    plugins = import_module("polars.io.plugins")
    made: pl.LazyFrame = plugins.register_io_source(rows, schema=schema, is_pure=True)
    return made


def _polars_schema(schema: pa.Schema) -> Any:
    return import_module("polars").from_arrow(schema.empty_table()).schema


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
    at = connection or engine.default_connection()
    files = scan.parquet_files()
    if (
        files
        and not _takes_bytes_for_text(at, scan.schema)
        and _duckdb_reads(files[0], scan.schema)
    ):
        raw: duckdb.DuckDBPyRelation = at.read_parquet(files).select(
            *map(engine.ColumnExpression, scan.schema.names)
        )
        return raw
    made: duckdb.DuckDBPyRelation = at.from_arrow(
        ArrowDataset(scan.schema, partial(_read_for_duckdb, scan))
    )
    return made


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
        raw = alone.read_parquet([file]).select(*map(engine.ColumnExpression, schema.names))
        made = alone.from_arrow(schema.empty_table())
        return bool((raw.columns, raw.types) == (made.columns, made.types))


def _read_for_duckdb(
    scan: Scan, columns: Sequence[str] | None, where: Filter | None, limit: int | None
) -> Scan:
    """Return what DuckDB asks for. To it NaN is above every number; the filter it hands down forgets that."""
    if where is not None:
        where = to_expression(_with_nan(tree_of(where, scan.schema), scan.schema))
    return scan.narrowed(columns, where, limit)


def _with_nan(predicate: Predicate, schema: pa.Schema) -> Predicate:
    if isinstance(predicate, And | Or):
        parts = tuple(_with_nan(part, schema) for part in predicate.parts)
        return replace(predicate, parts=parts)
    if not isinstance(predicate, Compare) or predicate.comparison not in _ABOVE:
        return predicate
    column = predicate.column
    if not pa.types.is_floating(schema.field(column).type):
        return predicate
    return Or(parts=(predicate, Opaque(columns=(column,), expression=pc.is_nan(pc.field(column)))))


def _installed(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as cause:
        raise UnsupportedError(
            f"{name} is not installed: pip install 'lsm-assets[{name}]'"
        ) from cause

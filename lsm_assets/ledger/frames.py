"""Convert between tables and the frames of assets: Arrow, polars, pandas, DuckDB, daft, Spark."""

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, get_args

import pyarrow as pa

import lsm_engine as lsm
from lsm_assets.resources import LsmResource
from lsm_engine import InvalidInputError, TableSchema, open_rows

ScanArguments = Mapping[str, Any]
"""Arguments of `Table.scan`: columns, filter, and snapshot or tag."""


def _load_spark(table: lsm.Table, arguments: ScanArguments, resource: LsmResource) -> Any:
    from lsm_engine.spark import read_dataframe  # noqa: PLC0415 -- PySpark takes a second to import

    return read_dataframe(table, **arguments, spark=resource.spark)


def _load_daft(table: lsm.Table, arguments: ScanArguments, _: LsmResource) -> Any:
    import daft  # noqa: PLC0415 -- an optional dependency

    return daft.from_arrow(table.scan(**arguments).to_arrow())


def _load_reader(
    table: lsm.Table, arguments: ScanArguments, _: LsmResource
) -> pa.RecordBatchReader:
    return table.scan(**arguments).to_reader()


_LOADERS: Mapping[tuple[str, str], Callable[[lsm.Table, ScanArguments, LsmResource], Any]] = {
    ("pyarrow", "Table"): lambda table, read, _: table.scan(**read).to_arrow(),
    ("pyarrow", "RecordBatchReader"): _load_reader,
    ("lsm_engine", "Scan"): lambda table, read, _: table.scan(**read),
    ("polars", "LazyFrame"): lambda table, read, _: table.to_polars(**read),
    ("polars", "DataFrame"): lambda table, read, _: table.to_polars(**read).collect(),
    ("pandas", "DataFrame"): lambda table, read, _: table.scan(**read).to_pandas(),
    ("duckdb", "DuckDBPyRelation"): lambda table, read, _: table.to_duckdb(**read),
    ("_duckdb", "DuckDBPyRelation"): lambda table, read, _: table.to_duckdb(**read),
    ("daft", "DataFrame"): _load_daft,
    ("pyspark", "DataFrame"): _load_spark,
}


def load_rows(
    table: lsm.Table, arguments: ScanArguments, annotation: Any, resource: LsmResource
) -> Any:
    """Return rows of a table as the type of a parameter's annotation.

    LazyFrames of polars, relations of DuckDB and DataFrames of Spark read the rows when they are computed, at the
    snapshot that `arguments` names.

    Args:
        table: The table.
        arguments: Arguments of `Table.scan`.
        annotation: The annotation; None, Any and object mean `pyarrow.Table`.
        resource: The resource, for its Spark session.

    Raises InvalidInputError for a type that is not supported.
    """
    loader = _LOADERS.get(_type_name(annotation))
    if loader is None:
        supported = ", ".join(f"{module}.{kind}" for module, kind in _LOADERS if module[0] != "_")
        raise InvalidInputError(
            f"rows of a table cannot be loaded as {annotation!r}; annotate the parameter with one of "
            + supported,
            table=table.name,
        )
    return loader(table, arguments, resource)


def empty_rows(annotation: Any) -> Any:
    """Return no rows without columns, for a table that does not exist yet; None if the type has no empty value."""
    library, kind = _type_name(annotation)
    if library in ("polars", "pandas"):
        return _unwrap_annotation(annotation)()
    rows = pa.table({})
    return {"Table": rows, "RecordBatchReader": rows.to_reader()}.get(kind)


def _unwrap_annotation(annotation: Any) -> Any:
    types = [argument for argument in get_args(annotation) if argument is not NoneType]
    # `Optional[X]` is X, as a load always has rows. `list[X]` collects outputs, which are loaded one by one.
    return types[0] if len(types) == 1 else annotation


def _type_name(annotation: Any) -> tuple[str, str]:
    annotation = _unwrap_annotation(annotation)
    if annotation is None or annotation is Any or annotation is object:
        annotation = pa.Table
    return str(getattr(annotation, "__module__", "")).split(".")[0], getattr(
        annotation, "__name__", ""
    )


def to_rows(value: Any, schema: TableSchema | None = None) -> Any:
    """Return the value of an asset or op as rows that a table can write. Lazy frames are computed.

    A list of dictionaries has the columns of all of them; `schema` distinguishes maps from structs.
    Raises InvalidInputError for a value without rows.
    """
    if isinstance(value, list):
        return open_rows(value, schema).read_all()
    if type(value).__module__.startswith("polars") and not hasattr(value, "__arrow_c_stream__"):
        return value.collect()
    if not hasattr(value, "__arrow_c_stream__") and not hasattr(value, "sparkSession"):
        raise InvalidInputError(
            f"an asset or op returned {type(value).__name__}, which holds no rows; return a frame or table of "
            "pyarrow, polars, pandas, DuckDB, daft or Spark, a list of dictionaries, or None"
        )
    return value


def rows_schema(rows: Any) -> pa.Schema:
    """Return the schema of rows, without `_row_kind`. Nothing is computed, if the rows can tell their schema."""
    if isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        schema = rows.schema
    elif hasattr(rows, "sparkSession"):
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 -- as above

        schema = to_arrow_schema(rows.schema)  # an Arrow stream would run the query
    elif hasattr(rows, "__arrow_c_schema__"):
        schema = pa.schema(rows)  # as above
    else:
        schema = pa.RecordBatchReader.from_stream(rows).schema
    return pa.schema([field for field in schema if field.name != "_row_kind"])

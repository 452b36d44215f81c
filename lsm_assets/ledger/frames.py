"""Rows as assets return and take them: Arrow, polars, pandas, DuckDB, daft, Spark."""

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, get_args

import pyarrow as pa

import lsm_engine as lsm
from lsm_assets.resources import LsmResource
from lsm_engine import InvalidInputError, TableSchema, open_rows

Read = Mapping[str, Any]
"""Arguments of `Table.scan`: columns, where, and which state."""


def _spark(table: lsm.Table, read: Read, resource: LsmResource) -> Any:
    from lsm_engine.spark import read_dataframe  # noqa: PLC0415 -- PySpark takes a second to import

    return read_dataframe(table, **read, spark=resource.spark)


def _daft(table: lsm.Table, read: Read, _: LsmResource) -> Any:
    import daft  # noqa: PLC0415 -- nobody needs it but who asks for it

    return daft.from_arrow(table.scan(**read).to_arrow())


def _reader(table: lsm.Table, read: Read, _: LsmResource) -> pa.RecordBatchReader:
    return table.scan(**read).to_reader()


_LOADED: Mapping[tuple[str, str], Callable[[lsm.Table, Read, LsmResource], Any]] = {
    ("pyarrow", "Table"): lambda table, read, _: table.scan(**read).to_arrow(),
    ("pyarrow", "RecordBatchReader"): _reader,
    ("lsm_engine", "Scan"): lambda table, read, _: table.scan(**read),
    ("polars", "LazyFrame"): lambda table, read, _: table.to_polars(**read),
    ("polars", "DataFrame"): lambda table, read, _: table.to_polars(**read).collect(),
    ("pandas", "DataFrame"): lambda table, read, _: table.scan(**read).to_pandas(),
    ("duckdb", "DuckDBPyRelation"): lambda table, read, _: table.to_duckdb(**read),
    ("_duckdb", "DuckDBPyRelation"): lambda table, read, _: table.to_duckdb(**read),
    ("daft", "DataFrame"): _daft,
    ("pyspark", "DataFrame"): _spark,
}


def load(table: lsm.Table, read: Read, wanted: Any, resource: LsmResource) -> Any:
    """Return rows of a table as the type that a parameter is annotated with; Arrow if with none.

    polars' LazyFrame, DuckDB's relation and Spark's DataFrame read when they are computed, and stay at
    the state that `read` names. Raises InvalidInputError for other types.
    """
    found = _LOADED.get(_name_of(wanted))
    if found is None:
        known = ", ".join(f"{module}.{kind}" for module, kind in _LOADED if module[0] != "_")
        raise InvalidInputError(
            f"rows of a table cannot be loaded as {wanted!r}; annotate the parameter with one of "
            + known,
            table=table.name,
        )
    return found(table, read, resource)


def nothing_as(wanted: Any) -> Any:
    """Return no rows, of no columns, of a table that is not there yet; None where a type has no such."""
    library, kind = _name_of(wanted)
    if library in ("polars", "pandas"):
        return _one_of(wanted)()
    rows = pa.table({})
    return {"Table": rows, "RecordBatchReader": rows.to_reader()}.get(kind)


def _one_of(wanted: Any) -> Any:
    some = [one for one in get_args(wanted) if one is not NoneType]
    # Optional, as there are always rows; or a list, of which each is loaded alone.
    return some[0] if len(some) == 1 else wanted


def _name_of(wanted: Any) -> tuple[str, str]:
    wanted = _one_of(wanted)
    if wanted is None or wanted is Any or wanted is object:
        wanted = pa.Table
    return str(getattr(wanted, "__module__", "")).split(".")[0], getattr(wanted, "__name__", "")


def as_rows(value: Any, schema: TableSchema | None = None) -> Any:
    """Return what an asset or op returned as rows that a table takes: a lazy frame is computed.

    A list of dictionaries has every column that any of them names; `schema` tells maps from structures.
    Raises InvalidInputError for what holds no rows.
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


def schema_of(rows: Any) -> pa.Schema:
    """Return the columns of rows, without `_row_kind`."""
    if isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        found = rows.schema
    elif hasattr(rows, "sparkSession"):
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 -- as above

        found = to_arrow_schema(rows.schema)  # its stream would compute it
    elif hasattr(rows, "__arrow_c_schema__"):
        found = pa.schema(rows)  # so would that of others
    else:
        found = pa.RecordBatchReader.from_stream(rows).schema
    return pa.schema([field for field in found if field.name != "_row_kind"])

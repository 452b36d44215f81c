"""Readers of a table's Iceberg metadata: pyiceberg, Polars by it, and DuckDB where its extension is installed."""

import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.table import StaticTable

import lsm_engine as lsm

HINT = "version-hint.text"


def metadata_folder(table: lsm.Table) -> Path:
    location = Path(table.location)
    if table.schema.options.texts["metadata.iceberg.storage"] == "hadoop-catalog":
        database = location.parent.name.removesuffix(".db")
        return location.parent.parent / "iceberg" / database / location.name / "metadata"
    return location / "metadata"


def metadata_file(table: lsm.Table) -> str:
    """The newest version of the metadata, as the hint names it."""
    folder = metadata_folder(table)
    return str(folder / f"v{(folder / HINT).read_text()}.metadata.json")


def face(table: lsm.Table) -> StaticTable:
    return StaticTable.from_metadata(metadata_file(table))


def in_order(rows: pa.Table) -> list[str]:
    """Rows as text, in which NaN is NaN."""
    return sorted(map(repr, rows.to_pylist()))


EXTENSIONS = ("httpfs", "avro", "iceberg")


def duckdb_extensions() -> list[str]:
    """The paths of DuckDB's extensions, from their packages."""
    packages = [importlib.util.find_spec(f"duckdb_extension_{name}") for name in EXTENSIONS]
    return [
        str(path)
        for package in packages
        if package is not None
        for folder in package.submodule_search_locations or ()
        for path in Path(folder).glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")
    ]


@cache
def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection | None:
    """A connection with DuckDB's extension, from a package or as it is installed; None where it is not to be had."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    try:
        for source in duckdb_extensions() or EXTENSIONS:
            connection.execute(f"LOAD '{source}'")
    except duckdb.Error:
        return None
    return connection


def duckdb_reads_iceberg() -> bool:
    return duckdb_with_iceberg() is not None


def duckdb_rows(table: lsm.Table, where: str = "true", parameters: Sequence[Any] = ()) -> pa.Table:
    connection = duckdb_with_iceberg()
    assert connection is not None
    file = metadata_file(table).replace("'", "''")
    query = f"SELECT * FROM iceberg_scan('{file}') WHERE {where}"
    return connection.execute(query, parameters).to_arrow_table()

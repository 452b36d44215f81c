"""Readers of a table's Iceberg metadata: pyiceberg, Polars by it, and DuckDB where its extension is installed."""

from functools import cache
from pathlib import Path

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


@cache
def duckdb_reads_iceberg() -> bool:
    try:
        duckdb.connect().execute("LOAD iceberg")
    except duckdb.Error:
        return False
    return True


def duckdb_rows(table: lsm.Table, where: str = "true") -> pa.Table:
    connection = duckdb.connect()
    connection.execute("LOAD iceberg")
    query = f"SELECT * FROM iceberg_scan('{metadata_file(table)}') WHERE {where}"
    return connection.execute(query).to_arrow_table()

"""Parquet files of other writers, taken over by links: real clients read them as the table's own."""

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.interop.canonical import difference
from tests.interop.clients import Client
from tests.interop.our_tables import EPOCH, create, rows_of

pytestmark = pytest.mark.interop
COUNT = 40
ROWS = pa.table(
    {
        "id": pa.array(range(COUNT), pa.int64()),
        "name": [f"n{n}" if n % 7 else None for n in range(COUNT)],
        "x": [n / 2 for n in range(COUNT)],
        "price": pa.array(range(COUNT), pa.int64()).cast(pa.decimal128(21, 2)),
        "at": pa.array([EPOCH] * COUNT, pa.timestamp("us")),
        "is_even": [n % 2 == 0 for n in range(COUNT)],
    }
)


def by_arrow(path: Path) -> None:
    pq.write_table(ROWS, path)


def by_polars(path: Path) -> None:
    pl.from_arrow(ROWS).write_parquet(path)


def by_duckdb(path: Path) -> None:
    with duckdb.connect() as connection:
        connection.from_arrow(ROWS).write_parquet(str(path))


@pytest.mark.parametrize("write", [by_arrow, by_polars, by_duckdb])
@pytest.mark.parametrize("client", ["pypaimon", "rust", "java"])
def test_clients_read_a_linked_file(client, write, tmp_path, request):
    reader: Client = request.getfixturevalue(client)
    table = create(tmp_path, ROWS.schema, primary_key=(), options={"bucket": "-1"})
    write(tmp_path / "theirs.parquet")
    table.add_files(tmp_path / "theirs.parquet")
    assert difference(reader.read_rows(table.location), rows_of(table)) == ""

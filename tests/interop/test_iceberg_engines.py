"""ClickHouse, Trino and Spark read what a scan reads: ClickHouse from a table's folder, the others by `lsm serve`."""

import datetime as dt
import json
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lsm_engine as lsm
from tests.interop.environments import HERE, EnvironmentFailedError
from tests.interop.other_engines import ask_clickhouse, installed_trino, trino
from tests.interop.other_sparks import ICEBERG
from tests.served import READER, serving

pytestmark = [pytest.mark.interop, pytest.mark.slow]

COLUMNS = {
    "k": "BIGINT", "p": "STRING", "v": "BIGINT", "s": "STRING", "d": "DOUBLE", "m": "DECIMAL(9, 2)", "day": "DATE",
    "t": "TIMESTAMP(6)",
}  # fmt: skip
IN_TABLE = {"metadata.iceberg.storage": "table-location"}
VERSION_2 = {"iceberg-compatibility.enabled": "true", "metadata.iceberg.format-version": "2"}
KINDS: dict[str, dict[str, Any]] = {
    "keys": {"primary_key": "k", "options": VERSION_2},
    "partitions": {"primary_key": ("k", "p"), "partitioned_by": "p", "options": VERSION_2 | {"bucket": 2}},
    "compacted": {"primary_key": "k", "options": IN_TABLE},
    "first_rows": {"primary_key": "k", "options": IN_TABLE | {"merge-engine": "first-row"}},
    "appended": {"options": IN_TABLE},
    "deleted": {"options": VERSION_2 | {"deletion-vectors.enabled": "true"}},
}  # fmt: skip
CONDITIONS = (
    "k > 0 OR k IS NULL", "v > 25", "s >= 's2'", "m > 3.25", "day >= DATE '2024-01-08'", "p = 'b'", "s IS NULL", "d < 2.5",
    "t > TIMESTAMP '2024-01-01 12:00:06.500000'",
)  # fmt: skip
NOON = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001


def row(key: int, value: int) -> dict[str, Any]:
    return {
        "k": key, "p": "ab"[key % 2], "v": value, "s": None if key % 5 == 0 else f"s{key}", "d": key / 4,
        "m": Decimal(key) / 4, "day": NOON.date() + dt.timedelta(days=key), "t": NOON + dt.timedelta(seconds=key),
    }  # fmt: skip


def fill(table: lsm.Table, name: str) -> lsm.Table:
    """Write, replace and delete rows; add, drop and rename columns."""
    write = table.upsert if table.schema.has_primary_key else table.append
    write([row(key, key) for key in range(30)])
    write([row(key, key * 10) for key in range(5, 12)])
    table.alter(lsm.AddColumn("x", "INT"), lsm.AddColumn("y", "INT"))
    write([row(40, 4) | {"x": 1}])
    table.alter(lsm.DropColumn("y"), lsm.RenameColumn("x", "z"))
    if name not in ("appended", "first_rows"):
        table.delete(where="k IN (3, 4)")
    if name == "compacted":
        table.compact(full=True)
    return table


@pytest.fixture
def lake(tmp_path):
    with lsm.open_catalog(str(tmp_path / "lake")) as catalog:
        for name, declared in KINDS.items():
            fill(catalog.create_table(f"shop.{name}", COLUMNS, **declared), name)
        yield catalog


def queries_of(source: str) -> list[str]:
    return [f"SELECT count(*), sum(k), sum(v), min(s) FROM {source} WHERE {condition}" for condition in CONDITIONS]  # fmt: skip


def expected_of(catalog: lsm.Catalog, name: str) -> list[list[str]]:
    """The answers over the rows of a scan."""
    rows = duckdb.from_arrow(catalog.table(f"shop.{name}").to_arrow())
    sums = "count(*), sum(k), sum(v), min(s)"
    return [as_text(rows.filter(text).aggregate(sums).fetchone()) for text in CONDITIONS]


def as_text(values: Any) -> list[str]:
    """Sums as text; a sum over no row is null to some engines, and 0 to others."""
    return [str(value or 0) for value in values]


def test_clickhouse_reads_each_table_of_version_2(lake):
    root = Path(lake.warehouse)
    for name in KINDS:
        answers = ask_clickhouse(queries_of(f"icebergLocal('{root}/shop.db/{name}')"), root)
        assert [as_text(rows[0]) for rows in answers] == expected_of(lake, name), name


@pytest.mark.interop_full
def test_trino_reads_each_table_by_the_server(lake, tmp_path):
    try:
        installed_trino()
    except EnvironmentFailedError as failed:
        pytest.skip(f"Trino is not to be had here: {failed}")
    with serving(lake) as server, trino(server.url, READER, tmp_path / "trino") as asked:
        assert sorted(asked.ask("SHOW TABLES FROM lake.shop")) == sorted([name] for name in KINDS)
        for name in KINDS:
            answers = [asked.ask(query) for query in queries_of(f"lake.shop.{name}")]
            assert [as_text(rows[0]) for rows in answers] == expected_of(lake, name), name
        lake.table("shop.keys").upsert([row(41, 1_000)])
        assert asked.ask("SELECT v FROM lake.shop.keys WHERE k = 41") == [[1_000]]


@pytest.mark.interop_full
def test_spark_reads_each_table_by_the_server(lake, tmp_path):
    lake.create_table("shop.exact", COLUMNS, "k", options={"iceberg-compatibility.enabled": "true"})
    fill(lake.table("shop.exact"), "keys")
    names = [*KINDS, "exact"]
    with serving(lake) as server:
        try:
            python, settings = ICEBERG.python(), ICEBERG.configured(tmp_path)
        except EnvironmentFailedError as failed:
            pytest.skip(f"Iceberg for Spark is not to be had here: {failed}")
        rest = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": f"{server.url}/iceberg",
            ".token": READER,
        }
        settings |= {f"spark.sql.catalog.rest{key}": text for key, text in rest.items()}
        queries = [query for name in names for query in queries_of(f"rest.shop.{name}")]
        answered = subprocess.run(
            [str(python), str(HERE / "driver_iceberg_spark.py"), json.dumps(settings), json.dumps(queries), "[]"],
            capture_output=True, text=True, timeout=900, cwd=tmp_path, check=False,
        )  # fmt: skip
    (line,) = [text for text in answered.stdout.splitlines() if text.startswith("answers ")] or [answered.stderr[-3000:]]  # fmt: skip
    answers = [as_text(rows[0]) for rows in json.loads(line.removeprefix("answers "))]
    assert answers == [expected for name in names for expected in expected_of(lake, name)]

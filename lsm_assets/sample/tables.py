"""The sample's tables: what they are called, what they hold, and what they are made from."""

from datetime import timedelta

import dagster as dg
import pyarrow as pa

from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.sample.source import FIRST_DAY, LAST_DAY

DATABASE = "flights"
DAYS = dg.DailyPartitionsDefinition(
    start_date=FIRST_DAY.isoformat(), end_date=(LAST_DAY + timedelta(days=1)).isoformat()
)
"""The days of 2013; each is replayed by materialising its partition."""

_INSTANT = pa.timestamp("us", "UTC")


def _schema(key: dict[str, pa.DataType], columns: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema(
        [
            *(pa.field(name, kind, nullable=False) for name, kind in key.items()),
            *(pa.field(name, kind) for name, kind in columns.items()),
        ]
    )


FLIGHTS_KEY = {
    "year": pa.int32(),
    "month": pa.int32(),
    "day": pa.int32(),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "origin": pa.string(),
}

FLIGHTS = TableDeclaration(
    name=f"{DATABASE}.flights",
    comment=(
        "Every flight that left New York: scheduled first, then departed, then arrived. "
        "Cancelled flights are deleted, diverted ones corrected."
    ),
    schema=_schema(
        FLIGHTS_KEY,
        {
            "dest": pa.string(),
            "tailnum": pa.string(),
            "status": pa.string(),
            "sched_dep_time": pa.int32(),
            "dep_time": pa.int32(),
            "dep_delay": pa.int32(),
            "sched_arr_time": pa.int32(),
            "arr_time": pa.int32(),
            "arr_delay": pa.int32(),
            "air_time": pa.int32(),
            "distance": pa.int32(),
            "time_hour": _INSTANT,
        },
    ),
    primary_key=tuple(FLIGHTS_KEY),
    partitioned_by=("month",),
    partitions_def=DAYS,
    partition_columns={"month": "{key:%m}"},
    options={"bucket": "2", "write-only": "true"},
)

AIRLINES = TableDeclaration(
    name=f"{DATABASE}.airlines",
    comment="The names of carriers.",
    schema=_schema({"carrier": pa.string()}, {"name": pa.string()}),
    primary_key=("carrier",),
    options={"bucket": "1"},
)

AIRPORTS = TableDeclaration(
    name=f"{DATABASE}.airports",
    comment="Airports of the United States, and where they are.",
    schema=_schema(
        {"faa": pa.string()},
        {
            "name": pa.string(),
            "lat": pa.float64(),
            "lon": pa.float64(),
            "alt": pa.int32(),
            "tz": pa.int32(),
            "dst": pa.string(),
            "tzone": pa.string(),
        },
    ),
    primary_key=("faa",),
    options={"bucket": "1"},
)

PLANES = TableDeclaration(
    name=f"{DATABASE}.planes",
    comment="Aircraft by tail number.",
    schema=_schema(
        {"tailnum": pa.string()},
        {
            "year": pa.int32(),
            "type": pa.string(),
            "manufacturer": pa.string(),
            "model": pa.string(),
            "engines": pa.int32(),
            "seats": pa.int32(),
            "speed": pa.int32(),
            "engine": pa.string(),
        },
    ),
    primary_key=("tailnum",),
    options={"bucket": "1"},
)

WEATHER = TableDeclaration(
    name=f"{DATABASE}.weather",
    comment="Hourly weather at the three airports of New York.",
    schema=_schema(
        {"origin": pa.string(), "time_hour": _INSTANT, "month": pa.int32()},
        {
            "year": pa.int32(),
            "day": pa.int32(),
            "hour": pa.int32(),
            "temp": pa.float64(),
            "dewp": pa.float64(),
            "humid": pa.float64(),
            "wind_dir": pa.int32(),
            "wind_speed": pa.float64(),
            "wind_gust": pa.float64(),
            "precip": pa.float64(),
            "pressure": pa.float64(),
            "visib": pa.float64(),
        },
    ),
    primary_key=("origin", "time_hour", "month"),
    partitioned_by=("month",),
    partitions_def=DAYS,
    partition_columns={"month": "{key:%m}"},
    options={"bucket": "1"},
)

_FLIGHTS_ASSET = FLIGHTS.keys.asset(AssetKind.TABLE)
_AIRLINES_ASSET = AIRLINES.keys.asset(AssetKind.TABLE)

CARRIER_DAYS = TableDeclaration(
    name=f"{DATABASE}.carrier_days",
    comment="Delays per carrier and day, computed from the snapshot of flights that the run records.",
    schema=_schema(
        {"year": pa.int32(), "month": pa.int32(), "day": pa.int32(), "carrier": pa.string()},
        {
            "airline": pa.string(),
            "departed": pa.int64(),
            "arrived": pa.int64(),
            "mean_dep_delay": pa.float64(),
            "mean_arr_delay": pa.float64(),
            "worst_arr_delay": pa.int32(),
        },
    ),
    primary_key=("year", "month", "day", "carrier"),
    partitions_def=DAYS,
    options={"bucket": "1"},
    deps=(_FLIGHTS_ASSET, _AIRLINES_ASSET),
    column_lineage={
        "airline": [(_AIRLINES_ASSET, "name")],
        "departed": [(_FLIGHTS_ASSET, "dep_time")],
        "arrived": [(_FLIGHTS_ASSET, "arr_time")],
        "mean_dep_delay": [(_FLIGHTS_ASSET, "dep_delay")],
        "mean_arr_delay": [(_FLIGHTS_ASSET, "arr_delay")],
        "worst_arr_delay": [(_FLIGHTS_ASSET, "arr_delay")],
    },
)

REFERENCE_TABLES = (AIRLINES, AIRPORTS, PLANES)
TABLES = (*REFERENCE_TABLES, WEATHER, FLIGHTS, CARRIER_DAYS)

"""The declarations of the sample's tables."""

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import dagster as dg
import pyarrow as pa

from lsm_assets.declaration import TableDeclaration
from lsm_assets.keys import AssetKind
from lsm_assets.sample.source import FIRST_DAY, LAST_DAY
from lsm_assets.settings import Settings

# -- Comments of the sample's columns by name ------------------------------------------------------
#
# Most columns are in several tables, with the same meaning.

COLUMN_COMMENTS: Final = {
    "year": "Year of the departure that was scheduled, New York time",
    "month": "Month, 1 to 12, New York time",
    "day": "Day of the month, New York time",
    "hour": "Hour of the day, New York time",
    "time_hour": "The hour, as an instant: of the scheduled departure, or of the measurement",
    "carrier": "Two letters of the airline",
    "airline": "Full name of the airline",
    "flight": "Number of the flight",
    "origin": "Airport of departure: EWR, JFK or LGA",
    "dest": "Airport of destination, as scheduled",
    "distance": "Miles between the two airports",
    "tailnum": "Tail number, which identifies the aircraft",
    "sched_dep_time": "Scheduled departure, local time as HHMM",
    "dep_time": "Actual departure, local time as HHMM",
    "dep_delay": "Minutes late at departure; early is negative",
    "sched_arr_time": "Scheduled arrival, local time as HHMM",
    "arr_time": "Actual arrival, local time as HHMM",
    "arr_delay": "Minutes late at arrival; unknown for diverted flights",
    "air_time": "Minutes in the air",
    "faa": "Three letters of the airport, by the FAA",
    "airport": "Three letters of the airport, by the FAA",
    "lat": "Latitude in degrees, north is positive",
    "lon": "Longitude in degrees, east is positive",
    "alt": "Feet above the sea",
    "tz": "Hours by which local time is ahead of UTC",
    "dst": "Daylight saving time: A as in the United States, N none, U unknown",
    "tzone": "Time zone, by its IANA name",
    "type": "Kind of aircraft",
    "manufacturer": "Who built the aircraft",
    "model": "Model of the aircraft",
    "engines": "Number of engines",
    "engine": "Kind of engine",
    "seats": "Number of seats",
    "speed": "Mean cruising speed in miles an hour",
    "temp": "Temperature in degrees Fahrenheit",
    "dewp": "Dew point in degrees Fahrenheit",
    "humid": "Relative humidity in per cent",
    "wind_dir": "Where the wind comes from, in degrees",
    "wind_speed": "Wind in miles an hour",
    "wind_gust": "Gusts in miles an hour",
    "precip": "Rain in inches within the hour",
    "pressure": "Pressure at sea level in millibars",
    "visib": "Visibility in miles",
    "scheduled": "Flights that were scheduled",
    "departed": "Flights that departed",
    "arrived": "Flights that arrived at their destination",
    "departures": "Flights that departed from the airport",
    "arrivals": "Flights that arrived at the airport",
    "mean_dep_delay": "Minutes late at departure, on average",
    "mean_arr_delay": "Minutes late at arrival, on average",
    "worst_arr_delay": "Minutes late at arrival, at the most",
    "arr_delay_minutes": "Minutes late at arrival, of all flights together",
    "seen_at": "When the aircraft departed from New York first",
}
"""Column name → comment, for whatever table does not say otherwise."""


# -- The declarations of the sample's tables -------------------------------------------------------

DATABASE = "flights"


def days_until(last: date) -> dg.DailyPartitionsDefinition:
    """Return partitions for the days of 2013 up to `last`. Materialising one replays its day."""
    return dg.DailyPartitionsDefinition(
        start_date=FIRST_DAY.isoformat(), end_date=(last + timedelta(days=1)).isoformat()
    )


DAYS = days_until(LAST_DAY)


def offered_days(settings: Settings) -> dg.DailyPartitionsDefinition:
    """Return the days that Dagster shows: up to the last one that `lsm-sample` has begun to replay, else the year."""
    path = _last_day_path(settings)
    return days_until(date.fromisoformat(path.read_text())) if path.exists() else DAYS


def offer_days(settings: Settings, last: date) -> None:
    """Let the days end with `last`, for all processes that load the definitions from now on."""
    if not _last_day_path(settings).exists() or str(last) > _last_day_path(settings).read_text():
        _last_day_path(settings).write_text(str(last))


def _last_day_path(settings: Settings) -> Path:
    return Path(settings.dagster_home) / "last-replayed-day"


_INSTANT = pa.timestamp("us", "UTC")


OWNERS = ("team:flight-operations",)


def _schema(
    key: Mapping[str, pa.DataType],
    columns: Mapping[str, pa.DataType],
    comments: Mapping[str, str] | None = None,
) -> pa.Schema:
    comment_by_column = {**COLUMN_COMMENTS, **(comments or {})}
    return pa.schema(
        [
            pa.field(name, kind, name not in key, {"comment": comment_by_column[name]})
            for name, kind in {**key, **columns}.items()
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

SCHEDULED_AT, DEPARTED_AT, ARRIVED_AT = "scheduled_at", "departed_at", "arrived_at"
SCHEDULE = ("dest", "sched_dep_time", "sched_arr_time", "distance", "time_hour")
DEPARTURE = ("tailnum", "dep_time", "dep_delay")
ARRIVAL = ("arr_time", "arr_delay", "air_time", "outcome")
"""The columns of each of the three feeds, without its sequence field."""

FLIGHTS = TableDeclaration(
    name=f"{DATABASE}.flights",
    comment=(
        "Every flight that left New York, as three feeds tell it: scheduled, departed, arrived. Each fills in "
        "its own columns, by its own clock. Cancelled flights are deleted, diverted ones corrected later."
    ),
    schema=_schema(
        FLIGHTS_KEY,
        {
            "dest": pa.string(),
            "sched_dep_time": pa.int32(),
            "sched_arr_time": pa.int32(),
            "distance": pa.int32(),
            "time_hour": _INSTANT,
            SCHEDULED_AT: _INSTANT,
            "tailnum": pa.string(),
            "dep_time": pa.int32(),
            "dep_delay": pa.int32(),
            DEPARTED_AT: _INSTANT,
            "arr_time": pa.int32(),
            "arr_delay": pa.int32(),
            "air_time": pa.int32(),
            "outcome": pa.string(),
            ARRIVED_AT: _INSTANT,
        },
        {
            "outcome": "arrived or diverted; not known yet while in the air",
            SCHEDULED_AT: "Clock of the schedule",
            DEPARTED_AT: "Clock of the departures",
            ARRIVED_AT: "Clock of the arrivals",
        },
    ),
    primary_key=tuple(FLIGHTS_KEY),
    partitioned_by=("month",),
    partitions_def=DAYS,
    # A commit of other clients makes readers of its days stale: `day` is in the key.
    partition_columns={"month": "{key:%m}", "day": "{key:%d}"},
    owners=OWNERS,
    options={
        "bucket": "2",
        "merge-engine": "partial-update",
        f"fields.{SCHEDULED_AT}.sequence-group": ",".join(SCHEDULE),
        f"fields.{DEPARTED_AT}.sequence-group": ",".join(DEPARTURE),
        f"fields.{ARRIVED_AT}.sequence-group": ",".join(ARRIVAL),
        "partial-update.remove-record-on-sequence-group": DEPARTED_AT,
        # Writers only add files. The compaction that a sensor asks for hides older rows by deletion
        # vectors and tells what changed; readers merge what it has not taken up yet.
        "write-only": "true",
        "num-sorted-run.compaction-trigger": "3",  # what a day adds: totals wait for a compaction
        "deletion-vectors.enabled": "true",
        "deletion-vectors.merge-on-read": "true",
        "changelog-producer": "lookup",
        "index.type": "bloom",
        "index.bloom.num_entries": "500",  # a filter of more keys is sized by the file's rows
    },
)

# Loaded again by each run: what is there already is no commit, and makes no reader stale.
_REFERENCE_OPTIONS = {"bucket": "1", "write.skip-unchanged": "true"}

AIRLINES = TableDeclaration(
    name=f"{DATABASE}.airlines",
    comment="The names of carriers.",
    schema=_schema(
        {"carrier": pa.string()}, {"name": pa.string()}, {"name": "Full name of the airline"}
    ),
    primary_key=("carrier",),
    owners=OWNERS,
    options=_REFERENCE_OPTIONS,
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
        {"name": "Full name of the airport"},
    ),
    primary_key=("faa",),
    owners=OWNERS,
    options=_REFERENCE_OPTIONS,
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
        {"year": "When the aircraft was built"},
    ),
    primary_key=("tailnum",),
    owners=OWNERS,
    options=_REFERENCE_OPTIONS,
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
        {"year": "Year of the measurement, New York time"},
    ),
    primary_key=("origin", "time_hour", "month"),
    owners=OWNERS,
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
    owners=OWNERS,
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

CARRIER_TOTALS = TableDeclaration(
    name=f"{DATABASE}.carrier_totals",
    comment="What each carrier flew so far: sums, fed from the changes of flights.",
    schema=_schema(
        {"carrier": pa.string()},
        {
            "scheduled": pa.int64(),
            "departed": pa.int64(),
            "arrived": pa.int64(),
            "arr_delay_minutes": pa.int64(),
            "worst_arr_delay": pa.int32(),
        },
        {"worst_arr_delay": "The worst that was ever reported, also if corrected since"},
    ),
    primary_key=("carrier",),
    owners=OWNERS,
    options={
        "bucket": "1",
        "merge-engine": "aggregation",
        "fields.default-aggregate-function": "sum",
        "fields.worst_arr_delay.aggregate-function": "max",
    },
    deps=(_FLIGHTS_ASSET,),
    column_lineage={
        "departed": [(_FLIGHTS_ASSET, "dep_time")],
        "arrived": [(_FLIGHTS_ASSET, "arr_delay")],
        "arr_delay_minutes": [(_FLIGHTS_ASSET, "arr_delay")],
        "worst_arr_delay": [(_FLIGHTS_ASSET, "arr_delay")],
    },
)

AIRPORT_TOTALS = TableDeclaration(
    name=f"{DATABASE}.airport_totals",
    comment="Departures from and arrivals at each airport so far: sums, fed from the changes of flights.",
    schema=_schema(
        {"airport": pa.string()},
        {"departures": pa.int64(), "arrivals": pa.int64(), "arr_delay_minutes": pa.int64()},
    ),
    primary_key=("airport",),
    owners=OWNERS,
    options={
        "bucket": "1",
        "merge-engine": "aggregation",
        "fields.default-aggregate-function": "sum",
    },
    deps=(_FLIGHTS_ASSET,),
    column_lineage={
        "departures": [(_FLIGHTS_ASSET, "origin"), (_FLIGHTS_ASSET, "dep_time")],
        "arrivals": [(_FLIGHTS_ASSET, "dest"), (_FLIGHTS_ASSET, "arr_delay")],
        "arr_delay_minutes": [(_FLIGHTS_ASSET, "arr_delay")],
    },
)

_PLANES_ASSET = PLANES.keys.asset(AssetKind.TABLE)

SIGHTINGS = TableDeclaration(
    name=f"{DATABASE}.sightings",
    comment="Where each aircraft was seen first; what comes later changes nothing.",
    schema=_schema(
        {"tailnum": pa.string()},
        {
            "seen_at": _INSTANT,
            "carrier": pa.string(),
            "flight": pa.int32(),
            "origin": pa.string(),
            "dest": pa.string(),
            "airline": pa.string(),
            "manufacturer": pa.string(),
            "model": pa.string(),
        },
        {"airline": "Looked up by carrier", "model": "Looked up by tail number"},
    ),
    primary_key=("tailnum",),
    owners=OWNERS,
    options={"bucket": "1", "merge-engine": "first-row"},
    deps=(_FLIGHTS_ASSET, _AIRLINES_ASSET, _PLANES_ASSET),
    column_lineage={
        "seen_at": [(_FLIGHTS_ASSET, DEPARTED_AT)],
        "airline": [(_AIRLINES_ASSET, "name")],
        "manufacturer": [(_PLANES_ASSET, "manufacturer")],
        "model": [(_PLANES_ASSET, "model")],
    },
)

REFERENCE_TABLES = (AIRLINES, AIRPORTS, PLANES)
FED_TABLES = (CARRIER_TOTALS, AIRPORT_TOTALS, SIGHTINGS)
TABLES = (*REFERENCE_TABLES, WEATHER, FLIGHTS, CARRIER_DAYS, *FED_TABLES)

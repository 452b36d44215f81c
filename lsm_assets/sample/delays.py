"""Delay figures per carrier and day, from one pinned snapshot of flights."""

from collections.abc import Sequence
from datetime import date
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import lsm_engine as lsm
from lsm_assets.sample.source import cast_columns
from lsm_assets.sample.tables import CARRIER_DAYS

FLIGHT_COLUMNS = (
    "year",
    "month",
    "day",
    "carrier",
    "dep_time",
    "dep_delay",
    "arr_time",
    "arr_delay",
)


def days_filter(days: Sequence[date]) -> lsm.Predicate:
    """Return the filter of the flights of some days. It prunes partitions of other months."""
    months = sorted({day.month for day in days})
    per_month = (
        (lsm.col("month") == month)
        & lsm.col("day").is_in(sorted(day.day for day in days if day.month == month))
        for month in months
    )
    return reduce(or_, per_month)


def carrier_days(flights: pa.Table, airlines: pa.Table) -> pa.Table:
    """Return the rows of the table carrier_days for some flights."""
    figures = flights.group_by(["year", "month", "day", "carrier"]).aggregate(
        [
            ("dep_time", "count"),
            ("arr_time", "count"),
            ("dep_delay", "mean"),
            ("arr_delay", "mean"),
            ("arr_delay", "max"),
        ]
    )
    names = {
        "dep_time_count": "departed",
        "arr_time_count": "arrived",
        "dep_delay_mean": "mean_dep_delay",
        "arr_delay_mean": "mean_arr_delay",
        "arr_delay_max": "worst_arr_delay",
        "name": "airline",
    }
    joined = figures.join(airlines.select(["carrier", "name"]), "carrier")
    renamed = joined.rename_columns([names.get(name, name) for name in joined.column_names])
    return cast_columns(renamed, CARRIER_DAYS.schema)


def carrier_days_frame(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Return the same rows, computed by Spark."""
    figures = flights.groupBy("year", "month", "day", "carrier").agg(
        F.count("dep_time").alias("departed"),
        F.count("arr_time").alias("arrived"),
        F.avg("dep_delay").alias("mean_dep_delay"),
        F.avg("arr_delay").alias("mean_arr_delay"),
        F.max("arr_delay").alias("worst_arr_delay"),
    )
    names = airlines.select("carrier", F.col("name").alias("airline"))
    return figures.join(F.broadcast(names), "carrier", "left").select(*CARRIER_DAYS.schema.names)

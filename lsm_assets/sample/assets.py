"""The assets of the sample's tables, with their writers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import partial, reduce
from operator import or_
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import lsm_engine as lsm
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import LsmTableAssets, lsm_table_assets
from lsm_assets.feed import Changes, changes_to_feed
from lsm_assets.keys import AssetKind
from lsm_assets.maintenance import log_observation
from lsm_assets.metadata import Metadata
from lsm_assets.pinning import pinned_table
from lsm_assets.resource import LsmResource
from lsm_assets.sample.replay import correction, late_corrections, replay
from lsm_assets.sample.source import cast_columns, read_source, rows_of_day, source_version
from lsm_assets.sample.tables import (
    AIRLINES,
    AIRPORT_TOTALS,
    CARRIER_DAYS,
    CARRIER_TOTALS,
    DEPARTED_AT,
    FLIGHTS,
    FLIGHTS_KEY,
    PLANES,
    REFERENCE_TABLES,
    SIGHTINGS,
    WEATHER,
)
from lsm_assets.table_assets import Writer
from lsm_assets.versions import Upsert
from lsm_engine.spark import lookup_join, read_dataframe

# -- Delay figures per carrier and day, from one pinned snapshot of flights ------------------------

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


# -- Rows computed from changes of flights ---------------------------------------------------------
#
# Totals of carriers and airports, first sightings of aircraft.

CHANGE_COLUMNS = (
    "carrier",
    "flight",
    "origin",
    "dest",
    "tailnum",
    "dep_time",
    "arr_delay",
    DEPARTED_AT,
)


def carrier_totals(changes: pa.Table) -> pa.Table:
    """Return the amounts that changes of flights add to the totals of carriers. Retracted rows count negatively."""
    sign = _change_signs(changes)
    added = pa.table(
        {
            "carrier": changes["carrier"],
            "scheduled": sign,
            **_parts(changes, sign),
            "worst_arr_delay": pc.if_else(pc.greater(sign, 0), changes["arr_delay"], None),
        }
    )
    return cast_columns(_aggregate(added, "carrier", ["worst_arr_delay"]), CARRIER_TOTALS.schema)


def airport_totals(changes: pa.Table) -> pa.Table:
    """Return the amounts that changes of flights add to the totals of airports, of departure and of destination."""
    parts, none = _parts(changes, _change_signs(changes)), pa.repeat(0, changes.num_rows)
    zero = none.cast(pa.int64())
    departures = {
        "airport": changes["origin"],
        "departures": parts["departed"],
        "arrivals": zero,
        "arr_delay_minutes": zero,
    }
    arrivals = {
        "airport": changes["dest"],
        "departures": zero,
        "arrivals": parts["arrived"],
        "arr_delay_minutes": parts["arr_delay_minutes"],
    }
    added = pa.concat_tables([pa.table(departures), pa.table(arrivals)])
    at_airports = added.filter(pc.is_valid(added["airport"]))
    return cast_columns(_aggregate(at_airports, "airport"), AIRPORT_TOTALS.schema)


def first_sightings(changes: pa.Table) -> pa.Table:
    """Return the first departure of each aircraft in the changes, without names of airlines and models."""
    is_new = pc.greater(_change_signs(changes), 0)
    is_departure = pc.and_(pc.is_valid(changes["tailnum"]), pc.is_valid(changes[DEPARTED_AT]))
    rows = changes.filter(pc.and_(is_new, is_departure)).sort_by(DEPARTED_AT)
    first = rows.append_column("at", pa.array(range(rows.num_rows), pa.int64()))
    first = first.group_by("tailnum").aggregate([("at", "min")])
    rows = rows.take(first["at_min"]).rename_columns({DEPARTED_AT: "seen_at"})
    names = {"airline", "manufacturer", "model"}
    return cast_columns(
        rows, pa.schema([field for field in SIGHTINGS.schema if field.name not in names])
    )


def add_names(sightings: pa.Table, airlines: pa.Table, planes: pa.Table) -> pa.Table:
    """Return sightings with the names of carriers and the makers of aircraft."""
    carriers = airlines.select(["carrier", "name"]).rename_columns({"name": "airline"})
    makers = planes.select(["tailnum", "manufacturer", "model"])
    return cast_columns(
        sightings.join(carriers, "carrier").join(makers, "tailnum"), SIGHTINGS.schema
    )


def _change_signs(changes: pa.Table) -> pa.ChunkedArray:
    """Return 1 for inserted rows (+I, +U) and -1 for retracted rows (-U, -D)."""
    is_insert = pc.is_in(changes["_row_kind"], pa.array(["+I", "+U"]))
    return pc.if_else(is_insert, pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))


def _parts(changes: pa.Table, sign: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    delay = changes["arr_delay"].cast(pa.int64())
    return {
        "departed": pc.multiply(sign, pc.is_valid(changes["dep_time"]).cast(pa.int64())),
        "arrived": pc.multiply(sign, pc.is_valid(delay).cast(pa.int64())),
        "arr_delay_minutes": pc.multiply(sign, pc.fill_null(delay, 0)),
    }


def _aggregate(added: pa.Table, key: str, greatest: Sequence[str] = ()) -> pa.Table:
    function_by_column = {
        name: "max" if name in greatest else "sum" for name in added.column_names if name != key
    }
    totals = added.group_by(key).aggregate(list(function_by_column.items()))
    return totals.rename_columns(
        {f"{name}_{act}": name for name, act in function_by_column.items()}
    )


# -- The assets of the sample's tables, with their writers -----------------------------------------

ONE_RUN = dg.BackfillPolicy.single_run()
"""A backfill of many days is one run, so that Spark starts once and the source is read once."""


def sample_assets(days: dg.PartitionsDefinition) -> tuple[LsmTableAssets, ...]:
    """Return the definitions of every table of the sample. Those by day have the partitions `days`."""
    # One set of jobs looks after all of them.
    build_assets = partial(lsm_table_assets, with_jobs=False)
    build_daily = partial(build_assets, partitions_def=days, backfill_policy=ONE_RUN)
    return (
        *(build_assets(table, _reference_writer(table)) for table in REFERENCE_TABLES),
        build_daily(WEATHER, write_weather),
        build_daily(FLIGHTS, write_flights, tag_daily=True),
        build_daily(CARRIER_DAYS, write_carrier_days),
        build_assets(CARRIER_TOTALS, _totals_writer(carrier_totals)),
        build_assets(AIRPORT_TOTALS, _totals_writer(airport_totals)),
        build_assets(SIGHTINGS, _totals_writer(first_sightings, _with_names)),
    )


def run_days(context: dg.AssetExecutionContext) -> list[date]:
    """Return the days of a run's partitions, in order."""
    return sorted(date.fromisoformat(key) for key in context.partition_keys)


def write_flights(context: dg.AssetExecutionContext, table: lsm.Table) -> Iterator[Upsert]:
    """Yield late corrections of earlier days, then the changes of the run's days."""
    days = run_days(context)
    corrected = _corrections(context, table, days)
    for change in [*corrected, *replay(days)]:
        yield replace(change, rows=_to_executor(context, change.rows))


def _corrections(
    context: dg.AssetExecutionContext, table: lsm.Table, days: Sequence[date]
) -> list[Upsert]:
    """Return corrections of flights that are in the table. The table's bloom index locates them."""
    late = late_corrections(days)
    if not late.num_rows:
        return []
    located = table.locate(late.select(list(FLIGHTS_KEY)))
    plan, is_stored = (
        located.schema.metadata[b"lsm.how"].decode(),
        pc.equal(located["action"], "update"),
    )
    rows = late.filter(is_stored)
    metadata: Metadata = {
        "sample/located": dg.MetadataValue.md(
            f"{rows.num_rows} of {late.num_rows} corrections are of flights that are there, in "
            f"{pc.count_distinct(located['file_name']).as_py()} files:\n\n"
            + "\n".join(f"- {line}" for line in plan.splitlines())
        )
    }
    log_observation(context, FLIGHTS, "late corrections, located", metadata)
    return [correction(rows, days, plan)] if rows.num_rows else []


def write_weather(context: dg.AssetExecutionContext, table: lsm.Table) -> Upsert:
    """Return the weather of the run's days."""
    days, hours = run_days(context), read_source("weather")
    rows = cast_columns(pa.concat_tables(rows_of_day(hours, day) for day in days), WEATHER.schema)
    return Upsert(rows=_to_executor(context, rows), label=_days_label("hours", days))


def write_carrier_days(context: dg.AssetExecutionContext, table: lsm.Table) -> Upsert:
    """Compute delay figures from flights and airlines, at the versions that Dagster has recorded as inputs."""
    resource: LsmResource = context.resources.lsm
    days = run_days(context)
    months = [{"month": month} for month in sorted({day.month for day in days})]
    flights = pinned_table(context, FLIGHTS.keys.asset(AssetKind.TABLE), months)
    airlines = pinned_table(context, AIRLINES.keys.asset(AssetKind.TABLE))
    read_flights: dict[str, Any] = {
        "columns": list(FLIGHT_COLUMNS),
        "where": days_filter(days),
        **flights.at,
    }
    rows: Any
    if resource.executor == "spark":
        rows = carrier_days_frame(
            read_dataframe(flights.table, **read_flights, spark=resource.spark),
            read_dataframe(airlines.table, **airlines.at, spark=resource.spark),
        )
    else:
        rows = carrier_days(
            flights.table.scan(**read_flights).to_arrow(),
            airlines.table.scan(**airlines.at).to_arrow(),
        )
    return Upsert(rows=rows, label=_days_label("figures", days))


def _totals_writer(
    aggregate: Callable[[pa.Table], pa.Table],
    finish: Callable[[dg.AssetExecutionContext, pa.Table], Any] | None = None,
) -> Writer:
    """Return the writer of a table that applies the changes of flights.

    Args:
        aggregate: Computes rows from changes.
        finish: Completes these rows; by default they are only handed to the executor.
    """

    def write(context: dg.AssetExecutionContext, table: lsm.Table) -> Iterator[Upsert]:
        flights = FLIGHTS.keys.asset(AssetKind.TABLE)
        changes = changes_to_feed(context, flights, table, columns=CHANGE_COLUMNS)
        if changes is None:
            context.log.info("nothing new in %s", FLIGHTS.name)
            return
        rows = aggregate(changes.rows)
        output = finish(context, rows) if finish is not None else _to_executor(context, rows)
        yield Upsert(rows=output, label=_feed_label(changes), properties=changes.properties)
        changes.acknowledge()

    return write


def _feed_label(changes: Changes) -> str:
    return f"{changes.rows.num_rows:,} changes of snapshots {changes.after + 1} to {changes.upto}"


def _with_names(context: dg.AssetExecutionContext, sightings: pa.Table) -> Any:
    """Return first sightings with names of airlines and aircraft, joined by key at the recorded inputs."""
    resource: LsmResource = context.resources.lsm
    airlines = pinned_table(context, AIRLINES.keys.asset(AssetKind.TABLE))
    planes = pinned_table(context, PLANES.keys.asset(AssetKind.TABLE))
    if resource.executor != "spark":
        names = airlines.table.scan(**airlines.at).to_arrow()
        return add_names(sightings, names, planes.table.scan(**planes.at).to_arrow())
    frame = _to_executor(context, sightings)
    frame = lookup_join(frame, airlines.table, columns=["name"], **airlines.at)
    makers = ["manufacturer", "model"]
    frame = lookup_join(frame, planes.table, columns=makers, **planes.at)
    return frame.withColumnRenamed("name", "airline").select(*SIGHTINGS.schema.names)


def _to_executor(context: dg.AssetExecutionContext, rows: pa.Table) -> Any:
    """Return rows as a DataFrame if the executor is Spark."""
    resource: LsmResource = context.resources.lsm
    return resource.spark.createDataFrame(rows) if resource.executor == "spark" else rows


def _reference_writer(declaration: TableDeclaration) -> Writer:
    def write(context: dg.AssetExecutionContext, table: lsm.Table) -> Upsert:
        rows = cast_columns(read_source(declaration.keys.short_name), declaration.schema)
        return Upsert(rows=_to_executor(context, rows), label=source_version())

    return write


def _days_label(kind: str, days: Sequence[date]) -> str:
    return f"{kind} {days[0]}" if len(days) == 1 else f"{kind} {days[0]} to {days[-1]}"

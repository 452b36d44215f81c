"""The sample's tables as assets: what each one's writer does."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa

import lsm_engine as lsm
from lsm_assets.assets.table import Writer
from lsm_assets.factory import LsmTableAssets, lsm_table_assets
from lsm_assets.ledger.pinning import pinned_table
from lsm_assets.model.changes import Upsert
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.resources import LsmResource
from lsm_assets.sample.delays import (
    FLIGHT_COLUMNS,
    carrier_days,
    carrier_days_frame,
    days_filter,
)
from lsm_assets.sample.replay import replay
from lsm_assets.sample.source import fitted, read_source, rows_of_day, source_version
from lsm_assets.sample.tables import (
    AIRLINES,
    CARRIER_DAYS,
    FLIGHTS,
    REFERENCE_TABLES,
    WEATHER,
)
from lsm_engine.spark import read_dataframe

ONE_RUN = dg.BackfillPolicy.single_run()
"""A backfill of many days is one run: one Spark session, one look at the source."""


def sample_assets() -> tuple[LsmTableAssets, ...]:
    """Return the definitions of every table of the sample."""
    return (
        *(lsm_table_assets(table, _reference_writer(table)) for table in REFERENCE_TABLES),
        lsm_table_assets(WEATHER, write_weather, backfill_policy=ONE_RUN),
        lsm_table_assets(FLIGHTS, write_flights, backfill_policy=ONE_RUN, tag_daily=True),
        lsm_table_assets(CARRIER_DAYS, write_carrier_days, backfill_policy=ONE_RUN),
    )


def days_of(context: dg.AssetExecutionContext) -> list[date]:
    """Return the days that a run is about, in order."""
    return sorted(date.fromisoformat(key) for key in context.partition_keys)


def write_flights(context: dg.AssetExecutionContext, table: lsm.Table) -> Iterator[Upsert]:
    """Replay the run's days."""
    for change in replay(days_of(context)):
        yield replace(change, rows=_distributed(context, change.rows))


def write_weather(context: dg.AssetExecutionContext, table: lsm.Table) -> Upsert:
    """Insert the hours of the run's days."""
    days, hours = days_of(context), read_source("weather")
    rows = fitted(pa.concat_tables(rows_of_day(hours, day) for day in days), WEATHER.schema)
    return Upsert(rows=_distributed(context, rows), label=_span("hours", days))


def write_carrier_days(context: dg.AssetExecutionContext, table: lsm.Table) -> Upsert:
    """Compute figures from the states of flights and airlines that this run is recorded to read."""
    resource: LsmResource = context.resources.lsm
    days = days_of(context)
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
    return Upsert(rows=rows, label=_span("figures", days))


def _distributed(context: dg.AssetExecutionContext, rows: pa.Table) -> Any:
    """Return rows as a DataFrame where Spark does the work."""
    resource: LsmResource = context.resources.lsm
    return resource.spark.createDataFrame(rows) if resource.executor == "spark" else rows


def _reference_writer(declaration: TableDeclaration) -> Writer:
    def write(context: dg.AssetExecutionContext, table: lsm.Table) -> Upsert:
        rows = fitted(read_source(declaration.keys.short_name), declaration.schema)
        return Upsert(rows=_distributed(context, rows), label=source_version())

    return write


def _span(what: str, days: Sequence[date]) -> str:
    return f"{what} {days[0]}" if len(days) == 1 else f"{what} {days[0]} to {days[-1]}"

"""The sample's tables as assets: what each one's writer does."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

import lsm_engine as lsm
from lsm_assets.assets.table import Writer
from lsm_assets.automation.upkeep import log_observation
from lsm_assets.factory import LsmTableAssets, lsm_table_assets
from lsm_assets.ledger.feed import Changes, changes_to_feed
from lsm_assets.ledger.pinning import pinned_table
from lsm_assets.model.changes import Upsert
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import Metadata
from lsm_assets.resources import LsmResource
from lsm_assets.sample.delays import (
    FLIGHT_COLUMNS,
    carrier_days,
    carrier_days_frame,
    days_filter,
)
from lsm_assets.sample.replay import correction, late_corrections, replay
from lsm_assets.sample.source import fitted, read_source, rows_of_day, source_version
from lsm_assets.sample.tables import (
    AIRLINES,
    AIRPORT_TOTALS,
    CARRIER_DAYS,
    CARRIER_TOTALS,
    FLIGHTS,
    FLIGHTS_KEY,
    PLANES,
    REFERENCE_TABLES,
    SIGHTINGS,
    WEATHER,
)
from lsm_assets.sample.totals import (
    CHANGE_COLUMNS,
    airport_totals,
    carrier_totals,
    first_sightings,
    named,
)
from lsm_engine.spark import lookup_join, read_dataframe

ONE_RUN = dg.BackfillPolicy.single_run()
"""A backfill of many days is one run: one Spark session, one look at the source."""


def sample_assets() -> tuple[LsmTableAssets, ...]:
    """Return the definitions of every table of the sample."""
    of = partial(lsm_table_assets, with_jobs=False)  # one set of jobs looks after all of them
    return (
        *(of(table, _reference_writer(table)) for table in REFERENCE_TABLES),
        of(WEATHER, write_weather, backfill_policy=ONE_RUN),
        of(FLIGHTS, write_flights, backfill_policy=ONE_RUN, tag_daily=True),
        of(CARRIER_DAYS, write_carrier_days, backfill_policy=ONE_RUN),
        of(CARRIER_TOTALS, _fed(carrier_totals)),
        of(AIRPORT_TOTALS, _fed(airport_totals)),
        of(SIGHTINGS, _fed(first_sightings, _with_names)),
    )


def days_of(context: dg.AssetExecutionContext) -> list[date]:
    """Return the days that a run is about, in order."""
    return sorted(date.fromisoformat(key) for key in context.partition_keys)


def write_flights(context: dg.AssetExecutionContext, table: lsm.Table) -> Iterator[Upsert]:
    """Correct what came late for the days before, then replay the run's days."""
    days = days_of(context)
    corrected = _corrections(context, table, days)
    for change in [*corrected, *replay(days)]:
        yield replace(change, rows=_distributed(context, change.rows))


def _corrections(
    context: dg.AssetExecutionContext, table: lsm.Table, days: Sequence[date]
) -> list[Upsert]:
    """Return corrections of flights that are in the table, found by its bloom index."""
    late = late_corrections(days)
    if not late.num_rows:
        return []
    placed = table.locate(late.select(list(FLIGHTS_KEY)))
    how, known = placed.schema.metadata[b"lsm.how"].decode(), pc.equal(placed["action"], "update")
    rows = late.filter(known)
    found: Metadata = {
        "sample/located": dg.MetadataValue.md(
            f"{rows.num_rows} of {late.num_rows} corrections are of flights that are there, in "
            f"{pc.count_distinct(placed['file_name']).as_py()} files:\n\n"
            + "\n".join(f"- {line}" for line in how.splitlines())
        )
    }
    log_observation(context, FLIGHTS, "late corrections, located", found)
    return [correction(rows, days, how)] if rows.num_rows else []


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


def _fed(
    made_of: Callable[[pa.Table], pa.Table],
    finish: Callable[[dg.AssetExecutionContext, pa.Table], Any] | None = None,
) -> Writer:
    """Return the writer of a table that is fed from what changed in flights."""

    def write(context: dg.AssetExecutionContext, table: lsm.Table) -> Iterator[Upsert]:
        flights = FLIGHTS.keys.asset(AssetKind.TABLE)
        changes = changes_to_feed(context, flights, table, columns=CHANGE_COLUMNS)
        if changes is None:
            context.log.info("nothing new in %s", FLIGHTS.name)
            return
        rows = made_of(changes.rows)
        made = finish(context, rows) if finish is not None else _distributed(context, rows)
        yield Upsert(rows=made, label=_told(changes), properties=changes.properties)
        changes.acknowledge()

    return write


def _told(changes: Changes) -> str:
    return f"{changes.rows.num_rows:,} changes of snapshots {changes.after + 1} to {changes.upto}"


def _with_names(context: dg.AssetExecutionContext, sightings: pa.Table) -> Any:
    """Return first sightings with names, looked up by key in the states that this run reads."""
    resource: LsmResource = context.resources.lsm
    airlines = pinned_table(context, AIRLINES.keys.asset(AssetKind.TABLE))
    planes = pinned_table(context, PLANES.keys.asset(AssetKind.TABLE))
    if resource.executor != "spark":
        names = airlines.table.scan(**airlines.at).to_arrow()
        return named(sightings, names, planes.table.scan(**planes.at).to_arrow())
    frame = _distributed(context, sightings)
    frame = lookup_join(frame, airlines.table, columns=["name"], **airlines.at)
    makers = ["manufacturer", "model"]
    frame = lookup_join(frame, planes.table, columns=makers, **planes.at)
    return frame.withColumnRenamed("name", "airline").select(*SIGHTINGS.schema.names)


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

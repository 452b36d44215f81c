"""The assets of the sample's tables, with their writers."""

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
from lsm_assets.automation.maintenance import log_observation
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
from lsm_assets.sample.source import cast_columns, read_source, rows_of_day, source_version
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
    add_names,
    airport_totals,
    carrier_totals,
    first_sightings,
)
from lsm_engine.spark import lookup_join, read_dataframe

ONE_RUN = dg.BackfillPolicy.single_run()
"""A backfill of many days is one run, so that Spark starts once and the source is read once."""


def sample_assets() -> tuple[LsmTableAssets, ...]:
    """Return the definitions of every table of the sample."""
    build_assets = partial(
        lsm_table_assets, with_jobs=False
    )  # one set of jobs looks after all of them
    return (
        *(build_assets(table, _reference_writer(table)) for table in REFERENCE_TABLES),
        build_assets(WEATHER, write_weather, backfill_policy=ONE_RUN),
        build_assets(FLIGHTS, write_flights, backfill_policy=ONE_RUN, tag_daily=True),
        build_assets(CARRIER_DAYS, write_carrier_days, backfill_policy=ONE_RUN),
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

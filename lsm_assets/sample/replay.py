"""A day of flights as it becomes known: the schedule, departures, arrivals, and what went wrong."""

from collections.abc import Iterator, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from lsm_assets.model.changes import Upsert
from lsm_assets.sample.source import fitted, read_source, rows_of_day
from lsm_assets.sample.tables import FLIGHTS, FLIGHTS_KEY

SCHEDULED = ("dest", "sched_dep_time", "sched_arr_time", "distance", "time_hour")
DEPARTED = ("tailnum", "dep_time", "dep_delay")
ARRIVED = ("arr_time", "arr_delay", "air_time")
FIRST_DAY, LAST_DAY = "sample.first-day", "sample.last-day"
"""Snapshot properties with the first and the last day that a commit is about."""

WHOLE_ROWS = True
"""Whether an update repeats what was known before, as a table needs that keeps the newest row."""


def replay(days: Sequence[date], *, whole_rows: bool = WHOLE_ROWS) -> Iterator[Upsert]:
    """Yield the changes of consecutive days.

    The schedule of all of them at once; then, day by day, departures together with cancellations
    (deletes), and arrivals; at last corrections of flights that were diverted.
    """
    flights = read_source("flights")
    by_day = [rows_of_day(flights, day) for day in days]
    schedule = _known(pa.concat_tables(by_day), "scheduled", SCHEDULED, whole_rows=whole_rows)
    yield _upsert("schedule", schedule, days)
    for day, planned in zip(days, by_day, strict=True):
        yield from _day(planned, day, whole_rows=whole_rows)
    diverted = pa.concat_tables(_diverted(planned) for planned in by_day)
    if diverted.num_rows:
        rows = _known(diverted, "diverted", (*SCHEDULED, *DEPARTED), whole_rows=True)
        yield _upsert("corrections", rows, days)


def _upsert(what: str, rows: pa.Table, days: Sequence[date], *, more: str = "") -> Upsert:
    until = f" to {days[-1]}" if len(days) > 1 else ""
    return Upsert(
        rows=rows,
        label=f"{what} {days[0]}{until}{more}",
        properties={FIRST_DAY: days[0].isoformat(), LAST_DAY: days[-1].isoformat()},
    )


def _day(planned: pa.Table, day: date, *, whole_rows: bool) -> Iterator[Upsert]:
    left = planned.filter(pc.is_valid(planned["dep_time"]))
    cancelled = planned.filter(pc.is_null(planned["dep_time"]))
    landed = left.filter(pc.is_valid(left["arr_delay"]))
    before = SCHEDULED if whole_rows else ()
    changes = [
        _of_kind(_known(left, "departed", (*before, *DEPARTED), whole_rows=whole_rows), "+U"),
        _of_kind(_known(cancelled, "cancelled", before, whole_rows=whole_rows), "-D"),
    ]
    departures = pa.concat_tables(changes, promote_options="default")
    yield _upsert("departures", departures, [day], more=f", {cancelled.num_rows} cancellations")
    before = (*before, *DEPARTED) if whole_rows else ()
    arrived = _known(landed, "arrived", (*before, *ARRIVED), whole_rows=whole_rows)
    yield _upsert("arrivals", arrived, [day])


def _of_kind(rows: pa.Table, kind: str) -> pa.Table:
    return rows.append_column("_row_kind", pa.repeat(kind, rows.num_rows))


def _known(flights: pa.Table, status: str, columns: Sequence[str], *, whole_rows: bool) -> pa.Table:
    """Return rows with their key, status and `columns`; the rest is null, or absent if not whole."""
    names = {*FLIGHTS_KEY, *columns}
    shown = flights.select([name for name in flights.column_names if name in names])
    shown = shown.append_column("status", pa.repeat(status, flights.num_rows))
    schema = FLIGHTS.schema
    if not whole_rows:
        schema = pa.schema([field for field in schema if field.name in shown.column_names])
    return fitted(shown, schema)


def _diverted(flights: pa.Table) -> pa.Table:
    """Flights that left and, as it turned out, never arrived where they were going."""
    return flights.filter(
        pc.and_(pc.is_valid(flights["dep_time"]), pc.is_null(flights["arr_delay"]))
    )

"""Changes of flights by day, from three feeds: schedule, departures and arrivals; and late corrections."""

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_assets.sample.source import FIRST_DAY as FIRST_OF_YEAR
from lsm_assets.sample.source import cast_columns, read_source, rows_of_day
from lsm_assets.sample.tables import (
    ARRIVAL,
    ARRIVED_AT,
    DEPARTED_AT,
    DEPARTURE,
    FLIGHTS,
    FLIGHTS_KEY,
    SCHEDULE,
    SCHEDULED_AT,
)
from lsm_assets.versions import Upsert

FIRST_DAY, LAST_DAY = "sample.first-day", "sample.last-day"
"""Snapshot properties with the first and the last day of a commit's flights."""

CORRECTED_DAYS = 8
"""Days after which diverted flights are corrected. Runs of the sample are not longer than this."""


def replay(days: Sequence[date]) -> Iterator[Upsert]:
    """Yield the changes of consecutive days. Each change has only the columns of its feed.

    The first change is the schedule of all days. Departures with cancellations (deletes) and arrivals follow, day by
    day. Feeds are independent: on even days arrivals come first.
    """
    flights = read_source("flights")
    by_day = [rows_of_day(flights, day) for day in days]
    planned = [
        _of_feed(rows, SCHEDULE, SCHEDULED_AT, _clock(rows, day - timedelta(days=1), 1200))
        for rows, day in zip(by_day, days, strict=True)
    ]
    yield _upsert("schedule", pa.concat_tables(planned), days)
    for rows, day in zip(by_day, days, strict=True):
        feeds = [_departures(rows, day), _arrivals(rows, day)]
        yield from reversed(feeds) if day.day % 2 == 0 else feeds


def late_corrections(days: Sequence[date]) -> pa.Table:
    """Return late corrections of the arrivals feed for the days before a run: diverted flights."""
    before = [days[0] - timedelta(days=back) for back in range(CORRECTED_DAYS, 0, -1)]
    flights = read_source("flights")
    corrections = []
    for day in before:
        if day >= FIRST_OF_YEAR:
            rows = rows_of_day(flights, day)
            lost = pc.and_(pc.is_valid(rows["dep_time"]), pc.is_null(rows["arr_delay"]))
            rows = rows.filter(lost)
            clock = _clock(rows, day + timedelta(days=7), 0)
            corrections.append(_of_feed(rows, (), ARRIVED_AT, clock, outcome="diverted"))
    return pa.concat_tables(corrections) if corrections else FLIGHTS.schema.empty_table()


def correction(rows: pa.Table, days: Sequence[date], plan: str) -> Upsert:
    """Return corrections as a change; `how` they were located travels with the commit."""
    first = days[0] - timedelta(days=CORRECTED_DAYS)
    span = [max(first, FIRST_OF_YEAR), days[0] - timedelta(days=1)]
    return _upsert("corrections", rows, span, plan=plan)


def _departures(planned: pa.Table, day: date) -> Upsert:
    departed = planned.filter(pc.is_valid(planned["dep_time"]))
    cancelled = planned.filter(pc.is_null(planned["dep_time"]))
    changes = [
        (departed, "+U", _after(departed, day, "sched_dep_time", "dep_delay")),
        (cancelled, "-D", _clock(cancelled, day, cancelled["sched_dep_time"])),
    ]
    rows = pa.concat_tables(
        _of_feed(feed_rows, DEPARTURE, DEPARTED_AT, clock).append_column(
            "_row_kind", pa.repeat(kind, feed_rows.num_rows)
        )
        for feed_rows, kind, clock in changes
    )
    return _upsert("departures", rows, [day], suffix=f", {cancelled.num_rows} cancellations")


def _arrivals(planned: pa.Table, day: date) -> Upsert:
    landed = planned.filter(pc.is_valid(planned["arr_delay"]))
    departures = _after(landed, day, "sched_dep_time", "dep_delay")
    rows = _of_feed(
        landed, ARRIVAL, ARRIVED_AT, _next(landed, departures, "arr_time"), outcome="arrived"
    )
    return _upsert("arrivals", rows, [day])


def _upsert(
    kind: str, rows: pa.Table, days: Sequence[date], *, suffix: str = "", plan: str = ""
) -> Upsert:
    until = f" to {days[-1]}" if len(days) > 1 else ""
    plan_property = {LOCATED: plan} if plan else {}
    return Upsert(
        rows=rows,
        label=f"{kind} {days[0]}{until}{suffix}",
        properties={
            FIRST_DAY: days[0].isoformat(),
            LAST_DAY: days[-1].isoformat(),
            **plan_property,
        },
    )


LOCATED = "sample.located"
"""The snapshot property with the plan by which the index located the corrected records."""


def _of_feed(
    flights: pa.Table,
    columns: Sequence[str],
    clock_name: str,
    clock: pa.Array,
    *,
    outcome: str | None = None,
) -> pa.Table:
    """Return the rows of one feed: the key, the feed's columns and its sequence field."""
    shown = flights.select(
        [name for name in flights.column_names if name in {*FLIGHTS_KEY, *columns}]
    )
    shown = shown.append_column(clock_name, clock)
    if outcome is not None:
        shown = shown.append_column("outcome", pa.repeat(outcome, flights.num_rows))
    fields = [field for field in FLIGHTS.schema if field.name in shown.column_names]
    return cast_columns(shown, pa.schema(fields))


def _after(rows: pa.Table, day: date, planned: str, delay: str) -> pa.Array:
    """Return the scheduled time plus the delay. It may be on the next day."""
    minutes = rows[delay].cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False)
    late = pa.array(minutes.astype("timedelta64[m]").astype("timedelta64[us]"))
    return pc.add(_clock(rows, day, rows[planned]), late)


def _next(rows: pa.Table, since: pa.Array, clock: str) -> pa.Array:
    """Return when a clock first showed a time after others.

    Clocks are those of the airport: what seems to be before the start of a flight is the day after.
    """
    day = pc.floor_temporal(since, unit="day")
    midnight = day.cast(pa.int64()).to_numpy()
    times = rows[clock].cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False)
    micros = midnight + (times // 100 * 60 + times % 100) * 60_000_000
    started = since.cast(pa.int64()).to_numpy()
    micros = np.where(micros < started, micros + 86_400_000_000, micros)
    return pa.array(micros, pa.int64()).cast(since.type)


def _clock(rows: pa.Table, day: date, times: pa.ChunkedArray | int) -> pa.Array:
    """Return when something was told: a day and, as the source writes it, 1435 for 14:35."""
    start = np.datetime64(datetime(day.year, day.month, day.day), "us")  # noqa: DTZ001 -- UTC
    if isinstance(times, int):
        times = pa.chunked_array([pa.repeat(times, rows.num_rows)])
    clock_times = times.cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False)
    minutes = clock_times // 100 * 60 + clock_times % 100
    return pa.array(start + minutes.astype("timedelta64[m]"), pa.timestamp("us")).cast(
        pa.timestamp("us", "UTC")
    )

"""When a bucket's compaction will be due, and when its writers would wait, at the pace seen so far."""

from collections.abc import Iterable, Mapping, Sequence

from lsm_engine.base.modes import EntryKind
from lsm_engine.base.record import record
from lsm_engine.base.units import format_bytes
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.plan.pressure import BucketPressure

_HOUR = 3_600_000


@record
class Arrivals:
    """Level-0 files that writers added to one bucket in a span of time."""

    file_count: int
    size_bytes: int


@record
class BucketForecast:
    """A bucket's debt, and where it goes if writers go on as in the last `span_millis`.

    `read_amplification`: sorted runs that a read of the bucket merges. Times are from now on; None:
    not in sight, as nothing is written. 0: now.
    """

    pressure: BucketPressure
    span_millis: int
    runs_per_hour: float
    bytes_per_hour: float
    due_in_millis: int | None
    stops_in_millis: int | None

    @property
    def read_amplification(self) -> int:
        """Sorted runs that a read merges."""
        return self.pressure.run_count

    @property
    def due_text(self) -> str:
        """When a compaction is due: "now", "in 3 hours", "never"."""
        return _in(self.due_in_millis)

    @property
    def stops_text(self) -> str:
        """When writers would wait."""
        return _in(self.stops_in_millis)

    @property
    def reason(self) -> str:
        """The forecast as a sentence."""
        pace = f"{self.runs_per_hour:.3g} runs and {format_bytes(int(self.bytes_per_hour))} an hour"
        if not self.runs_per_hour:
            return f"{self.pressure.reason}; nothing was written to it of late"
        if self.stops_in_millis == 0:
            return f"{self.pressure.reason}; {pace}"
        return (
            f"{self.pressure.reason}; {pace}: due {self.due_text}, without a compaction writers "
            f"would wait {self.stops_text}"
        )


def arrivals_of(
    deltas: Iterable[ManifestEntry],
) -> dict[tuple[bytes, int], Arrivals]:
    """Return what writers added per bucket; `deltas`: entries of commits that are no compactions."""
    counts: dict[tuple[bytes, int], Arrivals] = {}
    for entry in deltas:
        if entry.kind is EntryKind.ADD and entry.file.level == 0:
            place = (entry.partition, entry.bucket)
            before = counts.get(place, Arrivals(file_count=0, size_bytes=0))
            counts[place] = Arrivals(
                file_count=before.file_count + 1,
                size_bytes=before.size_bytes + entry.file.file_size,
            )
    return counts


def forecasts(
    pressures: Sequence[BucketPressure],
    arrivals: Mapping[tuple[bytes, int], Arrivals],
    *,
    span_millis: int,
) -> tuple[BucketForecast, ...]:
    """Return the forecast of each bucket, those whose writers would wait soonest first."""
    none = Arrivals(file_count=0, size_bytes=0)
    forecasts = [
        _forecast(pressure, arrivals.get((pressure.partition, pressure.bucket), none), span_millis)
        for pressure in pressures
    ]
    never = 1 << 62
    return tuple(
        sorted(
            forecasts,
            key=lambda forecast: (
                never if forecast.stops_in_millis is None else forecast.stops_in_millis,
                -forecast.pressure.debt_bytes,
                forecast.pressure.partition,
                forecast.pressure.bucket,
            ),
        )
    )


def _forecast(pressure: BucketPressure, arrivals: Arrivals, span_millis: int) -> BucketForecast:
    hours = span_millis / _HOUR
    pace = arrivals.file_count / hours if hours else 0.0
    return BucketForecast(
        pressure=pressure,
        span_millis=span_millis,
        runs_per_hour=pace,
        bytes_per_hour=arrivals.size_bytes / hours if hours else 0.0,
        # Runs that have reached the trigger and are not due wait for at least one more.
        due_in_millis=0
        if pressure.compactable
        else _until(max(pressure.run_trigger - pressure.run_count, 1), pace),
        stops_in_millis=_until(pressure.stop_trigger + 1 - pressure.run_count, pace),
    )


def _until(missing: int, per_hour: float) -> int | None:
    if missing <= 0:
        return 0
    return int(missing / per_hour * _HOUR) if per_hour else None


def _in(millis: int | None) -> str:
    if millis is None:
        return "never"
    if millis == 0:
        return "now"
    for unit, factor in (("days", 24 * _HOUR), ("hours", _HOUR), ("minutes", 60_000)):
        if millis >= 2 * factor:
            return f"in {millis // factor} {unit}"
    return f"in {millis // 1000} seconds"

"""Time and randomness: the only doors through which they enter the engine."""

import random
import time
import uuid
from datetime import UTC, datetime
from typing import Protocol

from lsm_engine.base.record import record


class Clock(Protocol):
    """The time, and waiting."""

    def now_millis(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...

    def local_time(self) -> tuple[int, int, int, int, int, int, int]:
        """Return the wall clock here: (year, month, day, hour, minute, second, nanosecond)."""
        ...

    def sleep_millis(self, millis: int) -> None:
        """Wait; nothing at all for zero or less."""
        ...


class IdSource(Protocol):
    """Unique names, and random numbers."""

    def new_id(self) -> str:
        """Return a fresh UUID as text, such as "0b8f…-…"."""
        ...

    def fraction(self) -> float:
        """Return a random number, at least 0 and below 1: the jitter of a wait."""
        ...


def wall_time(clock: Clock) -> datetime:
    """Return the wall clock, in microseconds, as if it were in UTC: partitions and tags spell no time zone."""
    year, month, day, hour, minute, second, nanos = clock.local_time()
    return datetime(year, month, day, hour, minute, second, nanos // 1000, tzinfo=UTC)


@record
class SystemClock:
    """The clock of this machine."""

    def now_millis(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_millis(self) -> int:
        """Return milliseconds since some moment, for measuring: this clock is never set."""
        return time.monotonic_ns() // 1_000_000

    def local_time(self) -> tuple[int, int, int, int, int, int, int]:
        """Return the wall clock in this process's time zone."""
        now_nanos = time.time_ns()
        local = datetime.fromtimestamp(now_nanos // 1_000_000_000).astimezone()
        date = (local.year, local.month, local.day)
        return (*date, local.hour, local.minute, local.second, now_nanos % 1_000_000_000)

    def sleep_millis(self, millis: int) -> None:
        """Wait."""
        if millis > 0:
            time.sleep(millis / 1000)


@record
class SystemIds:
    """Random UUIDs from the operating system; forked processes do not repeat each other."""

    def new_id(self) -> str:
        """Return a fresh UUID as text."""
        return str(uuid.uuid4())

    def fraction(self) -> float:
        """Return a random number, at least 0 and below 1."""
        return random.SystemRandom().random()

"""Times of snapshots where a clock was wrong: one stamp from the year 2100 does not stop expiry."""

from collections.abc import Sequence
from itertools import accumulate

CLOCK_DRIFT_MAX_MILLIS = 24 * 3600 * 1000
"""How far clocks of writers may be apart before one of them is taken to be wrong."""


def is_far_ahead(time_millis: int, now_millis: int) -> bool:
    """Whether a stamp lies so far after `now_millis` that its clock was wrong."""
    return time_millis - now_millis > CLOCK_DRIFT_MAX_MILLIS


def latest_possible_times(times: Sequence[int]) -> list[int]:
    """Return when each snapshot was made at the latest: no later than any that followed it.

    `times`: the stamps, oldest snapshot first.
    """
    return list(accumulate(reversed(times), min))[::-1]

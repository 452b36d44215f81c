"""Moments in the forms that people write, as milliseconds since 1970 UTC."""

from datetime import UTC, date, datetime, time
from typing import TypeAlias

import numpy as np

from lsm_engine.base.errors import InvalidInputError

Moment: TypeAlias = int | str | date | datetime | np.datetime64
"""Milliseconds, ISO 8601 text, a datetime or a day (its beginning). Without an offset it is UTC."""


def millis_of(moment: Moment) -> int:
    """Return a moment in milliseconds, without finer digits; InvalidInputError if it is no moment.

    Text is "2024-05-01", "2024-05-01 08:00:00+02:00", or digits, which are milliseconds.
    """
    if isinstance(moment, str):
        if moment.isascii() and moment.isdigit():
            return int(moment)
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError as cause:
            raise InvalidInputError(
                "a time is written '2024-05-01 08:00:00' (UTC), with an offset, or in milliseconds",
                value=moment,
            ) from cause
    if isinstance(moment, np.datetime64):
        moment = moment.astype("datetime64[ms]").item()
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    # NaT of pandas is a datetime too, which equals nothing, not even itself.
    if isinstance(moment, datetime) and moment == moment:
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise InvalidInputError(
            "a time is a datetime, ISO text such as '2024-05-01 08:00:00', or milliseconds",
            value=moment,
        )
    return moment

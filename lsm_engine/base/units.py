"""Sizes and durations with units: "128 mb", "1 d"."""

import re
from datetime import timedelta

from lsm_engine.base.errors import ErrorKind, InvalidInputError, UnsupportedError

FIRST_SNAPSHOT_ID = 1
BATCH_COMMIT_IDENTIFIER = 9_223_372_036_854_775_807
"""The commit identifier of commits that are not part of a numbered stream (format section 3)."""

LONG_MAX = (1 << 63) - 1
"""The largest number of 64 bits with a sign, and so the last snapshot id."""

UNAWARE_BUCKET_COUNT = -1
POSTPONE_BUCKET_COUNT = -2


def checked_sequence(first: int, count: int) -> int:
    """Return the sequence number of the first of some rows; UnsupportedError where they run out."""
    if first > LONG_MAX - count:
        raise UnsupportedError(
            "the bucket has used up its sequence numbers, which end at 2^63; nothing was written; copy "
            "the rows into a new table",
            next_sequence_number=first,
            rows=count,
        )
    return first


# -- Sizes and durations with units: "128 mb", "1 d" -----------------------------------------------

_SIZES = {
    "": 1, "b": 1, "bytes": 1,
    "k": 1 << 10, "kb": 1 << 10, "kibibytes": 1 << 10,
    "m": 1 << 20, "mb": 1 << 20, "mebibytes": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gibibytes": 1 << 30,
    "t": 1 << 40, "tb": 1 << 40, "tebibytes": 1 << 40,
}  # fmt: skip

_MILLIS = {
    "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "": 1, "s": 1000, "sec": 1000, "secs": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "mins": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip

_QUANTITY = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*")


def _not_a_quantity(message: str) -> InvalidInputError:
    """Return the error of a text that is no quantity; it is a ValueError, as parsers of options expect."""
    return InvalidInputError(message, kind=ErrorKind.INVALID_OPTION)


def _parse(text: str, units: dict[str, int], example: str) -> int:
    match = _QUANTITY.fullmatch(text)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise _not_a_quantity(f"{text!r} is not a quantity such as {example!r}")
    quantity = int(match[1]) * factor
    if quantity > LONG_MAX:
        raise _not_a_quantity(f"{text!r} is more than 64 bits can hold")
    return quantity


def parse_bytes(text: str) -> int:
    """Return a size in bytes: "128 mb" is 134217728. Units are powers of 1024.

    Raises ValueError for anything else.
    """
    return _parse(text, _SIZES, "128 mb")


def parse_millis(text: str) -> int:
    """Return a duration in milliseconds: "1 d" is 86400000. A bare number is milliseconds.

    Raises ValueError for anything else.
    """
    return _parse(text, _MILLIS, "1 d")


def parse_age(older_than: str | timedelta) -> int:
    """Return an age in milliseconds, as `parse_millis` does; raises InvalidInputError for no age."""
    if isinstance(older_than, timedelta):
        return older_than // timedelta(milliseconds=1)
    try:
        return parse_millis(older_than)
    except (ValueError, TypeError) as cause:
        raise InvalidInputError(
            f"an age is a time such as '7 d', or a timedelta, not {older_than!r}",
            older_than=older_than,
        ) from cause


def format_bytes(size: int) -> str:
    """Return a size for people: three significant digits, or the whole number, and a unit: "1.27 MB"."""
    amount = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if abs(amount) < 1024:
            return f"{amount:{'.3g' if abs(amount) < 999.5 else '.0f'}} {unit}"
        amount /= 1024
    return f"{amount:.4g} TB"


def counted(count: int, noun: str) -> str:
    """Return a number of things for people: "1 row", "2,000 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_age(millis: int) -> str:
    """Return how long something is ago, in its largest unit, rounded down: 93600000 is "1 d"."""
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if millis >= factor:
            return f"{millis // factor} {unit}"
    return f"{max(millis, 0) // 1000} s"


def format_millis(millis: int) -> str:
    """Return a duration for people, in its largest whole unit: 86400000 is "1 d"."""
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if millis and millis % factor == 0:
            return f"{millis // factor} {unit}"
    return f"{millis} ms"

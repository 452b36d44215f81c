"""How old a partition is, by the time that its values spell."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record

_FIELDS = {"y": "year", "u": "year", "M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second"}  # fmt: skip
_CENTURY = 2000
"""The year that two digits count from, as in other clients."""
_DEFAULTS = ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd")
_TOKEN = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>.)", re.DOTALL)
_COLUMN = re.compile(r"\$([A-Za-z_][A-Za-z_0-9]*)")


@record
class PartitionClock:
    """Reads the time of a partition. `pattern` None: the first column; `formatter` None: defaults."""

    columns: tuple[str, ...]
    pattern: str | None = None
    formatter: str | None = None

    def time_of(self, values: Mapping[str, str | None]) -> datetime | None:
        """Return the time that partition values spell, as a wall clock; None where they spell none.

        Raises InvalidOptionError for a pattern or formatter that cannot be.
        """
        text = self._text(values)
        if text is None:
            return None
        formats = _DEFAULTS if self.formatter is None else (self.formatter,)
        for format_ in formats:
            match = re.fullmatch(_expression(format_), text)
            if match is not None:
                numbers = {name: int(part) for name, part in match.groupdict().items()}
                if len(match["year"]) == 2:
                    numbers["year"] += _CENTURY
                full = {"year": 1970, "month": 1, "day": 1} | numbers
                try:
                    return datetime(tzinfo=UTC, **full)
                except ValueError:
                    return None
        return None

    def _text(self, values: Mapping[str, str | None]) -> str | None:
        if self.pattern is None:
            return values[self.columns[0]]
        parts: list[str] = []
        offset = 0
        for match in _COLUMN.finditer(self.pattern):
            if match[1] not in values:
                raise InvalidOptionError(
                    f"'partition.timestamp-pattern' names {match[1]!r}, which is no partition column",
                    value=self.pattern,
                )
            value = values[match[1]]
            if value is None:
                return None
            parts += [self.pattern[offset : match.start()], value]
            offset = match.end()
        return "".join([*parts, self.pattern[offset:]])


def _expression(format_: str) -> str:
    """Return a regular expression with a group for each field of a date format."""
    parts = []
    fields = set()
    for token in _TOKEN.finditer(format_):
        if token["quoted"] is not None:
            parts.append(re.escape(token["quoted"] or "'"))
        elif token["letters"] is None:
            parts.append(re.escape(token["other"]))
        else:
            field = _FIELDS.get(token["letters"][0])
            if field is None or field in fields:
                raise _odd(format_)
            fields.add(field)
            width = len(token["letters"])
            count = f"{{{width}}}" if width > 1 else "{1,2}"
            parts.append(f"(?P<{field}>[0-9]{count})")
    if "year" not in fields:
        raise _odd(format_)  # all would lie in 1970, and go
    return "".join(parts)


def _odd(format_: str) -> InvalidOptionError:
    return InvalidOptionError(
        "'partition.timestamp-formatter' knows y M d H m s, each once, and quoted text, and needs a year",
        value=format_,
    )


@record
class PartitionAge:
    """A partition, as a stored row, and the wall-clock time it is judged by; None: kept for ever."""

    partition: bytes
    time: datetime | None


def expired_partitions(
    ages: Sequence[PartitionAge], *, before: datetime, max_count: int
) -> tuple[PartitionAge, ...]:
    """Return the partitions that are older than `before`, the oldest first, at most `max_count`."""
    old = [age for age in ages if age.time is not None and age.time < before]
    old.sort(key=lambda age: (age.time, age.partition))
    return tuple(old[:max_count])

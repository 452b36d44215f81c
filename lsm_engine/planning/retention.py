"""Which snapshots have outlived their retention, and which rule decided."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.base.units import format_millis, parse_age
from lsm_engine.format.binary_row import decode_row
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options import core_options
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.snapshot_chain import latest_possible_times
from lsm_engine.types.table_schema import TableSchema

NO_LIMIT = 1 << 40
"""More snapshots than there can be: an expiry that does all at once."""


@record
class Retention:
    """The `snapshot.*` retention options. Counts are of snapshots."""

    retained_min: int
    retained_max: int
    time_retained_millis: int
    expire_limit: int

    def __post_init__(self) -> None:
        if not 1 <= self.retained_min <= self.retained_max:
            raise InvalidOptionError(
                "snapshot.num-retained.min must be at least 1 and not above snapshot.num-retained.max",
                retained_min=self.retained_min,
                retained_max=self.retained_max,
            )


def retention_of(
    options: TableOptions,
    *,
    retain_min: int | None = None,
    retain_max: int | None = None,
    older_than: str | timedelta | None = None,
) -> Retention:
    """Return a table's retention, single rules of it replaced. `older_than`: an age such as "1 h".

    A `retain_max` below the option's minimum takes the minimum along.
    """
    largest = options[core_options.SNAPSHOT_NUM_RETAINED_MAX] if retain_max is None else retain_max
    smallest = options[core_options.SNAPSHOT_NUM_RETAINED_MIN] if retain_min is None else retain_min
    if retain_min is None and retain_max is not None:
        smallest = min(smallest, largest)
    age = options[core_options.SNAPSHOT_TIME_RETAINED]
    return Retention(
        retained_min=smallest,
        retained_max=largest,
        time_retained_millis=age if older_than is None else parse_age(older_than),
        expire_limit=options[core_options.SNAPSHOT_EXPIRE_LIMIT],
    )


@record
class ExpiryChoice:
    """Snapshots to expire and snapshots to keep, each oldest first, and why the limit lies there."""

    expired: tuple[Snapshot, ...]
    retained: tuple[Snapshot, ...]
    reason: str


def kept_of_passed(
    snapshots: Sequence[Snapshot],
    passed: Sequence[Snapshot],
    retention: Retention,
    *,
    now_millis: int,
    consumer_next_ids: Iterable[int],
) -> Snapshot | None:
    """Return the oldest snapshot that retention keeps of those that an expiry has `passed`.

    None: it keeps none of them, however few `expire_limit` lets go at a time; an expiry has died there.
    """
    if not passed:
        return None
    # Without the limit: an expiry that died may have been allowed more at a time.
    full_choice = choose_expired(
        snapshots,
        replace(retention, expire_limit=NO_LIMIT),
        now_millis=now_millis,
        consumer_next_ids=consumer_next_ids,
    )
    return full_choice.retained[0] if full_choice.retained[0].id <= passed[-1].id else None


def choose_expired(
    snapshots: Sequence[Snapshot],
    retention: Retention,
    *,
    now_millis: int,
    consumer_next_ids: Iterable[int],
) -> ExpiryChoice:
    """Choose which of all snapshots, oldest first, expire.

    The newest `retained_min` never go. Of the rest, those beyond `retained_max` go whatever their
    age, the others once their successor is older than the time retained. Snapshots that a consumer
    still needs (`consumer_next_ids`: the next id of each), and those beyond `expire_limit`, wait.
    """
    ids = [snapshot.id for snapshot in snapshots]
    assert ids == sorted(set(ids)), ids
    if not snapshots:
        return ExpiryChoice(expired=(), retained=(), reason="there are no snapshots")
    latest = ids[-1]
    by_count = latest - retention.retained_max + 1
    cuts = [
        (latest - retention.retained_min + 1, f"the newest {retention.retained_min} always stay"),
        (
            min(consumer_next_ids, default=latest + 1),
            "a consumer still needs the rest",
        ),
        # Paimon counts ids from the earliest on, not files: after gaps fewer are taken.
        (ids[0] + retention.expire_limit, f"at most {retention.expire_limit} go at a time"),
    ]
    end, reason = min(cuts)
    oldest_kept_time = now_millis - retention.time_retained_millis
    expired_count = 0
    # A snapshot cannot be younger than its successor, whatever its stamp.
    made_by = latest_possible_times([snapshot.time_millis for snapshot in snapshots])
    for index, (snapshot, successor) in enumerate(pairwise(snapshots), 1):
        if snapshot.id >= end:
            break
        if snapshot.id >= by_count and made_by[index] >= oldest_kept_time:
            reason = (
                f"snapshot {successor.id}, the successor of {snapshot.id}, is not older than "
                f"{format_millis(retention.time_retained_millis)}"
            )
            break
        expired_count += 1
    return ExpiryChoice(
        expired=tuple(snapshots[:expired_count]),
        retained=tuple(snapshots[expired_count:]),
        reason=reason,
    )


def choose_expired_changelogs(
    changelogs: Sequence[Snapshot],
    snapshots: Sequence[Snapshot],
    retention: Retention,
    *,
    now_millis: int,
    consumer_next_ids: Iterable[int],
) -> ExpiryChoice:
    """Choose which of the changelogs that outlived their snapshots expire.

    Changelogs and the snapshots that are left (each oldest first) are one chain, of which `retention`
    counts both; snapshots never go here. A changelog whose snapshot is still there is kept, and so
    is the newest of all, as in Java Paimon: a reader that stands there finds where its chain goes on.
    """
    first = snapshots[0].id if snapshots else None
    own = [changelog for changelog in changelogs if first is None or changelog.id < first]
    choice = choose_expired(
        [*own, *snapshots], retention, now_millis=now_millis, consumer_next_ids=consumer_next_ids
    )
    going = {snapshot.id for snapshot in choice.expired}
    expired = [own_changelog for own_changelog in own[:-1] if own_changelog.id in going]
    # A reader at the newest changelog finds by it where the snapshots go on.
    stays = bool(own) and own[-1].id in going
    return ExpiryChoice(
        expired=tuple(expired),
        retained=tuple(own[len(expired) :]),
        reason="the newest changelog always stays" if stays else choice.reason,
    )


# -- How old a partition is, by the time that its values spell -------------------------------------

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


def ages_by_values(schema: TableSchema, partitions: Iterable[bytes]) -> list[PartitionAge]:
    """Return the ages of stored partitions by the times that their values spell."""
    fields = schema.select(schema.partition_keys)
    names, types = [field.name for field in fields], [field.type for field in fields]
    clock = PartitionClock(
        columns=tuple(names),
        pattern=schema.options[core_options.PARTITION_TIMESTAMP_PATTERN],
        formatter=schema.options[core_options.PARTITION_TIMESTAMP_FORMATTER],
    )
    ages = []
    for partition in sorted(partitions):
        values = decode_row(partition, types)
        texts = {
            name: None if value is None else str(value)
            for name, value in zip(names, values, strict=True)
        }
        ages.append(PartitionAge(partition=partition, time=clock.time_of(texts)))
    return ages


def expired_partitions(
    ages: Sequence[PartitionAge], *, before: datetime, max_count: int
) -> tuple[PartitionAge, ...]:
    """Return the partitions that are older than `before`, the oldest first, at most `max_count`."""
    old = [age for age in ages if age.time is not None and age.time < before]
    old.sort(key=lambda age: (age.time, age.partition))
    return tuple(old[:max_count])

"""Which snapshots have outlived their retention, and which rule decided."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.base.units import format_millis, parse_age
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.snapshot_time import latest_possible_times

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
    stays = bool(own) and own[-1].id in going
    return ExpiryChoice(
        expired=tuple(expired),
        retained=tuple(own[len(expired) :]),
        reason="the newest changelog always stays" if stays else choice.reason,
    )

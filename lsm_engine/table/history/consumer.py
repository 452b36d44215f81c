"""Consumers: named readers of changes. What they still need does not expire."""

import fnmatch
from collections.abc import Sequence

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    CommitConflictError,
    ErrorKind,
    ExpiredError,
    InvalidInputError,
    NotFoundError,
)
from lsm_engine.meta.consumer import Consumer
from lsm_engine.table.ground.session import TableSession


def reset(session: TableSession, name: str, next_snapshot_id: int | None) -> Consumer | None:
    """Put a consumer at a snapshot, made if it is new; None: forget it. Returns it as it is now.

    Raises ExpiredError, with nothing changed, for a snapshot that no longer can be read from.
    """
    if next_snapshot_id is None:
        if not session.consumers.delete(name):
            raise NotFoundError(f"no consumer {name!r}", kind=ErrorKind.NO_SUCH_FILE, consumer=name)
        return None
    if next_snapshot_id < 1:
        raise InvalidInputError("snapshots are numbered from 1", next_snapshot_id=next_snapshot_id)
    before, now = session.consumers.reset(name, next_snapshot_id)
    # Written before it is looked, as an expiry does the reverse (decisions/0004).
    first = first_readable(session)
    if first is not None and next_snapshot_id < first:
        session.consumers.take_back(now, before)  # not what others have done to it since
        raise ExpiredError(
            f"snapshot {next_snapshot_id} has expired; the oldest whose changes can be read is {first}",
            snapshot_id=next_snapshot_id,
            earliest_id=first,
        )
    return session.consumers.find(name)


def first_readable(session: TableSession) -> int | None:
    """Return the oldest id whose changes can be read, from a snapshot or a changelog."""
    marked = session.snapshots.earliest_hint()
    ids = [_first_changelog(session), marked or session.snapshots.earliest_id()]
    known = [number for number in ids if number is not None]
    return min(known, default=None)


def _first_changelog(session: TableSession) -> int | None:
    """Return the oldest changelog that no expiry has passed, as it may be deleting those below EARLIEST."""
    ids = session.changelogs.ids()
    marked = session.changelogs.earliest_hint() or 0
    return min([number for number in ids if number >= marked] or ids, default=None)


def refuse_put_back(
    session: TableSession, known: Sequence[Consumer], last_id: int, *, is_passed: bool
) -> None:
    """Raise CommitConflictError where a consumer needs a snapshot up to `last_id` that did not when `known` were read.

    An expiry asks before EARLIEST moves, and once it has passed them (`is_passed`): whoever put the consumer there
    may have looked at EARLIEST before that.
    """
    before = {(consumer.name, consumer.next_snapshot_id) for consumer in known}
    for consumer in session.consumers.list():
        position = consumer.next_snapshot_id
        if position <= last_id and (consumer.name, position) not in before:
            remedy = (
                "repair the earliest snapshot, so that it can be read again, or move the consumer on"
                if is_passed
                else "expire again"
            )
            raise CommitConflictError(
                f"consumer {consumer.name!r} was put at snapshot {position}, which was about to expire; no "
                f"snapshot was deleted, {remedy}",
                consumer=consumer.name,
                table=session.name,
            )


def clear(session: TableSession, including: str = "*", excluding: str = "") -> tuple[str, ...]:
    """Forget the consumers whose names match a pattern such as "etl-*"; return them."""
    expired = [
        one.name
        for one in session.consumers.list()
        if fnmatch.fnmatchcase(one.name, including)
        and not (excluding and fnmatch.fnmatchcase(one.name, excluding))
    ]
    for name in expired:
        session.consumers.delete(name)
    return tuple(expired)


def consumers_over(session: TableSession, *, dry_run: bool) -> tuple[Consumer, ...]:
    """Return the consumers that have not moved for `consumer.expiration-time`, by storage's clock."""
    lifetime = session.options[core_options.CONSUMER_EXPIRATION_TIME]
    consumers = session.consumers.list() if lifetime is not None else []
    if lifetime is None or not consumers:
        return ()
    now = session.storage_time(deletes=not dry_run)
    return tuple(one for one in consumers if now - one.modified_millis > lifetime)

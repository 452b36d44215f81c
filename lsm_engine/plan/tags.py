"""Tags: which have outlived themselves, when they were born, and whether two are the same."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag

READ_PREFIX = "batch-read-"
"""How the names of tags begin that reads make."""
_LOCK_PREFIXES = (
    *("forgetting-", "forwarding-", "renaming-", "replacing-", "restoring-", "rolling-back-"),
    *("tagging-", READ_PREFIX),
)


def is_lock(name: str) -> bool:
    """Whether a tag is one that an operation makes for as long as it runs, by its name.

    Nothing rests on such a tag of another: its maker may be about to give up, as the snapshot has expired.
    """
    return name.startswith(_LOCK_PREFIXES)


def expired_tags(tags: Iterable[Tag], *, local_now: datetime) -> tuple[Tag, ...]:
    """Return the tags whose lifetime is over, by name; tags without a lifetime or birthday stay.

    `local_now` is the wall clock without a zone that tags are stamped with (semantics section
    5): pass the local time of the process that expires them.
    """
    now = local_now.replace(tzinfo=UTC)
    over = [
        tag
        for tag in tags
        if (born := created_at(tag)) is not None
        and tag.retained_millis is not None
        and born + timedelta(milliseconds=tag.retained_millis) < now
    ]
    return tuple(sorted(over, key=lambda tag: tag.name))


def created_at(tag: Tag) -> datetime | None:
    """Return a tag's birthday: a local wall clock, written as UTC so that it compares."""
    if tag.created is None:
        return None
    year, month, day, hour, minute, second, nanos = (*tag.created, 0, 0, 0, 0)[:7]
    return datetime(year, month, day, hour, minute, second, nanos // 1000, tzinfo=UTC)


def same_tag(existing: Tag, snapshot: Snapshot) -> bool:
    """Whether a tag of the wanted name already points at the wanted snapshot (a replay)."""
    mine, theirs = existing.snapshot, snapshot
    return (mine.id, mine.delta_manifest_list) == (theirs.id, theirs.delta_manifest_list)


def without_changelog(snapshot: Snapshot) -> Snapshot:
    """Return a state without the changelog that came with it."""
    return replace(
        snapshot,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        changelog_record_count=None,
    )

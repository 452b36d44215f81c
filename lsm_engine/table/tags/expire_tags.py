"""Tags whose lifetime is over go, with the files that nothing else names."""

from collections.abc import Sequence
from datetime import UTC, datetime

from lsm_engine.base import core_options
from lsm_engine.base.record import record
from lsm_engine.base.units import counted, parse_age
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.tags import created_at, expired_tags
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.tags import tag as tags


@record
class TagExpiryReport:
    """Tags, by name, whose lifetime was over; they are deleted unless it was a `dry_run`."""

    names: tuple[str, ...]
    dry_run: bool

    def __str__(self) -> str:
        if not self.names:
            return "no tag is past its lifetime"
        verb = "would expire" if self.dry_run else "expired"
        return f"{verb} {counted(len(self.names), 'tag')}: {', '.join(self.names)}"


def expire_tags(
    session: TableSession,
    *,
    dry_run: bool,
    older_than: str | None = None,
    automatic: bool = False,
    listed: Sequence[Tag] | None = None,
) -> TagExpiryReport:
    """Take tags whose lifetime is over. `older_than`: those with a birthday before that age as well.

    `automatic`: on behalf of an expiry, which heeds `tag.time-expire-enabled`. `listed`: the tags, where they
    are known.
    """
    if automatic and not session.options[core_options.TAG_TIME_EXPIRE_ENABLED]:
        return TagExpiryReport(names=(), dry_run=dry_run)
    there = session.tags.stable_listing() if listed is None else listed
    year, month, day, hour, minute, second, nanos = session.clock.local_time()
    now = datetime(year, month, day, hour, minute, second, nanos // 1000, tzinfo=UTC)
    over = list(expired_tags(there, local_now=now))
    if older_than is not None:
        age = parse_age(older_than)
        born = [(tag, created_at(tag)) for tag in there]
        over += [
            tag
            for tag, birthday in born
            if tag not in over
            and birthday is not None
            and (now - birthday).total_seconds() * 1000 > age
        ]
    over.sort(key=lambda tag: tag.name)
    if not dry_run:
        # One that others have given a longer life meanwhile, made anew or deleted is none of these any more.
        over = [tag for tag in over if tags.delete_as_read(session, tag, kind="expire-tags")]
    return TagExpiryReport(names=tuple(tag.name for tag in over), dry_run=dry_run)

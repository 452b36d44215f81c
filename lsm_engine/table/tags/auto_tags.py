"""Tags that make themselves, after a commit or when they are asked for (`tag.automatic-creation`)."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    AlreadyExistsError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
)
from lsm_engine.base.record import record
from lsm_engine.base.table_options import TableOptions
from lsm_engine.base.units import counted
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.tag_periods import BATCH_PREFIX, TagPeriods, automatic_tags, surplus
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.tags import tag as tags

log = logging.getLogger(__name__)
_RACES = 10


@record
class AutoTagReport:
    """Automatic tags, by name, that were created and deleted, or would be in a `dry_run`."""

    created: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    dry_run: bool = False

    def __str__(self) -> str:
        would = "would " if self.dry_run else ""
        return (
            f"{would}create {counted(len(self.created), 'tag')}, {would}remove {len(self.removed)}"
        )


class AutoTags:
    """The automatic tags of one table."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._options = session.options
        self._mode = session.options[core_options.TAG_AUTOMATIC_CREATION]

    def after_commit(self, made: Snapshot) -> None:
        """Tag what a commit made, if it closes a period. What fails is logged: the commit stands."""
        try:
            self.create_due([made])
        except LsmError as error:
            log.warning("table %s was not tagged by itself: %s", self._session.name, error)

    def create_due(
        self, snapshots: Iterable[Snapshot] | None = None, *, dry_run: bool = False
    ) -> AutoTagReport:
        """Create the tags that are due for some snapshots, by default all since the last such tag."""
        if self._mode == "none":
            return AutoTagReport(dry_run=dry_run)
        if self._mode == "batch":
            return self._tag_batch(snapshots, dry_run=dry_run)
        return self._tag_periods(snapshots, dry_run=dry_run)

    def _tag_periods(self, snapshots: Iterable[Snapshot] | None, *, dry_run: bool) -> AutoTagReport:
        options, periods = self._options, periods_of(self._options)
        there = automatic_tags(self._session.tags.list(), periods)
        last = max(there, default=None)
        since = there[last].snapshot.id if last is not None else 0
        if snapshots is None:
            snapshots = [one for one in self._session.snapshots.all() if one.id > since]
        named: dict[str, Tag | None] = {tag.name: tag for tag in there.values()}
        created: list[str] = []
        for snapshot in snapshots:
            moment = wall_clock(options, snapshot, self._mode)
            if moment is None:
                continue
            complete = options[core_options.TAG_AUTOMATIC_COMPLETION]
            for start in periods.closed_periods(moment, last, complete=complete):
                last = start
                name = periods.name_of(start)
                if name in named:
                    continue
                tag = None if dry_run else self._create(name, snapshot)
                if dry_run or tag is not None:
                    created.append(name)
                    named[name] = tag
        removed = surplus(list(named), options[core_options.TAG_NUM_RETAINED_MAX])
        if not dry_run:
            removed = self._remove(named[name] for name in removed)
        return AutoTagReport(created=tuple(created), removed=tuple(removed), dry_run=dry_run)

    def _tag_batch(self, snapshots: Iterable[Snapshot] | None, *, dry_run: bool) -> AutoTagReport:
        """One tag a day, or of one name, that always stands at the newest commit."""
        options = self._options
        newest = (
            max(snapshots or (), key=lambda one: one.id, default=None)
            or self._session.snapshots.latest()
        )
        if newest is None:
            return AutoTagReport(dry_run=dry_run)
        moment = wall_clock(options, newest, "process-time")
        name = options[core_options.TAG_BATCH_CUSTOMIZED_NAME] or (
            f"{BATCH_PREFIX}{moment:%Y-%m-%d}" if moment is not None else ""
        )
        old = self._session.tags.find(name)
        if not dry_run:
            self._move_on(name, newest)
        named = {
            tag.name: tag for tag in self._session.tags.list() if tag.name.startswith(BATCH_PREFIX)
        }
        removed = surplus(sorted({*named, name}), options[core_options.TAG_NUM_RETAINED_MAX])
        if not dry_run:
            removed = self._remove(named.get(name) for name in removed)
        return AutoTagReport(
            created=() if old is not None else (name,), removed=tuple(removed), dry_run=dry_run
        )

    def _move_on(self, name: str, newest: Snapshot) -> None:
        """Let a tag stand at a snapshot, unless it stands at a newer one; others may move it, too."""
        lifetime = self._options[core_options.TAG_DEFAULT_TIME_RETAINED]
        for _ in range(_RACES):
            old = self._session.tags.find(name)
            if old is None:
                if self._create(name, newest) is not None:
                    return
            elif old.snapshot.id >= newest.id or tags.moved(self._session, old, newest, lifetime):
                return
        log.info("tag %s does not stand at snapshot %d: others keep changing it", name, newest.id)

    def _create(self, name: str, snapshot: Snapshot) -> Tag | None:
        """Create one tag; None if somebody else has, or the snapshot is deleted."""
        lifetime = self._options[core_options.TAG_DEFAULT_TIME_RETAINED]
        try:
            return tags.named(self._session, name, snapshot, lifetime, numeric=True)
        except AlreadyExistsError:
            return None
        except NotFoundError:
            log.info("snapshot %d expired before it was tagged %s", snapshot.id, name)
            return None

    def _remove(self, surplus_tags: Iterable[Tag | None]) -> list[str]:
        """Delete tags as they were read; return the names of those that nobody has changed or deleted since."""
        return [
            tag.name
            for tag in surplus_tags
            if tag is not None and tags.delete_as_read(self._session, tag, kind="expire-tags")
        ]


def periods_of(options: TableOptions) -> TagPeriods:
    """Return a table's tag periods; raises InvalidOptionError for options that do not fit."""
    return TagPeriods.from_options(
        options[core_options.TAG_CREATION_PERIOD],
        length_millis=options[core_options.TAG_CREATION_PERIOD_DURATION],
        formatter=options[core_options.TAG_PERIOD_FORMATTER],
        delay_millis=options[core_options.TAG_CREATION_DELAY],
    )


def wall_clock(options: TableOptions, snapshot: Snapshot, mode: str) -> datetime | None:
    """Return the wall-clock time that a snapshot stands for; None for one without a watermark."""
    millis, zone = snapshot.time_millis, options[core_options.SINK_PROCESS_TIME_ZONE]
    if mode == "watermark":
        if snapshot.watermark is None:
            return None
        millis, zone = snapshot.watermark, options[core_options.SINK_WATERMARK_TIME_ZONE]
    try:
        moment = datetime.fromtimestamp(millis / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None  # a watermark that means "for ever" closes no period
    return moment.astimezone(_zone(zone)).replace(tzinfo=UTC)


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as cause:
        raise InvalidOptionError(f"there is no time zone {name!r}", value=name) from cause

"""Tags: which have outlived themselves, when they were born, and whether two are the same."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag

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
    """Return the tags whose lifetime is over, by name; tags without a lifetime or a time of creation are kept.

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


# -- Tags that make themselves: which period a moment closes, and how its tag is called ------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LENGTHS = {"daily": 86_400_000, "hourly": 3_600_000, "two-hours": 7_200_000}
_DAYS = {"with_dashes": "%Y-%m-%d", "without_dashes": "%Y%m%d"}
_HOURS = {"with_dashes": "%Y-%m-%d %H", "without_dashes": "%Y%m%d %H"}
_MINUTES = "%Y%m%d%H%M"
BATCH_PREFIX = "batch-write-"


@record
class TagPeriods:
    """Wall-clock time cut into periods. A tag is named by the beginning of the period it closes.

    Wall clocks have no zone and are written as UTC, so that they compare and count.
    """

    length_millis: int
    delay_millis: int
    spelling: str

    @classmethod
    def from_options(
        cls, period: str, *, length_millis: int | None, formatter: str, delay_millis: int
    ) -> "TagPeriods":
        """Return the periods that the options `tag.creation-period` and its kin describe.

        Raises InvalidOptionError for a delay that is not shorter than the period.
        """
        length = length_millis or _LENGTHS[period]
        if delay_millis >= length:
            raise InvalidOptionError(
                "'tag.creation-delay' has to be shorter than the period",
                delay_millis=delay_millis,
                period_millis=length,
            )
        if length_millis is not None:
            spelling = _MINUTES
        elif period == "two-hours":
            spelling = _HOURS["with_dashes"]  # other clients have one name for these
        else:
            spellings = _DAYS if period == "daily" else _HOURS
            unspaced = spellings["without_dashes"].replace(" ", "")
            spelling = spellings.get(formatter, unspaced)
        return cls(length_millis=length, delay_millis=delay_millis, spelling=spelling)

    @property
    def length(self) -> timedelta:
        """How long a period is."""
        return timedelta(milliseconds=self.length_millis)

    def name_of(self, start: datetime) -> str:
        """Return the name of the tag of the period that begins at `start`."""
        return start.strftime(self.spelling)

    def start_of(self, name: str) -> datetime | None:
        """Return the beginning of the period that a tag of this name stands for; None: no such tag."""
        try:
            start = datetime.strptime(name, self.spelling).replace(tzinfo=UTC)
        except ValueError:
            return None
        return start if self.name_of(start) == name else None

    def closed_before(self, moment: datetime) -> datetime:
        """Return the beginning of the last period that was over, the delay included."""
        since = (moment.replace(tzinfo=UTC) - timedelta(milliseconds=self.delay_millis)) - _EPOCH
        return _EPOCH + (since // self.length - 1) * self.length

    def closed_periods(
        self, moment: datetime, last: datetime | None, *, complete: bool
    ) -> list[datetime]:
        """Return the periods to tag at a moment, oldest first. `last`: the newest that has a tag.

        Without `complete` one at most: the last that was over.
        """
        newest = self.closed_before(moment)
        if last is None:
            return [newest]
        if newest <= last:
            return []
        if not complete:
            return [newest]
        count = (newest - last) // self.length
        return [last + self.length * step for step in range(1, count + 1)]


def automatic_tags(tags: Iterable[Tag], periods: TagPeriods) -> Mapping[datetime, Tag]:
    """Return the tags that made themselves, by the beginning of their period, oldest first."""
    tags_by_start = {
        start: tag for tag in tags if (start := periods.start_of(tag.name)) is not None
    }
    return dict(sorted(tags_by_start.items()))


def surplus(names: Iterable[str], max_count: int | None) -> list[str]:
    """Return which of some automatic tags, oldest first, are too many. `max_count` None: no limit."""
    all_names = list(names)
    return [] if max_count is None else all_names[: max(0, len(all_names) - max_count)]

"""Tags that make themselves: which period a moment closes, and how its tag is called."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.record import record
from lsm_engine.meta.tag import Tag

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
    """Return which of some automatic tags, oldest first, are too many. `kept` None: no limit."""
    all_names = list(names)
    return [] if max_count is None else all_names[: max(0, len(all_names) - max_count)]

"""Tag calendars: which days a table has a tag of, drawn small enough to show in place."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta

from lsm_assets.model.pictures import INLINE_CHARACTERS_MAX, markdown_picture, markdown_table
from lsm_engine import Tag

WEEKS = 26
_STEP = 10
_DAYS_DRAWN_MAX = 40


def day_of(tag: Tag) -> date:
    """Return the day (UTC) of the data that a tag names."""
    return datetime.fromtimestamp(tag.snapshot.time_millis / 1000, UTC).date()


def tag_calendar(tags: Iterable[Tag]) -> str:
    """Draw the last weeks before the newest tag, a column per week, Monday on top; "" without tags.

    Days with a tag are filled. The Markdown is short enough to be drawn in place.
    """
    days = sorted({day_of(tag) for tag in tags}, reverse=True)
    if not days:
        return ""
    monday = days[0] - timedelta(days=days[0].weekday())
    first = monday - timedelta(weeks=WEEKS - 1)
    shown = [day for day in days if day >= first][:_DAYS_DRAWN_MAX]
    width, height = WEEKS * _STEP, 7 * _STEP
    dots = "".join(
        f"M{(day - first).days // 7 * _STEP} {day.weekday() * _STEP + 4}h8" for day in shown
    )
    grid = "".join(f"M0 {row * _STEP + 4}H{width}" for row in range(7))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'stroke-width="8"><path stroke="#8882" d="{grid}"/>'
        f'<path stroke="#4aa383" d="{dots}"/></svg>'
    )
    picture = markdown_picture(svg, f"tags from {first} to {days[0]}")
    assert len(picture) <= INLINE_CHARACTERS_MAX, len(picture)
    return picture


def tag_table(tags: Sequence[Tag], link: str) -> str:
    """Return a Markdown table of tags, the newest day first; `link` is formatted with an id."""
    rows = [
        (tag.name, f"[{tag.snapshot.id}]({link.format(tag.snapshot.id)})", day_of(tag))
        for tag in sorted(tags, key=lambda each: -each.snapshot.time_millis)
    ]
    return markdown_table(["tag", "snapshot", "day"], rows)

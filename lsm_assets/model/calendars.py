"""Calendars of a table's tags, as images that the UI shows inline."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta

from lsm_assets.model.markdown import INLINE_CHARACTERS_MAX, markdown_image, markdown_table
from lsm_engine import Tag

WEEKS = 26
_STEP = 10  # pixels from day to day, and from week to week
_DAYS_DRAWN_MAX = 40  # more days make the Markdown longer than INLINE_CHARACTERS_MAX


def day_of(tag: Tag) -> date:
    """Return the day (UTC) on which the tagged snapshot was committed."""
    return datetime.fromtimestamp(tag.snapshot.time_millis / 1000, UTC).date()


def tag_calendar(tags: Iterable[Tag]) -> str:
    """Return a calendar as a Markdown image, "" without tags.

    It has a column for each of the last `WEEKS` weeks up to the newest tag, Monday on top. Days with a tag are filled.
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
    picture = markdown_image(svg, f"tags from {first} to {days[0]}")
    assert len(picture) <= INLINE_CHARACTERS_MAX, len(picture)
    return picture


def tag_table(tags: Sequence[Tag], link: str) -> str:
    """Return a Markdown table of tags, newest first. `link` is a format string for the URL of a snapshot id."""
    rows = [
        (tag.name, f"[{tag.snapshot.id}]({link.format(tag.snapshot.id)})", day_of(tag))
        for tag in sorted(tags, key=lambda tag: -tag.snapshot.time_millis)
    ]
    return markdown_table(["tag", "snapshot", "day"], rows)

"""Small SVG pictures as Markdown: the UI draws them inline while they stay below a thousand characters."""

import base64
import math
from collections.abc import Sequence

from lsm_assets.model.tree import LevelFacts

INLINE_CHARACTERS_MAX = 999
"""Longer Markdown becomes a button in the UI instead of being drawn in place."""

_BARS_MAX = 22  # level-0 files that are drawn one by one
_LEFT, _RIGHT, _ROW = 26, 286, 17
_COLOURS = ("#e0803a", "#d9a441", "#8fae4b", "#4aa383", "#3b8fb0", "#4f6fb5")


def markdown_picture(svg: str, alt: str) -> str:
    """Return Markdown that shows an SVG in place."""
    return f"![{alt}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def tree_picture(levels: Sequence[LevelFacts], *, level_count: int) -> str:
    """Draw one LSM tree, level 0 on top: a short bar per level-0 file, one bar per deeper run.

    A bar's width follows the logarithm of its bytes. `level_count` is the number of levels that the
    table's options allow, level 0 included. The Markdown is shorter than INLINE_CHARACTERS_MAX.
    """
    by_level = {level.level: level for level in levels}
    deepest = max([*by_level, level_count - 1, 1])
    shown = [
        number for number in range(deepest + 1) if number in (0, deepest) or number in by_level
    ]
    shown = shown if len(shown) <= 6 else [*shown[:3], *shown[-3:]]
    largest = max((level.bytes for level in levels), default=1)
    parts = [_row(line, number, by_level.get(number), largest) for line, number in enumerate(shown)]
    height = _ROW * len(shown) + 2
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="300" height="{height}" '
        f'font-size="10" fill="#888" stroke-width="9">{"".join(parts)}</svg>'
    )
    picture = markdown_picture(svg, "LSM tree")
    assert len(picture) <= INLINE_CHARACTERS_MAX, len(picture)
    return picture


def _row(line: int, number: int, level: LevelFacts | None, largest_bytes: int) -> str:
    middle = line * _ROW + 9
    label = f'<text y="{middle + 4}">L{number}</text>'
    if level is None or not level.files:
        return f'{label}<path stroke="#ccc" stroke-width="1" d="M{_LEFT} {middle}H{_RIGHT}"/>'
    colour = _COLOURS[min(number, len(_COLOURS) - 1)]
    if number == 0:
        drawn = min(level.runs, _BARS_MAX)
        more = level.runs - drawn
        rest = f'<text x="{_LEFT + drawn * 11}" y="{middle + 4}">+{more}</text>' if more else ""
        bars = f"M{_LEFT} {middle}" + "h9m2 0" * drawn
        return f'{label}<path stroke="{colour}" d="{bars}"/>{rest}'
    share = math.log1p(level.bytes) / math.log1p(max(largest_bytes, 1))
    width = max(6, round((_RIGHT - _LEFT) * share))
    return f'{label}<path stroke="{colour}" d="M{_LEFT} {middle}h{width}"/>'


def sparkline(values: Sequence[float], *, label: str, points_max: int = 48) -> str:
    """Draw the last values of a series as a line, newest on the right; empty text without values."""
    if not values:
        return ""
    shown = list(values)[-points_max:]
    low, high = min(shown), max(shown)
    span = (high - low) or 1
    step = 200 / max(len(shown) - 1, 1)
    places = [
        (round(i * step), 26 - round((value - low) / span * 22)) for i, value in enumerate(shown)
    ]
    line = " ".join(f"{x},{y}" for x, y in places)
    x, y = places[-1]
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="210" height="30" fill="none" '
        f'stroke="#4f6fb5"><polyline points="{line}"/><circle cx="{x}" cy="{y}" r="2"/></svg>'
    )
    return markdown_picture(svg, label)


def markdown_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    characters_max: int = INLINE_CHARACTERS_MAX,
) -> str:
    """Return a Markdown table that fits; rows that do not fit are counted in a last line."""
    head = "| " + " | ".join(headings) + " |\n|" + "---|" * len(headings)
    lines = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    kept: list[str] = []
    room = characters_max - len(head) - len("\n\n… 1234567 more")
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    text = "\n".join([head, *kept])
    return f"{text}\n\n… {left} more" if left else text


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return without_html(text).replace("|", "\\|").replace("\n", " ")


def without_html(text: str) -> str:
    """Return text that stands in Markdown as it is: names and labels come from anybody."""
    return (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("![", "!\\[")
    )

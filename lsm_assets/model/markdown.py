"""Markdown for metadata: tables, SVG images of LSM trees and of series, escaped text.

Dagster's UI shows Markdown inline if it has less than a thousand characters.
"""

import base64
import math
from collections.abc import Sequence

from lsm_assets.model.tree import LevelFacts

INLINE_CHARACTERS_MAX = 999
"""Longer Markdown is a button in the UI."""

_BARS_MAX = 22  # level-0 files that get a bar of their own
_LEFT, _RIGHT, _ROW = 26, 286, 17  # pixels: where bars begin and end, height of a level
_COLOURS = ("#e0803a", "#d9a441", "#8fae4b", "#4aa383", "#3b8fb0", "#4f6fb5")


def markdown_image(svg: str, alt: str) -> str:
    """Return Markdown that embeds an SVG image."""
    return f"![{alt}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def tree_image(levels: Sequence[LevelFacts], *, level_count: int) -> str:
    """Return an image of one LSM tree, level 0 on top: a bar per level-0 file and a bar per higher level.

    The width of a bar grows with the logarithm of its bytes.

    Args:
        levels: The levels that have files.
        level_count: Number of levels that the table's options allow, level 0 included.
    """
    by_level = {level.level: level for level in levels}
    deepest = max([*by_level, level_count - 1, 1])
    shown = [
        number for number in range(deepest + 1) if number in (0, deepest) or number in by_level
    ]
    # More levels make the Markdown longer than the UI shows inline.
    shown = shown if len(shown) <= 6 else [*shown[:3], *shown[-3:]]
    largest = max((level.bytes for level in levels), default=1)
    parts = [_row(line, number, by_level.get(number), largest) for line, number in enumerate(shown)]
    height = _ROW * len(shown) + 2
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="300" height="{height}" '
        f'font-size="10" fill="#888" stroke-width="9">{"".join(parts)}</svg>'
    )
    picture = markdown_image(svg, "LSM tree")
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
        hidden_count = level.runs - drawn
        overflow = (
            f'<text x="{_LEFT + drawn * 11}" y="{middle + 4}">+{hidden_count}</text>'
            if hidden_count
            else ""
        )
        bars = f"M{_LEFT} {middle}" + "h9m2 0" * drawn
        return f'{label}<path stroke="{colour}" d="{bars}"/>{overflow}'
    share = math.log1p(level.bytes) / math.log1p(max(largest_bytes, 1))
    width = max(6, round((_RIGHT - _LEFT) * share))
    return f'{label}<path stroke="{colour}" d="M{_LEFT} {middle}h{width}"/>'


def sparkline(values: Sequence[float], *, label: str, points_max: int = 48) -> str:
    """Return an image of the last `points_max` values of a series as a line, newest on the right; "" without values."""
    if not values:
        return ""
    shown = list(values)[-points_max:]
    low, high = min(shown), max(shown)
    span = (high - low) or 1  # equal values make a flat line
    step = 200 / max(len(shown) - 1, 1)
    points = [
        (round(i * step), 26 - round((value - low) / span * 22)) for i, value in enumerate(shown)
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    x, y = points[-1]
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="210" height="30" fill="none" '
        f'stroke="#4f6fb5"><polyline points="{line}"/><circle cx="{x}" cy="{y}" r="2"/></svg>'
    )
    return markdown_image(svg, label)


def markdown_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    characters_max: int = INLINE_CHARACTERS_MAX,
) -> str:
    """Return a Markdown table of at most `characters_max` characters. A last line counts the rows left out."""
    head = "| " + " | ".join(headings) + " |\n|" + "---|" * len(headings)
    lines = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    shown: list[str] = []
    budget = characters_max - len(head) - len("\n\n… 1234567 more")
    for line in lines:
        budget -= len(line) + 1
        if budget < 0:
            break
        shown.append(line)
    hidden_count = len(lines) - len(shown)
    text = "\n".join([head, *shown])
    return f"{text}\n\n… {hidden_count} more" if hidden_count else text


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape_html(text).replace("|", "\\|").replace("\n", " ")


def escape_html(text: str) -> str:
    """Return text in which Markdown and HTML do nothing but show it."""
    # Names of tags and labels of commits come from other clients: they must not load images or run scripts.
    return (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("![", "!\\[")
    )

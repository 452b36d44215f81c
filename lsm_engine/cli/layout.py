"""Rows as lines of text: a table where it fits the window, else one record below the other.

No value is ever broken: a name that is cut in two cannot be searched for or copied.
"""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

_GAP = "   "


def table_text(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    rights: Sequence[bool],
    *,
    width: int | None,
) -> Text:
    """Return rows under their headings; upright where a line would be wider than `width` cells.

    `rights`: columns that stand to the right. `width` None: any.
    """
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    if width is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        return Text("\n").join(record_text(headings, row) for row in rows)
    text = Text(_line(headings, widths, rights), style="bold")
    lines = ["", "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))]
    lines += [_line(row, widths, rights) for row in rows]
    return Text().append_text(text).append("\n".join(lines) + "\n")


def record_text(names: Sequence[str], values: Sequence[str]) -> Text:
    """Return values below each other, each behind its name."""
    wide = max(map(cell_len, names), default=0)
    text = Text()
    for name, value in zip(names, values, strict=True):
        text.append(f"{_padded(name, wide)}  ", style="dim").append(f"{value}\n")
    return text


def _line(cells: Sequence[str], widths: Sequence[int], rights: Sequence[bool]) -> str:
    parts = (
        _padded(cell, wide, right=right)
        for cell, wide, right in zip(cells, widths, rights, strict=True)
    )
    return _GAP.join(parts).rstrip()


def _padded(text: str, wide: int, *, right: bool = False) -> str:
    blank = " " * (wide - cell_len(text))
    return blank + text if right else text + blank

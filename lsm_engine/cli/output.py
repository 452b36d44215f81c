"""Output to stdout: readable tables and trees for people, JSON lines for programs. Notes go to stderr.

Piped output has no colours and is as wide as its content. At a terminal, rows that are wider than it stand
upright, prose is wrapped, and what is longer than the window is shown by the pager (PAGER, else less)."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lsm_engine import format_bytes, record
from lsm_engine.cli.safe_text import cell_text, echo_aside, json_text, neutral

if TYPE_CHECKING:  # a tree loads the readers of a table, which most commands need not
    from lsm_engine import BucketTree, TreeRun

# -- Tables and records as text --------------------------------------------------------------------
#
# No value is ever broken: a name that is cut in two cannot be searched for or copied.

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
    # A row that wraps in a terminal is harder to read than a record.
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


# -- Output to stdout ------------------------------------------------------------------------------

_UNBOUNDED = 100_000
_ROWS_PER_TABLE = 1_000
_HEADING_LINES = 2


@record
class Column:
    """A column of a table for people: which value, under which heading, shown how."""

    name: str
    heading: str
    show: Callable[[Any], str] = cell_text
    right: bool = False


def words(name: str, heading: str | None = None) -> Column:
    """A column of text."""
    return Column(name=name, heading=heading or name.replace("_", " "), show=word_text)


def number(name: str, heading: str | None = None) -> Column:
    """A column of numbers, thousands apart."""
    return replace(words(name, heading), show=count_text, right=True)


def size(name: str, heading: str | None = None) -> Column:
    """A column of sizes in bytes."""
    return replace(words(name, heading), show=size_text, right=True)


def code(name: str, heading: str | None = None) -> Column:
    """A column of numbers that name something: ids, levels."""
    return replace(words(name, heading), show=code_text, right=True)


def word_text(value: Any) -> str:
    """Return a value as text, nothing for None."""
    return "" if value is None else cell_text(value)


def listed(name: str, heading: str | None = None) -> Column:
    """A column of lists of words."""
    return replace(words(name, heading), show=lambda value: neutral(", ".join(value or ())))


def columns_of(schema: pa.Schema) -> list[Column]:
    """Return a column for each field, under its own name; numbers stand to the right."""
    return [
        Column(
            name=field.name,
            heading=field.name,
            right=pa.types.is_integer(field.type)
            or pa.types.is_floating(field.type)
            or pa.types.is_decimal(field.type),
        )
        for field in schema
    ]


def counted(count: int, noun: str) -> str:
    """Return "1 row" or "2,000 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def count_text(value: Any) -> str:
    """Return a number with its thousands apart, nothing for None."""
    return "" if value is None else f"{value:,}"


def size_text(value: Any) -> str:
    """Return a size for people, nothing for None."""
    return "" if value is None else format_bytes(value)


def code_text(value: Any) -> str:
    """Return a number as it is, nothing for None."""
    return "" if value is None else str(value)


class Output:
    """One invocation's stdout. `quiet` leaves out reports and notes, never what was asked for."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet

    def rows(
        self, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, empty: str
    ) -> None:
        """Show rows: a table with these columns, or one JSON object per row with all it has."""
        if self.as_json:
            for row in rows:
                self._write(json_text(row) + "\n")
            return
        texts = _tables(columns, rows)
        first = next(texts, None)
        if first is None:
            self.note(empty)
        elif (height := _height()) and first.count("\n") > height:
            os.environ.setdefault("LESS", "FRSX")
            click.echo_via_pager(chain([first], texts))
        else:
            for text in chain([first], texts):
                self._write(text)

    def facts(self, facts: Mapping[str, Any], shown: Mapping[str, str] | None = None) -> None:
        """Show one thing: its facts below each other, or one JSON object.

        `shown`: texts for people in place of single values; others show as they are.
        """
        if self.as_json:
            self._write(json_text(facts) + "\n")
            return
        texts = {
            name.replace("_", " "): neutral((shown or {}).get(name) or cell_text(value))
            for name, value in facts.items()
            if value is not None
        }
        self._write(_drawn(record_text(list(texts), list(texts.values()))))

    def json_line(self, facts: Mapping[str, Any]) -> None:
        """Print one JSON object, whether --json was given or not: what was asked for is JSON."""
        self._write(json_text(facts) + "\n")

    def report(self, text: str, facts: Mapping[str, Any]) -> None:
        """Print what was done: a sentence, or one JSON object. --quiet prints nothing."""
        if self.as_json:
            self._write(json_text(facts) + "\n")
        elif not self.quiet:
            self.text(text)

    def text(self, text: str | Text) -> None:
        """Show text to people; with --json nothing: callers print facts instead."""
        if not self.as_json:
            shown = text if isinstance(text, Text) else Text(neutral_lines(text))
            self._write(_drawn(shown, wrapped=True))

    def line(self, text: str) -> None:
        """Show one line that people copy, such as a command: never broken, whatever the width."""
        if not self.as_json:
            self._write(neutral(text) + "\n")

    def heading(self, text: str) -> None:
        """Show a line above a table."""
        self.text(Text(f"\n{neutral(text)}", style="bold"))

    def note(self, text: str, command: str | None = None) -> None:
        """Print a note on stderr, beside the output; `command`, which is part of it, is not broken."""
        if not self.as_json and not self.quiet:
            echo_aside(text, *filter(None, [command]))

    def _write(self, text: str) -> None:
        click.echo(text, nl=False)


def neutral_lines(text: str) -> str:
    """Return text of several lines with each line neutralised."""
    return "\n".join(neutral(line) for line in text.splitlines())


def _console() -> Console:
    console = Console(file=sys.stdout, highlight=False)
    if console.is_terminal:
        return console
    return Console(file=console.file, highlight=False, no_color=True, width=_UNBOUNDED)


def _height() -> int | None:
    """Return the lines that a terminal shows at once; None where there is none, or output goes elsewhere."""
    return _console().height - 1 if sys.stdout.isatty() and sys.stdin.isatty() else None


def _drawn(text: Text, *, wrapped: bool = False) -> str:
    """Return text with the colours of the terminal, if it is one.

    `wrapped`: prose, at its width; a word that is wider, such as a file's name, stays whole.
    """
    console = _console()
    with console.capture() as capture:
        for line in text.split("\n"):
            soft_wrap = not wrapped or any(
                cell_len(word) > console.width for word in line.plain.split()
            )
            console.print(line, soft_wrap=soft_wrap)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _tables(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the text of so many rows at a time, at a terminal each with the headings above."""
    console = _console()
    source, heading_lines = iter(rows), 0
    while piece := list(islice(source, _ROWS_PER_TABLE)):
        headings = [neutral(column.heading) for column in columns]
        cells = [[column.show(row.get(column.name)) for column in columns] for row in piece]
        rights = [column.right for column in columns]
        width = console.width if console.is_terminal else None
        text = _drawn(table_text(headings, cells, rights, width=width))
        # Programs that read a pipe want headings once.
        yield "".join(text.splitlines(keepends=True)[heading_lines:])
        heading_lines = 0 if console.is_terminal else _HEADING_LINES


# -- LSM trees -------------------------------------------------------------------------------------

BAR_CELLS = 36
RUNS_MAX = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_COLOURS = ("yellow", "bright_green", "green", "cyan", "bright_blue", "blue")


def bar(size: int, largest: int, cells: int = BAR_CELLS) -> str:
    """Return a bar whose length is to `cells` as `size` is to `largest`; never quite nothing."""
    eighths = max(1, round(8 * cells * size / max(largest, 1)))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def draw_tree(tree: "BucketTree", largest: int) -> Text:
    """Draw one bucket. `largest`: bytes of the longest bar, so that buckets compare."""
    partition = f"{tree.partition}  " if tree.partition else ""
    text = Text()
    text.append(f"{neutral(partition)}bucket {tree.bucket}", style="bold")
    text.append(
        f"  {counted(len(tree.runs), 'sorted run')}, {format_bytes(tree.size_bytes)}, "
        f"{counted(tree.row_count, 'row')}\n"
    )
    shown = (
        tree.runs if len(tree.runs) <= RUNS_MAX else (*tree.runs[: RUNS_MAX - 4], *tree.runs[-3:])
    )
    for position, run in enumerate(shown):
        if len(shown) < len(tree.runs) and position == RUNS_MAX - 4:
            text.append(f"  …   {counted(len(tree.runs) - len(shown), 'more run')}\n", style="dim")
        _draw_run(text, run, largest)
    return text


def _draw_run(text: Text, run: "TreeRun", largest: int) -> None:
    colour = _COLOURS[min(run.level, len(_COLOURS) - 1)]
    text.append(f"  L{run.level:<2}")
    text.append(f" {bar(run.size_bytes, largest):<{BAR_CELLS}}", style=colour)
    text.append(
        f" {format_bytes(run.size_bytes):>8}  {run.row_count:>12,} {'row' if run.row_count == 1 else 'rows'}"
    )
    facts = []
    if run.file_count > 1:
        facts.append(counted(run.file_count, "file"))
    if run.delete_row_count:
        facts.append(f"{counted(run.delete_row_count, 'delete')}")
    if facts:
        text.append(f"  {', '.join(facts)}", style="dim")
    text.append("\n")


def largest_run(trees: "Sequence[BucketTree]") -> int:
    """Return the bytes of the largest run of all."""
    return max((run.size_bytes for tree in trees for run in tree.runs), default=1)

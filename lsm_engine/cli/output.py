"""What goes to stdout: readable tables for people, JSON lines for programs. Notes go to stderr.

Piped output has no colours and is as wide as its content; a terminal's is folded to its width.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import click
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lsm_engine import format_bytes, record
from lsm_engine.cli.values import cell_text, json_text, neutral

BROKEN_PIPE = 141
_UNBOUNDED = 100_000
_ROWS_PER_TABLE = 1_000


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
        source = iter(rows)
        piece = list(islice(source, _ROWS_PER_TABLE))
        if not piece:
            self.note(empty)
        while piece:
            self._print(_table(columns, piece))
            piece = list(islice(source, _ROWS_PER_TABLE))

    def facts(self, facts: Mapping[str, Any], shown: Mapping[str, str] | None = None) -> None:
        """Show one thing: its facts below each other, or one JSON object.

        `shown`: texts for people in place of single values; others show as they are.
        """
        if self.as_json:
            self._write(json_text(facts) + "\n")
            return
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in facts.items():
            if value is not None:
                text = neutral((shown or {}).get(name) or cell_text(value))
                grid.add_row(Text(name.replace("_", " ")), Text(text))
        self._print(grid)

    def json_line(self, facts: Mapping[str, Any]) -> None:
        """Print one JSON object, whether --json was given or not: what was asked for is JSON."""
        self._write(json_text(facts) + "\n")

    def report(self, text: str, facts: Mapping[str, Any]) -> None:
        """Print what was done: a sentence, or one JSON object. --quiet prints nothing."""
        if self.as_json:
            self._write(json_text(facts) + "\n")
        elif not self.quiet:
            self._write(neutral_lines(text) + "\n")

    def text(self, text: str | Text) -> None:
        """Show text to people; with --json nothing: callers print facts instead."""
        if not self.as_json:
            self._print(text if isinstance(text, Text) else Text(neutral_lines(text)))

    def line(self, text: str) -> None:
        """Show one line that people copy, such as a command: never broken, whatever the width."""
        if not self.as_json:
            self._write(neutral(text) + "\n")

    def heading(self, text: str) -> None:
        """Show a line above a table."""
        self.text(Text(f"\n{neutral(text)}", style="bold"))

    def note(self, text: str) -> None:
        """Print a note on stderr, beside the output."""
        if not self.as_json and not self.quiet:
            click.echo(neutral(text), err=True)

    def _print(self, what: Table | Text) -> None:
        console = _console()
        with console.capture() as capture:
            console.print(what)
        lines = capture.get().splitlines()
        self._write("".join(f"{line.rstrip()}\n" for line in lines))

    def _write(self, text: str) -> None:
        try:
            click.echo(text, nl=False)
        except BrokenPipeError:
            # Who reads has left (`| head`). What is still buffered must not fail again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(BROKEN_PIPE) from None


def neutral_lines(text: str) -> str:
    """Return text of several lines with each line neutralised."""
    return "\n".join(neutral(line) for line in text.splitlines())


def _console() -> Console:
    console = Console(file=sys.stdout, highlight=False)
    if console.is_terminal:
        return console
    return Console(file=console.file, highlight=False, no_color=True, width=_UNBOUNDED)


def _table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            Text(neutral(column.heading)),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=column.right,
        )
    for row in rows:
        table.add_row(*(Text(column.show(row.get(column.name))) for column in columns))
    return table

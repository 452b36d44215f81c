"""What goes to stderr, beside the output: notes and failures."""

import shutil
import sys
from textwrap import wrap

import click

from lsm_engine.cli.safe_text import neutral

_KEPT_BLANK = "\ue000"
"""What stands for a blank at which a line is not broken."""


def echo_aside(text: str, *phrases: str) -> None:
    """Print a line on stderr, wrapped where that is a terminal, but within nothing of `whole`."""
    shown, width = neutral(text), shutil.get_terminal_size().columns
    if sys.stderr.isatty() and len(shown) > width:
        indent = " " * (len(shown) - len(shown.lstrip()))
        for phrase in filter(None, map(neutral, phrases)):
            shown = shown.replace(phrase, phrase.replace(" ", _KEPT_BLANK))
        lines = wrap(
            shown, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent
        )
        shown = "\n".join(lines).replace(_KEPT_BLANK, " ")
    click.echo(shown, err=True)

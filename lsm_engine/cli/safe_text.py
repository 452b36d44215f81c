"""Text for terminals: nothing in it moves a cursor, hides a part or breaks a line; JSON and UTC times."""

import json
import re
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from textwrap import wrap

import click

# C0, DEL and C1, line and paragraph separators, what turns text round, halves of characters: any of
# them could move a terminal's cursor, hide text, or break a line.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def neutral(text: str) -> str:
    """Return text without anything that a terminal would act on; what was there is spelt out."""
    return _UNSAFE.sub(lambda match: _SHORT.get(match[0]) or _escape(match[0]), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def json_text(value: object) -> str:
    """Return one line of JSON; control characters inside of texts are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def cell_text(value: object) -> str:
    """Return a plain value as one safe piece of text for a table's cell."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list):
        return json_text(value)
    return neutral(str(value))


def utc_text(millis: int | None) -> str | None:
    """Return an instant, milliseconds since 1970 UTC, as ISO 8601: "2024-05-01T08:00:00.000Z"."""
    if millis is None:
        return None
    try:
        moment = datetime.fromtimestamp(millis // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{millis} ms"  # a year that the calendar does not have
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{millis % 1000:03}Z"


# -- Notes and failures on stderr ------------------------------------------------------------------

_KEPT_BLANK = "\ue000"
"""The stand-in for a blank at which a line is not broken."""


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

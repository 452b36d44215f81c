"""Failures as one or two lines with the remedy, and an exit code per class of them."""

import logging
import shlex
import traceback

import click

from lsm_engine import CorruptFileError, ErrorKind, LsmError
from lsm_engine.cli.aside import echo_aside
from lsm_engine.cli.call import Call
from lsm_engine.cli.exit_codes import INTERNAL, exit_code_of
from lsm_engine.cli.safe_text import json_text, neutral

_REMEDIES = {
    ErrorKind.NO_SUCH_DATABASE: "databases",
    ErrorKind.NO_SUCH_TABLE: "tables",
    ErrorKind.NO_SUCH_SNAPSHOT: "show snapshots TABLE",
    ErrorKind.EXPIRED: "show snapshots TABLE",
    ErrorKind.NO_SUCH_TAG: "tag list TABLE",
    ErrorKind.NO_SUCH_COLUMN: "show schema TABLE",
    ErrorKind.NO_SUCH_FILE: "show files TABLE",
    ErrorKind.COMMIT_UNKNOWN: "show snapshots TABLE",
    ErrorKind.CORRUPT: "doctor TABLE --deep",
}


def report_error(call: Call, error: LsmError) -> int:
    """Print the error on stderr; return the exit code."""
    number = exit_code_of(error)
    if call.debug:
        _trace(error)
    if call.as_json:
        members = {
            "error": error.kind.value,
            "message": error.message,
            "facts": {name: _json_value(value) for name, value in error.facts.items()},
            "exit_code": number,
        }
        click.echo(json_text(members), err=True)
        return number
    echo_aside(f"lsm: {error.message}")
    facts = [f"{name}={value!r}" for name, value in error.facts.items()]
    look = _where_to_look(call, error)
    details = f"     [{error.kind.value}] {' '.join(facts)}".rstrip() + look
    echo_aside(details, *facts, look.partition(": ")[2])
    return number


def _where_to_look(call: Call, error: LsmError) -> str:
    """The command that shows what there is, or mends the catalog; none where even that is missing."""
    verb = _REMEDIES.get(error.kind)
    if "catalog" in error.facts:
        mends = isinstance(error, CorruptFileError)
        return f"; mend it: {call.line('catalog rebuild')}" if mends else ""
    if verb is None:
        return ""
    if error.kind is ErrorKind.NO_SUCH_FILE and "path" in error.facts:  # not one that was asked for
        verb = _REMEDIES[ErrorKind.CORRUPT]
    table = error.facts.get("table") or call.table_given
    words = verb.replace("TABLE", shlex.quote(table)) if isinstance(table, str) else verb
    return f"; look at: {call.line(words)}"


def report_bug(call: Call, error: Exception) -> int:
    """Print an unforeseen error on stderr; return the exit code."""
    if call.debug:
        _trace(error)
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    if call.as_json:
        members = {"error": "internal", "message": text, "facts": {}, "exit_code": INTERNAL}
        click.echo(json_text(members), err=True)
    else:
        click.echo(f"lsm: this should not have happened: {neutral(text)}", err=True)
        click.echo("     run it again with --debug and report what it prints", err=True)
    return INTERNAL


def _json_value(value: object) -> object:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(item) for item in value]
    return str(value)


def _trace(error: BaseException) -> None:
    click.echo("".join(traceback.format_exception(error)), err=True)


class WarningLines(logging.Handler):
    """The engine's warnings as one line each on stderr; with --debug, all it logs and where."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call

    def emit(self, logged: logging.LogRecord) -> None:
        """Show one message."""
        if self._call.debug:
            click.echo(f"{logged.levelname.lower()} {neutral(logged.getMessage())}", err=True)
            if logged.exc_info and logged.exc_info[1]:
                _trace(logged.exc_info[1])
        elif logged.levelno >= logging.WARNING and not self._call.as_json:
            cause = logged.exc_info[1] if logged.exc_info else None
            why = f": {cause}" if cause else ""
            click.echo(neutral(f"lsm: warning: {logged.getMessage()}{why}"), err=True)

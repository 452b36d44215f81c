"""How commands are built: global options anywhere, help with examples, errors on stderr."""

import difflib
import logging
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from lsm_engine import CorruptFileError, ErrorKind, LsmError
from lsm_engine.cli.call import Call, pass_call
from lsm_engine.cli.exit_codes import (
    BROKEN_PIPE,
    INTERNAL,
    INTERRUPTED,
    REFUSED,
    exit_code_lines,
    exit_code_of,
)
from lsm_engine.cli.safe_text import echo_aside, json_text, neutral

# -- Names of commands in other tools --------------------------------------------------------------

ELSEWHERE = {
    **dict.fromkeys(("ls", "list", "list-tables", "table"), "lsm tables"),
    **dict.fromkeys(("database", "namespaces", "schemas"), "lsm databases"),
    **dict.fromkeys(("describe", "desc", "info", "columns"), "lsm show schema TABLE"),
    **dict.fromkeys(("history", "log", "versions", "commits"), "lsm show snapshots TABLE"),
    **dict.fromkeys(("read", "cat", "print", "dump"), "lsm scan TABLE"),
    **dict.fromkeys(("head", "tail", "limit", "preview", "sample"), "lsm scan TABLE --limit 10"),
    **dict.fromkeys(
        ("select", "query", "sql", "shell"),
        "lsm scan TABLE --columns a,b --where \"a > 1\"; with --order-by too; for SQL, DuckDB or Spark on the table's directory",
    ),
    **dict.fromkeys(("get", "find", "key"), "lsm lookup TABLE"),
    **dict.fromkeys(("put", "write", "load", "add", "copy", "save"), "lsm upsert TABLE FILES, or lsm import TABLE FOLDER"),
    **dict.fromkeys(("convert", "migrate"), "lsm import TABLE FOLDER --link"),
    **dict.fromkeys(("rm", "remove", "drop-table", "delete-table"), "lsm drop TABLE, or lsm delete TABLE --where ..."),
    **dict.fromkeys(("mv", "rename-table"), "lsm rename OLD NEW"),
    **dict.fromkeys(("optimize", "zorder", "z-order"), "lsm compact TABLE"),
    **dict.fromkeys(
        ("vacuum", "cleanup", "gc", "clean"),
        "lsm expire TABLE for old snapshots, lsm orphans TABLE for files that nothing names",
    ),
    **dict.fromkeys(("restore", "checkout", "reset", "revert", "undo"), "lsm rollback TABLE"),
    **dict.fromkeys(("add-column", "drop-column", "rename-column"), "lsm alter TABLE"),
    **dict.fromkeys(("changes", "cdc", "cdf", "diff"), "lsm changelog TABLE"),
    **dict.fromkeys(("tags", "refs"), "lsm tag list TABLE"),
    "branches": "lsm branch list TABLE",
    **dict.fromkeys(("check", "fsck", "status", "health"), "lsm doctor, or lsm verify TABLE"),
    **dict.fromkeys(("web", "dashboard"), "lsm ui"),
    **dict.fromkeys(("server", "rest"), "lsm serve"),
    **dict.fromkeys(("init", "new", "make"), "lsm create TABLE COLUMNS"),
}  # fmt: skip


def no_such_command(group: str, name: str, candidates: Iterable[str]) -> str:
    """Return the message for a word that is no verb of a group: what to type in its place."""
    names = list(candidates)
    if group == "lsm" and name in ELSEWHERE:
        return f"No such command {name!r}: use {ELSEWHERE[name]}"
    if group != "lsm" and ("." in name or "/" in name):
        first = "snapshots" if "snapshots" in names else names[0]
        return f"No such command {name!r}: first what is asked for, such as {group} {first} {name}"
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {matches[0]!r}?" if matches else f"{group} --help lists what there is"
    return f"No such command {name!r}; {hint}"


# -- Failures as one or two lines with the remedy, and an exit code per class of them --------------

_REMEDIES = {
    ErrorKind.NO_SUCH_DATABASE: "databases",
    ErrorKind.NO_SUCH_TABLE: "tables",
    ErrorKind.NO_SUCH_SNAPSHOT: "show snapshots TABLE",
    ErrorKind.EXPIRED: "show snapshots TABLE",
    ErrorKind.NO_SUCH_TAG: "tag list TABLE",
    ErrorKind.NO_SUCH_COLUMN: "show schema TABLE",
    ErrorKind.NO_SUCH_FILE: "",
    ErrorKind.COMMIT_UNKNOWN: "show snapshots TABLE",
    ErrorKind.CORRUPT: "doctor TABLE --deep",
}


_LISTS = {
    "path": _REMEDIES[
        ErrorKind.CORRUPT
    ],  # of a file of the table that is gone, not of one that was asked for
    "file": "show files TABLE",
    "branch": "branch list TABLE",
    "consumer": "consumer list TABLE",
    "record": "trash list TABLE",
}
"""The same for what has no kind of its own, by the fact that names it."""
_WORDS_OF_THE_SHELL = {
    "no such file": "a file of the table is missing",
    "add it with alter(AddColumn(...))": "lsm alter TABLE --add 'NAME TYPE' adds it",
    "use delete() with": "use lsm delete with",
    "' and append(), or make": "' and lsm append, or make",
    "use append()": "use lsm append",
    "open it by catalog['database.table'] or open_table, or give ignore_if_exists=True": "--if-not-exists leaves it as it is",
    "existing='skip' leaves": "--existing skip leaves",
    "missing='skip' leaves": "--missing skip leaves",
    "or cascade": "or give --cascade",
    "use force if": "use --force if",
    "name one of a snapshot, a tag, a time and a watermark": (
        "give one of --to-snapshot, --to-tag, --to-time and --to-watermark"
    ),
    "add when_matched_… or when_not_matched_…": (
        "give --set, --update-all, --insert-all, --delete or --delete-unmatched"
    ),
    "use upsert()": "use lsm upsert",
    "write Decimal('12.50') for 12.5, or cast the column first": "--cast COLUMN=TYPE gives it another type",
    "cast it first": "--cast COLUMN=TYPE gives it another type",
    "set one by token= or $": "set one in $",
    "give it as the catalog, not as the warehouse": "give it by --catalog, not by --warehouse",
}
"""What a message of Python says to do, and how that is done in a shell."""


_FILE_OPTION = re.compile(
    r"\b(date_format|time_format|timestamp_format|decimal_point|thousands|delimiter|encoding|on_error)=(?=')"
)
"""An option of `read_files` with its value."""


def report_error(call: Call, error: LsmError) -> int:
    """Print the error on stderr; return the exit code."""
    number = exit_code_of(error)
    for python, shell in _WORDS_OF_THE_SHELL.items():
        error.message = error.message.replace(python, shell)
    error.message = _FILE_OPTION.sub(
        lambda option: f"--{option[1].replace('_', '-')} ", error.message
    )
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
    if error.kind is ErrorKind.NO_SUCH_FILE:
        verb = next((verb for noun, verb in _LISTS.items() if noun in error.facts), "")
    table = error.facts.get("table") or call.table_given
    if not verb or ("TABLE" in verb and not isinstance(table, str)):
        return ""  # no table yet, as with a wrong key of one to create
    return f"; look at: {call.line(verb.replace('TABLE', shlex.quote(str(table))))}"


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


# -- How commands are built: global options anywhere, help with examples, errors on stderr ---------

ENGINE = "lsm_engine"
_COMMANDS = "lsm_engine.cli.commands"
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def global_options(*, hidden: bool) -> list[click.Option]:
    """Return options that every command takes; on a verb's own page they are hidden."""

    def remember(context: click.Context, option: click.Parameter, value: Any) -> None:
        if value:
            setattr(context.ensure_object(Call), str(option.name), value)
        if value and option.name == "debug":
            logging.getLogger(ENGINE).setLevel(logging.DEBUG)

    def option(*names: str, **settings: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=remember, hidden=hidden, **settings)

    return [
        option("--catalog", "catalog_given", metavar="URL",
               help="The catalog's database, a URL or an SQLite file; or http://HOST:PORT of lsm serve, with "
                    "$LSM_TOKEN.  [default: $LSM_CATALOG, else catalog.db in the warehouse]"),
        option("--catalog-key", "key_given", metavar="NAME",
               help="Which catalog of a database with several.  [default: jdbc, or the only one]"),
        option("--warehouse", "warehouse_given", metavar="LOCATION",
               help="Where tables live: a directory, or s3://bucket/lake (also abfss, gs; options by "
                    "$LSM_STORAGE_*).  [default: $LSM_WAREHOUSE, else ./lake]"),
        option("--json", "as_json", is_flag=True,
               help="Print JSON, one object per line; errors too, on stderr."),
        option("--quiet", "-q", is_flag=True, help="Print results only: no progress, no reports."),
        option("--debug", is_flag=True, help="Show the engine's log, and where an error came from."),
    ]  # fmt: skip


class _KnownNames(click.types.StringParamType):
    """Text that the shell completes with the names there are: tables, tags or columns of the table."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that go on as what was typed; none where they cannot be read."""
        call = ctx.ensure_object(Call)
        call.quiet = True
        before, comma, last = incomplete.rpartition(",")
        try:
            # Before an option's value is there, click leaves what came before it unassigned.
            table = ctx.params.get("table") or next(iter(ctx.args), "")
            parameter = ctx.parent.info_name if param.name == "name" and ctx.parent else param.name
            names = _COMPLETED[str(parameter)](call, table) if parameter in _COMPLETED else []
        except LsmError:
            return []
        return [CompletionItem(before + comma + name) for name in names if name.startswith(last)]


def _tables(call: Call, _: str) -> list[str]:
    return call.catalog().list_tables()


def _tags(call: Call, table: str) -> list[str]:
    return call.table(table).tag_names()


def _branches(call: Call, table: str) -> list[str]:
    return call.table(table).branches()


def _consumers(call: Call, table: str) -> list[str]:
    return [consumer.name for consumer in call.table(table).consumers()]


def _columns(call: Call, table: str) -> list[str]:
    return list(call.table(table).schema.arrow.names)


_COMPLETED: dict[str, Callable[[Call, str], list[str]]] = {
    "table": _tables, "tables": _tables, "names": _tables,
    "tag": _tags, "to_tag": _tags, "from_tag": _tags,
    "branch": _branches, "consumer": _consumers,
    "columns": _columns, "column": _columns, "on": _columns,
}  # fmt: skip


class Verb(click.Command):
    """A command with examples on its help page."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        settings.setdefault("context_settings", SETTINGS)
        super().__init__(*args, **settings)
        self.examples = tuple(examples)
        for parameter in self.params:
            if parameter.name in (*_COMPLETED, "name"):  # the name of a tag of `lsm tag delete`
                parameter.type = _KnownNames()
        self.params += global_options(hidden=True)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{' ' * formatter.current_indent}{line}\n")
        formatter.write_paragraph()
        formatter.write_text("--json, --quiet, --catalog, --warehouse and --debug work here too.")


def verb(
    *examples: str, name: str | None = None, group: click.Group | None = None, **settings: Any
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a verb, by itself or of a group, of a function of a `Call` and of what click decorates it with."""
    command = click.command if group is None else group.command
    return lambda act: command(name, cls=Verb, examples=examples, **settings)(pass_call(act))


def table_verb(*examples: str, **settings: Any) -> Callable[[Callable[..., None]], click.Command]:
    """Make a verb whose first argument is the name of a table."""
    return lambda act: verb(*examples, **settings)(click.argument("table")(act))


class VerbGroup(click.Group):
    """Verbs of one noun: `lsm tag create`.

    `homes`: where verbs are that are loaded once asked for, by name: "module:attribute" in `cli/commands`.
    `former`: the same of older names, which go on working unseen.
    """

    def __init__(
        self,
        *args: Any,
        homes: Mapping[str, str] | None = None,
        former: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        settings.setdefault("context_settings", SETTINGS)
        self.homes, self.former = homes or {}, former or {}
        super().__init__(*args, **settings)
        self.params += global_options(hidden=not isinstance(self, Lsm))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb of a name, new or former."""
        home = self.homes.get(cmd_name) or self.former.get(cmd_name)
        return super().get_command(ctx, cmd_name) if home is None else _loaded(home)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that was typed; a UsageError says what to type instead of one that is none."""
        name = str(args[0])
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(no_such_command(ctx.command_path, name, self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of verbs, without former ones."""
        return sorted((*self.commands, *self.homes))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs, each with the first sentence about it, whole."""
        verbs = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, verb.get_short_help_str(200)) for name, verb in verbs if verb]
            )


def _loaded(home: str) -> click.Command:
    module, _, name = home.partition(":")
    command: click.Command = getattr(import_module(f".{module}", _COMMANDS), name)
    return command


class Lsm(VerbGroup):
    """The command itself: verbs in sections, exit codes on the help page, errors reported.

    `sections`: by heading the verbs, each with its home (as of `VerbGroup`) and a line about it.
    """

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **settings: Any
    ) -> None:
        self.sections = sections
        self.lines = {
            name: line for verbs in sections.values() for name, (_, line) in verbs.items()
        }
        homes = {name: home for verbs in sections.values() for name, (home, _) in verbs.items()}
        super().__init__(*args, homes=homes, **settings)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of their sections."""
        return list(self.homes)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs that go on as what was typed, none of which is loaded for that."""
        verbs = [
            CompletionItem(name, help=line)
            for name, line in self.lines.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs, section by section, then the exit codes."""
        for section, verbs in self.sections.items():
            with formatter.section(section):
                formatter.write_dl([(name, self.lines[name]) for name in verbs], col_max=17)
        with formatter.section("Exit codes"):
            formatter.write_dl(exit_code_lines())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; end with a code of its own if who reads its output has left (`| head`)."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # What is still buffered must not fail again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(BROKEN_PIPE) from None

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run, report errors, and exit with their code."""
        call = Call()
        warnings = WarningLines(call)
        log = logging.getLogger(ENGINE)
        level = log.level
        log.addHandler(warnings)
        extra |= {"standalone_mode": False, "obj": call}
        extra["prog_name"] = "lsm"
        try:
            with call.open:
                number = _run(call, lambda: super(Lsm, self).main(args, **extra))
        finally:
            log.removeHandler(warnings)
            log.setLevel(level)
        sys.exit(number)


def _run(call: Call, work: Any) -> int:
    try:
        result = work()
    except click.exceptions.Exit as done:
        # Some verbs end with a code of their own, such as findings of verify.
        return done.exit_code
    except click.ClickException as wrong:
        # A wrong command line: click shows it with its usage.
        wrong.show()
        return wrong.exit_code
    except click.Abort as stopped:
        # A confirmation that was refused or interrupted.
        interrupted = isinstance(stopped.__cause__, KeyboardInterrupt)
        click.echo("lsm: stopped; nothing was changed", err=True)
        return INTERRUPTED if interrupted else REFUSED
    except LsmError as error:
        return report_error(call, error)
    except Exception as error:  # noqa: BLE001  the last resort: people get a line, not a traceback
        return report_bug(call, error)
    return result if isinstance(result, int) else 0


def confirm(question: str, *, yes: bool) -> None:
    """Ask before an irreversible operation; Abort unless the answer is yes, or `--yes` is given."""
    if not yes:
        click.confirm(neutral(question), abort=True, err=True)

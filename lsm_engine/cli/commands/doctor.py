"""lsm doctor: what is wrong, what it costs, and the commands that mend it; --fix runs them."""

import shlex
from collections.abc import Iterable

import click
from rich.text import Text

from lsm_engine import Catalog, HealthReport, LsmError, Table
from lsm_engine import doctor as examine
from lsm_engine.cli.call import DEEP, YES, Call, is_path
from lsm_engine.cli.exit_codes import REFUSED
from lsm_engine.cli.output import counted
from lsm_engine.cli.progress import file_progress
from lsm_engine.cli.safe_text import neutral
from lsm_engine.cli.verb import confirm, report_error, verb

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_DEEPER = {"SHALLOW": ": leave out --shallow", "WHOLE": ": add --deep"}
_ROUNDS = 5
"""What one command mends may uncover more: files that are given back, snapshots that may expire then."""


@verb(
    "lsm doctor",
    "lsm doctor --shallow --json",
    "lsm doctor shop.orders --deep",
    "lsm doctor shop --fix",
)
@click.argument("names", nargs=-1, metavar="[TABLE|DATABASE]...")
@click.option(
    "--shallow",
    is_flag=True,
    help="Read only the newest state of each table: a few milliseconds each.",
)
@DEEP
@click.option("--stale-after", default="30 d", metavar="AGE", show_default=True,
              help="From this age on idle consumers and branches count, and tags without a lifetime.")  # fmt: skip
@click.option("--fix", is_flag=True, help="Show the commands, ask, and run them.")
@click.option("--lossy", is_flag=True, help="With --fix: also commands that delete readable data.")
@YES
def doctor(
    call: Call, /, *, names: tuple[str, ...], shallow: bool, deep: bool, stale_after: str,
    fix: bool, lossy: bool, yes: bool,
) -> None:  # fmt: skip
    """List damage and debt, and show the command that mends each.

    Looks for damage, compaction debt, small files, too many or too few buckets, snapshots, tags,
    branches and consumers that keep files, orphans, options that contradict each other, and tables
    that the catalog and the warehouse disagree about. Changes nothing without --fix. Exit code 1 if there is an
    error or a warning; notes alone are healthy.
    """
    if shallow and deep:
        raise click.UsageError("give --shallow or --deep, not both")
    depth = "shallow" if shallow else "deep" if deep else "whole"
    report = _examined(call, names, depth, stale_after)
    if not fix:
        _show(call, report)
    for _ in range(_ROUNDS if fix else 0):
        # Nothing was mended, so another examination would find the same.
        if not _fixed(call, report, lossy=lossy, yes=yes):
            break
        report = _examined(call, names, depth, stale_after)
    if fix:
        call.out.heading("afterwards")
        _show(call, report)
    if not report.is_healthy:
        raise click.exceptions.Exit(REFUSED)


def _examined(call: Call, names: tuple[str, ...], depth: str, stale_after: str) -> HealthReport:
    target: Table | Catalog
    chosen: list[str] | None = None
    if len(names) == 1 and is_path(names[0]):
        target = call.table(names[0])
    else:
        target = call.catalog()
        chosen = call.tables_named(map(call.catalog_name, names))
    with file_progress(call, "Examining", "tables") as step:
        return examine(
            target, chosen if names else None, depth=depth, stale_after=stale_after, progress=step
        )


def _show(call: Call, report: HealthReport) -> None:
    # JSON has one line per finding and no summary.
    if call.as_json:
        call.out.rows([], (finding.facts() for finding in report.findings), empty="")
        return
    for finding in report.findings:
        severity = finding.severity.name.lower()
        lines = Text()
        lines.append(f"{severity:<8}", style=_STYLES[severity])
        lines.append(neutral(f"{finding.table}: {finding.what}"), style="bold")
        for text in (finding.cost, f"this loses {finding.loses}" if finding.loses else ""):
            if text:
                lines.append(f"\n        {neutral(text)}")
        call.out.text(lines)
        if finding.command:
            call.out.line(f"        {call.line(shlex.join(finding.command))}")
    checked = counted(report.table_count, "table")
    severities = [finding.severity.name.lower() for finding in report.findings]
    sums = ", ".join(counted(severities.count(word), word) for word in dict.fromkeys(severities))
    call.out.text(
        f"{'healthy' if report.is_healthy else 'not healthy'}: {checked}"
        f"{f', {sums}' if sums else ''}{report.left_out}{_DEEPER.get(report.depth.name, '')}"
    )


def _fixed(call: Call, report: HealthReport, *, lossy: bool, yes: bool) -> bool:
    """Run the commands that a report names, once they are agreed to; False if there are none."""
    able = [finding for finding in report.findings if finding.command]
    chosen = [finding for finding in able if lossy or finding.loses is None]
    if len(chosen) < len(able):
        call.out.note(
            f"left to you, as they lose something: {len(able) - len(chosen)}; --lossy takes them along"
        )
    commands = list(dict.fromkeys(finding.command for finding in chosen))
    # The remaining findings name no command, or lose data.
    if not commands:
        return False
    if not (yes and call.quiet):
        _list(call, commands)
    confirm(f"Run {counted(len(commands), 'command')}?", yes=yes)
    done = [_run(call, command) for command in commands]
    return any(done)


def _list(call: Call, commands: Iterable[tuple[str, ...]]) -> None:
    call.out.heading("what will be run")
    for command in commands:
        call.out.line(call.line(shlex.join(command)))


def _run(call: Call, command: tuple[str, ...]) -> bool:
    """Run another verb with the global options of this run; False if it failed, which it reports itself."""
    root = click.get_current_context().find_root().command
    try:
        code = click.Group.main(root, list(command), "lsm", standalone_mode=False, obj=call)
    except LsmError as error:
        report_error(call, error)
        # One failed command must not stop the others.
        return False
    return not code

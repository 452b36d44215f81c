"""The command `lsm-sample`: replays flights through Dagster and Spark, and prints a report."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import click
import dagster as dg
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lsm_assets.home import (
    DEFAULT_PORT,
    LOOPBACK,
    PAGES_PORT,
    SERVED_LINEAGE,
    open_instance,
    pages_command,
    ui_command,
    ui_environment,
)
from lsm_assets.resources import LsmResource, check_declaration
from lsm_assets.running import run_with_companion
from lsm_assets.sample.definitions import sample_definitions
from lsm_assets.sample.local_s3 import DIRECTORY, local_s3
from lsm_assets.sample.pipeline import SamplePipeline
from lsm_assets.sample.report import print_report
from lsm_assets.sample.tables import FED_TABLES, FLIGHTS, TABLES
from lsm_assets.settings import EXECUTOR, LINEAGE_URL, Settings, settings_from
from lsm_engine import ErrorKind, InvalidInputError, LsmError

DAYS_PER_RUN = 8
CHANGES_PER_DAY = 2
OTHER_CHANGES = 4  # of one run: the schedule, corrections, weather, figures


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--days",
    type=click.IntRange(0, 365),
    default=31,
    show_default=True,
    help="How many more days of 2013 to replay; 0 replays none.",
)
@click.option(
    "--warehouse",
    metavar="DIRECTORY",
    help="Where tables, catalog and Dagster's home live; or s3://bucket/lake, the latter two then in "
    "./lake.  [default: ./lake]",
)
@click.option(
    "--on",
    type=click.Choice(["disk", "s3"]),
    default="disk",
    show_default=True,
    help="s3: on a local S3 server, S3Proxy, which is started and, the first time, fetched by Maven. Everything "
    "is in ./lake-s3 then, or in the directory of --warehouse.",
)
@click.option(
    "--executor",
    type=click.Choice(["spark", "local"]),
    help="What writes and compacts.  [default: spark]",
)
@click.option("--ui", is_flag=True, help="Open the UI on this machine when done.")
@click.option("--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT, show_default=True)
def main(
    days: int,
    warehouse: str | None,
    on: str,
    executor: str | None,
    ui: bool,  # noqa: FBT001 -- click calls by name
    port: int,
) -> None:
    """Replay flights that left New York in 2013: schedules, departures, arrivals, cancellations, corrections.

    Each run continues where the last one stopped. Tables are compacted when their sensor asks for
    it, and tagged after each period. Nothing has to be set up; everything is in one directory.
    """
    console = Console()
    try:
        with _settings(warehouse, executor, on) as settings:
            _replay(settings, days, console)
            if ui:
                _open_ui(settings, console, port)
    except (LsmError, dg.DagsterError, dg.Failure) as error:
        console.print("The sample stopped:", style="bold red")
        message = error.description if isinstance(error, dg.Failure) else str(error)
        console.print(message, markup=False, highlight=False)
        if not isinstance(error, OtherSampleError):
            console.print("What was committed is safe; run the command again to continue.")
        raise SystemExit(1) from error


class OtherSampleError(InvalidInputError):
    """The directory has tables of another version of the sample."""


@contextmanager
def _settings(warehouse: str | None, executor: str | None, on: str) -> Iterator[Settings]:
    before = dict(os.environ)
    os.environ.setdefault(LINEAGE_URL, SERVED_LINEAGE)  # where links lead; --ui serves it
    environment = {**os.environ, **({EXECUTOR: executor} if executor else {})}
    try:
        if on == "disk":
            settings = settings_from(environment)
            yield settings.with_warehouse(warehouse) if warehouse else settings
            return
        with local_s3(Path(warehouse or DIRECTORY).absolute(), environment) as s3_environment:
            os.environ.update(s3_environment)  # processes of Dagster and Spark find the store there
            yield settings_from(s3_environment)
    finally:
        # The calling process may go on, such as that of a test: it gets its environment back.
        os.environ.clear()
        os.environ.update(before)


def _replay(settings: Settings, count: int, console: Console) -> None:
    definitions = sample_definitions(settings)
    started = time.monotonic()
    with open_instance(settings) as instance, open_resource(definitions) as lsm:
        check_tables(lsm, settings.warehouse)
        pipeline = SamplePipeline(definitions, instance)
        days = pipeline.next_days(count)
        if count and not days:
            console.print("Every day of 2013 has been replayed.")
        compactions = _run_all(pipeline, lsm, days, settings) if days else {}
        print_report(lsm.catalog, console, settings, compactions, time.monotonic() - started)
        console.print(
            f"The lineage of all of it, to open in a browser: {lsm.catalog.write_lineage_page()}"
        )


def check_tables(lsm: LsmResource, warehouse: str) -> None:
    """Raise OtherSampleError if an existing table differs from the declaration of this version."""
    for declaration in TABLES:
        table = lsm.existing_table(declaration.name)
        if table is None:
            continue
        try:
            check_declaration(declaration, table)
            stored = table.options.texts
            differs = [key for key, text in declaration.options.items() if stored.get(key) != text]
        except InvalidInputError as error:
            raise _other_sample(declaration.name, warehouse) from error
        if differs:
            raise _other_sample(declaration.name, warehouse, differs)


def _other_sample(table: str, warehouse: str, options: Sequence[str] = ()) -> OtherSampleError:
    about = {"options": sorted(options)} if options else {}
    return OtherSampleError(
        f"{warehouse} was made by another version of the sample: name a new directory with "
        "--warehouse, or delete this one",
        kind=ErrorKind.INVALID_SCHEMA,
        table=table,
        **about,
    )


def _run_all(
    pipeline: SamplePipeline, lsm: LsmResource, days: Sequence[date], settings: Settings
) -> dict[str, tuple[int, int]]:
    """Run all jobs; return, by table, the sorted runs before and after its last compaction."""
    compactions: dict[str, tuple[int, int]] = {}
    with _progress() as bar:
        if settings.executor == "spark":
            task = bar.add_task("Starting Spark", total=1, what="")
            assert lsm.spark is not None
            bar.advance(task)
        task = bar.add_task("Reference tables", total=3, what="")
        pipeline.load_references(lambda label: bar.advance(task))
        for period in periods(days):
            total = CHANGES_PER_DAY * len(period) + OTHER_CHANGES
            task = bar.add_task(f"{period[0]} to {period[-1]}", total=total, what="")

            def on_commit(label: str, task: TaskID = task) -> None:
                bar.update(task, advance=1, what=label)

            pipeline.load_days(period, on_commit)
            bar.update(task, completed=total, what="")
            compactions |= _compact(pipeline, lsm, bar)
            _feed(pipeline, bar)
            pipeline.tag(FLIGHTS, period[-1].isoformat(), lambda label: None)
        pipeline.look_at_health()
    return compactions


def periods(days: Sequence[date]) -> Iterator[Sequence[date]]:
    """Yield the days of each run: at most DAYS_PER_RUN consecutive days."""
    period: list[date] = []
    for day in days:
        if period and (len(period) == DAYS_PER_RUN or (day - period[-1]).days != 1):
            yield period
            period = []
        period.append(day)
    if period:
        yield period


def _compact(
    pipeline: SamplePipeline, lsm: LsmResource, bar: Progress
) -> dict[str, tuple[int, int]]:
    before = _runs_of_tables(lsm)
    task = bar.add_task("Compaction, as its sensor asks", total=1, what="")
    compacted = pipeline.compact_due_tables(lambda label: None)
    bar.update(task, completed=1, what=", ".join(name.split("/")[-1] for name in compacted))
    after = _runs_of_tables(lsm) if compacted else before
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def _feed(pipeline: SamplePipeline, bar: Progress) -> None:
    task = bar.add_task("Totals, fed from the changes", total=len(FED_TABLES), what="")
    pipeline.feed_totals(lambda label: bar.update(task, advance=1, what=label))
    bar.update(task, completed=len(FED_TABLES), what="")


def _runs_of_tables(lsm: LsmResource) -> dict[str, int]:
    """Return the number of sorted runs of each table's bucket with most of them."""
    runs = {}
    for declaration in TABLES:
        table = lsm.existing_table(declaration.name)
        if table is not None:
            runs[declaration.name] = max(
                (bucket.run_count for bucket in table.pressure()), default=0
            )
    return runs


@contextmanager
def open_resource(definitions: dg.Definitions) -> Iterator[LsmResource]:
    """Open the resource of the runs, to read the same tables outside of a run."""
    with dg.build_resources(dict(definitions.resources or {})) as resources:
        lsm: LsmResource = resources.lsm
        yield lsm


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[what]}"),
    )


def _open_ui(settings: Settings, console: Console, port: int) -> None:
    """Run Dagster's UI and the pages of tables and lineage until Ctrl-C."""
    console.print(f"Starting the UI at http://{LOOPBACK}:{port} (Ctrl-C ends it)")
    console.print(f"Tables and their lineage, live: http://{LOOPBACK}:{PAGES_PORT}")
    environment = {**os.environ, **ui_environment(settings)}
    code = run_with_companion(
        ui_command(settings, port), pages_command(settings, port), environment
    )
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    main()

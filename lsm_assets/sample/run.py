"""The command `lsm-sample`: replays flights through Dagster and Spark, and prints a report."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4  # noqa: TID251 -- names a run, decides nothing

import click
import dagster as dg
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lsm_assets.declaration import TableDeclaration
from lsm_assets.home import (
    DEFAULT_PORT,
    LOOPBACK,
    PAGES_PORT,
    SERVED_LINEAGE,
    TOKEN,
    open_instance,
    pages_command,
    run_with_companion,
    served_catalog,
    ui_command,
    ui_environment,
)
from lsm_assets.keys import (
    AssetKind,
    partition_set_name,
    snapshot_partition,
    tag_partitions,
)
from lsm_assets.resource import LsmResource, check_declaration, resources_from
from lsm_assets.sample.definitions import sample_definitions
from lsm_assets.sample.local_s3 import DIRECTORY, local_s3
from lsm_assets.sample.release import DAYS_JOB, FEED_JOB, REFERENCES_JOB
from lsm_assets.sample.report import print_report
from lsm_assets.sample.source import FIRST_DAY, LAST_DAY
from lsm_assets.sample.tables import FED_TABLES, FLIGHTS, TABLES, offer_days
from lsm_assets.settings import CATALOG_URL, EXECUTOR, LINEAGE_URL, Settings, settings_from
from lsm_assets.warehouse_component import health_key
from lsm_engine import ErrorKind, InvalidInputError, LsmError

# -- Run the sample's jobs in this process, on a Dagster instance that the UI shows afterwards -----

OnCommit = Callable[[str], None]
"""Called after each commit with its label."""

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class SamplePipeline:
    """Runs the sample's jobs, one after the other. The Dagster instance records every run."""

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self.definitions = definitions
        self.instance = instance
        self._cursor: str | None = None

    def load_references(self, on_commit: OnCommit) -> None:
        """Load airlines, airports and planes, and release a correction of airports."""
        self._run(REFERENCES_JOB, on_commit)

    def load_days(self, days: Sequence[date], on_commit: OnCommit) -> None:
        """Replay consecutive days in one run."""
        tags = {
            "dagster/asset_partition_range_start": days[0].isoformat(),
            "dagster/asset_partition_range_end": days[-1].isoformat(),
        }
        self._run(DAYS_JOB, on_commit, tags=tags)

    def feed_totals(self, on_commit: OnCommit) -> None:
        """Apply the changes of flights to totals and first sightings."""
        self._run(FEED_JOB, on_commit)

    def compact_due_tables(self, on_commit: OnCommit) -> list[str]:
        """Evaluate the compaction sensor, as the daemon does, and run its requests. Return the compacted assets."""
        repository = self.definitions.get_repository_def()
        sensor = repository.get_sensor_def("lsm_compaction")
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self._cursor,
            definitions=self.definitions,
            sensor_name=sensor.name,
            resources={"lsm": (self.definitions.resources or {})["lsm"]},
        ) as context:
            result = sensor.evaluate_tick(context)
        self._cursor = result.cursor
        names = []
        for request in result.run_requests or []:
            # The daemon finds the run by these tags, and does not request it again.
            tags = {
                **request.tags,
                "dagster/run_key": request.run_key or "",
                "dagster/sensor_name": sensor.name,
            }
            self._materialise(request.asset_selection or [], on_commit, tags=tags)
            names += [key.to_user_string() for key in request.asset_selection or []]
        return names

    def tag(self, declaration: TableDeclaration, name: str, on_commit: OnCommit) -> None:
        """Tag a table's newest snapshot by materialising the tag's partition."""
        keys = declaration.keys
        self.instance.add_dynamic_partitions(partition_set_name(tag_partitions(keys)), [name])
        self._materialise([keys.asset(AssetKind.TAGS)], on_commit, partition_key=name)

    def check_manifests(self, declaration: TableDeclaration, snapshot_id: int) -> None:
        """Check the manifests of a snapshot, and compact those of the newest one if they are many."""
        key = declaration.keys.asset(AssetKind.MANIFEST_LISTS)
        partition = snapshot_partition(snapshot_id)
        self._materialise([key], lambda label: None, partition_key=partition)

    def look_at_health(self) -> None:
        """Materialise the health asset."""
        self._materialise([health_key()], lambda label: None)

    def _materialise(
        self,
        selection: Sequence[dg.AssetKey],
        on_commit: OnCommit,
        *,
        partition_key: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        repository = self.definitions.get_repository_def()
        job = repository.get_implicit_job_def_for_assets(list(selection))
        assert job is not None, "assets with the same partitions share a job"
        self._execute(
            job, on_commit, asset_selection=list(selection), partition_key=partition_key, tags=tags
        )

    def _run(
        self, name: str, on_commit: OnCommit, *, tags: Mapping[str, str] | None = None
    ) -> None:
        self._execute(self.definitions.resolve_job_def(name), on_commit, tags=tags)

    def _execute(self, job: dg.JobDefinition, on_commit: OnCommit, **arguments: Any) -> None:
        run_id = str(uuid4())
        self.instance.add_event_listener(run_id, lambda entry: _listen(entry, on_commit))
        job.execute_in_process(
            instance=self.instance, run_id=run_id, run_config=_QUIET, **arguments
        )


def next_days(instance: dg.DagsterInstance, count: int) -> list[date]:
    """Return the first days of 2013, at most `count`, that are not replayed yet."""
    done = instance.get_materialized_partitions(FLIGHTS.keys.asset(AssetKind.TABLE))
    year = (LAST_DAY - FIRST_DAY).days + 1
    days = (FIRST_DAY + timedelta(days=number) for number in range(year))
    return [day for day in days if day.isoformat() not in done][:count]


def _listen(entry: dg.EventLogEntry, on_commit: OnCommit) -> None:
    event = entry.dagster_event
    if event is None or not event.is_step_materialization:
        return
    materialization = event.step_materialization_data.materialization
    if materialization.asset_key.path[-1].endswith(f".{AssetKind.SNAPSHOTS.value}"):
        label = materialization.metadata.get("lsm/label") or materialization.metadata.get(
            "lsm/commit_kind"
        )
        on_commit(str(label.value) if label is not None else "")


# -- The command `lsm-sample`: replays flights through Dagster and Spark, and prints a report ------

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
    started = time.monotonic()
    with open_instance(settings) as instance, open_resource(settings) as lsm:
        check_tables(lsm, settings.warehouse)
        days = next_days(instance, count)
        if days:
            offer_days(settings, days[-1])
        pipeline = SamplePipeline(sample_definitions(settings), instance)
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
        newest = lsm.table(FLIGHTS).latest_snapshot()
        assert newest is not None, "the days above are committed"
        pipeline.check_manifests(FLIGHTS, newest.id)
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
def open_resource(settings: Settings) -> Iterator[LsmResource]:
    """Open the resource of the runs, to read the same tables outside of a run."""
    with dg.build_resources(resources_from(settings)) as resources:
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
    with served_catalog(settings) as variables:
        console.print(
            f"For clients of Paimon's and Iceberg's REST: {variables[CATALOG_URL]}, token {variables[TOKEN]}"
        )
        environment = {**os.environ, **ui_environment(settings), **variables}
        code = run_with_companion(
            ui_command(settings, port), pages_command(settings, port), environment
        )
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    main()

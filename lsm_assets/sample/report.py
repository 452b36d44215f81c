"""The report that the sample prints at its end: tables, tags, the origin of one figure, the command of the UI."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

import lsm_engine as lsm
from lsm_assets.inspection import changes_rows
from lsm_assets.metadata import commit_label, count_tree
from lsm_assets.recording import run_id_from_snapshot
from lsm_assets.sample.local_s3 import command_words
from lsm_assets.sample.replay import FIRST_DAY, LAST_DAY
from lsm_assets.sample.tables import CARRIER_DAYS, FLIGHTS, TABLES
from lsm_assets.settings import Settings
from lsm_engine import Snapshot, TableName, record

# -- The origin of one delay figure ----------------------------------------------------------------
#
# Its row, its snapshot and run, and the commits and files that the run read.

SNAPSHOTS_SEARCHED_MAX = 60


@record
class CommitFiles:
    """A commit with rows of a figure. `fate` says which compaction rewrote its files; "" if none did."""

    snapshot_id: int
    label: str
    run_id: str | None
    files: tuple[str, ...]
    fate: str


@record
class ReadState:
    """An input of a figure: a table, the snapshot that was read, and the commits with rows of the figure's day."""

    dataset: str
    snapshot_id: int | None
    file_count: int = 0
    commits: tuple[CommitFiles, ...] = ()


@record
class FigureOrigin:
    """The origin of a figure. `run_id` is the id of the Dagster run."""

    figure: dict[str, Any]
    snapshot_id: int
    label: str
    run_id: str | None
    inputs: tuple[ReadState, ...]

    @property
    def day(self) -> str:
        """The day of the figure."""
        return format_day(self.figure)


def format_day(row: dict[str, Any]) -> str:
    """Return the day of a row, such as 2013-01-31."""
    return f"{row['year']}-{row['month']:02}-{row['day']:02}"


_ARRIVED_MIN = 20  # a mean of fewer flights is no figure


def worst_figure(catalog: lsm.Catalog) -> dict[str, Any] | None:
    """Return the row with the greatest mean arrival delay; None without rows."""
    rows = catalog.table(CARRIER_DAYS.name).scan().to_arrow()
    busy = rows.filter(pc.greater_equal(rows["arrived"], _ARRIVED_MIN))
    ordered = (busy if busy.num_rows else rows).sort_by([("mean_arr_delay", "descending")])
    figures: list[dict[str, Any]] = ordered.slice(0, 1).to_pylist()
    return figures[0] if figures else None


def trace_figure(catalog: lsm.Catalog, figure: dict[str, Any]) -> FigureOrigin | None:
    """Return the origin of a row of carrier_days, from the catalog's lineage; None if no snapshot has the row."""
    table, name = catalog.table(CARRIER_DAYS.name), TableName.parse(CARRIER_DAYS.name)
    snapshot = _first_with(table, figure)
    if snapshot is None:
        return None
    runs = catalog.lineage.runs_of_snapshot(name, snapshot.id).to_pylist()
    inputs = catalog.lineage.inputs_of_snapshot(name, snapshot.id).to_pylist()
    return FigureOrigin(
        figure=figure,
        snapshot_id=snapshot.id,
        label=commit_label(snapshot),
        run_id=runs[0]["dagster_run_id"] if runs else None,
        inputs=tuple(_read_state(catalog, input_row, figure) for input_row in inputs),
    )


def _first_with(table: lsm.Table, figure: dict[str, Any]) -> Snapshot | None:
    """Return the oldest live snapshot with the row as it is now."""
    key = [pc.equal(pc.field(column), figure[column]) for column in CARRIER_DAYS.primary_key]
    is_figure = key[0] & key[1] & key[2] & key[3]
    written = [snapshot for snapshot in table.snapshots() if changes_rows(table, snapshot)]
    for snapshot in written[-SNAPSHOTS_SEARCHED_MAX:]:
        if table.scan(where=is_figure, snapshot_id=snapshot.id).to_arrow().to_pylist() == [figure]:
            return snapshot
    return None


def _read_state(catalog: lsm.Catalog, row: dict[str, Any], figure: dict[str, Any]) -> ReadState:
    dataset, snapshot_id = row["dataset"], row["input_snapshot_id"]
    if snapshot_id is None:
        return ReadState(dataset=dataset, snapshot_id=None)
    files = catalog.lineage.live_files_at(TableName.parse(dataset), snapshot_id)
    snapshots = (snapshot for snapshot in catalog.table(dataset).snapshots())
    return ReadState(
        dataset=dataset,
        snapshot_id=snapshot_id,
        file_count=files.num_rows,
        commits=tuple(
            _commit_files(catalog, TableName.parse(dataset), snapshot)
            for snapshot in snapshots
            if snapshot.id <= snapshot_id and _is_about(snapshot, format_day(figure))
        ),
    )


def _is_about(snapshot: Snapshot, day: str) -> bool:
    properties = snapshot.properties or {}
    return properties.get(FIRST_DAY, "9") <= day <= properties.get(LAST_DAY, "")


def _commit_files(catalog: lsm.Catalog, name: TableName, snapshot: Snapshot) -> CommitFiles:
    changes = catalog.lineage.files_of_snapshot(name, snapshot.id).to_pylist()
    added = [file for file in changes if file["change"] == "added"]
    return CommitFiles(
        snapshot_id=snapshot.id,
        label=commit_label(snapshot),
        run_id=run_id_from_snapshot(snapshot),
        files=tuple(_file_path(file) for file in added),
        fate=_fate(catalog, name, [file["file_name"] for file in added]),
    )


def _fate(catalog: lsm.Catalog, name: TableName, files: Sequence[str]) -> str:
    """Return a description of the compaction that rewrote the files; "" if none did."""
    became = [catalog.lineage.life_of_file(name, file).became for file in files]
    edges = [row for table in became for row in table.to_pylist()]
    if not edges:
        return ""
    snapshots = sorted({row["snapshot_id"] for row in edges})
    targets = {row["target_name"] for row in edges}
    return f"since compacted into {len(targets)} files by snapshot {snapshots[0]}"


def _file_path(file: dict[str, Any]) -> str:
    place = f"{file['partition_path']}/" if file["partition_path"] else ""
    return f"{place}bucket-{file['bucket']}/{file['file_name']}"


# -- The report that the sample prints at its end --------------------------------------------------


def print_report(
    catalog: lsm.Catalog,
    console: Console,
    settings: Settings,
    compactions: Mapping[str, tuple[int, int]],
    seconds: float,
) -> None:
    """Print the report.

    Args:
        catalog: Catalog of the sample.
        console: Console to print to.
        settings: Settings of the sample.
        compactions: By table, the sorted runs before and after the last compaction.
        seconds: Time that the sample took.
    """
    tables = {name: catalog.table(name) for name in _existing(catalog)}
    if not tables:
        console.print(f"There is nothing in {settings.warehouse} yet.")
        return
    console.print()
    console.print(_overview(tables, compactions))
    if FLIGHTS.name in tables:
        tags = ", ".join(f"{tag.name} → {tag.snapshot.id}" for tag in tables[FLIGHTS.name].tags())
        console.print(f"Tags of {FLIGHTS.name} (tag → snapshot): {tags or 'none'}", highlight=False)
    figure = worst_figure(catalog) if CARRIER_DAYS.name in tables else None
    origin = trace_figure(catalog, figure) if figure else None
    if origin is not None:
        console.print()
        console.print(_origin(origin))
    console.print()
    console.print(f"Done in {seconds:.0f} s. Look at all of it in the UI:", highlight=False)
    console.print(f"  {_ui_command(settings)}", style="bold", highlight=False, soft_wrap=True)


def _existing(catalog: lsm.Catalog) -> list[str]:
    existing = (
        set(catalog.list_tables(FLIGHTS.keys.database)) if catalog.list_databases() else set()
    )
    return [declaration.name for declaration in TABLES if declaration.keys.short_name in existing]


def _overview(tables: Mapping[str, lsm.Table], compactions: Mapping[str, tuple[int, int]]) -> Table:
    shown = Table(
        title=f"What exists now in database {FLIGHTS.keys.database}", title_justify="left"
    )
    shown.add_column("table", no_wrap=True)
    for heading in ("rows", "snapshots", "files", "size", "sorted runs", "tags"):
        shown.add_column(heading, justify="right")
    for name, table in tables.items():
        snapshots = table.snapshots()
        if not snapshots:
            continue
        tree = count_tree(table.tree(snapshots[-1]))
        before, after = compactions.get(name, (None, tree.runs_max))
        runs = str(tree.runs_max) if before is None else f"{before} → {after}"
        shown.add_row(
            name.removeprefix(f"{FLIGHTS.keys.database}."),
            f"{table.scan().count():,}",
            str(len(snapshots)),
            str(tree.files),
            lsm.format_bytes(tree.bytes),
            runs,
            str(len(table.tags())),
        )
    return shown


def _origin(origin: FigureOrigin) -> Tree:
    figure = origin.figure
    tree = Tree(
        f"[bold]Where a figure came from:[/] {figure['airline']} landed "
        f"{figure['mean_arr_delay']:.0f} minutes late on {origin.day}, "
        f"the mean of {figure['arrived']} flights",
        highlight=False,
    )
    run = f", made by run {origin.run_id[:8]}" if origin.run_id else ""
    snapshot = tree.add(f"{CARRIER_DAYS.name} snapshot {origin.snapshot_id}: {origin.label}{run}")
    for state in origin.inputs:
        files = "1 data file" if state.file_count == 1 else f"{state.file_count} data files"
        read = snapshot.add(f"read {state.dataset} at snapshot {state.snapshot_id}, {files}")
        for commit in state.commits:
            made_by = f", run {commit.run_id[:8]}" if commit.run_id else ""
            shown = read.add(f"snapshot {commit.snapshot_id}: {commit.label}{made_by}")
            for name in commit.files:
                shown.add(name, style="dim")
            if commit.fate:
                shown.add(commit.fate, style="dim")
    return tree


def _ui_command(settings: Settings) -> str:
    """Return the command that opens the UI. It works in the directory in which the sample was started."""
    program = Path(sys.argv[0])
    shown = os.path.relpath(program) if program.is_absolute() else str(program)
    words = [shown if not shown.startswith("..") else str(program), "--days", "0", "--ui"]
    words += command_words(settings.warehouse, settings.dagster_home)
    return shlex.join(words)

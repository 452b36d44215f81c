"""The report that the sample prints at its end: tables, tags, the origin of one figure, the command of the UI."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.tree import Tree

import lsm_engine as lsm
from lsm_assets.ledger.inspection import inspect_table
from lsm_assets.sample.local_s3 import command_words
from lsm_assets.sample.origin import FigureOrigin, trace_figure, worst_figure
from lsm_assets.sample.tables import CARRIER_DAYS, FLIGHTS, TABLES
from lsm_assets.settings import Settings


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
        tree = inspect_table(table, snapshots[-1]).tree
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

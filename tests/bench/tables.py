"""Tables to measure on: made through the front door, copied so that a round can spoil its own."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import lsm_engine as lsm
from tests.bench.rows import SINGLE, rows, two_runs

UNCOMPACTED = {"bucket": "1", "write-only": "true"}


def new_table(
    folder: Path,
    schema: pa.Schema,
    *,
    key: Sequence[str] = SINGLE,
    options: Mapping[str, str] = UNCOMPACTED,
    partitioned_by: Sequence[str] = (),
) -> lsm.Table:
    """An empty table with a warehouse and a catalog of its own in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = lsm.open_catalog(f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
    return catalog.create_table(
        "bench.t",
        schema,
        primary_key=list(key),
        partitioned_by=list(partitioned_by),
        options=dict(options),
    )


def table_of_runs(
    folder: Path,
    runs: Sequence[pa.Table],
    *,
    key: Sequence[str] = SINGLE,
    options: Mapping[str, str] = UNCOMPACTED,
) -> lsm.Table:
    """A table with one level-0 file, or a few that follow each other, for each of the runs."""
    table = new_table(folder, runs[0].schema, key=key, options=options)
    for run in runs:
        table.upsert(run)
    return table


def copied(table: lsm.Table, folder: Path) -> Path:
    """A copy of the table's directory; data files, which nobody changes, are linked."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(table.location, folder, copy_function=link_data)
    return folder


def link_data(source: str, target: str) -> None:
    """Link Parquet files, copy all others."""
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def warm_up(folder: Path, *, key: Sequence[str] = SINGLE) -> None:
    """Let every kernel that the verbs use be loaded, so that no round pays for it.

    The last run follows the others with a few keys in common: its rows are copied in stretches.
    """
    after = rows(np.arange(3_900, 12_000), seed=6, key=key)
    table = table_of_runs(folder, [*two_runs(3_000, key=key), after], key=key)
    table.scan().to_arrow()
    table.compact(full=True)
    table.scan().to_arrow()


def megabytes(folder: Path) -> float:
    """What the files of a folder take."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6

"""Memory of what streams, above the process that has opened the table: the table may have any size.

    python -m tests.bench.memory                         # a table of 6,000,000 rows and its changelog, two minutes
    python -m tests.bench.memory --rows 24000000
    python -m tests.bench.memory --only export diff

One commit loads all rows, a second one updates half of them; rows are unordered. Each step has a process of its own,
which opens the table and imports what the step needs. The figure is by how much the peak of its resident memory exceeds
that, once the loops have been loaded by a small table; `anonymous` leaves out pages of mapped files, which the system takes back when it needs them.
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lsm_engine as lsm
from tests.bench.measure import Ratio, Samples, arguments, report
from tests.bench.rows import rows
from tests.bench.tables import warm_up

BATCH = 500_000
ROW_GROUP = 32_768  # of files that polars writes; by default it holds 262,144 rows of all columns
STRIDE = 7_368_787  # a prime: the keys of a load in an order of no use


def _batches(size: int, step: int, seed: int) -> Iterator[pa.RecordBatch]:
    for number, start in enumerate(range(0, size, BATCH)):
        places = np.arange(start, min(start + BATCH, size)) * STRIDE % size
        yield from rows(step * places, seed=seed + number).to_batches()


def make(folder: Path, size: int) -> str:
    """Make a table of two commits with a changelog; return where it lies."""
    schema = rows(np.arange(1), seed=0).schema
    with lsm.open_catalog(folder / "lake") as catalog:
        options = {"changelog-producer": "input", "bucket": "1"}
        table = catalog.create_table("db.t", schema, primary_key="k", options=options)
        for commit, (count, step) in enumerate(((size, 1), (size // 2, 2))):
            batches = _batches(count, step, 1_000 * commit)
            table.upsert(pa.RecordBatchReader.from_batches(schema, batches))
        return table.location


def _count(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def scan(table: lsm.Table, _: Path) -> int:
    """Read all columns of all rows, merged."""
    return _count(table.to_reader())


def follow(table: lsm.Table, _: Path) -> int:
    """Follow from the first state on."""
    return sum(_count(item.to_batches()) for item in table.follow(poll_millis=None))


def follow_changes(table: lsm.Table, _: Path) -> int:
    """Follow the changes of each snapshot."""
    items = table.follow("from-snapshot", snapshot_id=1, poll_millis=None)
    return sum(_count(item.to_reader()) for item in items)


def changelog(table: lsm.Table, _: Path) -> int:
    """Read the changelog of all snapshots."""
    return _count(table.changes(0).to_batches())


def delta(table: lsm.Table, _: Path) -> int:
    """Read the new rows of all snapshots."""
    return _count(table.changes(0, mode="delta").to_batches())


def diff(table: lsm.Table, _: Path) -> int:
    """Compare the two states."""
    return _count(table.changes(1, mode="diff").to_batches())


def export_parquet(table: lsm.Table, folder: Path) -> int:
    """Write all rows to a Parquet file."""
    return table.to_file(folder / "rows.parquet")


def export_csv(table: lsm.Table, folder: Path) -> int:
    """Write all rows to a compressed CSV file."""
    return table.to_file(folder / "rows.csv.gz")


def export_jsonl(table: lsm.Table, folder: Path) -> int:
    """Write all rows as JSON lines."""
    return table.to_file(folder / "rows.jsonl.gz")


def polars_sink(table: lsm.Table, folder: Path) -> int:
    """Write a lazy frame by the streaming engine of polars."""
    table.to_polars().sink_parquet(folder / "rows.parquet", row_group_size=ROW_GROUP)
    return table.count()


def polars_sum(table: lsm.Table, _: Path) -> int:
    """Aggregate a lazy frame by the streaming engine of polars."""
    polars = importlib.import_module("polars")
    totals = table.to_polars().select(polars.len(), polars.all().max().name.prefix("max "))
    return int(totals.collect(engine="streaming")["len"].sum())


def polars_filter(table: lsm.Table, folder: Path) -> int:
    """Write the rows that a filter of polars keeps: all of them."""
    polars = importlib.import_module("polars")
    lazy = table.to_polars().filter(polars.col("k") >= 0)
    lazy.sink_parquet(folder / "rows.parquet", row_group_size=ROW_GROUP)
    return table.count()


def duckdb_sum(table: lsm.Table, _: Path) -> int:
    """Aggregate a relation of DuckDB."""
    return _counted(table.to_duckdb())


def duckdb_batches(table: lsm.Table, _: Path) -> int:
    """Stream a relation of DuckDB as Arrow batches."""
    return _count(table.to_duckdb().to_arrow_reader(10_000))


def verify(table: lsm.Table, _: Path) -> int:
    """Verify metadata and files."""
    assert table.verify().is_clean
    return table.count()


def verify_deep(table: lsm.Table, _: Path) -> int:
    """Verify every row of every file."""
    assert table.verify(deep=True).is_clean
    return table.count()


def dagster_scan(table: lsm.Table, _: Path) -> int:
    """Load an input of Dagster as a stream."""
    return _count(_loaded(table, pa.RecordBatchReader))


def dagster_lazy(table: lsm.Table, folder: Path) -> int:
    """Load an input of Dagster as a lazy frame of polars, and write it."""
    polars = importlib.import_module("polars")
    _loaded(table, polars.LazyFrame).sink_parquet(folder / "rows.parquet", row_group_size=ROW_GROUP)
    return table.count()


def dagster_duckdb(table: lsm.Table, _: Path) -> int:
    """Load an input of Dagster as a relation of DuckDB, and aggregate it."""
    duckdb = importlib.import_module("duckdb")
    return _counted(_loaded(table, duckdb.DuckDBPyRelation))


def _counted(relation: Any) -> int:
    """Aggregate every column of a relation of DuckDB; return its number of rows."""
    maxima = ", ".join(f'max("{name}")' for name in relation.columns)
    return int(relation.aggregate(f"count(*), {maxima}").fetchall()[0][0])


def _loaded(table: lsm.Table, kind: type) -> Any:
    return importlib.import_module("lsm_assets.io_manager").load_rows(table, {}, kind, None)


STEPS: dict[str, Callable[[lsm.Table, Path], int]] = {
    act.__name__.replace("_", "-"): act
    for act in (
        *(scan, follow, follow_changes, changelog, delta, diff),
        *(export_parquet, export_csv, export_jsonl),
        *(polars_sink, polars_sum, polars_filter, duckdb_sum, duckdb_batches),
        *(verify, verify_deep, dagster_scan, dagster_lazy, dagster_duckdb),
    )
}
NEEDS = ("polars", "duckdb", "lsm_engine.read.engines")


def memory_kb(name: str) -> int:
    """Return a line of /proc/self/status that counts memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise KeyError(name)


def prepare(folder: Path) -> None:
    """Import what the steps need, and load the loops."""
    for name in NEEDS:
        importlib.import_module(name)
    warm_up(folder / "warm")


@contextmanager
def peak(name: str = "RssAnon") -> Iterator[Callable[[], int]]:
    """Sample a line of /proc/self/status that counts memory during the block; the call returns its maximum."""
    highest, is_over = [memory_kb(name)], threading.Event()

    def sample() -> None:
        while not is_over.wait(0.005):
            highest[0] = max(highest[0], memory_kb(name))

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield lambda: highest[0]
    finally:
        is_over.set()
        sampler.join()


def take(step: str, location: str, folder: Path) -> dict[str, float]:
    """Take a step in this process; what it cost."""
    table = lsm.open_table(location)
    prepare(folder)
    if step.startswith("dagster"):
        importlib.import_module("lsm_assets.io_manager")
    before, own_before = memory_kb("VmRSS"), memory_kb("RssAnon")
    Path("/proc/self/clear_refs").write_text("5")
    cpu = -time.process_time()
    with peak() as own_peak:
        count = STEPS[step](table, folder)
    cpu += time.process_time()
    return {
        "rows": count,
        "cpu": cpu,
        "above_mb": (memory_kb("VmHWM") - before) * 1024 / 1e6,
        "anonymous_mb": (own_peak() - own_before) * 1024 / 1e6,
    }


def taken(step: str, location: str) -> dict[str, float]:
    """Take a step in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-memory-") as scratch:
        command = [sys.executable, "-m", "tests.bench.memory", "--step", step]
        command += ["--location", location, "--folder", scratch]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    spent: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return spent


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=6_000_000, rounds=1)
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--location", help="a table that is there")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(json.dumps(take(given.step, given.location, given.folder)))
        return
    with tempfile.TemporaryDirectory(prefix="bench-memory-") as scratch:
        location = given.location or make(Path(scratch), given.rows)
        facts = {}
        for step in given.only:
            facts[step] = taken(step, location)
            print(f"  {step}: {facts[step]}", flush=True)
    ratios = [
        Ratio(what=step, name="MB above", rounds=(spent["above_mb"],), goal=300)
        for step, spent in facts.items()
    ]
    report("memory", ratios, Samples(), facts=facts, out=given.json)


if __name__ == "__main__":
    main()

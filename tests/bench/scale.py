"""One table from a million rows to a hundred million: what a row costs and what each step holds in memory.

    python -m tests.bench.scale                          # 1,000,000, 10,000,000 and 100,000,000 rows, seven minutes
    python -m tests.bench.scale --sizes 1000000 4000000

Rows come unsorted, in batches of 500,000, with default options but for `write-only` while they are loaded. Then a full
compaction, five upserts of one per cent (half of them new keys) that compact as they go, a full compaction, a read of all
columns in batches, and lookups of 100,000 keys, cold and warm. Each step has a process of its own, which says its CPU
and the most memory it held: file pages that it mapped count too, as those of lookup files.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import lsm_engine as lsm
from tests.bench.measure import Ratio, Samples, arguments, report, wait_for_quiet
from tests.bench.rows import rows

BATCH = 500_000
LOOKED_UP = 100_000
STRIDE = 7_368_787  # a prime: the keys of a load in an order of no use
STEPS = ("load", "compact", "upserts", "compact again", "read", "lookup")


def load(table: lsm.Table, size: int) -> int:
    """Rows 0 to `size`, by twos, in a shuffled order."""
    making = 0.0
    for number, start in enumerate(range(0, size, BATCH)):
        making -= time.process_time()
        places = np.arange(start, min(start + BATCH, size)) * STRIDE % size
        batch = rows(2 * places, seed=number)
        making += time.process_time()
        table.upsert(batch)
    print(json.dumps({"making": making}))
    return size


def upserts(table: lsm.Table, size: int) -> int:
    """Five batches of one per cent: every other row is new."""
    table.alter(lsm.RemoveOption("write-only"))
    for number in range(5):
        chosen = np.random.default_rng(number).choice(2 * size, size // 100, replace=False)
        table.upsert(rows(chosen, seed=1_000 + number))
    return 5 * (size // 100)


def compact(table: lsm.Table, size: int) -> int:
    """A full compaction."""
    table.compact(full=True)
    return size


def read(table: lsm.Table, size: int) -> int:
    """All columns of all rows, batch by batch."""
    found = sum(batch.num_rows for batch in table.to_reader())
    assert found >= size, (found, size)
    return found


def lookup(table: lsm.Table, size: int) -> int:
    """Keys that are all there, twice: the first time local files are built of all rows."""
    chosen = 2 * np.random.default_rng(9).choice(size, LOOKED_UP, replace=False)
    keys = rows(chosen, seed=9).select(["k"])
    with table.query() as query:
        assert all(query.lookup(keys, columns=["a"])["_found"].to_pylist())
        wall = -time.perf_counter()
        query.lookup(keys)
        wall += time.perf_counter()
    print(json.dumps({"keys a second": LOOKED_UP / wall}))
    return size


ACTS: dict[str, Callable[[lsm.Table, int], int]] = dict(
    zip(STEPS, (load, compact, upserts, compact, read, lookup), strict=True)
)


def new(folder: Path) -> str:
    """Where an empty table is."""
    with lsm.open_catalog(folder / "lake") as catalog:
        schema = rows(np.arange(1), seed=0).schema
        options = {"write-only": "true"}
        return catalog.create_table("db.t", schema, primary_key="k", options=options).location


def take(step: str, location: str, size: int) -> dict[str, float]:
    """Take a step in this process; what it cost."""
    table = lsm.open_table(location)
    wall, cpu = -time.perf_counter(), -time.process_time()
    count = ACTS[step](table, size)
    wall, cpu = wall + time.perf_counter(), cpu + time.process_time()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) * 1024 / 1e6
    return {"rows": count, "wall": wall, "cpu": cpu, "peak_mb": peak}


def taken(step: str, location: str, size: int) -> dict[str, Any]:
    """Take a step in a process of its own."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.bench.scale", "--step", step),
            *("--sizes", str(size), "--location", location),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    found["cpu"] -= found.pop("making", 0.0)
    return found


def measured(size: int, folder: Path) -> dict[str, dict[str, Any]]:
    """All steps of one size."""
    location = new(folder)
    found = {}
    for step in STEPS:
        found[step] = taken(step, location, size)
        print(f"  {size:,} {step}: {found[step]}", flush=True)
    return found


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=0, rounds=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--location", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(json.dumps(take(given.step, given.location, given.sizes[0])))
        return
    facts: dict[int, dict[str, dict[str, Any]]] = {}
    for size in given.sizes:
        wait_for_quiet(given.patience)
        with tempfile.TemporaryDirectory(prefix="bench-scale-") as scratch:
            facts[size] = measured(size, Path(scratch))
    report("scale", ratios(facts), Samples(), facts={"sizes": facts}, out=given.json)


def ratios(facts: Mapping[int, Mapping[str, dict[str, Any]]]) -> list[Ratio]:
    """Of each size: the CPU for a row by that of the size before it, and the memory of each step."""
    found = []
    before: Mapping[str, dict[str, Any]] | None = None
    for size, steps in facts.items():
        for step, one in steps.items():
            what = f"{step}, {size:,} rows"
            found.append(Ratio(what=what, name="peak MB", rounds=(one["peak_mb"],)))
            if before is not None:
                per_row = one["cpu"] / one["rows"] * before[step]["rows"] / before[step]["cpu"]
                name = "CPU for a row / that of the size before"
                found.append(Ratio(what=what, name=name, rounds=(per_row,)))
        before = steps
    return found


if __name__ == "__main__":
    main()

"""One table of very many partitions of one bucket: what each step costs, and what it holds in memory.

    python -m tests.bench.many_partitions                        # 10,000 and 100,000 partitions, ten minutes
    python -m tests.bench.many_partitions --sizes 1000 5000

Two rows a partition, loaded ten thousand partitions at a time, `write-only`; then upserts of a row in each of 1,000 partitions,
a plan and a count of everything, one partition and one key looked for, a read of all rows, a full compaction, and an expiry
of all snapshots but the newest. Each step has a process of its own with an engine that has run before, and tells its CPU
and the most memory it held.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lsm_engine as lsm
from tests.bench.measure import arguments, wait_for_quiet

AT_A_TIME, UPSERTED = 10_000, 1_000
SCHEMA = pa.schema(
    [
        pa.field("p", pa.int64(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        pa.field("v", pa.string()),
    ]
)


def rows(partitions: np.ndarray, keys: np.ndarray, text: str) -> pa.Table:
    """Rows of these partitions and keys."""
    return pa.table([partitions, keys, pa.array([text] * len(keys))], schema=SCHEMA)


def load(table: lsm.Table, size: int) -> None:
    """Two rows a partition."""
    for start in range(0, size, AT_A_TIME):
        parts = np.repeat(np.arange(start, min(start + AT_A_TIME, size)), 2)
        table.upsert(rows(parts, np.arange(len(parts)) % 2, "loaded"))


def upsert(table: lsm.Table, size: int) -> None:
    """One row in each of 1,000 partitions; half of them are there."""
    chance = np.random.default_rng(time.time_ns())
    parts = chance.choice(size, min(UPSERTED, size), replace=False)
    table.upsert(rows(parts, chance.choice(4, len(parts)), "upserted"))


def plan(table: lsm.Table, size: int) -> None:
    """Every split."""
    assert sum(1 for _ in table.scan().splits()) >= size


def count(table: lsm.Table, size: int) -> None:
    """The number of rows; merged ones are read."""
    assert table.scan().count() >= 2 * size


def one_partition(table: lsm.Table, size: int) -> None:
    """The rows of one partition."""
    assert table.scan(where=f"p = {size // 2}").to_arrow().num_rows >= 2


def one_key(table: lsm.Table, size: int) -> None:
    """A lookup."""
    assert table.lookup([{"p": size // 3, "k": 1}])["_found"].to_pylist() == [True]


def read(table: lsm.Table, size: int) -> None:
    """All rows, batch by batch."""
    assert sum(batch.num_rows for batch in table.to_reader()) >= 2 * size


def compact(table: lsm.Table, size: int) -> None:
    """A full compaction."""
    table.compact(full=True)


def expire(table: lsm.Table, size: int) -> None:
    """All snapshots but the newest."""
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")


STEPS: dict[str, Callable[[lsm.Table, int], None]] = {
    "load": load,
    "upsert of 1,000 rows": upsert,
    "the second one of a process": upsert,
    "plan": plan,
    "count": count,
    "one partition": one_partition,
    "lookup of one key": one_key,
    "read": read,
    "full compaction": compact,
    "count after it": count,
    "read after it": read,
    "expiry": expire,
}
BEFORE = {"the second one of a process": upsert}
"""What is done before a step, uncounted."""


def take(step: str, location: str, size: int) -> dict[str, float]:
    """Take a step in this process; what it cost."""
    table = lsm.open_table(location)
    if step in BEFORE:
        BEFORE[step](table, size)
    wall, cpu = -time.perf_counter(), -time.process_time()
    STEPS[step](table, size)
    wall, cpu = wall + time.perf_counter(), cpu + time.process_time()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {"wall": wall, "cpu": cpu, "peak_mb": int(status["VmHWM"].split()[0]) * 1024 / 1e6}


def taken(step: str, location: str, size: int) -> dict[str, Any]:
    """Take a step in a process of its own."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.bench.many_partitions", "--step", step),
            *("--sizes", str(size), "--location", location),
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=0, rounds=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--location", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(json.dumps(take(given.step, given.location, given.sizes[0])))
        return
    told: dict[str, list[str]] = {step: [] for step in STEPS}
    for size in given.sizes:
        with tempfile.TemporaryDirectory(prefix="bench-partitions-") as scratch:
            with lsm.open_catalog(Path(scratch) / "lake") as catalog:
                options = {"write-only": "true"}
                made = catalog.create_table(
                    "db.t", SCHEMA, primary_key=["p", "k"], partitioned_by=["p"], options=options
                )
            for step in STEPS:
                wait_for_quiet(given.patience)
                one = taken(step, made.location, size)
                told[step].append(f"{one['cpu']:.2f} s, {one['peak_mb']:,.0f} MB")
                print(f"  {size:,}: {step}: {one}", flush=True)
    print(f"\n| step | {' | '.join(f'{size:,} partitions' for size in given.sizes)} |")
    print("|---" * (len(given.sizes) + 1) + "|")
    for step, figures in told.items():
        print(f"| {step} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()

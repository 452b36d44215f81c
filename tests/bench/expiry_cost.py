"""What does it cost to let very many snapshots go, per snapshot, and in how much memory?

    python -m tests.bench.expiry_cost                     # 1,000 and 10,000 snapshots
    python -m tests.bench.expiry_cost --snapshots 500 2000 --limit 50

Every commit replaces the row of the one before, so that each snapshot but the last leaves a data file
behind, beside its manifests and lists. All go but the newest: in one expiry, and (`--limit`) in
as many as `snapshot.expire.limit` asks for. Each has a process of its own, which tells the memory that
it ever had. The figure is the CPU per snapshot of the longest history in units of the shortest's.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import lsm_engine as lsm
from lsm_engine.kernels import compiled
from tests.bench.measure import Ratio, Samples, Seconds, arguments, report, wait_for_quiet
from tests.bench.plan_once import peak_mb
from tests.bench.rows import rows
from tests.bench.tables import UNCOMPACTED, new_table

OPTIONS = {**UNCOMPACTED, "commit.fsync": "false"}
GOAL = 1.5
HERE = Path(__file__).resolve().parent
MINUTES_MAX = 60


def history(folder: Path, count: int) -> str:
    """Make a table of so many snapshots, of which each frees a data file; return where it is."""
    one = rows(np.arange(1), seed=0)
    # Opened by its path, no catalog has to be told: only the table's own files are measured.
    table = lsm.open_table(new_table(folder, one.schema, options=OPTIONS).location)
    for _ in range(count):
        table.overwrite(one)
    return table.location


def expired(path: str, limit: int | None = None) -> dict[str, float]:
    """Expire all but the newest snapshot, at most `limit` at a time, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.expiry_cost", "--once", path]
    command += [] if limit is None else ["--limit", str(limit)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60 * MINUTES_MAX, check=True,
        cwd=HERE.parents[1], env=dict(os.environ),
    )  # fmt: skip
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def expire_once(path: str, limit: int | None) -> dict[str, float]:
    """Expire in this process."""
    table = lsm.open_table(path)
    count = len(table.session.snapshots.ids())
    table.alter(lsm.SetOption(key="snapshot.expire.limit", value=str(limit or count)))
    compiled.CALL_LIMIT = -1  # or few rows would need no compiler
    table.scan().to_arrow()  # kernels are loaded, not counted
    idle = peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    taken = files = 0
    while taken < count - 1:
        report = table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
        taken += len(report.plan.expired)
        files += len(report.plan.data_files)
    return {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "idle_mb": idle,
        "peak_mb": peak_mb(),
        "snapshots": taken,
        "data_files": files,
        "left": len([path for path in Path(path).rglob("*") if path.is_file()]),
    }


def per_snapshot(told: dict[int, dict[str, float]], kind: str = "cpu") -> float:
    """The longest history's cost per snapshot, divided by the shortest's."""
    each = {count: one[kind] / one["snapshots"] for count, one in told.items()}
    return each[max(each)] / each[min(each)]


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=1, rounds=1)
    parser.add_argument("--snapshots", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--limit", type=int, help="also so many at a time (the default is 50)")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        print(json.dumps(expire_once(given.once, given.limit)))
        return
    samples, found = Samples(), {}
    limits = [None] if given.limit is None else [None, given.limit]
    told: dict[str, list[dict[int, dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-expiry-") as scratch:
        for limit in limits:
            name = "at once" if limit is None else f"{limit} at a time"
            for number in range(given.rounds):
                found = {}
                for count in given.snapshots:
                    path = history(Path(scratch) / f"{limit}-{number}-{count}", count)
                    wait_for_quiet(given.patience)
                    one = found[count] = expired(path, limit)
                    samples.add(name, f"{count:,} snapshots", Seconds(one["wall"], one["cpu"]))
                    print(f"    {one}", flush=True)
                told.setdefault(name, []).append(found)
    ratios = [
        Ratio(
            what=f"expiry {name}",
            name=f"a snapshot of {max(given.snapshots):,} / of {min(given.snapshots):,}, {kind}",
            rounds=tuple(per_snapshot(one, kind) for one in rounds),
            goal=GOAL if kind == "cpu" else None,
        )
        for name, rounds in told.items()
        for kind in ("cpu", "wall")
    ]
    report("expiry_cost", ratios, samples, facts={"told": told}, out=given.json)


if __name__ == "__main__":
    main()

"""How long does one commit in a hundred take, where an upsert compacts, a writer compacts in the background, or nobody does?

    python -m tests.bench.writer_latency
    python -m tests.bench.writer_latency --rows 100 --commits 1000

Commits of a few rows to one bucket by three ways in turn: `upsert`, `table.writer()`, and `upsert` to a `write-only`
table. A latency counts by the clock and by the CPU of the thread that commits; the first twenty commits do not count.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import lsm_engine as lsm
from tests.bench.measure import Ratio, Samples, Seconds, arguments, report, wait_for_quiet
from tests.bench.rows import rows
from tests.bench.tables import new_table, warm_up

WARM_COMMITS = 20
P99_BY_MEDIAN = 2.0
UPSERT, WRITER, WRITE_ONLY = "upsert", "writer in the background", "upsert, write-only"


def latencies(batches: list[pa.Table], commit: Callable[[pa.Table], object]) -> list[Seconds]:
    """Return what each commit took, on the clock and on the CPU of this thread."""
    seconds = []
    for batch in batches:
        wall, cpu = -time.perf_counter(), -time.thread_time()
        commit(batch)
        seconds.append(Seconds(wall + time.perf_counter(), cpu + time.thread_time()))
    return seconds[WARM_COMMITS:]


def by_writer(table: lsm.Table, batches: list[pa.Table]) -> list[Seconds]:
    """Commit through one writer that stays open."""
    with table.writer() as writer:

        def commit(batch: pa.Table) -> None:
            writer.write(batch)
            writer.commit()

        return latencies(batches, commit)


def tail(who: str, seconds: list[Seconds], kind: str) -> Ratio:
    """Return the 99th percentile by the median."""
    values = sorted(getattr(taken, kind) for taken in seconds)
    ratio = values[int(0.99 * len(values))] / statistics.median(values)
    goal = P99_BY_MEDIAN if who == WRITER else None
    return Ratio(what=who, name=f"p99 / median, {kind}", rounds=(ratio,), goal=goal)


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=1, rounds=1)
    parser.add_argument("--commits", type=int, default=400)
    given = parser.parse_args()
    chance = np.random.default_rng(11)
    batches = [
        rows(chance.choice(1 << 20, given.rows, replace=False), seed=number)
        for number in range(given.commits)
    ]
    taken: dict[str, list[Seconds]] = {UPSERT: [], WRITER: [], WRITE_ONLY: []}
    with tempfile.TemporaryDirectory(prefix="bench-latency-") as scratch:
        warm_up(Path(scratch) / "warm")
        for turn in range(given.rounds):
            for who, seconds in taken.items():
                wait_for_quiet(given.patience)
                options = {"write-only": "true"} if who == WRITE_ONLY else {}
                table = new_table(
                    Path(scratch) / f"{turn}-{who}", batches[0].schema, options=options
                )
                if who == WRITER:
                    seconds += by_writer(table, batches)
                else:
                    seconds += latencies(batches, table.upsert)
    ratios = [
        tail(who, seconds, kind) for who, seconds in taken.items() for kind in ("cpu", "wall")
    ]
    medians = {
        who: {
            kind: round(1_000 * statistics.median(getattr(s, kind) for s in seconds), 1)
            for kind in ("cpu", "wall")
        }
        for who, seconds in taken.items()
    }
    report("writer_latency", ratios, Samples(), facts={"median_ms": medians}, out=given.json)


if __name__ == "__main__":
    main()

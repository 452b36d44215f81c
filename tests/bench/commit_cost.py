"""Does a commit cost more the longer the table's history is? It must not: 1.5 times at most.

    python -m tests.bench.commit_cost --commits 1000
    python -m tests.bench.commit_cost --commits 10000 --rounds 1

Commits of ten rows to one bucket, with default options (compaction as it falls due included) and
write-only. The 10th and the last are each the median of the commits around them; beside the median
stands the mean, in which the compactions show that the median leaves out.
"""

import statistics
import tempfile
from pathlib import Path

import numpy as np

from tests.bench.measure import (
    Ratio,
    Samples,
    Seconds,
    arguments,
    report,
    stopwatch,
    wait_for_quiet,
)
from tests.bench.rows import rows
from tests.bench.tables import new_table, warm_up

GOAL = 1.5
EARLY = slice(4, 15)  # the 5th to the 15th
LATE_COMMITS = 21
OPTIONS = {"default options": {}, "write-only": {"write-only": "true"}}


def commits(folder: Path, options: dict[str, str], count: int, rows_each: int) -> list[Seconds]:
    """What each of so many commits to a new table takes."""
    chance = np.random.default_rng(11)
    space = 10 * rows_each * count
    table = new_table(folder, rows(np.arange(1), seed=0).schema, options=options)
    taken = []
    for number in range(count):
        batch = rows(chance.choice(space, rows_each, replace=False), seed=number)
        with stopwatch() as spent:
            table.upsert(batch)
        taken.append(spent())
    return taken


def late_to_early(
    what: str, rounds: list[list[Seconds]], kind: str, *, mean: bool = False
) -> Ratio:
    """The last commits divided by those around the 10th."""
    middle = statistics.mean if mean else statistics.median
    found = []
    for taken in rounds:
        seconds = [getattr(one, kind) for one in taken]
        found.append(middle(seconds[-LATE_COMMITS:]) / middle(seconds[EARLY]))
    name = f"commit {len(rounds[0]):,} / commit 10, {'mean' if mean else 'median'}, {kind}"
    return Ratio(what=what, name=name, rounds=tuple(found), goal=None if mean else GOAL)


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=10, rounds=3)
    parser.add_argument("--commits", type=int, default=1_000)
    given = parser.parse_args()
    samples = Samples()
    taken: dict[str, list[list[Seconds]]] = {name: [] for name in OPTIONS}
    with tempfile.TemporaryDirectory(prefix="bench-commits-") as scratch:
        warm_up(Path(scratch) / "warm")
        for number in range(given.rounds):
            for name, options in OPTIONS.items():
                wait_for_quiet(given.patience)
                folder = Path(scratch) / f"{number}-{len(options)}"
                one = commits(folder, options, given.commits, given.rows)
                taken[name].append(one)
                whole = Seconds(sum(s.wall for s in one), sum(s.cpu for s in one))
                samples.add(name, f"{given.commits} commits", whole)
    ratios = [
        late_to_early(name, rounds, kind, mean=mean)
        for name, rounds in taken.items()
        for kind, mean in (("cpu", False), ("wall", False), ("cpu", True))
    ]
    milliseconds = {
        name: {
            str(at): round(
                1_000 * statistics.median(s.cpu for s in rounds[0][max(0, at - 6) : at + 5]), 2
            )
            for at in (10, 30, 100, 300, 1_000, 3_000, 10_000)
            if at <= given.commits
        }
        for name, rounds in taken.items()
    }
    facts = {"rows_each": given.rows, "cpu_ms_around_commit": milliseconds}
    report("commit_cost", ratios, samples, facts=facts, out=given.json)


if __name__ == "__main__":
    main()

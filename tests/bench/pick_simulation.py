"""What one rule of universal compaction costs in bytes written and runs read; nothing is timed.

    python -m tests.bench.pick_simulation

Beside the pick of this engine, which is that of Java 2.0.0, stands the one that Java's master has had
since August 2026 (#8993, #9185): once two runs are taken, runs of levels 0 and 1 follow whatever their
size. Buckets are simulated as sizes: a batch is a run on level 0, and runs of `keys` possible keys are
as large, merged, as their union is on average. Decision 41 has the table.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from lsm_engine.base.record import record
from lsm_engine.lsm.levels import LevelSortedRun, SortedRun
from lsm_engine.lsm.universal import Runs, UniversalCompaction
from tests import shapes

BATCHES, SEEDS = 1500, 12
BATCH_SIZES: dict[str, Callable[[random.Random], int]] = {
    "equal": lambda draw: draw.randint(990, 1010),
    "ten times": lambda draw: draw.randint(300, 3000),
    "hundred times": lambda draw: 10_000 if draw.random() < 0.05 else 100,
}
KEYS = {"inserts": None, "updates, 100 batches of keys": 100_000, "updates, 1000": 1_000_000}


@record
class TakesLevelOne(UniversalCompaction):
    """The pick of August 2026: a compaction that is going to happen takes levels 0 and 1 along."""

    def _grown(self, runs: Runs, count: int) -> int:
        size = sum(run.size for run in runs[:count])
        for run in runs[count:]:
            is_large = size * (100 + self.size_ratio_percent) < 100 * run.size
            if is_large and (count == 1 or run.level > 1):
                break
            size += run.size
            count += 1
        return count


@record
class Cost:
    """Bytes that compactions wrote per byte of the batches, and the runs that a read merges."""

    written: float
    runs: float


def simulate(strategy: UniversalCompaction, sizes: Sequence[int], keys: int | None) -> Cost:
    """Return what a bucket costs to which batches of some sizes come."""
    max_level = strategy.run_count_trigger
    runs: list[LevelSortedRun] = []
    written, seen = 0, []
    for size in sizes:
        runs.insert(0, _run(0, size))
        unit = strategy.pick(runs, max_level=max_level)
        if unit is not None:
            merged = _run(unit.output_level, _union([run.size for run in unit.runs], keys))
            written += merged.size
            runs = [merged, *runs[len(unit.runs) :]]
        seen.append(len(runs))
    return Cost(written=written / sum(sizes), runs=statistics.fmean(seen))


(_FILE,) = shapes.files("L0:1")


def _run(level: int, size: int) -> LevelSortedRun:
    file = replace(_FILE, level=level, file_size=size)
    return LevelSortedRun(level=level, run=SortedRun.of_one(file))


def _union(sizes: Sequence[int], keys: int | None) -> int:
    if keys is None:
        return sum(sizes)
    return round(keys * (1 - math.prod(max(0.0, 1 - size / keys) for size in sizes)))


def compared(trigger: int, batch_sizes: str, keys: int | None) -> Iterator[tuple[Cost, Cost]]:
    """Yield both costs of each of some random histories."""
    settings = {"max_size_amplification_percent": 200, "size_ratio_percent": 1}
    ours = UniversalCompaction(**settings, run_count_trigger=trigger)
    newer = TakesLevelOne(**settings, run_count_trigger=trigger)
    for seed in range(SEEDS):
        draw = random.Random(seed)
        sizes = [BATCH_SIZES[batch_sizes](draw) for _ in range(BATCHES)]
        yield simulate(ours, sizes, keys), simulate(newer, sizes, keys)


def main() -> None:
    """Print the table."""
    print("trigger | keys | batches differ | written, ours | newer pick | runs read")
    for trigger in (3, 5, 8):
        for name, keys in KEYS.items():
            for batch_sizes in BATCH_SIZES:
                costs = list(compared(trigger, batch_sizes, keys))
                ratios = [100 * (new.written / old.written - 1) for old, new in costs]
                ours = statistics.fmean(old.written for old, _ in costs)
                runs = statistics.fmean(100 * (new.runs / old.runs - 1) for old, new in costs)
                spread = f"{min(ratios):+.0f} .. {max(ratios):+.0f}"
                print(
                    f"{trigger} | {name} | {batch_sizes} | {ours:.1f} | "
                    f"{statistics.median(ratios):+.1f} % ({spread}) | {runs:+.1f} %"
                )


if __name__ == "__main__":
    main()

"""`where key = x` on a compacted table of 100 columns, against our own lookups of the same keys.

    python -m tests.bench.key_scans            # 100,000 rows; goal 2

Scans and lookups take turns, each of 20 keys at random; another first each time. Pages: the scans of a process
that has not asked for keys before. Warm: those of one that has, which are lookups themselves.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import lsm_engine as lsm
from tests.bench.measure import Samples, arguments, report, rotated, stopwatch, wait_for_quiet
from tests.bench.query_engines import wide_table
from tests.bench.tables import warm_up

GOAL = 2.0
KEYS = 20
WHAT = "20 keys, one at a time"
PAGES, WARM, LOOKUP = "scan, pages", "scan, warm", "lookup"


def ways(table: lsm.Table) -> Iterator[tuple[str, Callable[[int], int]]]:
    """How a key is asked for."""

    def pages(key: int) -> int:
        plan = table.scan(where=f"id = {key}").plan  # as every scan is read at first
        return sum(batch.num_rows for split in plan.splits for batch in plan.source.batches(split))

    yield PAGES, pages
    yield WARM, lambda key: table.scan(where=f"id = {key}").to_arrow().num_rows
    yield LOOKUP, lambda key: table.lookup([{"id": key}]).num_rows


def measured(table: lsm.Table, count: int, rounds: int, *, patience: float) -> Samples:
    """The ways in turn; the first turn, in which lookup files are made, counts for nothing."""
    samples, chance = Samples(), np.random.default_rng(1)
    for turn in range(rounds + 1):
        wait_for_quiet(patience)
        keys = chance.integers(0, count, KEYS).tolist()
        for who, ask in rotated(list(ways(table)), turn):
            with stopwatch() as spent:
                found = sum(map(ask, keys))
            assert found == KEYS, (who, found)
            if turn:
                samples.add(WHAT, who, spent())
    return samples


def main() -> None:
    """Measure as the command line says."""
    given = arguments(__doc__, rows=100_000, rounds=7).parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-keys-") as scratch:
        warm_up(Path(scratch, "warm"))
        table, _ = wide_table(Path(scratch), given.rows)
        samples = measured(table, given.rows, given.rounds, patience=given.patience)
        ratios = [
            samples.ratio(WHAT, WARM, LOOKUP, goal=GOAL),
            samples.ratio(WHAT, PAGES, LOOKUP),
        ]
        report("key_scans", ratios, samples, facts={"rows": given.rows}, out=given.json)


if __name__ == "__main__":
    main()

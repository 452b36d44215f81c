"""Compactions that tell a changelog, and those that mark deletion vectors, against plain ones.

    python -m tests.bench.changelog_cost --rows 5000000 --rounds 6
    python -m tests.bench.changelog_cost --rows 200000 --rounds 3 --patience 0     # a quick look

`whole`: half as many new rows as there are old ones, half of them known, and everything is merged.
`above`: a twentieth of the rows, again and again, above a large last level that stays as it is; the
older rows are looked up. The first of these compactions builds the lookup file of that level, and is
told apart. All tables of a case move level 0 up alike, so that only the telling differs. The goal of
at most 2.5 times is the issue's.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import lsm_engine as lsm
from tests.bench.measure import Ratio, Samples, arguments, report, stopwatch, wait_for_quiet
from tests.bench.rows import rows
from tests.bench.tables import UNCOMPACTED, new_table, warm_up

GOAL = 2.5
PLAIN = "plain"
WAYS: Mapping[str, Mapping[str, str]] = {
    PLAIN: {"compaction.force-up-level-0": "true"},
    "lookup": {"changelog-producer": "lookup"},
    "lookup, equal pairs left out": {
        "changelog-producer": "lookup",
        "changelog-producer.row-deduplicate": "true",
    },
    "full-compaction": {"changelog-producer": "full-compaction"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
}
WHOLE, COLD, ABOVE = "whole", "above, first", "above"


def loaded(folder: Path, way: str, count: int) -> lsm.Table:
    """A table whose rows are all in the last level."""
    first = rows(np.arange(count), seed=1)
    options = UNCOMPACTED | {"compaction.max-size-amplification-percent": "10000"} | WAYS[way]
    table = new_table(folder, first.schema, options=options)
    table.upsert(first)
    table.compact(full=True)
    return table


def more(count: int, number: int, share: float) -> np.ndarray:
    """Keys of which half are in the last level, spread over all of it."""
    chance = np.random.default_rng(number)
    size = int(count * share)
    known = chance.choice(count, size // 2, replace=False)
    return np.sort(np.concatenate([known, count + number * count + np.arange(size - size // 2)]))


def measured(folder: Path, count: int, rounds: int, patience: float) -> Samples:
    """Every way, in turn, round by round."""
    warm_up(folder / "warm")
    samples = Samples()
    tables = {way: loaded(folder / f"above-{at}", way, count) for at, way in enumerate(WAYS)}
    del tables["full-compaction"]  # it looks nothing up
    for number in range(rounds + 1):
        new = rows(more(count, number, 0.05), seed=10 + number)
        for way, table in tables.items():
            table.upsert(new)
            wait_for_quiet(patience)
            with stopwatch() as spent:
                table.compact()
            samples.add(COLD if number == 0 else ABOVE, way, spent())
    for number in range(rounds):
        new = rows(more(count, number, 0.5), seed=50 + number)
        for at, way in enumerate(WAYS):
            table = loaded(folder / f"whole-{number}-{at}", way, count)
            table.upsert(new)
            wait_for_quiet(patience)
            with stopwatch() as spent:
                table.compact(full=True)
            samples.add(WHOLE, way, spent())
    return samples


def ratios_of(samples: Samples) -> list[Ratio]:
    """Each way against the plain one; the issue asks for the changelog of lookup."""
    return [
        samples.ratio(what, way, PLAIN, goal=GOAL if way == "lookup" and what != COLD else None)
        for what, way in samples.taken
        if way != PLAIN
    ]


def main() -> None:
    """Measure as the command line says."""
    given = arguments(__doc__, rows=5_000_000, rounds=6).parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-changelog-") as scratch:
        samples = measured(Path(scratch), given.rows, given.rounds, given.patience)
    report(
        "changelog_cost", ratios_of(samples), samples, facts={"rows": given.rows}, out=given.json
    )


if __name__ == "__main__":
    main()

"""Full compaction with each merge engine, against the same with deduplicate.

    python -m tests.bench.merge_engines                     # 10,000,000 rows
    python -m tests.bench.merge_engines --rows 1000000 --rounds 5

Five sorted runs, half of each later one's keys there already. Engines take turns within a
round, another one first each time; the rows that each leaves are counted.
"""

import tempfile
from pathlib import Path

import lsm_engine as lsm
from tests.bench.measure import Samples, arguments, report, rotated, stopwatch, wait_for_quiet
from tests.bench.rows import overlapping_runs
from tests.bench.tables import UNCOMPACTED, copied, new_table, warm_up

GOAL = 1.5
BASE = "deduplicate"
ENGINES = {
    BASE: {},
    "partial-update": {"merge-engine": "partial-update"},
    "partial-update, two sequence groups": {
        "merge-engine": "partial-update",
        "fields.a.sequence-group": "b,c,s",
        "fields.ts.sequence-group": "t,d,dec",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "sum",
        "fields.b.aggregate-function": "max",
        "fields.c.aggregate-function": "sum",
        "fields.ts.aggregate-function": "max",
        "fields.dec.aggregate-function": "sum",
        "fields.s.aggregate-function": "last_value",
    },
}
OVERLAP = 0.5


def tables(folder: Path, rows: int) -> dict[str, lsm.Table]:
    """A table of five runs for each engine; runs are made one at a time, as they are large."""
    made: dict[str, lsm.Table] = {}
    for run in overlapping_runs([rows // 5] * 5, OVERLAP):
        for number, (engine, options) in enumerate(ENGINES.items()):
            if engine not in made:
                options = {**UNCOMPACTED, **options}
                made[engine] = new_table(folder / str(number), run.schema, options=options)
            made[engine].upsert(run)
    return made


def main() -> None:
    """Measure as the command line says."""
    given = arguments(__doc__, rows=10_000_000, rounds=3).parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-engines-") as scratch:
        folder = Path(scratch)
        warm_up(folder / "warm")
        made = tables(folder, given.rows)
        samples, left = Samples(), {}
        for turn in range(given.rounds + 1):
            wait_for_quiet(given.patience)
            for engine, table in rotated(list(made.items()), turn):
                copy = lsm.open_table(str(copied(table, folder / "copy")))
                with stopwatch() as spent:
                    copy.compact(full=True)
                if turn:  # the first turn compiles what an engine needs
                    samples.add("full compaction", engine, spent())
                left[engine] = copy.scan().count()
        assert len(set(left.values())) == 1, left
        others = [engine for engine in ENGINES if engine != BASE]
        ratios = [samples.ratio("full compaction", one, BASE, goal=GOAL) for one in others]
        facts = {"rows": given.rows, "left": left[BASE]}
        report("merge_engines", ratios, samples, facts=facts, out=given.json)


if __name__ == "__main__":
    main()

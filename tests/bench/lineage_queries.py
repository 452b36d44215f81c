"""Do questions to the lineage stay below 100 ms at the median with a million file rows on SQLite?

    python -m tests.bench.lineage_queries --files 1000000

Files of 1,000 days are added by 500 commits and merged day by day by 500 compactions, ten into one;
every hundredth commit is tagged, each commit names an input. Each question is asked several times.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lsm_engine.catalog.lineage.facts import TagFacts
from lsm_engine.catalog.provenance import Input, Run
from lsm_engine.catalog.sql_catalog import SqlCatalog
from lsm_engine.format.tag import Tag
from lsm_engine.options.modes import CommitKind
from tests.bench.measure import Ratio, Samples, Seconds, arguments, report, wait_for_quiet
from tests.unit.catalog.stories import ORDERS, Story, add, data_file, drop

GOAL_SECONDS = 0.1
MERGED = 10


def filled(folder: Path, file_count: int, commits: int) -> tuple[SqlCatalog, list[str]]:
    """A catalog with so many file rows; returns the names of some merged files, too."""
    catalog = SqlCatalog.open(f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
    story = Story()
    per_commit = file_count * MERGED // (MERGED + 1) // commits
    merged = []
    for number in range(commits):
        day = f"dt={number:04}".encode()
        files = [data_file(f"f{number}-{at}") for at in range(per_commit)]
        run = Run(run_id=f"load-{number}", asset_key="shop/orders", dagster_run_id=f"d-{number}")
        made_from = Input(
            dataset="raw.orders", snapshot_id=number + 1, columns=(("price", "amount"),)
        )
        story.manifests = story.manifests[-20:]
        facts = story.commit(
            *(add(file, partition=day) for file in files), run=run, inputs=[made_from]
        )
        catalog.lineage.record(facts)
        if number % 100 == 0:
            tag = Tag(name=f"t{number}", snapshot=facts.snapshot)
            catalog.lineage.record(TagFacts(table=ORDERS, tag=tag))
        entries = []
        for at in range(0, per_commit - MERGED + 1, MERGED):
            # Keys do not overlap between groups, so that edges stay within them.
            made = data_file(f"m{number}-{at}", level=5, keys=(at, at + MERGED - 1))
            entries += [
                drop(data_file(f"f{number}-{at + one}", keys=(at + one, at + one)), partition=day)
                for one in range(MERGED)
            ]
            entries.append(add(made, partition=day))
            if at == 0:
                merged.append(made.file_name)
        compaction = Run(run_id=f"tidy-{number}", kind="compact")
        catalog.lineage.record(story.commit(*entries, kind=CommitKind.COMPACT, run=compaction))
    return catalog, merged


def questions(
    catalog: SqlCatalog, merged: list[str], commits: int
) -> dict[str, Callable[[], object]]:
    """What people ask."""
    ask, last, middle = catalog.lineage, 2 * commits, commits
    name, day = merged[len(merged) // 2], f"dt={commits // 2:04}"
    return {
        "life of a file": lambda: ask.life_of_file(ORDERS, name),
        "origin of a file": lambda: ask.origin_of_file(ORDERS, name),
        "run of a snapshot": lambda: ask.runs_of_snapshot(ORDERS, middle),
        "inputs of a snapshot": lambda: ask.upstream_of(ORDERS, middle),
        "inputs of all of a snapshot": lambda: ask.upstream_of(ORDERS, last, history=True),
        "made from a snapshot": lambda: ask.downstream_of(ORDERS, middle),
        "what expiry breaks": lambda: ask.impact_of_expiry(ORDERS, middle),
        "writer of a row": lambda: ask.writers_of(ORDERS, day, 0, [5]),
        "columns of a column": lambda: ask.columns(ORDERS, "price"),
        "origin of a tag": lambda: ask.origin_of_tag(ORDERS, "t0"),
        "live files of a day": lambda: ask.live_files_at(ORDERS, last, partition_path=day),
        "recent activity": lambda: ask.recent_activity(limit=50),
        "a run's snapshots": lambda: ask.snapshots_of_run(f"d-{commits // 2}"),
        "history of snapshots": lambda: ask.snapshots(ORDERS, limit=100),
    }


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=0, rounds=15)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--commits", type=int, default=500)
    given = parser.parse_args()
    samples = Samples(quiet=True)
    with tempfile.TemporaryDirectory(prefix="bench-lineage-") as scratch:
        started = time.monotonic()
        catalog, merged = filled(Path(scratch), given.files, given.commits)
        print(f"  filled in {time.monotonic() - started:.0f} s", flush=True)
        asked = questions(catalog, merged, given.commits)
        for what, ask in asked.items():
            wait_for_quiet(given.patience)
            for _ in range(given.rounds):
                wall, cpu = time.perf_counter(), time.process_time()
                ask()
                spent = Seconds(time.perf_counter() - wall, time.process_time() - cpu)
                samples.add(what, "lineage", spent)
            print(
                f"  {what}: {1000 * statistics.median(samples.of(what, 'lineage', 'wall')):.1f} ms"
            )
        catalog.close()
    ratios = [
        Ratio(
            what=what,
            name="seconds",
            rounds=tuple(samples.of(what, "lineage", "wall")),
            goal=GOAL_SECONDS,
        )
        for what in asked
    ]
    report("lineage_queries", ratios, samples, facts={"files": given.files}, out=given.json)


if __name__ == "__main__":
    main()

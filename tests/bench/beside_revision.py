"""Does an older revision of the engine take less CPU? Both do the same in turn, act by act, in one run.

    python -m tests.bench.beside_revision 299ab83 --rounds 7
    python -m tests.bench.beside_revision 299ab83 --commits 150

The revision is checked out beside, for the run; what it imports and this tree does not (tenacity) is found
by PYTHONPATH. Each side is a process of its own; the first round, in
which loops are compiled, does not count. A ratio is this tree's CPU by the other's.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.bench.rows import rows, two_runs
from tests.bench.tables import UNCOMPACTED, new_table, warm_up

ROOT = Path(__file__).parent.parent.parent
WARM_COMMITS = 180  # until manifests have been merged a few times
Acts = Iterator[tuple[str, Callable[[], object]]]


def acts_of_a_round(folder: Path, count: int) -> Acts:
    """What a table of a few hundred thousand rows is used for."""
    runs, update = two_runs(count), rows(np.arange(0, count, 3), seed=6)
    keys = runs[0].select(runs[0].schema.names[:1])

    def made(name: str, **options: str):
        return new_table(folder / name, update.schema, options={**UNCOMPACTED, **options})

    table = made("plain")
    vectors = made("vectors", **{"deletion-vectors.enabled": "true"})
    emits = made("emits", **{"changelog-producer": "lookup"})
    chosen = keys.take(np.random.default_rng(1).choice(keys.num_rows, 100_000))
    small = in_partitions(np.arange(count), 1)
    many = new_table(
        folder / "many",
        small.schema,
        key=("p", "k"),
        options={"bucket": "6", "write-only": "true"},
        partitioned_by=("p",),
    )
    few = in_partitions(np.random.default_rng(2).choice(2 * count, 2_000, replace=False), 2)
    yield "write", lambda: [table.upsert(run) for run in runs]
    yield "merge-read", lambda: table.scan().to_arrow()
    yield "full compaction", lambda: table.compact(full=True)
    yield "read after it", lambda: table.scan().to_arrow()
    yield "lookup of 100,000 keys, cold", lambda: table.lookup(chosen)
    yield "the same, warm", lambda: table.lookup(chosen)
    yield "one key, 200 times", lambda: [table.lookup(keys.slice(n, 1)) for n in range(200)]
    yield "upsert of a third", lambda: table.upsert(update)
    yield "plan, 30 times", lambda: [table.scan().plan for _ in range(30)]
    yield "vectors: load", lambda: [vectors.upsert(runs[0]), vectors.compact(full=True)]
    yield "vectors: upsert, compaction", lambda: [vectors.upsert(update), vectors.compact()]
    yield "vectors: read", lambda: vectors.scan().to_arrow()
    yield "changelog: load", lambda: [emits.upsert(runs[0]), emits.compact(full=True)]
    yield "changelog: upsert, compaction", lambda: [emits.upsert(update), emits.compact(full=True)]
    yield "25 commits of 10 rows", lambda: [table.upsert(update.slice(n, 10)) for n in range(25)]
    yield "expiry of 10 snapshots", lambda: table.expire_snapshots(older_than=None, retain_max=19)
    yield "300 buckets: load", lambda: many.upsert(small)
    yield "300 buckets: upsert of 2,000", lambda: many.upsert(few)
    yield "300 buckets: read", lambda: many.scan().to_arrow()


def in_partitions(numbers: np.ndarray, seed: int) -> pa.Table:
    """The rows of key numbers, in 50 partitions."""
    part = pa.field("p", pa.int32(), nullable=False)
    return rows(numbers, seed=seed).add_column(0, part, pa.array((numbers % 50).astype(np.int32)))


def commits(folder: Path, count: int) -> Acts:
    """Commits of few rows to tables with a catalog, and so with lineage."""
    made = {
        f"{kind}, {each} rows": (new_table(folder / f"{kind}{each}", ONE.schema, options=how), each)
        for kind, how in (("write-only", {"write-only": "true"}), ("default options", {}))
        for each in (1, 100)
    }
    chance = np.random.default_rng(11)
    for number in range(WARM_COMMITS + count):
        for name, (table, each) in made.items():
            batch = rows(chance.choice(20_000, each, replace=False), seed=number)
            if number < WARM_COMMITS:
                table.upsert(batch)
            else:
                yield name, lambda table=table, batch=batch: table.upsert(batch)


ONE = rows(np.arange(1), seed=0)


def one_side(folder: Path, rounds: int, count: int) -> None:
    """Do the next act at each line that comes in, and print its name and CPU seconds."""
    warm_up(folder / "warm")
    print("ready", flush=True)
    for number in range(rounds + 1 if rounds else 1):
        here = folder / str(number)
        for name, act in acts_of_a_round(here, count) if rounds else commits(here, count):
            sys.stdin.readline()
            spent = time.process_time()
            act()
            print(f"{number}\t{name}\t{time.process_time() - spent}", flush=True)
        shutil.rmtree(here)
    print("end", flush=True)


def measured(sides: list[subprocess.Popen[str]], skipped: int) -> dict[str, list[list[float]]]:
    """CPU of each act by name, of both sides, which take turns in who is first."""
    found: dict[str, list[list[float]]] = {}
    turn = 0
    while True:
        turn += 1
        for at in (0, 1) if turn % 2 else (1, 0):
            sides[at].stdin.write("\n")
            sides[at].stdin.flush()
            number, *told = sides[at].stdout.readline().strip().split("\t")
            if number == "end":
                return found
            if int(number) >= skipped:
                found.setdefault(told[0], [[], []])[at].append(1_000 * float(told[1]))


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--commits", type=int, help="measure so many commits of each kind instead")
    parser.add_argument("--side", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    rounds, count = (0, given.commits) if given.commits else (given.rounds, given.rows)
    if given.side:
        one_side(given.side, rounds, count)
        return
    with tempfile.TemporaryDirectory(prefix="beside-") as scratch:
        other = Path(scratch) / "revision"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(other), given.revision], check=True)
        sides = []
        try:
            for tree in (other, ROOT):
                own = tempfile.mkdtemp(dir=scratch)
                how = ["--commits", str(count)] if given.commits else ["--rows", str(count)]
                sides.append(
                    subprocess.Popen(
                        [sys.executable, __file__, given.revision, "--side", own,
                         "--rounds", str(rounds), *how],
                        cwd=tree, env={**os.environ, "PYTHONPATH": _search_path(tree)}, text=True,
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    )
                )  # fmt: skip
                assert sides[-1].stdout.readline() == "ready\n"
            found = measured(sides, 1 if rounds else 0)
        finally:
            for side in sides:
                side.kill()
            subprocess.run([*git, "remove", "--force", str(other)], check=True)
    print(f"| what | {given.revision}, ms | now, ms | median | mean |\n|---|---|---|---|---|")
    for name, (before, now) in found.items():
        ours, theirs = statistics.median(now), statistics.median(before)
        mean = statistics.mean(now) / statistics.mean(before)
        print(f"| {name} | {theirs:.1f} | {ours:.1f} | **{ours / theirs:.2f}** | {mean:.2f} |")


def _search_path(tree: Path) -> str:
    """A tree before all else, and what only an older one needs: `PYTHONPATH=/where/it/is`."""
    return os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])


if __name__ == "__main__":
    main()

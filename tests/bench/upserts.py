"""The upsert workload beside the engines that a Python user has: load, ten upserts, read, compact.

    python -m tests.bench.upserts                                   # 2,000,000 rows, all contenders
    python -m tests.bench.upserts --rows 200000 --only lance pypaimon-rust

A table is loaded, then ten batches of a tenth of its size arrive, half of each new keys and half
updates; then everything is read, compacted, read again, and single keys are looked up by a filter.
Every step is done by one contender after the other before the next begins, so that all of them meet
the same machine; each lives in a process and an environment of its own, and is timed inside it. What
each reads is compared with what the first one read.
"""

import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.bench.contenders import OURS, Contender, contenders
from tests.bench.measure import (
    Ratio,
    Samples,
    Seconds,
    arguments,
    report,
    wait_for_quiet,
)
from tests.bench.rows import rows, shuffled
from tests.bench.tables import megabytes

LOAD, UPSERT, READ, COMPACT, READ_AGAIN, LOOKUP = (
    "load", "upsert", "read before", "compact", "read after", "lookup",
)  # fmt: skip
BATCHES = 10
LOOKUPS = 20


class Workload:
    """The rows of all steps, as Arrow files."""

    def __init__(self, folder: Path, count: int) -> None:
        chance = np.random.default_rng(17)
        share = count // BATCHES
        numbers = chance.permutation(count + BATCHES * (share - share // 2))
        self.schema = rows(numbers[:1], seed=0).schema
        folder.mkdir()
        self.load = self._put(folder / "load.arrow", numbers[:count], 1)
        self.batches = []
        there = count
        for batch in range(BATCHES):
            again = chance.choice(there, share // 2, replace=False)
            fresh = np.arange(there, there + share - share // 2)
            there += len(fresh)
            chosen = numbers[np.concatenate([again, fresh])]
            self.batches.append(self._put(folder / f"{batch}.arrow", chosen, 2 + batch))
        self.row_count = there
        self.keys = [int(key) for key in numbers[chance.choice(there, LOOKUPS, replace=False)]]

    def _put(self, path: Path, numbers: np.ndarray, seed: int) -> Path:
        return put(path, shuffled(rows(numbers, seed=seed), seed))


def put(path: Path, table: pa.Table) -> Path:
    """Write rows to an Arrow file, which every contender can read."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return path


class Race:
    """Contenders doing the same steps in turn."""

    def __init__(self, everyone: list[Contender], folder: Path, work: Workload, *, is_small=False):
        self.everyone = everyone
        self.folder = folder
        self.work = work
        self.is_small = is_small
        self.samples = Samples(quiet=True)
        self.peaks: dict[str, float] = {}
        self.sizes: dict[str, dict[str, float]] = {}

    def run(self, patience: float) -> None:
        """All steps."""
        for one in self.everyone:
            one.open(self.folder_of(one), self.work.load, self.work.schema)
        self.each(patience, LOAD, lambda one: one.upsert(self.work.load))
        for batch in self.work.batches:
            self.each(patience, UPSERT, lambda one, batch=batch: one.upsert(batch))
        self.weigh("after the upserts")
        self.read(patience, READ)
        can = {one.title: False for one in self.everyone}

        def compact(one: Contender) -> bool:
            can[one.title] = one.compact()
            return can[one.title]

        self.each(patience, COMPACT, compact)
        able = [one for one in self.everyone if can[one.title]]
        self.read(patience, READ_AGAIN, able)
        for key in self.work.keys:
            self.each(0.0, LOOKUP, lambda one, key=key: expect(one, one.lookup(key), 1))
        self.weigh("at the end")

    def each(self, patience, what, act, who=None) -> None:
        """One step by one contender after the other; an answer of False means it has no such step."""
        for one in who or self.everyone:
            wait_for_quiet(patience) if patience else None
            if act(one) is False:
                continue
            spent = one.client.spent
            assert spent is not None
            self.samples.add(what, one.title, Seconds(spent.wall_seconds, spent.cpu_seconds))
            self.peaks[one.title] = (spent.peak_bytes or 0) / 1e6
            if not self.is_small and what != LOOKUP:
                print(f"  {what}: {one.title} {spent.wall_seconds:.2f} s", flush=True)

    def read(self, patience: float, what: str, who: list[Contender] | None = None) -> None:
        """Everyone reads everything; all must have read the same."""
        found: dict[str, tuple[int, int]] = {}

        def note(one: Contender) -> None:
            found[one.title] = tuple(one.read())

        self.each(patience, what, note, who)
        assert len(set(found.values())) <= 1, f"not all read the same: {found}"
        assert all(count == self.work.row_count for count, _ in found.values()), found

    def weigh(self, when: str) -> None:
        """Note the size of everyone's files."""
        for one in self.everyone:
            megs = megabytes(self.folder_of(one))
            self.sizes.setdefault(one.title, {})[when] = round(megs)

    def folder_of(self, one: Contender) -> Path:
        """Where that contender's table is."""
        return self.folder / one.title.replace(" ", "-").replace(",", "")


def expect(one: Contender, got: int, wanted: int) -> None:
    """Stop when a contender finds something else."""
    assert got == wanted, f"{one.title} found {got}, wanted {wanted}"


def raced(folder: Path, count: int, chosen: list[str] | None, patience: float) -> Race:
    """Warm everyone up with a small race, then race."""
    everyone = contenders(chosen)
    try:
        small = Race(
            everyone, folder / "small", Workload(folder / "small-rows", 2_000), is_small=True
        )
        small.run(0.0)
        race = Race(everyone, folder / "race", Workload(folder / "rows", count))
        race.run(patience)
    finally:
        for one in everyone:
            one.client.close()
    return race


def summary(race: Race) -> str:
    """Seconds of every step per contender, as a Markdown table."""
    lines = [
        "| | load s | ten upserts s | their cpu s | read before / after compaction s | compaction s "
        "| lookup p50 ms | MB after the upserts | peak MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in race.everyone:

        def total(what: str, kind: str = "wall", who: str = one.title) -> str:
            taken = race.samples.taken.get((what, who))
            return f"{sum(getattr(s, kind) for s in taken):.2f}" if taken else "-"

        lookups = race.samples.of(LOOKUP, one.title, "wall")
        lines.append(
            f"| {one.title} | {total(LOAD)} | **{total(UPSERT)}** | {total(UPSERT, 'cpu')} "
            f"| {total(READ)} / {total(READ_AGAIN)} | {total(COMPACT)} "
            f"| {1000 * statistics.median(lookups):.1f} "
            f"| {race.sizes[one.title]['after the upserts']:.0f} | {race.peaks[one.title]:.0f} |"
        )
    return "\n".join(lines)


def ratios(race: Race) -> list[Ratio]:
    """Upserts of each peer divided by ours, batch by batch: above 1 we are faster."""
    found = []
    for peer in race.everyone:
        if peer.title.startswith(OURS):
            continue
        for mine in (OURS, f"{OURS}, write-only"):
            for kind in ("wall", "cpu"):
                theirs = race.samples.of(UPSERT, peer.title, kind)
                ours = race.samples.of(UPSERT, mine, kind)
                found.append(
                    Ratio(
                        what=f"ten upserts, {mine}",
                        name=f"times as fast as {peer.title}, {kind}, all ten",
                        rounds=(sum(theirs) / sum(ours),),
                        goal=1.0 if kind == "wall" else None,
                        more_is_better=True,
                    )
                )
    return found


def main() -> None:
    """Race as the command line says."""
    parser = arguments(__doc__, rows=2_000_000, rounds=1)
    parser.add_argument("--only", nargs="+", help="beginnings of the peers' names")
    given = parser.parse_args()
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory(prefix="bench-upserts-") as scratch:
            race = raced(Path(scratch), given.rows, given.only, given.patience)
        print(f"\nround {number + 1}\n\n{summary(race)}")
        facts = {"rows": given.rows, "megabytes": race.sizes, "peak_megabytes": race.peaks}
        report("upserts", ratios(race), race.samples, facts=facts, out=given.json)


if __name__ == "__main__":
    main()

"""Commits of 1, 100 and 2,000 rows, loads, and deletes of half a table by key, beside other engines, in turn.

    python -m tests.bench.small_work                # 60 commits of each size, 1,000,000 rows to delete from
    python -m tests.bench.small_work --no-fsync     # as lance, delta-rs and pypaimon-rust, which force nothing to disk

Ours with default options, compactions inside. Every engine has a process and an environment of its own and is
timed inside it: CPU, as some force their files to disk and others do not. A ratio is ours by theirs: of commits
that of the medians, and of the 99th hundredths, of all of them.
"""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tests.bench.contenders import OURS, Contender, Driven, PaimonContender
from tests.bench.measure import Ratio, Samples, Seconds, arguments, report, rotated, wait_for_quiet
from tests.bench.rows import rows, shuffled
from tests.bench.upserts import put
from tests.interop.clients import RustClient

SIZES = (1, 100, 2_000)
KNOWN_ROWS = 10_000
LOAD, DELETE = "load", "delete of 50 %"
LANCE, DELTA, RUST = "lance 14.0.2", "deltalake 1.6.6", "pypaimon-rust 0.4.0"


def everyone(*, waits: bool) -> list[Contender]:
    """Ours first."""
    options = {} if waits else {"commit.fsync": "false"}
    return [
        Driven(OURS, "ours", options),
        Driven(LANCE, "lance"),
        Driven(DELTA, "deltalake"),
        PaimonContender(RUST, RustClient()),
    ]


def timed(who: Contender, samples: Samples, what: str, act: Callable[[], object]) -> None:
    """Do it and note what it took inside the process."""
    act()
    spent = who.client.spent
    assert spent is not None
    samples.add(what, who.title, Seconds(spent.wall_seconds, spent.cpu_seconds))


def commits(
    many: Sequence[Contender], folder: Path, samples: Samples, size: int, count: int
) -> None:
    """So many commits of a size, half of the rows updates, one engine after the other; eight do not count."""
    chance = np.random.default_rng(size)
    known = rows(np.arange(KNOWN_ROWS), seed=1)
    first = put(folder / f"{size}.arrow", known)
    for who in many:
        who.open(folder / f"{who.title[:5]}-{size}", first, known.schema)
        who.upsert(first)
    for number in range(count + 8):
        numbers = chance.choice(2 * KNOWN_ROWS, size, replace=False)
        batch = put(folder / f"{size}-{number}.arrow", rows(numbers, seed=number))
        taken = samples if number >= 8 else Samples(quiet=True)
        for who in rotated(many, number):
            timed(who, taken, of(size), partial(who.upsert, batch))


def deletes(
    many: Sequence[Contender], folder: Path, samples: Samples, count: int, rounds: int
) -> None:
    """Half of a table's rows deleted by random keys; the first round counts for nothing."""
    schema = rows(np.arange(1), seed=1).schema
    for turn in range(rounds + 1):
        numbers = np.random.default_rng(turn).permutation(count if turn else 10_000)
        given = rows(numbers, seed=1)
        load = put(folder / f"load-{turn}.arrow", given)
        keys = put(
            folder / f"keys-{turn}.arrow", shuffled(given.select(["k"])[: len(numbers) // 2], 3)
        )
        taken = samples if turn else Samples(quiet=True)
        for who in rotated(many, turn):
            who.open(folder / f"{who.title[:5]}-deletes-{turn}", load, schema)
            timed(who, taken, LOAD, partial(who.upsert, load))
            if isinstance(who, Driven):
                timed(who, taken, DELETE, partial(who.delete, keys))
                assert who.read()[0] == len(numbers) - len(numbers) // 2, who.title


def of(size: int) -> str:
    """What commits of a size are called."""
    return f"commit of {size:,} rows" if size > 1 else "commit of 1 row"


def ratios(samples: Samples) -> list[Ratio]:
    """Ours by each of the others."""
    found = []
    for what, who in samples.taken:
        if who == OURS:
            continue
        if what in (LOAD, DELETE):
            found.append(samples.ratio(what, OURS, who))
            continue
        for share in (50, 99):
            ours, theirs = (np.percentile(samples.of(what, w), share) for w in (OURS, who))
            name = f"{OURS} / {who}, cpu, p{share}"
            found.append(Ratio(what=what, name=name, rounds=(float(ours / theirs),), goal=0.8))
    return found


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=1_000_000, rounds=3)
    parser.add_argument("--commits", type=int, default=60, help="of each size, default 60")
    parser.add_argument("--no-fsync", action="store_true", help="wait for no disk")
    given = parser.parse_args()
    many = everyone(waits=not given.no_fsync)
    samples = Samples(quiet=True)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-small-") as scratch:
            for size in SIZES:
                wait_for_quiet(given.patience)
                commits(many, Path(scratch), samples, size, given.commits)
            wait_for_quiet(given.patience)
            deletes(many, Path(scratch), samples, given.rows, given.rounds)
    finally:
        for one in many:
            one.client.close()
    report("small_work", ratios(samples), samples, facts={"rows": given.rows}, out=given.json)


if __name__ == "__main__":
    main()

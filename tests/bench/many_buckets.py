"""Load, upserts and reads of 50 partitions of 6 buckets that hold little, beside pypaimon-rust, in turn.

    python -m tests.bench.many_buckets                  # 300,000 rows, upserts of 2,000
    python -m tests.bench.many_buckets --buckets 100    # 5,000 buckets in place of 300

Both write level-0 files only, each into tables of its own, in a process that has done so before; both are timed
inside their process. Rust reads what it wrote itself.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.bench.against_clients import OURS, RUST, check, in_client
from tests.bench.measure import Samples, arguments, report, stopwatch, wait_for_quiet
from tests.bench.rows import rows
from tests.bench.tables import new_table
from tests.interop.clients import RustClient

PARTITIONS, BUCKETS = 50, 6
UPSERTS, UPSERT_ROWS = 5, 2_000
LOAD, UPSERT, READ = "load", "upsert of 2,000 rows", "read, 6 runs"
GOAL = 1.0
KEY = ("p", "k")


def batches(count: int) -> Iterator[pa.Table]:
    """What is loaded, then the upserts, half of whose keys are there; rows in no order."""
    chance = np.random.default_rng(7)
    yield partitioned(chance.permutation(count), 0)
    for seed in range(1, UPSERTS + 1):
        yield partitioned(chance.choice(2 * count, UPSERT_ROWS, replace=False), seed)


def partitioned(numbers: np.ndarray, seed: int) -> pa.Table:
    """The rows of key numbers, each in its partition."""
    made = rows(numbers, seed=seed)
    part = pa.field("p", pa.int32(), nullable=False)
    return made.append_column(part, pa.array((numbers % PARTITIONS).astype(np.int32)))


def ours(folder: Path, count: int, samples: Samples, options: dict[str, str]) -> pa.Table:
    """Our turn."""
    given = list(batches(count))
    table = new_table(folder, given[0].schema, key=KEY, options=options, partitioned_by=("p",))
    for number, batch in enumerate(given):
        with stopwatch() as spent:
            table.upsert(batch)
        samples.add(UPSERT if number else LOAD, OURS, spent())
    for _ in range(2):
        with stopwatch() as spent:
            found = table.to_arrow()
        samples.add(READ, OURS, spent())
    return found


def theirs(
    client: RustClient, folder: Path, count: int, samples: Samples, options: dict[str, str]
) -> pa.Table:
    """The turn of the client."""
    given = list(batches(count))
    path = client.create(
        folder,
        "bench.t",
        given[0].schema,
        primary_key=KEY,
        partitioned_by=("p",),
        options=options,
    )
    for number, batch in enumerate(given):
        client.write(path, batch)
        samples.add(UPSERT if number else LOAD, RUST, in_client(client))
    for _ in range(2):
        found = client.read(path)
        samples.add(READ, RUST, in_client(client))
    return found


def measured(
    folder: Path, count: int, rounds: int, patience: float, *, buckets: int, waits: bool
) -> Samples:
    """Both in turn; the first turn is small and counts for nothing. `waits`: ours for the disk."""
    samples, options = Samples(), {"bucket": str(buckets), "write-only": "true"}
    own = options | {"commit.fsync": str(waits).lower()}
    with RustClient(timeout_seconds=1_800) as client:
        for turn in range(rounds + 1):
            wait_for_quiet(patience)
            taken, size = (samples, count) if turn else (Samples(quiet=True), 3_000)
            found = ours(folder / f"ours-{turn}", size, taken, own)
            wait_for_quiet(patience)
            check(OURS, found, theirs(client, folder / f"theirs-{turn}", size, taken, options))
    return samples


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=300_000, rounds=3)
    parser.add_argument("--no-fsync", action="store_true", help="wait for no disk, as rust does")
    parser.add_argument("--buckets", type=int, default=BUCKETS, help="of each partition")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-buckets-") as scratch:
        samples = measured(
            Path(scratch), given.rows, given.rounds, given.patience,
            buckets=given.buckets, waits=not given.no_fsync,
        )  # fmt: skip
        ratios = [samples.ratio(what, OURS, RUST, goal=GOAL) for what in (LOAD, UPSERT, READ)]
        report(
            "many_buckets",
            ratios,
            samples,
            facts={"rows": given.rows, "buckets": given.buckets},
            out=given.json,
        )


if __name__ == "__main__":
    main()

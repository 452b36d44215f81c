"""A read of a table with deletion vectors, against a plain Parquet scan of the same files.

    python -m tests.bench.vector_read                       # 10,000,000 rows, a twentieth deleted
    python -m tests.bench.vector_read --rows 1000000 --deleted 0.3

The rows lie at the deepest level; a share of the keys, spread over all of it, is then replaced, so
that vectors hide what was. All sides read all columns of the table, row group by row group, from the
same live files, and keep nothing, on one core; what a read of the table takes on all of them is told
beside it. The plain scan also sees the hidden rows. It does the same work where it verifies the pages'
checksums too, as a table does unless told otherwise; what that alone costs is told beside it.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lsm_engine as lsm
from tests.bench.measure import Samples, arguments, report, rotated, stopwatch, wait_for_quiet
from tests.bench.rows import rows
from tests.bench.tables import new_table, warm_up

GOAL = 1.15
WHAT, OURS, ON_ALL_CORES = "read", "deletion vectors", "deletion vectors, all cores"
PLAIN, UNCHECKED = "plain Parquet scan", "plain Parquet scan, checksums not verified"
OPTIONS = {"bucket": "1", "deletion-vectors.enabled": "true"}


def marked_table(folder: Path, count: int, share: float) -> lsm.Table:
    """A table of so many rows, of which a share is replaced by newer ones of higher levels."""
    table = new_table(folder, rows(np.arange(1), seed=1).schema, options=OPTIONS)
    table.upsert(rows(np.arange(count), seed=1))
    table.compact(full=True)
    replaced = np.sort(np.random.default_rng(2).choice(count, int(count * share), replace=False))
    table.upsert(rows(replaced, seed=3))
    return table


def live_files(table: lsm.Table) -> list[str]:
    """The Parquet files that a read of the table reads."""
    names = {file.file_name for split in table.scan().splits() for file in split.files}
    return [str(Path(table.location, "bucket-0", name)) for name in sorted(names)]


def plain(paths: list[str], columns: list[str], *, verify: bool) -> Iterator[pa.Table]:
    """Row groups of files, decoded on one thread each, as ours are."""
    for path in paths:
        with pq.ParquetFile(path, page_checksum_verification=verify) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=columns, use_threads=False)


def measured(table: lsm.Table, rounds: int, *, patience: float) -> tuple[Samples, dict[str, int]]:
    """All reads in turn, another one first each time, and how many rows each sees.

    The first turn counts for nothing.
    """
    paths, columns = live_files(table), list(table.schema.names)
    ways: list[tuple[str, Callable[[], Iterable[pa.Table | pa.RecordBatch]]]] = [
        (PLAIN, lambda: plain(paths, columns, verify=True)),
        (OURS, lambda: table.scan().to_batches()),
        (UNCHECKED, lambda: plain(paths, columns, verify=False)),
        (ON_ALL_CORES, lambda: table.scan().to_batches()),
    ]
    cores = os.sched_getaffinity(0)
    samples, seen = Samples(), {}
    for turn in range(rounds + 1):
        wait_for_quiet(patience)
        for name, read in rotated(ways, turn):
            os.sched_setaffinity(0, cores if name == ON_ALL_CORES else {min(cores)})
            with stopwatch() as spent:
                seen[name] = sum(some.num_rows for some in read())
            os.sched_setaffinity(0, cores)
            if turn:
                samples.add(WHAT, name, spent())
    return samples, seen


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=10_000_000, rounds=5)
    parser.add_argument("--deleted", type=float, default=0.05, help="share of rows, default 0.05")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-vectors-") as scratch:
        folder = Path(scratch)
        warm_up(folder / "warm")
        table = marked_table(folder / "t", given.rows, given.deleted)
        samples, seen = measured(table, given.rounds, patience=given.patience)
        assert seen[OURS] == given.rows, seen
        hidden = seen[PLAIN] - seen[OURS]
        assert hidden == int(given.rows * given.deleted), seen
        ratios = [
            samples.ratio(WHAT, OURS, PLAIN, goal=GOAL),
            samples.ratio(WHAT, ON_ALL_CORES, PLAIN, kind="wall"),
            samples.ratio(WHAT, OURS, UNCHECKED),
        ]
        facts = {"rows": given.rows, "hidden": hidden, "files": len(live_files(table))}
        report("vector_read", ratios, samples, facts=facts, out=given.json)


if __name__ == "__main__":
    main()

"""Reads of whole tables, compacted and of two runs, against PyArrow reading the same files, in turn.

    python -m tests.bench.read_plain                # 1,000,000 rows, and as many again that share two thirds

PyArrow reads the table's columns, row group by row group on one thread, and verifies the pages' checksums as a table
does; of two runs it reads both, and merges nothing.
"""

import tempfile
from functools import partial
from pathlib import Path

import lsm_engine as lsm
from tests.bench.measure import Samples, add_in_pairs, arguments, report
from tests.bench.rows import two_runs
from tests.bench.tables import copied, table_of_runs, warm_up
from tests.bench.vector_read import live_files, plain

TABLE, PLAIN = "table", "PyArrow, same files"
GOALS = {"read after compaction": 1.05, "read of 2 runs": 1.5}


def row_count(table: lsm.Table) -> int:
    """Read the table."""
    return sum(batch.num_rows for batch in table.scan().to_batches())


def plain_rows(paths: list[str], columns: list[str], expected: int) -> int:
    """Read the files; how many rows a read of the table has to give."""
    seen = sum(some.num_rows for some in plain(paths, columns, verify=True))
    assert seen >= expected, seen
    return expected


def main() -> None:
    """Measure as the command line says."""
    given = arguments(__doc__, rows=1_000_000, rounds=7).parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-read-") as scratch:
        folder = Path(scratch)
        warm_up(folder / "warm")
        merged = table_of_runs(folder / "runs", two_runs(given.rows))
        whole = lsm.open_table(str(copied(merged, folder / "whole")))
        whole.compact(full=True)
        count, columns = whole.scan().count(), list(whole.schema.names)
        pairs = [
            (
                (what, TABLE, partial(row_count, table)),
                (what, PLAIN, partial(plain_rows, live_files(table), columns, count)),
            )
            for what, table in zip(GOALS, (whole, merged), strict=True)
        ]
        samples = Samples()
        add_in_pairs(samples, pairs, given.rounds, patience=given.patience)
        ratios = [samples.ratio(what, TABLE, PLAIN, goal=goal) for what, goal in GOALS.items()]
        report("read_plain", ratios, samples, facts={"rows": given.rows}, out=given.json)


if __name__ == "__main__":
    main()

"""What Iceberg metadata costs: commits with it beside commits without, by turns; DuckDB's scan by it beside plain Parquet.

    python -m tests.bench.iceberg_cost --rounds 60 --trials 4

CPU of the process: medians of a trial, and the least of all trials. Every other commit replaces rows of before. Tables are made in memory where there is such a file system.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import lsm_engine as lsm
from tests.bench.commits_many_files import row_of
from tests.bench.many_files import many_files
from tests.engines.iceberg_readers import duckdb_rows, duckdb_with_iceberg, metadata_file

COLUMNS = {"k": "BIGINT", "v": "BIGINT", "s": "STRING"}
VECTORS = {"deletion-vectors.enabled": "true", "bucket": "1"}
EXACT = {"iceberg-compatibility.enabled": "true"}
VERSION_2 = EXACT | {"metadata.iceberg.format-version": "2"}
WARM_UP = 8


def rows(first: int, count: int) -> pa.Table:
    keys = pa.array(range(first, first + count), pa.int64())
    return pa.table({"k": keys, "v": keys, "s": [f"x{key % 1000}" for key in range(count)]})


def by_turns(acts: tuple[Callable[[int], object], ...], rounds: int) -> list[float]:
    """Return the median CPU seconds of each act, called by turns with the number of the round."""
    seconds: list[list[float]] = [[] for _ in acts]
    for number in range(rounds):
        order = range(len(acts)) if number % 2 else reversed(range(len(acts)))
        for place in order:
            began = time.process_time()
            acts[place](number)
            seconds[place].append(time.process_time() - began)
    return [statistics.median(taken[WARM_UP:]) for taken in seconds]


def writer(table: lsm.Table, batches: list[pa.Table]) -> Callable[[int], object]:
    return lambda number: table.upsert(batches[number])


def commits(count: int, given: argparse.Namespace, *, by_name: bool) -> None:
    """Commits to tables without the metadata, with version 3, and with version 2."""
    trials = []
    for _ in range(given.trials):
        with (
            tempfile.TemporaryDirectory(dir=given.memory) as folder,
            lsm.open_catalog(folder) as catalog,
        ):
            tables = []
            for name, options in (("without", {}), ("v3", EXACT), ("v2", VERSION_2)):
                table = catalog.create_table(
                    f"shop.{name}", COLUMNS, "k", options=VECTORS | options
                )
                tables.append(table if by_name else lsm.open_table(table.location))
            batches = [rows((number - number % 2) * count, count) for number in range(given.rounds)]
            acts = tuple(writer(table, batches) for table in tables)
            trials.append(by_turns(acts, given.rounds))
    plain, *shown = (min(seconds) for seconds in zip(*trials, strict=True))
    way = "by name" if by_name else "by path"
    texts = [f"{seconds * 1e3:.1f} ms, {seconds / plain:.2f}" for seconds in shown]
    print(
        f"commit of {count} rows {way}: {plain * 1e3:.1f} ms; version 3 {texts[0]}; version 2 {texts[1]}",
        flush=True,
    )


def scans(folder: Path, rounds: int) -> None:
    with lsm.open_catalog(str(folder)) as catalog:
        table = catalog.create_table("shop.scanned", COLUMNS, options=EXACT)
        for number in range(3):
            table.append(rows(number * 2_000_000, 2_000_000))
    assert duckdb_rows(table, "k < 10").num_rows == 10
    query = "SELECT count(*), sum(k), sum(v), max(s) FROM {}"
    files = [str(path) for path in Path(table.location).glob("bucket-*/*.parquet")]
    connection = duckdb_with_iceberg()
    assert connection is not None
    acts = (
        lambda _: connection.execute(query.format(f"read_parquet({files})")).fetchall(),
        lambda _: connection.execute(query.format(f"iceberg_scan('{metadata_file(table)}')")).fetchall(),
    )  # fmt: skip
    plain, shown = by_turns(acts, rounds)
    print(
        f"DuckDB's scan of 6,000,000 rows: {plain * 1e3:.0f}, {shown * 1e3:.0f} ms, {shown / plain:.2f}"
    )


def many_live_files(folder: Path, count: int, rounds: int) -> None:
    """Commits of one row, each to a new day, to tables of so many files, of which only the metadata exists."""
    vectors = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"}
    without, exact = (
        lsm.open_table(many_files(folder / name, count, **vectors).path)
        for name in ("without", "with")
    )
    exact.alter(*(lsm.SetOption(*option) for option in EXACT.items()))
    began = time.process_time()
    exact.upsert(row_of(rounds))
    first = time.process_time() - began
    without.upsert(row_of(rounds))
    batches = [row_of(number) for number in range(rounds)]
    plain, shown = by_turns((writer(without, batches), writer(exact, batches)), rounds)
    print(
        f"commit of 1 row to {count} files: {plain * 1e3:.1f}, {shown * 1e3:.1f} ms, {(shown - plain) * 1e3:.1f} ms more; "
        f"the first commit, which exports all files: {first:.1f} s"
    )


def main() -> None:
    """Print milliseconds without, and with, and their quotient."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--trials", type=int, default=4, help="of the commits")
    parser.add_argument("--files", type=int, default=100_000)
    given = parser.parse_args()
    given.memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for by_name in (True, False):
        for count in (1, 100, 10_000):
            commits(count, given, by_name=by_name)
    with tempfile.TemporaryDirectory(dir=given.memory) as folder:
        scans(Path(folder), given.rounds)
    with tempfile.TemporaryDirectory(dir=given.memory) as folder:
        many_live_files(Path(folder), given.files, given.rounds)


if __name__ == "__main__":
    main()

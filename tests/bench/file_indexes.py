"""What file indexes save readers and cost writers: `python -m tests.bench.file_indexes [rows] [files] [--hudi]`.

A filter keeps 0.01 % of the rows, by a column that is no key: `spread` has its rows in every file, `local` in one.
Bytes are those that the process read (`/proc/self/io`), seconds are CPU of all threads. The last lines are
delta-rs, which knows statistics of files and row groups alone, and with `--hudi` Hudi on Spark 3.5, by its statistics of
columns and then by a secondary index of each column, with the JVM's CPU and bytes. 10,000,000 rows in 500 files take some minutes and 5 GB below /tmp.
"""

import resource
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import lsm_engine as lsm
from tests.bench.spark_formats import Session
from tests.bench.tables import new_table

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False), ("spread", pa.int64()), ("local", pa.int64()),
        ("text", pa.string()), ("number", pa.float64()), ("more", pa.int64()),
    ]
)  # fmt: skip
PLAIN = {"bucket": "1", "write-only": "true"}
KINDS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    **{
        kind: {f"file-index.{kind}.columns": "spread,local"}
        for kind in ("bloom-filter", "bitmap", "bsi", "range-bitmap")
    },
}
VALUES = 10_000
ROUNDS = 5


def rows(number: int, count: int, file_count: int) -> pa.Table:
    """The rows of one file: keys in order, and values of which each is on one row in 10,000."""
    draw = np.random.default_rng(number)
    keys = np.arange(number * count, (number + 1) * count)
    own = number + file_count * draw.integers(0, VALUES // file_count, count)
    columns = [
        keys,
        draw.integers(0, VALUES, count) * 7919,
        own * 7919,
        pc.binary_join_element_wise(
            "row", pa.array(draw.integers(0, 10**9, count)).cast("string"), " "
        ),
        draw.random(count),
        draw.integers(0, 2**62, count),
    ]
    return pa.table(columns, schema=SCHEMA)


def cpu_seconds() -> float:
    """CPU of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def bytes_read() -> int:
    """Bytes that this process has read, from the disk or not."""
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["rchar"])


def filled(folder: Path, options: Mapping[str, str], count: int, file_count: int) -> lsm.Table:
    """A table of files side by side."""
    table = new_table(folder, SCHEMA, options={**PLAIN, **options})
    for number in range(file_count):
        table.upsert(rows(number, count, file_count))
    return table


def upsert_seconds(folder: Path, batches: Sequence[pa.Table]) -> Mapping[str, float]:
    """CPU seconds of the same upserts with one indexed column: the least of each type, which take turns."""
    least = dict.fromkeys(KINDS, float("inf"))
    for attempt in range(ROUNDS + 1):
        for kind in KINDS:
            options = {} if kind == "none" else {f"file-index.{kind}.columns": "spread"}
            table = new_table(folder / f"{kind}-{attempt}", SCHEMA, options={**PLAIN, **options})
            before = cpu_seconds()
            for batch in batches:
                table.upsert(batch)
            # The first round loads the compiled loops.
            if attempt:
                least[kind] = min(least[kind], cpu_seconds() - before)
    return least


Read = Callable[[str, int], int]
"""Reads the rows with a value of a column; how many there are."""


def reader_of(table: lsm.Table) -> Read:
    """A scan of ours."""
    return lambda column, value: table.scan(where=lsm.col(column) == value).to_arrow().num_rows


def delta_reader(folder: Path, count: int, file_count: int) -> Read:
    """The same files as a Delta table, and a query of it."""
    for number in range(file_count):
        write_deltalake(folder, rows(number, count, file_count), mode="append")

    def read(column: str, value: int) -> int:
        query = QueryBuilder().register("t", DeltaTable(folder))
        return pa.table(query.execute(f"SELECT * FROM t WHERE {column} = {value}")).num_rows

    return read


class HudiReader:
    """The same rows as a Hudi table on Spark, in a session of its own."""

    def __init__(self, folder: Path, count: int, file_count: int) -> None:
        self._session = Session("Hudi", folder / "table")
        (folder / "rows").mkdir()
        for number in range(file_count):
            pq.write_table(rows(number, count, file_count), folder / f"rows/{number}.parquet")
        self._session.ask("load_files", path=str(folder / "rows"), count=file_count)

    def index(self, column: str) -> None:
        """Give a column a secondary index."""
        self._session.ask("query", text=f"CREATE INDEX of_{column} ON t ({column})")

    def read(self, column: str, value: int) -> int:
        """How many rows have a value, all of whose columns are read."""
        query = (
            f"SELECT count(*), max(more), max(text), max(number) FROM t WHERE {column} = {value}"
        )
        ((row_count, *_),), _ = self._session.ask("query", text=query)
        return int(row_count)

    def spent(self) -> tuple[float, int]:
        """CPU seconds and bytes read of all processes of the session."""
        processes = [self._session.tree, *self._session.tree.children(recursive=True)]
        read = sum(process.io_counters().read_chars for process in processes)
        return self._session.cpu_seconds(), read

    def close(self) -> None:
        """End the session."""
        self._session.close()


Spent = Callable[[], tuple[float, int]]
"""CPU seconds and bytes read so far."""


def spent_here() -> tuple[float, int]:
    """Those of this process."""
    return cpu_seconds(), bytes_read()


def filtered(read_rows: Read, column: str, spent: Spent) -> tuple[int, float, int]:
    """Rows, CPU seconds and bytes of the best of three filters."""
    best = (0, float("inf"), 0)
    for attempt in range(3):
        value = (4321 + attempt) * 7919
        before, read = spent()
        row_count = read_rows(column, value)
        after, read_after = spent()
        best = min(best, (row_count, after - before, read_after - read), key=lambda facts: facts[1])
    return best


def print_hudi(folder: Path, count: int, file_count: int) -> None:
    """Print the lines of Hudi."""
    hudi = HudiReader(folder, count, file_count)
    try:
        for name in ("Hudi, statistics", "Hudi, index"):
            if name == "Hudi, index":
                hudi.index("spread")
                hudi.index("local")
            hudi.read("spread", 0)  # the JVM compiles what a filter needs
            print(f"{name:45}" + filters_text(hudi.read, hudi.spent), flush=True)
    finally:
        hudi.close()


def main(row_count: int = 2_000_000, file_count: int = 100, *, with_hudi: bool = False) -> None:
    """Print one line for each type of index."""
    count = row_count // file_count
    with tempfile.TemporaryDirectory() as folder:
        batches = [rows(number, count, file_count) for number in range(10)]
        spent = upsert_seconds(Path(folder) / "upserts", batches)
        for kind, options in KINDS.items():
            table = filled(Path(folder) / kind, options, count, file_count)
            sizes = sum(path.stat().st_size for path in Path(table.location).rglob("*.index"))
            head = f"{kind:13} upserts {spent[kind] / spent['none']:.2f}, indexes {sizes / 1e6:6.1f} MB"
            print(head + filters_text(reader_of(table)), flush=True)
        read = delta_reader(Path(folder) / "delta", count, file_count)
        print(f"{'delta-rs':45}" + filters_text(read), flush=True)
        if with_hudi:
            print_hudi(Path(folder) / "hudi", count, file_count)


def filters_text(read: Read, spent: Spent = spent_here) -> str:
    """What filters of both columns cost."""
    text = ""
    for column in ("spread", "local"):
        row_count, seconds, size = filtered(read, column, spent)
        text += f" | {column}: {row_count} rows, {1000 * seconds:7.1f} ms, {size / 1e6:7.1f} MB"
    return text


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:] if argument != "--hudi"]
    main(*numbers, with_hudi="--hudi" in sys.argv)

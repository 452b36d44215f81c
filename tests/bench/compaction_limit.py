"""Full compaction against the CPU of only decoding its input and encoding its output.

    python -m tests.bench.compaction_limit --rows 2000000 --rounds 5
    python -m tests.bench.compaction_limit --one-core                 # nothing side by side

The limit is PyArrow reading every row group of the input files and writing the very rows of the
result, with the same codec, level, dictionary columns, row groups, checksums and pages, and nothing
in between; key columns once, though files hold them twice. Where updates cluster, the limit is that of
the rows around them, a twentieth of the table; where keys only grow, it is copying the files.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lsm_engine as lsm
from tests.bench.measure import Samples, arguments, report, stopwatch, wait_for_quiet
from tests.bench.rows import COMPOSITE, SINGLE, TEXT, overlapping_runs, rows
from tests.bench.tables import copied, table_of_runs, warm_up


@dataclass(frozen=True)
class Case:
    """Sorted runs by their share of the rows, and how much of each later one is there already.

    `limit`: what the limit reads and writes; "touched": only row groups that others overlap.
    """

    name: str
    shares: tuple[float, ...]
    overlap: float
    key: tuple[str, ...] = SINGLE
    goal: float = 1.25
    limit: str = "all"

    def runs(self, count: int) -> list[pa.Table]:
        """The runs, ``count`` rows in all."""
        counts = [int(count * share) for share in self.shares]
        if self.limit == "all":
            return overlapping_runs(counts, self.overlap, key=self.key)
        if self.limit == "copied":
            firsts = np.cumsum([0, *counts[:-1]])
            return [rows(at + np.arange(n), seed=n) for at, n in zip(firsts, counts, strict=True)]
        # Every other row of the second run is new, and all lie in the middle of the first one.
        many, few = counts
        return [rows(2 * np.arange(many), seed=1), rows(many + np.arange(few), seed=2)]


EVEN = (0.2,) * 5
CASES = (
    Case("int key, 20 % overlap", EVEN, 0.2),
    Case("int key, 90 % overlap", EVEN, 0.9),
    Case("composite key, 20 % overlap", EVEN, 0.2, COMPOSITE, 1.35),
    Case("uuid key, 20 % overlap", EVEN, 0.2, TEXT, 1.4),
    Case("skewed runs, 50 % overlap", (0.8, 0.1, 0.05, 0.03, 0.02), 0.5),
    Case("clustered updates", (0.95, 0.05), 0.5, goal=1.5, limit="touched"),
    Case("growing keys", EVEN, 0.0, goal=2.0, limit="copied"),
)


def measured(case: Case, count: int, rounds: int, folder: Path, patience: float) -> Samples:
    """Limit and compaction of one case, in turn; the first turn counts for nothing."""
    warm_up(folder / "warm", key=case.key)
    table = table_of_runs(folder / "table", case.runs(count), key=case.key)
    inputs = data_files(Path(table.location))
    first = lsm.open_table(str(copied(table, folder / "first")))
    first.compact(full=True)
    outputs = [path for path in data_files(Path(first.location)) if path.name not in names(inputs)]
    touched = (
        None if case.limit == "all" else span_of(min(inputs, key=lambda path: path.stat().st_size))
    )
    result = [Encoded.of(path, touched) for path in outputs]
    samples = Samples()
    for turn in range(rounds + 1):
        wait_for_quiet(patience)
        taken = samples if turn else Samples(quiet=True)
        with stopwatch() as spent:
            if case.limit == "copied":
                for path in inputs:
                    shutil.copyfile(path, folder / "limit.parquet")
            else:
                decode(inputs, touched)
                for number, encoded in enumerate(result):
                    encoded.write(folder / f"limit-{number}.parquet")
        taken.add(case.name, "limit", spent())
        copy = lsm.open_table(str(copied(table, folder / "copy")))
        with stopwatch() as spent:
            copy.compact(full=True)
        taken.add(case.name, "compaction", spent())
    return samples


def data_files(location: Path) -> list[Path]:
    """The table's data files."""
    return sorted(location.rglob("data-*.parquet"))


def names(paths: Sequence[Path]) -> set[str]:
    """Their names."""
    return {path.name for path in paths}


Span = tuple[int, int]


def plain_columns(file: pq.ParquetFile) -> list[str]:
    """The columns of a file without the second copy of its keys."""
    return [name for name in file.schema_arrow.names if not name.startswith("_KEY_")]


def groups_in(file: pq.ParquetFile, span: Span | None) -> list[int]:
    """The row groups that hold keys of a span, by the statistics of `k`; None: all."""
    if span is None:
        return list(range(file.num_row_groups))
    at = file.schema_arrow.get_field_index("k")
    ends = [file.metadata.row_group(n).column(at).statistics for n in range(file.num_row_groups)]
    return [n for n, end in enumerate(ends) if end.min <= span[1] and end.max >= span[0]]


def span_of(path: Path) -> Span:
    """The least and the greatest `k` of a file."""
    keys = pc.min_max(pq.read_table(path, columns=["k"])["k"]).as_py()
    return keys["min"], keys["max"]


def decode(paths: Sequence[Path], span: Span | None) -> None:
    """Read all rows of all files, of a span of keys, and let go of them, on this thread."""
    for path in paths:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for group in groups_in(file, span):
                file.read_row_group(group, columns=plain_columns(file), use_threads=False)


@dataclass(frozen=True)
class Encoded:
    """The rows of a file that compaction wrote, in its row groups, and how it was written."""

    groups: tuple[pa.Table, ...]
    dictionaries: tuple[str, ...]
    codec: str

    @staticmethod
    def of(path: Path, span: Span | None) -> "Encoded":
        """Learn from a file; with a span of keys only from its row groups there."""
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            group = file.metadata.row_group(0)
            chunks = [group.column(at) for at in range(file.metadata.num_columns)]
            columns = plain_columns(file)
            return Encoded(
                groups=tuple(
                    file.read_row_group(at, columns=columns).combine_chunks()
                    for at in groups_in(file, span)
                ),
                dictionaries=tuple(
                    chunk.path_in_schema
                    for chunk in chunks
                    if chunk.has_dictionary_page and chunk.path_in_schema in columns
                ),
                codec=chunks[0].compression,
            )

    def write(self, path: Path) -> None:
        """Encode the same again with PyArrow alone."""
        if not self.groups:
            return
        with pq.ParquetWriter(
            path,
            self.groups[0].schema,
            compression=self.codec,
            compression_level=1 if self.codec == "ZSTD" else None,
            use_dictionary=list(self.dictionaries) or False,
            data_page_version="1.0",
            write_batch_size=16_384,
            store_schema=False,
            write_page_checksum=True,
            store_decimal_as_integer=True,
        ) as writer:
            for rows in self.groups:
                writer.write_table(rows, row_group_size=rows.num_rows)


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=2_000_000, rounds=5)
    parser.add_argument("--one-core", action="store_true", help="nothing side by side")
    parser.add_argument("--only", nargs="+", help="beginnings of the cases' names")
    given = parser.parse_args()
    if given.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="bench-compaction-") as scratch:
        folder = Path(scratch)
        samples = Samples()
        cases = [case for case in CASES if case.name.startswith(tuple(given.only or [""]))]
        for number, case in enumerate(cases):
            print(case.name, flush=True)
            one = measured(case, given.rows, given.rounds, folder / str(number), given.patience)
            samples.taken |= one.taken
        ratios = [samples.ratio(case.name, "compaction", "limit", goal=case.goal) for case in cases]
        report("compaction_limit", ratios, samples, facts={"rows": given.rows}, out=given.json)


if __name__ == "__main__":
    main()

"""Rows in no order loaded into an empty table, against sorting them and writing one plain Parquet file, in turn.

    python -m tests.bench.load_plain                # 1,000,000 rows of 9 columns, 2,000,000 of 2

The file has the table's compression, row groups and page checksums, and dictionaries where the engine would have
them; it has no second copy of the key, no sequence numbers and no kinds.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_engine.data_files.parquet_output import dictionary_columns
from lsm_engine.data_files.writer import ROW_GROUP_ROWS
from tests.bench.measure import Samples, arguments, report, rotated, stopwatch, wait_for_quiet
from tests.bench.rows import rows
from tests.bench.tables import new_table, warm_up

GOAL = 1.2
TABLE, PLAIN = "table", "sort + plain Parquet"


def narrow(numbers: np.ndarray) -> pa.Table:
    """A key and one value."""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    return pa.table({"k": numbers, "v": numbers % 1_000}, schema=schema)


def sorted_file(given: pa.Table, path: Path) -> None:
    """Write rows by key, as plain as the engine's own settings allow."""
    by_key = given.take(pc.sort_indices(given, sort_keys=[("k", "ascending")]))
    pq.write_table(
        by_key,
        path,
        compression="zstd",
        compression_level=1,
        use_dictionary=dictionary_columns(by_key) or False,
        row_group_size=ROW_GROUP_ROWS,
        store_decimal_as_integer=True,
        write_page_checksum=True,
    )


def measured(folder: Path, count: int, rounds: int, patience: float) -> Samples:
    """Both in turn; the first turn counts for nothing."""
    chance = np.random.default_rng(7)
    wide, thin = chance.permutation(count), chance.permutation(2 * count)
    shapes = {"9 columns": rows(wide, seed=1), "2 columns": narrow(thin)}
    samples = Samples()
    for turn in range(rounds + 1):
        for what, given in shapes.items():
            wait_for_quiet(patience)
            table = new_table(folder / f"{turn} {what}", given.schema)
            ways = {
                TABLE: lambda t=table, g=given: t.upsert(g),
                PLAIN: lambda g=given: sorted_file(g, folder / "plain.parquet"),
            }
            for who in rotated(list(ways), turn):
                with stopwatch() as spent:
                    ways[who]()
                if turn:
                    samples.add(what, who, spent())
    return samples


def main() -> None:
    """Measure as the command line says."""
    given = arguments(__doc__, rows=1_000_000, rounds=6).parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-load-") as scratch:
        warm_up(Path(scratch, "warm"))
        samples = measured(Path(scratch), given.rows, given.rounds, given.patience)
        names = dict.fromkeys(what for what, _ in samples.taken)
        ratios = [samples.ratio(what, TABLE, PLAIN, goal=GOAL) for what in names]
        report("load_plain", ratios, samples, facts={"rows": given.rows}, out=given.json)


if __name__ == "__main__":
    main()

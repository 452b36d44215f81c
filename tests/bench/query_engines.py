"""polars and DuckDB over a compacted table, against the same engine on plain Parquet with the same rows.

    python -m tests.bench.query_engines                     # 5,000,000 rows; 100 columns for the wide query

Every query is asked in turn of the table and of one Parquet file that pyarrow wrote of the same rows in the
same order, with row groups as large; another one first each time. The plan of a lazy frame or relation is
part of the time, as a user waits for it.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import lsm_engine as lsm
from tests.bench.measure import Samples, add_in_pairs, arguments, report
from tests.bench.tables import new_table, warm_up

GOAL = 1.2
WIDTH = 100
TABLE, PLAIN = "table", "plain Parquet"
# c4 is a number of 101 by turns: one per cent of the rows, in every page.
POLARS: Mapping[str, Callable[[pl.LazyFrame, int], pl.LazyFrame]] = {
    "filter on the key": lambda rows, n: rows.filter(pl.col("id").is_between(n // 2, n // 2 + 999)),
    "filter on a value": lambda rows, _: rows.filter(pl.col("c4") == 7),
    "three columns": lambda rows, _: rows.select("c1", "c50", "c98"),
    "group by": lambda rows, _: rows.group_by("c1").agg(pl.col("c2").sum()),
    "limit": lambda rows, _: rows.head(100),
}
DUCKDB: Mapping[str, str] = {
    "filter on the key": "select * from rows where id between {n} // 2 and {n} // 2 + 999",
    "filter on a value": "select * from rows where c4 = 7",
    "three columns": "select c1, c50, c98 from rows",
    "group by": "select c1, sum(c2) from rows group by c1",
    "limit": "select * from rows limit 100",
}


def wide_table(folder: Path, count: int, width: int = WIDTH) -> tuple[lsm.Table, Path]:
    """A table of a key and columns of whole numbers, after a full compaction; and its rows as a file."""
    names = [f"c{at}" for at in range(1, width)]
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), *((n, pa.int64()) for n in names)]
    )
    made = new_table(folder / "t", schema, key=["id"], options={"bucket": "1"})
    for start in range(0, count, 500_000):
        ids = np.arange(start, min(start + 500_000, count))
        values = [pa.array((ids * (at + 1)) % (97 + at)) for at in range(1, width)]
        made.upsert(pa.table([pa.array(ids), *values], schema=schema))
    made.compact(full=True)
    plain = folder / "plain.parquet"
    with pq.ParquetWriter(plain, schema, compression="zstd") as writer:
        for batch in made.scan().to_batches():
            writer.write_batch(batch)
    return made, plain


def queries(
    table: lsm.Table, plain: Path, count: int
) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Every query: what it is, whom it asks, and how."""
    for what, query in POLARS.items():
        yield f"polars: {what}", TABLE, lambda q=query: q(table.to_polars(), count).collect().height
        yield (
            f"polars: {what}",
            PLAIN,
            lambda q=query: q(pl.scan_parquet(plain), count).collect().height,
        )
    for what, text in DUCKDB.items():
        ask = text.format(n=count)
        yield f"DuckDB: {what}", TABLE, lambda q=ask: asked(q, lambda c: table.to_duckdb(c))
        yield (
            f"DuckDB: {what}",
            PLAIN,
            lambda q=ask: asked(q, lambda c: c.read_parquet(str(plain))),
        )


def asked(text: str, source: Callable[[duckdb.DuckDBPyConnection], Any]) -> int:
    """How many rows DuckDB gives for a query of `rows`."""
    with duckdb.connect() as connection:
        rows = source(connection)  # noqa: F841 -- DuckDB finds it by its name
        return connection.sql(text).to_arrow_table().num_rows


def measured(table: lsm.Table, plain: Path, count: int, rounds: int, *, patience: float) -> Samples:
    """All queries in turn, of the table and of the file."""
    samples = Samples()
    ways = list(queries(table, plain, count))
    pairs = list(zip(ways[::2], ways[1::2], strict=True))
    add_in_pairs(samples, pairs, rounds, patience=patience)
    return samples


def main() -> None:
    """Measure as the command line says."""
    given = arguments(__doc__, rows=5_000_000, rounds=5).parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-queries-") as scratch:
        warm_up(Path(scratch, "warm"))
        table, plain = wide_table(Path(scratch), given.rows)
        samples = measured(table, plain, given.rows, given.rounds, patience=given.patience)
        names = dict.fromkeys(what for what, _ in samples.taken)
        ratios = [samples.ratio(what, TABLE, PLAIN, kind="wall", goal=GOAL) for what in names]
        report("query_engines", ratios, samples, facts={"rows": given.rows}, out=given.json)


if __name__ == "__main__":
    main()

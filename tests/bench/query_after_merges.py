"""polars and DuckDB over a table that has not been compacted, against Delta after as many MERGEs.

    python -m tests.bench.query_after_merges                # 500,000 rows of 20 columns, 10 merges of 5,000

Both begin with the same rows and take the same batches, half of them updates: `upsert` here, MERGE by delta-rs
there. Neither is compacted by hand; ours compacts as it goes by default, with `--write-only` not at all. What
is measured after that is each query, with the plan of its frame or relation, in turn; and what the merges took.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import lsm_engine as lsm
from tests.bench.measure import Samples, add_in_pairs, arguments, report, stopwatch
from tests.bench.query_engines import DUCKDB, POLARS, asked
from tests.bench.tables import new_table, warm_up

GOAL = 1.0
WIDTH = 20
TABLE, DELTA = "table", "Delta"
NAMES = {"c50": "c10", "c98": "c18"}


def batch(ids: np.ndarray[Any, Any], turn: int) -> pa.Table:
    """Rows of some keys, with values that differ from one turn to the next."""
    values = [pa.array((ids * (at + 1) + turn) % (97 + at)) for at in range(1, WIDTH)]
    return pa.table([pa.array(ids), *values], names=["id", *(f"c{at}" for at in range(1, WIDTH))])


def merged(
    folder: Path, count: int, merges: int, changes: int, samples: Samples, *, write_only: bool
) -> tuple[lsm.Table, str]:
    """The table and the Delta table after all merges; what each merge took is added to the samples."""
    first = batch(np.arange(count), 0)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *list(first.schema)[1:]])
    options = {"bucket": "1", "write-only": str(write_only).lower()}
    table = new_table(folder / "t", schema, key=["id"], options=options)
    table.upsert(first.cast(schema))
    uri = str(folder / "delta")
    deltalake.write_deltalake(uri, first)
    chance = np.random.default_rng(7)
    for turn in range(1, merges + 1):
        old = chance.choice(count, changes // 2, replace=False)
        rows = batch(np.concatenate([old, count + turn * changes + np.arange(changes // 2)]), turn)
        with stopwatch() as spent:
            table.upsert(rows.cast(schema))
        samples.add("merge", TABLE, spent())
        with stopwatch() as spent:
            merge = deltalake.DeltaTable(uri).merge(
                rows, predicate="t.id = s.id", source_alias="s", target_alias="t"
            )
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        samples.add("merge", DELTA, spent())
    return table, uri


def queries(
    table: lsm.Table, uri: str, count: int
) -> Iterator[list[tuple[str, str, Callable[[], Any]]]]:
    """Every query of both."""
    for what, query in POLARS.items():
        if what == "three columns":
            query = lambda rows, _: rows.select("c1", *NAMES.values())  # noqa: E731
        yield [
            (
                f"polars: {what}",
                TABLE,
                lambda q=query: q(table.to_polars(), count).collect().height,
            ),
            (
                f"polars: {what}",
                DELTA,
                lambda q=query: q(pl.scan_delta(uri), count).collect().height,
            ),
        ]
    for what, text in DUCKDB.items():
        ask = text.format(n=count)
        for wide, narrow in NAMES.items():
            ask = ask.replace(wide, narrow)
        yield [
            (f"DuckDB: {what}", TABLE, lambda q=ask: asked(q, lambda c: table.to_duckdb(c))),
            (f"DuckDB: {what}", DELTA, lambda q=ask: asked(q, lambda c: _delta(c, uri))),
        ]


def _delta(connection: duckdb.DuckDBPyConnection, uri: str) -> Any:
    return connection.from_arrow(deltalake.DeltaTable(uri).to_pyarrow_dataset())


def main() -> None:
    """Measure as the command line says."""
    parser = arguments(__doc__, rows=500_000, rounds=6)
    parser.add_argument("--merges", type=int, default=10)
    parser.add_argument("--changes", type=int, default=5_000)
    parser.add_argument("--write-only", action="store_true")
    given = parser.parse_args()
    samples = Samples()
    with tempfile.TemporaryDirectory(prefix="bench-merges-") as scratch:
        warm_up(Path(scratch, "warm"))
        table, uri = merged(
            Path(scratch), given.rows, given.merges, given.changes, samples, write_only=given.write_only
        )  # fmt: skip
        pairs = list(queries(table, uri, given.rows))
        add_in_pairs(samples, pairs, given.rounds, patience=given.patience)
        names = dict.fromkeys(what for what, _ in samples.taken)
        ratios = [samples.ratio(what, TABLE, DELTA, kind="wall", goal=GOAL) for what in names]
        facts = {"rows": given.rows, "merges": given.merges, "changes": given.changes}
        report("query_after_merges", ratios, samples, facts=facts, out=given.json)


if __name__ == "__main__":
    main()

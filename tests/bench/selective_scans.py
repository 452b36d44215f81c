"""A scan with a filter that one per cent of the rows pass, beside polars, DataFusion and DuckDB on the same files.

    python -m tests.bench.selective_scans                # 3,000,000 rows of 9 columns, 1,000,000 of 100

The table has been compacted wholly; the other engines are given the very data files that its scan would read. All
columns of the rows that pass are asked for, as an Arrow table, in turn within each round; the ratio is by the engine
that took least CPU in that round.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import lsm_engine as lsm
from tests.bench.measure import (
    Ratio,
    Samples,
    arguments,
    report,
    rotated,
    stopwatch,
    wait_for_quiet,
)
from tests.bench.query_engines import wide_table
from tests.bench.rows import rows
from tests.bench.tables import new_table, warm_up

GOAL = 1.2
OURS = "lsm_engine"
NARROW = {
    "scattered": "a >= 500 and a < 510",
    "text": "s < 'name-10900' and s >= 'name-1'",
    "in one place": "k >= {low} and k < {high}",
    "nothing passes": "a = 5000",
}
WIDE = {
    "scattered": "c4 = 7",
    "in one place": "id >= {low} and id < {high}",
    "nothing passes": "c4 = 5000",
}
"""SQL that all four understand. Nothing passes: a value beyond the bounds of every row group."""


def narrow_table(folder: Path, count: int) -> lsm.Table:
    """Nine columns of mixed types, loaded in no order and compacted."""
    numbers = np.random.default_rng(3).permutation(count)
    parts = [rows(numbers[at : at + 500_000], seed=at) for at in range(0, count, 500_000)]
    made = new_table(folder, parts[0].schema, options={"bucket": "1"})
    for part in parts:
        made.upsert(part)
    made.compact(full=True)
    return made


def ways(table: lsm.Table, where: str) -> Iterator[tuple[str, Callable[[], pa.Table]]]:
    """Each engine, and how it is asked."""
    names = list(table.schema.names)
    apart = Path(table.location).with_name("live")  # DataFusion reads all that a folder has
    apart.mkdir(exist_ok=True)
    files = []
    for path in sorted(live_files(table)):
        files.append(str(apart / path.name))
        if not (apart / path.name).exists():
            os.link(path, files[-1])
    columns = ", ".join(f'"{name}"' for name in names)
    yield OURS, lambda: table.scan(where=where).to_arrow()
    yield "polars", lambda: by_polars(files, names, where)
    yield "DataFusion", lambda: by_datafusion(files, columns, where)
    yield "DuckDB", lambda: by_duckdb(files, columns, where)


def live_files(table: lsm.Table) -> Iterator[Path]:
    """The data files of the newest snapshot."""
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    live = {entry.file.file_name for entry in table.session.live_entries(snapshot)}
    return (path for path in Path(table.location).rglob("data-*") if path.name in live)


def by_polars(files: list[str], names: list[str], where: str) -> pa.Table:
    found = pl.scan_parquet(files).filter(pl.sql_expr(where)).select(names).collect()
    return found.to_arrow()


def by_datafusion(files: list[str], columns: str, where: str) -> pa.Table:
    context = datafusion.SessionContext()
    context.register_parquet("rows", str(Path(files[0]).parent))
    return context.sql(f"select {columns} from rows where {where}").to_arrow_table()


def by_duckdb(files: list[str], columns: str, where: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("set enable_progress_bar = false")
        asked = f"select {columns} from read_parquet({files!r}) where {where}"
        return connection.sql(asked).to_arrow_table()


def measured(
    samples: Samples,
    table: lsm.Table,
    shape: str,
    filters: dict[str, str],
    rounds: int,
    patience: float,
) -> Iterator[Ratio]:
    """Every filter in turn; the first turn counts for nothing, and all engines find as many rows."""
    count = table.count()
    low = count // 2
    for name, text in filters.items():
        where = text.format(low=low, high=low + count // 100)
        what = f"{shape}: {name}"
        engines = dict(ways(table, where))
        assert len({ask().num_rows for ask in engines.values()}) == 1, where
        for turn in range(rounds):
            wait_for_quiet(patience)
            for who in rotated(list(engines), turn):  # whoever is first finds the machine cold
                with stopwatch() as spent:
                    engines[who]()
                samples.add(what, who, spent())
        yield from by_the_best(samples, what, [who for who in engines if who != OURS])


def by_the_best(samples: Samples, what: str, peers: list[str]) -> Iterator[Ratio]:
    """Ours by the best of the others in each round, CPU and clock."""
    for kind in ("cpu", "wall"):
        best = [
            min(one) for one in zip(*(samples.of(what, who, kind) for who in peers), strict=True)
        ]
        taken = zip(samples.of(what, OURS, kind), best, strict=True)
        rounds = tuple(ours / theirs for ours, theirs in taken)
        yield Ratio(what=what, name=f"{OURS} / best, {kind}", rounds=rounds, goal=GOAL)


def main() -> None:
    """Measure as the command line says."""
    given = arguments(__doc__, rows=3_000_000, rounds=8).parse_args()
    samples, ratios = Samples(), []
    with tempfile.TemporaryDirectory(prefix="bench-selective-") as scratch:
        warm_up(Path(scratch, "warm"))
        shapes = (
            ("9 columns", narrow_table(Path(scratch, "narrow"), given.rows), NARROW),
            ("100 columns", wide_table(Path(scratch, "wide"), given.rows // 3)[0], WIDE),
        )
        for shape, table, filters in shapes:
            ratios += measured(samples, table, shape, filters, given.rounds, given.patience)
        report("selective_scans", ratios, samples, facts={"rows": given.rows}, out=given.json)


if __name__ == "__main__":
    main()

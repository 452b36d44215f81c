"""Tables of the same rows in every layout that files come in."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import lsm_engine as lsm
from lsm_engine.api.table import Table
from tests.engines.kinds import KINDS, Kind

KEY, PARTITION = "k", "p"
_VECTORS = {"deletion-vectors.enabled": "true"}
_ROWS_PER_FILE = 8
"""So few that statistics leave files out."""
_ROWS_PER_GROUP = 4


def rows_of(kinds: Sequence[Kind] = KINDS) -> pa.Table:
    """Return rows in which every value of each type is twice or more, and null too, in no order."""
    count = 2 * (max(len(kind.values) for kind in kinds) + 1)
    keys = pa.array(range(count), pa.int32())
    columns = {KEY: keys, PARTITION: pa.array(["1", "02", None, "a b/c"] * count).slice(0, count)}
    dice = random.Random("rows")
    for kind in kinds:
        values = [*kind.values, None] * count
        drawn = values[:count]
        dice.shuffle(drawn)
        columns[kind.name] = kind.array(drawn)
    return pa.table(columns)


def _created(catalog: lsm.Catalog, name: str, kinds: Sequence[Kind], **options: str) -> Table:
    texts = {key.replace("_", "-"): text for key, text in options.items()}
    columns = {KEY: "INT NOT NULL", PARTITION: "STRING", **{kind.name: kind.sql for kind in kinds}}
    table: Table = catalog.create_table(
        f"a.{name}", columns, primary_key=KEY, options={"write-only": "true", **texts}
    )
    return table


def _upserted(table: Table, rows: pa.Table) -> Table:
    """Write rows in several runs, some of them twice, and delete two that were never meant to stay."""
    stale = rows.slice(0, rows.num_rows // 2)
    moved = stale.set_column(0, KEY, pa.array(range(1, stale.num_rows + 1), pa.int32()))
    table.upsert(moved)
    extra = rows.slice(0, 2).set_column(0, KEY, pa.array([1000, 1001], pa.int32()))
    for part in (extra, *_parts(rows)):
        table.upsert(part)
    table.delete([{KEY: 1000}, {KEY: 1001}])
    return table


def _parts(rows: pa.Table, size: int = _ROWS_PER_FILE) -> Iterator[pa.Table]:
    return (rows.slice(first, size) for first in range(0, rows.num_rows, size))


def one_run(catalog: lsm.Catalog, rows: pa.Table, kinds: Sequence[Kind]) -> Table:
    table = _created(catalog, "one_run", kinds)
    table.upsert(rows)
    return table


def several_runs(catalog: lsm.Catalog, rows: pa.Table, kinds: Sequence[Kind]) -> Table:
    return _upserted(_created(catalog, "several_runs", kinds), rows)


def compacted(catalog: lsm.Catalog, rows: pa.Table, kinds: Sequence[Kind]) -> Table:
    table = _upserted(_created(catalog, "compacted", kinds), rows)
    table.compact(full=True)
    return table


def vectors(catalog: lsm.Catalog, rows: pa.Table, kinds: Sequence[Kind]) -> Table:
    table = _upserted(_created(catalog, "vectors", kinds, **_VECTORS), rows)
    table.compact(full=True)
    table.upsert(rows.slice(0, 3))
    table.compact()
    return table


def partitioned(catalog: lsm.Catalog, rows: pa.Table, kinds: Sequence[Kind]) -> Table:
    """Directories of partitions look like those that engines take values from."""
    columns = {KEY: "INT", PARTITION: "STRING", **{kind.name: kind.sql for kind in kinds}}
    table = catalog.create_table("a.partitioned", columns, partitioned_by=PARTITION)
    table.append(rows)
    return table


def append(catalog: lsm.Catalog, rows: pa.Table, kinds: Sequence[Kind]) -> Table:
    columns = {KEY: "INT", PARTITION: "STRING", **{kind.name: kind.sql for kind in kinds}}
    table = catalog.create_table("a.append", columns, options={"write-only": "true"})
    for part in _parts(rows):
        table.append(part)
    return table


def _by_arrow(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, row_group_size=_ROWS_PER_GROUP)


def _by_arrow_v2(rows: pa.Table, path: Path) -> None:
    pq.write_table(
        rows,
        path,
        row_group_size=5,
        data_page_version="2.0",
        write_statistics=False,
        store_schema=False,
    )


def _by_arrow_in_seconds(rows: pa.Table, path: Path) -> None:
    """Arrow's own schema in the footer says seconds, where Parquet has milliseconds."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_temporal(field.type) and getattr(field.type, "unit", None) == "ms":
            zone = getattr(field.type, "tz", None)
            whole = pa.time32("s") if pa.types.is_time(field.type) else pa.timestamp("s", zone)
            rows = rows.set_column(at, field.name, rows[field.name].cast(whole, safe=False))
    pq.write_table(rows, path, row_group_size=_ROWS_PER_GROUP)


def _by_arrow_as_spark(rows: pa.Table, path: Path) -> None:
    """Times in INT96, as Spark wrote them by default for years."""
    pq.write_table(
        rows,
        path,
        use_deprecated_int96_timestamps=True,
        row_group_size=_ROWS_PER_GROUP,
        store_schema=False,
    )


def _by_polars(rows: pa.Table, path: Path) -> None:
    pl.from_arrow(rows).write_parquet(path, row_group_size=_ROWS_PER_GROUP)


def _by_duckdb(rows: pa.Table, path: Path) -> None:
    with duckdb.connect() as connection:
        connection.from_arrow(rows).write_parquet(str(path))


def _linked(write: Callable[[pa.Table, Path], None]) -> Callable[..., Table]:
    def linked(catalog: lsm.Catalog, rows: pa.Table, kinds: Sequence[Kind]) -> Table:
        name = write.__name__.removeprefix("_")
        folder = Path(catalog.warehouse) / "others"
        folder.mkdir(exist_ok=True)
        kinds = list(kinds)
        while True:
            columns = {KEY: "INT", PARTITION: "STRING", **{kind.name: kind.sql for kind in kinds}}
            table = catalog.create_table(f"a.{name}{len(kinds)}", columns)
            paths = []
            for at, part in enumerate(_parts(rows.select([*columns]), 12)):
                paths.append(folder / f"{name}-{at}-{len(kinds)}.parquet")
                write(part, paths[-1])
            try:
                table.add_files(paths)
            except lsm.InvalidInputError as refused:
                kinds = [kind for kind in kinds if kind.name != refused.facts["column"]]
                continue
            return table

    return linked


LAYOUTS: dict[str, Callable[[lsm.Catalog, pa.Table, Sequence[Kind]], Table]] = {
    "one run": one_run,
    "several runs": several_runs,
    "compacted": compacted,
    "vectors": vectors,
    "append": append,
    "partitioned": partitioned,
    "linked, by Arrow": _linked(_by_arrow),
    "linked, by Arrow in seconds": _linked(_by_arrow_in_seconds),
    "linked, by Arrow, pages v2": _linked(_by_arrow_v2),
    "linked, as Spark": _linked(_by_arrow_as_spark),
    "linked, by polars": _linked(_by_polars),
    "linked, by DuckDB": _linked(_by_duckdb),
}

"""Parquet files of others taken over by links: what they hold comes out, and what does not fit is refused."""

import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lsm_engine as lsm

COUNT = 300
ROWS = pa.table(
    {
        "id": pa.array(range(COUNT), pa.int64()),
        "name": [f"n{n}" if n % 7 else None for n in range(COUNT)],
        "x": [float(n) if n % 5 else float("nan") for n in range(COUNT)],
        "price": pa.array([Decimal(n) / 100 for n in range(COUNT)], pa.decimal128(10, 2)),
        "at": pa.array([n * 1_000_000 for n in range(COUNT)], pa.timestamp("us")),
        "zoned": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * COUNT, pa.timestamp("us", "UTC")),
        "day": [date(2024, 1, 1 + n % 28) for n in range(COUNT)],
        "tags": [[n, None] for n in range(COUNT)],
    }
)


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as opened:
        yield opened


def written(folder: Path) -> list[Path]:
    """The same rows as several libraries write them."""
    pq.write_table(ROWS, folder / "arrow.parquet", row_group_size=100)
    pq.write_table(
        ROWS.select(ROWS.column_names[::-1]), folder / "turned.parquet", compression="gzip"
    )
    pl.from_arrow(ROWS).write_parquet(folder / "polars.parquet")
    with duckdb.connect() as connection:
        connection.from_arrow(ROWS).write_parquet(str(folder / "duckdb.parquet"))
    return sorted(folder.glob("*.parquet"))


def test_files_of_others_are_linked_and_read_as_their_rows(catalog, tmp_path):
    table = catalog.create_table("a.t", ROWS.schema)
    files = written(tmp_path)
    assert len(files) == 4
    made = table.add_files(files)
    assert made is not None
    assert table.count() == COUNT * len(files)
    expected = pl.from_arrow(ROWS)
    for snapshot, file in enumerate(files):
        alone = catalog.create_table(f"a.t{snapshot}", ROWS.schema)
        alone.add_files(str(file))
        assert pl.from_arrow(alone.to_arrow()).equals(expected), file
        assert alone.to_polars().collect().equals(expected), file
    assert table.count("id = 7") == table.count("price = 0.07") == len(files)
    assert table.count("name is null") == 43 * len(files)
    assert table.count("x > 10") == 232 * len(files)  # bounds of floats are not believed: NaN
    assert all(os.stat(file).st_nlink == 3 for file in files)
    assert table.verify(deep=True).is_clean


def test_linked_files_are_the_tables_own_when_it_goes_on(catalog, tmp_path):
    table = catalog.create_table("a.t", ROWS.schema, options={"deletion-vectors.enabled": "true"})
    pq.write_table(ROWS, tmp_path / "old.parquet")
    before = (tmp_path / "old.parquet").read_bytes()
    table.add_files(tmp_path / "old.parquet")
    table.append(ROWS.slice(0, 10))
    table.delete(where="id < 5")
    assert table.count() == COUNT
    table.compact(full=True)
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert (tmp_path / "old.parquet").read_bytes() == before
    (tmp_path / "old.parquet").unlink()
    assert table.count() == COUNT
    assert table.verify(deep=True).is_clean


def test_a_changed_original_is_noticed(catalog, tmp_path):
    table = catalog.create_table("a.t", ROWS.schema)
    pq.write_table(ROWS, tmp_path / "old.parquet")
    table.add_files(tmp_path / "old.parquet")
    with open(tmp_path / "old.parquet", "r+b") as file:
        file.seek(200)
        file.write(b"\0\0\0\0")
    assert not table.verify(deep=True).is_clean


def test_a_link_is_young_to_a_search_for_orphans(catalog, tmp_path):
    table = catalog.create_table("a.t", ROWS.schema)
    pq.write_table(ROWS, tmp_path / "old.parquet")
    os.utime(tmp_path / "old.parquet", (1, 1))
    table.add_files(tmp_path / "old.parquet")
    (linked,) = Path(table.location, "bucket-0").iterdir()
    assert linked.stat().st_mtime > 1_000_000


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (ROWS.drop_columns("name"), "'name' is not in the file"),
        (ROWS.append_column("more", ROWS["id"]), "'more' is not in the table"),
        (ROWS.set_column(0, "id", ROWS["id"].cast(pa.int32())), "'id' is stored as int32"),
        (
            ROWS.set_column(3, "price", ROWS["price"].cast(pa.decimal128(12, 2))),
            "'price' is stored as",
        ),
        (
            ROWS.set_column(1, "name", ROWS["name"].dictionary_encode()),
            "'name' is stored as dictionary",
        ),
        (
            ROWS.set_column(4, "at", ROWS["at"].cast(pa.timestamp("ms"))),
            "'at' is stored as timestamp",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_its_column(catalog, tmp_path, rows, named):
    table = catalog.create_table("a.t", ROWS.schema)
    pq.write_table(ROWS, tmp_path / "a.parquet")
    pq.write_table(rows, tmp_path / "b.parquet")
    with pytest.raises(lsm.InvalidInputError, match=named) as refused:
        table.add_files([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert "b.parquet" in str(refused.value)
    assert table.count() == 0
    assert not list(Path(table.location).rglob("*.parquet"))


def test_nulls_and_fine_times_are_refused_where_readers_would_not_take_them(catalog, tmp_path):
    strict = catalog.create_table("a.strict", {"id": "BIGINT NOT NULL"})
    pq.write_table(pa.table({"id": [1, None]}), tmp_path / "null.parquet")
    with pytest.raises(lsm.InvalidInputError, match="may be null"):
        strict.add_files(tmp_path / "null.parquet")
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "full.parquet")
    strict.add_files(tmp_path / "full.parquet")
    assert strict.count() == 2
    fine = pa.table({"t": pa.array([1], pa.timestamp("ns"))})
    times = catalog.create_table("a.times", fine.schema)
    pq.write_table(fine, tmp_path / "fine.parquet")
    with pytest.raises(lsm.InvalidInputError, match="nanoseconds"):
        times.add_files(tmp_path / "fine.parquet")
    pq.write_table(fine, tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    times.add_files(tmp_path / "int96.parquet")
    assert times.to_arrow().equals(fine)


def test_columns_whose_names_hold_dots_are_told_apart(catalog, tmp_path):
    strict = catalog.create_table(
        "a.t", {"a": "ROW<x INT, y INT>", "a.b": "BIGINT NOT NULL", "a.t": "TIMESTAMP(9)"}
    )
    rows = pa.table({
        "a": [{"x": 1, "y": 2}, None], "a.b": [1, 2],
        "a.t": pa.array([1, 2], pa.timestamp("ns")),
    }, schema=pa.schema([
        ("a", pa.struct([("x", pa.int32()), ("y", pa.int32())])), ("a.b", pa.int64()),
        ("a.t", pa.timestamp("ns")),
    ]))  # fmt: skip
    times = {"use_deprecated_int96_timestamps": True}
    pq.write_table(rows, tmp_path / "plain.parquet")
    with pytest.raises(lsm.InvalidInputError, match=r"'a\.t' is stored as whole nanoseconds"):
        strict.add_files(tmp_path / "plain.parquet")
    missing = rows.set_column(1, "a.b", pa.array([1, None]))
    pq.write_table(missing, tmp_path / "null.parquet", **times)
    with pytest.raises(lsm.InvalidInputError, match=r"'a\.b' may be null"):
        strict.add_files(tmp_path / "null.parquet")
    pq.write_table(rows, tmp_path / "good.parquet", **times)
    strict.add_files(tmp_path / "good.parquet")
    assert strict.to_arrow().to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("kind", ["VARCHAR(3)", "CHAR(3)", "BINARY(3)", "VARBINARY(3)"])
def test_a_column_with_a_length_is_refused(catalog, tmp_path, kind):
    table = catalog.create_table("a.t", {"s": kind})
    long = b"too long" if "BINARY" in kind else "too long"
    pq.write_table(pa.table({"s": [long]}), tmp_path / "a.parquet")
    with pytest.raises(lsm.InvalidInputError, match="lengths of values"):
        table.add_files(tmp_path / "a.parquet")
    assert not list(Path(table.location).rglob("*.parquet"))


def test_a_file_that_is_replaced_meanwhile_is_not_added(catalog, tmp_path, monkeypatch):
    table = catalog.create_table("a.t", {"id": int})
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": list(range(10))}), tmp_path / "newer.parquet")
    link = os.link

    def replaced_first(source, target, **more):
        os.replace(tmp_path / "newer.parquet", tmp_path / "a.parquet")
        link(source, target, **more)

    monkeypatch.setattr(os, "link", replaced_first)
    with pytest.raises(lsm.StorageError, match="replaced while"):
        table.add_files(tmp_path / "a.parquet")
    monkeypatch.undo()
    assert table.count() == 0
    assert not list(Path(table.location).rglob("*.parquet"))


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"primary_key": "id"}, "primary key"),
        ({"partitioned_by": "id"}, "partitioned"),
        ({"options": {"bucket": "2", "bucket-key": "id"}}, "fixed buckets"),
        ({"options": {"row-tracking.enabled": "true"}}, "row-tracking"),
    ],
)
def test_tables_whose_files_are_more_than_rows_are_refused(catalog, tmp_path, how, named):
    table = catalog.create_table("a.t", {"id": int}, **how)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(lsm.UnsupportedError, match=named):
        table.add_files(tmp_path / "a.parquet")
    assert not list(Path(table.location).rglob("*.parquet"))


def test_no_rows_no_commit_and_what_is_no_file_is_named(catalog, tmp_path):
    table = catalog.create_table("a.t", {"id": int})
    pq.write_table(table.schema.arrow.empty_table(), tmp_path / "empty.parquet")
    assert table.add_files([tmp_path / "empty.parquet"]) is None
    assert table.add_files([]) is None
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(lsm.InvalidInputError, match=r"text\.parquet"):
        table.add_files(tmp_path / "text.parquet")
    with pytest.raises(lsm.NotFoundError, match=r"none\.parquet"):
        table.add_files(tmp_path / "none.parquet")
    with pytest.raises(lsm.InvalidInputError, match="paths"):
        table.add_files([7])


def test_a_repeated_commit_adds_nothing(catalog, tmp_path):
    table = catalog.create_table("a.t", {"id": int})
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    for _ in range(2):
        table.add_files(tmp_path / "a.parquet", commit_user="once", commit_identifier=1)
    assert table.count() == 1


def test_a_disk_that_links_nothing_leaves_nothing_behind(catalog, tmp_path, monkeypatch):
    table = catalog.create_table("a.t", {"id": int})
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"{name}.parquet")
    link = os.link

    def refuse(source, target, **more):
        if source.endswith("b.parquet"):
            raise OSError(18, "Invalid cross-device link")
        link(source, target, **more)

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(lsm.StorageError, match="without --link"):
        table.add_files([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    monkeypatch.undo()
    assert table.count() == 0
    assert not list(Path(table.location).rglob("*.parquet"))

"""Scans with file indexes: the rows are those without, whatever the filter, and files that hold no match stay closed."""

import itertools
import logging
import os
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.table.bucket_context import BucketContext
from tests.bench.tables import new_table

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False), ("few", pa.int32()), ("many", pa.int64()),
        ("text", pa.string()), ("ratio", pa.float64()), ("price", pa.decimal128(9, 2)),
        ("moment", pa.timestamp("us")), ("flag", pa.bool_()), ("small", pa.int8()),
        ("day", pa.date32()), ("never", pa.int32()),
    ]
)  # fmt: skip
INDEXES = {
    "file-index.bloom-filter.columns": "many, text, ratio, never",
    "file-index.bitmap.columns": "few,flag,text,ratio,never",
    "file-index.bsi.columns": "many,price,small,day,never",
    "file-index.range-bitmap.columns": "few,moment,ratio,text,never",
    "file-index.range-bitmap.text.chunk-size": "20 b",
}
KEPT = {"bucket": "1", "num-sorted-run.compaction-trigger": "100", **INDEXES}
TABLES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "merged": (("k",), KEPT),
    "embedded": (("k",), {**KEPT, "file-index.in-manifest-threshold": "1 mb"}),
    "vectors": (("k",), {**KEPT, "deletion-vectors.enabled": "true"}),
    "first_row": (("k",), {**KEPT, "merge-engine": "first-row"}),
    "partial_update": (("k",), {**KEPT, "merge-engine": "partial-update"}),
    "append": ((), {**INDEXES}),
    "orc": (("k",), {**KEPT, "file.format": "orc"}),
}  # fmt: skip


def some_rows(draw: random.Random, count: int, keys: int) -> pa.Table:
    """Rows of distinct keys, with nulls, zeros of both signs, NaN, blanks, times before 1970, and a column of nulls."""

    def values(make: Any) -> list[Any]:
        return [None if draw.random() < 0.1 else make() for _ in range(count)]

    columns = [
        sorted(draw.sample(range(keys), count)),
        values(lambda: draw.randrange(5)),
        values(lambda: draw.choice([draw.randrange(-40, 40), draw.randrange(-(2**60), 2**60)])),
        values(
            lambda: draw.choice(
                ["", " ", "a", "a ", "ab", "abc", "a\0", "\U0001f600", f"{draw.randrange(99)}"]
            )
        ),
        values(lambda: draw.choice([-0.0, 0.0, 1.5, -2.5, float("nan"), float("inf")])),
        values(lambda: Decimal(draw.randrange(-500, 500)) / 100),
        values(lambda: draw.choice([draw.randrange(10**15), -(10**6) * draw.randrange(10**9)])),
        values(lambda: draw.random() < 0.5),
        values(lambda: draw.randrange(-128, 128)),
        values(lambda: draw.randrange(-40, 40)),
        [None] * count,
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def conditions(draw: random.Random, rows: pa.Table) -> Iterator[pc.Expression]:
    """Random conditions on the columns, about values that are there and others."""
    orders = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]

    def leaf() -> pc.Expression:
        name = draw.choice(SCHEMA.names[1:])
        values = [rows.column(name)[draw.randrange(rows.num_rows)] for _ in range(3)]
        known = [value for value in values if value.is_valid] or [pa.scalar(None, values[0].type)]
        field, kind = pc.field(name), draw.randrange(10)
        if kind == 0:
            return field.is_null() if draw.random() < 0.5 else field.is_valid()
        if kind == 1 and name == "text":
            return pc.starts_with(field, draw.choice(["a", "ab", "", "9"]))
        if kind == 2 or not known[0].is_valid:
            return field.isin(pa.array([value.as_py() for value in known], known[0].type))
        compared: pc.Expression = getattr(field, draw.choice(orders))(known[0])
        return compared

    while True:
        first, second = leaf(), leaf()
        yield draw.choice([first, first & second, first | second, ~first, ~(first & second)])


@pytest.mark.parametrize("kind", TABLES)
def test_the_rows_of_every_filter_are_those_without_indexes(tmp_path: Path, kind: str) -> None:
    draw = random.Random(kind)
    key, options = TABLES[kind]
    table = new_table(tmp_path, SCHEMA, key=key, options=options)
    for _ in range(4):
        rows = some_rows(draw, 60, 200)
        if key:
            table.upsert(rows)
        else:
            table.append(rows)
    if kind == "vectors":
        table.delete(where=pc.field("k") < 20)
    if kind != "append" and draw.random() < 0.5:
        table.compact(full=True)
        table.upsert(some_rows(draw, 20, 200))
    everything = table.scan().to_arrow()
    order = [("k", "ascending"), ("many", "ascending"), ("moment", "ascending")]
    sizes = []
    for condition in itertools.islice(conditions(draw, everything), 60):
        found = table.scan(where=condition).to_arrow().sort_by(order)
        wanted = everything.filter(condition).sort_by(order)
        assert found.num_rows == wanted.num_rows, condition
        # NaN is not equal to itself.
        assert str(found.to_pydict()) == str(wanted.to_pydict()), condition
        sizes.append(wanted.num_rows)
    assert len({size for size in sizes if size}) > 5


# ---- files


NUMBERS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
BESIDE = {"bucket": "1", "file-index.in-manifest-threshold": "1 b", "write-only": "true"}


def numbers(first: int, count: int = 100) -> pa.Table:
    """Keys in order, and even values that no other file has but lie between those of others."""
    keys = np.arange(first, first + count)
    return pa.table({"k": keys, "v": 2 * (keys * 7919 % 10_007)}, schema=NUMBERS)


def indexed_table(folder: Path, kind: str, **options: str) -> lsm.Table:
    """A table of ten files with an index of v."""
    texts = {**BESIDE, f"file-index.{kind}.columns": "v", **options}
    table = new_table(folder, NUMBERS, options=texts)
    for first in range(0, 1000, 100):
        table.upsert(numbers(first))
    return table


def index_files(table: lsm.Table) -> set[str]:
    return {path.name for path in Path(table.location).rglob("*.index")}


@pytest.mark.parametrize("kind", ["bloom-filter", "bitmap", "bsi", "range-bitmap"])
def test_files_without_a_match_stay_closed(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"file-index.bloom-filter.v.fpp": "0.001"} if kind == "bloom-filter" else {}
    table = indexed_table(tmp_path, kind, **options)
    assert len(index_files(table)) == 10
    opened = []
    open_file = BucketContext.open_file

    def counted(context: BucketContext, *arguments: Any, **options: Any) -> Any:
        opened.append(arguments[1].file_name)
        return open_file(context, *arguments, **options)

    monkeypatch.setattr(BucketContext, "open_file", counted)
    value = numbers(345, 1).column("v")[0]
    assert table.scan(where=pc.field("v") == value).to_arrow().column("k").to_pylist() == [345]
    assert len(opened) == 1
    assert table.scan(where=pc.field("v") == 4001).to_arrow().num_rows == 0
    assert len(opened) == 1


def test_an_index_in_the_manifest_prunes_in_the_plan(tmp_path: Path) -> None:
    table = indexed_table(tmp_path, "bitmap", **{"file-index.in-manifest-threshold": "1 mb"})
    assert index_files(table) == set()
    value = numbers(345, 1).column("v")[0]
    explained = table.scan(where=pc.field("v") == value).explain()
    assert explained.files.by_file_index == 9 - explained.files.by_stats
    assert explained.files.kept == 1
    assert "by file index" in explained.text()
    table.alter(lsm.SetOption("file-index.read.enabled", "false"))
    assert table.scan(where=pc.field("v") == value).explain().files.by_file_index == 0


def test_a_new_version_keeps_an_old_one_hidden(tmp_path: Path) -> None:
    """The file with the newest version of a key has no match, the one with an older version has."""
    for kind in ("bitmap", "range-bitmap"):
        for threshold in ("1 b", "1 mb"):
            options = {**BESIDE, f"file-index.{kind}.columns": "v"}
            options["file-index.in-manifest-threshold"] = threshold
            table = new_table(tmp_path / f"{kind} {threshold}", NUMBERS, options=options)
            table.upsert(pa.table({"k": [1, 2], "v": [10, 20]}, schema=NUMBERS))
            table.upsert(pa.table({"k": [1], "v": [11]}, schema=NUMBERS))
            assert table.scan(where=pc.field("v") == 10).to_arrow().num_rows == 0
            assert table.scan(where=pc.field("v") == 11).to_arrow().num_rows == 1


def test_index_files_go_with_their_data_files(tmp_path: Path) -> None:
    table = indexed_table(tmp_path, "bitmap")
    before = index_files(table)
    table.alter(lsm.SetOption("write-only", "false"))
    table.compact(full=True)
    after = index_files(table) - before
    assert after
    report = table.maintenance.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert before | after == index_files(table), report
    table.maintenance.expire(retain_min=1, retain_max=1, dry_run=False)
    assert index_files(table) == after
    assert table.maintenance.verify(deep=True).problems == ()
    orphan = Path(table.location) / "bucket-0" / "data-0-0.parquet.index"
    orphan.write_bytes(b"nobody's")
    os.utime(orphan, (0, 0))
    table.maintenance.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert index_files(table) == after


def test_a_commit_that_fails_leaves_no_index_file(tmp_path: Path) -> None:
    table = indexed_table(tmp_path, "bitmap")
    before = index_files(table)
    with pytest.raises(lsm.InvalidInputError):
        table.upsert(pa.table({"k": [1, None], "v": [1, 2]}))
    with pytest.raises(ZeroDivisionError):
        table.upsert(pa.RecordBatchReader.from_batches(NUMBERS, failing_rows()))
    assert index_files(table) == before


def failing_rows() -> Iterator[pa.RecordBatch]:
    yield from numbers(0).to_batches()
    raise ZeroDivisionError


@pytest.mark.parametrize("damage", ["missing", "torn", "flipped"])
def test_a_damaged_index_is_passed_over_and_verify_names_it(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = indexed_table(tmp_path, "bitmap")
    value = numbers(345, 1).column("v")[0]
    for path in Path(table.location).rglob("*.index"):
        data = path.read_bytes()
        middle = len(data) // 2
        if damage == "missing":
            path.unlink()
        elif damage == "torn":
            path.write_bytes(data[:middle])
        else:
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    with caplog.at_level(logging.WARNING):
        found = table.scan(where=pc.field("v") == value).to_arrow()
    assert found.column("k").to_pylist() == [345]
    assert "goes on without a file index" in caplog.text
    problems = table.maintenance.verify(deep=True).problems
    names = {part for text in problems for part in text.split() if ".parquet.index" in part}
    assert len(names) >= 10
    report = table.maintenance.remove_damaged_files(dry_run=False)
    assert report.lost == ()
    assert table.scan().to_arrow().num_rows == 1000


def test_verify_finds_an_index_that_hides_rows(tmp_path: Path) -> None:
    """Its bytes are whole, and it is the index of another file."""
    table = indexed_table(tmp_path, "bloom-filter", **{"file-index.bloom-filter.v.fpp": "0.001"})
    first, second = sorted(Path(table.location).rglob("*.index"))[:2]
    first.write_bytes(second.read_bytes())
    report = table.maintenance.verify(deep=True)
    assert [Path(file.path).name for file in report.damaged_files] == [first.name]
    assert report.damaged_files[0].stake is None
    assert "file index rules out" in report.problems[0]


def test_forgotten_keys_leave_no_index(tmp_path: Path) -> None:
    table = new_table(
        tmp_path, pa.schema([pa.field("k", pa.string(), nullable=False), ("v", pa.string())]),
        key=("k",), options={**BESIDE, "file-index.bitmap.columns": "k,v"},
    )  # fmt: skip
    table.upsert([{"k": f"person {number}", "v": f"secret {number}"} for number in range(200)])
    table.maintenance.forget(["person 77"], dry_run=False, unreferenced_older_than="0 s")
    left = b"".join(path.read_bytes() for path in Path(table.location).rglob("*.index"))
    assert b"person 78" in left
    assert b"person 77" not in left
    assert table.scan(where=pc.field("v") == "secret 78").to_arrow().num_rows == 1


# ---- schemas and options


def test_an_index_is_set_on_a_living_table_and_a_compaction_writes_it(tmp_path: Path) -> None:
    table = new_table(tmp_path, NUMBERS, options={"bucket": "1"})
    table.upsert(numbers(0))
    table.compact(full=True)
    table.alter(lsm.SetOption("file-index.bitmap.columns", "v"))
    table.upsert(numbers(100))
    assert table.inspect.file_indexes().num_rows == 1
    table.alter(lsm.SetOption("compaction.force-rewrite-all-files", "true"))
    table.compact(full=True)
    assert table.inspect.file_indexes().num_rows == table.inspect.files().num_rows


def test_columns_keep_their_indexes_through_changes_of_the_schema(tmp_path: Path) -> None:
    table = indexed_table(tmp_path, "range-bitmap")
    value = numbers(345, 1).column("v")[0].as_py()
    table.alter(lsm.RenameColumn("v", "w"))
    assert table.schema.options.texts["file-index.range-bitmap.columns"] == "w"
    table.upsert(pa.table({"k": [2000], "w": [value]}))
    found = table.scan(where=pc.field("w") == value).to_arrow()
    assert sorted(found.column("k").to_pylist()) == [345, 2000]
    table.alter(lsm.ChangeType("w", "DOUBLE"))
    found = table.scan(where=pc.field("w") == value).to_arrow()
    assert sorted(found.column("k").to_pylist()) == [345, 2000]
    with pytest.raises(lsm.InvalidOptionError, match=r"file-index\.range-bitmap\.columns"):
        table.alter(lsm.DropColumn("w"))
    table.alter(lsm.RemoveOption("file-index.range-bitmap.columns"), lsm.DropColumn("w"))
    table.alter(lsm.AddColumn("v", "BIGINT"))
    assert table.scan(where=pc.field("v") == value).to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"file-index.bitmap.columns": "x"}, "'x', which the table does not have"),
        ({"file-index.bsi.columns": "text"}, "takes no STRING"),
        ({"file-index.bloom-filter.columns": "flag"}, "takes no BOOLEAN"),
        ({"file-index.bitmap.columns": "price"}, r"takes no DECIMAL\(9, 2\)"),
        ({"file-index.bloom-filter.many.fpp": "0.1"}, "'file-index.bloom-filter.columns'"),
        ({"file-index.bloom-filter.columns": "many", "file-index.bloom-filter.many.fpp": "2"}, "fpp"),
        ({"file-index.bitmap.columns": "few", "file-index.bitmap.few.version": "3"}, "version"),
        ({"file-index.tree.columns": "few"}, "no such table option"),
    ],
)  # fmt: skip
def test_an_index_that_cannot_be_is_refused(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(lsm.InvalidOptionError, match=message):
        new_table(tmp_path, SCHEMA, options=options)

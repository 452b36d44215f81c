"""Deletes from tables without a primary key: rows that equal a key are marked, and left behind later."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.dml import write
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable

COLUMNS = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.int64())])
MARKS = {"deletion-vectors.enabled": "true", "write-only": "true"}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")) as made:
        yield made


def rows(first: int, count: int, value: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    parts = pa.array(["xy"[number % 2] for number in numbers.tolist()])
    return pa.table([parts, pa.array(numbers), pa.array(np.full(count, value))], schema=COLUMNS)


def filled(catalog: lsm.Catalog, **options: str) -> lsm.Table:
    table = catalog.create_table(
        "db.t", COLUMNS, partitioned_by=["p"], options={**MARKS, **options}
    )
    for turn in range(3):
        table.append(rows(turn * 50, 100, turn))
    return table


def found(table: lsm.Table) -> list[tuple[int, int]]:
    read = table.scan().to_arrow()
    assert table.scan().count() == read.num_rows
    return sorted(zip(read["k"].to_pylist(), read["v"].to_pylist(), strict=True))


def wanted(*gone: pc.Expression) -> list[tuple[int, int]]:
    made = pa.concat_tables([rows(turn * 50, 100, turn) for turn in range(3)])
    for some in gone:
        made = made.filter(~some)
    return sorted(zip(made["k"].to_pylist(), made["v"].to_pylist(), strict=True))


def test_rows_are_known_by_a_column_without_nulls(catalog: lsm.Catalog) -> None:
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    table = catalog.create_table("db.t", columns, options=MARKS)
    table.append([{"k": 1, "v": 1}, {"k": 2, "v": 2}])
    assert table.delete([{"k": 1}]) is not None
    assert found(table) == [(2, 2)]


def test_a_null_is_no_name_of_rows_of_the_default(catalog: lsm.Catalog) -> None:
    columns = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = catalog.create_table("db.t", columns, options=MARKS)
    table.append([{"k": None, "v": 1}])
    table.alter(lsm.SetColumnDefault("k", "5"))
    table = catalog["db.t"]
    table.append([{"k": 5, "v": 2}, {"k": 7, "v": 3}])
    with pytest.raises(lsm.InvalidInputError, match="without a value in key column 'k'"):
        table.delete([{"k": None}])
    assert table.scan().count() == 3


def test_rows_are_known_by_the_columns_given(catalog: lsm.Catalog) -> None:
    table = filled(catalog)
    k, v, p = pc.field("k"), pc.field("v"), pc.field("p")
    made = table.delete(pa.table({"k": list(range(60, 70))}))
    assert made is not None
    assert found(table) == wanted(k.isin(range(60, 70)))
    table.delete([{"k": 70, "v": 0}, {"k": 71, "v": 1}, {"k": 72, "v": 9}])
    gone = (k.isin(range(60, 70)), (k == 70) & (v == 0), (k == 71) & (v == 1))
    assert found(table) == wanted(*gone)
    table.delete([{"p": "x", "v": 2}])
    gone = (*gone, (p == "x") & (v == 2))
    assert found(table) == wanted(*gone)
    assert table.scan(where=k == 65).count() == 0
    before = table.latest_snapshot().id
    assert table.delete([{"k": 65}]) is None
    assert table.delete([]) is None
    assert table.latest_snapshot().id == before
    check_invariants(StoredTable(table.session.file_io))
    assert table.scan(snapshot_id=3).count() == 300
    table.compact(full=True)
    assert found(table) == wanted(*gone)
    assert table.session.index_entries(table.latest_snapshot()) == []
    assert table.latest_snapshot().total_record_count == len(wanted(*gone))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    check_invariants(StoredTable(table.session.file_io))
    assert table.verify().is_clean


def test_buckets_and_rescale(catalog: lsm.Catalog) -> None:
    table = filled(catalog, **{"bucket": "2", "bucket-key": "k"})
    table.delete(pa.table({"k": list(range(0, 200, 3))}))
    gone = pc.field("k").isin(range(0, 200, 3))
    assert found(table) == wanted(gone)
    table.rescale(3)
    assert found(table) == wanted(gone)
    table.append(rows(300, 2, 9))
    assert found(table) == sorted([*wanted(gone), (300, 9), (301, 9)])
    check_invariants(StoredTable(table.session.file_io))


@pytest.mark.parametrize("theirs", ["delete", "compact", "append"])
def test_others_act_meanwhile(
    catalog: lsm.Catalog, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    other = lsm.open_table(table.location)
    acts = {
        "delete": lambda: other.delete(pa.table({"k": list(range(50, 65))})),
        "compact": lambda: other.compact(full=True),
        "append": lambda: other.append(rows(60, 1, 7)),
    }
    waiting, real = [acts[theirs]], write.propose

    def commit(*args: object, **more: object) -> object:
        if waiting:
            waiting.pop()()
        return real(*args, **more)

    monkeypatch.setattr(write, "propose", commit)
    table.delete(pa.table({"k": list(range(60, 70))}))
    k = pc.field("k")
    gone = [k.isin(range(60, 70))] + ([k.isin(range(50, 65))] if theirs == "delete" else [])
    extra = [(60, 7)] if theirs == "append" else []
    assert found(table) == sorted(wanted(*gone) + extra)
    check_invariants(StoredTable(table.session.file_io))


def test_what_cannot_be_is_refused_before_anything_is_written(catalog: lsm.Catalog) -> None:
    table = filled(catalog)
    before = {str(path) for path in Path(table.location).rglob("*")}
    for keys in ([{"k": None}], [{"nope": 1}], [{"k": 1, "nope": 2}], [{"k": "text"}]):
        with pytest.raises(lsm.InvalidInputError):
            table.delete(keys)
    assert {str(path) for path in Path(table.location).rglob("*")} == before
    plain = catalog.create_table("db.plain", COLUMNS)
    plain.append(rows(0, 3, 0))
    with pytest.raises(lsm.InvalidInputError, match="deletion-vectors"):
        plain.delete([{"k": 1}])


NESTED = pa.schema(
    [("k", pa.int64()), ("v", pa.float64()), ("s", pa.string()), ("tags", pa.list_(pa.string()))]
)


def test_a_filter_deletes_rows_with_nulls_nan_and_nested_values(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.t", NESTED, options=MARKS)
    made = [
        {"k": 1, "v": None, "s": None, "tags": None},
        {"k": None, "v": float("nan"), "s": "x", "tags": ["a"]},
        {"k": None, "v": 1.0, "s": None, "tags": []},
        {"k": 4, "v": 2.0, "s": "y", "tags": [None]},
        {"k": 4, "v": 2.0, "s": "y", "tags": [None]},
    ]
    table.append(made)
    table.append(made)
    done = table.delete(where="k IS NULL AND v = 1")
    assert done is not None
    assert lsm.row_counts_of(done.properties) == lsm.RowCounts(deleted=2)
    assert table.count() == 8
    table.delete(where=pc.field("v").is_nan())
    assert table.delete(where="v = 1 OR k IS NULL") is None
    assert sorted(table.to_arrow()["k"].to_pylist()) == [1, 1, 4, 4, 4, 4]
    table.delete(where=lsm.col("tags").is_null())
    assert table.to_arrow()["tags"].to_pylist() == [[None]] * 4
    assert table.scan(snapshot_id=2).count() == 10
    done = table.delete(where="true")
    assert lsm.row_counts_of(done.properties) == lsm.RowCounts(deleted=4)
    assert table.count() == 0
    assert table.delete(where="true") is None
    assert table.verify(deep=True).is_clean


def test_a_filter_deletes_what_a_scan_finds(catalog: lsm.Catalog) -> None:
    table = filled(catalog)
    k, v, p = pc.field("k"), pc.field("v"), pc.field("p")
    gone = []
    for where in (
        (k < 70) & (v == 1),
        (p == "x") & (k <= 77) & (v == 0),
        k > 180,
        k.isin([5, None]),
    ):
        before = table.scan(where=where).count()
        done = table.delete(where=where)
        assert lsm.row_counts_of(done.properties).deleted == before > 0
        gone.append(where)
        assert found(table) == wanted(*gone)
    table.compact(full=True)
    assert found(table) == wanted(*gone)
    with pytest.raises(lsm.InvalidInputError, match="nope"):
        table.delete(where="nope = 1")


def test_a_filter_is_asked_again_where_rows_move_meanwhile(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    other = lsm.open_table(table.location)
    waiting, real = [lambda: other.compact(full=True)], write.propose

    def commit(*args: object, **more: object) -> object:
        if waiting:
            waiting.pop()()
        return real(*args, **more)

    monkeypatch.setattr(write, "propose", commit)
    done = table.delete(where="v = 2")
    assert lsm.row_counts_of(done.properties) == lsm.RowCounts(deleted=100)
    assert found(table) == wanted(pc.field("v") == 2)


def test_keys_without_an_order_are_found_in_tables_of_very_many_files(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("db.t", NESTED, options=MARKS)
    table.append([{"k": 1, "v": 1.5}, {"k": 2, "v": 2.5}])
    monkeypatch.setattr("lsm_engine.read.scan_plan.MANY_FILES", 1)
    assert table.delete([{"v": 1.5}]) is not None
    assert table.to_arrow()["k"].to_pylist() == [2]

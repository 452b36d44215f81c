"""Lazy reads of runs that share keys: merged once, then read as files without the rows that were replaced."""

import random

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.read import engines, split
from tests.samples import seeds


@pytest.fixture
def found(monkeypatch):
    """Sections of any size are worth it; gives those that keys were merged of."""
    sections, original = [], split._replaced
    monkeypatch.setattr(split, "_ROWS_WORTH_IT", 0)
    monkeypatch.setattr(
        split,
        "_replaced",
        lambda bucket, section: sections.append(section) or original(bucket, section),
    )
    return sections


def _same(left, right, key):
    return left.sort(key).equals(right.sort(key))


RULES = [
    {},
    {"sequence.field": "at"},
    {"sequence.field": "at", "sequence.field.sort-order": "descending"},
    {"ignore-delete": "true"},
    {"merge-engine": "first-row", "ignore-delete": "true"},
    {"bucket": "3"},
    {"file.format": "orc"},
    {"target-file-size": "20 kb", "write-buffer-size": "1 mb"},
]


@pytest.mark.parametrize("seed", seeds(1, 2))
@pytest.mark.parametrize("options", RULES, ids=str)
def test_lazy_reads_of_any_history_give_the_merged_rows(
    tmp_path, found, monkeypatch, options, seed
):
    monkeypatch.setattr(engines, "_ROWS_AT_ONCE", 37)
    chance = random.Random(seed)
    with lsm.open_catalog(tmp_path / "lake") as catalog, duckdb.connect() as connection:
        columns = {"k": str, "n": int, "at": int, "v": float}
        made = catalog.create_table(
            "a.t", columns, primary_key=["k", "n"], options={"num-sorted-run.compaction-trigger": "9"} | options
        )  # fmt: skip
        for turn in range(5):
            keys = [
                (f"k{key % 7}", key) for key in chance.sample(range(200), chance.randint(1, 90))
            ]
            rows = [{"k": k, "n": n, "at": chance.randint(0, 3), "v": float(turn)} for k, n in keys]
            made.upsert(rows)
            if chance.random() < 0.4:
                made.delete([{"k": k, "n": n} for k, n in keys[::3]])
            whole = pl.from_arrow(made.to_arrow())
            lazy, relation = made.to_polars(), made.to_duckdb(connection)
            assert _same(lazy.collect(), whole, ["k", "n"])
            assert _same(pl.from_arrow(relation.to_arrow_table()), whole, ["k", "n"])
            for condition in (pl.col("n") > 90, pl.col("v") == turn, pl.col("k") == "k3"):
                asked = whole.filter(condition)
                assert _same(lazy.filter(condition).collect(), asked, ["k", "n"])
                assert lazy.filter(condition).head(2).collect().height == min(2, asked.height)
            seen = relation.filter("v < 3").aggregate("count(*), sum(n)").fetchone()
            older = whole.filter(pl.col("v") < 3)
            assert seen == (older.height, older["n"].sum() or None)
            known = made.to_duckdb(
                connection
            )  # DuckDB reads the files, as what to leave out is known
            assert _same(pl.from_arrow(known.to_arrow_table()), whole, ["k", "n"])
            assert known.filter("v < 3").aggregate("count(*), sum(n)").fetchone() == seen
            assert len(known.limit(5).fetchall()) == min(5, whole.height)
            for count in (1, 5, 1000):
                few = lazy.select("v").head(count).collect()
                assert few.height == min(count, whole.height)
            assert lazy.select(pl.len()).collect().item() == whole.height == len(made)
        assert found or "merge-engine" in options  # a first row is never replaced


def test_a_state_is_merged_once_for_all_frames_and_relations(tmp_path, found):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("a.t", {"id": int, "v": str}, primary_key="id")
        made.upsert([{"id": k, "v": "a"} for k in range(9)])
        made.upsert([{"id": k, "v": "b"} for k in range(5, 12)])
        before = made.to_polars()
        assert not found  # nothing is read before it is asked for
        for _ in range(2):
            assert before.filter(pl.col("v") == "a").collect().height == 5
            assert made.to_polars().select("id").collect().height == 12
            assert made.to_duckdb().filter("v = 'b'").count("*").fetchone() == (7,)
            assert made.to_dataset().to_table(["v"]).num_rows == 12
        assert len(found) == 1
        made.upsert([{"id": 0, "v": "c"}])
        assert made.to_polars().filter(pl.col("v") == "a").collect()["id"].to_list() == [1, 2, 3, 4]
        assert before.filter(pl.col("v") == "a").collect().height == 5
        assert made.to_polars(version=1).collect().height == 9
        made.alter(lsm.AddColumn("w", "INT"))  # files of an older schema are converted
        assert made.to_polars().select("id", "w").collect()["w"].null_count() == 12
        made.upsert([{"id": 1, "v": "d", "w": 7}])
        assert made.to_polars().filter(pl.col("w") == 7).collect()["id"].to_list() == [1]


def test_duckdb_reads_files_of_partitions_less_what_is_known_to_be_replaced(
    tmp_path, found, monkeypatch
):
    with lsm.open_catalog(tmp_path / "it's a lake") as catalog, duckdb.connect() as connection:
        made = catalog.create_table(
            "a.t", {"day": str, "id": int, "v": int}, primary_key=["day", "id"], partitioned_by="day",
            options={"write-only": "true", "bucket": "2"},
        )  # fmt: skip
        rows = [{"day": f"2026-05-0{k % 3}", "id": k, "v": k} for k in range(60)]
        made.upsert(rows)
        made.upsert([row | {"v": -1} for row in rows[::5]])
        made.delete([{"day": row["day"], "id": row["id"]} for row in rows[::7]])
        wanted = sorted(tuple(row.values()) for row in made.to_arrow().to_pylist())
        assert len(made.to_duckdb(connection).fetchall()) == len(wanted) == 51
        monkeypatch.setattr(engines, "ArrowDataset", None)
        known = made.to_duckdb(connection)
        assert sorted(known.fetchall()) == wanted
        third = [row for row in wanted if row[0] == "2026-05-02"]
        assert sorted(known.filter("day = '2026-05-02'").fetchall()) == third
        assert connection.sql("SELECT min(v), count(*) FROM known WHERE id > 50").fetchone() == (
            -1, sum(row[1] > 50 for row in wanted)
        )  # fmt: skip


@pytest.mark.parametrize("name", ["file_index", "FILE_ROW_NUMBER"])
def test_columns_named_as_duckdb_numbers_rows_are_what_they_are(tmp_path, found, name):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("a.t", {"id": int, name: int}, primary_key="id")
        made.upsert([{"id": k, name: 0} for k in range(9)])
        made.upsert([{"id": k, name: 1} for k in range(5)])
        for _ in range(2):
            assert sorted(made.to_duckdb().fetchall()) == [(k, int(k < 5)) for k in range(9)]


def test_whoever_asks_for_little_merges_little(tmp_path, found, monkeypatch):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table(
            "a.t", {"day": int, "id": int}, partitioned_by="day", primary_key=["day", "id"]
        )
        rows = [{"day": k % 3, "id": k} for k in range(90)]
        made.upsert(rows)
        made.upsert(rows[:40])
        assert made.to_polars().head(3).collect().height == 3
        assert made.to_polars().filter(pl.col("id") == 7).collect().height == 1
        assert made.to_duckdb().filter("id < 7").fetchall()
        assert not found
        assert made.to_polars().filter(pl.col("day") == 1).collect().height == 30
        assert len(found) == 1  # of the only partition that was read
        monkeypatch.setattr(split, "_ROWS_AT_ONCE", 20)  # larger ones: once somebody read all
        assert made.to_polars().collect().height == 90
        assert len(found) == 1
        assert made.to_polars().select("id").collect().height == 90
        assert len(found) == 3
        assert made.to_polars().filter(pl.col("id") == 7).collect().height == 1
        assert made.to_polars().head(3).collect().height == 3
        assert len(found) == 3


def test_rows_that_are_folded_are_merged_as_ever(tmp_path, found):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        for name, options in {
            "sum": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
            "parts": {"merge-engine": "partial-update"},
        }.items():
            made = catalog.create_table(f"a.{name}", {"id": int, "v": int}, primary_key="id", options=options)  # fmt: skip
            made.upsert([{"id": k, "v": 1} for k in range(9)])
            made.upsert([{"id": k, "v": 2} for k in range(5)])
            assert made.to_polars().collect()["v"].sum() == (19 if name == "sum" else 14)
        assert not found


def test_a_section_in_which_too_much_may_be_replaced_is_merged_as_ever(
    tmp_path, found, monkeypatch
):
    monkeypatch.setattr(split, "_REPLACED_MAX", 4)
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("a.t", {"id": int}, primary_key="id")
        made.upsert([{"id": k} for k in range(9)])
        made.upsert([{"id": k} for k in range(5)])
        assert made.to_polars().collect().height == 9
        assert not found


def test_what_is_too_large_to_keep_is_found_again(tmp_path, found, monkeypatch):
    monkeypatch.setattr(split, "_KEPT_BYTES", 8)
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("a.t", {"id": int, "v": str}, primary_key="id")
        made.upsert([{"id": k, "v": "a"} for k in range(9)])
        made.upsert([{"id": k, "v": "b"} for k in range(5)])
        for _ in range(2):
            assert made.to_polars().filter(pl.col("v") == "a").collect().height == 4
            assert made.to_dataset().to_table(["v"]).num_rows == 9
        assert len(found) > 1


def test_what_polars_cannot_read_is_told_as_by_the_engine(tmp_path, found):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("a.t", {"id": int, "v": int}, primary_key="id")
        made.upsert(pa.table({"id": np.arange(99), "v": np.arange(99)}))
        made.upsert([{"id": 3, "v": 0}])
        lazy, expired = made.to_polars(), made.to_polars()
        assert lazy.collect().height == 99
        for _ in range(3):
            made.upsert([{"id": 3, "v": 1}])
        made.compact(full=True)
        made.expire_snapshots(retain_max=1, retain_min=1)
        with pytest.raises(pl.exceptions.ComputeError, match="ExpiredError"):
            expired.collect()
        made.upsert(pa.table({"id": np.arange(40), "v": np.arange(40)}))
        lazy = made.to_polars()
        assert lazy.select("id").collect().height == 99
        (largest,) = (tmp_path / "lake").glob(f"**/bucket-0/*{_largest(made)}")
        data = bytearray(largest.read_bytes())
        data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
        largest.write_bytes(data)
        with pytest.raises(pl.exceptions.ComputeError, match=largest.name):
            lazy.collect()


def _largest(table):
    files = table.system("files").sort_by([("record_count", "descending")])
    return files["file_path"][0].as_py().rsplit("/", 1)[-1]

"""MERGE of DataFrames on executors: what the local executor makes of the same rows, and its refusals."""

import os
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sql

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidInputError, UnsupportedError
from lsm_engine.format.snapshot import RowCounts, row_counts_of
from lsm_engine.spark import merge, merge_dataframe
from lsm_engine.spark import merge as merge_spark

pytestmark = pytest.mark.spark

HISTORIES = int(os.environ.get("LSM_MERGE_HISTORIES", "1"))
COLUMNS = pa.schema(
    [("day", pa.string()), ("id", pa.int64()), ("n", pa.int32()), ("text", pa.string())]
)


def made(catalog, name, **options):
    return catalog.create_table(
        f"shop.{name}",
        COLUMNS,
        primary_key=["day", "id"],
        partitioned_by="day",
        options={"bucket": "2", **options},
    )


def some(rng, count, ids):
    """Rows with distinct keys, columns null here and there."""
    keys = {(rng.choice("ab"), rng.randrange(ids)) for _ in range(count)}
    rows = [
        {"day": day, "id": n, "n": rng.choice([None, rng.randrange(50)]), "text": rng.choice("xyz")}
        for day, n in sorted(keys)
    ]
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def clauses(rng):
    """A random list of `(method, arguments)`, conditions over both sides among them."""
    conditions = [
        None,
        "source.n > target.n",
        "target.n IS NULL",
        "source.text = 'x' OR target.n < 20",
    ]
    matched = [
        ("when_matched_update_all", {}),
        (
            "when_matched_update",
            {"set": {"n": "coalesce(target.n, 0) + 1", "text": "source.text || '!'"}},
        ),
        ("when_matched_delete", {}),
    ]
    chosen = [
        (name, {**given, "where": rng.choice(conditions)})
        for name, given in rng.sample(matched, rng.randrange(1, 4))
    ]
    if rng.random() < 0.7:
        chosen.append(("when_not_matched_insert_all", {"where": rng.choice([None, "n > 10"])}))
    if rng.random() < 0.5:
        chosen.append(("when_not_matched_by_source_delete", {"where": "n < 5"}))
    if rng.random() < 0.5:
        by_source = {"set": {"text": "upper(text)", "n": 7}, "where": "id % 3 = 0"}
        chosen.append(("when_not_matched_by_source_update", by_source))
    return chosen


def rows_of(table):
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: (row["day"], row["id"]))


def counts_of(result):
    return None if result is None else row_counts_of(result.properties)


@pytest.fixture(params=["driver", "executors"])
def by(request, monkeypatch):
    """Who merges, and nobody else: the driver what Spark says is small, executors what it cannot tell."""
    refused = {"driver": merge_spark.FrameMerge, "executors": merge.Expressions}
    monkeypatch.setattr(refused[request.param], "__call__", None)
    return request.param


def frame_of(spark, rows, path, by):
    """Rows whose size Spark knows, for the driver; or rows of which it knows nothing."""
    if by == "executors":
        names = "day string, id long, n int, text string"
        return spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], names)
    pq.write_table(rows, path)
    return spark.read.parquet(str(path))


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_random_histories_end_as_on_the_local_executor(spark, tmp_path, by, seed):
    rng = random.Random(seed)
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        here, there = made(catalog, "here"), made(catalog, "there")
        first = some(rng, 60, 40)
        here.upsert(first)
        there.upsert(first)
        for number in range(2 if HISTORIES == 1 else 10):
            source = some(rng, rng.choice([4, 40]), 60)
            frame = frame_of(spark, source, tmp_path / f"{number}.parquet", by)
            local, spark_merge = here.merge(source), merge_dataframe(there, frame)
            chosen = clauses(rng)
            for name, given in chosen:
                local, spark_merge = (getattr(each, name)(**given) for each in (local, spark_merge))
            assert counts_of(spark_merge.execute()) == counts_of(local.execute()), chosen
            assert rows_of(there) == rows_of(here), chosen


@pytest.fixture
def table(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = made(catalog, "orders")
        table.upsert([{"day": "a", "id": n, "n": n, "text": f"t{n}"} for n in range(30)])
        yield table


def source(spark, *ids):
    return spark.createDataFrame(
        [("a", n, 0, "new") for n in ids], "day string, id long, n int, text string"
    )


def test_what_would_change_a_row_twice_or_its_key_is_refused_and_nothing_is_written(spark, table):
    twice = merge_dataframe(table, source(spark, 1, 1)).when_matched_update_all()
    with pytest.raises(InvalidInputError, match="several rows of the source would change"):
        twice.execute()
    moving = merge_dataframe(table, source(spark, 1)).when_matched_update({"id": "source.id + 1"})
    with pytest.raises(InvalidInputError, match="would change a key"):
        moving.execute()
    taken = {"day": "'a'", "id": "source.id - 100", "text": "'x'"}
    with pytest.raises(InvalidInputError, match="keys that are there already"):
        merge_dataframe(table, source(spark, 101)).when_not_matched_insert(taken).execute()
    doubled = merge_dataframe(table, source(spark, 77, 77)).when_not_matched_insert_all()
    with pytest.raises(InvalidInputError, match="same key as another"):
        doubled.execute()
    with pytest.raises(UnsupportedError, match="SQL text or Spark columns"):
        merge_dataframe(table, source(spark, 1)).when_matched_delete(lsm.col("n") > 1).execute()
    assert [one.id for one in table.snapshots()] == [1]


def test_a_misspelled_column_of_the_source_is_refused_and_others_are_ignored(spark, table):
    frame = source(spark, 1).withColumnRenamed("text", "txet")
    merging = merge_dataframe(table, frame)
    for starred in (merging.when_matched_update_all(), merging.when_not_matched_insert_all()):
        with pytest.raises(InvalidInputError, match=r"'txet'.*'text'.*rename it"):
            starred.execute()
    merging.when_matched_update_all(where=sql.col("source.txet") == "new").execute()
    other = source(spark, 2).withColumnsRenamed({"text": "TEXT", "n": "loaded_by"})
    merge_dataframe(table, other).when_matched_update_all().execute()
    found = table.to_arrow(["n", "text"], where="id in (1, 2)").to_pylist()
    assert found == [{"n": 0, "text": "t1"}, {"n": 2, "text": "new"}]


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "-1"},
        {
            "merge-engine": "aggregation",
            "aggregation.remove-record-on-delete": "true",
            "fields.n.aggregate-function": "sum",
        },
    ],
    ids=["moving", "aggregation"],
)
def test_a_key_that_goes_and_comes_again_keeps_nothing_of_before(spark, tmp_path, options):
    """Its deletion was left out, so that sums went on from the row that had been deleted."""
    moves = "bucket" in options
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table(
            "shop.sums", {"id": "BIGINT", "tag": "STRING", "n": "INT"}, primary_key="id",
            partitioned_by="tag" if moves else (), options=options,
        )  # fmt: skip
        table.upsert([{"id": n, "tag": f"t{n % 3}", "n": 100} for n in range(20)])
        new = [(n, f"s{n % 2}", 7) for n in (*range(5, 15), *range(20, 25))]
        frame = spark.createDataFrame(new, "id long, tag string, n int").repartition(3)
        merge = merge_dataframe(table, frame, on="tag").when_not_matched_insert_all()
        merge.when_not_matched_by_source_delete(where="id < 15").execute()
        wanted = [(n, f"t{n % 3}", 100) for n in range(15, 20)] + new
        found = table.scan().to_arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in found) == sorted(wanted)
        assert table.verify().is_clean


def test_a_clause_that_sets_another_type_changes_no_value_of_other_rows(spark, tmp_path):
    """Spark finds one type for all branches of a CASE: BIGINT beside DOUBLE was rounded to 53 bits."""
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table(
            "shop.large", {"id": "BIGINT", "n": "BIGINT", "t": "STRING"}, primary_key="id"
        )
        large = 2**60 + 1
        table.upsert([{"id": n, "n": large, "t": "a"} for n in (1, 2, 3)])
        frame = spark.createDataFrame([(1, 5.0), (2, 0.0)], "id long, d double")
        (
            merge_dataframe(table, frame, on="id")
            .when_matched_update({"n": "source.d"}, where="source.d > 1")
            .when_matched_update({"t": "'b'"})
            .execute()
        )
        rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
        assert [(row["n"], row["t"]) for row in rows] == [(5, "a"), (large, "b"), (large, "a")]
        wrong = merge_dataframe(table, frame, on="id").when_matched_update({"n": "source.d > 1"})
        with pytest.raises(InvalidInputError, match="'n' takes bigint, not boolean"):
            wrong.execute()


@pytest.mark.parametrize(
    ("kind", "given", "is_ansi"),
    [
        ("BIGINT", "CAST(1.5 AS DOUBLE)", "true"),
        ("BIGINT", "1.5", "false"),
        ("INT", "4294967297", "false"),
        ("DATE", "TIMESTAMP_NTZ'2026-01-01 10:00:00'", "true"),
        ("DECIMAL(9, 1)", "CAST(1.04 AS DECIMAL(9, 2))", "true"),
    ],
)
def test_a_key_of_the_source_is_not_cut_to_the_keys_type_to_match(
    spark, tmp_path, kind, given, is_ansi
):
    """Looked up, 1.5 was 1, and the row of 1 was deleted."""
    one = "2026-01-01" if kind == "DATE" else "1"
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table("shop.keys", {"id": kind, "n": "INT"}, primary_key="id")
        rows = spark.sql(f"SELECT CAST({one!r} AS {kind}) AS id, 5 AS n")
        merge_dataframe(table, rows).when_not_matched_insert_all().execute()
        before = table.scan().to_arrow().to_pylist()
        spark.conf.set("spark.sql.ansi.enabled", is_ansi)
        try:
            # Few rows beside the table's, and many: looked up where keys are equal, joined else.
            frame = spark.sql(f"SELECT {given} AS id, 6 AS n")
            for share in (0, 1):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(merge_spark, "LOOKED_UP_SHARE", 1 if share else 100)
                    merge = merge_dataframe(table, frame).when_matched_delete()
                    assert merge.execute() is None
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
        assert table.scan().to_arrow().to_pylist() == before


def test_a_row_to_insert_whose_key_is_cut_to_one_that_is_there_is_refused(spark, tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table("shop.cut", {"id": "BIGINT", "n": "INT"}, primary_key="id")
        table.upsert([{"id": 1, "n": 5}])
        frame = spark.sql("SELECT CAST(1.5 AS DOUBLE) AS id, 6 AS n")
        with pytest.raises(InvalidInputError, match="keys that are there already"):
            merge_dataframe(table, frame).when_not_matched_insert_all().execute()
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "n": 5}]


def test_keys_of_a_narrower_whole_type_are_looked_up(spark, table, monkeypatch):
    looked_up = []
    found = merge_spark.joined_at
    monkeypatch.setattr(merge_spark, "LOOKED_UP_SHARE", 1)
    monkeypatch.setattr(
        merge_spark, "joined_at", lambda *given: looked_up.append(given) or found(*given)
    )
    frame = spark.sql("SELECT 'a' AS day, CAST(3 AS SMALLINT) AS id")
    done = merge_dataframe(table, frame).when_matched_delete().execute()
    assert row_counts_of(done.properties) == RowCounts(deleted=1)
    assert len(looked_up) == 1


@pytest.mark.parametrize("is_ansi", ["true", "false"])
@pytest.mark.parametrize(
    ("kind", "given", "wide"),
    [
        ("INT", "BIGINT", (1 << 32) + 1),
        ("DECIMAL(5, 2)", "DECIMAL(12, 2)", "1000000001.00"),
    ],
)
def test_keys_of_a_wider_type_are_looked_up_and_too_great_ones_match_nothing(
    spark, tmp_path, monkeypatch, kind, given, wide, is_ansi
):
    """As text and frames give them: Python's and pandas' whole numbers are BIGINT."""
    monkeypatch.setattr(merge_spark, "LOOKED_UP_SHARE", 1)
    looked_up, found = [], merge_spark.joined_at
    monkeypatch.setattr(
        merge_spark, "joined_at", lambda *given: looked_up.append(given) or found(*given)
    )
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table("shop.wide", {"id": kind, "n": "INT"}, primary_key="id")
        table.upsert([{"id": Decimal(at) if "(" in kind else at, "n": at} for at in (1, 2, 3)])
        frame = spark.sql(
            f"SELECT CAST(id AS {given}) AS id, 6 AS n FROM VALUES (2), ({wide}) AS t(id)"
        )
        spark.conf.set("spark.sql.ansi.enabled", is_ansi)
        try:
            done = merge_dataframe(table, frame).when_matched_update({"n": "source.n"}).execute()
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
        assert row_counts_of(done.properties) == RowCounts(updated=1)
        assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 3, 6]
        assert len(looked_up) == 1


def test_a_key_that_goes_may_come_again_in_the_same_merge(spark, table):
    """Its task writes in no order: the row that comes is the one that stays."""
    done = (
        merge_dataframe(table, source(spark, 3, 4, 105), on="id")
        .when_matched_delete()
        .when_not_matched_insert({"day": "'a'", "id": "source.id - 101", "text": "'back'"})
        .execute()
    )
    assert row_counts_of(done.properties) == RowCounts(inserted=1, deleted=2)
    found = {row["id"]: row["text"] for row in rows_of(table)}
    assert (found[4], 3 in found, len(found)) == ("back", False, 29)


def test_rows_that_others_change_in_between_are_looked_at_again(spark, table, monkeypatch):
    staged, others = merge_spark.stage, []

    def stage(*given):
        if not others:
            others.append(table.upsert([{"day": "a", "id": 1, "n": 100, "text": "other"}]))
        return staged(*given)

    monkeypatch.setattr(merge_spark, "stage", stage)
    merge = merge_dataframe(table, source(spark, 1)).when_matched_update({"n": "target.n + 1"})
    assert row_counts_of(merge.execute().properties) == RowCounts(updated=1)
    assert rows_of(table)[1] == {"day": "a", "id": 1, "n": 101, "text": "other"}


def on_driver(spark, *ids):
    """Rows as of `source`, few by Spark's estimate."""
    given = ", ".join(f"('a', {n}L, 0, 'new')" for n in ids)
    return spark.sql(f"SELECT * FROM VALUES {given} AS v(day, id, n, text)")


def test_the_driver_refuses_what_executors_do_and_writes_nothing(spark, table, monkeypatch):
    monkeypatch.setattr(merge_spark.FrameMerge, "__call__", None)
    twice = merge_dataframe(table, on_driver(spark, 1, 1)).when_matched_update_all()
    with pytest.raises(InvalidInputError, match="several rows of the source would change"):
        twice.execute()
    moving = merge_dataframe(table, on_driver(spark, 1)).when_matched_update(
        {"id": "source.id + 1"}
    )
    with pytest.raises(InvalidInputError, match="would change"):
        moving.execute()
    taken = {"day": "'a'", "id": "source.id - 100", "text": "'x'"}
    with pytest.raises(InvalidInputError, match="keys that are there already"):
        merge_dataframe(table, on_driver(spark, 101)).when_not_matched_insert(taken).execute()
    doubled = merge_dataframe(table, on_driver(spark, 77, 77)).when_not_matched_insert_all()
    with pytest.raises(InvalidInputError, match="same key as another"):
        doubled.execute()
    # No row of the source is new: Spark reads the clause all the same.
    wrong = merge_dataframe(table, on_driver(spark, 1)).when_not_matched_insert_all("nowhere = 1")
    with pytest.raises(AnalysisException, match="nowhere"):
        wrong.execute()
    assert [one.id for one in table.snapshots()] == [1]


def test_the_driver_refuses_values_that_are_not_one_for_each_row(spark, table):
    """As many values as rows may come of it, and the first row's second one would be that of the second row."""
    exploded = sql.expr("explode(filter(sequence(1L, 2L), one -> source.id = 1))")
    merge = merge_dataframe(table, on_driver(spark, 1, 2)).when_matched_update({"n": exploded})
    before = rows_of(table)
    with pytest.raises(AnalysisException, match="GENERATOR"):
        merge.execute()
    assert rows_of(table) == before


def test_the_driver_evaluates_a_source_once_though_the_commit_is_tried_again(
    spark, table, monkeypatch
):
    frame = on_driver(spark, 1, 2, 3).withColumn("text", sql.expr("uuid()"))
    collected, given = type(frame).toArrow, []

    def collect(self):
        given.append(collected(self))
        if len(given) == 1:
            table.upsert([{"day": "a", "id": 2, "n": 1000, "text": "of another"}])
        return given[-1]

    monkeypatch.setattr(type(frame), "toArrow", collect)
    merge_dataframe(table, frame).when_matched_update_all().execute()
    assert len(given) == 1
    texts = {row["id"]: row["text"] for row in rows_of(table)}
    assert [texts[n] for n in (1, 2, 3)] == given[0].column("text").to_pylist()

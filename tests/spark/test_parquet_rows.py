"""Rows that Spark's own reader takes from a table's files: the same as a scan, or the reader is not asked."""

import math
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import functions as sql

import lsm_engine as lsm
from lsm_engine.read.scan import RawFile, Scan
from lsm_engine.read.split import ReplacedRows
from lsm_engine.spark import read_dataframe
from lsm_engine.spark.session import READS_PARQUET
from tests.spark.rows import ROWS, rows

pytestmark = pytest.mark.spark
SCHEMA = ROWS.remove(ROWS.get_field_index("at"))


@pytest.fixture
def orders(new_table):
    """Three overlapping runs in three partitions of three buckets; the reader does not have TIME."""
    table = new_table("orders", schema=SCHEMA, write_only="true")
    table.upsert(rows(0, 40, "a").drop_columns("at"))
    table.upsert(rows(20, 40, "b").drop_columns("at"))
    table.delete(rows(30, 5).select(["id", "day"]))
    return table


def is_by_spark(frame):
    """Whether Spark itself reads the files of a frame."""
    return "FileScan parquet" in frame._jdf.queryExecution().toString()


def same(frame, scanned):
    """Whether a frame's rows are those of a scan; Spark's times are in microseconds."""
    found = frame.toArrow().select(scanned.column_names)
    order = [(name, "ascending") for name in ("day", "id") if name in scanned.column_names]
    cast = found.cast(pa.schema([field.with_nullable(True) for field in scanned.schema]))
    return cast.sort_by(order).to_pylist() == scanned.sort_by(order).to_pylist()


def test_replaced_and_deleted_rows_are_left_out(spark, orders):
    frame = read_dataframe(orders, spark=spark)
    assert is_by_spark(frame)
    assert same(frame, orders.scan().to_arrow())
    assert frame.count() == 55
    assert read_dataframe(orders, [], spark=spark).count() == 55
    some = read_dataframe(orders, ["day", "id", "ratio"], spark=spark)
    assert is_by_spark(some)
    assert same(some, orders.scan(columns=["day", "id", "ratio"]).to_arrow())


def test_filters_of_a_query_reach_the_files(spark, orders):
    """Of one key, and of others that lie in the same files but are replaced."""
    frame = read_dataframe(orders, spark=spark)
    plan = frame.where("id = 33")._jdf.queryExecution().toString()
    assert "EqualTo(id,33)" in plan
    for number, wanted in ((33, 0), (25, 1), (5, 1), (99, 0)):
        assert frame.where(f"id = {number}").count() == wanted
    assert {row["note"] for row in frame.where("id = 25").collect()} == {"b 25"}
    assert frame.where("note LIKE 'a%' AND id >= 20").count() == 0
    assert frame.where("local > timestamp_ntz'2024-05-01 12:30:59'").count() == sum(
        when is not None and when > datetime(2024, 5, 1, 12, 30, 59)  # noqa: DTZ001 -- as the column
        for when in orders.scan().to_arrow()["local"].to_pylist()
    )


def test_files_of_one_name_in_several_directories_are_left_to_tasks(
    spark, orders, tmp_path, monkeypatch
):
    """Spark tells rows of files apart by the names alone, which other clients keep when they migrate a table."""
    stored = orders.scan().parquet_files(ReplacedRows(), whole=True, small=True)
    alike = []
    for number, file in enumerate(stored):
        link = tmp_path / str(number) / "000000_0.parquet"
        link.parent.mkdir()
        link.symlink_to(file.path)
        alike.append(replace(file, path=str(link)))
    monkeypatch.setattr(Scan, "parquet_files", lambda *_, **__: tuple(alike))
    frame = read_dataframe(orders, spark=spark)
    assert not is_by_spark(frame)
    assert same(frame, orders.scan().to_arrow())


def test_compacted_tables_and_those_of_one_key_are_read_so(spark, orders, new_table):
    orders.compact(full=True)
    assert same(read_dataframe(orders, spark=spark), orders.scan().to_arrow())
    assert read_dataframe(orders, spark=spark).groupBy().sum("id").collect()[0][0] == sum(
        orders.scan().to_arrow()["id"].to_pylist()
    )
    every = new_table("every", schema=SCHEMA)
    every.upsert(rows(0, 6).drop_columns("at"))
    every.delete(rows(0, 6).select(["id", "day"]))
    assert read_dataframe(every, spark=spark).collect() == []


def test_tables_of_rows_appended_and_of_the_past_are_read_so(spark, new_table, orders):
    old = read_dataframe(orders, snapshot_id=1, spark=spark)
    assert is_by_spark(old)
    assert same(old, orders.scan(snapshot_id=1).to_arrow())
    with lsm.open_catalog(orders.location + "-logs") as catalog:
        catalog.create_database("shop")
        logs = catalog.create_table("shop.logs", SCHEMA, options={"bucket": "-1"})
        logs.append(rows(0, 30).drop_columns("at"))
        logs.append(rows(10, 30).drop_columns("at"))
        frame = read_dataframe(logs, spark=spark)
        assert is_by_spark(frame)
        assert frame.count() == 60
        assert same(frame, logs.scan().to_arrow())


@pytest.mark.parametrize("name", ["a b", "100%25", "ü#1", "x=y", "a,b"])
def test_any_directory_is_read(spark, tmp_path, name):
    with lsm.open_catalog(tmp_path / name) as catalog:
        catalog.create_database("shop")
        table = catalog.create_table("shop.t", [("id", "BIGINT")], primary_key="id")
        table.upsert([{"id": 1}])
        frame = read_dataframe(table, spark=spark)
        assert is_by_spark(frame)
        assert [tuple(row) for row in frame.collect()] == [(1,)]


@pytest.mark.parametrize("path", ["/t/_part.parquet", "/t/.part.parquet", "/t\\/part.parquet"])
def test_a_file_that_spark_would_pass_over_is_read_by_tasks(spark, orders, monkeypatch, path):
    hidden = (RawFile(path=path, row_count=1),)
    monkeypatch.setattr(Scan, "parquet_files", lambda *_, **__: hidden)
    assert not is_by_spark(read_dataframe(orders, spark=spark))


def numbers(new_table, name="numbers", **options):
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float32())])
    return new_table(name, schema=schema, partitioned_by=(), bucket="1", **options)


def test_filters_on_numbers_find_nan_and_both_zeros(spark, new_table):
    """Statistics of files leave NaN out, which is the greatest number to Spark."""
    table = numbers(new_table)
    nan = math.nan
    given = {"id": [1, 2, 3, 4], "x": [1.0, nan, -0.0, None], "y": [nan, 2.0, 0.0, None]}
    table.upsert(pa.table(given, schema=table.schema.arrow))
    frame = read_dataframe(table, spark=spark)
    assert is_by_spark(frame)
    found = {text: {row["id"] for row in frame.where(text).collect()} for text in (
        "x > 5", "x = 0", "x < 0.5", "y > 5", "isnan(x)", "x IS NULL", "y IN (0, 2)",
    )}  # fmt: skip
    assert found == {
        "x > 5": {2}, "x = 0": {3}, "x < 0.5": {3}, "y > 5": {1}, "isnan(x)": {2},
        "x IS NULL": {4}, "y IN (0, 2)": {2, 3},
    }  # fmt: skip


def test_what_the_reader_would_not_find_so_is_read_by_tasks(spark, orders, new_table):
    summed = numbers(
        new_table, "summed", merge_engine="aggregation", **{"fields.x.aggregate-function": "sum"}
    )
    for _ in range(2):
        summed.upsert(pa.table({"id": [1], "x": [2.0], "y": [1.0]}, schema=summed.schema.arrow))
    frame = read_dataframe(summed, spark=spark)
    assert not is_by_spark(frame)
    assert frame.collect()[0]["x"] == 4
    assert not is_by_spark(read_dataframe(orders, where="id > 3", spark=spark))
    widened = numbers(new_table, "widened")
    widened.upsert(pa.table({"id": [1], "x": [2.0], "y": [1.0]}, schema=widened.schema.arrow))
    widened.alter(lsm.RenameColumn("x", "z"))
    frame = read_dataframe(widened, spark=spark)
    assert not is_by_spark(frame)
    assert frame.collect()[0]["z"] == 2
    spark.conf.set(READS_PARQUET, "false")
    try:
        frame = read_dataframe(orders, spark=spark)
        assert not is_by_spark(frame)
        assert frame.count() == 55
    finally:
        spark.conf.unset(READS_PARQUET)


def test_times_without_a_zone_keep_their_digits_in_any_zone(spark, orders):
    zone = spark.conf.get("spark.sql.session.timeZone")
    wanted = orders.scan().to_arrow()
    before = read_dataframe(orders, spark=spark)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        assert not is_by_spark(read_dataframe(orders, spark=spark))
        for frame in (before, read_dataframe(orders, spark=spark)):
            found = {row["id"]: row["local"] for row in frame.collect()}
            assert found == dict(
                zip(*(wanted[name].to_pylist() for name in ("id", "local")), strict=True)
            )
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def files_of(table):
    return [
        Path(file.path)
        for file in table.scan().parquet_files(table.scan().replaced, whole=True, small=True)
    ]


def test_a_missing_file_fails_whatever_the_session_ignores(spark, orders):
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        frame = read_dataframe(orders, spark=spark)
        files_of(orders)[0].unlink()
        with pytest.raises(Py4JError, match=r"FILE_NOT_EXIST|does not exist"):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_flipped_bit_fails_the_job(spark, new_table):
    """By the checksum of its page: Spark compares none unless it is told to."""
    table = numbers(new_table, "flipped", **{"file.compression": "none"})
    given = {"id": [1, 2, 3], "x": [1.0, 2.5, 3.0], "y": [0.0] * 3}  # 2.5 is in no statistics
    table.upsert(pa.table(given, schema=table.schema.arrow))
    (path,) = files_of(table)
    frame = read_dataframe(table, spark=spark)
    stored = path.read_bytes()
    at = stored.index(np.array([2.5]).tobytes())
    path.write_bytes(stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])
    with pytest.raises(Py4JError, match=r"(?i)crc|checksum"):
        frame.collect()


def test_rows_that_deletion_vectors_name_are_left_out(spark, new_table):
    for name, options in (
        ("keyed", {"deletion-vectors.enabled": "true"}),
        ("kept", {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"}),
    ):
        table = new_table(name, schema=SCHEMA, **options)
        table.upsert(rows(0, 40, "a").drop_columns("at"))
        table.upsert(rows(20, 40, "b").drop_columns("at"))
        table.delete(rows(30, 5).select(["id", "day"]))
        assert any(split.vectors for split in table.scan().splits())
        frame = read_dataframe(table, spark=spark)
        assert is_by_spark(frame)
        assert same(frame, table.scan().to_arrow())
        assert frame.where("id = 31").count() == 0
    with lsm.open_catalog(table.location + "-logs") as catalog:
        catalog.create_database("shop")
        options = {"bucket": "-1", "deletion-vectors.enabled": "true"}
        logs = catalog.create_table("shop.logs", SCHEMA, options=options)
        logs.append(rows(0, 30).drop_columns("at"))
        logs.delete(where="id < 11")
        frame = read_dataframe(logs, spark=spark)
        assert is_by_spark(frame)
        assert same(frame, logs.scan().to_arrow())


def test_files_of_an_older_schema_are_read_so_where_it_had_the_same_columns(spark, orders):
    orders.alter(lsm.SetOption(key="write-only", value="false"))
    orders.alter(lsm.AddColumn("more", pa.int64()))
    orders.alter(lsm.RenameColumn("small", "tiny"))
    orders.upsert(rows(50, 15, "c").drop_columns("at").rename_columns({"small": "tiny"}))
    names = ["day", "id", "note", "ratio"]
    frame = read_dataframe(orders, names, spark=spark)
    assert is_by_spark(frame)
    assert same(frame, orders.scan(columns=names).to_arrow())
    for name in ("more", "tiny"):
        frame = read_dataframe(orders, ["day", "id", name], spark=spark)
        assert not is_by_spark(frame)
        assert same(frame, orders.scan(columns=["day", "id", name]).to_arrow())


def test_random_histories_read_as_a_scan(spark, new_table):
    """Upserts and deletes of random keys, by runs that overlap, compacted now and then."""
    chance = np.random.default_rng(20261127)
    table = numbers(new_table, "random")
    for step in range(12):
        ids = chance.choice(200, int(chance.integers(1, 60)), replace=False)
        if chance.random() < 0.3:
            table.delete(pa.table({"id": ids}))
        else:
            values = {"id": ids, "x": chance.random(len(ids)), "y": np.full(len(ids), step, "f4")}
            table.upsert(pa.table(values, schema=table.schema.arrow))
        if chance.random() < 0.2:
            table.compact(full=bool(chance.integers(2)))
        frame = read_dataframe(table, spark=spark)
        wanted = table.scan().to_arrow()
        if not wanted.num_rows:
            continue
        assert is_by_spark(frame)
        found = frame.groupBy().agg(sql.count("*"), sql.sum("id"), sql.sum("y")).collect()[0]
        assert tuple(found) == (
            wanted.num_rows, sum(wanted["id"].to_pylist()), sum(wanted["y"].to_pylist()),
        )  # fmt: skip

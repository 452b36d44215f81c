"""Buckets of every kind on Spark: the same rows as one process writes, in buckets that hold."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lsm_engine as lsm
from lsm_engine.spark import on_spark, register, upsert_files
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable
from tests.spark.rows import by_id, rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_executors")]


def check(table):
    check_invariants(StoredTable(table.session.file_io))
    assert table.verify().is_clean


def in_order(table):
    return by_id(table).to_pylist()


def test_dynamic_buckets_are_given_by_one_task_per_partition(spark, new_table, tmp_path):
    options = {"bucket": "-1", "dynamic_bucket.target_row_num": "10"}
    table = on_spark(new_table("spark", **options), spark)
    table.upsert(spark.createDataFrame(rows(0, 100)).repartition(4))
    table.upsert(spark.createDataFrame(rows(60, 80, "new")))
    local = lsm.open_table(table.location)
    local.upsert(rows(130, 30, "local"))
    path = str(tmp_path / "more.parquet")
    pq.write_table(rows(0, 10, "file"), path)
    upsert_files(table, [path], spark=spark)
    wanted = pa.concat_tables(
        [rows(0, 10, "file"), rows(10, 50), rows(60, 70, "new"), rows(130, 30, "local")]
    )
    assert in_order(table.scan().to_arrow()) == in_order(wanted)
    assert len({file["bucket"] for file in table.system("files").to_pylist()}) > 3
    check(table)
    register(spark)
    frame = spark.createDataFrame(rows(0, 3))
    with pytest.raises(Exception, match="upsert_dataframe"):
        frame.write.format("lsm").mode("append").save(table.location)


def test_of_a_key_that_moves_the_last_row_counts(spark, tmp_path):
    """Whatever its partition: rows went to their writer in the order of the names of partitions."""
    columns = pa.schema([("day", pa.string()), ("id", pa.int64()), ("v", pa.int64())])
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        made = catalog.create_table(
            "shop.moving", columns, primary_key="id", partitioned_by="day", options={"bucket": "-1"}
        )
        table = on_spark(made, spark)
        given = [("c", 1, 1), ("a", 1, 2), ("b", 2, 3), ("c", 2, 4), ("b", 3, 5)]
        frame = spark.createDataFrame(given, "day string, id long, v long")
        for one in (frame.coalesce(1), frame.repartition(1)):
            table.upsert(one)
            found = sorted(
                map(tuple, (row.values() for row in table.scan().to_arrow().to_pylist()))
            )
            assert found == [("a", 1, 2), ("b", 3, 5), ("c", 2, 4)]
        check(made)


def test_append_tables_are_written_where_rows_are_read(spark, tmp_path):
    columns = pa.schema([("day", pa.string()), ("v", pa.int64())])
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        plain = catalog.create_table("shop.a", columns, partitioned_by=["day"])
        fixed = catalog.create_table("shop.b", columns, options={"bucket": "3", "bucket-key": "v"})
    register(spark)
    numbers = np.arange(200)
    made = pa.table([pa.array([f"d{n % 2}" for n in range(200)]), numbers], schema=columns)
    for table in (plain, fixed):
        table = on_spark(table, spark)
        assert table.append(spark.createDataFrame(made).repartition(4)).delta_record_count == 200
        spark.createDataFrame(made).write.format("lsm").mode("append").save(table.location)
        table.compact(full=True)
        assert sorted(table.scan().to_arrow()["v"].to_pylist()) == sorted([*range(200)] * 2)
        assert len(table.system("files")) == (2 if table.name == plain.name else 3)
        check(table)
    with pytest.raises(lsm.InvalidInputError, match="append"):
        on_spark(plain, spark).upsert(spark.createDataFrame(made))


def test_rows_wait_get_buckets_and_are_rescaled(spark, new_table):
    options = {"bucket": "-2", "postpone.batch_write_fixed_bucket": "false"}
    table = on_spark(new_table("spark", **options), spark)
    table.upsert(spark.createDataFrame(rows(0, 60)))
    table.upsert(spark.createDataFrame(rows(30, 60, "new")))
    assert table.scan().count() == 0
    table.compact()
    wanted = in_order(pa.concat_tables([rows(0, 30), rows(30, 60, "new")]))
    assert in_order(table.scan().to_arrow()) == wanted
    table.rescale(4)
    assert in_order(table.scan().to_arrow()) == wanted
    assert {file["bucket"] for file in table.system("files").to_pylist()} == {0, 1, 2, 3}
    check(table)


def test_keys_move_between_partitions(spark, tmp_path):
    columns = pa.schema([("k", pa.int64()), ("day", pa.string())])
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table(
            "shop.k", columns, primary_key=["k"], partitioned_by=["day"], options={"bucket": "-1"}
        )
    table = on_spark(table, spark)
    for day, keys in (("a", range(40)), ("b", range(20, 60))):
        made = pa.table([list(keys), [day] * len(keys)], schema=columns)
        table.upsert(spark.createDataFrame(made).repartition(3))
    found = {row["k"]: row["day"] for row in table.scan().to_arrow().to_pylist()}
    assert found == {k: "a" if k < 20 else "b" for k in range(60)}
    assert table.scan().count() == 60


def test_rows_merged_before_they_are_shuffled_write_the_same(spark, new_table):
    table = on_spark(new_table("spark", **{"local-merge-buffer-size": "64 kb"}), spark)
    plain = new_table("local")
    again = pa.concat_tables([rows(0, 60, f"value {at}") for at in range(4)])
    kinds = pa.array(["-D" if n % 7 == 0 and n > 200 else "+U" for n in range(again.num_rows)])
    given = again.append_column("_row_kind", kinds)
    table.upsert(spark.createDataFrame(given).coalesce(1))
    plain.upsert(given)
    assert in_order(table.scan().to_arrow()) == in_order(plain.scan().to_arrow())
    check(table)


def test_tasks_that_share_buckets_write_rows_as_new_as_their_snapshot(spark, new_table):
    options = {"sequence.snapshot-ordering": "true", "write-only": "true"}
    table = new_table("spark", **options)
    register(spark)
    for value in ("old", "new"):
        both = pa.concat_tables([rows(0, 30, f"{value} a"), rows(0, 30, f"{value} b")])
        frame = spark.createDataFrame(both).coalesce(1).repartitionByRange(2, "note")
        frame.write.format("lsm").mode("append").save(table.location)
    files = table.system("files").to_pylist()
    assert {file["min_sequence_number"] for file in files} == {1, 2}
    assert len(files) > 2 * len({(file["partition"], file["bucket"]) for file in files})
    wanted = in_order(rows(0, 30, "new b"))  # the later partition's
    assert in_order(table.scan().to_arrow()) == wanted
    table.compact(full=True)
    assert in_order(table.scan().to_arrow()) == wanted


def test_spark_counts_what_waits_before_it_gives_buckets(spark, new_table):
    options = {"bucket": "-2", "postpone.target-size-per-bucket": "1 kb"}
    table = on_spark(new_table("spark", **options), spark)
    table.upsert(spark.createDataFrame(rows(0, 300)))
    assert in_order(table.scan().to_arrow()) == in_order(rows(0, 300))
    assert {file["bucket"] for file in table.system("files").to_pylist()} > {0, 1}
    check(table)

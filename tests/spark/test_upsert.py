"""Upserts of DataFrames and files: the same rows in the same buckets as a local upsert."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

import lsm_engine as lsm
from lsm_engine.api.table import Table
from lsm_engine.base.errors import InvalidInputError, NotFoundError, StorageError
from lsm_engine.format.snapshot import RowCounts, row_counts_of
from lsm_engine.spark import (
    SparkExecutor,
    changes_dataframe,
    merge_dataframe,
    on_spark,
    register,
    upsert_dataframe,
    upsert_files,
)
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.table.components import Components
from lsm_engine.table.session import TableSession
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable
from tests.spark.rows import ROWS, by_id, rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_executors")]

_FACTS = ("partition", "bucket", "level", "record_count", "min_key", "max_key", "min_value_stats",
          "min_sequence_number", "max_sequence_number")  # fmt: skip


def placed(table):
    """What the newest snapshot says about where rows are, file names aside."""
    files = table.system("files").to_pylist()
    return sorted(str({name: file[name] for name in _FACTS if name in file}) for file in files)


def check(table):
    check_invariants(StoredTable(table.session.file_io))


def assert_same(table, reference):
    assert by_id(table.scan().to_arrow()).equals(by_id(reference.scan().to_arrow()))
    assert placed(table) == placed(reference)
    check(table)


def test_a_dataframe_lands_where_local_rows_land(spark, new_table):
    """Two upserts: the second replaces, deletes, and says one key twice."""
    table = on_spark(new_table("spark", write_only="true"), spark)
    reference = new_table("local", write_only="true")
    again = pa.concat_tables([rows(40, 60, "old"), rows(50, 80, "new")])
    kinds = pa.array(["-D" if n % 11 == 0 else "+U" for n in range(again.num_rows)])
    for part in (rows(0, 100), again.append_column("_row_kind", kinds)):
        snapshot = table.upsert(spark.createDataFrame(part), commit_user="me")
        assert snapshot.commit_user == "me"
        reference.upsert(part)
    assert_same(table, reference)


def test_deletes_and_overwrites_take_dataframes(spark, new_table):
    table = on_spark(new_table("spark"), spark)
    table.upsert(rows(0, 30))  # Arrow rows are written by this process
    keys = rows(0, 10).select(["id", "day"])
    table.delete(spark.createDataFrame(keys))
    assert table.scan().count() == 20
    one_day = rows(0, 30).filter(pa.compute.field("day") == rows(0, 1)["day"][0])
    table.overwrite(spark.createDataFrame(one_day.slice(0, 4)))
    assert table.scan().count() == 14 + 4  # the other two days, and the new rows of this one
    check(table)


def test_a_table_without_partitions_gives_each_bucket_a_task(spark, new_table):
    table = on_spark(new_table("spark", partitioned_by=()), spark)
    reference = new_table("local", partitioned_by=())
    table.upsert(spark.createDataFrame(rows(0, 90)))
    reference.upsert(rows(0, 90))
    assert_same(table, reference)
    assert {file["bucket"] for file in table.system("files").to_pylist()} == {0, 1, 2}


def test_no_rows_are_no_snapshot(spark, new_table):
    table = new_table("spark")
    assert upsert_dataframe(table, spark.createDataFrame(rows(0, 5)).where("id < 0")) is None
    assert table.snapshots() == []


def test_wrong_columns_are_refused_before_a_job_starts(spark, new_table):
    table = on_spark(new_table("spark"), spark)
    wrong = spark.createDataFrame(rows(0, 5)).withColumnRenamed("note", "notes")
    with pytest.raises(InvalidInputError, match="did you mean 'note'"):
        table.upsert(wrong)
    with pytest.raises(InvalidInputError, match="cast it first"):
        table.upsert(spark.createDataFrame(rows(0, 5)).selectExpr("id", "day", "id as note"))


def test_wrong_rows_leave_nothing_behind(spark, new_table):
    table = on_spark(new_table("spark", write_only="true"), spark)
    table.upsert(rows(0, 30))
    wrong = spark.createDataFrame(rows(0, 90)).selectExpr(
        "if(id = 77, null, id) as id", "day", "note"
    )
    with pytest.raises(InvalidInputError, match="1 row without a value in key column 'id'"):
        table.upsert(wrong)
    assert len(table.snapshots()) == 1
    check(table)  # no file that no snapshot names


class UnsteadyFileIO(LocalFileIO):
    """Storage whose every first new data file of a bucket fails, half written."""

    def __reduce__(self):
        return UnsteadyFileIO, (self.root,)

    def open_output(self, path):
        marker = Path(self.root).parent / f"failed-{path.split('/')[-2]}"
        output = super().open_output(path)
        if not marker.exists():
            marker.touch()
            output.write(b"half")
            output.abort()
            raise StorageError("the disk is full", path=path)
        return output


def test_an_attempt_that_fails_leaves_nothing_and_doubles_nothing(spark, new_table):
    made = new_table("spark", partitioned_by=())
    components = Components(file_io=UnsteadyFileIO(made.location), executor=SparkExecutor(spark))
    table = Table(TableSession("unsteady", components, made.schema), made.location)
    table.upsert(spark.createDataFrame(rows(0, 60)))
    assert by_id(table.scan().to_arrow()).equals(by_id(made_of(table, rows(0, 60))))
    assert len(list(Path(made.location).parent.glob("failed-*"))) == 3
    check(table)


def made_of(table, given):
    return given.cast(table.schema.arrow)


def test_files_are_read_by_tasks_in_their_order(spark, new_table, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    first, second, third = rows(0, 120, "a"), rows(60, 90, "b"), rows(100, 30, "c")
    pq.write_table(first, source / "1.parquet", row_group_size=25)
    pq.write_table(second, source / "2.parquet")
    pq.write_table(third, source / "3.parquet")
    source.joinpath("_SUCCESS").touch()
    reference = new_table("local")
    reference.upsert(pa.concat_tables([first, second, third]))
    table = new_table("spark")
    upsert_files(table, [str(source)], spark=spark, commit_user="loader")
    assert table.latest_snapshot().commit_user == "loader"
    assert_same(table, reference)


def test_csv_takes_the_types_of_the_table(spark, new_table, tmp_path):
    plain = ["id", "day", "note", "price", "ratio", "small", "open", "seen", "local"]
    given = rows(1, 6).select(plain)
    pa_csv.write_csv(given, tmp_path / "a.csv")
    text = (tmp_path / "a.csv").read_bytes()
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.csv").unlink()
    table = new_table("spark")
    upsert_files(table, [str(tmp_path / "b.csv.gz")], spark=spark)
    found = by_id(table.scan(columns=plain).to_arrow())
    assert found.equals(by_id(given).cast(found.schema))


def test_files_that_do_not_read_are_named(spark, new_table, tmp_path):
    table = new_table("spark")
    with pytest.raises(NotFoundError, match="nowhere"):
        upsert_files(table, [str(tmp_path / "nowhere.parquet")], spark=spark)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 not really")
    with pytest.raises(InvalidInputError, match="broken"):
        upsert_files(table, [str(broken)], spark=spark)
    with pytest.raises(InvalidInputError, match="neither"):
        upsert_files(table, [__file__], spark=spark)
    assert table.snapshots() == []
    assert lsm.open_table(table.location).scan().count() == 0
    assert table.schema.names == tuple(ROWS.names)


def test_the_data_source_ends_a_write_as_the_verbs_do(spark, new_table):
    """Counts, compactions that readers wait for, and whose upkeep it is."""
    options = {"merge-engine": "first-row", "write.count-changes": "true"}
    table = new_table("spark", **options)
    register(spark)
    for part in (rows(0, 30), rows(20, 30)):
        frame = spark.createDataFrame(part).repartition(3)
        frame.write.format("lsm").mode("append").save(table.location)
    assert table.scan().count() == 50
    written = [one for one in table.snapshots() if one.commit_kind is lsm.CommitKind.APPEND]
    counts = [row_counts_of(one.properties) for one in written]
    assert counts == [RowCounts(inserted=30), RowCounts(inserted=20, skipped=10)]
    one_day = rows(0, 30).filter(pa.compute.field("day") == rows(0, 1)["day"][0])
    frame = spark.createDataFrame(one_day.slice(0, 4))
    there = table.scan(where=pa.compute.field("day") == rows(0, 1)["day"][0]).count()
    frame.write.format("lsm").mode("overwrite").save(table.location)
    assert table.scan().count() == 50 - there + 4
    (made,) = [one for one in table.snapshots() if one.commit_kind is lsm.CommitKind.OVERWRITE]
    assert row_counts_of(made.properties) == RowCounts(updated=4, deleted=there - 4)
    check(table)


def test_errors_of_the_format_come_without_the_calls_that_led_to_them(spark, new_table):
    """The sentence stood below two walls of Python and Java, and Spark tried the rows four times."""
    table = new_table("spark")
    register(spark)
    half = spark.createDataFrame(rows(0, 8)).repartition(2)
    nullable = half.withColumn("id", sql.expr("nullif(id, 5)"))
    refusals = {
        "1 row without a value in key column 'id'": nullable.write.format("lsm"),
        "no such option; here it is an option of the table": half.write.format("lsm").option(
            "bucket", 3
        ),
    }
    for sentence, write in refusals.items():
        with pytest.raises(PySparkException) as refused:
            write.mode("append").save(table.location)
        assert sentence in str(refused.value)
        assert str(refused.value).count("\n") <= 6
    assert not [*Path(table.location).rglob("data-*")]  # nor the files of the tasks that worked


def test_a_dataframe_goes_to_the_branch_that_was_opened(spark, new_table):
    table = new_table("spark")
    table.upsert(rows(0, 3))
    table.create_tag("start")
    table.create_branch("fix", tag="start")
    fix = table.branch("fix")
    upsert_dataframe(fix, spark.createDataFrame(rows(10, 2)))
    merge_dataframe(fix, spark.createDataFrame(rows(20, 2))).when_not_matched_insert_all().execute()
    assert (fix.scan().count(), table.scan().count()) == (7, 3)
    assert [one.id for one in table.snapshots()] == [1]


def test_a_dataframe_that_was_upserted_is_a_bookmark(spark, new_table):
    table = new_table("spark", **{"changelog-producer": "lookup"})
    made = upsert_dataframe(table, spark.createDataFrame(rows(0, 30)))
    assert made.visible
    assert table.changelog(after=made).num_rows == 0
    table.upsert(rows(40, 2))
    assert table.changelog(after=made)["id"].to_pylist() == [40, 41]
    assert changes_dataframe(table, made, spark=spark).count() == 2


def test_a_merge_takes_a_dataframe(spark, new_table):
    table, reference = on_spark(new_table("spark"), spark), new_table("local")
    for part in (rows(0, 60), rows(40, 90, "new")):
        reference.upsert(part)
    table.upsert(rows(0, 60))
    made = (
        table.merge(spark.createDataFrame(rows(40, 90, "new")))
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    assert row_counts_of(made.properties) == RowCounts(updated=20, inserted=70)
    assert by_id(table.scan().to_arrow()).equals(by_id(reference.scan().to_arrow()))


def test_a_merge_refuses_a_time_of_day_with_more_digits_than_its_column(spark, new_table):
    table = on_spark(new_table("spark"), spark)
    table.upsert(rows(0, 2))
    source = spark.createDataFrame(rows(0, 1)).withColumn("at", sql.expr("TIME'10:00:00.123456'"))
    with pytest.raises(lsm.LsmError, match="at"):
        table.merge(source).when_matched_update_all().execute()
    source = source.withColumn("at", sql.expr("TIME'10:00:00.123'"))
    table.merge(source).when_matched_update_all().execute()
    (at,) = table.scan(where="id = 0").to_arrow()["at"].to_pylist()
    assert at.isoformat() == "10:00:00.123000"


def test_a_dataframe_publishes_the_schema_that_it_needs(spark, new_table):
    """Once for all that is written by one plan; rows that are refused publish nothing."""
    table = new_table("altering")
    table.upsert(rows(0, 5))
    planned = table.altering(lsm.AddColumn("remark", "STRING"))
    frame = spark.createDataFrame(rows(3, 8)).withColumn("remark", sql.lit("new"))
    with pytest.raises(lsm.LsmError):
        upsert_dataframe(planned, frame.withColumn("unheard_of", sql.lit(1)))
    assert "remark" not in lsm.open_table(table.location).schema.names
    upsert_dataframe(planned, frame)
    merge_dataframe(planned, frame).when_matched_update_all().execute()
    found = lsm.open_table(table.location)
    assert found.scan().to_arrow()["remark"].to_pylist().count("new") == 8
    check(found)

"""Reading as a DataFrame, and through format("lsm"): the same rows as a scan."""

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException

import lsm_engine as lsm
from lsm_engine.base.errors import NotFoundError
from lsm_engine.spark import SparkExecutor, read_dataframe, register, spark_schema, upsert_dataframe
from lsm_engine.spark.source.change_reader import LsmChangesReader
from lsm_engine.spark.splits import change_schema
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable
from tests.spark.rows import NESTED, by_id, nested, rows

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(new_table):
    """Three overlapping runs per bucket, a tag between them."""
    table = new_table("orders", write_only="true")
    table.upsert(rows(0, 40, "a"))
    table.create_tag("first")
    table.upsert(rows(20, 40, "b"))
    table.delete(rows(30, 5).select(["id", "day"]))
    return table


@pytest.fixture
def lsm_format(spark):
    register(spark)
    return spark.read.format("lsm")


def arrow_of(frame, like):
    """A DataFrame's rows in the types of a scan: Spark holds all times in microseconds."""
    return by_id(frame.toArrow().cast(like.schema))


def test_a_dataframe_holds_what_a_scan_holds(spark, orders):
    scanned = orders.scan().to_arrow()
    frame = read_dataframe(orders, spark=spark)
    assert frame.schema == spark_schema(orders.schema.fields)
    assert arrow_of(frame, scanned).equals(by_id(scanned))
    where = (pc.field("id") > 25) & (pc.field("ratio") < 6)
    part = orders.scan(columns=["day", "id", "note"], where=where).to_arrow()
    found = read_dataframe(orders, ["day", "id", "note"], where, spark=spark)
    assert found.columns == ["day", "id", "note"]
    assert arrow_of(found, part).equals(by_id(part))
    assert read_dataframe(orders, [], spark=spark).columns == []
    assert read_dataframe(orders, [], where, spark=spark).count() == part.num_rows


def test_time_travel_is_fixed_when_the_frame_is_made(spark, orders):
    """The session is that of the table's executor."""
    table = lsm.open_table(orders.location, executor=SparkExecutor(spark))
    tagged, second = read_dataframe(table, tag="first"), read_dataframe(table, snapshot_id=2)
    newest = read_dataframe(table)
    orders.upsert(rows(100, 10))
    assert (tagged.count(), second.count(), newest.count()) == (40, 60, 55)
    with pytest.raises(NotFoundError, match="nope"):
        read_dataframe(table, tag="nope")


def test_partitions_of_a_fallback_branch_come_too(spark, new_table, lsm_format):
    """The branch merges by rules of its own: other buckets, and another engine."""
    table = new_table("parted", write_only="true")
    table.create_branch("old")
    table.branch("old").alter(lsm.SetOption(key="bucket", value="3"))
    old = table.branch("old")
    old.upsert(rows(0, 40, "old"))
    old.upsert(rows(10, 20, "newer"))
    here = rows(0, 30, "main").filter(pc.field("day") == pa.scalar(date(2024, 5, 1)))
    table.upsert(here)
    table.alter(lsm.SetOption(key="scan.fallback-branch", value="old"))
    scanned = table.scan().to_arrow()
    assert scanned.num_rows == here.num_rows + sum(1 for number in range(40) if number % 3)
    assert arrow_of(read_dataframe(table, spark=spark), scanned).equals(by_id(scanned))
    assert arrow_of(lsm_format.load(table.location), scanned).equals(by_id(scanned))
    where = pc.field("id") < 12
    part = table.scan(columns=["day", "id", "note"], where=where).to_arrow()
    found = read_dataframe(table, ["day", "id", "note"], where, spark=spark)
    assert arrow_of(found, part).equals(by_id(part))


def test_a_dataframe_keeps_what_it_reads(spark, new_table, by_executors):
    """It is computed when somebody asks: until then its tag keeps the files."""
    option = {"scan.plan-auto-tag-for-read.time-retained": "1 h"}
    table = new_table("kept", write_only="true")
    table.alter(*(lsm.SetOption(key=key, value=value) for key, value in option.items()))
    table.upsert(rows(0, 40, "a"))
    frame = read_dataframe(table, spark=spark)
    table.upsert(rows(0, 40, "b"))
    table.compact(full=True)
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert frame.count() == 40
    assert [tag.snapshot.id for tag in table.tags()] == [1]


def test_a_dataframe_whose_snapshot_has_expired_says_so(spark, new_table, by_executors):
    """It was planned before, and is computed afterwards."""
    table = new_table("gone", write_only="true")
    table.upsert(rows(0, 40, "a"))
    frame = read_dataframe(table, snapshot_id=1, spark=spark)
    table.create_tag("kept")
    tagged = read_dataframe(table, tag="kept", spark=spark)
    changes = LsmChangesReader(
        table.location, {"incremental-between": "0,1"}, change_schema(table.schema)
    )  # as format("lsm") plans and reads them
    (first, *_) = changes.partitions()
    table.upsert(rows(0, 40, "b"))
    table.compact(full=True)
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert tagged.count() == 40
    table.delete_tag("kept")
    with pytest.raises(PySparkException, match=r"ExpiredError: snapshot 1 has expired"):
        frame.collect()
    with pytest.raises(PySparkException, match="no such file"):
        tagged.collect()
    with pytest.raises(lsm.ExpiredError, match="snapshot 1 has expired"):
        list(changes.read(first))


def test_an_empty_table_is_an_empty_frame(spark, new_table, lsm_format):
    table = new_table("empty")
    assert read_dataframe(table, ["id"], spark=spark).collect() == []
    assert lsm_format.load(table.location).collect() == []


def test_nested_columns_come_and_go(spark, new_table, lsm_format):
    table = new_table("nested", schema=NESTED, partitioned_by=(), bucket="1")
    upsert_dataframe(table, spark.createDataFrame(nested(30)))
    expected = nested(30).to_pylist()
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    for frame in (read_dataframe(table, spark=spark), lsm_format.load(table.location)):
        assert frame.toArrow().sort_by("id").to_pylist() == expected


def test_few_rows_are_read_at_once_and_stay_whatever_expires(spark, new_table):
    table = new_table("brief", write_only="true")
    table.upsert(rows(0, 40, "a"))
    frame = read_dataframe(table, where="id < 30", spark=spark)
    assert "MapInArrow" not in frame._jdf.queryExecution().toString()
    table.upsert(rows(0, 40, "b"))
    table.compact(full=True)
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert {row["note"] for row in frame.collect()} == {
        None, *(f"a {n}" for n in range(30) if n % 7)
    }  # fmt: skip


def test_keys_that_a_filter_names_are_found_by_the_driver(spark, new_table, monkeypatch):
    table = new_table("named", partitioned_by=(), bucket="1")
    table.upsert(rows(0, 100))
    monkeypatch.setattr("lsm_engine.spark.parquet_rows.bytes_per_row", lambda _: 1 << 30)
    few = read_dataframe(table, ["id", "note"], where="id IN (3, 5, 500)", spark=spark)
    assert "MapInArrow" not in few._jdf.queryExecution().toString()
    assert sorted(map(tuple, few.collect())) == [(3, "v 3"), (5, "v 5")]
    many = read_dataframe(table, ["id"], where="note = 'v 3'", spark=spark)
    assert "MapInArrow" in many._jdf.queryExecution().toString()
    assert [tuple(row) for row in many.collect()] == [(3,)]


def test_times_finer_than_sparks_are_refused_not_cut(spark, new_table, by_executors):
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns"))])
    table = new_table("fine", schema=schema, partitioned_by=(), bucket="1")
    table.upsert(pa.table([[1], [1_000]], schema=schema))
    assert read_dataframe(table, spark=spark).count() == 1
    table.upsert(pa.table([[2], [1_001]], schema=schema))
    with pytest.raises(PySparkException, match="column 'at' holds values"):
        read_dataframe(table, spark=spark).collect()


def test_the_format_reads_what_a_scan_reads(orders, lsm_format):
    scanned = orders.scan().to_arrow()
    frame = lsm_format.load(orders.location)
    assert arrow_of(frame, scanned).equals(by_id(scanned))
    narrow = lsm_format.schema("note string, id bigint not null").load(orders.location)
    assert sorted(narrow.where("id = 21").collect()) == [(None, 21)]


def test_the_format_travels_in_time(spark, orders):
    first = orders.snapshots()[0].time_millis
    for option, value, count in [
        ("tag", "first", 40),
        ("snapshot-id", 2, 60),
        ("as-of", first, 40),
        ("as-of", "2100-01-01", 55),
    ]:
        read = spark.read.format("lsm").option(option, value)
        assert read.schema("id bigint not null").load(orders.location).count() == count, option


def test_filters_are_handed_down_to_a_dataframe_that_is_used_once(pushing, orders, capsys):
    def once():
        return pushing.read.format("lsm").option("push-filters", "true").load(orders.location)

    asked = "id > 25 and day = date'2024-05-02' and note like 'b%' and small in (1, 2, -22, -19)"
    found = once().where(asked)
    found.explain()
    assert "Filter (" not in capsys.readouterr().out
    assert sorted(row["id"] for row in found.collect()) == [52]
    less = once().where("id > 25 and ratio < 5")
    less.explain()
    assert "Filter (" not in capsys.readouterr().out
    left = once().where("id > 25 and ratio > 5")  # NaN is above all in Spark
    left.explain()
    assert "Filter (ratio" in capsys.readouterr().out
    for frame, ratio in ((less, pc.field("ratio") < 5), (left, pc.field("ratio") > 5)):
        assert frame.count() == orders.scan(where=(pc.field("id") > 25) & ratio).count()


def test_wrong_options_and_paths_say_so(spark, orders, lsm_format):
    with pytest.raises(PySparkException, match="did you mean 'snapshot-id'"):
        spark.read.format("lsm").option("snapshotid", 1).load(orders.location)
    with pytest.raises(PySparkException, match="no table is in this directory"):
        lsm_format.load(orders.location + "-gone")


def test_the_format_appends_and_overwrites(spark, orders, new_table):
    register(spark)
    reference = new_table("reference", write_only="true")
    for part in (rows(0, 40, "a"), rows(20, 40, "b")):
        reference.upsert(part)
    reference.delete(rows(30, 5).select(["id", "day"]))
    more = pa.concat_tables([rows(35, 30, "c"), rows(50, 30, "d")])  # in two partitions of a frame
    frame = spark.createDataFrame(more).coalesce(2)
    frame.write.format("lsm").mode("append").option("commit-user", "me").save(orders.location)
    reference.upsert(more)
    assert by_id(orders.scan().to_arrow()).equals(by_id(reference.scan().to_arrow()))
    assert orders.latest_snapshot().commit_user == "me"
    one_day = rows(0, 30).filter(pc.field("day") == rows(0, 1)["day"][0])
    spark.createDataFrame(one_day).write.format("lsm").mode("overwrite").save(orders.location)
    reference.overwrite(one_day)
    assert by_id(orders.scan().to_arrow()).equals(by_id(reference.scan().to_arrow()))
    check_invariants(StoredTable(orders.session.file_io))


def test_a_write_that_fails_leaves_nothing_behind(spark, orders):
    register(spark)
    before = orders.latest_snapshot()
    wrong = spark.createDataFrame(rows(0, 60)).selectExpr("if(id = 55, null, id) as id", "day")
    with pytest.raises(PySparkException, match="1 row without a value in key column 'id'"):
        wrong.write.format("lsm").mode("append").save(orders.location)
    assert orders.latest_snapshot() == before
    check_invariants(StoredTable(orders.session.file_io))

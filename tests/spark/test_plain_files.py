"""DataFrames that are Parquet files alone are written past the JVM, and those that are more are not."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sql

from lsm_engine.spark import executor, merge_dataframe, upsert_dataframe
from lsm_engine.spark.rows import plain_files
from tests.spark.rows import by_id

pytestmark = pytest.mark.spark
MOST = 1 << 30
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("day", pa.date32()),
        pa.field("tiny", pa.int8()),
        pa.field("flag", pa.bool_()),
        pa.field("name", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("seen", pa.timestamp("us", "UTC")),
    ]
)


def rows(first, count):
    """Rows of every type, some null."""
    return pa.Table.from_pylist(
        [
            {
                "id": n,
                "day": date(1400 + n % 700, 1, 1),
                "tiny": n % 100,
                "flag": None if n % 5 == 0 else n % 2 == 0,
                "name": None if n % 7 == 0 else f"n{n}",
                "raw": bytes([n % 256]),
                "price": Decimal(n) / 4,
                "seen": datetime(2024, 5, 1, tzinfo=UTC),
            }
            for n in range(first, first + count)
        ],
        schema=SCHEMA,
    )


@pytest.fixture
def stored(tmp_path):
    """Two files of a directory."""
    folder = tmp_path / "given 1"
    folder.mkdir()
    pq.write_table(rows(0, 50), folder / "a.parquet")
    pq.write_table(rows(50, 50), folder / "b.parquet")
    return folder


def files_of(frame):
    return plain_files(frame, MOST)


def test_files_a_view_of_them_and_a_choice_of_columns_are_read_alike(spark, stored):
    frame = spark.read.parquet(str(stored))
    frame.createOrReplaceTempView("given")
    for one in (frame, spark.sql("SELECT * FROM given"), frame.toDF(*frame.columns)):
        found = files_of(one)
        assert by_id(found.reader().read_all()).equals(by_id(one.toArrow()))
    chosen = frame.select(sql.col("name").alias("called"), "id")
    found = files_of(chosen)
    assert found.columns == ("name", "id")
    assert found.reader().read_all().sort_by("id").equals(chosen.toArrow().sort_by("id"))
    size = sum(path.stat().st_size for path in stored.iterdir())
    assert plain_files(frame, size) is not None
    assert plain_files(frame, size - 1) is None
    assert plain_files(frame, 0) is None


def test_what_is_more_than_files_is_left_to_spark(spark, stored, tmp_path):
    frame = spark.read.parquet(str(stored))
    more = {
        "a filter": frame.where("id > 3"),
        "an expression": frame.select((sql.col("id") + 1).alias("id")),
        "a constant": frame.withColumn("one", sql.lit(1)),
        "a join": frame.join(frame.select("id"), "id"),
        "a union": frame.union(frame),
        "a limit": frame.limit(3),
        "a sort": frame.orderBy("id"),
        "an option": spark.read.option("modifiedBefore", "2090-01-01T00:00:00").parquet(str(stored / "a.parquet")),
        "other types": spark.read.schema("id int, day date").parquet(str(stored)),
        "a column that no file has": spark.read.schema("id long, none long").parquet(str(stored)),
        "rows of no file": spark.range(3),
    }  # fmt: skip
    kept = frame.select("id").cache()
    more["a cache"] = kept
    kept.count()
    frame.write.partitionBy("tiny").parquet(str(tmp_path / "parted"))
    more["partitions"] = spark.read.parquet(str(tmp_path / "parted"))
    frame.select("id").write.csv(str(tmp_path / "csv"))
    more["another format"] = spark.read.csv(str(tmp_path / "csv"))
    assert {name: files_of(one) for name, one in more.items()} == dict.fromkeys(more)
    kept.unpersist()


def test_files_that_spark_reads_in_another_way_are_left_to_it(spark, stored, tmp_path):
    whole = rows(0, 3)

    def files(name, table, **written):
        pq.write_table(table, tmp_path / name, **written)
        return files_of(spark.read.parquet(str(tmp_path / name)))

    assert files("int96.parquet", whole, use_deprecated_int96_timestamps=True) is None
    nested = pa.table({"id": [1], "tags": [["a"]]})
    assert files("nested.parquet", nested) is None
    for key in ("org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"):
        assert files(f"{key}.parquet", whole.replace_schema_metadata({key: ""})) is None
    old = whole.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    assert files("old.parquet", old) is None
    assert files("new.parquet", whole) is not None
    for key, value in (
        ("spark.sql.files.ignoreCorruptFiles", "true"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
    ):
        before = spark.conf.get(key)
        spark.conf.set(key, value)
        assert files_of(spark.read.parquet(str(stored))) is None
        spark.conf.set(key, before)


@pytest.mark.parametrize("verb", ["upsert", "merge"])
def test_they_are_written_as_rows_of_spark_are(spark, new_table, stored, monkeypatch, verb):
    def refused(*_, **__):
        raise AssertionError("no rows come from Spark")

    frame = spark.read.parquet(str(stored))
    monkeypatch.setattr(executor, "stage_frame", refused)
    table = new_table("orders", schema=SCHEMA)
    table.upsert(rows(20, 10).set_column(4, SCHEMA.field("name"), pa.array(["old"] * 10)))
    if verb == "upsert":
        upsert_dataframe(table, frame)
    else:
        merge = merge_dataframe(table, frame, on=["id", "day"])
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert by_id(table.scan().to_arrow()).to_pylist() == by_id(rows(0, 100)).to_pylist()
    assert table.latest_snapshot().id == 2


def test_a_file_that_is_damaged_leaves_the_table_as_it_was(spark, new_table, stored):
    table = new_table("orders", schema=SCHEMA)
    path = stored / "b.parquet"
    data = bytearray(path.read_bytes())
    frame = spark.read.parquet(str(stored))
    data[60:90] = bytes(30)
    path.write_bytes(data)
    with pytest.raises(Exception, match=r"(?i)parquet|snappy|corrupt|invalid|page"):
        upsert_dataframe(table, frame)
    assert table.snapshots() == []

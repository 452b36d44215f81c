"""Change events of DataFrames and streams give the table that the same events give as Arrow rows."""

import pyarrow as pa
import pytest
from pyspark.sql import functions as sql

import lsm_engine as lsm
from lsm_engine.spark import auto_cdc, auto_cdc_batches, create_auto_cdc_table, register
from lsm_engine.spark.session import DRIVER_BYTES

pytestmark = pytest.mark.spark

SCHEMA = "id long, city string, tags array<int>, op string, lsn int"
FIRST = [(1, "A", [1], "I", 1), (1, "A", None, "U", 5), (2, "B", [2], "I", 2), (3, "C", [3], "I", 1), (3, None, None, "D", 9), (4, None, None, "D", 4)]  # fmt: skip
SECOND = [(1, "X", [1], "U", 3), (3, "Z", [3], "U", 4), (4, "Y", [4], "I", 3), (2, "B", [2], "U", 6), (5, "E", [5], "I", 1)]  # fmt: skip
FLOW = {"keys": ["id"], "apply_as_deletes": "op = 'D'", "except_column_list": ["op", "lsn"]}


@pytest.fixture
def catalog(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        yield catalog


def stored(table):
    return table.to_arrow().sort_by([(name, "ascending") for name in table.schema.primary_keys])


@pytest.mark.parametrize(
    ("scd_type", "most", "left_out"),
    # The driver takes no nested columns.
    [(1, "32mb", ["op", "lsn", "tags"]), (1, "0", ["op"]), (2, "0", ["op", "lsn"])],
)
def test_events_of_a_dataframe_are_applied_as_those_of_arrow_rows(
    spark, catalog, scd_type, most, left_out
):
    flow = {**FLOW, "stored_as_scd_type": scd_type, "except_column_list": left_out}
    arrow = pa.schema([("id", pa.int64()), ("city", pa.string()), ("tags", pa.list_(pa.int32())), ("op", pa.string()), ("lsn", pa.int32())])  # fmt: skip
    twin = catalog.create_auto_cdc_table("db.twin", arrow, sequence_by="lsn", **flow)
    frame = spark.createDataFrame(FIRST, SCHEMA)
    sequence = sql.col("lsn") if "lsn" in left_out else "lsn"
    table = create_auto_cdc_table(catalog, "db.t", frame, sequence_by=sequence, **flow)
    assert table.schema.arrow == twin.schema.arrow
    register(spark)
    spark.conf.set(DRIVER_BYTES, most)
    for number, rows in enumerate((FIRST, SECOND, FIRST)):
        events = spark.createDataFrame(rows, SCHEMA)
        done = auto_cdc(table, events, sequence_by=sequence, commit_user="a", commit_identifier=number % 2, **flow)  # fmt: skip
        names = arrow.names
        dicts = [dict(zip(names, row, strict=True)) for row in rows]
        expected = twin.auto_cdc(pa.Table.from_pylist(dicts, arrow), sequence_by="lsn", commit_user="a", commit_identifier=number % 2, **flow)  # fmt: skip
        assert done.id == expected.id
        assert stored(table).equals(stored(twin)), stored(table).to_pylist()
        if number == 0:  # the next events meet rows of the last level, and then those of level 0
            table.compact(full=True)
            twin.compact(full=True)
    spark.conf.unset(DRIVER_BYTES)


def test_a_stream_is_applied_once_however_often_its_batches_come(spark, catalog, tmp_path):
    flow = {**FLOW, "column_list": ["id", "city"], "sequence_by": "lsn", "stored_as_scd_type": 2}
    flow.pop("except_column_list")
    table = create_auto_cdc_table(catalog, "db.t", spark.createDataFrame(FIRST, SCHEMA), **flow)
    seen = []

    def twice(frame, number):
        seen.append(number)
        for _ in range(2):  # as after a crash between the commit and the checkpoint
            auto_cdc_batches(table, **flow)(frame, number)

    for rows in (FIRST, SECOND):
        spark.createDataFrame(rows, SCHEMA).coalesce(1).write.mode("append").json(str(tmp_path / "events"))  # fmt: skip
        events = spark.readStream.schema(SCHEMA).json(str(tmp_path / "events"))
        query = events.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.foreachBatch(twice).trigger(availableNow=True).start().awaitTermination()
    assert seen == [0, 1]
    assert table.latest_snapshot().id == 2
    rows = stored(table).select(["id", "city", "__START_AT", "__END_AT"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (1, "A", 1, 3), (1, "X", 3, 5), (1, "A", 5, None), (2, "B", 2, None),
        (3, "C", 1, 4), (3, "Z", 4, 9), (4, "Y", 3, 4), (5, "E", 1, None),
    ]  # fmt: skip


def test_events_without_a_sequence_are_refused(spark, catalog):
    frame = spark.createDataFrame([(1, "A", [1], "I", None)], SCHEMA)
    table = create_auto_cdc_table(catalog, "db.t", frame, sequence_by="lsn", **FLOW)
    with pytest.raises(lsm.InvalidInputError, match="null in 1 event"):
        auto_cdc(table, frame, sequence_by="lsn", **FLOW)

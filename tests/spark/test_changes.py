"""Changes through Spark: what Table.changes says, as DataFrame, as source and as stream."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException

from lsm_engine.spark import changes_dataframe, read_dataframe, register
from tests.spark.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(new_table):
    """Five snapshots with a changelog, one of them with a tag."""
    table = new_table("orders", write_only="true", changelog_producer="input")
    table.upsert(rows(0, 40, "a"))
    table.create_tag("first")
    table.upsert(rows(20, 40, "b"))
    table.delete(rows(30, 5).select(["id", "day"]))
    table.compact(full=True)
    table.upsert(rows(1, 2, "c"))
    return table


def ordered(table: pa.Table) -> pa.Table:
    names = [("_snapshot_id", "ascending"), ("id", "ascending"), ("_row_kind", "ascending")]
    return table.select(sorted(table.column_names)).combine_chunks().sort_by(names)


def same(frame, wanted: pa.Table) -> bool:
    got = frame.toArrow()
    return ordered(got.cast(wanted.select(got.column_names).schema)) == ordered(wanted)


def test_a_dataframe_of_changes(spark, orders):
    assert same(changes_dataframe(orders, spark=spark), orders.changelog())
    assert same(
        changes_dataframe(orders, "first", 3, columns=["_row_kind", "id", "_snapshot_id"],
                          where=pc.field("_row_kind") == "-D", spark=spark),
        orders.changelog("first", 3, columns=["_row_kind", "id", "_snapshot_id"],
                         where=pc.field("_row_kind") == "-D"),
    )  # fmt: skip
    assert same(
        changes_dataframe(orders, 1, mode="diff", spark=spark), orders.changelog(1, mode="diff")
    )
    assert changes_dataframe(orders, 5, spark=spark).count() == 0


def test_incremental_between_as_a_source(spark, orders):
    register(spark)
    source = spark.read.format("lsm").option("incremental-between", "first,3")
    assert same(source.load(orders.location), orders.changelog(1, 3))
    found = source.load(orders.location).where("_row_kind = '-D' and id > 31").select("id")
    assert sorted(row.id for row in found.collect()) == [32, 33, 34]
    delta = source.option("incremental-between-scan-mode", "delta").load(orders.location)
    assert same(delta, orders.changelog(1, 3, mode="delta"))
    with pytest.raises(PySparkException, match="a comma between"):
        spark.read.format("lsm").option("incremental-between", "3").load(orders.location).count()


def drained(stream, into: str, checkpoint) -> None:
    query = (
        stream.writeStream.format("memory")
        .queryName(into)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None


def test_a_stream_begins_with_the_state_and_follows(spark, orders, tmp_path):
    register(spark)
    stream = (
        spark.readStream.format("lsm")
        .option("read.changelog", "true")
        .option("consumer-id", "spark")
        .load(orders.location)
    )
    query = (
        stream.writeStream.format("memory").queryName("followed")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    try:
        query.processAllAvailable()
        state = spark.table("followed").toArrow()
        assert state.num_rows == orders.scan().count()
        assert set(state["_row_kind"].to_pylist()) == {"+I"}
        orders.delete(rows(0, 3).select(["id", "day"]))
        query.processAllAvailable()
        more = spark.table("followed").where("_snapshot_id > 5").toArrow()
        assert sorted(zip(more["_row_kind"].to_pylist(), more["id"].to_pylist(), strict=True)) == [
            ("-D", 0), ("-D", 1), ("-D", 2),
        ]  # fmt: skip
    finally:
        query.stop()
    # What was read last is dealt with once Spark commits it, at the latest when it goes on.
    consumer = orders.session.consumers.find("spark")
    assert consumer is not None
    assert consumer.next_snapshot_id >= 5


def test_a_stream_has_to_say_that_it_takes_changes(spark, orders, tmp_path):
    register(spark)
    with pytest.raises(PySparkException, match=r"read\.changelog"):
        drained(
            spark.readStream.format("lsm").load(orders.location), "refused", str(tmp_path / "never")
        )


def test_deletion_vectors_travel_with_splits(spark, new_table):
    table = new_table("marked", **{"deletion-vectors.enabled": "true"})
    table.upsert(rows(0, 60, "a"))
    table.compact(full=True)
    table.upsert(rows(10, 20, "b"))
    table.delete(rows(40, 5).select(["id", "day"]))
    scan = table.scan()
    assert any(split.vectors for split in scan.splits())
    found = read_dataframe(table, ["id", "note"], spark=spark).toArrow().sort_by("id")
    wanted = table.scan(columns=["id", "note"]).to_arrow().sort_by("id")
    assert found.cast(wanted.schema) == wanted
    assert found.num_rows == 55

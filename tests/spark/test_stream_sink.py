"""`writeStream.format("lsm")`: each micro-batch is in the table once, whatever comes between."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidOptionError, UnsupportedError
from lsm_engine.options.modes import CommitKind
from lsm_engine.spark import register, upsert_batches
from lsm_engine.spark.source.datasource import LsmSource
from lsm_engine.spark.source.writer import SourceWriter, StagedBatch, StreamSink, plan_write
from lsm_engine.spark.types import spark_schema
from tests.spark.rows import by_id, rows

SUMS = pa.schema([pa.field("id", pa.int64()), pa.field("amount", pa.int64())])


@pytest.fixture
def sums(new_table):
    """A table that adds what comes: a batch that counts twice shows."""
    return new_table(
        "sums", schema=SUMS, partitioned_by=(), bucket="2", merge_engine="aggregation",
        **{"fields.amount.aggregate-function": "sum"},
    )  # fmt: skip


def ones(count: int) -> pa.Table:
    return pa.table({"id": range(count), "amount": [1] * count}, schema=SUMS)


def staged(table, found: pa.Table, query: str = "q") -> tuple[StreamSink, list[StagedBatch]]:
    """What one task writes, and the sink of the process that commits it."""
    sink = StreamSink(table.location, {}, spark_schema(table.schema.fields), replaces=False)
    sink.__getstate__()
    base = sink._planned[1]
    plan = plan_write(table.location, found.schema, replaces=False)
    written = SourceWriter(plan).write(iter(found.to_batches()))
    return sink, [StagedBatch(written.messages, query, base, None)]


def test_a_batch_that_comes_again_after_many_other_commits_is_a_no_op(sums):
    for batch in (0, 1):
        sink, messages = staged(sums, ones(10))
        sink.commit(messages, batch)
    for _ in range(120):
        sums.upsert(ones(1))
    before = sums.scan().to_arrow().sort_by("id")
    sink, messages = staged(sums, ones(10))
    sink.commit(messages, 1)
    assert sums.scan().to_arrow().sort_by("id") == before
    # Another query is not the same, though it counts its batches from 0 as well.
    sink, messages = staged(sums, ones(10), query="other")
    sink.commit(messages, 0)
    assert sums.scan().to_arrow()["amount"].to_pylist().count(3) == 9


def data_files(table) -> int:
    return sum(1 for _ in Path(table.location).rglob("data-*"))


def test_an_abort_after_all_tasks_worked_deletes_nothing(sums):
    """Spark aborts as well where the process that committed died, and its rows are visible."""
    sink, messages = staged(sums, ones(4))
    sink.commit(messages, 0)
    sink.abort(messages, 0)
    assert sums.scan().count() == 4
    writer = SourceWriter(plan_write(sums.location, SUMS, replaces=False))
    written = writer.write(iter(ones(6).to_batches()))
    writer.commit([written])
    writer.abort([written])
    assert sums.scan().count() == 6


def test_an_abort_after_a_failed_task_deletes_what_the_others_wrote(sums):
    sink, messages = staged(sums, ones(4))
    assert data_files(sums)
    sink.abort([*messages, None], 0)
    assert not data_files(sums)
    writer = SourceWriter(plan_write(sums.location, SUMS, replaces=False))
    written = writer.write(iter(ones(6).to_batches()))
    writer.abort([None, written])
    assert not data_files(sums)


def run(frame, into: str, checkpoint: Path, mode: str = "append"):
    query = (
        frame.writeStream.format("lsm").outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start(into)
    )  # fmt: skip
    query.awaitTermination(240)
    assert query.exception() is None
    return query


@pytest.mark.spark
def test_append_goes_on_where_its_checkpoint_ends_and_carries_the_watermark(
    spark, new_table, tmp_path
):
    register(spark)
    source = new_table("source", changelog_producer="input")
    copy = new_table("copy")
    source.upsert(rows(0, 30))
    stream = (
        spark.readStream.format("lsm").option("read.changelog", "true").load(source.location)
        .drop("_snapshot_id").withWatermark("seen", "10 minutes")
    )  # fmt: skip
    run(stream, copy.location, tmp_path / "c")
    source.upsert(rows(20, 20, "w"))
    source.delete(rows(5, 2).select(["id", "day"]))
    query = run(stream, copy.location, tmp_path / "c")
    assert by_id(copy.scan().to_arrow()) == by_id(source.scan().to_arrow())
    snapshots = copy.session.snapshots.all()
    assert {one.commit_user for one in snapshots if one.commit_kind is CommitKind.APPEND} == {
        query.id
    }
    latest = pc.max(source.scan().to_arrow()["seen"]).as_py()
    assert snapshots[-1].watermark == round(latest.timestamp() * 1000) - 600_000
    # A new query writes all it reads: to a table with a key the same rows again.
    run(stream, copy.location, tmp_path / "another")
    assert by_id(copy.scan().to_arrow()) == by_id(source.scan().to_arrow())


@pytest.mark.spark
def test_mode_complete_replaces_the_table_and_mode_update_goes_by_foreach_batch(
    spark, new_table, tmp_path
):
    register(spark)
    source = new_table("source", changelog_producer="input")
    source.upsert(rows(0, 30))
    days = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("n", pa.int64())])
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    counts = catalog.create_table(
        "shop.counts", days, primary_key=["id", "day"], partitioned_by=["day"]
    )
    catalog.close()
    stale = pa.table({"id": [0], "day": [date(1999, 1, 1)], "n": [1]}, schema=days)
    counts.upsert(stale)
    stream = (
        spark.readStream.format("lsm").option("read.changelog", "true").load(source.location)
        .selectExpr("id % 2 as id", "day").groupBy("id", "day").count().withColumnRenamed("count", "n")
    )  # fmt: skip
    run(stream, counts.location, tmp_path / "c", mode="complete")
    rows_there = counts.scan().to_arrow().to_pylist()
    assert {(row["id"], row["day"].year, row["n"]) for row in rows_there} == {
        (0, 2024, 5),
        (1, 2024, 5),
    }
    assert len(rows_there) == 6, "a partition without rows is gone"
    with pytest.raises(PySparkException, match="does not support Update mode"):
        run(stream, counts.location, tmp_path / "u", mode="update")
    counts.upsert(stale)
    query = (
        stream.writeStream.outputMode("update").foreachBatch(upsert_batches(counts))
        .option("checkpointLocation", str(tmp_path / "u")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(240)
    assert query.exception() is None
    assert counts.scan().count() == 7
    assert counts.session.snapshots.latest().commit_user == query.id
    with pytest.raises(UnsupportedError, match="foreachBatch"):
        upsert_batches(counts)(
            spark.createDataFrame([(date(2024, 1, 1), 1)], "day date, n long"), 0
        )


def test_a_stream_chooses_its_own_identity(sums):
    schema = spark_schema(sums.schema.fields)
    for key in ("commit-user", "commit-identifier"):
        source = LsmSource({"path": sums.location, key: "1", "checkpointlocation": "/c"})
        with pytest.raises(InvalidOptionError, match=key):
            source.streamWriter(schema, overwrite=False)

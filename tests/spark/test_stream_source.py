"""`readStream.format("lsm")`: what micro-batches hold, with limits, from any place on, to a fixed end."""

import json
import random
from itertools import pairwise

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidOptionError, NotFoundError, UnsupportedError
from lsm_engine.spark import register
from lsm_engine.spark.source.stream import LsmStream
from lsm_engine.spark.splits import change_schema
from tests.model import moving_keys as moving
from tests.spark.rows import ROWS, rows

LIMITED = ReadMaxFiles(1)


@pytest.fixture
def orders(new_table):
    """Five snapshots with a changelog in nine buckets; the second has no changes."""
    table = new_table("orders", write_only="true", changelog_producer="input")
    table.upsert(rows(0, 40, "a"))
    table.compact(full=True)
    table.upsert(rows(20, 40, "b"))
    table.delete(rows(30, 5).select(["id", "day"]))
    table.upsert(rows(1, 2, "c"))
    return table


def stream_of(table, **options: str) -> LsmStream:
    named = {key.replace("_", "-"): text for key, text in options.items()}
    return LsmStream(table.location, {"scan.mode": "from-snapshot", "scan.snapshot-id": "1", **named}, change_schema(table.schema))  # fmt: skip


def read(stream: LsmStream, start: dict, end: dict) -> pa.Table:
    batches = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    return pa.Table.from_batches(batches) if batches else None


def walked(stream: LsmStream, limit=LIMITED) -> list[dict]:
    """The offsets of one micro-batch after another, until nothing is new."""
    found = [stream.initialOffset()]
    while (end := stream.latestOffset(found[-1], limit)) != found[-1]:
        found.append(end)
    return found


def plain(*places: dict) -> list[dict]:
    """Places without the snapshots' own names."""
    return [{key: at for key, at in place.items() if key != "uuid"} for place in places]


def ordered(table: pa.Table) -> pa.Table:
    names = [("_snapshot_id", "ascending"), ("id", "ascending"), ("_row_kind", "ascending")]
    return table.combine_chunks().sort_by(names)


@pytest.mark.parametrize("start", ["from-snapshot", "latest-full"])
def test_micro_batches_of_any_size_hold_every_change_once(orders, start):
    rng = random.Random(7)
    # Columns are in Spark's types: a stream without limits is read in one batch, and compared.
    whole = stream_of(orders, **{"scan.mode": start})
    expected = ordered(
        read(whole, whole.initialOffset(), whole.latestOffset(whole.initialOffset()))
    )
    names = ["_snapshot_id", "_row_kind", "id"]
    if start == "from-snapshot":
        assert expected.select(names) == ordered(orders.changelog()).select(names)
    for limits in (
        {"maxfilespertrigger": "1"}, {"maxfilespertrigger": "4"}, {"maxsnapshotspertrigger": "1"},
        {"maxbytespertrigger": "1 b"}, {"maxbytespertrigger": "20 kb", "maxfilespertrigger": "7"},
    ):  # fmt: skip
        stream = stream_of(orders, **{"scan.mode": start}, **limits)
        offsets = walked(stream)
        parts = [read(stream, *pair) for pair in pairwise(offsets)]
        got = pa.concat_tables(part for part in parts if part is not None)
        assert ordered(got) == expected, limits
        # From any of them to any later one: a checkpoint may have been of other limits.
        chosen = sorted(rng.sample(range(len(offsets)), min(3, len(offsets))))
        places = [offsets[0], *(offsets[at] for at in chosen), offsets[-1]]
        parts = [read(whole, *pair) for pair in pairwise(places)]
        got = pa.concat_tables(part for part in parts if part is not None)
        assert ordered(got) == expected, (limits, chosen)


def test_rows_come_in_the_order_of_snapshots(orders):
    """Whoever writes them takes a later partition's row for the newer one: copies kept older rows."""
    for key in range(7):
        orders.upsert(rows(3, 1, f"{key}"))
    stream = stream_of(orders)
    start = stream.initialOffset()
    assert len(stream.partitions(start, stream.latestOffset(start))) > 2
    found = read(stream, start, stream.latestOffset(start))["_snapshot_id"].to_pylist()
    assert found == sorted(found)


def test_a_limit_of_files_ends_a_micro_batch_between_buckets(orders):
    stream = stream_of(orders, maxfilespertrigger="4")
    offsets = walked(stream)
    sizes = [len(stream.partitions(*pair)) for pair in pairwise(offsets)]
    assert max(sizes) <= 4
    assert plain(*offsets[:3]) == [
        {"after": 0},
        {"after": 0, "buckets": 4},
        {"after": 0, "buckets": 8},
    ]
    assert plain(offsets[-1]) == [{"after": 5}]
    # trigger(once=True) asks for all there is.
    assert plain(stream.latestOffset(offsets[1], ReadAllAvailable())) == [{"after": 5}]
    by_snapshot = stream_of(orders, maxsnapshotspertrigger="2")
    assert plain(*walked(by_snapshot)) == [{"after": 0}, {"after": 2}, {"after": 4}, {"after": 5}]
    assert stream_of(orders).getDefaultReadLimit() == ReadAllAvailable()
    assert by_snapshot.getDefaultReadLimit() != ReadAllAvailable()
    for key, text in (("maxfilespertrigger", "0"), ("maxbytespertrigger", "many")):
        with pytest.raises(InvalidOptionError, match=key):
            stream_of(orders, **{key: text})


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_keys_that_move_leave_before_they_come_in_batches_of_any_size(tmp_path, producer):
    with lsm.open_catalog(str(tmp_path)) as catalog:
        table = catalog.create_table(
            "shop.t", moving.ROWS, primary_key="k", partitioned_by=["day"],
            options={"bucket": "-1", "changelog-producer": producer},
        )  # fmt: skip
        moving.history(table, random.Random(5), 5)
        table.compact()
        stream = stream_of(table, maxfilespertrigger="1")
        for places in (walked(stream), [stream.initialOffset(), walked(stream)[-1]]):
            there: dict[int, tuple] = {}
            for start, end in pairwise(places):
                if (changes := read(stream, start, end)) is not None:
                    moving.applied(changes, there)
            assert there == moving.stored(table)


def test_a_place_that_was_counted_in_another_order_of_moving_keys_is_refused(tmp_path):
    with lsm.open_catalog(str(tmp_path)) as catalog:
        table = catalog.create_table(
            "shop.t", moving.ROWS, primary_key="k", partitioned_by=["day"], options={"bucket": "-1"}
        )  # fmt: skip
        moving.history(table, random.Random(5), 5)
        stream = stream_of(table, maxfilespertrigger="1")
        places = walked(stream)
        within = next(place for place in places if "turns" in place)
        older = {key: at for key, at in within.items() if key != "turns"}
        for start, end in ((older, places[-1]), (places[0], older)):
            with pytest.raises(UnsupportedError, match="another checkpoint"):
                stream.partitions(start, end)
        with pytest.raises(UnsupportedError, match="another checkpoint"):
            stream.latestOffset(older, LIMITED)
        assert stream.partitions(within, places[-1])


@pytest.mark.parametrize("limits", [{}, {"maxfilespertrigger": "5"}])
def test_available_now_ends_at_the_newest_snapshot_of_its_start(orders, limits):
    stream = stream_of(orders, **limits)
    begun = stream.latestOffset(stream.initialOffset(), LIMITED)
    orders.upsert(rows(100, 3))
    # A run that died is begun anew, with the offset of its last micro-batch.
    again = stream_of(orders, **limits)
    again.prepareForTriggerAvailableNow()
    orders.upsert(rows(200, 3))
    offsets = [begun]
    while (end := again.latestOffset(offsets[-1], LIMITED)) != offsets[-1]:
        offsets.append(end)
    assert plain(offsets[-1]) == [{"after": 6}]
    assert plain(again.reportLatestOffset()) == [{"after": 7}]


def test_a_consumer_does_not_move_within_the_first_state(orders):
    options = {"scan.mode": "latest-full", "consumer_id": "slow", "maxfilespertrigger": "3"}
    stream = stream_of(orders, **options)
    offsets = walked(stream)
    assert plain(offsets[0]) == [{"after": 4, "full": 5}]
    assert len(offsets) > 3
    whole = read(stream, offsets[0], offsets[-1])
    orders.upsert(rows(500, 3))
    orders.expire_snapshots(retain_max=1, retain_min=1)
    assert orders.session.snapshots.earliest_id() == 5, "what the state is read from is kept"
    parts = []
    for start, end in pairwise(offsets):
        stream.commit(start)
        parts.append(read(stream_of(orders, **options), start, end))
    assert ordered(pa.concat_tables(parts)) == ordered(whole)
    assert [one.name for one in orders.session.consumers.list()] == ["slow.first-state"]
    stream_of(orders, **options).commit(offsets[-1])
    assert [one.name for one in orders.session.consumers.list()] == ["slow"]
    assert orders.session.consumers.find("slow").next_snapshot_id == 6
    orders.upsert(rows(300, 3))
    orders.upsert(rows(400, 3))
    orders.expire_snapshots(retain_max=1, retain_min=1)
    assert orders.session.snapshots.earliest_id() == 6, "what the consumer still reads is kept"
    assert stream_of(orders, **options).initialOffset()["after"] == 5


def test_a_stream_refuses_a_table_that_was_rolled_back_or_made_anew(orders, tmp_path):
    stream = stream_of(orders)
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        catalog.drop_table("shop.orders")
        catalog.create_table("shop.orders", ROWS, primary_key=["id", "day"])
    for start in ({"after": 5}, {"after": 0, "buckets": 1}):
        with pytest.raises(NotFoundError, match="another checkpoint"):
            stream.latestOffset(start, ReadAllAvailable())


@pytest.mark.parametrize("limit", [ReadAllAvailable(), LIMITED])
def test_a_stream_refuses_another_past_of_as_many_snapshots(orders, tmp_path, limit):
    """A rollback and new commits, or a checkpoint of another table: changes would be left out."""
    stream = stream_of(orders, maxfilespertrigger="1")
    places = walked(stream, limit)
    within = [place for place in places if place.get("buckets") and place["after"] >= 2]
    assert bool(within) is (limit is LIMITED)
    orders.rollback_to(2)
    for number in range(4):
        orders.upsert(rows(number, 1, "d"))
    assert orders.latest_snapshot().id >= places[-1]["after"]
    again = stream_of(orders, maxfilespertrigger="1")
    for place in (places[-1], *within[-1:]):
        with pytest.raises(NotFoundError, match="another checkpoint"):
            again.latestOffset(place, limit)
        with pytest.raises(NotFoundError, match="another checkpoint"):
            again.partitions(places[0], place)
    assert again.latestOffset({"after": 1}, ReadAllAvailable())["after"] > 1  # of an older version


CHANGED = [
    (lsm.AddColumn("w", "INT"), {"w": 5}, None),
    (lsm.ChangeType("n", "BIGINT"), {"n": 7}, None),
    (lsm.DropColumn("s"), {}, "no column 's' any more"),
    (lsm.RenameColumn("s", "z"), {"z": "y"}, "no column 's' any more"),
    (lsm.ChangeType("n", "BIGINT"), {"n": 1 << 40}, "'n' holds values of int64"),
]


@pytest.mark.parametrize(("change", "more", "refusal"), CHANGED)
def test_a_query_goes_on_after_a_change_of_columns_or_is_refused_until_it_is_started_again(
    tmp_path, change, more, refusal
):
    with lsm.open_catalog(tmp_path) as catalog:
        columns = {"id": "INT", "n": "INT", "s": "STRING"}
        table = catalog.create_table(
            "shop.changed", columns, "id", options={"changelog-producer": "input"}
        )
        table.upsert([{"id": 1, "n": 1, "s": "x"}])
        stream = stream_of(table, **{"scan.mode": "latest-full"})
        start = stream.initialOffset()
        table.alter(change)
        table.upsert([{"id": 2, **more}])
        end = stream.latestOffset(start)
        if refusal is None:
            found = {row["id"]: row for row in read(stream, start, end).to_pylist()}
            assert (found[1]["n"], found[1]["s"], found[2]["s"]) == (1, "x", None)
            assert found[2]["n"] == more.get("n")
            assert list(found[1]) == ["_snapshot_id", "_row_kind", *columns]
        else:
            with pytest.raises((NotFoundError, UnsupportedError), match=refusal):
                read(stream, start, end)
        again = stream_of(table, **{"scan.mode": "latest-full"})  # with the same checkpoint
        assert sorted(read(again, start, end)["id"].to_pylist()) == [1, 2]


@pytest.mark.spark
def test_a_query_with_limits_reports_its_progress(spark, orders, tmp_path):
    register(spark)
    query = (
        spark.readStream.format("lsm")
        .option("read.changelog", "true").option("scan.mode", "from-snapshot").option("scan.snapshot-id", 1)
        .option("maxSnapshotsPerTrigger", 3)
        .load(orders.location)
        .writeStream.format("memory").queryName("limited").option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(240)
    assert query.exception() is None
    read = [one for one in query.recentProgress if one.numInputRows]
    assert plain(*(json.loads(one.sources[0].endOffset) for one in read)) == [
        {"after": 3}, {"after": 5},
    ]  # fmt: skip
    assert sum(one.numInputRows for one in read) == orders.changelog().num_rows
    assert spark.table("limited").count() == orders.changelog().num_rows
    assert plain(json.loads(read[-1].sources[0].latestOffset)) == [{"after": 5}]
    assert read[-1].processedRowsPerSecond > 0

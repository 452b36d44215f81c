"""Keys that move between buckets: whoever applies changes by key, in the order given, has the table.

`LSM_MOVING_KEYS`: so many histories of each producer instead of one.
"""

import os
import random

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.dml import write
from tests.model.moving_keys import ROWS, applied, history, stored

PRODUCERS = ("none", "input", "lookup", "full-compaction")
HISTORIES = int(os.environ.get("LSM_MOVING_KEYS", "1"))


@pytest.fixture
def made(tmp_path):
    """A table whose keys lack its partition."""
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        catalog.create_database("shop")

        def made(
            name: str, trigger: str = "5", partitioned_by=("day",), **options: str
        ) -> lsm.Table:
            given = {key.replace("_", "-"): value for key, value in options.items()}
            return catalog.create_table(
                f"shop.{name}", ROWS, primary_key="k", partitioned_by=partitioned_by,
                options={"bucket": "-1", "dynamic-bucket.target-row-num": "2",
                         "num-sorted-run.compaction-trigger": trigger, **given},
            )  # fmt: skip

        yield made


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_changes_in_their_order_make_the_table(made, producer, seed):
    chance = random.Random(seed)
    eager = chance.random() < 0.5
    table = made("t", changelog_producer=producer, trigger="2" if eager else "5")
    history(table, chance, 6)
    table.compact(full=True)
    last = table.session.snapshots.latest_id()
    wanted = stored(table)
    assert applied(table.changes(0).to_arrow()) == wanted
    assert applied(table.changes(0, mode="diff").to_arrow()) == wanted
    middle = last // 2
    begun = applied(table.changes(0, middle, mode="diff").to_arrow())
    assert applied(table.changes(middle, last, mode="diff").to_arrow(), begun) == wanted
    followed: dict[int, tuple] = {}
    for item in table.follow("from-snapshot", snapshot_id=1, poll_millis=None):
        applied(item.to_arrow(), followed)
    assert followed == wanted


def test_compactions_that_emit_both_ends_of_a_way_take_the_whole_table(made):
    table = made("t", changelog_producer="lookup", write_only="true")
    table.upsert(pa.table({"k": [1], "day": ["b"], "v": [1]}, schema=ROWS))
    table.compact()
    table.upsert(pa.table({"k": [1], "day": ["a"], "v": [2]}, schema=ROWS))
    before = table.session.snapshots.latest_id()
    for part in ({"partitions": [{"day": "a"}]}, {"buckets": [0]}):
        with pytest.raises(lsm.InvalidInputError, match="compact the whole table"):
            table.compact(**part)
    assert table.session.snapshots.latest_id() == before
    table.compact()
    assert table.changes(before).to_arrow()["_row_kind"].to_pylist() == ["-D", "+I"]


@pytest.mark.parametrize("count", [2, 8])
def test_a_difference_over_another_number_of_buckets_keeps_every_row(tmp_path, count):
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table("shop.t", ROWS, primary_key="k", options={"bucket": "4"})
        table.upsert(pa.table({"k": range(40), "day": ["a"] * 40, "v": range(40)}, schema=ROWS))
        table.rescale(count)
        table.upsert(pa.table({"k": [3, 50], "day": ["a"] * 2, "v": [1, 2]}, schema=ROWS))
        there = applied(table.changes(0, 1).to_arrow())
        assert applied(table.changes(1, mode="diff").to_arrow(), there) == stored(table)


def test_an_overwrite_that_gives_keys_other_buckets_keeps_every_row(made):
    table = made("t", partitioned_by=(), streaming_read_overwrite="true")
    for keys in (range(20), range(19, -1, -1)):
        given = {"k": list(keys), "day": ["a"] * 20, "v": [10 - key for key in keys]}
        table.overwrite(pa.table(given, schema=ROWS))
    changes = table.changes(0).to_arrow()
    assert "-D" in changes["_row_kind"].to_pylist()
    assert applied(changes) == stored(table)


@pytest.mark.parametrize(("ours", "theirs"), [("a", "b"), ("b", "a")])
def test_a_key_that_others_move_comes_after_it_has_gone_in_the_changes_after_a_write(
    made, monkeypatch, ours, theirs
):
    """They move it before our compaction, which emits both: their bucket's +I came before our -D."""
    table = made("t", changelog_producer="lookup")
    there = {"k": [7, 8], "day": [ours, theirs], "v": [0, 0]}
    table.upsert(pa.table(there, schema=ROWS))
    compact_due = write.compact_due

    def late(*given, **named):
        monkeypatch.setattr(write, "compact_due", lambda *_, **__: None)
        lsm.open_table(table.location).upsert([{"k": 1, "day": theirs, "v": 2}])
        monkeypatch.setattr(write, "compact_due", compact_due)
        return compact_due(*given, **named)

    monkeypatch.setattr(write, "compact_due", late)
    mark = table.upsert(pa.table({"k": [1], "day": [ours], "v": [1]}, schema=ROWS))
    changes = table.changes(after=mark).to_arrow()
    assert [(row["_row_kind"], row["day"]) for row in changes.to_pylist()] == [
        ("-D", ours),
        ("+I", theirs),
    ]
    begun = {7: (ours, 0), 8: (theirs, 0), 1: (ours, 1)}
    assert applied(changes, begun) == stored(table)

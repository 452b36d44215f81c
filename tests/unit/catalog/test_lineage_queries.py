"""Questions and their answers."""

from pathlib import Path

import pytest

import lsm_engine
from lsm_engine.base.errors import ErrorKind, NotFoundError
from lsm_engine.catalog.lineage.queries import Covered
from lsm_engine.catalog.migrations import VIEW_NAMES
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.provenance import Input, Run
from tests.unit.catalog.stories import (
    MILLIS,
    ORDERS,
    TOTALS,
    Story,
    add,
    data_file,
    upsert_and_compact,
)

DELAYS = TableName(database="shop", table="delays")


@pytest.fixture
def lineage(catalog, asked):
    story = upsert_and_compact()
    tags = [story.tag("before", 2), story.tag("after", 3, created=(2013, 1, 2, 3, 4, 5, 6))]
    catalog.lineage.rebuild(ORDERS, story.facts, tags)
    return asked


def column(table, name):
    return table.column(name).to_pylist()


def test_history(lineage):
    history = lineage.snapshots(ORDERS)
    assert column(history, "snapshot_id") == [4, 3, 2, 1]
    assert column(history, "commit_kind") == ["APPEND", "COMPACT", "APPEND", "APPEND"]
    assert column(history, "run_id") == ["r1", "r2", "r1", "r1"]
    assert column(history, "files_added") == [1, 3, 1, 2]
    assert column(history, "bytes_deleted") == [0, 3000, 0, 0]


def test_recent_activity(lineage, catalog):
    other = Story(table=TOTALS)
    catalog.lineage.record(other.commit(add(data_file("t1")), millis=MILLIS + 3_500))
    recent = lineage.recent_activity(limit=3)
    assert column(recent, "table_name") == ["shop.orders", "shop.totals", "shop.orders"]
    assert column(recent, "snapshot_id") == [4, 1, 3]
    assert column(lineage.recent_activity(table=TOTALS), "snapshot_id") == [1]


def test_runs(lineage):
    assert column(lineage.runs_of_snapshot(ORDERS, 3), "run_id") == ["r2"]
    assert column(lineage.runs_of_snapshot(ORDERS, 3, history=True), "run_id") == ["r1", "r2"]


def test_files(lineage):
    changed = lineage.files_of_snapshot(ORDERS, 3)
    names = zip(column(changed, "change"), column(changed, "file_name"), strict=True)
    assert sorted(names) == [
        ("added", "c1"), ("added", "c2"), ("added", "f3"),
        ("deleted", "f1"), ("deleted", "f2"), ("deleted", "f3"),
    ]  # fmt: skip
    live = {n: column(lineage.live_files_at(ORDERS, n), "file_name") for n in (1, 2, 3, 4)}
    assert live == {
        1: ["f1", "f3"],
        2: ["f1", "f2", "f3"],
        3: ["c1", "c2", "f3"],
        4: ["f4", "c1", "c2", "f3"],
    }
    assert column(lineage.live_files_at(ORDERS, 4, bucket=0, limit=1), "file_name") == ["f4"]


def test_life_of_a_file(lineage):
    life = lineage.life_of_file(ORDERS, "f3")
    stages = life.stages.select(["level", "added_by", "deleted_by"]).to_pylist()
    assert stages == [
        {"level": 0, "added_by": 1, "deleted_by": 3},
        {"level": 5, "added_by": 3, "deleted_by": None},
    ]
    assert column(life.pinned_by, "tag_name") == ["after", "before"]
    assert column(life.became, "kind") == ["upgrade"]
    life = lineage.life_of_file(ORDERS, "c1")
    assert column(life.made_from, "source_name") == ["f1", "f2"]
    assert column(life.pinned_by, "tag_name") == ["after"]
    with pytest.raises(NotFoundError) as missing:
        lineage.life_of_file(ORDERS, "nothing")
    assert missing.value.kind is ErrorKind.NO_SUCH_FILE


def test_compaction(lineage):
    done = lineage.compaction(ORDERS, 3)
    assert done.buckets.to_pylist() == [
        {
            "partition_path": "", "bucket": 0, "output_level": 5, "files_read": 2,
            "files_written": 2, "files_upgraded": 0, "rows_read": 20, "rows_written": 17,
            "bytes_read": 2000, "bytes_written": 2000,
        },
        {
            "partition_path": "", "bucket": 1, "output_level": 5, "files_read": 0,
            "files_written": 0, "files_upgraded": 1, "rows_read": 0, "rows_written": 0,
            "bytes_read": 0, "bytes_written": 0,
        },
    ]  # fmt: skip
    edges = zip(column(done.edges, "source_name"), column(done.edges, "target_name"), strict=True)
    assert list(edges) == [("f1", "c1"), ("f1", "c2"), ("f2", "c1"), ("f2", "c2"), ("f3", "f3")]


def test_manifests(lineage):
    found = lineage.manifests_of_snapshot(ORDERS, 3)
    assert column(found, "kind") == ["base", "base", "delta"]
    assert column(found, "file_name") == [f"manifest-orders-{n}" for n in (1, 2, 3)]


def test_tags(lineage):
    tags = lineage.tags(ORDERS)
    assert column(tags, "tag_name") == ["before", "after"]
    assert column(tags, "created") == [None, "2013-01-02T03:04:05.000000006"]


def test_unknown_things(lineage):
    nobody = TableName(database="shop", table="nobody")
    assert lineage.snapshots(nobody).num_rows == 0
    assert lineage.snapshots(nobody).schema == lineage.snapshots(ORDERS).schema
    for ask in (
        lineage.runs_of_snapshot, lineage.inputs_of_snapshot, lineage.files_of_snapshot,
        lineage.live_files_at, lineage.compaction, lineage.manifests_of_snapshot,
    ):  # fmt: skip
        with pytest.raises(NotFoundError) as missing:
            ask(ORDERS, 99)
        assert missing.value.kind is ErrorKind.NO_SUCH_SNAPSHOT


@pytest.fixture
def chain(catalog, asked):
    """weather.csv -> orders 1, 2, 3 -> totals 1 (state 1), 2 (changes 1..3) -> delays 1 (state 2)."""
    orders, totals, delays = (Story(table=table) for table in (ORDERS, TOTALS, DELAYS))
    for version in ("jan", "feb", "mar"):
        orders.commit(
            run=Run(run_id=f"o-{version}"), inputs=[Input(dataset="weather.csv", version=version)]
        )
    read_state = Input(dataset="shop.orders", snapshot_id=1)
    read_changes = Input(
        dataset="shop.orders", snapshot_id=3, after_snapshot_id=1, columns=(("n", "rows"),)
    )
    totals.commit(run=Run(run_id="t-1"), inputs=[read_state])
    totals.commit(run=Run(run_id="t-2"), inputs=[read_changes])
    delays.commit(run=Run(run_id="d-1"), inputs=[Input(dataset="shop.totals", snapshot_id=2)])
    for story in (orders, totals, delays):
        catalog.lineage.rebuild(story.table, story.facts)
    return asked


def steps(walked):
    return [
        (row["depth"], f"{row['table_name']}@{row['snapshot_id']}", row["dataset"],
         row["input_snapshot_id"] or row["input_version"])
        for row in walked.to_pylist()
    ]  # fmt: skip


def test_inputs(chain):
    assert chain.inputs_of_snapshot(TOTALS, 2).to_pylist() == [
        {
            "dataset": "shop.orders", "input_snapshot_id": 3, "after_snapshot_id": 1,
            "input_version": None, "role": "source",
        }
    ]  # fmt: skip


def test_upstream_of_a_commit(chain):
    assert steps(chain.upstream_of(DELAYS, 1)) == [
        (1, "shop.delays@1", "shop.totals", 2),
        (2, "shop.totals@2", "shop.orders", 3),
        (3, "shop.orders@3", "weather.csv", "mar"),
        (3, "shop.orders@2", "weather.csv", "feb"),
    ]


def test_upstream_of_a_state(chain):
    walked = steps(chain.upstream_of(DELAYS, 1, history=True))
    assert (2, "shop.totals@1", "shop.orders", 1) in walked
    assert (3, "shop.orders@1", "weather.csv", "jan") in walked
    assert len(walked) == 6
    assert steps(chain.upstream_of(DELAYS, 1, depth_max=1)) == walked[:1]


def test_downstream(chain):
    assert steps(chain.downstream_of(ORDERS, 2)) == [
        (1, "shop.totals@2", "shop.orders", 3),
        (2, "shop.delays@1", "shop.totals", 2),
    ]
    # The rows of commit 1 are in the state that totals 1 read, and so in what delays read of it.
    assert steps(chain.downstream_of(ORDERS, 1)) == [(1, "shop.totals@1", "shop.orders", 1)]
    assert steps(chain.downstream_of(ORDERS, 1, history=True)) == [
        (1, "shop.totals@1", "shop.orders", 1),
        (2, "shop.delays@1", "shop.totals", 2),
    ]


def test_circles_end(catalog):
    story = Story()
    for _ in range(3):
        story.commit(run=Run(run_id="r"), inputs=[Input(dataset="shop.orders", snapshot_id=2)])
    catalog.lineage.rebuild(ORDERS, story.facts)
    for history in (False, True):
        assert 1 <= catalog.lineage.upstream_of(ORDERS, 3, history=history).num_rows <= 3
        assert catalog.lineage.downstream_of(ORDERS, 1, history=history).num_rows <= 3


def test_covered_ranges():
    covered = Covered()
    assert covered.add("d", (3, 5)) == [(3, 5)]
    assert covered.add("d", (0, 9)) == [(0, 3), (5, 9)]
    assert covered.add("d", (2, 7)) == []
    assert covered.add("e", (2, 2)) == []
    assert covered.add("d", (8, 12)) == [(9, 12)]


@pytest.mark.parametrize("view", VIEW_NAMES)
def test_views_for_people(lineage, catalog, view):
    rows = catalog.database.read(
        lambda connection: connection.exec_driver_sql(f"SELECT * FROM {view}").mappings().all()
    )
    assert all(row.get("table_name", "shop.orders") == "shop.orders" for row in rows)
    assert bool(rows) != (view in ("lsm_v_inputs", "lsm_v_column_inputs"))
    if view == "lsm_v_snapshots":
        first = min(row["committed"] for row in rows)
        # SQLite has no type for times: its views show text.
        shown = first if isinstance(first, str) else f"{first.isoformat()}.000Z"
        assert shown == "2013-01-01T00:26:41.000Z"


def test_every_view_is_documented():
    page = (Path(lsm_engine.__file__).parent / "docs" / "catalog.md").read_text()
    assert [view for view in VIEW_NAMES if f"`{view}`" not in page] == []

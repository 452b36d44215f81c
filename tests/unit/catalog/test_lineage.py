"""Recording: the same rows whatever the order, the repetition, or the way they came."""

import itertools
import random

import pytest

from lsm_engine.base.errors import LsmError
from lsm_engine.catalog.lineage.facts import LineageError, RemovalFacts, inherited_files
from lsm_engine.catalog.provenance import Input, Run
from lsm_engine.catalog.sql_catalog import SqlCatalog
from lsm_engine.options.modes import CommitKind
from tests.unit.catalog.stories import (
    MILLIS,
    ORDERS,
    Story,
    add,
    data_file,
    drop,
    dump,
    upsert_and_compact,
)


@pytest.fixture
def another(tmp_path):
    opened = SqlCatalog.open(f"sqlite:///{tmp_path}/another.db", warehouse=str(tmp_path))
    yield opened
    opened.close()


def test_the_same_facts_twice(catalog):
    story = upsert_and_compact()
    for facts in story.facts:
        catalog.lineage.record(facts)
    once = dump(catalog.database)
    for facts in story.facts:
        catalog.lineage.record(facts)
    assert dump(catalog.database) == once
    assert len(once["lsm_snapshots"]) == 4
    assert [row["run_id"] for row in once["lsm_runs"]] == ["r1", "r2"]


def test_any_order_gives_the_same_rows(tmp_path):
    story = upsert_and_compact()
    dumps = []
    for number, order in enumerate(itertools.permutations(story.facts)):
        opened = SqlCatalog.open("sqlite://", warehouse=str(tmp_path / str(number)))
        for facts in order:
            opened.lineage.record(facts)
        dumps.append(dump(opened.database))
        opened.close()
    assert all(other == dumps[0] for other in dumps[1:])


def test_a_rebuild_gives_what_recording_gave(catalog, another):
    story = upsert_and_compact()
    tags = [story.tag("v1", 2, created=(2013, 1, 2, 3, 4, 5, 6), retained_millis=86_400_000)]
    for facts in story.facts:
        catalog.lineage.record(facts)
    for tag in tags:
        catalog.lineage.record(tag)
    assert another.lineage.rebuild(ORDERS, iter(story.facts), tags) == 4
    assert dump(another.database) == dump(catalog.database)
    for keep_history in (True, False):
        catalog.lineage.rebuild(ORDERS, story.facts, tags, keep_history=keep_history)
        assert dump(catalog.database) == dump(another.database)


def test_a_rebuild_mends_a_damaged_table(catalog, another):
    story = upsert_and_compact()
    another.lineage.rebuild(ORDERS, story.facts)
    generator = random.Random(5)
    for _ in range(10):
        catalog.lineage.rebuild(ORDERS, story.facts)
        tables = ["lsm_files", "lsm_manifests", "lsm_file_edges", "lsm_runs", "lsm_snapshots"]
        victim = generator.choice(tables)
        catalog.database.write(
            lambda connection, victim=victim: connection.exec_driver_sql(f"DELETE FROM {victim}")
        )
        catalog.lineage.rebuild(ORDERS, story.facts)
        assert dump(catalog.database) == dump(another.database)


def removal(**facts):
    return RemovalFacts(
        table=ORDERS,
        removal_id="r1",
        kind="expire-snapshots",
        reason="old",
        at_millis=MILLIS,
        **facts,
    )


def test_expired_snapshots_stay_as_history(catalog):
    story = upsert_and_compact()
    catalog.lineage.rebuild(ORDERS, story.facts, [story.tag("v1", 2)])
    before = catalog.lineage.recorded_states(ORDERS)["main"].live
    catalog.lineage.catch_up(ORDERS, (), [story.tag("v1", 2)], live_ids=(3, 4), before=before)
    catalog.lineage.record(removal(snapshot_ids=(1, 2), removed_files=("f1",)))
    assert catalog.lineage.life_of_file(ORDERS, "f1").stages.column("removed").to_pylist() == [True]
    expected = dump(catalog.database)
    # Files of snapshots 1 and 2 are gone; what was live in them is told as inherited.
    inherited = inherited_files(
        ORDERS, [add(data_file("f1", keys=(0, 50))), add(data_file("f2"))], lambda _: ""
    )
    catalog.lineage.rebuild(ORDERS, [inherited, *story.facts[2:]], [story.tag("v1", 2)])
    assert dump(catalog.database) == expected
    states = catalog.lineage.snapshots(ORDERS).column("state").to_pylist()
    assert states == ["live", "live", "expired", "expired"]


def test_a_rebuild_from_what_is_left(another):
    story = upsert_and_compact()
    inherited = inherited_files(
        ORDERS,
        [
            add(data_file("f1", keys=(0, 50))),
            add(data_file("f2", keys=(40, 99))),
            add(data_file("f3"), bucket=1),
        ],
        lambda _: "",
    )
    another.lineage.rebuild(ORDERS, [inherited, *story.facts[2:]])
    lineage = another.lineage
    assert lineage.snapshots(ORDERS).column("snapshot_id").to_pylist() == [4, 3]
    assert lineage.live_files_at(ORDERS, 3).column("file_name").to_pylist() == ["c1", "c2", "f3"]
    assert lineage.life_of_file(ORDERS, "f1").stages.column("added_by").to_pylist() == [None]


def test_deleted_tags_are_known_and_return(catalog):
    story = upsert_and_compact()
    catalog.lineage.rebuild(ORDERS, story.facts, [story.tag("a", 1), story.tag("b", 2)])
    catalog.lineage.catch_up(ORDERS, (), [story.tag("b", 2)], live_ids=(1, 2, 3, 4), before={})
    assert catalog.lineage.tags(ORDERS).column("tag_name").to_pylist() == ["b"]
    catalog.lineage.rebuild(ORDERS, story.facts, [story.tag("a", 3)])
    tags = catalog.lineage.tags(ORDERS, with_deleted=True)
    assert tags.select(["tag_name", "snapshot_id", "deleted"]).to_pylist() == [
        {"tag_name": "b", "snapshot_id": 2, "deleted": True},
        {"tag_name": "a", "snapshot_id": 3, "deleted": False},
    ]


def test_rollback_and_reused_ids(catalog, another):
    story = upsert_and_compact()
    catalog.lineage.rebuild(ORDERS, story.facts)
    before = catalog.lineage.recorded_states(ORDERS)["main"].live
    catalog.lineage.catch_up(ORDERS, (), (), live_ids=(1, 2), before=before)
    another.lineage.rebuild(ORDERS, story.facts[:2])
    assert dump(catalog.database) == dump(another.database)


def test_a_rollback_that_nobody_told(catalog, another):
    story = upsert_and_compact()
    catalog.lineage.rebuild(ORDERS, story.facts, [story.tag("gone", 4)])
    later = Story(prefix="again-", facts=story.facts[:2])
    later.manifests = story.manifests[:2]
    third = later.commit_as(3, add(data_file("n3")), millis=MILLIS + 9_000)
    fourth = later.commit_as(4, add(data_file("n4")), millis=MILLIS + 10_000)
    # Out of order: the new 4 before the new 3.
    catalog.lineage.record(fourth)
    catalog.lineage.record(third)
    another.lineage.rebuild(ORDERS, later.facts)
    assert dump(catalog.database) == dump(another.database)


def test_a_run_of_many_snapshots_spans_them(catalog):
    story = Story()
    run = Run(run_id="r", dagster_run_id="d1", asset_key="shop/orders")
    for facts in [story.commit(run=run) for _ in range(3)][::-1]:
        catalog.lineage.record(facts)
    (row,) = catalog.lineage.runs_of_snapshot(ORDERS, 2).to_pylist()
    assert (row["started_millis"], row["ended_millis"]) == (MILLIS + 1000, MILLIS + 3000)
    made = catalog.lineage.snapshots_of_run("d1")
    assert made.column("snapshot_id").to_pylist() == [1, 2, 3]


def test_a_run_of_two_assets_is_known_for_each(catalog):
    story = Story()
    for asset in ("a", "b"):
        catalog.lineage.record(story.commit(run=Run(run_id="r", asset_key=asset)))
    assert catalog.lineage.snapshots_of_run("r").column("asset_key").to_pylist() == ["a", "b"]


def test_changelog_files_are_kept_apart(catalog):
    story = Story()
    change = add(data_file("changelog-1"))
    catalog.lineage.record(story.commit(add(data_file("f1")), changelog=[change]))
    changed = catalog.lineage.files_of_snapshot(ORDERS, 1)
    assert changed.select(["file_name", "content"]).to_pylist() == [
        {"file_name": "changelog-1", "content": "changelog"},
        {"file_name": "f1", "content": "data"},
    ]
    assert catalog.lineage.live_files_at(ORDERS, 1).column("file_name").to_pylist() == ["f1"]


def test_names_that_are_sql(catalog):
    story = Story()
    nasty = "'; DROP TABLE lsm_files; --"
    facts = story.commit(
        add(data_file(nasty)),
        run=Run(run_id=nasty, user=nasty, asset_key=nasty),
        inputs=[Input(dataset=nasty, version=nasty, role=nasty, columns=((nasty, nasty),))],
    )
    catalog.lineage.record(facts)
    assert catalog.lineage.life_of_file(ORDERS, nasty).stages.num_rows == 1
    assert catalog.lineage.runs_of_snapshot(ORDERS, 1).column("user_name").to_pylist() == [nasty]


def test_many_files_at_once(catalog):
    story = Story()
    entries = [add(data_file(f"f{n:05}"), bucket=n % 2) for n in range(5_001)]
    catalog.lineage.record(story.commit(*entries))
    assert catalog.lineage.live_files_at(ORDERS, 1, bucket=1).num_rows == 2_500


def test_failures_have_one_name(catalog):
    story = Story()
    too_big = data_file("f1", rows=2**63)
    with pytest.raises(LineageError) as failed:
        catalog.lineage.record(story.commit(add(too_big)))
    assert isinstance(failed.value, LsmError)
    assert failed.value.facts["table"] == "shop.orders"
    assert catalog.lineage.snapshots(ORDERS).num_rows == 0  # all or nothing


def test_dropping_a_table_takes_its_lineage(catalog):
    story = upsert_and_compact()
    catalog.register_table(ORDERS, create_database=True)
    catalog.lineage.rebuild(ORDERS, story.facts, [story.tag("v1", 1)])
    catalog.drop_table(ORDERS)
    left = dump(catalog.database, without=("lsm_catalog_versions", "lsm_runs"))
    assert not any(left.values())


def test_overwrite_is_no_compaction(catalog):
    story = Story()
    first = data_file("f1")
    story.commit(add(first))
    story.commit(drop(first), add(data_file("f2")), kind=CommitKind.OVERWRITE)
    catalog.lineage.rebuild(ORDERS, story.facts)
    assert catalog.lineage.compaction(ORDERS, 2).edges.num_rows == 0

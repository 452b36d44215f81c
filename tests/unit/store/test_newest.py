"""The newest snapshot on a far store: what a process knows, one round, and when it looks in order instead."""

from dataclasses import replace

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.io.storage_location import parse_location
from lsm_engine.store import newest

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.fixture
def table(request):
    name = request.node.name.replace("_", "-")
    with lsm.open_catalog("sqlite://", warehouse=f"memory://{name}/lake") as catalog:
        yield catalog.create_table("a.t", COLUMNS, primary_key="id", options={"bucket": "1"})


def elsewhere(table, monkeypatch, act):
    """Do something as another process does it: nothing of it is known here."""
    monkeypatch.setattr(newest, "_known", {})
    act(lsm.open_table(table.location))
    monkeypatch.undo()


def put(table, number):
    return table.upsert([{"id": 1, "v": number}])


def test_commits_of_another_process_are_climbed(table, monkeypatch):
    put(table, 1)
    elsewhere(table, monkeypatch, lambda other: [put(other, 2), put(other, 3)])
    assert table.latest_snapshot().id == 3
    assert table.session.snapshots.latest_of_writer().id == 3


def test_a_writer_that_knows_an_old_newest_commits_on_the_new_one(table, monkeypatch):
    put(table, 1)
    elsewhere(table, monkeypatch, lambda other: put(other, 2))
    assert table.session.snapshots.latest_of_writer().id == 1  # known a moment ago
    put(table, 3)
    assert table.latest_snapshot().id == 3
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": 3}]
    assert table.verify(deep=True).is_clean


def test_what_was_rolled_back_elsewhere_is_no_newest_any_more(table, monkeypatch):
    for number in range(1, 5):
        put(table, number)
    elsewhere(table, monkeypatch, lambda other: other.rollback_to(snapshot_id=2))
    assert table.latest_snapshot().id == 2
    put(table, 9)
    assert table.latest_snapshot().id == 3
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": 9}]
    assert table.verify(deep=True).is_clean


def test_an_id_that_was_used_again_is_another_snapshot(table, monkeypatch):
    for number in range(1, 4):
        put(table, number)

    def again(other):
        other.rollback_to(snapshot_id=2)
        put(other, 30)

    elsewhere(table, monkeypatch, again)
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": 30}]


def test_a_newest_that_has_expired_elsewhere(table, monkeypatch):
    put(table, 1)

    def expire(other):
        for number in range(2, 5):
            put(other, number)
        other.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")

    elsewhere(table, monkeypatch, expire)
    assert table.latest_snapshot().id == 4
    put(table, 6)
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": 6}]


def test_a_dropped_table_that_is_made_again(table):
    put(table, 1)
    with lsm.open_catalog("sqlite://", warehouse=table.location.removesuffix("/a.db/t")) as catalog:
        catalog.register_table("a.t")
        catalog.drop_table("a.t")
        made = catalog.create_table("a.t", COLUMNS, primary_key="id", options={"bucket": "1"})
        assert made.latest_snapshot() is None
        assert made.to_arrow().num_rows == 0


def test_answers_that_took_long_are_asked_for_in_order(table, monkeypatch):
    put(table, 1)
    known = table.session.snapshots._newest
    assert known.look().id == 1
    clock = iter(range(0, 10_000_000, 2_000))
    slow = replace(newest._clock)
    monkeypatch.setattr(newest, "_clock", slow)
    monkeypatch.setattr(type(slow), "now_millis", lambda _: next(clock))
    assert known.look() is None
    assert known.look_from(1, lambda: 1) is None
    assert table.session.snapshots.latest().id == 1


def test_latest_is_written_behind_the_commit(table):
    from lsm_engine.io.together import settle

    put(table, 1)
    put(table, 2)
    settle()
    assert table.session.file_io.read("snapshot/LATEST") == b"2"
    assert parse_location(table.location).scheme == "memory"

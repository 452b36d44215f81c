"""Lookups in tables of very many files look at the partitions of the keys, and answer as they do in small ones."""

import random

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.lookup import view
from lsm_engine.lookup.lookup import TableQuery
from lsm_engine.table.session import TableSession
from tests.bench.many_files import COLUMNS, many_files
from tests.unit.table.history_tables import Story

SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=name == "v") for name in ("id", "p", "v")])


@pytest.fixture
def looked_at(monkeypatch):
    """The partitions whose files were made objects, None for all; every table is taken for a large one."""
    seen, live = [], TableSession.live_entries

    def note(self, snapshot, holds=None, columns=None):
        seen.append(None if holds is None else holds.partitions)
        return live(self, snapshot, holds, columns)

    monkeypatch.setattr(TableSession, "live_entries", note)
    monkeypatch.setattr(view, "MANY_FILES", 0)
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_a_small_table(seed, looked_at):
    chance = random.Random(seed)
    options = {"bucket": "2", "write-only": "true", "deletion-vectors.enabled": "false"}
    story = Story(SCHEMA, key=("id", "p"), partitioned_by=("p",), options=options)
    rows, query = {}, None
    for step in range(12):
        story.clock.advance(1000)
        some = {chance.randrange(20): chance.randrange(6) for _ in range(8)}
        story.table.upsert([{"id": key, "p": part, "v": step} for key, part in some.items()])
        rows |= dict.fromkeys(some.items(), step)
        if chance.random() < 0.3:
            story.table.compact(full=chance.random() < 0.5)
        query = query or TableQuery(story.reopened().session)
        query.refresh()
        keys = [{"id": chance.randrange(22), "p": chance.randrange(8)} for _ in range(10)]
        expected = [rows.get((key["id"], key["p"])) for key in keys]
        assert query.lookup(keys)["v"].to_pylist() == expected
        for key, value in zip(keys, expected, strict=True):
            for _ in range(2):
                assert (query.get(key) or {}).get("v") == value
        located = story.reopened().locate(pa.Table.from_pylist(keys))
        assert [one is not None for one in located["file_name"].to_pylist()] == [
            one is not None for one in expected
        ]


def test_partitions_of_the_keys_alone_are_looked_at(looked_at):
    story = Story(SCHEMA, key=("id", "p"), partitioned_by=("p",), options={"bucket": "2"})
    story.table.upsert([{"id": key, "p": key % 5, "v": 0} for key in range(50)])
    looked_at.clear()
    query = TableQuery(story.reopened().session)
    assert looked_at == []
    assert query.get({"id": 7, "p": 2}) == {"id": 7, "p": 2, "v": 0}
    assert query.get({"id": 12, "p": 2})["v"] == 0
    assert query.get({"id": 1, "p": 99}) is None
    assert query.get({"id": 2, "p": 99}) is None
    assert [len(one) for one in looked_at] == [1, 1]
    story.clock.advance(1000)
    story.table.upsert([{"id": 7, "p": 2, "v": 1}, {"id": 1, "p": 99, "v": 1}])
    looked_at.clear()
    assert query.refresh()
    assert query.get({"id": 7, "p": 2})["v"] == 1
    assert query.get({"id": 1, "p": 99})["v"] == 1
    assert [len(one) for one in looked_at] == [2]  # those that were looked at before, in one go
    query.close()


def test_a_snapshot_that_has_expired_is_left_for_the_newest(looked_at):
    story = Story(SCHEMA, key=("id", "p"), partitioned_by=("p",), options={"bucket": "1"})
    story.table.upsert([{"id": 1, "p": part, "v": 0} for part in range(3)])
    query = TableQuery(story.reopened().session)
    story.clock.advance(1000)
    story.table.upsert([{"id": 1, "p": part, "v": 1} for part in range(3)])
    story.table.compact(full=True)
    story.clock.advance(10_000_000)
    story.table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    query._maker.session.manifests.forget_all()
    assert query.get({"id": 1, "p": 2})["v"] == 1
    assert query.lookup([{"id": 1, "p": 0}])["v"].to_pylist() == [1]


def test_a_large_table_answers_without_a_look_at_all_of_it(tmp_path, monkeypatch):
    table = lsm.open_table(many_files(tmp_path, 60_000).path)
    texts = {name: "a" for name in COLUMNS.names if COLUMNS.field(name).type == pa.string()}
    table.upsert([{**texts, "id": 7, "dt": "2031-01-01"}])
    seen, live = [], TableSession.live_entries

    def note(self, snapshot, holds=None, columns=None):
        found = live(self, snapshot, holds, columns)
        seen.append(len(found))
        return found

    monkeypatch.setattr(TableSession, "live_entries", note)
    assert table.lookup([{"id": 7, "dt": "2031-01-01"}])["s0"].to_pylist() == ["a"]
    assert table.lookup([{"id": 7, "dt": "2032-01-01"}])["s0"].to_pylist() == [None]
    assert sum(seen) <= 2

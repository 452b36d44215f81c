"""The newest snapshot on a far store: what a process knows, one round, and when it looks in order instead."""

import itertools
import os
import random
import threading
import time
from dataclasses import replace

import pyarrow as pa
import pytest
from cachetools import LRUCache

import lsm_engine as lsm
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.metadata import snapshots
from lsm_engine.planning.commit import note_of_files
from lsm_engine.storage.bulk import settle
from lsm_engine.storage.location import parse_location

STEPS = int(os.environ.get("LSM_TURNS", "20"))
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.fixture
def table(request):
    name = request.node.name.replace("_", "-")
    with lsm.open_catalog("sqlite://", warehouse=f"memory://{name}/lake") as catalog:
        yield catalog.create_table("a.t", COLUMNS, primary_key="id", options={"bucket": "1"})


def elsewhere(table, monkeypatch, act):
    """Do something as another process does it: nothing of it is known here."""
    monkeypatch.setattr(snapshots, "_newest_known", {})
    act(lsm.open_table(table.location))
    monkeypatch.undo()


def put(table, number):
    return table.upsert([{"id": 1, "v": number}])


def test_commits_of_another_process_are_climbed(table, monkeypatch):
    put(table, 1)
    elsewhere(table, monkeypatch, lambda other: [put(other, 2), put(other, 3)])
    assert table.latest_snapshot().id == 3
    assert table.session.newest_of_writer().id == 3


def test_a_writer_that_knows_an_old_newest_commits_on_the_new_one(table, monkeypatch):
    put(table, 1)
    elsewhere(table, monkeypatch, lambda other: put(other, 2))
    assert table.session.newest_of_writer().id == 1  # known a moment ago
    put(table, 3)
    assert table.latest_snapshot().id == 3
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": 3}]
    assert table.verify(deep=True).is_clean


KEY_2 = [{"id": 2, "v": 2}]
LOOKING_WRITES = {
    "delete": lambda table: table.delete([{"id": 2}]),
    "delete by a filter": lambda table: table.delete(where=lsm.col("id") == 2),
    "update": lambda table: table.update(set={"v": "7"}, where=lsm.col("id") == 2),
    "merge": lambda table: table.merge([{"id": 2, "v": 7}]).when_matched_update_all().execute(),
}


@pytest.mark.parametrize("write", LOOKING_WRITES.values(), ids=LOOKING_WRITES)
def test_a_write_finds_the_rows_that_another_process_has_just_committed(table, monkeypatch, write):
    put(table, 1)
    elsewhere(table, monkeypatch, lambda other: other.upsert(KEY_2))
    assert table.session.newest_of_writer().id == 1  # known a moment ago
    assert write(table) is not None
    assert table.to_arrow(where=lsm.col("id") == 2).to_pylist() in ([], [{"id": 2, "v": 7}])


def test_an_insert_finds_the_keys_that_another_process_has_just_deleted(table, monkeypatch):
    table.upsert(KEY_2)
    elsewhere(table, monkeypatch, lambda other: other.delete([{"id": 2}]))
    table.insert(KEY_2)
    assert table.to_arrow().to_pylist() == KEY_2


def test_rows_are_unchanged_beside_what_another_process_has_just_committed(table, monkeypatch):
    table.alter(lsm.SetOption("write.skip-unchanged", "true"))
    table = lsm.open_table(table.location)
    table.upsert(KEY_2)
    elsewhere(table, monkeypatch, lambda other: other.upsert([{"id": 2, "v": 3}]))
    table.upsert(KEY_2)
    assert table.to_arrow().to_pylist() == KEY_2


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


def seen_by(known, before=lambda number: None, after=lambda number: None):
    """Have somebody look on before and after each snapshot is read, from whichever thread."""
    find = known._find

    def watched(number):
        before(number)
        found = find(number)
        after(number)
        return found

    known._find = watched


def make_old(seconds):
    for key, entry in list(snapshots._newest_known.items()):
        snapshots._newest_known[key] = replace(entry, at_millis=entry.at_millis - seconds * 1000)


def test_what_was_known_long_ago_is_read_after_its_successor(table):
    """Young knowledge is asked for at once; one that grows old meanwhile is read once more."""
    put(table, 1)
    known, asked = table.session.snapshots._newest, []
    seen_by(known, asked.append)
    assert (known.look().id, sorted(asked)) == (1, [1, 2])
    make_old(60)
    asked.clear()
    assert (known.look().id, asked) == (1, [2, 1])
    snapshot = table.latest_snapshot()
    with pytest.MonkeyPatch.context() as slow:
        slow.setattr(snapshots, "_clock", SlowClock(itertools.count(0, 300)))
        known.remember(snapshot, 0)
        asked.clear()
        assert (known.look().id, asked[-1], len(asked)) == (1, 1, 3)


class SlowClock:
    """Every look at it takes so many milliseconds."""

    def __init__(self, ticks):
        self._ticks = ticks

    def monotonic_millis(self):
        return next(self._ticks)


@pytest.mark.parametrize("way", ["known", "by the hint", "by the hint, with a note"])
def test_an_expiry_between_two_requests_shows_no_reader_an_old_state(table, monkeypatch, way):
    """A store that answers out of order: the snapshot known is read, then an expiry takes it and its
    successor, and then it is asked for the successor. Acknowledged commits were not seen."""
    put(table, 1)
    put(table, 2)
    known = table.session.snapshots._newest
    elsewhere(table, monkeypatch, lambda other: [put(other, number) for number in range(3, 7)])
    settle()
    acknowledged = max(table.session.snapshots.ids())
    if way == "known":
        make_old(60)
    else:
        known.forget()
        note = note_of_files(table.session.snapshots.find(2)) if "note" in way else ""
        table.session.file_io.replace("snapshot/LATEST", b"2", note=note)
    was_read, has_expired = threading.Event(), threading.Event()

    def before(number):
        if number == 3 and was_read.wait(1) and not has_expired.is_set():
            has_expired.set()
            other = lsm.open_table(table.location)
            other.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
            time.sleep(0.15)

    seen_by(known, before, lambda number: was_read.set() if number == 2 else None)
    assert table.latest_snapshot().id == acknowledged
    assert has_expired.is_set() == (way != "known")


def test_a_note_beside_latest_saves_the_look_at_the_base(table):
    """What was found to count stays on the line as long as it is there; what is not that state is looked at."""
    for number in range(1, 4):
        put(table, number)
    settle()
    snapshots = table.session.snapshots
    third, asked = snapshots.find(3), []
    seen_by(snapshots._newest, asked.append)
    snapshots._newest.forget()
    assert snapshots.latest().id == 3
    assert sorted(asked) == [3, 4]
    # A ghost, which was never on the line, above a gap that LATEST names with another state.
    ghost = replace(
        third,
        id=4,
        delta_manifest_list="manifest-list-ghost-0",
        properties={"lsm.base": "manifest-list-gone-0"},
    )
    table.session.file_io.write_new("snapshot/snapshot-4", encode_snapshot(ghost))
    table.session.file_io.replace("snapshot/LATEST", b"4", note=note_of_files(third))
    snapshots._newest.forget()
    with pytest.raises(lsm.CorruptFileError, match="missing that snapshot 4 was made on"):
        snapshots.latest()
    table.session.file_io.replace("snapshot/LATEST", b"3", note=note_of_files(ghost))
    snapshots._newest.forget()
    asked.clear()
    assert snapshots.latest().id == 3
    assert asked[-1] == 2


def test_latest_is_written_behind_the_commit(table):
    put(table, 1)
    put(table, 2)
    settle()
    assert table.session.file_io.read("snapshot/LATEST") == b"2"
    assert parse_location(table.location).scheme == "memory"


LAYOUTS = {
    "default": {},
    "vectors": {"deletion-vectors.enabled": "true"},
    "skipping": {"write.skip-unchanged": "true"},
    "counting": {"write.count-changes": "true"},
    "lookup": {"changelog-producer": "lookup"},
    "dynamic": {"bucket": "-1"},
}


def act_at_random(chance, table, rows):
    """Do one operation on a table and on what it holds, and return the operation's name."""
    key, value = chance.randrange(4), chance.randrange(3)
    row, is_there, is_key = {"id": key, "v": value}, key in rows, lsm.col("id") == key
    act = chance.choice(["upsert", "delete", "delete where", "update", "insert", "merge", "compact", "overwrite"])  # fmt: skip
    if act == "upsert":
        table.upsert([row])
    elif act == "delete":
        table.delete([{"id": key}])
    elif act == "delete where":
        table.delete(where=is_key)
    elif act == "update":
        table.update(set={"v": str(value)}, where=is_key)
    elif act == "insert":
        table.insert([row], existing="skip")
    elif act == "merge":
        table.merge([row]).when_matched_update_all().when_not_matched_insert_all().execute()
    elif act == "compact":
        table.compact(full=chance.random() < 0.5)
    elif chance.random() < 0.3:
        table.overwrite([row])
        rows.clear()
        rows[key] = value
    if act in ("upsert", "merge") or (act == "update" and is_there) or (act == "insert" and not is_there):  # fmt: skip
        rows[key] = value
    elif act.startswith("delete"):
        rows.pop(key, None)
    return f"{act} {row}"


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS)
def test_processes_in_turns_do_what_one_would(monkeypatch, options):
    """Each of three processes knows what it last saw of a remote store, and has to find what the others did."""
    chance, rows, log = random.Random(7), {}, []
    memories = [LRUCache(100) for _ in range(3)]
    with lsm.open_catalog("sqlite://", warehouse=f"memory://turns-{id(memories)}/lake") as catalog:
        location = catalog.create_table(
            "a.t", COLUMNS, "id", options={"bucket": "1"} | options
        ).location
    tables = [lsm.open_table(location) for _ in memories]
    for _ in range(STEPS):
        place = chance.randrange(3)
        monkeypatch.setattr(snapshots, "_newest_known", memories[place])
        log.append(f"{place}: {act_at_random(chance, tables[place], rows)}")
        expected = [{"id": key, "v": rows[key]} for key in sorted(rows)]
        monkeypatch.setattr(snapshots, "_newest_known", memories[chance.randrange(3)])
        assert lsm.open_table(location).to_arrow().sort_by("id").to_pylist() == expected, log[-6:]

"""What is asked for before it is known to be there: LATEST at the opening, schema-0, named manifests, likely documents.

None of it decides anything: what is stale, missing or wrong costs a request, and changes no answer.
"""

import base64
import zlib
from dataclasses import replace

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import StorageError, UnsupportedError
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.metadata import snapshots
from lsm_engine.planning.commit import (
    MANIFESTS,
    copied_lists,
    named_manifests,
    note_of_files,
    noted_files,
    noted_state,
    with_manifests,
)
from lsm_engine.storage.bulk import settle
from lsm_engine.storage.file_io import Noted
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_store import MARKER, Gathered, KeptDocuments, ObjectFileIO
from lsm_engine.storage.paths import LATEST
from tests.stores.small_tables import QUIET, SCHEMA, forget_all, small_table, upsert
from tests.unit.metadata.documents import snapshot
from tests.unit.planning.facts import manifest


@pytest.fixture
def table(tmp_path):
    return small_table(tmp_path, 3)


def keys(table):
    return sorted(table.to_arrow()["k"].to_pylist())


def test_commits_after_the_opening_are_read(table):
    forget_all()
    opened = lsm.open_table(table.location)  # LATEST is under way, or here
    forget_all()
    for number in range(3, 30):
        upsert(table, number)
    snapshots._newest_known.clear()
    assert keys(opened) == list(range(30))


def test_a_rollback_after_the_opening_is_seen(table):
    forget_all()
    opened = lsm.open_table(table.location)
    table.rollback_to(1)
    upsert(table, 7)
    snapshots._newest_known.clear()
    assert keys(opened) == [0, 7]


def test_a_later_schema_is_in_force(table):
    table.alter(lsm.AddColumn(name="w", type=pa.int64()))
    forget_all()
    assert lsm.open_table(table.location).schema.names == ("k", "v", "w")


@pytest.mark.parametrize(
    "text", ["", "manifest-none-0", "../../etc/passwd manifest-a/../b", "manifest-0 " * 2_000]
)
def test_named_manifests_are_advice(table, text):
    snapshot = table.latest_snapshot()
    assert len(named_manifests(snapshot)) == 3
    other = replace(snapshot, properties={**snapshot.properties, MANIFESTS: text})
    file_io = table.session.file_io
    file_io.replace(table.session.paths.snapshot_file(3), encode_snapshot(other))
    forget_all()
    opened = lsm.open_table(table.location)
    assert keys(opened) == [0, 1, 2]
    assert len(named_manifests(opened.latest_snapshot())) <= 40


def test_many_or_large_manifests_are_not_named():
    few = [manifest(f"manifest-{number}", 10) for number in range(40)]
    assert named_in(few) == [one.file_name for one in few]
    assert named_in([*few, manifest("manifest-41", 10)]) is None
    assert named_in([manifest("manifest-0", 1 << 20)]) == ["manifest-0"]
    assert named_in([manifest("manifest-0", 1 + (1 << 20))]) is None
    assert named_in([manifest("of another client", 10)]) is None
    assert named_in([]) is None


def named_in(metas):
    found = with_manifests(None, metas)
    return None if found is None else found[MANIFESTS].split()


def test_a_local_table_names_none(tmp_path):
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        made = catalog.create_table("a.t", SCHEMA, primary_key=["k"], options=QUIET)
    upsert(made, 0)
    assert named_manifests(made.latest_snapshot()) == []


def test_documents_that_come_after_they_were_asked_for_are_read_once_they_are_listed():
    storage = ObjectFileIO(parse_location("memory://first-look/db.db/t"))
    storage.write_new("tag/a", b"1")
    absent = storage.gathered(["tag"], ["tag/b"])
    assert [one.name for one in absent.list("tag")] == ["a"]

    class Late:
        """A store where a document is made between the question for it and the listing."""

        def __init__(self):
            self.asked = 0

        def list(self, directory):
            return storage.list(directory)

        def read(self, path):
            self.asked += 1
            if self.asked == 1:
                storage.read("tag/none")
            return storage.read(path)

    late = Late()
    kept = KeptDocuments(ObjectFileIO(parse_location("memory://first-look/db.db/other")))
    gathered = Gathered(late.list, late.read, kept, ["tag"], ["tag/a"])
    assert gathered.read("tag/a").result() == b"1"
    assert late.asked == 2


def test_maintenance_in_the_same_process_keeps_what_others_committed(table):
    """The newest that this process knows is not the newest any more."""
    known = dict(snapshots._newest_known)
    for number in range(3, 16):
        upsert(table, number)
    snapshots._newest_known.clear()
    snapshots._newest_known.update(known)
    found = lsm.open_table(table.location).expire_snapshots(retain_max=2, retain_min=1)
    assert found.snapshot_ids == tuple(range(1, 15))
    forget_all()
    assert keys(table) == list(range(16))
    assert table.verify(deep=True).is_clean


def latest_of(table):
    """The file LATEST of a table, with its note."""
    return table.session.file_io.read(table.session.paths.snapshot_hint(LATEST))


def test_latest_has_a_note_of_what_readers_ask_for_next(table):
    settle()
    snapshot = table.latest_snapshot()
    found = latest_of(table)
    assert found == b"3"  # what other clients read
    assert noted_files(found.note) == named_manifests(snapshot)
    assert noted_state(found.note) == snapshot.delta_manifest_list
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
    bare = replace(snapshot, manifest_lists=None)
    assert noted_files(note_of_files(bare)) == [*lists, *named_manifests(snapshot)]


SPOILT = {
    "no base64": lambda text: "ä" + text,
    "cut": lambda text: text[:-5],
    "of another state": lambda text: copy_of(b"x" * len(unpacked(text))),
    "longer": lambda text: copy_of(unpacked(text) + b"x"),
    "a bomb": lambda _: copy_of(b"x" * (1 << 20)),
}


def copy_of(lists):
    return base64.b64encode(zlib.compress(lists)).decode()


def unpacked(text):
    return zlib.decompress(base64.b64decode(text))


def test_lists_of_a_state_are_in_its_snapshot(monkeypatch, table):
    """Readers do not ask for them, verification does."""
    snapshot = table.latest_snapshot()
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    content = {name: table.session.manifests.content(name, None) for name in lists}
    assert copied_lists(snapshot) == content
    assert not [text for text in snapshot.properties.values() if text == snapshot.manifest_lists]
    table.session.file_io.delete_many(map(table.session.paths.manifest, lists))
    forget_all()
    opened = lsm.open_table(table.location)
    assert keys(opened) == [0, 1, 2]
    found = opened.verify()
    assert any(lists[0] in str(problem) for problem in found.problems)


@pytest.mark.parametrize("way", SPOILT)
def test_a_copy_of_lists_is_taken_only_where_it_is_what_they_hold(table, way):
    snapshot = table.latest_snapshot()
    other = replace(snapshot, manifest_lists=SPOILT[way](snapshot.manifest_lists))
    table.session.file_io.replace(table.session.paths.snapshot_file(3), encode_snapshot(other))
    forget_all()
    assert keys(lsm.open_table(table.location)) == [0, 1, 2]


@pytest.mark.parametrize(
    "note", ["", "none-0 list-none-1", "../../etc/passwd", "a/../b", "../manifest-0", "0 " * 900]
)
def test_a_note_beside_latest_is_advice(table, note):
    settle()
    path = table.session.paths.snapshot_hint(LATEST)
    table.session.file_io.replace(path, b"3", note=note)
    forget_all()
    assert keys(lsm.open_table(table.location)) == [0, 1, 2]
    assert len(noted_files(note)) <= 42
    assert not [name for name in noted_files(note) if "/" in name or "." in name]


@pytest.mark.parametrize("newest_id", [3, 6])
def test_a_note_of_an_older_state_is_advice(table, newest_id):
    settle()
    older = latest_of(table)
    for number in range(3, newest_id):
        upsert(table, number)
    table.compact(full=True)
    settle()
    table.session.file_io.replace(table.session.paths.snapshot_hint(LATEST), older, note=older.note)
    forget_all()
    assert keys(lsm.open_table(table.location)) == list(range(newest_id))


@pytest.mark.parametrize(
    "answer",
    [
        UnsupportedError("the store does not offer this request", status=501),
        StorageError("the store refused a request", status=400),
    ],
)
def test_a_store_that_takes_no_notes_keeps_latest(monkeypatch, table, answer):
    put, noted = ObjectFileIO.replace, []

    def without_notes(storage, path, data, *, may_skip=False, note=""):
        if note:
            noted.append(path)
            raise answer
        put(storage, path, data, may_skip=may_skip)

    monkeypatch.setattr(ObjectFileIO, "replace", without_notes)
    for number in (3, 4):
        upsert(table, number)
        settle()
    assert latest_of(table) == b"5"
    assert not isinstance(latest_of(table), Noted)
    assert len(noted) == 1


def test_latest_is_written_once_to_a_store_that_throttles_it(monkeypatch, table):
    settle()  # the hint of the fixture's last commit may still be on its way
    asked = []

    def throttled(storage, path, data, *, may_skip=False, note=""):
        asked.append(path)
        raise StorageError("the store is busy; try again later", path=path, status=503)

    monkeypatch.setattr(ObjectFileIO, "replace", throttled)
    upsert(table, 3)
    settle()
    assert len(asked) == 1


def test_what_a_process_keeps_is_not_fetched_again_by_a_note(monkeypatch, table):
    settle()
    table.to_arrow()
    fetched = []
    monkeypatch.setattr(ObjectFileIO, "prefetch", lambda _, path: fetched.append(path))
    snapshots._newest_known.clear()
    assert table.session.snapshots.latest(reads_state=True).id == 3
    assert not [path for path in fetched if "manifest" in path]


def test_a_note_is_not_longer_than_stores_take():
    names = [f"manifest-{number:037}-{number:010}" for number in range(40)]
    few = [manifest(name, 10) for name in names]
    made = replace(snapshot(1), properties=with_manifests(None, few))
    note = note_of_files(made)
    assert len(note) <= 1_900
    assert set(noted_files(note)[2:]) < set(names)  # the lists come first
    assert len(noted_files(note)) > 30


@pytest.mark.parametrize("hint", [1, 2, 3, 4])
def test_a_stale_latest_is_climbed_from(table, hint):
    for number in range(3, 6):
        upsert(table, number)
    table.session.snapshots.hint_latest(hint)
    forget_all()
    assert keys(lsm.open_table(table.location)) == list(range(6))


def test_a_newest_snapshot_that_is_lost_is_missed(table):
    """LATEST names it; this process, which knows it, is told as well."""
    upsert(table, 9)
    newest = table.snapshot_ids()[-1]
    table.session.snapshots.hint_latest(newest)
    table.session.file_io.delete(table.session.paths.snapshot_file(newest))
    for _ in range(2):
        with pytest.raises(lsm.CorruptFileError, match=f"snapshot {newest} is missing"):
            keys(lsm.open_table(table.location))
        forget_all()


def test_the_marker_of_a_probe_is_looked_for_beside_the_data(monkeypatch, tmp_path):
    where = parse_location(f"memory://{tmp_path.name.replace('_', '-')}/lake/a.db/t")
    read = []
    real = ObjectFileIO.read

    def watched(storage, path, *more, **named):
        read.append(path)
        return real(storage, path, *more, **named)

    monkeypatch.setattr(ObjectFileIO, "read", watched)
    first = ObjectFileIO(where)
    first.writing_behind()  # looks, and finds no marker
    assert first.publish("snapshot/snapshot-1", b"1")
    assert read.count(MARKER) == 2  # the probe looks again
    clients = first._requests.clients
    clients.proven.clear()
    clients.looked_for.clear()
    read.clear()
    for number in (2, 3):
        ObjectFileIO(where).writing_behind()
        assert ObjectFileIO(where).publish(f"snapshot/snapshot-{number}", b"1")
    assert read.count(MARKER) == 1


def test_a_key_that_is_forgotten_leaves_no_copy_of_lists_behind(tmp_path):
    """Partitions of manifests stand in lists, and so in their copies, compressed: no search for bytes finds them."""
    columns = pa.schema([("day", pa.string()), ("k", pa.int64())])
    made = {"bucket": "1", "manifest.compression": "none"}
    where = f"memory://{tmp_path.name.replace('_', '-')}/lake"
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=where) as catalog:
        table = catalog.create_table(
            "a.t", columns, primary_key=["day", "k"], partitioned_by=["day"], options=made
        )
        table.upsert([{"day": "one of hers alone", "k": 1}, {"day": "any", "k": 1}])
        table.create_tag("early")
        table.upsert([{"day": "any", "k": 2}])

        def copies():
            states = [table.latest_snapshot(), *(tag.snapshot for tag in table.tags())]
            return [unpacked(one.manifest_lists) for one in states if one.manifest_lists]

        assert any(b"one of hers alone" in content for content in copies())
        key = {"day": "one of hers alone", "k": 1}
        at_once = {"rewrite_tags": True, "unreferenced_older_than": "0 s"}
        assert table.forget([key], False, **at_once).is_clean
        assert copies()
        assert not any(b"one of hers alone" in content for content in copies())
        assert table.scan(tag="early").to_arrow().num_rows == 1

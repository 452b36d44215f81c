"""What maintenance gathers from afar: documents that are known by their tag, directories that are seen to be there."""

from dataclasses import replace

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.maintenance import expire as expire_maintenance
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_store import KeptDocuments, ObjectFileIO
from tests.stores.small_tables import SCHEMA, forget_all, small_table

DIRECTORIES = ["snapshot", "tag", "consumer"]


@pytest.fixture
def storage(tmp_path):
    return ObjectFileIO(parse_location(f"memory://{tmp_path.name.replace('_', '-')}/a.db/t"))


@pytest.fixture
def table(tmp_path):
    return small_table(tmp_path, 5)


def expire(table, **more):
    return table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s", **more)


def other(storage):
    """Another handle, as of another process that this one knows nothing of."""
    return ObjectFileIO(storage.location)


@pytest.mark.parametrize("below", [None, ""])
def test_a_document_is_read_again_only_where_its_content_is_another(storage, monkeypatch, below):
    for name in ("snapshot/a", "snapshot/b", "tag/c"):
        storage.write_new(name, name.encode())
    asked = []
    real = ObjectFileIO._read_document
    monkeypatch.setattr(
        ObjectFileIO, "_read_document", lambda io, path: asked.append(path) or real(io, path)
    )

    def gathered():
        asked.clear()
        return storage.gathered(DIRECTORIES, below=below)

    def contents(seen):
        paths = [one.path for name in DIRECTORIES for one in seen.list(name)]
        return {path: seen.read(path) for path in paths}

    every = {name: name.encode() for name in ("snapshot/a", "snapshot/b", "tag/c")}
    assert contents(gathered()) == every
    assert sorted(asked) == sorted(every)
    assert contents(gathered()) == every
    assert asked == []
    other(storage).write_new("snapshot/b", b"other")  # nobody here is told of its tag
    other(storage).delete("snapshot/a")
    other(storage).write_new("consumer/d", b"new")
    assert contents(gathered()) == {"snapshot/b": b"other", "tag/c": b"tag/c", "consumer/d": b"new"}
    assert sorted(asked) == ["consumer/d", "snapshot/b"]


def test_a_document_that_is_written_is_known_and_one_of_the_same_size_is_not_taken_for_it(storage):
    kept = KeptDocuments(other(storage))
    assert storage.publish("snapshot/1", b"one")
    (there,) = storage.list("snapshot")
    assert kept.find("snapshot/1", there.tag) == b"one"
    storage.replace("snapshot/1", b"two")
    (later,) = storage.list("snapshot")
    assert there.tag != later.tag
    assert kept.find("snapshot/1", there.tag) is None
    assert kept.find("snapshot/1", later.tag) == b"two"
    assert kept.find("snapshot/1", None) is None
    kept.keep("snapshot/1", None, b"without a tag")
    assert not kept.holds("snapshot/1")


@pytest.mark.parametrize("is_new", [True, False])
def test_what_only_a_tag_or_a_branch_keeps_outlives_an_expiry(table, is_new):
    table.create_tag("one", snapshot_id=1)
    table.create_branch("side", tag="one")
    table.branch("side").upsert(pa.table({"k": [9], "v": [9]}, schema=SCHEMA))
    table.reset_consumer("reader", 4)
    if is_new:
        forget_all()
    opened = lsm.open_table(table.location)
    assert expire(opened).snapshot_ids == (1, 2, 3)
    opened.reset_consumer("reader")
    assert expire(opened).snapshot_ids == (4,)
    assert opened.scan(tag="one").to_arrow()["k"].to_pylist() == [0]
    assert sorted(opened.branch("side").to_arrow()["k"].to_pylist()) == [0, 9]
    assert opened.verify(deep=True).is_clean
    opened.delete_tag("one")
    assert opened.verify(deep=True).is_clean
    assert sorted(opened.to_arrow()["k"].to_pylist()) == list(range(5))


def test_a_tag_of_another_process_that_comes_before_the_fence_is_seen(table, monkeypatch):
    """Between the first look, which saw no directory of tags, and the one that counts."""
    real = expire_maintenance._Expiry._raise_fence

    def tagged_first(run, choice):
        lsm.open_table(table.location).create_tag("late", snapshot_id=2)
        return real(run, choice)

    forget_all()
    monkeypatch.setattr(expire_maintenance._Expiry, "_raise_fence", tagged_first)
    assert len(expire(lsm.open_table(table.location)).snapshot_ids) == 4
    assert sorted(table.scan(tag="late").to_arrow()["k"].to_pylist()) == [0, 1]
    assert table.verify(deep=True).is_clean


def test_a_snapshot_that_is_another_by_now_is_not_deleted(table, monkeypatch):
    """Its id was given back and used again while the expiry deleted files."""
    storage = table.session.file_io
    path = table.session.paths.snapshot_file
    stranger = encode_snapshot(replace(table.latest_snapshot(), id=2))
    real = ObjectFileIO.delete_many

    def used_again(io, paths):
        paths = list(paths)
        real(io, paths)
        if not any(one.startswith("snapshot/") for one in paths):
            other(io).replace(path(2), stranger)

    monkeypatch.setattr(ObjectFileIO, "delete_many", used_again)
    expire(table)
    names = [one.name for one in storage.list("snapshot") if one.name[-1].isdecimal()]
    assert names == ["snapshot-2", "snapshot-5"]
    assert storage.read(path(2)) == stranger

"""SchemaStore and TagStore."""

import json

import pytest

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    CorruptFileError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsafePathError,
)
from lsm_engine.metadata.schemas import SchemaStore
from lsm_engine.metadata.tags import TagStore
from lsm_engine.storage.paths import TablePaths
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import Lie, LoseReply, Misread, RecordingFileIO
from tests.unit.metadata.documents import schema, tag

PATHS = TablePaths(root="t")


@pytest.fixture
def disk():
    return MemoryFileIO()


# --- schemas -------------------------------------------------------------------------------------


def test_schema_history(disk):
    store = SchemaStore(disk, PATHS)
    assert store.latest() is None
    assert store.all() == []
    for number in (0, 1, 9, 10):
        assert store.publish(schema(number))
    assert not store.publish(schema(1, comment="other"))
    assert store.latest() == schema(10)
    assert store.ids() == [0, 1, 9, 10]
    assert store.load(1) == schema(1)
    assert len(store.all()) == 4


def test_missing_and_misplaced_schemas(disk):
    store = SchemaStore(disk, PATHS)
    with pytest.raises(NotFoundError) as caught:
        store.load(3)
    assert caught.value.facts == {"path": "t/schema/schema-3", "schema_id": 3}
    store.publish(schema(0))
    disk.write_new("t/schema/schema-1", disk.read("t/schema/schema-0"))
    with pytest.raises(CorruptFileError, match="another schema"):
        store.latest()


def test_a_stale_listing_of_schemas_is_caught_up_with(disk):
    for number in (0, 1):
        SchemaStore(disk, PATHS).publish(schema(number))
    storage = RecordingFileIO(disk, Misread(at=1, how=Lie.SHORT))
    assert SchemaStore(storage, PATHS).latest() == schema(1)


def test_a_lost_reply_to_a_schema_is_looked_up(disk):
    store = SchemaStore(RecordingFileIO(disk, LoseReply(at=1), LoseReply(at=2)), PATHS)
    assert store.publish(schema(0))
    assert not store.publish(schema(0, comment="other"))


def test_an_unreadable_table_is_not_a_missing_one(disk):
    SchemaStore(disk, PATHS).publish(schema(0))
    storage = RecordingFileIO(disk, Misread(at=1, how=StorageError("no")))
    with pytest.raises(StorageError):
        SchemaStore(storage, PATHS).latest()


# --- tags ----------------------------------------------------------------------------------------


def test_tags_come_and_go(disk):
    store = TagStore(disk, PATHS)
    assert store.list() == []
    given = tag("v1", 2, created=(2024, 2, 29, 12, 34, 56, 789_000_000), retained_millis=86_400_000)
    store.create(given)
    store.create(tag("release 1.0-ü", 1))
    assert store.load("v1") == given
    assert [each.name for each in store.list()] == ["release 1.0-ü", "v1"]
    assert store.names() == ["release 1.0-ü", "v1"]
    assert store.exists("v1")
    assert store.delete(store.load("v1"))
    assert not store.delete(given)
    assert not store.exists("v1")


def test_a_taken_name(disk):
    store = TagStore(disk, PATHS)
    store.create(tag("v1", 1))
    with pytest.raises(AlreadyExistsError) as caught:
        store.create(tag("v1", 2))
    assert caught.value.facts == {"tag": "v1"}
    assert store.load("v1").snapshot.id == 1


def test_a_tag_is_replaced_and_deleted_as_it_was_read(disk):
    """Also one whose file another client wrote, in other bytes than ours."""
    store = TagStore(disk, PATHS)
    made = store.create(tag("v1", 1))
    members = json.loads(disk.read("t/tag/tag-v1"))
    foreign = {key: value for key, value in members.items() if not key.startswith("lsm")}
    disk.replace("t/tag/tag-v1", json.dumps(foreign).encode())
    read = store.load("v1")
    assert read == made
    assert not store.delete(made)
    assert store.replace(made, tag("v1", 3)) is None
    moved = store.replace(read, tag("v1", 2))
    assert moved is not None
    assert store.load("v1").snapshot.id == 2
    assert not store.delete(read)
    assert store.delete(moved)
    assert store.replace(moved, read) is None
    assert not store.exists("v1")


def test_a_tag_that_cannot_be_read_is_deleted(disk):
    store = TagStore(disk, PATHS)
    disk.write_new("t/tag/tag-v1", b"{")
    assert store.delete_unread("v1")
    assert not store.delete_unread("v1")


def test_contents_of_a_tag_differ_by_an_id(disk):
    store = TagStore(disk, PATHS)
    first = store.create(tag("v1", 1, id="a"))
    second = store.replace(first, tag("v1", 1, id="b"))
    assert second == first
    assert store.load("v1").id == "b"
    assert not store.delete(first)
    assert store.delete(second)


def test_a_lost_reply_to_a_tag_is_looked_up(disk):
    store = TagStore(RecordingFileIO(disk, LoseReply(at=1), LoseReply(at=2)), PATHS)
    store.create(tag("v1", 1))
    with pytest.raises(AlreadyExistsError):
        store.create(tag("v1", 2))


def test_an_unknown_outcome_stays_unknown(disk):
    class Silent(MemoryFileIO):
        def publish(self, path, data):
            raise CommitUnknownError("no answer", path=path)

    with pytest.raises(CommitUnknownError):
        TagStore(Silent(), PATHS).create(tag("v1"))
    with pytest.raises(CommitUnknownError):
        SchemaStore(Silent(), PATHS).publish(schema(0))


@pytest.mark.parametrize(
    "name", ["", " ", " a", "a ", "123", "a/b", "../x", "a\\b", "a\nb", "a\0", "x" * 201]
)
def test_names_that_cannot_be(disk, name):
    store = TagStore(disk, PATHS)
    replace = lambda new: store.replace(tag("v1"), new)  # noqa: E731
    for act in (store.create,) if name.isdecimal() else (store.create, replace):
        with pytest.raises(InvalidInputError) as caught:
            act(tag(name))
        assert caught.value.kind is ErrorKind.INVALID_NAME
    assert disk.list("") == []


def test_paths_in_names_are_refused_everywhere(disk):
    store = TagStore(disk, PATHS)
    for act in (store.load, store.find, store.delete_unread, store.exists):
        with pytest.raises(UnsafePathError):
            act("x/../../snapshot/snapshot-1")
    with pytest.raises(UnsafePathError):
        store.delete(tag("x/../../snapshot/snapshot-1"))


def test_a_missing_tag_names_the_nearest(disk):
    store = TagStore(disk, PATHS)
    store.create(tag("release-1"))
    with pytest.raises(NotFoundError, match="did you mean 'release-1'") as caught:
        store.load("relaese-1")
    assert caught.value.kind is ErrorKind.NO_SUCH_TAG
    with pytest.raises(NotFoundError, match="no tag 'zzz' "):
        store.load("zzz")
    assert store.find("zzz") is None


def test_an_unreadable_tag_is_an_error_not_a_gap(disk):
    """Whoever deletes files asks which tags there are: an empty answer would be fatal."""
    store = TagStore(disk, PATHS)
    store.create(tag("a"))
    store.create(tag("b"))
    disk.replace("t/tag/tag-b", b"{")
    with pytest.raises(CorruptFileError):
        store.list()
    for at in (1, 2):
        storage = RecordingFileIO(disk, Misread(at=at, how=StorageError("no")))
        with pytest.raises(StorageError):
            TagStore(storage, PATHS).list()

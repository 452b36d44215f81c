"""The double itself: what it does to a call, and that a dead process does nothing more."""

import pytest

from lsm_engine.base.errors import CommitUnknownError, StorageError
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import (
    Crash,
    Die,
    Fail,
    Lie,
    LoseReply,
    Misread,
    RecordingFileIO,
    When,
)


def steps(storage):
    storage.write_new("a", b"12")
    output = storage.open_output("b")
    output.write(b"34")
    output.close()
    storage.publish("c", b"56")
    storage.replace("d", b"78")
    storage.sync(["a"])
    storage.delete("a")


VERBS = ["write_new", "open_output", "write", "close", "publish", "replace", "sync", "delete"]


def test_trace():
    storage = RecordingFileIO(MemoryFileIO())
    steps(storage)
    assert [call.verb for call in storage.calls] == VERBS
    assert [call.number for call in storage.calls] == list(range(1, 9))


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("at", range(1, 9))
def test_dies_at_every_call(at, when):
    disk = MemoryFileIO()
    storage = RecordingFileIO(disk, Die(at=at, when=when))
    with pytest.raises(Crash):
        steps(storage)
    assert len(storage.calls) == at
    with pytest.raises(Crash):
        storage.write_new("later", b"")
    with pytest.raises(Crash):
        storage.exists("a")
    names = {status.name for status in disk.list("")}
    assert "later" not in names
    if VERBS[at - 1] == "publish":
        assert ("c" in names) == (when is When.AFTER)


def test_half_a_publish_is_a_temporary():
    disk = MemoryFileIO()
    storage = RecordingFileIO(disk, Die(at=1, when=When.HALFWAY))
    with pytest.raises(Crash):
        storage.publish("s/a", b"1234")
    assert [(each.name, each.size) for each in disk.list("s")] == [(".a.1.tmp", 2)]


def test_fails_once():
    disk = MemoryFileIO()
    storage = RecordingFileIO(disk, Fail(at=1, error=StorageError("full"), when=When.HALFWAY))
    with pytest.raises(StorageError):
        storage.write_new("a", b"1234")
    assert disk.read("a") == b"12"
    storage.write_new("b", b"1")


def test_lost_replies_are_done():
    disk = MemoryFileIO()
    storage = RecordingFileIO(disk, LoseReply(at=1), LoseReply(at=2))
    with pytest.raises(CommitUnknownError):
        storage.publish("a", b"1")
    with pytest.raises(StorageError):
        storage.delete("a")
    assert not disk.exists("a")


def test_lies_about_reads():
    disk = MemoryFileIO()
    disk.write_new("s/a", b"1234")
    storage = RecordingFileIO(
        disk,
        Misread(at=2, how=Lie.SHORT),
        Misread(at=3, how=Lie.STALE),
        Misread(at=5, how=Lie.STALE),
        Misread(at=6, how=Lie.EMPTY),
        Misread(at=7, how=StorageError("no")),
    )
    assert storage.read("s/a") == b"1234"
    assert storage.read("s/a") == b"12"
    disk.replace("s/a", b"5678")
    assert storage.read("s/a") == b"1234"
    assert len(storage.list("s")) == 1
    disk.write_new("s/b", b"")
    assert [status.name for status in storage.list("s")] == ["a"]
    assert storage.list("s") == []
    with pytest.raises(StorageError):
        storage.list("s")
    assert len(storage.list("s")) == 2


def test_calls_back_before_each_call():
    disk = MemoryFileIO()
    seen = []
    storage = RecordingFileIO(disk, on_call=lambda call: seen.append((call.verb, disk.exists("a"))))
    storage.write_new("a", b"")
    storage.read("a")
    assert seen == [("write_new", False), ("read", True)]

"""Functions over FileIO: what is left after an error, and what is asked of which store."""

import pytest

from lsm_engine.base.errors import AlreadyExistsError, LsmError, StorageError
from lsm_engine.storage.bulk import (
    forget_gathered,
    forget_prefetched,
    prefetch,
    sync_directory,
    write_many,
    writing_behind,
)
from lsm_engine.storage.file_io import StoreFacts
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import Fail, RecordingFileIO

FILES = {"m/1": b"1", "m/2": b"2", "m/3": b"3"}


@pytest.mark.parametrize("is_remote", [False, True])
def test_after_a_failed_write_no_file_of_many_is_left(is_remote):
    disk = MemoryFileIO()
    storage = RecordingFileIO(disk, Fail(at=2, error=StorageError("the disk is full")))
    storage.facts = StoreFacts(is_remote=is_remote)
    with pytest.raises(StorageError, match="full"):
        write_many(storage, FILES)
    assert disk.list("m") == []


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_file_of_others_outlives_a_failed_write_of_many(is_remote):
    disk = MemoryFileIO()
    disk.facts = StoreFacts(is_remote=is_remote)
    disk.write_new("m/2", b"of others")
    with pytest.raises(AlreadyExistsError):
        write_many(disk, FILES)
    assert [status.path for status in disk.list("m")] == ["m/2"]
    assert disk.read("m/2") == b"of others"


class LostReply(MemoryFileIO):
    """A store without directories that writes a file and does not say so."""

    facts = StoreFacts(has_directories=False, is_remote=True)

    def write_new(self, path, data):
        self.replace(path, data)
        if path == "m/2":
            raise StorageError("no answer", path=path)


def test_a_written_file_whose_reply_was_lost_is_not_left():
    storage = LostReply()
    with pytest.raises(LsmError):
        write_many(storage, FILES)
    assert storage.list("m") == []


@pytest.mark.parametrize(
    ("facts", "calls"),
    [
        (StoreFacts(), ["sync"]),
        (StoreFacts(is_remote=True), []),  # an answer says that it is durable
        (StoreFacts(has_directories=False), []),
    ],
)
def test_a_directory_is_synced_where_deletions_wait_for_a_disk(facts, calls):
    storage = RecordingFileIO(MemoryFileIO())
    storage.write_new("d/file", b"1")
    storage.facts = facts
    sync_directory(storage, "d")
    assert [call.verb for call in storage.calls[1:]] == calls


def test_what_a_store_does_not_offer_changes_nothing():
    storage = MemoryFileIO()
    prefetch(storage, "none")
    forget_prefetched(storage, ["none"])
    forget_gathered(storage, ["none"])
    assert writing_behind(storage) is storage

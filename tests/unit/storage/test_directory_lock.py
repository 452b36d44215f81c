"""The lock below which names change on a local disk: who holds it, who is refused, whose directory it is."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

from lsm_engine.base.errors import StorageError
from lsm_engine.storage import locks
from lsm_engine.storage.clock import SystemClock
from lsm_engine.storage.local import LocalFileIO

HOLDER = """
import sys
from lsm_engine.storage.locks import exclusive
with exclusive(sys.argv[1], "d/name"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def storage(tmp_path):
    disk = LocalFileIO(str(tmp_path))
    disk.write_new("d/name", b"old")
    return disk


def held_by_another_process(storage):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, storage.real_path("d")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_writer_in_its_turn_changes_names_in_the_directory_that_it_holds(storage, monkeypatch):
    """It takes back a snapshot that does not count, under the lock that its own turn holds."""
    monkeypatch.setattr(locks, "PATIENCE_MILLIS", 100)
    refusals = []

    def change_from_another_thread() -> None:
        with pytest.raises(StorageError, match="holds the lock") as caught:
            storage.change_if_unchanged("d/name", b"other", expected=b"old")
        refusals.append(caught.value)

    with locks.directory_lock(storage, "d", SystemClock(), patience_millis=100) as is_ours:
        assert is_ours
        thread = threading.Thread(target=change_from_another_thread)
        thread.start()
        thread.join()
        assert len(refusals) == 1
        assert storage.change_if_unchanged("d/name", b"new", expected=b"old")
    assert storage.change_if_unchanged("d/name", None, expected=b"new")


def test_a_frozen_holder_is_named_and_nothing_is_changed(storage, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE_MILLIS", 100)
    process = held_by_another_process(storage)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(StorageError, match=f"process {process.pid} holds the lock") as caught:
            storage.change_if_unchanged("d/name", b"new", expected=b"old")
        assert caught.value.facts["path"] == "d/name"
        with pytest.raises(StorageError, match="nothing was changed"):
            storage.change_if_unchanged("d/name", None, expected=b"old")
        assert storage.read("d/name") == b"old"
        assert [status.name for status in storage.list("d")] == ["name"]
    finally:
        process.kill()
        process.wait()
    assert storage.change_if_unchanged("d/name", b"new", expected=b"old")  # the lock went with it


def test_who_waits_goes_on_once_the_lock_is_free(storage):
    process = held_by_another_process(storage)
    done = []
    waiting = threading.Thread(
        target=lambda: done.append(storage.change_if_unchanged("d/name", None, expected=b"old"))
    )
    waiting.start()
    waiting.join(timeout=0.2)
    assert not done
    process.communicate(b"")
    waiting.join(timeout=30)
    assert done == [True]


def test_a_file_system_without_locks_refuses_changes(storage, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refused)
    with locks.directory_lock(storage, "d", SystemClock(), patience_millis=100) as is_ours:
        assert is_ours
        # A turn that nothing locks is no lock.
        with pytest.raises(StorageError, match="no locks"):
            storage.change_if_unchanged("d/name", b"new", expected=b"old")
    with pytest.raises(StorageError, match="no locks"):
        storage.change_if_unchanged("d/name", b"new", expected=b"old")
    assert storage.read("d/name") == b"old"


def test_the_lock_of_a_directory_that_went_holds_nothing(storage, monkeypatch, tmp_path):
    """Another directory has taken the name while somebody waited: that one is locked."""
    lock = locks.lock

    def late(descriptor, directory, clock, *, patience_millis):
        monkeypatch.setattr(locks, "lock", lock)
        os.rename(tmp_path / "d", tmp_path / "moved")
        storage.write_new("d/name", b"of another table")
        return lock(descriptor, directory, clock, patience_millis=patience_millis)

    monkeypatch.setattr(locks, "lock", late)
    assert not storage.change_if_unchanged("d/name", None, expected=b"old")
    assert storage.read("d/name") == b"of another table"
    assert (tmp_path / "moved" / "name").read_bytes() == b"old"

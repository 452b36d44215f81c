"""Locks of names on stores without locks: one holder at a time, and what becomes of those of the dead."""

from contextlib import suppress

import pytest

from lsm_engine.base.errors import CommitUnknownError, StorageError
from lsm_engine.storage.locks import ABANDONED_MILLIS, HELD_MILLIS, LockFiles
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.doubles import ManualClock, NumberedIds
from tests.fault.recording_file_io import Crash


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def disk(clock):
    return MemoryFileIO(clock)


def locks_of(disk, clock, first=1, create=None):
    return LockFiles(
        file_io=disk, create=create or disk.publish, clock=clock, ids=NumberedIds(first)
    )


def crash(_):
    raise Crash


def files(disk):
    return [status.name for status in disk.list("tag")]


def left_by_a_dead_holder(disk, clock, first=1):
    with suppress(Crash), locks_of(disk, clock, first).hold_lock("tag/tag-t"):
        disk.delete_many = crash  # nothing runs in a dead process
        raise Crash
    del disk.delete_many


def test_a_lock_is_a_hidden_file_while_it_is_held(disk, clock):
    with locks_of(disk, clock).hold_lock("tag/tag-t") as hold:
        assert files(disk) == [".tag-t.lock"]
        hold.require_time()
    assert files(disk) == []


def test_who_finds_a_holder_waits_and_is_told_who(disk, clock):
    left_by_a_dead_holder(disk, clock)
    with (
        pytest.raises(StorageError, match=r"process \d+ on .* nothing was changed"),
        locks_of(disk, clock, 100).hold_lock("tag/tag-t"),
    ):
        pass
    assert files(disk) == [".tag-t.lock"]


def test_the_lock_of_a_dead_holder_is_succeeded(disk, clock):
    left_by_a_dead_holder(disk, clock)
    clock.advance(ABANDONED_MILLIS)
    with locks_of(disk, clock, 100).hold_lock("tag/tag-t") as hold:
        hold.require_time()
        assert len(files(disk)) == 2
        with pytest.raises(StorageError), locks_of(disk, clock, 200).hold_lock("tag/tag-t"):
            pass
    # The second waiter's patience took less than the holder's time.
    assert files(disk) == []


def test_a_successor_that_died_is_succeeded(disk, clock):
    left_by_a_dead_holder(disk, clock)
    clock.advance(ABANDONED_MILLIS)
    left_by_a_dead_holder(disk, clock, 100)
    clock.advance(ABANDONED_MILLIS)
    with locks_of(disk, clock, 200).hold_lock("tag/tag-t"):
        assert len(files(disk)) == 3
    assert files(disk) == []


def test_a_holder_whose_time_is_over_changes_and_deletes_nothing(disk, clock):
    slow = locks_of(disk, clock).hold_lock("tag/tag-t")
    hold = slow.__enter__()
    clock.advance(HELD_MILLIS + 1)
    with pytest.raises(StorageError, match="try again"):
        hold.require_time()
    clock.advance(ABANDONED_MILLIS)
    with locks_of(disk, clock, 100).hold_lock("tag/tag-t"):
        there = files(disk)
        slow.__exit__(None, None, None)
        assert files(disk) == there


def test_a_late_successor_of_a_lock_that_was_let_go_gives_up(disk, clock):
    """It has seen the old lock, is stopped, and meanwhile that was succeeded and let go of, and another has it."""
    left_by_a_dead_holder(disk, clock)
    clock.advance(ABANDONED_MILLIS)
    others = []

    def create(path, data):
        if path != "tag/.tag-t.lock" and not others:
            with locks_of(disk, clock, 100).hold_lock("tag/tag-t"):
                pass
            others.append(locks_of(disk, clock, 200).hold_lock("tag/tag-t"))
            others[0].__enter__()
        return disk.publish(path, data)

    with pytest.raises(StorageError), locks_of(disk, clock, 300, create).hold_lock("tag/tag-t"):
        pass
    others[0].__exit__(None, None, None)


def test_a_lost_reply_of_the_lock_is_looked_up(disk, clock):
    def create(path, data):
        disk.publish(path, data)
        raise CommitUnknownError("the reply was lost", path=path)

    with locks_of(disk, clock, create=create).hold_lock("tag/tag-t") as hold:
        hold.require_time()
    assert files(disk) == []


def test_a_lock_that_holds_something_else_is_an_error(disk, clock):
    disk.write_new("tag/.tag-t.lock", b"[]")
    with (
        pytest.raises(StorageError, match="delete it"),
        locks_of(disk, clock).hold_lock("tag/tag-t"),
    ):
        pass

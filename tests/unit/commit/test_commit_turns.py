"""Commits take turns with other processes of the machine, in line, and never wait for long for one that is stopped."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.commit.publish import Retries
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.storage.clock import SystemClock
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.storage.locks import directory_lock
from lsm_engine.table.components import CommitTurns


class PolledClock(SystemClock):
    """Counts what is slept instead of sleeping."""

    slept = 0

    def sleep_millis(self, millis: int) -> None:
        object.__setattr__(self, "slept", self.slept + millis)


@pytest.fixture
def folder(tmp_path: Path) -> LocalFileIO:
    (tmp_path / "snapshot").mkdir()
    return LocalFileIO(str(tmp_path))


@contextmanager
def held(folder: LocalFileIO, clock: PolledClock, patience: int = 100) -> Iterator[bool]:
    with directory_lock(folder, "snapshot", clock, patience_millis=patience) as is_ours:
        yield is_ours


def test_a_directory_is_locked_by_one_at_a_time(folder: LocalFileIO) -> None:
    clock = PolledClock()
    with held(folder, clock) as first, held(folder, clock) as second:
        assert (first, second) == (True, False)
    assert clock.slept == 100
    with held(folder, clock) as again:
        assert again
    assert clock.slept == 100
    assert not list(Path(folder.real_path("snapshot")).iterdir())


def test_where_there_is_no_directory_nobody_waits(tmp_path: Path) -> None:
    clock = PolledClock()
    with held(LocalFileIO(str(tmp_path)), clock) as is_ours:
        assert is_ours
    assert clock.slept == 0


def test_turns_are_taken_and_given_up_behind_a_stopped_process(folder: LocalFileIO) -> None:
    turns, clock = CommitTurns(), PolledClock()

    def attempt() -> int:
        before = clock.slept
        with turns.turn(folder, "snapshot", clock):
            return clock.slept - before

    assert attempt() == 0
    with held(folder, PolledClock()):
        assert attempt() == 2_000
        assert [attempt() for _ in range(10)] == [0] * 10, "it waited for the stopped one again"
        assert attempt() == 2_000
        assert [attempt() for _ in range(20)] == [0] * 20
        assert attempt() == 2_000
    for _ in range(40):
        assert attempt() == 0
    assert attempt() == 0
    with held(folder, clock, patience=2) as is_ours:
        assert is_ours, "a turn was not given back"
    with held(folder, PolledClock()):
        assert [attempt() for _ in range(12)] == [2_000] + [0] * 10 + [2_000]


def test_who_waits_is_patient_while_others_get_on(folder: LocalFileIO) -> None:
    snapshots = Path(folder.real_path("snapshot"))

    class Busy(PolledClock):
        """Others publish a snapshot every 90 ms, twenty of them."""

        def sleep_millis(self, millis: int) -> None:
            super().sleep_millis(millis)
            if self.slept % 90 == 0 and self.slept <= 1_800:
                (snapshots / f"snapshot-{self.slept}").touch()

    clock = Busy()
    with held(folder, clock), held(folder, clock) as second:
        assert not second
    assert 1_800 < clock.slept <= 1_910


def test_who_waits_for_a_stopped_process_does_not_wait_as_long_as_others_publish_without(
    folder: LocalFileIO,
) -> None:
    snapshots = Path(folder.real_path("snapshot"))

    class Endless(PolledClock):
        """Others, who have given up waiting, publish a snapshot every 20 ms."""

        def sleep_millis(self, millis: int) -> None:
            super().sleep_millis(millis)
            if self.slept % 20 == 0:
                (snapshots / f"snapshot-{self.slept}").touch()

    clock = Endless()
    with held(folder, clock), held(folder, clock) as second:
        assert not second
    assert clock.slept == 2_000


def test_who_lets_go_of_a_lock_stands_behind_who_waits_for_it(folder: LocalFileIO) -> None:
    order: list[str] = []

    def other() -> None:
        with held(folder, SystemClock(), patience=10_000):
            order.append("other")

    with held(folder, SystemClock()):
        waiting = Thread(target=other)
        waiting.start()
        while held_above(folder) is False:
            time.sleep(0.001)
    with held(folder, SystemClock(), patience=10_000):  # asked for at once, by who had it
        order.append("first again")
    waiting.join()
    assert order == ["other", "first again"]


def held_above(folder: LocalFileIO) -> bool:
    """Whether somebody stands in line."""
    descriptor = os.open(Path(folder.real_path("snapshot")).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_a_commit_beside_a_stopped_holder_of_the_lock_lands(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    catalog = lsm.open_catalog(warehouse=str(tmp_path))
    table = catalog.create_table("db.t", schema, primary_key=["k"])
    table.upsert([{"k": 1, "v": 1}])
    session = table.session
    directory = session.paths.snapshot_directory
    with directory_lock(session.file_io, directory, session.clock, patience_millis=2) as is_ours:
        assert is_ours
        table.upsert([{"k": 2, "v": 2}])
    assert table.scan().count() == 2


class Dies(BaseException):
    """In the place of a deletion, before which the rollback dies."""


def test_a_writer_that_waits_for_a_rollback_leaves_it_the_lock_of_the_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollback deletes under the lock that turns hold, and the writer waits for what it deletes."""
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")
    ) as catalog:
        table = catalog.create_table("a.b", {"k": "BIGINT"}, options={"bucket": "-1"})
        for key in range(3):
            table.append([{"k": key}])

        def dying(*_: object) -> bool:
            raise Dies

        with monkeypatch.context() as patch:
            patch.setattr(SnapshotStore, "delete_state", dying)
            with pytest.raises(Dies):
                table.rollback_to(1)
        waits = []

        def waiting(_: Retries, snapshot_id: int) -> None:
            waits.append(snapshot_id)
            catalog["a.b"].rollback_to(1)

        monkeypatch.setattr(Retries, "wait_for", waiting)
        table.append([{"k": 9}])
        assert waits == [2]
        assert table.to_arrow().sort_by("k").to_pylist() == [{"k": 0}, {"k": 9}]

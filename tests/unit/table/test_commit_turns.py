"""Commits take turns with other processes of the machine once they have lost, and never wait for long."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.io.clock import SystemClock
from lsm_engine.io.directory_lock import directory_lock
from lsm_engine.io.local import LocalFileIO
from lsm_engine.table.ground.components import CommitTurns


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


def test_turns_are_taken_after_a_lost_race_and_given_up_behind_a_stopped_process(
    folder: LocalFileIO,
) -> None:
    turns, clock = CommitTurns(), PolledClock()

    def attempt() -> int:
        before = clock.slept
        with turns.taken(folder, "snapshot", clock):
            return clock.slept - before

    with held(folder, PolledClock()):
        assert attempt() == 0, "a writer that never lost waited"
        turns.lost()
        assert attempt() == 2_000
        turns.lost()  # it loses to others: it does not wait for the stopped one again at once
        assert [attempt() for _ in range(10)] == [0] * 10
        turns.lost()
        assert attempt() == 2_000
    for _ in range(10):
        attempt()
    turns.lost()
    assert attempt() == 0
    with held(folder, clock, patience=2) as is_ours:
        assert is_ours, "a turn was not given back"


def test_a_commit_beside_a_stopped_holder_of_the_lock_lands(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    catalog = lsm.open_catalog(warehouse=str(tmp_path))
    table = catalog.create_table("db.t", schema, primary_key=["k"])
    table.upsert([{"k": 1, "v": 1}])
    session = table.session
    session.components.commit_turns.lost()
    directory = session.paths.snapshot_directory
    with directory_lock(session.file_io, directory, session.clock, patience_millis=2) as is_ours:
        assert is_ours
        table.upsert([{"k": 2, "v": 2}])
    assert table.scan().count() == 2

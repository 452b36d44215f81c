"""Writers that stay open and compact in the background, killed at any moment, and beside a second process.

CI kills twice; `LSM_STREAM_KILLS=60` as often as that, and with longer races.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("LSM_STREAM_KILLS", "2"))
COMMITS = 40 if KILLS > 2 else 12
pytestmark = pytest.mark.race

WORKER = """
import sys, lsm_engine as lsm, pyarrow as pa
path, number, first, commits = sys.argv[1], *map(int, sys.argv[2:])
table = lsm.open_table(path)
with table.writer(commit_user=f"writer-{number}") as writer:
    for count in range(first, commits):
        own = number * 1_000_000 + count
        writer.write(pa.table({"k": [own, -1], "v": [count, own]}))
        writer.commit(commit_identifier=count + 1)
        print("acknowledged", count, flush=True)
"""


def started(location: str, number: int, first: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, location, str(number), str(first), str(COMMITS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def made(folder: Path, **options: str) -> str:
    with lsm.open_catalog(f"sqlite:///{folder}/c.db", warehouse=str(folder)) as catalog:
        table = catalog.create_table(
            "db.t",
            pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]),
            primary_key=["k"],
            options={"bucket": "2", "num-sorted-run.compaction-trigger": "2", **options},
        )
        return table.location


def check(location: str, numbers: range) -> None:
    """Each commit is there once, rows and sums are right, and no compaction changes that."""
    table = lsm.open_table(location)
    rows = {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    own = {number * 1_000_000 + count: count for number in numbers for count in range(COMMITS)}
    shared = rows.pop(-1)
    assert rows == own
    assert shared % 1_000_000 == COMMITS - 1
    marks = [
        (one.commit_user, one.commit_identifier)
        for one in table.snapshots()
        if one.commit_kind is lsm.CommitKind.APPEND
    ]
    assert len(marks) == len(set(marks))
    report = table.verify(deep=True)
    assert report.is_clean, report.problems
    table.compact(full=True)
    after = {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert after == {**own, -1: shared}


def test_a_writer_killed_while_it_compacts_loses_nothing_acknowledged(tmp_path: Path) -> None:
    draw = random.Random(7)
    location = made(tmp_path, **{"snapshot.num-retained.min": "1000"})
    known = -1
    for _ in range(KILLS):
        worker = started(location, 1, first=max(0, known))  # the last one is a replay
        assert worker.stdout is not None
        for line in worker.stdout:
            known = max(known, int(line.split()[1]))
            if draw.random() < 0.15:
                break
        worker.send_signal(signal.SIGKILL)
        for line in worker.communicate()[0].splitlines():
            known = max(known, int(line.split()[1]))
        there = lsm.open_table(location).scan().to_arrow()["k"].to_pylist()
        assert {1_000_000 + count for count in range(known + 1)} <= set(there)
    assert started(location, 1, first=max(0, known)).wait(120) == 0
    check(location, range(1, 2))
    table = lsm.open_table(location)
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert table.verify(deep=True).is_clean


def test_two_writers_and_a_compactor_race_their_background_compactions(tmp_path: Path) -> None:
    location = made(tmp_path, **{"snapshot.num-retained.min": "1000"})
    workers = [started(location, number) for number in (1, 2)]
    table = lsm.open_table(location)
    while any(worker.poll() is None for worker in workers):
        try:
            table.compact(full=True)
        except lsm.CommitConflictError:
            continue
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert [len(text.splitlines()) for text in outputs] == [COMMITS, COMMITS]
    check(location, range(1, 3))

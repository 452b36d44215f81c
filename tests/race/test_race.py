"""Real processes on one table on a local disk; nothing is lost, doubled or reordered.

CI runs a small race. The full one, 8 x 200, plain and with a compactor, an expirer and a tagger:

    LSM_RACE=8x200 python -m pytest tests/race -q -s  # alone: once more beside two busy processes
    LSM_RACE=16x100 python -m pytest tests/race -q -s -k upkeep

The same race between pypaimon processes loses commits: python -m tests.interop.race_pypaimon
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.storage.local import LocalFileIO
from tests.model.invariants import check_ids, check_snapshot, check_totals
from tests.model.stored_table import StoredTable
from tests.race.race_worker import SHARED_KEYS

ROOT = Path(__file__).parents[2]
PROCESSES, COMMITS = map(int, os.environ.get("LSM_RACE", "4x10").split("x"))
SHARED_FROM = 100
"""Commits of each writer from which on their shares are compared: of fewer, who starts first has most."""

pytestmark = pytest.mark.race


@dataclass
class Finish:
    """What the racers said: snapshot id of each acknowledged key, and everything else."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


def run(table: str, folder: Path, roles: list[str], commits: int) -> Finish:
    """Start the racers, open the gate when all stand there, close it when the writers are done."""
    gate = folder / "gate"
    workers = []
    finish = Finish()
    try:
        for number, role in enumerate(roles):
            command = [sys.executable, "-m", "tests.race.race_worker"]
            command += [table, str(gate), str(number), str(commits), role]
            workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT))
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        gate.touch()
        writers = [worker for worker, role in zip(workers, roles, strict=True) if role == "write"]
        said = [writer.communicate()[0] for writer in writers]
        gate.unlink()
        said += [worker.communicate()[0] for worker in workers if worker not in writers]
        assert all(worker.returncode == 0 for worker in workers), said
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    for line in "".join(said).splitlines():
        match line.split():
            case ["acknowledged", key, snapshot]:
                finish.acknowledged[int(key)] = int(snapshot)
            case _:
                finish.others.append(line)
    return finish


def made_table(folder: Path, options: dict[str, str]) -> str:
    with lsm.open_catalog(f"sqlite:///{folder}/catalog.db", warehouse=str(folder)) as catalog:
        schema = pa.schema(
            [
                pa.field("k", pa.int64(), nullable=False),
                pa.field("writer", pa.int64()),
                pa.field("count", pa.int64()),
            ]
        )
        table = catalog.create_table(
            "db.raced", schema, primary_key=["k"],
            options={"bucket": "2", **options},
        )  # fmt: skip
        return table.location


def check_finish(
    location: str,
    finish: Finish,
    *,
    whole_history: bool,
    commits: int = COMMITS,
    processes: int = PROCESSES,
) -> None:
    """Every acknowledged commit is there exactly once, in order; shared keys hold the last word."""
    expected = {
        number * 1_000_000 + count for number in range(processes) for count in range(commits)
    }
    failed = [line for line in finish.others if line.startswith("failed")]
    assert not failed, failed[:5]
    assert finish.acknowledged.keys() == expected
    table = lsm.open_table(location)
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == len({row["k"] for row in rows}), "a key is there twice"
    found = {row["k"]: row for row in rows}
    own = {key for key in found if key >= 0}
    assert own == expected, f"lost {sorted(expected - own)[:10]}"
    # Per process, later commits have later snapshots.
    for number in range(processes):
        ids = [finish.acknowledged[number * 1_000_000 + count] for count in range(commits)]
        assert ids == sorted(set(ids)), f"commits of racer {number} are out of order"
    assert len(set(finish.acknowledged.values())) == len(expected), "two commits in one snapshot"
    # Of each shared key the row of the last snapshot is there.
    for shared in range(SHARED_KEYS):
        writers = [key for key in expected if key % 1_000_000 % SHARED_KEYS == shared]
        last = max(writers, key=finish.acknowledged.__getitem__)
        row = found[-1 - shared]
        assert (row["writer"], row["count"]) == divmod(last, 1_000_000), f"shared key {shared}"
    stored = StoredTable(LocalFileIO(location))
    snapshots = stored.snapshots()
    check_ids(stored, snapshots)
    check_totals(stored, snapshots)
    for number in sorted(snapshots)[-3:]:
        check_snapshot(stored, snapshots[number])
    appends = [one for one in snapshots.values() if one["commitKind"] == "APPEND"]
    marks = [(one["commitUser"], one["commitIdentifier"]) for one in appends]
    assert len(set(marks)) == len(marks), "a commit is in two snapshots"
    assert len(marks) == len(expected) or not whole_history
    report = table.verify()
    assert not report.problems, report.problems
    table.compact(full=True)
    after = lsm.open_table(location).scan().to_arrow()
    assert after.num_rows == len(rows)
    assert {row["k"]: row for row in after.to_pylist()} == found, "compaction changed the rows"


def slowest_share(finish: Finish) -> float:
    """Commits of the slowest writer for each of the fastest, when the fastest had made its last."""
    made: dict[int, list[int]] = {}
    for key, snapshot in finish.acknowledged.items():
        made.setdefault(key // 1_000_000, []).append(snapshot)
    first_end = min(max(ids) for ids in made.values())
    counts = [sum(snapshot <= first_end for snapshot in ids) for ids in made.values()]
    return min(counts) / max(counts)


@contextmanager
def busy_cores(processes: int) -> Iterator[None]:
    """Beside processes that take all CPU they get."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@pytest.mark.parametrize("hogs", [0, 2])
def test_writers_alone(tmp_path: Path, hogs: int) -> None:
    """With and without processes that take all CPU: none fails, and none is left behind."""
    location = made_table(tmp_path, {"write-only": "true"})
    with busy_cores(hogs):
        finish = run(location, tmp_path, ["write"] * PROCESSES, COMMITS)
    check_finish(location, finish, whole_history=True)
    share = slowest_share(finish)
    print(f"the slowest writer made {share:.2f} of the commits of the fastest")
    if COMMITS >= SHARED_FROM:
        assert share >= 0.25


def test_writers_compactor_tender_and_reader(tmp_path: Path) -> None:
    location = made_table(tmp_path, {"num-sorted-run.compaction-trigger": "3"})
    roles = [*["write"] * PROCESSES, "compact", "tend", "read"]
    finish = run(location, tmp_path, roles, COMMITS)
    print([line for line in finish.others if not line.startswith("failed")][-4:])
    check_finish(location, finish, whole_history=False)


def test_writers_and_a_compactor_give_dynamic_buckets(tmp_path: Path) -> None:
    """All write new keys to one partition, and give them buckets: no key gets two."""
    location = made_table(tmp_path, {"bucket": "-1", "dynamic-bucket.target-row-num": "7"})
    commits = COMMITS if "LSM_RACE" in os.environ else 8
    finish = run(location, tmp_path, [*["write"] * PROCESSES, "compact"], commits)
    check_finish(location, finish, whole_history=True, commits=commits)
    assert len(set(lsm.open_table(location).system("files").column("bucket").to_pylist())) > 3


def test_hudi_9674_writers_and_every_kind_of_upkeep(tmp_path: Path) -> None:
    """One expires, one tags, one compacts, one removes orphans, one rebuilds the catalog."""
    location = made_table(tmp_path, {"num-sorted-run.compaction-trigger": "3"})
    # Nine processes take their time to start: CI has a small race of this kind.
    processes, commits = (PROCESSES, COMMITS) if "LSM_RACE" in os.environ else (2, 8)
    upkeep = ["expire", "tag", "compact", "orphans", "rebuild"]
    finish = run(location, tmp_path, [*["write"] * processes, *upkeep], commits)
    print([line for line in finish.others if not line.startswith("failed")])
    check_finish(location, finish, whole_history=False, processes=processes, commits=commits)
    table = lsm.open_table(location)
    for tag in table.tags():
        assert table.scan(tag=tag.name).count() > 0
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert table.verify().is_clean

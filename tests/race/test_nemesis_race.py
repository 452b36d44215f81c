"""Real processes on one table, stopped and continued, killed and started again, while snapshots expire
as fast as they can. Writers note what was acknowledged outside of the table: all of it is there, once.

CI runs some kinds for seconds; the full race, 150 s for each of eight kinds:

    LSM_NEMESIS_SECONDS=150 python -m pytest tests/race/test_nemesis_race.py -q -s
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.fault.test_nemesis import KINDS
from tests.race.nemesis_worker import SHARED

ROOT = Path(__file__).parents[2]
SECONDS = float(os.environ.get("LSM_NEMESIS_SECONDS", "5"))
IN_CI = ("fixed", "append", "aggregation")
ROLES = ["write", "write", "write", "compact", "expire", "orphans", "tag", "read"]

pytestmark = pytest.mark.race


class Racers:
    """The processes, by place; one that was killed is followed by another with a number of its own."""

    def __init__(self, location: str, folder: Path, kind: str) -> None:
        self._command = [sys.executable, "-m", "tests.race.nemesis_worker", location]
        self._folder, self._kind = folder, kind
        self.gate = folder / "gate"
        self.gate.touch()
        self._count = 0
        self.all: dict[int, subprocess.Popen[bytes]] = {}
        self.said = (folder / "said").open("wb")
        for place in range(len(ROLES)):
            self.start(place)

    def start(self, place: int) -> None:
        self._count += 1
        log = self._folder / f"log-{self._count}"
        given = [str(self.gate), str(log), str(self._count), ROLES[place], self._kind]
        self.all[place] = subprocess.Popen(
            [*self._command, *given], stdout=self.said, stderr=self.said, cwd=ROOT
        )

    def wait_for_commits(self) -> None:
        """Return when every writer has committed: on a busy machine they take their time to start."""
        last = time.monotonic() + 120
        logs = [self._folder / f"log-{place + 1}" for place in range(ROLES.count("write"))]
        while time.monotonic() < last:
            if all(log.exists() and "acknowledged" in log.read_text() for log in logs):
                return
            time.sleep(0.1)

    def kill(self, place: int) -> None:
        self.all[place].kill()
        self.all[place].wait()

    def end(self) -> list[int]:
        self.gate.unlink()
        for racer in self.all.values():
            racer.send_signal(signal.SIGCONT)
        codes = [racer.wait(timeout=120) for racer in self.all.values()]
        self.said.close()
        return codes


def race(location: str, folder: Path, kind: str, seconds: float) -> None:
    """Stop and continue, now and then kill, by a dice that is thrown the same each time."""
    dice = random.Random(kind)
    racers = Racers(location, folder, kind)
    try:
        racers.wait_for_commits()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            places = dice.sample(range(len(ROLES)), dice.randint(1, 3))
            for place in places:
                racers.all[place].send_signal(signal.SIGSTOP)
            time.sleep(dice.choice([0.05, 0.2, 0.6, 1.5]))
            if dice.random() < 0.1:
                racers.kill(places[0])
                racers.start(places[0])
            for place in places:
                racers.all[place].send_signal(signal.SIGCONT)
            time.sleep(dice.choice([0.0, 0.05, 0.3]))
        codes = racers.end()
        assert codes == [0] * len(ROLES), (folder / "said").read_text()[-2000:]
    finally:
        for racer in racers.all.values():
            racer.kill()
            racer.wait()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_acknowledged_is_lost_or_doubled(kind: str, tmp_path: Path) -> None:
    if kind not in IN_CI and "LSM_NEMESIS_SECONDS" not in os.environ:
        pytest.skip("of the full race, see above")
    run(str(tmp_path), tmp_path, kind, SECONDS)


def run(warehouse: str, tmp_path: Path, kind: str, seconds: float) -> None:
    """Race on a new table of a kind, and check what is left of it against what the writers noted."""
    options = {"commit.max-retries": "1000", **KINDS[kind]}
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=warehouse) as catalog:
        columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
        key = [] if kind == "append" else ["k"]
        location = catalog.create_table("db.t", columns, primary_key=key, options=options).location
    race(location, tmp_path, kind, seconds)
    tried, known, failed = set(), set(), set()
    for log in tmp_path.glob("log-*"):
        for line in log.read_text().splitlines():
            what, number, *_ = line.split()
            {"trying": tried, "acknowledged": known, "failed": failed}[what].add(int(number))
    assert known, (tmp_path / "said").read_text()[-2000:]
    table = lsm.open_table(location)
    report = table.verify()
    ghosts = [one for one in report.problems if "never counted" in one]
    assert list(report.problems) == ghosts, report.problems
    table.compact(full=True)
    rows = lsm.open_table(location).scan().to_arrow().to_pylist()
    keys = [row["k"] for row in rows if row["k"] != SHARED]
    print(
        f"{kind}: {len(known)} acknowledged of {len(tried)}, {len(keys)} there, {len(ghosts)} ghosts"
    )
    assert len(keys) == len(set(keys)), "doubled"
    assert known <= set(keys), f"lost {sorted(known - set(keys))[:10]} of {len(known)}"
    assert not set(keys) & failed, "there, and reported as failed"
    assert set(keys) <= tried
    if kind == "aggregation":
        assert [row["v"] for row in rows if row["k"] == SHARED] == [len(keys)]
    for tag in table.tags():
        tagged = table.scan(tag=tag.name).to_arrow().column("k").to_pylist()
        assert set(tagged) - {SHARED} <= set(keys), tag.name
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert lsm.open_table(location).verify().is_clean

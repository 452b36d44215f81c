"""Three of our writers and one of Java Paimon on one local table: whose acknowledged commits are lost?

    python -m tests.interop.race_java --seconds 60 --kind plain --release 2.0.0

Kinds: plain; expiring (we expire meanwhile); stopped (expiring, and any of them is stopped and continued).
Each commit adds a row of its own and 1 to a sum that all share. What was tried, acknowledged and failed
is noted outside of the table.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import lsm_engine as lsm
from tests.interop.newest_java import BUNDLES, command
from tests.race.nemesis_worker import SHARED

ROOT = Path(__file__).parents[2]
OURS, JAVA, JAVAS_KEYS = 3, "java", 900_000_000
KINDS = ("plain", "expiring", "stopped")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Keys of commits. `there`: readable afterwards; `total`: what the shared sum has become."""

    acknowledged: dict[str, set[int]]
    failed: dict[str, set[int]]
    there: set[int]
    total: int
    problems: tuple[str, ...]

    def lost(self, side: str) -> set[int]:
        """Acknowledged, and not readable."""
        return self.acknowledged[side] - self.there

    def revived(self, side: str) -> set[int]:
        """Reported as failed, and readable."""
        return self.failed[side] & self.there


def race(folder: Path, kind: str, seconds: float, release: str) -> Outcome:
    """Race on a table of its own."""
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    options = {
        "bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum",
        "commit.max-retries": "1000", "write-only": "true",
    }  # fmt: skip
    with lsm.open_catalog(f"sqlite:///{folder}/c.db", warehouse=str(folder)) as catalog:
        location = catalog.create_table(
            "db.t", columns, primary_key=["k"], options=options
        ).location
    gate = folder / "gate"
    gate.touch()
    processes = started(location, folder, gate, kind, release)
    try:
        wait_for_commits(folder)
        disturb(processes, kind, seconds)
    finally:
        gate.unlink()
        for process in processes:
            process.send_signal(signal.SIGCONT)
        for process in processes:
            process.wait(timeout=120)
    return outcome(folder, location)


def started(
    location: str, folder: Path, gate: Path, kind: str, release: str
) -> list[subprocess.Popen[bytes]]:
    """The writers, Java's last but for our expirer."""
    ours = [sys.executable, "-m", "tests.race.nemesis_worker", location, str(gate)]
    commands = [
        [*ours, str(folder / f"log-{number}"), str(number), "write", "aggregation"]
        for number in range(1, OURS + 1)
    ]
    log = str(folder / f"log-{JAVA}")
    racer = command("PaimonRacer", location, str(gate), log, str(JAVAS_KEYS), release=release)
    commands.append(racer)
    if kind != "plain":
        commands.append([*ours, str(folder / "log-none"), "0", "expire", "aggregation"])
    with (folder / "output").open("wb") as output:
        return [subprocess.Popen(one, stdout=output, stderr=output, cwd=ROOT) for one in commands]


def wait_for_commits(folder: Path) -> None:
    """Return once each writer has committed."""
    last = time.monotonic() + 120
    logs = [folder / f"log-{name}" for name in (*range(1, OURS + 1), JAVA)]
    while not all(log.exists() and "acknowledged" in log.read_text() for log in logs):
        assert time.monotonic() < last, (folder / "output").read_text()[-2000:]
        time.sleep(0.1)


def disturb(processes: list[subprocess.Popen[bytes]], kind: str, seconds: float) -> None:
    """Let them race; stop and continue some of them where the kind asks for it."""
    if kind != "stopped":
        time.sleep(seconds)
        return
    dice, end = random.Random(1), time.monotonic() + seconds
    while time.monotonic() < end:
        some = dice.sample(processes, dice.randint(1, 2))
        for process in some:
            process.send_signal(signal.SIGSTOP)
        time.sleep(dice.choice([0.05, 0.2, 0.6, 1.5]))
        for process in some:
            process.send_signal(signal.SIGCONT)
        time.sleep(dice.choice([0.0, 0.05, 0.3]))


def outcome(folder: Path, location: str) -> Outcome:
    """What the logs and the table have in the end."""
    found: dict[str, dict[str, set[int]]] = {
        what: {"ours": set(), JAVA: set()} for what in ("trying", "acknowledged", "failed")
    }
    for log in folder.glob("log-*"):
        side = JAVA if log.name.endswith(JAVA) else "ours"
        for line in log.read_text().splitlines():
            what, key, *_ = line.split()
            found[what][side].add(int(key))
    table = lsm.open_table(location)
    rows = {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    return Outcome(
        acknowledged=found["acknowledged"],
        failed=found["failed"],
        there=set(rows) - {SHARED},
        total=rows[SHARED],
        problems=table.verify(deep=True).problems,
    )


def main() -> None:
    """Race as the command line has it and print what became of the commits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kind", choices=KINDS, default="plain")
    parser.add_argument("--release", choices=[*BUNDLES], default="2.0.0", help="of Java Paimon")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="race-java-") as folder:
        end = race(Path(folder), given.kind, given.seconds, given.release)
    for side in ("ours", JAVA):
        print(
            f"{given.kind}: {side}: {len(end.acknowledged[side])} acknowledged, "
            f"{len(end.lost(side))} lost, {len(end.failed[side])} failed, "
            f"{len(end.revived(side))} of these there"
        )
    print(f"{len(end.there)} rows, sum {end.total}; verify: {end.problems or 'clean'}")


if __name__ == "__main__":
    main()

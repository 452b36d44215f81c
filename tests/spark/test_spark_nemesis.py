"""Drivers, JVMs, workers, Connect servers and streaming queries killed at random: in the end every row counts once.

LSM_SPARK_NEMESIS_SECONDS=600 python -m pytest -m spark -s tests/spark/test_spark_nemesis.py
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from tests.spark.test_connect import connect_packages

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.interop_full]

SECONDS = float(os.environ.get("LSM_SPARK_NEMESIS_SECONDS", "60"))
ROOT = Path(__file__).parent.parent.parent
SUMS = pa.schema([pa.field("id", pa.int64()), pa.field("amount", pa.int64())])
VICTIMS = ("driver", "jvm", "worker", "worker", "worker")
"""By Connect the JVM is the server; workers are all processes of Python below it, those that plan and commit too."""


class Child:
    """A driver with all of its processes, in a group of its own."""

    def __init__(self, kind: str, *places: str) -> None:
        packages = connect_packages() if kind == "connect" else ""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{packages}",
            "PYSPARK_PYTHON": sys.executable,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.nemesis_child", kind, *places],
            env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip

    def started(self) -> bool:
        """Wait until its query runs; False where it ended before."""
        assert self.process.stdout is not None
        return self.process.stdout.readline() == "started\n"

    def kill(self, victim: str, chance: random.Random) -> bool:
        """Kill one of its kinds of process; False where there is none."""
        if victim == "driver":
            self.end()
            return True
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(self.process.pid).children(recursive=True)
            is_java = {each.pid: "java" in each.name() for each in below}
            chosen = [each for each in below if is_java[each.pid] is (victim == "jvm")]
            if chosen:
                chance.choice(chosen).kill()
                return True
        return False

    def end(self) -> None:
        """Kill all of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_sums_are_exact_whoever_dies(new_table, tmp_path, kind):
    chance = random.Random(11)
    adding = {"merge_engine": "aggregation", "fields.amount.aggregate-function": "sum"}
    source = new_table("source", schema=SUMS, partitioned_by=(), changelog_producer="input")
    sums = new_table("sums", schema=SUMS, partitioned_by=(), bucket="2", **adding)
    expected: Counter[int] = Counter()

    def write_more() -> None:
        for _ in range(chance.randrange(1, 6)):
            ids = chance.sample(range(100), 20)
            amount = chance.randrange(1, 9)
            source.upsert(pa.table({"id": ids, "amount": [amount] * 20}, schema=SUMS))
            expected.update(dict.fromkeys(ids, amount))

    places = (source.location, sums.location, str(tmp_path / "checkpoint"))
    killed: Counter[str] = Counter()
    until = time.monotonic() + SECONDS / 2

    def goes_on() -> bool:
        """For so long, and on a slow machine until somebody was killed."""
        return time.monotonic() < until or not killed.total()

    while goes_on():
        write_more()
        child = Child(kind, *places)
        try:
            if child.started():
                while child.process.poll() is None and goes_on():
                    time.sleep(chance.uniform(0.1, 6))
                    victim = chance.choice(VICTIMS)
                    killed[victim] += child.kill(victim, chance)
        finally:
            child.end()
    write_more()
    for _ in range(3):  # what the last kill left behind may fail one more run
        last = Child(kind, *places)
        told, _ = last.process.communicate(timeout=600)
        if told.endswith("ended\n"):
            break
    assert told.endswith("ended\n"), told
    print(kind, dict(killed), sums.session.snapshots.latest_id(), "snapshots")
    rows = sums.scan().to_arrow()
    assert dict(zip(*rows.to_pydict().values(), strict=True)) == expected
    assert not sums.verify(deep=True).problems

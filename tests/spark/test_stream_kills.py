"""A streaming query killed between its commit and its checkpoint: begun again, every row counts once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.interop_full]

ROOT = Path(__file__).parent.parent.parent
SUMS = pa.schema([pa.field("id", pa.int64()), pa.field("amount", pa.int64())])
KILLS = ("driver:committed:1", "process:committed:2", "process:staged:3", "driver:staged:4")


def run(*places: str, kill: str = "::") -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LSM_KILL": kill}
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.stream_child", *places],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        start_new_session=True,
    )


def test_sums_are_exact_after_each_kill(new_table, tmp_path):
    adding = {"merge_engine": "aggregation", "fields.amount.aggregate-function": "sum"}
    source = new_table("source", schema=SUMS, partitioned_by=(), changelog_producer="input")
    sums = new_table("sums", schema=SUMS, partitioned_by=(), bucket="2", **adding)
    expected: dict[int, int] = {}
    for number in range(6):
        ids = range(number * 7, number * 7 + 20)
        source.upsert(pa.table({"id": ids, "amount": [number + 1] * 20}, schema=SUMS))
        for each in ids:
            expected[each] = expected.get(each, 0) + number + 1
    places = (source.location, sums.location, str(tmp_path / "checkpoint"))
    for kill in KILLS:
        done = run(*places, kill=kill)
        who = kill.partition(":")[0]
        assert done.returncode == (-signal.SIGKILL if who == "driver" else 1), done.stderr[-3000:]
    done = run(*places)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = sums.scan().to_arrow()
    assert dict(zip(rows["id"].to_pylist(), rows["amount"].to_pylist(), strict=True)) == expected
    assert not sums.verify().problems
    # Begun again with all of it read, it has nothing to do.
    before = sums.session.snapshots.latest_id()
    assert run(*places).returncode == 0
    assert sums.session.snapshots.latest_id() == before

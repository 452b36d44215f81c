"""Spilled rows: kept as long as their writer lives, wherever it runs, and swept once it is dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_engine.storage.local_state import SpillArea, sweep_spills

ROWS = pa.record_batch({"a": [1, 2]})
SPILLED_AND_WAITS = """
import pyarrow as pa
from lsm_engine.storage.local_state import SpillArea
area = SpillArea()
area.spill([pa.record_batch({"a": [1]})])
print("spilled", flush=True)
input()
"""


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


def nobody(pid: int, number: int) -> None:
    raise ProcessLookupError(pid, number)


def test_a_writer_of_another_container_keeps_its_rows(
    monkeypatch: pytest.MonkeyPatch, local: Path
) -> None:
    area = SpillArea()
    spilled = area.spill([ROWS])
    monkeypatch.setattr(os, "kill", nobody)  # its process number means nobody here
    sweep_spills()
    assert list(spilled) == [ROWS]
    area.close()
    assert os.listdir(local) == []


def test_rows_go_once_their_writer_is_killed(local: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SPILLED_AND_WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"spilled\n"
        sweep_spills()
        assert len(list(local.rglob("*.arrow"))) == 1
        writer.send_signal(signal.SIGKILL)
    sweep_spills()
    assert os.listdir(local) == []


def test_a_sweep_leaves_links_and_files_of_others(local: Path) -> None:
    kept = local / "elsewhere"
    kept.mkdir()
    kept.joinpath("0.arrow").touch()
    (local / "lsm-spill-link").symlink_to(kept)
    (local / "lsm-spill-x").mkdir()
    (local / "lsm-spill-x" / "notes").touch()
    sweep_spills()
    assert kept.joinpath("0.arrow").exists()
    assert os.listdir(local / "lsm-spill-x") == ["notes"]

"""Crashes on a real disk: processes killed by SIGKILL before and after each mutating system call.

CI kills at a sample of the calls. All of them, and a second kill during the recovery from each:

    python -m pytest tests/fault/test_kill.py -m sweep -q
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsm_engine.storage.local import LocalFileIO
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.scenarios import SCENARIOS, check_old_or_new, check_retried, prepared

ROOT = Path(__file__).parents[2]
SAMPLE = 4  # kills per operation in CI


class Killer:
    """The other end of tests/fault/kill_server.py."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.fault.kill_server"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def run(self, scenario: str, root: Path, at: int = 0, *, after: bool = False) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"scenario": scenario, "root": str(root), "at": at, "after": after}
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    killer = Killer()
    yield killer
    killer.close()


def laid_out(disk: MemoryFileIO, root: Path) -> Path:
    """Write the files of a memory disk into a directory."""
    for path, (data, _) in disk._files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    root.mkdir(exist_ok=True)
    return root


def kill_points(killer: Killer, name: str, folder: Path) -> list[tuple[int, bool]]:
    disk, _ = prepared(name)
    answer = killer.run(name, laid_out(disk, folder / "counted"))
    assert not answer["error"], answer
    assert answer["count"] > 1, answer
    return [(number, after) for number in range(1, answer["count"] + 1) for after in (False, True)]


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_killed_at_some_system_calls(killer: Killer, name: str, tmp_path: Path) -> None:
    """Old state or new, and a retry gives one copy."""
    points = kill_points(killer, name, tmp_path)
    step = max(1, len(points) // min(SAMPLE, SCENARIOS[name].sample))
    for number, after in points[len(name) % step :: step]:
        kill(killer, name, tmp_path, number, after=after)


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_killed_at_every_system_call(killer: Killer, name: str, tmp_path: Path) -> None:
    """The same, at every call, and again while another process cleans up and retries."""
    for number, after in kill_points(killer, name, tmp_path):
        kill(killer, name, tmp_path, number, after=after)
        for again in (1, 4, 9, 16):
            kill(killer, name, tmp_path, number, after=after, again=again)


def kill(
    killer: Killer, name: str, folder: Path, number: int, *, after: bool, again: int = 0
) -> None:
    disk, _ = prepared(name)
    root = laid_out(disk, folder / f"{number}-{after}-{again}")
    answer = killer.run(name, root, number, after=after)
    assert answer["killed"], (answer, number, after)
    scenario = SCENARIOS[name]
    try:
        check_old_or_new(scenario, LocalFileIO(str(root)))
        if again:
            killer.run(name, root, again)
            check_old_or_new(scenario, LocalFileIO(str(root)))
        check_retried(scenario, LocalFileIO(str(root), durable=False))
    except AssertionError as wrong:
        where = f"{'after' if after else 'before'} call {number}, then {again}"
        raise AssertionError(f"killed {where}: {wrong}") from wrong
    shutil.rmtree(root)

"""Tests that share a server, a browser or a JVM run in one process, whatever versions are installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.xdist_group("tidy")
def test_groups_of_tests_are_seen_by_pytest_xdist(request: pytest.FixtureRequest) -> None:
    """A version of pytest that pytest-xdist did not know ignored them: a run took half as long again."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("no worker of `--dist loadgroup`")
    assert request.node.nodeid.endswith("@tidy")


def test_slow_tests_end_when_their_time_is_over() -> None:
    """CI on a machine of half the speed runs all other tests, and says which it left out."""
    asked = [
        "tests/race/test_race.py",
        "tests/unit/catalog/test_names.py",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *asked],
        cwd=ROOT, env={**os.environ, "LSM_SLOW_TESTS_UNTIL": "0"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    *_, counts = done.stdout.splitlines()
    assert "5 skipped" in counts
    assert " passed" in counts

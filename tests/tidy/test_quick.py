"""The quick tests are what README and CONTRIBUTING call so: all there, of every part, within a minute."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.quick import COMMAND, HERE, LONG, MARKED, QUICK

ROOT = HERE.parent
SECONDS = 60


def test_each_is_there_and_every_folder_of_unit_tests_has_one():
    assert [name for name in (*QUICK, *LONG) if not (HERE / name).exists()] == []
    folders = {path.name for path in (HERE / "unit").iterdir() if list(path.glob("test_*.py"))}
    assert folders - {Path(name).parts[1] for name in QUICK if name.startswith("unit/")} <= {"cli"}


def test_files_that_mark_a_test_as_quick_are_known_as_others_are_not_even_imported():
    mark = "@pytest.mark." + "quick"
    marking = {
        path.relative_to(HERE).as_posix()
        for path in HERE.rglob("test_*.py")
        if mark in path.read_text()
    }
    assert marking == set(MARKED)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_pages_give_the_command(page):
    assert f".venv/bin/python {COMMAND}" in (ROOT / page).read_text()


@pytest.mark.sweep
def test_they_end_within_a_minute():
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, *COMMAND.split()],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert time.monotonic() - begun <= SECONDS, done.stdout

"""A fair, fixed sample of the mutation run, and the list of mutants that change nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.run import imported, stale_equivalents

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_a_sample_of_mutants_is_noticed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation", "--sample", "30"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_listed_equivalent_is_a_mutant() -> None:
    assert stale_equivalents(imported()) == [], "delete these lines from equivalent.txt"

"""What is loaded beside the first requests of a process."""

import subprocess
import sys

FORKS = """
import os, sys
import lsm_engine as lsm
from lsm_engine.ddl import open as load_beside
assert "pandas" not in sys.modules
load_beside.load_beside()
load_beside.load_beside()
assert len(load_beside._begun) == 1
if (child := os.fork()) == 0:
    import pandas
    os._exit(0 if load_beside._begun[0].done() else 3)
assert os.waitpid(child, 0)[1] == 0
assert "pandas" in sys.modules
"""


def test_a_fork_waits_for_what_is_being_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], timeout=120, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

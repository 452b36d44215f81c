"""docs/spark.md runs as it stands: its blocks in order, in a new process that finds the format by itself."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lsm_engine as lsm
from lsm_engine.spark.commands.procedures import PROCEDURES

ENGINE = Path(lsm.__file__).parent
PAGE = (ENGINE / "docs" / "spark.md").read_text()


@pytest.mark.spark
@pytest.mark.interop_full  # a session of its own, a minute; tests/spark/test_sql.py runs its statements in CI
def test_the_blocks_of_the_page(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 10
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks) + "\nprint('to the end')\n")
    path = f"{ENGINE / 'spark' / 'discovery'}:{ENGINE.parent}"
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.stdout.endswith("to the end\n"), done.stdout[-3000:] + done.stderr[-3000:]


def test_every_procedure_is_on_the_page():
    listed = {
        name
        for line in PAGE.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line)
    }
    assert set(PROCEDURES) <= listed

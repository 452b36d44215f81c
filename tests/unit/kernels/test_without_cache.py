"""Kernels where nothing may be written: a read-only installation, and a user without a home."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lsm_engine

PROGRAM = """
import lsm_engine
import numpy as np
from lsm_engine.format.arrow_buffers import gather_pieces
from lsm_engine.api.catalog import open_catalog  # whatever is compiled is decorated by now
pieces, offsets = gather_pieces(np.arange(8, dtype=np.uint8), np.array([6, 0]), np.array([2, 1]))
print(lsm_engine.__file__, pieces.tolist(), offsets.tolist())
"""


def test_kernels_compile_where_no_directory_takes_their_cache(tmp_path: Path) -> None:
    package = tmp_path / "lsm_engine"
    shutil.copytree(
        Path(lsm_engine.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    for directory in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (directory / "__pycache__").touch()  # a file: root, too, can't write below it
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM], capture_output=True, text=True, timeout=300,
        cwd=tmp_path, check=False, env={**kept, "PYTHONPATH": str(tmp_path), "HOME": "/dev/null"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{package / '__init__.py'} [6, 7, 0] [0, 2, 3]"

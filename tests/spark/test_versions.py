"""PySpark of other versions, each in an environment of its own: what works, and what says that it does not."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.interop.environments import EnvironmentFailedError
from tests.interop.other_sparks import OtherSpark

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.interop_full]

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("version", "has_format"), [("3.5.9", False), ("4.0.5", False), ("4.1.4", True)]
)
def test_what_a_version_of_pyspark_does(version, has_format, tmp_path):
    try:
        python = OtherSpark(version).python()
    except EnvironmentFailedError as failed:
        pytest.skip(f"cannot be fetched here: {failed}")
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    # Behind its own packages ours: PySpark is theirs, Arrow and the rest are what this environment has.
    (packages / "behind.pth").write_text(sysconfig.get_path("purelib"))
    done = subprocess.run(
        [str(python), "-m", "tests.spark.version_story", str(tmp_path / "lake")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert f"frames work {version}" in done.stdout, done.stdout + done.stderr[-4000:]
    assert ("the format works" in done.stdout) is has_format
    assert ("refused: register needs PySpark 4.1 or newer" in done.stdout) is not has_format

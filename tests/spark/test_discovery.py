"""`format("lsm")` without `register`: the wheel puts a module beside the package, and PySpark finds it."""

import io
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import lsm_engine as lsm

ROOT = Path(lsm.__file__).parent.parent
DISCOVERY = ROOT / "lsm_engine" / "spark" / "discovery"
QUERY = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for pushed in (False, True):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    print(spark.read.format("lsm").load(sys.argv[1]).where("id >= 8").count())
from lsm_engine.spark import register
register(spark)
print(spark.conf.get("spark.sql.timeType.enabled"))
"""


@pytest.mark.parametrize("kind", ["build_wheel", "build_editable"])
def test_a_wheel_has_the_module_that_pyspark_looks_for(kind, tmp_path, monkeypatch):
    """What setuptools builds is not of interest here: only what is put into it."""
    monkeypatch.syspath_prepend(str(DISCOVERY))
    import build_backend

    def built(directory, *settings):
        with zipfile.ZipFile(Path(directory, "made-1.whl"), "w") as wheel:
            wheel.writestr("made-1.dist-info/RECORD", "made-1.dist-info/RECORD,,\n")
        return "made-1.whl"

    monkeypatch.setattr(build_backend.build_meta, kind, built, raising=False)
    name = getattr(build_backend, kind)(str(tmp_path), {}, None)
    with zipfile.ZipFile(io.BytesIO((tmp_path / name).read_bytes())) as wheel:
        assert wheel.testzip() is None
        module = wheel.read("pyspark_lsm.py")
        first, second = wheel.read("made-1.dist-info/RECORD").decode().splitlines()
    assert module == (DISCOVERY / "pyspark_lsm.py").read_bytes()
    assert first.startswith("pyspark_lsm.py,sha256=")
    assert first.endswith(f",{len(module)}")
    assert second == "made-1.dist-info/RECORD,,"


@pytest.mark.spark
@pytest.mark.interop_full  # a session of its own, as docs/spark.md has
def test_the_format_is_found_without_register_whether_or_not_filters_are_handed_down(
    tmp_path, monkeypatch
):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table("shop.t", {"id": "BIGINT"}, primary_key="id")
        table.upsert([{"id": n} for n in range(10)])
        monkeypatch.setenv("PYTHONPATH", f"{DISCOVERY}:{ROOT}")
        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
        done = subprocess.run(
            [sys.executable, "-c", QUERY, table.location],
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.stdout.split() == ["2", "2", "true"], done.stderr[-2000:]


def test_looking_for_the_format_loads_no_engine():
    """Every session that uses some Python data source looks."""
    script = (
        "import sys, pyspark_lsm; assert pyspark_lsm.DefaultSource.name() == 'lsm'\n"
        "assert not [name for name in sys.modules if name.startswith('lsm_engine')]"
    )
    environment = {"PYTHONPATH": f"{DISCOVERY}:{ROOT}", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert find_spec("lsm_engine.spark.discovery.pyspark_lsm") is not None

"""The sdist and the wheel as users get them: built, installed into environments of their own, run elsewhere.

`LSM_PYTHONS` names the interpreters, by command; without it, the one that runs the tests.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHONS = [name for name in os.environ.get("LSM_PYTHONS", sys.executable).split(",") if name]
STORY = """
import sys
import lsm_engine as lsm
with lsm.open_catalog("lake") as catalog:
    table = catalog.create_table("shop.orders", {"id": int, "name": str}, primary_key="id")
    table.upsert([{"id": n, "name": str(n)} for n in range(30_000)])  # many: compiled
    table.upsert([{"id": 7, "name": "seven"}])
    table.compact(full=True)
    assert len(table) == 30_000
    assert table.to_arrow(where="id = 7")["name"].to_pylist() == ["seven"]
    assert table.verify(deep=True).is_clean
assert "site-packages" in lsm.__file__, lsm.__file__
extras = {"pyspark", "dagster", "pandas", "polars", "duckdb", "obstore", "boto3"}
assert not extras & set(sys.modules), extras & set(sys.modules)
print(lsm.__version__)
"""

pytestmark = pytest.mark.sweep


def _run(*command: object, cwd: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=kept | environment,
        capture_output=True, text=True, check=False, timeout=1_200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel made from it and nothing else."""
    room = tmp_path_factory.mktemp("built")
    tracked = _run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, tracked):
        copy = room / "source" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    _run(sys.executable, "-m", "venv", "builder", cwd=room)
    _run("builder/bin/pip", "install", "-q", "build", cwd=room)
    _run("builder/bin/python", "-m", "build", "-o", "dist", "source", cwd=room)
    return room / "dist"


@pytest.mark.parametrize("python", PYTHONS)
def test_the_small_installation_takes_450_megabytes(built, python, tmp_path):
    (wheel,) = built.glob("*.whl")
    _run(python, "-m", "venv", "env", cwd=tmp_path)
    _run("env/bin/pip", "install", "-q", "--no-compile", wheel, "numba<0.62", cwd=tmp_path)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    taken = {
        path.name: int(_run("du", "-sk", path, cwd=tmp_path).split()[0]) / 1024
        for path in packages.iterdir()
        if not path.name.startswith(("pip", "setuptools", "pkg_resources"))
    }
    assert sum(taken.values()) <= 450, taken
    _run(tmp_path / "env/bin/python", "-c", STORY, cwd=tmp_path)


def _tracked(*folders: str) -> set[str]:
    return set(_run("git", "ls-files", *folders, cwd=ROOT).split())


def test_the_sdist_and_the_wheel_hold_every_file_of_the_packages(built):
    wanted = _tracked("lsm_engine", "lsm_assets")
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted | {"README.md", "LICENSE", "pyproject.toml"} <= packed
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert wanted <= held


@pytest.mark.parametrize("python", PYTHONS)
def test_a_wheel_with_compiled_loops_needs_no_compiler(built, python, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    _run(python, "-m", "venv", "builder", cwd=tmp_path)
    _run("builder/bin/pip", "install", "-q", "build", cwd=tmp_path)
    command = ("builder/bin/python", "-m", "build", "--wheel", "-o", "dist", source)
    _run(*command, cwd=tmp_path, LSM_COMPILE_LOOPS="1")
    (wheel,) = (tmp_path / "dist").glob("*manylinux*.whl")
    _run(python, "-m", "venv", "env", cwd=tmp_path)
    _run("env/bin/pip", "install", "-q", wheel, cwd=tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    story = STORY + "\nassert 'numba' not in sys.modules"
    _run(
        tmp_path / "env/bin/python", "-c", story, cwd=empty, NUMBA_CACHE_DIR=str(tmp_path / "none")
    )


@pytest.mark.parametrize("python", PYTHONS)
def test_the_wheel_works_in_an_empty_directory(built, python, tmp_path):
    (wheel,) = built.glob("*.whl")
    _run(python, "-m", "venv", "env", cwd=tmp_path)
    _run("env/bin/pip", "install", "-q", wheel, cwd=tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    version = _run(tmp_path / "env/bin/python", "-c", STORY, cwd=empty).strip()
    assert f"lsm_assets-{version}-" in wheel.name
    lsm = tmp_path / "env/bin/lsm"
    assert version in _run(lsm, "--version", cwd=empty)
    assert "seven" in _run(
        lsm, "scan", "shop.orders", "--where", "id = 7", "--warehouse", "lake", cwd=empty
    )
    named = subprocess.run(
        [tmp_path / "env/bin/lsm-sample", "--days", "1"],
        cwd=empty, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert named.returncode != 0
    assert "pip install 'lsm-assets[dagster]'" in named.stderr

"""The build backend: setuptools builds the wheel, and the module `pyspark_lsm` is added beside the packages.

PySpark lists the modules of directories. An editable install is a finder and not a directory, so it needs the
module as a file, for which setuptools has no setting.

With LSM_COMPILE_LOOPS=1 in the environment the wheel is one for this Python on Linux with x86-64, and brings all loops over
rows compiled (`lsm_engine.compile_loops`). Processes from it need no compiler. Without it the wheel runs anywhere,
and each machine compiles what it needs.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]
_MODULE = Path(__file__).with_name("pyspark_lsm.py")
_ROOT = Path(__file__).parents[3]
_LOOPS = "lsm_engine/kernels/compiled_ahead"
_PLATFORM = "manylinux2014_x86_64"
"""Object files need nothing of a C library, so that the oldest platform that all installers know is right."""
_compiles = os.environ.get("LSM_COMPILE_LOOPS") == "1"


def get_requires_for_build_wheel(*settings: Any, **keywords: Any) -> list[str]:
    """Return what a build needs (PEP 517): the engine's own requirements where it compiles."""
    requirements: list[str] = build_meta.get_requires_for_build_wheel(*settings, **keywords)
    if _compiles:
        project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
        requirements += project["dependencies"]
    return requirements


def build_wheel(wheel_directory: str, *settings: Any, **keywords: Any) -> str:
    """Build a wheel (PEP 517) and return its file name."""
    name = build_meta.build_wheel(wheel_directory, *settings, **keywords)
    name = _with_files(wheel_directory, name, {_MODULE.name: _MODULE.read_bytes()})
    return _with_loops(wheel_directory, name) if _compiles else name


def _with_loops(wheel_directory: str, name: str) -> str:
    """Add the compiled loops to a wheel, and name it after this Python and the platform."""
    wheel = Path(wheel_directory, name)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as built:
            built.extractall(folder)
        # The loops of the very sources that the wheel holds.
        code = "import lsm_engine; lsm_engine.compile_loops('loops')"
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True)
        files = {
            f"{_LOOPS}/{path.name}": path.read_bytes()
            for path in sorted(Path(folder, "loops", "lsm-kernels").iterdir())
        }
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    (info,) = {member for member in _members(wheel) if member.endswith(".dist-info/WHEEL")}
    with zipfile.ZipFile(wheel) as built:
        text = built.read(info).decode()
    tagged = text.replace("Tag: py3-none-any", f"Tag: {python}-none-{_PLATFORM}")
    if tagged == text:
        raise RuntimeError(f"{name}: the wheel has other tags than py3-none-any")
    files[info] = tagged.encode()
    _with_files(wheel_directory, name, files)
    tagged_name = name.replace("py3-none-any", f"{python}-none-{_PLATFORM}")
    wheel.rename(wheel.with_name(tagged_name))
    return tagged_name


def _members(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as built:
        return built.namelist()


def build_editable(wheel_directory: str, *settings: Any, **keywords: Any) -> str:
    """Build the wheel of an editable install (PEP 660) and return its file name."""
    built = build_meta.build_editable(wheel_directory, *settings, **keywords)
    return _with_files(wheel_directory, built, {_MODULE.name: _MODULE.read_bytes()})


def _with_files(wheel_directory: str, name: str, files: dict[str, bytes]) -> str:
    """Add files to a wheel, or replace those of the same name."""
    wheel = Path(wheel_directory, name)
    with zipfile.ZipFile(wheel) as built:
        members = {member: built.read(member) for member in built.infolist()}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
        for member, data in members.items():
            if member.filename.endswith(".dist-info/RECORD"):
                lines = data.decode().splitlines(keepends=True)
                unchanged_lines = [line for line in lines if line.partition(",")[0] not in files]
                data = "".join([*map(_recorded, files, files.values()), *unchanged_lines]).encode()
            if member.filename not in files:
                archive.writestr(member, data)
    return name


def _recorded(path: str, data: bytes) -> str:
    digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}\n"

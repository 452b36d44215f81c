"""The build backend: setuptools builds the wheel, and the module `pyspark_lsm` is added beside the packages.

PySpark lists the modules of directories. An editable install is a finder and not a directory, so it needs the
module as a file, for which setuptools has no setting.
"""

import hashlib
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
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


def build_wheel(wheel_directory: str, *settings: Any, **keywords: Any) -> str:
    """Build a wheel (PEP 517) and return its file name."""
    return _with_module(
        wheel_directory, build_meta.build_wheel(wheel_directory, *settings, **keywords)
    )


def build_editable(wheel_directory: str, *settings: Any, **keywords: Any) -> str:
    """Build the wheel of an editable install (PEP 660) and return its file name."""
    built = build_meta.build_editable(wheel_directory, *settings, **keywords)
    return _with_module(wheel_directory, built)


def _with_module(wheel_directory: str, name: str) -> str:
    wheel = Path(wheel_directory, name)
    source = _MODULE.read_bytes()
    digest = urlsafe_b64encode(hashlib.sha256(source).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(wheel) as built:
        files = {member: built.read(member) for member in built.infolist()}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_MODULE.name, source)
        for member, data in files.items():
            if member.filename.endswith(".dist-info/RECORD"):
                data = f"{_MODULE.name},sha256={digest},{len(source)}\n".encode() + data
            archive.writestr(member, data)
    return name

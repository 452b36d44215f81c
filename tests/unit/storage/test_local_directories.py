"""Spilled rows and lookup files go where Spark or YARN says."""

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_engine.cache.disk import CacheLimits, DiskCache
from lsm_engine.storage.clock import SystemClock
from lsm_engine.storage.local_state import SpillArea, local_directory


@pytest.fixture(autouse=True)
def _not_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.delenv("LOCAL_DIRS", raising=False)


def test_without_spark_it_is_the_temporary_directory() -> None:
    assert local_directory() == tempfile.gettempdir()


@pytest.mark.parametrize("name", ["SPARK_LOCAL_DIRS", "LOCAL_DIRS"])
def test_spark_and_yarn_name_directories(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    named = [tmp_path / "a", tmp_path / "b"]
    monkeypatch.setenv(name, f" {named[0]}, {named[1]},")
    assert local_directory() == str(named[os.getpid() % 2])  # made if it was not there
    assert named[os.getpid() % 2].is_dir()


def test_sparks_own_come_before_yarns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCAL_DIRS", str(tmp_path / "yarn"))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    assert local_directory() == str(tmp_path / "spark")


def test_a_directory_that_takes_no_files_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{below},{tmp_path / 'good'},{below}")
    assert local_directory() == str(tmp_path / "good")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(below))
    assert local_directory() == tempfile.gettempdir()


def test_spilled_rows_and_lookup_files_go_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache: DiskCache[pa.Buffer] = DiskCache(SystemClock())  # as the engine's is, when it is loaded
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    spills = SpillArea()
    spills.spill([pa.record_batch({"a": [1]})])
    limits = CacheLimits(max_bytes=1 << 20, retention_millis=1000)
    cache.get("t#1", "f", limits, lambda sink: sink.write(b"x") and None, lambda data, _: data)
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes >= {".arrow", ".lookup"}
    spills.close()

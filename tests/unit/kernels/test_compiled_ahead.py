"""Loops that are compiled ahead: their processes start without the compiler, and the file of combinations is whole."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import lsm_engine as lsm
from lsm_engine.kernels import machine_code
from lsm_engine.kernels.machine_code import COMBINATIONS, CompiledLoops, kinds_of, stored_kinds

WORK = """
import sys, resource
import pyarrow as pa
import lsm_engine as lsm
with lsm.open_catalog(sys.argv[1]) as catalog:
    columns = {"id": int, "day": str, "price": float, "note": str}
    options = {"bucket": "4", "deletion-vectors.enabled": "true", "file-index.bitmap.columns": "day"}
    table = catalog.create_table("shop.orders", columns, primary_key=["id", "day"], partitioned_by="day", options=options)
    numbers = pa.array(range(60_000), pa.int64())
    for factor in (7, 11):
        keys = pa.array([number * factor % 60_000 for number in range(60_000)], pa.int64())
        days = pa.array([f"day {number % 5}" for number in range(60_000)])
        notes = pa.array([f"note {number}" for number in range(60_000)])
        table.upsert(pa.table({"id": keys, "day": days, "price": numbers.cast(pa.float64()), "note": notes}))
    table.delete(where="id < 40000")
    table.compact(full=True)
    assert table.to_arrow(where="day = 'day 3' and id > 50000").num_rows == table.count(where="day = 'day 3' and id > 50000")
    text = catalog.create_table("shop.names", {"name": str, "count": int}, primary_key="name",
                                options={"merge-engine": "aggregation", "fields.count.aggregate-function": "sum"})
    for _ in range(2):
        text.upsert(pa.table({"name": [f"name {number}" for number in range(30_000)], "count": numbers[:30_000]}))
    text.compact(full=True)
    assert text.lookup([{"name": "name 7"}]).num_rows == 1
print("numba" in sys.modules)
"""


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> CompiledLoops:
    """All loops, compiled into a directory of their own."""
    return lsm.compile_loops(str(tmp_path_factory.mktemp("ahead")))


def imports_compiler(folder: Path, **environment: str) -> bool:
    """Whether a process that upserts, deletes, compacts, filters, sums and looks up needs the compiler."""
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(folder / "lake")], capture_output=True, text=True,
        check=False, timeout=300, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip() == "True"


def test_a_process_beside_loops_compiled_ahead_never_imports_the_compiler(
    loops: CompiledLoops, tmp_path: Path
) -> None:
    directory = str(Path(loops.directory).parent)
    assert not imports_compiler(tmp_path / "a", NUMBA_CACHE_DIR=directory)
    assert imports_compiler(tmp_path / "b", NUMBA_CACHE_DIR=str(tmp_path / "empty"))
    files = {path.name for path in Path(loops.directory).iterdir()}
    assert len(files) == loops.loop_count
    # What is there already is not compiled again.
    times = {path.name: path.stat().st_mtime_ns for path in Path(loops.directory).iterdir()}
    assert lsm.compile_loops(directory).loop_count == loops.loop_count
    assert times == {path.name: path.stat().st_mtime_ns for path in Path(loops.directory).iterdir()}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="code for all processors is x86-64's")
def test_a_processor_without_avx2_compiles_for_itself(loops: CompiledLoops, tmp_path: Path) -> None:
    """Settings of numba name a processor other than the one of the files."""
    directory = str(Path(loops.directory).parent)
    program = (
        "import numpy as np; from lsm_engine.kernels import machine_code\n"
        "machine_code._PORTABLE_FEATURES = ('no such feature',)\n"
        "from lsm_engine.kernels.buckets import _counting_sort as loop\n"
        "print(machine_code._portable_processor())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "NUMBA_CACHE_DIR": directory},
    )  # fmt: skip
    assert done.stdout.strip() == "None"


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        lsm.compile_loops(str(tmp_path / "file"))


def test_an_installation_that_is_read_only_leaves_the_code_to_the_next_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = (tmp_path / "file" / "cache", tmp_path / "locked", tmp_path / "user")
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "locked")
    assert machine_code._first_writable(directories) == tmp_path / "user"
    with pytest.raises(PermissionError, match="locked"):
        machine_code._first_writable(directories[1:2])


def test_kinds_of_arguments_come_back_from_the_file() -> None:
    combinations = json.loads(COMBINATIONS.read_text())
    assert len(combinations) > 60
    for all_stored in combinations.values():
        for stored in all_stored:
            assert stored_kinds(kinds_of(stored)) == stored


def test_a_file_of_a_wheel_is_taken_where_no_directory_has_one(
    loops: CompiledLoops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_code, "_SHIPPED", Path(loops.directory))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    machine_code._directories.cache_clear()
    try:
        from lsm_engine.kernels.merge_runs import _radix_sort

        (stored,) = json.loads(COMBINATIONS.read_text())[
            "lsm_engine.kernels.merge_runs._radix_sort"
        ]
        paths = list(_radix_sort.compiled()._paths(kinds_of(stored)))  # type: ignore[attr-defined]
        assert [path.parent for path in paths if path.exists()] == [Path(loops.directory)]
    finally:
        machine_code._directories.cache_clear()


def test_the_command_tells_how_many_loops_are_compiled_and_where(loops: CompiledLoops) -> None:
    directory = str(Path(loops.directory).parent)
    command = (
        Path(sys.executable).with_name("lsm"),
        "cache",
        "--compile",
        "--directory",
        directory,
    )
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert shown.startswith(f"{loops.loop_count} compiled loops in {loops.directory}, ")
    shown = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=True, timeout=300
    ).stdout
    assert json.loads(shown)["loop_count"] == loops.loop_count

"""Machine code of kernels: what is handed over and returned, and the files that keep it between processes."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

from lsm_engine.kernels import machine_code
from lsm_engine.kernels.compiled import Kernel, compiled, is_loaded


class Pair(NamedTuple):
    """Two arguments that belong together."""

    first: Any
    second: Any


def asked(loop: Any, *arguments: Any) -> Any:
    """Return what a loop returns as machine code."""
    return Kernel(loop, None, None).compiled()(*arguments)


@pytest.mark.parametrize(
    "value",
    [
        3, -(2**62), True, False, 1.5, np.int8(-3), np.uint8(250), np.int16(-9), np.uint16(60_000), np.int32(-7),
        np.uint32(4_000_000_000), np.uint64(2**64 - 1), np.float32(0.25), np.float64(-1e300), np.bool_(1),
    ],
)  # fmt: skip
def test_a_number_of_every_kind_comes_back(value: Any) -> None:
    def same(number: Any) -> Any:
        return number

    returned = asked(same, value)
    assert returned == value
    assert type(returned) is type(np.asarray(value).item())


@pytest.mark.parametrize("kind", ["?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "f", "d"])
def test_an_array_of_every_kind_is_read_and_written(kind: str) -> None:
    def copy(source: Any, target: Any) -> int:
        for index in range(len(source)):
            target[index] = source[index]
        return len(source)

    source = np.array([1, 0, 1, 1]).astype(kind)
    source.flags.writeable = False  # as views of Arrow's buffers are
    target = np.zeros(4, kind)
    assert asked(copy, source, target) == 4
    assert target.tolist() == source.tolist()


def test_a_table_of_two_dimensions_and_tuples_within_tuples() -> None:
    def total(table: Any, pair: Pair, limits: Any) -> Any:
        rows, columns = table.shape
        found = 0
        for row in range(rows):
            for column in range(columns):
                found += table[row, column]
        return found * pair.first, pair.second[0] + limits[1], found > limits[0]

    arguments = (
        np.arange(6).reshape(2, 3),
        Pair(2, np.array([5, 6])),
        (10, 20),
    )
    assert asked(total, *arguments) == (30, 25, True)


def test_nothing_is_returned_as_none() -> None:
    def clear(target: Any) -> None:
        target[0] = 0

    target = np.ones(1, np.int64)
    assert asked(clear, target) is None
    assert target[0] == 0


def test_a_loop_may_return_the_same_value_for_all_arguments() -> None:
    def refused(values: Any) -> Any:
        return -1

    def refused_twice(values: Any) -> Any:
        return -1, True

    assert asked(refused, np.array([1])) == -1
    assert asked(refused_twice, np.array([1])) == (-1, True)


def test_every_combination_of_types_has_code_of_its_own() -> None:
    def doubled(values: Any) -> Any:
        return values[0] * 2

    loop = Kernel(doubled, None, None).compiled()
    assert loop(np.array([1.25])) == 2.5
    assert loop(np.array([2**40])) == 2**41
    assert loop(np.array([1.5])) == 3.0


def test_loops_run_while_another_thread_imports_the_module_of_machine_code() -> None:
    """A module that is being imported is among the modules, without all of its names."""
    half_imported = ModuleType("lsm_engine.kernels.machine_code")
    with mock.patch.dict(sys.modules, {half_imported.__name__: half_imported}):
        assert not is_loaded()


def test_an_array_with_gaps_is_refused() -> None:
    def first(values: Any) -> Any:
        return values[0]

    with pytest.raises(TypeError, match="side by side"):
        asked(first, np.arange(10)[::2])


@compiled
def _inner(value: int) -> int:
    return value + 1


def test_an_edited_kernel_that_another_calls_has_other_content() -> None:
    """The file of a loop is named after the code of all kernels that it calls."""

    def outer(value: int) -> int:
        return _inner(value)

    def changed(value: int) -> int:
        return value + 2

    before = Kernel(outer, None, None).content()
    assert Kernel(outer, None, None).content() == before
    inner = globals()["_inner"]
    globals()["_inner"] = Kernel(changed, None, None)
    try:
        assert Kernel(outer, None, None).content() != before
    finally:
        globals()["_inner"] = inner


_TABLE = np.arange(2_000)


def test_a_loop_with_another_constant_array_has_other_content() -> None:
    def looked_up(place: int) -> int:
        return _TABLE[place]

    before = Kernel(looked_up, None, None).content()
    changed = _TABLE.copy()
    changed[1_000] = -1
    with mock.patch.dict(globals(), {"_TABLE": changed}):
        assert Kernel(looked_up, None, None).content() != before


def test_a_user_without_a_home_keeps_no_code_in_the_working_directory(monkeypatch) -> None:
    for variable in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where no user is known
    machine_code._directories.cache_clear()
    try:
        assert all(path.is_absolute() for path in machine_code._directories())
    finally:
        machine_code._directories.cache_clear()


LOOP = """
import sys
from typing import NamedTuple
import numpy as np
from lsm_engine.kernels.compiled import compiled

class Pair(NamedTuple):
    left: int
    right: int

@compiled
def total(pair: Pair, values: np.ndarray) -> int:
    return pair.left + pair.right + values[0]

is_kept = total.compiled().is_kept(Pair(1, 2), np.array([4]))
print(total.compiled()(Pair(1, 2), np.array([4])), is_kept, "numba" in sys.modules)
"""


def run(tmp_path: Path, source: str = LOOP) -> str:
    """Return what a process prints that runs a loop, with a directory for its code."""
    (tmp_path / "loop.py").write_text(source)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-B", "-c", "import loop"], capture_output=True, text=True, timeout=300,
        cwd=tmp_path, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_process_that_finds_the_code_in_a_file_never_imports_the_compiler(tmp_path: Path) -> None:
    assert run(tmp_path) == "7 False True"
    assert run(tmp_path) == "7 True False"
    (file,) = (tmp_path / "cache").rglob("loop.total.*")
    whole = file.read_bytes()
    # A power cut may leave a file without its end, or with zeros in it.
    for damaged in (whole[:-10], whole[:50] + bytes(30) + whole[80:], b""):
        file.write_bytes(damaged)
        assert run(tmp_path) == "7 True True"
        assert file.read_bytes() == whole
    # Another class of arguments is another source, and the code of the older one goes.
    assert run(tmp_path, LOOP.replace("Pair", "Duo")) == "7 False True"
    assert run(tmp_path, LOOP.replace("values[0]", "values[0] * 2")) == "11 False True"
    assert not file.exists()

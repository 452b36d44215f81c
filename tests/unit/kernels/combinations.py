"""The combinations of types that kernels are called with: `python -m tests.unit.kernels.combinations`.

It runs tests in one process, and writes lsm_engine/kernels/loops.json, of which `compile_loops` compiles ahead.
"""

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from lsm_engine.kernels.compiled import Kernel
from lsm_engine.kernels.machine_code import COMBINATIONS, lay_out, stored_kinds

TESTS = Path(__file__).parents[2]
SUITES = ("unit/kernels", "unit/format", "unit/merge", "unit/lookup", "unit/data_files", "unit/read",
          "unit/compact", "unit/changes", "unit/dml", "unit/write", "unit/table", "model/test_stories.py")  # fmt: skip


class Recorder:
    """Notes what each loop of the engine is called with."""

    def __init__(self) -> None:
        self.combinations: dict[str, list[Any]] = {}

    def note(self, kernel: Any, arguments: Any) -> None:
        """Note the types of a call."""
        name = f"{kernel._loop.__module__}.{kernel._loop.__name__}"
        if name.startswith("lsm_engine."):
            kinds: list[Any] = []
            lay_out(arguments, kinds, [])
            stored = stored_kinds(tuple(kinds))
            combinations = self.combinations.setdefault(name, [])
            if stored not in combinations:
                combinations.append(stored)

    def recording(self) -> Any:
        """Return a context in which every call is noted."""
        call = Kernel.__call__

        def noted(kernel: Any, *arguments: Any) -> Any:
            self.note(kernel, arguments)
            return call(kernel, *arguments)

        return mock.patch.object(Kernel, "__call__", noted)


def main() -> int:
    """Run the tests and write what was noted; 1 if one failed."""
    recorder = Recorder()
    suites = [str(TESTS / suite) for suite in SUITES if (TESTS / suite).exists()]
    with recorder.recording():
        failed = pytest.main([*sys.argv[1:], "-q", "-p", "no:cacheprovider", *suites])
    ordered = {
        name: sorted(stored, key=str) for name, stored in sorted(recorder.combinations.items())
    }
    lines = [f"{json.dumps(name)}: {json.dumps(stored)}" for name, stored in ordered.items()]
    COMBINATIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
